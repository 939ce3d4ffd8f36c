//! Outages that need a lab of their own, or of which only evidence is left.

use std::path::Path;
use std::process::Command;

use anyhow::{Context as _, Result, ensure};
use lab::Programs;
use lab::cluster::{Mode, OwnCluster};
use lab::replay;

use super::plan;
use super::story::{command, indented, note, show, step};

/// What the doctor must find in what people collected, and what it is called here.
const READ_ABOUT: [(&str, &str, &str); 2] = [
    ("shared-address", "address-shared", "Fourth outage, from collected evidence: pods share an address"),
    (
        "ipam-drift",
        "handle-by-name",
        "Fifth outage, from collected evidence: the IPAM records no longer match reality",
    ),
];
/// How much of a report is shown.
const LINES: usize = 12;

/// In a lab that speaks BGP.
pub(super) fn wrong_nic(programs: &Programs) -> Result<()> {
    step("Third outage, in a lab with BGP: a second NIC");
    let has_bird = Command::new("bird").arg("--version").output().is_ok();
    if !has_bird {
        note("skipped: bird is not installed (Debian package bird2)");
        return Ok(());
    }
    let cluster = OwnCluster::up(plan(programs, Mode::Bgp), &|_| {})?;
    replay::wrong_nic(&cluster, &indented)?;
    cluster.down()?;
    Ok(())
}

/// Each in a small lab: broken, found, repaired, taken back, repaired again.
pub(super) fn repaired(programs: &Programs) -> Result<()> {
    let plays: [(&str, usize, replay::Play); 2] = [
        ("The fourth outage live, fixed with plumb repair", 1, replay::shared_address),
        ("The fifth outage live, fixed with plumb repair", 3, replay::ipam_drift),
    ];
    for (title, nodes, play) in plays {
        step(title);
        let cluster = OwnCluster::up(lab::cluster::Plan { nodes, ..plan(programs, Mode::Direct) }, &|_| {})?;
        play(&cluster, &indented)?;
        cluster.down()?;
    }
    Ok(())
}

/// The doctor reads what is left of the others.
pub(super) fn from_evidence(programs: &Programs, incidents: &Path) -> Result<()> {
    for (incident, code, title) in READ_ABOUT {
        step(title);
        let folder = incidents.join(incident);
        let doctor = || {
            let mut doctor = Command::new(programs.plumb());
            doctor.args(["doctor", "--from"]).arg(&folder);
            doctor
        };
        let output = doctor().output().context("cannot run the doctor")?;
        let report = String::from_utf8_lossy(&output.stdout);
        ensure!(
            report.contains(&format!("[{code}]")),
            "{code} is not found in {}: {report}",
            folder.display()
        );
        command(&format!("plumb doctor --from {incident}"), "");
        show(&report.lines().take(LINES).collect::<Vec<_>>().join("\n"));
        note("(the rest of the report is not shown)");
    }
    Ok(())
}
