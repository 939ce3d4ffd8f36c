//! Somebody on the nodes' network who is no node.

use std::process::Command;

use lab::cluster::{Mode, Topology};

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
    scene.lab.run_on(scene.node(0), &["nft", "delete", "table", "inet", "plumb"]).unwrap();
    assert!(gets_in());
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
