//! The demo works twice, after a crash in its middle, and two at once.

use std::os::unix::process::CommandExt as _;
use std::process::{Child, Command, Output, Stdio};
use std::time::Duration;

use lab::Programs;

/// The demo with the programs of this test; `None`, with the reason reported, where it cannot run.
fn demo(test: &str) -> Option<Command> {
    if let Some(reason) = lab::missing() {
        testkit::skip(test, &reason);
        return None;
    }
    let programs = Programs::of_test().unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_plumb-demo"));
    command.arg("--bin-dir").arg(programs.folder()).stdout(Stdio::piped()).stderr(Stdio::piped());
    Some(command)
}

#[track_caller]
fn assert_good(output: &Output) {
    let (stdout, stderr) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{stdout}{stderr}");
    assert!(stdout.ends_with("everything was as expected.\n"), "{stdout}");
}

fn namespaces_of(process: u32) -> Vec<String> {
    let Ok(entries) = std::fs::read_dir("/run/netns") else { return Vec::new() };
    let names = entries.flatten().map(|entry| entry.file_name().to_string_lossy().into_owned());
    names.filter(|name| name.contains(&format!("plumb-run-{process}-"))).collect()
}

/// Waits until the demo has made something, so that killing it leaves something.
fn wait_for_namespaces(demo: &Child) {
    let deadline = std::time::Instant::now() + testkit::PATIENCE;
    while namespaces_of(demo.id()).len() < 3 {
        assert!(std::time::Instant::now() < deadline, "the demo makes no namespaces");
        std::thread::sleep(Duration::from_millis(1));
    }
}

#[test]
fn the_demo_works_twice() {
    let Some(mut demo) = demo("the_demo_works_twice") else { return };
    for _ in 0..2 {
        assert_good(&demo.output().unwrap());
    }
}

#[test]
fn a_killed_demo_is_cleaned_up_by_the_next() {
    let Some(mut demo) = demo("a_killed_demo_is_cleaned_up_by_the_next") else { return };
    for _ in 0..testkit::count(2, 20) {
        let mut killed = demo.spawn().unwrap();
        wait_for_namespaces(&killed);
        killed.kill().unwrap();
        killed.wait().unwrap();
        assert_ne!(namespaces_of(killed.id()), [] as [String; 0]);
        assert_good(&demo.output().unwrap());
        assert_eq!(namespaces_of(killed.id()), [] as [String; 0]);
    }
}

#[test]
fn two_demos_at_once_do_not_meet() {
    let Some(mut demo) = demo("two_demos_at_once_do_not_meet") else { return };
    let both = [demo.spawn().unwrap(), demo.spawn().unwrap()];
    for running in both {
        assert_good(&running.wait_with_output().unwrap());
    }
}

#[test]
fn without_root_the_demo_says_what_it_needs() {
    let test = "without_root_the_demo_says_what_it_needs";
    let Some(_) = demo(test) else { return };
    let nobody = 65534;
    match Command::new(env!("CARGO_BIN_EXE_plumb-demo")).uid(nobody).gid(nobody).output() {
        Ok(output) => {
            assert!(!output.status.success());
            let stderr = String::from_utf8_lossy(&output.stderr);
            assert_eq!(
                stderr,
                "plumb-demo: the demo cannot run here: it needs root to create network namespaces\n"
            );
        }
        Err(error) => testkit::skip(test, &format!("another user cannot run what was built here: {error}")),
    }
}
