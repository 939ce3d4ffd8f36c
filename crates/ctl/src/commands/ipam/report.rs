//! The report of a check, in calicoctl's format: written by `plumb ipam check`, read by `plumb ipam release`.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{BufWriter, Write};
use std::net::IpAddr;
use std::path::Path;

use ipam::check::{Allocated, Problem};
use ipam::{NAMESPACE_ATTRIBUTE, POD_ATTRIBUTE, TIMESTAMP_ATTRIBUTE, TYPE_ATTRIBUTE};
use model::{FindingCode, HandleId};
use serde::ser::SerializeMap as _;
use serde::{Deserialize, Serialize, Serializer};

use super::check::Found;
use crate::failure::Failure;

/// What calicoctl writes in the place of its own version.
pub(super) fn version() -> String {
    format!("v{}", env!("CARGO_PKG_VERSION"))
}

pub(super) fn write_file(path: &Path, found: &Found<'_>) -> Result<(), Failure> {
    let unable = |error: &dyn std::error::Error| {
        Failure::new(format!("cannot write the report to {}", path.display())).caused_by(error)
    };
    let file = File::create(path).map_err(|error| unable(&error))?;
    let mut out = BufWriter::with_capacity(1 << 16, file);
    write(&mut out, found).map_err(|error| unable(&error))?;
    out.flush().map_err(|error| unable(&error))
}

pub(super) fn write(out: &mut dyn Write, found: &Found<'_>) -> Result<(), serde_json::Error> {
    let handles = found.problems.iter().filter_map(|problem| match problem {
        Problem::HandleUnused { handle, revision } => {
            Some(LeakedHandle { id: handle.clone(), uid: None, revision: revision.clone() })
        }
        _ => None,
    });
    let cluster = found.cluster;
    let document = Document {
        version: version(),
        cluster_guid: &cluster.guid,
        datastore_locked: cluster.is_locked,
        cluster_information_revision: cluster.revision.as_ref().map_or("", |revision| revision.as_str()),
        cluster_type: &cluster.kind,
        allocations: Allocations(found),
        leaked_handles: handles.collect(),
        problems: found.problems.iter().map(|problem| Told::of(problem, found)).collect(),
        not_judged: NotJudged {
            young: found.young,
            allocated: &found.unjudged().allocated,
            used: &found.unjudged().used,
            outside_pools: &found.unjudged().outside_pools,
            handles: &found.unjudged().handles,
        },
    };
    serde_json::to_writer_pretty(&mut *out, &document)?;
    out.write_all(b"\n").map_err(serde_json::Error::io)
}

/// As it is written: addresses one after the other, without holding them all.
#[derive(Serialize)]
struct Document<'a> {
    version: String,
    #[serde(rename = "clusterGUID")]
    cluster_guid: &'a str,
    #[serde(rename = "datastoreLocked")]
    datastore_locked: bool,
    #[serde(rename = "clusterInformationRevision")]
    cluster_information_revision: &'a str,
    #[serde(rename = "clusterType")]
    cluster_type: &'a str,
    allocations: Allocations<'a>,
    #[serde(rename = "leakedHandles", skip_serializing_if = "Vec::is_empty")]
    leaked_handles: Vec<LeakedHandle>,
    /// Beyond calicoctl, which passes over it.
    problems: Vec<Told>,
    #[serde(rename = "notJudged")]
    not_judged: NotJudged<'a>,
}

/// What records that cannot be read may have to do with: neither released nor called in order.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct NotJudged<'a> {
    young: &'a [IpAddr],
    allocated: &'a [IpAddr],
    used: &'a [IpAddr],
    outside_pools: &'a [IpAddr],
    handles: &'a [HandleId],
}

struct Allocations<'a>(&'a Found<'a>);

impl Serialize for Allocations<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let found = self.0;
        let owners = owners(found);
        let leaked: BTreeMap<IpAddr, u64> = found
            .problems
            .iter()
            .filter_map(|problem| match problem {
                Problem::Leaked { address, sequence_number, .. } => Some((*address, *sequence_number)),
                _ => None,
            })
            .collect();
        let mut map = serializer.serialize_map(None)?;
        for group in found.analysis.allocations.chunk_by(|one, other| one.address == other.address) {
            let address = group[0].address;
            let entries: Vec<Allocation> = group
                .iter()
                .map(|allocated| allocation(found, allocated, owners.get(&address)))
                // Coming or going while this was looked at: not in use, but not called leaked either. Whoever
                // releases by report takes what is not in use for leaked.
                .filter(|entry| {
                    entry.in_use
                        || entry.cooling_down
                        || leaked.get(&address) == entry.sequence_number.as_ref()
                })
                .collect();
            if !entries.is_empty() {
                map.serialize_entry(&address, &entries)?;
            }
        }
        map.end()
    }
}

/// Who uses what, in calicoctl's words.
fn owners(found: &Found<'_>) -> BTreeMap<IpAddr, Vec<String>> {
    let mut owners: BTreeMap<IpAddr, Vec<String>> = BTreeMap::new();
    for node in &found.facts.nodes {
        for (_, address) in &node.tunnels {
            owners.entry(*address).or_default().push(format!("Node({})", node.name));
        }
    }
    for (name, address) in found.services {
        owners.entry(*address).or_default().push(name.clone());
    }
    for endpoint in &found.facts.endpoints {
        for address in endpoint.addresses.iter() {
            let name = format!("Workload({}/{})", endpoint.namespace, endpoint.name);
            owners.entry(*address).or_default().push(name);
        }
    }
    owners
}

/// One allocated address. calicoctl leaves out what is empty.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Allocation {
    pub(super) ip: String,
    #[serde(default, skip_serializing_if = "HandleId::is_empty")]
    pub(super) handle: HandleId,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) sequence_number: Option<u64>,
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub(super) pod: String,
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub(super) namespace: String,
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub(super) node: String,
    #[serde(default, rename = "type", skip_serializing_if = "String::is_empty")]
    pub(super) kind: String,
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub(super) creation_timestamp: String,
    /// Must be said: what is not in use is released.
    pub(super) in_use: bool,
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(super) borrowed: bool,
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(super) cooling_down: bool,
    #[serde(default)]
    pub(super) owners: Option<Vec<String>>,
}

fn allocation(found: &Found<'_>, allocated: &Allocated<'_>, owners: Option<&Vec<String>>) -> Allocation {
    let known = |name: &str| allocated.attribute.secondary.get(name).cloned().unwrap_or_default();
    let handle = allocated.attribute.handle();
    let is_of_windows = handle.is_some_and(HandleId::is_windows_reserved);
    let owners = match owners {
        None if is_of_windows => Some(vec!["Reserved for Windows".to_owned()]),
        owners => owners.cloned(),
    };
    let node = found.node_of(allocated);
    Allocation {
        ip: allocated.address.to_string(),
        handle: handle.filter(|_| !is_of_windows).cloned().unwrap_or_default(),
        sequence_number: Some(allocated.sequence_number),
        pod: known(POD_ATTRIBUTE),
        namespace: known(NAMESPACE_ATTRIBUTE),
        node: node.to_owned(),
        kind: known(TYPE_ATTRIBUTE),
        creation_timestamp: known(TIMESTAMP_ATTRIBUTE),
        in_use: allocated.is_in_use || is_of_windows,
        borrowed: node != found.node_of_block(allocated),
        cooling_down: allocated.is_cooling_down,
        owners,
    }
}

/// A handle that no block mentions. calicoctl's spelling.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct LeakedHandle {
    #[serde(rename = "ID")]
    pub(super) id: HandleId,
    /// Only the Kubernetes store has them.
    #[serde(default, rename = "UID")]
    pub(super) uid: Option<String>,
    #[serde(rename = "Revision")]
    pub(super) revision: String,
}

/// A problem by name, for scripts.
#[derive(Serialize)]
struct Told {
    kind: &'static str,
    code: FindingCode,
    message: String,
}

impl Told {
    fn of(problem: &Problem, found: &Found<'_>) -> Told {
        let kind = match problem {
            Problem::Leaked { .. } => "leaked",
            Problem::UsedOutsidePools { .. } => "used-outside-pools",
            Problem::UsedNotAllocated { .. } => "used-not-allocated",
            Problem::SeveralUsers { .. } => "several-users",
            Problem::AllocatedTwice { .. } => "allocated-twice",
            Problem::HandleUnused { .. } => "handle-unused",
            Problem::HandleMissing { .. } => "handle-missing",
            Problem::HandleCount { .. } => "handle-count",
            Problem::BlocksOverlap(..) => "blocks-overlap",
            Problem::AffinityMissing { .. } => "affinity-missing",
            Problem::AffinityDiffers { .. } => "affinity-differs",
            Problem::AffinityUnfinished { .. } => "affinity-unfinished",
            Problem::AffinityOfGoneNode { .. } => "affinity-of-gone-node",
            Problem::Corrupt(_) => "corrupt",
        };
        Told { kind, code: problem.code(&found.facts.books), message: problem.to_string() }
    }
}
