//! What has been read of one file so far. Where it belongs is settled when all files are read.

use std::cell::Cell;
use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, Ipv4Addr};

use model::NodeName;

use evidence::firewall::{Chain, Firewall};
use evidence::kernel::{Kernel, PodView};
use evidence::{Evidence, FileGap, IpamEvidence, NodeEvidence, Origin, PodName, SharedText, Sighted, Unseen};

use model::text::Line;

/// The longest line that is kept with what was read from it.
const QUOTE_CHARS_MAX: usize = 300;
/// What one thing that was seen takes, about, besides the line it was seen in.
const SIGHT_BYTES: usize = 1_000;
/// And a node, or a view from inside a pod.
const NODE_BYTES: usize = 4_000;
/// A rule of a firewall, besides its text.
const RULE_BYTES: usize = 400;
/// Of one file no more things that could not be read are named than this; the others are counted.
const UNSEEN_MAX: usize = 100;

/// One file's evidence.
#[derive(Debug, Default)]
pub(crate) struct Draft {
    /// Its name, shared by all that is read from it.
    pub(crate) file: SharedText,
    /// What is known of the cluster as a whole.
    pub(crate) cluster: Evidence,
    /// What is one node's, by the name that a prompt gave it, or else `None`: the file's own.
    pub(crate) nodes: BTreeMap<Option<NodeName>, NodeEvidence>,
    /// Lists of which it is known that nothing is missing.
    pub(crate) whole: WholeLists,
    /// Whose its log is, by the commands between.
    pub(crate) log_owners: Vec<LogOwner>,
    /// It holds custom resources of Calico, so the store is Kubernetes.
    pub(crate) has_custom_resources: bool,
    /// About how many bytes are kept of it.
    kept: Cell<usize>,
    /// The tables of rules that each node has.
    tables: BTreeMap<Option<NodeName>, BTreeSet<(String, String)>>,
    /// Where views from inside pods stand in their node's list.
    views: BTreeMap<(Option<NodeName>, Option<PodName>), usize>,
    /// What could not be read and is only counted.
    more_unseen: usize,
}

/// From one event on a log is a pod's (`kubectl logs`), or was printed on a host.
#[derive(Clone, Debug)]
pub(crate) struct LogOwner {
    pub(crate) first: usize,
    pub(crate) pod: Option<String>,
    pub(crate) host: Option<NodeName>,
}

#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct WholeLists {
    pub(crate) pods: bool,
    pub(crate) kube_nodes: bool,
    pub(crate) endpoints: bool,
}

/// What a section of a file is about: its command, the machine it ran on, and whether it ran inside a pod.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Section {
    pub(crate) command: Option<String>,
    pub(crate) host: Option<NodeName>,
    /// `Some(None)`: inside a pod that nobody named.
    pub(crate) pod: Option<Option<PodName>>,
}

impl Draft {
    pub(crate) fn new(file: &str) -> Draft {
        let draft = Draft { file: file.into(), ..Draft::default() };
        // It takes memory even if nothing is in it, and there may be very many.
        draft.keep(SIGHT_BYTES + file.len());
        draft
    }

    pub(crate) fn origin(&self, line: &Line) -> Origin {
        self.origin_at(line.number, &line.text)
    }

    pub(crate) fn origin_at(&self, number: u32, text: &str) -> Origin {
        let text = text.trim();
        let quote: String = text.chars().take(QUOTE_CHARS_MAX).collect();
        let quote = if quote.len() < text.len() { quote + " …" } else { quote };
        // What is read from a line may be as long as the line.
        self.keep(SIGHT_BYTES + quote.len() + text.len());
        Origin::line(&self.file, number, &quote)
    }

    pub(crate) fn sight<T>(&self, line: &Line, seen: T) -> Sighted<T> {
        Sighted::new(seen, self.origin(line))
    }

    /// A rule of a firewall, with what it is kept in.
    pub(crate) fn keep_rule(&self, text: &str) {
        self.keep(RULE_BYTES + text.len());
    }

    /// So many bytes are kept of it.
    pub(crate) fn keep(&self, bytes: usize) {
        self.kept.set(self.kept.get().saturating_add(bytes));
    }

    /// Something that is kept without a line of its own.
    pub(crate) fn keep_one(&self) {
        self.keep(SIGHT_BYTES);
    }

    /// About how much memory it takes.
    pub(crate) fn kept(&self) -> usize {
        self.kept.get()
    }

    /// Something that could not be read.
    pub(crate) fn unseen(&mut self, gap: FileGap) {
        if self.cluster.unseen.len() < UNSEEN_MAX {
            self.add_unseen(gap);
        } else {
            self.more_unseen += 1;
        }
    }

    /// The same, however much there is of it.
    pub(crate) fn add_unseen(&mut self, gap: FileGap) {
        self.cluster.unseen.push(Unseen::file(self.file.as_str(), gap));
    }

    /// Says how much else could not be read.
    pub(crate) fn finish(mut self) -> Draft {
        if self.more_unseen > 0 {
            self.add_unseen(FileGap::MoreItems(self.more_unseen));
        }
        self
    }

    pub(crate) fn ipam(&mut self) -> &mut IpamEvidence {
        self.cluster.ipam.get_or_insert_default()
    }

    /// What follows in the log is this one's. Where nothing came since the one before, that one owns nothing.
    pub(crate) fn log_goes_to(&mut self, owner: LogOwner) {
        match self.log_owners.last_mut().filter(|last| last.first == owner.first) {
            Some(last) => *last = owner,
            None => {
                self.keep(SIGHT_BYTES + owner.pod.as_ref().map_or(0, String::len));
                self.log_owners.push(owner);
            }
        }
    }

    /// Rules of a dump: of each table the first that was shown counts.
    pub(crate) fn add_firewall(&mut self, section: &Section, firewall: Sighted<Firewall>) {
        let known = self.tables.entry(section.host.clone()).or_default();
        let new = firewall.seen.tables();
        let new: BTreeSet<(String, String)> =
            new.into_iter().filter(|table| known.insert(table.clone())).collect();
        let is_new = |chain: &Chain| new.contains(&(chain.family.clone(), chain.table.clone()));
        match &mut self.node(section).firewall {
            Some(mine) => mine.seen.absorb(firewall.seen, is_new),
            none => *none = Some(firewall),
        }
    }

    /// A whole ruleset, which replaces what was shown before.
    pub(crate) fn replace_firewall(&mut self, section: &Section, firewall: Sighted<Firewall>) {
        self.tables.insert(section.host.clone(), firewall.seen.tables());
        self.node(section).firewall = Some(firewall);
    }

    /// The node that a section speaks of.
    pub(crate) fn node(&mut self, section: &Section) -> &mut NodeEvidence {
        let kept = &self.kept;
        let name = || section.host.clone().unwrap_or_else(|| self.file.as_str().into());
        self.nodes.entry(section.host.clone()).or_insert_with(|| {
            kept.set(kept.get().saturating_add(NODE_BYTES));
            NodeEvidence::new(name())
        })
    }

    /// Settles whose kernel a section has shown.
    pub(crate) fn place_kernel(&mut self, section: &Section, kernel: Kernel) {
        if kernel.is_empty() {
            return;
        }
        let file_names_pod = is_named_for_a_pod(&self.file);
        match &section.pod {
            None if !is_inside_pod(&kernel) && !file_names_pod => self.node(section).kernel.absorb(kernel),
            pod => self.place_view(section, pod.clone().flatten(), kernel),
        }
    }

    fn place_view(&mut self, section: &Section, pod: Option<PodName>, kernel: Kernel) {
        let place = self.views.get(&(section.host.clone(), pod.clone())).copied();
        let views = self.node(section).pod_views.get_or_insert_default();
        if let Some(view) = place.and_then(|place| views.get_mut(place)) {
            view.kernel.absorb(kernel);
            return;
        }
        let place = views.len();
        views.push(PodView { pod: pod.clone(), kernel, ..PodView::default() });
        self.keep(NODE_BYTES);
        self.views.insert((section.host.clone(), pod), place);
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.nodes.is_empty() && self.cluster.is_empty()
    }
}

/// `node.pod-arp.txt`: a part of the name says that it was taken inside a pod.
fn is_named_for_a_pod(file: &str) -> bool {
    let base = file.rsplit('/').next().unwrap_or(file);
    base.split('.').skip(1).any(|part| part == "pod" || part.starts_with("pod-"))
}

/// The gateway that only pods have, or an address of its own on the near end of a pair.
fn is_inside_pod(kernel: &Kernel) -> bool {
    let is_gateway = |address: &IpAddr| *address == GATEWAY;
    let routes = kernel.routes.iter().flatten().any(|route| route.seen.via.as_ref().is_some_and(is_gateway));
    let neighbours = kernel.neighbours.iter().flatten().any(|neighbour| is_gateway(&neighbour.seen.address));
    let pairs = kernel.links.iter().flatten().map(|link| &link.seen);
    let pairs: BTreeSet<&str> = pairs
        .filter(|link| link.peer_index.is_some() && !link.is_workload())
        .map(|link| link.name.as_str())
        .collect();
    let has_pair = |device: &str| pairs.contains(device);
    let single = kernel.addresses.iter().flatten().any(|held| {
        let net = held.seen.net;
        net.prefix_len() == net.max_prefix_len() && !net.addr().is_loopback() && has_pair(&held.seen.device)
    });
    routes || neighbours || single
}

/// Calico's gateway inside every pod.
const GATEWAY: IpAddr = IpAddr::V4(Ipv4Addr::new(169, 254, 1, 1));
