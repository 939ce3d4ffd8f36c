//! What a long-lived agent remembers, so that an assignment is one commit and nothing else.
//!
//! ```text
//!   store ──watch──▶ follow: pools, settings, reservations, lock, own Node, own affinities ──▶ Scene
//!   own commits ───▶ remember: own affinities at once, own blocks and handles ──────────────▶ Scene, blocks, handles
//! ```
//!
//! Nothing here is trusted: every commit names the revisions it was decided on, and what turns out to be out of date
//! costs one more attempt, which reads. Nobody is refused on what is only remembered.
//!
//! * A part of the scene is used only while its watch is in sync. A watch that breaks or has lost its history starts
//!   over with a list.
//! * An own commit is in the store before its events arrive here. Until the event with its revision has been seen, what
//!   was written ourselves stands above what the watch says, so that an older event does not take it back.
//! * Blocks are not watched. Nearly all writes of a node's blocks are its own, and watching them one by one, or all
//!   blocks of the cluster, would cost every node more than the attempt that a stranger's write costs.
//! * Handles are not watched either. Those that were written here are remembered until they are removed here.
//! * Blocks of other nodes are remembered only where a search had to ask for all of them, and only what they are good for ([`crowd`]).
//! * Who has claimed a block will probably need another one. Which blocks nobody has is found out in the meantime
//!   ([`scout`]), so that the next claim is one commit and nothing else, too.

mod crowd;
mod follow;
pub(crate) mod scout;

pub(crate) use self::crowd::Prospects;

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::Bytes;
use ipam::Answer;
use model::ipam::{Affinity, AffinityState};
use model::{AffinityOwner, Cidr, HandleId, IpVersion, Key};
use store::{Record, Revision, Store};
use tokio::sync::watch;
use tokio::task::JoinSet;
use tracing::debug;

use self::crowd::Crowd;
use self::follow::Part;
use self::scout::Scouted;
use crate::carry::Written;
use crate::scene::{RawScene, Scene};

/// How a block that was written here says that nothing in it is free. It need not be read for that.
const NONE_FREE: &[u8] = br#""unallocated":[],"#;

/// More handles than a node has containers. Forgetting them costs a read each.
const HANDLES_MANY: usize = 4096;

/// What is remembered for one node.
#[derive(Debug)]
pub(crate) struct Warm {
    pub(crate) host: String,
    memory: Arc<Memory>,
    /// End with this.
    _followers: JoinSet<()>,
}

#[derive(Debug)]
struct Memory {
    owner: AffinityOwner,
    state: Mutex<State>,
    /// How many parts are in sync.
    synced: watch::Sender<usize>,
    /// Whether someone looks ahead.
    is_scouting: watch::Sender<bool>,
}

#[derive(Debug, Default)]
struct State {
    parts: BTreeMap<Part, Option<BTreeMap<Key, Record>>>,
    /// Own changes of affinities whose events have not come yet: the record as it is now, and the revision to wait for.
    own: BTreeMap<Key, (Option<Bytes>, Revision)>,
    /// Made from the above when it is asked for.
    scene: Option<Arc<Scene>>,
    blocks: BTreeMap<Cidr, Remembered>,
    /// Those that were written here: who gave an address is likely to take it back.
    handles: BTreeMap<HandleId, (Bytes, Revision)>,
    scouted: Scouted,
    /// What surveys of crowded pools have found out.
    crowds: BTreeMap<IpVersion, Crowd>,
    is_crowded: bool,
}

/// A block. It is understood when it is first asked for.
#[derive(Debug)]
enum Remembered {
    Written(Bytes, Revision),
    Understood(Answer),
}

impl Warm {
    /// Starts to follow what matters for a node.
    pub(crate) fn start(store: &Arc<dyn Store>, host: &str) -> Warm {
        let owner = AffinityOwner::Host(host.to_owned());
        let (synced, _) = watch::channel(0);
        let (is_scouting, _) = watch::channel(false);
        let memory = Arc::new(Memory { owner, state: Mutex::default(), synced, is_scouting });
        let mut followers = JoinSet::new();
        for part in Part::ALL {
            followers.spawn(follow::follow(Arc::clone(store), Arc::clone(&memory), part, host.to_owned()));
        }
        Warm { host: host.to_owned(), memory, _followers: followers }
    }

    /// What an assignment starts from; `None` while any part of it is not in sync, or cannot be understood.
    pub(crate) fn scene(&self) -> Option<Arc<Scene>> {
        self.memory.lock().scene()
    }

    /// Waits until everything is in sync.
    pub(crate) async fn in_sync(&self) {
        let mut synced = self.memory.synced.subscribe();
        // The sender is in `memory`: it cannot be gone.
        let _ = synced.wait_for(|synced| *synced == Part::ALL.len()).await;
    }

    /// The node's affinities that say that a claim or a release is under way, with their revisions.
    pub(crate) fn unfinished(&self) -> BTreeMap<Key, String> {
        let Some(scene) = self.scene() else { return BTreeMap::new() };
        let is_unfinished = |affinity: &Affinity| {
            matches!(affinity.state, AffinityState::Pending | AffinityState::PendingDeletion)
        };
        let unfinished = scene.affinities.iter().filter(|(_, stored)| is_unfinished(&stored.value));
        let key = |block| Key::Affinity { owner: self.memory.owner.clone(), block };
        unfinished.map(|(block, stored)| (key(*block), stored.revision.clone())).collect()
    }

    /// A block that need not be read.
    pub(crate) fn block(&self, cidr: &Cidr) -> Option<Answer> {
        self.memory.lock().block(cidr).cloned()
    }

    /// A handle that need not be read.
    pub(crate) fn handle(&self, id: &HandleId) -> Option<Answer> {
        let (value, revision) = self.memory.lock().handles.get(id).cloned()?;
        Some(Answer::read(&Key::Handle(id.clone()), Some((&value[..], revision.as_str()))))
    }

    pub(crate) fn has_block(&self, cidr: &Cidr) -> bool {
        self.memory.lock().blocks.contains_key(cidr)
    }

    /// Whether a block is known to have nothing free.
    pub(crate) fn is_full(&self, cidr: &Cidr) -> bool {
        match self.memory.lock().blocks.get(cidr) {
            Some(Remembered::Understood(Answer::Block(stored))) => stored.value.unallocated.is_empty(),
            // As we write it ourselves.
            Some(Remembered::Written(value, _)) => {
                value.windows(NONE_FREE.len()).any(|text| text == NONE_FREE)
            }
            _ => false,
        }
    }

    /// Takes in a block that was read.
    pub(crate) fn learn(&self, cidr: Cidr, answer: &Answer) {
        let mut state = self.memory.lock();
        if let Answer::Block(stored) = answer
            && stored.value.owner().as_ref() == Some(&self.memory.owner)
        {
            state.blocks.insert(cidr, Remembered::Understood(answer.clone()));
        } else {
            state.blocks.remove(&cidr);
        }
    }

    /// Takes in what an own commit has left.
    pub(crate) fn remember(&self, written: Vec<Written>) {
        let mut state = self.memory.lock();
        for Written { key, value, revision } in written {
            state.scouted.remember(&key);
            match &key {
                Key::Affinity { owner, .. } if *owner == self.memory.owner => {
                    // There was one to be had; there may be others.
                    state.is_crowded &= value.is_none();
                    state.write(key, value, revision)
                }
                Key::Block(cidr) => match value {
                    Some(value) if state.is_own(&self.memory.owner, cidr) => {
                        state.blocks.insert(*cidr, Remembered::Written(value, revision));
                    }
                    _ => drop(state.blocks.remove(cidr)),
                },
                Key::Handle(id) => state.write_handle(id, value, revision),
                _ => {}
            }
        }
    }

    /// These are not as they are remembered.
    pub(crate) fn forget(&self, keys: impl IntoIterator<Item = Key>) {
        let mut state = self.memory.lock();
        for key in keys {
            state.scouted.forget(&key);
            match &key {
                Key::Block(cidr) => drop(state.blocks.remove(cidr)),
                Key::Handle(id) => drop(state.handles.remove(id)),
                Key::Affinity { .. } if state.own.remove(&key).is_some() => state.scene = None,
                _ => {}
            }
        }
    }
}

impl Memory {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn tell_synced(&self, state: &State) {
        self.synced.send_replace(state.parts.values().flatten().count());
    }
}

impl State {
    fn scene(&mut self) -> Option<Arc<Scene>> {
        if self.scene.is_none() {
            let raw = self.raw()?;
            match Scene::understand(&raw) {
                Ok(scene) => self.scene = Some(Arc::new(scene)),
                // Whoever reads will say so.
                Err(error) => debug!("what is remembered cannot be understood: {error}"),
            }
        }
        self.scene.clone()
    }

    /// The records; `None` if not everything is in sync.
    fn raw(&self) -> Option<RawScene> {
        let all = |part| Some(self.parts.get(&part)?.as_ref()?.values().cloned());
        let mut affinities: BTreeMap<Key, Record> = BTreeMap::new();
        for part in [Part::AffinitiesV4, Part::AffinitiesV6] {
            affinities.extend(all(part)?.map(|record| (record.key.clone(), record)));
        }
        for (key, (value, revision)) in &self.own {
            match value {
                None => drop(affinities.remove(key)),
                Some(value) => {
                    let (value, revision) = (value.clone(), revision.clone());
                    affinities.insert(key.clone(), Record { key: key.clone(), value, revision });
                }
            }
        }
        // As a store lists them.
        let mut affinities: Vec<Record> = affinities.into_values().collect();
        affinities.sort_by_cached_key(|record| record.key.etcd_text());
        Some(RawScene {
            cluster_information: all(Part::ClusterInformation)?.next(),
            config: all(Part::Config)?.next(),
            pools: all(Part::Pools)?.collect(),
            reservations: all(Part::Reservations)?.collect(),
            node: all(Part::Node)?.next(),
            affinities,
        })
    }

    fn block(&mut self, cidr: &Cidr) -> Option<&Answer> {
        let remembered = self.blocks.get_mut(cidr)?;
        if let Remembered::Written(value, revision) = remembered {
            let answer = Answer::read(&Key::Block(*cidr), Some((&value[..], revision.as_str())));
            *remembered = Remembered::Understood(answer);
        }
        match remembered {
            Remembered::Understood(answer) => Some(answer),
            Remembered::Written(..) => None,
        }
    }

    fn write_handle(&mut self, id: &HandleId, value: Option<Bytes>, revision: Revision) {
        if self.handles.len() >= HANDLES_MANY {
            self.handles.clear();
        }
        match value {
            Some(value) => drop(self.handles.insert(id.to_owned(), (value, revision))),
            None => drop(self.handles.remove(id)),
        }
    }

    /// An own change of an affinity, whose event comes later or has come already.
    fn write(&mut self, key: Key, value: Option<Bytes>, revision: Revision) {
        let part = self.part_of(&key).and_then(|records| records.get(&key));
        let is_there = match (&value, part) {
            (Some(_), Some(record)) => record.revision == revision,
            (None, None) => true,
            _ => false,
        };
        if let (None, Key::Affinity { block, .. }) = (&value, &key) {
            self.blocks.remove(block);
        }
        if is_there {
            self.own.remove(&key);
        } else {
            self.own.insert(key, (value, revision));
        }
        self.scene = None;
    }

    fn part_of(&self, key: &Key) -> Option<&BTreeMap<Key, Record>> {
        self.parts.get(&Part::of(key)?)?.as_ref()
    }

    fn is_own(&self, owner: &AffinityOwner, cidr: &Cidr) -> bool {
        let key = Key::Affinity { owner: owner.clone(), block: *cidr };
        match self.own.get(&key) {
            Some((value, _)) => value.is_some(),
            None => self.part_of(&key).is_some_and(|records| records.contains_key(&key)),
        }
    }
}
