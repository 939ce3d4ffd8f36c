//! Several processes on one cluster.

use model::Key;
use store::etcd::{EtcdConfig, EtcdStore};
use store::{Store, StoreError};
use testkit::etcd::{Setup, start_or_skip};
use testkit::process::Process;

use crate::connect;

const PROCESSES: usize = 8;

fn counter() -> Key {
    Key::Handle("counter".into())
}

#[tokio::test]
async fn increments_of_eight_processes_add_up() {
    const TEST: &str = "processes::increments_of_eight_processes_add_up";
    if let Some(role) = testkit::role() {
        return increment(&role.argument).await;
    }
    let Some(cluster) = start_or_skip(TEST, Setup::members(1)) else { return };
    let each = testkit::count(60, 1000);
    let store = connect(&cluster).await;
    let store: &dyn Store = &store;
    store.create(counter(), b"0".to_vec()).await.unwrap();

    let children: Vec<Process> = (0..PROCESSES)
        .map(|_| {
            let argument = format!("{each} {}", cluster.endpoint(0));
            let mut command = testkit::again(TEST, "increment", &argument);
            command.stdout(std::process::Stdio::null());
            Process::spawn(command).unwrap()
        })
        .collect();
    for mut child in children {
        assert!(child.child().wait().unwrap().success());
    }
    let found = store.get(&counter()).await.unwrap().unwrap();
    assert_eq!(found.value, (PROCESSES * each).to_string());
}

async fn increment(argument: &str) {
    let (times, endpoint) = argument.split_once(' ').unwrap();
    let store = EtcdStore::connect(EtcdConfig::new([endpoint])).await.unwrap();
    let store: &dyn Store = &store;
    let mut record = store.get(&counter()).await.unwrap().unwrap();
    for _ in 0..times.parse::<usize>().unwrap() {
        loop {
            let number: u64 = std::str::from_utf8(&record.value).unwrap().parse().unwrap();
            let value = (number + 1).to_string();
            match store.update(counter(), value.clone().into(), record.revision).await {
                Ok(revision) => {
                    record.value = value.into();
                    record.revision = revision;
                    break;
                }
                Err(StoreError::Conflict { current }) => record = *current,
                Err(error) => panic!("{error:?}"),
            }
        }
    }
}
