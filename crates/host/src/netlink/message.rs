//! Writes and reads the body of a netlink message: a fixed header, then attributes, which may hold attributes.
//!
//! By hand, because what is read here is also what strangers made: an attribute that we do not know, or that has an
//! odd shape, must not make the rest unreadable.

#![cfg_attr(not(test), deny(clippy::string_slice, clippy::indexing_slicing))]

const ATTRIBUTE_HEADER: usize = 4;
/// The two highest bits say how the value is encoded.
const ATTRIBUTE_KIND: u16 = 0x3fff;
const NESTED: u16 = 0x8000;

/// One message without its netlink header.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Message {
    pub(crate) kind: u16,
    pub(crate) body: Vec<u8>,
}

impl Message {
    pub(crate) fn new(kind: u16, header: &[u8]) -> Message {
        let mut body = Vec::with_capacity(128);
        body.extend(header);
        Message { kind, body }
    }

    /// `struct ifinfomsg`.
    pub(crate) fn link(kind: u16, index: u32) -> Message {
        Message::new(kind, &link_header(index))
    }

    /// A link whose flags within `mask` become `flags`.
    pub(crate) fn link_flags(kind: u16, index: u32, flags: u32, mask: u32) -> Message {
        let mut message = Message::link(kind, index);
        message.put(8, &flags.to_ne_bytes());
        message.put(12, &mask.to_ne_bytes());
        message
    }

    #[must_use]
    pub(crate) fn with(mut self, kind: u16, value: &[u8]) -> Message {
        push(&mut self.body, kind, value);
        self
    }

    #[must_use]
    pub(crate) fn with_u32(self, kind: u16, value: u32) -> Message {
        self.with(kind, &value.to_ne_bytes())
    }

    #[must_use]
    pub(crate) fn with_u64(self, kind: u16, value: u64) -> Message {
        self.with(kind, &value.to_ne_bytes())
    }

    /// In the order of the network, as all of netfilter has it.
    #[must_use]
    pub(crate) fn with_be32(self, kind: u16, value: u32) -> Message {
        self.with(kind, &value.to_be_bytes())
    }

    #[must_use]
    pub(crate) fn with_be64(self, kind: u16, value: u64) -> Message {
        self.with(kind, &value.to_be_bytes())
    }

    /// Text with a closing zero.
    #[must_use]
    pub(crate) fn with_text(self, kind: u16, text: &str) -> Message {
        let mut value = text.as_bytes().to_vec();
        value.push(0);
        self.with(kind, &value)
    }

    /// An attribute that holds what `inside` writes.
    #[must_use]
    pub(crate) fn with_nested(mut self, kind: u16, inside: impl FnOnce(Message) -> Message) -> Message {
        let start = self.body.len();
        push(&mut self.body, kind | NESTED, &[]);
        let mut message = inside(self);
        message.close(start);
        message
    }

    /// The same without the mark of nesting: `VETH_INFO_PEER` starts with a header of its own.
    #[must_use]
    pub(crate) fn with_peer(mut self, kind: u16, inside: impl FnOnce(Message) -> Message) -> Message {
        let start = self.body.len();
        push(&mut self.body, kind, &link_header(0));
        let mut message = inside(self);
        message.close(start);
        message
    }

    fn close(&mut self, start: usize) {
        let length = u16::try_from(self.body.len() - start).expect("a message of ours is small");
        self.put(start, &length.to_ne_bytes());
    }

    /// Writes over what stands there.
    fn put(&mut self, at: usize, value: &[u8]) {
        self.body.iter_mut().skip(at).zip(value).for_each(|(byte, new)| *byte = *new);
    }
}

fn link_header(index: u32) -> [u8; 16] {
    let mut header = [0; 16];
    let place = header.iter_mut().skip(4);
    place.zip(index.to_ne_bytes()).for_each(|(byte, new)| *byte = new);
    header
}

fn push(body: &mut Vec<u8>, kind: u16, value: &[u8]) {
    let length = u16::try_from(ATTRIBUTE_HEADER + value.len()).expect("a message of ours is small");
    body.extend(length.to_ne_bytes());
    body.extend(kind.to_ne_bytes());
    body.extend(value);
    body.resize(body.len().next_multiple_of(4), 0);
}

/// Walks through attributes, up to the first that does not fit.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Attributes<'a>(pub(crate) &'a [u8]);

impl<'a> Iterator for Attributes<'a> {
    type Item = (u16, &'a [u8]);

    fn next(&mut self) -> Option<(u16, &'a [u8])> {
        let length = usize::from(read_u16(self.0, 0)?);
        let kind = read_u16(self.0, 2)? & ATTRIBUTE_KIND;
        let value = self.0.get(ATTRIBUTE_HEADER..length)?;
        self.0 = self.0.get(length.next_multiple_of(4)..).unwrap_or_default();
        Some((kind, value))
    }
}

impl Attributes<'_> {
    /// Those after a header of this size; none if there is no room for it.
    pub(crate) fn after(body: &[u8], header: usize) -> Attributes<'_> {
        Attributes(body.get(header..).unwrap_or_default())
    }
}

pub(crate) fn read_u16(bytes: &[u8], at: usize) -> Option<u16> {
    bytes.get(at..at.checked_add(2)?)?.try_into().ok().map(u16::from_ne_bytes)
}

pub(crate) fn read_u32(bytes: &[u8], at: usize) -> Option<u32> {
    bytes.get(at..at.checked_add(4)?)?.try_into().ok().map(u32::from_ne_bytes)
}

/// A number in the order of the network, alone.
pub(crate) fn read_be32(value: &[u8]) -> Option<u32> {
    value.try_into().ok().map(u32::from_be_bytes)
}

pub(crate) fn read_be64(value: &[u8]) -> Option<u64> {
    value.try_into().ok().map(u64::from_be_bytes)
}

/// Text with or without a closing zero.
pub(crate) fn read_text(value: &[u8]) -> String {
    let text = value.split(|&byte| byte == 0).next().unwrap_or_default();
    String::from_utf8_lossy(text).into_owned()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::numbers::RTM_NEWLINK;
    use super::*;

    #[test]
    fn attributes_within_attributes() {
        let message = Message::link(RTM_NEWLINK, 7)
            .with_text(3, "cali1")
            .with_nested(18, |info| info.with_text(1, "veth").with_nested(2, |data| data.with_u32(9, 5)))
            .with_u32(4, 1450);
        let all: Vec<(u16, Vec<u8>)> =
            Attributes::after(&message.body, 16).map(|(kind, value)| (kind, value.to_vec())).collect();
        assert_eq!(all.iter().map(|(kind, _)| *kind).collect::<Vec<_>>(), [3, 18, 4]);
        assert_eq!(read_text(&all[0].1), "cali1");
        let inner: Vec<u16> = Attributes(&all[1].1).map(|(kind, _)| kind).collect();
        assert_eq!(inner, [1, 2]);
        assert_eq!(read_u32(&all[2].1, 0), Some(1450));
    }

    proptest! {
        #[test]
        fn any_bytes_can_be_walked_through(bytes in proptest::collection::vec(any::<u8>(), 0..100)) {
            for (_, value) in Attributes(&bytes) {
                let _ = (read_text(value), Attributes(value).count());
            }
        }

        #[test]
        fn what_is_written_is_read(values in proptest::collection::vec(
            (0u16..100, proptest::collection::vec(any::<u8>(), 0..20)), 0..8,
        )) {
            let mut message = Message::new(1, &[0; 8]);
            for (kind, value) in &values {
                message = message.with(*kind, value);
            }
            let read: Vec<(u16, Vec<u8>)> =
                Attributes::after(&message.body, 8).map(|(kind, value)| (kind, value.to_vec())).collect();
            prop_assert_eq!(read, values);
        }
    }
}
