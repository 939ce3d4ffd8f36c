//! Repairs beside others: two at once, and pods that come and go.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use book::{AssignRequest, Book, HandleRequest};
use ipam::Owner;
use jiff::Timestamp;
use mend::Repair;
use store::{OpenMode, SqliteStore, Store};

use crate::nobody;
use crate::world::{assert_mended, dump, look, make};

fn sqlite(folder: &std::path::Path) -> Arc<dyn Store> {
    Arc::new(SqliteStore::open(folder.join("plumb.db"), OpenMode::CreateIfMissing).unwrap())
}

#[tokio::test(flavor = "multi_thread")]
async fn two_repairs_at_once_do_it_once_and_both_can_be_taken_back() {
    let folder = tempfile::tempdir().unwrap();
    let store = sqlite(folder.path());
    make(&store).await;
    let before = dump(&store).await;
    let (plan, _) = look(&store).await;
    let run = |id: &str| {
        let (mut plan, store, folder) = (plan.clone(), Arc::clone(&store), folder.path().to_owned());
        plan.id = id.to_owned();
        tokio::spawn(async move {
            let mut repair = Repair::begin(&folder, plan, store, nobody()).unwrap();
            repair.steps_at_once = 1;
            repair.run(&|_| ()).await.unwrap()
        })
    };
    let (one, two) = (run("one"), run("two"));
    let (one, two) = (one.await.unwrap(), two.await.unwrap());
    assert!(one.is_complete() && two.is_complete(), "{one:?} {two:?}");
    assert_mended(&store, &before).await;
    for id in ["one", "two"] {
        Repair::undo(folder.path(), id, Arc::clone(&store), nobody(), &|_, _| ()).await.unwrap();
    }
    assert_eq!(dump(&store).await, before);
}

/// Sixteen take and give back addresses of the very block, all the time.
#[tokio::test(flavor = "multi_thread")]
async fn pods_come_and_go_while_it_is_done_and_taken_back() {
    let folder = tempfile::tempdir().unwrap();
    let store = sqlite(folder.path());
    make(&store).await;
    let before = dump(&store).await;
    let (stop, calls) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicUsize::new(0)));
    let book = Arc::new(Book::new(Arc::clone(&store)));
    let churn: Vec<_> = (0..16)
        .map(|pod| tokio::spawn(come_and_go(pod, Arc::clone(&book), Arc::clone(&stop), Arc::clone(&calls))))
        .collect();
    let rounds = testkit::count(3, 30);
    for round in 0..rounds {
        let (mut plan, _) = look(&store).await;
        // What comes and goes looks like a leak for a moment; a repair sees to that with a second look.
        let (again, _) = look(&store).await;
        plan.keep_agreed(&again);
        plan.steps.retain(|step| !step.edits.iter().any(|edit| edit.to_string().contains("churn")));
        plan.id = format!("round-{round}");
        let mut repair = Repair::begin(folder.path(), plan.clone(), Arc::clone(&store), nobody()).unwrap();
        let outcome = repair.run(&|_| ()).await.unwrap();
        assert!(outcome.is_complete(), "{outcome:?}");
        drop(repair);
        let undone =
            Repair::undo(folder.path(), &plan.id, Arc::clone(&store), nobody(), &|_, _| ()).await.unwrap();
        // An address that was free for a moment may be a new pod's by now; then it stays that pod's.
        for trouble in undone.1.troubles() {
            assert!(trouble.said.as_deref().unwrap_or_default().contains("churn"), "{trouble:?}");
        }
    }
    stop.store(true, Ordering::SeqCst);
    for pod in churn {
        pod.await.unwrap();
    }
    assert!(calls.load(Ordering::SeqCst) > 16, "pods did come and go");
    let after = dump(&store).await;
    let key = model::Key::Block(crate::world::block()).etcd_text();
    assert_eq!(after[&key]["held"][crate::world::LIVE], before[&key]["held"][crate::world::LIVE]);
}

async fn come_and_go(pod: usize, book: Arc<Book>, stop: Arc<AtomicBool>, calls: Arc<AtomicUsize>) {
    while !stop.load(Ordering::SeqCst) {
        let handle = format!("churn-{pod}.{:064x}", calls.fetch_add(1, Ordering::SeqCst));
        let owner = Owner::on_node(&handle, "a", Timestamp::now());
        let given = book.assign(AssignRequest::new("a", owner, &[model::IpVersion::V4])).await.unwrap();
        let released = book.release_handle(HandleRequest::all(&handle)).await.unwrap();
        assert_eq!(released.addresses.len(), 1, "{handle} lost {given:?} to somebody");
    }
}
