//! The programs as they are released, each run where nothing else exists: in an empty root directory, and in one whose
//! `nsswitch.conf` names services that would bring the machine's own libraries into a static program.
//!
//! Building them takes minutes, so only with `--full` or `cargo xtask test released`.

use std::path::Path;
use std::process::{Command, Output};
use std::time::Instant;

use anyhow::{Context as _, Result, ensure};

use super::Run;
use super::report::KindReport;
use crate::build::{self, PROGRAMS};
use crate::scratch::Scratch;
use crate::workspace;

/// A host that only the root's own `/etc/hosts` knows. Port 1 has no server.
const ENDPOINT: &str = "http://etcd.example:1";

pub(crate) fn run(run: &Run) -> KindReport {
    let mut report = KindReport::new("released");
    if !run.options.is_named("released") && !run.options.full {
        report.skip("released programs", "takes minutes to build: only with --full");
        return report;
    }
    if !workspace::is_root() {
        report.skip("released programs", "chroot needs root");
        return report;
    }
    let started = Instant::now();
    if let Err(error) = build::build(PROGRAMS) {
        report.add("build", Some(format!("{error:#}")), started.elapsed());
        return report;
    }
    let folder = run.metadata.target_dir.join("release");
    let mut test = |name: &str, test: &dyn Fn(&Path) -> Result<()>| {
        let started = Instant::now();
        let failure = test(&folder).err().map(|error| format!("{name}: {error:#}"));
        report.add(name, failure, started.elapsed());
    };
    test("every program runs in an empty root", &runs_alone);
    test("a name that nothing knows is an error", &unknown_names);
    test("names resolve without the machine's libraries", &known_names);
    report
}

fn runs_alone(folder: &Path) -> Result<()> {
    for program in PROGRAMS {
        let root = Root::with(folder, program.name)?;
        let output = match program.name {
            "plumb-cni" => root.run(Command::new("chroot").env("CNI_COMMAND", "VERSION"), &[])?,
            "plumb-lab" => root.run(&mut Command::new("chroot"), &["--help"])?,
            _ => root.run(&mut Command::new("chroot"), &["version"])?,
        };
        ensure!(output.status.success(), "{}: {}", program.name, said(&output));
    }
    Ok(())
}

fn unknown_names(folder: &Path) -> Result<()> {
    for program in ["plumb", "plumbd"] {
        let output = Root::with(folder, program)?.ask_etcd()?;
        let said = said(&output);
        ensure!(output.status.code().is_some(), "{program} crashed: {said}");
        ensure!(said.contains("lookup"), "{program} does not say that the name is unknown: {said}");
    }
    Ok(())
}

fn known_names(folder: &Path) -> Result<()> {
    for program in ["plumb", "plumbd"] {
        let root = Root::with(folder, program)?;
        root.name_services()?;
        let output = root.ask_etcd()?;
        let said = said(&output);
        ensure!(output.status.code().is_some(), "{program} crashed: {said}");
        ensure!(said.contains("refused"), "{program} did not reach the host: {said}");
    }
    Ok(())
}

/// A root directory with one program in it.
struct Root {
    scratch: Scratch,
    program: String,
}

impl Root {
    fn with(folder: &Path, program: &str) -> Result<Root> {
        let scratch = Scratch::new()?;
        let copied = std::fs::copy(folder.join(program), scratch.path().join(program));
        copied.with_context(|| format!("cannot copy {program}"))?;
        Ok(Root { scratch, program: program.to_owned() })
    }

    /// Names the services `resolve` and `sss`, whose libraries end whoever loads them.
    fn name_services(&self) -> Result<()> {
        let root = self.scratch.path();
        let libraries = root.join(format!("lib/{}-linux-gnu", std::env::consts::ARCH));
        std::fs::create_dir_all(root.join("etc"))?;
        std::fs::create_dir_all(&libraries)?;
        std::fs::write(root.join("etc/nsswitch.conf"), "passwd: sss\nhosts: resolve sss\n")?;
        std::fs::write(root.join("etc/hosts"), "127.0.0.1 etcd.example\n")?;
        let source = root.join("trap.c");
        std::fs::write(
            &source,
            "__attribute__((constructor)) static void loaded(void) { __builtin_trap(); }\n",
        )?;
        for service in ["resolve", "sss"] {
            let mut compiler = Command::new("cc");
            compiler.args(["-shared", "-nostdlib", "-fPIC", "-o"]);
            compiler.arg(libraries.join(format!("libnss_{service}.so.2"))).arg(&source);
            ensure!(compiler.status().context("cc")?.success(), "cannot build a name service");
        }
        Ok(())
    }

    fn ask_etcd(&self) -> Result<Output> {
        let mut chroot = Command::new("timeout");
        chroot.args(["60", "chroot"]);
        if self.program == "plumb" {
            chroot.env("DATASTORE_TYPE", "etcdv3").env("ETCD_ENDPOINTS", ENDPOINT);
            return self.run(&mut chroot, &["get", "nodes"]);
        }
        let netconf = format!(
            r#"{{"cniVersion":"1.1.0","name":"n","type":"plumb-cni","datastore_type":"etcdv3","etcd_endpoints":"{ENDPOINT}"}}"#
        );
        let input = self.scratch.path().join("netconf.json");
        std::fs::write(&input, netconf)?;
        chroot.env("CNI_COMMAND", "STATUS").stdin(std::fs::File::open(input)?);
        self.run(&mut chroot, &["cni"])
    }

    fn run(&self, chroot: &mut Command, arguments: &[&str]) -> Result<Output> {
        let command = chroot.arg(self.scratch.path()).arg(format!("/{}", self.program)).args(arguments);
        command.output().context("chroot")
    }
}

fn said(output: &Output) -> String {
    let text = [&output.stdout[..], &output.stderr].concat();
    format!("{}\n{}", output.status, String::from_utf8_lossy(&text).trim())
}
