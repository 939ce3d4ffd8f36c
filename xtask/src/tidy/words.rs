//! What must not stand in the tree: markers of unfinished work, tests switched off without a reason, and paths
//! of the machine it happens to lie on.

use std::path::Path;

use anyhow::Result;

use super::Verdict;
use crate::workspace;

/// Put together here so that this file does not find itself.
const MARKERS: &[(&str, &str)] = &[
    (concat!("FIX", "ME"), "unfinished work belongs in an issue"),
    (concat!("XX", "X:"), "unfinished work belongs in an issue"),
    (concat!("to", "do!("), "no stubs"),
    (concat!("unimplemen", "ted!("), "no stubs"),
    (concat!("#[ig", "nore]"), "say why: #[ignore = \"reason\"]"),
    (concat!("```ig", "nore"), "an example that is not run is ```text"),
];

pub(super) fn check() -> Result<Verdict> {
    let root = workspace::root();
    let home = std::env::var("HOME").unwrap_or_default();
    let machine_paths: Vec<String> =
        [root.as_path(), Path::new(&home)].into_iter().filter_map(machine_path).collect();
    let mut faults = Vec::new();
    for path in workspace::files(&root) {
        // What is not text, such as a picture, cannot hold words.
        let Ok(text) = std::fs::read_to_string(&path) else { continue };
        faults.extend(faults_in(&workspace::shown(&path), &text, &machine_paths));
    }
    Ok(Verdict::Faults(faults))
}

/// The folder as it would be written down, if it is long enough to be no ordinary word.
fn machine_path(folder: &Path) -> Option<String> {
    (folder.components().count() > 1).then(|| format!("{}/", folder.display()))
}

fn faults_in(name: &str, text: &str, machine_paths: &[String]) -> Vec<String> {
    let mut faults = Vec::new();
    for (number, line) in text.lines().enumerate() {
        let mut fault = |what: &str, why: &str| faults.push(format!("{name}:{}: {what}: {why}", number + 1));
        let is_code = name.ends_with(".rs");
        for (marker, why) in MARKERS.iter().filter(|(marker, _)| is_code && line.contains(marker)) {
            fault(marker, why);
        }
        for path in machine_paths.iter().filter(|path| line.contains(path.as_str())) {
            fault(path, "a path of this machine");
        }
    }
    faults
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn markers_are_found_in_code_only() {
        let text = format!("fine\n    {}\n{}\n", concat!("to", "do!()"), concat!("#[ig", "nore]"));
        assert_eq!(faults_in("a.rs", &text, &[]).len(), 2);
        assert!(faults_in("a.rs", &text, &[])[0].starts_with("a.rs:2: "));
        assert!(faults_in("a.md", &text, &[]).is_empty());
        assert!(faults_in("a.rs", "#[ignore = \"needs a cluster\"]\n", &[]).is_empty());
    }

    #[test]
    fn paths_of_this_machine_are_found_everywhere() {
        let paths: Vec<String> =
            ["/home/someone", "/"].iter().filter_map(|path| machine_path(Path::new(path))).collect();
        assert_eq!(paths, ["/home/someone/"]);
        assert_eq!(faults_in("a.md", "see /home/someone/notes\n", &paths).len(), 1);
        assert!(faults_in("a.md", "see /home/someone-else/notes\n", &paths).is_empty());
    }
}
