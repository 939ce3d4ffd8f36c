//! Plans, carried out against stores that fail, beside others who write, killed and resumed, and taken back.

mod races;
mod world;

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use mend::{Happened, History, HistoryError, MendError, Nodes, Repair};
use model::ipam::Block;
use model::{FindingCode, Key, NodeName};
use plan::task::{KernelChange, RepairTask, TaskOutcome};
use repair::{OnNode, Plan, Step};
use store::wrap::{FailingStore, Failure};
use store::{Change, MemoryStore, Store};
use world::{BLOCK, LEAKED, assert_mended, block, dump, look, make};

/// No node at all, or one that answers as it is told.
#[derive(Default)]
pub(crate) struct Agents {
    pub(crate) is_there: AtomicBool,
}

#[async_trait::async_trait]
impl Nodes for Agents {
    async fn work(&self, node: &NodeName, works: &[RepairTask]) -> Result<Vec<TaskOutcome>, String> {
        match self.is_there.load(Ordering::SeqCst) {
            true => {
                Ok(works.iter().map(|work| TaskOutcome::Done { undo: Some(Box::new(work.undo())) }).collect())
            }
            false => Err(format!("{node} does not answer")),
        }
    }
}

pub(crate) fn nobody() -> Arc<Agents> {
    Arc::new(Agents::default())
}

fn memory() -> Arc<dyn Store> {
    Arc::new(MemoryStore::new())
}

/// Runs a plan one step per commit.
async fn run(folder: &Path, plan: Plan, store: Arc<dyn Store>) -> Result<mend::Outcome, MendError> {
    let mut repair = Repair::begin(folder, plan, store, nobody())?;
    repair.steps_at_once = 1;
    repair.patience = std::time::Duration::ZERO;
    repair.run(&|_| ()).await
}

#[tokio::test]
async fn a_plan_is_done_and_taken_back() {
    let (store, folder) = (memory(), tempfile::tempdir().unwrap());
    make(&store).await;
    let before = dump(&store).await;
    let (plan, _) = look(&store).await;
    assert!(plan.steps.len() > LEAKED, "{plan:#?}");
    let outcome = run(folder.path(), plan.clone(), Arc::clone(&store)).await.unwrap();
    assert!(outcome.is_complete());
    assert_eq!(outcome.count(Happened::Done), plan.steps.len());
    assert_mended(&store, &before).await;
    let (_, outcome) =
        Repair::undo(folder.path(), &plan.id, Arc::clone(&store), nobody(), &|_, _| ()).await.unwrap();
    assert_eq!(outcome.troubles().count(), 0);
    assert_eq!(dump(&store).await, before);
    let listed = History::list(folder.path()).unwrap();
    assert_eq!((listed.len(), listed[0].state, listed[0].done), (1, "undone", plan.steps.len()));
    // Again, as another repair: what was taken back can be done anew.
    let (mut again, _) = look(&store).await;
    again.id = "test-2".to_owned();
    assert!(run(folder.path(), again, Arc::clone(&store)).await.unwrap().is_complete());
    assert_mended(&store, &before).await;
}

#[tokio::test]
async fn numbers_of_blocks_never_go_back() {
    let (store, folder) = (memory(), tempfile::tempdir().unwrap());
    make(&store).await;
    let number = |store: Arc<dyn Store>| async move {
        let record = store.get(&Key::Block(block())).await.unwrap().unwrap();
        Block::decode(&block(), &record.value).unwrap().sequence_number
    };
    let first = number(Arc::clone(&store)).await;
    let (plan, _) = look(&store).await;
    run(folder.path(), plan.clone(), Arc::clone(&store)).await.unwrap();
    let second = number(Arc::clone(&store)).await;
    Repair::undo(folder.path(), &plan.id, Arc::clone(&store), nobody(), &|_, _| ()).await.unwrap();
    let third = number(store).await;
    assert!(first < second && second < third, "{first} {second} {third}");
}

/// Whatever a process was doing when it ended: the next one goes on, everything is mended, and all of it can be taken back.
#[tokio::test]
async fn whoever_ends_at_any_write_can_be_gone_on_with_and_taken_back() {
    for failure in [Failure::End, Failure::NotDone, Failure::AnswerLost] {
        let mut points = 0;
        for at in 0.. {
            let (store, folder) = (memory(), tempfile::tempdir().unwrap());
            make(&store).await;
            let before = dump(&store).await;
            let (plan, _) = look(&store).await;
            let failing = Arc::new(FailingStore::new(Arc::clone(&store), failure, at));
            let first = run(folder.path(), plan.clone(), Arc::clone(&failing) as Arc<dyn Store>).await;
            if !failing.has_failed() {
                break;
            }
            points += 1;
            if failure == Failure::End {
                assert!(first.is_err(), "nobody answers any more");
            }
            let mut next = Repair::resume(folder.path(), &plan.id, Arc::clone(&store), nobody()).unwrap();
            let outcome = next.run(&|_| ()).await.unwrap();
            drop(next);
            assert!(outcome.is_complete(), "{failure:?} at {at}: {outcome:?}");
            assert_mended(&store, &before).await;
            let undone =
                Repair::undo(folder.path(), &plan.id, Arc::clone(&store), nobody(), &|_, _| ()).await;
            assert_eq!(undone.unwrap().1.troubles().count(), 0, "{failure:?} at {at}");
            assert_eq!(dump(&store).await, before, "{failure:?} at {at}");
        }
        assert!(points > LEAKED, "{points} points");
    }
}

#[tokio::test]
async fn a_history_that_was_cut_anywhere_can_be_gone_on_with() {
    let (store, folder) = (memory(), tempfile::tempdir().unwrap());
    make(&store).await;
    let before = dump(&store).await;
    let (plan, _) = look(&store).await;
    run(folder.path(), plan.clone(), Arc::clone(&store)).await.unwrap();
    let path = folder.path().join(format!("{}.repair", plan.id));
    let whole = std::fs::read(&path).unwrap();
    let first = whole.iter().position(|byte| *byte == b'\n').unwrap();
    for cut in (first + 1..whole.len()).step_by(37) {
        std::fs::write(&path, &whole[..cut]).unwrap();
        let mut next = Repair::resume(folder.path(), &plan.id, Arc::clone(&store), nobody()).unwrap();
        assert!(next.run(&|_| ()).await.unwrap().is_complete(), "cut at {cut}");
        drop(next);
        // What was added after the cut can be read.
        assert_eq!(History::list(folder.path()).unwrap()[0].state, "complete");
    }
    assert_mended(&store, &before).await;
    std::fs::write(&path, &whole[..first / 2]).unwrap();
    let refused = Repair::resume(folder.path(), &plan.id, store, nobody()).unwrap_err();
    assert!(matches!(refused, MendError::History(HistoryError::Damaged { .. })), "{refused}");
}

#[tokio::test]
async fn after_a_surprise_only_what_depends_on_it_is_left_out() {
    for keeps_going in [false, true] {
        let (store, folder) = (memory(), tempfile::tempdir().unwrap());
        make(&store).await;
        let (plan, _) = look(&store).await;
        // Somebody releases one of the leaked addresses, and another pod gets it.
        let taken = "10.0.0.3".parse().unwrap();
        edit_block(&store, |block| {
            let ordinal = block.ordinal(taken).unwrap();
            ipam::set_allocation(
                block,
                ordinal,
                Some(model::ipam::BlockAttribute { handle_id: Some("another".into()), ..Default::default() }),
            );
        })
        .await;
        let mut repair = Repair::begin(folder.path(), plan.clone(), Arc::clone(&store), nobody()).unwrap();
        repair.keeps_going = keeps_going;
        let outcome = repair.run(&|_| ()).await.unwrap();
        assert_eq!(outcome.count(Happened::Surprise), 1, "{outcome:?}");
        let said = outcome.troubles().next().unwrap().said.clone().unwrap();
        assert!(said.contains("10.0.0.3 is another now"), "{said}");
        // Other addresses of the same block do not depend on it.
        assert_eq!(outcome.count(Happened::Done) + outcome.not_tried, plan.steps.len() - 1, "{outcome:?}");
        assert!(outcome.not_tried == 0 || !keeps_going, "{outcome:?}");
        let owners = dump(&store).await;
        assert_eq!(owners[&Key::Block(block()).etcd_text()]["held"]["10.0.0.3"]["handle_id"], "another");
    }
}

async fn edit_block(store: &Arc<dyn Store>, edit: impl FnOnce(&mut Block)) {
    let record = store.get(&Key::Block(block())).await.unwrap().unwrap();
    let mut found = Block::decode(&block(), &record.value).unwrap();
    edit(&mut found);
    ipam::count_write(&mut found);
    store.commit(vec![Change::update(Key::Block(block()), found.encode(), record.revision)]).await.unwrap();
}

#[tokio::test]
async fn undo_leaves_what_has_changed_since_and_names_it() {
    let (store, folder) = (memory(), tempfile::tempdir().unwrap());
    make(&store).await;
    let before = dump(&store).await;
    let (plan, _) = look(&store).await;
    run(folder.path(), plan.clone(), Arc::clone(&store)).await.unwrap();
    // A new pod gets an address that was freed.
    edit_block(&store, |block| {
        let ordinal = block.ordinal("10.0.0.2".parse().unwrap()).unwrap();
        let owner = model::ipam::BlockAttribute { handle_id: Some("new".into()), ..Default::default() };
        ipam::set_allocation(block, ordinal, Some(owner));
    })
    .await;
    let (_, outcome) =
        Repair::undo(folder.path(), &plan.id, Arc::clone(&store), nobody(), &|_, _| ()).await.unwrap();
    let troubles: Vec<_> = outcome.troubles().collect();
    assert_eq!(troubles.len(), 1, "{troubles:?}");
    let said = troubles[0].said.as_deref().unwrap();
    assert!(said.contains(BLOCK) && said.contains("10.0.0.2 is new now"), "{said}");
    let after = dump(&store).await;
    let held = |of: &std::collections::BTreeMap<String, serde_json::Value>, at: &str| {
        of[&Key::Block(block()).etcd_text()]["held"][at]["handle_id"].clone()
    };
    assert_eq!(held(&after, "10.0.0.2"), "new");
    assert_eq!(held(&after, "10.0.0.4"), held(&before, "10.0.0.4"));
    assert_eq!(History::list(folder.path()).unwrap()[0].state, "partly undone");
}

#[tokio::test]
async fn a_node_that_does_not_answer_halfway_can_be_gone_on_with() {
    let (store, folder) = (memory(), tempfile::tempdir().unwrap());
    make(&store).await;
    let before = dump(&store).await;
    let (mut plan, _) = look(&store).await;
    let work = RepairTask::here(KernelChange::Up { device: "cali1".to_owned(), from: false, to: true });
    let step = Step {
        number: 99,
        on_node: Some(OnNode { node: "a".into(), works: vec![work] }),
        ..Step::new(FindingCode::DeviceDown, "device cali1 on a", "")
    };
    plan.steps.insert(1, step);
    let nodes = nobody();
    let mut repair = Repair::begin(folder.path(), plan.clone(), Arc::clone(&store), nodes.clone()).unwrap();
    let outcome = repair.run(&|_| ()).await.unwrap();
    // Nothing rests on it: everything else is done.
    assert_eq!(outcome.count(Happened::Failed), 1);
    assert_eq!((outcome.count(Happened::Done), outcome.not_tried), (plan.steps.len() - 1, 0));
    drop(repair);
    nodes.is_there.store(true, Ordering::SeqCst);
    let mut next = Repair::resume(folder.path(), &plan.id, Arc::clone(&store), nodes.clone()).unwrap();
    assert!(next.run(&|_| ()).await.unwrap().is_complete());
    drop(next);
    assert_mended(&store, &before).await;
    let (_, outcome) =
        Repair::undo(folder.path(), &plan.id, Arc::clone(&store), nodes, &|_, _| ()).await.unwrap();
    assert_eq!(outcome.count(Happened::Done), plan.steps.len());
}

/// An agent that fails where it is told to.
struct Refusing(&'static str);

#[async_trait::async_trait]
impl Nodes for Refusing {
    async fn work(&self, _: &NodeName, works: &[RepairTask]) -> Result<Vec<TaskOutcome>, String> {
        let done = |work: &RepairTask| match work.to_string().contains(self.0) {
            true => TaskOutcome::Failed { said: "the kernel refused".to_owned() },
            false => TaskOutcome::Done { undo: Some(Box::new(work.undo())) },
        };
        Ok(works.iter().map(done).collect())
    }
}

fn on_node(number: u32, change: KernelChange) -> Step {
    Step {
        number,
        on_node: Some(OnNode { node: "a".into(), works: vec![RepairTask::here(change)] }),
        ..Step::new(FindingCode::TunnelDeviceWrong, format!("step {number}"), format!("title {number}"))
    }
}

/// A step in the middle fails: what leads through its device is left out, and said; everything else is done, each named as its turn comes.
#[tokio::test]
async fn after_a_failed_step_what_does_not_depend_on_it_is_done() {
    let (store, folder) = (memory(), tempfile::tempdir().unwrap());
    make(&store).await;
    let before = dump(&store).await;
    let (mut plan, _) = look(&store).await;
    let route = |to: &str, device: &str| KernelChange::Route {
        destination: to.parse().unwrap(),
        from: None,
        to: Some(plan::task::NextHop { device: Some(device.to_owned()), ..Default::default() }),
    };
    let up = |device: &str| KernelChange::Up { device: device.to_owned(), from: false, to: true };
    let changes = [up("eth1"), up("tunnel"), route("10.9.0.0/26", "tunnel"), route("10.9.1.0/26", "eth1")];
    let own: Vec<Step> = (101..).zip(changes).map(|(number, change)| on_node(number, change)).collect();
    let records = plan.steps.len();
    plan.steps.splice(1..1, own);
    let nodes = Arc::new(Refusing("tunnel up"));
    let mut repair = Repair::begin(folder.path(), plan.clone(), Arc::clone(&store), nodes).unwrap();
    let told = std::sync::Mutex::new(Vec::new());
    let tell = |progress: mend::Progress<'_>| {
        told.lock().unwrap().push(match progress {
            mend::Progress::Begins { step, place, of } => format!("{place}/{of} {}", step.number),
            mend::Progress::Over { outcome, .. } => format!("{} {:?}", outcome.step, outcome.how),
            mend::Progress::Waits { step, for_step, .. } => format!("{} waits for {for_step}", step.number),
        });
    };
    let outcome = repair.run(&tell).await.unwrap();
    assert_eq!((outcome.count(Happened::Failed), outcome.not_tried), (1, 1), "{outcome:?}");
    assert_eq!(outcome.count(Happened::Done), records + 2, "{outcome:?}");
    assert!(!outcome.is_complete());
    assert_mended(&store, &before).await;
    let told = told.into_inner().unwrap();
    let total = records + 4;
    let is_own = |line: &&str| (101..=104).any(|number: u32| line.contains(&number.to_string()));
    let of_nodes: Vec<&str> = told.iter().map(String::as_str).filter(is_own).collect();
    assert_eq!(
        of_nodes,
        [
            format!("2/{total} 101").as_str(),
            "101 Done",
            format!("3/{total} 102").as_str(),
            "102 Failed",
            "103 waits for 102",
            format!("5/{total} 104").as_str(),
            "104 Done",
        ],
        "{told:?}"
    );
    assert_eq!(
        told.iter().filter(|line| line.contains('/')).count(),
        total - 1,
        "each is named once: {told:?}"
    );
}

/// What failed is known to later plans, until it is done.
#[tokio::test]
async fn what_failed_is_remembered_until_it_is_done() {
    let (store, folder) = (memory(), tempfile::tempdir().unwrap());
    let step = on_node(1, KernelChange::Up { device: "tunnel".to_owned(), from: false, to: true });
    for (round, refused, expected) in [(1, "tunnel", Some(1)), (2, "tunnel", Some(2)), (3, "nothing", None)] {
        let plan =
            Plan { version: 1, id: format!("try-{round}"), steps: vec![step.clone()], ..Plan::default() };
        let nodes = Arc::new(Refusing(refused));
        Repair::begin(folder.path(), plan, Arc::clone(&store), nodes).unwrap().run(&|_| ()).await.unwrap();
        let failures = mend::Failure::list(folder.path());
        assert_eq!(failures.first().map(|failure| failure.times), expected, "{failures:?}");
        assert!(
            failures
                .iter()
                .all(|failure| failure.step.id() == step.id() && failure.said == "the kernel refused")
        );
    }
    assert_eq!(mend::Failure::list(&folder.path().join("nowhere")), []);
}

#[tokio::test]
async fn what_a_new_look_does_not_confirm_is_only_found_done() {
    let (store, folder) = (memory(), tempfile::tempdir().unwrap());
    make(&store).await;
    let (plan, _) = look(&store).await;
    let mut repair = Repair::begin(folder.path(), plan.clone(), Arc::clone(&store), nobody()).unwrap();
    repair.unconfirmed = [(plan.steps[0].number, "it lives".to_owned())].into();
    repair.keeps_going = true;
    let outcome = repair.run(&|_| ()).await.unwrap();
    assert_eq!(outcome.steps[0].how, Happened::Surprise);
    assert!(outcome.steps[0].said.as_deref().unwrap_or_default().ends_with("it lives"), "{outcome:?}");
    assert_eq!(outcome.count(Happened::Surprise), 1, "{outcome:?}");
}

#[test]
fn a_history_is_for_one_at_a_time_and_its_name_is_no_path() {
    let folder = tempfile::tempdir().unwrap();
    let plan = Plan { version: 1, id: "one".to_owned(), ..Plan::default() };
    let held = History::begin(folder.path(), &plan).unwrap();
    assert!(matches!(History::open(folder.path(), "one"), Err(HistoryError::Busy { .. })));
    drop(held);
    History::open(folder.path(), "one").unwrap();
    for wrong in ["", "two", "../one", "a/b", "one.repair"] {
        assert!(
            matches!(History::open(folder.path(), wrong), Err(HistoryError::Unknown { .. })),
            "{wrong:?}"
        );
    }
}
