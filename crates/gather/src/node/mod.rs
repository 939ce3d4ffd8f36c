//! One node as it is now: its kernel, its pods from inside, BGP, the runtime, how it is set up.
//!
//! Everything is optional: what cannot be asked is said in words, and the rest is evidence all the same.

mod bird;
mod firewall;
mod kernel;
mod pods;
mod setup;
mod token;

use std::path::PathBuf;

use evidence::node::{AddressChoice, Attachment, Mend, RuntimeSandbox, UnfinishedDel};
use evidence::{Evidence, Origin, Sighted};
use evidence::{NodeEvidence, PodName};
use evidence::{NodeGap, Unseen};
use host::NetNs;
use host::cri::{PodSandbox, RuntimeClient, SandboxState};
use host::survey::Survey;
use jiff::Timestamp;
use model::text::on_one_line;
use model::{AgentMode, NodeName};

pub use bird::sessions_at as bird_sessions;

/// What is known beforehand.
#[derive(Debug, Default)]
pub struct NodeSources {
    /// The name the node registers under.
    pub name: NodeName,
    pub runtime: Option<RuntimeClient>,
    /// The agent's journal, if an agent asks.
    pub attachments: Option<Vec<Attached>>,
    /// What waits in the agent's queue.
    pub unfinished_dels: Option<Vec<UnfinishedDel>>,
    /// Settings of the node's agent, from its environment.
    pub environment: Option<Vec<(String, String)>>,
    /// What the agent that asks may do, and what it put right by itself.
    pub agent_mode: Option<AgentMode>,
    pub mends: Option<Vec<Mend>>,
    /// Why the agent cannot use the store.
    pub store_problem: Option<String>,
    /// What the node's agent says of the node's address.
    pub address_choices: Option<Vec<AddressChoice>>,
    /// Why the agent cannot write its state folder.
    pub state_folder_problem: Option<String>,
    /// Why the agent cannot load its nftables rules.
    pub rules_problem: Option<String>,
    /// Records that the node's agent does not follow, each with the reason.
    pub not_followed: Option<Vec<String>>,
    /// Where this node's BIRD must listen, if one is expected; else the usual places are tried.
    pub bird_socket: Option<PathBuf>,
}

/// An attachment, and where its pod lives; an empty path if that is not known.
#[derive(Clone, Debug)]
pub struct Attached {
    pub attachment: Attachment,
    pub netns: PathBuf,
}

/// Looks at the node that this process runs on.
pub async fn of_node(sources: NodeSources) -> Evidence {
    let taken_at = Timestamp::now();
    let mut look = Look::new(&sources.name);
    look.node.agent_mode = sources.agent_mode;
    look.node.mends = sources.mends;
    let origin = look.from("state folder");
    look.node.state_folder_problem =
        sources.state_folder_problem.map(|problem| Sighted::new(problem, origin));
    let origin = look.from("nftables rules");
    look.node.rules_problem = sources.rules_problem.map(|problem| Sighted::new(problem, origin));
    let namespaces = look.runtime(sources.runtime.as_ref()).await;
    look.journal(sources.attachments, sources.environment);
    look.queue(sources.unfinished_dels);
    look.address(sources.address_choices);
    let origin = look.from("store");
    look.node.store_problem = sources.store_problem.map(|problem| Sighted::new(problem, origin));
    look.not_followed(sources.not_followed);
    let namespaces = look.with_journal(namespaces);
    // Netlink, files and other namespaces all block.
    let bird_socket = sources.bird_socket;
    let looked = tokio::task::spawn_blocking(move || {
        look.kernel();
        look.firewall();
        look.inside(&namespaces);
        look.bgp(bird_socket);
        look.setup();
        look
    });
    let mut evidence = Evidence { taken_at: Some(taken_at), ..Evidence::default() };
    match looked.await {
        Ok(look) => {
            *evidence.node_mut(&sources.name) = look.node;
            evidence.unseen = look.unseen;
        }
        Err(error) => {
            evidence.unseen.push(Unseen::node(sources.name, NodeGap::All { why: error.to_string() }))
        }
    }
    evidence
}

/// A look under way.
struct Look {
    node: NodeEvidence,
    unseen: Vec<Unseen>,
    attached: Vec<Attached>,
}

/// A pod's namespace and whose it is.
struct Inside {
    pod: Option<PodName>,
    container_id: String,
    netns: PathBuf,
}

impl Look {
    fn new(name: &NodeName) -> Look {
        Look { node: NodeEvidence::new(name), unseen: Vec::new(), attached: Vec::new() }
    }

    fn from(&self, what: &str) -> Origin {
        Origin::probe(&self.node.name, what)
    }

    fn could_not_read(&mut self, part: &str, error: &dyn std::error::Error) {
        let gap = NodeGap::Part { part: part.to_owned(), why: on_one_line(error) };
        self.unseen.push(Unseen::node(&self.node.name, gap));
    }

    /// The runtime's sandboxes; gives back where the pods of those that are ready live.
    async fn runtime(&mut self, runtime: Option<&RuntimeClient>) -> Vec<Inside> {
        let Some(runtime) = runtime else { return Vec::new() };
        let sandboxes = match runtime.sandboxes().await {
            Ok(sandboxes) => sandboxes,
            Err(error) => {
                self.could_not_read("the list of sandboxes", &error);
                return Vec::new();
            }
        };
        let origin = self.from("sandboxes");
        let sighted = sandboxes.iter().map(|sandbox| Sighted::new(seen(sandbox), origin.clone()));
        self.node.sandboxes = Some(sighted.collect());
        let ready = sandboxes.iter().filter(|sandbox| sandbox.state == SandboxState::Ready);
        let mut inside = Vec::new();
        // One more than are looked into, so that it is told that there are more.
        for sandbox in ready.take(pods::PODS_MAX + 1) {
            if let Ok(Some(netns)) = runtime.namespace_of(&sandbox.id).await {
                let pod = Some(pod_name(sandbox));
                inside.push(Inside { pod, container_id: sandbox.id.clone(), netns });
            }
        }
        inside
    }

    fn journal(&mut self, attachments: Option<Vec<Attached>>, environment: Option<Vec<(String, String)>>) {
        let origin = self.from("journal");
        self.node.attachments = attachments.as_ref().map(|all| {
            all.iter().map(|attached| Sighted::new(attached.attachment.clone(), origin.clone())).collect()
        });
        self.attached = attachments.unwrap_or_default();
        let origin = self.from("environment");
        self.node.setup.environment = environment.map(|all| {
            let sighted = |(name, value): (String, String)| (name, Sighted::new(value, origin.clone()));
            all.into_iter().map(sighted).collect()
        });
    }

    fn queue(&mut self, dels: Option<Vec<UnfinishedDel>>) {
        let origin = self.from("queue");
        let sighted = |del| Sighted::new(del, origin.clone());
        self.node.unfinished_dels = dels.map(|all| all.into_iter().map(sighted).collect());
    }

    fn address(&mut self, choices: Option<Vec<AddressChoice>>) {
        let origin = self.from("address");
        let sighted = |choice| Sighted::new(choice, origin.clone());
        self.node.setup.address_choices = choices.map(|all| all.into_iter().map(sighted).collect());
    }

    fn not_followed(&mut self, records: Option<Vec<String>>) {
        let origin = self.from("records");
        let sighted = |words| Sighted::new(words, origin.clone());
        self.node.setup.not_followed = records.map(|all| all.into_iter().map(sighted).collect());
    }

    /// Pods that only the journal knows: the runtime did not answer, or does not tell where they are.
    fn with_journal(&self, mut inside: Vec<Inside>) -> Vec<Inside> {
        // Of one that is just being made it is not known yet.
        for attached in self.attached.iter().filter(|attached| !attached.netns.as_os_str().is_empty()) {
            let attachment = &attached.attachment;
            if !inside.iter().any(|known| known.container_id == attachment.container_id) {
                inside.push(Inside {
                    pod: attachment.pod.clone(),
                    container_id: attachment.container_id.clone(),
                    netns: attached.netns.clone(),
                });
            }
        }
        inside
    }

    fn kernel(&mut self) {
        match Survey::here() {
            Ok(survey) => {
                self.node.kernel = kernel::of_survey(&survey, &self.node.name, "");
                match survey.forwards_here() {
                    Ok(found) => {
                        let forwards = kernel::of_forwards(&found, &survey, &self.node.name);
                        self.node.kernel.forwards = Some(forwards);
                    }
                    Err(error) => self.could_not_read("the ends of its tunnels", &error),
                }
            }
            Err(error) => self.could_not_read("the kernel", &error),
        }
    }

    fn firewall(&mut self) {
        match firewall::here() {
            Ok(found) => {
                self.node.firewall = found.map(|rules| Sighted::new(rules, self.from("nft list ruleset")));
            }
            Err(error) => self.could_not_read("the rules of nft", &error),
        }
    }

    fn inside(&mut self, namespaces: &[Inside]) {
        // Without any the view from inside was not looked for, unless it is known that there are no pods.
        if namespaces.is_empty() && self.node.sandboxes.is_none() {
            return;
        }
        let Ok(home) = NetNs::current() else { return };
        let (mut views, mut lost) = (Vec::new(), Vec::new());
        let mut allowance = pods::Allowance::full();
        let (looked_into, left) = namespaces.split_at(namespaces.len().min(pods::PODS_MAX));
        if !left.is_empty() {
            let gap = NodeGap::PodsBeyondLimit(left.len());
            self.unseen.push(Unseen::node(&self.node.name, gap));
        }
        for inside in looked_into {
            match pods::look_inside(inside, &home, &self.node.name, &mut allowance) {
                Ok(None) => {}
                Ok(Some(seen)) => {
                    views.push(seen.view);
                    self.unseen.extend(seen.unseen);
                }
                Err(error) if error.is_namespace_gone() => {
                    lost.push(Sighted::new(inside.container_id.clone(), self.from("namespaces")));
                }
                Err(error) => self.could_not_read("a pod from inside", &error),
            }
        }
        self.node.pod_views = Some(views);
        self.node.lost_namespaces = Some(lost);
        self.node.namespaces = Some(pods::namespaces(&self.from("namespaces")));
    }

    fn bgp(&mut self, socket: Option<PathBuf>) {
        let (bgp, problems) = bird::sessions(&self.node.name, socket);
        self.node.bgp = bgp;
        self.unseen.extend(problems);
    }

    fn setup(&mut self) {
        let name = self.node.name.clone();
        setup::fill(&mut self.node.setup, std::path::Path::new("/"), &name);
    }
}

fn seen(sandbox: &PodSandbox) -> RuntimeSandbox {
    RuntimeSandbox {
        id: sandbox.id.clone(),
        is_ready: Some(sandbox.state == SandboxState::Ready),
        pod: pod_name(sandbox),
        pod_uid: Some(sandbox.pod_uid.clone()).filter(|uid| !uid.is_empty()),
        attempt: Some(sandbox.attempt),
        created_at: Timestamp::from_nanosecond(sandbox.created_at.into()).ok(),
        age: None,
    }
}

fn pod_name(sandbox: &PodSandbox) -> PodName {
    PodName::new(&sandbox.pod_namespace, &sandbox.pod_name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pods_that_only_the_journal_knows_are_looked_into_once() {
        let attached = |container_id: &str, netns: &str| Attached {
            attachment: Attachment {
                container_id: container_id.to_owned(),
                pod: Some(PodName::new("shop", container_id)),
                ..Attachment::default()
            },
            netns: netns.into(),
        };
        let mut look = Look::new(&"node-a".into());
        let journal = vec![
            attached("both", "/proc/1/ns/net"),
            attached("journal", "/proc/2/ns/net"),
            attached("young", ""),
        ];
        look.journal(Some(journal), Some(vec![("IP".to_owned(), "autodetect".to_owned())]));
        let of_runtime =
            Inside { pod: None, container_id: "both".to_owned(), netns: "/proc/9/ns/net".into() };
        let inside = look.with_journal(vec![of_runtime]);
        let found: Vec<_> =
            inside.iter().map(|one| (one.container_id.as_str(), one.netns.to_str().unwrap())).collect();
        assert_eq!(found, [("both", "/proc/9/ns/net"), ("journal", "/proc/2/ns/net")]);
        assert_eq!(inside[1].pod, Some(PodName::new("shop", "journal")));
        assert_eq!(look.node.attachments.as_ref().unwrap().len(), 3, "evidence has all of the journal");
        assert_eq!(look.node.setup.environment.as_ref().unwrap()["IP"].seen, "autodetect");
    }

    #[test]
    fn what_goes_wrong_is_told_with_its_causes() {
        let mut look = Look::new(&"node-a".into());
        let cause = std::io::Error::other("permission denied");
        look.could_not_read(
            "the kernel",
            &crate::agent::AgentError::Unreachable { socket: "/s".into(), source: cause },
        );
        assert_eq!(
            look.unseen.iter().map(Unseen::to_string).collect::<Vec<_>>(),
            ["node node-a: the kernel could not be read: the agent at /s cannot be asked: permission denied"]
        );
    }
}
