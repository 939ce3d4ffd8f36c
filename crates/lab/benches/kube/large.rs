//! An agent in a large cluster: what it holds, and what it hears while pods come and go on other nodes.

use std::thread::sleep;
use std::time::{Duration, Instant};

use anyhow::Result;
use lab::{Lab, Node};
use sim::kubernetes::Cluster;
use testkit::effort::resident_bytes;
use testkit::figures::{Figure, Goal};
use testkit::forwarder::Forwarder;

use crate::Extent;
use crate::churn::{self, Churn};
use crate::side::{self, Place, Side};

const PODS_PER_NODE: usize = 30;
/// Beside those of the other nodes, in the same network.
const ADDRESS: &str = "172.16.0.1/12";
/// What a start and a burst leave to do is not meant.
const SETTLE: Duration = Duration::from_secs(45);
/// How long is listened.
const SPAN: Duration = Duration::from_secs(60);
/// Pods that come, and as many that go.
const PER_SECOND: u32 = 20;

pub(crate) fn measure(lab: &Lab, extent: Extent) -> Result<Vec<Figure>> {
    let cluster = Cluster { nodes: extent.nodes, pods_per_node: PODS_PER_NODE };
    let node = lone_node(lab)?;
    eprintln!("measuring: an agent in a cluster of {} nodes and {} pods", cluster.nodes, cluster.pods());
    let (server, wire, kubeconfig, others) = node.namespace().visit(|| -> Result<_> {
        let mut server = Cluster::server()?;
        cluster.write(&mut server)?;
        side::install_access(&server.api())?;
        side::register(&server.api(), node.name(), ADDRESS)?;
        let wire = Forwarder::to(server.port());
        let url = format!("https://127.0.0.1:{}", wire.port());
        let kubeconfig = side::credential(&server, &url, node.name())?;
        let others = churn::others(&server, cluster.nodes)?;
        Ok((server, wire, kubeconfig, others))
    })??;
    let place = Place::Kubernetes { kubeconfig, api: server.api() };
    let before = wire.answered_bytes();
    let side = Side::start(lab, node, place, ADDRESS, extent.plugin(lab)?)?;
    let names: Vec<String> = (0..extent.bursts[1]).map(|number| format!("local-{number}")).collect();
    let pods = side.pods(lab, &names)?;
    side.at_once("ADD", &pods)?;
    sleep(SETTLE);
    let start_mib = mib(wire.answered_bytes() - before);
    let resident = mib(resident_bytes(side.agent.id())?);
    let quiet = heard(&wire);
    let churn = Churn { others, per_second: PER_SECOND };
    let disturbed = side.node.namespace().visit(|| churn.during(&server.api(), || heard(&wire)))??;
    let after = mib(resident_bytes(side.agent.id())?);
    let of = |what: &str| {
        format!("agent with {} pods, {} nodes, {} pods: {what}", pods.len(), cluster.nodes, cluster.pods())
    };
    Ok(vec![
        Figure::new(of("resident memory"), resident, "MiB").wanted(Goal::ValueAtMost(40.0)),
        Figure::new(of("the same after the churn"), after, "MiB"),
        Figure::new(of("received until it was ready"), start_mib, "MiB"),
        Figure::new(of("received without any churn"), quiet, "bytes/min"),
        Figure::new(of(&format!("received while {PER_SECOND} pods/s come and go")), disturbed, "bytes/min"),
    ])
}

/// Bytes per minute.
fn heard(wire: &Forwarder) -> f64 {
    let (started, before) = (Instant::now(), wire.answered_bytes());
    sleep(SPAN);
    (wire.answered_bytes() - before) as f64 / started.elapsed().as_secs_f64() * 60.0
}

fn mib(bytes: u64) -> f64 {
    bytes as f64 / f64::from(1 << 20)
}

/// A node whose card leads nowhere, so that the other nodes can be routed.
fn lone_node(lab: &Lab) -> Result<Node> {
    let node = lab.node("here")?;
    let namespace = node.namespace();
    namespace.ip(&["link", "add", "eth0", "type", "veth", "peer", "name", "wire"])?;
    namespace.ip(&["link", "set", "wire", "up"])?;
    namespace.ip(&["address", "add", ADDRESS, "dev", "eth0"])?;
    namespace.ip(&["link", "set", "eth0", "up"])?;
    Ok(node)
}
