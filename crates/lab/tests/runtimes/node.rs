//! A machine with our plugin installed: programs, network configuration, store; and looks at what is left of pods.

use std::fs::{self, File};
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use anyhow::{Context as _, Result};
use lab::Programs;
use model::Kind;
use serde_json::{Value, json};
use testkit::process::{Process, on_path, run, wait_until};

use crate::books::Books;
use crate::machine::Machine;

/// The name of the network in every test here.
pub(crate) const NETWORK: &str = "pods";

const NODE_NAME: &str = "node-a";

/// Inside the machine.
const AGENT_SOCKET: &str = "/run/plumb/agent.sock";

/// Where Debian keeps the plugins that nobody here wrote.
const OTHER_PLUGINS: &str = "/usr/lib/cni";

/// Why a plugin of others is not there, if so.
pub(crate) fn missing_plugin(names: &[&str]) -> Option<String> {
    let missing = names.iter().find(|name| !Path::new(OTHER_PLUGINS).join(name).is_file())?;
    Some(format!("{OTHER_PLUGINS}/{missing} (Debian package containernetworking-plugins) is not installed"))
}

/// Who does the plugin's work.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Service {
    /// The plugin becomes `plumbd cni`.
    OneShot,
    /// `plumbd node` runs all the time.
    Agent,
}

#[derive(Debug)]
pub(crate) struct Node {
    /// Before the machine, so that it ends first.
    agent: Mutex<Option<Process>>,
    pub(crate) machine: Machine,
    pub(crate) books: Books,
    programs: Programs,
    service: Service,
}

/// A call that a runtime made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct RecordedCall {
    pub(crate) verb: String,
    pub(crate) container: String,
    pub(crate) netns: String,
    pub(crate) arguments: String,
}

impl Node {
    /// A node with the network configured. `None`, with the reason reported, if something is missing.
    pub(crate) fn start_unless(test: &str, missing: Option<String>, service: Service) -> Option<Node> {
        if let Some(reason) = missing {
            testkit::skip(test, &reason);
            return None;
        }
        let node = Node::start(service).unwrap();
        node.configure("1.0.0", &[]).unwrap();
        Some(node)
    }

    /// The same with the plugin portmap behind us.
    pub(crate) fn start_with_portmap(test: &str, missing: Option<String>, service: Service) -> Option<Node> {
        let missing = missing
            .or_else(|| missing_plugin(&["portmap"]))
            .or_else(|| (!on_path("iptables")).then(|| "iptables is not installed".to_owned()));
        let node = Node::start_unless(test, missing, service)?;
        let portmap = json!({"type": "portmap", "capabilities": {"portMappings": true}});
        node.configure("1.0.0", &[portmap]).unwrap();
        Some(node)
    }

    /// Whether packets to this port of the node are led elsewhere.
    pub(crate) fn maps_port(&self, port: u16) -> bool {
        self.machine.run("iptables-save", &["-t", "nat"]).unwrap().contains(&port.to_string())
    }

    pub(crate) fn start(service: Service) -> Result<Node> {
        let machine = Machine::boot()?;
        let books = Books::at(machine.folder().join("plumb.db"));
        let node = Node { agent: Mutex::default(), machine, books, programs: Programs::of_test()?, service };
        node.books.put(Kind::IpPool, "pods", json!({"cidr": "10.244.0.0/16"}));
        fs::create_dir(node.configurations())?;
        node.install_plugins()?;
        node.start_agent()?;
        Ok(node)
    }

    /// Switches the power off and on again. The agent is started by the boot, the runtime is not.
    pub(crate) fn reboot(&self) -> Result<()> {
        self.machine.reboot()?;
        self.start_agent()
    }

    /// With the runtime's socket as its witness, which need not be there yet.
    fn start_agent(&self) -> Result<()> {
        if self.service == Service::OneShot {
            return Ok(());
        }
        let log = File::options().create(true).append(true).open(self.file("agent.log"))?;
        let mut agent = self.machine.command(self.programs.daemon());
        agent.args(["node", "--node-name", NODE_NAME, "--health-address", "off", "--grace", "1s"]);
        agent.arg("--socket").arg(AGENT_SOCKET).arg("--cri-socket").arg(self.runtime_socket());
        agent.env("DATASTORE_TYPE", "sqlite").env("SQLITE_PATH", self.file("plumb.db"));
        agent.env("NO_DEFAULT_POOLS", "true").env("IP", "none");
        agent.stdout(log.try_clone()?).stderr(log);
        *self.agent.lock().unwrap_or_else(PoisonError::into_inner) = Some(Process::spawn(agent)?);
        let is_ready = || self.machine.run("test", &["-S", AGENT_SOCKET]).is_ok();
        wait_until("the agent to open its socket", is_ready).with_context(|| self.agent_log())
    }

    fn agent_log(&self) -> String {
        fs::read_to_string(self.file("agent.log")).unwrap_or_default()
    }

    /// Where a runtime of this node must listen.
    pub(crate) fn runtime_socket(&self) -> PathBuf {
        self.file("containerd.sock")
    }

    fn file(&self, name: &str) -> PathBuf {
        self.machine.folder().join(name)
    }

    /// Where the runtime finds plugins.
    pub(crate) fn plugins(&self) -> PathBuf {
        self.file("bin")
    }

    /// Where the runtime finds the network configuration.
    pub(crate) fn configurations(&self) -> PathBuf {
        self.file("net.d")
    }

    /// Makes our plugin the first of a chain. Written aside and renamed: runtimes look at any time.
    pub(crate) fn configure(&self, version: &str, others: &[Value]) -> Result<()> {
        let mut plugins = vec![self.own_configuration()];
        plugins.extend_from_slice(others);
        let list = json!({"cniVersion": version, "name": NETWORK, "plugins": plugins});
        let path = self.configurations().join("10-pods.conflist");
        fs::write(path.with_extension("new"), list.to_string())?;
        Ok(fs::rename(path.with_extension("new"), path)?)
    }

    fn own_configuration(&self) -> Value {
        let mut netconf = json!({"type": "plumb-cni", "nodename": NODE_NAME, "mtu": 1450});
        match self.service {
            Service::Agent => netconf["agent_socket"] = json!(AGENT_SOCKET),
            Service::OneShot => {
                netconf["datastore_type"] = json!("sqlite");
                netconf["sqlite_path"] = json!(self.file("plumb.db"));
            }
        }
        netconf
    }

    /// Ours goes through a script that keeps a record of how it was called.
    fn install_plugins(&self) -> Result<()> {
        let folder = self.plugins();
        fs::create_dir(&folder)?;
        for entry in fs::read_dir(OTHER_PLUGINS).into_iter().flatten().flatten() {
            symlink(entry.path(), folder.join(entry.file_name()))?;
        }
        self.install_own_plugin()?;
        self.install_script("refuses", REFUSES)
    }

    fn install_own_plugin(&self) -> Result<()> {
        let script = format!(
            "#!/bin/sh\n{FIELDS} >> {}\nexec {}\n",
            self.record().display(),
            self.programs.cni().display(),
        );
        self.install_script("plumb-cni", &script)
    }

    /// While `act` runs, the runtime believes that its calls do something.
    pub(crate) fn with_calls_lost<T>(&self, act: impl FnOnce() -> T) -> Result<T> {
        self.install_script("plumb-cni", "#!/bin/sh\ncat > /dev/null\n")?;
        let result = act();
        self.install_own_plugin()?;
        Ok(result)
    }

    /// A program that is being run cannot be written to, so it is replaced.
    fn install_script(&self, name: &str, script: &str) -> Result<()> {
        let path = self.file("script");
        fs::write(&path, script)?;
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755))?;
        Ok(fs::rename(path, self.plugins().join(name))?)
    }

    fn record(&self) -> PathBuf {
        self.file("calls")
    }

    /// The versions of the specification that the plugin says it knows.
    pub(crate) fn supported_versions(&self) -> Result<Vec<String>> {
        let mut command = self.machine.command(self.programs.cni());
        let output = run(command.env("CNI_COMMAND", "VERSION"))?;
        let answer: Value = serde_json::from_slice(&output.stdout)?;
        Ok(serde_json::from_value(answer["supportedVersions"].clone())?)
    }

    /// All calls of our plugin so far, but VERSION.
    pub(crate) fn calls(&self) -> Vec<RecordedCall> {
        let text = fs::read_to_string(self.record()).unwrap_or_default();
        let call = |line: &str| {
            let mut fields = line.splitn(4, '|').map(str::to_owned);
            let mut next = || fields.next().context("four fields").expect("the script writes them");
            RecordedCall { verb: next(), container: next(), netns: next(), arguments: next() }
        };
        text.lines().map(call).filter(|call| call.verb != "VERSION").collect()
    }

    /// The calls for one container, with whether a namespace was named: `ADD netns`, `DEL -`.
    pub(crate) fn calls_for(&self, container: &str) -> Vec<String> {
        let own = self.calls().into_iter().filter(|call| call.container == container);
        own.map(|call| format!("{} {}", call.verb, if call.netns.is_empty() { "-" } else { "netns" }))
            .collect()
    }

    /// Records and kernel know of this many pods, no more and no fewer. What an agent does behind its answers
    /// may take a moment.
    #[track_caller]
    pub(crate) fn assert_pods(&self, count: usize) {
        let waited = match self.service {
            Service::OneShot => Ok(()),
            Service::Agent => wait_until("records and kernel to agree", || self.known() == [count; 6]),
        };
        let shown = "allocations, handles, endpoints, links of ours, links by name, routes";
        assert_eq!(self.known(), [count; 6], "{shown}: {waited:?}\n{}", self.agent_log());
    }

    fn known(&self) -> [usize; 6] {
        let books = &self.books;
        let (owned, named, routes) = self.kernel();
        [books.allocations().len(), books.handles().len(), books.endpoints().len(), owned, named, routes]
    }

    /// Links that bear our sign, links that bear our name, our routes.
    fn kernel(&self) -> (usize, usize, usize) {
        let owned = self.machine.visit(|| host::Host::here().unwrap().owned_links().unwrap().len());
        let links = self.machine.run("ip", &["-br", "link"]).unwrap();
        let named = links.lines().filter(|line| line.starts_with("cali")).count();
        let routes = self.machine.run("ip", &["route", "show", "proto", "112"]).unwrap();
        (owned, named, routes.lines().count())
    }
}

/// Writes down how a plugin is called.
const FIELDS: &str = r#"printf '%s|%s|%s|%s\n' "$CNI_COMMAND" "$CNI_CONTAINERID" "$CNI_NETNS" "$CNI_ARGS""#;

/// A plugin that fails each ADD, and agrees to everything else.
const REFUSES: &str = r#"#!/bin/sh
cat > /dev/null
case "$CNI_COMMAND" in
ADD) echo '{"cniVersion": "1.0.0", "code": 100, "msg": "no"}'; exit 1 ;;
VERSION) echo '{"cniVersion": "1.0.0", "supportedVersions": ["0.3.1", "0.4.0", "1.0.0", "1.1.0"]}' ;;
esac
"#;
