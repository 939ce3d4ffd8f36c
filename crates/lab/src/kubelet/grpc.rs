//! As much of a gRPC server as one answer per question needs, over a unix socket.

use std::path::Path;
use std::sync::Arc;

use anyhow::{Context as _, Result, bail};
use bytes::{BufMut as _, Bytes, BytesMut};
use h2::RecvStream;
use h2::server::SendResponse;
use http::{HeaderMap, HeaderValue, Request, Response};
use tokio::net::{UnixListener, UnixStream};

/// A compression flag and a length precede each message.
const PREFIX: usize = 5;
const MESSAGE_BYTES_MAX: usize = 4 << 20;

/// Answers a method's question. Called where it may block.
pub(super) trait Service: Send + Sync + 'static {
    fn call(&self, path: &str, message: &[u8]) -> Result<Vec<u8>, Refusal>;
}

/// An error as gRPC carries it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Refusal {
    pub(super) code: Code,
    pub(super) message: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Code {
    Unknown = 2,
    InvalidArgument = 3,
    NotFound = 5,
    Unimplemented = 12,
}

/// Listens, and answers for ever on threads of its own.
pub(super) fn serve_in_background(socket: &Path, service: Arc<dyn Service>) -> Result<()> {
    if let Some(folder) = socket.parent() {
        std::fs::create_dir_all(folder)?;
    }
    if socket.exists() {
        std::fs::remove_file(socket)?;
    }
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build()?;
    let bound = runtime.block_on(async { UnixListener::bind(socket) });
    let listener = bound.with_context(|| format!("cannot listen at {}", socket.display()))?;
    std::thread::spawn(move || runtime.block_on(accept(listener, service)));
    Ok(())
}

async fn accept(listener: UnixListener, service: Arc<dyn Service>) {
    loop {
        match listener.accept().await {
            Ok((stream, _)) => {
                let service = Arc::clone(&service);
                tokio::spawn(async move {
                    if let Err(error) = converse(stream, service).await {
                        eprintln!("a caller at the runtime's socket: {error:#}");
                    }
                });
            }
            Err(error) => {
                eprintln!("the runtime's socket takes nobody: {error}");
                tokio::time::sleep(std::time::Duration::from_millis(100)).await;
            }
        }
    }
}

async fn converse(stream: UnixStream, service: Arc<dyn Service>) -> Result<()> {
    let mut connection = h2::server::handshake(stream).await?;
    while let Some(accepted) = connection.accept().await {
        let (request, respond) = accepted?;
        let service = Arc::clone(&service);
        tokio::spawn(async move {
            // The caller may have given up waiting.
            let _ = answer(request, respond, service).await;
        });
    }
    Ok(())
}

async fn answer(
    request: Request<RecvStream>,
    respond: SendResponse<Bytes>,
    service: Arc<dyn Service>,
) -> Result<()> {
    let path = request.uri().path().to_owned();
    let message = read_message(request.into_body()).await;
    let called = tokio::task::spawn_blocking(move || match message {
        Ok(message) => service.call(&path, &message),
        Err(error) => Err(Refusal { code: Code::InvalidArgument, message: format!("{error:#}") }),
    });
    let outcome =
        called.await.unwrap_or_else(|panic| Err(Refusal { code: Code::Unknown, message: panic.to_string() }));
    send(respond, outcome)
}

async fn read_message(mut body: RecvStream) -> Result<Bytes> {
    let mut received = BytesMut::new();
    while let Some(chunk) = body.data().await {
        let chunk = chunk?;
        body.flow_control().release_capacity(chunk.len())?;
        received.extend_from_slice(&chunk);
        if received.len() > MESSAGE_BYTES_MAX {
            bail!("the question is too long");
        }
    }
    unframe(received.freeze())
}

fn unframe(received: Bytes) -> Result<Bytes> {
    let Some((prefix, message)) = received.split_at_checked(PREFIX) else { bail!("there is no message") };
    if prefix[0] != 0 {
        bail!("compressed messages are not understood");
    }
    let length = u32::from_be_bytes([prefix[1], prefix[2], prefix[3], prefix[4]]);
    if usize::try_from(length).ok() != Some(message.len()) {
        bail!("there must be one message, whole");
    }
    Ok(received.slice(PREFIX..))
}

fn frame(message: &[u8]) -> Result<Bytes> {
    let mut framed = BytesMut::with_capacity(PREFIX + message.len());
    framed.put_u8(0);
    framed.put_u32(u32::try_from(message.len()).context("the answer is too long")?);
    framed.extend_from_slice(message);
    Ok(framed.freeze())
}

fn send(mut respond: SendResponse<Bytes>, outcome: Result<Vec<u8>, Refusal>) -> Result<()> {
    let head = Response::builder().header("content-type", "application/grpc").body(())?;
    let mut stream = respond.send_response(head, false)?;
    let mut trailers = HeaderMap::new();
    match outcome {
        Ok(message) => {
            stream.send_data(frame(&message)?, false)?;
            trailers.insert("grpc-status", HeaderValue::from_static("0"));
        }
        Err(refusal) => {
            trailers.insert("grpc-status", HeaderValue::from(refusal.code as u16));
            // What a header cannot hold is left out rather than escaped: it is for people.
            let readable: String =
                refusal.message.chars().filter(|c| (' '..='~').contains(c) && *c != '%').collect();
            trailers.insert("grpc-message", HeaderValue::from_str(&readable)?);
        }
    }
    Ok(stream.send_trailers(trailers)?)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_message_must_be_whole() {
        for bad in [&b""[..], b"\0\0\0\0", b"\0\0\0\0\x02a", b"\x01\0\0\0\x01a", b"\0\0\0\0\x01ab"] {
            assert!(unframe(Bytes::copy_from_slice(bad)).is_err(), "{bad:?}");
        }
        assert_eq!(unframe(Bytes::from_static(b"\0\0\0\0\x01a")).unwrap(), "a");
    }

    proptest! {
        #[test]
        fn frames_are_undone(message: Vec<u8>) {
            prop_assert_eq!(&unframe(frame(&message).unwrap()).unwrap()[..], &message[..]);
        }

        #[test]
        fn any_bytes_are_a_frame_or_refused(bytes: Vec<u8>) {
            let _ = unframe(Bytes::from(bytes));
        }
    }
}
