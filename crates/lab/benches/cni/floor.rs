//! What cannot be avoided: the kernel's own work for one pod, the start of a small process, one durable commit.

use std::time::{Duration, Instant};

use anyhow::Result;
use host::{Host, PodNamespace};
use lab::{Lab, Node, Pod};
use model::{DeviceName, Sandbox};
use plan::{Attachment, PodWiring};
use serde_json::json;
use testkit::figures::Run;

use crate::place::Place;
use crate::plugin::{self, Plugin};
use crate::rounds::await_removal;

/// Runs of each, and the times of the run under way.
#[derive(Debug, Default)]
pub(crate) struct Times {
    pub(crate) runs: Vec<Run>,
    of_run: Vec<Duration>,
}

impl Times {
    fn end_run(&mut self) {
        self.runs.push(Run::new(std::mem::take(&mut self.of_run)));
    }
}

#[derive(Debug)]
pub(crate) struct Floor {
    node: Node,
    sqlite: Place,
    pub(crate) kernel: Times,
    pub(crate) starts: Times,
    pub(crate) sqlite_commits: Times,
    pub(crate) etcd_commits: Times,
}

impl Floor {
    pub(crate) fn new(lab: &Lab) -> Result<Floor> {
        Ok(Floor {
            node: lab.node("floor")?,
            sqlite: Place::Sqlite(lab.folder().join("commits.db")),
            kernel: Times::default(),
            starts: Times::default(),
            sqlite_commits: Times::default(),
            etcd_commits: Times::default(),
        })
    }

    /// Some of each. `etcd` is a store and the node on which it can be reached.
    pub(crate) fn measure(&mut self, lab: &Lab, count: usize, etcd: (&Place, &Node)) -> Result<()> {
        let kernel = self.node.namespace().visit(|| wire_pods(lab, count))??;
        self.kernel.of_run.extend(kernel);
        let version = Plugin::new(plugin::released()?, json!({"cniVersion": "1.0.0"}));
        let pod = lab.pod("bench", "version")?;
        for _ in 0..count {
            self.starts.of_run.push(version.call("VERSION", &pod)?);
        }
        self.sqlite_commits.of_run.extend(self.sqlite.commit_times(count)?);
        let (place, node) = etcd;
        self.etcd_commits.of_run.extend(node.namespace().visit(|| place.commit_times(count))??);
        Ok(())
    }

    pub(crate) fn end_run(&mut self) {
        let all = [&mut self.kernel, &mut self.starts, &mut self.sqlite_commits, &mut self.etcd_commits];
        all.into_iter().for_each(Times::end_run);
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
        host.wire_unchecked(&mut namespace, &wiring)?;
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
        pod_routes: Vec::new(),
        sandbox,
    })
}
