//! `plumb install --node` as the DaemonSet's init container runs it, and `plumb uninstall`: the node is afterwards as it was.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use model::Sandbox;
use serde_json::{Value, json};
use tempfile::TempDir;

/// Programs of an image, and the root of a node.
struct Node {
    folder: TempDir,
}

impl Node {
    fn new() -> Node {
        let node = Node { folder: tempfile::tempdir().unwrap() };
        for program in ["plumb", "plumbd", "plumb-cni"] {
            node.write(&format!("programs/{program}"), program);
        }
        for plugin in ["portmap", "bandwidth", "loopback"] {
            node.write(&format!("plugins/{plugin}"), &format!("{plugin} of the image"));
        }
        node.write("root/etc/hostname", "worker-1\n");
        node.write("root/opt/cni/bin/loopback", "loopback of the distribution");
        node
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn write(&self, name: &str, text: &str) {
        let path = self.path(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }

    fn read(&self, name: &str) -> String {
        fs::read_to_string(self.path(name)).unwrap()
    }

    fn plumb(&self, command: &str, arguments: &[&str]) -> Output {
        let mut plumb = Command::new(env!("CARGO_BIN_EXE_plumb"));
        plumb.env_clear().env("PATH", "/usr/sbin:/usr/bin:/sbin:/bin");
        plumb.arg(command).arg("--root").arg(self.path("root")).args(arguments).output().unwrap()
    }

    #[track_caller]
    fn done(&self, output: Output) -> String {
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap().replace(&*self.path("root").to_string_lossy(), "")
    }

    #[track_caller]
    fn install(&self, arguments: &[&str]) -> String {
        let (programs, plugins) = (self.path("programs"), self.path("plugins"));
        let own = [
            "--node",
            "--replace-config",
            "--bin-dir",
            programs.to_str().unwrap(),
            "--standard-plugins",
            plugins.to_str().unwrap(),
        ];
        self.done(self.plumb("install", &[&own[..], arguments].concat()))
    }

    /// Everything on the node, files with their modes and contents.
    fn tree(&self) -> BTreeMap<PathBuf, (u32, Option<Vec<u8>>)> {
        let mut tree = BTreeMap::new();
        let mut folders = vec![self.path("root")];
        while let Some(folder) = folders.pop() {
            for path in fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()) {
                let metadata = fs::symlink_metadata(&path).unwrap();
                tree.insert(path.clone(), (metadata.permissions().mode(), fs::read(&path).ok()));
                if metadata.is_dir() {
                    folders.push(path);
                }
            }
        }
        tree
    }
}

const INSTALLED: &str = "\
installed /opt/cni/bin/portmap
installed /opt/cni/bin/bandwidth
kept /opt/cni/bin/loopback
installed /opt/cni/bin/plumb-cni
installed /opt/cni/bin/plumb-ipam
installed /etc/cni/net.d/10-plumb.conflist
";

#[test]
fn plugins_come_first_and_the_configuration_last_and_both_go_again() {
    let node = Node::new();
    for folder in ["root/etc/cni/net.d", "root/var/lib"] {
        fs::create_dir_all(node.path(folder)).unwrap();
    }
    node.write("root/etc/cni/net.d/99-loopback.conf", "{}");
    let before = node.tree();
    assert_eq!(node.install(&["--dry-run"]), INSTALLED.replace("installed", "would install"));
    assert_eq!(node.tree(), before);
    assert_eq!(node.install(&["--mtu", "1400", "--ip-versions", "ipv4,ipv6"]), INSTALLED);
    let list: Value = serde_json::from_str(&node.read("root/etc/cni/net.d/10-plumb.conflist")).unwrap();
    let plugins = list["plugins"].as_array().unwrap();
    let types: Vec<&str> = plugins.iter().map(|plugin| plugin["type"].as_str().unwrap()).collect();
    assert_eq!(types, ["plumb-cni", "portmap", "bandwidth"]);
    assert_eq!((&plugins[0]["mtu"], &plugins[0]["ipam"]["assign_ipv6"]), (&json!(1400), &json!("true")));
    // A pod that starts anew does it again.
    let again = node.install(&["--mtu", "1400", "--ip-versions", "ipv4,ipv6"]);
    assert_eq!(again, INSTALLED.replace("installed", "unchanged"));

    let removed = node.done(node.plumb("uninstall", &[]));
    assert!(removed.starts_with("removed /etc/cni/net.d/10-plumb.conflist\n"), "{removed}");
    assert_eq!(node.tree(), before);
    assert_eq!(node.done(node.plumb("uninstall", &[])), "", "there is nothing left to remove");
}

#[test]
fn standard_plugins_are_ours_only_while_nobody_has_replaced_them() {
    let node = Node::new();
    node.install(&[]);
    node.write("plugins/portmap", "portmap of the next image");
    let said = node.install(&[]);
    assert!(
        said.starts_with("replaced /opt/cni/bin/portmap\nunchanged /opt/cni/bin/bandwidth\nkept "),
        "{said}"
    );
    assert_eq!(node.read("root/opt/cni/bin/portmap"), "portmap of the next image");
    node.write("root/opt/cni/bin/bandwidth", "bandwidth of somebody else");
    assert!(node.install(&[]).contains("kept /opt/cni/bin/bandwidth\n"));
    node.write("root/opt/cni/bin/portmap", "portmap of somebody else");
    node.done(node.plumb("uninstall", &[]));
    assert_eq!(node.read("root/opt/cni/bin/portmap"), "portmap of somebody else");
    assert_eq!(node.read("root/opt/cni/bin/bandwidth"), "bandwidth of somebody else");
    assert_eq!(node.read("root/opt/cni/bin/loopback"), "loopback of the distribution");
}

#[test]
fn a_node_in_use_is_left_alone() {
    let node = Node::new();
    node.install(&[]);
    let refused = |words: &str| {
        let (before, output) = (node.tree(), node.plumb("uninstall", &[]));
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.code() == Some(1) && said.contains(words), "{said}");
        assert_eq!(node.tree(), before);
    };
    let del = |id: &str| {
        json!({ "version": 1, "role": "network", "config": "{}",
            "environment": { "CNI_COMMAND": "DEL", "CNI_CONTAINERID": id, "CNI_IFNAME": "eth0" } })
        .to_string()
    };
    node.write("root/var/lib/plumb/attachments/k8s-pod-network@0f3a@eth0.json", "{}");
    node.write("root/var/lib/plumb/queue/del-1.json", &del("0f3a"));
    // The second DEL of a sandbox whose first one is done.
    node.write("root/var/lib/plumb/queue/del-2.json", &del("beef"));
    refused("1 DELs wait in ");
    node.write("root/var/lib/plumb/queue/del-3.json", "damaged");
    refused("2 DELs wait in ");
    fs::remove_file(node.path("root/var/lib/plumb/queue/del-3.json")).unwrap();
    fs::remove_file(node.path("root/var/lib/plumb/attachments/k8s-pod-network@0f3a@eth0.json")).unwrap();
    fs::create_dir_all(node.path("root/run/plumb")).unwrap();
    let agent = UnixListener::bind(node.path("root/run/plumb/agent.sock")).unwrap();
    refused("the agent of this node still runs");
    drop(agent);
    node.done(node.plumb("uninstall", &[]));
}

#[test]
fn records_stay_unless_they_are_to_go() {
    let node = Node::new();
    node.write("root/var/lib/plumb/plumb.db", "records");
    node.write("root/var/lib/plumb/plumb.db-wal", "more records");
    node.write("root/var/lib/plumb/attachments/a.json", "{}");
    node.write("root/var/lib/calico/mtu", "1450");
    node.write("root/var/lib/calico/nodename", "worker-1");
    let would = node.done(node.plumb("uninstall", &["--dry-run", "--purge"]));
    assert_eq!(would, "would remove /var/lib/plumb\n");
    node.done(node.plumb("uninstall", &[]));
    assert_eq!(node.read("root/var/lib/plumb/plumb.db-wal"), "more records");
    assert!(!node.path("root/var/lib/plumb/attachments").exists());
    assert_eq!(node.read("root/var/lib/calico/mtu"), "1450", "Calico's, which has run here");
    fs::remove_file(node.path("root/var/lib/calico/nodename")).unwrap();
    node.done(node.plumb("uninstall", &["--purge"]));
    assert!(!node.path("root/var/lib/plumb").exists() && !node.path("root/var/lib/calico/mtu").exists());
}

/// In a network namespace of its own: `setup` first, then the commands; what they print.
fn in_a_namespace(root: &Path, script: &str) -> Output {
    let mut shell = Command::new("unshare");
    shell.args(["--net", "sh", "-ec", script]).env_clear().env("PATH", "/usr/sbin:/usr/bin:/sbin:/bin");
    shell.env("PLUMB", env!("CARGO_BIN_EXE_plumb")).env("ROOT", root).output().unwrap()
}

/// A pod, routes, a tunnel and rules of ours, each beside one of somebody else.
fn wired() -> String {
    let sandbox = Sandbox::new("k8s-pod-network", "0f3a", "eth0").unwrap();
    format!(
        "ip link set lo up
         ip link add up0 type veth peer name up1; ip link set up0 up; ip link set up1 up; ip address add 10.9.0.1/24 dev up0
         unshare --net sleep infinity & pod=$!
         trap 'kill $pod' EXIT
         ip link add cali1 type veth peer name eth0; ip link set cali1 alias '{}'
         until ip link set eth0 netns $pod 2>/dev/null; do kill -0 $pod; done
         ip link set cali1 up
         ip link add caliother type veth peer name other
         ip route add 10.1.0.5/32 dev cali1 proto 112
         ip route add blackhole 10.1.0.0/26 proto 113; ip route add 10.2.0.0/26 via 10.9.0.2 proto 113
         ip route add 10.3.0.0/26 via 10.9.0.2 proto static
         ip link add vxlan.calico type vxlan id 4096 dstport 4789 dev up0; ip link set vxlan.calico alias plumb:vxlan
         nft add table inet plumb; nft add table inet other
        ",
        sandbox.alias()
    )
}

#[test]
fn what_we_made_in_the_kernel_goes_and_what_others_made_stays() {
    let test = "what_we_made_in_the_kernel_goes_and_what_others_made_stays";
    let node = Node::new();
    let probe = in_a_namespace(&node.path("root"), "nft list ruleset");
    if !probe.status.success() {
        testkit::skip(test, "needs root, network namespaces and nft");
        return;
    }
    let show = "ip -o link | cut -d: -f2 | cut -d@ -f1; ip route; nft list tables";
    let setup = wired();
    let script = format!(
        "{setup} if $PLUMB uninstall --root $ROOT --kernel 2>&1; then exit 9; fi
         ip -o link show cali1 >&2
         $PLUMB uninstall --root $ROOT --kernel --force --dry-run; echo ---; {show}
         $PLUMB uninstall --root $ROOT --kernel --force; echo ===; {show}"
    );
    let output = in_a_namespace(&node.path("root"), &script);
    let (said, errors) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{said}\n{errors}");
    assert!(said.contains("1 pods on this node use the network"), "{said}");
    assert!(said.contains("would remove 1 devices of pods\nwould remove "), "{said}");
    let (before, after) = said.split_once("===").unwrap();
    let before = before.split_once("---").unwrap().1;
    for ours in ["cali1", "10.1.0.5", "10.1.0.0/26", "10.2.0.0/26", "vxlan.calico", "inet plumb"] {
        assert!(before.contains(ours), "a dry run removed {ours}: {before}");
        assert!(!after.contains(ours), "{ours} is left: {after}");
    }
    for others in ["up0", "caliother", "10.3.0.0/26", "inet other"] {
        assert!(after.contains(others), "{others} is gone: {after}");
    }
}
