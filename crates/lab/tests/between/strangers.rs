//! Somebody on the nodes' network who is no node.

use std::net::IpAddr;
use std::process::Command;

use lab::cluster::{Mode, Topology};

use crate::packet::{Datagram, VXLAN_PORT};
use crate::raw;
use crate::scene::{Scene, plan};

/// A command of the fabric, which is on the nodes' network and no node.
fn outside(scene: &Scene, line: &str) -> bool {
    let namespace = format!("plumb-lab.{}.fabric", scene.lab.name());
    let mut command = Command::new("ip");
    command.args(["netns", "exec", &namespace, "sh", "-ec", line]);
    command.output().unwrap().status.success()
}

fn jsonpath(scene: &Scene, path: &str) -> String {
    let path = format!("jsonpath={path}");
    scene.lab.plumb(&["get", "node", scene.node(0), "-o", &path]).unwrap().trim().to_owned()
}

#[test]
fn only_nodes_get_packets_into_a_tunnel() {
    let test = "only_nodes_get_packets_into_a_tunnel";
    if let Some(reason) = raw::missing() {
        return testkit::skip(test, reason);
    }
    let Some(scene) = Scene::new(test, || plan(2, Mode::Vxlan, Topology::Shared, false)) else { return };
    scene.assert_all_talk();
    let tunnel = jsonpath(&scene, "{.spec.ipv4VXLANTunnelAddr}");
    let link = scene.lab.run_on(scene.node(0), &["ip", "-br", "link", "show", "vxlan.calico"]).unwrap();
    let mac = link.split_whitespace().nth(2).unwrap().to_owned();
    // What a node would send; the answer comes without a tunnel.
    let built = outside(
        &scene,
        &format!(
            "ip link add stranger type vxlan id 4096 dstport 4789 local 172.30.0.254 nolearning; \
             ip link set stranger up; \
             bridge fdb add {mac} dev stranger dst 172.30.0.1; \
             ip neigh add {tunnel} lladdr {mac} dev stranger nud permanent; \
             ip route add {tunnel}/32 dev stranger src 172.30.0.254; \
             for each in all fabric0 stranger; do echo 0 > /proc/sys/net/ipv4/conf/$each/rp_filter; done"
        ),
    );
    assert!(built, "the stranger has no tunnel");
    let gets_in = || outside(&scene, &format!("ping -n -c 3 -i 0.2 -W 1 {tunnel}"));
    assert!(!gets_in(), "{}", scene.lab.run_on(scene.node(0), &["nft", "list", "ruleset"]).unwrap());
    // One that the operator vouches for; and without the rules everybody, or this test shows nothing.
    let allow = r#"{"spec":{"externalNodesList":["172.30.0.254"]}}"#;
    scene.lab.plumb(&["patch", "felixconfiguration", "default", "-p", allow]).unwrap();
    lab::wait_for("the one who is vouched for", || {
        anyhow::ensure!(gets_in(), "nobody answers");
        Ok(())
    })
    .unwrap();
    let forbid = r#"{"spec":{"externalNodesList":null}}"#;
    scene.lab.plumb(&["patch", "felixconfiguration", "default", "-p", forbid]).unwrap();
    lab::wait_for("nobody else to get in", || {
        anyhow::ensure!(!gets_in(), "somebody answers");
        Ok(())
    })
    .unwrap();
    let forged = Forged::new(&scene, tunnel.parse().unwrap(), &mac);
    assert!(!forged.gets_in(), "{}", scene.lab.run_on(scene.node(0), &["nft", "list", "ruleset"]).unwrap());
    // The agent would load them again.
    scene.lab.kill(scene.node(0), "agent").unwrap();
    scene.lab.run_on(scene.node(0), &["nft", "flush", "chain", "inet", "plumb", "pods"]).unwrap();
    assert!(!forged.gets_in(), "one of two rules is enough");
    scene.lab.run_on(scene.node(0), &["nft", "delete", "table", "inet", "plumb"]).unwrap();
    assert!(gets_in() && !forged.gets_in(), "network policy lets no tunnel's packets out of pods, either");
    scene.lab.run_on(scene.node(0), &["nft", "delete", "table", "inet", "plumb-policy"]).unwrap();
    assert!(forged.gets_in());
}

/// What a pod sends to its own node as if it came out of another node's tunnel, and an honest packet the same way.
struct Forged<'a> {
    scene: &'a Scene,
    forged: Datagram,
    honest: Datagram,
}

impl Forged<'_> {
    const INSIDE: u16 = 40_001;
    const HONEST: u16 = 40_002;

    fn new<'a>(scene: &'a Scene, tunnel: IpAddr, mac: &str) -> Forged<'a> {
        let bytes: Vec<u8> = mac.split(':').map(|byte| u8::from_str_radix(byte, 16).unwrap()).collect();
        let [own, other] = [0, 1].map(|index: usize| scene.pods[index].addresses[0].parse().unwrap());
        let (node, other_node) = ("172.30.0.1".parse().unwrap(), "172.30.0.2".parse().unwrap());
        let inner = Datagram::new(other, tunnel, Forged::INSIDE, 7000);
        let forged =
            Datagram::new(other_node, node, 40_000, VXLAN_PORT).carrying(&inner, bytes.try_into().unwrap());
        let off = "for each in /proc/sys/net/ipv4/conf/*/rp_filter; do echo 0 > $each; done";
        scene.lab.run_on(scene.node(0), &["sh", "-ec", off]).unwrap();
        Forged { scene, forged, honest: Datagram::new(own, node, Forged::HONEST, 7000) }
    }

    /// Whether what was inside comes out.
    fn gets_in(&self) -> bool {
        let on_node = |line: &str| self.scene.lab.run_on(self.scene.node(0), &["sh", "-ec", line]).unwrap();
        on_node(&raw::counting([Forged::INSIDE, Forged::HONEST].into_iter()));
        let frames = [self.forged.frame(), self.honest.frame()];
        let counts = lab::wait_for("the honest packet", || {
            raw::send(self.scene.in_pod(0), "eth0", &frames);
            let counts = raw::counts(&on_node(raw::COUNTS));
            anyhow::ensure!(counts[&Forged::HONEST] > 0, "{counts:?}");
            Ok(counts)
        });
        counts.unwrap()[&Forged::INSIDE] > 0
    }
}

#[test]
fn pods_get_no_packets_into_a_tunnel() {
    let test = "pods_get_no_packets_into_a_tunnel";
    let Some(scene) = Scene::new(test, || plan(2, Mode::Vxlan, Topology::Shared, false)) else { return };
    scene.assert_all_talk();
    // It would be masqueraded, and arrive as a node's.
    let arrives = |port: u16| {
        let counter = "nft add table ip seen; nft add chain ip seen in '{ type filter hook input priority raw; }'; \
                       nft flush chain ip seen in; ";
        let rule = format!("nft add rule ip seen in udp dport {port} counter");
        scene.lab.run_on(scene.node(1), &["sh", "-ec", &format!("{counter}{rule}")]).unwrap();
        let send = format!("for i in 1 2 3; do echo x > /dev/udp/172.30.0.2/{port}; done");
        assert!(scene.in_pod(0).args(["bash", "-c", &send]).output().unwrap().status.success());
        let seen = scene.lab.run_on(scene.node(1), &["nft", "list", "chain", "ip", "seen", "in"]).unwrap();
        seen.contains("counter packets 3 ")
    };
    assert!(arrives(4788), "other packets get there");
    assert!(!arrives(4789));
}
