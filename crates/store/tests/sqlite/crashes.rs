//! Processes that are killed in the middle of commits.

use std::io::{BufRead as _, BufReader};
use std::path::Path;
use std::process::{ChildStdout, Stdio};
use std::sync::mpsc;
use std::time::Duration;

use model::KeyRange;
use store::{Change, Event, OpenMode, Revision, Store};
use testkit::Dice;
use testkit::process::Process;

use super::*;

const WRITERS: usize = 3;
/// Each writer always writes the same number to all of these.
const TOGETHER: usize = 4;

#[tokio::test]
async fn killed_commits_are_all_or_nothing() {
    const TEST: &str = "file::crashes::killed_commits_are_all_or_nothing";
    if let Some(role) = testkit::role() {
        return write_until_killed(Path::new(&role.argument)).await;
    }
    let seed = testkit::seed();
    eprintln!("seed {seed}");
    let mut dice = Dice::new(seed);
    let scratch = Scratch::new();
    drop(open(&scratch.db(), OpenMode::CreateIfMissing));
    let mut last = Seen { numbers: [0; WRITERS], revision: Revision::new("1") };
    for kill in 0..testkit::count(25, 200) {
        let mut command = again(TEST, "write", &scratch.db());
        command.stdout(Stdio::piped());
        let mut child = Process::spawn(command).unwrap();
        let heard = listen(child.child().stdout.take().unwrap());
        // The moment is random, but there is something to interrupt.
        let first = heard.recv().expect("a first commit");
        std::thread::sleep(Duration::from_micros(dice.roll(20_000)));
        child.kill();

        let mut acknowledged = last.numbers;
        for (writer, number) in std::iter::once(first).chain(heard) {
            acknowledged[writer] = number;
        }
        last = check(&scratch.db(), &last, &acknowledged).await;
        eprintln!("kill {kill}: acknowledged {acknowledged:?}, found {:?}", last.numbers);
    }
}

/// What a look into the store showed.
struct Seen {
    numbers: [u64; WRITERS],
    revision: Revision,
}

/// What the process says has been committed, line by line until it is gone.
fn listen(stdout: ChildStdout) -> mpsc::Receiver<(usize, u64)> {
    let (sender, heard) = mpsc::channel();
    std::thread::spawn(move || {
        for line in BufReader::new(stdout).lines().map_while(Result::ok) {
            let said = line.strip_prefix(SAYS).and_then(|text| text.split_once(' '));
            if let Some((writer, number)) = said {
                let _ = sender.send((writer.parse().unwrap(), number.parse().unwrap()));
            }
        }
    });
    heard
}

async fn check(path: &Path, before: &Seen, acknowledged: &[u64; WRITERS]) -> Seen {
    let verdict: String = raw(path).query_row("PRAGMA integrity_check", [], |row| row.get(0)).unwrap();
    assert_eq!(verdict, "ok");

    let store = open(path, OpenMode::Existing);
    let (records, revision) = store.list_all(KeyRange::Handles).await.unwrap();
    assert_eq!(records.len() % TOGETHER, 0, "a commit creates {TOGETHER} records");
    let mut numbers = [0; WRITERS];
    for group in records.chunks(TOGETHER) {
        let (writer, number) = parse(&group[0]);
        assert!(group.iter().all(|record| parse(record) == (writer, number)), "{group:?}");
        assert!(group.iter().all(|record| record.revision == group[0].revision), "{group:?}");
        numbers[writer] = number;
    }
    for (writer, (&found, &told)) in numbers.iter().zip(acknowledged).enumerate() {
        assert!(found >= told, "writer {writer} was told of {told}, found {found}");
        assert!(found <= told + 1, "only one commit at a time was under way: {told}, found {found}");
    }
    check_history(&*store, before, &numbers, &revision).await;
    Seen { numbers, revision }
}

/// Every commit since the last look is in the history, whole, and each made a new revision.
async fn check_history(store: &dyn Store, before: &Seen, numbers: &[u64; WRITERS], revision: &Revision) {
    let mut watch = store.watch(KeyRange::Handles, before.revision.clone()).await.unwrap();
    let mut replayed = before.numbers;
    let mut at: u64 = before.revision.as_str().parse().unwrap();
    while replayed != *numbers {
        let mut commit = Vec::new();
        for _ in 0..TOGETHER {
            match watch.next().await.unwrap().unwrap() {
                Event::Put(record) => commit.push(record),
                other => panic!("expected a change, got {other:?}"),
            }
        }
        let (writer, number) = parse(&commit[0]);
        assert!(commit.iter().all(|record| parse(record) == (writer, number)), "{commit:?}");
        assert_eq!(number, replayed[writer] + 1, "each number once, in order");
        replayed[writer] = number;
        at += 1;
        assert_eq!(commit[0].revision, Revision::new(at.to_string()), "revisions go up one by one");
    }
    assert_eq!(revision.as_str(), at.to_string());
}

/// `writer-number`, from a value; padded with text so that a commit takes several pages.
fn parse(record: &store::Record) -> (usize, u64) {
    let text = std::str::from_utf8(&record.value).unwrap();
    let mut words = text.split(' ');
    (words.next().unwrap().parse().unwrap(), words.next().unwrap().parse().unwrap())
}

async fn write_until_killed(path: &Path) {
    let store = open(path, OpenMode::Existing);
    let tasks: Vec<_> = (0..WRITERS).map(|writer| tokio::spawn(write(store.clone(), writer))).collect();
    for task in tasks {
        task.await.unwrap();
    }
}

async fn write(store: Arc<dyn Store>, writer: usize) {
    let keys: Vec<Key> = (0..TOGETHER).map(|part| handle(format!("w{writer}-{part}"))).collect();
    let mut current = Vec::new();
    for key in &keys {
        current.push(store.get(key).await.unwrap());
    }
    let mut number = current[0].as_ref().map_or(0, |record| parse(record).1);
    let mut revision = current[0].as_ref().map(|record| record.revision.clone());
    loop {
        number += 1;
        let text = format!("{writer} {number} {}", "x".repeat(1500));
        let changes = keys.iter().map(|key| match &revision {
            None => Change::create(key.clone(), text.clone()),
            Some(revision) => Change::update(key.clone(), text.clone(), revision.clone()),
        });
        let committed = store.commit(changes.collect()).await.unwrap();
        revision = committed.revisions.into_iter().next();
        say(&format!("{writer} {number}"));
    }
}

#[test]
fn processes_that_create_the_same_file_agree() {
    const TEST: &str = "file::crashes::processes_that_create_the_same_file_agree";
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    if let Some(role) = testkit::role() {
        let store = open(Path::new(&role.argument), OpenMode::CreateIfMissing);
        runtime.block_on(store.create(handle(role.name), b"x".to_vec())).unwrap();
        return;
    }
    for _ in 0..testkit::count(3, 20) {
        let scratch = Scratch::new();
        let path = scratch.path("made").join("plumb.db");
        let children: Vec<Process> = (0..6)
            .map(|n| {
                let mut command = again(TEST, &format!("h{n}"), &path);
                command.stdout(Stdio::null());
                Process::spawn(command).unwrap()
            })
            .collect();
        for mut child in children {
            assert!(child.child().wait().unwrap().success());
        }
        let store = open(&path, OpenMode::Existing);
        let (records, _) = runtime.block_on(store.list_all(KeyRange::Handles)).unwrap();
        assert_eq!(records.len(), 6);
        drop(store);
        let left: Vec<_> = std::fs::read_dir(scratch.path("made")).unwrap().collect();
        assert_eq!(left.len(), 1, "only the database is left: {left:?}");
    }
}
