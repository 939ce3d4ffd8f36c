//! Whether a text is what the docs promise, where `...` stands for any lines and `[..]` for anything in a line.

/// Spaces at the end of a line do not count: nobody sees them.
pub(crate) fn matches(expected: &[String], actual: &str) -> bool {
    let actual: Vec<&str> = actual.lines().map(str::trim_end).collect();
    let expected: Vec<&str> = expected.iter().map(|line| line.trim_end()).collect();
    lines_match(&expected, &actual)
}

fn is_any_lines(pattern: &&str) -> bool {
    *pattern == "..."
}

fn line_matches(pattern: &str, line: &str) -> bool {
    let mut parts = pattern.split("[..]");
    let first = parts.next().unwrap_or_default();
    let Some(mut rest) = line.strip_prefix(first) else { return false };
    let mut parts = parts.peekable();
    if parts.peek().is_none() {
        return rest.is_empty();
    }
    while let Some(part) = parts.next() {
        if parts.peek().is_none() {
            return rest.ends_with(part);
        }
        let Some(at) = rest.find(part) else { return false };
        rest = &rest[at + part.len()..];
    }
    true
}

/// Goes back to the last `...` only, which is enough and keeps the work bounded by the product of the lengths.
fn lines_match(patterns: &[&str], lines: &[&str]) -> bool {
    let (mut pattern, mut line) = (0, 0);
    let mut retry: Option<(usize, usize)> = None;
    while line < lines.len() {
        if patterns.get(pattern).is_some_and(is_any_lines) {
            retry = Some((pattern + 1, line));
            pattern += 1;
        } else if patterns.get(pattern).is_some_and(|wanted| line_matches(wanted, lines[line])) {
            pattern += 1;
            line += 1;
        } else if let Some((after, from)) = retry {
            retry = Some((after, from + 1));
            (pattern, line) = (after, from + 1);
        } else {
            return false;
        }
    }
    patterns[pattern..].iter().all(is_any_lines)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(expected: &str, actual: &str, outcome: bool) {
        let lines: Vec<String> = expected.lines().map(str::to_owned).collect();
        assert_eq!(matches(&lines, actual), outcome, "{expected:?} against {actual:?}");
    }

    #[test]
    fn plain_text_has_to_be_the_same() {
        check("a\nb", "a\nb\n", true);
        check("a  \nb", "a\nb   \n", true);
        check("a\nb", "a\n", false);
        check("a", "a\nb\n", false);
        check("", "", true);
        check("", "a\n", false);
    }

    #[test]
    fn three_dots_take_any_lines() {
        check("...", "", true);
        check("...", "a\nb\n", true);
        check("a\n...\nd", "a\nb\nc\nd\n", true);
        check("a\n...\nd", "a\nd\n", true);
        check("a\n...\nd", "a\nb\nc\n", false);
        check("...\nb\n...\nd\n...", "a\nb\nb\nc\nd\n", true);
        check("...\nb", "b\nc\nb\n", true);
    }

    #[test]
    fn two_dots_in_brackets_take_anything_within_a_line() {
        check("took [..] ms", "took 12 ms", true);
        check("took [..] ms", "took 12 s", false);
        check("[..]", "", false);
        check("[..]", "\n", true);
        check("a[..]b[..]c", "a-b-b-c", true);
        check("a[..]b[..]c", "a-c", false);
        check("[..]x", "xyx", true);
        check("x[..]x", "x", false);
    }
}
