//! Requests and replies.

use std::net::IpAddr;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::json;

use crate::{Call, PROTOCOL, REQUEST_BYTES_MAX};

/// A request to an agent. `Work` is one repair task; the plugin, which never sends one, need not link its type.
#[derive(Clone, Debug, PartialEq)]
pub enum Request<Work = serde_json::Value> {
    Call(Call),
    /// Which agent this is: cheap, without an observation.
    Identity,
    /// The evidence of the agent's node.
    Evidence,
    /// Whether packets to these addresses arrive.
    Probe(Vec<IpAddr>),
    /// Tasks of an operator's repair.
    Repair(Vec<Work>),
}

/// Why a request was refused.
#[derive(Debug, thiserror::Error)]
pub enum BadRequest {
    #[error("the request is longer than {REQUEST_BYTES_MAX} bytes")]
    TooLong,
    #[error("the request is not valid")]
    NotUnderstood(#[source] serde_json::Error),
    #[error("version {0} of the agent's protocol is not supported")]
    Version(u32),
    #[error("role {0:?} is not supported")]
    Role(String),
    #[error("the connection ended in the middle of a request")]
    CutOff(#[source] std::io::Error),
}

#[derive(Deserialize)]
struct Question {
    version: u32,
    ask: String,
    #[serde(default)]
    addresses: Vec<IpAddr>,
}

#[derive(Deserialize)]
struct RepairQuestion<Work> {
    works: Vec<Work>,
}

impl<Work: Serialize + DeserializeOwned> Request<Work> {
    pub fn encode(&self) -> Vec<u8> {
        let ask = |ask: &str| json!({"version": PROTOCOL, "ask": ask});
        let question = match self {
            Request::Call(call) => return call.encode(),
            Request::Identity => ask("identity"),
            Request::Evidence => ask("evidence"),
            Request::Probe(addresses) => {
                json!({"version": PROTOCOL, "ask": "probe", "addresses": addresses})
            }
            Request::Repair(works) => json!({"version": PROTOCOL, "ask": "repair", "works": works}),
        };
        question.to_string().into_bytes()
    }

    pub fn decode(text: &[u8]) -> Result<Request<Work>, BadRequest> {
        let Ok(Question { version: PROTOCOL, ask, addresses }) = serde_json::from_slice(text) else {
            return Call::decode(text).map(Request::Call);
        };
        match ask.as_str() {
            "identity" => Ok(Request::Identity),
            "evidence" => Ok(Request::Evidence),
            "probe" => Ok(Request::Probe(addresses)),
            "repair" => {
                let question: RepairQuestion<Work> =
                    serde_json::from_slice(text).map_err(BadRequest::NotUnderstood)?;
                Ok(Request::Repair(question.works))
            }
            _ => Call::decode(text).map(Request::Call),
        }
    }
}

/// The agent's reply: an exit code and a text for stdout, which the plugin passes on.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
pub struct Reply {
    pub exit: u8,
    pub stdout: String,
}

impl Reply {
    pub fn success(stdout: impl Into<String>) -> Reply {
        Reply { exit: 0, stdout: stdout.into() }
    }

    pub fn failure(stdout: impl Into<String>) -> Reply {
        Reply { exit: 1, stdout: stdout.into() }
    }

    pub fn encode(&self) -> Vec<u8> {
        serde_json::to_vec(self).expect("strings can be encoded")
    }

    /// `None` if it is not a reply.
    pub fn decode(text: &[u8]) -> Option<Reply> {
        serde_json::from_slice(text).ok()
    }

    pub fn is_success(&self) -> bool {
        self.exit == 0
    }
}

/// The agent that answers on a socket.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Identity {
    pub node: String,
    /// The agent's version.
    pub version: String,
    /// `acts`, `observes` or `repairs`.
    pub mode: String,
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::Role;

    fn decode(text: &str) -> Result<Request, BadRequest> {
        Request::decode(text.as_bytes())
    }

    #[test]
    fn every_request_is_decoded_as_it_was() {
        let call = Call::new(Role::Network, [("CNI_COMMAND".to_owned(), "ADD".to_owned())], "{}");
        let probe = Request::Probe(vec!["10.0.0.1".parse().unwrap(), "fd00::1".parse().unwrap()]);
        for request in [
            Request::Call(call),
            Request::Identity,
            Request::Evidence,
            probe,
            Request::Repair(vec![json!({"act": "up"})]),
        ] {
            assert_eq!(Request::decode(&request.encode()).unwrap(), request);
        }
    }

    #[test]
    fn requests_of_older_programs_are_decoded() {
        assert_eq!(decode(r#"{"version":1,"ask":"evidence"}"#).unwrap(), Request::Evidence);
        let call = decode(
            r#"{"version":1,"role":"ipam","environment":{"CNI_COMMAND":"DEL","HOME":"/"},"config":"{}"}"#,
        );
        let Request::Call(call) = call.unwrap() else { panic!("a call") };
        assert_eq!((call.role, call.verb(), call.config.as_str()), (Role::Ipam, "DEL", "{}"));
    }

    #[test]
    fn everything_else_is_refused_with_a_reason() {
        for (text, expected) in [
            ("garbage", "the request is not valid"),
            (r#"{"version":1,"ask":"secrets"}"#, "the request is not valid"),
            (r#"{"version":2,"ask":"evidence"}"#, "the request is not valid"),
            (r#"{"version":1,"ask":"probe","addresses":["example.org"]}"#, "the request is not valid"),
            (r#"{"version":1,"ask":"repair"}"#, "the request is not valid"),
            (
                r#"{"version":2,"role":"ipam","environment":{},"config":""}"#,
                "version 2 of the agent's protocol is not supported",
            ),
            (r#"{"version":1,"role":"root","environment":{},"config":""}"#, "role \"root\" is not supported"),
        ] {
            assert_eq!(decode(text).unwrap_err().to_string(), expected, "{text}");
        }
    }

    #[test]
    fn a_reply_is_an_exit_code_and_a_text() {
        let reply = Reply { exit: 1, stdout: "said".to_owned() };
        assert_eq!(reply.encode(), br#"{"exit":1,"stdout":"said"}"#);
        assert_eq!(Reply::decode(&reply.encode()), Some(reply));
        for broken in [&b"{}"[..], br#"{"exit":999,"stdout":""}"#, b""] {
            assert_eq!(Reply::decode(broken), None);
        }
    }

    proptest! {
        #[test]
        fn any_bytes_can_be_read(bytes in proptest::collection::vec(any::<u8>(), 0..200), works in "[\\PC]{0,200}") {
            let _ = Request::<serde_json::Value>::decode(&bytes);
            let _ = decode(&format!(r#"{{"version":1,"ask":"repair","works":{works}}}"#));
            let _ = Reply::decode(&bytes);
        }
    }
}
