//! Whether the rules that hold pods to their own addresses are loaded, asked of the kernel itself: an ADD cannot wait for a program.

use netlink_sys::protocols::NETLINK_NETFILTER;
use plan::between::{ChainUses, NAT_TABLE};

use super::nft;
use crate::netlink::message::{Attributes, read_text};
use crate::netlink::{Message, Netlink, Request};
use crate::{Host, HostError};

/// `NFNL_SUBSYS_NFTABLES`, in the upper half of a message's number.
const NFTABLES: u16 = 10;
const NFT_MSG_NEWCHAIN: u16 = 3;
const NFT_MSG_GETCHAIN: u16 = 4;
const NFPROTO_INET: u8 = 1;
/// `struct nfgenmsg`: the family, the version, and a number of no use here.
const HEADER: [u8; 4] = [NFPROTO_INET, 0, 0, 0];
const NFTA_CHAIN_TABLE: u16 = 1;
const NFTA_CHAIN_NAME: u16 = 3;
const NFTA_CHAIN_USE: u16 = 6;
/// In messages about tables, chains, rules, sets and their elements alike.
const NFTA_TABLE: u16 = 1;

/// Somebody, or we ourselves, changed something in our table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RulesTouched;

impl Host {
    /// Loads the rules that hold pods to their own addresses, where one of them is missing. Says whether one was. `ruleset` is
    /// asked for only then.
    pub fn ensure_pod_guard(
        &mut self,
        chains: &[ChainUses],
        ruleset: impl FnOnce() -> String,
    ) -> Result<bool, HostError> {
        if self.has_pod_guard(chains) {
            return Ok(false);
        }
        let failed = |source| HostError::PodGuard { source: Box::new(source) };
        nft::add(&ruleset()).map_err(failed)?;
        match self.has_pod_guard(chains) {
            true => Ok(true),
            false => Err(failed(HostError::Nft {
                what: "-f -".to_owned(),
                problem: "the rules were taken and are not there".to_owned(),
            })),
        }
    }

    /// A question for each chain, some tens of microseconds. What cannot be asked is not there.
    pub fn has_pod_guard(&mut self, chains: &[ChainUses]) -> bool {
        chains.iter().all(|(chain, least)| {
            let found = self.ask_rules(get_chain(chain)).ok();
            found.as_ref().and_then(uses).is_some_and(|uses| uses >= *least)
        })
    }

    fn ask_rules(&mut self, request: Request) -> Result<Message, HostError> {
        let rules = match self.rules.take() {
            Some(rules) => rules,
            None => Netlink::open_to(NETLINK_NETFILTER)?,
        };
        self.rules.insert(rules).get(request)
    }
}

fn table() -> &'static str {
    NAT_TABLE.split(' ').next_back().unwrap_or_default()
}

fn get_chain(name: &str) -> Request {
    let message = Message::new((NFTABLES << 8) | NFT_MSG_GETCHAIN, &HEADER)
        .with_text(NFTA_CHAIN_TABLE, table())
        .with_text(NFTA_CHAIN_NAME, name);
    Request::new("ask for the rules of pods", message, 0)
}

/// How many rules a chain has and how many jump to it, together.
fn uses(found: &Message) -> Option<u32> {
    if found.kind != (NFTABLES << 8) | NFT_MSG_NEWCHAIN {
        return None;
    }
    let mut attributes = Attributes::after(&found.body, HEADER.len());
    let (_, value) = attributes.find(|(kind, _)| *kind == NFTA_CHAIN_USE)?;
    Some(u32::from_be_bytes(value.try_into().ok()?))
}

/// What an announcement of nftables says about our table.
pub(crate) fn read_touched(kind: u16, body: &[u8]) -> Option<RulesTouched> {
    let is_of_family = kind >> 8 == NFTABLES && body.first() == Some(&NFPROTO_INET);
    let mut attributes = Attributes::after(body, HEADER.len());
    let (_, name) = attributes.find(|(kind, _)| *kind == NFTA_TABLE).filter(|_| is_of_family)?;
    (read_text(name) == table()).then_some(RulesTouched)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn only_our_own_table_counts() {
        let told = |family: u8, name: &str| {
            let message = Message::new((NFTABLES << 8) | 2, &[family, 0, 0, 0]).with_text(NFTA_TABLE, name);
            read_touched(message.kind, &message.body)
        };
        assert_eq!(told(NFPROTO_INET, "plumb"), Some(RulesTouched));
        assert_eq!(told(NFPROTO_INET, "plumber"), None);
        assert_eq!(told(2, "plumb"), None);
    }

    proptest! {
        #[test]
        fn any_announcement_can_be_read(kind: u16, body in proptest::collection::vec(any::<u8>(), 0..80)) {
            let _ = read_touched(kind, &body);
            let _ = uses(&Message { kind: (NFTABLES << 8) | NFT_MSG_NEWCHAIN, body });
        }
    }
}
