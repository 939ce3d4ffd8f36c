//! A node's agent, asked over its socket for what it sees.

use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use doctor::{Evidence, Origin, Sighted};
use jiff::Timestamp;
use serde::Deserialize;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::UnixStream;

use crate::bundle;

/// Where an agent listens unless it is told otherwise.
pub const AGENT_SOCKET: &str = "/run/plumb/agent.sock";

const QUESTION: &[u8] = br#"{"version":1,"ask":"evidence"}"#;
/// The agent looks into every pod of its node, one after the other.
const PATIENCE: Duration = Duration::from_secs(60);
/// A node with a thousand pods has some megabytes.
const ANSWER_BYTES_MAX: u32 = 256 << 20;

/// Why the agent's evidence is missing.
#[derive(Debug, thiserror::Error)]
pub enum AgentError {
    #[error("the agent at {} cannot be asked", .socket.display())]
    Unreachable {
        socket: PathBuf,
        #[source]
        source: io::Error,
    },
    #[error("the agent at {} did not answer within {} s", .socket.display(), PATIENCE.as_secs())]
    NoAnswer { socket: PathBuf },
    /// An agent from before there was this question says so here.
    #[error("the agent at {} has no evidence to give: {said}", .socket.display())]
    Refused { socket: PathBuf, said: String },
}

#[derive(Deserialize)]
struct Answer {
    exit: u8,
    stdout: String,
}

/// Asks for everything the agent sees of its node.
pub async fn ask(socket: &Path) -> Result<Evidence, AgentError> {
    let unreachable = |source| AgentError::Unreachable { socket: socket.to_owned(), source };
    let asked_at = Timestamp::now();
    let answer = match tokio::time::timeout(PATIENCE, converse(socket)).await {
        Ok(answer) => answer.map_err(unreachable)?,
        Err(_) => return Err(AgentError::NoAnswer { socket: socket.to_owned() }),
    };
    if answer.exit != 0 || !bundle::is_bundle(answer.stdout.as_bytes()) {
        let said: String = answer.stdout.trim().chars().take(300).collect();
        return Err(AgentError::Refused { socket: socket.to_owned(), said });
    }
    let mut evidence = bundle::read("the agent", &mut answer.stdout.as_bytes()).map_err(unreachable)?;
    compare_clocks(&mut evidence, asked_at, Timestamp::now());
    Ok(evidence)
}

/// The agent looked between the question and the answer, whatever its own clock says: it may be on another machine, behind a
/// socket that somebody forwards.
fn compare_clocks(evidence: &mut Evidence, asked_at: Timestamp, answered_at: Timestamp) {
    let Some(looked_at) = evidence.taken_at.replace(asked_at) else { return };
    let nearest = looked_at.clamp(asked_at, answered_at);
    for node in evidence.nodes.values_mut() {
        let ahead = looked_at.duration_since(nearest);
        node.setup.clock_ahead = Some(Sighted::new(ahead, Origin::probe(node.name.as_str(), "clock")));
    }
}

async fn converse(socket: &Path) -> io::Result<Answer> {
    let mut stream = UnixStream::connect(socket).await?;
    let length = u32::try_from(QUESTION.len()).map_err(io::Error::other)?;
    stream.write_all(&[&length.to_be_bytes(), QUESTION].concat()).await?;
    let length = stream.read_u32().await?;
    if length > ANSWER_BYTES_MAX {
        return Err(io::Error::other("the answer is too long"));
    }
    let mut text = Vec::new();
    stream.take(length.into()).read_to_end(&mut text).await?;
    serde_json::from_slice(&text).map_err(io::Error::other)
}

#[cfg(test)]
mod tests {
    use doctor::sample;
    use jiff::SignedDuration;
    use tokio::net::UnixListener;

    use super::*;
    use crate::bundle::BundleWriter;

    /// An agent that says `text` to whoever asks.
    async fn asked(exit: u8, text: &str) -> Result<Evidence, AgentError> {
        let folder = tempfile::tempdir().unwrap();
        let socket = folder.path().join("agent.sock");
        let listener = UnixListener::bind(&socket).unwrap();
        let answer = serde_json::json!({"exit": exit, "stdout": text}).to_string();
        let agent = async {
            let (mut stream, _) = listener.accept().await.unwrap();
            let mut question = vec![0; 4 + QUESTION.len()];
            stream.read_exact(&mut question).await.unwrap();
            assert_eq!(&question[4..], QUESTION);
            stream.write_u32(u32::try_from(answer.len()).unwrap()).await.unwrap();
            stream.write_all(answer.as_bytes()).await.unwrap();
        };
        tokio::join!(ask(&socket), agent).0
    }

    #[tokio::test]
    async fn an_agent_gives_its_nodes_evidence() {
        let sample = sample::small();
        let mut writer = BundleWriter::new(Vec::new());
        writer.look(Timestamp::UNIX_EPOCH).unwrap();
        writer.nodes(&sample).unwrap();
        let text = String::from_utf8(writer.finish().unwrap()).unwrap();
        let mut given = asked(0, &text).await.unwrap();
        // Its clock stands in 1970, and what it saw is of now all the same.
        let now = Timestamp::now();
        assert!(now.duration_since(given.taken_at.unwrap()) < SignedDuration::from_mins(5));
        for (name, node) in &mut given.nodes {
            let ahead = node.setup.clock_ahead.take().unwrap().seen;
            assert!(ahead < SignedDuration::from_hours(-24 * 365 * 50), "{name}: {ahead}");
            node.setup.clock_ahead = sample.node(name).unwrap().setup.clock_ahead.clone();
        }
        assert_eq!(given.nodes, sample.nodes);
    }

    #[test]
    fn a_clock_that_shows_a_time_in_between_is_right() {
        let at = |second: i64| Timestamp::from_second(second).unwrap();
        let ahead = |looked_at: i64| {
            let mut evidence = Evidence { taken_at: Some(at(looked_at)), ..Evidence::default() };
            evidence.node_mut("a");
            compare_clocks(&mut evidence, at(100), at(110));
            assert_eq!(evidence.taken_at, Some(at(100)));
            evidence.node("a").unwrap().setup.clock_ahead.clone().unwrap().seen.as_secs()
        };
        assert_eq!([ahead(40), ahead(100), ahead(107), ahead(110), ahead(170)], [-60, 0, 0, 0, 60]);
    }

    #[tokio::test]
    async fn one_that_does_not_know_the_question_is_quoted() {
        let error = asked(1, "the request cannot be understood").await.unwrap_err();
        assert!(
            error.to_string().ends_with("no evidence to give: the request cannot be understood"),
            "{error}"
        );
        let error = ask(Path::new("/nowhere/agent.sock")).await.unwrap_err();
        assert_eq!(error.to_string(), "the agent at /nowhere/agent.sock cannot be asked");
    }
}
