//! The book itself, and what all its operations share.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use ipam::{AffinityRelease, Answer, Decision, Grant, Pool, ReleaseRule, Steps, Stored, deselected_blocks};
use jiff::Timestamp;
use model::ipam::IpamConfig;
use model::{AffinityOwner, Cidr, HandleId, Key, KeyRange, Kind};
use store::{Change, Lookup, MAX_CHANGES, Record, Store, StoreError};
use tracing::{debug, warn};

use crate::batch::{Assigning, Job, Queue, Releasing};
use crate::carry::{Commit, Written};
use crate::look::{self, Reader};
use crate::patience::Patience;
use crate::request::{AssignRequest, HandleRequest};
use crate::scene::{
    Lock, RawScene, Scene, cluster_information, cooldown_seconds, decode, understand_config,
    understandable_pools,
};
use crate::tend::{self, Tending};
use crate::warm::Warm;
use crate::{BookError, GivenBack, Settings};

/// Two hundred pods that start or end together, and what they share.
const CHANGES_ONE_BY_ONE_MAX: usize = 408;

/// How often to look whether a block that a node should not have is empty.
const DESELECTED_LOOK_EVERY: Duration = Duration::from_secs(60);

/// The address book on a store. Cheap to clone; all clones share one queue.
#[derive(Clone, Debug)]
pub struct Book {
    pub(crate) inner: Arc<Inner>,
}

#[derive(Debug)]
pub(crate) struct Inner {
    pub(crate) store: Arc<dyn Store>,
    pub(crate) settings: Settings,
    pub(crate) queue: Queue,
    /// What is remembered for the node of a long-lived agent.
    pub(crate) warm: Option<Warm>,
    pub(crate) tending: Tending,
    /// Blocks of the node in pools that do not select it, and when they were last looked at.
    deselected: Mutex<BTreeMap<Cidr, Instant>>,
}

/// What a round of assignments starts from.
#[derive(Debug)]
pub(crate) struct Ground {
    pub(crate) scene: Arc<Scene>,
    /// The handles as they are; nothing is known about those that are not in here.
    pub(crate) handles: BTreeMap<HandleId, Answer>,
    /// Not read now: it may be out of date.
    pub(crate) is_remembered: bool,
}

/// What a round of releases starts from.
#[derive(Debug)]
pub(crate) struct ReleaseGround {
    pub(crate) lock: Lock,
    pub(crate) config: Option<Stored<IpamConfig>>,
    pub(crate) pools: Vec<Pool>,
    pub(crate) handles: BTreeMap<HandleId, Answer>,
    pub(crate) is_remembered: bool,
}

impl ReleaseGround {
    pub(crate) fn cooldown_from(&self, now: Timestamp) -> Option<Timestamp> {
        (cooldown_seconds(self.config.as_ref()) > 0).then_some(now)
    }
}

impl Book {
    pub fn new(store: Arc<dyn Store>) -> Book {
        Book::with_settings(store, Settings::default())
    }

    pub fn with_settings(store: Arc<dyn Store>, settings: Settings) -> Book {
        Book { inner: Arc::new(Inner::new(store, settings, None)) }
    }

    /// A book for a long-lived agent: it remembers what assignments on its node start from, and keeps it up to date by
    /// watches, so that an address out of a block that the node has costs one commit and nothing else. Requests for
    /// other nodes are served as well, only not from memory.
    ///
    /// On a store without transactions it also puts right, in the background, what it could not finish itself and what claims
    /// and releases of the node's blocks have left that were cut off.
    pub fn following(store: Arc<dyn Store>, settings: Settings, node: &str) -> Book {
        let warm = Some(Warm::start(&store, node));
        let book = Book { inner: Arc::new(Inner::new(store, settings, warm)) };
        if !book.inner.is_atomic() {
            tend::start(&book.inner);
        }
        book
    }

    /// Waits until what is remembered is in step with the store. Until then everything works all the same, and reads.
    pub async fn in_sync(&self) {
        if let Some(warm) = &self.inner.warm {
            warm.in_sync().await;
        }
    }

    /// Waits until nobody looks ahead for blocks that may be needed later. Nothing depends on it.
    pub async fn at_rest(&self) {
        if let Some(warm) = &self.inner.warm {
            warm.at_rest().await;
        }
    }

    pub fn store(&self) -> &Arc<dyn Store> {
        &self.inner.store
    }

    /// Addresses for an owner, whichever are free, together with what the caller adds. Requests that arrive while a
    /// commit is on its way go together in the next.
    ///
    /// A request that takes all or nothing fails with [`BookError::Assign`] if there are too few; one that accepts
    /// fewer gets what there is, and the reason.
    pub async fn assign(&self, request: AssignRequest) -> Result<Grant, BookError> {
        look::check_handle(&request.owner.handle)?;
        self.inner.ask(|answer| Job::Assign(Box::new(Assigning::new(request, answer)))).await
    }

    /// Gives back addresses of a handle, together with what the caller adds. A handle that is not there holds nothing.
    /// Releases share their commits as assignments do. It goes on if the caller stops waiting.
    pub async fn release_handle(&self, request: HandleRequest) -> Result<GivenBack, BookError> {
        look::check_handle(&request.handle)?;
        let patience = Patience::new(self.inner.settings.patience);
        self.inner.ask(|answer| Job::Release(Box::new(Releasing::new(request, answer, patience)))).await
    }
}

impl Inner {
    fn new(store: Arc<dyn Store>, settings: Settings, warm: Option<Warm>) -> Inner {
        Inner {
            store,
            settings,
            queue: Queue::default(),
            warm,
            tending: Tending::default(),
            deselected: Mutex::default(),
        }
    }

    pub(crate) fn now(&self) -> Timestamp {
        (self.settings.clock)()
    }

    pub(crate) fn is_atomic(&self) -> bool {
        self.store.capabilities().atomic_commits
    }

    /// How many changes go together. Where each is a request of its own, the bound only keeps the first from waiting for too
    /// many others.
    pub(crate) fn changes_max(&self) -> usize {
        if self.is_atomic() { MAX_CHANGES } else { CHANGES_ONE_BY_ONE_MAX }
    }

    pub(crate) fn patience(&self) -> Patience {
        Patience::new(self.settings.patience)
    }

    /// What every commit requires, if the store is not locked. A store without transactions cannot require it: there a lock
    /// holds for what is decided after it was noticed.
    pub(crate) fn required(&self, lock: &Lock) -> Result<Vec<Change>, BookError> {
        if self.settings.heeds_lock { Ok(vec![lock.heeded()?]) } else { Ok(Vec::new()) }
    }

    /// Reads the lock, for operations that read nothing else at their start.
    pub(crate) async fn read_required(&self) -> Result<Vec<Change>, BookError> {
        if !self.settings.heeds_lock {
            return Ok(Vec::new());
        }
        let record = self.store.get(&cluster_information()).await?;
        self.required(&Lock::understand(record.as_ref())?)
    }

    /// Everything an assignment starts from, in one round trip or none.
    pub(crate) async fn ground(
        &self,
        request: &AssignRequest,
        handles: &[HandleId],
        must_read: bool,
    ) -> Result<Ground, BookError> {
        let owner = request.block_owner();
        if !must_read
            && let Some(warm) = &self.warm
            && owner == AffinityOwner::Host(warm.host.clone())
            && let Some(scene) = warm.scene()
        {
            return Ok(Ground { scene, handles: BTreeMap::new(), is_remembered: true });
        }
        let mut lookups = self.scene_lookups(&request.host, &owner);
        let of_scene = lookups.len();
        lookups.extend(handles.iter().map(|id| Lookup::Record(Key::Handle(id.clone()))));
        let mut answers = look::read_all(&self.store, lookups).await?.into_iter();
        let raw = RawScene::from_answers(&owner, answers.by_ref().take(of_scene));
        let scene = Arc::new(Scene::understand(&raw)?);
        Ok(Ground { scene, handles: understand_handles(handles, answers), is_remembered: false })
    }

    /// An agent has labelled its node's affinities before its first assignment.
    pub(crate) fn scene_lookups(&self, host: &str, owner: &AffinityOwner) -> Vec<Lookup> {
        let is_agents = self.warm.as_ref().is_some_and(|warm| warm.host == owner.name());
        RawScene::lookups(&*self.store, host, owner, is_agents)
    }

    pub(crate) async fn release_ground(
        &self,
        handles: &[HandleId],
        must_read: bool,
    ) -> Result<ReleaseGround, BookError> {
        if !must_read
            && let Some(warm) = &self.warm
            && let Some(scene) = warm.scene()
        {
            return Ok(ReleaseGround {
                lock: scene.lock.clone(),
                config: scene.config.clone(),
                pools: scene.pools.iter().map(|stored| stored.value.clone()).collect(),
                handles: self.recall_handles(warm, handles).await?,
                is_remembered: true,
            });
        }
        let mut lookups = vec![
            Lookup::Record(cluster_information()),
            Lookup::Record(Key::IpamConfig),
            Lookup::Range(KeyRange::Kind(Kind::IpPool)),
        ];
        lookups.extend(handles.iter().map(|id| Lookup::Record(Key::Handle(id.clone()))));
        let mut answers = look::read_all(&self.store, lookups).await?.into_iter();
        let mut next = || answers.next().unwrap_or_default();
        Ok(ReleaseGround {
            lock: Lock::understand(next().pop().as_ref())?,
            config: understand_config(next().pop().as_ref())?,
            pools: understandable_pools(&next()),
            handles: understand_handles(handles, answers),
            is_remembered: false,
        })
    }

    /// Those that are not remembered are read, together.
    async fn recall_handles(
        &self,
        warm: &Warm,
        handles: &[HandleId],
    ) -> Result<BTreeMap<HandleId, Answer>, BookError> {
        let recalled = handles.iter().filter_map(|id| Some((id.clone(), warm.handle(id)?)));
        let mut known: BTreeMap<HandleId, Answer> = recalled.collect();
        let unknown: Vec<HandleId> = handles.iter().filter(|id| !known.contains_key(*id)).cloned().collect();
        if !unknown.is_empty() {
            let lookups = unknown.iter().map(|id| Lookup::Record(Key::Handle(id.clone()))).collect();
            let answers = look::read_all(&self.store, lookups).await?;
            known.extend(understand_handles(&unknown, answers.into_iter()));
        }
        Ok(known)
    }

    /// Takes in what a commit of the queue has left.
    pub(crate) fn remember(&self, written: Vec<Written>) {
        if let Some(warm) = &self.warm {
            warm.remember(written);
        }
    }

    /// Records that others have changed, or operations beside the queue.
    pub(crate) fn forget(&self, keys: impl IntoIterator<Item = Key>) {
        if let Some(warm) = &self.warm {
            warm.forget(keys);
        }
    }

    /// Drives a decision with what the store says now.
    pub(crate) async fn decide<D>(&self, decision: &mut D) -> Result<D::Outcome, BookError>
    where
        D: Decision,
        BookError: From<D::Error>,
    {
        Reader::new(&self.store).decide(decision).await
    }

    /// Carries out steps that are decided beside the queue.
    pub(crate) async fn carry_out(&self, requires: Vec<Change>, steps: &Steps) -> Result<(), StoreError> {
        if steps.is_empty() {
            return Ok(());
        }
        let commit = Commit { requires, steps: Some(steps), ..Commit::default() };
        let written = commit.carry_out(&self.store).await?;
        self.forget(written.into_iter().map(|written| written.key));
        Ok(())
    }

    /// A node's empty blocks in pools that do not select it any more. Best effort: what does not work out now does
    /// with the next assignment.
    pub(crate) async fn give_up_deselected(&self, owner: &AffinityOwner, scene: &Scene) {
        if !matches!(owner, AffinityOwner::Host(_)) {
            return;
        }
        let pools: Vec<Pool> = scene.pools.iter().map(|stored| stored.value.clone()).collect();
        let blocks = scene.affinities.iter().map(|(block, _)| *block);
        let blocks = self.not_looked_at_lately(deselected_blocks(blocks, &pools, &scene.node_labels));
        self.give_up(blocks.into_iter().map(|block| (owner.clone(), block)).collect()).await;
    }

    /// A block in use stays deselected for as long as its pods live. Its last release gives it up
    /// ([`Inner::give_up_emptied`]); only a release by someone else leaves that to the next look.
    fn not_looked_at_lately(&self, blocks: Vec<Cidr>) -> Vec<Cidr> {
        let now = Instant::now();
        let mut looked = self.deselected.lock().unwrap_or_else(PoisonError::into_inner);
        looked.retain(|_, at| now.duration_since(*at) < DESELECTED_LOOK_EVERY);
        let due: Vec<Cidr> = blocks.into_iter().filter(|block| !looked.contains_key(block)).collect();
        looked.extend(due.iter().map(|block| (*block, now)));
        due
    }

    /// Blocks that have just become empty, if their pools do not select their nodes any more.
    pub(crate) async fn give_up_emptied(&self, emptied: &[(AffinityOwner, Cidr)], pools: &[Pool]) {
        let may_be_deselected = |block: &Cidr| {
            let pool = pools.iter().find(|pool| pool.cidr.contains_cidr(block));
            pool.is_some_and(|pool| !pool.selects_every_node())
        };
        let mut deselected = Vec::new();
        for (owner, block) in emptied.iter().filter(|(_, block)| may_be_deselected(block)) {
            let remembered = self.warm.as_ref().filter(|warm| warm.host == owner.name());
            let labels = match remembered.and_then(Warm::scene) {
                Some(scene) => Ok(scene.node_labels.clone()),
                None => self.node_labels(owner.name()).await,
            };
            match labels {
                Ok(labels) if !deselected_blocks([*block], pools, &labels).is_empty() => {
                    deselected.push((owner.clone(), *block));
                }
                Ok(_) => {}
                Err(error) => warn!("the labels of {} cannot be read: {error}", owner.name()),
            }
        }
        self.give_up(deselected).await;
    }

    pub(crate) async fn node_labels(&self, node: &str) -> Result<BTreeMap<String, String>, BookError> {
        match self.store.get(&Key::cluster(Kind::Node, node)).await? {
            Some(record) => Ok(decode(&record, Kind::Node)?.metadata.labels),
            None => Ok(BTreeMap::new()),
        }
    }

    async fn give_up(&self, blocks: Vec<(AffinityOwner, Cidr)>) {
        if blocks.is_empty() {
            return;
        }
        let rule = ReleaseRule { must_be_empty: true, sequence_number: None };
        let released = match self.decide(&mut AffinityRelease::new(blocks, rule)).await {
            Ok(released) => released,
            Err(error) => {
                return debug!("blocks of pools that do not select their node stay for now: {error}");
            }
        };
        for block in released {
            let Ok(steps) = block.result else { continue };
            if let Err(error) = self.carry_out(Vec::new(), &steps).await {
                debug!("{} stays {}'s for now: {error}", block.block, block.owner.name());
            }
        }
    }
}

fn understand_handles(
    ids: &[HandleId],
    answers: impl Iterator<Item = Vec<Record>>,
) -> BTreeMap<HandleId, Answer> {
    let understand = |(id, mut records): (&HandleId, Vec<Record>)| {
        let answer = look::read(&Key::Handle(id.clone()), records.pop().as_ref());
        (id.clone(), answer)
    };
    ids.iter().zip(answers).map(understand).collect()
}
