//! Several processes on one file.

use std::io::{BufRead as _, BufReader};
use std::path::Path;
use std::process::Stdio;

use model::{Key, KeyRange};
use store::{Change, Event, OpenMode, Revision, StoreError};
use testkit::Role;
use testkit::process::Process;

use super::*;

#[tokio::test]
async fn increments_of_eight_processes_add_up() {
    const PROCESSES: usize = 8;
    if let Some(role) = testkit::role() {
        return increment(&role).await;
    }
    let each = testkit::count(60, 1000);
    let scratch = Scratch::new();
    let store = open(&scratch.db(), OpenMode::CreateIfMissing);
    store.create(handle("counter"), b"0".to_vec()).await.unwrap();

    let children: Vec<Process> = (0..PROCESSES).map(|_| incrementing(&scratch.db(), each)).collect();
    for child in children {
        assert!(succeeded(child));
    }
    let counter = store.get(&handle("counter")).await.unwrap().unwrap();
    assert_eq!(counter.value, (PROCESSES * each).to_string());
}

/// A process that increments the counter so many times.
fn incrementing(path: &Path, times: usize) -> Process {
    let test = "file::processes::increments_of_eight_processes_add_up";
    quiet(again(test, &times.to_string(), path))
}

fn quiet(mut command: Command) -> Process {
    command.stdout(Stdio::null());
    Process::spawn(command).unwrap()
}

fn succeeded(mut process: Process) -> bool {
    process.child().wait().unwrap().success()
}

async fn increment(role: &Role) {
    let store = open(Path::new(&role.argument), OpenMode::Existing);
    let times: usize = role.name.parse().unwrap();
    let mut done = 0;
    while done < times {
        let record = store.get(&handle("counter")).await.unwrap().unwrap();
        let number: u64 = std::str::from_utf8(&record.value).unwrap().parse().unwrap();
        match store.update(record.key, (number + 1).to_string().into_bytes(), record.revision).await {
            Ok(_) => done += 1,
            Err(StoreError::Conflict { .. }) => {}
            Err(error) => panic!("{error:?}"),
        }
    }
}

#[tokio::test]
async fn a_watcher_in_another_process_sees_every_change() {
    const TEST: &str = "file::processes::a_watcher_in_another_process_sees_every_change";
    if let Some(role) = testkit::role() {
        let path = Path::new(&role.argument);
        return match role.name.as_str() {
            "watch" => report_events(path).await,
            who => make_changes(path, who, testkit::count(100, 1000)).await,
        };
    }
    let scratch = Scratch::new();
    let store = open(&scratch.db(), OpenMode::CreateIfMissing);
    let (_, from) = store.list_all(KeyRange::Everything).await.unwrap();

    let mut command = again(TEST, "watch", &scratch.db());
    command.stdout(Stdio::piped());
    let mut watcher = Process::spawn(command).unwrap();
    let mut lines = BufReader::new(watcher.child().stdout.take().unwrap()).lines();
    let mut heard = || {
        let said = lines.by_ref().map(Result::unwrap).find(|line| line.starts_with(SAYS));
        said.expect("the watcher goes on")[SAYS.len()..].to_owned()
    };
    assert_eq!(heard(), "ready");

    let other = quiet(again(TEST, "other", &scratch.db()));
    make_changes(&scratch.db(), "here", testkit::count(100, 1000)).await;
    assert!(succeeded(other));
    store.create(handle("end"), b"end".to_vec()).await.unwrap();

    // What a watch in this process tells, and every commit told once, is what the other process saw.
    let mut watch = store.watch(KeyRange::Handles, from).await.unwrap();
    loop {
        let expected = describe(&watch.next().await.unwrap().unwrap());
        assert_eq!(heard(), expected);
        if expected.starts_with(&handle("end").to_string()) {
            break;
        }
    }
    assert!(succeeded(watcher));
}

fn describe(event: &Event) -> String {
    match event {
        Event::Put(record) => {
            format!("{} {} {}", record.key, record.revision, String::from_utf8_lossy(&record.value))
        }
        Event::Deleted { key, revision } => format!("{key} {revision} deleted"),
        Event::HistoryGone => "history gone".to_owned(),
    }
}

async fn report_events(path: &Path) {
    let store = open(path, OpenMode::ReadOnly);
    let mut watch = store.watch(KeyRange::Handles, Revision::new("1")).await.unwrap();
    say("ready");
    loop {
        let event = watch.next().await.unwrap().unwrap();
        say(&describe(&event));
        if matches!(&event, Event::Put(record) if record.key == handle("end")) {
            return;
        }
    }
}

/// Creates, changes and deletes, alone and several at a time.
async fn make_changes(path: &Path, who: &str, rounds: usize) {
    let store = open(path, OpenMode::Existing);
    for round in 0..rounds {
        let pair: [Key; 2] = [handle(format!("{who}-left")), handle(format!("{who}-right"))];
        let mut changes = Vec::new();
        for key in pair {
            let text = format!("{who} {round}").into_bytes();
            changes.push(match store.get(&key).await.unwrap() {
                None => Change::create(key, text),
                Some(record) if round % 5 == 0 => Change::delete(key, record.revision),
                Some(record) => Change::update(key, text, record.revision),
            });
        }
        store.commit(changes).await.unwrap();
    }
}

/// Opening and closing in one process must not take away the locks of another handle in the same process, and the
/// last one to close must not take the log from under others.
#[tokio::test]
async fn handles_come_and_go_while_others_write() {
    let scratch = Scratch::new();
    let store = open(&scratch.db(), OpenMode::CreateIfMissing);
    store.create(handle("counter"), b"0".to_vec()).await.unwrap();
    let rounds = testkit::count(20, 200);
    let child = incrementing(&scratch.db(), rounds);
    for round in 0..rounds {
        let mode = [OpenMode::CreateIfMissing, OpenMode::Existing, OpenMode::ReadOnly][round % 3];
        let passing = open(&scratch.db(), mode);
        passing.get(&handle("counter")).await.unwrap().unwrap();
        drop(passing);
        store.create(handle(format!("h{round}")), b"x".to_vec()).await.unwrap();
    }
    assert!(succeeded(child));
    drop(store);
    let store = open(&scratch.db(), OpenMode::Existing);
    assert_eq!(store.get(&handle("counter")).await.unwrap().unwrap().value, rounds.to_string());
    assert_eq!(store.list_all(KeyRange::Handles).await.unwrap().0.len(), rounds + 1);
}
