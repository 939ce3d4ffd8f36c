//! Steps of rules as the kernel wants them.

use super::name;
use crate::netlink::Message;
use crate::nftables::numbers::*;
use crate::nftables::object::{Expression, Register, SetName, Verdict};

/// Registers of four bytes that begin one of sixteen go by the name of that one: so the kernel lists them.
fn number(register: Register) -> u32 {
    let position = u32::from(register.0);
    if position.is_multiple_of(4) { NFT_REG_1 + position / 4 } else { NFT_REG32_00 + position }
}

/// An attribute with all steps of a rule.
#[must_use]
pub(in crate::nftables) fn with_expressions(message: Message, kind: u16, all: &[Expression]) -> Message {
    message.with_nested(kind, |list| {
        all.iter().fold(list, |list, expression| {
            list.with_nested(NFTA_LIST_ELEM, |element| put(element, expression))
        })
    })
}

#[must_use]
pub(in crate::nftables) fn put_verdict(message: Message, kind: u16, verdict: &Verdict) -> Message {
    let (code, chain) = match verdict {
        Verdict::Accept => (NF_ACCEPT, None),
        Verdict::Drop => (NF_DROP, None),
        Verdict::Continue => (NFT_CONTINUE, None),
        Verdict::Return => (NFT_RETURN, None),
        Verdict::Jump(chain) => (NFT_JUMP, Some(chain)),
        Verdict::Goto(chain) => (NFT_GOTO, Some(chain)),
        Verdict::Other(code) => (*code, None),
    };
    message.with_nested(kind, |data| {
        data.with_nested(NFTA_DATA_VERDICT, |verdict| {
            let verdict = verdict.with_be32(NFTA_VERDICT_CODE, code.cast_unsigned());
            chain.into_iter().fold(verdict, |verdict, chain| verdict.with_text(NFTA_VERDICT_CHAIN, chain))
        })
    })
}

fn put(element: Message, expression: &Expression) -> Message {
    let (name, body): (&str, Box<dyn FnOnce(Message) -> Message + '_>) = match expression {
        Expression::LoadMeta { .. }
        | Expression::LoadCt { .. }
        | Expression::LoadPayload { .. }
        | Expression::LoadFib { .. }
        | Expression::Load { .. }
        | Expression::StoreMeta { .. }
        | Expression::StoreCt { .. } => (load_name(expression), Box::new(|data| put_load(data, expression))),
        Expression::Bitwise { .. } => (name::BITWISE, Box::new(|data| put_test(data, expression))),
        Expression::Compare { .. } => (name::CMP, Box::new(|data| put_test(data, expression))),
        Expression::Range { .. } => (name::RANGE, Box::new(|data| put_test(data, expression))),
        Expression::Lookup { set, from, is_missing } => (
            name::LOOKUP,
            Box::new(move |data| {
                let flags = if *is_missing { NFT_LOOKUP_F_INV } else { 0 };
                put_set(data, set, *from).with_be32(NFTA_LOOKUP_FLAGS, flags)
            }),
        ),
        Expression::LookupVerdict { set, from } => (
            name::LOOKUP,
            Box::new(move |data| put_set(data, set, *from).with_be32(NFTA_LOOKUP_DREG, NFT_REG_VERDICT)),
        ),
        Expression::Verdict(verdict) => (
            name::IMMEDIATE,
            Box::new(move |data| {
                let data = data.with_be32(NFTA_IMMEDIATE_DREG, NFT_REG_VERDICT);
                put_verdict(data, NFTA_IMMEDIATE_DATA, verdict)
            }),
        ),
        effect => return put_effect(element, effect),
    };
    element.with_text(NFTA_EXPR_NAME, name).with_nested(NFTA_EXPR_DATA, body)
}

fn load_name(expression: &Expression) -> &'static str {
    match expression {
        Expression::LoadMeta { .. } | Expression::StoreMeta { .. } => name::META,
        Expression::LoadCt { .. } | Expression::StoreCt { .. } => name::CT,
        Expression::LoadPayload { .. } => name::PAYLOAD,
        Expression::LoadFib { .. } => name::FIB,
        _ => name::IMMEDIATE,
    }
}

fn put_load(data: Message, expression: &Expression) -> Message {
    match expression {
        Expression::LoadMeta { key, into } => {
            data.with_be32(NFTA_META_KEY, *key).with_be32(NFTA_META_DREG, number(*into))
        }
        Expression::StoreMeta { key, from } => {
            data.with_be32(NFTA_META_KEY, *key).with_be32(NFTA_META_SREG, number(*from))
        }
        Expression::LoadCt { key, direction, into } => {
            let data = data.with_be32(NFTA_CT_KEY, *key).with_be32(NFTA_CT_DREG, number(*into));
            direction.iter().fold(data, |data, direction| data.with(NFTA_CT_DIRECTION, &[*direction]))
        }
        Expression::StoreCt { key, from } => {
            data.with_be32(NFTA_CT_KEY, *key).with_be32(NFTA_CT_SREG, number(*from))
        }
        Expression::LoadPayload { base, offset, length, into } => data
            .with_be32(NFTA_PAYLOAD_DREG, number(*into))
            .with_be32(NFTA_PAYLOAD_BASE, *base)
            .with_be32(NFTA_PAYLOAD_OFFSET, *offset)
            .with_be32(NFTA_PAYLOAD_LEN, *length),
        Expression::LoadFib { result, flags, into } => data
            .with_be32(NFTA_FIB_DREG, number(*into))
            .with_be32(NFTA_FIB_RESULT, *result)
            .with_be32(NFTA_FIB_FLAGS, *flags),
        Expression::Load { into, value } => {
            let data = data.with_be32(NFTA_IMMEDIATE_DREG, number(*into));
            put_value(data, NFTA_IMMEDIATE_DATA, value)
        }
        _ => data,
    }
}

fn put_test(data: Message, expression: &Expression) -> Message {
    match expression {
        Expression::Bitwise { from, into, mask, xor } => {
            let length = u32::try_from(mask.len()).unwrap_or(u32::MAX);
            let data = data
                .with_be32(NFTA_BITWISE_SREG, number(*from))
                .with_be32(NFTA_BITWISE_DREG, number(*into))
                .with_be32(NFTA_BITWISE_OP, 0)
                .with_be32(NFTA_BITWISE_LEN, length);
            put_value(put_value(data, NFTA_BITWISE_MASK, mask), NFTA_BITWISE_XOR, xor)
        }
        Expression::Compare { from, operation, value } => {
            let data = data.with_be32(NFTA_CMP_SREG, number(*from)).with_be32(NFTA_CMP_OP, *operation);
            put_value(data, NFTA_CMP_DATA, value)
        }
        Expression::Range { from, is_outside, low, high } => {
            let data = data
                .with_be32(NFTA_RANGE_SREG, number(*from))
                .with_be32(NFTA_RANGE_OP, u32::from(*is_outside));
            put_value(put_value(data, NFTA_RANGE_FROM_DATA, low), NFTA_RANGE_TO_DATA, high)
        }
        _ => data,
    }
}

fn put_effect(element: Message, expression: &Expression) -> Message {
    let (name, body): (&str, Box<dyn FnOnce(Message) -> Message + '_>) = match expression {
        Expression::Count => (name::COUNTER, Box::new(|data| data)),
        Expression::CountIn(counter) => (
            name::OBJREF,
            Box::new(move |data| {
                data.with_be32(NFTA_OBJREF_IMM_TYPE, NFT_OBJECT_COUNTER)
                    .with_text(NFTA_OBJREF_IMM_NAME, counter)
            }),
        ),
        Expression::Log { prefix, level } => (
            name::LOG,
            Box::new(move |data| data.with_text(NFTA_LOG_PREFIX, prefix).with_be32(NFTA_LOG_LEVEL, *level)),
        ),
        Expression::LogToGroup { prefix, group, length } => (
            name::LOG,
            Box::new(move |data| {
                data.with_text(NFTA_LOG_PREFIX, prefix)
                    .with(NFTA_LOG_GROUP, &group.to_be_bytes())
                    .with_be32(NFTA_LOG_SNAPLEN, *length)
            }),
        ),
        Expression::Limit { rate, seconds, burst, is_over } => (
            name::LIMIT,
            Box::new(move |data| {
                data.with_be64(NFTA_LIMIT_RATE, *rate)
                    .with_be64(NFTA_LIMIT_UNIT, *seconds)
                    .with_be32(NFTA_LIMIT_BURST, *burst)
                    .with_be32(NFTA_LIMIT_TYPE, 0)
                    .with_be32(NFTA_LIMIT_FLAGS, u32::from(*is_over))
            }),
        ),
        Expression::Reject { kind, code } => (
            name::REJECT,
            Box::new(move |data| {
                data.with_be32(NFTA_REJECT_TYPE, *kind).with(NFTA_REJECT_ICMP_CODE, &[*code])
            }),
        ),
        Expression::NoTrack => return element.with_text(NFTA_EXPR_NAME, name::NOTRACK),
        // The kernel refuses it: what we could not read we never write.
        Expression::Other { name } => (name.as_str(), Box::new(|data| data)),
        _ => return element,
    };
    element.with_text(NFTA_EXPR_NAME, name).with_nested(NFTA_EXPR_DATA, body)
}

fn put_set(data: Message, set: &SetName, from: Register) -> Message {
    let data = data.with_text(NFTA_LOOKUP_SET, &set.name).with_be32(NFTA_LOOKUP_SREG, number(from));
    set.id.iter().fold(data, |data, id| data.with_be32(NFTA_LOOKUP_SET_ID, *id))
}

fn put_value(message: Message, kind: u16, value: &[u8]) -> Message {
    message.with_nested(kind, |data| data.with(NFTA_DATA_VALUE, value))
}
