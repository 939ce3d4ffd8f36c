//! A runtime that lists what it is told, for tests that make their sandboxes themselves.

use std::path::Path;
use std::sync::Arc;

use anyhow::Result;

use super::records::{PodRecord, Records, SandboxRecord, State};
use super::runtime::Runtime;
use super::service;
use crate::Pod;

/// Answers at its socket for as long as the process lives.
#[derive(Debug)]
pub struct Listing {
    runtime: Arc<Runtime>,
}

impl Listing {
    /// `memory` is a file that is its own.
    pub fn serve(socket: &Path, memory: &Path) -> Result<Listing> {
        let runtime = Arc::new(Runtime::new(Records::open(memory, true)?));
        service::serve_in_background(socket, Arc::clone(&runtime))?;
        Ok(Listing { runtime })
    }

    /// The runtime has this sandbox, and it is ready.
    pub fn add(&self, pod: &Pod) -> Result<()> {
        let (namespace, name) = (pod.namespace.clone(), pod.name.clone());
        let record = SandboxRecord {
            id: pod.container_id.clone(),
            pod: PodRecord { namespace, name, ..PodRecord::default() },
            netns: Some(pod.netns().path().display().to_string()),
            state: State::Ready,
            ..SandboxRecord::default()
        };
        self.runtime.records.change(|memory| memory.sandboxes.insert(record.id.clone(), record))?;
        Ok(())
    }

    /// It is not ready any more, but has its namespace still.
    pub fn stop(&self, pod: &Pod) -> Result<()> {
        self.runtime.records.change(|memory| {
            if let Some(sandbox) = memory.sandboxes.get_mut(&pod.container_id) {
                sandbox.state = State::Stopped;
            }
        })
    }

    /// It has it no more.
    pub fn remove(&self, pod: &Pod) -> Result<()> {
        self.runtime.records.change(|memory| memory.sandboxes.remove(&pod.container_id))?;
        Ok(())
    }
}
