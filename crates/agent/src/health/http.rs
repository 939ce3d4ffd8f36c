//! Just enough HTTP for a probe and a scrape: GET, one answer, the end.
//!
//! Whoever comes is let in: when all places are taken, the oldest connection of the address that has most of them is
//! closed. A probe sends its request at once and is answered at once, so it is never the oldest for long; a
//! connection that says nothing, or says it slowly, is.

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
/// How many may read the metrics at the same time: that page is long, the others are a few words.
const SCRAPES_MAX: usize = 8;
/// How long a connection may take to say what it wants.
const HEAD_PATIENCE: Duration = Duration::from_secs(2);
/// How long it may take to read the answer.
const ANSWER_PATIENCE: Duration = Duration::from_secs(5);

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
        let (visitors, scrapes) = (Arc::new(Visitors::default()), Arc::new(Semaphore::new(SCRAPES_MAX)));
        loop {
            match self.listener.accept().await {
                Ok((stream, from)) => {
                    let (health, scrapes) = (health.clone(), scrapes.clone());
                    visitors.admit(from.ip(), async move {
                        if let Err(error) = answer(stream, &health, &scrapes).await {
                            debug!("a look at the health pages failed: {error}");
                        }
                    });
                    // Whoever has sent a request gets its answer before the next one is let in.
                    tokio::task::yield_now().await;
                }
                Err(error) => {
                    warn!("cannot accept a look at the health pages: {error}");
                    tokio::time::sleep(Duration::from_millis(100)).await;
                }
            }
        }
    }
}

/// The connections that are open, in the order in which they came.
#[derive(Debug, Default)]
struct Visitors(Mutex<(u64, BTreeMap<u64, Visitor>)>);

#[derive(Debug)]
struct Visitor {
    from: IpAddr,
    task: AbortHandle,
}

/// Takes a connection off the list when it ends, also when it is closed early.
struct Leaving {
    visitors: Arc<Visitors>,
    number: u64,
}

impl Drop for Leaving {
    fn drop(&mut self) {
        self.visitors.list().1.remove(&self.number);
    }
}

impl Visitors {
    /// Serves one more, at the cost of another if there are too many.
    fn admit(self: &Arc<Self>, from: IpAddr, serve: impl Future<Output = ()> + Send + 'static) {
        let evicted = {
            let mut list = self.list();
            let evicted = (list.1.len() >= CONNECTIONS_MAX).then(|| evict(&mut list.1)).flatten();
            list.0 += 1;
            let leaving = Leaving { visitors: self.clone(), number: list.0 };
            let task = tokio::spawn(async move {
                let _leaving = leaving;
                serve.await;
            });
            let number = list.0;
            list.1.insert(number, Visitor { from, task: task.abort_handle() });
            evicted
        };
        if let Some(visitor) = evicted {
            visitor.task.abort();
        }
    }

    fn list(&self) -> MutexGuard<'_, (u64, BTreeMap<u64, Visitor>)> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Takes out the oldest of the address that has most.
fn evict(present: &mut BTreeMap<u64, Visitor>) -> Option<Visitor> {
    let mut counts: BTreeMap<IpAddr, usize> = BTreeMap::new();
    for visitor in present.values() {
        *counts.entry(visitor.from).or_default() += 1;
    }
    let (busiest, _) = counts.into_iter().max_by_key(|(_, count)| *count)?;
    let number = *present.iter().find(|(_, visitor)| visitor.from == busiest)?.0;
    present.remove(&number)
}

async fn answer(mut stream: TcpStream, health: &Health, scrapes: &Semaphore) -> io::Result<()> {
    let head = timeout(HEAD_PATIENCE, read_head(&mut stream)).await.map_err(io::Error::other)??;
    let wanted = wanted(&head);
    let is_scrape = wanted == Wanted::Page("/metrics");
    let place = if is_scrape { scrapes.try_acquire().map(Some) } else { Ok(None) };
    let page = match &place {
        Ok(_) => page(wanted, health),
        Err(_) => Page {
            status: "503 Service Unavailable",
            text: "too many read the metrics just now; try again\n".to_owned(),
        },
    };
    timeout(ANSWER_PATIENCE, write_page(&mut stream, page)).await.map_err(io::Error::other)?
}

async fn write_page(stream: &mut TcpStream, Page { status, text }: Page) -> io::Result<()> {
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

/// What a request asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Wanted {
    Page(&'static str),
    /// No page of ours.
    Nothing,
    /// Not even a GET.
    NotGet,
}

const PAGES: [&str; 3] = ["/liveness", "/readiness", "/metrics"];

fn wanted(head: &[u8]) -> Wanted {
    let line = head.split(|byte| *byte == b'\r').next().unwrap_or_default();
    let line = String::from_utf8_lossy(line);
    let mut words = line.split(' ');
    let (method, path) = (words.next().unwrap_or_default(), words.next().unwrap_or_default());
    if method != "GET" {
        return Wanted::NotGet;
    }
    let path = path.split('?').next().unwrap_or_default();
    PAGES.into_iter().find(|page| *page == path).map_or(Wanted::Nothing, Wanted::Page)
}

fn page(wanted: Wanted, health: &Health) -> Page {
    match wanted {
        Wanted::Page("/liveness") => verdict(health.not_alive().into_iter().collect()),
        Wanted::Page("/readiness") => readiness(health),
        Wanted::Page(_) => Page { status: "200 OK", text: health.metrics_page() },
        Wanted::Nothing => Page { status: "404 Not Found", text: PAGES.join(", ") + "\n" },
        Wanted::NotGet => Page { status: "405 Method Not Allowed", text: "only GET\n".to_owned() },
    }
}

/// Wrong records do not keep a node from serving its pods: whoever could write one would stop every node. They are named all the same.
fn readiness(health: &Health) -> Page {
    let page = verdict(health.not_ready());
    let wrong = health.records_wrong();
    if wrong.is_empty() {
        return page;
    }
    let verdict = match page.text.as_str() {
        "ok\n" => "ok, but these records are invalid:\n".to_owned(),
        reasons => format!("{reasons}These records are invalid, too (no reason for being unready):\n"),
    };
    Page { status: page.status, text: format!("{verdict}{}\n", wrong.join("\n")) }
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
        let status = |head: &str| page(wanted(head.as_bytes()), &health).status;
        assert_eq!(status("GET /liveness HTTP/1.1\r\n\r\n"), "200 OK");
        assert_eq!(status("GET /readiness HTTP/1.1\r\n\r\n"), "503 Service Unavailable");
        assert_eq!(status("GET /metrics?x HTTP/1.1\r\n\r\n"), "200 OK");
        assert_eq!(status("GET /etc/passwd HTTP/1.1\r\n\r\n"), "404 Not Found");
        assert_eq!(status("POST /metrics HTTP/1.1\r\n\r\n"), "405 Method Not Allowed");
        assert_eq!(status(""), "405 Method Not Allowed");
    }

    #[tokio::test]
    async fn the_oldest_of_the_busiest_address_makes_room() {
        let visitors = Arc::new(Visitors::default());
        let address = |last: u8| IpAddr::from([127, 0, 0, last]);
        // One from elsewhere came first, and is not the one to go.
        visitors.admit(address(9), std::future::pending());
        for _ in 0..CONNECTIONS_MAX + 3 {
            visitors.admit(address(1), std::future::pending());
        }
        // Those that were closed have left by themselves.
        while visitors.list().1.len() > CONNECTIONS_MAX {
            tokio::task::yield_now().await;
        }
        let numbers: Vec<u64> = visitors.list().1.keys().copied().collect();
        assert_eq!((numbers.len(), &numbers[..2]), (CONNECTIONS_MAX, &[1, 6][..]));
    }

    #[test]
    fn wrong_records_are_named_and_keep_nobody_from_being_ready() {
        let health = Health::new();
        health.set_records_wrong(vec!["block 0.0.0.0/0 of node x".to_owned()]);
        let readiness = || page(Wanted::Page("/readiness"), &health);
        assert!(readiness().text.ends_with("block 0.0.0.0/0 of node x\n"), "{}", readiness().text);
        assert_eq!(readiness().status, "503 Service Unavailable");
        health.set_routes_missing(Vec::new());
        health.set_serving(true);
        health.set_store_in_sync(true);
        health.set_reconciled(true);
        let ready = readiness();
        assert_eq!(ready.status, "200 OK");
        assert_eq!(ready.text, "ok, but these records are invalid:\nblock 0.0.0.0/0 of node x\n");
    }

    proptest! {
        #[test]
        fn any_head_gets_a_page(head in proptest::collection::vec(any::<u8>(), 0..100)) {
            let _ = page(wanted(&head), &Health::new());
        }
    }
}
