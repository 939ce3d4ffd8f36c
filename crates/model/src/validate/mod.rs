//! Whether a resource may be stored: every rule Calico has, each violation with its field, value and rule.
//!
//! [`validate`] looks at one resource. [`validate_update`] adds what may not change. [`validate_pool_against`]
//! and [`references`] add what depends on other records.

mod bgp;
mod bird;
mod cluster;
mod endpoint;
mod felix;
mod fields;
pub mod formats;
mod labels;
mod metadata;
mod policy;
mod pool;
mod references;
mod rule;
mod walk;

pub use bird::{fits_session, is_device_pattern, prefix_lengths, unfit_for_bird};
pub(crate) use policy::LABEL_NAMESPACE;
pub use pool::{default_block_size, validate_pool_against};
pub use references::{Reference, is_in_tier, is_of_kubernetes, references, refuse_deletion};

use std::fmt;

use serde_json::{Map, Value};

use crate::path::FieldPath;
use crate::text::harmless;
use crate::{Kind, Resource, schema};

/// One broken rule.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violation {
    /// Where: `spec.blockSize`.
    pub field: String,
    /// What stands there; empty if nothing does.
    pub value: String,
    /// What should: "must be between 20 and 32 for an IPv4 pool".
    pub rule: String,
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.value.is_empty() {
            write!(f, "{}: {}", self.field, self.rule)
        } else {
            write!(f, "{}: {}: {}", self.field, self.value, self.rule)
        }
    }
}

/// Every rule that a resource breaks by itself. Empty if it may be stored. Expects defaults to be filled in.
pub fn validate(resource: &Resource) -> Vec<Violation> {
    let mut report = Report::default();
    metadata::check(resource, &mut report);
    let schema = schema::document(resource.kind);
    let empty = Value::Object(Map::new());
    for field in schema.fields().filter(|field| matches!(field.name, "spec" | "status")) {
        let path = FieldPath::root().key(field.name);
        match (&field.ty, resource.body.get(field.name), field.name) {
            (schema::Type::Object(object), Some(Value::Object(values)), _) => {
                walk::object(values, object, &path, &mut report);
            }
            (schema::Type::Object(object), None, "spec") => {
                walk::object(empty.as_object().expect("an object"), object, &path, &mut report);
            }
            (schema::Type::Object(_), Some(value), _) => {
                report.require(false, &path, value, || "must be a map".to_owned());
            }
            _ => {}
        }
    }
    check_kind(resource, &mut report);
    report.violations
}

/// Every rule that replacing `old` by `new` breaks: those of [`validate`], and what may not change.
pub fn validate_update(old: &Resource, new: &Resource) -> Vec<Violation> {
    let mut report = Report { violations: validate(new) };
    if new.kind == Kind::IpPool {
        pool::check_update(old, new, &mut report);
    }
    report.violations
}

/// The rules of a kind that look at several fields.
fn check_kind(resource: &Resource, report: &mut Report) {
    match resource.kind {
        Kind::BgpConfiguration => bgp::check_configuration(resource, report),
        Kind::BgpFilter => bgp::check_filter(resource, report),
        Kind::BgpPeer => bgp::check_peer(resource, report),
        Kind::ClusterInformation | Kind::IpamConfiguration => cluster::check_single(resource, report),
        Kind::FelixConfiguration => felix::check(resource, report),
        Kind::GlobalNetworkPolicy
        | Kind::NetworkPolicy
        | Kind::StagedGlobalNetworkPolicy
        | Kind::StagedNetworkPolicy => policy::check_policy(resource, report),
        Kind::GlobalNetworkSet | Kind::NetworkSet => policy::check_network_set(resource, report),
        Kind::HostEndpoint => endpoint::check_host(resource, report),
        Kind::IpPool => pool::check(resource, report),
        Kind::KubeControllersConfiguration => cluster::check_controllers(resource, report),
        Kind::Node => cluster::check_node(resource, report),
        Kind::Profile => policy::check_profile(resource, report),
        Kind::StagedKubernetesNetworkPolicy => policy::check_staged_kubernetes(resource, report),
        Kind::Tier => policy::check_tier(resource, report),
        Kind::WorkloadEndpoint => endpoint::check_workload(resource, report),
        Kind::BlockAffinity
        | Kind::CalicoNodeStatus
        | Kind::IpamBlock
        | Kind::IpamHandle
        | Kind::IpReservation => {}
    }
}

/// Violations as they are found.
#[derive(Debug, Default)]
pub(crate) struct Report {
    violations: Vec<Violation>,
}

impl Report {
    fn broken(&mut self, path: &FieldPath, value: impl Into<String>, rule: impl Into<String>) {
        self.violations.push(Violation { field: path.to_string(), value: value.into(), rule: rule.into() });
    }

    fn missing(&mut self, path: &FieldPath) {
        self.broken(path, "", "must be set");
    }

    fn require(&mut self, holds: bool, path: &FieldPath, value: &Value, rule: impl FnOnce() -> String) {
        if !holds {
            self.broken(path, shown(value), rule());
        }
    }

    fn verdict(&mut self, path: &FieldPath, value: &Value, verdict: Result<(), String>) {
        if let Err(rule) = verdict {
            self.broken(path, shown(value), rule);
        }
    }
}

/// A value as a message shows it.
fn shown(value: &Value) -> String {
    match value {
        Value::String(text) if text.is_empty() => "\"\"".to_owned(),
        Value::String(text) => shorten(text),
        other => shorten(&other.to_string()),
    }
}

/// Cuts what would flood a terminal.
pub(crate) fn shorten(text: &str) -> String {
    const LONGEST: usize = 120;
    let text = harmless(text);
    let mut characters = text.chars();
    let start: String = characters.by_ref().take(LONGEST).collect();
    if characters.next().is_some() { format!("{start}…") } else { start }
}
