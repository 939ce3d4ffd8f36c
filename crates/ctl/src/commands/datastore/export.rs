//! `plumb datastore migrate export`: all records of a locked store, in the file that `calicoctl datastore migrate import`
//! reads: resources as YAML, a line `===`, ClusterInformation as JSON, another such line, and IPAM's records as JSON.

use std::collections::BTreeMap;
use std::io::{BufWriter, Write};
use std::sync::Arc;

use model::cluster::{CLUSTER_INFORMATION, is_locked};
use model::validate::is_of_kubernetes;
use model::{AffinityOwner, IpVersion, Key, KeyRange, Kind, Resource};
use serde_json::{Map, Value, json};
use store::{Record, Store};

use crate::cli::Global;
use crate::connect;
use crate::failure::{Failure, Failures};
use crate::output::document::{Syntax, list_document};
use crate::output::go_document;
use crate::records;

/// What stands between the three parts.
pub(super) const SEPARATOR: &str = "===\n";

/// The kinds that are carried, in the order in which they can be created again. Endpoints and profiles are not: pods
/// and namespaces make them.
pub(super) const KINDS: [Kind; 17] = [
    Kind::IpPool,
    Kind::BgpPeer,
    Kind::Tier,
    Kind::GlobalNetworkPolicy,
    Kind::StagedGlobalNetworkPolicy,
    Kind::GlobalNetworkSet,
    Kind::HostEndpoint,
    Kind::KubeControllersConfiguration,
    Kind::NetworkPolicy,
    Kind::StagedNetworkPolicy,
    Kind::StagedKubernetesNetworkPolicy,
    Kind::NetworkSet,
    Kind::Node,
    Kind::BgpConfiguration,
    Kind::FelixConfiguration,
    Kind::IpReservation,
    Kind::BgpFilter,
];

/// Handles of tunnels end with the node's name.
const TUNNEL_HANDLES: [&str; 3] = ["ipip-tunnel-addr-", "vxlan-tunnel-addr-", "wireguard-tunnel-addr-"];

/// Words of the older API, which the newer one spells with one capital.
const IPTABLES_WORDS: [&str; 4] = [
    "defaultEndpointToHostAction",
    "iptablesFilterAllowAction",
    "iptablesMangleAllowAction",
    "iptablesFilterDenyAction",
];

pub(super) async fn run(global: &Global) -> Result<(), Failures> {
    let store = connect::open_for_reading(global).await?;
    let information = locked_information(&store).await?;
    // All is read before anything is written: half a file must not look like a whole one.
    let mut text = Vec::new();
    let mut names = NodeNames::default();
    for kind in KINDS {
        let list = resources(&store, kind, &mut names).await?;
        go_document::write_several(&mut text, Syntax::Yaml, &[list])?;
        text.extend_from_slice(b"---\n");
    }
    text.extend_from_slice(SEPARATOR.as_bytes());
    let document = Value::Object(information.to_document());
    go_document::write_several(&mut text, Syntax::Json, &[document])?;
    text.extend_from_slice(format!("\n{SEPARATOR}").as_bytes());
    let ipam = addresses(&store, &names).await?;
    text.extend_from_slice(format!("{:#}\n", Value::Object(ipam)).as_bytes());
    let mut out = BufWriter::new(std::io::stdout().lock());
    out.write_all(&text)?;
    out.flush()?;
    Ok(())
}

/// The cluster's own record, if the store is locked.
async fn locked_information(store: &Arc<dyn Store>) -> Result<Resource, Failure> {
    let record = store.get(&Key::cluster(Kind::ClusterInformation, CLUSTER_INFORMATION)).await?;
    let information = record.as_ref().map(records::to_resource).transpose()?;
    information.filter(is_locked).ok_or_else(|| {
        Failure::new("the datastore is not locked: records could change during the export")
            .hint("lock it with plumb datastore migrate lock first")
            .in_calicoctl(
                "datastore is not locked. Run the `calicoctl datastore migrate lock` command in order to begin migration",
            )
    })
}

/// What nodes are called in Kubernetes, by what they are called here.
#[derive(Debug, Default)]
struct NodeNames(BTreeMap<String, String>);

impl NodeNames {
    fn of(&self, node: &str) -> String {
        self.0.get(node).cloned().unwrap_or_else(|| node.to_owned())
    }

    fn of_handle(&self, handle: &str) -> String {
        let tunnel = TUNNEL_HANDLES.iter().find_map(|prefix| Some((prefix, handle.strip_prefix(prefix)?)));
        tunnel.map_or_else(|| handle.to_owned(), |(prefix, node)| format!("{prefix}{}", self.of(node)))
    }

    /// Learns the name of a node, and gives the record that name.
    fn learn(&mut self, node: &mut Resource) -> Result<(), Failure> {
        let own = node.metadata.name.clone();
        let references = node.spec("orchRefs").and_then(Value::as_array).into_iter().flatten();
        let of_kubernetes = references
            .filter(|reference| reference.get("orchestrator").and_then(Value::as_str) == Some("k8s"))
            .filter_map(|reference| reference.get("nodeName").and_then(Value::as_str))
            .next_back();
        let Some(name) = of_kubernetes.filter(|name| !name.is_empty()).map(str::to_owned) else {
            return Err(Failure::new(format!("Node({own}) names no node of Kubernetes"))
                .hint("every node needs an orchRefs entry with orchestrator k8s; plumb datastore copy needs none")
                .in_calicoctl(format!(
                    "unable to process metadata for export for Node resource: node {own} missing a 'k8s' orchestrator \
                     reference. Unable to export data unless every node has a 'k8s' orchestrator reference"
                )));
        };
        node.metadata.name.clone_from(&name);
        self.0.insert(own, name);
        Ok(())
    }
}

/// A kind as one list, without what belongs to this store.
async fn resources(store: &Arc<dyn Store>, kind: Kind, names: &mut NodeNames) -> Result<Value, Failure> {
    let (mut found, revision) = store.list_all(KeyRange::Kind(kind)).await?;
    if kind == Kind::Tier {
        records::sort_by_order(&mut found);
    }
    let mut items = Vec::new();
    for record in &found {
        let mut resource = records::to_resource(record)?;
        if kind == Kind::NetworkPolicy && is_of_kubernetes(&resource.metadata.name) {
            continue;
        }
        let metadata = &mut resource.metadata;
        (metadata.uid, metadata.resource_version, metadata.creation_timestamp) = (None, None, None);
        metadata.extra.remove("deletionTimestamp");
        metadata.extra.remove("deletionGracePeriodSeconds");
        match kind {
            Kind::Node => names.learn(&mut resource)?,
            Kind::FelixConfiguration | Kind::BgpConfiguration => {
                if let Some(node) = resource.metadata.name.strip_prefix("node.") {
                    resource.metadata.name = format!("node.{}", names.of(node));
                }
            }
            _ => {}
        }
        if kind == Kind::FelixConfiguration {
            spell_iptables_words(&mut resource);
        }
        items.push(Value::Object(resource.to_document()));
    }
    Ok(Value::Object(list_document(kind, revision.as_str(), items)))
}

fn spell_iptables_words(configuration: &mut Resource) {
    let spec = configuration.spec_mut();
    for field in IPTABLES_WORDS {
        if let Some(Value::String(word)) = spec.get_mut(field) {
            let lower = word.to_lowercase();
            let mut characters = lower.chars();
            *word = characters.next().into_iter().flat_map(char::to_uppercase).chain(characters).collect();
        }
    }
}

/// IPAM's own records, by the keys they have in etcd.
async fn addresses(store: &Arc<dyn Store>, names: &NodeNames) -> Result<Map<String, Value>, Failure> {
    let mut all = Map::new();
    for (part, ranges) in [
        ("block_affinities", vec![KeyRange::HostAffinities, KeyRange::VirtualAffinities]),
        ("blocks", vec![KeyRange::Blocks(IpVersion::V4), KeyRange::Blocks(IpVersion::V6)]),
        ("handles", vec![KeyRange::Handles]),
    ] {
        let mut items = Vec::new();
        for range in ranges {
            let (found, _) = store.list_all(range).await?;
            for record in &found {
                items.push(entry(record, names)?);
            }
        }
        if !items.is_empty() {
            all.insert(part.to_owned(), items.into());
        }
    }
    if let Some(record) = store.get(&Key::IpamConfig).await? {
        all.insert("config".to_owned(), entry(&record, names)?);
    }
    Ok(all)
}

fn entry(record: &Record, names: &NodeNames) -> Result<Value, Failure> {
    let mut value: Value = serde_json::from_slice(&record.value).map_err(|error| {
        Failure::new(format!("{}: the record cannot be read", record.key)).caused_by(&error)
    })?;
    let key = match &record.key {
        Key::Affinity { owner: AffinityOwner::Host(node), block } => {
            Key::Affinity { owner: AffinityOwner::Host(names.of(node)), block: *block }
        }
        Key::Handle(id) => Key::Handle(names.of_handle(&id.to_string()).as_str().into()),
        Key::Block(_) => {
            rename_in_block(&mut value, names);
            record.key.clone()
        }
        other => other.clone(),
    };
    Ok(json!({ "Key": key.etcd_text(), "Value": value, "TTL": 0 }))
}

fn rename_in_block(block: &mut Value, names: &NodeNames) {
    let owner = block.get("affinity").and_then(Value::as_str).and_then(|owner| owner.strip_prefix("host:"));
    if let Some(node) = owner.map(str::to_owned) {
        block["affinity"] = format!("host:{}", names.of(&node)).into();
    }
    for attribute in block.get_mut("attributes").and_then(Value::as_array_mut).into_iter().flatten() {
        if let Some(Value::String(handle)) = attribute.get_mut("handle_id") {
            *handle = names.of_handle(handle);
        }
        for owners in ["secondary", "alternateOwnerAttrs"] {
            if let Some(Value::String(node)) =
                attribute.get_mut(owners).and_then(|owner| owner.get_mut("node"))
            {
                *node = names.of(node);
            }
        }
    }
}
