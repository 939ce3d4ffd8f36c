//! What cannot be avoided: the kernel's own work for one pod, the start of a small process, one durable commit.

use std::time::{Duration, Instant};

use anyhow::Result;
use host::{Host, PodNamespace};
use lab::{Lab, Node, Pod};
use model::{DeviceName, Sandbox};
use plan::{Attachment, PodWiring};
use serde_json::json;
use testkit::figures::Run;

use crate::Extent;
use crate::place::Place;
use crate::plugin::{self, Plugin};
use crate::rounds::await_removal;

#[derive(Debug)]
pub(crate) struct Floor {
    node: Node,
    sqlite: Place,
    pub(crate) kernel: Vec<Run>,
    pub(crate) starts: Vec<Run>,
    pub(crate) sqlite_commits: Vec<Run>,
    pub(crate) etcd_commits: Vec<Run>,
}

impl Floor {
    pub(crate) fn new(lab: &Lab) -> Result<Floor> {
        Ok(Floor {
            node: lab.node("floor")?,
            sqlite: Place::Sqlite(lab.folder().join("commits.db")),
            kernel: Vec::new(),
            starts: Vec::new(),
            sqlite_commits: Vec::new(),
            etcd_commits: Vec::new(),
        })
    }

    /// One run. `etcd` is a store and the node on which it can be reached.
    pub(crate) fn measure(&mut self, lab: &Lab, extent: Extent, etcd: (&Place, &Node)) -> Result<()> {
        let count = extent.singles;
        let kernel = self.node.namespace().visit(|| wire_pods(lab, count))??;
        self.kernel.push(Run::new(kernel));
        let version = Plugin::new(plugin::released(lab.programs())?, json!({"cniVersion": "1.0.0"}));
        let pod = lab.pod("bench", "version")?;
        let starts: Result<Vec<Duration>> = (0..count).map(|_| version.call("VERSION", &pod)).collect();
        self.starts.push(Run::new(starts?));
        self.sqlite_commits.push(Run::new(self.sqlite.commit_times(count)?));
        let (place, node) = etcd;
        self.etcd_commits.push(Run::new(node.namespace().visit(|| place.commit_times(count))??));
        Ok(())
    }
}

/// The same kernel objects as an ADD makes, in one go and without any look.
fn wire_pods(lab: &Lab, count: usize) -> Result<Vec<Duration>> {
    let mut host = Host::here()?;
    let facts = host.facts()?;
    let mut times = Vec::with_capacity(count);
    for number in 0..count {
        let pod = lab.pod("bench", &format!("floor-{number}"))?;
        let attachment = attachment(&pod)?;
        let wiring = PodWiring::new(&attachment, &facts)?;
        let started = Instant::now();
        let mut namespace = PodNamespace::open(pod.netns().path())?;
        host.wire_blindly(&mut namespace, &wiring)?;
        times.push(started.elapsed());
        host.remove_links_of(&attachment.sandbox)?;
        await_removal()?;
    }
    Ok(times)
}

fn attachment(pod: &Pod) -> Result<Attachment> {
    let sandbox = Sandbox::new(Lab::NETWORK, &pod.container_id, &pod.interface)?;
    Ok(Attachment {
        device: DeviceName::of_pod(DeviceName::CALICO_PREFIX, &pod.namespace, &pod.name)?,
        mac: sandbox.mac(),
        mtu: 1450,
        addresses: vec!["10.244.0.5".parse()?],
        pod_forwards: false,
        sandbox,
    })
}
