//! What no repair can mend is left to people with what they must do, instead of being offered again and again; and a BIRD that died is said to
//! be dead, although the node's agent answers.

use std::collections::BTreeSet;
use std::process::Command;

use anyhow::{Context as _, Result, ensure};
use lab::cluster::{Mode, StoreKind};
use model::FindingCode;
use serde_json::Value;

use crate::modes::{NODES, Town};
use crate::scene::{missing, plumb_at};

fn observed(mode: Mode) -> Result<Town> {
    let town = Town::up(mode, false)?;
    town.wait_until_clean()?;
    for node in NODES {
        town.lab.stop(node, "agent")?;
        town.lab.start(node, "agent", &["--observe", "--repair"])?;
    }
    town.wait_until_clean()?;
    Ok(town)
}

fn repair(town: &Town, words: &[&str]) -> Result<Value> {
    let folder = tempfile::tempdir()?;
    let mut plumb = plumb_at(&town.lab, &Default::default(), &["repair", "-o", "json"])?;
    plumb.args(words).args(["--grace", "0.2", "--settle", "0.02"]).env("PLUMB_REPAIRS", folder.path());
    let output = plumb.output()?;
    let errors = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "{}: {errors}", output.status);
    serde_json::from_slice(&output.stdout).context("a plan")
}

fn see_root(town: &Town, code: FindingCode, subject: &str) -> Result<()> {
    let expected = BTreeSet::from([(code, subject.to_owned())]);
    let verdict = town.audit()?;
    ensure!(verdict.roots == expected, "expected {expected:?}, found {:#}", verdict.report["findings"]);
    Ok(())
}

/// Nothing is offered, and of each finding it is said what a person must do.
fn see_that_people_are_told(town: &Town, words: &str, command: &str) -> Result<()> {
    let plan = repair(town, &[])?;
    ensure!(plan["steps"] == serde_json::json!([]), "offered: {:#}", plan["steps"]);
    let left = plan["left"].as_array().context("a list")?;
    ensure!(!left.is_empty(), "nothing is said: {plan:#}");
    let says = |left: &Value| left["why"].as_str().is_some_and(|why| why.contains(words));
    ensure!(left.iter().all(says), "{left:#?}");
    let commands = left.iter().flat_map(|left| left["commands"].as_array().into_iter().flatten());
    ensure!(
        commands.into_iter().any(|line| line.as_str().is_some_and(|line| line.contains(command))),
        "{left:#?}"
    );
    Ok(())
}

#[test]
fn what_no_repair_can_mend_is_left_with_what_people_must_do() {
    let test = "what_no_repair_can_mend_is_left_with_what_people_must_do";
    if let Some(reason) = missing(StoreKind::Sqlite) {
        return testkit::skip(test, &reason);
    }
    let town = observed(Mode::Direct).unwrap();
    let (pod, device) = (format!("pod {}", town.pods[0].key()), town.pods[0].device.clone());
    town.run(true, "ip link set eth0 down").unwrap();
    lab::wait_for("the kernel to tell the other end", || {
        see_root(&town, FindingCode::DeviceDown, &format!("device {device} on {}", NODES[0]))
    })
    .unwrap();
    see_that_people_are_told(&town, "the pod's own end is down", "ip link set eth0 up").unwrap();
    // What they are told helps: the rest is the repair's.
    town.run(true, "ip link set eth0 up").unwrap();
    repair(&town, &["--apply"]).unwrap();
    town.wait_until_clean().unwrap();
    town.run(true, &format!("ping -n -q -c 1 -W 5 {}", town.address(1, true).unwrap())).unwrap();
    let namespace = town.pods[0].netns.rsplit('/').next().unwrap_or_default().to_owned();
    town.run(false, &format!("ip netns del {namespace}")).unwrap();
    // The kernel removes what was in it in its own time.
    lab::wait_for("the namespace to be gone", || see_root(&town, FindingCode::PodNamespaceGone, &pod))
        .unwrap();
    see_that_people_are_told(&town, "delete the pod", "kubectl delete pod").unwrap();
}

fn status(town: &Town, node: &str) -> Result<(Option<i32>, String)> {
    let plumb = lab::Programs::of_test()?.folder().join("plumb");
    let mut command: Command = town.lab.command_on(node)?;
    let output = command.arg(plumb).args(["node", "status"]).output()?;
    let said =
        String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr);
    Ok((output.status.code(), said))
}

/// Killed, it leaves its socket; stopped, it takes it along.
#[test]
fn a_bird_that_died_is_not_running_although_the_agent_answers() {
    let test = "a_bird_that_died_is_not_running_although_the_agent_answers";
    if let Some(reason) = missing(StoreKind::Sqlite) {
        return testkit::skip(test, &reason);
    }
    let town = Town::up(Mode::Bgp, false).unwrap();
    town.wait_until_clean().unwrap();
    let first = NODES[0];
    let (code, said) = status(&town, first).unwrap();
    assert!(code == Some(0) && said.contains("Calico process is running."), "{code:?} {said}");
    // One that somebody else runs, so that the agent does not start it again.
    town.lab.stop(first, "agent").unwrap();
    town.lab.start(first, "agent", &["--bird", "external"]).unwrap();
    town.wait_until_clean().unwrap();
    let kill = "for pid in $(pgrep -x bird); do kill -9 $pid; done; while pgrep -x bird > /dev/null; do sleep 0.05; done";
    for also in ["true", "rm /run/plumb/bird.ctl"] {
        town.run(false, &format!("{kill}; {also}")).unwrap();
        lab::wait_for("BIRD to be missed", || {
            let verdict = town.audit()?;
            let expected = (FindingCode::BgpNotRunning, format!("node {first}"));
            ensure!(verdict.roots == BTreeSet::from([expected]), "{:#}", verdict.report["findings"]);
            Ok(())
        })
        .unwrap();
        let (code, said) = status(&town, first).unwrap();
        assert_eq!(code, Some(1), "{said}");
        assert!(said.contains("the agent answers, but BIRD does not run"), "{said}");
    }
}
