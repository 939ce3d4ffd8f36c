//! What an ADD waits for beside the store and the kernel: other programs of the node, and a pod's policy.

use std::fmt::Write as _;
use std::path::PathBuf;
use std::time::Duration;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::time::{Instant, sleep, timeout, timeout_at};
use tracing::warn;

use super::endpoint::EndpointId;
use super::error::{CniError, code};
use super::netconf::PolicyWait;

/// As long as Calico waits for a gate.
const PATIENCE: Duration = Duration::from_secs(30);
const TRY_PATIENCE: Duration = Duration::from_secs(5);
const PAUSE: Duration = Duration::from_secs(1);
/// The policy of a pod is there within milliseconds, and a runtime waits.
const LOOK_PAUSE: Duration = Duration::from_millis(50);
/// The first line of an answer, and more.
const ANSWER_MAX: usize = 1024;

/// Waits until every gate answers with a status from 200 to 399.
pub(super) async fn wait(gates: &[String]) -> Result<(), CniError> {
    let gates: Vec<Gate> = gates.iter().map(|url| Gate::parse(url)).collect::<Result<_, _>>()?;
    for gate in &gates {
        gate.wait(Instant::now() + PATIENCE).await?;
    }
    Ok(())
}

/// An address that answers HTTP when something is ready.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Gate {
    url: String,
    /// Host and port, as one connects to it.
    address: String,
    host: String,
    path: String,
}

impl Gate {
    fn parse(url: &str) -> Result<Gate, CniError> {
        let wrong = |why: &str| {
            CniError::configuration(format!("readiness_gates: {url:?} is not a URL that can be asked"))
                .hint(format!("{why}; it looks like http://localhost:9099/readiness"))
        };
        let Some(rest) = url.strip_prefix("http://") else {
            return Err(wrong("only http:// is supported"));
        };
        let start = rest.find(['/', '?', '#']).unwrap_or(rest.len());
        let (host, path) = rest.split_at_checked(start).unwrap_or((rest, ""));
        let path = path.split('#').next().unwrap_or_default();
        let is_bad = |letter: char| letter.is_whitespace() || letter.is_control();
        if host.is_empty() || host.contains('@') || url.contains(is_bad) {
            return Err(wrong("it names no host"));
        }
        let has_port = host.rsplit_once(':').is_some_and(|(_, port)| port.parse::<u16>().is_ok());
        let address = if has_port { host.to_owned() } else { format!("{host}:80") };
        let path = if path.starts_with('/') { path.to_owned() } else { format!("/{path}") };
        Ok(Gate { url: url.to_owned(), address, host: host.to_owned(), path })
    }

    async fn wait(&self, deadline: Instant) -> Result<(), CniError> {
        loop {
            let outcome = timeout_at(deadline.min(Instant::now() + TRY_PATIENCE), self.ask()).await;
            let problem = match outcome {
                Ok(Ok(())) => return Ok(()),
                Ok(Err(problem)) => problem,
                Err(_) => "it does not answer".to_owned(),
            };
            if Instant::now() + PAUSE >= deadline {
                let message = format!("{} of readiness_gates is not ready", self.url);
                return Err(CniError::new(code::TRY_LATER, message).hint(problem));
            }
            sleep(PAUSE).await;
        }
    }

    async fn ask(&self) -> Result<(), String> {
        let mut stream = TcpStream::connect(&self.address).await.map_err(|error| error.to_string())?;
        let mut request = String::new();
        write!(request, "GET {} HTTP/1.1\r\nHost: {}\r\n", self.path, self.host)
            .expect("a string takes any text");
        request.push_str("User-Agent: plumb-cni\r\nAccept: */*\r\nConnection: close\r\n\r\n");
        stream.write_all(request.as_bytes()).await.map_err(|error| error.to_string())?;
        let mut answer = Vec::new();
        let mut limited = stream.take(ANSWER_MAX as u64);
        limited.read_to_end(&mut answer).await.map_err(|error| error.to_string())?;
        match status(&answer) {
            Some(200..=399) => Ok(()),
            Some(other) => Err(format!("it answers with status {other}")),
            None => Err("it does not answer in HTTP".to_owned()),
        }
    }
}

fn status(answer: &[u8]) -> Option<u16> {
    let text = String::from_utf8_lossy(answer);
    let mut words = text.lines().next()?.split(' ');
    words.next()?.starts_with("HTTP/1.").then_some(())?;
    words.next()?.parse().ok()
}

/// Waits until the pod's policy is in place, as its status file says. A pod without it starts all the same.
pub(super) async fn await_policy(wait: Option<&PolicyWait>, id: &EndpointId) {
    let Some(wait) = wait else { return };
    let file = wait.directory.join(status_file(id));
    let is_there = async {
        while !tokio::fs::try_exists(&file).await.unwrap_or(false) {
            sleep(LOOK_PAUSE).await;
        }
    };
    if timeout(Duration::from_secs(wait.seconds), is_there).await.is_err() {
        warn!(file = %file.display(), "the pod's policy was not reported in time; the pod starts without waiting longer");
    }
}

/// As Felix names it: orchestrator, workload and endpoint, each escaped as a part of a URL's path.
fn status_file(id: &EndpointId) -> PathBuf {
    let workload = format!("{}/{}", id.namespace, id.name.workload);
    let parts = [&id.name.orchestrator, &workload, &id.name.endpoint].map(|part| escaped(part));
    parts.join(" ").into()
}

fn escaped(part: &str) -> String {
    let mut escaped = String::new();
    for byte in part.bytes() {
        if byte.is_ascii_alphanumeric() || b"-_.~$&+:=@".contains(&byte) {
            escaped.push(char::from(byte));
        } else {
            write!(escaped, "%{byte:02X}").expect("a string takes any text");
        }
    }
    escaped
}

#[cfg(test)]
mod tests {
    use model::Sandbox;
    use tokio::net::TcpListener;

    use super::super::endpoint::Keeping;
    use super::super::request::PodName;
    use super::*;

    #[test]
    fn a_gate_is_a_url() {
        let gate = Gate::parse("http://localhost:9099/ready?x=1#y").unwrap();
        assert_eq!((gate.address.as_str(), gate.path.as_str()), ("localhost:9099", "/ready?x=1"));
        let gate = Gate::parse("http://10.0.0.1").unwrap();
        assert_eq!((gate.address.as_str(), gate.path.as_str()), ("10.0.0.1:80", "/"));
        assert_eq!(Gate::parse("http://[::1]:80?x").unwrap().address, "[::1]:80");
        for wrong in
            ["", "x", "localhost:80", "https://x", "http://", "http:///x", "http://a b/", "http://u@x/"]
        {
            assert!(Gate::parse(wrong).unwrap_err().is_permanent(), "{wrong}");
        }
    }

    async fn answering(answer: &'static str) -> Gate {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}/ready", listener.local_addr().unwrap());
        tokio::spawn(async move {
            while let Ok((mut stream, _)) = listener.accept().await {
                let mut request = [0; 512];
                let _ = stream.read(&mut request).await;
                let _ = stream.write_all(answer.as_bytes()).await;
            }
        });
        Gate::parse(&url).unwrap()
    }

    #[tokio::test]
    async fn the_status_of_the_answer_decides() {
        for (answer, is_ready) in [
            ("HTTP/1.1 200 OK\r\n\r\n", true),
            ("HTTP/1.0 204 No Content\r\n\r\n", true),
            ("HTTP/1.1 302 Found\r\n\r\n", true),
            ("HTTP/1.1 503 Service Unavailable\r\n\r\n", false),
            ("HTTP/1.1 199 x\r\n\r\n", false),
            ("SSH-2.0-x\r\n", false),
            ("", false),
        ] {
            let gate = answering(answer).await;
            assert_eq!(gate.ask().await.is_ok(), is_ready, "{answer:?}");
        }
        let closed = answering("HTTP/1.1 503 x\r\n\r\n").await;
        let error = closed.wait(Instant::now()).await.unwrap_err();
        assert_eq!(error.code, code::TRY_LATER);
    }

    #[test]
    fn a_status_file_is_called_as_felix_calls_it() {
        let pod = PodName { namespace: "shop".to_owned(), name: "web-0".to_owned(), uid: None };
        let sandbox = Sandbox::new("net", "c1", "eth0").unwrap();
        let id = EndpointId::new(Keeping::Records, "node-a", Some(&pod), &sandbox);
        assert_eq!(status_file(&id), PathBuf::from("k8s shop%2Fweb-0 eth0"));
    }

    #[tokio::test]
    async fn a_pods_policy_is_awaited_and_not_longer_than_said() {
        let folder = tempfile::tempdir().unwrap();
        let sandbox = Sandbox::new("net", "c1", "eth0").unwrap();
        let id = EndpointId::new(Keeping::Records, "node-a", None, &sandbox);
        let wait = PolicyWait { seconds: 1, directory: folder.path().to_owned() };
        await_policy(Some(&wait), &id).await;
        std::fs::write(folder.path().join("cni default%2Fc1 eth0"), "{}").unwrap();
        await_policy(Some(&PolicyWait { seconds: u64::MAX / 4, ..wait }), &id).await;
        await_policy(None, &id).await;
    }
}
