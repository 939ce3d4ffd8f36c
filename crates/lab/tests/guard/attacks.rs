//! Everything that a pod tries, in a cluster.

use std::collections::BTreeMap;
use std::net::IpAddr;

use anyhow::{Result, ensure};
use lab::kubelet::PodReport;

use crate::packet::{Datagram, VXLAN_PORT, ipip_frame};
use crate::raw;
use crate::scene::{Scene, add};

/// Nobody's.
const OUTSIDE: [&str; 2] = ["198.51.100.7", "2001:db8::7"];
/// A Service's, which a tenant may lead wherever they like.
const SERVICE: [&str; 2] = ["10.96.0.77", "fd96::77"];
const SERVICE_PORT: u16 = 53;

/// Where a packet is looked for: on a node, or in the pod of a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Place {
    Node(usize),
    Pod(usize),
}

pub(crate) struct Attack {
    what: String,
    /// The source port by which it is recognised.
    id: u16,
    place: Place,
    frames: Vec<Vec<u8>>,
    /// It arrives where nobody keeps it from it. The kernel itself drops the others everywhere.
    would_arrive: bool,
}

/// A lab in which the first node has a hostile pod, and a second one for it to pose as.
pub(crate) struct Stage<'a> {
    scene: &'a Scene,
    victim: PodReport,
    attacks: Vec<Attack>,
    /// The same places, reached as a pod may.
    honest: Vec<Attack>,
    next: u16,
}

impl<'a> Stage<'a> {
    pub(crate) fn new(scene: &'a Scene) -> Stage<'a> {
        let victim = add(&scene.lab, scene.node(0), "victim");
        let (attacks, honest) = (Vec::new(), Vec::new());
        let mut stage = Stage { scene, victim, attacks, honest, next: 41_000 };
        for version in [0, 1] {
            stage.plan_honest(version);
            stage.plan_spoofing(version);
            stage.plan_tunnels(version);
        }
        stage.plan_services();
        stage
    }

    fn attack(&mut self, what: &str, place: Place, frame: impl FnOnce(u16) -> Vec<Vec<u8>>) {
        self.next += 1;
        let id = self.next;
        let what = format!("{what} ({id})");
        self.attacks.push(Attack { what, id, place, frames: frame(id), would_arrive: true });
    }

    /// One that the kernel drops by itself.
    fn hopeless(&mut self, what: &str, place: Place, frame: impl FnOnce(u16) -> Vec<Vec<u8>>) {
        self.attack(what, place, frame);
        self.attacks.last_mut().unwrap().would_arrive = false;
    }

    fn pod(&self, index: usize, version: usize) -> IpAddr {
        self.scene.pods[index].addresses[version].parse().unwrap()
    }

    fn node(&self, index: usize, version: usize) -> IpAddr {
        let node = &self.scene.lab.description().nodes[index].name;
        let path = ["{.spec.bgp.ipv4Address}", "{.spec.bgp.ipv6Address}"][version];
        let told = self.scene.lab.plumb(&["get", "node", node, "-o", &format!("jsonpath={path}")]).unwrap();
        told.trim().split('/').next().unwrap().parse().unwrap()
    }

    fn plan_honest(&mut self, version: usize) {
        let own = self.pod(0, version);
        let places = [
            (Place::Node(0), self.node(0, version)),
            (Place::Node(1), self.node(1, version)),
            (Place::Pod(1), self.pod(1, version)),
        ];
        for (place, to) in places {
            self.next += 1;
            let frames = vec![Datagram::new(own, to, self.next, 7000).frame()];
            let what = format!("an honest packet to {to}");
            self.honest.push(Attack { what, id: self.next, place, frames, would_arrive: true });
        }
    }

    fn plan_spoofing(&mut self, version: usize) {
        let own = self.pod(0, version);
        let loopback: IpAddr = ["127.0.0.1", "::1"][version].parse().unwrap();
        let node = self.node(0, version);
        let direct =
            |from: IpAddr, to: IpAddr| move |id: u16| vec![Datagram::new(from, to, id, 7000).frame()];
        match version {
            0 => self.attack("loopback of its node", Place::Node(0), direct(own, loopback)),
            _ => self.hopeless("loopback of its node", Place::Node(0), direct(own, loopback)),
        }
        self.hopeless("from loopback", Place::Node(0), direct(loopback, node));
        self.hopeless("as its own node", Place::Pod(1), direct(node, self.pod(1, version)));
        let others = [
            ("another pod of its node", self.victim.addresses[version].parse().unwrap()),
            ("a pod of another node", self.pod(1, version)),
            ("another node", self.node(1, version)),
            ("somebody outside", OUTSIDE[version].parse().unwrap()),
        ];
        for (who, from) in others {
            self.attack(&format!("as {who}, to its node"), Place::Node(0), direct(from, node));
            // Nobody takes a packet from itself.
            if ![self.pod(1, version), self.node(1, version)].contains(&from) {
                let to = self.pod(1, version);
                self.attack(&format!("as {who}, to a pod elsewhere"), Place::Pod(1), direct(from, to));
            }
        }
    }

    fn plan_tunnels(&mut self, version: usize) {
        let (own, victim) = (self.pod(0, version), self.victim.addresses[version].parse().unwrap());
        for (index, whose) in [(0, "its own node's"), (1, "another node's")] {
            let to = self.node(index, version);
            let outer = |from: IpAddr| {
                move |id: u16| {
                    let inner = Datagram::new(victim, to, id, 7001);
                    vec![Datagram::new(from, to, id, VXLAN_PORT).carrying(&inner, [2; 6]).frame()]
                }
            };
            self.attack(&format!("into {whose} tunnel port"), Place::Node(index), outer(own));
            if index == 0 {
                let other = self.node(1, version);
                self.attack("into its own node's tunnel port as another node", Place::Node(0), outer(other));
            }
        }
        if let (IpAddr::V4(from), IpAddr::V4(to)) = (own, self.node(1, 0)) {
            let frame = move |id| vec![ipip_frame(from, to, &Datagram::new(victim, to.into(), id, 7001))];
            // Delivered as IPIP, not as UDP: seen only where there is a tunnel to unpack it.
            self.hopeless("IPIP to another node", Place::Node(1), frame);
        }
        if own.is_ipv6() {
            let to = self.node(0, version);
            let frame = move |id| Datagram::new(own, to, id, VXLAN_PORT).fragments();
            self.attack("into its own node's tunnel port, in fragments", Place::Node(0), frame);
        }
    }

    /// A Service that leads to tunnel ports.
    fn plan_services(&mut self) {
        let mut rules = String::new();
        for version in [0, 1] {
            let (own, service): (_, IpAddr) = (self.pod(0, version), SERVICE[version].parse().unwrap());
            for index in [0, 1] {
                let port = SERVICE_PORT + u16::try_from(index).unwrap();
                let (family, to) = (["ip", "ip6"][version], self.node(index, version));
                let target = if version == 0 { to.to_string() } else { format!("[{to}]") };
                rules.push_str(&format!(
                    "{family} daddr {service} udp dport {port} dnat {family} to {target}:{VXLAN_PORT}; "
                ));
                let frame = move |id| vec![Datagram::new(own, service, id, port).frame()];
                self.attack("into a tunnel port by a Service", Place::Node(index), frame);
            }
        }
        let table = format!(
            "table inet services {{ chain lead {{ type nat hook prerouting priority dstnat; {rules} }}; }}"
        );
        self.scene.lab.run_on(self.scene.node(0), &["nft", &table]).unwrap();
    }

    fn run_at(&self, place: Place, line: &str) -> String {
        match place {
            Place::Node(index) => {
                self.scene.lab.run_on(self.scene.node(index), &["sh", "-ec", line]).unwrap()
            }
            Place::Pod(index) => {
                let output = self.scene.in_pod(index).args(["sh", "-ec", line]).output().unwrap();
                assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
                String::from_utf8_lossy(&output.stdout).into_owned()
            }
        }
    }

    fn places(&self) -> BTreeMap<Place, Vec<u16>> {
        let mut places: BTreeMap<Place, Vec<u16>> = BTreeMap::new();
        for attack in self.attacks.iter().chain(&self.honest) {
            places.entry(attack.place).or_default().push(attack.id);
        }
        places
    }

    fn count_from_zero(&self) {
        for (place, ids) in self.places() {
            self.run_at(place, &raw::counting(ids.into_iter()));
        }
    }

    fn send<'f>(&self, attacks: impl Iterator<Item = &'f Attack>) {
        let frames: Vec<Vec<u8>> = attacks.flat_map(|attack| attack.frames.clone()).collect();
        raw::send(self.scene.in_pod(0), "eth0", &frames);
    }

    /// What has arrived of these, and what has not.
    fn arrived<'f>(&self, attacks: &'f [Attack]) -> (Vec<&'f str>, Vec<&'f str>) {
        let places = self.places();
        let seen: BTreeMap<u16, u64> =
            places.keys().flat_map(|place| raw::counts(&self.run_at(*place, raw::COUNTS))).collect();
        let has_arrived = |attack: &&Attack| seen.get(&attack.id).is_some_and(|count| *count > 0);
        let (yes, no): (Vec<&Attack>, Vec<&Attack>) = attacks.iter().partition(has_arrived);
        let words = |attacks: Vec<&'f Attack>| attacks.iter().map(|attack| attack.what.as_str()).collect();
        (words(yes), words(no))
    }

    /// Attacks first, then honest packets the same way: once these have arrived, the others would have, too.
    pub(crate) fn nothing_arrives(&self) -> Result<()> {
        self.count_from_zero();
        self.send(self.attacks.iter());
        lab::wait_for("honest packets", || {
            self.send(self.honest.iter());
            let (_, missing) = self.arrived(&self.honest);
            ensure!(missing.is_empty(), "these do not arrive: {missing:?}{}", self.scene.evidence());
            Ok(())
        })?;
        let (arrived, _) = self.arrived(&self.attacks);
        ensure!(arrived.is_empty(), "these arrive: {arrived:?}");
        Ok(())
    }

    /// Without our rules; else none of this shows anything.
    pub(crate) fn assert_everything_arrives(&self) {
        self.count_from_zero();
        lab::wait_for("attacks to succeed without rules", || {
            self.send(self.attacks.iter());
            let (_, missing) = self.arrived(&self.attacks);
            let expected: Vec<&str> = self
                .attacks
                .iter()
                .filter(|attack| attack.would_arrive)
                .map(|attack| attack.what.as_str())
                .collect();
            let missing: Vec<&&str> = missing.iter().filter(|what| expected.contains(what)).collect();
            ensure!(missing.is_empty(), "these do not arrive: {missing:?}");
            Ok(())
        })
        .unwrap();
    }
}
