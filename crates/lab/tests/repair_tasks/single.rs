//! Changes of one object each, on the node and inside a pod.

use plan::task::{KernelChange, NextHop, RepairTask};

use crate::{ADDRESS, Bench, route, through};

/// On the node, and the same inside the pod.
fn everywhere(bench: &Bench, change: impl Fn(&str) -> KernelChange) -> [RepairTask; 2] {
    [
        RepairTask::here(change(&bench.device())),
        RepairTask::inside(bench.pod.container_id.as_str(), change("eth0")),
    ]
}

#[test]
fn devices_and_their_addresses_are_changed_and_changed_back() {
    let Some(bench) = Bench::new("devices_and_their_addresses_are_changed_and_changed_back") else { return };
    for task in
        everywhere(&bench, |device| KernelChange::Mtu { device: device.to_owned(), from: 1450, to: 1400 })
    {
        bench.does_and_takes_back(&task);
    }
    let net = "10.9.0.1/24".parse().unwrap();
    let address =
        |device: &str| KernelChange::Address { device: device.to_owned(), net, from: false, to: true };
    for task in everywhere(&bench, address) {
        bench.does(&task);
        bench.does_and_takes_back(&task.undo());
    }
    for task in
        everywhere(&bench, |device| KernelChange::Up { device: device.to_owned(), from: true, to: false })
    {
        bench.does_and_takes_back(&task);
    }
    bench.node_ip(&format!("link set {} mtu 1300", bench.device()));
    let device = bench.device();
    bench.refuses(&RepairTask::here(KernelChange::Mtu { device, from: 1450, to: 1400 }), "has MTU 1300");
    let device = "cali00000000000".to_owned();
    bench
        .refuses(&RepairTask::here(KernelChange::Up { device, from: false, to: true }), "there is no device");
    let device = "../../x".to_owned();
    bench.refuses(&RepairTask::here(KernelChange::Up { device, from: false, to: true }), "device name");
}

#[test]
fn settings_of_the_network_are_changed_and_no_others() {
    let Some(bench) = Bench::new("settings_of_the_network_are_changed_and_no_others") else { return };
    let setting = |path: &str, from: &str, to: &str| KernelChange::Sysctl {
        path: path.to_owned(),
        from: from.to_owned(),
        to: to.to_owned(),
    };
    let change = |device: &str| setting(&format!("net/ipv4/conf/{device}/rp_filter"), "0", "2");
    for task in everywhere(&bench, change) {
        bench.does_and_takes_back(&task);
    }
    let here = |path: &str, from: &str, to: &str| RepairTask::here(setting(path, from, to));
    bench.refuses(&here("net/ipv4/ip_default_ttl", "12", "33"), "net/ipv4/ip_default_ttl is 64");
    bench.refuses(&here("net/ipv4/nothing", "0", "1"), "cannot read kernel setting");
    for path in ["kernel/hostname", "net/../kernel/hostname", "/etc/hostname"] {
        bench.refuses(&here(path, "", "x"), "no setting of the network");
    }
}

#[test]
fn neighbours_become_permanent_and_go() {
    let Some(bench) = Bench::new("neighbours_become_permanent_and_go") else { return };
    let mac = |text: &str| Some(text.parse().unwrap());
    let (one, other) = (mac("02:00:00:00:00:01"), mac("02:00:00:00:00:02"));
    let neighbour = |from, to| {
        move |device: &str| KernelChange::Neighbour {
            address: "10.244.7.7".parse().unwrap(),
            device: device.to_owned(),
            from,
            to,
        }
    };
    for task in everywhere(&bench, neighbour(None, one)) {
        bench.does_and_takes_back(&task);
        bench.does(&task);
    }
    for task in everywhere(&bench, neighbour(one, other)) {
        bench.does_and_takes_back(&task);
    }
    for task in everywhere(&bench, neighbour(other, None)) {
        bench.refuses(&task, "knows 10.244.7.7 at 02:00:00:00:00:01");
    }
    // What the kernel learned by itself is as good as nothing, if it is the same.
    let device = bench.device();
    bench.node_ip(&format!("neigh replace 10.244.7.7 lladdr 02:00:00:00:00:01 dev {device} nud stale"));
    let undo = bench.does(&RepairTask::here(neighbour(None, one)(&device)));
    assert_eq!(undo, RepairTask::here(neighbour(one, None)(&device)));
    assert!(bench.node_ip("neigh show 10.244.7.7").contains("PERMANENT"));
}

#[test]
fn routes_come_go_and_are_replaced() {
    let Some(bench) = Bench::new("routes_come_go_and_are_replaced") else { return };
    let device = bench.device();
    for (destination, mine) in [("10.244.9.9/32", "route"), ("fd00:9::9/128", "-6 route")] {
        bench.does_and_takes_back(&route(destination, None, Some(through(&device))));
        bench.does(&route(destination, None, Some(through(&device))));
        bench.does_and_takes_back(&route(destination, Some(through(&device)), Some(through("lo"))));
        let shown = bench.node_ip(&format!("{mine} show {destination}"));
        assert_eq!(shown.lines().count(), 1, "{shown}");
        bench.refuses(&route(destination, None, Some(through("eth9"))), &format!("dev {device}"));
        bench.refuses(&route(destination, Some(through("lo")), Some(through("eth9"))), "there is");
    }
    let inside = KernelChange::Route {
        destination: "10.1.0.0/16".parse().unwrap(),
        from: None,
        to: Some(NextHop { via: Some("169.254.1.1".parse().unwrap()), ..through("eth0") }),
    };
    let inside = RepairTask::inside(bench.pod.container_id.as_str(), inside);
    bench.does_and_takes_back(&inside);
    bench.does(&inside);
    assert!(bench.pod_ip("route").contains("10.1.0.0/16 via 169.254.1.1 dev eth0 proto 112"));
    let hole = NextHop { is_blackhole: true, ..NextHop::default() };
    let hole = route("10.244.0.0/26", None, Some(hole));
    bench.does_and_takes_back(&hole);
    bench.does(&hole);
    assert!(
        bench.node_ip("route").contains("blackhole 10.244.0.0/26 proto 113"),
        "{}",
        bench.node_ip("route")
    );
}

/// A stranger's in front of the pod's own, both of the same metric.
#[test]
fn of_several_routes_just_the_one_that_is_meant_is_removed() {
    let Some(bench) = Bench::new("of_several_routes_just_the_one_that_is_meant_is_removed") else { return };
    bench.node_ip(&format!("route prepend {ADDRESS} dev lo proto static scope link"));
    let before = bench.node_ip(&format!("route show {ADDRESS}"));
    let undo = bench.does(&route("10.244.0.5/32", Some(through("lo")), None));
    let left = bench.node_ip(&format!("route show {ADDRESS}"));
    assert!(left.contains(&bench.device()) && left.lines().count() == 1, "{left}");
    bench.does(&undo);
    assert_eq!(bench.node_ip(&format!("route show {ADDRESS}")), before, "in the same order");
    // Described by what both have, it could be either.
    bench.refuses(&route("10.244.0.5/32", Some(NextHop::default()), None), "and 10.244.0.5/32");
    // Changed since: the same device, another metric.
    bench.node_ip("route add 10.244.3.3 dev lo metric 7");
    let meant = NextHop { metric: Some(0), ..through("lo") };
    bench.refuses(&route("10.244.3.3/32", Some(meant), None), "metric 7");
}

#[test]
fn a_route_that_could_not_be_put_back_is_left_alone() {
    let Some(bench) = Bench::new("a_route_that_could_not_be_put_back_is_left_alone") else { return };
    let device = bench.device();
    bench.node_ip(&format!("route add 10.8.0.0/16 nexthop dev {device} nexthop dev lo"));
    bench.refuses(&route("10.8.0.0/16", Some(through(&device)), None), "and more than that");
    bench.node_ip("route add 10.7.0.0/16 dev lo mtu 1200");
    bench.refuses(&route("10.7.0.0/16", Some(through("lo")), None), "and more than that");
    bench.node_ip("route add unreachable 10.6.0.0/16");
    let hole = NextHop { is_blackhole: true, ..NextHop::default() };
    bench.refuses(&route("10.6.0.0/16", None, Some(hole)), "10.6.0.0/16");
}

#[test]
fn inside_a_sandbox_only_the_runtime_leads_the_way() {
    let Some(mut bench) = Bench::new("inside_a_sandbox_only_the_runtime_leads_the_way") else { return };
    let up = KernelChange::Up { device: "eth0".to_owned(), from: true, to: false };
    bench.refuses(&RepairTask::inside("nobody", up.clone()), "does not list sandbox nobody as ready");
    let task = RepairTask::inside(bench.pod.container_id.as_str(), up);
    bench.context.ready.as_mut().unwrap()[0].netns = None;
    bench.refuses(&task, "does not tell where");
    bench.context.ready = None;
    bench.refuses(&task, "cannot be asked");
}
