//! Who can send packets to whose pods: node by node, from the routes in each kernel.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use doctor::{Case, Tried};
use evidence::kernel::RouteKind;
use evidence::{Evidence, NodeEvidence};
use ipnet::IpNet;
use model::NodeName;

use super::markup::{Markup, html};
use super::more;

/// Nodes on each side of the table.
const NODES_SHOWN: usize = 40;

/// What one node's kernel says about another node's blocks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Cell {
    pub(super) state: State,
    pub(super) words: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum State {
    No,
    Partly,
    Yes,
    Unknown,
    Itself,
}

impl State {
    fn class(self) -> &'static str {
        match self {
            State::No => "no",
            State::Partly => "partly",
            State::Yes => "yes",
            State::Unknown => "unknown",
            State::Itself => "self",
        }
    }

    fn sign(self) -> &'static str {
        match self {
            State::No => "✗",
            State::Partly => "◐",
            State::Yes => "✓",
            State::Unknown => "·",
            State::Itself => "–",
        }
    }
}

/// A node as others send to it.
struct Target<'e> {
    name: &'e NodeName,
    addresses: BTreeSet<IpAddr>,
    blocks: Vec<IpNet>,
}

/// Says whether there was anything to show.
pub(super) fn section(page: &mut Markup, case: &Case<'_>) -> bool {
    let targets = targets(case);
    let looked = |node: &&NodeEvidence| node.kernel.routes.is_some() && !node.kernel.partial.routes;
    if targets.len() < 2 || !case.nodes.values().any(|node| looked(&node)) {
        return false;
    }
    let cell =
        |from: &Target<'_>, to: &Target<'_>| tried(case, from.name, to, cell(case.evidence, from.name, to));
    let mut rows: Vec<(&Target<'_>, Vec<Cell>)> =
        targets.values().map(|from| (from, targets.values().map(|to| cell(from, to)).collect())).collect();
    // Whoever is in trouble comes first; the order of names decides the rest.
    rows.sort_by_key(|(_, cells)| cells.iter().map(|cell| cell.state).min());
    page.section("reachability", "Reachability");
    page.raw("<p class=\"soft\">Whether the kernel of the node on the left has routes to all blocks of the node above, through an address of that node");
    page.raw(if case.has_probes() { ", and whether packets arrive there.</p>\n" } else { ".</p>\n" });
    legend(page);
    page.raw("<div class=\"scroll\" tabindex=\"0\" role=\"region\" aria-labelledby=\"reachability-title\">");
    page.raw("<table class=\"matrix\">\n<thead><tr><th scope=\"col\">from \\ to</th>");
    for to in targets.values().take(NODES_SHOWN) {
        html!(page, "<th scope=\"col\"><span class=\"name\">{}</span></th>", to.name);
    }
    page.raw("</tr></thead>\n<tbody>\n");
    for (from, cells) in rows.iter().take(NODES_SHOWN) {
        html!(page, "<tr><th scope=\"row\">{}</th>", from.name);
        for Cell { state, words } in cells.iter().take(NODES_SHOWN) {
            html!(
                page,
                "<td class=\"{}\" title=\"{}\"><span aria-hidden=\"true\">{}</span>",
                state.class(),
                words,
                state.sign()
            );
            html!(page, "<span class=\"hidden\">{}</span></td>", words);
        }
        page.raw("</tr>\n");
    }
    page.raw("</tbody></table></div>\n");
    more(page, targets.len().saturating_sub(NODES_SHOWN), "more nodes");
    page.raw("</section>\n");
    true
}

fn legend(page: &mut Markup) {
    page.raw("<ul class=\"legend\">");
    for (state, words) in [
        (State::Yes, "all blocks are routed there"),
        (State::Partly, "some blocks are routed there"),
        (State::No, "no block is routed there, or packets are lost"),
        (State::Unknown, "not observed, or no blocks"),
    ] {
        html!(page, "<li>{} {}</li>", state.sign(), words);
    }
    page.raw("</ul>\n");
}

/// Every node that is known, in the order of names.
fn targets<'e>(case: &'e Case<'_>) -> BTreeMap<NodeName, Target<'e>> {
    let mut targets: BTreeMap<NodeName, Target<'e>> = BTreeMap::new();
    for (key, view) in case.node_views() {
        let mut addresses: BTreeSet<IpAddr> =
            view.addresses.iter().map(|recorded| recorded.address()).collect();
        addresses.extend(view.internal_ips());
        addresses.extend(view.tunnels.iter().map(|(_, address)| *address));
        targets.insert(key.clone(), Target { name: &view.name, addresses, blocks: Vec::new() });
    }
    for (key, node) in &case.nodes {
        let target = targets.entry(key.clone()).or_insert_with(|| Target {
            name: &node.name,
            addresses: BTreeSet::new(),
            blocks: Vec::new(),
        });
        let held = node.kernel.addresses.iter().flatten().map(|held| held.seen.net.addr());
        target.addresses.extend(held.filter(|address| !address.is_loopback()));
    }
    let books = case.ipam.as_ref().map(|ipam| &ipam.books);
    for stored in books.iter().flat_map(|books| books.blocks.values()) {
        let owner = stored.value.owner().and_then(|owner| owner.node());
        if let Some(target) = owner.and_then(|owner| targets.get_mut(&owner)) {
            target.blocks.extend(stored.value.cidr.to_string().parse::<IpNet>());
        }
    }
    targets
}

fn cell(evidence: &Evidence, from: &NodeName, to: &Target<'_>) -> Cell {
    if from == to.name {
        return Cell { state: State::Itself, words: "the node itself".to_owned() };
    }
    let kernel = evidence.node(from).map(|node| &node.kernel);
    let Some(kernel) = kernel.filter(|kernel| kernel.routes.is_some() && !kernel.partial.routes) else {
        return Cell {
            state: State::Unknown,
            words: format!("{from} to {}: its routes were not collected", to.name),
        };
    };
    if to.blocks.is_empty() {
        return Cell { state: State::Unknown, words: format!("{from} to {}: no blocks are known", to.name) };
    }
    let leads_there = |block: &&IpNet| {
        let route = kernel.route_for(block.addr()).map(|route| &route.seen);
        route.is_some_and(|route| {
            route.kind == RouteKind::Unicast
                && !route.is_dead
                && route.via.is_some_and(|via| to.addresses.contains(&via))
        })
    };
    let missing: Vec<String> =
        to.blocks.iter().filter(|block| !leads_there(block)).map(IpNet::to_string).collect();
    let state = match missing.len() {
        0 => State::Yes,
        all if all == to.blocks.len() => State::No,
        _ => State::Partly,
    };
    let words = match missing.len() {
        0 => format!("{from} to {}: all {} routed", to.name, crate::count::count(to.blocks.len(), "block")),
        _ => format!("{from} to {}: no route to {}", to.name, shortened(&missing)),
    };
    Cell { state, words }
}

/// What packets told, beside what routes do.
fn tried(case: &Case<'_>, from: &NodeName, to: &Target<'_>, cell: Cell) -> Cell {
    if cell.state == State::Itself {
        return cell;
    }
    match case.way(from, to.name) {
        None => cell,
        Some(Tried::Arrived) => Cell { words: format!("{}; packets arrive", cell.words), ..cell },
        Some(Tried::Lost(lost)) => {
            let lost: Vec<String> = lost.iter().map(|(address, _)| address.to_string()).collect();
            let words = format!("{}; packets to {} are lost", cell.words, shortened(&lost));
            Cell { state: State::No, words }
        }
    }
}

fn shortened(names: &[String]) -> String {
    const NAMED: usize = 3;
    let rest = names.len().saturating_sub(NAMED);
    let named = names[..names.len() - rest].join(", ");
    if rest == 0 { named } else { format!("{named} and {rest} more") }
}

#[cfg(test)]
mod tests {
    use doctor::Options;
    use evidence::probe::Echo;
    use evidence::sample::Sample;
    use evidence::{Origin, Sighted};

    use super::*;

    fn sample() -> Evidence {
        Sample { nodes: 3, blocks_per_node: 2, pods_per_node: 4, has_kernels: true }.evidence()
    }

    fn states(evidence: &Evidence) -> Vec<State> {
        let options = Options::default();
        let case = Case::new(evidence, &options);
        let targets = targets(&case);
        targets
            .values()
            .flat_map(|from| targets.values().map(|to| cell(evidence, from.name, to).state))
            .collect()
    }

    #[test]
    fn a_healthy_cluster_is_reachable_from_everywhere() {
        use State::{Itself, Yes};
        assert_eq!(states(&sample()), [Itself, Yes, Yes, Yes, Itself, Yes, Yes, Yes, Itself]);
    }

    #[test]
    fn packets_that_are_lost_outweigh_routes_that_are_there() {
        let mut evidence = sample();
        let pod = evidence.endpoints.as_ref().unwrap()[4].seen.addresses[0];
        let names: Vec<NodeName> = evidence.nodes.keys().cloned().collect();
        for (node, echo) in [(0, Echo::Silent), (1, Echo::Answered), (2, Echo::Answered)] {
            let sighted = Sighted::new(echo, Origin::probe(&names[node], "echo"));
            evidence.nodes.get_mut(&names[node]).unwrap().setup.probed = Some([(pod, sighted)].into());
        }
        let options = Options::default();
        let case = Case::new(&evidence, &options);
        let targets = targets(&case);
        let to = &targets[&names[1]];
        let state = |from: usize| {
            let cell = tried(&case, &names[from], to, cell(&evidence, &names[from], to));
            (cell.state, cell.words.rsplit("; ").next().unwrap().to_owned())
        };
        assert_eq!(state(0), (State::No, format!("packets to {pod} are lost")));
        assert_eq!(state(1).0, State::Itself);
        assert_eq!(state(2), (State::Yes, "packets arrive".to_owned()));
        let mut page = Markup::default();
        assert!(section(&mut page, &case));
    }

    #[test]
    fn a_route_that_does_not_work_leads_nowhere() {
        let spoiled = |spoil: fn(&mut evidence::kernel::Route)| {
            let mut evidence = sample();
            let first = evidence.nodes.values_mut().next().unwrap();
            let routes = first.kernel.routes.as_mut().unwrap().iter_mut();
            routes.filter(|route| route.seen.via.is_some()).for_each(|route| spoil(&mut route.seen));
            states(&evidence)[..3].to_vec()
        };
        let nowhere = [State::Itself, State::No, State::No];
        assert_eq!(spoiled(|route| route.is_dead = true), nowhere);
        assert_eq!(spoiled(|route| route.kind = RouteKind::Unreachable), nowhere);
        assert_eq!(spoiled(|route| route.via = Some([198, 51, 100, 1].into())), nowhere);
    }

    #[test]
    fn what_is_missing_is_seen_and_what_is_not_looked_at_is_not_claimed() {
        let mut evidence = sample();
        let names: Vec<NodeName> = evidence.nodes.keys().cloned().collect();
        let blocks = |node: usize| -> Vec<IpNet> {
            let options = Options::default();
            let case = Case::new(&evidence, &options);
            targets(&case).values().nth(node).unwrap().blocks.clone()
        };
        let (second, third) = (blocks(1), blocks(2));
        let routes = evidence.nodes.get_mut(&names[0]).unwrap().kernel.routes.as_mut().unwrap();
        routes
            .retain(|route| route.seen.destination != second[0] && !third.contains(&route.seen.destination));
        evidence.nodes.get_mut(&names[1]).unwrap().kernel.routes = None;
        let states = states(&evidence);
        assert_eq!(states[..3], [State::Itself, State::Partly, State::No]);
        assert_eq!(states[3..6], [State::Unknown, State::Itself, State::Unknown]);
    }
}
