//! Pods come and go as fast as they can, the doctor looks all the time, and says nothing: until something is really wrong.

use std::io::{BufRead as _, BufReader};
use std::process::Stdio;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use lab::cluster::{OwnCluster, StoreKind};
use lab::kubelet::{KubeletRequest, NewPod};
use model::FindingCode;
use serde_json::Value;

use crate::scene::{Verdict, doctor, missing, plan};

const WORKERS: usize = 12;
const NODES: [&str; 2] = ["node1", "node2"];
/// A handle that no block knows, as a plugin of old leaves it.
const LEFTOVER: &str = "/calico/ipam/v2/handle/left-by-nobody";

/// One ADD and one DEL after the other, until all are done.
fn work(lab: &OwnCluster, worker: usize, left: &AtomicUsize) -> Result<()> {
    let take = || left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| left.checked_sub(1));
    while let Ok(number) = take() {
        let (node, name) = (NODES[number % NODES.len()], format!("churn/w{worker}-{}", number % 3));
        let pod = NewPod::new(&name.parse()?);
        let key = name.parse()?;
        lab.kubelet(node, &KubeletRequest::Add { pods: vec![pod], waits: true })?;
        lab.kubelet(node, &KubeletRequest::Delete { pods: vec![key], waits: true })?;
    }
    Ok(())
}

/// As an operator calls it, or as if all pods were old: then nothing but the second look tells what comes and goes.
fn audit(lab: &OwnCluster, as_if_old: bool) -> Result<Verdict> {
    let mut doctor = doctor(lab)?;
    if as_if_old {
        doctor.args(["--grace", "0"]);
    }
    Verdict::of(doctor)
}

/// Looks again and again until the pods have come and gone.
fn audit_all_the_time(lab: &OwnCluster, is_over: &AtomicBool) -> Result<usize> {
    let mut audits = 0;
    while !is_over.load(Ordering::Relaxed) {
        let verdict = audit(lab, audits % 2 == 0)?;
        ensure!(verdict.roots.is_empty(), "audit {audits}: {:#}", verdict.report);
        audits += 1;
    }
    Ok(audits)
}

/// `plumb doctor --watch`, a line for each look. Ends when the pods have come and gone.
fn watch(lab: &OwnCluster, is_over: &AtomicBool) -> Result<usize> {
    let mut doctor = doctor(lab)?;
    doctor.args(["--watch", "--every", "1", "--grace", "0"]).stdout(Stdio::piped());
    let mut process = doctor.spawn().context("cannot run plumb doctor")?;
    let lines = BufReader::new(process.stdout.take().context("its output")?).lines();
    let mut looks = 0;
    let mut problem = Ok(());
    for line in lines {
        let report: Value = serde_json::from_str(&line?)?;
        let new = report["new"].as_array().context("what is new")?;
        looks += 1;
        if !new.is_empty() {
            problem = Err(anyhow::anyhow!("look {looks}: {report:#}"));
        }
        if problem.is_err() || is_over.load(Ordering::Relaxed) {
            break;
        }
    }
    process.kill()?;
    process.wait()?;
    problem.map(|()| looks)
}

/// Pods that stay, then many that do not, with two who look.
fn churn(lab: &OwnCluster, pods: usize) -> Result<(usize, usize)> {
    let left = AtomicUsize::new(pods);
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let auditor = scope.spawn(|| audit_all_the_time(lab, &is_over));
        let watcher = scope.spawn(|| watch(lab, &is_over));
        let left = &left;
        let workers: Vec<_> =
            (0..WORKERS).map(|worker| scope.spawn(move || work(lab, worker, left))).collect();
        let worked: Vec<Result<()>> =
            workers.into_iter().map(|worker| worker.join().expect("no panic")).collect();
        is_over.store(true, Ordering::Relaxed);
        let audits = auditor.join().expect("no panic")?;
        let looks = watcher.join().expect("no panic")?;
        worked.into_iter().collect::<Result<()>>()?;
        Ok((audits, looks))
    })
}

/// A fault while pods come and go: it alone is found.
fn see_a_fault_in_between(lab: &OwnCluster) -> Result<()> {
    let left = AtomicUsize::new(usize::MAX);
    std::thread::scope(|scope| {
        let left = &left;
        let workers: Vec<_> =
            (0..WORKERS).map(|worker| scope.spawn(move || work(lab, worker, left))).collect();
        let verdict = leave_handle(lab, true).and_then(|()| audit(lab, true));
        left.store(0, Ordering::Relaxed);
        leave_handle(lab, false)?;
        workers.into_iter().try_for_each(|worker| worker.join().expect("no panic"))?;
        let roots = verdict?.roots;
        let expected = [(FindingCode::HandleUnused, "handle left-by-nobody".to_owned())];
        ensure!(roots == expected.into(), "{roots:?}");
        Ok(())
    })
}

/// Past all checks, straight into the file.
fn leave_handle(lab: &OwnCluster, is_there: bool) -> Result<()> {
    let settings = lab.environment_of(NODES[0])?;
    let path = settings.iter().find(|(name, _)| name == "SQLITE_PATH").context("a store")?.1.clone();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let config = store::StoreConfig::Sqlite { path: path.into() };
        let store = store::open(&config, store::OpenMode::Existing).await?;
        let key = model::Key::from_etcd_text(LEFTOVER)?;
        match store.get(&key).await? {
            Some(known) if !is_there => store.delete(key, known.revision).await.map(|_| ())?,
            None if is_there => {
                let value = br#"{"id":"left-by-nobody","block":{"10.244.0.0/26":1}}"#.to_vec();
                store.create(key, value).await.map(|_| ())?;
            }
            _ => {}
        }
        Ok(())
    })
}

#[test]
fn nothing_is_found_while_pods_come_and_go() {
    let test = "nothing_is_found_while_pods_come_and_go";
    if let Some(reason) = missing(StoreKind::Sqlite) {
        return testkit::skip(test, &reason);
    }
    let lab = OwnCluster::up(plan(StoreKind::Sqlite, NODES.len()).unwrap(), &|_| {}).unwrap();
    let stays = (0..4).map(|number| NewPod::new(&format!("stays/p{number}").parse().unwrap())).collect();
    lab.kubelet(NODES[0], &KubeletRequest::Add { pods: stays, waits: true }).unwrap();
    let pods = testkit::count(100, 1_000);
    let start = Instant::now();
    let (audits, looks) = churn(&lab, pods / 2).unwrap();
    see_a_fault_in_between(&lab).unwrap();
    let (more_audits, more_looks) = churn(&lab, pods / 2).unwrap();
    eprintln!(
        "{} ADDs and DELs in {:?}: {} audits and {} looks of a watch found nothing",
        pods / 2 * 2,
        Duration::from_secs(start.elapsed().as_secs()),
        audits + more_audits,
        looks + more_looks
    );
    assert!(audits > 0 && more_audits > 0 && looks > 0 && more_looks > 0);
    let verdict = audit(&lab, true).unwrap();
    assert!(verdict.roots.is_empty(), "{:#}", verdict.report);
}
