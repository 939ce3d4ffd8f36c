//! The list in which tests say that they could not run here: `testkit::skip` writes it, one line per test.

use std::path::{Path, PathBuf};

use crate::test::libtest::Tally;

/// One list per test program, so that a name can be matched with that program's tests.
#[derive(Debug)]
pub(crate) struct SkipList {
    path: PathBuf,
}

impl SkipList {
    pub(crate) fn new(folder: &Path, program: &str) -> SkipList {
        SkipList { path: folder.join(format!("{program}.skips")) }
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Each skipped test once, with its reason.
    pub(crate) fn read(&self) -> Vec<(String, String)> {
        parse(&std::fs::read_to_string(&self.path).unwrap_or_default())
    }
}

fn parse(text: &str) -> Vec<(String, String)> {
    let mut skips: Vec<(String, String)> = Vec::new();
    for line in text.lines().filter(|line| !line.trim().is_empty()) {
        // A test's name may hold `::`, never `: `.
        let (name, reason) = line.split_once(": ").unwrap_or((line, "no reason given"));
        if !skips.iter().any(|(known, _)| known == name) {
            skips.push((name.to_owned(), reason.to_owned()));
        }
    }
    skips
}

/// How many of the tests that the harness calls passed did in truth skip themselves. A skip that names no
/// passed test is a part of one, which did pass otherwise.
pub(crate) fn passed_in_name_only(tally: &Tally, skips: &[(String, String)]) -> usize {
    let is_skipped = |test: &&String| skips.iter().any(|(name, _)| is_same(test, name));
    tally.passed.iter().filter(is_skipped).count()
}

/// A test knows its own name with or without its modules, or with those and the program's name. Tests of several stores differ
/// only in the module.
fn is_same(test: &str, skip: &str) -> bool {
    let ends_with = |long: &str, short: &str| {
        long.strip_suffix(short).is_some_and(|before| before.is_empty() || before.ends_with("::"))
    };
    ends_with(test, skip) || ends_with(skip, test)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_test_is_listed_once_with_its_reason() {
        let skips = parse("a::b: not root: uid 7\nc: no etcd\na::b: again\n\n");
        assert_eq!(
            skips,
            [("a::b".to_owned(), "not root: uid 7".to_owned()), ("c".to_owned(), "no etcd".to_owned())]
        );
    }

    #[test]
    fn a_skipped_test_is_not_a_passed_one() {
        let names = ["wire::pings", "wire::other", "contract"];
        let tally = Tally { passed: names.map(str::to_owned).to_vec(), ..Tally::default() };
        let skips =
            |names: &[&str]| names.iter().map(|name| ((*name).to_owned(), String::new())).collect::<Vec<_>>();
        assert_eq!(passed_in_name_only(&tally, &skips(&["pings"])), 1);
        assert_eq!(passed_in_name_only(&tally, &skips(&["wire::pings", "contract"])), 2);
        assert_eq!(passed_in_name_only(&tally, &skips(&["contract on three members"])), 0);
        assert_eq!(passed_in_name_only(&tally, &skips(&["store::contract"])), 1, "with the program's name");
    }

    #[test]
    fn a_test_that_was_skipped_on_one_store_passed_on_the_other() {
        let names = ["calls::on_sqlite::pings", "calls::on_kubernetes::pings"];
        let tally = Tally { passed: names.map(str::to_owned).to_vec(), ..Tally::default() };
        let skips = [("agent::calls::on_kubernetes::pings".to_owned(), String::new())];
        assert_eq!(passed_in_name_only(&tally, &skips), 1);
    }
}
