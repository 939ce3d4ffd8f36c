//! `calicoctl ipam check` and `calicoctl ipam show`: what another tool says about the books.

use evidence::answers::boxed;

/// Reads lines of both.
#[derive(Debug, Default)]
pub(crate) struct IpamReportReader {
    headings: Option<Vec<String>>,
    is_in_check: bool,
    /// What an address is used for stands below the line that says that it is.
    is_in_attributes: bool,
}

/// What a line is.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Told {
    Problem(String),
    /// It tells of the books, and of no problem.
    Report,
    /// Of these tools, but nothing to keep.
    Known,
}

impl IpamReportReader {
    pub(crate) fn line(&mut self, text: &str) -> Option<Told> {
        if let Some(cells) = boxed(text) {
            return self.row(&cells);
        }
        let is_indented = text.starts_with(' ');
        let text = text.trim();
        if text.starts_with("Checking IPAM for inconsistencies") {
            self.is_in_check = true;
            return Some(Told::Known);
        }
        if let Some(rest) = text.strip_prefix("IP ")
            && (rest.ends_with("is in use")
                || rest.contains("is not assigned")
                || rest.contains("is not currently assigned"))
        {
            self.is_in_attributes = rest.ends_with("is in use");
            return Some(Told::Known);
        }
        if self.is_in_attributes && (text == "Attributes:" || is_indented && text.contains(": ")) {
            return Some(Told::Known);
        }
        self.is_in_attributes = false;
        if !self.is_in_check {
            return None;
        }
        if text.starts_with("Check complete") {
            self.is_in_check = false;
            return Some(Told::Report);
        }
        if is_problem(text) {
            return Some(Told::Problem(text.to_owned()));
        }
        Some(Told::Known)
    }

    fn row(&mut self, cells: &[&str]) -> Option<Told> {
        let is_usage = cells.contains(&"GROUPING") && cells.contains(&"CIDR");
        // `--show-borrowed` and `--show-configuration`: nothing is wrong with what they tell.
        if is_usage || cells.contains(&"BORROWING-NODE") || cells == ["PROPERTY", "VALUE"] {
            self.headings = Some(cells.iter().map(|cell| (*cell).to_owned()).collect());
            return Some(Told::Known);
        }
        let headings = self.headings.as_ref()?;
        let Some(at) = headings.iter().position(|heading| heading == "CIDR") else {
            return (cells.len() == headings.len()).then_some(Told::Known);
        };
        model::Cidr::parse_masked(cells.get(at)?).ok().map(|_| Told::Report)
    }
}

/// A line about one address, handle or block that is wrong; counts (`Found 3 …`) are none.
fn is_problem(text: &str) -> bool {
    const WORDS: &[&str] = &[
        "leaked",
        "is not in any active IP pool",
        "has no IPAM allocation",
        "doesn't have any active IPs",
        "doesn't exist.",
        "is invalid:",
        "cannot be read",
        "in use by multiple",
        "is used by more than one",
        "is allocated in more than one block",
        "overlap",
        "which is gone",
        "is still ",
        "has no affinity",
        "which does not exist",
        "mentioned by no block",
    ];
    !text.starts_with("Found ")
        && !text.starts_with("Scanning ")
        && WORDS.iter().any(|word| text.contains(word))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reports(text: &str) -> Vec<Told> {
        let mut reader = IpamReportReader::default();
        text.lines().filter_map(|line| reader.line(line)).filter(|told| *told != Told::Known).collect()
    }

    #[test]
    fn problems_and_the_sum() {
        let found = reports(
            "Checking IPAM for inconsistencies...\n\nLoading all IPAM blocks...\nFound 2 IPAM blocks.\n \
             IPAM block 10.0.0.0/26 affinity=host:a:\n  10.0.0.1 leaked; attrs {\"handle_id\":\"h\"}\nFound 1 IPs that are \
             allocated in IPAM but not actually in use (leaked).\nCheck complete; found 1 problems.\n10.0.0.9 leaked",
        );
        let problem = "10.0.0.1 leaked; attrs {\"handle_id\":\"h\"}".to_owned();
        assert_eq!(found, [Told::Problem(problem), Told::Report]);
    }

    /// Every line is known, and none is a problem.
    #[test]
    fn other_answers_are_known() {
        let text = "+----------------+----------------+-------------------+-------------+------+--------------+\n\
             |       IP       | BORROWING-NODE |       BLOCK       | BLOCK OWNER | TYPE | ALLOCATED-TO |\n\
             | 192.168.84.131 | worker-2       | 192.168.84.128/26 | worker-1    | pod  | shop/web-0   |\n\
             |      PROPERTY      | VALUE |\n| StrictAffinity     | false |\n\
             IP 192.168.84.129 is in use\nAttributes:\n  namespace: shop\n  timestamp: 2023-01-01 10:00:00.123 +0000 UTC";
        let mut reader = IpamReportReader::default();
        for line in text.lines().filter(|line| !line.starts_with('+')) {
            assert!(matches!(reader.line(line), Some(Told::Known)), "{line}");
        }
        assert!(reader.line("something: else").is_none() && reader.line("  something: else").is_none());
    }

    #[test]
    fn usage_rows() {
        let found = reports(
            "+----------+---------------+-----------+------------+-----------+\n\
             | GROUPING |     CIDR      | IPS TOTAL | IPS IN USE | IPS FREE  |\n\
             | IP Pool  | 10.0.0.0/24   |       256 | 12 (5%)    | 244 (95%) |",
        );
        assert_eq!(found, [Told::Report]);
    }
}
