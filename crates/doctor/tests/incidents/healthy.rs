//! Clusters that look odd and are healthy: not one finding.

use std::net::IpAddr;

use doctor::diagnose;
use evidence::kernel::{Link, Route};
use evidence::node::UnfinishedDel;
use evidence::sample::small;
use evidence::{Evidence, Origin, Pod, PodName, Sighted};
use ipam::{Owner, Reservations, Stored, Tunnel};
use ipnet::IpNet;
use model::ipam::{Affinity, AffinityState, Block, Handle, IpamConfig};
use model::{AffinityOwner, Cidr, HandleId, Key, Kind, Resource};
use serde_json::{Value, json};

#[track_caller]
fn healthy(evidence: &Evidence) {
    let report = diagnose(evidence);
    let found: Vec<String> = report
        .findings
        .iter()
        .map(|finding| format!("{} [{}] {}", finding.code, finding.subject, finding.summary))
        .collect();
    assert!(found.is_empty(), "{found:#?}");
}

fn pods(evidence: &mut Evidence) -> &mut Vec<Sighted<Pod>> {
    evidence.pods.as_mut().unwrap()
}

fn record(kind: Kind, name: &str, spec: Value) -> Sighted<Resource> {
    let mut resource = Resource::new(kind, name);
    resource.body.insert("spec".to_owned(), spec);
    Sighted::in_store(resource)
}

fn block<'e>(evidence: &'e mut Evidence, cidr: &str) -> &'e mut Block {
    let cidr: Cidr = cidr.parse().unwrap();
    &mut evidence.ipam.as_mut().unwrap().books.blocks.get_mut(&cidr).unwrap().value
}

fn add_handle(evidence: &mut Evidence, handle: &str, cidr: &str) {
    let record = Handle { block: [(cidr.to_owned(), 1)].into(), ..Handle::default() };
    evidence.ipam.as_mut().unwrap().books.handles.insert(handle.into(), Stored::new(record, "1"));
}

/// Records without a kind, and then some others of it.
fn replace_kind(evidence: &mut Evidence, kind: Kind, records: Vec<Sighted<Resource>>) {
    let mut kept = evidence::Records::default();
    for other in evidence.records.kinds().filter(|other| *other != kind).collect::<Vec<_>>() {
        kept.looked_for(other);
        evidence.records.all(other).iter().cloned().for_each(|record| kept.add(record));
    }
    records.into_iter().for_each(|record| kept.add(record));
    evidence.records = kept;
}

#[test]
fn completed_pods_keep_showing_an_address_that_is_others_by_now() {
    let mut evidence = small();
    for (name, status) in [("job-1", "Succeeded"), ("job-2", "Completed"), ("job-3", "Failed")] {
        let mut pod = pods(&mut evidence)[0].clone();
        pod.seen.name = PodName::new("batch", name);
        pod.seen.status = status.to_owned();
        pods(&mut evidence).push(pod);
    }
    healthy(&evidence);
}

#[test]
fn pods_on_the_host_network_share_their_nodes_address() {
    let mut evidence = small();
    let address: IpAddr = "172.16.0.1".parse().unwrap();
    for (name, host_network) in [("kube-proxy-x", Some(true)), ("node-exporter-y", None)] {
        let mut pod = pods(&mut evidence)[0].clone();
        pod.seen.name = PodName::new("kube-system", name);
        pod.seen.addresses = vec![address];
        pod.seen.host_network = host_network;
        pods(&mut evidence).push(pod);
    }
    healthy(&evidence);
}

#[test]
fn an_address_borrowed_from_another_nodes_block() {
    let mut evidence = small();
    // The first pod of worker-0000 gets its address out of worker-0001's block.
    let from: IpAddr = "10.0.0.0".parse().unwrap();
    let to: IpAddr = "10.0.0.68".parse().unwrap();
    let attribute = block(&mut evidence, "10.0.0.0/26").attribute(0).unwrap().clone();
    let owner =
        Owner { handle: attribute.handle().cloned().unwrap(), attributes: (&attribute.secondary).into() };
    ipam::give_back(block(&mut evidence, "10.0.0.0/26"), &[0], None);
    assert!(ipam::take_address(block(&mut evidence, "10.0.0.64/26"), &owner, to));
    evidence.ipam.as_mut().unwrap().books.handles.remove(&owner.handle);
    add_handle(&mut evidence, owner.handle.as_str(), "10.0.0.64/26");
    evidence.endpoints.as_mut().unwrap()[0].seen.addresses = vec![to];
    pods(&mut evidence)[0].seen.addresses = vec![to];
    let node = evidence.node_mut("worker-0000");
    for route in
        node.kernel.routes.iter_mut().flatten().filter(|route| route.seen.destination == IpNet::from(from))
    {
        route.seen.destination = IpNet::from(to);
    }
    node.kernel.neighbours.as_mut().unwrap()[0].seen.address = to;
    node.attachments.as_mut().unwrap()[0].seen.addresses = vec![to];
    node.pod_views.as_mut().unwrap()[0].kernel.addresses.as_mut().unwrap()[0].seen.net = IpNet::from(to);
    // BGP tells the others of the single address.
    let node = evidence.node_mut("worker-0001");
    let mut route =
        node.kernel.routes.as_ref().unwrap().iter().find(|route| route.seen.via.is_some()).unwrap().clone();
    route.seen.destination = IpNet::from(to);
    route.seen.via = Some("172.16.0.1".parse().unwrap());
    node.kernel.routes.as_mut().unwrap().push(route);
    healthy(&evidence);
}

#[test]
fn tunnels_of_both_versions_have_addresses_of_pools() {
    let mut evidence = small();
    evidence.records.add(record(Kind::IpPool, "six", json!({"cidr": "fd00::/112", "blockSize": 122})));
    let six: Cidr = "fd00::/122".parse().unwrap();
    let host = AffinityOwner::Host("worker-0000".to_owned());
    let books = &mut evidence.ipam.as_mut().unwrap().books;
    books.blocks.insert(six, Stored::new(Block::new(six, Some(&host), 1), "1"));
    books.affinities.insert((host, six), Stored::new(Affinity::default(), "1"));
    let mut spec = json!({"bgp": {"ipv4Address": "172.16.0.1/16"}});
    for (tunnel, cidr) in [
        (Tunnel::Ipip, "10.0.0.0/26"),
        (Tunnel::Vxlan, "10.0.0.0/26"),
        (Tunnel::VxlanV6, "fd00::/122"),
        (Tunnel::WireguardV6, "fd00::/122"),
    ] {
        let taken =
            ipam::take(block(&mut evidence, cidr), &tunnel.owner("worker-0000"), 1, &Reservations::default());
        add_handle(&mut evidence, tunnel.handle("worker-0000").as_str(), cidr);
        match tunnel {
            Tunnel::Ipip => spec["bgp"]["ipv4IPIPTunnelAddr"] = json!(taken[0]),
            Tunnel::Vxlan => spec["ipv4VXLANTunnelAddr"] = json!(taken[0]),
            Tunnel::VxlanV6 => spec["ipv6VXLANTunnelAddr"] = json!(taken[0]),
            _ => spec["wireguard"] = json!({"interfaceIPv6Address": taken[0]}),
        }
    }
    let mut nodes: Vec<_> = evidence.records.all(Kind::Node)[1..].to_vec();
    nodes.push(record(Kind::Node, "worker-0000", spec));
    replace_kind(&mut evidence, Kind::Node, nodes);
    // Nobody routes between nodes by IPv6 here: routes of it were not looked at.
    for node in ["worker-0001", "worker-0002"] {
        let routes = evidence.node_mut(node).kernel.routes.as_mut().unwrap();
        let mut route = routes[0].clone();
        (route.seen.destination, route.seen.via) = ("fd00::/122".parse().unwrap(), None);
        route.seen.protocol = Some("80".to_owned());
        routes.push(route);
    }
    healthy(&evidence);
}

#[test]
fn reserved_and_cooling_addresses_and_those_of_load_balancers() {
    let mut evidence = small();
    evidence.records.add(record(Kind::IpReservation, "kept", json!({"reservedCIDRs": ["10.0.0.32/28"]})));
    let reserved = Owner { handle: HandleId::WINDOWS_RESERVED.into(), attributes: Default::default() };
    assert!(ipam::take_address(block(&mut evidence, "10.0.0.0/26"), &reserved, "10.0.0.63".parse().unwrap()));
    let owner = Owner { handle: "k8s-pod-network.cooling".into(), attributes: Default::default() };
    let taken_at = evidence.taken_at;
    let cooling = block(&mut evidence, "10.0.0.0/26");
    assert!(ipam::take_address(cooling, &owner, "10.0.0.50".parse().unwrap()));
    ipam::give_back(cooling, &[50], taken_at);
    let virtual_owner = AffinityOwner::Virtual("load-balancer".to_owned());
    let cidr: Cidr = "10.3.0.0/26".parse().unwrap();
    let books = &mut evidence.ipam.as_mut().unwrap().books;
    let mut services = Block::new(cidr, Some(&virtual_owner), 1);
    let owner = Owner { handle: "lb-default-web".into(), attributes: Default::default() };
    ipam::take(&mut services, &owner, 1, &Reservations::default());
    books.blocks.insert(cidr, Stored::new(services, "1"));
    books.affinities.insert((virtual_owner, cidr), Stored::new(Affinity::default(), "1"));
    add_handle(&mut evidence, "lb-default-web", "10.3.0.0/26");
    healthy(&evidence);
}

/// calico-node makes the resource that nobody reads; what is read was set with `ipam configure`.
#[test]
fn defaults_beside_settings_and_a_queue_that_is_being_worked_off() {
    let mut evidence = small();
    let start_up = json!({"strictAffinity": false, "autoAllocateBlocks": true, "maxBlocksPerHost": 0});
    evidence.records.add(record(Kind::IpamConfiguration, "default", start_up));
    let strict = IpamConfig { strict_affinity: true, max_blocks_per_host: 4, ..IpamConfig::default() };
    evidence.ipam.as_mut().unwrap().config = Some(Sighted::new(strict, Origin::store(&Key::IpamConfig)));
    let del = UnfinishedDel {
        file: "del-1".to_owned(),
        since: evidence.taken_at.unwrap(),
        container_id: Some("ab".repeat(32)),
        is_set_aside: false,
    };
    let queued = Sighted::new(del, Origin::probe("worker-0000", "queue"));
    evidence.node_mut("worker-0000").unfinished_dels = Some(vec![queued]);
    healthy(&evidence);
}

#[test]
fn devices_and_routes_of_strangers() {
    let mut evidence = small();
    let kernel = &mut evidence.node_mut("worker-0000").kernel;
    let origin = Origin::probe("worker-0000", "links");
    for name in ["docker0", "virbr0", "veth1a2b", "flannel.1", "cilium_host", "tunl0", "wg0"] {
        let link = Link { name: name.to_owned(), mtu: Some(9000), is_up: Some(false), ..Link::default() };
        kernel.links.as_mut().unwrap().push(Sighted::new(link, origin.clone()));
    }
    let template: Route = kernel.routes.as_ref().unwrap()[0].seen.clone();
    for (destination, device) in [
        ("172.18.0.0/16", "docker0"),
        ("10.0.0.0/8", "wg0"),
        ("10.0.0.9/32", "wg0"),
        ("192.168.122.0/24", "virbr0"),
    ] {
        let mut route = template.clone();
        (route.destination, route.device, route.via) =
            (destination.parse().unwrap(), Some(device.to_owned()), None);
        kernel.routes.as_mut().unwrap().push(Sighted::new(route, origin.clone()));
    }
    healthy(&evidence);
}

#[test]
fn pods_that_come_and_go_right_now() {
    let mut evidence = small();
    let taken_at = evidence.taken_at;
    // Leaving: the pod is shown, its endpoint, device and address are gone.
    let leaving = pods(&mut evidence)[0].seen.name.clone();
    pods(&mut evidence)[0].seen.deleted_at = taken_at;
    evidence.endpoints.as_mut().unwrap().remove(0);
    let handle = block(&mut evidence, "10.0.0.0/26").attribute(0).unwrap().handle().cloned().unwrap();
    ipam::give_back(block(&mut evidence, "10.0.0.0/26"), &[0], None);
    evidence.ipam.as_mut().unwrap().books.handles.remove(&handle);
    let node = evidence.node_mut("worker-0000");
    let device = node.attachments.as_mut().unwrap().remove(0).seen.device;
    node.kernel.links.as_mut().unwrap().retain(|link| link.seen.name != device);
    node.kernel.routes.as_mut().unwrap().retain(|route| route.seen.device.as_deref() != Some(&device));
    node.kernel.neighbours.as_mut().unwrap().retain(|neighbour| neighbour.seen.device != device);
    node.pod_views.as_mut().unwrap().retain(|view| view.pod.as_ref() != Some(&leaving));
    // Coming: records are written, the kernel has nothing yet, Kubernetes shows no address.
    let pod = &mut pods(&mut evidence)[1].seen;
    (pod.created_at, pod.status) = (taken_at, "ContainerCreating".to_owned());
    pod.addresses.clear();
    let node = evidence.node_mut("worker-0000");
    let device = node.attachments.as_mut().unwrap()[0].seen.device.clone();
    node.attachments.as_mut().unwrap()[0].seen.is_in_flux = true;
    node.kernel.routes.as_mut().unwrap().retain(|route| route.seen.device.as_deref() != Some(&device));
    node.kernel.neighbours.as_mut().unwrap().retain(|neighbour| neighbour.seen.device != device);
    healthy(&evidence);
}

#[test]
fn a_claim_that_is_under_way_is_in_one_look_only() {
    let mut evidence = small();
    let owner = AffinityOwner::Host("worker-0001".to_owned());
    let cidr: Cidr = "10.2.0.0/26".parse().unwrap();
    let pending = Stored::new(Affinity::new(AffinityState::Pending), "1");
    evidence.ipam.as_mut().unwrap().books.affinities.insert((owner, cidr), pending);
    assert_eq!(diagnose(&evidence).findings.len(), 1, "alone it is told");
    evidence.earlier = Some(Box::new(small()));
    healthy(&evidence);
}

#[test]
fn a_disabled_pool_whose_addresses_are_still_in_use() {
    let mut evidence = small();
    let old = record(Kind::IpPool, "old", json!({"cidr": "10.0.0.0/12", "blockSize": 26, "disabled": true}));
    let new = record(Kind::IpPool, "new", json!({"cidr": "10.64.0.0/12", "blockSize": 26}));
    replace_kind(&mut evidence, Kind::IpPool, vec![old, new]);
    healthy(&evidence);
}

#[test]
fn calico_on_kubernetes_without_macs_journals_and_permanent_neighbours() {
    let mut evidence = small();
    for endpoint in evidence.endpoints.iter_mut().flatten() {
        endpoint.seen.mac = None;
    }
    for node in evidence.nodes.values_mut() {
        node.attachments = None;
        node.kernel.neighbours = Some(Vec::new());
        for view in node.pod_views.iter_mut().flatten() {
            view.kernel.neighbours = Some(Vec::new());
        }
    }
    evidence.records.add(record(Kind::GlobalNetworkPolicy, "default.deny", json!({"selector": "all()"})));
    healthy(&evidence);
}

#[test]
fn all_nodes_on_a_second_network_and_a_kubelet_of_one_ip_version() {
    let mut evidence = small();
    let nodes = (0..3).map(|node| {
        record(
            Kind::Node,
            &format!("worker-{node:04}"),
            json!({"bgp": {"ipv4Address": format!("192.168.50.{}/24", node + 1)}}),
        )
    });
    let nodes = nodes.collect();
    replace_kind(&mut evidence, Kind::Node, nodes);
    for (number, node) in evidence.nodes.values_mut().enumerate() {
        let mut address = node.kernel.addresses.as_ref().unwrap()[0].clone();
        address.seen.device = "eth1".to_owned();
        address.seen.net = format!("192.168.50.{}/24", number + 1).parse().unwrap();
        node.kernel.addresses.as_mut().unwrap().push(address);
    }
    healthy(&evidence);
}

#[test]
fn namesakes_in_other_namespaces_and_a_second_interface() {
    let mut evidence = small();
    // Another team's pod of the same name, without a network of its own.
    let mut namesake = pods(&mut evidence)[0].clone();
    namesake.seen.name = PodName::new("other-team", "web-0");
    namesake.seen.status = "Pending".to_owned();
    namesake.seen.addresses.clear();
    namesake.seen.node = None;
    pods(&mut evidence).push(namesake);
    // Two nodes by one short name, and a three-member etcd.
    for node in ["worker-0000", "worker-0001", "worker-0002"] {
        let mut etcd = pods(&mut evidence)[12].clone();
        etcd.seen.name = PodName::new("kube-system", format!("etcd-{node}"));
        etcd.seen.node = Some(node.into());
        pods(&mut evidence).push(etcd);
    }
    healthy(&evidence);
}
