//! The failpoints of `plumbd`, see [`wire::failpoint`]. A point that is not armed costs one comparison.

use host::Halfway;
use wire::failpoint;

macro_rules! points {
    ($($variant:ident = $name:literal),+ $(,)?) => {
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub(crate) enum Point { $($variant),+ }

        impl Point {
            pub(crate) const ALL: &[Point] = &[$(Point::$variant),+];

            pub(crate) fn name(self) -> &'static str {
                match self { $(Point::$variant => $name),+ }
            }
        }
    };
}

points! {
    AddStart = "add.start",
    AddFenced = "add.fenced",
    AddBeforeQueued = "add.before-queued",
    AddAfterQueued = "add.after-queued",
    AddBeforeRecords = "add.before-records",
    AddAfterRecords = "add.after-records",
    AddDelegated = "add.delegated",
    AddBeforeLink = "add.before-link",
    AddAfterLink = "add.after-link",
    AddBeforeWiring = "add.before-wiring",
    AddHalfWired = "add.half-wired",
    AddAfterWiring = "add.after-wiring",
    AddBeforePolicy = "add.before-policy",
    AddBeforeJournal = "add.before-journal",
    AddJournalWritten = "add.journal-written",
    AddAfterJournal = "add.after-journal",
    AddBeforeAnswer = "add.before-answer",
    AddBeforeUndo = "add.before-undo",
    AddUndoDetached = "add.undo-detached",
    AddUndoReleased = "add.undo-released",
    AddAfterUndo = "add.after-undo",
    AddressesBefore = "addresses.before",
    AddressesGiven = "addresses.given",
    AddressesGateway = "addresses.gateway",
    AddressesAfter = "addresses.after",
    DelStart = "del.start",
    DelFenced = "del.fenced",
    DelBeforeKernel = "del.before-kernel",
    DelHalfDetached = "del.half-detached",
    DelAfterKernel = "del.after-kernel",
    DelBeforeRecords = "del.before-records",
    DelAfterRecords = "del.after-records",
    DelBeforeJournal = "del.before-journal",
    DelAfterJournal = "del.after-journal",
    DelBeforeQueue = "del.before-queue",
    DelQueueWritten = "del.queue-written",
    DelQueueRenamed = "del.queue-renamed",
    DelAfterQueue = "del.after-queue",
    DelBeforeAnswer = "del.before-answer",
    GcStart = "gc.start",
    GcBeforeRelease = "gc.before-release",
    GcDetached = "gc.detached",
    GcForgotten = "gc.forgotten",
    GcAfterRelease = "gc.after-release",
    GcEnd = "gc.end",
    SweepBefore = "sweep.before",
    SweepAfter = "sweep.after",
    CollectBefore = "collect.before",
    CollectDetached = "collect.detached",
    CollectForgotten = "collect.forgotten",
    CollectAfter = "collect.after",
    AdoptBefore = "adopt.before",
    AdoptClaimed = "adopt.claimed",
    AdoptAfter = "adopt.after",
    QueueBefore = "queue.before",
    QueueFinished = "queue.finished",
    QueueAfter = "queue.after",
    StartBegin = "start.begin",
    StartLocked = "start.locked",
    StartJournalRead = "start.journal-read",
    StartSocketRemoved = "start.socket-removed",
    StartSocketBound = "start.socket-bound",
    StartStoreOpen = "start.store-open",
    BootstrapBeforeRecord = "bootstrap.before-record",
    BootstrapAfterRecord = "bootstrap.after-record",
    BootstrapInformation = "bootstrap.information",
    BootstrapNode = "bootstrap.node",
    BootstrapPools = "bootstrap.pools",
    BootstrapTiers = "bootstrap.tiers",
    BootstrapSettings = "bootstrap.settings",
    StartBootstrapped = "start.bootstrapped",
    StartBeforeReconcile = "start.before-reconcile",
    StartBeforeRemake = "start.before-remake",
    StartAfterRemake = "start.after-remake",
    StartReconciled = "start.reconciled",
    StartReady = "start.ready",
    BetweenBeforeTunnel = "between.before-tunnel",
    BetweenTunnelMade = "between.tunnel-made",
    BetweenAfterTunnel = "between.after-tunnel",
    BetweenBeforeRoutes = "between.before-routes",
    BetweenRoutesHalf = "between.routes-half",
    BetweenAfterRoutes = "between.after-routes",
    BetweenBeforeRules = "between.before-rules",
    BetweenAfterRules = "between.after-rules",
    BetweenBeforeRetire = "between.before-retire",
    BetweenAfterRetire = "between.after-retire",
    PolicyBeforeRules = "policy.before-rules",
    PolicyAfterRules = "policy.after-rules",
    BgpConfigWritten = "bgp.config-written",
    BgpConfigChecked = "bgp.config-checked",
    BgpConfigPlaced = "bgp.config-placed",
    BgpStarted = "bgp.started",
    BgpBeforeConfigure = "bgp.before-configure",
    BgpConfigured = "bgp.configured",
}

/// Marks a place. Does nothing unless the environment names it. Another thread takes over this thread's tasks while it is held.
pub(crate) fn hit(point: Point) {
    let Some(action) = failpoint::armed(point.name()) else { return };
    let act = || failpoint::act(point.name(), action);
    match tokio::runtime::Handle::try_current().map(|runtime| runtime.runtime_flavor()) {
        Ok(tokio::runtime::RuntimeFlavor::MultiThread) => tokio::task::block_in_place(act),
        _ => act(),
    }
}

/// The same in the middle of kernel work.
pub(crate) fn hit_halfway(halfway: Halfway) {
    match halfway {
        Halfway::Wired => hit(Point::AddHalfWired),
        Halfway::Detached => hit(Point::DelHalfDetached),
        Halfway::TunnelMade => hit(Point::BetweenTunnelMade),
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn every_point_has_a_name_of_its_own_and_a_place() {
        let names: BTreeSet<&str> = Point::ALL.iter().map(|point| point.name()).collect();
        assert_eq!(names.len(), Point::ALL.len());
        let source = sources(std::path::Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/src")));
        let source = source + include_str!("failpoint.rs");
        for point in Point::ALL {
            assert!(source.contains(&format!("hit(Point::{point:?})")), "nothing passes {}", point.name());
        }
    }

    fn sources(directory: &std::path::Path) -> String {
        let mut text = String::new();
        for entry in std::fs::read_dir(directory).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                text += &sources(&path);
            } else if !path.ends_with("failpoint.rs") {
                text += &std::fs::read_to_string(&path).unwrap();
            }
        }
        text
    }
}
