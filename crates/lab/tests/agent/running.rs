//! The real agent on a node of a bench.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::{Duration, Instant};

use lab::{CniCall, CniOutcome, Pod};
use rustix::process::{Pid as ProcessId, Signal};
use testkit::PATIENCE;
use testkit::process::{Process, command};

use crate::common::Bench;

pub(crate) struct Agent {
    process: Process,
    log: PathBuf,
}

impl Bench {
    pub(crate) fn state_folder(&self) -> PathBuf {
        self.lab.state_folder(&self.node)
    }

    pub(crate) fn socket(&self) -> PathBuf {
        self.state_folder().join("agent.sock")
    }

    /// Starts the agent and waits until it is ready. `settings` are further variables of its environment.
    pub(crate) fn agent(&self, settings: &[(&str, &str)]) -> Agent {
        let agent = self.start_agent(settings);
        self.wait_until_ready(&agent);
        agent
    }

    /// Starts the agent and does not wait.
    pub(crate) fn start_agent(&self, settings: &[(&str, &str)]) -> Agent {
        self.launch(&[], &self.state_folder(), settings)
    }

    /// The same with a state folder that is nothing else's: neither the log's nor the socket's.
    pub(crate) fn start_agent_in(&self, state: &Path, settings: &[(&str, &str)]) -> Agent {
        self.launch(&[], state, settings)
    }

    /// The same, by another program: `setpriv …`.
    pub(crate) fn start_agent_by(&self, starter: &[&str], settings: &[(&str, &str)]) -> Agent {
        self.launch(starter, &self.state_folder(), settings)
    }

    fn launch(&self, starter: &[&str], state: &Path, settings: &[(&str, &str)]) -> Agent {
        std::fs::create_dir_all(self.state_folder()).unwrap();
        let log = self.state_folder().join("agent.log");
        let mut file = File::options().create(true).append(true).open(&log).unwrap();
        std::io::Write::write_all(&mut file, b"-- start --\n").unwrap();
        let mut agent = command("ip");
        agent.args(["netns", "exec", self.node.namespace().name()]);
        agent.args(starter).arg(self.programs().daemon()).arg("node");
        agent.args(["--node-name", self.node.name(), "--health-address", "127.0.0.1:9099"]);
        agent.arg("--socket").arg(self.socket()).arg("--state-dir").arg(state);
        match self.cluster() {
            Some(cluster) => agent.envs(cluster.settings()),
            None => agent.env("DATASTORE_TYPE", "sqlite").env("SQLITE_PATH", self.lab.store_path()),
        };
        agent.env("NO_DEFAULT_POOLS", "true").env("IP", "none");
        agent.envs(settings.iter().copied());
        agent.stdin(Stdio::null()).stdout(Stdio::null()).stderr(file);
        Agent { process: Process::spawn(agent).unwrap(), log }
    }

    #[track_caller]
    pub(crate) fn wait_until_ready(&self, agent: &Agent) {
        let probe = self.pod("probe", "probe");
        let status = || {
            let call = self.agent_call("STATUS", &probe).with_netconf("cniVersion", "1.1.0");
            call.run(&self.node).unwrap()
        };
        wait_until(|| status().success, || format!("{}\n{}", status().stdout, agent.log()));
    }

    /// A call that goes to the agent.
    pub(crate) fn agent_call(&self, verb: &str, pod: &Pod) -> CniCall {
        self.call(verb, pod).with_netconf("agent_socket", self.socket().display().to_string())
    }

    pub(crate) fn agent_add(&self, pod: &Pod) -> CniOutcome {
        self.agent_call("ADD", pod).run(&self.node).unwrap()
    }

    pub(crate) fn agent_del(&self, pod: &Pod) -> CniOutcome {
        self.agent_call("DEL", pod).run(&self.node).unwrap()
    }

    /// A page of the agent's health server.
    pub(crate) fn page(&self, path: &str) -> String {
        let request = format!("GET /{path} HTTP/1.1\r\n\r\n");
        self.node
            .namespace()
            .visit(move || {
                use std::io::{Read as _, Write as _};
                let mut stream = std::net::TcpStream::connect("127.0.0.1:9099").unwrap();
                stream.set_read_timeout(Some(PATIENCE)).unwrap();
                stream.write_all(request.as_bytes()).unwrap();
                let mut answer = String::new();
                stream.read_to_string(&mut answer).unwrap();
                answer
            })
            .unwrap()
    }

    /// One number of the agent's metrics.
    pub(crate) fn metric(&self, name: &str) -> i64 {
        let text = self.page("metrics");
        let line = text.lines().find_map(|line| line.strip_prefix(&format!("plumb_{name} ")));
        line.unwrap_or_else(|| panic!("no metric {name} in {text}")).parse().unwrap()
    }
}

impl Agent {
    pub(crate) fn kill(mut self) {
        self.process.kill();
    }

    /// Asks it to stop, and waits until it has.
    pub(crate) fn stop(mut self) {
        let process = i32::try_from(self.process.id()).ok().and_then(ProcessId::from_raw).unwrap();
        rustix::process::kill_process(process, Signal::TERM).unwrap();
        wait_until(|| self.process.exit_status().is_some(), || "it does not stop".to_owned());
        assert!(self.process.exit_status().unwrap().success(), "{}", self.log());
    }

    /// The agent's own process: what starts it executes it in its place.
    pub(crate) fn id(&self) -> u32 {
        self.process.id()
    }

    pub(crate) fn is_running(&mut self) -> bool {
        self.process.exit_status().is_none()
    }

    /// Everything that agents of this node have logged.
    pub(crate) fn log(&self) -> String {
        std::fs::read_to_string(&self.log).unwrap_or_default()
    }
}

/// Waits for a state, for as long as it may take on a busy machine.
#[track_caller]
pub(crate) fn wait_until(mut is_so: impl FnMut() -> bool, report: impl FnOnce() -> String) {
    let deadline = Instant::now() + PATIENCE;
    while !is_so() {
        assert!(Instant::now() < deadline, "it never came to that: {}", report());
        std::thread::sleep(Duration::from_millis(5));
    }
}
