//! What `calicoctl ipam check` found, where that is all there is.

use crate::checks::words::counted;
use crate::{Case, Certainty, Check, FindingCode, Look, Need, Subject};
use evidence::books::IpamReport;

pub(in crate::checks) const CHECK: Check = Check {
    title: "calicoctl reports IPAM problems",
    explanation: "The evidence contains the output of calicoctl ipam check, which found addresses that are \
                  leaked, or used but not allocated. The output is repeated as it is, because the IPAM \
                  records themselves were not collected. calicoctl wrongly reports IPv6 tunnel addresses as \
                  leaked.",
    remedy: "collect the IPAM records themselves (plumb collect) and run plumb doctor again before you \
             release anything",
    needs: &[&[Need::Ipam]],
    certainty: Certainty::Certain,
    ..Check::warning(FindingCode::ReportedByCalicoctl, look)
};

fn look(case: &Case<'_>, look: &mut Look<'_>) {
    let Some(ipam) = case.evidence.ipam.as_ref() else { return };
    // With whole books at hand they speak for themselves.
    if ipam.whole.blocks {
        return;
    }
    let problems: Vec<_> =
        ipam.reports.iter().filter(|report| matches!(report.seen, IpamReport::Problem(_))).collect();
    if problems.is_empty() {
        return;
    }
    let exhibits = problems.iter().map(|report| match &report.seen {
        IpamReport::Problem(text) | IpamReport::Summary(text) => report.exhibit(text.clone()),
        IpamReport::Usage { cidr, .. } => report.exhibit(cidr.to_string()),
    });
    let summary = format!("calicoctl ipam check reports {}", counted(problems.len(), "problem"));
    look.found(Subject::Cluster, summary).seen_all(exhibits);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::checks::testing::{only, silent};
    use evidence::{Evidence, Origin, Sighted};

    #[test]
    fn fires_for_problems_and_not_for_a_summary() {
        let mut evidence = Evidence { ipam: Some(Default::default()), ..Evidence::default() };
        let reports = &mut evidence.ipam.as_mut().unwrap().reports;
        let line = |text: &str| Origin::line("check.txt", 3, text);
        reports
            .push(Sighted::new(IpamReport::Summary("Found 0 problems.".into()), line("Found 0 problems.")));
        silent(&CHECK, &evidence);
        let text = "10.0.0.1 leaked";
        let reports = &mut evidence.ipam.as_mut().unwrap().reports;
        reports.push(Sighted::new(IpamReport::Problem(text.into()), line(text)));
        assert_eq!(only(&CHECK, &evidence).evidence[0].text, text);
        evidence.ipam.as_mut().unwrap().whole.blocks = true;
        silent(&CHECK, &evidence);
    }
}
