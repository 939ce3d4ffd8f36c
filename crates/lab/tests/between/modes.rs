//! Every mode on the networks it is for: everybody reaches everybody.

use lab::cluster::{Mode, Topology};

use crate::bird;
use crate::scene::{Scene, add, plan};

/// How many nodes: the issue's largest in a full run.
fn nodes() -> usize {
    testkit::count(3, 5)
}

#[test]
fn direct_routes_on_a_shared_network() {
    let test = "direct_routes_on_a_shared_network";
    let Some(scene) = Scene::new(test, || plan(nodes(), Mode::Direct, Topology::Shared, false)) else {
        return;
    };
    scene.assert_all_talk();
    let routes = scene.routes(0);
    assert!(routes.contains("via 172.30.0.2 dev eth0") && routes.contains("blackhole"), "{routes}");
}

#[test]
fn direct_routes_with_both_ip_versions() {
    let test = "direct_routes_with_both_ip_versions";
    let Some(scene) = Scene::new(test, || plan(nodes(), Mode::Direct, Topology::Shared, true)) else {
        return;
    };
    scene.assert_all_talk();
}

#[test]
fn vxlan_across_a_router_that_knows_no_pods() {
    let test = "vxlan_across_a_router_that_knows_no_pods";
    let Some(scene) = Scene::new(test, || plan(nodes(), Mode::Vxlan, Topology::Subnets, false)) else {
        return;
    };
    scene.assert_all_talk();
    let routes = scene.routes(0);
    assert!(!routes.contains("dev eth0") && routes.contains("dev vxlan.calico"), "{routes}");
}

#[test]
fn vxlan_with_both_ip_versions() {
    let test = "vxlan_with_both_ip_versions";
    let Some(scene) = Scene::new(test, || plan(nodes(), Mode::Vxlan, Topology::Shared, true)) else { return };
    scene.assert_all_talk();
    // The node itself, too, has an address on the tunnel that pods of other nodes can answer to.
    let address = &scene.pods[1].addresses[0];
    scene.lab.run_on(scene.node(0), &["ping", "-n", "-c", "1", "-W", "5", address]).unwrap();
    let node = scene.lab.plumb(&["get", "node", scene.node(0), "-o", "yaml"]).unwrap();
    assert!(node.contains("ipv4VXLANTunnelAddr") && node.contains("ipv6VXLANTunnelAddr"), "{node}");
}

#[test]
fn across_subnets_only_where_it_must_be() {
    for ipv6 in [false, true] {
        let test = "across_subnets_only_where_it_must_be";
        let Some(scene) = Scene::new(test, || plan(nodes(), Mode::Crosssubnet, Topology::Subnets, ipv6))
        else {
            return;
        };
        scene.assert_all_talk();
        // The third node is on the first one's network, the second is not.
        let routes = scene.routes(0);
        assert!(routes.contains("via 172.30.0.3 dev eth0"), "{routes}");
        let far = scene.pods[1].addresses[0].clone();
        let way = scene.lab.run_on(scene.node(0), &["ip", "route", "get", &far]).unwrap();
        assert!(way.contains("dev vxlan.calico"), "{way}");
    }
}

#[test]
fn bgp_with_both_ip_versions() {
    let test = "bgp_with_both_ip_versions";
    if !testkit::process::on_path("bird") {
        return testkit::skip(test, "there is no bird here");
    }
    let Some(scene) = Scene::new(test, || plan(nodes(), Mode::Bgp, Topology::Shared, true)) else { return };
    bird::wait_for_routes(&scene, &["-4", "-6"]);
    scene.assert_all_talk();
    assert!(!scene.routes(0).contains(" via "), "exactly one writes them: {}", scene.routes(0));
}

#[test]
fn packets_that_leave_the_cluster_come_from_the_node() {
    let test = "packets_that_leave_the_cluster_come_from_the_node";
    let Some(scene) = Scene::new(test, || plan(1, Mode::Direct, Topology::Shared, false)) else { return };
    // The fabric has no way back to pods: it can answer only if the packet has the node's address.
    let mut ping = scene.in_pod(0);
    let output =
        ping.args(["ping", "-n", "-c", "3", "-i", "0.2", "-w", "10", "172.30.0.254"]).output().unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(said.contains("3 received"), "{said}");
    // The agent would load them again.
    scene.lab.kill(scene.node(0), "agent").unwrap();
    scene.lab.run_on(scene.node(0), &["nft", "delete", "table", "inet", "plumb"]).unwrap();
    let output = scene.in_pod(0).args(["ping", "-n", "-c", "1", "-W", "1", "172.30.0.254"]).output().unwrap();
    assert!(!output.status.success(), "without the rules there is no answer, or this test shows nothing");
}

#[test]
fn ipip_works_or_is_said_to_be_missing() {
    let test = "ipip_works_or_is_said_to_be_missing";
    let Some(scene) = Scene::new(test, || plan(2, Mode::Direct, Topology::Shared, false)) else { return };
    scene.assert_all_talk();
    let patch = "{\"spec\":{\"ipipMode\":\"Always\"}}";
    scene.lab.plumb(&["patch", "ippool", "default-ipv4-ippool", "-p", patch]).unwrap();
    let has_ipip = || {
        let links = scene.lab.run_on(scene.node(0), &["ip", "-br", "link"])?;
        let readiness = scene.lab.run_on(scene.node(0), &["curl", "-s", "127.0.0.1:9099/readiness"])?;
        let is_said = readiness.contains("IPIP");
        anyhow::ensure!(links.contains("tunl0") || is_said, "neither a tunnel nor a word: {readiness}");
        Ok(!is_said)
    };
    let has_ipip = lab::wait_for("IPIP, or a word about it", has_ipip).unwrap();
    // Either way: nodes on one network are reached.
    scene.assert_all_talk();
    if !has_ipip {
        testkit::skip(
            test,
            "this kernel has no IPIP; that the agent says so, and reaches who is near, was seen",
        );
    }
}

#[test]
fn an_address_out_of_another_nodes_block_is_reached_where_it_is() {
    let test = "an_address_out_of_another_nodes_block_is_reached_where_it_is";
    let Some(mut scene) = Scene::new(test, || plan(3, Mode::Direct, Topology::Shared, false)) else { return };
    scene.apply(
        "apiVersion: projectcalico.org/v3\nkind: IPPool\nmetadata: {name: tiny}\n\
         spec: {cidr: 10.77.0.0/29, blockSize: 30}\n",
    );
    let disable = "{\"spec\":{\"disabled\":true}}";
    scene.lab.plumb(&["patch", "ippool", "default-ipv4-ippool", "-p", disable]).unwrap();
    // Two blocks of four addresses: the second node has one, the first one the other, and then needs a fifth.
    scene.pods[1] = add(&scene.lab, "node2", "tiny-0");
    for number in 1..=5 {
        scene.pods[0] = add(&scene.lab, "node1", &format!("tiny-{number}"));
    }
    let borrowed = format!("{}/32", scene.pods[0].addresses[0]);
    lab::wait_for("a route to the borrowed address", || {
        let route = scene.lab.run_on("node2", &["ip", "route", "show", &borrowed])?;
        anyhow::ensure!(route.contains("via 172.30.0.1 dev eth0 proto 113"), "{route}{}", scene.evidence());
        Ok(())
    })
    .unwrap();
    scene.assert_all_talk();
}

#[test]
fn the_mtu_of_pods_is_noted_for_plugins_and_felixs_variables_are_heeded() {
    let test = "the_mtu_of_pods_is_noted_for_plugins_and_felixs_variables_are_heeded";
    let Some(scene) = Scene::new(test, || plan(1, Mode::Vxlan, Topology::Shared, true)) else { return };
    let node = scene.node(0);
    let noted = |expected: &str| {
        lab::wait_for("the MTU of pods", || {
            let noted = scene.lab.run_on(node, &["cat", "/var/lib/calico/mtu"])?;
            anyhow::ensure!(noted == expected, "{noted}");
            Ok(())
        })
        .unwrap();
    };
    // Of the card, less what IPv6 in VXLAN takes.
    noted("1430");
    scene.lab.kill(node, "agent").unwrap();
    let felix = [("FELIX_VXLANMTU", "1300"), ("FELIX_VXLANPORT", "8472")];
    scene.lab.launch(node, "agent", &felix).unwrap();
    noted("1300");
    lab::wait_for("the tunnel to follow", || {
        let device = scene.lab.run_on(node, &["ip", "-d", "link", "show", "vxlan.calico"])?;
        anyhow::ensure!(device.contains("dstport 8472") && device.contains("mtu 1300"), "{device}");
        Ok(())
    })
    .unwrap();
}
