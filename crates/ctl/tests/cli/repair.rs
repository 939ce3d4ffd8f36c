//! `plumb repair`: shown, done, killed anywhere and gone on with, taken back.

use std::io::{BufRead as _, BufReader};
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::process::ExitStatusExt as _;
use std::process::Stdio;

use ipam::Reservations;
use model::Key;
use serde_json::{Value, json};
use store::Change;
use testkit::etcd::EtcdCluster;

use crate::harness::{Desk, Ran};
use crate::ipam::town::{
    BLOCK_A, Town, block, cidr, endpoint_key, handle_key, handle_value, host, owner, with_affinity,
};

const PLUMB: &str = env!("CARGO_BIN_EXE_plumb");
/// How many steps the town's repair has: two handles, two addresses of a scrapped machine, its block.
const STEPS: usize = 5;

/// A town with what a scrapped machine left, and handles of nothing.
fn town(desk: Desk) -> Town {
    let town = Town::new(desk);
    let mut left = block("10.65.0.16/29", "scrapped");
    let mut changes = Vec::new();
    for name in ["gone-0", "gone-1"] {
        ipam::take(&mut left, &owner("scrapped", name), 1, &Reservations::default());
        changes.push(Change::create(handle_key(&format!("net.{name}")), handle_value("10.65.0.16/29", 1)));
    }
    changes.extend(with_affinity(&left, "scrapped"));
    for name in ["net.old-0", "net.old-1"] {
        changes.push(Change::create(handle_key(name), handle_value(BLOCK_A, 1)));
    }
    town.desk.write(changes);
    town
}

fn repair(town: &Town, words: &[&str]) -> Ran {
    let usual = ["--settle", "0", "--grace", "0", "--history", "history"];
    town.desk.plumb(&[&["repair"], words, &usual].concat())
}

/// What it printed. Whatever it says besides goes to stderr.
#[track_caller]
fn done(ran: &Ran) -> &str {
    assert_eq!(ran.code, Some(0), "{ran:?}");
    &ran.stdout
}

/// What became of its steps. What is left to people is told after it.
#[track_caller]
fn steps_of(ran: &Ran) -> &str {
    let (steps, left) = done(ran).split_once("\n\nLeft to you:\n").unwrap_or_else(|| panic!("{ran:?}"));
    assert!(LEFT.iter().all(|code| left.contains(&format!("  {code} ("))), "{left}");
    steps
}

/// It could not, and says why, whatever it says before.
#[track_caller]
fn fails(ran: &Ran, code: i32, word: &str) {
    assert_eq!((ran.code, ran.stderr.contains(word)), (Some(code), true), "{ran:?}");
}

/// The handles of this town are named after its pods, and its endpoints name no sandbox, as in 2017: nothing that can be repaired
/// here.
const LEFT: [&str; 2] = ["endpoint-without-container-id", "handle-by-name"];

fn codes(town: &Town) -> Vec<String> {
    let ran = town.desk.plumb(&["doctor", "-o", "json", "--settle", "0"]);
    let report: Value = serde_json::from_str(&ran.stdout).unwrap_or_else(|_| panic!("{ran:?}"));
    let codes = report["findings"]
        .as_array()
        .unwrap()
        .iter()
        .map(|finding| finding["code"].as_str().unwrap().to_owned());
    let mut codes: Vec<String> = codes.collect();
    codes.retain(|code| !LEFT.contains(&code.as_str()));
    codes.dedup();
    codes
}

fn the_only_id(town: &Town) -> String {
    let listed: Value = serde_json::from_str(done(&repair(town, &["history", "-o", "json"]))).unwrap();
    let repairs = listed["repairs"].as_array().unwrap();
    assert_eq!(repairs.len(), 1, "{listed}");
    repairs[0]["id"].as_str().unwrap().to_owned()
}

#[track_caller]
fn done_and_taken_back(desk: Desk) {
    let town = town(desk);
    let before = town.desk.dump();
    let shown = repair(&town, &[]);
    assert!(done(&shown).starts_with(&format!("{STEPS} steps planned (everything):")), "{shown:?}");
    assert!(
        shown.stdout.contains("node scrapped is gone") && shown.stdout.contains("Nothing was changed"),
        "{shown:?}"
    );
    assert_eq!(town.desk.dump(), before, "a plan changes nothing");
    let applied = repair(&town, &["--apply"]);
    assert_eq!(steps_of(&applied), format!("{STEPS} applied, 0 already in place."));
    assert_eq!(codes(&town), [] as [&str; 0]);
    assert!(!town.has(&Key::Block(cidr("10.65.0.16/29"))) && town.is_allocated("10.65.0.0"));
    let id = the_only_id(&town);
    assert!(done(&repair(&town, &["show", &id])).contains("complete, 5 of 5 steps applied"));
    assert_eq!(done(&repair(&town, &["undo", &id])), format!("{STEPS} undone, 0 already in place.\n"));
    assert_eq!(codes(&town), ["affinity-of-gone-node", "handle-unused"]);
    assert!(town.has(&Key::Affinity { owner: host("scrapped"), block: cidr("10.65.0.16/29") }));
    assert_eq!(
        steps_of(&repair(&town, &["--apply", "--keep-going"])),
        format!("{STEPS} applied, 0 already in place.")
    );
    assert!(done(&repair(&town, &["--apply"])).starts_with("Nothing to do (everything)."));
}

/// A time of another machine, or of whoever wrote the text, may be still to come.
#[test]
fn no_time_of_a_text_or_a_plan_is_waited_for() {
    let town = town(Desk::on_sqlite());
    let pod = json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": { "name": "web-9", "namespace": "shop", "creationTimestamp": "2100-01-01T00:00:00Z" },
    });
    town.desk.file("pods.json", json!({ "apiVersion": "v1", "kind": "List", "items": [pod] }).to_string());
    done(&repair(&town, &["--from", "pods.json", "--plan", "plan.json"]));
    let path = town.desk.folder.path().join("plan.json");
    let mut plan: Value = serde_json::from_slice(&std::fs::read(&path).unwrap()).unwrap();
    let planned: jiff::Timestamp = plan["lookedAt"].as_str().unwrap().parse().unwrap();
    assert!(planned <= jiff::Timestamp::now(), "{plan:#}");
    plan["lookedAt"] = json!("2100-01-01T00:00:00Z");
    town.desk.file("plan.json", plan.to_string());
    let applied = repair(&town, &["--plan", "plan.json", "--apply"]);
    assert!(applied.stdout.contains("0 already in place."), "{applied:?}");
}

#[test]
fn it_is_shown_done_and_taken_back_on_sqlite() {
    done_and_taken_back(Desk::on_sqlite());
}

#[test]
fn it_is_shown_done_and_taken_back_on_etcd() {
    let test = "it_is_shown_done_and_taken_back_on_etcd";
    let Some(cluster) = testkit::etcd::start_or_skip(test, testkit::etcd::Setup::members(1)) else { return };
    let cluster: EtcdCluster = cluster;
    done_and_taken_back(Desk::on_etcd(&cluster));
}

/// Ended at once before and after every single commit: the next process goes on, and all of it can be taken back.
#[test]
fn whoever_is_killed_at_any_step_is_gone_on_with() {
    let mut killed = 0;
    for point in ["begun", "made"] {
        for times in 1.. {
            let town = town(Desk::on_sqlite());
            let mut command = town.desk.command(PLUMB);
            command.args([
                "repair",
                "--apply",
                "--one-by-one",
                "--settle",
                "0",
                "--grace",
                "0",
                "--history",
                "history",
            ]);
            let output = command.env("PLUMB_FAILPOINT", format!("repair.{point}.{times}")).output().unwrap();
            if output.status.signal().is_none() {
                assert!(output.status.success(), "{output:?}");
                break;
            }
            killed += 1;
            let id = the_only_id(&town);
            let resumed = repair(&town, &["resume", &id]);
            assert_eq!(resumed.code, Some(0), "{point} {times}: {resumed:?}");
            assert_eq!(codes(&town), [] as [&str; 0], "{point} {times}");
            assert!(town.is_allocated("10.65.0.0") && town.is_allocated("10.65.0.8"), "{point} {times}");
            assert!(repair(&town, &["resume", &id]).stderr.contains("nothing is left to do"));
            let undone = repair(&town, &["undo", &id]);
            assert_eq!(undone.code, Some(0), "{point} {times}: {undone:?}");
            assert_eq!(codes(&town), ["affinity-of-gone-node", "handle-unused"], "{point} {times}");
        }
    }
    assert_eq!(killed, 2 * STEPS);
}

/// An operator sees what is being done, not only how many steps are behind.
#[test]
fn each_step_is_named_as_it_is_done() {
    let town = town(Desk::on_sqlite());
    let plan: Value = serde_json::from_str(done(&repair(&town, &["-o", "json"]))).unwrap();
    let titles: Vec<&str> =
        plan["steps"].as_array().unwrap().iter().map(|step| step["title"].as_str().unwrap()).collect();
    let applied = repair(&town, &["--apply"]);
    assert_eq!(applied.code, Some(0), "{applied:?}");
    for title in titles {
        let named = applied.stderr.lines().filter(|line| line.starts_with("step ") && line.ends_with(title));
        assert_eq!(named.count(), 1, "{title}: {}", applied.stderr);
    }
    let quiet = repair(&town, &["--apply", "-o", "json"]);
    assert!(!quiet.stderr.contains("step "), "{quiet:?}");
}

#[test]
fn a_plan_in_a_file_is_done_as_far_as_it_still_holds() {
    let town = town(Desk::on_sqlite());
    done(&repair(&town, &["--plan", "plan.json"]));
    let path = town.desk.folder.path().join("plan.json");
    assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
    // Meanwhile somebody deletes one handle, and another one appears.
    town.remove(&handle_key("net.old-0"));
    town.desk.write(vec![Change::create(handle_key("net.new"), handle_value(BLOCK_A, 1))]);
    let applied = repair(&town, &["--plan", "plan.json", "--apply"]);
    assert_eq!(steps_of(&applied), "4 applied, 0 already in place.");
    assert!(applied.stderr.contains("skipped") && applied.stderr.contains("net.old-0"), "{applied:?}");
    assert!(town.has(&handle_key("net.new")), "what the plan does not know is not touched");
    let again = repair(&town, &["--plan", "plan.json", "--apply"]);
    fails(&again, 1, "the cluster changed since planning; nothing was applied");
}

/// What the text says on stderr, programs read.
#[test]
fn what_the_second_look_does_not_confirm_is_in_the_json_with_its_reason() {
    let town = town(Desk::on_sqlite());
    done(&repair(&town, &["--plan", "plan.json"]));
    // One is gone, and one counts another block than the plan says.
    town.remove(&handle_key("net.old-0"));
    town.put(handle_key("net.old-1"), handle_value(BLOCK_A, 3));
    let ran = repair(&town, &["--plan", "plan.json", "--apply", "-o", "json"]);
    // One of them could still be repaired, only otherwise than the file says.
    fails(&ran, 1, "error: 1 step could not be applied as planned, 0 steps not tried");
    let told: Value = serde_json::from_str(&ran.stdout).unwrap();
    assert_eq!(told["done"], json!(3), "{told}");
    let left = told["left"].as_array().unwrap().iter();
    let left: std::collections::BTreeSet<_> = left.map(|left| left["code"].as_str().unwrap()).collect();
    assert_eq!(left, LEFT.into(), "{told}");
    let mut dropped = told["dropped"].as_array().unwrap().clone();
    dropped.sort_by_key(|dropped| dropped["subject"].to_string());
    let whys: Vec<_> = dropped.iter().map(|dropped| dropped["why"].as_str().unwrap()).collect();
    assert_eq!((dropped[0]["code"].as_str(), dropped.len()), (Some("handle-unused"), 2), "{told}");
    assert_eq!(dropped[0]["subject"], "handle net.old-0");
    assert_eq!(whys[0], "it is no longer found");
    assert!(whys[1].starts_with("the state has changed since planning; now the step would be: "), "{whys:?}");
    // And if nothing is left of the plan.
    let ran = repair(&town, &["--plan", "plan.json", "--apply", "-o", "json"]);
    assert_eq!(ran.code, Some(1), "{ran:?}");
    let told: Value = serde_json::from_str(&ran.stdout).unwrap_or_else(|_| panic!("{ran:?}"));
    assert_eq!((&told["id"], told["dropped"].as_array().map(Vec::len)), (&Value::Null, Some(STEPS)));
}

#[test]
fn a_node_that_comes_back_meanwhile_keeps_what_it_has() {
    let town = town(Desk::on_sqlite());
    done(&repair(&town, &["--plan", "plan.json"]));
    let manifest = "{apiVersion: projectcalico.org/v3, kind: Node, metadata: {name: scrapped}, spec: {}}";
    town.desk.apply(manifest);
    let applied = repair(&town, &["--plan", "plan.json", "--apply"]);
    done(&applied);
    assert!(applied.stderr.contains("it is now left to you: two witnesses must report"), "{applied:?}");
    assert!(town.has(&Key::Block(cidr("10.65.0.16/29"))) && town.has(&handle_key("net.gone-0")));
    assert!(!town.has(&handle_key("net.old-0")), "what still holds is done");
}

/// The pod is replaced between the plan and the look right before: the step that was planned is not right any more. It is planned anew at
/// once, or the next pod could be given the address that this one has.
#[test]
fn what_loses_a_race_is_planned_anew_and_done() {
    let town = Town::new(Desk::on_sqlite());
    let endpoint = endpoint_key("node-a", "web-0");
    town.set_spec(endpoint.clone(), "containerID", json!("first-sandbox"));
    town.change_block(BLOCK_A, |block| ipam::set_allocation(block, 0, None));
    town.put(handle_key("net.old"), handle_value(BLOCK_A, 1));
    let mut command = town.desk.command(PLUMB);
    command.args(["repair", "ipam", "--apply", "--settle", "1", "--grace", "0", "--history", "history"]);
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut said = BufReader::new(child.stderr.take().unwrap()).lines();
    let mut planned = said.by_ref().map(Result::unwrap);
    assert!(planned.any(|line| line.ends_with(" planned.")));
    town.set_spec(endpoint, "containerID", json!("second-sandbox"));
    let rest: Vec<String> = said.map(Result::unwrap).collect();
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(0), "{output:?} {rest:?}");
    let block = town.block(BLOCK_A);
    let held = block.attribute(0).unwrap_or_else(|| panic!("still free: {output:?} {rest:?}"));
    assert!(held.handle().unwrap().container() == Some("second-sandbox"), "{held:?}");
    assert!(!town.has(&handle_key("net.old")), "and the rest is done as well: {rest:?}");
    // All of it is one repair, and can be taken back.
    done(&repair(&town, &["undo", &the_only_id(&town)]));
    assert!(!town.is_allocated("10.65.0.0") && town.has(&handle_key("net.old")));
}

/// The pods of a block that cannot be read run on: nothing of theirs is removed, and the block is rebuilt from who uses it.
#[test]
fn a_block_that_cannot_be_read_is_rebuilt_and_takes_no_handle_with_it() {
    let town = Town::new(Desk::on_sqlite());
    let pods = [("node-a", "web-0"), ("node-a", "web-1"), ("node-b", "cart-0")];
    for (node, pod) in pods {
        town.set_spec(endpoint_key(node, pod), "containerID", json!(pod));
    }
    let holders = |town: &Town| -> Vec<(String, Option<String>)> {
        let block = town.block(BLOCK_A);
        let held =
            (0..block.allocations.len()).filter_map(|at| Some((block.address(at)?, block.attribute(at)?)));
        held.map(|(address, held)| (address.to_string(), held.handle().map(ToString::to_string))).collect()
    };
    let before = holders(&town);
    assert_eq!(before.len(), 3);
    town.put(Key::Block(cidr(BLOCK_A)), "[");
    // Nobody knows which of its addresses this one has.
    town.put(handle_key("net.hidden"), handle_value(BLOCK_A, 1));
    let left = repair(&town, &["ipam", "--apply"]);
    assert!(
        left.stdout.contains("handle net.hidden counts 1 of its addresses, but only 0 are known"),
        "{left:?}"
    );
    for handle in ["net.web-0", "net.web-1", "net.cart-0", "net.hidden"] {
        assert!(town.has(&handle_key(handle)), "{handle}: {left:?}");
    }
    assert_eq!(town.record(&Key::Block(cidr(BLOCK_A))).unwrap().value, "[".as_bytes());
    town.remove(&handle_key("net.hidden"));
    let applied = repair(&town, &["finding", "record-unreadable", "--apply"]);
    assert!(done(&applied).starts_with("1 applied, "), "{applied:?}");
    assert_eq!(holders(&town), before);
    for (_, pod) in pods {
        assert!(town.has(&handle_key(&format!("net.{pod}"))), "{pod}");
    }
    assert_eq!(town.desk.plumb(&["ipam", "check", "--settle=0"]).code, Some(0));
    let undone = repair(&town, &["undo", &the_only_id(&town)]);
    done(&undone);
    assert_eq!(town.record(&Key::Block(cidr(BLOCK_A))).unwrap().value, "[".as_bytes());
}

#[test]
fn scopes_are_kept() {
    let town = town(Desk::on_sqlite());
    let only = |words: &[&str]| -> usize {
        let plan: Value =
            serde_json::from_str(done(&repair(&town, &[words, &["-o", "json"]].concat()))).unwrap();
        plan["steps"].as_array().unwrap().len()
    };
    assert_eq!(only(&["ipam"]), STEPS);
    assert_eq!(only(&["endpoints"]), 0);
    assert_eq!(only(&["finding", "handle-unused"]), 2);
    assert_eq!(only(&["node", "scrapped"]), 3);
    assert_eq!(only(&["node", "node-a"]), 0);
}

/// Scripts put flags on either side of the scope.
#[test]
fn flags_before_a_scope_count() {
    let town = town(Desk::on_sqlite());
    let applied = repair(&town, &["--apply", "ipam"]);
    assert!(done(&applied).starts_with(&format!("{STEPS} applied, 0 already in place.")), "{applied:?}");
}

#[test]
fn each_subcommand_has_a_help_of_its_own() {
    let desk = Desk::on_sqlite();
    let help =
        |words: &[&str]| desk.plumb(&[&["repair"], words, &["--help"]].concat()).succeeded().to_owned();
    assert!(help(&["undo"]).contains("plumb repair undo 2026") && !help(&["undo"]).contains("--apply"));
    assert!(help(&["history"]).contains("--output") && !help(&["history"]).contains("--agent-socket"));
    assert!(help(&["finding"]).contains("CODE") && !help(&["finding"]).contains("route-diverted"));
    assert!(help(&["node"]).contains("--apply") && help(&[]).contains("endpoints"));
    // fish completes no values of arguments without a flag.
    let words = ["resume", "endpoints", "address-leaked", "route-diverted"];
    for (shell, words) in [("bash", &words[..]), ("zsh", &words), ("fish", &words[..2])] {
        let script = desk.plumb(&["completion", shell]).succeeded().to_owned();
        for word in words {
            assert!(script.contains(word), "{word} is not completed in {shell}");
        }
    }
}

#[test]
fn what_makes_no_sense_is_refused_and_changes_nothing() {
    let town = town(Desk::on_sqlite());
    let before = town.desk.dump();
    repair(&town, &["everything"]).refused(2, &["unrecognized subcommand 'everything'", "plumb repair"]);
    repair(&town, &["node"]).refused(2, &["required arguments were not provided", "<NAME>"]);
    repair(&town, &["node", "a b"]).refused(2, &["not the name of a node"]);
    repair(&town, &["undo", "20260101-000000-0000", "--apply"])
        .refused(2, &["unexpected argument '--apply'"]);
    repair(&town, &["--apply", "history"]).refused(2, &["--apply does not apply to plumb repair history"]);
    repair(&town, &["finding", "adress-leaked"])
        .refused(2, &["no finding has the code 'adress-leaked'", "did you mean address-leaked?"]);
    repair(&town, &["undo", "../../etc/passwd"]).refused(1, &["there is no repair"]);
    repair(&town, &["resume", "20260101-000000-0000"]).refused(1, &["there is no repair"]);
    repair(&town, &["--apply", "--dry-run"]).refused(2, &["cannot be used with"]);
    repair(&town, &["--plan", "nowhere/plan.json"])
        .refused(1, &["cannot write the plan to nowhere/plan.json"]);
    for (text, word) in [
        ("", "is not a repair plan"),
        ("[]", "is not a repair plan"),
        ("{\"version\":1}", "is not a repair plan"),
    ] {
        town.desk.file("bad.json", text);
        repair(&town, &["--plan", "bad.json", "--apply"]).refused(2, &[word]);
    }
    done(&repair(&town, &["--plan", "plan.json"]));
    let path = town.desk.folder.path().join("plan.json");
    let mut plan: Value = serde_json::from_slice(&std::fs::read(&path).unwrap()).unwrap();
    plan["clusterGuid"] = json!("another");
    std::fs::write(&path, plan.to_string()).unwrap();
    fails(&repair(&town, &["--plan", "plan.json", "--apply"]), 1, "for another cluster");
    plan["version"] = json!(2);
    std::fs::write(&path, plan.to_string()).unwrap();
    repair(&town, &["--plan", "plan.json", "--apply"]).refused(2, &["version 2"]);
    assert_eq!(town.desk.dump(), before);
}
