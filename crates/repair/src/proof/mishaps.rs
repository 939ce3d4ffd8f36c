//! Repairs that went wrong elsewhere: a witness is missing, late, or speaks of another name. Nothing that lives is released; and
//! where all witnesses agree, it is, so that each test can fail.

use std::collections::BTreeSet;
use std::net::IpAddr;

use ipam::{Owner, Reservations, Stored, Tunnel};
use model::ipam::{Affinity, Block, Handle};
use model::{AffinityOwner, AgentMode, Cidr, Key, Kind, Resource};
use plan::task::KernelChange;
use serde_json::json;

use super::{healthy, planned, planned_for};
use crate::{Edit, Ground, Plan, Scope};
use doctor::Options;
use evidence::sample::record;
use evidence::{Endpoint, Evidence, Origin, PodName, Records, Sighted};

pub(super) const NODE: &str = "worker-0001";

/// A pod of the sample with everything it is known by.
pub(super) struct Known {
    pub(super) name: PodName,
    pub(super) id: String,
    pub(super) address: IpAddr,
    device: String,
    record: String,
}

/// The first pod of [`NODE`].
pub(super) fn pod(evidence: &Evidence) -> Known {
    let on_node = |endpoint: &&Sighted<Endpoint>| endpoint.seen.node == Some(NODE.into());
    let endpoint = &evidence.endpoints.as_ref().unwrap().iter().find(on_node).unwrap().seen;
    Known {
        name: endpoint.pod_name().unwrap(),
        id: endpoint.container_id.clone().unwrap(),
        address: endpoint.addresses[0],
        device: endpoint.device.clone().unwrap(),
        record: endpoint.name.clone(),
    }
}

pub(super) fn leave_orchestrator(evidence: &mut Evidence, pod: &Known) {
    evidence.pods.as_mut().unwrap().retain(|listed| listed.seen.name != pod.name);
}

pub(super) fn leave_runtime(evidence: &mut Evidence, pod: &Known) {
    let node = evidence.node_mut(NODE);
    node.sandboxes.as_mut().unwrap().retain(|sandbox| sandbox.seen.id != pod.id);
    node.attachments.as_mut().unwrap().retain(|held| held.seen.container_id != pod.id);
}

pub(super) fn leave_kernel(evidence: &mut Evidence, pod: &Known) {
    let node = evidence.node_mut(NODE);
    node.pod_views.as_mut().unwrap().retain(|view| view.container_id.as_ref() != Some(&pod.id));
    node.kernel.links.as_mut().unwrap().retain(|link| link.seen.name != pod.device);
    node.kernel.routes.as_mut().unwrap().retain(|route| route.seen.device.as_ref() != Some(&pod.device));
    node.kernel.neighbours.as_mut().unwrap().retain(|known| known.seen.device != pod.device);
}

pub(super) fn leave_records(evidence: &mut Evidence, pod: &Known) {
    evidence.endpoints.as_mut().unwrap().retain(|endpoint| endpoint.seen.name != pod.record);
}

/// Everything that a plan takes, in words: addresses, records, devices, routes, neighbours.
fn taken(plan: &Plan) -> BTreeSet<String> {
    let mut taken = BTreeSet::new();
    for step in &plan.steps {
        for edit in step.edits.iter().filter(|edit| edit.takes()) {
            taken.insert(match edit {
                Edit::Allocation { address, .. } => address.to_string(),
                edit => edit.key().to_string(),
            });
        }
        let works = step.on_node.iter().flat_map(|on_node| &on_node.works);
        taken.extend(works.filter(|work| work.is_removal()).map(|work| match &work.change {
            KernelChange::Device { device, .. } => device.clone(),
            change => format!("{change:?}"),
        }));
    }
    taken
}

/// What a plan takes of this pod.
fn taken_of(evidence: &Evidence, pod: &Known) -> Vec<String> {
    let marks = [pod.address.to_string(), pod.id.clone(), pod.device.clone(), pod.record.clone()];
    let is_its = |taken: &String| marks.iter().any(|mark| taken.contains(mark.as_str()));
    taken(&planned(evidence)).into_iter().filter(is_its).collect()
}

/// Without these witnesses of a pod that lives, and with or without its record, nothing of it is taken.
#[track_caller]
fn nothing_is_taken(mishap: impl Fn(&mut Evidence, &Known)) {
    for has_record in [true, false] {
        let mut evidence = healthy();
        let pod = pod(&evidence);
        mishap(&mut evidence, &pod);
        if !has_record {
            leave_records(&mut evidence, &pod);
        }
        assert_eq!(taken_of(&evidence, &pod), [] as [&str; 0], "with its record: {has_record}");
    }
}

#[test]
fn what_all_witnesses_call_gone_is_released() {
    for has_record in [true, false] {
        let mut evidence = healthy();
        let pod = pod(&evidence);
        leave_orchestrator(&mut evidence, &pod);
        leave_runtime(&mut evidence, &pod);
        leave_kernel(&mut evidence, &pod);
        if !has_record {
            leave_records(&mut evidence, &pod);
        }
        let taken = taken_of(&evidence, &pod);
        assert!(taken.contains(&pod.address.to_string()), "{taken:?}");
        assert_eq!(
            taken.len(),
            2 + usize::from(has_record),
            "the address, its handle, its record: {taken:?}"
        );
        // But not if the look before could not see the same.
        evidence.earlier = Some(Box::new(healthy()));
        assert_eq!(taken_of(&evidence, &pod), [] as [&str; 0]);
    }
}

#[test]
fn pods_that_the_api_lists_late_are_kept() {
    nothing_is_taken(leave_orchestrator);
    // Its runtime cannot be asked either.
    nothing_is_taken(|evidence, pod| {
        leave_orchestrator(evidence, pod);
        evidence.node_mut(NODE).sandboxes = None;
    });
    // And nobody looked at its kernel: one witness is not enough.
    nothing_is_taken(|evidence, pod| {
        leave_orchestrator(evidence, pod);
        let node = evidence.node_mut(NODE);
        (node.sandboxes, node.pod_views, node.kernel) = (None, None, Default::default());
    });
}

#[test]
fn pods_of_a_runtime_that_restarts_are_kept() {
    nothing_is_taken(|evidence, pod| {
        leave_orchestrator(evidence, pod);
        evidence.node_mut(NODE).sandboxes = Some(Vec::new());
    });
    // As on a node of Calico, whose devices carry no sandbox and whose pods nobody looked into.
    nothing_is_taken(|evidence, pod| {
        leave_orchestrator(evidence, pod);
        leave_runtime(evidence, pod);
        let node = evidence.node_mut(NODE);
        (node.attachments, node.pod_views) = (None, None);
    });
}

#[test]
fn a_device_of_which_nothing_says_whose_it_is_keeps_an_unknown_sandbox() {
    let anonymous = |has_device: bool| {
        let mut evidence = healthy();
        let pod = pod(&evidence);
        leave_orchestrator(&mut evidence, &pod);
        leave_runtime(&mut evidence, &pod);
        leave_records(&mut evidence, &pod);
        let device = evidence.node(&NODE.into()).unwrap().kernel.link(&pod.device).unwrap().clone();
        leave_kernel(&mut evidence, &pod);
        if has_device {
            evidence.node_mut(NODE).kernel.links.as_mut().unwrap().push(device);
        }
        // An old allocation, which names no pod: the API has nothing to say.
        let books = &mut evidence.ipam.as_mut().unwrap().books;
        for stored in books.blocks.values_mut() {
            stored.value.attributes.iter_mut().for_each(|owner| owner.secondary.clear());
        }
        taken_of(&evidence, &pod)
    };
    assert_eq!(anonymous(true), [] as [&str; 0]);
    assert!(!anonymous(false).is_empty());
}

/// As old releases wrote it: the runtime is asked for any sandbox of the pod.
#[test]
fn a_record_that_names_no_sandbox_goes_only_with_the_last_one_of_its_pod() {
    let nameless = |change: fn(&mut Evidence, &Known)| {
        let mut evidence = healthy();
        let pod = pod(&evidence);
        let endpoints = evidence.endpoints.as_mut().unwrap();
        endpoints.iter_mut().find(|endpoint| endpoint.seen.name == pod.record).unwrap().seen.container_id =
            None;
        // Nobody asks Kubernetes, and the device is gone.
        evidence.pods = None;
        leave_kernel(&mut evidence, &pod);
        change(&mut evidence, &pod);
        let is_record = |taken: &String| taken.contains(pod.record.as_str());
        let is_taken = taken_of(&evidence, &pod).iter().any(is_record);
        let works = planned(&evidence).steps.iter().filter(|step| step.on_node.is_some()).count();
        (is_taken, works)
    };
    assert_eq!(nameless(leave_runtime), (true, 0));
    assert_eq!(nameless(|_, _| ()), (false, 0), "it runs");
    let unasked = nameless(|evidence, pod| {
        leave_runtime(evidence, pod);
        evidence.node_mut(NODE).sandboxes = None;
    });
    assert_eq!(unasked, (false, 0), "and nothing is to lead to a device that is not there");
    let elsewhere = nameless(|evidence, pod| {
        let sandboxes = evidence.node(&NODE.into()).unwrap().sandboxes.clone().unwrap();
        leave_runtime(evidence, pod);
        let own = sandboxes.into_iter().filter(|sandbox| sandbox.seen.id == pod.id);
        evidence.node_mut("worker-0002").sandboxes.as_mut().unwrap().extend(own);
    });
    assert_eq!(elsewhere, (false, 0), "another node runs it");
}

#[test]
fn a_pod_whose_status_is_late_is_kept() {
    let no_address = |evidence: &mut Evidence, pod: &Known| {
        let pods = evidence.pods.as_mut().unwrap().iter_mut();
        let listed = pods.map(|listed| &mut listed.seen).find(|listed| listed.name == pod.name).unwrap();
        listed.addresses = Vec::new();
    };
    nothing_is_taken(no_address);
    nothing_is_taken(|evidence, pod| {
        no_address(evidence, pod);
        evidence.node_mut(NODE).sandboxes = None;
    });
    // Its runtime cannot be asked, and its device goes by a name that nobody knows: that the pod is listed is not to be taken for an
    // end of the sandbox.
    nothing_is_taken(|evidence, pod| {
        no_address(evidence, pod);
        leave_kernel(evidence, pod);
        evidence.node_mut(NODE).sandboxes = None;
    });
}

#[test]
fn what_a_part_of_a_list_lacks_is_not_gone() {
    nothing_is_taken(|evidence, pod| {
        leave_orchestrator(evidence, pod);
        leave_runtime(evidence, pod);
        leave_kernel(evidence, pod);
        evidence.partial.pods = true;
        evidence.node_mut(NODE).kernel.partial.links = true;
    });
    nothing_is_taken(|evidence, pod| {
        leave_orchestrator(evidence, pod);
        leave_runtime(evidence, pod);
        leave_kernel(evidence, pod);
        let node = evidence.node_mut(NODE);
        node.kernel.partial.links = true;
        for sandbox in node.sandboxes.iter_mut().flatten() {
            sandbox.origin = Origin::file("crictl-pods.txt");
        }
    });
}

#[test]
fn of_two_sandboxes_of_one_name_the_one_that_runs_is_kept() {
    let mut evidence = healthy();
    let pod = pod(&evidence);
    // An earlier sandbox of the same pod left its address behind.
    let old = format!("k8s-pod-network.{}", "ab".repeat(32));
    let namespace = pod.name.namespace.clone().unwrap();
    let owner = Owner::on_node(&old, NODE, "2026-08-22T01:00:00Z".parse().unwrap()).of_pod(
        &namespace,
        &pod.name.name,
        None,
    );
    let leaked = take(&mut evidence, "10.0.0.64/26".parse().unwrap(), &owner);
    let taken = taken(&planned(&evidence));
    assert_eq!(taken, BTreeSet::from([leaked.to_string(), Key::Handle(old.into()).to_string()]));
    // Its device is called like that of the one that runs, and on a node of Calico carries no sandbox.
    assert_eq!(evidence.node(&NODE.into()).unwrap().kernel.link(&pod.device).unwrap().seen.alias, None);
}

/// Gives an address of a block away.
fn take(evidence: &mut Evidence, cidr: Cidr, owner: &Owner) -> IpAddr {
    let books = &mut evidence.ipam.as_mut().unwrap().books;
    let block = &mut books.blocks.get_mut(&cidr).unwrap().value;
    let taken = ipam::take(block, owner, 1, &Reservations::default())[0];
    let counts = Handle { block: [(cidr.to_string(), 1)].into(), ..Handle::default() };
    books.handles.insert(owner.handle.clone(), Stored::new(counts, "1"));
    taken
}

/// Kubernetes, the store and everybody who could look forget a node.
fn forget_node(evidence: &mut Evidence, name: &str) {
    let kept: Vec<_> =
        evidence.records.kinds().flat_map(|kind| evidence.records.all(kind).to_vec()).collect();
    let mut records = Records::default();
    evidence.records.kinds().for_each(|kind| records.looked_for(kind));
    let is_it = |record: &Resource| record.kind == Kind::Node && record.metadata.name == name;
    kept.into_iter().filter(|record| !is_it(&record.seen)).for_each(|record| records.add(record));
    evidence.records = records;
    evidence.kube_nodes.as_mut().unwrap().retain(|node| node.seen.name != name.into());
    evidence.nodes.remove(&name.into());
}

/// A node that is gone with its pods: they are not listed any more.
pub(super) fn without_node() -> Evidence {
    let mut evidence = healthy();
    forget_node(&mut evidence, NODE);
    evidence.pods.as_mut().unwrap().retain(|pod| pod.seen.node != Some(NODE.into()));
    evidence
}

/// What is taken of a node: its addresses, its blocks, its affinities.
pub(super) fn taken_of_node(evidence: &Evidence, scope: &Scope) -> Vec<String> {
    let is_its =
        |taken: &String| taken.contains(NODE) || taken.contains("10.0.0.6") || taken.contains("10.0.0.64/26");
    taken(&planned_for(evidence, scope)).into_iter().filter(is_its).collect()
}

#[test]
fn a_node_that_comes_back_within_the_grace_keeps_everything() {
    let everything = Scope::Everything;
    let (gone, back) = (without_node(), healthy());
    let two_looks = |earlier: &Evidence, now: &Evidence| {
        let mut now = now.clone();
        now.earlier = Some(Box::new(earlier.clone()));
        now
    };
    assert_eq!(taken_of_node(&two_looks(&gone, &back), &everything), [] as [&str; 0]);
    assert_eq!(taken_of_node(&two_looks(&back, &gone), &everything), [] as [&str; 0]);
    let taken = taken_of_node(&two_looks(&gone, &gone), &everything);
    assert!(taken.contains(&"10.0.0.64".to_owned()) && taken.len() == 6, "{taken:?}");
}

#[test]
fn a_lost_node_whose_pods_are_still_listed_is_the_operators_to_give_up() {
    let mut evidence = healthy();
    forget_node(&mut evidence, NODE);
    assert_eq!(taken_of_node(&evidence, &Scope::Everything), [] as [&str; 0]);
    let given_up = taken_of_node(&evidence, &Scope::Node(NODE.into()));
    assert!(given_up.contains(&"10.0.0.64".to_owned()), "{given_up:?}");
    // Whoever answers is not dead, whatever anybody says.
    let mut answers = healthy();
    let agent = answers.nodes.get(&NODE.into()).cloned().unwrap();
    forget_node(&mut answers, NODE);
    answers.nodes.insert(NODE.into(), agent);
    assert_eq!(taken_of_node(&answers, &Scope::Node(NODE.into())), [] as [&str; 0]);
}

/// A node goes by the name of the template it was cloned from, and its records by that name.
#[test]
fn sandboxes_under_the_name_of_a_template_are_kept() {
    let renamed = |is_there: bool| {
        let mut evidence = healthy();
        let cidr: Cidr = "10.0.0.64/26".parse().unwrap();
        let template = AffinityOwner::Host("template".to_owned());
        for endpoint in evidence.endpoints.as_mut().unwrap().iter_mut() {
            if endpoint.seen.node == Some(NODE.into()) {
                endpoint.seen.node = Some("template".into());
            }
        }
        let books = &mut evidence.ipam.as_mut().unwrap().books;
        books.affinities.remove(&(AffinityOwner::Host(NODE.to_owned()), cidr));
        books.affinities.insert((template, cidr), Stored::new(Affinity::default(), "1"));
        let block = &mut books.blocks.get_mut(&cidr).unwrap().value;
        block.affinity = Some("host:template".to_owned());
        for owner in &mut block.attributes {
            owner.secondary.insert(ipam::NODE_ATTRIBUTE, "template".to_owned());
        }
        evidence.node_mut(NODE).setup.nodename_file.as_mut().unwrap().seen = "template".to_owned();
        if !is_there {
            forget_node(&mut evidence, NODE);
            evidence.pods.as_mut().unwrap().retain(|pod| pod.seen.node != Some(NODE.into()));
        }
        taken(&planned(&evidence))
    };
    assert_eq!(renamed(true), BTreeSet::new());
    assert!(renamed(false).contains("10.0.0.64"));
}

#[test]
fn a_node_is_the_same_whatever_case_it_is_spelled_in() {
    let mut evidence = healthy();
    let pod = pod(&evidence);
    let books = &mut evidence.ipam.as_mut().unwrap().books;
    for owner in books.blocks.values_mut().flat_map(|stored| &mut stored.value.attributes) {
        if let Some(node) = owner.secondary.get_mut(ipam::NODE_ATTRIBUTE) {
            *node = node.to_uppercase();
        }
    }
    leave_records(&mut evidence, &pod);
    leave_orchestrator(&mut evidence, &pod);
    assert_eq!(taken_of(&evidence, &pod), [] as [&str; 0]);
    leave_runtime(&mut evidence, &pod);
    leave_kernel(&mut evidence, &pod);
    assert!(taken_of(&evidence, &pod).contains(&pod.address.to_string()));
}

#[test]
fn a_tunnel_whose_node_is_recorded_late_keeps_its_address() {
    let with_tunnel = |mut evidence: Evidence| {
        let address = take(&mut evidence, "10.0.0.64/26".parse().unwrap(), &Tunnel::Vxlan.owner(NODE));
        (evidence, address.to_string())
    };
    // The node is there, and its record does not show the tunnel yet.
    let (late, address) = with_tunnel(healthy());
    assert!(!taken(&planned(&late)).contains(&address));
    // The handle of a node whose name has a dot looks like that of a sandbox, of which no witness has heard.
    let mut dotted = healthy();
    let owner =
        Owner { handle: Tunnel::Vxlan.handle("worker-0001.example-domain"), ..Tunnel::Vxlan.owner(NODE) };
    let tunnels = take(&mut dotted, "10.0.0.64/26".parse().unwrap(), &owner);
    assert!(!taken(&planned(&dotted)).contains(&tunnels.to_string()));
    // Its record is not there yet, in one of two looks.
    let (mut gone, _) = with_tunnel(without_node());
    assert!(taken(&planned(&gone)).contains(&address));
    gone.earlier = Some(Box::new(late));
    assert!(!taken(&planned(&gone)).contains(&address));
}

/// A live sandbox of another node has an address of a block whose node is gone; the block says so, or only its handle does.
#[test]
fn borrowed_addresses_of_a_dead_nodes_block_are_kept() {
    for says_node in [true, false] {
        let mut evidence = without_node();
        let other = evidence.endpoints.as_ref().unwrap()[0].seen.clone();
        let handle = format!("k8s-pod-network.{}", other.container_id.as_deref().unwrap());
        let mut owner = Owner::on_node(
            &handle,
            other.node.as_ref().unwrap().as_str(),
            "2026-08-22T01:00:00Z".parse().unwrap(),
        );
        if !says_node {
            owner.attributes.clear();
        }
        let borrowed = take(&mut evidence, "10.0.0.64/26".parse().unwrap(), &owner);
        evidence.endpoints.as_mut().unwrap()[0].seen.addresses.push(borrowed);
        let taken = taken(&planned(&evidence));
        assert!(!taken.contains(&borrowed.to_string()), "{taken:?}");
        assert!(!taken.contains(&Key::Handle(handle.into()).to_string()));
        assert!(!says_node || taken.contains("10.0.0.64"), "the dead node's own go: {taken:?}");
    }
}

/// IPv6 has many spellings; whoever compares texts releases addresses that are in use.
#[test]
fn an_address_in_use_is_kept_however_it_is_spelled() {
    let mut evidence = healthy();
    let cidr: Cidr = "FD00:0:0:0::/122".parse().unwrap();
    evidence.records.add(record(Kind::IpPool, "six", json!({"cidr": "fd00:0::/64", "blockSize": 122})));
    let node = AffinityOwner::Host(NODE.to_owned());
    let books = &mut evidence.ipam.as_mut().unwrap().books;
    books.blocks.insert(cidr, Stored::new(Block::new(cidr, Some(&node), 1), "1"));
    books.affinities.insert((node, cidr), Stored::new(Affinity::default(), "1"));
    let made_at = "2026-08-22T01:00:00Z".parse().unwrap();
    let (used, idle) = ("k8s-pod-network.used".to_owned(), format!("k8s-pod-network.{}", "cd".repeat(32)));
    let used = take(&mut evidence, cidr, &Owner::on_node(used, NODE, made_at).of_pod("six", "pod", None));
    let idle = take(&mut evidence, cidr, &Owner::on_node(idle, NODE, made_at).of_pod("six", "gone", None));
    // An endpoint as somebody wrote it by hand, of a sandbox of which no witness has heard.
    let mut resource = Resource::new(Kind::WorkloadEndpoint, "worker--0001-k8s-pod-eth0");
    resource.metadata.namespace = Some("six".to_owned());
    let spelled = format!("FD00:0000:0:0:0:0:0:{:X}/128", u128::from_be_bytes(octets(used)) & 0xffff);
    resource.body.insert("spec".to_owned(), json!({"node": NODE, "pod": "pod", "ipNetworks": [spelled]}));
    let key = resource.key();
    let endpoint = Sighted::new(Endpoint::of_resource(&resource), Origin::store(&key));
    evidence.endpoints.as_mut().unwrap().push(endpoint);
    let taken = taken(&planned(&evidence));
    assert!(!taken.contains(&used.to_string()), "{taken:?}");
    assert!(taken.contains(&idle.to_string()), "{taken:?}");
    let (options, scope) = (Options::default(), Scope::Everything);
    let ground = Ground::new(&evidence, &options, &scope);
    assert!(ground.is_unused(used).is_err() && ground.is_unused(idle).is_ok());
}

fn octets(address: IpAddr) -> [u8; 16] {
    match address {
        IpAddr::V6(address) => address.octets(),
        IpAddr::V4(address) => address.to_ipv6_mapped().octets(),
    }
}

/// A pod without a record, on a node where nobody looked into pods: its route and its neighbour stay.
#[test]
fn routes_of_pods_that_nobody_looked_into_are_kept() {
    let routes = |is_looked_into: bool| {
        let mut evidence = healthy();
        let pod = pod(&evidence);
        leave_records(&mut evidence, &pod);
        leave_orchestrator(&mut evidence, &pod);
        let node = evidence.node_mut(NODE);
        node.attachments = None;
        if is_looked_into {
            // Inside is another address: the route is nobody's.
            let views = node.pod_views.iter_mut().flatten();
            let held = views.flat_map(|view| view.kernel.addresses.iter_mut().flatten());
            held.filter(|held| held.seen.net.addr() == pod.address)
                .for_each(|held| held.seen.net = "10.0.0.99/32".parse().unwrap());
        } else {
            node.pod_views = None;
        }
        let is_route = |taken: &String| taken.contains("Route") && taken.contains(&pod.address.to_string());
        taken(&planned(&evidence)).iter().any(is_route)
    };
    assert!(!routes(false));
    assert!(routes(true));
}

/// Of two who have one address, the one whom the books name is gone: the other one keeps it.
#[test]
fn who_is_gone_is_not_rightful() {
    let mut evidence = healthy();
    let pod = pod(&evidence);
    let mut other = evidence.endpoints.as_ref().unwrap()[5].clone();
    assert_eq!(other.seen.node, Some(NODE.into()));
    other.seen.addresses = vec![pod.address];
    let winner = other.seen.container_id.clone().unwrap();
    evidence.endpoints.as_mut().unwrap()[5] = other;
    leave_orchestrator(&mut evidence, &pod);
    leave_runtime(&mut evidence, &pod);
    leave_kernel(&mut evidence, &pod);
    let plan = planned(&evidence);
    let to = plan.steps.iter().flat_map(|step| &step.edits).find_map(|edit| match edit {
        Edit::Allocation { address, to, .. } if *address == pod.address => Some(to.clone()),
        _ => None,
    });
    let handle = to.flatten().and_then(|to| to.attribute.handle().cloned()).unwrap_or_default();
    assert!(handle.container() == Some(winner.as_str()), "{handle} {plan:#?}");
}

/// Somebody added an address inside (a floating one, say): it does not become the network's.
#[test]
fn an_address_that_a_pod_gave_itself_stays_its_own() {
    let mut evidence = healthy();
    let pod = pod(&evidence);
    leave_records(&mut evidence, &pod);
    let node = evidence.node_mut(NODE);
    node.attachments = None;
    let views = node.pod_views.iter_mut().flatten();
    let view = views.into_iter().find(|view| view.container_id.as_ref() == Some(&pod.id)).unwrap();
    let held = view.kernel.addresses.as_mut().unwrap();
    let mut floating = held[0].clone();
    floating.seen.net = "192.0.2.7/32".parse().unwrap();
    held.insert(0, floating);
    let plan = planned(&evidence);
    let written = plan.steps.iter().flat_map(|step| &step.edits).find_map(|edit| match edit {
        Edit::Record { from: None, to, .. } => to.clone(),
        _ => None,
    });
    let written = written.expect("its record is written");
    assert!(written.contains(&format!("{}/32", pod.address)) && !written.contains("192.0.2.7"), "{written}");
}

#[test]
fn an_agent_that_only_observes_is_asked_for_nothing() {
    let mut evidence = healthy();
    let pod = pod(&evidence);
    evidence
        .node_mut(NODE)
        .kernel
        .routes
        .as_mut()
        .unwrap()
        .retain(|route| route.seen.device.as_ref() != Some(&pod.device));
    assert!(planned(&evidence).steps.iter().any(|step| step.on_node.is_some()));
    evidence.node_mut(NODE).agent_mode = Some(AgentMode::Observes);
    let plan = planned(&evidence);
    assert!(plan.steps.is_empty() && plan.left.iter().any(|left| !left.commands.is_empty()));
}
