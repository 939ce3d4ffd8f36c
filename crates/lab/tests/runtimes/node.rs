//! A machine with our plugin installed: programs, network configuration, store; and looks at what is left of pods.

use std::fs;
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result};
use lab::Programs;
use model::Kind;
use serde_json::{Value, json};
use testkit::process::wait_until;

use crate::books::Books;
use crate::machine::Machine;

/// The name of the network in every test here.
pub(crate) const NETWORK: &str = "pods";

/// Where Debian keeps the plugins that nobody here wrote.
const OTHER_PLUGINS: &str = "/usr/lib/cni";

/// Why a plugin of others is not there, if so.
pub(crate) fn missing_plugin(names: &[&str]) -> Option<String> {
    let missing = names.iter().find(|name| !Path::new(OTHER_PLUGINS).join(name).is_file())?;
    Some(format!("{OTHER_PLUGINS}/{missing} (Debian package containernetworking-plugins) is not installed"))
}

#[derive(Debug)]
pub(crate) struct Node {
    pub(crate) machine: Machine,
    pub(crate) books: Books,
    programs: Programs,
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
    pub(crate) fn start() -> Result<Node> {
        let machine = Machine::boot()?;
        let books = Books::at(machine.folder().join("plumb.db"));
        let node = Node { machine, books, programs: Programs::of_test()? };
        node.books.put(Kind::IpPool, "pods", json!({"cidr": "10.244.0.0/16"}));
        fs::create_dir(node.configurations())?;
        node.install_plugins()?;
        Ok(node)
    }

    /// Where the runtime finds plugins.
    pub(crate) fn plugins(&self) -> PathBuf {
        self.machine.folder().join("bin")
    }

    /// Where the runtime finds the network configuration.
    pub(crate) fn configurations(&self) -> PathBuf {
        self.machine.folder().join("net.d")
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
        json!({
            "type": "plumb-cni",
            "datastore_type": "sqlite",
            "sqlite_path": self.machine.folder().join("plumb.db"),
            "nodename": "node-a",
            "mtu": 1450,
        })
    }

    /// Ours goes through a script that keeps a record of how it was called.
    fn install_plugins(&self) -> Result<()> {
        let folder = self.plugins();
        fs::create_dir(&folder)?;
        for entry in fs::read_dir(OTHER_PLUGINS).into_iter().flatten().flatten() {
            symlink(entry.path(), folder.join(entry.file_name()))?;
        }
        let own = self.programs.cni();
        let record = format!(
            "#!/bin/sh\nprintf '%s|%s|%s|%s\\n' \"$CNI_COMMAND\" \"$CNI_CONTAINERID\" \"$CNI_NETNS\" \"$CNI_ARGS\" >> {}\nexec {}\n",
            self.record().display(),
            own.display(),
        );
        self.install_script("plumb-cni", &record)?;
        self.install_script("refuses", REFUSES)
    }

    fn install_script(&self, name: &str, script: &str) -> Result<()> {
        let path = self.plugins().join(name);
        fs::write(&path, script)?;
        Ok(fs::set_permissions(&path, fs::Permissions::from_mode(0o755))?)
    }

    fn record(&self) -> PathBuf {
        self.machine.folder().join("calls")
    }

    /// The versions of the specification that the plugin says it knows.
    pub(crate) fn supported_versions(&self) -> Result<Vec<String>> {
        let mut command = self.machine.command(self.programs.cni());
        let output = testkit::process::run(command.env("CNI_COMMAND", "VERSION"))?;
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

    /// Records and kernel know of this many pods, no more and no fewer.
    #[track_caller]
    pub(crate) fn assert_pods(&self, count: usize) {
        assert_eq!(self.books.allocations().len(), count, "allocations: {:?}", self.books.allocations());
        assert_eq!(self.books.handles().len(), count, "handles: {:?}", self.books.handles());
        assert_eq!(self.books.endpoints().len(), count, "endpoints: {:?}", self.books.endpoints());
        let matches = || self.kernel() == (count, count, count);
        let waited = wait_until("the kernel to hold what the records say", matches);
        waited.unwrap_or_else(|error| {
            panic!("{error:#}: links of ours, links by name, routes: {:?}, not {count}", self.kernel())
        });
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

/// A plugin that fails each ADD, and agrees to everything else.
const REFUSES: &str = r#"#!/bin/sh
cat > /dev/null
case "$CNI_COMMAND" in
ADD) echo '{"cniVersion": "1.0.0", "code": 100, "msg": "no"}'; exit 1 ;;
VERSION) echo '{"cniVersion": "1.0.0", "supportedVersions": ["0.3.1", "0.4.0", "1.0.0", "1.1.0"]}' ;;
esac
"#;
