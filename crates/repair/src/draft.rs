//! A plan while it is being made.

use std::cell::OnceCell;
use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use jiff::{SignedDuration, Timestamp};
use model::ipam::{Block, BlockAttribute};
use model::{AgentMode, Cidr, FindingCode, HandleId, Key, NodeName, ShellCommand};
use plan::task::{KernelChange, RepairTask};

use super::Scope;
use super::edit::{Edit, Holding};
use super::heartbeat;
use super::plan::{Fixed, Left, OnNode, Step};
use super::remedies::{Area, Remedy};
use super::witness::{Suspect, Testimony, served_nodes};
use doctor::{Case, Finding, Options, Subject};
use evidence::{Evidence, PodName};

/// How many handles are counted in one step, which is one commit.
const COUNTS_MAX: usize = 100;

/// What a plan is made from.
#[derive(Debug)]
pub struct Ground<'e> {
    pub case: Case<'e>,
    /// The look before, if there was one: what goes must have looked gone then, too.
    earlier: Option<Case<'e>>,
    scope: &'e Scope,
    /// Whether kubelets are witnesses.
    pub(super) hears_kubelets: bool,
    served: OnceCell<BTreeSet<NodeName>>,
    held: OnceCell<BTreeMap<&'e HandleId, BTreeMap<Cidr, i64>>>,
    counting: OnceCell<BTreeMap<Cidr, Vec<(&'e HandleId, i64)>>>,
    heard: OnceCell<BTreeMap<NodeName, Timestamp>>,
}

/// A finding, or a symptom of one: what is wrong, and with what.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Target {
    pub code: FindingCode,
    pub subject: Subject,
    pub summary: String,
}

/// Steps and leftovers, so far.
#[derive(Debug)]
pub struct Draft<'g, 'e> {
    pub ground: &'g Ground<'e>,
    steps: Vec<Option<Step>>,
    /// Which step changes addresses of a handle. All of them are changed together, with the handle.
    by_handle: BTreeMap<HandleId, usize>,
    /// What addresses will be, where that is decided.
    allocations: BTreeMap<(Cidr, IpAddr), Option<BlockAttribute>>,
    /// Records that will be gone or new, so that nobody decides about one twice, and how many steps there were by then.
    records: BTreeMap<Key, usize>,
    works: BTreeSet<(NodeName, RepairTask)>,
    left: Vec<Left>,
}

impl Target {
    /// The finding itself, and everything that it explains.
    pub fn of(finding: &Finding) -> Vec<Target> {
        let own =
            Target { code: finding.code, subject: finding.subject.clone(), summary: finding.summary.clone() };
        let symptom = |symptom: &doctor::Symptom| Target {
            code: symptom.code,
            subject: symptom.subject.clone(),
            summary: symptom.summary.clone(),
        };
        std::iter::once(own).chain(finding.symptoms.iter().map(symptom)).collect()
    }

    fn fixed(&self) -> Fixed {
        Fixed { code: self.code, subject: self.subject.to_string() }
    }
}

impl<'e> Ground<'e> {
    pub fn new(evidence: &'e Evidence, options: &'e Options, scope: &'e Scope) -> Ground<'e> {
        let earlier = evidence.earlier.as_deref().map(|earlier| Case::new(earlier, options));
        Ground {
            case: Case::new(evidence, options),
            earlier,
            scope,
            hears_kubelets: false,
            served: OnceCell::new(),
            held: OnceCell::new(),
            counting: OnceCell::new(),
            heard: OnceCell::new(),
        }
    }

    pub(super) fn is_wanted(&self, remedy: &Remedy, target: &Target) -> bool {
        match self.scope {
            Scope::Everything => true,
            Scope::Ipam => remedy.area == Area::Ipam,
            Scope::Endpoints => matches!(remedy.area, Area::Endpoints | Area::Kernel),
            Scope::Node(name) | Scope::GoneNode(name) => self.is_about(target, name),
            Scope::Codes(codes) => codes.contains(&target.code),
        }
    }

    fn is_about(&self, target: &Target, node: &NodeName) -> bool {
        match &target.subject {
            Subject::Node(name)
            | Subject::Device { node: name, .. }
            | Subject::Route { node: name, .. }
            | Subject::Neighbour { node: name, .. }
            | Subject::Sysctl { node: name, .. }
            | Subject::Session { node: name, .. } => name == node,
            Subject::Affinity { owner, .. } => owner.is_node(node),
            Subject::Block(block) => {
                self.block(block).and_then(Block::owner).is_some_and(|owner| owner.is_node(node))
            }
            Subject::Address(address) => self
                .case
                .allocation(*address)
                .is_some_and(|allocation| allocation.node().as_ref() == Some(node)),
            Subject::Endpoint { name, .. } => {
                let endpoints =
                    self.case.all_endpoints().iter().filter(|endpoint| endpoint.seen.name == *name);
                endpoints.into_iter().any(|endpoint| endpoint.seen.node.as_ref() == Some(node))
            }
            Subject::Pod(pod) => {
                self.case.pods_named(pod).any(|pod| pod.seen.node.as_ref() == Some(node))
                    || self.case.endpoints_of(pod).any(|endpoint| endpoint.seen.node.as_ref() == Some(node))
            }
            _ => false,
        }
    }

    /// Whether the operator said that this node does not come back: by the word `gone`, or by its name where nobody has a record of it.
    pub fn is_given_up(&self, node: &NodeName) -> bool {
        match self.scope {
            Scope::GoneNode(name) => name == node,
            Scope::Node(name) => name == node && self.case.node_view(node).is_none(),
            _ => false,
        }
    }

    /// Whether the operator said so although the node's record is there. Nothing less will do: Kubernetes may have lost a node
    /// that runs, and an agent that was not asked cannot object.
    pub fn is_buried(&self, node: &NodeName) -> bool {
        matches!(self.scope, Scope::GoneNode(name) if name == node)
    }

    /// Whether a node has blocks or endpoints by records.
    pub fn holds_something(&self, node: &NodeName) -> bool {
        self.case.has_blocks(node) || self.case.endpoints_on(node).next().is_some()
    }

    /// Whether nobody knows this node: neither records nor Kubernetes nor anybody who looked, now and before.
    pub fn is_node_gone(&self, node: &NodeName) -> bool {
        let is_unknown = |case: &Case<'_>| {
            let knows_nodes = case.books_view().is_some_and(|view| view.knows_nodes);
            knows_nodes && case.node_view(node).is_none() && case.node(node).is_none()
        };
        is_unknown(&self.case) && self.earlier.as_ref().is_none_or(is_unknown)
    }

    /// Whether a node is dead: gone in every look, or given up by the operator; whoever answers or was heard within the grace is not.
    pub fn is_dead(&self, node: &NodeName) -> bool {
        let is_lost = self.is_node_gone(node) || (self.is_given_up(node) && self.case.node(node).is_none());
        is_lost && self.heard_ago(node).is_none()
    }

    /// How long ago a node showed that it runs, if that is within the grace: an agent that was not asked cannot object.
    pub fn heard_ago(&self, node: &NodeName) -> Option<SignedDuration> {
        let heard = self.heard.get_or_init(|| heartbeat::last_signs(&self.case));
        let ago = self.case.evidence.taken_at?.duration_since(*heard.get(node)?);
        Some(ago).filter(|ago| *ago < self.case.options.grace)
    }

    /// What the witnesses say now; and whether they said gone in both looks.
    pub fn testimony(&self, suspect: &Suspect<'_>) -> (Testimony, bool) {
        let ask = |case: &Case<'_>| {
            let said = Testimony::of(case, suspect);
            match self.hears_kubelets {
                // A kubelet speaks of the time between both looks, whichever is asked about.
                true => said.with_kubelet(
                    case,
                    (&self.case, self.earlier.as_ref()),
                    self.served.get_or_init(|| served_nodes(&self.case)),
                    suspect,
                ),
                false => said,
            }
        };
        let now = ask(&self.case);
        let before = self.earlier.as_ref().is_none_or(|earlier| ask(earlier).say_gone());
        let is_gone = now.say_gone() && before;
        (now, is_gone)
    }

    /// Why a suspect may be removed: witnesses, or the end of its node; or why not.
    pub fn is_gone(&self, suspect: &Suspect<'_>) -> Result<Vec<String>, String> {
        let (testimony, is_gone) = self.testimony(suspect);
        if is_gone {
            return Ok(testimony.lines());
        }
        let said = testimony.lines().join("; ");
        let Some(node) = suspect.node.as_ref().filter(|node| self.is_dead(node)) else {
            return Err(format!("two witnesses must report its sandbox as gone, and none as alive: {said}"));
        };
        // Pods of a node that is lost stay listed; an operator knows better, but never better than who sees it run.
        if testimony.is_seen() || (testimony.say_alive() && !self.is_given_up(node)) {
            return Err(format!("node {node} is gone, but {said}"));
        }
        Ok(vec![format!("node {node} is gone, and no source that was asked knows it")])
    }

    /// Whether nobody has this address, by records, by Kubernetes or inside; or who does.
    pub fn is_unused(&self, address: IpAddr) -> Result<(), String> {
        let on_dead = |node: Option<&NodeName>| node.is_some_and(|node| self.is_dead(node));
        let mut endpoints = self.case.endpoints_at(address).iter().map(|endpoint| &endpoint.seen);
        if let Some(endpoint) = endpoints.find(|endpoint| !on_dead(endpoint.node.as_ref())) {
            return Err(format!("endpoint {endpoint} has {address}"));
        }
        let mut pods = self.case.pods_at(address).iter().map(|pod| &pod.seen);
        if let Some(pod) = pods.find(|pod| !pod.is_finished() && !on_dead(pod.node.as_ref())) {
            return Err(format!("pod {} shows {address}", pod.name));
        }
        match self.case.is_inside_a_pod(address) {
            true => Err(format!("a pod has {address} inside")),
            false => Ok(()),
        }
    }

    pub fn block(&self, block: &Cidr) -> Option<&'e Block> {
        self.case.evidence.ipam.as_ref()?.books.blocks.get(block).map(|stored| &stored.value)
    }

    /// The block that is missing and would contain an address that is in use.
    pub fn missing_block_of(&self, address: IpAddr) -> Option<Cidr> {
        let missing = &self.case.books_view()?.missing_blocks;
        let longest: u8 = if address.is_ipv4() { 32 } else { 128 };
        (longest - 12..=longest)
            .filter_map(|len| Cidr::containing(address, len))
            .find(|cidr| missing.get(cidr).is_some_and(|used| used.contains(&address)))
    }

    /// What a handle's own record counts.
    pub fn counted(&self, handle: &HandleId) -> BTreeMap<Cidr, i64> {
        let books = self.case.evidence.ipam.as_ref().map(|ipam| &ipam.books);
        let record = books.and_then(|books| books.handles.get(handle)).map(|stored| &stored.value);
        let counts = record.into_iter().flat_map(|record| record.block.iter());
        counts.filter_map(|(block, count)| Some((Cidr::parse_masked(block).ok()?, *count))).collect()
    }

    /// The handles that count addresses of a block, each with how many.
    pub fn counting(&self, block: &Cidr) -> &[(&'e HandleId, i64)] {
        let counting = self.counting.get_or_init(|| {
            let mut counting: BTreeMap<Cidr, Vec<(&'e HandleId, i64)>> = BTreeMap::new();
            let handles = self.case.evidence.ipam.iter().flat_map(|ipam| &ipam.books.handles);
            for (id, stored) in handles.filter(|(_, stored)| !stored.value.deleted) {
                for (block, count) in stored.value.block.iter() {
                    let Ok(block) = Cidr::parse_masked(block) else { continue };
                    counting.entry(block).or_default().push((id, *count));
                }
            }
            counting
        });
        counting.get(block).map(Vec::as_slice).unwrap_or_default()
    }

    /// How many addresses a handle really has, block by block.
    pub fn held_by(&self, handle: &HandleId) -> BTreeMap<Cidr, i64> {
        let held = self.held.get_or_init(|| {
            let mut held: BTreeMap<&HandleId, BTreeMap<Cidr, i64>> = BTreeMap::new();
            let blocks = self.case.evidence.ipam.as_ref().map(|ipam| ipam.books.blocks.iter());
            for (cidr, stored) in blocks.into_iter().flatten() {
                let block = &stored.value;
                for ordinal in 0..block.allocations.len() {
                    let Some(attribute) = block.attribute(ordinal) else { continue };
                    if let (Some(handle), None) = (attribute.handle(), &attribute.released_at) {
                        *held.entry(handle).or_default().entry(*cidr).or_default() += 1;
                    }
                }
            }
            held
        });
        held.get(handle).cloned().unwrap_or_default()
    }

    /// Who does things on a node: an acting agent, one that may repair, nobody.
    pub fn agent_of(&self, node: &NodeName) -> Option<AgentMode> {
        self.case.node(node)?.agent_mode
    }
}

impl<'g, 'e> Draft<'g, 'e> {
    pub fn new(ground: &'g Ground<'e>) -> Draft<'g, 'e> {
        Draft {
            ground,
            steps: Vec::new(),
            by_handle: BTreeMap::new(),
            allocations: BTreeMap::new(),
            records: BTreeMap::new(),
            works: BTreeSet::new(),
            left: Vec::new(),
        }
    }

    /// It stays as it is, because …
    pub fn leave(&mut self, target: &Target, why: impl Into<String>) {
        self.leave_with(target, why, Vec::new());
    }

    /// The same, with what an operator would run.
    pub fn leave_with(&mut self, target: &Target, why: impl Into<String>, commands: Vec<ShellCommand>) {
        self.left.push(Left {
            code: target.code,
            subject: target.subject.to_string(),
            summary: target.summary.clone(),
            why: why.into(),
            commands,
        });
    }

    /// The same, if recreating its pod would do.
    pub fn leave_pod(&mut self, target: &Target, why: impl Into<String>, pod: &PodName) {
        self.leave_with(target, why, vec![delete_pod(pod)]);
    }

    /// A step of its own.
    pub fn step(&mut self, target: &Target, title: impl Into<String>) -> &mut Step {
        self.steps.push(Some(Step::new(target.code, target.subject.to_string(), title)));
        self.steps.last_mut().and_then(Option::as_mut).expect("just added")
    }

    /// Whether a record may be changed as a whole, which the next one who asks may not. The step that does so already mends this
    /// one's finding, too.
    pub fn claims(&mut self, key: &Key, target: &Target) -> bool {
        let Some(&place) = self.records.get(key) else {
            self.records.insert(key.clone(), self.steps.len());
            return true;
        };
        let changes = |step: &Step| step.edits.iter().any(|edit| edit.key() == *key);
        let place = place.min(self.steps.len());
        let (before, after) = self.steps.split_at_mut(place);
        let steps = after.iter_mut().chain(before).flatten();
        if let Some(step) = steps.into_iter().find(|step| changes(step)) {
            also_fixes(step, target);
        }
        false
    }

    /// What an address will be when everything planned so far is done.
    pub fn holder(&self, block: &Block, address: IpAddr) -> Option<BlockAttribute> {
        match self.allocations.get(&(block.cidr, address)) {
            Some(planned) => planned.clone(),
            None => block.attribute(block.ordinal(address)?).cloned(),
        }
    }

    /// An address changes hands. Whatever else changes of the handles is done in the same step, which is given back.
    pub fn allocate(
        &mut self,
        target: &Target,
        title: impl Into<String>,
        block: &Block,
        address: IpAddr,
        to: Option<BlockAttribute>,
    ) -> Option<&mut Step> {
        let ordinal = block.ordinal(address)?;
        let from = block.attribute(ordinal).cloned();
        if let Some(planned) = self.allocations.get(&(block.cidr, address)) {
            // Decided already: two findings about one thing.
            let handle = planned.as_ref().or(from.as_ref()).and_then(BlockAttribute::handle);
            let place = handle.and_then(|handle| self.by_handle.get(handle)).copied();
            if let Some(step) = place.and_then(|place| self.steps[place].as_mut()) {
                also_fixes(step, target);
            }
            return None;
        }
        let handles = [&from, &to].map(|known| known.as_ref().and_then(BlockAttribute::handle).cloned());
        self.allocations.insert((block.cidr, address), to.clone());
        let sequence = block.sequence_number_for_allocation.get(&ordinal.to_string()).copied();
        let edit = Edit::Allocation {
            block: block.cidr,
            address,
            from: from.map(|attribute| Holding { attribute, sequence }),
            to: to.map(|attribute| Holding { attribute, sequence: None }),
        };
        let step = self.step_for(target, title.into(), handles.into_iter().flatten().collect());
        step.edits.push(edit);
        Some(step)
    }

    /// A block is made anew, with these addresses taken. Handles count along, as many as fit into one step with it; the others
    /// follow.
    pub fn make_block(
        &mut self,
        target: &Target,
        block: Cidr,
        owner: Option<String>,
        holds: Vec<(IpAddr, BlockAttribute)>,
        replaces_unreadable: bool,
    ) -> &mut Step {
        let mut counts: BTreeMap<HandleId, i64> = BTreeMap::new();
        for (address, attribute) in &holds {
            self.allocations.insert((block, *address), Some(attribute.clone()));
            if let Some(handle) = attribute.handle() {
                *counts.entry(handle.to_owned()).or_default() += 1;
            }
        }
        let ground = self.ground;
        let counted = |handle: &HandleId| ground.counted(handle).get(&block).copied().unwrap_or(0);
        let mut counts: Vec<Edit> = counts
            .into_iter()
            .map(|(handle, to)| Edit::Count { from: counted(&handle), handle, block, to })
            .filter(|edit| !matches!(edit, Edit::Count { from, to, .. } if from == to))
            .collect();
        let later = counts.split_off(counts.len().min(COUNTS_MAX));
        let place = self.steps.len();
        let count =
            if holds.len() == 1 { "one address".to_owned() } else { format!("{} addresses", holds.len()) };
        let title = match replaces_unreadable {
            true => format!("rebuild block {block}, which cannot be read, with {count} in use"),
            false => format!("recreate block {block}, with {count} in use"),
        };
        let step = self.step(target, title);
        step.edits.push(Edit::NewBlock { block, owner, holds, replaces_unreadable });
        step.edits.extend(counts);
        for counts in later.chunks(COUNTS_MAX) {
            let step = self.step(target, format!("recount handles of block {block}"));
            step.edits.extend_from_slice(counts);
        }
        self.steps[place].as_mut().expect("just made")
    }

    /// A handle's counts are put right, whatever they are.
    pub fn recount(&mut self, target: &Target, title: impl Into<String>, handle: &HandleId) -> &mut Step {
        self.step_for(target, title.into(), vec![handle.to_owned()])
    }

    /// Something is to be done on a node. Nothing, if the same is planned already.
    pub fn work(
        &mut self,
        target: &Target,
        title: impl Into<String>,
        node: &NodeName,
        works: Vec<RepairTask>,
    ) -> Option<&mut Step> {
        let known = &mut self.works;
        let works: Vec<RepairTask> =
            works.into_iter().filter(|work| known.insert((node.clone(), work.clone()))).collect();
        if works.is_empty() {
            return None;
        }
        match self.ground.agent_of(node) {
            Some(AgentMode::Acts | AgentMode::Repairs) => {}
            mode => {
                let commands = works.iter().flat_map(RepairTask::commands).collect();
                let why = match mode {
                    Some(_) => {
                        format!("the agent of {node} only observes; start it with --repair, or run on {node}")
                    }
                    None => format!("no agent of {node} was asked (--agent-socket); run on {node}"),
                };
                self.leave_with(target, why, commands);
                return None;
            }
        }
        let step = self.step(target, title);
        step.on_node = Some(OnNode { node: node.clone(), works });
        Some(step)
    }

    /// One change of a node's own kernel.
    pub fn change(
        &mut self,
        target: &Target,
        title: impl Into<String>,
        node: &NodeName,
        change: KernelChange,
    ) -> Option<&mut Step> {
        self.work(target, title, node, vec![RepairTask::here(change)])
    }

    /// The step that changes these handles. If several did so far, they become one.
    fn step_for(&mut self, target: &Target, title: String, handles: Vec<HandleId>) -> &mut Step {
        let mut places: Vec<usize> =
            handles.iter().filter_map(|handle| self.by_handle.get(handle).copied()).collect();
        places.sort_unstable();
        places.dedup();
        let place = match places.first() {
            None => {
                self.step(target, title);
                self.steps.len() - 1
            }
            Some(&first) => {
                let others: Vec<Step> =
                    places[1..].iter().filter_map(|place| self.steps[*place].take()).collect();
                let step = self.steps[first].as_mut().expect("steps that handles point to exist");
                others.into_iter().for_each(|other| absorb(step, other));
                join_titles(step, &title);
                also_fixes(step, target);
                for at in self.by_handle.values_mut().filter(|at| places.contains(at)) {
                    *at = first;
                }
                first
            }
        };
        for handle in handles {
            self.by_handle.insert(handle, place);
        }
        self.steps[place].as_mut().expect("it was found or made")
    }

    /// Counts of all handles that are touched, numbers, and that is the plan.
    pub(super) fn finish(mut self) -> (Vec<Step>, Vec<Left>) {
        let by_handle = std::mem::take(&mut self.by_handle);
        let moves = self.moves();
        for (handle, place) in &by_handle {
            let edits = self.counts(handle, moves.get(handle));
            if let Some(step) = self.steps[*place].as_mut() {
                step.edits.extend(edits);
            }
        }
        let mut steps: Vec<Step> = self.steps.into_iter().flatten().collect();
        steps.retain(|step| !step.edits.is_empty() || step.on_node.is_some());
        for (number, step) in (1..).zip(&mut steps) {
            step.number = number;
            step.needs_second_look |= step.takes();
        }
        (steps, self.left)
    }

    /// How many addresses each handle gets or loses, by block.
    fn moves(&self) -> BTreeMap<HandleId, BTreeMap<Cidr, i64>> {
        let mut moves: BTreeMap<HandleId, BTreeMap<Cidr, i64>> = BTreeMap::new();
        let mut count = |attribute: Option<&BlockAttribute>, cidr: Cidr, by: i64| {
            let Some(attribute) = attribute.filter(|attribute| attribute.released_at.is_none()) else {
                return;
            };
            let Some(handle) = attribute.handle() else { return };
            *moves.entry(handle.to_owned()).or_default().entry(cidr).or_default() += by;
        };
        for ((cidr, address), to) in &self.allocations {
            let block = self.ground.block(cidr);
            let from = block.and_then(|block| block.attribute(block.ordinal(*address)?));
            count(from, *cidr, -1);
            count(to.as_ref(), *cidr, 1);
        }
        moves
    }

    fn counts(&self, handle: &HandleId, moves: Option<&BTreeMap<Cidr, i64>>) -> Vec<Edit> {
        let counted = self.ground.counted(handle);
        let mut wanted = self.ground.held_by(handle);
        for (cidr, by) in moves.into_iter().flatten() {
            *wanted.entry(*cidr).or_default() += by;
        }
        let blocks: BTreeSet<Cidr> = counted.keys().chain(wanted.keys()).copied().collect();
        let number = |counts: &BTreeMap<Cidr, i64>, block: &Cidr| counts.get(block).copied().unwrap_or(0);
        blocks
            .into_iter()
            // What a block that cannot be read holds is not known: its counts stay.
            .filter(|block| !self.ground.case.doubt().is_block(block))
            .map(|block| (block, number(&counted, &block), number(&wanted, &block)))
            .filter(|(block, from, to)| from != to || (*to == 0 && counted.contains_key(block)))
            .map(|(block, from, to)| Edit::Count { handle: handle.to_owned(), block, from, to })
            .collect()
    }
}

/// The command that has a pod recreated.
pub(super) fn delete_pod(pod: &PodName) -> ShellCommand {
    let command = ShellCommand::new("kubectl delete pod");
    match &pod.namespace {
        Some(namespace) => command.plain("-n").value(namespace).value(&pod.name),
        None => command.value(&pod.name),
    }
}

fn absorb(step: &mut Step, other: Step) {
    join_titles(step, &other.title);
    step.also.push(Fixed { code: other.code, subject: other.subject });
    step.also.extend(other.also);
    step.because.extend(other.because);
    step.needs_second_look |= other.needs_second_look;
    step.edits.extend(other.edits);
}

fn also_fixes(step: &mut Step, target: &Target) {
    let fixed = target.fixed();
    if !step.fixes().any(|known| known == (fixed.code, fixed.subject.as_str())) {
        step.also.push(fixed);
    }
}

fn join_titles(step: &mut Step, title: &str) {
    if !step.title.contains(title) {
        step.title = format!("{}; {title}", step.title);
    }
}
