//! Ways through tunnels, broken with the means that break them in the wild: each fault is found as what it is and as nothing else, mended
//! by the rule of the pool's mode, and packets flow again; the repair taken back, it is found again.

use std::collections::BTreeSet;
use std::process::Command;

use anyhow::{Context as _, Result, ensure};
use lab::cluster::{Mode, StoreKind};
use model::{Cidr, FindingCode};
use serde_json::Value;

use crate::modes::{NODES, Town};
use crate::scene::{missing, plumb_at};

/// Seconds between the two looks that must show something as gone.
const GRACE: &str = "0.2";

/// A fault on the first node.
struct Broken {
    name: &'static str,
    line: String,
    code: FindingCode,
    subject: String,
    /// The pod that is not reached until it is mended.
    pod: String,
}

struct Bench {
    town: Town,
    repairs: tempfile::TempDir,
}

/// What the first node knows of the way to another.
struct Way {
    is_v4: bool,
    ip: &'static str,
    device: &'static str,
    /// The other node's block, pod, and tunnel address; its hardware address; and the node's own.
    block: Cidr,
    pod: String,
    tunnel: String,
    mac: String,
    node: String,
}

impl Bench {
    fn up(mode: Mode, ipv6: bool) -> Result<Bench> {
        let town = Town::up(mode, ipv6)?;
        town.wait_until_clean()?;
        for node in NODES {
            town.lab.stop(node, "agent")?;
            town.lab.start(node, "agent", &["--observe", "--repair"])?;
        }
        town.wait_until_clean()?;
        Ok(Bench { town, repairs: tempfile::tempdir()? })
    }

    /// As the first node's kernel has it while all is well.
    fn way(&self, to: usize, is_v4: bool) -> Result<Way> {
        let pod = self.town.address(to, is_v4)?;
        let block = Cidr::containing(pod, if is_v4 { 26 } else { 122 }).context("a block")?;
        let (ip, device) = if is_v4 { ("ip -4", "vxlan.calico") } else { ("ip -6", "vxlan-v6.calico") };
        let record = self.town.lab.plumb(&["get", "node", NODES[to], "-o", "json"])?;
        let record: Value = serde_json::from_str(&record)?;
        let (address, tunnel) = match is_v4 {
            true => ("ipv4Address", "ipv4VXLANTunnelAddr"),
            false => ("ipv6Address", "ipv6VXLANTunnelAddr"),
        };
        let text = |value: &Value| value.as_str().map(str::to_owned);
        let node = text(&record["spec"]["bgp"][address]).context("an address")?;
        let node = node.split('/').next().unwrap_or_default().to_owned();
        let tunnel = text(&record["spec"][tunnel]).context("a tunnel address")?;
        let known = self.town.run(false, &format!("{ip} neigh show {tunnel} dev {device}"))?;
        let mac = known.split_whitespace().skip_while(|word| *word != "lladdr").nth(1);
        let mac = mac.with_context(|| format!("no neighbour in {known:?}"))?.to_owned();
        Ok(Way { is_v4, ip, device, block, pod: pod.to_string(), tunnel, mac, node })
    }

    fn plumb(&self, words: &[&str]) -> Result<Command> {
        let mut plumb = plumb_at(&self.town.lab, &Default::default(), words)?;
        plumb.args(["--grace", GRACE, "--settle", "0.02"]).env("PLUMB_REPAIRS", self.repairs.path());
        Ok(plumb)
    }

    fn repair(&self, words: &[&str]) -> Result<Value> {
        let output = self.plumb(&[&["repair", "-o", "json"], words].concat())?.output()?;
        let said = String::from_utf8_lossy(&output.stdout);
        let errors = String::from_utf8_lossy(&output.stderr);
        ensure!(output.status.success(), "plumb repair {words:?}: {}: {said}{errors}", output.status);
        serde_json::from_slice(&output.stdout).with_context(|| format!("no JSON: {said}{errors}"))
    }

    /// From the first node's pod.
    fn reaches(&self, pod: &str) -> Result<()> {
        lab::wait_for(&format!("an answer from {pod}"), || {
            self.town.run(true, &format!("ping -n -q -c 1 -W 1 {pod}")).map(|_| ())
        })
    }

    fn see_that_it_is_found(&self, broken: &Broken, when: &str) -> Result<()> {
        let expected = BTreeSet::from([(broken.code, broken.subject.clone())]);
        let verdict = self.town.audit()?;
        ensure!(
            verdict.roots == expected,
            "{when}: expected {expected:?}, found {:#}",
            verdict.report["findings"]
        );
        Ok(())
    }

    fn mend(&self, broken: &Broken) -> Result<String> {
        let outcome = self.repair(&["--apply"])?;
        let verdict = self.town.audit()?;
        ensure!(verdict.roots.is_empty(), "after the repair: {:#}", verdict.report["findings"]);
        self.reaches(&broken.pod)?;
        Ok(outcome["id"].as_str().context("an ID")?.to_owned())
    }

    /// Found, mended, taken back, found again, mended again.
    fn try_it(&self, broken: &Broken) -> Result<()> {
        self.town.run(false, &broken.line)?;
        self.see_that_it_is_found(broken, "at first")?;
        let id = self.mend(broken)?;
        self.repair(&["undo", &id])?;
        self.see_that_it_is_found(broken, "when the repair was taken back")?;
        self.mend(broken)?;
        Ok(())
    }

    fn try_all(&self, all: &[Broken]) {
        let failures: Vec<String> = all
            .iter()
            .filter_map(|broken| Some(format!("{}: {:#}", broken.name, self.try_it(broken).err()?)))
            .collect();
        assert!(failures.is_empty(), "{} of {}:\n{}", failures.len(), all.len(), failures.join("\n"));
    }

    /// A firewall of somebody else's: left to people, and what is advised helps.
    fn try_firewall(&self, way: &Way, name: &str, rule: &str, advised: &str, clear: &str) -> Result<()> {
        self.town.run(false, rule)?;
        let found = self.see_that_advice_helps(way, advised);
        self.town.run(false, clear)?;
        found.with_context(|| name.to_owned())?;
        self.reaches(&way.pod)
    }

    fn see_that_advice_helps(&self, way: &Way, advised: &str) -> Result<()> {
        let verdict = self.town.audit()?;
        let expected = BTreeSet::from([(FindingCode::TunnelDropped, format!("node {}", NODES[0]))]);
        ensure!(verdict.roots == expected, "expected {expected:?}, found {:#}", verdict.report["findings"]);
        let finding = &verdict.report["findings"][0];
        let command = finding["commands"][0].as_str().unwrap_or_default();
        ensure!(command.starts_with(advised), "{finding:#}");
        ensure!(!finding["evidence"].to_string().contains("inet plumb"), "{finding:#}");
        ensure!(
            self.town.run(true, &format!("ping -n -q -c 1 -W 1 {}", way.pod)).is_err(),
            "it is not dropped"
        );
        let plan = self.repair(&[])?;
        ensure!(plan["steps"] == serde_json::json!([]), "{plan:#}");
        self.town.run(false, command)?;
        self.reaches(&way.pod)?;
        let verdict = self.town.audit()?;
        ensure!(verdict.roots.is_empty(), "after what was advised: {:#}", verdict.report["findings"]);
        Ok(())
    }
}

impl Way {
    fn broken(&self, name: &'static str, line: String, code: FindingCode, subject: String) -> Broken {
        Broken { name, line, code, subject: format!("{subject} on {}", NODES[0]), pod: self.pod.clone() }
    }

    fn route_gone(&self) -> Broken {
        let (ip, block) = (self.ip, self.block);
        self.broken(
            "route deleted",
            format!("{ip} route del {block}"),
            FindingCode::BlockRouteMissing,
            format!("route {block}"),
        )
    }

    /// What a repair that knows no tunnels would make.
    fn past_the_tunnel(&self) -> Broken {
        let Way { ip, block, node, .. } = self;
        let line = format!("{ip} route del {block}; {ip} route add {block} via {node} dev eth0 onlink");
        self.broken("past the tunnel", line, FindingCode::BlockRouteWrong, format!("route {block}"))
    }

    fn single(&self, name: &'static str, way: &str) -> Broken {
        let (ip, pod) = (self.ip, &self.pod);
        let len = if self.is_v4 { 32 } else { 128 };
        let (kind, device) = way.split_once(' ').unwrap_or((way, ""));
        let line = match kind {
            "blackhole" => format!("{ip} route add blackhole {pod}/{len}"),
            _ => format!("{ip} route add {pod}/{len} {kind} {device}"),
        };
        self.broken(name, line, FindingCode::RouteDiverted, format!("route {pod}/{len}"))
    }

    fn ends(&self) -> Vec<Broken> {
        let Way { ip, device, tunnel, mac, node, .. } = self;
        let at = |address: &str| format!("neighbour {address} at {device}");
        let code = FindingCode::TunnelEndUnknown;
        let wrong =
            format!("{ip} neigh replace {tunnel} lladdr 02:00:00:00:00:09 dev {device} nud permanent");
        vec![
            self.broken(
                "FDB entry deleted",
                format!("bridge fdb del {mac} dev {device} dst {node}"),
                code,
                at(node),
            ),
            self.broken(
                "neighbour deleted",
                format!("{ip} neigh del {tunnel} dev {device}"),
                code,
                at(tunnel),
            ),
            self.broken("neighbour wrong", wrong, code, at(tunnel)),
        ]
    }

    fn device(&self, name: &'static str, line: String) -> Broken {
        self.broken(name, line, FindingCode::TunnelDeviceWrong, format!("device {}", self.device))
    }
}

fn v4_faults(bench: &Bench, way: &Way) -> Result<Vec<Broken>> {
    let own = bench.town.run(false, "ip -4 -o address show dev vxlan.calico")?;
    let own = own.split_whitespace().nth(3).context("an address")?.to_owned();
    let shown = bench.town.run(false, "ip -4 -o address show dev eth0")?;
    let local =
        shown.split_whitespace().nth(3).and_then(|net| net.split('/').next()).context("an address")?;
    let another = format!(
        "mac=$(cat /sys/class/net/vxlan.calico/address || true); ip link del vxlan.calico; \
         ip link add vxlan.calico type vxlan id 99 dstport 4789 local {local} dev eth0 nolearning; \
         ip address add {own} dev vxlan.calico; ip link set vxlan.calico up"
    );
    let mut faults = vec![
        way.route_gone(),
        way.past_the_tunnel(),
        way.single("black hole for a pod", "blackhole"),
        way.single("another device for a pod", "dev eth0"),
        way.device("tunnel address removed", "ip address flush dev vxlan.calico".to_owned()),
        way.device("tunnel device deleted", "ip link del vxlan.calico".to_owned()),
        way.device("tunnel device down", "ip link set vxlan.calico down".to_owned()),
        way.device("another VNI", another),
    ];
    faults.extend(way.ends());
    Ok(faults)
}

fn try_firewalls(bench: &Bench, way: &Way) {
    let chain = |hook: &str| {
        format!(
            "nft 'table inet hard {{ chain c {{ type filter hook {hook} priority -5; udp dport 4789 drop; }}; }}'"
        )
    };
    let clear = "nft delete table inet hard";
    for hook in ["input", "output"] {
        bench.try_firewall(way, hook, &chain(hook), "nft delete rule inet hard c handle ", clear).unwrap();
    }
    if bench.town.run(false, "iptables --version").is_err() {
        return eprintln!("there is no iptables: its rules were not tried");
    }
    for chain in ["INPUT", "OUTPUT"] {
        let rule = format!("iptables -A {chain} -p udp --dport 4789 -j DROP");
        let advised = format!("iptables -I {chain} -p udp --dport 4789 -j ACCEPT");
        let clear = format!("iptables -D {chain} -p udp --dport 4789 -j DROP; iptables -F {chain}");
        bench.try_firewall(way, chain, &rule, &advised, &clear).unwrap();
    }
}

#[test]
fn a_tunnel_that_somebody_broke_is_found_and_mended() {
    let test = "a_tunnel_that_somebody_broke_is_found_and_mended";
    if let Some(reason) = missing(StoreKind::Sqlite) {
        return testkit::skip(test, &reason);
    }
    let bench = Bench::up(Mode::Vxlan, true).unwrap();
    let (v4, v6) = (bench.way(1, true).unwrap(), bench.way(1, false).unwrap());
    let mut faults = v4_faults(&bench, &v4).unwrap();
    faults.extend([v6.route_gone(), v6.past_the_tunnel(), v6.single("black hole for a pod", "blackhole")]);
    faults.extend(v6.ends());
    bench.try_all(&faults);
    try_firewalls(&bench, &v4);
}

/// The second node is beyond a router that knows no pods; the third is near and reached without a tunnel.
#[test]
fn across_subnets_each_route_is_mended_by_its_own_rule() {
    let test = "across_subnets_each_route_is_mended_by_its_own_rule";
    if let Some(reason) = missing(StoreKind::Sqlite) {
        return testkit::skip(test, &reason);
    }
    let bench = Bench::up(Mode::Crosssubnet, false).unwrap();
    let (far, near) = (bench.way(1, true).unwrap(), bench.way(2, true).unwrap());
    let mut faults = v4_faults(&bench, &far).unwrap();
    let Way { block, tunnel, .. } = &near;
    let line = format!("ip route del {block}; ip route add {block} via {tunnel} dev vxlan.calico onlink");
    faults.extend([
        near.route_gone(),
        near.broken("into the tunnel", line, FindingCode::BlockRouteWrong, format!("route {block}")),
        near.single("black hole for a pod that is near", "blackhole"),
    ]);
    bench.try_all(&faults);
    try_firewalls(&bench, &far);
}
