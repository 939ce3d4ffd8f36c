//! `plumb datastore migrate import`: what `export` wrote, of ours or of calicoctl, into a store without such records.

use std::io::{Read as _, Write as _};
use std::path::Path;

use model::cluster::CLUSTER_INFORMATION;
use model::ipam::{Affinity, Block, Handle, IpamConfig};
use model::validate::{is_of_kubernetes, refuse_deletion};
use model::{IpVersion, Key, KeyRange, Kind, manifest};
use serde::Deserialize;
use serde_json::Value;

use super::export::{KINDS, SEPARATOR};
use super::set_ready;
use crate::cli::{Global, Import};
use crate::failure::{Failure, Failures};
use crate::input::Input;
use crate::report::{Tally, Verb};
use crate::scope::{Named, Scope};
use crate::write::{Prepared, Writer, check_against_store, ensure_basics, prepare};
use crate::{compat, connect};

const COPY: &str =
    "plumb datastore copy carries records into a store that has some, and continues where it stopped";

/// The three parts of the file.
struct Parts {
    resources: Vec<Prepared>,
    information: Value,
    addresses: Vec<(Key, Vec<u8>)>,
}

/// IPAM's records as the file has them.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Addresses {
    block_affinities: Vec<Entry>,
    blocks: Vec<Entry>,
    handles: Vec<Entry>,
    config: Option<Entry>,
}

#[derive(Debug, Deserialize)]
struct Entry {
    #[serde(rename = "Key")]
    key: String,
    #[serde(rename = "Value")]
    value: Value,
}

pub(super) async fn run(global: &Global, import: &Import) -> Result<(), Failures> {
    let parts = read(import)?;
    let writer = Writer::new(connect::open_for_creating(global).await?, false);
    refuse_records(&writer).await?;
    check_against_store(&writer, &parts.resources, Verb::Apply).await?;
    ensure_basics(&writer).await;
    // It stays locked until an operator has seen that everything is there.
    set_ready(&writer, false).await?;
    let mut tally = Tally::new(Verb::Apply, false, parts.resources.iter().map(|one| one.resource.kind));
    for one in &parts.resources {
        tally.add(Named::of(&one.resource), writer.apply(&one.resource).await);
    }
    tally.finish()?;
    set_information(&writer, &parts.information).await?;
    let mut out = std::io::stdout();
    writeln!(out, "Importing IPAM resources")?;
    let count = parts.addresses.len();
    if count == 0 && compat::is_strict() {
        return Err(Failure::new("no IPAM resources specified in file").into());
    }
    for (key, value) in parts.addresses {
        let shown = key.to_string();
        writer
            .store()
            .create(key, value)
            .await
            .map_err(|error| Failure::from(error).within(format!("cannot create {shown}")).or_hint(COPY))?;
    }
    writeln!(out, "Successfully applied {count} IPAM resource(s)")?;
    writeln!(
        out,
        "Datastore information successfully imported. Please refer to the datastore migration documentation for next steps."
    )?;
    Ok(())
}

/// The file, understood and found valid as a whole before anything is written.
fn read(import: &Import) -> Result<Parts, Failures> {
    let path = &import.filename;
    let text = text_of(path)?;
    let parts: Vec<&str> = text.split(SEPARATOR).collect();
    let &[resources, information, addresses] = parts.as_slice() else {
        let shown = path.display();
        return Err(Failure::new(format!("{shown} is not what plumb datastore migrate export wrote"))
            .hint("export again; the file has three parts with === between them")
            .in_calicoctl(format!(
                "error while reading migration file: imported file: {shown} is improperly formatted. Try recreating with \
                 'calicoctl export'"
            ))
            .into());
    };
    let unreadable = |what: &str, error: &dyn std::error::Error| {
        Failure::new(format!("{}: {what} cannot be read", path.display())).caused_by(error)
    };
    let located =
        manifest::parse_located(resources).map_err(|error| unreadable("the part of resources", &error))?;
    let inputs = located
        .into_iter()
        .map(|found| Input { resource: found.resource, origin: format!("{}: {}", path.display(), found.at) });
    let resources = prepare(inputs.collect(), &Scope::new(None, false)?, Verb::Apply)?;
    let information =
        serde_json::from_str(information).map_err(|error| unreadable("ClusterInformation", &error))?;
    let addresses: Addresses =
        serde_json::from_str(addresses).map_err(|error| unreadable("the part of IPAM", &error))?;
    let of_ipam = [addresses.block_affinities, addresses.blocks, addresses.handles];
    let entries = of_ipam.into_iter().flatten().chain(addresses.config);
    let addresses = entries.map(record_of).collect::<Result<_, _>>()?;
    Ok(Parts { resources, information, addresses })
}

fn text_of(path: &Path) -> Result<String, Failure> {
    let mut text = String::new();
    let read = match path == Path::new("-") {
        true => std::io::stdin().read_to_string(&mut text).map(drop),
        false => std::fs::read_to_string(path).map(|read| text = read),
    };
    read.map_err(|error| {
        let said = format!("error while reading migration file: {}", compat::open_error(path, &error));
        Failure::new(format!("cannot read {}", path.display())).caused_by(&error).in_calicoctl(said)
    })?;
    Ok(text)
}

/// A record of IPAM, read and written once so that only what is one gets into the store.
fn record_of(entry: Entry) -> Result<(Key, Vec<u8>), Failure> {
    let unknown = || Failure::new(format!("{:?} is no key of IPAM", entry.key));
    let key = Key::from_etcd_text(&entry.key).map_err(|_| unknown())?;
    let bytes = entry.value.to_string().into_bytes();
    let value = match &key {
        Key::Block(cidr) => Block::decode(cidr, &bytes).map(|block| block.encode()),
        Key::Affinity { owner, block } => Affinity::decode(owner, block, &bytes).map(|found| found.encode()),
        Key::Handle(id) => Handle::decode(id, &bytes).map(|handle| handle.encode()),
        Key::IpamConfig => IpamConfig::decode(&bytes).map(|config| config.encode()),
        Key::Resource { .. } => return Err(unknown()),
    };
    Ok((key, value.map_err(|error| Failure::of(&error))?))
}

/// Refuses a store that has records of Calico besides those that every store has.
async fn refuse_records(writer: &Writer) -> Result<(), Failure> {
    let taken = |what: &str| {
        Failure::new(format!("the datastore has records already: {what}")).hint(COPY).in_calicoctl(format!(
            "datastore already has Calico resources: found existing Calico {what} resource. Clear out all Calico resources by \
             deleting all Calico CRDs"
        ))
    };
    for kind in KINDS {
        // Where nodes are those of Kubernetes, they are there before.
        if kind == Kind::Node {
            continue;
        }
        let (found, _) = writer.store().list_all(KeyRange::Kind(kind)).await?;
        let counts = found.iter().any(|record| match &record.key {
            Key::Resource { kind: Kind::NetworkPolicy, name, .. } => !is_of_kubernetes(name),
            key => refuse_deletion(key).is_none(),
        });
        if counts {
            return Err(taken(kind.name()));
        }
    }
    for range in [
        KeyRange::Blocks(IpVersion::V4),
        KeyRange::Blocks(IpVersion::V6),
        KeyRange::HostAffinities,
        KeyRange::Handles,
    ] {
        let (found, _) = writer.store().list_all(range).await?;
        if !found.is_empty() {
            return Err(taken("IPAM"));
        }
    }
    Ok(())
}

/// The cluster keeps its identifier and version.
async fn set_information(writer: &Writer, migrated: &Value) -> Result<(), Failure> {
    let named =
        Named { kind: Kind::ClusterInformation, namespace: None, name: CLUSTER_INFORMATION.to_owned() };
    let changed = writer.change(&named, None, |stored| {
        let mut next = stored.clone();
        for field in ["clusterGUID", "calicoVersion"] {
            if let Some(value) = migrated.pointer(&format!("/spec/{field}")).filter(|value| value.is_string())
            {
                next.spec_mut().insert(field.to_owned(), value.clone());
            }
        }
        Ok(next)
    });
    changed.await.map(drop).map_err(|error| error.into_failure().within("cannot update ClusterInformation"))
}
