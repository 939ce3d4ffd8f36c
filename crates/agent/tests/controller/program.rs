//! The program, started and asked.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{Read as _, Write as _};
use std::net::{Ipv4Addr, TcpStream};
use std::path::PathBuf;
use std::process::Stdio;

use tempfile::TempDir;
use testkit::process::{self, Process, wait_until};
use testkit::{free_port, scratch};

/// A replica that runs.
pub(crate) struct Controller {
    process: Process,
    port: u16,
    folder: TempDir,
}

/// How a replica is started.
#[derive(Clone, Default)]
pub(crate) struct Start {
    pub(crate) environment: BTreeMap<&'static str, String>,
    pub(crate) arguments: Vec<String>,
}

impl Start {
    pub(crate) fn with(mut self, name: &'static str, value: impl Into<String>) -> Start {
        self.environment.insert(name, value.into());
        self
    }

    pub(crate) fn and(mut self, arguments: &[&str]) -> Start {
        self.arguments.extend(arguments.iter().map(|argument| (*argument).to_owned()));
        self
    }

    pub(crate) fn run(&self) -> Controller {
        let (folder, port) = (scratch("controller").unwrap(), free_port());
        let log = File::create(folder.path().join("log")).unwrap();
        let mut command = process::command(env!("CARGO_BIN_EXE_plumbd"));
        let path = std::env::var_os("PATH").unwrap_or_default();
        command.env_clear().env("PATH", path).envs(&self.environment).arg("controller");
        command.args(["--health-address", &format!("127.0.0.1:{port}")]);
        command.arg("--history").arg(folder.path().join("repairs"));
        command.args(&self.arguments).stdin(Stdio::null()).stdout(Stdio::null()).stderr(log);
        Controller { process: Process::spawn(command).unwrap(), port, folder }
    }
}

impl Controller {
    pub(crate) fn log(&self) -> String {
        std::fs::read_to_string(self.folder.path().join("log")).unwrap_or_default()
    }

    /// The value of a series on its page; `None` while there is no page or no such series.
    pub(crate) fn metric(&self, series: &str) -> Option<u64> {
        let page = self.get("/metrics")?;
        let line = page.lines().find_map(|line| line.strip_prefix(&format!("plumb_controller_{series} ")))?;
        line.parse().ok()
    }

    pub(crate) fn leads(&self) -> bool {
        self.metric("leads") == Some(1)
    }

    pub(crate) fn collected(&self, code: &str) -> u64 {
        self.metric(&format!("collected_total{{code=\"{code}\"}}")).unwrap_or_default()
    }

    pub(crate) fn passes(&self) -> u64 {
        self.metric("passes_total").unwrap_or_default()
    }

    /// Returns after so many more observations.
    pub(crate) fn wait_for_passes(&mut self, more: u64) {
        let before = self.passes();
        self.wait("more observations", |controller| controller.passes() >= before + more);
    }

    #[track_caller]
    pub(crate) fn wait(&mut self, what: &str, is_so: impl Fn(&Controller) -> bool) {
        let mut ended = None;
        let waited = wait_until(what, || {
            ended = self.process.exit_status();
            ended.is_some() || is_so(self)
        });
        assert!(waited.is_ok() && (ended.is_none() || is_so(self)), "{what}: {ended:?}\n{}", self.log());
    }

    /// Waits until it has ended.
    #[track_caller]
    pub(crate) fn wait_for_end(&mut self) {
        let waited = wait_until("the controller to end", || self.process.exit_status().is_some());
        assert!(waited.is_ok(), "{}", self.log());
    }

    pub(crate) fn kill(&mut self) {
        self.process.kill();
    }

    pub(crate) fn id(&self) -> u32 {
        self.process.id()
    }

    /// The histories of what it removed.
    pub(crate) fn histories(&self) -> Vec<PathBuf> {
        let entries = std::fs::read_dir(self.folder.path().join("repairs")).into_iter().flatten();
        entries.map(|entry| entry.unwrap().path()).collect()
    }

    pub(crate) fn get(&self, path: &str) -> Option<String> {
        let mut stream = TcpStream::connect((Ipv4Addr::LOCALHOST, self.port)).ok()?;
        write!(stream, "GET {path} HTTP/1.1\r\n\r\n").ok()?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer).ok()?;
        Some(answer)
    }
}
