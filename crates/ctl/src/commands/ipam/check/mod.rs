//! `plumb ipam check`: whether the records of address management tell one story.

mod confirm;
mod text;

use std::io::{BufWriter, Write};
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use book::load::{self, Facts, Progress};
use ipam::check::{Allocated, Analysis, Evidence, Problem, Unjudged, analyse};
use ipam::{NAMESPACE_ATTRIBUTE, NODE_ATTRIBUTE, is_cooling_down};
use jiff::{SignedDuration, Timestamp};
use model::{AffinityOwner, HandleId, Key, Kind};
use store::{Store, StoreError};

use super::cluster::Cluster;
use super::{SERVICE_ATTRIBUTE, report};
use crate::cli::{Global, IpamCheck};
use crate::failure::{Failure, Failures};
use crate::{connect, progress};

/// What was found, and everything it was found in.
pub(super) struct Found<'a> {
    pub(super) cluster: &'a Cluster,
    pub(super) facts: &'a Facts,
    pub(super) services: &'a [(String, std::net::IpAddr)],
    pub(super) analysis: &'a Analysis<'a>,
    /// Addresses that nobody uses yet, and that were given out so recently that their pods may still be on their way in.
    pub(super) young: &'a [std::net::IpAddr],
    /// Sorted by kind. Each was there at every look.
    pub(super) problems: &'a [Problem],
}

impl<'a> Found<'a> {
    /// What records that cannot be read may have to do with.
    pub(super) fn unjudged(&self) -> &'a Unjudged {
        &self.analysis.unjudged
    }

    /// The node that an address is counted for: the one it is used on, else its block's.
    pub(super) fn node_of(&self, allocated: &Allocated<'a>) -> &'a str {
        let of_attribute = allocated.attribute.secondary.get(NODE_ATTRIBUTE).map(String::as_str);
        of_attribute.filter(|node| !node.is_empty()).unwrap_or_else(|| self.node_of_block(allocated))
    }

    /// The node whose block an address is in; nothing if it is no node's.
    pub(super) fn node_of_block(&self, allocated: &Allocated<'_>) -> &'a str {
        let Some(stored) = self.facts.books.blocks.get(&allocated.block) else { return "" };
        let block = &stored.value;
        let affinity = block.affinity.as_deref().and_then(|affinity| affinity.strip_prefix("host:"));
        affinity.or(block.host_affinity.as_deref().filter(|_| block.affinity.is_none())).unwrap_or_default()
    }
}

pub(crate) async fn run(global: &Global, check: &IpamCheck) -> Result<(), Failures> {
    match look(global, check).await {
        Ok(0) => Ok(()),
        Ok(_) => Err(Failure::found().into()),
        Err(failures) => Err(failures.unable()),
    }
}

/// Says how many problems there are.
async fn look(global: &Global, check: &IpamCheck) -> Result<usize, Failures> {
    let store = connect::open_for_reading(global).await?;
    let mut watch = Stopwatch::default();
    let cluster = Cluster::read(&store).await?;
    let records = Progress::default();
    let mut facts = progress::while_reading(&records, load::facts(&*store, &records)).await?;
    watch.loading = watch.lap();
    let now = Timestamp::now();
    let mut services = self::services(&facts);
    let mut analysis = analyse(&evidence(&facts, &services, now));
    let mut problems = std::mem::take(&mut analysis.problems);
    watch.analysis = watch.lap();
    for again in [Again::Everything, Again::Books] {
        if problems.is_empty() {
            break;
        }
        look_again(&store, &mut facts, &problems, again, check.settle, &records).await?;
        let looked = watch.lap();
        watch.looking_again += looked;
        services = self::services(&facts);
        analysis = analyse(&evidence(&facts, &services, now));
        problems = confirm::still(problems, &analysis.problems);
        watch.analysis = watch.analysis.max(watch.lap());
    }
    let grace = SignedDuration::try_from_secs_f64(check.grace).unwrap_or(doctor::GRACE);
    let (problems, young) = confirm::judge(problems, &analysis, now, grace);
    let found = Found {
        young: &young,
        cluster: &cluster,
        facts: &facts,
        services: &services,
        analysis: &analysis,
        problems: &problems,
    };
    tell(check, &found)?;
    if check.timings {
        watch.tell(records.records());
    }
    Ok(problems.len())
}

/// What is read again.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Again {
    /// After a while: the suspected blocks, handles and affinities, then who uses the suspected addresses.
    Everything,
    /// Right after that, the blocks, handles and affinities once more.
    Books,
}

/// Lists are not all of one moment, and an address that is being taken or given back looks like a leak in between.
/// What disagrees is therefore read again, and told only if it is still just the same: users between two looks at the
/// blocks, and blocks between two looks at the users. So an address that is called leaked was allocated, without a
/// break, from before until after nobody used it; and one that is called free was in use from before until after.
async fn look_again(
    store: &Arc<dyn Store>,
    facts: &mut Facts,
    problems: &[Problem],
    again: Again,
    settle: f64,
    records: &Progress,
) -> Result<(), StoreError> {
    let suspects = confirm::Suspects::of(problems, facts);
    if again == Again::Everything {
        tracing::info!(problems = problems.len(), seconds = settle, "waiting before the second observation");
        tokio::time::sleep(Duration::from_secs_f64(settle)).await;
    }
    load::look_again(&**store, &mut facts.books, &suspects.keys).await?;
    if again == Again::Books {
        return Ok(());
    }
    if suspects.needs_pools {
        let pools = load::pools(&**store, records).await?;
        confirm::replace_pools(facts, pools);
    }
    if suspects.needs_users {
        let reading = load::users(&**store, records, |address| suspects.addresses.contains(&address));
        let users = progress::while_reading(records, reading).await?;
        confirm::replace_users(facts, users, &suspects.addresses);
    }
    Ok(())
}

fn evidence<'a>(
    facts: &'a Facts,
    services: &'a [(String, std::net::IpAddr)],
    now: Timestamp,
) -> Evidence<'a> {
    let Facts { books, pools, nodes, endpoints } = facts;
    Evidence { books, pools, nodes, endpoints, services, now }
}

/// Addresses that load balancers hold. Only Kubernetes knows its services, and it is not asked: these addresses count
/// as in use.
fn services(facts: &Facts) -> Vec<(String, std::net::IpAddr)> {
    let mut services = Vec::new();
    for stored in facts.books.blocks.values() {
        let block = &stored.value;
        let is_of_services = matches!(block.owner(), Some(AffinityOwner::Virtual(_)));
        if !is_of_services
            && !block.attributes.iter().any(|known| known.secondary.contains_key(SERVICE_ATTRIBUTE))
        {
            continue;
        }
        for ordinal in 0..block.allocations.len() {
            let (Some(known), Some(address)) = (block.attribute(ordinal), block.address(ordinal)) else {
                continue;
            };
            let service = known.secondary.get(SERVICE_ATTRIBUTE);
            if is_cooling_down(known) || !(is_of_services || service.is_some()) {
                continue;
            }
            let name = match (known.secondary.get(NAMESPACE_ATTRIBUTE), service) {
                (Some(namespace), Some(service)) => format!("{namespace}/{service}"),
                (None, Some(service)) => service.clone(),
                (_, None) => known.handle().map_or("<none>", HandleId::as_str).to_owned(),
            };
            services.push((name, address));
        }
    }
    services
}

/// The text, and the report if one was asked for.
fn tell(check: &IpamCheck, found: &Found<'_>) -> Result<(), Failure> {
    let is_report_on_stdout = check.output.as_deref() == Some(Path::new("-"));
    let written = if is_report_on_stdout {
        text::write(check, found, &mut BufWriter::new(std::io::stderr().lock()))
    } else {
        text::write(check, found, &mut BufWriter::with_capacity(1 << 16, std::io::stdout().lock()))
    };
    match &check.output {
        // Whoever reads only the first lines of the text wants the report all the same.
        Some(path) if !is_report_on_stdout => report::write_file(path, found)?,
        Some(_) => {
            let mut out = BufWriter::with_capacity(1 << 16, std::io::stdout().lock());
            report::write(&mut out, found).map_err(std::io::Error::other)?;
            out.flush()?;
        }
        None => {}
    }
    Ok(written?)
}

/// How long the parts took.
struct Stopwatch {
    since: Instant,
    loading: Duration,
    analysis: Duration,
    looking_again: Duration,
}

impl Default for Stopwatch {
    fn default() -> Stopwatch {
        let zero = Duration::ZERO;
        Stopwatch { since: Instant::now(), loading: zero, analysis: zero, looking_again: zero }
    }
}

impl Stopwatch {
    fn lap(&mut self) -> Duration {
        let now = Instant::now();
        now - std::mem::replace(&mut self.since, now)
    }

    fn tell(&self, records: usize) {
        eprintln!(
            "timings: loading_ms={} analysis_ms={} looking_again_ms={} records={records}",
            self.loading.as_millis(),
            self.analysis.as_millis(),
            self.looking_again.as_millis()
        );
    }
}

/// Whether a record says who uses addresses.
fn is_user(key: &Key) -> bool {
    matches!(key, Key::Resource { kind: Kind::WorkloadEndpoint | Kind::Node, .. })
}
