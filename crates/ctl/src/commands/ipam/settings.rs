//! The settings that allocation works by: `plumb ipam show --show-configuration` and `plumb ipam configure`.

use std::io::Write;
use std::sync::Arc;

use model::Key;
use model::ipam::IpamConfig;
use model::validate::{Violation, validate};
use serde_json::{Value, json};
use store::{Change, Revision, Store};

use crate::cli::{Global, IpamConfigure};
use crate::failure::{Failure, Failures};
use crate::output::boxed::Boxed;
use crate::output::document::Syntax;
use crate::write::{Tries, Writer};

/// What no setting at all means for KubeVirt's machines.
const PERSISTENCE_DEFAULT: &str = "Enabled";

pub(super) async fn show(
    store: &Arc<dyn Store>,
    format: Option<Syntax>,
    out: &mut dyn Write,
) -> Result<(), Failure> {
    let (config, _) = read(store).await?;
    match format {
        Some(syntax) => syntax.write_bare(out, &document(&config))?,
        None => {
            let mut table = Boxed::new(&["PROPERTY", "VALUE"]);
            for (property, value) in properties(&config) {
                table.row(vec![property.to_owned(), value]);
            }
            table.write(out)?;
        }
    }
    Ok(())
}

/// Changes what was asked for, on the condition that nobody else changes the settings meanwhile.
pub(crate) async fn configure(global: &Global, asked: &IpamConfigure) -> Result<(), Failures> {
    let writer = Writer::open_for_changing(global, asked.dry_run.dry_run).await?;
    let mut tries = Tries::default();
    loop {
        let (before, revision) = read(writer.store()).await?;
        let after = changed(&before, asked);
        let refusals = after.refusals().into_iter().chain(out_of_range(&after));
        let refusals = refusals.map(|rule| Failure::new(format!("{}: {rule}", Key::IpamConfig)));
        Failures::collect(refusals.collect())?;
        if after == before || asked.dry_run.dry_run {
            break;
        }
        let change = match revision {
            Some(revision) => Change::update(Key::IpamConfig, after.encode(), revision),
            None => Change::create(Key::IpamConfig, after.encode()),
        };
        match writer.store().commit(vec![change]).await {
            Ok(_) => break,
            Err(error) if error.is_lost_race() && tries.again().await => {}
            Err(error) => return Err(error.into()),
        }
    }
    Ok(tell(asked)?)
}

fn changed(before: &IpamConfig, asked: &IpamConfigure) -> IpamConfig {
    let mut after = before.clone();
    if let Some(strict) = asked.strictaffinity {
        after.strict_affinity = strict;
    }
    if let Some(blocks) = asked.max_blocks_per_host {
        after.max_blocks_per_host = blocks.into();
    }
    if let Some(persistence) = asked.kubevirt_ip_persistence {
        after.kube_virt_vm_address_persistence = Some(persistence.word().to_owned());
    }
    if let Some(seconds) = asked.ip_cooldown_seconds {
        after.ip_cooldown_seconds = seconds.into();
    }
    after
}

/// The rules of an IPAMConfiguration; calicoctl does not look at them.
fn out_of_range(config: &IpamConfig) -> Vec<Violation> {
    validate(&config.to_resource(""))
}

fn tell(asked: &IpamConfigure) -> std::io::Result<()> {
    let properties = [
        ("StrictAffinity", asked.strictaffinity.map(|strict| strict.to_string())),
        ("MaxBlocksPerHost", asked.max_blocks_per_host.map(|blocks| blocks.to_string())),
        ("KubeVirtVMAddressPersistence", asked.kubevirt_ip_persistence.map(|word| word.word().to_owned())),
        ("IPCooldownSeconds", asked.ip_cooldown_seconds.map(|seconds| seconds.to_string())),
    ];
    let done = if asked.dry_run.dry_run { "Dry run: would set" } else { "Successfully set" };
    let mut out = std::io::stdout().lock();
    for (property, value) in properties {
        if let Some(value) = value {
            writeln!(out, "{done} {property} to: {value}")?;
        }
    }
    Ok(())
}

/// The settings, and the revision of their record if there is one.
async fn read(store: &Arc<dyn Store>) -> Result<(IpamConfig, Option<Revision>), Failure> {
    let Some(record) = store.get(&Key::IpamConfig).await? else {
        return Ok((IpamConfig::default(), None));
    };
    let config = IpamConfig::decode(&record.value).map_err(|error| Failure::of(&error))?;
    Ok((config, Some(record.revision)))
}

/// By calicoctl's names.
fn properties(config: &IpamConfig) -> [(&'static str, String); 5] {
    let persistence = config.kube_virt_vm_address_persistence.as_deref().unwrap_or(PERSISTENCE_DEFAULT);
    [
        ("StrictAffinity", config.strict_affinity.to_string()),
        ("AutoAllocateBlocks", config.auto_allocate_blocks.to_string()),
        ("MaxBlocksPerHost", config.max_blocks_per_host.to_string()),
        ("KubeVirtVMAddressPersistence", persistence.to_owned()),
        ("IPCooldownSeconds", config.ip_cooldown_seconds.to_string()),
    ]
}

/// By the names that an IPAMConfiguration has for them, with what is not known here.
fn document(config: &IpamConfig) -> Value {
    let persistence = config.kube_virt_vm_address_persistence.as_deref().unwrap_or(PERSISTENCE_DEFAULT);
    let mut shown = config.extra.clone();
    shown.insert("strictAffinity".into(), json!(config.strict_affinity));
    shown.insert("autoAllocateBlocks".into(), json!(config.auto_allocate_blocks));
    shown.insert("maxBlocksPerHost".into(), json!(config.max_blocks_per_host));
    shown.insert("kubeVirtVMAddressPersistence".into(), json!(persistence));
    shown.insert("ipCooldownSeconds".into(), json!(config.ip_cooldown_seconds));
    Value::Object(shown)
}
