//! The words between the plugin and the agent: a length in four bytes, then JSON, once in each direction.
//!
//! Besides calls of the plugin, `{"version":1,"ask":"evidence"}` asks for what the agent sees of its node; the answer's text is a
//! bundle ([`gather::bundle`]). `{"version":1,"ask":"repair","works":[…]}` asks for changes of the node ([`plan::work`]); the answer's text is
//! a list of what became of each, as JSON. `{"version":1,"ask":"probe","addresses":[…]}` has the node send packets to see whether they arrive; the
//! answer is a bundle, too.

#![cfg_attr(not(test), deny(clippy::string_slice, clippy::indexing_slicing))]

use std::net::IpAddr;

use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};

use plan::work::NodeWork;
use serde::Deserialize;

use crate::cni::{Answer, BadRequest, CallRequest, REQUEST_BYTES_MAX};

/// Enough for nearly all requests.
const REQUEST_BYTES_USUAL: usize = 8 * 1024;

/// What somebody wants.
#[derive(Debug)]
pub(super) enum Asked {
    Call(CallRequest),
    /// What the agent sees of its node.
    Evidence,
    /// To carry out an operator's repair.
    Repair(Vec<NodeWork>),
    /// Whether packets to these addresses arrive.
    Probe(Vec<IpAddr>),
}

#[derive(Deserialize)]
struct Question {
    version: u32,
    ask: String,
    #[serde(default)]
    addresses: Vec<IpAddr>,
}

#[derive(Deserialize)]
struct RepairQuestion {
    works: Vec<NodeWork>,
}

/// Reads a request. `None` if the connection was closed before there was one.
pub(super) async fn read_request(stream: &mut (impl AsyncRead + Unpin)) -> Result<Option<Asked>, BadRequest> {
    let mut length = [0; 4];
    match stream.read_exact(&mut length).await {
        Ok(_) => {}
        Err(error) if error.kind() == std::io::ErrorKind::UnexpectedEof => return Ok(None),
        Err(error) => return Err(BadRequest::CutOff(error)),
    }
    let length = u32::from_be_bytes(length);
    if length > REQUEST_BYTES_MAX {
        return Err(BadRequest::TooLong);
    }
    // Grows with what really arrives: a length alone costs next to nothing.
    let mut text = Vec::with_capacity(REQUEST_BYTES_USUAL.min(length as usize));
    stream.take(u64::from(length)).read_to_end(&mut text).await.map_err(BadRequest::CutOff)?;
    if text.len() < length as usize {
        return Err(BadRequest::CutOff(std::io::ErrorKind::UnexpectedEof.into()));
    }
    match serde_json::from_slice::<Question>(&text) {
        Ok(Question { version: 1, ask, .. }) if ask == "evidence" => Ok(Some(Asked::Evidence)),
        Ok(Question { version: 1, ask, addresses }) if ask == "probe" => Ok(Some(Asked::Probe(addresses))),
        Ok(Question { version: 1, ask, .. }) if ask == "repair" => {
            let question: RepairQuestion =
                serde_json::from_slice(&text).map_err(BadRequest::NotUnderstood)?;
            Ok(Some(Asked::Repair(question.works)))
        }
        _ => CallRequest::decode(&text).map(|call| Some(Asked::Call(call))),
    }
}

pub(super) async fn write_answer(
    stream: &mut (impl AsyncWrite + Unpin),
    answer: Answer,
) -> std::io::Result<()> {
    let exit = u8::from(!answer.success);
    let text = serde_json::json!({"exit": exit, "stdout": answer.text}).to_string();
    // In one send; a long one is not copied once more.
    let length = u32::try_from(text.len()).map_err(std::io::Error::other)?;
    let mut frame = Vec::with_capacity(4 + text.len());
    frame.extend_from_slice(&length.to_be_bytes());
    frame.extend_from_slice(text.as_bytes());
    drop(text);
    stream.write_all(&frame).await?;
    stream.flush().await
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::cni::Role;

    fn frame(text: &[u8]) -> Vec<u8> {
        let mut frame = u32::try_from(text.len()).unwrap().to_be_bytes().to_vec();
        frame.extend_from_slice(text);
        frame
    }

    fn ask(bytes: &[u8]) -> Result<Option<Asked>, BadRequest> {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        runtime.block_on(read_request(&mut &bytes[..]))
    }

    fn read(bytes: &[u8]) -> Result<Option<CallRequest>, BadRequest> {
        ask(bytes).map(|asked| match asked {
            Some(Asked::Call(call)) => Some(call),
            _ => None,
        })
    }

    #[test]
    fn evidence_can_be_asked_for() {
        let asked = |text: &str| ask(&frame(text.as_bytes()));
        assert!(matches!(asked(r#"{"version":1,"ask":"evidence"}"#), Ok(Some(Asked::Evidence))));
        assert!(asked(r#"{"version":2,"ask":"evidence"}"#).is_err());
        assert!(asked(r#"{"version":1,"ask":"secrets"}"#).is_err());
        let probe = asked(r#"{"version":1,"ask":"probe","addresses":["10.0.0.1","fd00::1"]}"#);
        assert!(matches!(probe, Ok(Some(Asked::Probe(addresses))) if addresses.len() == 2));
        assert!(asked(r#"{"version":1,"ask":"probe","addresses":["example.org"]}"#).is_err());
    }

    #[test]
    fn a_repair_can_be_asked_for() {
        let asked = |text: &str| ask(&frame(text.as_bytes()));
        let up = r#"{"act":"up","device":"cali1","from":false,"to":true}"#;
        let question = format!(r#"{{"version":1,"ask":"repair","works":[{up},{up}]}}"#);
        assert!(matches!(asked(&question), Ok(Some(Asked::Repair(works))) if works.len() == 2));
        assert!(matches!(asked(r#"{"version":1,"ask":"repair","works":[]}"#), Ok(Some(Asked::Repair(_)))));
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
        assert_eq!(request.environment.get("CNI_COMMAND"), Some("ADD"));
        assert_eq!(request.environment.get("HOME"), None, "only the call's own variables count");
        assert_eq!(CallRequest::decode(&request.encode()).unwrap(), request);
    }

    #[test]
    fn everything_else_is_refused_with_a_reason() {
        assert!(ask(b"").unwrap().is_none());
        assert!(ask(b"\0\0").unwrap().is_none());
        for (bytes, expected) in [
            (b"\0\x10\0\x01".to_vec(), "the request is longer than 1048576 bytes"),
            (b"GET / HTTP/1.1\r\n\r\n".to_vec(), "the request is longer than 1048576 bytes"),
            (frame(b"garbage"), "the request cannot be understood"),
            (b"\0\0\0\x09{\"vers".to_vec(), "the connection ended in the middle of a request"),
            (
                frame(br#"{"version":2,"role":"ipam","environment":{},"config":""}"#),
                "version 2 of the agent's protocol is not known here",
            ),
            (
                frame(br#"{"version":1,"role":"root","environment":{},"config":""}"#),
                "role \"root\" is not known here",
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
