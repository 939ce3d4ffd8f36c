//! A node whose clock is off: its agent is asked over a socket that somebody forwards, and whatever it dates is dated by that
//! clock.

use std::io::{Read as _, Write as _};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result};
use jiff::{SignedDuration, Timestamp};
use serde_json::Value;

/// Nobody finds its socket once it is dropped.
pub(crate) struct Relay {
    folder: tempfile::TempDir,
}

impl Relay {
    pub(crate) fn start(agent: PathBuf, ahead: SignedDuration) -> Result<Relay> {
        let folder = tempfile::tempdir()?;
        let listener = UnixListener::bind(folder.path().join("agent.sock"))?;
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                if let Err(error) = forward(stream, &agent, ahead) {
                    eprintln!("the relay: {error:#}");
                }
            }
        });
        Ok(Relay { folder })
    }

    pub(crate) fn socket(&self) -> PathBuf {
        self.folder.path().join("agent.sock")
    }
}

/// One question and its answer, each a length in four bytes and a text.
fn forward(mut asker: UnixStream, agent: &Path, ahead: SignedDuration) -> Result<()> {
    let question = read_frame(&mut asker)?;
    let mut agent = UnixStream::connect(agent)?;
    write_frame(&mut agent, &question)?;
    let mut answer: Value = serde_json::from_slice(&read_frame(&mut agent)?)?;
    // What a repair did has no date.
    if let Some((first, rest)) = answer["stdout"].as_str().context("an answer")?.split_once('\n') {
        let start: Value = serde_json::from_str(first)?;
        let taken_at = start["takenAt"].as_str().context("when")?;
        let moved = taken_at.parse::<Timestamp>()? + ahead;
        answer["stdout"] = format!("{}\n{rest}", first.replace(taken_at, &moved.to_string())).into();
    }
    write_frame(&mut asker, answer.to_string().as_bytes())
}

fn read_frame(stream: &mut UnixStream) -> Result<Vec<u8>> {
    let mut length = [0; 4];
    stream.read_exact(&mut length)?;
    let mut text = vec![0; u32::from_be_bytes(length) as usize];
    stream.read_exact(&mut text)?;
    Ok(text)
}

fn write_frame(stream: &mut UnixStream, text: &[u8]) -> Result<()> {
    stream.write_all(&u32::try_from(text.len())?.to_be_bytes())?;
    Ok(stream.write_all(text)?)
}
