//! Addresses that the operator names.

use std::collections::BTreeSet;
use std::io::Write as _;
use std::net::IpAddr;

use ipam::{ReleaseItem, Why, is_cooling_down};

use super::super::SERVICE_ATTRIBUTE;
use super::{Releaser, explain, in_use, open};
use crate::cli::{Global, IpamRelease};
use crate::failure::{Failure, Failures};
use crate::write::{Writer, warn_if_locked};

const FORCE: &str = "--force releases it anyway; the address may then be allocated a second time";

pub(super) async fn run(global: &Global, release: &IpamRelease) -> Result<(), Failures> {
    let store = open(global, release).await?;
    let dry_run = release.dry_run.dry_run;
    warn_if_locked(&Writer::new(store.clone(), dry_run)).await;
    let addresses: BTreeSet<IpAddr> = release.ip.iter().copied().collect();
    if !release.force {
        refuse_used(&in_use::users(&store, &addresses).await?)?;
    }
    let releaser = Releaser::new(store, dry_run);
    let mut failures = Vec::new();
    for address in addresses {
        match release_one(&releaser, address, release.force).await {
            Ok(()) => tell(address, dry_run)?,
            Err(failure) => failures.push(failure),
        }
    }
    Failures::collect(failures)
}

/// All or nothing: a list with one wrong address in it is a wrong list.
fn refuse_used(users: &std::collections::BTreeMap<IpAddr, String>) -> Result<(), Failures> {
    let refuse = |(address, user): (&IpAddr, &String)| {
        Failure::new(format!("IP address {address} is in use by {user}; nothing was released")).hint(FORCE)
    };
    Failures::collect(users.iter().map(refuse).collect())
}

/// Releases exactly the allocation that was looked at: one that is made in between is another's.
async fn release_one(releaser: &Releaser, address: IpAddr, force: bool) -> Result<(), Failure> {
    let unassigned = || Failure::new(format!("IP address {address} is not assigned"));
    let found = releaser.book.lookup(address).await.map_err(explain)?;
    let found = found.filter(|found| !is_cooling_down(&found.attribute)).ok_or_else(unassigned)?;
    if let Some(service) = found.attribute.secondary.get(SERVICE_ATTRIBUTE).filter(|_| !force) {
        return Err(Failure::new(format!("IP address {address} is held for service {service}")).hint(FORCE));
    }
    let item = ReleaseItem {
        address,
        handle: found.attribute.handle().cloned(),
        sequence_number: Some(found.sequence_number),
    };
    let outcome = releaser.release(vec![item]).await?;
    match outcome.unreleased.into_iter().next().map(|unreleased| unreleased.why) {
        None => Ok(()),
        Some(Why::NotAllocated) => Err(unassigned()),
        Some(why) => Err(Failure::new(format!("IP address {address} was not released")).caused_by(&why)),
    }
}

fn tell(address: IpAddr, dry_run: bool) -> std::io::Result<()> {
    let done = if dry_run { "Dry run: would release" } else { "Successfully released" };
    writeln!(std::io::stdout(), "{done} IP address {address}")
}
