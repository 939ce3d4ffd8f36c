//! A node on etcd, and calls with a configuration as Calico's documentation shows it.

use std::fs::File;
use std::io::Write as _;
use std::path::PathBuf;
use std::process::{Command, Stdio};

use lab::{CniOutcome, Lab, Node, Pod, Programs};
use model::{Key, Kind, Resource};
use serde_json::{Value, json};
use testkit::etcd::{EtcdCluster, Setup, start_or_skip};
use testkit::kube::{Api, KubeApiServer};
use testkit::process::{Process, command, wait_until};

use crate::books::Books;

pub(crate) const NETWORK: &str = "net1";
/// Where Debian puts the plugins of the CNI project.
const PLUGINS: &str = "/usr/lib/cni";

/// Who serves the calls.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Server {
    OneShot,
    Agent,
}

pub(crate) struct Place<'a> {
    // Before the rest, so that it ends before its store does.
    agent: Option<Process>,
    kube: Option<KubeApiServer>,
    pub(crate) etcd: EtcdCluster,
    pub(crate) books: Books,
    pub(crate) node: &'a Node,
    pub(crate) lab: &'a Lab,
}

/// One call, as a runtime makes it.
#[derive(Clone, Debug)]
pub(crate) struct Call {
    program: &'static str,
    arguments_of_program: Vec<&'static str>,
    environment: Vec<(&'static str, String)>,
    pub(crate) netconf: Value,
}

/// Tells a story twice, on the node and with its own etcd.
pub(crate) fn both(test: &str, story: impl Fn(&Place<'_>) + Sync) {
    for server in [Server::OneShot, Server::Agent] {
        tell(test, server, false, &story);
    }
}

/// The same beside a Kubernetes API server.
pub(crate) fn both_with_kubernetes(test: &str, story: impl Fn(&Place<'_>) + Sync) {
    for server in [Server::OneShot, Server::Agent] {
        tell(test, server, true, &story);
    }
}

fn tell(test: &str, server: Server, has_kubernetes: bool, story: &(impl Fn(&Place<'_>) + Sync)) {
    if let Some(reason) = lab::missing() {
        return testkit::skip(test, &reason);
    }
    let lab = Lab::new(Programs::of_test().unwrap()).unwrap();
    let node = lab.node("node-a").unwrap();
    // Etcd and the API server are on the node's own loopback, where plugin and agent can reach them.
    let run = || {
        let Some(etcd) = start_or_skip(test, Setup::default()) else { return };
        let mut kube = None;
        if has_kubernetes {
            kube = testkit::kube::start_or_skip(test, testkit::kube::Setup::default());
            if kube.is_none() {
                return;
            }
        }
        let books = Books::on_etcd(etcd.endpoint(0));
        books.put(Kind::ClusterInformation, "default", json!({"datastoreReady": true}));
        let mut place = Place { agent: None, kube, etcd, books, node: &node, lab: &lab };
        if server == Server::Agent {
            place.agent = Some(place.start_agent());
        }
        eprintln!("{test}: {server:?}");
        story(&place);
    };
    node.namespace().visit(run).unwrap();
}

impl Place<'_> {
    pub(crate) fn has_agent(&self) -> bool {
        self.agent.is_some()
    }

    pub(crate) fn api(&self) -> Api {
        self.kube().api()
    }

    pub(crate) fn kube(&self) -> &KubeApiServer {
        self.kube.as_ref().expect("the story has an API server")
    }

    pub(crate) fn pool(&self, name: &str, cidr: &str) {
        self.books.put(Kind::IpPool, name, json!({"cidr": cidr}));
    }

    pub(crate) fn pod(&self, namespace: &str, name: &str) -> Pod {
        self.lab.pod(namespace, name).unwrap()
    }

    pub(crate) fn profile(&self, name: &str) -> Option<Resource> {
        self.record(&Key::cluster(Kind::Profile, name))
    }

    /// The endpoint of a pod's usual interface.
    pub(crate) fn endpoint(&self, pod: &Pod) -> Option<Resource> {
        let id = model::names::EndpointName::of_pod(self.node.name(), &pod.name, "eth0");
        self.record(&Key::namespaced(Kind::WorkloadEndpoint, &pod.namespace, id.compute().unwrap()))
    }

    /// The endpoint of a container that is no pod.
    pub(crate) fn container(&self, namespace: &str, pod: &Pod) -> Option<Resource> {
        let name = model::names::EndpointName {
            node: self.node.name().to_owned(),
            orchestrator: "cni".to_owned(),
            workload: pod.container_id.clone(),
            endpoint: pod.interface.clone(),
        };
        self.record(&Key::namespaced(Kind::WorkloadEndpoint, namespace, name.compute().unwrap()))
    }

    fn record(&self, key: &Key) -> Option<Resource> {
        let Key::Resource { kind, .. } = key else { return None };
        let text = self.books.records().remove(key)?;
        Some(Resource::decode(key, *kind, text.as_bytes(), "1").unwrap())
    }

    /// As Calico's documentation writes it, with this store.
    pub(crate) fn netconf(&self) -> Value {
        let mut netconf = json!({
            "cniVersion": "1.0.0",
            "name": NETWORK,
            "type": "calico",
            "etcd_endpoints": self.etcd.endpoint(0),
            "nodename": self.node.name(),
            "nodename_file_optional": true,
            "log_level": "info",
            "state_dir": self.lab.state_folder(self.node),
            "ipam": {"type": "calico-ipam"},
        });
        if self.has_agent() {
            netconf["agent_socket"] = self.socket().display().to_string().into();
        }
        netconf
    }

    /// A call for a container that is no pod.
    pub(crate) fn plain(&self, verb: &str, pod: &Pod) -> Call {
        let environment = vec![
            ("CNI_COMMAND", verb.to_owned()),
            ("CNI_CONTAINERID", pod.container_id.clone()),
            ("CNI_NETNS", pod.netns().path().display().to_string()),
            ("CNI_IFNAME", pod.interface.clone()),
            ("CNI_PATH", format!("{}:{PLUGINS}", self.plugins().display())),
        ];
        Call { program: "calico", arguments_of_program: Vec::new(), environment, netconf: self.netconf() }
    }

    /// A call for a pod, as an old runtime makes it: without the pod's UID.
    pub(crate) fn of_pod(&self, verb: &str, pod: &Pod) -> Call {
        let arguments = format!(
            "K8S_POD_NAMESPACE={};K8S_POD_NAME={};K8S_POD_INFRA_CONTAINER_ID={}",
            pod.namespace, pod.name, pod.container_id
        );
        self.plain(verb, pod).arguments(&arguments)
    }

    pub(crate) fn run(&self, call: &Call) -> CniOutcome {
        let mut command = Command::new(self.plugins().join(call.program));
        command.args(&call.arguments_of_program).env_clear();
        command.envs(call.environment.iter().map(|(name, value)| (*name, value)));
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        // What only prints its version does not read.
        let _ = child.stdin.take().unwrap().write_all(call.netconf.to_string().as_bytes());
        CniOutcome::from(child.wait_with_output().unwrap())
    }

    /// The answer of a call that must succeed.
    #[track_caller]
    pub(crate) fn answer(&self, call: &Call) -> Value {
        let outcome = self.run(call);
        assert!(outcome.success, "{call:?}: {}{}", outcome.stdout, outcome.stderr);
        serde_json::from_str(&outcome.stdout).unwrap_or_default()
    }

    /// The message of a call that must fail.
    #[track_caller]
    pub(crate) fn error(&self, call: &Call) -> String {
        let outcome = self.run(call);
        assert!(!outcome.success, "{call:?}: {}", outcome.stdout);
        let error: Value = serde_json::from_str(&outcome.stdout).unwrap();
        format!("{} {}", error["msg"].as_str().unwrap(), error["details"].as_str().unwrap())
    }

    /// Ours, under Calico's names.
    fn plugins(&self) -> PathBuf {
        let folder = self.lab.folder().join("calico-bin");
        std::fs::create_dir_all(&folder).unwrap();
        for name in ["calico", "calico-ipam"] {
            let link = folder.join(name);
            if !link.exists() {
                std::os::unix::fs::symlink(self.lab.programs().cni(), link).unwrap();
            }
        }
        folder
    }

    fn socket(&self) -> PathBuf {
        self.lab.state_folder(self.node).join("agent.sock")
    }

    fn start_agent(&self) -> Process {
        let state = self.lab.state_folder(self.node);
        std::fs::create_dir_all(&state).unwrap();
        let log = File::create(state.join("agent.log")).unwrap();
        let mut agent = command(self.lab.programs().daemon());
        agent.args(["node", "--node-name", self.node.name(), "--health-address", "127.0.0.1:9099"]);
        agent.arg("--socket").arg(self.socket()).arg("--state-dir").arg(&state);
        agent.env("DATASTORE_TYPE", "etcdv3").env("ETCD_ENDPOINTS", self.etcd.endpoint(0));
        agent.env("NO_DEFAULT_POOLS", "true").env("IP", "none");
        agent.stdin(Stdio::null()).stdout(Stdio::null()).stderr(log);
        let agent = Process::spawn(agent).unwrap();
        let is_ready = || {
            let ready = Command::new("curl").args(["-fs", "http://127.0.0.1:9099/readiness"]).output();
            self.socket().exists() && ready.is_ok_and(|output| output.status.success())
        };
        wait_until("the agent to be ready", is_ready).unwrap();
        agent
    }
}

impl Call {
    pub(crate) fn by(mut self, program: &'static str) -> Call {
        self.program = program;
        self
    }

    pub(crate) fn flag(mut self, flag: &'static str) -> Call {
        self.arguments_of_program.push(flag);
        self
    }

    pub(crate) fn with(mut self, key: &str, value: impl Into<Value>) -> Call {
        self.netconf[key] = value.into();
        self
    }

    pub(crate) fn environment(mut self, name: &'static str, value: &str) -> Call {
        self.environment.retain(|(known, _)| *known != name);
        self.environment.push((name, value.to_owned()));
        self
    }

    pub(crate) fn arguments(self, arguments: &str) -> Call {
        self.environment("CNI_ARGS", arguments)
    }
}

/// The addresses of an answer, with their prefix lengths.
pub(crate) fn networks(answer: &Value) -> Vec<String> {
    let ips = answer["ips"].as_array().cloned().unwrap_or_default();
    ips.iter().map(|ip| ip["address"].as_str().unwrap().to_owned()).collect()
}

/// The first address of an answer.
pub(crate) fn address(answer: &Value) -> String {
    networks(answer)[0].split('/').next().unwrap().to_owned()
}
