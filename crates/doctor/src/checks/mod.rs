//! Every check there is. A new one is a new file and a new row here.

use crate::Check;

mod address_shared;
mod pool_overlap;

/// In the order of their codes.
pub const ALL: &[&Check] = &[&address_shared::CHECK, &pool_overlap::CHECK];

/// The check with this code.
pub fn find(code: &str) -> Option<&'static Check> {
    ALL.iter().copied().find(|check| check.code == code)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_check_is_unique_and_explained() {
        assert!(ALL.is_sorted_by(|a, b| a.code < b.code), "sorted by code, each once");
        for check in ALL {
            let is_code = |code: &str| code.bytes().all(|byte| byte.is_ascii_lowercase() || byte == b'-');
            assert!(is_code(check.code), "{}", check.code);
            assert!(check.explanation.len() > 40 && check.remedy.len() > 10, "{}", check.code);
            assert!(!check.title.is_empty() && !check.title.ends_with('.'), "{}", check.code);
            assert!(find(check.code).is_some_and(|found| found.code == check.code));
        }
        assert!(find("no-such-code").is_none());
    }
}
