//! Sessions as text files: `tests/transcripts/*.txt`. Each runs on SQLite and on etcd, one on Kubernetes, and must read the same.
//!
//! A line `$ command` is run by the shell; below it stands what it prints. Lines of stderr begin with `! `, and an
//! exit code other than 0 ends it as `[1]`. `<<< NAME` and `>>>` enclose a file. What differs from run to run
//! (identifiers, times, revisions) is shown by name. `cargo xtask accept` writes the files again from what is printed.

use std::path::{Path, PathBuf};

use model::kube::{Layout, definitions};
use testkit::etcd::EtcdCluster;
use testkit::kube::{Setup, start_or_skip};

use crate::harness::{Desk, PLUMB, finish, machine_has_own_config};

#[test]
fn sessions_on_sqlite_read_as_written() {
    if machine_has_own_config("sessions_on_sqlite_read_as_written") {
        return;
    }
    for path in sessions() {
        check(&path, &Desk::on_sqlite());
    }
}

#[test]
fn sessions_on_etcd_read_as_written() {
    if let Some(reason) = testkit::etcd::missing() {
        return testkit::skip("sessions_on_etcd_read_as_written", &reason);
    }
    if machine_has_own_config("sessions_on_etcd_read_as_written") {
        return;
    }
    for path in sessions() {
        let cluster = EtcdCluster::single().unwrap();
        check(&path, &Desk::on_etcd(&cluster));
    }
}

/// The session that makes neither nodes nor endpoints.
#[test]
fn a_session_on_kubernetes_reads_as_written() {
    let Some(server) = start_or_skip("a_session_on_kubernetes_reads_as_written", Setup::default()) else {
        return;
    };
    server.api().define(&definitions(Layout::V1)).unwrap();
    let path = sessions().into_iter().find(|path| path.ends_with("3-address-management.txt")).unwrap();
    check(&path, &Desk::on_kubernetes(server.kubeconfig().unwrap(), server.api()));
}

fn sessions() -> Vec<PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/transcripts");
    let mut paths: Vec<PathBuf> = folder.read_dir().unwrap().map(|entry| entry.unwrap().path()).collect();
    paths.sort();
    assert!(!paths.is_empty());
    paths
}

fn check(path: &Path, desk: &Desk) {
    let written = std::fs::read_to_string(path).unwrap();
    let programs = desk.folder.path().join("bin");
    std::fs::create_dir(&programs).unwrap();
    std::os::unix::fs::symlink(PLUMB, programs.join("plumb")).unwrap();
    std::os::unix::fs::symlink(PLUMB, programs.join("kubectl-plumb")).unwrap();
    let printed = play(&written, desk, &programs);
    if std::env::var_os("PLUMB_ACCEPT").is_some() {
        std::fs::write(path, &printed).unwrap();
        return;
    }
    let first_difference = printed.lines().zip(written.lines()).find(|(new, old)| new != old);
    assert_eq!(printed, written, "{} on {:?}: {first_difference:#?}", path.display(), desk.place);
}

/// The session as it reads now.
fn play(written: &str, desk: &Desk, programs: &Path) -> String {
    let mut printed = String::new();
    let mut lines = written.lines().peekable();
    while let Some(line) = lines.next() {
        printed.push_str(line);
        printed.push('\n');
        if let Some(name) = line.strip_prefix("<<< ") {
            let mut text = String::new();
            for inside in lines.by_ref() {
                printed.push_str(inside);
                printed.push('\n');
                if inside == ">>>" {
                    break;
                }
                text.push_str(inside);
                text.push('\n');
            }
            desk.file(name, text);
        } else if let Some(command) = line.strip_prefix("$ ") {
            // What it printed when the file was written, up to the empty line that ends it.
            while lines.next_if(|next| !next.is_empty()).is_some() {}
            printed.push_str(&run(command, desk, programs));
        }
    }
    printed
}

fn run(command: &str, desk: &Desk, programs: &Path) -> String {
    let path = std::env::join_paths(
        std::iter::once(programs.to_owned())
            .chain(std::env::split_paths(&std::env::var_os("PATH").unwrap_or_default())),
    );
    let ran = finish(desk.command("sh").args(["-c", command]).env("PATH", path.unwrap()));
    let mut text = String::new();
    // An empty line would end what was printed.
    for line in ran.stdout.lines() {
        text.push_str(if line.is_empty() { "." } else { line });
        text.push('\n');
    }
    for line in ran.stderr.lines() {
        text.push_str(format!("! {line}").trim_end());
        text.push('\n');
    }
    if ran.code != Some(0) {
        text.push_str(&format!("[{}]\n", ran.code.unwrap_or(-1)));
    }
    mask(&text)
}

/// Names in the place of what no two runs share.
fn mask(text: &str) -> String {
    let mut masked = String::new();
    for line in text.lines() {
        let line = match line.starts_with("Git commit:") {
            true => "Git commit:        <commit>".to_owned(),
            false => mask_words(line),
        };
        let line = mask_after(&line, "resourceVersion: ", "<revision>");
        let line = mask_after(&line, "\"resourceVersion\": ", "<revision>");
        let line = mask_after(&line, "resource version ", "<revision>");
        masked.push_str(&mask_after(&line, "latest: ", "<revision>"));
        masked.push('\n');
    }
    masked
}

fn mask_words(line: &str) -> String {
    let is_part = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == ':';
    let mut masked = String::new();
    let mut word = String::new();
    for c in line.chars().map(Some).chain([None]) {
        match c {
            Some(c) if is_part(c) => word.push(c),
            other => {
                masked.push_str(name_of(&word).unwrap_or(&word));
                word.clear();
                masked.extend(other);
            }
        }
    }
    masked
}

fn name_of(word: &str) -> Option<&'static str> {
    let is_hex = |text: &str| text.bytes().all(|byte| byte.is_ascii_hexdigit());
    let parts: Vec<&str> = word.split('-').collect();
    let lengths: Vec<usize> = parts.iter().map(|part| part.len()).collect();
    if lengths == [8, 4, 4, 4, 12] && parts.iter().all(|part| is_hex(part)) {
        Some("<uid>")
    } else if word.len() == 32 && is_hex(word) {
        Some("<guid>")
    } else if word.len() == 20 && word.ends_with('Z') && word.as_bytes()[10] == b'T' {
        Some("<time>")
    } else {
        None
    }
}

/// Replaces the number that follows a label, with the quotes around it.
fn mask_after(line: &str, label: &str, name: &str) -> String {
    let Some((before, after)) = line.split_once(label) else { return line.to_owned() };
    let rest = after.trim_start_matches(['"', '\'']).trim_start_matches(|c: char| c.is_ascii_digit());
    if rest.len() == after.len() {
        return line.to_owned();
    }
    format!("{before}{label}{name}{}", rest.trim_start_matches(['"', '\'']))
}
