//! Splits what the kernel sends into frames, and reads acknowledgements and refusals.

#![cfg_attr(not(test), deny(clippy::string_slice, clippy::indexing_slicing))]

use super::message::{Attributes, read_text, read_u16, read_u32};
use super::numbers::{NLM_F_ACK_TLVS, NLM_F_CAPPED, NLM_F_DUMP_INTR};

const HEADER: usize = 16;
const NLMSG_NOOP: u16 = 1;
const NLMSG_ERROR: u16 = 2;
const NLMSG_DONE: u16 = 3;
const NLMSGERR_ATTR_MSG: u16 = 1;

#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Frame<'a> {
    pub(crate) sequence: u32,
    /// The socket that asked for it, or whose doing it announces. Zero: the kernel by itself, or one that it does not name.
    pub(crate) port: u32,
    /// The list was changed while it was being made.
    pub(crate) interrupted: bool,
    pub(crate) kind: FrameKind<'a>,
}

#[derive(Debug, PartialEq, Eq)]
pub(crate) enum FrameKind<'a> {
    /// A request was done, or refused.
    Answer(Option<Refusal>),
    /// A list is complete, or broke off.
    Done(Option<Refusal>),
    Object {
        kind: u16,
        payload: &'a [u8],
    },
}

#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Refusal {
    pub(crate) errno: i32,
    /// The kernel's own words, where it has some.
    pub(crate) detail: Option<String>,
}

pub(crate) fn split(mut bytes: &[u8]) -> Result<Vec<Frame<'_>>, String> {
    let mut frames = Vec::new();
    while !bytes.is_empty() {
        let length = read_u32(bytes, 0).ok_or("a frame without a length")? as usize;
        if length < HEADER || length > bytes.len() {
            return Err(format!("a frame of {length} bytes where {} are left", bytes.len()));
        }
        let (frame, _) = bytes.split_at(length);
        frames.extend(read_frame(frame)?);
        bytes = bytes.get(length.next_multiple_of(4)..).unwrap_or_default();
    }
    Ok(frames)
}

fn read_frame(frame: &[u8]) -> Result<Option<Frame<'_>>, String> {
    let short = "a frame that is too short";
    let kind = read_u16(frame, 4).ok_or(short)?;
    let flags = read_u16(frame, 6).ok_or(short)?;
    let sequence = read_u32(frame, 8).ok_or(short)?;
    let port = read_u32(frame, 12).ok_or(short)?;
    let payload = frame.get(HEADER..).ok_or(short)?;
    let kind = match kind {
        NLMSG_NOOP => return Ok(None),
        NLMSG_ERROR => FrameKind::Answer(read_refusal(payload, flags)?),
        // A list that ends well may have no code at all.
        NLMSG_DONE if payload.is_empty() => FrameKind::Done(None),
        NLMSG_DONE => {
            let code = read_u32(payload, 0).ok_or(short)? as i32;
            let attributes = payload.get(4..).unwrap_or_default();
            let refusal = || Refusal { errno: code.saturating_neg(), detail: read_detail(attributes) };
            FrameKind::Done((code < 0).then(refusal))
        }
        kind => FrameKind::Object { kind, payload },
    };
    Ok(Some(Frame { sequence, port, interrupted: flags & NLM_F_DUMP_INTR != 0, kind }))
}

/// `nlmsgerr`: the code, the header of the request, its payload unless capped, then attributes.
fn read_refusal(payload: &[u8], flags: u16) -> Result<Option<Refusal>, String> {
    let code = read_u32(payload, 0).ok_or("an answer without a code")? as i32;
    if code == 0 {
        return Ok(None);
    }
    let request_length = if flags & NLM_F_CAPPED == 0 {
        read_u32(payload, 4).ok_or("an answer without its request")? as usize
    } else {
        HEADER
    };
    let detail = if flags & NLM_F_ACK_TLVS == 0 {
        None
    } else {
        payload.get(request_length.next_multiple_of(4).saturating_add(4)..).and_then(read_detail)
    };
    Ok(Some(Refusal { errno: code.saturating_neg(), detail }))
}

fn read_detail(attributes: &[u8]) -> Option<String> {
    Attributes(attributes).find(|(kind, _)| *kind == NLMSGERR_ATTR_MSG).map(|(_, value)| read_text(value))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const PORT: u32 = 4711;

    fn frame(kind: u16, flags: u16, sequence: u32, payload: &[u8]) -> Vec<u8> {
        let length = (HEADER + payload.len()) as u32;
        let mut bytes = length.to_ne_bytes().to_vec();
        bytes.extend(kind.to_ne_bytes());
        bytes.extend(flags.to_ne_bytes());
        bytes.extend(sequence.to_ne_bytes());
        bytes.extend(PORT.to_ne_bytes());
        bytes.extend(payload);
        bytes.resize(bytes.len().next_multiple_of(4), 0);
        bytes
    }

    fn refusal_payload(errno: i32, text: &str) -> Vec<u8> {
        let mut payload = (-errno).to_ne_bytes().to_vec();
        payload.extend([0; HEADER]);
        // NLMSGERR_ATTR_OFFS comes before the text.
        payload.extend(8u16.to_ne_bytes());
        payload.extend(2u16.to_ne_bytes());
        payload.extend(20u32.to_ne_bytes());
        payload.extend((4 + text.len() as u16 + 1).to_ne_bytes());
        payload.extend(NLMSGERR_ATTR_MSG.to_ne_bytes());
        payload.extend(text.as_bytes());
        payload.push(0);
        payload
    }

    #[test]
    fn answers_objects_and_the_kernels_words_are_told_apart() {
        let mut bytes = frame(24, NLM_F_DUMP_INTR, 7, b"route");
        bytes.extend(frame(NLMSG_ERROR, NLM_F_CAPPED, 8, &[0; 20]));
        let refusal = refusal_payload(17, "File exists here");
        bytes.extend(frame(NLMSG_ERROR, NLM_F_CAPPED | NLM_F_ACK_TLVS, 9, &refusal));
        bytes.extend(frame(NLMSG_DONE, 0, 10, &0u32.to_ne_bytes()));
        let frames = split(&bytes).unwrap();
        let object = FrameKind::Object { kind: 24, payload: b"route" };
        let refused =
            FrameKind::Answer(Some(Refusal { errno: 17, detail: Some("File exists here".to_owned()) }));
        assert_eq!(
            frames,
            [
                Frame { sequence: 7, port: PORT, interrupted: true, kind: object },
                Frame { sequence: 8, port: PORT, interrupted: false, kind: FrameKind::Answer(None) },
                Frame { sequence: 9, port: PORT, interrupted: false, kind: refused },
                Frame { sequence: 10, port: PORT, interrupted: false, kind: FrameKind::Done(None) },
            ]
        );
    }

    /// The smallest number has no opposite.
    #[test]
    fn any_code_can_end_a_list() {
        for code in [i32::MIN, i32::MIN + 1, -1] {
            let bytes = frame(NLMSG_DONE, 0, 1, &code.to_ne_bytes());
            let frames = split(&bytes).unwrap();
            let refusal = Refusal { errno: code.saturating_neg(), detail: None };
            assert_eq!(frames[0].kind, FrameKind::Done(Some(refusal)));
        }
    }

    proptest! {
        #[test]
        fn any_bytes_can_be_split(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            let _ = split(&bytes);
        }

        #[test]
        fn any_payload_of_an_answer_can_be_read(
            kind in prop_oneof![Just(NLMSG_ERROR), Just(NLMSG_DONE)],
            flags: u16,
            payload in proptest::collection::vec(any::<u8>(), 0..80),
        ) {
            let _ = split(&frame(kind, flags, 1, &payload));
        }
    }
}
