//! Strict mode: what calicoctl prints for each of its commands and flags, beside what we print in its place. The table is
//! written from calicoctl's reference and from what its release prints; `docs/internals/calicoctl-cases.md` explains it.

mod documents;
mod migration;
mod nodes;
mod normal;
mod refusals;

use std::process::{Command, Stdio};

use testkit::etcd::EtcdCluster;

use crate::harness::{Desk, PLUMB, Ran, finish, machine_has_own_config};

/// A command, what it reads, and what calicoctl answers.
struct Case {
    args: &'static [&'static str],
    stdin: &'static str,
    code: i32,
    stdout: &'static str,
    stderr: &'static str,
}

const fn case(args: &'static [&'static str]) -> Case {
    Case { args, stdin: "", code: 0, stdout: "", stderr: "" }
}

impl Case {
    const fn reads(self, stdin: &'static str) -> Case {
        Case { stdin, ..self }
    }

    const fn prints(self, stdout: &'static str) -> Case {
        Case { stdout, ..self }
    }

    const fn fails(self, stderr: &'static str) -> Case {
        Case { stderr, code: 1, ..self }
    }
}

/// The program under calicoctl's name, in the operator's folder.
fn calicoctl(desk: &Desk) -> Command {
    let link = desk.folder.path().join("calicoctl");
    if !link.exists() {
        std::os::unix::fs::symlink(PLUMB, &link).unwrap();
    }
    desk.command(link)
}

fn run(desk: &Desk, args: &[&str], stdin: &str) -> Ran {
    if stdin.is_empty() {
        return finish(calicoctl(desk).args(args).stdin(Stdio::null()));
    }
    desk.file("stdin", stdin);
    let file = std::fs::File::open(desk.folder.path().join("stdin")).unwrap();
    finish(calicoctl(desk).args(args).stdin(file))
}

/// Every case in turn, on one store. All that differ are told at once.
fn check(desk: &Desk, cases: &[Case]) {
    let mut differ = Vec::new();
    for case in cases {
        let ran = run(desk, case.args, case.stdin);
        let wanted = (Some(case.code), case.stdout, case.stderr);
        if (ran.code, ran.stdout.as_str(), ran.stderr.as_str()) != wanted {
            differ.push(format!("{:?}\n  wanted {wanted:?}\n  got {ran:?}", case.args));
        }
    }
    assert!(differ.is_empty(), "{}", differ.join("\n"));
}

/// The same cases on SQLite and on etcd: no store's answer is another's.
fn on_both_stores(test: &str, cases: &[Case]) {
    if machine_has_own_config(test) {
        return;
    }
    check(&Desk::on_sqlite(), cases);
    match testkit::etcd::missing() {
        Some(reason) => testkit::skip(&format!("{test} on etcd"), &reason),
        None => check(&Desk::on_etcd(&EtcdCluster::single().unwrap()), cases),
    }
}
