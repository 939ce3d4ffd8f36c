//! The columns of each kind's table: calicoctl's, and ours for the records it cannot show.

use model::{Kind, Resource};
use serde_json::Value;

use crate::compat;

/// One column: its heading and what stands below it.
pub(crate) struct Column {
    pub(crate) heading: &'static str,
    pub(crate) cell: fn(&Resource, &Lookups) -> String,
}

/// Facts a cell may need that are not in its own record.
#[derive(Debug, Default)]
pub(crate) struct Lookups {
    /// The AS number of nodes that have none of their own.
    pub(crate) as_number: String,
}

/// The columns of a kind: all that can be asked for, and the usual choice. A wide table has all but the namespace.
pub(crate) struct Columns {
    pub(crate) all: &'static [Column],
    pub(crate) narrow: &'static [&'static str],
}

impl Columns {
    pub(crate) fn wide(&self) -> impl Iterator<Item = &'static str> {
        self.all.iter().map(|column| column.heading).filter(|heading| *heading != NAMESPACE.heading)
    }
}

/// Longer lists of networks are cut; calicoctl's number.
const NETS_WIDTH_MAX: usize = 80;

const fn column(heading: &'static str, cell: fn(&Resource, &Lookups) -> String) -> Column {
    Column { heading, cell }
}

const NAME: Column = column("NAME", |r, _| r.metadata.name.clone());
const NAMESPACE: Column = column("NAMESPACE", |r, _| r.metadata.namespace.clone().unwrap_or_default());

/// The columns of a kind. Endpoints have their own, see `endpoint`; these are only their headings.
pub(crate) fn of(kind: Kind) -> &'static Columns {
    match kind {
        Kind::BgpConfiguration => &BGP_CONFIGURATION,
        Kind::BgpFilter => &BGP_FILTER,
        Kind::BgpPeer => &BGP_PEER,
        Kind::BlockAffinity => &BLOCK_AFFINITY,
        Kind::CalicoNodeStatus => &CALICO_NODE_STATUS,
        Kind::ClusterInformation => &CLUSTER_INFORMATION,
        Kind::FelixConfiguration | Kind::KubeControllersConfiguration => &NAME_ONLY,
        Kind::GlobalNetworkPolicy | Kind::StagedGlobalNetworkPolicy => &GLOBAL_POLICY,
        Kind::GlobalNetworkSet => &GLOBAL_NETWORK_SET,
        Kind::HostEndpoint => &HOST_ENDPOINT,
        Kind::IpamBlock => &IPAM_BLOCK,
        Kind::IpamConfiguration => &IPAM_CONFIGURATION,
        Kind::IpamHandle => &IPAM_HANDLE,
        Kind::IpPool => &IP_POOL,
        Kind::IpReservation => &IP_RESERVATION,
        Kind::NetworkPolicy | Kind::StagedNetworkPolicy => &POLICY,
        Kind::NetworkSet => &NETWORK_SET,
        Kind::Node => &NODE,
        Kind::Profile => &PROFILE,
        Kind::StagedKubernetesNetworkPolicy => &STAGED_KUBERNETES_POLICY,
        Kind::Tier => &TIER,
        Kind::WorkloadEndpoint => &WORKLOAD_ENDPOINT,
    }
}

static WORKLOAD_ENDPOINT: Columns =
    Columns { all: &[], narrow: &["WORKLOAD", "NODE", "NETWORKS", "INTERFACE"] };

static NAME_ONLY: Columns = Columns { all: &[NAME], narrow: &["NAME"] };

static BGP_CONFIGURATION: Columns = Columns {
    all: &[
        NAME,
        column("LOGSEVERITY", |r, _| text(r, "logSeverityScreen")),
        column("MESHENABLED", |r, _| or_dash(text(r, "nodeToNodeMeshEnabled"))),
        column("ASNUMBER", |r, _| or_dash(text(r, "asNumber"))),
    ],
    narrow: &["NAME", "LOGSEVERITY", "MESHENABLED", "ASNUMBER"],
};

static BGP_FILTER: Columns = Columns {
    all: &[
        NAME,
        column("NUMEXPORTV4", |r, _| count(r, "exportV4")),
        column("NUMIMPORTV4", |r, _| count(r, "importV4")),
        column("NUMEXPORTV6", |r, _| count(r, "exportV6")),
        column("NUMIMPORTV6", |r, _| count(r, "importV6")),
    ],
    narrow: &["NAME", "NUMEXPORTV4", "NUMIMPORTV4", "NUMEXPORTV6", "NUMIMPORTV6"],
};

static BGP_PEER: Columns = Columns {
    all: &[
        NAME,
        column("PEERIP", |r, _| text(r, "peerIP")),
        column("NODE", |r, _| {
            first_set([text(r, "node"), text(r, "nodeSelector")]).unwrap_or_else(|| "(global)".to_owned())
        }),
        column("ASN", |r, _| or(text(r, "asNumber"), "0")),
    ],
    narrow: &["NAME", "PEERIP", "NODE", "ASN"],
};

static BLOCK_AFFINITY: Columns = Columns {
    all: &[
        NAME,
        column("NODE", |r, _| text(r, "node")),
        column("TYPE", |r, _| or(text(r, "type"), "host")),
        column("CIDR", |r, _| text(r, "cidr")),
        column("STATE", |r, _| or(text(r, "state"), "confirmed")),
    ],
    narrow: &["NODE", "TYPE", "CIDR", "STATE"],
};

static CALICO_NODE_STATUS: Columns = Columns {
    all: &[
        NAME,
        column("NODE", |r, _| text(r, "node")),
        column("CLASSES", |r, _| joined(r, "classes", usize::MAX)),
    ],
    narrow: &["NAME", "NODE"],
};

static CLUSTER_INFORMATION: Columns = Columns {
    all: &[
        NAME,
        column("CLUSTERGUID", |r, _| text(r, "clusterGUID")),
        column("CLUSTERTYPE", |r, _| text(r, "clusterType")),
        column("CALICOVERSION", |r, _| text(r, "calicoVersion")),
        column("DATASTOREREADY", |r, _| or(text(r, "datastoreReady"), "<nil>")),
    ],
    narrow: &["NAME", "CLUSTERGUID", "CLUSTERTYPE", "CALICOVERSION", "DATASTOREREADY"],
};

const ORDER: Column = column("ORDER", |r, _| match r.spec("order").and_then(Value::as_f64) {
    Some(order) if compat::is_strict() => compat::go_float(order),
    _ => or(text(r, "order"), "<nil>"),
});
const SELECTOR: Column = column("SELECTOR", |r, _| text(r, "selector"));
const POLICY_TIER: Column = column("TIER", |r, _| or(text(r, "tier"), "default"));

static GLOBAL_POLICY: Columns =
    Columns { all: &[NAME, POLICY_TIER, ORDER, SELECTOR], narrow: &["NAME", "TIER"] };

static POLICY: Columns =
    Columns { all: &[NAME, NAMESPACE, POLICY_TIER, ORDER, SELECTOR], narrow: &["NAME", "TIER"] };

const NETS: Column = column("NETS", |r, _| joined(r, "nets", NETS_WIDTH_MAX));

static GLOBAL_NETWORK_SET: Columns = Columns { all: &[NAME, NETS], narrow: &["NAME"] };

static NETWORK_SET: Columns = Columns { all: &[NAME, NAMESPACE, NETS], narrow: &["NAME"] };

static HOST_ENDPOINT: Columns = Columns {
    all: &[
        NAME,
        column("NODE", |r, _| text(r, "node")),
        column("INTERFACE", |r, _| text(r, "interfaceName")),
        column("IPS", |r, _| joined(r, "expectedIPs", usize::MAX)),
        column("PROFILES", |r, _| joined(r, "profiles", usize::MAX)),
    ],
    narrow: &["NAME", "NODE"],
};

static IPAM_BLOCK: Columns = Columns {
    all: &[
        NAME,
        column("CIDR", |r, _| text(r, "cidr")),
        column("AFFINITY", |r, _| or(text(r, "affinity"), "<none>")),
        column("ALLOCATED", |r, _| allocated(r)),
        column("FREE", |r, _| count(r, "unallocated")),
        column("SEQUENCE", |r, _| text(r, "sequenceNumber")),
    ],
    narrow: &["CIDR", "AFFINITY", "ALLOCATED", "FREE"],
};

static IPAM_CONFIGURATION: Columns = Columns {
    all: &[
        NAME,
        column("STRICTAFFINITY", |r, _| or(text(r, "strictAffinity"), "false")),
        column("AUTOALLOCATEBLOCKS", |r, _| or(text(r, "autoAllocateBlocks"), "false")),
        column("MAXBLOCKSPERHOST", |r, _| or(text(r, "maxBlocksPerHost"), "0")),
    ],
    narrow: &["NAME", "STRICTAFFINITY", "AUTOALLOCATEBLOCKS"],
};

static IPAM_HANDLE: Columns = Columns {
    all: &[
        NAME,
        column("ADDRESSES", |r, _| {
            let held =
                |counts: &serde_json::Map<String, Value>| counts.values().filter_map(Value::as_u64).sum();
            r.spec("block").and_then(Value::as_object).map_or(0u64, held).to_string()
        }),
        column("BLOCKS", |r, _| {
            let blocks = r.spec("block").and_then(Value::as_object);
            cut(blocks.into_iter().flatten().map(|(block, _)| block.as_str()), NETS_WIDTH_MAX)
        }),
    ],
    narrow: &["NAME", "ADDRESSES"],
};

static IP_POOL: Columns = Columns {
    all: &[
        NAME,
        column("CIDR", |r, _| text(r, "cidr")),
        column("NAT", |r, _| or(text(r, "natOutgoing"), "false")),
        column("IPIPMODE", |r, _| or(text(r, "ipipMode"), "Never")),
        column("VXLANMODE", |r, _| or(text(r, "vxlanMode"), "Never")),
        column("DISABLED", |r, _| or(text(r, "disabled"), "false")),
        column("DISABLEBGPEXPORT", |r, _| or(text(r, "disableBGPExport"), "false")),
        column("SELECTOR", |r, _| or(text(r, "nodeSelector"), "all()")),
        column("ASSIGNMENTMODE", |r, _| or(text(r, "assignmentMode"), "Automatic")),
    ],
    narrow: &["NAME", "CIDR", "SELECTOR"],
};

static IP_RESERVATION: Columns = Columns {
    all: &[NAME, column("CIDRS", |r, _| joined(r, "reservedCIDRs", NETS_WIDTH_MAX))],
    narrow: &["NAME"],
};

static NODE: Columns = Columns {
    all: &[
        NAME,
        column("ASN", |r, lookups| match r.spec("bgp") {
            None => String::new(),
            Some(_) => or(bgp(r, "asNumber"), &format!("({})", lookups.as_number)),
        }),
        column("IPV4", |r, _| bgp(r, "ipv4Address")),
        column("IPV6", |r, _| bgp(r, "ipv6Address")),
    ],
    narrow: &["NAME"],
};

static PROFILE: Columns =
    Columns { all: &[NAME, column("LABELS", |r, _| pairs(r.spec("labelsToApply")))], narrow: &["NAME"] };

static STAGED_KUBERNETES_POLICY: Columns = Columns {
    all: &[
        NAME,
        NAMESPACE,
        column("PODSELECTOR", |r, _| {
            let selector = r.spec("podSelector");
            match compat::is_strict() {
                true => compat::go_label_selector(selector),
                false => pairs(selector.and_then(|selector| selector.get("matchLabels"))),
            }
        }),
    ],
    narrow: &["NAME"],
};

static TIER: Columns = Columns { all: &[NAME, ORDER], narrow: &["NAME", "ORDER"] };

/// A field of the spec as plain text; empty if absent.
fn text(resource: &Resource, field: &str) -> String {
    resource.spec(field).map(plain).unwrap_or_default()
}

fn plain(value: &Value) -> String {
    match value {
        Value::Null => String::new(),
        Value::String(text) => text.clone(),
        other => other.to_string(),
    }
}

fn bgp(resource: &Resource, field: &str) -> String {
    resource.spec("bgp").and_then(|bgp| bgp.get(field)).map(plain).unwrap_or_default()
}

fn or(text: String, default: &str) -> String {
    if text.is_empty() { default.to_owned() } else { text }
}

fn or_dash(text: String) -> String {
    or(text, "-")
}

fn first_set<const N: usize>(texts: [String; N]) -> Option<String> {
    texts.into_iter().find(|text| !text.is_empty())
}

fn list<'a>(resource: &'a Resource, field: &str) -> &'a [Value] {
    resource.spec(field).and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default()
}

fn count(resource: &Resource, field: &str) -> String {
    list(resource, field).len().to_string()
}

fn allocated(resource: &Resource) -> String {
    list(resource, "allocations").iter().filter(|index| !index.is_null()).count().to_string()
}

fn joined(resource: &Resource, field: &str, width_max: usize) -> String {
    let items: Vec<String> = list(resource, field).iter().map(plain).collect();
    cut(items.iter().map(String::as_str), width_max)
}

/// Joined by commas, cut with dots where it grows too long.
fn cut<'a>(items: impl Iterator<Item = &'a str>, width_max: usize) -> String {
    let mut text = String::new();
    for item in items {
        if !text.is_empty() {
            text.push(',');
        }
        text.push_str(item);
        if text.len() > width_max {
            let end = text.floor_char_boundary(width_max - "...".len());
            text.truncate(end);
            text.push_str("...");
            break;
        }
    }
    text
}

fn pairs(map: Option<&Value>) -> String {
    let mut pairs: Vec<String> = map
        .and_then(Value::as_object)
        .into_iter()
        .flatten()
        .map(|(key, value)| format!("{key}={}", plain(value)))
        .collect();
    pairs.sort();
    pairs.join(",")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::output::endpoint;

    #[test]
    fn every_usual_heading_is_a_column() {
        for kind in Kind::all() {
            let columns = of(kind);
            let known: Vec<&str> = if kind == Kind::WorkloadEndpoint {
                endpoint::COLUMNS.iter().map(|column| column.heading).collect()
            } else {
                columns.all.iter().map(|column| column.heading).collect()
            };
            for heading in
                columns.narrow.iter().chain(endpoint::WIDE.iter().filter(|_| columns.all.is_empty()))
            {
                assert!(known.contains(heading), "{kind}: {heading}");
            }
            assert_eq!(known.contains(&"NAMESPACE"), kind.is_namespaced(), "{kind}");
        }
    }

    #[test]
    fn long_lists_are_cut() {
        assert_eq!(cut(["a", "b"].into_iter(), 80), "a,b");
        let nets = std::iter::repeat_n("10.0.0.0/8", 50);
        let text = cut(nets, NETS_WIDTH_MAX);
        assert_eq!(text.len(), NETS_WIDTH_MAX);
        assert!(text.ends_with("..."), "{text}");
    }
}
