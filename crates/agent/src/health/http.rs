//! Just enough HTTP for a probe and a scrape: GET, one answer, the end.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio::time::timeout;
use tracing::{debug, warn};

use super::Health;

const HEAD_BYTES_MAX: usize = 8 * 1024;
const CONNECTIONS_MAX: usize = 32;
const PATIENCE: Duration = Duration::from_secs(5);

/// The pages, opened but not served yet.
#[derive(Debug)]
pub(crate) struct Pages {
    listener: TcpListener,
}

struct Page {
    status: &'static str,
    text: String,
}

impl Pages {
    pub(crate) async fn open(address: &str) -> io::Result<Pages> {
        Ok(Pages { listener: TcpListener::bind(address).await? })
    }

    pub(crate) async fn serve(self, health: Arc<Health>) {
        let places = Arc::new(Semaphore::new(CONNECTIONS_MAX));
        loop {
            let place = places.clone().acquire_owned().await.expect("never closed");
            match self.listener.accept().await {
                Ok((stream, _)) => {
                    let health = health.clone();
                    tokio::spawn(async move {
                        let answered = timeout(PATIENCE, answer(stream, &health)).await;
                        if let Ok(Err(error)) = answered {
                            debug!("a look at the health pages failed: {error}");
                        }
                        drop(place);
                    });
                }
                Err(error) => {
                    warn!("cannot accept a look at the health pages: {error}");
                    tokio::time::sleep(Duration::from_millis(100)).await;
                }
            }
        }
    }
}

async fn answer(mut stream: TcpStream, health: &Health) -> io::Result<()> {
    let head = read_head(&mut stream).await?;
    let Page { status, text } = page(&head, health);
    let length = text.len();
    let head = format!(
        "HTTP/1.1 {status}\r\nContent-Type: text/plain; version=0.0.4; charset=utf-8\r\n\
         Content-Length: {length}\r\nConnection: close\r\n\r\n"
    );
    stream.write_all(head.as_bytes()).await?;
    stream.write_all(text.as_bytes()).await?;
    stream.shutdown().await
}

/// The first line is enough, but the rest must be taken off the connection, or closing it would be an error there.
async fn read_head(stream: &mut TcpStream) -> io::Result<Vec<u8>> {
    let mut head = Vec::new();
    let mut part = [0; 1024];
    while head.len() < HEAD_BYTES_MAX && !head.windows(4).any(|end| end == b"\r\n\r\n") {
        let length = stream.read(&mut part).await?;
        if length == 0 {
            break;
        }
        head.extend_from_slice(&part[..length]);
    }
    Ok(head)
}

fn page(head: &[u8], health: &Health) -> Page {
    let line = head.split(|byte| *byte == b'\r').next().unwrap_or_default();
    let line = String::from_utf8_lossy(line);
    let mut words = line.split(' ');
    let (method, path) = (words.next().unwrap_or_default(), words.next().unwrap_or_default());
    if method != "GET" {
        return Page { status: "405 Method Not Allowed", text: "only GET\n".to_owned() };
    }
    match path.split('?').next().unwrap_or_default() {
        "/liveness" => verdict(health.not_alive().into_iter().collect()),
        "/readiness" => verdict(health.not_ready()),
        "/metrics" => Page { status: "200 OK", text: health.metrics.text() },
        _ => Page { status: "404 Not Found", text: "/liveness, /readiness, /metrics\n".to_owned() },
    }
}

fn verdict(problems: Vec<String>) -> Page {
    if problems.is_empty() {
        Page { status: "200 OK", text: "ok\n".to_owned() }
    } else {
        Page { status: "503 Service Unavailable", text: problems.join("\n") + "\n" }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn each_page_says_its_own() {
        let health = Health::new();
        let status = |head: &str| page(head.as_bytes(), &health).status;
        assert_eq!(status("GET /liveness HTTP/1.1\r\n\r\n"), "200 OK");
        assert_eq!(status("GET /readiness HTTP/1.1\r\n\r\n"), "503 Service Unavailable");
        assert_eq!(status("GET /metrics?x HTTP/1.1\r\n\r\n"), "200 OK");
        assert_eq!(status("GET /etc/passwd HTTP/1.1\r\n\r\n"), "404 Not Found");
        assert_eq!(status("POST /metrics HTTP/1.1\r\n\r\n"), "405 Method Not Allowed");
        assert_eq!(status(""), "405 Method Not Allowed");
    }

    proptest! {
        #[test]
        fn any_head_gets_a_page(head in proptest::collection::vec(any::<u8>(), 0..100)) {
            let _ = page(&head, &Health::new());
        }
    }
}
