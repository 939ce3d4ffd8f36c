//! The messages of a transaction.

use std::fmt;

use super::expression::{put_verdict, with_expressions};
use super::numbers::*;
use super::object::{Base, Chain, Change, Counter, Element, Rule, Set, SetName};
use crate::netlink::Message;
use crate::netlink::numbers::{NLM_F_CREATE, NLM_F_EXCL};

/// Behind what is there already.
const NLM_F_APPEND: u16 = 0x800;
/// `struct nfgenmsg`: the family, the version, and a number of no use here.
pub(super) const HEADER: [u8; 4] = [NFPROTO_INET, 0, 0, 0];
/// An attribute's length has 16 bits, and a list of members is one attribute.
const LIST_MAX: usize = 60_000;
/// Numbers of sets count within one transaction. Those that the caller gives are below.
const OWN_SET_IDS: u32 = 0x4000_0000;
/// The value of a verdict in a map, as the kernel counts it.
const VERDICT_LENGTH: u32 = 16;
/// How `nft` notes comments and the order of bytes: a kind, a length, and the value.
const COMMENT: u8 = 0;
pub(super) const COMMENT_MAX: usize = 254;
const KEY_ORDER: u8 = 0;
const ORDER_OF_HOST: u32 = 1;
const ORDER_OF_NETWORK: u32 = 2;
/// By this number `nft` knows the names of devices, whose bytes are in the order of the host.
const TYPE_IFNAME: u32 = 41;

/// A message and the flags with which it is sent.
pub(super) type Sent = (Message, u16);

/// Calls `each` with every message of one change of `table`. `position` is the change's within its transaction.
pub(super) fn messages(table: &str, change: &Change, position: usize, mut each: impl FnMut(Sent)) {
    let named = |kind: u16, attribute: u16| Message::new(kind, &HEADER).with_text(attribute, table);
    match change {
        Change::AddTable => each((named(NFT_MSG_NEWTABLE, NFTA_TABLE_NAME), NLM_F_CREATE)),
        Change::DeleteTable => each((named(NFT_MSG_DELTABLE, NFTA_TABLE_NAME), 0)),
        Change::AddChain(chain) => {
            each((put_chain(named(NFT_MSG_NEWCHAIN, NFTA_CHAIN_TABLE), chain), NLM_F_CREATE))
        }
        Change::DeleteChain(name) => {
            each((named(NFT_MSG_DELCHAIN, NFTA_CHAIN_TABLE).with_text(NFTA_CHAIN_NAME, name), 0))
        }
        Change::FlushChain(name) => {
            each((named(NFT_MSG_DELRULE, NFTA_RULE_TABLE).with_text(NFTA_RULE_CHAIN, name), 0))
        }
        Change::AddSet { set, id } => {
            let id = id.unwrap_or_else(|| OWN_SET_IDS + u32::try_from(position).unwrap_or(0));
            each((put_set(named(NFT_MSG_NEWSET, NFTA_SET_TABLE), set, id), NLM_F_CREATE));
        }
        Change::DeleteSet(name) => {
            each((named(NFT_MSG_DELSET, NFTA_SET_TABLE).with_text(NFTA_SET_NAME, name), 0))
        }
        Change::AddElements { set, elements } => {
            elements_in_parts(table, NFT_MSG_NEWSETELEM, set, elements, |message| {
                each((message, NLM_F_CREATE));
            })
        }
        Change::DeleteElements { set, elements } => {
            elements_in_parts(table, NFT_MSG_DELSETELEM, set, elements, |message| each((message, 0)))
        }
        Change::FlushSet(name) => each((
            named(NFT_MSG_DELSETELEM, NFTA_SET_ELEM_LIST_TABLE).with_text(NFTA_SET_ELEM_LIST_SET, name),
            0,
        )),
        Change::AddRule(rule) => {
            each((put_rule(named(NFT_MSG_NEWRULE, NFTA_RULE_TABLE), rule), NLM_F_CREATE | NLM_F_APPEND))
        }
        Change::DeleteRule { chain, handle } => {
            let message = named(NFT_MSG_DELRULE, NFTA_RULE_TABLE).with_text(NFTA_RULE_CHAIN, chain);
            each((message.with_be64(NFTA_RULE_HANDLE, *handle), 0));
        }
        Change::AddCounter(counter) => {
            each((put_counter(named(NFT_MSG_NEWOBJ, NFTA_OBJ_TABLE), counter), NLM_F_CREATE | NLM_F_EXCL))
        }
        Change::DeleteCounter(name) => {
            let message = named(NFT_MSG_DELOBJ, NFTA_OBJ_TABLE).with_text(NFTA_OBJ_NAME, name);
            each((message.with_be32(NFTA_OBJ_TYPE, NFT_OBJECT_COUNTER), 0));
        }
    }
}

fn put_chain(message: Message, chain: &Chain) -> Message {
    let message = message.with_text(NFTA_CHAIN_NAME, &chain.name);
    let Some(Base { hook, priority, kind, drops_by_default }) = &chain.base else { return message };
    let policy = if *drops_by_default { NF_DROP } else { NF_ACCEPT };
    let message = message.with_nested(NFTA_CHAIN_HOOK, |place| {
        place.with_be32(NFTA_HOOK_HOOKNUM, *hook).with_be32(NFTA_HOOK_PRIORITY, priority.cast_unsigned())
    });
    message.with_be32(NFTA_CHAIN_POLICY, policy.cast_unsigned()).with_text(NFTA_CHAIN_TYPE, kind)
}

fn put_set(message: Message, set: &Set, id: u32) -> Message {
    let flag = |is_set: bool, flag: u32| if is_set { flag } else { 0 };
    let is_divided = !set.fields.is_empty();
    let flags = flag(set.has_intervals, NFT_SET_INTERVAL)
        | flag(set.has_intervals && is_divided, NFT_SET_CONCAT)
        | flag(set.is_verdict_map, NFT_SET_MAP)
        | flag(set.is_anonymous, NFT_SET_ANONYMOUS | NFT_SET_CONSTANT);
    let mut message = message
        .with_text(NFTA_SET_NAME, &set.name)
        .with_be32(NFTA_SET_FLAGS, flags)
        .with_be32(NFTA_SET_KEY_TYPE, set.key_type)
        .with_be32(NFTA_SET_KEY_LEN, set.key_length)
        .with_be32(NFTA_SET_ID, id);
    if set.is_verdict_map {
        message = message
            .with_be32(NFTA_SET_DATA_TYPE, NFT_DATA_VERDICT)
            .with_be32(NFTA_SET_DATA_LEN, VERDICT_LENGTH);
    }
    if is_divided && set.has_intervals {
        message = message.with_nested(NFTA_SET_DESC, |description| {
            description.with_nested(NFTA_SET_DESC_CONCAT, |all| {
                set.fields.iter().fold(all, |all, length| {
                    all.with_nested(NFTA_LIST_ELEM, |field| field.with_be32(NFTA_SET_FIELD_LEN, *length))
                })
            })
        });
    }
    message.with(NFTA_SET_USERDATA, &orders(set))
}

/// In which order the bytes of keys are, for `nft` to print them. The kernel keeps this, and does not read it. Of verdicts it is not
/// noted: `nft` 1.0.6 would end in a failed assertion.
fn orders(set: &Set) -> Vec<u8> {
    let order = if set.key_type == TYPE_IFNAME { ORDER_OF_HOST } else { ORDER_OF_NETWORK };
    let mut noted = vec![KEY_ORDER, 4];
    noted.extend(order.to_ne_bytes());
    noted
}

fn elements_in_parts(
    table: &str,
    kind: u16,
    set: &SetName,
    elements: &[Element],
    mut each: impl FnMut(Message),
) {
    let mut rest = elements;
    while !rest.is_empty() {
        let mut length = 0;
        let fits = |element: &&Element| {
            length += element_length(element);
            length <= LIST_MAX
        };
        let count = rest.iter().take_while(fits).count().max(1);
        let (part, others) = rest.split_at(count);
        rest = others;
        let message = Message::new(kind, &HEADER)
            .with_text(NFTA_SET_ELEM_LIST_TABLE, table)
            .with_text(NFTA_SET_ELEM_LIST_SET, &set.name);
        let message =
            set.id.iter().fold(message, |message, id| message.with_be32(NFTA_SET_ELEM_LIST_SET_ID, *id));
        each(message.with_nested(NFTA_SET_ELEM_LIST_ELEMENTS, |list| {
            part.iter().fold(list, |list, element| {
                list.with_nested(NFTA_LIST_ELEM, |message| put_element(message, element))
            })
        }));
    }
}

/// At most so many bytes.
fn element_length(element: &Element) -> usize {
    let value = |value: &Vec<u8>| value.len() + 12;
    let chain = match &element.verdict {
        Some(super::object::Verdict::Jump(chain) | super::object::Verdict::Goto(chain)) => chain.len(),
        _ => 0,
    };
    value(&element.key) + element.last.as_ref().map_or(0, value) + chain + 48
}

fn put_element(message: Message, element: &Element) -> Message {
    let put = |message: Message, kind: u16, value: &[u8]| {
        message.with_nested(kind, |data| data.with(NFTA_DATA_VALUE, value))
    };
    let mut message = put(message, NFTA_SET_ELEM_KEY, &element.key);
    if let Some(last) = &element.last {
        message = put(message, NFTA_SET_ELEM_KEY_END, last);
    }
    if element.ends_interval {
        message = message.with_be32(NFTA_SET_ELEM_FLAGS, NFT_SET_ELEM_INTERVAL_END);
    }
    match &element.verdict {
        Some(verdict) => put_verdict(message, NFTA_SET_ELEM_DATA, verdict),
        None => message,
    }
}

fn put_rule(message: Message, rule: &Rule) -> Message {
    let message = message.with_text(NFTA_RULE_CHAIN, &rule.chain);
    let message = with_expressions(message, NFTA_RULE_EXPRESSIONS, &rule.expressions);
    let Some(comment) = &rule.comment else { return message };
    let mut noted = comment.as_bytes().iter().copied().take(COMMENT_MAX).collect::<Vec<_>>();
    noted.push(0);
    let length = u8::try_from(noted.len()).unwrap_or(u8::MAX);
    noted.splice(0..0, [COMMENT, length]);
    message.with(NFTA_RULE_USERDATA, &noted)
}

fn put_counter(message: Message, counter: &Counter) -> Message {
    message.with_text(NFTA_OBJ_NAME, &counter.name).with_be32(NFTA_OBJ_TYPE, NFT_OBJECT_COUNTER).with_nested(
        NFTA_OBJ_DATA,
        |data| {
            data.with_be64(NFTA_COUNTER_BYTES, counter.bytes).with_be64(NFTA_COUNTER_PACKETS, counter.packets)
        },
    )
}

impl fmt::Display for Change {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Change::AddTable => write!(f, "add the table"),
            Change::DeleteTable => write!(f, "delete the table"),
            Change::AddChain(chain) => write!(f, "add chain {}", chain.name),
            Change::DeleteChain(name) => write!(f, "delete chain {name}"),
            Change::FlushChain(name) => write!(f, "flush chain {name}"),
            Change::AddSet { set, .. } => write!(f, "add set {}", set.name),
            Change::DeleteSet(name) => write!(f, "delete set {name}"),
            Change::AddElements { set, elements } => {
                write!(f, "add {} elements to set {}", elements.len(), set.name)
            }
            Change::DeleteElements { set, elements } => {
                write!(f, "delete {} elements of set {}", elements.len(), set.name)
            }
            Change::FlushSet(name) => write!(f, "flush set {name}"),
            Change::AddRule(rule) => write!(f, "add a rule to chain {}", rule.chain),
            Change::DeleteRule { chain, handle } => write!(f, "delete rule {handle} of chain {chain}"),
            Change::AddCounter(counter) => write!(f, "add counter {}", counter.name),
            Change::DeleteCounter(name) => write!(f, "delete counter {name}"),
        }
    }
}
