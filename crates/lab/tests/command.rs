//! `plumb lab` as an operator uses it.

use std::fs;
use std::os::unix::process::CommandExt as _;
use std::path::PathBuf;
use std::process::{Command, Output, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use lab::Programs;
use testkit::Dice;

/// A folder for labs of this test alone; removed with everything in it.
struct Desk {
    programs: Programs,
    labs: PathBuf,
    name: String,
}

impl Desk {
    /// `None`, with the reason reported, where a lab cannot run.
    fn new(test: &str) -> Option<Desk> {
        if let Some(reason) = lab::missing() {
            testkit::skip(test, &reason);
            return None;
        }
        static DESKS: AtomicUsize = AtomicUsize::new(0);
        let own = format!("{}-{}", std::process::id(), DESKS.fetch_add(1, Ordering::Relaxed));
        // Short, because sockets lie below it.
        let labs = std::env::temp_dir().join(format!("plumb-labs-{own}"));
        let name = format!("t{own}");
        Some(Desk { programs: Programs::of_test().unwrap(), labs, name })
    }

    fn command(&self, arguments: &[&str]) -> Command {
        let mut plumb = Command::new(self.programs.plumb());
        plumb.env("PLUMB_LAB_DIR", &self.labs).arg("lab").args(arguments);
        plumb.stdin(Stdio::null());
        plumb
    }

    /// On the test's own lab.
    fn lab(&self, arguments: &[&str]) -> Output {
        let (verb, rest) = arguments.split_first().unwrap();
        let (verbs, rest) =
            if *verb == "pod" { (&arguments[..2], &rest[1..]) } else { (&arguments[..1], rest) };
        self.command(&[verbs, &["--name", &self.name], rest].concat()).output().unwrap()
    }

    #[track_caller]
    fn done(&self, arguments: &[&str]) -> String {
        let output = self.lab(arguments);
        let errors = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "plumb lab {}: {errors}", arguments.join(" "));
        String::from_utf8(output.stdout).unwrap()
    }

    #[track_caller]
    fn refused(&self, arguments: &[&str], code: i32, message: &str) {
        let output = self.lab(arguments);
        let errors = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(code), "{errors}");
        assert!(errors.contains(message), "{errors}");
    }

    /// What `plumb lab list` shows: the words of each line below the headings.
    #[track_caller]
    fn labs(&self) -> Vec<Vec<String>> {
        let output = self.command(&["list"]).output().unwrap();
        assert!(output.status.success(), "{output:?}");
        let text = String::from_utf8(output.stdout).unwrap();
        assert!(text.starts_with("LAB "), "{text}");
        let words = |line: &str| line.split_whitespace().map(str::to_owned).collect();
        text.lines().skip(1).map(words).collect()
    }

    /// What is left on the machine under the lab's name.
    fn traces(&self) -> Vec<String> {
        let names = |folder: &str| {
            let entries = fs::read_dir(folder).into_iter().flatten().flatten();
            entries.map(|entry| entry.path().display().to_string()).collect::<Vec<_>>()
        };
        let mut traces = names("/run/netns");
        traces.extend(fs::read_to_string("/proc/mounts").unwrap().lines().map(str::to_owned));
        for process in names("/proc") {
            traces.push(fs::read_to_string(format!("{process}/cmdline")).unwrap_or_default());
        }
        // Whole words: another lab's name may start with ours.
        let is_in_names = |letter: char| letter.is_ascii_alphanumeric() || letter == '-';
        traces.retain(|trace| trace.split(|letter| !is_in_names(letter)).any(|word| word == self.name));
        if self.labs.exists() {
            traces.push(self.labs.display().to_string());
        }
        traces
    }
}

impl Drop for Desk {
    fn drop(&mut self) {
        // Also after a failure in the middle.
        let _ = self.lab(&["down"]);
        let _ = fs::remove_dir_all(&self.labs);
    }
}

/// A node that is asked about the cluster asks every agent. No pods are listed anywhere: runtimes tell what runs.
#[test]
fn one_node_looks_at_all_and_mends_another() {
    let Some(desk) = Desk::new("one_node_looks_at_all_and_mends_another") else { return };
    desk.done(&["up", "--nodes", "2"]);
    desk.done(&["pod", "add", "node2", "shop/db-0"]);
    fn plumb<'a>(arguments: &[&'a str]) -> Vec<&'a str> {
        [&["exec", "node1", "--", "plumb"], arguments].concat()
    }
    desk.done(&plumb(&["doctor", "--grace", "0"]));
    let planned = desk.done(&plumb(&["repair", "--grace", "0", "--probe"]));
    assert!(planned.starts_with("Nothing to do"), "{planned}");
    desk.done(&plumb(&["delete", "wep", "node2-k8s-db--0-eth0", "-n", "shop"]));
    let output = desk.lab(&plumb(&["doctor", "--grace", "0", "-o", "json"]));
    assert_eq!(output.status.code(), Some(1));
    let report: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    let codes: Vec<&str> =
        report["findings"].as_array().unwrap().iter().filter_map(|f| f["code"].as_str()).collect();
    assert_eq!(codes, ["pod-without-endpoint"], "{report}");
    desk.done(&plumb(&["repair", "--grace", "0", "--apply"]));
    desk.done(&plumb(&["get", "wep", "node2-k8s-db--0-eth0", "-n", "shop"]));
    desk.done(&plumb(&["doctor", "--grace", "0"]));
}

#[test]
fn a_lab_from_up_to_down() {
    let Some(desk) = Desk::new("a_lab_from_up_to_down") else { return };
    let shown = desk.done(&["up", "--nodes", "2"]);
    assert!(shown.contains("node2   172.30.0.2   ready   running   0\n"), "{shown}");
    desk.refused(&["up"], 1, "already exists; remove it with");
    let added = desk.done(&["pod", "add", "node1", "web-0", "shop/db-0"]);
    assert!(added.contains("shop/db-0       running   10.244."), "{added}");
    desk.refused(&["pod", "add", "node1", "web-0"], 1, "pod default/web-0 already exists");
    desk.refused(&["pod", "add", "node9", "web-0"], 1, "has no node node9; it has node1, node2");
    let pinged = desk.done(&["ping"]);
    assert_eq!(pinged.lines().filter(|line| line.ends_with("   answered")).count(), 6, "{pinged}");
    desk.refused(&["partition", "node9"], 1, "has no node node9");
    let running = format!("{} 2 sqlite direct running", desk.name);
    assert_eq!(desk.labs(), [running.split(' ').map(str::to_owned).collect::<Vec<_>>()]);
    assert_eq!(desk.done(&["partition", "node2"]), "cut off from the other nodes: node2\n");
    let other = ["exec", "node1", "--", "ping", "-n", "-c", "1", "-W", "1", "172.30.0.2"];
    assert_eq!(desk.lab(&other).status.code(), Some(1), "node2 is cut off");
    assert!(desk.done(&["heal"]).ends_with("are connected\n"));
    desk.done(&other);
    let json: serde_json::Value = serde_json::from_str(&desk.done(&["status", "-o", "json"])).unwrap();
    assert_eq!(json["nodes"][0]["pods"].as_array().unwrap().len(), 2);
    let records = desk.done(&["exec", "node2", "--", "plumb", "get", "wep", "-A", "-o", "name"]);
    assert_eq!(records.lines().count(), 2, "{records}");
    assert!(desk.done(&["exec", "node1/shop/db-0", "--", "ip", "-br", "address"]).contains("eth0"));
    assert_eq!(desk.lab(&["exec", "node1", "--", "sh", "-c", "exit 7"]).status.code(), Some(7));
    desk.refused(&["exec", "node1/shop/no", "--", "true"], 1, "pod shop/no does not run on node1");
    desk.done(&["pod", "del", "node1", "web-0", "shop/db-0"]);
    assert_eq!(desk.done(&["exec", "node1", "--", "plumb", "get", "wep", "-A", "-o", "name"]), "");
    desk.done(&["down"]);
    assert_eq!(desk.traces(), [] as [String; 0]);
    desk.done(&["down"]);
    desk.refused(&["status"], 1, "create one with `plumb lab up`");
}

#[test]
fn the_doctor_sees_a_node_through_its_agent_and_from_a_bundle() {
    let Some(desk) = Desk::new("the_doctor_sees_a_node_through_its_agent_and_from_a_bundle") else { return };
    desk.done(&["up", "--nodes", "1"]);
    desk.done(&["pod", "add", "node1", "web-0", "shop/db-0"]);
    let bundle = desk.done(&["exec", "node1", "--", "plumb", "collect", "--settle", "0", "--out", "-"]);
    let lines: Vec<serde_json::Value> =
        bundle.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let node =
        &lines.iter().find(|line| line["node"].is_object()).expect("the agent told of its node")["node"];
    let length = |value: &serde_json::Value| value.as_array().map(Vec::len);
    assert_eq!((length(&node["attachments"]), length(&node["sandboxes"])), (Some(2), Some(2)), "{node}");
    // One line for each pod.
    let views: Vec<&serde_json::Value> =
        lines.iter().flat_map(|line| line["node"]["pod_views"].as_array().into_iter().flatten()).collect();
    assert_eq!(views.len(), 2, "both pods were observed from inside");
    assert!(node["kernel"]["links"].to_string().contains("cali"), "{}", node["kernel"]["links"]);
    assert!(views[0]["kernel"]["routes"].to_string().contains("169.254.1.1"));
    let route = ["exec", "node1", "--", "sh", "-c", "ip route show | grep cali | head -1"];
    let device = desk.done(&route).split_whitespace().nth(2).expect("a pod has a route").to_owned();
    assert!(node["kernel"]["routes"].to_string().contains(&device), "{device} is in the evidence");
    let report = desk.lab(&["exec", "node1", "--", "plumb", "doctor", "-o", "json"]);
    let report: serde_json::Value = serde_json::from_slice(&report.stdout).unwrap();
    let unseen = report["unseen"].to_string();
    for seen in [
        "links of nodes",
        "routes of nodes",
        "observations from inside pods",
        "sandboxes of the container runtime",
    ] {
        assert!(!unseen.contains(seen), "{unseen}");
    }
    assert_eq!(
        report["findings"].as_array().map(Vec::len),
        Some(0),
        "nothing is wrong: {}",
        report["findings"]
    );
}

#[test]
fn an_up_that_was_killed_is_removed_by_down() {
    let Some(desk) = Desk::new("an_up_that_was_killed_is_removed_by_down") else { return };
    eprintln!("seed {}", testkit::seed());
    let mut dice = Dice::for_purpose(testkit::seed(), "killed up");
    let (mut longest, mut caught) = (800, 0);
    for _ in 0..testkit::count(5, 100) {
        let mut up = desk.command(&["up", "--name", &desk.name, "--nodes", "2"]);
        let mut up = up.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        std::thread::sleep(Duration::from_millis(dice.roll(longest)));
        let was_at_work = up.try_wait().unwrap().is_none();
        up.kill().unwrap();
        up.wait().unwrap();
        caught += usize::from(was_at_work);
        // Kept near the time it takes, however busy the machine is.
        longest = if was_at_work { longest * 3 / 2 } else { longest / 2 };
        desk.done(&["down"]);
        testkit::process::wait_until("the lab to be gone", || desk.traces().is_empty())
            .unwrap_or_else(|_| panic!("left behind: {:?}", desk.traces()));
    }
    assert!(caught > 0, "none was caught at work");
    // And the next one is not disturbed.
    desk.done(&["up", "--nodes", "1"]);
    desk.done(&["pod", "add", "node1", "web-0"]);
}

#[test]
fn what_is_not_there_is_refused_clearly() {
    let Some(desk) = Desk::new("what_is_not_there_is_refused_clearly") else { return };
    let nowhere = ["up", "--store", "kubernetes", "--kubernetes-bin", "/nowhere"];
    desk.refused(&nowhere, 1, "kube-apiserver is not in /nowhere; `cargo xtask kubernetes` builds it");
    desk.refused(&["up", "--nodes", "0"], 1, "a lab can have 1 to 100 nodes, not 0");
    desk.refused(
        &["up", "--bin-dir", "/nowhere"],
        1,
        "the directory /nowhere with the binaries does not exist",
    );
    desk.refused(&["up", "--mode", "other"], 2, "invalid value 'other'");
    let output = desk.command(&["up", "--name", "No.Name"]).output().unwrap();
    assert_eq!(output.status.code(), Some(2));
    let output = desk.command(&["replay", "no-such-outage"]).output().unwrap();
    assert_eq!(output.status.code(), Some(2));
    assert_eq!(desk.traces(), [] as [String; 0]);
}

#[test]
fn without_root_it_says_what_it_needs() {
    let test = "without_root_it_says_what_it_needs";
    let Some(desk) = Desk::new(test) else { return };
    let nobody = 65534;
    match desk.command(&["up"]).uid(nobody).gid(nobody).output() {
        Ok(output) => {
            let errors = String::from_utf8_lossy(&output.stderr);
            assert_eq!(output.status.code(), Some(1));
            assert_eq!(errors, "error: a lab cannot run here: it needs root to create network namespaces\n");
        }
        Err(error) => testkit::skip(test, &format!("another user cannot run what was built here: {error}")),
    }
}

#[test]
fn the_stale_delete_is_survived_without_an_agent() {
    let Some(desk) = Desk::new("the_stale_delete_is_survived_without_an_agent") else { return };
    let output = desk.command(&["replay", "stale-delete", "--without-agents"]).output().unwrap();
    let (story, errors) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{story}{errors}");
    assert_eq!(story.matches(" pings answered, 0 lost").count(), 2, "{story}");
    assert!(story.ends_with("nothing is left of either\n"), "{story}");
    assert!(!desk.labs.exists());
}
