//! The steps of rules, to and from netlink.

mod read;
mod write;

pub(super) use read::{expressions, verdict_of};
pub(super) use write::{put_verdict, with_expressions};

/// Their names in the kernel, which decide how the rest of a step is read.
mod name {
    pub(super) const META: &str = "meta";
    pub(super) const CT: &str = "ct";
    pub(super) const PAYLOAD: &str = "payload";
    pub(super) const FIB: &str = "fib";
    pub(super) const BITWISE: &str = "bitwise";
    pub(super) const CMP: &str = "cmp";
    pub(super) const RANGE: &str = "range";
    pub(super) const LOOKUP: &str = "lookup";
    pub(super) const IMMEDIATE: &str = "immediate";
    pub(super) const COUNTER: &str = "counter";
    pub(super) const OBJREF: &str = "objref";
    pub(super) const LOG: &str = "log";
    pub(super) const LIMIT: &str = "limit";
    pub(super) const REJECT: &str = "reject";
    pub(super) const NOTRACK: &str = "notrack";
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::netlink::Message;
    use crate::netlink::message::Attributes;
    use crate::nftables::object::{Expression, Register, SetName, Verdict};

    fn register() -> impl Strategy<Value = Register> {
        (0u8..16).prop_map(Register)
    }

    fn bytes() -> impl Strategy<Value = Vec<u8>> {
        proptest::collection::vec(any::<u8>(), 1..17)
    }

    fn verdict() -> impl Strategy<Value = Verdict> {
        prop_oneof![
            Just(Verdict::Accept),
            Just(Verdict::Drop),
            Just(Verdict::Continue),
            Just(Verdict::Return),
            "[a-z/.-]{1,40}".prop_map(Verdict::Jump),
            "[a-z/.-]{1,40}".prop_map(Verdict::Goto),
        ]
    }

    fn set() -> impl Strategy<Value = SetName> {
        "[a-z]{1,20}".prop_map(|name| SetName { name, id: None })
    }

    fn loads() -> impl Strategy<Value = Expression> {
        prop_oneof![
            (any::<u32>(), register()).prop_map(|(key, into)| Expression::LoadMeta { key, into }),
            (any::<u32>(), register()).prop_map(|(key, from)| Expression::StoreMeta { key, from }),
            (any::<u32>(), any::<Option<u8>>(), register())
                .prop_map(|(key, direction, into)| Expression::LoadCt { key, direction, into }),
            (any::<u32>(), register()).prop_map(|(key, from)| Expression::StoreCt { key, from }),
            (any::<u32>(), any::<u32>(), any::<u32>(), register()).prop_map(
                |(base, offset, length, into)| { Expression::LoadPayload { base, offset, length, into } }
            ),
            (any::<u32>(), any::<u32>(), register()).prop_map(|(result, flags, into)| Expression::LoadFib {
                result,
                flags,
                into
            }),
            (register(), bytes()).prop_map(|(into, value)| Expression::Load { into, value }),
        ]
    }

    fn tests() -> impl Strategy<Value = Expression> {
        prop_oneof![
            (register(), register(), bytes(), bytes())
                .prop_map(|(from, into, mask, xor)| Expression::Bitwise { from, into, mask, xor }),
            (register(), 0u32..6, bytes()).prop_map(|(from, operation, value)| Expression::Compare {
                from,
                operation,
                value
            }),
            (register(), any::<bool>(), bytes(), bytes())
                .prop_map(|(from, is_outside, low, high)| Expression::Range { from, is_outside, low, high }),
            (set(), register(), any::<bool>()).prop_map(|(set, from, is_missing)| Expression::Lookup {
                set,
                from,
                is_missing
            }),
            (set(), register()).prop_map(|(set, from)| Expression::LookupVerdict { set, from }),
        ]
    }

    fn effects() -> impl Strategy<Value = Expression> {
        prop_oneof![
            verdict().prop_map(Expression::Verdict),
            Just(Expression::Count),
            "[a-z/]{1,40}".prop_map(Expression::CountIn),
            ("[a-z: ]{1,60}", any::<u32>()).prop_map(|(prefix, level)| Expression::Log { prefix, level }),
            ("[a-z: ]{1,60}", any::<u16>(), any::<u32>())
                .prop_map(|(prefix, group, length)| Expression::LogToGroup { prefix, group, length }),
            (any::<u64>(), any::<u64>(), any::<u32>(), any::<bool>()).prop_map(
                |(rate, seconds, burst, is_over)| Expression::Limit { rate, seconds, burst, is_over }
            ),
            (any::<u32>(), any::<u8>()).prop_map(|(kind, code)| Expression::Reject { kind, code }),
            Just(Expression::NoTrack),
        ]
    }

    proptest! {
        #[test]
        fn what_is_written_is_read(
            all in proptest::collection::vec(prop_oneof![loads(), tests(), effects()], 0..12),
        ) {
            let message = with_expressions(Message::new(0, &[]), 4, &all);
            let (_, value) = Attributes(&message.body).next().unwrap();
            prop_assert_eq!(expressions(value), all);
        }

        #[test]
        fn any_bytes_can_be_read(value in proptest::collection::vec(any::<u8>(), 0..120)) {
            let _ = expressions(&value);
        }

        /// Bytes at random seldom have the form of a step.
        #[test]
        fn any_step_can_be_read(
            name in prop_oneof![
                Just("meta"), Just("ct"), Just("payload"), Just("fib"), Just("bitwise"), Just("cmp"), Just("range"), Just("lookup"),
                Just("immediate"), Just("counter"), Just("objref"), Just("log"), Just("limit"), Just("reject"), Just("nat"),
            ],
            parts in proptest::collection::vec((0u16..8, proptest::collection::vec(any::<u8>(), 0..24)), 0..6),
        ) {
            let message = Message::new(0, &[]).with_nested(1, |list| {
                list.with_text(1, name).with_nested(2, |step| {
                    parts.iter().fold(step, |step, (kind, value)| step.with(*kind, value))
                })
            });
            prop_assert_eq!(expressions(&message.body).len(), 1);
        }
    }
}
