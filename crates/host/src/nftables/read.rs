//! What the kernel lists or announces of nf_tables.

#![cfg_attr(not(test), deny(clippy::string_slice, clippy::indexing_slicing))]

use super::change::HEADER;
use super::expression::{expressions, verdict_of};
use super::numbers::*;
use super::object::{Base, Chain, Counter, Element, Rule, Set};
use crate::netlink::message::{Attributes, read_be32, read_be64, read_text};

/// Of `struct nfgenmsg`.
const FAMILY: u8 = NFPROTO_INET;

/// The attributes of a message about an object of a table of ours.
struct Object<'a>(&'a [u8]);

impl<'a> Object<'a> {
    /// `None` if the message is of another kind, or of a table of another family.
    fn new(kind: u16, wanted: &[u16], body: &'a [u8]) -> Option<Object<'a>> {
        let is_meant = wanted.contains(&kind) && body.first() == Some(&FAMILY);
        body.get(HEADER.len()..).filter(|_| is_meant).map(Object)
    }

    fn find(&self, kind: u16) -> Option<&'a [u8]> {
        Attributes(self.0).find(|(found, _)| *found == kind).map(|(_, value)| value)
    }

    fn number(&self, kind: u16) -> Option<u32> {
        read_be32(self.find(kind)?)
    }

    fn long(&self, kind: u16) -> Option<u64> {
        read_be64(self.find(kind)?)
    }

    fn text(&self, kind: u16) -> Option<String> {
        self.find(kind).map(read_text)
    }
}

/// The name of a table.
pub(super) fn table(kind: u16, body: &[u8]) -> Option<String> {
    Object::new(kind, &[NFT_MSG_NEWTABLE], body)?.text(NFTA_TABLE_NAME)
}

pub(super) fn chain(table: &str, kind: u16, body: &[u8]) -> Option<Chain> {
    let object = Object::new(kind, &[NFT_MSG_NEWCHAIN], body)?;
    if object.text(NFTA_CHAIN_TABLE)? != table {
        return None;
    }
    let base = object.find(NFTA_CHAIN_HOOK).map(Object).and_then(|hook| {
        Some(Base {
            hook: hook.number(NFTA_HOOK_HOOKNUM)?,
            priority: hook.number(NFTA_HOOK_PRIORITY)?.cast_signed(),
            kind: object.text(NFTA_CHAIN_TYPE)?,
            drops_by_default: object.number(NFTA_CHAIN_POLICY) == Some(NF_DROP.cast_unsigned()),
        })
    });
    Some(Chain { name: object.text(NFTA_CHAIN_NAME)?, base })
}

pub(super) fn set(table: &str, kind: u16, body: &[u8]) -> Option<Set> {
    let object = Object::new(kind, &[NFT_MSG_NEWSET], body)?;
    if object.text(NFTA_SET_TABLE)? != table {
        return None;
    }
    let flags = object.number(NFTA_SET_FLAGS).unwrap_or(0);
    let is_verdict_map =
        flags & NFT_SET_MAP != 0 && object.number(NFTA_SET_DATA_TYPE) == Some(NFT_DATA_VERDICT);
    let fields = object.find(NFTA_SET_DESC).and_then(|all| Object(all).find(NFTA_SET_DESC_CONCAT));
    let fields = Attributes(fields.unwrap_or_default());
    let fields = fields.filter_map(|(_, field)| Object(field).number(NFTA_SET_FIELD_LEN));
    Some(Set {
        name: object.text(NFTA_SET_NAME)?,
        key_type: object.number(NFTA_SET_KEY_TYPE).unwrap_or(0),
        key_length: object.number(NFTA_SET_KEY_LEN)?,
        has_intervals: flags & NFT_SET_INTERVAL != 0,
        fields: fields.collect(),
        is_verdict_map,
        is_anonymous: flags & NFT_SET_ANONYMOUS != 0,
    })
}

/// Members of a set: several in one message.
pub(super) fn elements(kind: u16, body: &[u8]) -> Vec<Element> {
    let kinds = [NFT_MSG_NEWSETELEM, NFT_MSG_DELSETELEM];
    let list = Object::new(kind, &kinds, body).and_then(|object| object.find(NFTA_SET_ELEM_LIST_ELEMENTS));
    Attributes(list.unwrap_or_default()).filter_map(|(_, value)| element(&Object(value))).collect()
}

fn element(object: &Object<'_>) -> Option<Element> {
    let value = |kind: u16| Object(object.find(kind)?).find(NFTA_DATA_VALUE).map(<[u8]>::to_vec);
    Some(Element {
        key: value(NFTA_SET_ELEM_KEY)?,
        last: value(NFTA_SET_ELEM_KEY_END),
        ends_interval: object.number(NFTA_SET_ELEM_FLAGS).unwrap_or(0) & NFT_SET_ELEM_INTERVAL_END != 0,
        verdict: object.find(NFTA_SET_ELEM_DATA).and_then(verdict_of),
    })
}

pub(super) fn rule(table: &str, kind: u16, body: &[u8]) -> Option<Rule> {
    let object = Object::new(kind, &[NFT_MSG_NEWRULE, NFT_MSG_DELRULE], body)?;
    if object.text(NFTA_RULE_TABLE)? != table {
        return None;
    }
    Some(Rule {
        chain: object.text(NFTA_RULE_CHAIN)?,
        handle: object.long(NFTA_RULE_HANDLE)?,
        expressions: expressions(object.find(NFTA_RULE_EXPRESSIONS).unwrap_or_default()),
        comment: object.find(NFTA_RULE_USERDATA).and_then(comment),
    })
}

/// `nft` notes it first: a kind, which is zero, the length, and the text.
fn comment(noted: &[u8]) -> Option<String> {
    let (&kind, rest) = noted.split_first()?;
    let (&length, text) = rest.split_first()?;
    (kind == 0).then(|| text.get(..usize::from(length)).map(read_text)).flatten()
}

pub(super) fn counter(table: &str, kind: u16, body: &[u8]) -> Option<Counter> {
    let object = Object::new(kind, &[NFT_MSG_NEWOBJ], body)?;
    if object.text(NFTA_OBJ_TABLE)? != table || object.number(NFTA_OBJ_TYPE)? != NFT_OBJECT_COUNTER {
        return None;
    }
    let data = Object(object.find(NFTA_OBJ_DATA)?);
    Some(Counter {
        name: object.text(NFTA_OBJ_NAME)?,
        packets: data.long(NFTA_COUNTER_PACKETS)?,
        bytes: data.long(NFTA_COUNTER_BYTES)?,
    })
}

/// The generation of all rules of the namespace, and the process that made it.
pub(super) fn generation(kind: u16, body: &[u8]) -> Option<(u32, Option<u32>)> {
    // It belongs to no family.
    let object = body.get(HEADER.len()..).filter(|_| kind == NFT_MSG_NEWGEN).map(Object)?;
    Some((object.number(NFTA_GEN_ID)?, object.number(NFTA_GEN_PROC_PID)))
}

/// The table of an announcement about any object of ours. Every such message names it first.
pub(crate) fn touched(kind: u16, body: &[u8]) -> Option<String> {
    const FIRST: u16 = 1;
    let is_object = kind >> 8 == NFNL_SUBSYS_NFTABLES && ![NFT_MSG_NEWGEN, NFT_MSG_GETGEN].contains(&kind);
    let object = body.get(HEADER.len()..).map(Object)?;
    (is_object && body.first() == Some(&FAMILY)).then(|| object.text(FIRST)).flatten()
}

/// Everything that is read of a message, for tests and the fuzz target.
#[cfg(any(test, fuzzing))]
pub(crate) fn read_anything(kind: u16, body: &[u8]) {
    let _ = (table(kind, body), touched(kind, body), generation(kind, body));
    let _ = (chain("", kind, body), set("", kind, body), elements(kind, body));
    let _ = (rule("", kind, body), counter("", kind, body));
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::netlink::Message;

    proptest! {
        #[test]
        fn any_message_can_be_read(kind in 0u16..28, mut body in proptest::collection::vec(any::<u8>(), 0..160)) {
            if let Some(family) = body.first_mut() {
                *family = FAMILY;
            }
            read_anything(message(kind), &body);
        }

        /// With attributes of the right form and anything in them.
        #[test]
        fn any_object_can_be_read(
            kind in 0u16..28,
            parts in proptest::collection::vec((1u16..16, proptest::collection::vec(any::<u8>(), 0..40)), 0..10),
        ) {
            let object = Message::new(message(kind), &HEADER).with(1, &[0]);
            let object = parts.iter().fold(object, |object, (kind, value)| object.with(*kind, value));
            read_anything(object.kind, &object.body);
        }
    }
}
