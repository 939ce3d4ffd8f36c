//! `arp`, `arp -n`, `arp -a` and `/proc/net/arp`.

use std::net::IpAddr;

use evidence::kernel::{Neighbour, NeighbourState};
use model::Mac;

pub(super) enum Entry {
    Neighbour(Neighbour),
    /// A name in place of the address.
    Named,
}

pub(super) fn is_header(text: &str) -> bool {
    (text.starts_with("Address") && text.contains("HWtype") && text.contains("Iface"))
        || (text.starts_with("IP address") && text.contains("HW address") && text.contains("Device"))
}

pub(super) fn read(text: &str, is_in_table: bool) -> Option<Entry> {
    let words: Vec<&str> = text.split_whitespace().collect();
    match words.as_slice() {
        // `? (169.254.1.1) at <incomplete> on eth0`
        [_, address, "at", rest @ ..] if address.starts_with('(') => {
            let on = rest.iter().position(|word| *word == "on")?;
            let mac = rest.first().and_then(|word| word.parse().ok());
            let address = address.trim_matches(['(', ')']).parse().ok()?;
            Some(Entry::Neighbour(neighbour(address, rest.get(on + 1)?, mac, rest.contains(&"PERM"))))
        }
        // `10.0.0.7 (incomplete) eth0`, `192.168.8.42 ether b2:… CM cali…`
        [address, "(incomplete)", .., device] => Some(entry(address, device, None, false)),
        [address, "ether", mac, flags, .., device] if is_in_table || flags.starts_with('C') => {
            Some(entry(address, device, Some(mac.parse().ok()?), flags.contains('M')))
        }
        [address, kind, flags, mac, _, device] if kind.starts_with("0x") && flags.starts_with("0x") => {
            proc_row(address, flags, mac, device)
        }
        _ => None,
    }
}

/// `192.168.8.42 0x1 0x6 b2:21:5b:82:e1:27 * cali…`, with the kernel's flags.
fn proc_row(address: &str, flags: &str, mac: &str, device: &str) -> Option<Entry> {
    const COMPLETE: u32 = 0x2;
    const PERMANENT: u32 = 0x4;
    const PUBLISHED: u32 = 0x8;
    let flags = u32::from_str_radix(flags.trim_start_matches("0x"), 16).ok()?;
    let is_proxy = flags & PUBLISHED != 0;
    let is_complete = is_proxy || flags & COMPLETE != 0;
    let neighbour = Neighbour {
        address: address.parse().ok()?,
        device: device.to_owned(),
        mac: mac.parse().ok().filter(|_| is_complete && !is_proxy),
        state: state(is_complete, flags & PERMANENT != 0),
        is_proxy,
    };
    Some(Entry::Neighbour(neighbour))
}

/// Names in place of addresses are an entry, too.
fn entry(address: &str, device: &str, mac: Option<Mac>, is_permanent: bool) -> Entry {
    match address.parse() {
        Ok(address) => Entry::Neighbour(neighbour(address, device, mac, is_permanent)),
        Err(_) => Entry::Named,
    }
}

fn neighbour(address: IpAddr, device: &str, mac: Option<Mac>, is_permanent: bool) -> Neighbour {
    let (device, state) = (device.to_owned(), state(mac.is_some(), is_permanent));
    Neighbour { address, device, mac, state, is_proxy: false }
}

fn state(is_complete: bool, is_permanent: bool) -> NeighbourState {
    match (is_complete, is_permanent) {
        (false, _) => NeighbourState::Missing,
        (true, true) => NeighbourState::Permanent,
        (true, false) => NeighbourState::Known,
    }
}
