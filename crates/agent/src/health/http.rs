//! Just enough HTTP for a probe and a scrape: GET, one response, close.
//!
//! Every connection is accepted: when all places are taken, the oldest connection of the address with the most connections is closed. A probe
//! sends its request at once and is answered at once, so it is never the oldest for long. An idle or slow connection is.

use std::collections::BTreeMap;
use std::io;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio::task::AbortHandle;
use tokio::time::timeout;
use tracing::{debug, warn};

use super::Health;

const HEAD_BYTES_MAX: usize = 8 * 1024;
const CONNECTIONS_MAX: usize = 256;
/// How many clients may read the metrics at the same time: that page is long, the others are short.
const SCRAPES_MAX: usize = 8;
/// How long a client may take to send its request.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(2);
/// How long it may take to read the response.
const RESPONSE_TIMEOUT: Duration = Duration::from_secs(5);

/// The HTTP server for probes and metrics.
#[derive(Debug)]
pub(crate) struct HealthServer {
    listener: TcpListener,
}

struct Response {
    status: &'static str,
    text: String,
}

impl HealthServer {
    pub(crate) async fn open(address: &str) -> io::Result<HealthServer> {
        Ok(HealthServer { listener: TcpListener::bind(address).await? })
    }

    pub(crate) async fn serve(self, health: Arc<Health>) {
        let connections = Arc::new(Connections::default());
        let scrapes = Arc::new(Semaphore::new(SCRAPES_MAX));
        loop {
            match self.listener.accept().await {
                Ok((stream, from)) => {
                    let (health, scrapes) = (health.clone(), scrapes.clone());
                    connections.admit(from.ip(), async move {
                        if let Err(error) = serve(stream, &health, &scrapes).await {
                            debug!(%error, "cannot serve a health request");
                        }
                    });
                    // A request that has arrived is answered before the next connection is accepted.
                    tokio::task::yield_now().await;
                }
                Err(error) => {
                    warn!(%error, "cannot accept a health request");
                    tokio::time::sleep(Duration::from_millis(100)).await;
                }
            }
        }
    }
}

/// The open connections, in the order of their arrival.
#[derive(Debug, Default)]
struct Connections(Mutex<(u64, BTreeMap<u64, Connection>)>);

#[derive(Debug)]
struct Connection {
    from: IpAddr,
    task: AbortHandle,
}

/// Removes a connection from the list when it ends, also when it is closed early.
struct Removal {
    connections: Arc<Connections>,
    number: u64,
}

impl Drop for Removal {
    fn drop(&mut self) {
        self.connections.list().1.remove(&self.number);
    }
}

impl Connections {
    /// Serves one more, and closes another if there are too many.
    fn admit(self: &Arc<Self>, from: IpAddr, serve: impl Future<Output = ()> + Send + 'static) {
        let evicted = {
            let mut list = self.list();
            let evicted = (list.1.len() >= CONNECTIONS_MAX).then(|| evict(&mut list.1)).flatten();
            list.0 += 1;
            let removal = Removal { connections: self.clone(), number: list.0 };
            let task = tokio::spawn(async move {
                let _removal = removal;
                serve.await;
            });
            let number = list.0;
            list.1.insert(number, Connection { from, task: task.abort_handle() });
            evicted
        };
        if let Some(connection) = evicted {
            connection.task.abort();
        }
    }

    fn list(&self) -> MutexGuard<'_, (u64, BTreeMap<u64, Connection>)> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Removes the oldest of the address that has the most.
fn evict(open: &mut BTreeMap<u64, Connection>) -> Option<Connection> {
    let mut counts: BTreeMap<IpAddr, usize> = BTreeMap::new();
    for connection in open.values() {
        *counts.entry(connection.from).or_default() += 1;
    }
    let (busiest, _) = counts.into_iter().max_by_key(|(_, count)| *count)?;
    let number = *open.iter().find(|(_, connection)| connection.from == busiest)?.0;
    open.remove(&number)
}

async fn serve(mut stream: TcpStream, health: &Health, scrapes: &Semaphore) -> io::Result<()> {
    let head = timeout(REQUEST_TIMEOUT, read_head(&mut stream)).await.map_err(io::Error::other)??;
    let target = target(&head);
    let is_scrape = target == Target::Page("/metrics");
    let place = if is_scrape { scrapes.try_acquire().map(Some) } else { Ok(None) };
    let response = match &place {
        Ok(_) => respond(target, health),
        Err(_) => Response {
            status: "503 Service Unavailable",
            text: "too many clients read the metrics; try again\n".to_owned(),
        },
    };
    timeout(RESPONSE_TIMEOUT, write_response(&mut stream, response)).await.map_err(io::Error::other)?
}

async fn write_response(stream: &mut TcpStream, Response { status, text }: Response) -> io::Result<()> {
    let length = text.len();
    let head = format!(
        "HTTP/1.1 {status}\r\nContent-Type: text/plain; version=0.0.4; charset=utf-8\r\n\
         Content-Length: {length}\r\nConnection: close\r\n\r\n"
    );
    stream.write_all(head.as_bytes()).await?;
    stream.write_all(text.as_bytes()).await?;
    stream.shutdown().await
}

/// Only the first line is used, but the rest must be read, or the client would see a reset.
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

/// What a request asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Target {
    Page(&'static str),
    Unknown,
    NotGet,
}

const PAGES: [&str; 3] = ["/liveness", "/readiness", "/metrics"];

fn target(head: &[u8]) -> Target {
    let line = head.split(|byte| *byte == b'\r').next().unwrap_or_default();
    let line = String::from_utf8_lossy(line);
    let mut words = line.split(' ');
    let (method, path) = (words.next().unwrap_or_default(), words.next().unwrap_or_default());
    if method != "GET" {
        return Target::NotGet;
    }
    let path = path.split('?').next().unwrap_or_default();
    PAGES.into_iter().find(|page| *page == path).map_or(Target::Unknown, Target::Page)
}

fn respond(target: Target, health: &Health) -> Response {
    match target {
        Target::Page("/liveness") => verdict(health.not_alive().into_iter().collect()),
        Target::Page("/readiness") => readiness(health),
        Target::Page(_) => Response { status: "200 OK", text: health.metrics_page() },
        Target::Unknown => Response { status: "404 Not Found", text: PAGES.join(", ") + "\n" },
        Target::NotGet => Response { status: "405 Method Not Allowed", text: "only GET\n".to_owned() },
    }
}

/// Invalid records do not make a node unready, because one record would stop every node. They are listed all the same.
fn readiness(health: &Health) -> Response {
    let response = verdict(health.not_ready());
    let invalid = health.invalid_records();
    if invalid.is_empty() {
        return response;
    }
    let verdict = match response.text.as_str() {
        "ok\n" => "ok, but these records are invalid:\n".to_owned(),
        reasons => format!("{reasons}These records are invalid, but do not make the node unready:\n"),
    };
    Response { status: response.status, text: format!("{verdict}{}\n", invalid.join("\n")) }
}

fn verdict(problems: Vec<String>) -> Response {
    if problems.is_empty() {
        Response { status: "200 OK", text: "ok\n".to_owned() }
    } else {
        Response { status: "503 Service Unavailable", text: problems.join("\n") + "\n" }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn each_path_has_its_response() {
        let health = Health::new();
        let status = |head: &str| respond(target(head.as_bytes()), &health).status;
        assert_eq!(status("GET /liveness HTTP/1.1\r\n\r\n"), "200 OK");
        assert_eq!(status("GET /readiness HTTP/1.1\r\n\r\n"), "503 Service Unavailable");
        assert_eq!(status("GET /metrics?x HTTP/1.1\r\n\r\n"), "200 OK");
        assert_eq!(status("GET /etc/passwd HTTP/1.1\r\n\r\n"), "404 Not Found");
        assert_eq!(status("POST /metrics HTTP/1.1\r\n\r\n"), "405 Method Not Allowed");
        assert_eq!(status(""), "405 Method Not Allowed");
    }

    #[tokio::test]
    async fn the_oldest_of_the_busiest_address_is_closed() {
        let connections = Arc::new(Connections::default());
        let address = |last: u8| IpAddr::from([127, 0, 0, last]);
        // One from another address came first, and stays.
        connections.admit(address(9), std::future::pending());
        for _ in 0..CONNECTIONS_MAX + 3 {
            connections.admit(address(1), std::future::pending());
        }
        // Closed connections are removed when their tasks end.
        while connections.list().1.len() > CONNECTIONS_MAX {
            tokio::task::yield_now().await;
        }
        let numbers: Vec<u64> = connections.list().1.keys().copied().collect();
        assert_eq!((numbers.len(), &numbers[..2]), (CONNECTIONS_MAX, &[1, 6][..]));
    }

    #[test]
    fn invalid_records_are_listed_but_do_not_make_the_node_unready() {
        let health = Health::new();
        health.set_invalid_records(vec!["block 0.0.0.0/0 of node x".to_owned()]);
        let readiness = || respond(Target::Page("/readiness"), &health);
        assert!(readiness().text.ends_with("block 0.0.0.0/0 of node x\n"), "{}", readiness().text);
        assert_eq!(readiness().status, "503 Service Unavailable");
        health.set_routes_missing(Vec::new());
        health.set_condition(super::super::Condition::Policies, Vec::new());
        health.set_serving(true);
        health.set_store_in_sync(true);
        health.set_reconciled(true);
        let ready = readiness();
        assert_eq!(ready.status, "200 OK");
        assert_eq!(ready.text, "ok, but these records are invalid:\nblock 0.0.0.0/0 of node x\n");
    }

    proptest! {
        #[test]
        fn any_head_gets_a_response(head in proptest::collection::vec(any::<u8>(), 0..100)) {
            let _ = respond(target(&head), &Health::new());
        }
    }
}
