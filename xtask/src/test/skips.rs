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
    let is_skipped = |test: &&String| {
        skips.iter().any(|(name, _)| test == &name || test.rsplit("::").next() == Some(last_part(name)))
    };
    tally.passed.iter().filter(is_skipped).count()
}

fn last_part(name: &str) -> &str {
    name.rsplit("::").next().unwrap_or(name)
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
    }
}
