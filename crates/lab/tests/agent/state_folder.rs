//! The state folder goes away under a running agent, or cannot be written: it is made anew or reported, everywhere.

use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;
use testkit::process::command;

use crate::common::{Bench, DelOutcome as _};
use crate::running::{Agent, wait_until};

fn state_of(bench: &Bench) -> PathBuf {
    bench.state_folder().join("state")
}

/// With a state folder that is nothing else's.
fn agent_of(bench: &Bench) -> Agent {
    let agent = bench.start_agent_in(&state_of(bench), &[]);
    bench.wait_until_ready(&agent);
    agent
}

fn is_ready(bench: &Bench) -> bool {
    bench.page("readiness").starts_with("HTTP/1.1 200")
}

fn findings(bench: &Bench) -> Vec<String> {
    let mut plumb = command(bench.programs().plumb());
    plumb.args(["doctor", "-o", "json", "--node", bench.node.name(), "--agent-socket"]).arg(bench.socket());
    plumb.env("DATASTORE_TYPE", "sqlite").env("SQLITE_PATH", bench.lab.store_path());
    let output = plumb.output().unwrap();
    let report: Value = serde_json::from_slice(&output.stdout)
        .unwrap_or_else(|error| panic!("{error}: {}", String::from_utf8_lossy(&output.stderr)));
    let codes =
        report["findings"].as_array().unwrap().iter().map(|finding| finding["code"].as_str().unwrap());
    codes.map(str::to_owned).collect()
}

fn entries(bench: &Bench) -> usize {
    let folder = state_of(bench).join("attachments");
    let files = std::fs::read_dir(folder).into_iter().flatten().flatten();
    files.filter(|file| file.path().extension().is_some_and(|ending| ending == "json")).count()
}

/// The agent may put a file into a directory that is just being emptied: then it is tried again, as an operator would.
fn remove(folder: &Path) {
    while let Err(error) = std::fs::remove_dir_all(folder) {
        match error.kind() {
            ErrorKind::DirectoryNotEmpty => {}
            ErrorKind::NotFound => return,
            _ => panic!("{}: {error}", folder.display()),
        }
    }
}

#[test]
fn a_state_folder_that_is_removed_is_made_anew_and_no_add_fails() {
    let test = "a_state_folder_that_is_removed_is_made_anew_and_no_add_fails";
    let Some(bench) = Bench::new(test) else { return };
    let agent = agent_of(&bench);
    let pods: Vec<_> = (0..6).map(|number| bench.pod("shop", &format!("web-{number}"))).collect();
    bench.agent_add(&pods[0]).result().unwrap();
    for (number, pod) in pods.iter().enumerate().skip(1) {
        match number % 3 {
            0 => remove(&state_of(&bench)),
            1 => remove(&state_of(&bench).join("attachments")),
            _ => {
                std::fs::rename(state_of(&bench), bench.state_folder().join(format!("old-{number}"))).unwrap()
            }
        }
        bench.agent_add(pod).result().unwrap_or_else(|error| panic!("{error}: {}", agent.log()));
    }
    wait_until(|| entries(&bench) == pods.len(), || agent.log());
    assert!(
        agent.log().contains("recreated the state directory, which was removed or replaced"),
        "{}",
        agent.log()
    );
    // Also when nobody calls.
    remove(&state_of(&bench));
    wait_until(|| entries(&bench) == pods.len(), || agent.log());
    wait_until(|| is_ready(&bench), || bench.page("readiness"));
    // The next agent knows everything, and a second one is kept out.
    agent.kill();
    let agent = agent_of(&bench);
    assert_eq!(bench.metric("attachments"), i64::try_from(pods.len()).unwrap());
    for pod in &pods {
        bench.agent_del(pod).result_of_del();
    }
    agent.stop();
    bench.assert_nothing_left();
}

#[test]
fn a_socket_that_is_removed_is_made_anew() {
    let Some(bench) = Bench::new("a_socket_that_is_removed_is_made_anew") else { return };
    let agent = bench.agent(&[]);
    std::fs::remove_file(bench.socket()).unwrap();
    let pod = bench.pod("shop", "web-0");
    bench.agent_add(&pod).result().unwrap_or_else(|error| panic!("{error}: {}", agent.log()));
    bench.agent_del(&pod).result_of_del();
    agent.stop();
    assert!(!bench.socket().exists(), "the agent removes its own socket");
}

/// A small file system in the place of a directory.
pub(crate) struct Mounted<'a>(&'a Path);

impl Mounted<'_> {
    pub(crate) fn at<'a>(path: &'a Path, size: &str) -> Mounted<'a> {
        std::fs::create_dir_all(path).unwrap();
        let options = format!("size={size}");
        run(Command::new("mount").args(["-t", "tmpfs", "-o", &options, "plumb-test"]).arg(path));
        Mounted(path)
    }

    /// Until nothing more fits. The file is to be removed again.
    pub(crate) fn fill(&self) -> PathBuf {
        let filler = self.0.join("filler");
        let mut size = 1 << 20;
        while size > 0 {
            let more = std::fs::OpenOptions::new().create(true).append(true).open(&filler);
            if more.and_then(|mut file| std::io::Write::write_all(&mut file, &vec![0; size])).is_err() {
                size /= 2;
            }
        }
        filler
    }
}

impl Drop for Mounted<'_> {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("-l").arg(self.0).output();
    }
}

fn run(command: &mut Command) {
    testkit::process::run(command).unwrap();
}

/// `ip netns exec` gives the agent mounts of its own.
fn as_agent(agent: &Agent, words: &[&str], path: &Path) {
    let process = agent.id().to_string();
    run(Command::new("nsenter").args(["-m", "-t", &process, "--"]).args(words).arg(path));
}

#[test]
fn a_state_folder_that_cannot_be_written_is_reported_everywhere() {
    let test = "a_state_folder_that_cannot_be_written_is_reported_everywhere";
    let Some(bench) = Bench::new(test) else { return };
    let state = state_of(&bench);
    let mounted = Mounted::at(&state, "256k");
    let agent = agent_of(&bench);
    let pod = bench.pod("shop", "web-0");
    let (fill, read_only): (&dyn Fn(), &dyn Fn()) = (
        &|| drop(mounted.fill()),
        // In front of the other one, whose files the agent has open.
        &|| as_agent(&agent, &["mount", "-t", "tmpfs", "-o", "ro", "plumb-test"], &state),
    );
    let (free, writable): (&dyn Fn(), &dyn Fn()) =
        (&|| std::fs::remove_file(state.join("filler")).unwrap(), &|| as_agent(&agent, &["umount"], &state));
    for (what, take, give) in [("No space left", fill, free), ("Read-only", read_only, writable)] {
        take();
        reported(&bench, &agent, what);
        let (code, message) = bench.agent_add(&pod).error().unwrap();
        assert!(message.contains("cannot write the journal"), "{code} {message}");
        give();
        wait_until(|| is_ready(&bench), || bench.page("readiness"));
        assert!(!findings(&bench).contains(&"state-folder-unusable".to_owned()));
        bench.agent_add(&pod).result().unwrap();
        bench.agent_del(&pod).result_of_del();
    }
    assert!(agent.log().contains("can write the state directory again"), "{}", agent.log());
    bench.assert_nothing_left();
}

fn reported(bench: &Bench, agent: &Agent, what: &str) {
    wait_until(|| bench.page("readiness").contains(what), || bench.page("readiness"));
    assert!(bench.page("readiness").starts_with("HTTP/1.1 503"));
    let probe = bench.pod("probe", "probe");
    let status =
        bench.agent_call("STATUS", &probe).with_netconf("cniVersion", "1.1.0").run(&bench.node).unwrap();
    assert_eq!(status.error().unwrap().0, 50);
    assert!(status.stdout.contains(what), "{}", status.stdout);
    assert!(bench.page("metrics").contains("plumb_not_ready{condition=\"state-folder\"} 1"));
    assert!(agent.log().contains(what), "{}", agent.log());
    let found = findings(bench);
    assert!(found.contains(&"state-folder-unusable".to_owned()), "{found:?}");
}
