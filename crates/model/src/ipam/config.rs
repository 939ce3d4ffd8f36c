//! The settings that address management really reads. On etcd they are not the IPAMConfiguration resource that
//! Calico's tools show, but a record of their own with other field names.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::{DecodeError, decode, encode, null_is_empty, view};
use crate::validate::{Violation, validate};
use crate::{Key, Kind, Resource};

/// The name of the one IPAMConfiguration there is.
pub const CONFIG_NAME: &str = "default";

/// No record means [`IpamConfig::default`]; a record without a field means that field's zero.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct IpamConfig {
    /// Never borrow addresses from other nodes' blocks.
    #[serde(default, skip_serializing_if = "is_false", deserialize_with = "null_is_empty")]
    pub strict_affinity: bool,
    /// Claim blocks as needed. Absent in a record means false, although the default is true.
    #[serde(default, skip_serializing_if = "is_false", deserialize_with = "null_is_empty")]
    pub auto_allocate_blocks: bool,
    /// 0 is the built-in limit of 20 per IP version.
    #[serde(
        default,
        rename = "maxBlocksPerHost",
        skip_serializing_if = "is_zero",
        deserialize_with = "null_is_empty"
    )]
    pub max_blocks_per_host: i64,
    /// `Enabled` or `Disabled`; absent means enabled.
    #[serde(default, rename = "kubeVirtVMAddressPersistence", skip_serializing_if = "Option::is_none")]
    pub kube_virt_vm_address_persistence: Option<String>,
    #[serde(
        default,
        rename = "ipCooldownSeconds",
        skip_serializing_if = "is_zero",
        deserialize_with = "null_is_empty"
    )]
    pub ip_cooldown_seconds: i64,
    #[serde(flatten)]
    pub extra: Map<String, Value>,
}

fn is_false(flag: &bool) -> bool {
    !flag
}

fn is_zero(number: &i64) -> bool {
    *number == 0
}

impl Default for IpamConfig {
    fn default() -> IpamConfig {
        IpamConfig {
            strict_affinity: false,
            auto_allocate_blocks: true,
            max_blocks_per_host: 0,
            kube_virt_vm_address_persistence: None,
            ip_cooldown_seconds: 0,
            extra: Map::new(),
        }
    }
}

impl IpamConfig {
    pub fn decode(value: &[u8]) -> Result<IpamConfig, DecodeError> {
        decode(|| Key::IpamConfig, value)
    }

    pub fn encode(&self) -> Vec<u8> {
        encode(self)
    }

    /// The settings as an IPAMConfiguration resource.
    pub fn to_resource(&self, revision: &str) -> Resource {
        let mut spec = self.extra.clone();
        spec.insert("strictAffinity".into(), self.strict_affinity.into());
        spec.insert("autoAllocateBlocks".into(), self.auto_allocate_blocks.into());
        spec.insert("maxBlocksPerHost".into(), self.max_blocks_per_host.into());
        if let Some(word) = &self.kube_virt_vm_address_persistence {
            spec.insert("kubeVirtVMAddressPersistence".into(), word.clone().into());
        }
        if self.ip_cooldown_seconds != 0 {
            spec.insert("ipCooldownSeconds".into(), self.ip_cooldown_seconds.into());
        }
        view(Kind::IpamConfiguration, CONFIG_NAME.to_owned(), revision, spec)
    }

    /// The settings that an IPAMConfiguration resource asks for. Refuses what it may not say, and the combinations
    /// that allocation could not work with.
    pub fn from_resource(resource: &Resource) -> Result<IpamConfig, Vec<Violation>> {
        let mut violations = validate(resource);
        let flag = |field, default| resource.spec(field).and_then(Value::as_bool).unwrap_or(default);
        let number = |field| resource.spec(field).and_then(Value::as_i64).unwrap_or(0);
        let persistence = resource.spec("kubeVirtVMAddressPersistence").and_then(Value::as_str);
        let config = IpamConfig {
            strict_affinity: flag("strictAffinity", false),
            auto_allocate_blocks: flag("autoAllocateBlocks", true),
            max_blocks_per_host: number("maxBlocksPerHost"),
            kube_virt_vm_address_persistence: persistence.map(str::to_owned),
            ip_cooldown_seconds: number("ipCooldownSeconds"),
            extra: unknown_fields(resource),
        };
        violations.extend(config.refusals());
        if violations.is_empty() { Ok(config) } else { Err(violations) }
    }

    /// Takes over what a stored record holds beyond the settings known here.
    pub fn keep_unknown(mut self, stored: &IpamConfig) -> IpamConfig {
        for (field, value) in &stored.extra {
            self.extra.entry(field.clone()).or_insert_with(|| value.clone());
        }
        self
    }

    /// Combinations that leave a node without addresses, or a limit without effect.
    pub fn refusals(&self) -> Vec<Violation> {
        let refusal = |field: &str, value: String, rule: &str| Violation {
            field: format!("spec.{field}"),
            value,
            rule: rule.to_owned(),
        };
        let mut refusals = Vec::new();
        if !self.strict_affinity && !self.auto_allocate_blocks {
            let rule = "must be true unless strictAffinity is true";
            refusals.push(refusal("autoAllocateBlocks", "false".to_owned(), rule));
        }
        if !self.strict_affinity && self.max_blocks_per_host > 0 {
            let rule = "must be 0 unless strictAffinity is true";
            refusals.push(refusal("maxBlocksPerHost", self.max_blocks_per_host.to_string(), rule));
        }
        refusals
    }
}

fn unknown_fields(resource: &Resource) -> Map<String, Value> {
    const KNOWN: [&str; 5] = [
        "strictAffinity",
        "autoAllocateBlocks",
        "maxBlocksPerHost",
        "kubeVirtVMAddressPersistence",
        "ipCooldownSeconds",
    ];
    let spec = resource.body.get("spec").and_then(Value::as_object).cloned().unwrap_or_default();
    spec.into_iter().filter(|(field, _)| !KNOWN.contains(&field.as_str())).collect()
}
