//! What is tried: each place at which the agent or the plugin can be killed, in each way, on each store.

use std::collections::BTreeMap;
use std::fmt;
use std::path::Path;
use std::process::Command;

use anyhow::{Context as _, Result, bail, ensure};
use lab::Programs;
use lab::cluster::StoreKind;
use testkit::Dice;

/// One crash.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Cell {
    pub(crate) victim: Victim,
    pub(crate) point: String,
    pub(crate) way: Way,
    pub(crate) store: StoreKind,
    pub(crate) story: Story,
}

/// Who is killed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Victim {
    Agent,
    /// With an agent to talk to.
    Plugin,
    /// Without one: it becomes `plumbd cni`.
    OneShot,
}

/// How it is killed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Way {
    /// Held at the point, while everything else goes on for a moment; then `kill -9`.
    Held,
    /// At once, together with whatever else it was doing.
    AtOnce,
}

impl Cell {
    /// Pods of both IP versions take their turn, too.
    pub(crate) fn has_ipv6(&self) -> bool {
        self.store == StoreKind::Sqlite && self.way == Way::AtOnce
    }

    /// Why it cannot be tried here.
    pub(crate) fn missing(&self) -> Option<String> {
        let of_store = lab::missing_for_cluster(self.store, None);
        let plugin = match self.story {
            Story::AddDelegated => Some("host-local"),
            Story::Addresses => Some("ptp"),
            _ => None,
        };
        let is_lacking = |name: &&str| !Path::new("/usr/lib/cni").join(name).exists();
        let of_plugin = plugin.filter(is_lacking);
        of_store.or(of_plugin
            .map(|name| format!("there is no plugin {name} (Debian package containernetworking-plugins)")))
    }
}

impl Way {
    pub(crate) fn setting(self, point: &str) -> String {
        match self {
            Way::Held => format!("{point}:pause"),
            Way::AtOnce => format!("{point}:abort"),
        }
    }
}

/// What goes on when it happens.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Story {
    Add,
    /// An ADD that cannot succeed, and is undone.
    FailingAdd,
    /// An ADD by a runtime that then uses the same ID and namespace again.
    AddSameId,
    /// An ADD for which another plugin gives the address.
    AddDelegated,
    /// Addresses for another plugin.
    Addresses,
    /// An ADD of a sandbox whose DEL is still queued.
    AddAgain,
    Del,
    /// A DEL by a runtime that leaves the namespace open.
    DelSameId,
    /// A DEL whose records cannot be released now.
    DelWithoutStore,
    /// A DEL that finds no agent.
    DelWithoutAgent,
    Gc,
    /// Links that an agent took out of service and did not live to remove.
    Sweep,
    /// A sandbox that the runtime lost.
    Collect,
    /// A pod that is not in the journal when the agent starts.
    Adopt,
    /// A DEL that waits in the queue when the agent starts.
    Queue,
    Start,
    /// A pod's device is gone when the agent starts.
    Remake,
    /// The records that every node needs are gone when the agent starts.
    Bootstrap,
}

impl fmt::Display for Cell {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?} at {} ({:?}, {:?}, {:?})", self.victim, self.point, self.way, self.story, self.store)
    }
}

/// The places, as the programs themselves list them.
pub(crate) struct Points {
    pub(crate) agent: Vec<String>,
    pub(crate) plugin: Vec<String>,
}

impl Points {
    pub(crate) fn of(programs: &Programs) -> Result<Points> {
        let agent = listed(Command::new(programs.daemon()).arg("failpoints"))?;
        let plugin = listed(Command::new(programs.cni()).env("PLUMB_FAILPOINT", "list"))?;
        ensure!(!agent.is_empty() && !plugin.is_empty(), "the programs list no points");
        Ok(Points { agent, plugin })
    }

    /// Every crash there is of what concerns one node. Those between nodes are told of where there are several (`between/killed.rs`).
    pub(crate) fn cells(&self) -> Result<Vec<Cell>> {
        let mut cells = Vec::new();
        let is_of_one_node = |point: &&String| !point.starts_with("between.") && !point.starts_with("bgp.");
        for point in self.agent.iter().filter(is_of_one_node) {
            let story = story_of(point)?;
            for way in [Way::Held, Way::AtOnce] {
                for store in stores_of(story) {
                    cells.push(Cell { victim: Victim::Agent, point: point.clone(), way, store, story });
                }
            }
            if let Some(story) = with_same_id(story) {
                for way in [Way::Held, Way::AtOnce] {
                    let store = StoreKind::Sqlite;
                    cells.push(Cell { victim: Victim::Agent, point: point.clone(), way, store, story });
                }
            }
            if is_passed_without_agent(point, story) {
                for store in stores_of(story).into_iter().filter(|store| *store != StoreKind::Etcdv3) {
                    let (victim, way) = (Victim::OneShot, Way::AtOnce);
                    cells.push(Cell { victim, point: point.clone(), way, store, story });
                }
            }
        }
        for point in &self.plugin {
            for (victim, story) in stories_of_plugin(point) {
                for way in [Way::Held, Way::AtOnce] {
                    let store = StoreKind::Sqlite;
                    cells.push(Cell { victim, point: point.clone(), way, store, story });
                }
            }
        }
        Ok(cells)
    }
}

fn listed(command: &mut Command) -> Result<Vec<String>> {
    let output = command.output().with_context(|| format!("cannot run {command:?}"))?;
    ensure!(output.status.success(), "{command:?} failed");
    Ok(String::from_utf8(output.stdout)?.lines().map(str::to_owned).collect())
}

/// A new point finds its story by its name, or has to be given one here.
fn story_of(point: &str) -> Result<Story> {
    Ok(match point {
        "add.before-queued" | "add.after-queued" => Story::AddAgain,
        "add.delegated" => Story::AddDelegated,
        "add.before-undo" | "add.after-undo" => Story::FailingAdd,
        "del.before-queue" | "del.after-queue" => Story::DelWithoutStore,
        "start.before-remake" | "start.after-remake" => Story::Remake,
        _ if point.starts_with("add.undo-") => Story::FailingAdd,
        _ if point.starts_with("addresses.") => Story::Addresses,
        _ if point.starts_with("add.") => Story::Add,
        _ if point.starts_with("del.queue-") => Story::DelWithoutStore,
        _ if point.starts_with("del.") => Story::Del,
        _ if point.starts_with("gc.") => Story::Gc,
        _ if point.starts_with("sweep.") => Story::Sweep,
        _ if point.starts_with("collect.") => Story::Collect,
        _ if point.starts_with("adopt.") => Story::Adopt,
        _ if point.starts_with("queue.") => Story::Queue,
        _ if point.starts_with("bootstrap.") => Story::Bootstrap,
        _ if point.starts_with("start.") => Story::Start,
        _ => bail!("nothing is told that passes the point {point}"),
    })
}

/// On Kubernetes only pods have endpoints, and nobody but kubelets runs pods.
fn stores_of(story: Story) -> Vec<StoreKind> {
    let of_any = [StoreKind::Sqlite, StoreKind::Etcdv3];
    match story {
        Story::AddAgain | Story::FailingAdd | Story::AddDelegated | Story::Addresses => of_any.into(),
        _ => of_any.into_iter().chain([StoreKind::Kubernetes]).collect(),
    }
}

/// Kubelets never use an ID again, and remove a namespace with all that is in it. Others do not.
fn with_same_id(story: Story) -> Option<Story> {
    match story {
        Story::Add => Some(Story::AddSameId),
        Story::Del => Some(Story::DelSameId),
        _ => None,
    }
}

/// A single call keeps no journal, and passes no point of it.
fn is_passed_without_agent(point: &str, story: Story) -> bool {
    let is_told =
        matches!(story, Story::Add | Story::FailingAdd | Story::Del | Story::DelWithoutStore | Story::Gc);
    is_told && !["add.journal-written", "add.after-journal"].contains(&point)
}

fn stories_of_plugin(point: &str) -> Vec<(Victim, Story)> {
    match point {
        "cni.before-exec" => vec![(Victim::OneShot, Story::Add), (Victim::OneShot, Story::Del)],
        "cni.before-queue" | "cni.queue-written" | "cni.queue-renamed" | "cni.queue-synced" => {
            vec![(Victim::Plugin, Story::DelWithoutAgent)]
        }
        _ => [Story::Add, Story::Del, Story::Gc].map(|story| (Victim::Plugin, story)).into(),
    }
}

/// Some of the cells: by chance, but of every victim and story in turn.
pub(crate) fn choose(cells: Vec<Cell>, count: usize, seed: u64) -> Vec<Cell> {
    let mut dice = Dice::for_purpose(seed, "crash matrix");
    let mut groups: BTreeMap<(u64, Victim, Story), Vec<Cell>> = BTreeMap::new();
    let mut turns: BTreeMap<(Victim, Story), u64> = BTreeMap::new();
    for cell in cells {
        let turn = *turns.entry((cell.victim, cell.story)).or_insert_with(|| dice.roll(u64::MAX));
        groups.entry((turn, cell.victim, cell.story)).or_default().push(cell);
    }
    let mut chosen = Vec::new();
    while chosen.len() < count && !groups.is_empty() {
        for group in groups.values_mut() {
            let next = usize::try_from(dice.roll(group.len() as u64)).unwrap_or_default();
            chosen.push(group.swap_remove(next));
        }
        groups.retain(|_, group| !group.is_empty());
    }
    chosen.truncate(count);
    chosen
}
