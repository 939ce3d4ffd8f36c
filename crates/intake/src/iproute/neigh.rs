//! `ip neigh`: `192.168.91.33 dev cali… lladdr 9e:… PERMANENT`.

use evidence::kernel::{Neighbour, NeighbourState};

pub(super) fn read(text: &str) -> Option<Neighbour> {
    let mut words = text.split_whitespace();
    let address = words.next()?.parse().ok()?;
    let mut device = None;
    let mut mac = None;
    let mut state = None;
    let mut is_proxy = false;
    while let Some(word) = words.next() {
        match word {
            "dev" => device = words.next(),
            "lladdr" => mac = words.next().and_then(|word| word.parse().ok()),
            "proxy" => is_proxy = true,
            "router" | "extern_learn" | "offload" => {}
            word => state = state.or(read_state(word)),
        }
    }
    // A route has a device, too, but neither state nor hardware address.
    let state = state.or(is_proxy.then_some(NeighbourState::Permanent))?;
    Some(Neighbour { address, device: device?.to_owned(), mac, state, is_proxy })
}

pub(super) fn read_state(word: &str) -> Option<NeighbourState> {
    Some(match word {
        "PERMANENT" => NeighbourState::Permanent,
        "REACHABLE" => NeighbourState::Reachable,
        "STALE" | "DELAY" | "PROBE" => NeighbourState::Stale,
        "INCOMPLETE" | "FAILED" => NeighbourState::Missing,
        "NOARP" => NeighbourState::NoArp,
        _ => return None,
    })
}
