//! Plans and outcomes, for people and for programs.

use std::collections::BTreeMap;
use std::io::{self, Write as _};

use indicatif::ProgressBar;
use mend::{Happened, Outcome, Progress, StepOutcome, Told};
use model::FindingCode;
use render::harmless;
use repair::{Dropped, Left, Plan, Step};

use crate::cli::repair::{Repair, RepairFormat};
use crate::failure::Failure;

/// How many steps of one sort are shown unless all are wanted.
const SHOWN: usize = 5;

pub(super) fn steps(count: usize) -> String {
    if count == 1 { "1 step".to_owned() } else { format!("{count} steps") }
}

/// Something on the way, for people only.
pub(super) fn note(repair: &Repair, text: &str) {
    if repair.output == RepairFormat::Text {
        eprintln!("{}", harmless(text));
    }
}

/// A step under way: each is named as its turn comes, and what does not go is said at once.
pub(super) fn progress(repair: &Repair, bar: &ProgressBar, progress: Progress<'_>, names: bool) {
    let say = |text: String| match bar.is_hidden() {
        true => note(repair, &text),
        false => bar.println(harmless(&text)),
    };
    match progress {
        Progress::Begins { step, place, of } if names || step.on_node.is_some() => {
            let place_of = step.on_node.as_ref().map(|on_node| format!(", on {}", on_node.node));
            say(format!("step {place} of {of}{}: {}", place_of.unwrap_or_default(), step.title));
        }
        Progress::Begins { .. } => {}
        Progress::Over { outcome, behind } => {
            bar.set_position(behind as u64);
            let said = outcome.said.as_deref().unwrap_or_default();
            match outcome.how {
                Happened::Done => {}
                Happened::Already if names => say("  already in place".to_owned()),
                Happened::Already => {}
                Happened::Surprise => say(format!("  step {} skipped: {said}", outcome.step)),
                Happened::Failed => say(format!("  step {} failed: {said}", outcome.step)),
            }
        }
        Progress::Waits { step, for_step, behind } => {
            bar.set_position(behind as u64);
            say(format!("  not tried, because it depends on step {for_step}: {}", step.title));
        }
    }
}

pub(super) fn plan(repair: &Repair, plan: &Plan) -> Result<(), Failure> {
    let mut out = io::stdout().lock();
    if repair.output == RepairFormat::Json {
        serde_json::to_writer_pretty(&mut out, plan).map_err(io::Error::from)?;
        return Ok(writeln!(out)?);
    }
    if plan.steps.is_empty() {
        writeln!(out, "Nothing to do ({}).", harmless(&plan.scope.to_string()))?;
    } else {
        writeln!(out, "{} planned ({}):", steps(plan.steps.len()), harmless(&plan.scope.to_string()))?;
        write_steps(&mut out, &plan.steps, repair.all)?;
    }
    write_left(&mut out, &plan.left, repair.all)?;
    if !plan.steps.is_empty() {
        writeln!(out, "\nNothing was changed. Add --apply to apply this plan.")?;
    }
    Ok(())
}

fn write_steps(out: &mut impl io::Write, steps: &[Step], all: bool) -> io::Result<()> {
    let mut seen: BTreeMap<FindingCode, usize> = BTreeMap::new();
    for step in steps {
        let count = seen.entry(step.code).or_default();
        *count += 1;
        if *count > SHOWN && !all {
            continue;
        }
        writeln!(out, "\n{:>5}. {}", step.number, harmless(&step.title))?;
        writeln!(out, "       fixes {} ({})", step.code, harmless(&step.subject))?;
        for also in &step.also {
            writeln!(out, "       and {} ({})", also.code, harmless(&also.subject))?;
        }
        for line in &step.because {
            writeln!(out, "       because {}", harmless(line))?;
        }
        for edit in &step.edits {
            writeln!(out, "       store: {}", harmless(&edit.to_string()))?;
        }
        if let Some(on_node) = &step.on_node {
            for work in &on_node.works {
                writeln!(
                    out,
                    "       on {}: {}",
                    harmless(on_node.node.as_str()),
                    harmless(&work.to_string())
                )?;
            }
        }
    }
    for (code, count) in seen.into_iter().filter(|(_, count)| *count > SHOWN && !all) {
        writeln!(out, "\n       … and {} more {code} (--all shows them)", count - SHOWN)?;
    }
    Ok(())
}

fn write_left(out: &mut impl io::Write, left: &[Left], all: bool) -> io::Result<()> {
    if left.is_empty() {
        return Ok(());
    }
    writeln!(out, "\nLeft to you:")?;
    let mut seen: BTreeMap<FindingCode, usize> = BTreeMap::new();
    for Left { code, subject, why, commands, .. } in left {
        let count = seen.entry(*code).or_default();
        *count += 1;
        if *count > SHOWN && !all {
            continue;
        }
        writeln!(out, "  {code} ({}): {}", harmless(subject), harmless(why))?;
        for command in commands {
            writeln!(out, "      {command}")?;
        }
    }
    for (code, count) in seen.into_iter().filter(|(_, count)| *count > SHOWN && !all) {
        writeln!(out, "  … and {} more {code} (--all shows them)", count - SHOWN)?;
    }
    Ok(())
}

/// Steps that a second look did not confirm.
fn note_dropped(repair: &Repair, dropped: &[Dropped]) {
    for Dropped { step, why } in dropped {
        let what = format!("{} [{}]", step.title, step.code);
        note(repair, &format!("skipped, state changed since planning: {what}: {why}"));
    }
}

/// The second look confirmed nothing, so that no repair was begun.
pub(super) fn nothing_agreed(repair: &Repair, dropped: &[Dropped]) -> Result<(), Failure> {
    note_dropped(repair, dropped);
    if repair.output == RepairFormat::Json {
        writeln!(io::stdout().lock(), "{}", summary(None, &Outcome::default(), dropped, &[]))?;
    }
    Ok(())
}

fn title(plan: &Plan, number: u32) -> String {
    let step = plan.steps.iter().find(|step| step.number == number);
    step.map_or_else(String::new, |step| harmless(&step.title))
}

pub(super) fn outcome(
    repair: &Repair,
    plan: &Plan,
    outcome: &Outcome,
    dropped: &[Dropped],
) -> Result<(), Failure> {
    tell(repair, plan, outcome, (dropped, &plan.left), "applied")?;
    note_dropped(repair, dropped);
    Ok(())
}

pub(super) fn undone(repair: &Repair, plan: &Plan, outcome: &Outcome) -> Result<(), Failure> {
    tell(repair, plan, outcome, (&[], &[]), "undone")
}

/// The same for programs: docs/repair.md describes it.
fn summary(id: Option<&str>, outcome: &Outcome, dropped: &[Dropped], left: &[Left]) -> serde_json::Value {
    let count = |how: Happened| outcome.count(how);
    let trouble =
        |step: &StepOutcome| serde_json::json!({"step": step.step, "how": step.how, "said": step.said});
    let left_out = |Dropped { step, why }: &Dropped| {
        serde_json::json!({
            "step": step.number, "code": step.code, "subject": step.subject, "title": step.title, "why": why,
        })
    };
    serde_json::json!({
        "id": id, "done": count(Happened::Done), "already": count(Happened::Already), "surprises": count(Happened::Surprise),
        "failed": count(Happened::Failed), "notTried": outcome.not_tried,
        "troubles": outcome.troubles().map(trouble).collect::<Vec<_>>(),
        "dropped": dropped.iter().map(left_out).collect::<Vec<_>>(), "left": left,
    })
}

fn tell(
    repair: &Repair,
    plan: &Plan,
    outcome: &Outcome,
    (dropped, left): (&[Dropped], &[Left]),
    done: &str,
) -> Result<(), Failure> {
    let mut out = io::stdout().lock();
    let count = |how: Happened| outcome.count(how);
    if repair.output == RepairFormat::Json {
        return Ok(writeln!(out, "{}", summary(Some(&plan.id), outcome, dropped, left))?);
    }
    writeln!(out, "{} {done}, {} already in place.", count(Happened::Done), count(Happened::Already))?;
    for trouble in outcome.troubles() {
        let how = if trouble.how == Happened::Surprise { "skipped" } else { "failed" };
        let said = trouble.said.as_deref().unwrap_or_default();
        writeln!(out, "  step {} {how}: {}: {}", trouble.step, title(plan, trouble.step), harmless(said))?;
    }
    if outcome.not_tried > 0 {
        writeln!(out, "  {} not tried, because a required step was not applied.", steps(outcome.not_tried))?;
    }
    if repair.all {
        for step in outcome.steps.iter().filter(|step| step.how == Happened::Done) {
            writeln!(out, "  step {}: {}", step.step, title(plan, step.step))?;
        }
    }
    Ok(write_left(&mut out, left, repair.all)?)
}

/// What a history says of one step, in a word.
pub(super) fn state_of(told: &[Told], number: u32) -> &'static str {
    let mut state = "not applied";
    for line in told {
        match line {
            Told::Begun { step, .. } if *step == number => state = "started",
            Told::Done { step, how, .. } if *step == number => {
                state = match how {
                    Happened::Done => "applied",
                    Happened::Already => "already in place",
                    Happened::Surprise => "skipped",
                    Happened::Failed => "failed",
                }
            }
            Told::Undone { step, how: Happened::Done | Happened::Already, .. } if *step == number => {
                state = "undone"
            }
            _ => {}
        }
    }
    state
}
