//! Every check there is. A new one is a new file and a new row here.

use crate::{Evidence, Report};

mod address_shared;
mod pool_overlap;

/// One kind of finding.
#[derive(Debug)]
pub struct Check {
    /// The code of its findings.
    pub code: &'static str,
    /// What it means, for someone who meets the code for the first time.
    pub explanation: &'static str,
    pub(crate) run: fn(&Evidence, &mut Report),
}

pub const ALL: &[Check] = &[address_shared::CHECK, pool_overlap::CHECK];

/// The check with this code.
pub fn find(code: &str) -> Option<&'static Check> {
    ALL.iter().find(|check| check.code == code)
}

/// Notes that a check had nothing to look at.
fn not_collected(report: &mut Report, records: &str, code: &str) {
    report.unseen.push(format!("{records} records were not collected, so {code} could not be checked"));
}

/// Notes that one value could not be understood and was left out of a check.
fn not_understood(report: &mut Report, record: &model::Key, field: &str, value: &str, code: &str) {
    report.unseen.push(format!("{record}: {field} {value} cannot be read, so {code} left it out"));
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn every_code_is_unique_and_explained() {
        let codes: BTreeSet<&str> = ALL.iter().map(|check| check.code).collect();
        assert_eq!(codes.len(), ALL.len());
        for check in ALL {
            assert!(
                check.code.bytes().all(|byte| byte.is_ascii_lowercase() || byte == b'-'),
                "{}",
                check.code
            );
            assert!(check.explanation.len() > 40, "{}", check.code);
            assert!(find(check.code).is_some_and(|found| found.code == check.code));
        }
        assert!(find("no-such-code").is_none());
    }
}
