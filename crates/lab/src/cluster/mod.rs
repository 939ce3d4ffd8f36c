//! A whole cluster on one machine: nodes with namespaces of their own, joined by a fabric, with the real programs.
//!
//! A lab outlives the process that made it. [`Cluster::up`] makes one, [`Cluster::open`] finds it again, [`down`]
//! removes it, whole or half made. [`OwnCluster`] is for who needs one for the moment only.

mod credentials;
mod description;
mod down;
mod fabric;
mod http;
mod kubernetes;
mod name;
mod partition;
mod place;
mod records;
mod settings;
mod status;
mod topology;
mod up;

use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::process::{Command, Output};
use std::time::Duration;

use anyhow::{Context as _, Result, bail, ensure};
use rustix::process::{Pid, Signal, kill_process};

pub(crate) use credentials::{RENEW_EVERY, renew as renew_token};
pub use description::{ApiGroup, Card, Description, Mode, Network, NodeDescription, Plan, Stage, StoreKind};
pub use down::{Removed, down, remove_abandoned};
pub(crate) use kubernetes::api;
pub use name::{LabName, LabNameError};
pub(crate) use place::Place;
pub use place::VARIABLE as FOLDER_VARIABLE;
pub use settings::NETWORK;
pub(crate) use settings::{agent_settings, environment};
pub use status::{LabStatus, NodeStatus};
pub use topology::Topology;

use crate::control;
use crate::kubelet::{KubeletRequest, PodReport};
use crate::name::RunName;
use crate::node_init::{InitRequest, ServiceStatus, StopSignal};

/// Whoever does not answer within this hangs.
const PATIENCE: Duration = crate::wait::PATIENCE.saturating_add(Duration::from_secs(60));

/// A lab that is there.
#[derive(Clone, Debug)]
pub struct Cluster {
    description: Description,
    place: Place,
}

/// A lab of this process; gone when dropped, or when the next process like this one starts.
#[derive(Debug)]
pub struct OwnCluster {
    cluster: Cluster,
}

/// Every lab of this machine, whole or not.
pub fn labs() -> Vec<LabName> {
    place::names()
}

impl Cluster {
    pub fn open(name: &LabName) -> Result<Cluster> {
        let place = Place::of(name);
        if !Description::exists(place.folder()) {
            let others: Vec<String> = labs().iter().map(ToString::to_string).collect();
            let known = if others.is_empty() { "none".to_owned() } else { others.join(", ") };
            bail!(
                "lab {name} does not exist (labs on this machine: {known}); create one with `plumb lab up`"
            );
        }
        let description = Description::load(place.folder())?;
        Ok(Cluster { description, place })
    }

    pub fn description(&self) -> &Description {
        &self.description
    }

    pub fn name(&self) -> &LabName {
        &self.description.name
    }

    /// A command that will run on a node, as if typed there: in its namespaces, with its environment.
    pub fn command_on(&self, node: &str) -> Result<Command> {
        let mut command = self.enter(node, &["--mount", "--uts", "--net", "--pid"])?;
        command.arg("--");
        Ok(command)
    }

    /// A command that will run in the network of a pod, given the pod's namespace as the node knows it. It stays a
    /// process of the caller, who can thus end it.
    pub fn command_in(&self, node: &str, netns: &str) -> Result<Command> {
        let mut command = self.enter(node, &["--mount", "--net"])?;
        let namespace = netns.rsplit('/').next().unwrap_or(netns);
        command.args(["--", "ip", "netns", "exec", namespace]);
        Ok(command)
    }

    /// A command in a node's network that stays a process of the caller, who can thus end it.
    pub(crate) fn command_on_node_only(&self, node: &str) -> Result<Command> {
        let mut command = self.enter(node, &["--net"])?;
        command.arg("--");
        Ok(command)
    }

    fn enter(&self, node: &str, namespaces: &[&str]) -> Result<Command> {
        let node = self.description.node(node)?;
        let mut command = Command::new("nsenter");
        command.arg("--target").arg(self.process_of(&node.name)?.to_string()).args(namespaces);
        command.env_clear().envs(environment(&self.description, node, &self.place));
        Ok(command)
    }

    /// Runs a program on a node and waits for it; it must succeed.
    pub fn run_on(&self, node: &str, words: &[&str]) -> Result<String> {
        let output = self.output_on(node, words)?;
        let errors = String::from_utf8_lossy(&output.stderr);
        ensure!(output.status.success(), "{} on {node} failed: {}", words.join(" "), errors.trim());
        Ok(String::from_utf8_lossy(&output.stdout).into_owned())
    }

    pub fn output_on(&self, node: &str, words: &[&str]) -> Result<Output> {
        let mut command = self.command_on(node)?;
        command.args(words).output().with_context(|| format!("cannot run {} on {node}", words.join(" ")))
    }

    /// `plumb` with the lab's store.
    pub fn plumb(&self, arguments: &[&str]) -> Result<String> {
        let first = self.description.nodes.first().context("a lab has nodes")?;
        self.run_on(&first.name, &[&["plumb"], arguments].concat())
    }

    pub fn pods(&self, node: &str) -> Result<Vec<PodReport>> {
        self.kubelet(node, &KubeletRequest::Pods)
    }

    /// Asks a node's kubelet stand-in.
    pub fn kubelet(&self, node: &str, request: &KubeletRequest) -> Result<Vec<PodReport>> {
        let socket = self.place.kubelet_socket(&self.description.node(node)?.name);
        control::ask(&socket, request, PATIENCE).with_context(|| format!("the kubelet of {node}"))
    }

    /// Stops one of a node's services (`agent`, `kubelet`) as `kill -9` does.
    pub fn kill(&self, node: &str, service: &str) -> Result<()> {
        self.signal(node, service, StopSignal::Kill)
    }

    /// Stops a service in good order.
    pub fn stop(&self, node: &str, service: &str) -> Result<()> {
        self.signal(node, service, StopSignal::Terminate)
    }

    fn signal(&self, node: &str, service: &str, signal: StopSignal) -> Result<()> {
        self.init(node, &InitRequest::Stop { service: service.to_owned(), signal }).map(drop)
    }

    /// Starts a service, with arguments for this one time, and waits until it can be asked.
    pub fn start(&self, node: &str, service: &str, arguments: &[&str]) -> Result<()> {
        let arguments = arguments.iter().map(|word| (*word).to_owned()).collect();
        let environment = Vec::new();
        self.init(node, &InitRequest::Start { service: service.to_owned(), arguments, environment })?;
        self.wait_for_service(node, service)
    }

    /// Starts a service with variables for this one time, and does not wait.
    pub fn launch(&self, node: &str, service: &str, environment: &[(&str, &str)]) -> Result<()> {
        let environment = environment.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
        let start = InitRequest::Start {
            service: service.to_owned(),
            arguments: Vec::new(),
            environment: environment.collect(),
        };
        self.init(node, &start).map(|_| ())
    }

    /// Cuts a node's power: its processes are gone at once, and with them its namespaces and everything in `/run`.
    /// Its disk stays.
    pub fn cut_power(&self, node: &str) -> Result<()> {
        let process = self.process_of(&self.description.node(node)?.name)?;
        let process = Pid::from_raw(process).context("a process has a number")?;
        kill_process(process, Signal::KILL).with_context(|| format!("cannot kill node {node}"))?;
        crate::wait_for("the node to die", || {
            ensure!(self.process_of(node).is_err(), "node {node} still answers");
            Ok(())
        })
    }

    pub(crate) fn init(&self, node: &str, request: &InitRequest) -> Result<Vec<ServiceStatus>> {
        let socket = self.place.init_socket(&self.description.node(node)?.name);
        control::ask(&socket, request, PATIENCE).with_context(|| format!("node {node}"))
    }

    /// The node's first process: whoever answers at the node's socket, as the kernel vouches.
    fn process_of(&self, node: &str) -> Result<i32> {
        let stream = UnixStream::connect(self.place.init_socket(node))
            .with_context(|| format!("node {node} of lab {} does not run", self.name()))?;
        let peer = rustix::net::sockopt::socket_peercred(&stream)?;
        Ok(peer.pid.as_raw_nonzero().get())
    }

    /// A node's files, seen from outside.
    pub fn root_of(&self, node: &str) -> Result<PathBuf> {
        Ok(PathBuf::from(format!("/proc/{}/root", self.process_of(&self.description.node(node)?.name)?)))
    }

    /// A node's network namespace, seen from outside.
    pub fn network_of(&self, node: &str) -> Result<PathBuf> {
        Ok(PathBuf::from(format!("/proc/{}/ns/net", self.process_of(&self.description.node(node)?.name)?)))
    }

    /// What programs on a node find in their environment: the lab's store, too.
    pub fn environment_of(&self, node: &str) -> Result<Vec<(String, String)>> {
        Ok(environment(&self.description, self.description.node(node)?, &self.place))
    }

    /// The end of a program's log on a node.
    pub fn log_tail(&self, node: &str, program: &str, lines: usize) -> String {
        let path = self.place.log(node, &format!("{program}.log"));
        crate::file::tail(&path, lines)
    }
}

impl OwnCluster {
    /// `plan` says what; the name is this process's own.
    pub fn up(plan: Plan, tell: &dyn Fn(&str)) -> Result<OwnCluster> {
        remove_abandoned()?;
        let plan = Plan { name: LabName::of_run(&RunName::of_this_process()), ..plan };
        Ok(OwnCluster { cluster: Cluster::up(&plan, tell)? })
    }

    /// Removes the lab, and says what went wrong, which dropping cannot.
    pub fn down(self) -> Result<Removed> {
        down(self.cluster.name())
    }
}

impl std::ops::Deref for OwnCluster {
    type Target = Cluster;

    fn deref(&self) -> &Cluster {
        &self.cluster
    }
}

impl Drop for OwnCluster {
    fn drop(&mut self) {
        if let Err(error) = down(self.cluster.name()) {
            eprintln!("lab {} was not removed: {error:#}", self.cluster.name());
        }
    }
}
