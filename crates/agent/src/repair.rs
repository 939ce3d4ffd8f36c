//! What `plumb repair` asks for on this node: carried out on the thread that does all kernel work, so that calls and looks take turns
//! with it, and inside the fence of the sandbox that it is about.
//!
//! The kernel's side ([`host::Host::carry_out`]) looks before it acts. Here is what it cannot know: which sandboxes the runtime has, and what
//! the agent keeps up by itself.

use std::collections::HashMap;
use std::path::PathBuf;
use std::time::Duration;

use doctor::evidence::node::AgentMode;
use host::cri::{CriError, RuntimeClient, SandboxState};
use host::{Around, Maker, ReadySandbox};
use model::Sandbox;
use plan::work::{Act, NodeWork, Wire, WorkDone};
use tracing::{info, warn};

use crate::cni::{Agent, Answer, Services};
use crate::fence::Fenced;
use crate::journal::Entry;

/// How long to wait for a call that is at work on the same sandbox.
const FENCE_WAIT: Duration = Duration::from_secs(10);

/// One outcome for each work, in their order, as JSON; or why none is carried out.
pub(crate) async fn answer(works: &[NodeWork], services: &Services) -> Answer {
    let Some(agent) = services.agent().filter(|agent| agent.mode.can_repair()) else {
        warn!("a repair of {} steps was asked for and refused: this agent only observes", works.len());
        let text = "the agent of this node only observes; it repairs if it is started with --repair, too";
        return Answer { success: false, text: text.to_owned() };
    };
    if works.len() > gather::agent::WORKS_MAX {
        let text =
            format!("{} steps at once are too many: {} at most", works.len(), gather::agent::WORKS_MAX);
        return Answer { success: false, text };
    }
    let mut repair = Repair { services, agent, namespaces: HashMap::new() };
    let mut done = Vec::new();
    for work in works {
        let outcome = repair.carry_out(work).await;
        tell(work, &outcome, services);
        done.push(outcome);
    }
    match serde_json::to_string(&done) {
        Ok(text) => Answer { success: true, text },
        Err(error) => Answer { success: false, text: format!("the outcome cannot be written: {error}") },
    }
}

fn tell(work: &NodeWork, outcome: &WorkDone, services: &Services) {
    let word = match outcome {
        WorkDone::Done { .. } => {
            info!("repair: {work}: done");
            "done"
        }
        WorkDone::Already => {
            info!("repair: {work}: it was so already");
            "already"
        }
        WorkDone::Surprise { said } => {
            warn!("repair: {work}: left alone, because it is not as the plan says: {said}");
            "surprise"
        }
        WorkDone::Failed { said } => {
            warn!("repair: {work}: failed: {said}");
            "failed"
        }
    };
    services.metrics().repairs.count(word);
}

struct Repair<'a> {
    services: &'a Services,
    agent: &'a Agent,
    /// Where sandboxes live, as the runtime told. That does not change.
    namespaces: HashMap<String, Option<PathBuf>>,
}

impl<'a> Repair<'a> {
    async fn carry_out(&mut self, work: &NodeWork) -> WorkDone {
        let sandbox = self.sandbox_of(work);
        let _fenced = match self.enter(sandbox.as_ref()).await {
            Ok(fenced) => fenced,
            Err(busy) => return busy,
        };
        if let Some(said) = self.contradiction(&work.act) {
            return WorkDone::Surprise { said };
        }
        let around = self.around(work).await;
        let asked = work.clone();
        let done = self.services.in_kernel(move |host| Ok(host.carry_out(&asked, &around))).await;
        let done = done.unwrap_or_else(|error| WorkDone::Failed { said: error.to_string() });
        // An agent that does not act makes nothing anew: what it knows of the sandbox stays true.
        if let (Act::Unwire(_), WorkDone::Done { .. }, Some(sandbox)) = (&work.act, &done, &sandbox)
            && self.agent.mode == AgentMode::Acts
            && let Err(error) = self.services.forget(sandbox)
        {
            // Then the agent makes it anew at its next look.
            return WorkDone::Failed { said: error.to_string() };
        }
        done
    }

    /// Whose fence to enter.
    fn sandbox_of(&self, work: &NodeWork) -> Option<Sandbox> {
        match (&work.act, &work.inside) {
            (Act::Wire(wire) | Act::Unwire(wire), _) => {
                Sandbox::new(&wire.network, &wire.container_id, &wire.interface).ok()
            }
            (Act::Device { from: Some(veth), .. }, _) => Sandbox::from_alias(veth.alias.as_deref()?),
            (_, Some(id)) => self.entry(|entry| entry.attachment.sandbox.container_id() == id).map(sandbox),
            (_, None) => None,
        }
    }

    async fn enter(&self, sandbox: Option<&Sandbox>) -> Result<Option<Fenced<'a>>, WorkDone> {
        let Some(sandbox) = sandbox else { return Ok(None) };
        let entering = self.services.fences().enter(sandbox);
        match tokio::time::timeout(FENCE_WAIT, entering).await {
            Ok(fenced) => Ok(Some(fenced)),
            Err(_) => Err(WorkDone::Surprise { said: format!("a call is at work on {sandbox}") }),
        }
    }

    /// What the agent keeps up itself, it would undo or redo at its next look.
    fn contradiction(&self, act: &Act) -> Option<String> {
        match act {
            Act::Device { device, to: None, .. } => {
                let kept = self.entry(|entry| entry.attachment.device.as_str() == device)?;
                Some(format!("{device} is kept up by the agent, for {}", sandbox(kept)))
            }
            Act::Wire(wire) | Act::Unwire(wire) => {
                let kept = self.entry(|entry| is_of(entry, wire))?.attachment;
                let is_same = kept.device.as_str() == wire.device && kept.addresses == wire.addresses;
                let addresses: Vec<String> = kept.addresses.iter().map(ToString::to_string).collect();
                (!is_same).then(|| {
                    format!(
                        "the agent keeps {} with {} and {}",
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

    /// Asked anew for each work: a sandbox may have come or gone since.
    async fn around(&mut self, work: &NodeWork) -> Around {
        let maker = if self.agent.mode == AgentMode::Acts { Maker::Ours } else { Maker::Calico };
        let wanted = match (&work.act, &work.inside) {
            (_, Some(id)) => Wanted::One(id),
            (Act::Wire(wire) | Act::Unwire(wire), None) => Wanted::One(&wire.container_id),
            (Act::Device { to: None, .. }, None) => Wanted::All,
            (_, None) => return Around { maker, ready: None },
        };
        let ready = self.ready(wanted).await.inspect_err(|error| warn!("the runtime says nothing: {error}"));
        Around { maker, ready: ready.ok().flatten() }
    }

    /// `None` if there is no runtime to ask.
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
        let told = match runtime.namespace_of(id).await {
            // It is gone since it was listed.
            Err(CriError::Refused { .. }) => None,
            told => told?,
        };
        let noted =
            || self.entry(|entry| entry.attachment.sandbox.container_id() == id).map(|entry| entry.netns);
        let netns = told.or_else(noted).filter(|path| !path.as_os_str().is_empty());
        self.namespaces.insert(id.to_owned(), netns.clone());
        Ok(netns)
    }
}

/// Of which sandboxes it must be known where they live.
#[derive(Clone, Copy)]
enum Wanted<'a> {
    All,
    One(&'a str),
}

fn sandbox(entry: Entry) -> Sandbox {
    entry.attachment.sandbox
}

fn is_of(entry: &Entry, wire: &Wire) -> bool {
    let sandbox = &entry.attachment.sandbox;
    (sandbox.network(), sandbox.container_id(), sandbox.interface())
        == (wire.network.as_str(), wire.container_id.as_str(), wire.interface.as_str())
}
