//! IPPool: rules over several fields, what may not change, and what depends on other records.

use serde_json::Value;

use super::fields::Fields;
use super::{Report, Violation, shown};
use crate::cidr::{Cidr, IpVersion};
use crate::{Kind, Resource};

const LINK_LOCAL: [&str; 2] = ["169.254.0.0/16", "fe80::/10"];

/// The fields that the rules look at, as far as they can be read.
struct Pool<'a> {
    spec: Fields<'a>,
    cidr: Option<Cidr>,
    block_size: Option<u64>,
}

impl<'a> Pool<'a> {
    fn of(resource: &'a Resource) -> Pool<'a> {
        let spec = Fields::of_spec(resource);
        let cidr = Cidr::parse_masked(spec.text("cidr")).ok();
        let said = spec.value("blockSize").and_then(Value::as_u64).filter(|size| *size != 0);
        let block_size = said.or_else(|| cidr.map(default_block_size));
        Pool { spec, cidr, block_size }
    }

    fn allows(&self, wanted: &str) -> bool {
        self.spec.contains("allowedUses", wanted)
    }

    fn encapsulates(&self, field: &str) -> bool {
        !matches!(self.spec.text(field), "" | "Never")
    }
}

/// What a pool that does not say is cut into.
/// The prefix length of a pool's blocks where its record does not say.
pub fn default_block_size(cidr: Cidr) -> u64 {
    match cidr.version() {
        IpVersion::V4 => 26,
        IpVersion::V6 => 122,
    }
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
    let (Some(cidr), Some(size)) = (pool.cidr, pool.block_size) else { return };
    let (sizes, family) = match cidr.version() {
        IpVersion::V4 => (20..=32, "IPv4"),
        IpVersion::V6 => (116..=128, "IPv6"),
    };
    if !sizes.contains(&size) {
        let rule = format!("must be between {} and {} for an {family} pool", sizes.start(), sizes.end());
        report.broken(&pool.spec.path("blockSize"), size.to_string(), rule);
    } else if u64::from(cidr.prefix_len()) > size && !pool.spec.flag("disabled") {
        let rule = format!("is smaller than one block: must be /{size} or larger, or the pool disabled");
        report.broken(&pool.spec.path("cidr"), cidr.to_string(), rule);
    }
}

fn check_place(pool: &Pool<'_>, report: &mut Report) {
    let Some(cidr) = pool.cidr else { return };
    for range in LINK_LOCAL {
        let link_local: Cidr = range.parse().expect("a constant network");
        if cidr.overlaps(&link_local) {
            report.broken(
                &pool.spec.path("cidr"),
                cidr.to_string(),
                format!("must not overlap the link local range {range}"),
            );
        }
    }
}

fn check_encapsulation(pool: &Pool<'_>, report: &mut Report) {
    let (ipip, vxlan) = (pool.encapsulates("ipipMode"), pool.encapsulates("vxlanMode"));
    if ipip && vxlan {
        report.broken(
            &pool.spec.path("vxlanMode"),
            pool.spec.text("vxlanMode"),
            "must be Never while ipipMode is on",
        );
    }
    if ipip && pool.cidr.is_some_and(|cidr| cidr.version() == IpVersion::V6) {
        report.broken(
            &pool.spec.path("ipipMode"),
            pool.spec.text("ipipMode"),
            "must be Never for an IPv6 pool",
        );
    }
}

fn check_selectors(pool: &Pool<'_>, report: &mut Report) {
    for field in ["nodeSelector", "namespaceSelector"] {
        if pool.spec.text(field).contains("global(") {
            report.broken(&pool.spec.path(field), pool.spec.text(field), "must not use global()");
        }
    }
    if pool.allows("Tunnel") && !pool.spec.text("namespaceSelector").is_empty() {
        let rule = "must not be set while allowedUses has Tunnel";
        report.broken(&pool.spec.path("namespaceSelector"), pool.spec.text("namespaceSelector"), rule);
    }
}

fn check_load_balancer(pool: &Pool<'_>, report: &mut Report) {
    if pool.allows("Workload") || pool.allows("Tunnel") {
        report.broken(
            &pool.spec.path("allowedUses"),
            "LoadBalancer",
            "must not be combined with Workload or Tunnel",
        );
    }
    for field in ["ipipMode", "vxlanMode"] {
        if pool.encapsulates(field) {
            report.broken(
                &pool.spec.path(field),
                pool.spec.text(field),
                "must be Never for a LoadBalancer pool",
            );
        }
    }
    if pool.spec.flag("disableBGPExport") {
        report.broken(&pool.spec.path("disableBGPExport"), "true", "must be false for a LoadBalancer pool");
    }
    if !matches!(pool.spec.text("nodeSelector"), "" | "all()") {
        let rule = "must be all() for a LoadBalancer pool";
        report.broken(&pool.spec.path("nodeSelector"), pool.spec.text("nodeSelector"), rule);
    }
}

pub(super) fn check_update(old: &Resource, new: &Resource, report: &mut Report) {
    let (old, new) = (Pool::of(old), Pool::of(new));
    let advice = "create a new pool instead";
    if old.cidr != new.cidr {
        let rule = format!("cannot be changed (is {}): {advice}", old.spec.text("cidr"));
        report.broken(&new.spec.path("cidr"), new.spec.text("cidr"), rule);
    } else if old.block_size != new.block_size {
        let rule = format!("cannot be changed (is {}): {advice}", old.block_size.unwrap_or_default());
        report.broken(&new.spec.path("blockSize"), new.block_size.unwrap_or_default().to_string(), rule);
    }
    let stays = new.allows("LoadBalancer") && !new.allows("Workload") && !new.allows("Tunnel");
    if old.allows("LoadBalancer") && !stays {
        let value = new.spec.value("allowedUses").map(shown).unwrap_or_default();
        let rule = "cannot be changed from LoadBalancer to another use";
        report.broken(&new.spec.path("allowedUses"), value, rule);
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
        report.broken(&pool.spec.path("cidr"), cidr.to_string(), rule);
    }
    let stranger = blocks_in_cidr
        .iter()
        .find(|block| Some(u64::from(block.prefix_len())) != pool.block_size && block.overlaps(&cidr));
    if let Some(block) = stranger {
        let rule = format!("the pool's CIDR contains a block of another size: {block}");
        let size = pool.block_size.unwrap_or_default();
        report.broken(&pool.spec.path("blockSize"), size.to_string(), rule);
    }
    report.violations
}
