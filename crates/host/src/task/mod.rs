//! Runs the tasks of a repair on a node ([`plan::task`]): look, change, look again.
//!
//! What is as wanted already is left alone, and so is what is not as the plan found it. Nothing is remembered in between, so the
//! same task may be asked for twice.

mod behind;
mod place;
mod route;
mod tunnel;
mod veth;
mod wire;

use std::path::PathBuf;

use model::DeviceName;
use plan::Maker;
use plan::task::{KernelChange, RepairTask, TaskOutcome};

use crate::{Host, HostError};
use place::Place;

/// What is known of the node besides its kernel, at this moment.
#[derive(Clone, Debug, Default)]
pub struct TaskContext {
    pub maker: Maker,
    /// `None`: the runtime could not be asked, so that nobody is known to be gone.
    pub ready: Option<Vec<ReadySandbox>>,
}

/// A sandbox that the runtime lists as ready.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReadySandbox {
    pub container_id: String,
    /// `None`: the runtime does not tell, or it is the node's own.
    pub netns: Option<PathBuf>,
}

/// What takes it back, if something can; or why nothing was done.
type Outcome = Result<Option<KernelChange>, NotDone>;

#[derive(Debug)]
enum NotDone {
    Already,
    Surprise(String),
    /// The kernel accepted it, and holds something else.
    NotHeld(String),
    Failed(HostError),
}

impl From<HostError> for NotDone {
    fn from(error: HostError) -> NotDone {
        NotDone::Failed(error)
    }
}

fn surprise<T>(said: impl Into<String>) -> Result<T, NotDone> {
    Err(NotDone::Surprise(said.into()))
}

impl Host {
    /// Runs one task, or says why not.
    pub fn run_task(&mut self, task: &RepairTask, context: &TaskContext) -> TaskOutcome {
        match self.try_task(task, context) {
            Ok(undo) => {
                let inside = task.inside.clone();
                TaskOutcome::Done { undo: undo.map(|change| Box::new(RepairTask { inside, change })) }
            }
            Err(NotDone::Already) => TaskOutcome::Already,
            Err(NotDone::Surprise(said)) => TaskOutcome::Surprise { said },
            Err(NotDone::NotHeld(said)) => TaskOutcome::Failed { said },
            Err(NotDone::Failed(error)) => TaskOutcome::Failed { said: model::text::on_one_line(&error) },
        }
    }

    fn try_task(&mut self, task: &RepairTask, context: &TaskContext) -> Outcome {
        match (&task.change, &task.inside) {
            (KernelChange::Device { device, from, to }, None) => {
                self.change_veth(&known(device)?, from.as_ref(), to.as_ref(), context)
            }
            (KernelChange::Wire(wire), None) => self.wire(wire, context),
            (KernelChange::Unwire(wire), None) => self.unwire(wire, context),
            (KernelChange::Tunnel { device, from, to }, None) => {
                self.change_tunnel(device, from.as_ref(), to.as_ref())
            }
            (
                KernelChange::Device { .. }
                | KernelChange::Wire(_)
                | KernelChange::Unwire(_)
                | KernelChange::Tunnel { .. },
                Some(_),
            ) => surprise("that is done on the node, not inside a sandbox"),
            (change, None) => Place::Node(&mut self.netlink).change(change, context.maker),
            (change, Some(id)) => {
                let mut pod = self.open_pod(&context.namespace_of(id)?)?;
                Place::Pod(&mut pod).change(change, context.maker)
            }
        }
    }
}

impl TaskContext {
    /// Where a sandbox lives that the runtime vouches for.
    fn namespace_of(&self, container_id: &str) -> Result<PathBuf, NotDone> {
        let Some(ready) = &self.ready else {
            return surprise(format!("the runtime cannot be asked about sandbox {container_id}"));
        };
        match ready.iter().find(|sandbox| sandbox.container_id == container_id) {
            None => surprise(format!("the runtime does not list sandbox {container_id} as ready")),
            Some(ReadySandbox { netns: Some(netns), .. }) => Ok(netns.clone()),
            Some(ReadySandbox { netns: None, .. }) => {
                surprise(format!("the runtime does not tell where sandbox {container_id} lives"))
            }
        }
    }
}

fn known(device: &str) -> Result<DeviceName, NotDone> {
    DeviceName::new(device).or_else(|error| surprise(error.to_string()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sandbox_is_where_the_runtime_says() {
        let sandbox = |id: &str, netns: Option<&str>| ReadySandbox {
            container_id: id.to_owned(),
            netns: netns.map(PathBuf::from),
        };
        let mut context = TaskContext {
            ready: Some(vec![sandbox("c1", Some("/run/netns/c1")), sandbox("c2", None)]),
            ..TaskContext::default()
        };
        assert_eq!(context.namespace_of("c1").unwrap(), PathBuf::from("/run/netns/c1"));
        assert!(matches!(context.namespace_of("c2"), Err(NotDone::Surprise(_))));
        assert!(matches!(context.namespace_of("c3"), Err(NotDone::Surprise(_))));
        context.ready = None;
        assert!(matches!(context.namespace_of("c1"), Err(NotDone::Surprise(_))));
    }
}
