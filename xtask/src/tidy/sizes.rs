//! No source file gets away: beyond a limit it needs a seam. Functions are clippy's to measure
//! (`too_many_lines` in `clippy.toml`).

use anyhow::Result;

use super::Verdict;
use crate::workspace;

const LINES_MAX: usize = 600;

pub(super) fn check() -> Result<Verdict> {
    let mut sizes = Vec::new();
    for path in workspace::files_with_extension("rs") {
        sizes.push((workspace::shown(&path), workspace::read(&path)?.lines().count()));
    }
    Ok(Verdict::Faults(faults(&sizes)))
}

fn faults(sizes: &[(String, usize)]) -> Vec<String> {
    let is_long = |(_, lines): &&(String, usize)| *lines > LINES_MAX;
    let fault = |(name, lines): &(String, usize)| {
        format!("{name} has {lines} lines; more than {LINES_MAX} need a seam")
    };
    sizes.iter().filter(is_long).map(fault).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_files_are_found() {
        let sizes = [("a.rs".to_owned(), 600), ("b.rs".to_owned(), 601), ("c.rs".to_owned(), 900)];
        let expected = [
            "b.rs has 601 lines; more than 600 need a seam",
            "c.rs has 900 lines; more than 600 need a seam",
        ];
        assert_eq!(faults(&sizes), expected);
    }
}
