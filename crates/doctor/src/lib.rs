//! Evidence in, findings out: what is wrong with a cluster, why, and what would mend it.
//!
//! A decision crate: no clock, no randomness, no files, no sockets. Collectors elsewhere fill [`Evidence`];
//! [`diagnose`] runs every check over it. A check is one file under `checks/`: its text, its rule, its tests.
//!
//! Partial evidence is normal. A check finds what the evidence shows and claims no more; what it could not look
//! at goes into [`Report::unseen`].

pub mod checks;
mod evidence;
mod finding;

pub use evidence::{Evidence, Origin, Sighted};
pub use finding::{Exhibit, Finding, Report, Severity};

/// Runs every check. The same evidence always gives the same report, in the same order.
pub fn diagnose(evidence: &Evidence) -> Report {
    let mut report = Report::default();
    for check in checks::ALL {
        (check.run)(evidence, &mut report);
    }
    report.sort();
    report
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_evidence_is_not_a_clean_bill() {
        let report = diagnose(&Evidence::default());
        assert!(report.findings.is_empty());
        assert_eq!(
            report.unseen,
            [
                "IPPool records were not collected, so pool-overlap could not be checked",
                "WorkloadEndpoint records were not collected, so address-shared could not be checked",
            ]
        );
    }

    #[test]
    fn evidence_without_faults_is_a_clean_bill() {
        let evidence = Evidence { endpoints: Some(Vec::new()), pools: Some(Vec::new()) };
        assert_eq!(diagnose(&evidence), Report::default());
    }
}
