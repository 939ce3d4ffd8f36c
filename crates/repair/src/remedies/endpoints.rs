//! Endpoint records: written for sandboxes that run, corrected by what these really have, deleted when witnesses say gone.

use std::net::IpAddr;

use ipnet::IpNet;
use model::ipam::BlockAttribute;
use model::names::{EndpointName, host_interface_name};
use model::{FindingCode, HandleId, Key, Kind, NodeName, Resource, ShellCommand};
use serde_json::{Value, json};

use plan::USUAL_INTERFACE;

use super::super::draft::{Draft, Target};
use super::super::edit::{Edit, Is};
use super::super::plan::Step;
use super::super::witness::Suspect;
use super::running::Running;
use super::{Area, Remedy, addresses};
use doctor::{Allocation, Subject};
use evidence::{Endpoint, PodName, same_id};

const UNDO_FIELDS: &str = "restores the previous field values, unless they have been changed since";
const UNDO_RECORD: &str = "restores the record unless a new one exists, and allocates its addresses to its \
                           handle again if they are still free";
const DELETES: &str = "deletes the record and releases its addresses. Condition: in two observations, at \
                       least two of the three witnesses (Kubernetes, container runtime, kernel) report that \
                       the sandbox is gone, and none reports it alive";

pub(super) const GIVING: &[Remedy] = &[
    Remedy {
        does: "writes the endpoint of the running sandbox from its actual state (addresses inside, the \
               device that leads to it), and allocates its addresses if they are free. A record that exists \
               without an address, as in a Kubernetes store, is completed",
        undo: "deletes the record, or removes what was added to it, unless it has been changed since, and \
               releases the addresses",
        ..Remedy::of(FindingCode::PodWithoutEndpoint, Area::Endpoints, write_endpoint)
    },
    Remedy {
        does: "writes the ID of the running sandbox into the record, and its addresses, device and MAC \
               address where they differ",
        undo: UNDO_FIELDS,
        ..Remedy::of(FindingCode::EndpointOfOldSandbox, Area::Endpoints, rewrite_for_running)
    },
    Remedy {
        does: "writes the ID of the running sandbox into the record, and its addresses, device and MAC \
               address where they differ",
        undo: UNDO_FIELDS,
        ..Remedy::of(FindingCode::EndpointWithoutContainerId, Area::Endpoints, rewrite_for_running)
    },
    Remedy {
        does: "corrects the record if the pod actually has the address that Kubernetes shows; if it has the \
               one in the record, Kubernetes must be corrected, which is left to you",
        undo: UNDO_FIELDS,
        ..Remedy::of(FindingCode::EndpointAddressDiffers, Area::Endpoints, correct_addresses)
    },
    Remedy {
        does: "corrects the node in the record, if the runtime on the pod's node runs the recorded sandbox \
               and the record's name contains that node",
        undo: UNDO_FIELDS,
        ..Remedy::of(FindingCode::EndpointMisplaced, Area::Endpoints, correct_node)
    },
    Remedy {
        does: "corrects the device in the record of the sandbox that is actually behind another device",
        undo: UNDO_FIELDS,
        ..Remedy::of(FindingCode::DeviceShared, Area::Endpoints, correct_device)
    },
];

pub(super) const TAKING: &[Remedy] = &[
    Remedy {
        does: "deletes the record of the node on which the pod does not run, under the same condition as \
               endpoint-without-pod",
        undo: UNDO_RECORD,
        ..Remedy::of(FindingCode::EndpointOnTwoNodes, Area::Endpoints, keep_one_node)
    },
    Remedy {
        does: DELETES,
        undo: UNDO_RECORD,
        ..Remedy::of(FindingCode::EndpointWithoutPod, Area::Endpoints, delete_if_gone)
    },
    Remedy {
        does: DELETES,
        undo: UNDO_RECORD,
        ..Remedy::of(FindingCode::EndpointWithoutSandbox, Area::Endpoints, delete_if_gone)
    },
];

/// The record's key; v1 records have none here.
pub(super) fn key_of(endpoint: &Endpoint) -> Option<Key> {
    let namespace = endpoint.namespace.as_deref()?;
    (endpoint.api == evidence::endpoint::EndpointApi::V3)
        .then(|| Key::namespaced(Kind::WorkloadEndpoint, namespace, endpoint.name.clone()))
}

pub(super) fn find<'e>(draft: &Draft<'_, 'e>, subject: &Subject) -> Option<&'e Endpoint> {
    let Subject::Endpoint { namespace, name } = subject else { return None };
    let is_it = |endpoint: &&Endpoint| {
        endpoint.name == *name && endpoint.namespace.as_deref().unwrap_or_default() == namespace
    };
    draft.ground.case.all_endpoints().iter().map(|endpoint| &endpoint.seen).find(is_it)
}

fn networks(addresses: &[IpAddr]) -> Value {
    json!(addresses.iter().map(|address| IpNet::from(*address).to_string()).collect::<Vec<_>>())
}

pub(super) fn suspect(endpoint: &Endpoint) -> Suspect<'_> {
    Suspect {
        container_id: endpoint.container_id.as_deref(),
        node: endpoint.node.clone(),
        pod: endpoint.pod_name(),
        uid: None,
        device: endpoint.device.as_deref(),
        addresses: endpoint.addresses.clone(),
        since: endpoint.created_at,
    }
}

fn delete_if_gone(draft: &mut Draft<'_, '_>, target: &Target) {
    if let Some(endpoint) = find(draft, &target.subject) {
        delete(draft, target, endpoint);
    }
}

/// Deletes a record if its sandbox is gone, or says why not.
pub(super) fn delete(draft: &mut Draft<'_, '_>, target: &Target, endpoint: &Endpoint) {
    let Some(key) = key_of(endpoint) else {
        return draft.leave(target, "it is a record of the old (v1) API, which plumb does not write");
    };
    let because = match draft.ground.is_gone(&suspect(endpoint)) {
        Ok(because) => because,
        Err(why) => return draft.leave(target, why),
    };
    if draft.claims(&key, target) {
        remove(draft, target, endpoint, key, because);
    }
}

/// The record goes together with what its sandbox holds in the books.
fn remove(draft: &mut Draft<'_, '_>, target: &Target, endpoint: &Endpoint, key: Key, because: Vec<String>) {
    let edit = Edit::delete(key, Is::Sandbox(endpoint.container_id.clone()));
    let title = format!("delete endpoint {endpoint}");
    let mut handle = None;
    for (address, allocation) in own_allocations(draft, endpoint) {
        let Ok(next) = heir(draft, endpoint, address) else { continue };
        if draft.allocate(target, title.clone(), allocation.block, address, next).is_some() {
            handle = allocation.attribute.handle().cloned();
        }
    }
    let step = match handle {
        Some(handle) => draft.recount(target, title, &handle),
        None => draft.step(target, title),
    };
    step.needs_second_look = true;
    step.because.extend(because);
    step.edits.push(edit);
}

/// Who gets the address of an endpoint that goes: nobody, or the one sandbox that has it, too. An error if somebody has it
/// of whom no record knows.
fn heir(draft: &Draft<'_, '_>, endpoint: &Endpoint, address: IpAddr) -> Result<Option<BlockAttribute>, ()> {
    let ground = draft.ground;
    let others = ground.case.endpoints_at(address).iter().map(|other| &other.seen);
    let others: Vec<&Endpoint> = others
        .filter(|other| !std::ptr::eq(*other, endpoint) && ground.is_gone(&suspect(other)).is_err())
        .collect();
    match others[..] {
        [] if ground.case.is_inside_a_pod(address) => Err(()),
        [] => Ok(None),
        [other] => addresses::owner_for(ground, other).map(Some).ok_or(()),
        _ => Err(()),
    }
}

/// Every endpoint of a node that is gone.
pub(super) fn delete_all_of(draft: &mut Draft<'_, '_>, target: &Target, node: &NodeName) {
    let endpoints: Vec<_> = draft.ground.case.endpoints_on(node).collect();
    for endpoint in endpoints {
        delete(draft, target, &endpoint.seen);
    }
}

fn keep_one_node(draft: &mut Draft<'_, '_>, target: &Target) {
    let Subject::Pod(pod) = &target.subject else { return };
    let endpoints: Vec<_> = draft.ground.case.endpoints_of(pod).collect();
    let runs = |endpoint: &Endpoint| {
        Running::of(draft.ground, endpoint)
            .is_some_and(|running| endpoint.node.as_ref() == Some(&running.node.name))
    };
    let (kept, stale): (Vec<_>, Vec<_>) = endpoints.into_iter().partition(|endpoint| runs(&endpoint.seen));
    for endpoint in stale.into_iter().map(|endpoint| &endpoint.seen) {
        match kept[..] {
            [kept] if is_double(endpoint, &kept.seen) => delete_double(draft, target, endpoint, &kept.seen),
            _ => delete(draft, target, endpoint),
        }
    }
}

/// Whether a record says nothing that the other one, of the node where the sandbox runs, does not say.
fn is_double(endpoint: &Endpoint, kept: &Endpoint) -> bool {
    let ids = endpoint.container_id.as_deref().zip(kept.container_id.as_deref());
    ids.is_some_and(|(one, other)| same_id(one, other))
        && endpoint.addresses.iter().all(|address| kept.addresses.contains(address))
}

/// Deletes a second record of a sandbox that lives and has its own; its addresses stay.
fn delete_double(draft: &mut Draft<'_, '_>, target: &Target, endpoint: &Endpoint, kept: &Endpoint) {
    let Some(key) = key_of(endpoint) else { return };
    if !draft.claims(&key, target) {
        return;
    }
    let step = draft.step(target, format!("delete endpoint {endpoint}"));
    step.because(format!("{kept} is the record of the same sandbox on the node that runs it"));
    let from = Some(Is::Sandbox(endpoint.container_id.clone()));
    step.edits.push(Edit::Record { key, from, to: None });
}

/// One edit per field that differs.
fn field(key: &Key, name: &str, from: Option<Value>, to: Value) -> Option<Edit> {
    (from.as_ref() != Some(&to)).then(|| Edit::Field {
        key: key.clone(),
        field: format!("/spec/{name}"),
        from,
        to: Some(to),
    })
}

fn rewrite_for_running(draft: &mut Draft<'_, '_>, target: &Target) {
    let Some(endpoint) = find(draft, &target.subject) else { return };
    if let Some(pod) = endpoint.pod_name() {
        rewrite(draft, target, endpoint, &pod);
    }
}

/// Gives a record what the one running sandbox of its pod really has.
fn rewrite(draft: &mut Draft<'_, '_>, target: &Target, endpoint: &Endpoint, pod: &PodName) {
    let Some(key) = key_of(endpoint) else { return };
    let Some(running) = Running::of_pod(draft.ground, pod) else {
        return draft.leave_pod(
            target,
            "exactly one running sandbox of the pod could not be identified",
            pod,
        );
    };
    let (Some(inside), Some(device)) = (running.own_addresses(draft.ground), running.device()) else {
        return draft.leave_pod(
            target,
            "the running sandbox was not observed from inside, or no device leads to it",
            pod,
        );
    };
    let mut edits: Vec<Edit> = Vec::new();
    let old = endpoint.container_id.clone().map(Value::from);
    edits.extend(field(&key, "containerID", old, json!(running.sandbox.id)));
    if inside != endpoint.addresses {
        let old = (!endpoint.addresses.is_empty()).then(|| networks(&endpoint.addresses));
        edits.extend(field(&key, "ipNetworks", old, networks(&inside)));
    }
    edits.extend(field(&key, "interfaceName", endpoint.device.clone().map(Value::from), json!(device.name)));
    if let Some(mac) = running.mac() {
        edits.extend(field(
            &key,
            "mac",
            endpoint.mac.map(|mac| json!(mac.to_string())),
            json!(mac.to_string()),
        ));
    }
    let title = format!("update endpoint {endpoint} to sandbox {}", short(&running.sandbox.id));
    let because = format!("{} runs it, and {} leads to it", running.node.name, device.name);
    let facts = Endpoint {
        container_id: Some(running.sandbox.id.clone()),
        node: Some(running.node.name.clone()),
        addresses: inside,
        ..endpoint.clone()
    };
    let step = step_with_addresses(draft, target, title, &facts);
    step.because(because);
    step.edits.extend(edits);
    // Not before the record has let go of it.
    free_former(draft, target, endpoint, &facts.addresses);
}

/// What the sandbox held that a record named before, if that is gone.
fn free_former(draft: &mut Draft<'_, '_>, target: &Target, endpoint: &Endpoint, kept: &[IpAddr]) {
    let Ok(because) = draft.ground.is_gone(&suspect(endpoint)) else { return };
    for (address, allocation) in own_allocations(draft, endpoint) {
        let Ok(next) = heir(draft, endpoint, address) else { continue };
        if kept.contains(&address) {
            continue;
        }
        let title = format!("release {address}, which sandbox {} had", short_id(endpoint));
        if let Some(step) = draft.allocate(target, title, allocation.block, address, next) {
            step.needs_second_look = true;
            let new: Vec<_> = because.iter().filter(|line| !step.because.contains(line)).cloned().collect();
            step.because.extend(new);
        }
    }
}

fn short_id(endpoint: &Endpoint) -> &str {
    short(endpoint.container_id.as_deref().unwrap_or_default())
}

/// The endpoint's addresses that the books give to its own sandbox.
fn own_allocations<'e>(draft: &Draft<'_, 'e>, endpoint: &Endpoint) -> Vec<(IpAddr, Allocation<'e>)> {
    let case = &draft.ground.case;
    let held = endpoint.addresses.iter().filter_map(|address| Some((*address, case.allocation(*address)?)));
    let is_its = |handle: Option<&HandleId>| {
        let id = handle.and_then(HandleId::container);
        id.zip(endpoint.container_id.as_deref()).is_some_and(|(id, own)| same_id(id, own))
    };
    held.filter(|(_, allocation)| is_its(allocation.attribute.handle())).collect()
}

fn short(id: &str) -> &str {
    id.get(..12).unwrap_or(id)
}

fn correct_addresses(draft: &mut Draft<'_, '_>, target: &Target) {
    let Subject::Pod(pod) = &target.subject else { return };
    let endpoints: Vec<&Endpoint> =
        draft.ground.case.endpoints_of(pod).map(|endpoint| &endpoint.seen).collect();
    let (&[endpoint], Some(running)) = (&endpoints[..], Running::of_pod(draft.ground, pod)) else {
        return draft.leave_pod(
            target,
            "exactly one running sandbox of the pod could not be identified",
            pod,
        );
    };
    let Some(inside) = running.own_addresses(draft.ground) else {
        return draft.leave_pod(target, "the pod was not observed from inside", pod);
    };
    let is_shown = |address: &IpAddr| {
        draft.ground.case.pods_at(*address).iter().any(|shown| shown.seen.name.may_be(pod))
    };
    let is_recorded = inside.iter().all(|address| endpoint.addresses.contains(address));
    if is_recorded && inside.iter().any(is_shown) {
        let list = networks(&inside);
        let list: Vec<&str> = list.as_array().into_iter().flatten().filter_map(Value::as_str).collect();
        let why = "the pod has the address that Kubernetes and its endpoint show, so only its annotations are wrong";
        return draft.leave_with(target, why, vec![annotate(pod, &list)]);
    }
    if is_recorded {
        let why = "the pod has the address in its endpoint record, but Kubernetes shows another; the kubelet \
                   must report it again";
        return draft.leave_pod(target, why, pod);
    }
    let Some(key) = key_of(endpoint) else { return };
    let step = draft.step(target, format!("correct the addresses of endpoint {endpoint}"));
    step.because("the address inside the pod is the one it uses");
    step.edits.extend(field(&key, "ipNetworks", Some(networks(&endpoint.addresses)), networks(&inside)));
}

/// Has kubectl note on a pod what the plugin would.
fn annotate(pod: &PodName, networks: &[&str]) -> ShellCommand {
    let command = ShellCommand::new("kubectl annotate --overwrite pod").value(&pod.name);
    let command = match &pod.namespace {
        Some(namespace) => command.plain("--namespace").value(namespace),
        None => command,
    };
    let first = networks.first().copied().unwrap_or_default();
    command
        .assigned("cni.projectcalico.org/podIP", first)
        .assigned("cni.projectcalico.org/podIPs", networks.join(","))
}

fn correct_node(draft: &mut Draft<'_, '_>, target: &Target) {
    let Some(endpoint) = find(draft, &target.subject) else { return };
    let (Some(key), Some(pod)) = (key_of(endpoint), endpoint.pod_name()) else { return };
    let Some(running) = Running::of(draft.ground, endpoint) else {
        return draft.leave_pod(target, "no runtime that was asked runs the recorded sandbox", &pod);
    };
    let interface = endpoint.interface.as_deref().unwrap_or(USUAL_INTERFACE);
    let name = EndpointName::of_pod(running.node.name.as_str(), &pod.name, interface).compute();
    if name.as_deref() != Ok(endpoint.name.as_str()) {
        return draft.leave_pod(target, "the name of the record contains the wrong node", &pod);
    }
    let step = draft.step(target, format!("set the node of endpoint {endpoint} to {}", running.node.name));
    step.because(format!("{} runs its sandbox", running.node.name));
    step.edits.extend(field(
        &key,
        "node",
        endpoint.node.as_ref().map(|node| json!(node)),
        json!(running.node.name),
    ));
}

fn correct_device(draft: &mut Draft<'_, '_>, target: &Target) {
    let Subject::Device { node, device } = &target.subject else { return };
    let on_node: Vec<&Endpoint> =
        draft.ground.case.endpoints_on(node).map(|endpoint| &endpoint.seen).collect();
    let mut is_mended = false;
    for endpoint in on_node.into_iter().filter(|endpoint| endpoint.device.as_deref() == Some(device)) {
        let running = Running::of(draft.ground, endpoint);
        let real = running.and_then(|running| running.device()).map(|link| link.name.clone());
        let (Some(key), Some(real)) = (key_of(endpoint), real.filter(|real| real != device)) else {
            continue;
        };
        let step = draft.step(target, format!("correct the device of endpoint {endpoint}: {real}"));
        step.because(format!("{real} leads to its sandbox"));
        step.edits.extend(field(&key, "interfaceName", Some(json!(device)), json!(real)));
        is_mended = true;
    }
    if !is_mended {
        draft.leave(target, "the devices that lead to these sandboxes are not known");
    }
}

fn write_endpoint(draft: &mut Draft<'_, '_>, target: &Target) {
    let Subject::Pod(pod) = &target.subject else { return };
    let Some(running) = Running::of_pod(draft.ground, pod) else {
        return draft.leave_pod(target, "no runtime that was asked runs exactly one sandbox of the pod", pod);
    };
    let Some(inside) = running.own_addresses(draft.ground).filter(|inside| !inside.is_empty()) else {
        return draft.leave_pod(target, "the pod was not observed from inside, or has no address there", pod);
    };
    let is_anothers = |other: &Endpoint| other.pod_name().as_ref() != Some(pod);
    let has_it = |address: &&IpAddr| {
        draft.ground.case.endpoints_at(**address).iter().any(|other| is_anothers(&other.seen))
    };
    let taken = inside.iter().find(has_it);
    if let Some(address) = taken {
        return draft.leave_pod(target, format!("another endpoint has {address}"), pod);
    }
    let emptied = draft.ground.case.endpoints_of(pod).find(|endpoint| {
        endpoint.seen.addresses.is_empty() && endpoint.seen.node.as_ref() == Some(&running.node.name)
    });
    if let Some(endpoint) = emptied {
        return rewrite(draft, target, &endpoint.seen, pod);
    }
    let Some((key, endpoint)) = record_for(pod, &running, inside) else {
        return draft.leave_pod(target, "the name of its record cannot be computed", pod);
    };
    if draft.claims(&key, target) {
        allocate_and_write(draft, target, &running, key, &endpoint);
    }
}

fn allocate_and_write(
    draft: &mut Draft<'_, '_>,
    target: &Target,
    running: &Running<'_>,
    key: Key,
    endpoint: &(Endpoint, Resource),
) {
    let (facts, record) = endpoint;
    let title = format!("write the endpoint of sandbox {}", short(&running.sandbox.id));
    let step = step_with_addresses(draft, target, title, facts);
    step.because(format!("{} runs it with these addresses inside", running.node.name));
    let text = String::from_utf8_lossy(&record.encode()).into_owned();
    step.edits.push(Edit::Record { key, from: None, to: Some(text) });
}

/// A step that gives a sandbox those of its addresses that nobody has.
fn step_with_addresses<'d>(
    draft: &'d mut Draft<'_, '_>,
    target: &Target,
    title: String,
    facts: &Endpoint,
) -> &'d mut Step {
    let mut handle = None;
    for address in &facts.addresses {
        let owner = addresses::owner_for(draft.ground, facts);
        let Some(block) = addresses::block_of(draft.ground, *address) else {
            let why = format!("no block contains {address}; once its record exists, run the repair again");
            draft.leave_with(target, why, vec![ShellCommand::new("plumb repair ipam --apply")]);
            continue;
        };
        let Some(owner) = owner else { continue };
        if draft.holder(block, *address).is_none() {
            handle = owner.handle().cloned();
            draft.allocate(target, title.clone(), block, *address, Some(owner));
        }
    }
    match handle {
        Some(handle) => draft.recount(target, title, &handle),
        None => draft.step(target, title),
    }
}

/// The record of a running sandbox. The same whenever it is made: no clock, no dice.
fn record_for(
    pod: &PodName,
    running: &Running<'_>,
    inside: Vec<IpAddr>,
) -> Option<(Key, (Endpoint, Resource))> {
    let namespace = pod.namespace.clone()?;
    let name = EndpointName::of_pod(running.node.name.as_str(), &pod.name, USUAL_INTERFACE).compute().ok()?;
    let usual = host_interface_name(&namespace, &pod.name).ok()?.to_string();
    let device = running.device().map_or(usual, |link| link.name.clone());
    let mut record = Resource::new(Kind::WorkloadEndpoint, name.clone());
    record.metadata.namespace = Some(namespace.clone());
    record.metadata.uid = uid_of(&running.sandbox.id);
    record.metadata.creation_timestamp =
        running.sandbox.created_at.map(|at| at.strftime("%Y-%m-%dT%H:%M:%SZ").to_string());
    let spec = model::endpoint_spec(&model::EndpointSpec {
        node: running.node.name.as_str(),
        namespace: &namespace,
        orchestrator: "k8s",
        workload: &pod.name,
        container_id: &running.sandbox.id,
        interface: USUAL_INTERFACE,
        addresses: &inside,
        device: &device,
        mac: running.mac(),
    });
    record.body.insert("spec".to_owned(), spec);
    record.fill_defaults();
    let endpoint = Endpoint::of_resource(&record);
    Some((Key::namespaced(Kind::WorkloadEndpoint, namespace, name), (endpoint, record)))
}

/// A name for the record that follows from the sandbox.
fn uid_of(container_id: &str) -> Option<String> {
    let digits =
        container_id.get(..32).filter(|digits| digits.bytes().all(|byte| byte.is_ascii_hexdigit()))?;
    Some(format!(
        "{}-{}-{}-{}-{}",
        &digits[..8],
        &digits[8..12],
        &digits[12..16],
        &digits[16..20],
        &digits[20..]
    ))
}
