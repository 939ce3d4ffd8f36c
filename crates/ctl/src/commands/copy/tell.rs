//! What a copy did, for people and for programs.

use std::collections::BTreeMap;
use std::io::{self, Write as _};

use bytes::Bytes;
use model::Key;
use model::text::harmless;
use model::transfer::information::Standing;
use model::transfer::{Obstacle, Plan, information};
use serde::Serialize;

use super::Source;
use super::begin::Beginning;
use super::finish::records;
use super::scan::{Met, There};
use super::write::Outcome;
use crate::cli::copy::{Copy, CopyFormat};
use crate::failure::{Failure, Problems};
use crate::output::table::Table;

/// So many records are named for each reason. Programs get all of them.
const NAMED: usize = 5;

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Summary {
    from: String,
    to: String,
    dry_run: bool,
    state: State,
    /// Whether the destination can be used.
    ready: bool,
    source_locked: bool,
    total: Counts,
    kinds: BTreeMap<&'static str, Counts>,
    not_carried: Vec<Item>,
    altered: Vec<Item>,
    in_the_way: Vec<Item>,
    kept: Vec<Item>,
    /// By the destination, when they were written.
    refused: Vec<Item>,
    fields_lost: Vec<Item>,
    #[serde(skip)]
    accepts_losses: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
enum State {
    Planned,
    Refused,
    Unfinished,
    Finished,
}

/// How many records there are of each sort. Before the end of a copy: how many there will be.
#[derive(Clone, Copy, Debug, Default, Serialize)]
#[serde(rename_all = "camelCase")]
struct Counts {
    read: usize,
    written: usize,
    replaced: usize,
    removed: usize,
    already_there: usize,
    not_written: usize,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Item {
    record: String,
    code: &'static str,
    reason: String,
    is_loss: bool,
    #[serde(skip)]
    key: Key,
}

impl Item {
    fn new(key: &Key, code: &'static str, reason: String, is_loss: bool) -> Item {
        Item { record: key.to_string(), code, reason, is_loss, key: key.clone() }
    }
}

impl Summary {
    pub(super) fn new(
        copy: &Copy,
        source: &Source,
        to: &str,
        plan: &Plan<Bytes>,
        beginning: &Beginning,
        there: &There,
    ) -> Summary {
        let left =
            plan.left.iter().map(|(key, why)| Item::new(key, why.code(), why.to_string(), why.is_loss()));
        let altered = plan.altered.iter();
        let altered =
            altered.map(|(key, how)| Item::new(key, how.code(), how.to_string(), how.is_loss())).collect();
        let mut summary = Summary {
            from: source.name.clone(),
            to: to.to_owned(),
            dry_run: copy.dry_run.dry_run,
            state: State::Planned,
            ready: false,
            source_locked: source.is_locked(),
            total: Counts::default(),
            kinds: BTreeMap::new(),
            not_carried: left.collect(),
            altered,
            in_the_way: Vec::new(),
            kept: Vec::new(),
            refused: Vec::new(),
            fields_lost: Vec::new(),
            accepts_losses: copy.partial,
        };
        summary.count_plan(source, plan, beginning, there);
        if !summary.refusals().is_empty() {
            summary.state = State::Refused;
        }
        summary
    }

    fn count_plan(&mut self, source: &Source, plan: &Plan<Bytes>, beginning: &Beginning, there: &There) {
        source.records.iter().for_each(|record| self.count(&record.key, |counts| counts.read += 1));
        plan.left.iter().for_each(|(key, _)| self.count(key, |counts| counts.not_written += 1));
        for key in plan.writes.keys().filter(|key| !there.contains_key(*key)) {
            self.count(key, |counts| counts.written += 1);
        }
        let own = information::key();
        match &beginning.standing {
            None => self.count(&own, |counts| counts.written += 1),
            Some(Standing::Replaced) => self.count(&own, |counts| counts.replaced += 1),
            Some(Standing::InTheWay(obstacle)) => self.in_the_way(&own, obstacle),
            Some(_) => self.count(&own, |counts| counts.already_there += 1),
        }
        for (key, met) in there {
            match met {
                Met::Same => self.count(key, |counts| counts.already_there += 1),
                Met::Lacks(fields) => {
                    self.count(key, |counts| counts.already_there += 1);
                    self.lacks(&[(key.clone(), fields.clone())]);
                }
                Met::Replaced { .. } => self.count(key, |counts| counts.replaced += 1),
                Met::Removed { .. } => self.count(key, |counts| counts.removed += 1),
                Met::Kept(fields) => {
                    let reason = format!("stays as the destination has it; it {}", differs(fields));
                    self.kept.push(Item::new(key, "kept", reason, true));
                    self.count(key, |counts| counts.not_written += 1);
                }
                Met::InTheWay(obstacle) => self.in_the_way(key, obstacle),
            }
        }
    }

    fn in_the_way(&mut self, key: &Key, obstacle: &Obstacle) {
        self.in_the_way.push(Item::new(key, obstacle.code(), obstacle.to_string(), false));
    }

    fn count(&mut self, key: &Key, add: impl Fn(&mut Counts)) {
        add(&mut self.total);
        add(self.kinds.entry(key.kind().name()).or_default());
    }

    /// Fields that the destination did not keep.
    pub(super) fn lacks(&mut self, lacking: &[(Key, Vec<String>)]) {
        for (key, fields) in lacking {
            let reason = format!(
                "without {}: the definition of its kind in the cluster has no such field",
                fields.join(", ")
            );
            if !self.fields_lost.iter().any(|item| item.key == *key) {
                self.fields_lost.push(Item::new(key, "fields-dropped", reason, true));
            }
        }
    }

    /// Replaces what was planned by what happened. `None`: nothing.
    pub(super) fn wrote(&mut self, happened: Option<(&Outcome, &There)>) {
        let own = information::key();
        let planned = *self.kinds.entry(own.kind().name()).or_default();
        let forget = |counts: &mut Counts| {
            (counts.written, counts.replaced, counts.removed) = (0, 0, 0);
        };
        forget(&mut self.total);
        self.kinds.values_mut().for_each(forget);
        let Some((outcome, there)) = happened else {
            self.state = State::Refused;
            return;
        };
        for key in &outcome.written {
            match there.get(key) {
                Some(Met::Replaced { .. }) => self.count(key, |counts| counts.replaced += 1),
                Some(Met::Removed { .. }) => self.count(key, |counts| counts.removed += 1),
                _ => self.count(key, |counts| counts.written += 1),
            }
        }
        self.count(&own, |counts| {
            counts.written += planned.written.min(1);
            counts.replaced += planned.replaced.min(1);
        });
        outcome.already_there.iter().for_each(|key| self.count(key, |counts| counts.already_there += 1));
        outcome.gone.iter().for_each(|key| self.count(key, |counts| counts.not_written += 1));
        for (key, reason) in &outcome.refused {
            self.refused.push(Item::new(key, "refused", reason.clone(), true));
            self.count(key, |counts| counts.not_written += 1);
        }
    }

    pub(super) fn is_refused(&self, key: &Key) -> bool {
        self.refused.iter().any(|item| item.key == *key)
    }

    /// What turned out to be lost only when it was written.
    pub(super) fn losses_of_writing(&self) -> Vec<String> {
        let lost = self.refused.iter().chain(&self.fields_lost);
        lost.map(|item| format!("{}: {}", item.record, item.reason)).collect()
    }

    /// Why nothing may be written.
    pub(super) fn refusals(&self) -> Vec<Failure> {
        let mut failures = Vec::new();
        if !self.in_the_way.is_empty() {
            let told = self.in_the_way.iter().map(|item| format!("{} {}", item.record, item.reason));
            failures.extend(listed(told));
            failures.push(
                Failure::new(format!("{} in the way: nothing was copied", are(self.in_the_way.len())))
                    .hint("use an empty destination, or --existing replace to make it what the source is, or --existing keep"),
            );
        }
        let losses = self.not_carried.iter().chain(&self.altered).filter(|item| item.is_loss);
        let losses: Vec<String> = losses.map(|item| format!("{}: {}", item.record, item.reason)).collect();
        if !losses.is_empty() && !self.accepts_losses {
            let count = losses.len();
            failures.extend(listed(losses.into_iter()));
            failures.push(
                Failure::new(format!("{} cannot be carried: nothing was copied", records(count)))
                    .hint("change or delete them in the source, or copy the rest with --partial"),
            );
        }
        failures
    }

    pub(super) fn finish(&mut self, is_ready: bool) {
        (self.state, self.ready) = (State::Finished, is_ready);
    }

    pub(super) fn stop(&mut self) {
        if self.state != State::Refused {
            self.state = State::Unfinished;
        }
    }

    pub(super) fn tell(&self, copy: &Copy) -> Result<(), Failure> {
        let mut out = io::stdout().lock();
        match copy.output {
            CopyFormat::Json => {
                serde_json::to_writer_pretty(&mut out, self).map_err(io::Error::from)?;
                writeln!(out)?;
            }
            // Why not is an error, and that is all there is to say.
            CopyFormat::Text if self.state == State::Refused && !self.dry_run => {}
            CopyFormat::Text => self.tell_people(&mut out)?,
        }
        Ok(())
    }

    fn tell_people(&self, out: &mut dyn io::Write) -> io::Result<()> {
        self.write_table(out)?;
        let (losses, rest): (Vec<&Item>, Vec<&Item>) = self.not_carried.iter().partition(|item| item.is_loss);
        for (words, items) in [
            ("not carried", losses),
            ("not written", rest),
            ("changed", self.altered.iter().collect()),
            ("kept", self.kept.iter().collect()),
            ("refused", self.refused.iter().collect()),
            ("not kept whole", self.fields_lost.iter().collect()),
            ("in the way", self.in_the_way.iter().collect::<Vec<_>>()),
        ] {
            write_items(out, words, &items)?;
        }
        let (from, to) = (harmless(&self.from), harmless(&self.to));
        match self.state {
            State::Planned => writeln!(out, "Dry run: nothing was written. {from} would be copied to {to}."),
            State::Refused => {
                writeln!(out, "Dry run: nothing was written. {from} cannot be copied to {to} like this.")
            }
            State::Unfinished => writeln!(out, "The copy of {from} to {to} is not finished. {to} is locked."),
            State::Finished if self.ready && self.source_locked => {
                writeln!(out, "Copied {from} to {to}, which is ready. {from} stays locked.")
            }
            State::Finished if self.ready => writeln!(out, "Copied {from} to {to}, which is ready."),
            State::Finished => writeln!(
                out,
                "Copied {from} to {to}, which is locked. Unlock it there with plumb datastore migrate unlock."
            ),
        }
    }

    fn write_table(&self, out: &mut dyn io::Write) -> io::Result<()> {
        let headings = match self.dry_run {
            true => ["KIND", "READ", "TO WRITE", "TO REPLACE", "TO REMOVE", "ALREADY THERE", "NOT WRITTEN"],
            false => ["KIND", "READ", "WRITTEN", "REPLACED", "REMOVED", "ALREADY THERE", "NOT WRITTEN"],
        };
        let mut table = Table::new(headings);
        for (kind, counts) in
            self.kinds.iter().map(|(kind, counts)| (*kind, counts)).chain([("total", &self.total)])
        {
            table.cell(|text| text.push_str(kind));
            let Counts { read, written, replaced, removed, already_there, not_written } = *counts;
            for count in [read, written, replaced, removed, already_there, not_written] {
                table.cell(|text| text.push_str(&count.to_string()));
            }
            table.end_row(out)?;
        }
        table.flush(out)
    }
}

/// Those with the same reason together.
fn write_items(out: &mut dyn io::Write, words: &str, items: &[&Item]) -> io::Result<()> {
    let mut by_reason: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for item in items {
        by_reason.entry(&item.reason).or_default().push(&item.record);
    }
    for (reason, named) in by_reason {
        let shown = named.iter().take(NAMED).copied().collect::<Vec<_>>().join(", ");
        let more = named.len().saturating_sub(NAMED);
        let more = if more > 0 { format!(" and {more} more") } else { String::new() };
        writeln!(out, "{words}: {}{more}: {}", harmless(&shown), harmless(reason))?;
    }
    Ok(())
}

/// A failure for each, as long as they can be read.
fn listed(texts: impl Iterator<Item = String>) -> Vec<Failure> {
    let mut problems = Problems::default();
    texts.for_each(|text| problems.push(Failure::new(text)));
    problems.into_failures()
}

fn are(count: usize) -> String {
    let be = if count == 1 { "is" } else { "are" };
    format!("{} of the destination {be}", records(count))
}

fn differs(fields: &[String]) -> String {
    Obstacle::Differs { fields: fields.to_vec() }.to_string()
}
