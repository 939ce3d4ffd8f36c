//! `plumb node status NODE`: what the node's agent wrote into `CalicoNodeStatus` records. Needs the store, and nothing on the node.

use std::io::{self, Write as _};

use model::{Key, KeyRange, Kind, Resource, ShellCommand};
use serde_json::{Value, json};
use store::{Store, StoreError};

use super::tables::{self, Peer};
use crate::cli::Global;
use crate::connect;
use crate::failure::{Failure, Failures};
use crate::records;

pub(super) async fn run(global: &Global, node: &str, period: Option<u32>) -> Result<(), Failures> {
    let store = match period {
        Some(_) => connect::open_for_changing(global).await?,
        None => connect::open_for_reading(global).await?,
    };
    if store.get(&Key::cluster(Kind::Node, node)).await.map_err(Failure::from)?.is_none() {
        return Err(Failure::new(format!("node {node} does not exist"))
            .hint("plumb get nodes lists them")
            .into());
    }
    let known = about(&*store, node).await?;
    match (known.is_empty(), period) {
        (true, Some(period)) => make(&*store, node, period).await.map_err(Failures::from),
        (true, None) => Err(Failure::new(format!("node {node} has no CalicoNodeStatus record"))
            .hint(format!(
                "create one that its agent updates every 10 seconds: {}",
                ShellCommand::new("plumb node status --watch-period 10").value(node)
            ))
            .into()),
        (false, _) => show(node, &known),
    }
}

/// Every record about this node, the one that was written last first.
async fn about(store: &dyn Store, node: &str) -> Result<Vec<Resource>, Failure> {
    let (records, _) = store.list_all(KeyRange::Kind(Kind::CalicoNodeStatus)).await?;
    let mut found: Vec<Resource> = records.iter().map(records::to_resource).collect::<Result<_, _>>()?;
    found.retain(|resource| resource.spec("node").and_then(Value::as_str) == Some(node));
    found.sort_by_key(|resource| std::cmp::Reverse(updated(resource)));
    Ok(found)
}

fn status<'r>(resource: &'r Resource, class: &str) -> Option<&'r Value> {
    resource.body.get("status")?.get(class)
}

fn updated(resource: &Resource) -> Option<String> {
    status(resource, "lastUpdated")?.as_str().map(str::to_owned)
}

async fn make(store: &dyn Store, node: &str, period: u32) -> Result<(), Failure> {
    let mut resource = Resource::new(Kind::CalicoNodeStatus, node);
    let spec = json!({"node": node, "classes": ["Agent", "BGP", "Routes"], "updatePeriodSeconds": period});
    resource.body.insert("spec".to_owned(), spec);
    match store.create(resource.key(), resource.encode()).await {
        Ok(_) => {
            eprintln!("created {}; the agent of {node} updates it within a few seconds", resource.key());
            Ok(())
        }
        Err(StoreError::AlreadyExists { .. }) => {
            let message =
                format!("a CalicoNodeStatus named {node} already exists, but it is about another node");
            Err(Failure::new(message))
        }
        Err(error) => Err(error.into()),
    }
}

fn show(node: &str, known: &[Resource]) -> Result<(), Failures> {
    let of = |class: &str| known.iter().find_map(|resource| status(resource, class));
    let Some(last) = known.iter().find_map(updated) else {
        return Err(Failure::new(format!("the agent of {node} has not reported its status yet"))
            .hint("it reports within a few seconds if it runs and supports CalicoNodeStatus")
            .into());
    };
    let mut out = io::stdout().lock();
    let text = |value: Option<&Value>| value.and_then(Value::as_str).unwrap_or("-").to_owned();
    let mut facts = vec![("Node", node.to_owned()), ("Reported at", last)];
    if let Some(agent) = of("agent") {
        let bird = agent.get("birdV4").unwrap_or(&Value::Null);
        let words = format!(
            "{}, version {}, router ID {}",
            text(bird.get("state")),
            text(bird.get("version")),
            text(bird.get("routerID"))
        );
        facts.push(("BIRD", words));
    }
    if let Some(routes) = of("routes") {
        let count = |list: &str| routes.get(list).and_then(Value::as_array).map_or(0, Vec::len);
        facts.push(("Routes", format!("{} of IPv4, {} of IPv6", count("routesV4"), count("routesV6"))));
    }
    tables::write_facts(&mut out, &facts)?;
    let peers: Vec<Peer> = of("bgp").map(peers).unwrap_or_default();
    tables::write(&mut out, &peers)?;
    out.flush()?;
    let down = peers.iter().filter(|peer| peer.cells[4] != "Established").count();
    match down {
        0 => Ok(()),
        down => Err(Failure::new(format!("{down} of {} sessions of {node} are down", peers.len())).into()),
    }
}

fn peers(bgp: &Value) -> Vec<Peer> {
    let of_list = |(list, is_ipv4): (&str, bool)| -> Vec<Peer> {
        let entries = bgp.get(list).and_then(Value::as_array).into_iter().flatten();
        entries.map(|entry| peer(entry, is_ipv4)).collect()
    };
    [("peersV4", true), ("peersV6", false)].into_iter().flat_map(of_list).collect()
}

fn peer(entry: &Value, is_ipv4: bool) -> Peer {
    let text = |field: &str| entry.get(field).and_then(Value::as_str).unwrap_or_default().to_owned();
    let kind = match text("type").as_str() {
        "NodeMesh" => "node-to-node mesh",
        "NodePeer" => "node specific",
        "GlobalPeer" => "global",
        _ => "unknown",
    };
    let state = if text("state") == "Established" { "up" } else { "start" };
    Peer { is_ipv4, cells: [text("peerIP"), kind.to_owned(), state.to_owned(), text("since"), text("state")] }
}
