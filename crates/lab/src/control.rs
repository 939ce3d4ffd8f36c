//! One question, one answer: JSON lines over a unix socket, between `plumb lab` and the processes of a node.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, Result, anyhow, bail};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// A lab's own questions are small; the answer about a full node is some hundred kilobytes.
const LINE_BYTES_MAX: u64 = 16 << 20;

#[derive(Debug, Serialize, Deserialize)]
enum Envelope {
    #[serde(rename = "answer")]
    Answer(Value),
    #[serde(rename = "error")]
    Error(String),
}

/// Asks whoever listens at the socket.
pub(crate) fn ask<A: DeserializeOwned>(
    socket: &Path,
    question: &impl Serialize,
    patience: Duration,
) -> Result<A> {
    let stream =
        UnixStream::connect(socket).with_context(|| format!("nothing listens at {}", socket.display()))?;
    stream.set_read_timeout(Some(patience))?;
    write_line(&stream, question)?;
    let line = read_line(&stream).with_context(|| format!("no answer from {}", socket.display()))?;
    match serde_json::from_str(&line)
        .with_context(|| format!("{} sent an invalid answer", socket.display()))?
    {
        Envelope::Answer(value) => serde_json::from_value(value)
            .with_context(|| format!("{} sent an unexpected answer", socket.display())),
        Envelope::Error(message) => bail!(message),
    }
}

/// Listens at the socket, in place of whoever did before.
pub(crate) fn listen(socket: &Path) -> Result<UnixListener> {
    if socket.exists() {
        std::fs::remove_file(socket)?;
    }
    UnixListener::bind(socket).with_context(|| format!("cannot listen at {}", socket.display()))
}

/// Answers every question on a thread of its own, for ever.
pub(crate) fn serve<Q: DeserializeOwned, A: Serialize>(
    listener: &UnixListener,
    answer: impl Fn(Q) -> Result<A> + Send + Sync + 'static,
) -> Result<()> {
    let answer = Arc::new(answer);
    loop {
        let (stream, _) = listener.accept().context("cannot accept connections")?;
        let answer = Arc::clone(&answer);
        std::thread::spawn(move || {
            if let Err(error) = converse(&stream, &*answer) {
                eprintln!("a request failed: {error:#}");
            }
        });
    }
}

fn converse<Q: DeserializeOwned, A: Serialize>(
    stream: &UnixStream,
    answer: &(dyn Fn(Q) -> Result<A> + Send + Sync),
) -> Result<()> {
    let line = read_line(stream)?;
    let answered = serde_json::from_str(&line)
        .map_err(|error| anyhow!("invalid request: {error}"))
        .and_then(answer)
        .and_then(|value| Ok(serde_json::to_value(value)?));
    let envelope = match answered {
        Ok(value) => Envelope::Answer(value),
        Err(error) => Envelope::Error(format!("{error:#}")),
    };
    write_line(stream, &envelope)
}

fn write_line(mut stream: &UnixStream, value: &impl Serialize) -> Result<()> {
    let mut line = serde_json::to_string(value)?;
    line.push('\n');
    Ok(stream.write_all(line.as_bytes())?)
}

fn read_line(stream: &UnixStream) -> Result<String> {
    let mut line = String::new();
    BufReader::new(stream.take(LINE_BYTES_MAX)).read_line(&mut line)?;
    if !line.ends_with('\n') {
        bail!("the other side closed the connection");
    }
    Ok(line)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn serve_in_background(socket: &Path) {
        let listener = listen(socket).unwrap();
        std::thread::spawn(move || {
            serve(&listener, |number: u32| if number == 13 { bail!("no {number}") } else { Ok(number + 1) })
        });
    }

    #[test]
    fn questions_are_answered_refused_or_not_understood() {
        let folder = tempfile::tempdir().unwrap();
        let socket = folder.path().join("s");
        serve_in_background(&socket);
        let patience = Duration::from_secs(60);
        assert_eq!(ask::<u32>(&socket, &1, patience).unwrap(), 2);
        assert_eq!(ask::<u32>(&socket, &13, patience).unwrap_err().to_string(), "no 13");
        let error = ask::<u32>(&socket, &"text", patience).unwrap_err().to_string();
        assert!(error.starts_with("invalid request"), "{error}");
        let error = ask::<String>(&socket, &1, patience).unwrap_err().to_string();
        assert!(error.ends_with("sent an unexpected answer"), "{error}");
    }

    #[test]
    fn garbage_does_not_stop_the_server() {
        let folder = tempfile::tempdir().unwrap();
        let socket = folder.path().join("s");
        serve_in_background(&socket);
        for garbage in [&b""[..], b"\xff\xfe\n", b"{"] {
            UnixStream::connect(&socket).unwrap().write_all(garbage).unwrap();
        }
        assert_eq!(ask::<u32>(&socket, &1, Duration::from_secs(60)).unwrap(), 2);
    }
}
