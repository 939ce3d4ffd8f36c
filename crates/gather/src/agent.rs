//! A node's agent, asked over its socket for what it sees, or to carry out a repair's work on its node.

use std::io;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use model::NodeName;

use evidence::{Evidence, Origin, Sighted};
use jiff::Timestamp;
use plan::task::{RepairTask, TaskOutcome};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::UnixStream;
use wire::{Identity, Reply};

use crate::bundle;

/// How much may be asked for in one go. An agent reads no longer questions than a mebibyte.
pub const WORKS_MAX: usize = 256;
/// The agent looks into every pod of its node, one after the other.
const PATIENCE: Duration = Duration::from_secs(60);

/// Why there is no answer from the agent.
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
    /// It is from before agents did, or does so for somebody else just now.
    #[error("the agent at {} sends no packets: {said}", .socket.display())]
    NoProbe { socket: PathBuf, said: String },
    #[error("the agent at {} belongs to node {node}, not to {wanted}", .socket.display())]
    OtherNode { socket: PathBuf, node: String, wanted: NodeName },
    /// It does not repair, or is from before agents did.
    #[error("the agent at {} repairs nothing: {said}", .socket.display())]
    NoRepair { socket: PathBuf, said: String },
}

type Request = wire::Request<RepairTask>;

/// Asks for everything the agent sees of its node.
pub async fn ask(socket: &Path) -> Result<Evidence, AgentError> {
    let unreachable = |source| AgentError::Unreachable { socket: socket.to_owned(), source };
    let asked_at = Timestamp::now();
    let answer = answer_to(socket, &Request::Evidence).await?;
    if !answer.is_success() || !bundle::is_bundle(answer.stdout.as_bytes()) {
        return Err(AgentError::Refused { socket: socket.to_owned(), said: in_short(&answer) });
    }
    let mut evidence = bundle::read("the agent", &mut answer.stdout.as_bytes()).map_err(unreachable)?;
    compare_clocks(&mut evidence, asked_at, Timestamp::now());
    Ok(evidence)
}

/// Has the agent send packets to these addresses, and tells what came back.
pub async fn probe(socket: &Path, addresses: &[IpAddr]) -> Result<Evidence, AgentError> {
    let answer = answer_to(socket, &Request::Probe(addresses.to_vec())).await?;
    if !answer.is_success() || !bundle::is_bundle(answer.stdout.as_bytes()) {
        return Err(AgentError::NoProbe { socket: socket.to_owned(), said: in_short(&answer) });
    }
    let unreachable = |source| AgentError::Unreachable { socket: socket.to_owned(), source };
    let evidence = bundle::read("the agent", &mut answer.stdout.as_bytes()).map_err(unreachable)?;
    // Part of a look that has its own time.
    Ok(Evidence { taken_at: None, ..evidence })
}

/// Which agent answers here. `None`: one from before agents said so.
pub async fn identify(socket: &Path) -> Result<Option<Identity>, AgentError> {
    let answer = answer_to(socket, &Request::Identity).await?;
    Ok(serde_json::from_str(&answer.stdout).ok().filter(|_| answer.is_success()))
}

/// Has the agent of this node carry out work there: what became of each, in their order. At most [`WORKS_MAX`]. A socket that now leads to
/// another node's agent is refused before anything is asked of it.
///
/// After [`AgentError::NoAnswer`], and after a connection that broke, it is not known what was done: each work looks before it acts, so
/// the same may be asked for again.
pub async fn repair(
    socket: &Path,
    node: &NodeName,
    works: &[RepairTask],
) -> Result<Vec<TaskOutcome>, AgentError> {
    if let Some(found) = identify(socket).await?.filter(|found| !node.is(&found.node)) {
        let (socket, wanted) = (socket.to_owned(), node.to_owned());
        return Err(AgentError::OtherNode { socket, node: found.node, wanted });
    }
    let answer = answer_to(socket, &Request::Repair(works.to_vec())).await?;
    let done = serde_json::from_str::<Vec<TaskOutcome>>(&answer.stdout).ok();
    match done.filter(|done| answer.is_success() && done.len() == works.len()) {
        Some(done) => Ok(done),
        None => Err(AgentError::NoRepair { socket: socket.to_owned(), said: in_short(&answer) }),
    }
}

async fn answer_to(socket: &Path, request: &Request) -> Result<Reply, AgentError> {
    match tokio::time::timeout(PATIENCE, converse(socket, &request.encode())).await {
        Ok(answer) => answer.map_err(|source| AgentError::Unreachable { socket: socket.to_owned(), source }),
        Err(_) => Err(AgentError::NoAnswer { socket: socket.to_owned() }),
    }
}

fn in_short(reply: &Reply) -> String {
    reply.stdout.trim().chars().take(300).collect()
}

/// The agent looked between the question and the answer, whatever its own clock says: it may be on another machine, behind a
/// socket that somebody forwards.
fn compare_clocks(evidence: &mut Evidence, asked_at: Timestamp, answered_at: Timestamp) {
    let Some(looked_at) = evidence.taken_at.replace(asked_at) else { return };
    let nearest = looked_at.clamp(asked_at, answered_at);
    for node in evidence.nodes.values_mut() {
        let ahead = looked_at.duration_since(nearest);
        // What its time servers say counts, where the two of us agree only with each other.
        let told = node.setup.clock_ahead.as_ref().map(|told| told.seen.abs()).unwrap_or_default();
        if ahead.abs() >= told {
            node.setup.clock_ahead = Some(Sighted::new(ahead, Origin::probe(node.name.as_str(), "clock")));
        }
    }
}

async fn converse(socket: &Path, request: &[u8]) -> io::Result<Reply> {
    let mut stream = UnixStream::connect(socket).await?;
    stream.write_all(&wire::frame(request).map_err(io::Error::other)?).await?;
    let mut head = [0; 4];
    stream.read_exact(&mut head).await?;
    let length = wire::body_length(head, wire::REPLY_BYTES_MAX)
        .map_err(|error| io::Error::other(format!("the answer is {error}")))?;
    let mut text = Vec::new();
    stream.take(length as u64).read_to_end(&mut text).await?;
    Reply::decode(&text).ok_or_else(|| io::Error::other("the answer cannot be understood"))
}

#[cfg(test)]
mod tests {
    use evidence::sample;
    use jiff::SignedDuration;
    use tokio::net::UnixListener;

    use super::*;
    use crate::bundle::BundleWriter;

    /// An agent that says `text` to one who asks, and what it was asked.
    async fn agent(listener: UnixListener, exit: u8, text: &str) -> Vec<u8> {
        answer_once(&listener, exit, text).await
    }

    async fn answer_once(listener: &UnixListener, exit: u8, text: &str) -> Vec<u8> {
        let answer = serde_json::json!({"exit": exit, "stdout": text}).to_string();
        let (mut stream, _) = listener.accept().await.unwrap();
        let mut question = vec![0; usize::try_from(stream.read_u32().await.unwrap()).unwrap()];
        stream.read_exact(&mut question).await.unwrap();
        stream.write_u32(u32::try_from(answer.len()).unwrap()).await.unwrap();
        stream.write_all(answer.as_bytes()).await.unwrap();
        question
    }

    async fn asked(exit: u8, text: &str) -> Result<Evidence, AgentError> {
        let folder = tempfile::tempdir().unwrap();
        let socket = folder.path().join("agent.sock");
        let listener = UnixListener::bind(&socket).unwrap();
        let (evidence, question) = tokio::join!(ask(&socket), agent(listener, exit, text));
        assert_eq!(question, Request::Evidence.encode());
        evidence
    }

    async fn repaired(works: &[RepairTask], exit: u8, text: &str) -> Result<Vec<TaskOutcome>, AgentError> {
        let folder = tempfile::tempdir().unwrap();
        let socket = folder.path().join("agent.sock");
        let listener = UnixListener::bind(&socket).unwrap();
        let answer = async {
            let identity = r#"{"node":"Node-A","version":"1","mode":"acts"}"#;
            assert_eq!(answer_once(&listener, 0, identity).await, Request::Identity.encode());
            answer_once(&listener, exit, text).await
        };
        let node = NodeName::from("node-a");
        let (done, question) = tokio::join!(repair(&socket, &node, works), answer);
        let question: serde_json::Value = serde_json::from_slice(&question).unwrap();
        assert_eq!((&question["version"], &question["ask"]), (&1.into(), &"repair".into()));
        assert_eq!(question["works"], serde_json::to_value(works).unwrap());
        done
    }

    #[tokio::test]
    async fn an_agent_says_what_became_of_each_work() {
        let up = |to: bool| {
            RepairTask::inside(
                "c1",
                plan::task::KernelChange::Up { device: "eth0".to_owned(), from: !to, to },
            )
        };
        let works = [up(true), up(false)];
        let done = vec![
            TaskOutcome::Done { undo: Some(Box::new(up(false))) },
            TaskOutcome::Surprise { said: "eth0 is gone".to_owned() },
        ];
        let text = serde_json::to_string(&done).unwrap();
        assert_eq!(repaired(&works, 0, &text).await.unwrap(), done);
        // One answer too few, or words: then nothing is known to be done.
        assert!(repaired(&works[..1], 0, &text).await.is_err());
        let error = repaired(&works, 1, "it only observes").await.unwrap_err();
        assert!(error.to_string().ends_with("repairs nothing: it only observes"), "{error}");
    }

    #[tokio::test]
    async fn an_agent_of_another_node_is_asked_for_nothing() {
        let folder = tempfile::tempdir().unwrap();
        let socket = folder.path().join("agent.sock");
        let listener = UnixListener::bind(&socket).unwrap();
        let identity = r#"{"node":"node-b","version":"1","mode":"acts"}"#;
        let node = NodeName::from("node-a");
        let (done, _) = tokio::join!(repair(&socket, &node, &[]), agent(listener, 0, identity));
        let error = done.unwrap_err().to_string();
        assert!(error.ends_with("belongs to node node-b, not to node-a"), "{error}");
    }

    /// One from before agents said who they are is trusted as it was then.
    #[tokio::test]
    async fn an_agent_that_does_not_say_who_it_is_is_asked() {
        let folder = tempfile::tempdir().unwrap();
        let socket = folder.path().join("agent.sock");
        let listener = UnixListener::bind(&socket).unwrap();
        let answer = async {
            answer_once(&listener, 1, "the request cannot be understood").await;
            answer_once(&listener, 0, "[]").await
        };
        let node = NodeName::from("node-a");
        let (done, _) = tokio::join!(repair(&socket, &node, &[]), answer);
        assert_eq!(done.unwrap(), []);
    }

    #[tokio::test]
    async fn an_agent_gives_its_nodes_evidence() {
        let sample = sample::small();
        let mut writer = BundleWriter::new(Vec::new());
        writer.look(Timestamp::UNIX_EPOCH).unwrap();
        writer.nodes(sample.clone()).unwrap();
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

    #[tokio::test]
    async fn an_agent_sends_packets_for_others() {
        let folder = tempfile::tempdir().unwrap();
        let socket = folder.path().join("agent.sock");
        let listener = UnixListener::bind(&socket).unwrap();
        let mut writer = BundleWriter::new(Vec::new());
        writer.look(Timestamp::UNIX_EPOCH).unwrap();
        writer.nodes(sample::small()).unwrap();
        let text = String::from_utf8(writer.finish().unwrap()).unwrap();
        let addresses = [IpAddr::from([192, 0, 2, 1]), "2001:db8::1".parse().unwrap()];
        let (given, question) = tokio::join!(probe(&socket, &addresses), agent(listener, 0, &text));
        let question: serde_json::Value = serde_json::from_slice(&question).unwrap();
        let expected =
            serde_json::json!({"version": 1, "ask": "probe", "addresses": ["192.0.2.1", "2001:db8::1"]});
        assert_eq!(question, expected);
        let given = given.unwrap();
        assert_eq!((given.taken_at, given.nodes.len()), (None, sample::small().nodes.len()));
        std::fs::remove_file(&socket).unwrap();
        let listener = UnixListener::bind(&socket).unwrap();
        let (refused, _) = tokio::join!(probe(&socket, &addresses), agent(listener, 1, "one at a time"));
        assert!(refused.unwrap_err().to_string().ends_with("sends no packets: one at a time"));
    }

    #[test]
    fn a_clock_that_shows_a_time_in_between_is_right() {
        let at = |second: i64| Timestamp::from_second(second).unwrap();
        let ahead = |looked_at: i64| {
            let mut evidence = Evidence { taken_at: Some(at(looked_at)), ..Evidence::default() };
            evidence.node_mut("a");
            compare_clocks(&mut evidence, at(100), at(110));
            assert_eq!(evidence.taken_at, Some(at(100)));
            evidence.node(&"a".into()).unwrap().setup.clock_ahead.clone().unwrap().seen.as_secs()
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
