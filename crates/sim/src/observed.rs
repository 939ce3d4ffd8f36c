//! The processes' only way to the store: every answer is held against the ledger and taken down in the trace.

use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Arc;

use model::{Key, KeyRange};
use store::{Change, Event, ListRequest, Record, Revision, Store, StoreError, Watch};

use crate::Outcome;
use crate::ledger::{Expected, Ledger, Records, Rule, Violation, broken, in_range, replay};
use crate::processes::pause;
use crate::trace::Trace;

/// What all processes of a run share.
#[derive(Debug)]
pub(crate) struct World {
    pub(crate) store: Arc<dyn Store>,
    pub(crate) ledger: RefCell<Ledger>,
    pub(crate) trace: RefCell<Trace>,
    pub(crate) tally: RefCell<Outcome>,
    pub(crate) history_may_go: bool,
}

/// The store as one process sees it.
#[derive(Clone, Debug)]
pub(crate) struct Observed {
    world: Rc<World>,
    process: String,
}

impl Observed {
    pub(crate) fn new(world: Rc<World>, process: String) -> Observed {
        Observed { world, process }
    }

    pub(crate) fn process(&self) -> &str {
        &self.process
    }

    pub(crate) async fn get(&self, key: &Key) -> Result<Option<Record>, Violation> {
        let record = match self.world.store.get(key).await {
            Ok(record) => record,
            Err(error) => return broken(Rule::Failed, format!("reading {key} failed: {error}")),
        };
        self.note(format!("read {key} {:?}", record.as_ref().map(|record| &record.revision)));
        let ledger = self.world.ledger.borrow();
        let expected = ledger.now().get(key);
        if record.as_ref() == expected {
            return Ok(record);
        }
        broken(Rule::WrongRead, format!("{key} reads as {record:?}, expected {expected:?}"))
    }

    /// Whether the commit was accepted; if not, somebody else was faster.
    pub(crate) async fn commit(&self, changes: Vec<Change>) -> Result<bool, Violation> {
        let answer = self.world.store.commit(changes.clone()).await;
        self.note(format!("commit {changes:?} -> {answer:?}"));
        let mut ledger = self.world.ledger.borrow_mut();
        let mut tally = self.world.tally.borrow_mut();
        match answer {
            Ok(committed) => {
                tally.accepted += 1;
                ledger.accepted(&changes, &committed).map(|()| true)
            }
            Err(error) => {
                tally.refused += 1;
                ledger.refused(&changes, &error).map(|()| false)
            }
        }
    }

    /// A whole list, with a pause after every page. Starts over when the store has forgotten its moment.
    pub(crate) async fn list(&self, range: &KeyRange, page: usize) -> Result<(Records, Revision), Violation> {
        loop {
            if let Some((records, revision)) = self.try_list(range, page).await? {
                self.world.tally.borrow_mut().lists += 1;
                self.note(format!("listed {} of {range:?} at {revision}", records.len()));
                self.check_list(range, &records, &revision)?;
                let records = records.into_iter().map(|record| (record.key.clone(), record)).collect();
                return Ok((records, revision));
            }
        }
    }

    async fn try_list(
        &self,
        range: &KeyRange,
        page: usize,
    ) -> Result<Option<(Vec<Record>, Revision)>, Violation> {
        let mut request = ListRequest::new(range.clone()).with_limit(page);
        let mut records = Vec::new();
        let mut moment: Option<Revision> = None;
        loop {
            let answer = match self.world.store.list(request.clone()).await {
                Ok(answer) => answer,
                Err(StoreError::HistoryGone { .. }) if moment.is_some() => {
                    return self.history_gone("a list").map(|()| None);
                }
                Err(error) => return broken(Rule::Failed, format!("listing {range:?} failed: {error}")),
            };
            let moment = moment.get_or_insert_with(|| answer.revision.clone());
            if *moment != answer.revision {
                let detail = format!("a list began at {moment} and went on at {}", answer.revision);
                return broken(Rule::WrongRead, detail);
            }
            self.note(format!("page of {} at {}", answer.records.len(), answer.revision));
            records.extend(answer.records);
            match answer.next {
                Some(next) => request = request.continued(next),
                None => return Ok(Some((records, answer.revision))),
            }
            pause().await;
        }
    }

    fn check_list(&self, range: &KeyRange, records: &[Record], revision: &Revision) -> Result<(), Violation> {
        let ledger = self.world.ledger.borrow();
        let then = ledger.at(ledger.moment(revision)?);
        let mut expected: Vec<&Record> =
            then.values().filter(|record| in_range(range, &record.key)).collect();
        expected.sort_by_key(|record| record.key.etcd_text());
        if records.iter().eq(expected.iter().copied()) {
            return Ok(());
        }
        let detail = format!("{range:?} at {revision} lists {records:?}, expected {expected:?}");
        broken(Rule::WrongRead, detail)
    }

    pub(crate) async fn watch(&self, range: &KeyRange, after: &Revision) -> Result<ObservedWatch, Violation> {
        let watch = match self.world.store.watch(range.clone(), after.clone()).await {
            Ok(watch) => watch,
            Err(error) => return broken(Rule::Failed, format!("watching {range:?} failed: {error}")),
        };
        self.note(format!("watch {range:?} after {after}"));
        let moment = self.world.ledger.borrow().moment(after)?;
        Ok(ObservedWatch { observed: self.clone(), watch, expected: Expected::after(range.clone(), moment) })
    }

    fn history_gone(&self, who: &str) -> Result<(), Violation> {
        self.note(format!("history gone for {who}"));
        self.world.tally.borrow_mut().histories_gone += 1;
        if self.world.history_may_go {
            return Ok(());
        }
        broken(Rule::HistoryLost, format!("{who} was told that history is gone"))
    }

    fn note(&self, line: String) {
        self.world.trace.borrow_mut().push(format!("{}: {line}", self.process));
    }
}

#[derive(Debug)]
pub(crate) struct ObservedWatch {
    observed: Observed,
    watch: Watch,
    expected: Expected,
}

impl ObservedWatch {
    /// Brings `view` up to the next event; waits for it. False if history is gone and the view must be made anew.
    pub(crate) async fn follow(&mut self, view: &mut Records) -> Result<bool, Violation> {
        let event = match self.watch.next().await {
            Some(Ok(event)) => event,
            Some(Err(error)) => return broken(Rule::Failed, format!("a watch failed: {error}")),
            None => return broken(Rule::Failed, "a watch ended"),
        };
        if event == Event::HistoryGone {
            return self.observed.history_gone("a watch").map(|()| false);
        }
        self.observed.note(format!("saw {event:?}"));
        let world = &self.observed.world;
        world.tally.borrow_mut().events += 1;
        self.expected.saw(&event, &world.ledger.borrow())?;
        replay(view, &event);
        Ok(true)
    }

    /// Where another watch may go on.
    pub(crate) fn position(&self) -> &Revision {
        self.watch.position()
    }
}
