//! Every way in which a cluster can be built is healthy to the doctor, and what is wrong with the ways between nodes, or with
//! IPv6, is found.

use std::collections::BTreeSet;
use std::net::IpAddr;

use ::plan::DeviceSetting;
use anyhow::{Context as _, Result, ensure};
use lab::cluster::{Mode, OwnCluster, Plan, StoreKind};
use lab::kubelet::{KubeletRequest, NewPod, PodReport};
use model::{Cidr, FindingCode};

use crate::scene::{Verdict, address_of, doctor, missing, plan};

pub(crate) const NODES: [&str; 3] = ["node1", "node2", "node3"];

/// A fault by hand: where, what, how it is undone, and what must be found.
struct ByHand {
    is_inside: bool,
    line: String,
    undo: String,
    code: FindingCode,
    subject: String,
}

pub(crate) struct Town {
    pub(crate) lab: OwnCluster,
    /// One on each node.
    pub(crate) pods: Vec<PodReport>,
}

impl Town {
    pub(crate) fn up(mode: Mode, ipv6: bool) -> Result<Town> {
        let plan =
            Plan { mode, ipv6, topology: mode.usual_topology(), ..plan(StoreKind::Sqlite, NODES.len())? };
        let lab = OwnCluster::up(plan, &|_| {})?;
        let mut pods = Vec::new();
        for node in NODES {
            let new = NewPod::new(&format!("town/{node}").parse()?);
            pods.extend(lab.kubelet(node, &KubeletRequest::Add { pods: vec![new], waits: true })?);
        }
        Ok(Town { lab, pods })
    }

    pub(crate) fn audit(&self) -> Result<Verdict> {
        let mut doctor = doctor(&self.lab)?;
        doctor.args(["--grace", "0", "--settle", "0.05"]);
        Verdict::of(doctor)
    }

    /// The routes follow the records within moments.
    pub(crate) fn wait_until_clean(&self) -> Result<()> {
        lab::wait_for("a healthy cluster", || {
            let verdict = self.audit()?;
            ensure!(verdict.roots.is_empty(), "{:#}", verdict.report["findings"]);
            Ok(())
        })
    }

    /// On the first node, or in its pod.
    pub(crate) fn run(&self, is_inside: bool, line: &str) -> Result<String> {
        let namespace = self.pods[0].netns.rsplit('/').next().unwrap_or_default();
        let inside: &[&str] = if is_inside { &["ip", "netns", "exec", namespace] } else { &[] };
        self.lab.run_on(NODES[0], &[inside, &["sh", "-ec", line]].concat())
    }

    fn try_fault(&self, fault: &ByHand) -> Result<()> {
        self.run(fault.is_inside, &fault.line)?;
        let verdict = self.audit();
        self.run(fault.is_inside, &fault.undo)?;
        let verdict = verdict?;
        let expected = BTreeSet::from([(fault.code, fault.subject.clone())]);
        ensure!(verdict.roots == expected, "{expected:?}, found {:#}", verdict.report["findings"]);
        Ok(())
    }

    pub(crate) fn address(&self, of: usize, is_v4: bool) -> Result<IpAddr> {
        let addresses = self.pods[of].addresses.iter().filter_map(|text| text.parse::<IpAddr>().ok());
        addresses.into_iter().find(|address| address.is_ipv4() == is_v4).context("an address")
    }

    /// The way to the second node's block goes.
    fn block_route(&self, is_v4: bool) -> Result<ByHand> {
        let address = self.address(1, is_v4)?;
        let block = Cidr::containing(address, if is_v4 { 26 } else { 122 }).context("a block")?;
        self.route_gone(block.to_string(), FindingCode::BlockRouteMissing, is_v4)
    }

    fn route_gone(&self, destination: String, code: FindingCode, is_v4: bool) -> Result<ByHand> {
        let ip = if is_v4 { "ip -4" } else { "ip -6" };
        let shown = self.run(false, &format!("{ip} route show exact {destination}"))?;
        let route = shown.trim().replace(" pref medium", "");
        let subject = format!("route {destination} on {}", NODES[0]);
        let (line, undo) = (format!("{ip} route del {route}"), format!("{ip} route replace {route}"));
        Ok(ByHand { is_inside: false, line, undo, code, subject })
    }

    fn setting(&self, path: String, code: FindingCode) -> ByHand {
        let subject = format!("{path} on {}", NODES[0]);
        let set = |value: u8| format!("echo {value} > /proc/sys/{path}");
        ByHand { is_inside: false, line: set(0), undo: set(1), code, subject }
    }

    /// What the faults of the other tests do for IPv4, for IPv6.
    fn ipv6_faults(&self) -> Result<Vec<ByHand>> {
        let (address, device) = (self.address(0, false)?, &self.pods[0].device);
        let shown = self.run(false, &format!("ip -6 neigh show {address} dev {device}"))?;
        let mac =
            shown.split_whitespace().skip_while(|word| *word != "lladdr").nth(1).context("a neighbour")?;
        let pod = format!("pod {}", self.pods[0].key());
        let inside = |line: String, undo: String, code: FindingCode| ByHand {
            is_inside: true,
            line,
            undo,
            code,
            subject: pod.clone(),
        };
        let default = self.run(true, "ip -6 route show default")?.trim().replace(" pref medium", "");
        let gateway = default.split_whitespace().nth(2).context("a gateway")?.to_owned();
        let known = self.run(true, &format!("ip -6 neigh show {gateway} dev eth0"))?;
        let host =
            known.split_whitespace().skip_while(|word| *word != "lladdr").nth(1).context("a gateway")?;
        Ok(vec![
            self.route_gone(format!("{address}/128"), FindingCode::RouteMissing, false)?,
            ByHand {
                is_inside: false,
                line: format!("ip -6 neigh del {address} dev {device}"),
                undo: format!("ip -6 neigh replace {address} lladdr {mac} dev {device} nud permanent"),
                code: FindingCode::NeighbourMissing,
                subject: format!("neighbour {address} at {device} on {}", NODES[0]),
            },
            self.setting(DeviceSetting::ForwardingV6.path(device), FindingCode::DeviceSettingWrong),
            self.setting(DeviceSetting::ProxyNdp.path(device), FindingCode::DeviceSettingWrong),
            self.setting("net/ipv6/conf/all/forwarding".to_owned(), FindingCode::ForwardingOff),
            inside(
                "ip -6 route del default".to_owned(),
                format!("ip -6 route replace {default}"),
                FindingCode::PodDefaultRouteMissing,
            ),
            inside(
                format!("ip -6 address del {address}/128 dev eth0"),
                format!("ip -6 address add {address}/128 dev eth0 nodad"),
                FindingCode::PodAddressMissing,
            ),
            inside(
                format!("ip -6 neigh del {gateway} dev eth0"),
                format!("ip -6 neigh replace {gateway} lladdr {host} dev eth0 nud permanent"),
                FindingCode::PodGatewayUnresolved,
            ),
        ])
    }
}

fn see_what_is_found(test: &str, mode: Mode, ipv6: bool) {
    if let Some(reason) = missing(StoreKind::Sqlite) {
        return testkit::skip(test, &reason);
    }
    let town = Town::up(mode, ipv6).unwrap();
    town.wait_until_clean().unwrap();
    for node in NODES {
        town.lab.stop(node, "agent").unwrap();
        town.lab.start(node, "agent", &["--observe"]).unwrap();
    }
    let mut faults = vec![town.block_route(true).unwrap()];
    if ipv6 {
        faults.push(town.block_route(false).unwrap());
        faults.extend(town.ipv6_faults().unwrap());
    }
    let failures: Vec<String> = faults
        .iter()
        .filter_map(|fault| Some(format!("{}: {:#}", fault.code, town.try_fault(fault).err()?)))
        .collect();
    assert!(failures.is_empty(), "{}", failures.join("\n"));
    assert!(town.audit().unwrap().roots.is_empty());
}

#[test]
fn a_cluster_with_ipv6_is_looked_at() {
    see_what_is_found("a_cluster_with_ipv6_is_looked_at", Mode::Direct, true);
}

#[test]
fn a_cluster_with_tunnels_is_looked_at() {
    see_what_is_found("a_cluster_with_tunnels_is_looked_at", Mode::Vxlan, true);
}

#[test]
fn a_cluster_of_two_networks_is_looked_at() {
    see_what_is_found("a_cluster_of_two_networks_is_looked_at", Mode::Crosssubnet, false);
}

/// A firewall between two nodes whose agents speak BGP: no session, so no routes. The session is the cause.
#[test]
fn a_session_that_is_blocked_explains_the_routes_that_are_gone() {
    let test = "a_session_that_is_blocked_explains_the_routes_that_are_gone";
    if let Some(reason) = missing(StoreKind::Sqlite) {
        return testkit::skip(test, &reason);
    }
    let town = Town::up(Mode::Bgp, false).unwrap();
    town.wait_until_clean().unwrap();
    let (first, second) = (address_of(NODES[0]), address_of(NODES[1]));
    let drop = |port: &str| format!("ip saddr {second} tcp {port} 179 drop");
    let rules = format!("type filter hook input priority 0; {}; {};", drop("dport"), drop("sport"));
    let restart = format!("birdc -s /run/plumb/bird.ctl restart Mesh_{}", second.replace('.', "_"));
    town.run(false, &format!("nft 'table ip fault {{ chain blocked {{ {rules} }}; }}'; {restart}")).unwrap();
    let named = |code: FindingCode, subject: String| (code, subject);
    let block = |of: usize| Cidr::containing(town.address(of, true).unwrap(), 26).unwrap();
    let session =
        BTreeSet::from([named(FindingCode::BgpSessionDown, format!("BGP session {} to {second}", NODES[0]))]);
    let symptoms = BTreeSet::from([
        named(FindingCode::BgpSessionDown, format!("BGP session {} to {first}", NODES[1])),
        named(FindingCode::BlockRouteMissing, format!("route {} on {}", block(1), NODES[0])),
        named(FindingCode::BlockRouteMissing, format!("route {} on {}", block(0), NODES[1])),
    ]);
    // Until both have noticed: the other end hears of it from nobody, and waits for what does not come.
    lab::wait_for("the sessions to be missed", || {
        let verdict = town.audit()?;
        ensure!(verdict.roots == session, "{:#}", verdict.report["findings"]);
        ensure!(verdict.symptoms.is_superset(&symptoms), "{:#}", verdict.report["findings"]);
        Ok(())
    })
    .unwrap();
    town.run(false, "nft delete table ip fault").unwrap();
    town.wait_until_clean().unwrap();
}
