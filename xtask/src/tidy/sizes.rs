//! No source file gets away: beyond a limit it needs a seam, or a reason. Functions are clippy's to measure
//! (`too_many_lines` in `clippy.toml`).

use anyhow::Result;

use super::Verdict;
use crate::workspace;

const LINES_MAX: usize = 600;

/// Files that may be longer, and why.
const MAY_BE_LONGER: &[(&str, &str)] = &[];

pub(super) fn check() -> Result<Verdict> {
    let mut sizes = Vec::new();
    for path in workspace::files_with_extension("rs") {
        sizes.push((workspace::shown(&path), workspace::read(&path)?.lines().count()));
    }
    Ok(Verdict::Faults(faults(&sizes, MAY_BE_LONGER)))
}

fn faults(sizes: &[(String, usize)], may_be_longer: &[(&str, &str)]) -> Vec<String> {
    let is_excused = |name: &str| may_be_longer.iter().any(|(excused, _)| *excused == name);
    let mut faults: Vec<String> = sizes
        .iter()
        .filter(|(name, lines)| *lines > LINES_MAX && !is_excused(name))
        .map(|(name, lines)| {
            format!("{name} has {lines} lines; more than {LINES_MAX} need a seam or a reason")
        })
        .collect();
    for (excused, _) in may_be_longer {
        if !sizes.iter().any(|(name, lines)| name == excused && *lines > LINES_MAX) {
            faults.push(format!("{excused} is excused from the size limit but does not need it"));
        }
    }
    faults
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_files_need_an_excuse_and_excuses_need_a_long_file() {
        let sizes = [("a.rs".to_owned(), 600), ("b.rs".to_owned(), 601), ("c.rs".to_owned(), 900)];
        let excused = [("c.rs", "a table"), ("a.rs", "was longer once")];
        assert_eq!(
            faults(&sizes, &excused),
            [
                "b.rs has 601 lines; more than 600 need a seam or a reason",
                "a.rs is excused from the size limit but does not need it",
            ]
        );
    }
}
