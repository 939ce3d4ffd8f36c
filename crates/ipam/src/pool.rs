//! Pools: where addresses may come from.

use std::collections::BTreeMap;
use std::net::IpAddr;

use model::{Cidr, IpVersion, Resource, Selector};
use serde_json::Value;

/// What an address is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PoolUse {
    Workload,
    Tunnel,
    /// Addresses of services. Their blocks belong to no node.
    LoadBalancer,
}

impl PoolUse {
    /// As pools spell it.
    pub fn word(self) -> &'static str {
        match self {
            PoolUse::Workload => "Workload",
            PoolUse::Tunnel => "Tunnel",
            PoolUse::LoadBalancer => "LoadBalancer",
        }
    }
}

/// An IPPool, as far as it decides who gets an address from it.
#[derive(Clone, Debug, PartialEq)]
pub struct Pool {
    pub name: String,
    pub cidr: Cidr,
    pub block_size: u8,
    is_enabled: bool,
    is_automatic: bool,
    uses: Vec<String>,
    has_ipip: bool,
    has_vxlan: bool,
    node_selector: Selector,
    namespace_selector: Selector,
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("IPPool({name}): {field} {value} cannot be understood")]
pub struct PoolError {
    pub name: String,
    pub field: &'static str,
    pub value: String,
}

impl Pool {
    /// Reads a pool. What is missing has Calico's default.
    pub fn new(resource: &Resource) -> Result<Pool, PoolError> {
        let mut resource = resource.clone();
        resource.fill_defaults_on_read();
        let fail = |field: &'static str| {
            let value = resource.spec(field).map_or_else(|| "(nothing)".to_owned(), Value::to_string);
            PoolError { name: resource.metadata.name.clone(), field, value }
        };
        let text = |field: &'static str| resource.spec(field).and_then(Value::as_str).unwrap_or_default();
        let uses = resource.spec("allowedUses").and_then(Value::as_array).cloned().unwrap_or_default();
        let block_size = resource.spec("blockSize").and_then(Value::as_u64);
        let is_on = |mode: &str| !matches!(mode, "" | "Never");
        Ok(Pool {
            name: resource.metadata.name.clone(),
            cidr: Cidr::parse_masked(text("cidr")).map_err(|_| fail("cidr"))?,
            block_size: block_size
                .and_then(|size| u8::try_from(size).ok())
                .ok_or_else(|| fail("blockSize"))?,
            is_enabled: is_enabled(&resource),
            is_automatic: text("assignmentMode") != "Manual",
            uses: uses.iter().filter_map(Value::as_str).map(str::to_owned).collect(),
            has_ipip: is_on(text("ipipMode")),
            has_vxlan: is_on(text("vxlanMode")),
            node_selector: text("nodeSelector").parse().map_err(|_| fail("nodeSelector"))?,
            namespace_selector: text("namespaceSelector").parse().map_err(|_| fail("namespaceSelector"))?,
        })
    }

    pub fn is_enabled(&self) -> bool {
        self.is_enabled
    }

    pub fn allows(&self, purpose: PoolUse) -> bool {
        self.uses.iter().any(|word| word == purpose.word())
    }

    /// Whether the pool is what someone means who wrote this: its name or its network.
    pub fn is_named(&self, name_or_cidr: &str) -> bool {
        self.name == name_or_cidr || Cidr::parse_masked(name_or_cidr) == Ok(self.cidr)
    }

    /// Whether the pool gives addresses unasked, to this node and this namespace.
    pub fn offers_itself(
        &self,
        node_labels: &BTreeMap<String, String>,
        namespace_labels: &BTreeMap<String, String>,
    ) -> bool {
        self.is_automatic
            && self.selects_node(node_labels)
            && self.namespace_selector.matches(namespace_labels)
    }

    pub fn selects_node(&self, node_labels: &BTreeMap<String, String>) -> bool {
        self.node_selector.matches(node_labels)
    }

    /// Whether no label of a node can make a difference.
    pub fn selects_every_node(&self) -> bool {
        self.node_selector.is_all()
    }

    pub fn has_ipip(&self) -> bool {
        self.has_ipip
    }

    pub fn has_vxlan(&self) -> bool {
        self.has_vxlan
    }

    /// The block that an address of the pool is in.
    pub fn block_of(&self, address: IpAddr) -> Option<Cidr> {
        if !self.cidr.contains(address) {
            return None;
        }
        Cidr::containing(address, self.block_size).filter(|block| self.cidr.contains_cidr(block))
    }

    pub fn version(&self) -> IpVersion {
        self.cidr.version()
    }
}

fn is_enabled(pool: &Resource) -> bool {
    let is_disabled = pool.spec("disabled").and_then(Value::as_bool).unwrap_or(false);
    let is_going = pool.metadata.extra.get("deletionTimestamp").is_some_and(|time| !time.is_null());
    let conditions = pool.body.get("status").and_then(|status| status.get("conditions"));
    let is_unfit = conditions.and_then(Value::as_array).is_some_and(|conditions| {
        conditions
            .iter()
            .any(|condition| condition["type"] == "Allocatable" && condition["status"] == "False")
    });
    !is_disabled && !is_going && !is_unfit
}

#[cfg(test)]
mod tests {
    use model::Kind;
    use serde_json::json;

    use super::*;

    fn pool(spec: Value) -> Result<Pool, PoolError> {
        let mut resource = Resource::new(Kind::IpPool, "pool");
        resource.body.insert("spec".to_owned(), spec);
        Pool::new(&resource)
    }

    fn labels(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
        pairs.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
    }

    #[test]
    fn a_bare_pool_serves_everyone() {
        let pool = pool(json!({"cidr": "10.0.0.0/16"})).unwrap();
        assert_eq!(pool.block_size, 26);
        assert!(pool.is_enabled() && pool.allows(PoolUse::Workload) && pool.allows(PoolUse::Tunnel));
        assert!(pool.selects_every_node());
        assert!(pool.offers_itself(&labels(&[]), &labels(&[])));
        assert!(pool.is_named("pool") && pool.is_named("10.0.0.0/16") && !pool.is_named("10.0.0.0/24"));
    }

    #[test]
    fn selectors_mode_and_use_are_heeded() {
        let chosen =
            pool(json!({"cidr": "10.0.0.0/16", "nodeSelector": "rack == 'a'", "allowedUses": ["Tunnel"]}))
                .unwrap();
        assert!(chosen.offers_itself(&labels(&[("rack", "a")]), &labels(&[])));
        assert!(!chosen.selects_every_node());
        assert!(!chosen.offers_itself(&labels(&[("rack", "b")]), &labels(&[])));
        assert!(!chosen.allows(PoolUse::Workload));
        let manual = pool(json!({"cidr": "10.0.0.0/16", "assignmentMode": "Manual"})).unwrap();
        assert!(!manual.offers_itself(&labels(&[]), &labels(&[])));
        let by_namespace = pool(json!({"cidr": "10.0.0.0/16", "namespaceSelector": "team == 'x'"})).unwrap();
        assert!(!by_namespace.offers_itself(&labels(&[]), &labels(&[])));
    }

    #[test]
    fn pools_can_be_out_of_service() {
        assert!(!pool(json!({"cidr": "10.0.0.0/16", "disabled": true})).unwrap().is_enabled());
        let mut going = Resource::new(Kind::IpPool, "pool");
        going.spec_mut().insert("cidr".to_owned(), "10.0.0.0/16".into());
        going.metadata.extra.insert("deletionTimestamp".to_owned(), "2026-01-01T00:00:00Z".into());
        assert!(!Pool::new(&going).unwrap().is_enabled());
        going.metadata.extra.clear();
        going
            .body
            .insert("status".to_owned(), json!({"conditions": [{"type": "Allocatable", "status": "False"}]}));
        assert!(!Pool::new(&going).unwrap().is_enabled());
    }

    #[test]
    fn a_broken_pool_is_named() {
        let error = pool(json!({"cidr": "10.0.0.0/16", "nodeSelector": "rack =="})).unwrap_err();
        assert_eq!(error.to_string(), "IPPool(pool): nodeSelector \"rack ==\" cannot be understood");
        assert!(pool(json!({"cidr": "ten"})).is_err());
        assert!(pool(json!({"cidr": "10.0.0.0/16", "blockSize": 300})).is_err());
    }
}
