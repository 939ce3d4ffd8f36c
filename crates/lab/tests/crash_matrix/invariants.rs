//! The invariants, by their numbers, held against the store, the kernel, the node's files and the pods themselves.
//!
//! | | |
//! |---|---|
//! | 1, 5 | `books_agree`: the analysis of `plumb ipam check`, and one holder per address |
//! | 2, 3 | `records_are_of`: addresses, handles, endpoints, files of exactly the living sandboxes, by their IDs |
//! | 4, 8 | `pods_are_reachable`, and the bystander's ping all the while |
//! | 6 | `kernel_agrees`: what is programmed for the living, on both ends, and nothing beyond |
//! | 9 | the kubelet's pods end: it waits for every DEL |

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::path::Path;

use anyhow::{Context as _, Result, ensure};
use book::load::{self, Facts, Progress};
use host::{Host, PodNamespace};
use ipam::check::{Evidence, Problem, analyse};
use lab::cluster::NETWORK;
use lab::kubelet::{KubeletRequest, PodReport, PodState};
use lab::ping::{self, Outcome};
use lab::wait_for;
use model::{DeviceName, HandleId, KeyRange, Kind, Sandbox, is_detached};
use plan::{Attachment, NodeDesired, PodWiring, node_differences};
use serde_json::Value;

use crate::others;
use crate::scene::{NODE, Scene};

/// As the lab's network configuration says.
const MTU: u32 = 1450;
const INTERFACE: &str = "eth0";
/// Of the node itself.
const OWN_DEVICES: [&str; 2] = ["lo", "eth0"];

/// Everything is in order now, or comes to be by itself.
pub(crate) fn hold(scene: &Scene) -> Result<()> {
    pods_are_reachable(scene)?;
    wait_for("the invariants to hold", || {
        let pods = living(scene)?;
        books_agree(scene, &[])?;
        records_are_of(scene, &pods)?;
        kernel_agrees(scene, &pods)
    })?;
    // Whatever was put right meanwhile, the pods must not have suffered.
    pods_are_reachable(scene)?;
    scene.lab.kubelet(NODE, &KubeletRequest::Check).context("CHECK").map(|_| ())
}

/// At any time, also when everybody is dead: commits are whole. `lost` are containers that the runtime forgot, and
/// whose addresses nobody uses until they are collected.
pub(crate) fn books_agree_after_a_death(scene: &Scene, lost: &[String]) -> Result<()> {
    match scene.is_on_kubernetes() {
        // Between two steps of a commit the records need not agree, and are recovered. Each can be read.
        true => {
            let unreadable = facts(scene)?.books.unreadable;
            ensure!(unreadable.is_empty(), "nobody can read {unreadable:?}");
            Ok(())
        }
        false => books_agree(scene, lost),
    }
}

fn books_agree(scene: &Scene, lost: &[String]) -> Result<()> {
    let facts = facts(scene)?;
    let now = jiff::Timestamp::now();
    let Facts { books, pools, nodes, endpoints } = &facts;
    let analysis = analyse(&Evidence { books, pools, nodes, endpoints, services: &[], now });
    let is_lost = |handle: &Option<HandleId>| {
        let handle = handle.as_ref().map_or("", HandleId::as_str);
        is_of_node(handle) || lost.iter().any(|id| handle.ends_with(id.as_str()))
    };
    let expected = |problem: &&Problem| matches!(problem, Problem::Leaked { handle, .. } if is_lost(handle));
    let problems: Vec<&Problem> = analysis.problems.iter().filter(|problem| !expected(problem)).collect();
    ensure!(problems.is_empty(), "the books disagree: {problems:?}");
    let held: BTreeSet<IpAddr> = analysis.allocations.iter().map(|allocated| allocated.address).collect();
    ensure!(held.len() == analysis.allocations.len(), "an address is held twice");
    Ok(())
}

fn facts(scene: &Scene) -> Result<Facts> {
    scene.with_store(async |store| Ok(load::facts(store, &Progress::default()).await?))
}

/// Those who must have a network, and nobody else must.
fn living(scene: &Scene) -> Result<Vec<PodReport>> {
    let mut pods = scene.lab.pods(NODE)?;
    ensure!(pods.iter().all(|pod| pod.state == PodState::Running), "not all pods are at rest: {pods:?}");
    pods.extend(scene.own.iter().cloned());
    Ok(pods)
}

fn pods_are_reachable(scene: &Scene) -> Result<()> {
    let trips = ping::all(&scene.lab)?;
    let lost: Vec<_> = trips.iter().filter(|trip| trip.outcome != Outcome::Answered).collect();
    ensure!(lost.is_empty(), "nobody answers: {lost:?}");
    Ok(())
}

fn records_are_of(scene: &Scene, pods: &[PodReport]) -> Result<()> {
    let facts = facts(scene)?;
    let mut expected = BTreeMap::new();
    for pod in pods {
        expected.insert(sandbox(pod)?.handle(), addresses(pod)?);
    }
    let mut held: BTreeMap<HandleId, BTreeSet<IpAddr>> = BTreeMap::new();
    for block in facts.books.blocks.values().map(|stored| &stored.value) {
        for ordinal in 0..block.capacity() {
            let Some(attribute) = block.attribute(ordinal) else { continue };
            let address = block.address(ordinal).context("an allocation has an address")?;
            let holder = attribute.handle().cloned().unwrap_or_default();
            if !is_of_node(holder.as_str()) {
                held.entry(holder).or_default().insert(address);
            }
        }
    }
    ensure!(held == expected, "addresses are held by {held:?}, and should be by {expected:?}");
    let handles: BTreeSet<&HandleId> =
        facts.books.handles.keys().filter(|id| !is_of_node(id.as_str())).collect();
    ensure!(handles.iter().eq(&expected.keys().collect::<Vec<_>>()), "handles: {handles:?}");
    endpoints_are_of(scene, pods)?;
    files_are_of(scene, pods)
}

/// The node's own address in another plugin's network stays as long as the block does. No record says who uses it.
fn is_of_node(handle: &str) -> bool {
    handle == format!("gateway-{}-{NODE}", others::NETWORK)
}

fn endpoints_are_of(scene: &Scene, pods: &[PodReport]) -> Result<()> {
    let records = scene
        .with_store(async |store| Ok(store.list_all(KeyRange::Kind(Kind::WorkloadEndpoint)).await?.0))?;
    let mut found = BTreeSet::new();
    // A pod that is not attached any more shows what its status still says.
    for record in records.into_iter().filter(|record| !is_detached(&record.value)) {
        let document: Value = serde_json::from_slice(&record.value)?;
        let spec = &document["spec"];
        let text = |key: &str| spec[key].as_str().unwrap_or_default().to_owned();
        found.insert((text("containerID"), text("interfaceName"), spec["ipNetworks"].to_string()));
    }
    let mut expected = BTreeSet::new();
    for pod in pods {
        let networks: Vec<String> = pod.addresses.iter().map(|address| network(address)).collect();
        expected.insert((pod.container_id.clone(), pod.device.clone(), serde_json::to_string(&networks)?));
    }
    ensure!(found == expected, "endpoints: {found:?}, and should be {expected:?}");
    Ok(())
}

fn network(address: &str) -> String {
    format!("{address}/{}", if address.contains(':') { 128 } else { 32 })
}

/// Journal, queue, and the namespaces that the runtime has made.
fn files_are_of(scene: &Scene, pods: &[PodReport]) -> Result<()> {
    let root = scene.root()?;
    let queue = names(&root.join("var/lib/plumb/queue"));
    ensure!(queue.is_empty(), "in the queue: {queue:?}");
    let journal = names(&root.join("var/lib/plumb/attachments"));
    let journalled = |pod: &PodReport| format!("{NETWORK}@{}@{INTERFACE}.json", pod.container_id);
    let expected: BTreeSet<String> = match scene.lab.description().has_agents {
        true => pods.iter().map(journalled).collect(),
        false => BTreeSet::new(),
    };
    ensure!(journal == expected, "in the journal: {journal:?}, and should be {expected:?}");
    let namespaces = names(&root.join("run/netns"));
    ensure!(namespaces.len() == pods.len() + scene.idle.len(), "namespaces: {namespaces:?}");
    for namespace in &scene.idle {
        let inside = scene.lab.run_on(NODE, &["ip", "-n", namespace, "-br", "link"])?;
        ensure!(inside.lines().count() == 1, "in {namespace}, besides its loopback: {inside}");
    }
    Ok(())
}

fn names(folder: &Path) -> BTreeSet<String> {
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
    entries.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect()
}

/// One device per sandbox with its routes, neighbours and settings on both ends; nothing of ours besides.
fn kernel_agrees(scene: &Scene, pods: &[PodReport]) -> Result<()> {
    let root = scene.root()?;
    scene.on_node(|| {
        let mut host = Host::here()?;
        let facts = host.facts()?;
        let mut desired = NodeDesired::default();
        for pod in pods {
            let wiring = PodWiring::new(&attachment(pod)?, &facts)?;
            let path = root.join(pod.netns.trim_start_matches('/'));
            let mut inside = PodNamespace::open(&path)?;
            let differences = host.check(&mut inside, &wiring)?;
            ensure!(differences.is_empty(), "{}: {differences:?}", pod.key());
            desired.insert(wiring);
        }
        let observed = host.observe_node()?;
        let differences = node_differences(&desired, &observed);
        ensure!(differences.is_empty(), "on the node: {differences:?}");
        let is_known = |name: &str| OWN_DEVICES.contains(&name) || pods.iter().any(|pod| pod.device == name);
        let devices: Vec<&String> =
            observed.links.iter().map(|link| &link.name).filter(|name| !is_known(name)).collect();
        ensure!(devices.is_empty(), "nobody's devices: {devices:?}");
        Ok(())
    })?
}

fn sandbox(pod: &PodReport) -> Result<Sandbox> {
    Ok(Sandbox::new(NETWORK, &pod.container_id, INTERFACE)?)
}

fn addresses(pod: &PodReport) -> Result<BTreeSet<IpAddr>> {
    pod.addresses.iter().map(|text| Ok(text.parse()?)).collect()
}

fn attachment(pod: &PodReport) -> Result<Attachment> {
    let sandbox = sandbox(pod)?;
    Ok(Attachment {
        device: DeviceName::new(&pod.device)?,
        mac: sandbox.mac(),
        sandbox,
        mtu: MTU,
        addresses: addresses(pod)?.into_iter().collect(),
        pod_forwards: false,
    })
}
