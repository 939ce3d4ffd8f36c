//! Pools, their blocks, and of each block every address: free, used, leaked, shared.

use std::collections::BTreeMap;
use std::net::IpAddr;

use doctor::{Report, Subject};
use evidence::Evidence;
use model::ipam::Block;
use model::{Cidr, FindingCode, Kind};
use serde_json::Value;

use super::markup::{Markup, html};
use super::more;
use crate::count::{count, grouped};

/// Blocks that are drawn, over all pools. Those with findings come first.
const BLOCKS_DRAWN: usize = 240;
/// Addresses that are named below a block.
const ADDRESSES_NAMED: usize = 4;
/// Addresses in a row of a drawing, and how large each is.
const COLUMNS: usize = 16;
const CELL: usize = 8;

/// Better known last: a shared address is also a used one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum State {
    Free,
    Used,
    /// Something else is wrong with it.
    Other,
    Leaked,
    Shared,
}

impl State {
    const ALL: [State; 5] = [State::Free, State::Used, State::Leaked, State::Shared, State::Other];

    fn class(self) -> &'static str {
        match self {
            State::Free => "free",
            State::Used => "used",
            State::Other => "other",
            State::Leaked => "leaked",
            State::Shared => "shared",
        }
    }

    fn words(self) -> &'static str {
        match self {
            State::Free => "free",
            State::Used => "used",
            State::Other => "another finding",
            State::Leaked => "leaked: allocated but not in use",
            State::Shared => "shared: several endpoints have it",
        }
    }

    fn of_code(code: FindingCode) -> State {
        match code {
            FindingCode::AddressLeaked => State::Leaked,
            FindingCode::AddressShared
            | FindingCode::AddressAllocatedTwice
            | FindingCode::TunnelAddressShared => State::Shared,
            _ => State::Other,
        }
    }
}

/// Says whether there was anything to show.
pub(super) fn section(page: &mut Markup, report: &Report, evidence: &Evidence) -> bool {
    let Some(ipam) = evidence.ipam.as_ref().filter(|ipam| !ipam.books.blocks.is_empty()) else {
        return false;
    };
    let troubles = troubles(report);
    let blocks: Vec<Drawn<'_>> =
        ipam.books.blocks.values().map(|stored| Drawn::new(&stored.value, &troubles)).collect();
    let mut by_pool: BTreeMap<Option<Cidr>, Vec<Drawn<'_>>> = BTreeMap::new();
    let pools = pools(evidence);
    for block in blocks {
        let inside = pools.iter().filter(|(cidr, _)| cidr.contains_cidr(&block.block.cidr));
        let pool = inside.max_by_key(|(cidr, _)| cidr.prefix_len()).map(|(cidr, _)| *cidr);
        by_pool.entry(pool).or_default().push(block);
    }
    page.section("addresses", "Addresses");
    page.raw("<ul class=\"legend\">");
    for state in State::ALL {
        html!(page, "<li><span class=\"swatch {}\"></span>{}</li>", state.class(), state.words());
    }
    page.raw("</ul>\n");
    let mut room = BLOCKS_DRAWN;
    for (cidr, mut blocks) in by_pool {
        let name = cidr.and_then(|cidr| pools.get(&cidr)).map(String::as_str);
        blocks.sort_by_key(|block| !block.is_in_trouble());
        show_pool(page, cidr, name, &blocks, &mut room);
    }
    page.raw("</section>\n");
    true
}

/// Pools by their networks.
fn pools(evidence: &Evidence) -> BTreeMap<Cidr, String> {
    let pools = evidence.records.all(Kind::IpPool).iter();
    let read = pools.filter_map(|pool| {
        let cidr = pool.seen.spec("cidr").and_then(Value::as_str)?;
        Some((Cidr::parse_masked(cidr).ok()?, pool.seen.metadata.name.clone()))
    });
    read.collect()
}

/// What the report says about single addresses, symptoms included.
fn troubles(report: &Report) -> BTreeMap<IpAddr, State> {
    let mut troubles: BTreeMap<IpAddr, State> = BTreeMap::new();
    let mut note = |code: FindingCode, subject: &Subject| {
        if let Subject::Address(address) = subject {
            let state = troubles.entry(*address).or_insert(State::Other);
            *state = State::of_code(code).max(*state);
        }
    };
    for finding in &report.findings {
        note(finding.code, &finding.subject);
        finding.symptoms.iter().for_each(|symptom| note(symptom.code, &symptom.subject));
    }
    troubles
}

/// A block with the state of each of its addresses.
pub(super) struct Drawn<'a> {
    block: &'a Block,
    states: Vec<State>,
}

impl<'a> Drawn<'a> {
    fn new(block: &'a Block, troubles: &BTreeMap<IpAddr, State>) -> Drawn<'a> {
        let mut states: Vec<State> = block
            .allocations
            .iter()
            .map(|taken| if taken.is_some() { State::Used } else { State::Free })
            .collect();
        // Few addresses are in trouble, so they are looked up by the block's range.
        if let (Some(first), Some(last)) = (block.address(0), block.address(states.len().saturating_sub(1))) {
            for (address, trouble) in troubles.range(first..=last.max(first)) {
                if let Some(state) = block.ordinal(*address).and_then(|ordinal| states.get_mut(ordinal)) {
                    *state = *trouble;
                }
            }
        }
        Drawn { block, states }
    }

    fn is_in_trouble(&self) -> bool {
        self.states.iter().any(|state| *state > State::Used)
    }

    fn number(&self, wanted: State) -> usize {
        self.states.iter().filter(|state| **state == wanted).count()
    }

    fn owner(&self) -> String {
        self.block.owner().map_or_else(|| "no node".to_owned(), |owner| owner.name().to_owned())
    }

    /// `15 used, 1 leaked, 48 free`.
    fn words(&self) -> String {
        let parts = [State::Used, State::Leaked, State::Shared, State::Other, State::Free].map(|state| {
            let word = if state == State::Other { "with another finding" } else { state.class() };
            (self.number(state), word)
        });
        let some = parts.into_iter().filter(|(number, _)| *number > 0);
        some.map(|(number, word)| format!("{number} {word}")).collect::<Vec<_>>().join(", ")
    }
}

fn show_pool(
    page: &mut Markup,
    cidr: Option<Cidr>,
    name: Option<&str>,
    blocks: &[Drawn<'_>],
    room: &mut usize,
) {
    page.raw("<div class=\"pool\">\n<h3>");
    match (name, cidr) {
        (Some(name), Some(cidr)) => html!(page, "Pool {} <span class=\"mono soft\">{}</span>", name, cidr),
        _ => html!(page, "In no known pool"),
    }
    html!(page, "</h3>\n<p class=\"soft\">{}</p>\n", pool_words(blocks));
    let drawn = blocks.len().min(*room);
    *room -= drawn;
    page.raw("<ul class=\"blocks\">\n");
    for block in &blocks[..drawn] {
        show_block(page, block);
    }
    page.raw("</ul>\n");
    let left_out = blocks.len() - drawn;
    if blocks[drawn..].iter().any(Drawn::is_in_trouble) {
        more(page, left_out, "more blocks, some of them with findings");
    } else {
        more(page, left_out, "more blocks without findings");
    }
    page.raw("</div>\n");
}

fn pool_words(blocks: &[Drawn<'_>]) -> String {
    let mut words = vec![count(blocks.len(), "block")];
    for state in State::ALL {
        let number: usize = blocks.iter().map(|block| block.number(state)).sum();
        if number > 0 || matches!(state, State::Used | State::Free) {
            let word = if state == State::Other { "with another finding" } else { state.class() };
            words.push(format!("{} {word}", grouped(number)));
        }
    }
    words.join(" · ")
}

fn show_block(page: &mut Markup, drawn: &Drawn<'_>) {
    let (cidr, owner, words) = (drawn.block.cidr, drawn.owner(), drawn.words());
    page.raw("<li>");
    draw(page, &drawn.states, &format!("{cidr} of {owner}: {words}"));
    html!(
        page,
        "<p><span class=\"mono\">{}</span><br><span class=\"soft\">{} · {}</span>",
        cidr,
        owner,
        words
    );
    let odd: Vec<String> = (0..drawn.states.len())
        .filter(|ordinal| drawn.states[*ordinal] > State::Used)
        .filter_map(|ordinal| {
            Some(format!("{} {}", drawn.block.address(ordinal)?, drawn.states[ordinal].class()))
        })
        .collect();
    for words in odd.iter().take(ADDRESSES_NAMED) {
        html!(page, "<br><span class=\"mono\">{}</span>", words);
    }
    if odd.len() > ADDRESSES_NAMED {
        html!(page, "<br>and {} more", odd.len() - ADDRESSES_NAMED);
    }
    page.raw("</p></li>\n");
}

/// Addresses that are alike and stand side by side are one rectangle, so that a full block is small, too.
fn draw(page: &mut Markup, states: &[State], label: &str) {
    let columns = if states.len() > 256 { 64 } else { COLUMNS };
    let rows = states.len().div_ceil(columns).max(1);
    html!(
        page,
        "<svg role=\"img\" viewBox=\"0 0 {} {}\" aria-label=\"{}\">",
        columns * CELL,
        rows * CELL,
        label
    );
    html!(page, "<title>{}</title>", label);
    for (row, states) in states.chunks(columns).enumerate() {
        let mut start = 0;
        for run in states.chunk_by(|a, b| a == b) {
            let (x, y, width) = (start * CELL, row * CELL, run.len() * CELL - 1);
            html!(page, "<rect class=\"{}\" x=\"{}\" y=\"{}\"", run[0].class(), x, y);
            html!(page, " width=\"{}\" height=\"{}\"/>", width, CELL - 1);
            start += run.len();
        }
    }
    page.raw("</svg>");
}
