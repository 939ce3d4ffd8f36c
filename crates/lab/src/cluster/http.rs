//! A question over HTTP inside a network namespace: are you ready?

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::path::Path;

use crate::wait::PATIENCE;
use anyhow::{Context as _, Result};
use host::NetNs;

/// The status and the whole answer, headers and all.
pub(super) fn get(namespace: &Path, address: SocketAddr, path: &str) -> Result<(u16, String)> {
    NetNs::open(namespace)?.visit(|| ask(address, path))?
}

fn ask(address: SocketAddr, path: &str) -> Result<(u16, String)> {
    let mut stream = TcpStream::connect_timeout(&address, PATIENCE)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    write!(stream, "GET {path} HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\r\n")?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer)?;
    let status = answer.split(' ').nth(1).and_then(|word| word.parse().ok());
    Ok((status.with_context(|| format!("{address} does not speak HTTP"))?, answer))
}
