//! Steps of `plumb repair` on this node: applied on the kernel thread, so that they take turns with calls and the reconciler, and with their
//! sandbox locked.
//!
//! [`host::Host::run_task`] checks the kernel before it changes it. Here is what the kernel does not show: the runtime's sandboxes, and what the
//! agent reconciles itself.

use std::collections::HashMap;
use std::path::PathBuf;
use std::time::Duration;

use host::cri::{CriError, RuntimeClient, SandboxState};
use host::{ReadySandbox, TaskContext};
use model::AgentMode;
use model::Sandbox;
use plan::Maker;
use plan::task::{KernelChange, PodNetwork, RepairTask, TaskOutcome};
use tracing::{info, warn};

use wire::Reply;

use crate::journal::Entry;
use crate::sandbox_locks::SandboxLock;
use crate::services::Agent;

/// How long to wait for a call that holds the lock of the same sandbox.
const LOCK_TIMEOUT: Duration = Duration::from_secs(10);

/// One outcome for each task, in their order, as JSON; or why none was applied.
pub(crate) async fn answer(tasks: &[RepairTask], agent: &Agent) -> Reply {
    if !agent.mode.can_repair() {
        warn!(steps = tasks.len(), "refused a repair, because this agent only observes");
        return Reply::failure(
            "the agent of this node only observes; start it with --repair to let it repair",
        );
    }
    if tasks.len() > gather::agent::WORKS_MAX {
        let text = format!(
            "{} steps are too many for one request, the limit is {}",
            tasks.len(),
            gather::agent::WORKS_MAX
        );
        return Reply::failure(text);
    }
    let mut repair = Repair { agent, namespaces: HashMap::new() };
    let mut done = Vec::new();
    for task in tasks {
        let outcome = repair.run(task).await;
        report(task, &outcome, agent);
        done.push(outcome);
    }
    match serde_json::to_string(&done) {
        Ok(text) => Reply::success(text),
        Err(error) => Reply::failure(format!("cannot encode the outcome: {error}")),
    }
}

fn report(task: &RepairTask, outcome: &TaskOutcome, agent: &Agent) {
    let label = match outcome {
        TaskOutcome::Done { .. } => {
            info!(step = %task, "repair: applied");
            "done"
        }
        TaskOutcome::Already => {
            info!(step = %task, "repair: already in place");
            "already"
        }
        TaskOutcome::Surprise { said } => {
            warn!(step = %task, found = said, "repair: skipped, because the node is not as the plan expects");
            "surprise"
        }
        TaskOutcome::Failed { said } => {
            warn!(step = %task, error = said, "repair: failed");
            "failed"
        }
    };
    agent.metrics().repairs.count(label);
}

struct Repair<'a> {
    agent: &'a Agent,
    /// The sandboxes' namespaces, from the runtime. They do not change.
    namespaces: HashMap<String, Option<PathBuf>>,
}

impl<'a> Repair<'a> {
    async fn run(&mut self, task: &RepairTask) -> TaskOutcome {
        let sandbox = self.sandbox_of(task);
        let _locked = match self.lock(sandbox.as_ref()).await {
            Ok(locked) => locked,
            Err(busy) => return busy,
        };
        if let Some(said) = self.contradiction(&task.change) {
            return TaskOutcome::Surprise { said };
        }
        let context = self.context(task).await;
        let asked = task.clone();
        let done = self.agent.in_kernel(move |host| Ok(host.run_task(&asked, &context))).await;
        let done = done.unwrap_or_else(|error| TaskOutcome::Failed { said: error.to_string() });
        // Only an agent that acts would recreate the device at its next observation.
        if let (KernelChange::Unwire(_), TaskOutcome::Done { .. }, Some(sandbox)) =
            (&task.change, &done, &sandbox)
            && self.agent.mode == AgentMode::Acts
            && let Err(error) = self.agent.forget(sandbox)
        {
            return TaskOutcome::Failed { said: error.to_string() };
        }
        done
    }

    /// The sandbox to lock.
    fn sandbox_of(&self, task: &RepairTask) -> Option<Sandbox> {
        match (&task.change, &task.inside) {
            (KernelChange::Wire(wire) | KernelChange::Unwire(wire), _) => {
                Sandbox::new(&wire.network, &wire.container_id, &wire.interface).ok()
            }
            (KernelChange::Device { from: Some(veth), .. }, _) => Sandbox::from_alias(veth.alias.as_deref()?),
            (_, Some(id)) => self.entry(|entry| entry.attachment.sandbox.container_id() == id).map(sandbox),
            (_, None) => None,
        }
    }

    async fn lock(&self, sandbox: Option<&Sandbox>) -> Result<Option<SandboxLock<'a>>, TaskOutcome> {
        let Some(sandbox) = sandbox else { return Ok(None) };
        let agent: &'a Agent = self.agent;
        match tokio::time::timeout(LOCK_TIMEOUT, agent.locks.acquire(sandbox)).await {
            Ok(locked) => Ok(Some(locked)),
            Err(_) => Err(TaskOutcome::Surprise { said: format!("a CNI call for {sandbox} is in progress") }),
        }
    }

    /// The agent would undo or redo what it reconciles itself.
    fn contradiction(&self, change: &KernelChange) -> Option<String> {
        match change {
            KernelChange::Device { device, to: None, .. } => {
                let kept = self.entry(|entry| entry.attachment.device.as_str() == device)?;
                Some(format!("the agent keeps {device} in place for {}", sandbox(kept)))
            }
            KernelChange::Wire(wire) | KernelChange::Unwire(wire) => {
                let kept = self.entry(|entry| is_of(entry, wire))?.attachment;
                let is_same = kept.device.as_str() == wire.device && kept.addresses == wire.addresses;
                let addresses: Vec<String> = kept.addresses.iter().map(ToString::to_string).collect();
                (!is_same).then(|| {
                    format!(
                        "the journal has {} with device {} and addresses {}",
                        kept.sandbox,
                        kept.device,
                        addresses.join(", ")
                    )
                })
            }
            _ => None,
        }
    }

    fn entry(&self, is_it: impl Fn(&Entry) -> bool) -> Option<Entry> {
        self.agent.journal.all().into_iter().find(is_it)
    }

    /// Asked again for each task: a sandbox may have come or gone since.
    async fn context(&mut self, task: &RepairTask) -> TaskContext {
        let maker = if self.agent.mode == AgentMode::Acts { Maker::Ours } else { Maker::Calico };
        let wanted = match (&task.change, &task.inside) {
            (_, Some(id)) => Wanted::One(id),
            (KernelChange::Wire(wire) | KernelChange::Unwire(wire), None) => Wanted::One(&wire.container_id),
            (KernelChange::Device { to: None, .. }, None) => Wanted::All,
            (_, None) => return TaskContext { maker, ready: None },
        };
        let ready = self.ready(wanted).await;
        let ready = ready.inspect_err(|error| warn!(%error, "the container runtime did not answer"));
        TaskContext { maker, ready: ready.ok().flatten() }
    }

    /// `None` if there is no runtime.
    async fn ready(&mut self, wanted: Wanted<'_>) -> Result<Option<Vec<ReadySandbox>>, CriError> {
        let Some(runtime) = self.agent.runtime.client() else { return Ok(None) };
        let mut ready = Vec::new();
        for sandbox in runtime.sandboxes().await?.iter() {
            if sandbox.state != SandboxState::Ready {
                continue;
            }
            let is_wanted = match wanted {
                Wanted::All => true,
                Wanted::One(id) => sandbox.id == id,
            };
            let netns = if is_wanted { self.namespace_of(&runtime, &sandbox.id).await? } else { None };
            ready.push(ReadySandbox { container_id: sandbox.id.clone(), netns });
        }
        Ok(Some(ready))
    }

    async fn namespace_of(&mut self, runtime: &RuntimeClient, id: &str) -> Result<Option<PathBuf>, CriError> {
        if let Some(known) = self.namespaces.get(id) {
            return Ok(known.clone());
        }
        let reported = match runtime.namespace_of(id).await {
            // Gone since it was listed.
            Err(CriError::Refused { .. }) => None,
            reported => reported?,
        };
        let recorded =
            || self.entry(|entry| entry.attachment.sandbox.container_id() == id).map(|entry| entry.netns);
        let netns = reported.or_else(recorded).filter(|path| !path.as_os_str().is_empty());
        self.namespaces.insert(id.to_owned(), netns.clone());
        Ok(netns)
    }
}

/// The sandboxes whose namespaces a task needs.
#[derive(Clone, Copy)]
enum Wanted<'a> {
    All,
    One(&'a str),
}

fn sandbox(entry: Entry) -> Sandbox {
    entry.attachment.sandbox
}

fn is_of(entry: &Entry, wire: &PodNetwork) -> bool {
    let sandbox = &entry.attachment.sandbox;
    (sandbox.network(), sandbox.container_id(), sandbox.interface())
        == (wire.network.as_str(), wire.container_id.as_str(), wire.interface.as_str())
}
