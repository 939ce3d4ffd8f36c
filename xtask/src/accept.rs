//! `cargo xtask accept`: writes what the programs print now into every recorded output, and names the files that changed.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, bail};

use crate::{transcript, workspace};

const HELP: &str = "\
Usage: cargo xtask accept

Writes what the programs print now into every recorded output:

  crates/model/tests/cases/                which manifests are refused, and why
  crates/doctor/tests/incidents/golden/    what the doctor finds in the evidence of outages
  crates/ctl/tests/transcripts/            sessions with plumb
  README.md, docs/                         what the commands on these pages print
  docs/findings.md                         the page of all codes

Read the difference (git diff) before you commit it. Ends with 1 if a test fails for another reason than its
recorded output, or if a file changed that holds no recorded output.
";

/// Set for tests that write what they find as what they expect.
const SWITCH: &str = "PLUMB_ACCEPT";

/// A test that compares with files, and writes them if `SWITCH` is set.
struct Recording {
    package: &'static str,
    target: &'static str,
    /// Part of the test's name, where others of that target would write the same files.
    filter: &'static str,
    source: &'static str,
    folder: &'static str,
}

const RECORDINGS: &[Recording] = &[
    Recording {
        package: "model",
        target: "manifest_cases",
        filter: "",
        source: "crates/model/tests/manifest_cases.rs",
        folder: "crates/model/tests/cases",
    },
    Recording {
        package: "doctor",
        target: "incidents",
        filter: "",
        source: "crates/doctor/tests/incidents/main.rs",
        folder: "crates/doctor/tests/incidents/golden",
    },
    Recording {
        package: "ctl",
        target: "cli",
        filter: "sessions_on_sqlite_read_as_written",
        source: "crates/ctl/tests/cli/transcripts.rs",
        folder: "crates/ctl/tests/transcripts",
    },
];

pub(crate) fn run(args: &[String]) -> Result<bool> {
    match args {
        [] => {}
        [flag] if flag == "--help" || flag == "-h" => {
            print!("{HELP}");
            return Ok(true);
        }
        _ => bail!("usage: cargo xtask accept"),
    }
    let root = workspace::root();
    let before = snapshot(&root)?;
    let mut failed = Vec::new();
    for recording in RECORDINGS {
        if !record(recording)? {
            failed.push(format!(
                "cargo test -p {} --test {} ({})",
                recording.package, recording.target, recording.source
            ));
        }
    }
    transcript::run(&["--accept".to_owned()])?;
    let changed = changed(&before, &snapshot(&root)?);
    print!("{}", summary(&changed, &failed));
    Ok(failed.is_empty() && changed.iter().all(|file| is_recorded(file)))
}

/// Whether the test passes once it has written its files.
fn record(recording: &Recording) -> Result<bool> {
    let mut cargo = workspace::cargo();
    cargo.args(["test", "--quiet", "--package", recording.package, "--test", recording.target]);
    cargo.args(["--", recording.filter]).env(SWITCH, "1");
    Ok(cargo.status().context("cargo test")?.success())
}

type Snapshot = BTreeMap<PathBuf, Vec<u8>>;

fn snapshot(root: &Path) -> Result<Snapshot> {
    let content = |path: PathBuf| {
        let bytes = std::fs::read(&path).with_context(|| format!("cannot read {}", path.display()))?;
        Ok((path.strip_prefix(root).unwrap_or(&path).to_owned(), bytes))
    };
    workspace::files(root).into_iter().map(content).collect()
}

/// Files that were written, made or removed between the two.
fn changed(before: &Snapshot, after: &Snapshot) -> BTreeSet<PathBuf> {
    let names = before.keys().chain(after.keys());
    names.filter(|name| before.get(*name) != after.get(*name)).cloned().collect()
}

fn is_recorded(file: &Path) -> bool {
    let is_page = file.extension().is_some_and(|end| end == "md")
        && (file.starts_with("docs") || file.components().count() == 1);
    is_page || RECORDINGS.iter().any(|recording| file.starts_with(recording.folder))
}

fn summary(changed: &BTreeSet<PathBuf>, failed: &[String]) -> String {
    let mut text = String::new();
    for file in changed {
        let remark = if is_recorded(file) { "" } else { "  NOT a recorded output: who changed it?" };
        text += &format!("changed: {}{remark}\n", file.display());
    }
    for command in failed {
        text += &format!("fails although its recorded output was accepted: {command}\n");
    }
    match changed.len() {
        0 => text + "every recorded output is as it was\n",
        count => text + &format!("{count} files changed; read the difference with git diff\n"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scratch::Scratch;

    #[test]
    fn every_test_that_can_accept_is_run_and_its_folder_exists() {
        let mentions = |path: &PathBuf| {
            let text = std::fs::read_to_string(path).unwrap_or_default();
            text.contains(&format!("var_os(\"{SWITCH}\")"))
        };
        let tests: BTreeSet<String> = workspace::files_with_extension("rs")
            .into_iter()
            .filter(mentions)
            .map(|path| workspace::shown(&path))
            .collect();
        assert_eq!(tests, RECORDINGS.iter().map(|recording| recording.source.to_owned()).collect());
        for recording in RECORDINGS {
            assert!(workspace::root().join(recording.folder).is_dir(), "{}", recording.folder);
            assert!(HELP.contains(&format!("{}/ ", recording.folder)), "{}", recording.folder);
        }
    }

    #[test]
    fn only_recorded_outputs_may_change() {
        let scratch = Scratch::new().unwrap();
        let write = |name: &str, text: &str| {
            let path = scratch.path().join(name);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        };
        write("docs/page.md", "old");
        write("docs/same.md", "same");
        write("docs/picture.svg", "old");
        write("crates/model/tests/cases/node.txt", "old");
        write("crates/model/src/lib.rs", "old");
        let before = snapshot(scratch.path()).unwrap();
        write("docs/page.md", "new");
        write("docs/picture.svg", "new");
        write("crates/model/tests/cases/node.txt", "new");
        write("crates/ctl/tests/transcripts/made.txt", "new");
        std::fs::remove_file(scratch.path().join("crates/model/src/lib.rs")).unwrap();
        let changed = changed(&before, &snapshot(scratch.path()).unwrap());
        let foreign: Vec<&PathBuf> = changed.iter().filter(|file| !is_recorded(file)).collect();
        assert_eq!(changed.len(), 5, "{changed:?}");
        assert_eq!(foreign, [Path::new("crates/model/src/lib.rs"), Path::new("docs/picture.svg")]);
        let text = summary(&changed, &["cargo test -p x".to_owned()]);
        assert!(text.contains("changed: docs/page.md\n"), "{text}");
        assert!(text.contains("docs/picture.svg  NOT a recorded output"), "{text}");
        assert!(
            text.contains("fails although its recorded output was accepted: cargo test -p x\n"),
            "{text}"
        );
        assert!(text.ends_with("5 files changed; read the difference with git diff\n"), "{text}");
    }
}
