//! What reports of a check call leaked.

use std::collections::BTreeSet;
use std::io::Write as _;
use std::net::IpAddr;
use std::path::PathBuf;

use book::HandleRequest;
use book::load::{self, Progress};
use ipam::{ReleaseItem, Unreleased, Why};
use model::{HandleId, Key};
use store::{Lookup, MAX_CHANGES, Record, StoreError};
use tokio::task::JoinSet;

use super::super::cluster::Cluster;
use super::super::report::{self, LeakedHandle};
use super::super::reports::{Leaks, Report};
use super::{Outcome, Releaser, explain, in_use, open};
use crate::cli::{Global, IpamRelease};
use crate::compat;
use crate::failure::{Failure, Failures, Problems};
use crate::progress;

/// How many addresses are released before it is looked whether the store is still locked.
const PORTION: usize = 500;

pub(super) async fn run(global: &Global, release: &IpamRelease) -> Result<(), Failures> {
    let read = |path: &PathBuf| Ok::<_, Failure>((path.display().to_string(), Report::read(path)?));
    let reports: Vec<(String, Report)> = release.from_report.iter().map(read).collect::<Result<_, _>>()?;
    let store = open(global, release).await?;
    check(&reports, &Cluster::read(&store).await?, release.force)?;
    let reports: Vec<Report> = reports.into_iter().map(|(_, report)| report).collect();
    let leaks = Leaks::in_all(&reports);
    let addresses: BTreeSet<IpAddr> = leaks.addresses.keys().copied().collect();
    // Whatever a report says: what is in use now is not leaked. calicoctl's, for one, do not know IPv6 tunnels.
    let users = match addresses.is_empty() {
        true => Default::default(),
        false => in_use::users(&store, &addresses).await?,
    };
    let items = leaks.addresses.into_values().filter(|item| !users.contains_key(&item.address)).collect();
    let releaser = Releaser::new(store, release.dry_run.dry_run);
    let mut work = Work { releaser, must_be_locked: !release.force, problems: Problems::default() };
    work.release_addresses(items, users.len()).await?;
    work.delete_handles(leaks.handles.into_values().collect()).await?;
    work.problems.finish()?;
    if !work.releaser.dry_run {
        writeln!(std::io::stdout(), "You may now unlock the data store.")?;
    }
    Ok(())
}

/// Whether the reports may be acted on, by calicoctl's rules.
fn check(reports: &[(String, Report)], cluster: &Cluster, force: bool) -> Result<(), Failure> {
    for (path, report) in reports {
        if cluster.guid.is_empty() || report.cluster_guid != cluster.guid {
            return Err(Failure::new(format!(
                "{path} is a report of another cluster: its clusterGUID is {:?}, that of this cluster is {:?}",
                report.cluster_guid, cluster.guid
            )));
        }
        if report.version != report::version() {
            overridable(
                format!(
                    "{path} was written by another version ({}, this is {})",
                    report.version,
                    report::version()
                ),
                "create a new report with plumb ipam check -o FILE, or use this one anyway with --force",
                force,
            )?;
        }
    }
    let revision = cluster.revision.as_ref().map_or("", |revision| revision.as_str());
    if !reports.iter().any(|(_, report)| report.cluster_revision == revision) {
        return Err(Failure::new(
            "the reports are stale: the datastore was locked or unlocked since they were created",
        )
        .in_calicoctl(
            "the provided reports are all stale - at least one should be up-to-date. Please generate a new report while the \
             data store is locked and try again",
        )
        .hint("lock the datastore, create a new report with plumb ipam check -o FILE, and pass it in addition to the others"));
    }
    match cluster.is_locked {
        true => Ok(()),
        false => overridable(
            "the datastore is not locked".to_owned(),
            "lock it with plumb datastore migrate lock and create a new report, or use --force",
            force,
        )
        .map_err(|failure| {
            failure
                .in_calicoctl("data store is not locked. Either lock the data store, or re-run with --force")
        }),
    }
}

fn overridable(message: String, hint: &str, force: bool) -> Result<(), Failure> {
    if force {
        compat::say(&format!("warning: {message}; continuing because of --force"));
        return Ok(());
    }
    Err(Failure::new(message).hint(hint))
}

struct Work {
    releaser: Releaser,
    must_be_locked: bool,
    problems: Problems,
}

impl Work {
    async fn release_addresses(&mut self, items: Vec<ReleaseItem>, in_use: usize) -> Result<(), Failure> {
        let mut out = std::io::stdout();
        let total = items.len();
        if total + in_use == 0 {
            writeln!(out, "Report didn't contain any leaked IPs to clean up.")?;
            return Ok(());
        }
        writeln!(out, "Releasing {total} old IPs...")?;
        let bar = progress::bar(total);
        let mut sum = Outcome::default();
        for portion in items.chunks(PORTION) {
            match self.release_portion(portion).await {
                Ok(outcome) => {
                    sum.released += outcome.released;
                    sum.unreleased.extend(outcome.unreleased);
                }
                Err(failure) => {
                    bar.finish_and_clear();
                    writeln!(out, "Released {} IPs before the error.", sum.released)?;
                    return Err(failure.within("not all addresses of the report were released"));
                }
            }
            bar.inc(portion.len() as u64);
        }
        bar.finish_and_clear();
        self.tell(sum, in_use)?;
        Ok(())
    }

    async fn release_portion(&self, portion: &[ReleaseItem]) -> Result<Outcome, Failure> {
        if self.must_be_locked && !Cluster::read(&self.releaser.store).await?.is_locked {
            return Err(Failure::new("the datastore was unlocked since the release began"));
        }
        self.releaser.release(portion.to_vec()).await
    }

    fn tell(&mut self, sum: Outcome, in_use: usize) -> std::io::Result<()> {
        let mut out = std::io::stdout();
        match self.releaser.dry_run {
            true => writeln!(out, "Dry run: {} IPs would be released", sum.released)?,
            false => writeln!(out, "Released {} IPs successfully", sum.released)?,
        }
        let (mut gone, mut anew) = (0, 0);
        for Unreleased { item, why } in sum.unreleased {
            match why {
                Why::NotAllocated => gone += 1,
                Why::OtherHandle(_) | Why::OtherNumber(_) => anew += 1,
                Why::Corrupt(corrupt) => {
                    let failure = Failure::new(format!("{} was not released", item.address));
                    self.problems.push(failure.caused_by(&corrupt));
                }
            }
        }
        for (count, what) in [
            (gone, "addresses marked as leaked in the report had already been cleaned up."),
            (anew, "addresses were allocated again since the report, and were skipped."),
            (in_use, "addresses are in use now, and were skipped."),
        ] {
            if count > 0 {
                writeln!(out, "{count} {what}")?;
            }
        }
        Ok(())
    }

    /// Handles that are still as the report saw them, and that the blocks they name still do not mention.
    async fn delete_handles(&mut self, handles: Vec<LeakedHandle>) -> Result<(), Failure> {
        let mut out = std::io::stdout();
        if handles.is_empty() {
            writeln!(out, "Report didn't contain any handles to clean up.")?;
            return Ok(());
        }
        // Whatever a report says: a block that cannot be read may hold addresses of any handle.
        let unreadable = load::unreadable_blocks(&*self.releaser.store, &Progress::default()).await?;
        if let Some(corrupt) = unreadable.first() {
            let failure = Failure::new(format!(
                "{} handles were not deleted: {} cannot be read and may hold their addresses",
                handles.len(),
                corrupt.key
            ));
            self.problems.push(
                failure.hint("rebuild the block with plumb repair ipam --apply, then create a new report"),
            );
            return Ok(());
        }
        writeln!(out, "Deleting {} handles...", handles.len())?;
        let bar = progress::bar(handles.len());
        let (mut deleted, mut errors) = (0, 0);
        for portion in handles.chunks(MAX_CHANGES) {
            let unchanged = self.unchanged(portion).await?;
            if self.releaser.dry_run {
                deleted += unchanged.len();
                continue;
            }
            let failed = self.put_right(&unchanged).await;
            let left = self.read(&unchanged).await?.into_iter().flatten().count();
            errors += failed;
            deleted += unchanged.len() - left;
            bar.inc(portion.len() as u64);
        }
        bar.finish_and_clear();
        let skipped = handles.len() - deleted - errors;
        match self.releaser.dry_run {
            true => writeln!(out, "Dry run: {deleted} handles would be released; {skipped} skipped.")?,
            false => writeln!(out, "Released {deleted} handles; {skipped} skipped; {errors} errors.")?,
        }
        Ok(())
    }

    async fn unchanged(&self, handles: &[LeakedHandle]) -> Result<Vec<HandleId>, StoreError> {
        let ids: Vec<HandleId> = handles.iter().map(|handle| handle.id.clone()).collect();
        let found = self.read(&ids).await?;
        // Only the Kubernetes store has UIDs: elsewhere a report with one is of another store. There no two objects ever have
        // the same revision, so that is enough.
        let has_uids = !self.releaser.store.capabilities().endpoints_are_records;
        let is_same = |(handle, record): &(&LeakedHandle, Option<Record>)| {
            let is_at = record.as_ref().is_some_and(|record| record.revision.as_str() == handle.revision);
            is_at && (has_uids || handle.uid.is_none())
        };
        Ok(handles.iter().zip(found).filter(is_same).map(|(handle, _)| handle.id.clone()).collect())
    }

    /// Makes handles say what their blocks say, which for these is nothing: then they go. Says how many failed.
    async fn put_right(&mut self, ids: &[HandleId]) -> usize {
        let mut under_way = JoinSet::new();
        for id in ids {
            let (book, request) = (self.releaser.book.clone(), HandleRequest::only(id, |_, _, _| false));
            under_way.spawn(async move { book.release_handle(request).await });
        }
        let mut failed = 0;
        while let Some(done) = under_way.join_next().await {
            let failure = match done {
                Ok(Ok(_)) => continue,
                Ok(Err(error)) => explain(error),
                Err(error) => Failure::new("deleting a handle failed").caused_by(&error),
            };
            failed += 1;
            self.problems.push(failure);
        }
        failed
    }

    async fn read(&self, ids: &[HandleId]) -> Result<Vec<Option<Record>>, StoreError> {
        if ids.is_empty() {
            return Ok(Vec::new());
        }
        let lookups = ids.iter().map(|id| Lookup::Record(Key::Handle(id.clone()))).collect();
        let found = self.releaser.store.read(lookups).await?;
        Ok(found.into_iter().map(|mut records| records.pop()).collect())
    }
}
