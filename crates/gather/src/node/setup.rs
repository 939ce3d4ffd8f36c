//! How a node is set up, from files that every Linux has.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use model::NodeName;

use evidence::answers::{ClockLine, clock_line};
use evidence::node::Setup;
use evidence::{Origin, Sighted};
use host::program;

use super::token;

const NODENAME_FILE: &str = "var/lib/calico/nodename";
const CNI_FOLDER: &str = "etc/cni/net.d";
/// The plugin's credentials for the API.
const KUBECONFIGS: [&str; 2] = ["etc/cni/net.d/calico-kubeconfig", "etc/cni/net.d/plumb-kubeconfig"];
const UNITS: [&str; 5] = ["kubelet", "containerd", "crio", "docker", "plumbd"];
/// No configuration of a network is longer.
const CONFIG_BYTES_MAX: u64 = 256 << 10;
/// How long a program of the machine may take to say how things are.
const PATIENCE: Duration = Duration::from_secs(5);

/// `root` is `/`, but for tests.
pub(super) fn fill(setup: &mut Setup, root: &Path, node: &NodeName) {
    let origin = |what: &str| Origin::probe(node, what);
    let line = |path: &str| {
        let value = fs::read_to_string(root.join(path)).ok()?.trim().to_owned();
        Some(Sighted::new(value, origin(&format!("/{path}")))).filter(|sighted| !sighted.seen.is_empty())
    };
    setup.node_name = Some(Sighted::new(node.clone(), origin("node name")));
    setup.hostname = line("proc/sys/kernel/hostname");
    setup.nodename_file = line(NODENAME_FILE);
    setup.machine_id = line("etc/machine-id");
    let read = |path: &str| Some((fs::read_to_string(root.join(path)).ok()?, origin(&format!("/{path}"))));
    setup.swaps = read("proc/swaps").map(|(text, origin)| Sighted::new(first_words(&text, 1), origin));
    setup.kernel_modules = modules(root).map(|modules| Sighted::new(modules, origin("kernel modules")));
    let sockets =
        ["proc/net/tcp", "proc/net/tcp6"].map(|path| read(path).map(|(text, _)| text).unwrap_or_default());
    let ports: BTreeSet<u16> = sockets.iter().flat_map(|text| listening(text)).collect();
    setup.listening_ports = Some(Sighted::new(ports.into_iter().collect(), origin("/proc/net/tcp")));
    setup.cni_configs = Some(cni_configs(&root.join(CNI_FOLDER), node));
    setup.credentials_expire_at = Some(
        KUBECONFIGS
            .iter()
            .filter_map(|path| {
                let expiry = token::expiry(&fs::read_to_string(root.join(path)).ok()?)?;
                Some((format!("/{path}"), Sighted::new(expiry, origin(&format!("/{path}")))))
            })
            .collect(),
    );
    if root == Path::new("/") {
        clock(setup, node);
        if Path::new("/run/systemd/system").is_dir() {
            setup.units = units(node);
        }
    }
}

/// Modules that are loaded, and those that are part of the kernel itself: `/proc/modules` knows only the former, `/sys/module`
/// also the latter where they have parameters, and the list beside a kernel's modules all of the latter. `None` if nothing tells.
fn modules(root: &Path) -> Option<Vec<String>> {
    let loaded = fs::read_to_string(root.join("proc/modules")).ok().map(|text| first_words(&text, 0));
    let known = fs::read_dir(root.join("sys/module")).ok().map(|entries| {
        entries.flatten().map(|entry| entry.file_name().to_string_lossy().into_owned()).collect::<Vec<_>>()
    });
    let release = fs::read_to_string(root.join("proc/sys/kernel/osrelease")).unwrap_or_default();
    let built_in = root.join("lib/modules").join(release.trim()).join("modules.builtin");
    let built_in = fs::read_to_string(built_in).ok().map(|text| text.lines().map(module).collect());
    let told: Vec<Vec<String>> = [loaded, known, built_in].into_iter().flatten().collect();
    let modules: BTreeSet<String> = told.concat().into_iter().collect();
    (!modules.is_empty()).then(|| modules.into_iter().collect())
}

/// `kernel/drivers/net/vxlan/vxlan.ko` is the module vxlan.
fn module(path: &str) -> String {
    let file = path.rsplit('/').next().unwrap_or(path);
    file.split('.').next().unwrap_or(file).replace('-', "_")
}

/// The first word of each line after the heading.
fn first_words(text: &str, heading_lines: usize) -> Vec<String> {
    let lines = text.lines().skip(heading_lines);
    lines.filter_map(|line| line.split_whitespace().next()).map(str::to_owned).collect()
}

/// Ports in state LISTEN, as `/proc/net/tcp` has them.
fn listening(text: &str) -> Vec<u16> {
    const LISTEN: &str = "0A";
    let port = |line: &str| {
        let mut words = line.split_whitespace().skip(1);
        let (local, state) = (words.next()?, words.nth(1)?);
        (state == LISTEN).then(|| u16::from_str_radix(local.rsplit(':').next()?, 16).ok())?
    };
    text.lines().skip(1).filter_map(port).collect()
}

fn cni_configs(folder: &Path, node: &NodeName) -> BTreeMap<String, Sighted<String>> {
    let mut configs = BTreeMap::new();
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        let name = entry.file_name().to_string_lossy().into_owned();
        let is_config = [".conf", ".conflist", ".json"].iter().any(|end| name.ends_with(end));
        let is_small =
            entry.metadata().is_ok_and(|status| status.is_file() && status.len() <= CONFIG_BYTES_MAX);
        if !is_config || !is_small {
            continue;
        }
        if let Ok(content) = fs::read_to_string(entry.path()) {
            let origin = Origin::probe(node, format!("/{CNI_FOLDER}/{name}"));
            configs.insert(name, Sighted::new(model::text::masked(&content), origin));
        }
    }
    configs
}

/// How far the clock is from its time servers', and whether the kernel says that anybody keeps it: as far as those who know are here.
fn clock(setup: &mut Setup, node: &NodeName) {
    let chrony =
        ["/run/chrony", "/run/chrony-dhcp", "/var/run/chrony"].iter().any(|path| Path::new(path).is_dir());
    let asked = [
        chrony.then(|| answer("chronyc", &["-n", "tracking"])).flatten(),
        Path::new("/run/systemd/system").is_dir().then(|| answer("timedatectl", &["status"])).flatten(),
    ];
    for text in asked.into_iter().flatten() {
        clock_from(setup, &text, node);
    }
}

fn clock_from(setup: &mut Setup, text: &str, node: &NodeName) {
    for line in text.lines() {
        match clock_line(line) {
            Some(ClockLine::Ahead(ahead)) => {
                let origin = Origin::probe(node, "chronyc tracking");
                setup.clock_ahead = Some(Sighted::new(ahead, origin));
            }
            Some(ClockLine::IsKept(kept)) => {
                let origin = Origin::probe(node, "timedatectl");
                setup.is_clock_kept = Some(Sighted::new(kept, origin));
            }
            Some(ClockLine::Other) | None => {}
        }
    }
}

/// What a program of the machine prints. `None`: it is not there, or does not answer well.
fn answer(name: &str, words: &[&str]) -> Option<String> {
    let mut command = Command::new(name);
    let output = program::run(command.args(words).env("LC_ALL", "C"), b"", PATIENCE).ok()?;
    output.status.success().then(|| String::from_utf8_lossy(&output.stdout).into_owned())
}

/// What systemd says of those units that it knows.
fn units(node: &NodeName) -> Option<BTreeMap<String, Sighted<String>>> {
    let mut command = Command::new("systemctl");
    command.args(["show", "--property=Id,LoadState,ActiveState"]).args(UNITS);
    let output = program::run(&mut command, b"", PATIENCE).ok().filter(|output| output.status.success())?;
    let text = String::from_utf8_lossy(&output.stdout);
    let units = text.split("\n\n").filter_map(unit);
    Some(units.map(|(name, state)| (name, Sighted::new(state, Origin::probe(node, "systemctl")))).collect())
}

fn unit(properties: &str) -> Option<(String, String)> {
    let value = |name: &str| {
        properties.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix('=')).map(str::to_owned)
    };
    let is_known = value("LoadState").is_some_and(|state| state == "loaded");
    let name = value("Id")?;
    is_known.then(|| Some((name.trim_end_matches(".service").to_owned(), value("ActiveState")?)))?
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_of_a_node_are_read_and_secrets_are_not() {
        let root = tempfile::tempdir().unwrap();
        let put = |path: &str, content: &str| {
            let path = root.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, content).unwrap();
        };
        put("var/lib/calico/nodename", "node-b\n");
        put("proc/swaps", "Filename Type Size Used Priority\n/dev/sda2 partition 1 0 -2\n");
        put(
            "proc/net/tcp",
            "  sl  local_address rem_address   st\n   0: 0100007F:00B3 00000000:0000 0A 00\n   1: 0100007F:1F90 0100007F:0050 01 00\n",
        );
        put("proc/net/tcp6", "heading\n   0: 00000000000000000000000000000000:0016 0:0 0A 00\n");
        put("proc/sys/kernel/hostname", "node-a.example\n");
        put("etc/machine-id", "\n");
        put("proc/modules", "veth 36864 0 - Live 0x0\n");
        put("proc/sys/kernel/osrelease", "6.1\n");
        put("lib/modules/6.1/modules.builtin", "kernel/net/ipv4/ipip.ko\nkernel/x/a-b.ko\n");
        put("sys/module/vxlan/parameters/udp_port", "0\n");
        put("etc/cni/net.d/10-calico.conflist", "{\"type\": \"calico\", \"password\": \"hunter2\"}");
        put("etc/cni/net.d/notes.txt", "x");
        let mut setup = Setup::default();
        fill(&mut setup, root.path(), &"node-a".into());
        assert_eq!(setup.nodename_file.unwrap().seen, "node-b");
        assert_eq!(setup.swaps.unwrap().seen, ["/dev/sda2"]);
        assert_eq!(setup.listening_ports.unwrap().seen, [22, 179]);
        assert_eq!(setup.hostname.unwrap().seen, "node-a.example");
        assert_eq!(setup.machine_id, None, "an empty file tells nothing");
        assert_eq!(setup.kernel_modules.unwrap().seen, ["a_b", "ipip", "veth", "vxlan"]);
        let configs = setup.cni_configs.unwrap();
        assert_eq!(configs.len(), 1);
        let config = &configs["10-calico.conflist"].seen;
        assert!(config.contains("calico") && !config.contains("hunter2"), "{config}");
        assert!(setup.units.is_none());
    }

    #[test]
    fn swap_and_a_kubelet_that_does_not_start_are_found() {
        let codes = |swaps: &str, kubelet: &str| {
            let root = tempfile::tempdir().unwrap();
            fs::create_dir_all(root.path().join("proc")).unwrap();
            let heading = "Filename Type Size Used Priority\n";
            fs::write(root.path().join("proc/swaps"), format!("{heading}{swaps}")).unwrap();
            let mut evidence = evidence::Evidence::default();
            let setup = &mut evidence.node_mut("node-a").setup;
            fill(setup, root.path(), &"node-a".into());
            let told = format!("Id=kubelet.service\nLoadState=loaded\nActiveState={kubelet}\n");
            let (name, state) = unit(&told).unwrap();
            setup.units = Some([(name, Sighted::new(state, Origin::probe("node-a", "systemctl")))].into());
            let codes =
                doctor::diagnose(&evidence).findings.into_iter().map(|finding| finding.code.to_string());
            codes.filter(|code| code.starts_with("kubelet")).collect::<Vec<_>>()
        };
        let swap = "/dev/sda2 partition 1003516 0 -2\n";
        assert_eq!(codes(swap, "activating"), ["kubelet-refuses-swap"]);
        assert_eq!(codes("", "failed"), ["kubelet-failing"]);
        assert_eq!(codes(swap, "active"), [] as [&str; 0]);
        assert_eq!(codes("", "active"), [] as [&str; 0]);
    }

    #[test]
    fn clocks_are_told_by_those_who_keep_them() {
        let told = |text: &str| {
            let mut setup = Setup::default();
            clock_from(&mut setup, text, &"node-a".into());
            (setup.clock_ahead.map(|ahead| ahead.seen.as_secs()), setup.is_clock_kept.map(|kept| kept.seen))
        };
        let tracking = "Reference ID    : 0A000001 (10.0.0.1)\nStratum         : 3\nRef time (UTC)  : Mon Nov 20 11:22:33 2023\n\
             System time     : 93.123456789 seconds slow of NTP time\nLast offset     : -0.000012345 seconds\n\
             RMS offset      : 0.000034567 seconds\nFrequency       : 12.345 ppm slow\nLeap status     : Normal\n";
        assert_eq!(told(tracking), (Some(-93), None));
        assert_eq!(told(&tracking.replace("slow of", "fast of")), (Some(93), None));
        let status = "               Local time: Mon 2023-11-20 11:22:33 UTC\n           Universal time: Mon 2023-11-20 11:22:33 UTC\n\
             System clock synchronized: no\n              NTP service: active\n          RTC in local TZ: no\n";
        assert_eq!(told(status), (None, Some(false)));
        assert_eq!(told("506 Cannot talk to daemon"), (None, None));
    }

    #[test]
    fn units_that_systemd_does_not_know_are_left_out() {
        assert_eq!(
            unit("Id=kubelet.service\nLoadState=loaded\nActiveState=failed"),
            Some(("kubelet".to_owned(), "failed".to_owned()))
        );
        assert_eq!(unit("Id=crio.service\nLoadState=not-found\nActiveState=inactive"), None);
        assert_eq!(unit(""), None);
    }
}
