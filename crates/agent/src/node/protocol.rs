//! Requests and replies ([`wire`]) on the agent's socket.

#![cfg_attr(not(test), deny(clippy::string_slice, clippy::indexing_slicing))]

use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};

use plan::task::RepairTask;
use wire::{BadRequest, REQUEST_BYTES_MAX, Reply};

/// Enough for nearly all requests.
const REQUEST_BYTES_USUAL: usize = 8 * 1024;

/// A request to this agent.
pub(super) type Request = wire::Request<RepairTask>;

/// Reads a request. `None` if the connection was closed before one arrived.
pub(super) async fn read_request(
    stream: &mut (impl AsyncRead + Unpin),
) -> Result<Option<Request>, BadRequest> {
    let mut head = [0; 4];
    match stream.read_exact(&mut head).await {
        Ok(_) => {}
        Err(error) if error.kind() == std::io::ErrorKind::UnexpectedEof => return Ok(None),
        Err(error) => return Err(BadRequest::CutOff(error)),
    }
    let length = wire::body_length(head, REQUEST_BYTES_MAX).map_err(|_| BadRequest::TooLong)?;
    // Grows with what arrives: announcing a length costs a client nothing.
    let mut text = Vec::with_capacity(REQUEST_BYTES_USUAL.min(length));
    stream.take(length as u64).read_to_end(&mut text).await.map_err(BadRequest::CutOff)?;
    if text.len() < length {
        return Err(BadRequest::CutOff(std::io::ErrorKind::UnexpectedEof.into()));
    }
    Request::decode(&text).map(Some)
}

pub(super) async fn write_reply(stream: &mut (impl AsyncWrite + Unpin), reply: Reply) -> std::io::Result<()> {
    let text = reply.encode();
    drop(reply);
    // One send.
    let frame = wire::frame(&text).map_err(std::io::Error::other)?;
    drop(text);
    stream.write_all(&frame).await?;
    stream.flush().await
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use wire::Role;

    fn frame(text: &[u8]) -> Vec<u8> {
        let mut frame = u32::try_from(text.len()).unwrap().to_be_bytes().to_vec();
        frame.extend_from_slice(text);
        frame
    }

    fn ask(bytes: &[u8]) -> Result<Option<Request>, BadRequest> {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        runtime.block_on(read_request(&mut &bytes[..]))
    }

    fn read(bytes: &[u8]) -> Result<Option<wire::Call>, BadRequest> {
        ask(bytes).map(|asked| match asked {
            Some(Request::Call(call)) => Some(call),
            _ => None,
        })
    }

    #[test]
    fn evidence_can_be_asked_for() {
        let asked = |text: &str| ask(&frame(text.as_bytes()));
        assert!(matches!(asked(r#"{"version":1,"ask":"evidence"}"#), Ok(Some(Request::Evidence))));
        assert!(asked(r#"{"version":2,"ask":"evidence"}"#).is_err());
        assert!(asked(r#"{"version":1,"ask":"secrets"}"#).is_err());
        let probe = asked(r#"{"version":1,"ask":"probe","addresses":["10.0.0.1","fd00::1"]}"#);
        assert!(matches!(probe, Ok(Some(Request::Probe(addresses))) if addresses.len() == 2));
        assert!(asked(r#"{"version":1,"ask":"probe","addresses":["example.org"]}"#).is_err());
    }

    #[test]
    fn a_repair_can_be_asked_for() {
        let asked = |text: &str| ask(&frame(text.as_bytes()));
        let up = r#"{"act":"up","device":"cali1","from":false,"to":true}"#;
        let question = format!(r#"{{"version":1,"ask":"repair","works":[{up},{up}]}}"#);
        assert!(matches!(asked(&question), Ok(Some(Request::Repair(works))) if works.len() == 2));
        assert!(matches!(asked(r#"{"version":1,"ask":"repair","works":[]}"#), Ok(Some(Request::Repair(_)))));
        for broken in [
            r#"{"version":1,"ask":"repair"}"#,
            r#"{"version":1,"ask":"repair","works":[{"act":"format","device":"sda"}]}"#,
            r#"{"version":1,"ask":"repair","works":{"act":"up"}}"#,
            r#"{"version":2,"ask":"repair","works":[]}"#,
        ] {
            assert!(asked(broken).is_err(), "{broken}");
        }
    }

    #[test]
    fn a_request_arrives() {
        let text =
            br#"{"version":1,"role":"ipam","environment":{"CNI_COMMAND":"ADD","HOME":"/"},"config":"{}"}"#;
        let request = read(&frame(text)).unwrap().unwrap();
        assert_eq!((request.role, request.config.as_str()), (Role::Ipam, "{}"));
        assert_eq!(request.variable("CNI_COMMAND"), Some("ADD"));
        assert_eq!(request.variable("HOME"), None, "only the call's own variables count");
        assert_eq!(wire::Call::decode(&request.encode()).unwrap(), request);
    }

    #[test]
    fn everything_else_is_refused_with_a_reason() {
        assert!(ask(b"").unwrap().is_none());
        assert!(ask(b"\0\0").unwrap().is_none());
        for (bytes, expected) in [
            (b"\0\x10\0\x01".to_vec(), "the request is longer than 1048576 bytes"),
            (b"GET / HTTP/1.1\r\n\r\n".to_vec(), "the request is longer than 1048576 bytes"),
            (frame(b"garbage"), "the request is not valid"),
            (b"\0\0\0\x09{\"vers".to_vec(), "the connection ended in the middle of a request"),
            (
                frame(br#"{"version":2,"role":"ipam","environment":{},"config":""}"#),
                "version 2 of the agent's protocol is not supported",
            ),
            (
                frame(br#"{"version":1,"role":"root","environment":{},"config":""}"#),
                "role \"root\" is not supported",
            ),
        ] {
            assert_eq!(read(&bytes).unwrap_err().to_string(), expected);
        }
    }

    proptest! {
        #[test]
        fn any_bytes_can_be_read(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            let _ = read(&bytes);
            let _ = read(&frame(&bytes));
        }

        #[test]
        fn any_works_can_be_asked_for(works in "[\\PC]{0,200}") {
            let _ = ask(&frame(format!(r#"{{"version":1,"ask":"repair","works":{works}}}"#).as_bytes()));
        }
    }
}
