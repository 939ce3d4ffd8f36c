//! What the check says: calicoctl's lines in calicoctl's order, then what calicoctl does not look for.

use std::collections::BTreeMap;
use std::io::{self, Write};
use std::net::IpAddr;

use ipam::check::{Problem, Unjudged, User};
use model::ipam::{Block, BlockAttribute};
use model::{FindingCode, HandleId, Key, TextMap};

use super::Found;
use crate::cli::IpamCheck;

/// How many nodes are named.
const NODES_NAMED: usize = 20;

pub(super) fn write<'a>(check: &IpamCheck, found: &'a Found<'a>, out: &'a mut dyn Write) -> io::Result<()> {
    let (names_all, names_problems) = (check.show_all_ips, check.show_all_ips || check.show_problem_ips);
    let mut text = Text { out, found, names_all, names_problems };
    text.line("Checking IPAM for inconsistencies...\n")?;
    text.blocks()?;
    text.pools()?;
    text.users()?;
    text.busiest_nodes()?;
    text.addresses()?;
    text.records()?;
    text.beyond_calicoctl()?;
    text.codes()?;
    let not_judged = match text.unjudged()? {
        0 => String::new(),
        count => format!("; {count} not judged"),
    };
    text.line(&format!("Check complete; found {} problems{not_judged}.", found.problems.len()))?;
    text.out.flush()
}

struct Text<'a> {
    out: &'a mut dyn Write,
    found: &'a Found<'a>,
    names_all: bool,
    names_problems: bool,
}

impl<'a> Text<'a> {
    fn blocks(&mut self) -> io::Result<()> {
        let allocations = &self.found.analysis.allocations;
        let blocks: Vec<&Block> =
            self.found.facts.books.blocks.values().map(|stored| &stored.value).collect();
        self.line("Loading all IPAM blocks...")?;
        self.line(&format!("Found {} IPAM blocks.", blocks.len()))?;
        let mut recorded = 0;
        for block in blocks {
            let owner = block.owner().map(|owner| format!("{}:{}", owner.type_word(), owner.name()));
            let owner = owner.or_else(|| block.affinity.clone());
            self.line(&format!(
                " IPAM block {} affinity={}:",
                block.cidr,
                owner.as_deref().unwrap_or("<none>")
            ))?;
            recorded += block.allocations.iter().flatten().count();
            if self.names_all {
                let start = allocations.partition_point(|one| one.address < block.cidr.network());
                let inside = allocations[start..].iter().take_while(|one| block.cidr.contains(one.address));
                for one in inside.filter(|one| one.block == block.cidr) {
                    self.line(&format!("  {} allocated; attrs {}", one.address, attributes(one.attribute)))?;
                }
            }
        }
        self.line(&format!("IPAM blocks record {recorded} allocations.\n"))
    }

    fn pools(&mut self) -> io::Result<()> {
        self.line("Loading all IPAM pools...")?;
        let enabled = self.found.facts.pools.iter().filter(|pool| pool.is_enabled());
        let enabled: Vec<String> = enabled.map(|pool| pool.cidr.to_string()).collect();
        enabled.iter().try_for_each(|cidr| self.line(&format!("  {cidr}")))?;
        self.line(&format!("Found {} active IP pools.\n", enabled.len()))
    }

    fn users(&mut self) -> io::Result<()> {
        let facts = self.found.facts;
        self.line("Loading all nodes.")?;
        let mut tunnels = 0;
        for node in &facts.nodes {
            for (_, address) in &node.tunnels {
                self.belongs(*address, &format!("Node({})", node.name))?;
                tunnels += 1;
            }
        }
        self.line(&format!("Found {tunnels} node tunnel IPs.\n"))?;
        self.line("Loading all service load balancer IPs.")?;
        for (name, address) in self.found.services {
            self.belongs(*address, name)?;
        }
        let services = self.found.services.len();
        self.line(&format!(
            "Services are not read from Kubernetes; {services} IPs held for load balancers count as in use.\n"
        ))?;
        self.line("Loading all workload endpoints.")?;
        let mut workloads = 0;
        for endpoint in &facts.endpoints {
            for address in endpoint.addresses.iter() {
                self.belongs(*address, &format!("Workload({}/{})", endpoint.namespace, endpoint.name))?;
                workloads += 1;
            }
        }
        self.line(&format!("Found {workloads} workload IPs."))?;
        self.line(&format!("Workloads and nodes are using {} IPs.\n", self.found.analysis.in_use))?;
        self.line("Loading all handles")
    }

    fn belongs(&mut self, address: IpAddr, owner: &str) -> io::Result<()> {
        if self.names_all { self.line(&format!("  {address} belongs to {owner}")) } else { Ok(()) }
    }

    fn busiest_nodes(&mut self) -> io::Result<()> {
        self.line(&format!("Looking for top (up to {NODES_NAMED}) nodes by allocations..."))?;
        let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
        for allocated in &self.found.analysis.allocations {
            *counts.entry(self.found.node_of(allocated)).or_default() += 1;
        }
        let mut counts: Vec<(&str, usize)> = counts.into_iter().collect();
        counts.sort_by_key(|(_, count)| std::cmp::Reverse(*count));
        for (node, count) in counts.iter().take(NODES_NAMED) {
            self.line(&format!("  {node} has {count} allocations"))?;
        }
        if let (Some((_, most)), Some((_, median))) = (counts.first(), counts.get(counts.len() / 2)) {
            self.line(&format!("Node with most allocations has {most}; median is {median}"))?;
        }
        self.line("")
    }

    fn addresses(&mut self) -> io::Result<()> {
        let analysis = self.found.analysis;
        self.line("Scanning for IPs that are allocated but not actually in use...")?;
        let leaked = self.all(|problem| matches!(problem, Problem::Leaked { .. }));
        self.name_each(&leaked, |problem| {
            let Problem::Leaked { address, .. } = problem else { return Vec::new() };
            let start = analysis.allocations.partition_point(|one| one.address < *address);
            let same = analysis.allocations[start..].iter().take_while(|one| one.address == *address);
            same.map(|one| format!("{address} leaked; attrs {}", attributes(one.attribute))).collect()
        })?;
        let count = leaked.len();
        self.line(&format!("Found {count} IPs that are allocated in IPAM but not actually in use."))?;
        self.line("Scanning for IPs that are in use by a workload or node but not allocated in IPAM...")?;
        let outside = self.all(|problem| matches!(problem, Problem::UsedOutsidePools { .. }));
        self.name_each(&outside, |problem| used(problem, "is not in any active IP pool."))?;
        let free = self.all(|problem| matches!(problem, Problem::UsedNotAllocated { .. }));
        self.name_each(&free, |problem| {
            used(problem, "and in active IPAM pool but has no IPAM allocation.")
        })?;
        self.line(&format!("Found {} in-use IPs that are not in active IP pools.", outside.len()))?;
        self.line(&format!(
            "Found {} in-use IPs that are in active IP pools but have no corresponding IPAM allocation.\n",
            free.len()
        ))
    }

    fn records(&mut self) -> io::Result<()> {
        self.line("Scanning for IPAM handles with no matching IPs...")?;
        let unused = self.all(|problem| matches!(problem, Problem::HandleUnused { .. }));
        self.name_each(&unused, |problem| match problem {
            Problem::HandleUnused { handle, .. } => vec![format!("{handle} doesn't have any active IPs.")],
            _ => Vec::new(),
        })?;
        let matching = self.found.facts.books.handles.len().saturating_sub(unused.len());
        self.line(&format!(
            "Found {} handles with no matching IPs (and {matching} handles with matches).",
            unused.len()
        ))?;
        self.line("Scanning for IPs with missing handle...")?;
        let missing = self.all(|problem| matches!(problem, Problem::HandleMissing { .. }));
        self.name_each(&missing, |problem| match problem {
            Problem::HandleMissing { handle, .. } => {
                vec![format!("{handle} is in use in a block but doesn't exist.")]
            }
            _ => Vec::new(),
        })?;
        let count = missing.len();
        self.line(&format!("Found {count} handles mentioned in blocks with no matching handle resource."))?;
        self.line("Validating IPAMBlock structures...")?;
        let invalid = self.all(is_invalid_block);
        for problem in &invalid {
            let Some((Key::Block(cidr), reasons)) = corruption(problem) else { continue };
            self.problem(problem, &format!("IPAMBlock {cidr} is invalid: {reasons}"))?;
        }
        self.line(&format!("Found {} invalid IPAMBlocks.", invalid.len()))
    }

    fn beyond_calicoctl(&mut self) -> io::Result<()> {
        self.line("Scanning for IPs with several owners...")?;
        self.kind("IPs that are used by several workloads or nodes", |problem| {
            matches!(problem, Problem::SeveralUsers { .. })
        })?;
        self.kind("IPs that are allocated in several blocks", |problem| {
            matches!(problem, Problem::AllocatedTwice { .. })
        })?;
        self.line("Comparing handles, blocks, affinities and nodes...")?;
        self.kind("wrong counts in handles", |problem| matches!(problem, Problem::HandleCount { .. }))?;
        self.kind("blocks that overlap another block", |problem| {
            matches!(problem, Problem::BlocksOverlap(..))
        })?;
        self.kind("affinities that disagree with their block", |problem| {
            matches!(
                problem,
                Problem::AffinityMissing { .. }
                    | Problem::AffinityDiffers { .. }
                    | Problem::AffinityUnfinished { .. }
            )
        })?;
        self.kind("blocks of nodes that are gone", |problem| {
            matches!(problem, Problem::AffinityOfGoneNode { .. })
        })?;
        let unreadable = self.all(|problem| corruption(problem).is_some() && !is_invalid_block(problem));
        for problem in &unreadable {
            let Some((key, reasons)) = corruption(problem) else { continue };
            self.problem(problem, &format!("{key} cannot be read: {reasons}"))?;
        }
        self.line(&format!("Found {} other records that cannot be read.", unreadable.len()))
    }

    /// What was not judged, and how much that is: without it, no problems would be taken for health.
    fn unjudged(&mut self) -> io::Result<usize> {
        let Unjudged { used, allocated, outside_pools, handles } = self.found.unjudged();
        let text = |addresses: &[IpAddr]| addresses.iter().map(IpAddr::to_string).collect();
        let mut count = 0;
        let young = text(self.found.young);
        for (names, what) in [
            (young, "IPs that are not in use yet: they were allocated less than --grace ago"),
            (text(allocated), "IPs that no readable workload or node uses: an unreadable one may use them"),
            (text(used), "IPs in use whose block cannot be trusted"),
            (
                text(outside_pools),
                "IPs in use outside every readable pool: an unreadable pool may contain them",
            ),
            (
                handles.iter().map(HandleId::to_string).collect(),
                "handles that no readable block refers to: an unreadable block may",
            ),
        ] {
            let names: Vec<String> = names;
            if names.is_empty() {
                continue;
            }
            count += names.len();
            self.line(&format!("Not judged: {} {what}.", names.len()))?;
            if self.names_problems {
                names.iter().try_for_each(|name| self.line(&format!("  {name} is not judged.")))?;
            }
        }
        Ok(count)
    }

    /// Problems of one kind, each by name if that was asked for, then how many.
    fn kind(&mut self, what: &str, is_meant: impl Fn(&Problem) -> bool) -> io::Result<()> {
        let problems = self.all(is_meant);
        self.name_each(&problems, |problem| vec![problem.to_string()])?;
        self.line(&format!("Found {} {what}.", problems.len()))
    }

    fn all(&self, is_meant: impl Fn(&Problem) -> bool) -> Vec<&'a Problem> {
        self.found.problems.iter().filter(|problem| is_meant(problem)).collect()
    }

    fn name_each(
        &mut self,
        problems: &[&Problem],
        lines: impl Fn(&Problem) -> Vec<String>,
    ) -> io::Result<()> {
        if !self.names_problems {
            return Ok(());
        }
        for problem in problems {
            lines(problem).iter().try_for_each(|line| self.problem(problem, line))?;
        }
        Ok(())
    }

    /// calicoctl's words, and the doctor's code.
    fn problem(&mut self, problem: &Problem, line: &str) -> io::Result<()> {
        let code = problem.code(&self.found.facts.books);
        self.line(&format!("  {line} [{code}]"))
    }

    /// How many problems have which code: without names, the lines before do not show it.
    fn codes(&mut self) -> io::Result<()> {
        let mut counts: BTreeMap<FindingCode, usize> = BTreeMap::new();
        for problem in self.found.problems {
            *counts.entry(problem.code(&self.found.facts.books)).or_default() += 1;
        }
        if counts.is_empty() {
            return Ok(());
        }
        let counts: Vec<String> = counts.iter().map(|(code, count)| format!("{code} ({count})")).collect();
        self.line(&format!("Finding codes, see plumb doctor explain CODE: {}", counts.join(", ")))
    }

    /// Names in it were written by others: they give the terminal no orders.
    fn line(&mut self, text: &str) -> io::Result<()> {
        let is_order = |character: char| character.is_control() && character != '\n';
        match text.contains(is_order) {
            true => writeln!(self.out, "{}", text.replace(is_order, "\u{fffd}")),
            false => writeln!(self.out, "{text}"),
        }
    }
}

fn is_invalid_block(problem: &Problem) -> bool {
    matches!(corruption(problem), Some((Key::Block(_), _)))
}

fn corruption(problem: &Problem) -> Option<(&Key, String)> {
    let Problem::Corrupt(corrupt) = problem else { return None };
    Some((&corrupt.key, corrupt.contradictions.join("; ")))
}

/// A line for each user of an address.
fn used(problem: &Problem, what: &str) -> Vec<String> {
    let (Problem::UsedOutsidePools { address, users } | Problem::UsedNotAllocated { address, users }) =
        problem
    else {
        return Vec::new();
    };
    users.iter().map(|user| format!("{address} in use by {} {what}", friendly(user))).collect()
}

/// As calicoctl names users.
fn friendly(user: &User) -> String {
    match user {
        User::Endpoint { namespace, name } => format!("Workload({namespace}/{name})"),
        User::Tunnel { node, .. } => format!("Node({node})"),
        User::Service(name) => name.clone(),
    }
}

fn attributes(attribute: &BlockAttribute) -> String {
    let listed = |attributes: &TextMap<String>| {
        let pairs: Vec<String> = attributes.iter().map(|(name, value)| format!("{name}={value}")).collect();
        pairs.join(",")
    };
    let handle = attribute.handle().map_or("<none>", HandleId::as_str);
    let alternate = match attribute.alternate_owner.is_empty() {
        true => String::new(),
        false => format!(" Alternate:{}", listed(&attribute.alternate_owner)),
    };
    format!("Main:{handle} Extra:{}{alternate}", listed(&attribute.secondary))
}
