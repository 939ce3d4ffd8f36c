//! Steps of rules as the kernel lists them. One that has not the shape of ours is [`Expression::Other`]: whoever compares or walks must know
//! that something stands there.

#![cfg_attr(not(test), deny(clippy::string_slice, clippy::indexing_slicing))]

use super::name;
use crate::netlink::message::{Attributes, read_be32, read_be64, read_text};
use crate::nftables::numbers::*;
use crate::nftables::object::{Expression, Register, SetName, Verdict};

/// Parts of a step, of which the last of a kind counts.
struct Parts<'a>(&'a [u8]);

impl<'a> Parts<'a> {
    fn find(&self, kind: u16) -> Option<&'a [u8]> {
        Attributes(self.0).find(|(found, _)| *found == kind).map(|(_, value)| value)
    }

    fn number(&self, kind: u16) -> Option<u32> {
        read_be32(self.find(kind)?)
    }

    fn register(&self, kind: u16) -> Option<Register> {
        match self.number(kind)? {
            number @ NFT_REG_1..=NFT_REG_4 => u8::try_from((number - NFT_REG_1) * 4).ok().map(Register),
            number @ NFT_REG32_00..=NFT_REG32_15 => u8::try_from(number - NFT_REG32_00).ok().map(Register),
            _ => None,
        }
    }

    fn value(&self, kind: u16) -> Option<Vec<u8>> {
        Parts(self.find(kind)?).find(NFTA_DATA_VALUE).map(<[u8]>::to_vec)
    }

    fn text(&self, kind: u16) -> Option<String> {
        self.find(kind).map(read_text)
    }
}

/// All steps of a rule, from the value of the attribute that lists them.
pub(in crate::nftables) fn expressions(list: &[u8]) -> Vec<Expression> {
    let elements = Attributes(list).filter(|(kind, _)| *kind == NFTA_LIST_ELEM);
    elements.map(|(_, element)| expression(element)).collect()
}

/// The verdict in the value of a data attribute.
pub(in crate::nftables) fn verdict_of(data: &[u8]) -> Option<Verdict> {
    let parts = Parts(Parts(data).find(NFTA_DATA_VERDICT)?);
    let chain = || parts.text(NFTA_VERDICT_CHAIN);
    Some(match parts.number(NFTA_VERDICT_CODE)?.cast_signed() {
        NF_ACCEPT => Verdict::Accept,
        NF_DROP => Verdict::Drop,
        NFT_CONTINUE => Verdict::Continue,
        NFT_RETURN => Verdict::Return,
        NFT_JUMP => Verdict::Jump(chain()?),
        NFT_GOTO => Verdict::Goto(chain()?),
        code => Verdict::Other(code),
    })
}

fn expression(element: &[u8]) -> Expression {
    let parts = Parts(element);
    let name = parts.text(NFTA_EXPR_NAME).unwrap_or_default();
    let data = Parts(parts.find(NFTA_EXPR_DATA).unwrap_or_default());
    let read = match name.as_str() {
        name::META => meta(&data),
        name::CT => ct(&data),
        name::PAYLOAD => payload(&data),
        name::FIB => fib(&data),
        name::BITWISE => bitwise(&data),
        name::CMP => compare(&data),
        name::RANGE => range(&data),
        name::LOOKUP => lookup(&data),
        name::IMMEDIATE => immediate(&data),
        name::COUNTER => Some(Expression::Count),
        name::OBJREF => object(&data),
        name::LOG => log(&data),
        name::LIMIT => limit(&data),
        name::REJECT => reject(&data),
        name::NOTRACK => Some(Expression::NoTrack),
        _ => None,
    };
    read.unwrap_or(Expression::Other { name })
}

fn meta(data: &Parts<'_>) -> Option<Expression> {
    let key = data.number(NFTA_META_KEY)?;
    match data.register(NFTA_META_SREG) {
        Some(from) => Some(Expression::StoreMeta { key, from }),
        None => Some(Expression::LoadMeta { key, into: data.register(NFTA_META_DREG)? }),
    }
}

fn ct(data: &Parts<'_>) -> Option<Expression> {
    let key = data.number(NFTA_CT_KEY)?;
    let direction = data.find(NFTA_CT_DIRECTION).and_then(|value| value.first().copied());
    match data.register(NFTA_CT_SREG) {
        Some(from) => Some(Expression::StoreCt { key, from }),
        None => Some(Expression::LoadCt { key, direction, into: data.register(NFTA_CT_DREG)? }),
    }
}

fn payload(data: &Parts<'_>) -> Option<Expression> {
    Some(Expression::LoadPayload {
        base: data.number(NFTA_PAYLOAD_BASE)?,
        offset: data.number(NFTA_PAYLOAD_OFFSET)?,
        length: data.number(NFTA_PAYLOAD_LEN)?,
        into: data.register(NFTA_PAYLOAD_DREG)?,
    })
}

fn fib(data: &Parts<'_>) -> Option<Expression> {
    Some(Expression::LoadFib {
        result: data.number(NFTA_FIB_RESULT)?,
        flags: data.number(NFTA_FIB_FLAGS)?,
        into: data.register(NFTA_FIB_DREG)?,
    })
}

fn bitwise(data: &Parts<'_>) -> Option<Expression> {
    // Anything but `(from & mask) ^ xor` is a shift or an operation on two registers.
    if data.number(NFTA_BITWISE_OP).unwrap_or(0) != 0 {
        return None;
    }
    Some(Expression::Bitwise {
        from: data.register(NFTA_BITWISE_SREG)?,
        into: data.register(NFTA_BITWISE_DREG)?,
        mask: data.value(NFTA_BITWISE_MASK)?,
        xor: data.value(NFTA_BITWISE_XOR)?,
    })
}

fn compare(data: &Parts<'_>) -> Option<Expression> {
    let (operation, value) = (data.number(NFTA_CMP_OP)?, data.value(NFTA_CMP_DATA)?);
    Some(Expression::Compare { from: data.register(NFTA_CMP_SREG)?, operation, value })
}

fn range(data: &Parts<'_>) -> Option<Expression> {
    let is_outside = match data.number(NFTA_RANGE_OP)? {
        0 => false,
        1 => true,
        _ => return None,
    };
    let (low, high) = (data.value(NFTA_RANGE_FROM_DATA)?, data.value(NFTA_RANGE_TO_DATA)?);
    Some(Expression::Range { from: data.register(NFTA_RANGE_SREG)?, is_outside, low, high })
}

fn lookup(data: &Parts<'_>) -> Option<Expression> {
    let set = SetName { name: data.text(NFTA_LOOKUP_SET)?, id: None };
    let from = data.register(NFTA_LOOKUP_SREG)?;
    match data.number(NFTA_LOOKUP_DREG) {
        Some(NFT_REG_VERDICT) => Some(Expression::LookupVerdict { set, from }),
        // A map of values, of which we have none.
        Some(_) => None,
        None => {
            let is_missing = data.number(NFTA_LOOKUP_FLAGS).unwrap_or(0) & NFT_LOOKUP_F_INV != 0;
            Some(Expression::Lookup { set, from, is_missing })
        }
    }
}

fn immediate(data: &Parts<'_>) -> Option<Expression> {
    if data.number(NFTA_IMMEDIATE_DREG)? == NFT_REG_VERDICT {
        return verdict_of(data.find(NFTA_IMMEDIATE_DATA)?).map(Expression::Verdict);
    }
    let into = data.register(NFTA_IMMEDIATE_DREG)?;
    Some(Expression::Load { into, value: data.value(NFTA_IMMEDIATE_DATA)? })
}

fn object(data: &Parts<'_>) -> Option<Expression> {
    let is_counter = data.number(NFTA_OBJREF_IMM_TYPE)? == NFT_OBJECT_COUNTER;
    is_counter.then_some(Expression::CountIn(data.text(NFTA_OBJREF_IMM_NAME)?))
}

fn log(data: &Parts<'_>) -> Option<Expression> {
    let prefix = data.text(NFTA_LOG_PREFIX).unwrap_or_default();
    match data.find(NFTA_LOG_GROUP) {
        Some(group) => {
            let length = data.number(NFTA_LOG_SNAPLEN).unwrap_or(0);
            let group = u16::from_be_bytes(group.try_into().ok()?);
            Some(Expression::LogToGroup { prefix, group, length })
        }
        None => Some(Expression::Log { prefix, level: data.number(NFTA_LOG_LEVEL)? }),
    }
}

fn limit(data: &Parts<'_>) -> Option<Expression> {
    // Packets; the other kind counts bytes.
    if data.number(NFTA_LIMIT_TYPE)? != 0 {
        return None;
    }
    Some(Expression::Limit {
        rate: read_be64(data.find(NFTA_LIMIT_RATE)?)?,
        seconds: read_be64(data.find(NFTA_LIMIT_UNIT)?)?,
        burst: data.number(NFTA_LIMIT_BURST)?,
        is_over: data.number(NFTA_LIMIT_FLAGS).unwrap_or(0) & 1 != 0,
    })
}

fn reject(data: &Parts<'_>) -> Option<Expression> {
    let kind = data.number(NFTA_REJECT_TYPE)?;
    // The kernel lists no code with a reset.
    let code = data.find(NFTA_REJECT_ICMP_CODE).and_then(|value| value.first().copied());
    Some(Expression::Reject { kind, code: code.unwrap_or(0) })
}
