//! `plumb ipam split`: several smaller pools in the place of a large one. Blocks and addresses stay as they are.

use std::io::Write as _;
use std::net::IpAddr;
use std::sync::Arc;

use model::validate::validate;
use model::{Cidr, KeyRange, Kind, Resource};
use serde_json::Value;
use store::{Change, MAX_CHANGES, Record, Revision, Store};

use super::cluster::Cluster;
use crate::cli::{Global, IpamSplit};
use crate::failure::{Failure, Failures};
use crate::records;
use crate::write::born;
use crate::{compat, connect};

/// More pools than this at once are a mistake rather than a plan.
const PARTS_MAX: u32 = 1024;
/// How long the name of a pool may be. The old name is cut if the new one would be longer, as calicoctl does it.
const NAME_LENGTH_MAX: usize = 253;

pub(crate) async fn run(global: &Global, split: &IpamSplit) -> Result<(), Failures> {
    if !split.number.is_power_of_two() || split.number < 2 || split.number > PARTS_MAX {
        return Err(Failure::usage(format!("a pool cannot be split into {} parts", split.number))
            .hint(format!("use 2, 4, 8 or another power of two up to {PARTS_MAX}"))
            .into());
    }
    let dry_run = split.dry_run.dry_run;
    let store = match dry_run {
        true => connect::open_for_reading(global).await?,
        false => connect::open_for_changing(global).await?,
    };
    let cluster = Cluster::read(&store).await?;
    let (true, Some(locked_at)) = (cluster.is_locked, cluster.revision) else {
        return Err(Failure::new("the datastore is not locked: addresses could be allocated during the split")
            .hint("lock it with plumb datastore migrate lock, split, then unlock it with plumb datastore migrate unlock")
            .in_calicoctl(
                "datastore is not locked. Run the `calicoctl datastore migrate lock` command in order split the IP pools",
            )
            .into());
    };
    let (stored, _) = store.list_all(KeyRange::Kind(Kind::IpPool)).await?;
    let plan = Plan::new(split, &stored)?;
    if !dry_run {
        plan.carry_out(&store, locked_at).await?;
    }
    Ok(plan.tell(dry_run)?)
}

/// The pool that goes, and the pools that come.
struct Plan {
    old: Resource,
    record: Record,
    parts: Vec<Resource>,
    /// Of the parts, those that are there already: an earlier split did not come to its end.
    existing: Vec<bool>,
}

impl Plan {
    fn new(split: &IpamSplit, stored: &[Record]) -> Result<Plan, Failure> {
        let (old, record) = find(split, stored)?;
        let parts = parts(&old, split.number)?;
        let pools = stored.iter().map(records::to_resource).collect::<Result<Vec<_>, _>>()?;
        let mut existing = Vec::new();
        for part in &parts {
            let same_name = pools.iter().find(|pool| pool.metadata.name == part.metadata.name);
            match same_name {
                None => existing.push(false),
                Some(found) if found.spec("cidr") == part.spec("cidr") => existing.push(true),
                Some(found) => {
                    let cidr = found.spec("cidr").and_then(Value::as_str).unwrap_or_default();
                    let name = &part.metadata.name;
                    return Err(Failure::new(format!("pool {name} already exists, with CIDR {cidr}"))
                        .hint("delete or rename it first"));
                }
            }
        }
        Ok(Plan { old, record, parts, existing })
    }

    /// In one commit if it fits. Otherwise the old pool is disabled first and goes with the last of the new ones, and
    /// whoever is stopped in between goes on by giving the same command again.
    async fn carry_out(&self, store: &Arc<dyn Store>, locked_at: Revision) -> Result<(), Failure> {
        let missing = self.parts.iter().zip(&self.existing).filter(|(_, exists)| !**exists);
        let creations: Vec<Change> =
            missing.map(|(part, _)| Change::create(part.key(), born(part.clone()).encode())).collect();
        // Besides its own changes, each commit relies on the lock and changes or removes the old pool.
        let batches: Vec<&[Change]> = creations.chunks(MAX_CHANGES - 2).collect();
        let lock = Change::require(Cluster::key(), locked_at);
        let mut old_at = self.record.revision.clone();
        if batches.len() > 1 || !store.capabilities().atomic_commits {
            let mut disabled = self.old.clone();
            disabled.spec_mut().insert("disabled".to_owned(), true.into());
            let update = Change::update(self.record.key.clone(), disabled.encode(), old_at);
            let committed = store.commit(vec![lock.clone(), update]).await.map_err(Failure::from)?;
            old_at = committed.revisions[1].clone();
        }
        let resume = "nothing is lost; run the same command again to continue";
        let (last, before) =
            batches.split_last().map_or((&[][..], &[][..]), |(last, before)| (*last, before));
        for batch in before {
            let changes = [&[lock.clone(), Change::require(self.record.key.clone(), old_at.clone())], *batch];
            store.commit(changes.concat()).await.map_err(|error| Failure::from(error).hint(resume))?;
        }
        let changes = [&[lock], last, &[Change::delete(self.record.key.clone(), old_at)]].concat();
        store.commit(changes).await.map_err(|error| Failure::from(error).hint(resume))?;
        Ok(())
    }

    fn tell(&self, dry_run: bool) -> std::io::Result<()> {
        let mut out = std::io::stdout().lock();
        let (name, count) = (&self.old.metadata.name, self.parts.len());
        let (done, created) = match dry_run {
            true => ("Dry run: IP Pool", "Would create"),
            false => ("IP Pool", "Created"),
        };
        let was = if dry_run { "would be" } else { "was successfully" };
        let end = if compat::is_strict() { "" } else { "\n" };
        write!(out, "{done} {name} {was} split into {count} smaller pools.{end}")?;
        for part in &self.parts {
            let cidr = part.spec("cidr").and_then(Value::as_str).unwrap_or_default();
            writeln!(out, "{created} {} with CIDR {cidr}.", part.metadata.name)?;
        }
        if !dry_run {
            match compat::is_strict() {
                true => write!(out, "Please refer to the documentation for final steps.")?,
                false => writeln!(out, "You may now unlock the data store.")?,
            }
        }
        Ok(())
    }
}

fn find(split: &IpamSplit, stored: &[Record]) -> Result<(Resource, Record), Failure> {
    let mut unreadable = None;
    for record in stored {
        let pool = match records::to_resource(record) {
            Ok(pool) => pool,
            Err(failure) => {
                unreadable = Some(failure);
                continue;
            }
        };
        let is_meant = match (&split.name, &split.cidr) {
            (Some(name), _) => pool.metadata.name == *name,
            (None, Some(cidr)) => network(&pool).is_some() && network(&pool) == Cidr::parse_masked(cidr).ok(),
            (None, None) => false,
        };
        if is_meant {
            return Ok((pool, record.clone()));
        }
    }
    let missing = match (&split.name, &split.cidr) {
        (Some(name), _) => format!("IP pool {name} does not exist"),
        (None, cidr) => format!("no IP pool has the CIDR {}", cidr.as_deref().unwrap_or_default()),
    };
    Err(unreadable.unwrap_or_else(|| Failure::new(missing).hint("plumb get ippools lists them")))
}

fn network(pool: &Resource) -> Option<Cidr> {
    Cidr::parse_masked(pool.spec("cidr")?.as_str()?).ok()
}

/// The new pools: like the old one, each with its part of the network, and in service.
fn parts(old: &Resource, number: u32) -> Result<Vec<Resource>, Failure> {
    let name = &old.metadata.name;
    let Some(whole) = network(old) else {
        return Err(Failure::new(format!("IP pool {name} has no valid CIDR to split")));
    };
    let unusable = |why: String| {
        Failure::new(format!("IP pool {name} ({whole}) cannot be split into {number} parts: {why}"))
            .hint("split it into fewer parts")
    };
    let networks = networks(&whole, number).ok_or_else(|| unusable("it is not large enough".to_owned()))?;
    let mut parts = Vec::new();
    for (index, cidr) in networks.iter().enumerate() {
        let mut part = old.clone();
        part.metadata.name = part_name(name, index);
        part.metadata.uid = None;
        part.metadata.resource_version = None;
        part.metadata.creation_timestamp = None;
        for of_the_old in ["generateName", "generation", "selfLink", "managedFields"] {
            part.metadata.extra.remove(of_the_old);
        }
        part.body.remove("status");
        part.spec_mut().insert("cidr".to_owned(), cidr.to_string().into());
        part.spec_mut().remove("disabled");
        if let Some(violation) = validate(&part).into_iter().next() {
            return Err(unusable(violation.to_string()));
        }
        parts.push(part);
    }
    Ok(parts)
}

fn part_name(name: &str, index: usize) -> String {
    let whole = format!("split-{name}-{index}");
    let excess = whole.len().saturating_sub(NAME_LENGTH_MAX);
    match name.get(..name.len().saturating_sub(excess)) {
        Some(cut) if excess > 0 => format!("split-{cut}-{index}"),
        _ => whole,
    }
}

/// The network in equal parts; `None` if there are not that many addresses.
fn networks(whole: &Cidr, number: u32) -> Option<Vec<Cidr>> {
    let prefix_len = u8::try_from(u32::from(whole.prefix_len()) + number.trailing_zeros()).ok()?;
    let bits = whole.version().bits();
    let host_bits = u32::from(bits.checked_sub(prefix_len)?);
    let first = match whole.network() {
        IpAddr::V4(first) => u128::from(u32::from(first)),
        IpAddr::V6(first) => u128::from(first),
    };
    let part = |index: u32| {
        let start = first + (u128::from(index) << host_bits);
        let address = match whole.network() {
            IpAddr::V4(_) => IpAddr::V4(u32::try_from(start).ok()?.into()),
            IpAddr::V6(_) => IpAddr::V6(start.into()),
        };
        Cidr::containing(address, prefix_len)
    };
    (0..number).map(part).collect()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn networks_are_cut_into_equal_parts() {
        let cases = [
            ("10.0.0.0/8", 2, vec!["10.0.0.0/9", "10.128.0.0/9"]),
            (
                "192.0.2.252/30",
                4,
                vec!["192.0.2.252/32", "192.0.2.253/32", "192.0.2.254/32", "192.0.2.255/32"],
            ),
            ("fd00::/64", 2, vec!["fd00::/65", "fd00::8000:0:0:0/65"]),
            ("::/0", 2, vec!["::/1", "8000::/1"]),
        ];
        for (whole, number, expected) in cases {
            let parts = networks(&whole.parse().unwrap(), number).unwrap();
            assert_eq!(parts.iter().map(ToString::to_string).collect::<Vec<_>>(), expected, "{whole}");
        }
        assert_eq!(networks(&"192.0.2.252/30".parse().unwrap(), 8), None);
        assert_eq!(networks(&"fd00::1/128".parse().unwrap(), 2), None);
    }

    proptest! {
        #[test]
        fn parts_neither_overlap_nor_leave_anything_out(address: u32, prefix_len in 0u8..=32, halvings in 1u32..=8) {
            let whole = Cidr::containing(IpAddr::V4(address.into()), prefix_len).unwrap();
            if let Some(parts) = networks(&whole, 1 << halvings) {
                prop_assert_eq!(parts.len(), 1 << halvings);
                for pair in parts.windows(2) {
                    prop_assert!(!pair[0].overlaps(&pair[1]) && pair[0] < pair[1]);
                }
                for part in &parts {
                    prop_assert!(whole.contains_cidr(part));
                    prop_assert_eq!(u32::from(part.prefix_len()), u32::from(prefix_len) + halvings);
                }
            }
        }
    }

    #[test]
    fn long_names_are_cut_as_calicoctl_cuts_them() {
        assert_eq!(part_name("pods", 3), "split-pods-3");
        assert_eq!(part_name(&"a".repeat(253), 1), format!("split-{}-1", "a".repeat(245)));
        assert_eq!(part_name(&"a".repeat(253), 12).len(), 253);
    }
}
