//! The image and the manifests together: podman runs each container of the printed DaemonSets with the rights, mounts and variables that the
//! manifest gives it and no others, on the network of a node. Only the store is another one: SQLite.

use std::fs;
use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use lab::{Lab, Node, Pod, Programs};
use serde_json::{Value, json};
use tempfile::TempDir;
use testkit::process::{on_path, wait_until};

const IMAGE: &str = "localhost/plumbline:test";
/// What is not of the node's own folder: it is the kernel's, or the network namespaces'.
const SHARED: [&str; 2] = ["/run/netns", "/proc/sys/net"];

/// Where control groups are mounted. They belong to the whole machine.
const CGROUPS: &str = "/sys/fs/cgroup";

/// Below which podman keeps those of its containers.
fn cgroup() -> String {
    format!("/plumb-image-{}", std::process::id())
}

/// A node without a kubelet.
struct Machine {
    node: Node,
    lab: Lab,
    /// The node's disk, and podman's.
    folder: TempDir,
}

impl Machine {
    fn start(test: &str) -> Option<Machine> {
        let missing = ["podman", "conmon", "runc", "dpkg-deb", "readelf", "strip"]
            .into_iter()
            .find(|name| !on_path(name));
        if let Some(reason) = lab::missing().or_else(|| missing.map(|name| format!("there is no {name}"))) {
            testkit::skip(test, &reason);
            return None;
        }
        let lab = Lab::new(Programs::of_test().unwrap()).unwrap();
        let node = lab.node("node-a").unwrap();
        let machine = Machine { node, lab, folder: tempfile::tempdir().unwrap() };
        for line in [
            "link add uplink type veth peer name beyond",
            "address add 198.18.0.1/24 dev uplink",
            "link set uplink up",
            "link set beyond up",
        ] {
            machine.node.namespace().ip(&line.split(' ').collect::<Vec<_>>()).unwrap();
        }
        let configuration = "[engine]\ncgroup_manager=\"cgroupfs\"\nruntime=\"runc\"\nevents_logger=\"file\"\n\
             [containers]\ndefault_ulimits=[\"nofile=1024:1024\",\"nproc=1024:1024\"]\n";
        fs::write(machine.path("containers.conf"), configuration).unwrap();
        machine.load(test).then_some(machine)
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name.trim_start_matches('/'))
    }

    /// Where a path of the node is.
    fn on_node(&self, path: &str) -> PathBuf {
        if SHARED.contains(&path) {
            return path.into();
        }
        let path = self.path("node").join(path.trim_start_matches('/'));
        fs::create_dir_all(&path).unwrap();
        path
    }

    /// Makes the image of this build's programs. Whether it could: Debian's packages may be out of reach.
    fn load(&self, test: &str) -> bool {
        fs::create_dir(self.path("programs")).unwrap();
        for name in ["plumb", "plumbd", "plumb-cni"] {
            let (from, to) = (self.lab.programs().folder().join(name), self.path("programs").join(name));
            assert!(Command::new("strip").arg("-o").arg(to).arg(from).status().unwrap().success());
        }
        let mut cargo = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
        cargo.args(["run", "--quiet", "--package", "xtask", "--", "image", "--name", IMAGE, "--programs"]);
        cargo.arg(self.path("programs")).arg("--out").arg(self.path("image"));
        let made = cargo.current_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/../..")).output().unwrap();
        let said = String::from_utf8_lossy(&made.stderr);
        if said.contains("cannot download the Debian package") {
            testkit::skip(test, said.trim());
            return false;
        }
        assert!(made.status.success(), "{said}");
        let files = fs::read_dir(self.path("image")).unwrap().map(|entry| entry.unwrap().path());
        let tar = files.into_iter().find(|path| path.extension().is_some_and(|end| end == "tar")).unwrap();
        self.done(self.podman().args(["load", "--quiet", "--input"]).arg(tar));
        true
    }

    fn podman(&self) -> Command {
        let mut podman = Command::new("podman");
        podman.env("CONTAINERS_CONF", self.path("containers.conf"));
        podman.arg("--root").arg(self.path("store")).arg("--runroot").arg(self.path("run"));
        podman.args(["--storage-driver", "vfs"]);
        podman
    }

    #[track_caller]
    fn done(&self, command: &mut Command) -> String {
        let Output { status, stdout, stderr } = command.output().unwrap();
        assert!(status.success(), "{}", String::from_utf8_lossy(&stderr));
        String::from_utf8(stdout).unwrap()
    }

    /// What `plumb install` prints of this name.
    fn manifest(&self, part: &str) -> Value {
        let mut plumb = Command::new(self.lab.programs().plumb());
        let print = format!("--print={part}");
        let text = self.done(plumb.env_clear().args([
            "install",
            &print,
            "--image",
            IMAGE,
            "--pod-cidr",
            "10.244.0.0/24",
        ]));
        let manifest: Value = serde_saphyr::from_str(&text).unwrap();
        manifest["spec"]["template"]["spec"].clone()
    }

    /// As a kubelet would have it run.
    fn run(&self, pod: &Value, container: &Value, options: &[&str]) -> Command {
        let mut podman = self.podman();
        podman.args(["run", "--cgroup-parent", &cgroup()]).args(options);
        assert_eq!(pod["hostNetwork"], true);
        podman.arg("--network").arg(format!("ns:{}", self.node.namespace().path().display()));
        if pod["hostPID"] == true {
            podman.args(["--pid", "host"]);
        }
        let context = &container["securityContext"];
        assert_eq!(
            (&context["readOnlyRootFilesystem"], &context["allowPrivilegeEscalation"]),
            (&json!(true), &json!(false))
        );
        podman.args(["--read-only", "--read-only-tmpfs=false", "--security-opt", "no-new-privileges"]);
        podman.args(["--user", &context["runAsUser"].to_string()]);
        let list = |value: &Value| value.as_array().cloned().unwrap_or_default();
        let text = |value: &Value| value.as_str().unwrap().to_owned();
        for dropped in list(&context["capabilities"]["drop"]) {
            podman.args(["--cap-drop", &text(&dropped)]);
        }
        for added in list(&context["capabilities"]["add"]) {
            podman.args(["--cap-add", &text(&added)]);
        }
        for mount in list(&container["volumeMounts"]) {
            let volumes = list(&pod["volumes"]);
            let volume = volumes.iter().find(|volume| volume["name"] == mount["name"]).unwrap();
            let source = self.on_node(&text(&volume["hostPath"]["path"]));
            let mut flags = vec![if mount["readOnly"] == true { "ro" } else { "rw" }];
            flags.extend((mount["mountPropagation"] == "HostToContainer").then_some("rslave"));
            podman.arg("--volume").arg(format!(
                "{}:{}:{}",
                source.display(),
                text(&mount["mountPath"]),
                flags.join(",")
            ));
        }
        for variable in list(&container["env"]) {
            let value = variable["value"].as_str().unwrap_or("node-a");
            podman.args(["--env", &format!("{}={value}", text(&variable["name"]))]);
        }
        podman.args(["--env", "DATASTORE_TYPE=sqlite", "--env", "IP=198.18.0.1/24", IMAGE]);
        podman.args(list(&container["command"]).iter().map(text));
        podman
    }

    /// The status of one of the agent's health pages.
    fn asks(&self, page: &str) -> Option<String> {
        let ask = || -> std::io::Result<String> {
            let mut stream = TcpStream::connect("127.0.0.1:9099")?;
            write!(stream, "GET {page} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")?;
            let mut answer = String::new();
            stream.read_to_string(&mut answer)?;
            Ok(answer)
        };
        self.node.namespace().visit(ask).unwrap().ok()
    }

    /// The plugin that the init container has installed, with the configuration that it has written.
    fn call(&self, verb: &str, pod: &Pod) -> Output {
        let list = fs::read_to_string(self.path("node/etc/cni/net.d/10-plumb.conflist")).unwrap();
        let list: Value = serde_json::from_str(&list).unwrap();
        let mut netconf = list["plugins"][0].clone();
        netconf["name"] = list["name"].clone();
        netconf["cniVersion"] = list["cniVersion"].clone();
        netconf["agent_socket"] = json!(self.path("node/run/plumb/agent.sock"));
        netconf["state_dir"] = json!(self.path("node/var/lib/plumb"));
        let mut plugin = Command::new(self.path("node/opt/cni/bin/plumb-cni"));
        plugin.env_clear().env("CNI_COMMAND", verb).env("CNI_CONTAINERID", &pod.container_id);
        plugin.env("CNI_NETNS", pod.netns().path()).env("CNI_IFNAME", &pod.interface);
        plugin.env("CNI_PATH", self.path("node/opt/cni/bin"));
        let arguments = [("K8S_POD_NAMESPACE", &pod.namespace), ("K8S_POD_NAME", &pod.name)];
        let arguments = arguments.map(|(name, value)| format!("{name}={value}")).join(";");
        plugin.env("CNI_ARGS", format!("IgnoreUnknown=1;{arguments}"));
        let mut child =
            plugin.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        child.stdin.take().unwrap().write_all(netconf.to_string().as_bytes()).unwrap();
        child.wait_with_output().unwrap()
    }

    #[track_caller]
    fn called(&self, verb: &str, pod: &Pod) {
        let output = self.call(verb, pod);
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        assert!(output.status.success(), "{verb}: {} {}", text(&output.stdout), text(&output.stderr));
    }

    fn files(&self) -> Vec<PathBuf> {
        fn below(folder: &Path, found: &mut Vec<PathBuf>) {
            for path in fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()) {
                if path.is_dir() { below(&path, found) } else { found.push(path) }
            }
        }
        let mut found = Vec::new();
        below(&self.path("node"), &mut found);
        found
    }

    fn logs(&self) -> String {
        let output = self.podman().args(["logs", "agent"]).output().unwrap();
        String::from_utf8_lossy(&output.stderr).into_owned() + &String::from_utf8_lossy(&output.stdout)
    }
}

impl Drop for Machine {
    fn drop(&mut self) {
        let _ = self.podman().args(["rm", "--force", "--all", "--time", "2"]).output();
        // Only where it was made. The kernel removes none that has a process.
        let hierarchies = fs::read_dir(CGROUPS).into_iter().flatten().flatten();
        for own in hierarchies.map(|hierarchy| hierarchy.path().join(cgroup().trim_start_matches('/'))) {
            for below in fs::read_dir(&own).into_iter().flatten().flatten() {
                let _ = fs::remove_dir(below.path());
            }
            let _ = fs::remove_dir(own);
        }
    }
}

#[test]
fn agents_of_the_image_need_nothing_that_the_manifest_does_not_give_them() {
    let test = "agents_of_the_image_need_nothing_that_the_manifest_does_not_give_them";
    let Some(machine) = Machine::start(test) else { return };
    let version = machine.done(machine.podman().args([
        "run",
        "--rm",
        "--read-only",
        "--network",
        "none",
        "--cgroup-parent",
        &cgroup(),
        IMAGE,
    ]));
    assert!(version.starts_with("Client Version: "), "{version}");

    let pod = machine.manifest("daemonset");
    let said = machine.done(&mut machine.run(&pod, &pod["initContainers"][0], &["--rm"]));
    assert!(said.ends_with("installed /host/etc/cni/net.d/10-plumb.conflist\n"), "{said}");
    machine.done(&mut machine.run(&pod, &pod["containers"][0], &["--detach", "--name", "agent"]));
    let is_ready = || machine.asks("/readiness").is_some_and(|answer| answer.starts_with("HTTP/1.1 200"));
    let ready =
        |when: &str| wait_until(when, is_ready).unwrap_or_else(|error| panic!("{error}: {}", machine.logs()));
    ready("the agent to be ready");
    let web = machine.lab.pod("default", "web").unwrap();
    machine.called("ADD", &web);
    assert!(web.netns().can_ping("192.0.2.1").unwrap(), "{}", machine.logs());

    // What a rolling update does: the pod stays connected.
    machine.done(machine.podman().args(["stop", "--time", "20", "agent"]));
    assert!(web.netns().can_ping("192.0.2.1").unwrap());
    let pod_of_uninstaller = machine.manifest("uninstall");
    let uninstall = |machine: &Machine| {
        machine
            .run(&pod_of_uninstaller, &pod_of_uninstaller["initContainers"][0], &["--rm"])
            .output()
            .unwrap()
    };
    let refused = uninstall(&machine);
    assert!(
        String::from_utf8_lossy(&refused.stderr).contains("1 pods on this node use the network"),
        "{refused:?}"
    );
    assert!(!refused.status.success() && web.netns().can_ping("192.0.2.1").unwrap());
    machine.done(machine.podman().args(["start", "agent"]));
    ready("the agent to be ready again");
    machine.called("DEL", &web);
    machine.done(machine.podman().args(["rm", "--force", "--time", "20", "agent"]));

    let done = uninstall(&machine);
    assert!(done.status.success(), "{done:?}");
    let left: Vec<PathBuf> =
        machine.files().into_iter().filter(|path| !path.to_string_lossy().contains("plumb.db")).collect();
    assert!(left.is_empty(), "{left:?}");
    let routes = machine.node.namespace().ip(&["route", "show", "proto", "113"]).unwrap();
    assert_eq!(routes, "");
    let devices = machine.node.namespace().ip(&["-o", "link"]).unwrap();
    assert!(!devices.contains("vxlan.calico") && !devices.contains("cali"), "{devices}");
}
