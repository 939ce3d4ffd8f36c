//! IPPool: rules over several fields, what may not change, and what depends on other records.

use serde_json::Value;

use super::{Report, Violation};
use crate::cidr::{Cidr, IpVersion};
use crate::path::FieldPath;
use crate::{Kind, Resource};

const LINK_LOCAL: [&str; 2] = ["169.254.0.0/16", "fe80::/10"];

/// The fields that the rules look at, as far as they can be read.
struct Pool<'a> {
    resource: &'a Resource,
    cidr: Option<Cidr>,
    block_size: Option<u64>,
}

impl<'a> Pool<'a> {
    fn of(resource: &'a Resource) -> Pool<'a> {
        let cidr =
            resource.spec("cidr").and_then(Value::as_str).and_then(|text| Cidr::parse_masked(text).ok());
        let block_size = resource.spec("blockSize").and_then(Value::as_u64).filter(|size| *size != 0);
        Pool { resource, cidr, block_size }
    }

    fn text(&self, field: &str) -> &str {
        self.resource.spec(field).and_then(Value::as_str).unwrap_or_default()
    }

    fn flag(&self, field: &str) -> bool {
        self.resource.spec(field).and_then(Value::as_bool).unwrap_or(false)
    }

    fn allows(&self, wanted: &str) -> bool {
        let uses = self.resource.spec("allowedUses").and_then(Value::as_array);
        uses.is_some_and(|uses| uses.iter().any(|given| given == wanted))
    }

    fn encapsulates(&self, field: &str) -> bool {
        !matches!(self.text(field), "" | "Never")
    }
}

fn spec(field: &str) -> FieldPath {
    FieldPath::root().key("spec").key(field)
}

pub(super) fn check(resource: &Resource, report: &mut Report) {
    let pool = Pool::of(resource);
    check_size(&pool, report);
    check_place(&pool, report);
    check_encapsulation(&pool, report);
    check_selectors(&pool, report);
    if pool.allows("LoadBalancer") {
        check_load_balancer(&pool, report);
    }
}

fn check_size(pool: &Pool<'_>, report: &mut Report) {
    let Some(cidr) = pool.cidr else { return };
    let (sizes, family, default) = match cidr.version() {
        IpVersion::V4 => (20..=32, "IPv4", 26),
        IpVersion::V6 => (116..=128, "IPv6", 122),
    };
    if let Some(size) = pool.block_size.filter(|size| !sizes.contains(size)) {
        let rule = format!("must be between {} and {} for an {family} pool", sizes.start(), sizes.end());
        report.broken(&spec("blockSize"), size.to_string(), rule);
        return;
    }
    let size = pool.block_size.unwrap_or(default);
    if u64::from(cidr.prefix_len()) > size && !pool.flag("disabled") {
        let rule = format!("is smaller than one block: must be /{size} or larger, or the pool disabled");
        report.broken(&spec("cidr"), cidr.to_string(), rule);
    }
}

fn check_place(pool: &Pool<'_>, report: &mut Report) {
    let Some(cidr) = pool.cidr else { return };
    for range in LINK_LOCAL {
        let link_local: Cidr = range.parse().expect("a constant network");
        if cidr.overlaps(&link_local) {
            report.broken(
                &spec("cidr"),
                cidr.to_string(),
                format!("must not overlap the link local range {range}"),
            );
        }
    }
}

fn check_encapsulation(pool: &Pool<'_>, report: &mut Report) {
    let (ipip, vxlan) = (pool.encapsulates("ipipMode"), pool.encapsulates("vxlanMode"));
    if ipip && vxlan {
        report.broken(&spec("vxlanMode"), pool.text("vxlanMode"), "must be Never while ipipMode is on");
    }
    if ipip && pool.cidr.is_some_and(|cidr| cidr.version() == IpVersion::V6) {
        report.broken(&spec("ipipMode"), pool.text("ipipMode"), "must be Never for an IPv6 pool");
    }
}

fn check_selectors(pool: &Pool<'_>, report: &mut Report) {
    for field in ["nodeSelector", "namespaceSelector"] {
        if pool.text(field).contains("global(") {
            report.broken(&spec(field), pool.text(field), "must not use global()");
        }
    }
    if pool.allows("Tunnel") && !pool.text("namespaceSelector").is_empty() {
        let rule = "must not be set while allowedUses has Tunnel";
        report.broken(&spec("namespaceSelector"), pool.text("namespaceSelector"), rule);
    }
}

fn check_load_balancer(pool: &Pool<'_>, report: &mut Report) {
    if pool.allows("Workload") || pool.allows("Tunnel") {
        report.broken(&spec("allowedUses"), "LoadBalancer", "must stand alone, without Workload and Tunnel");
    }
    for field in ["ipipMode", "vxlanMode"] {
        if pool.encapsulates(field) {
            report.broken(&spec(field), pool.text(field), "must be Never for a LoadBalancer pool");
        }
    }
    if pool.flag("disableBGPExport") {
        report.broken(&spec("disableBGPExport"), "true", "must be false for a LoadBalancer pool");
    }
    if !matches!(pool.text("nodeSelector"), "" | "all()") {
        let rule = "must be all() for a LoadBalancer pool";
        report.broken(&spec("nodeSelector"), pool.text("nodeSelector"), rule);
    }
}

pub(super) fn check_update(old: &Resource, new: &Resource, report: &mut Report) {
    let (old, new) = (Pool::of(old), Pool::of(new));
    let default =
        |cidr: Option<Cidr>| cidr.map(|cidr| if cidr.version() == IpVersion::V4 { 26 } else { 122 });
    if old.cidr != new.cidr {
        let rule = format!("cannot be changed (is {}): make a new pool instead", old.text("cidr"));
        report.broken(&spec("cidr"), new.text("cidr"), rule);
    } else if old.block_size.or(default(old.cidr)) != new.block_size.or(default(new.cidr)) {
        let was = old.block_size.or(default(old.cidr)).unwrap_or_default();
        let is = new.block_size.or(default(new.cidr)).unwrap_or_default();
        let rule = format!("cannot be changed (is {was}): make a new pool instead");
        report.broken(&spec("blockSize"), is.to_string(), rule);
    }
    let stays = new.allows("LoadBalancer") && !new.allows("Workload") && !new.allows("Tunnel");
    if old.allows("LoadBalancer") && !stays {
        let rule = "cannot be changed from LoadBalancer to another use";
        let value = new.resource.spec("allowedUses").map(super::shown).unwrap_or_default();
        report.broken(&spec("allowedUses"), value, rule);
    }
}

/// What a new pool breaks besides [`super::validate`]: it may not overlap another pool, and there may be no blocks
/// of another size in its network. Pools of the same name are the pool itself and are not compared.
pub fn validate_pool_against(
    new: &Resource,
    other_pools: &[Resource],
    blocks_in_cidr: &[Cidr],
) -> Vec<Violation> {
    let mut report = Report::default();
    let pool = Pool::of(new);
    let Some(cidr) = pool.cidr else { return Vec::new() };
    let others = other_pools
        .iter()
        .filter(|other| other.kind == Kind::IpPool && other.metadata.name != new.metadata.name);
    for other in others {
        let Some(taken) = Pool::of(other).cidr.filter(|taken| taken.overlaps(&cidr)) else { continue };
        let rule = format!("overlaps pool {} ({taken})", other.metadata.name);
        report.broken(&spec("cidr"), cidr.to_string(), rule);
    }
    let default = if cidr.version() == IpVersion::V4 { 26 } else { 122 };
    let size = pool.block_size.unwrap_or(default);
    let stranger =
        blocks_in_cidr.iter().find(|block| u64::from(block.prefix_len()) != size && block.overlaps(&cidr));
    if let Some(block) = stranger {
        let rule = format!("there is a block of another size in the pool's network: {block}");
        report.broken(&spec("blockSize"), size.to_string(), rule);
    }
    report.violations
}
