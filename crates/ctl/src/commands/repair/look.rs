//! A look at the cluster, and the plan that follows from it.

use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;
use std::time::Instant;

use ::doctor::{Options, Report};
use evidence::Unseen;
use gather::LiveSources;
use jiff::{SignedDuration, Timestamp};
use mend::Failure as Failed;
use model::{Kind, ShellCommand};
use plan::task::RepairTask;
use render::harmless;
use repair::{Left, PLAN_VERSION, Plan, Scope, Step};
use serde_json::Value;

use super::super::doctor::{self, Examiner, rule};
use super::tell;
use crate::cli::Global;
use crate::cli::repair::Repair;
use crate::failure::{Failure, Failures};

/// Looks now, and plans. The report is what the plan rests on.
pub(super) async fn plan(
    sources: &LiveSources,
    repair: &Repair,
    scope: &Scope,
) -> Result<(Plan, Report), Failure> {
    let options = options(repair);
    let mut examiner = Examiner::new(sources, rule(repair.settle), options.clone()).keeping_earlier();
    let examined = examiner.run().await?;
    // What may not be read could speak against a step.
    if let Some(refused) = examined.report.unseen.iter().find(|gap| matches!(gap, Unseen::Refused { .. })) {
        return Err(Failure::new(refused.to_string()));
    }
    let start = Instant::now();
    let mut plan = repair::plan(&examined.evidence, &examined.report, scope, &options);
    if repair.timings {
        let times = [examiner.loading, examiner.analysis, start.elapsed()];
        let [loading, analysis, planning] = times.map(|time| time.as_millis());
        eprintln!("timings: loading_ms={loading} analysis_ms={analysis} planning_ms={planning}");
    }
    if !repair.again {
        leave_what_failed(&mut plan, &Failed::list(&super::history_folder(repair)));
    }
    plan.id = new_id();
    // What is planned was already so at the first of the two looks.
    let first = examined.evidence.earlier.as_ref().and_then(|earlier| earlier.taken_at);
    plan.looked_at = first.or(plan.looked_at);
    let clusters = examined.evidence.records.all(Kind::ClusterInformation);
    let guid = clusters.iter().find_map(|cluster| cluster.seen.spec("clusterGUID").and_then(Value::as_str));
    plan.cluster_guid = guid.unwrap_or_default().to_owned();
    Ok((plan, examined.report))
}

fn options(repair: &Repair) -> Options {
    Options { grace: grace(repair) }
}

/// How far apart two looks must be that show something as gone.
pub(super) fn grace(repair: &Repair) -> SignedDuration {
    SignedDuration::try_from_secs_f64(repair.grace).unwrap_or(::doctor::GRACE)
}

/// So often something is tried before it is left to people: once more than chance asks for.
const FAILURES_MAX: u32 = 2;

/// What the same step could not do again and again, it will not do the next time either.
fn leave_what_failed(plan: &mut Plan, failures: &[Failed]) {
    let failed = |step: &Step| {
        failures.iter().find(|failure| failure.times >= FAILURES_MAX && failure.step.id() == step.id())
    };
    let (left, steps): (Vec<Step>, Vec<Step>) =
        std::mem::take(&mut plan.steps).into_iter().partition(|step| failed(step).is_some());
    plan.steps = steps;
    for step in left {
        let Some(failure) = failed(&step) else { continue };
        let why = format!(
            "it failed in {} repairs in a row: {}; after fixing the cause, plumb repair --again plans it again",
            failure.times, failure.said
        );
        let works = step.on_node.iter().flat_map(|on_node| &on_node.works);
        plan.left.push(Left {
            code: step.code,
            subject: step.subject.clone(),
            summary: step.title.clone(),
            why,
            commands: works.flat_map(RepairTask::commands).collect(),
        });
    }
}

/// `20261115-101500-3f2a`: sorts by time, and two at once differ.
fn new_id() -> String {
    let now = Timestamp::now();
    let lot = uuid::Uuid::new_v4().simple().to_string();
    format!("{}-{}", now.strftime("%Y%m%d-%H%M%S"), &lot[..4])
}

pub(super) async fn open(global: &Global, repair: &Repair) -> Result<LiveSources, Failure> {
    let sources = doctor::open(global, &repair.this_node, &repair.from).await?;
    Ok(sources.with_probes(doctor::probes(repair.probe, options(repair))))
}

/// Shows the plan, or writes it to a file.
pub(super) async fn show(global: &Global, repair: &Repair, scope: &Scope) -> Result<(), Failures> {
    let sources = open(global, repair).await.map_err(|failure| Failures::from(failure).unable())?;
    let (plan, _) =
        plan(&sources, repair, scope).await.map_err(|failure| Failures::from(failure).unable())?;
    if let Some(path) = &repair.plan {
        write(path, &plan)?;
        eprintln!(
            "Wrote the plan to {}. To apply exactly this plan: {}",
            harmless(&path.display().to_string()),
            ShellCommand::new("plumb repair --plan").path(path).plain("--apply")
        );
    }
    tell::plan(repair, &plan)?;
    Ok(())
}

/// Whole or not at all, and for its owner only: plans hold records.
fn write(path: &Path, plan: &Plan) -> Result<(), Failure> {
    let failed = |error: &dyn std::error::Error| {
        Failure::new(format!("cannot write the plan to {}", path.display())).caused_by(error)
    };
    let text = serde_json::to_vec_pretty(plan).map_err(|error| failed(&error))?;
    let mut name = path.as_os_str().to_owned();
    name.push(format!(".{}.new", std::process::id()));
    let draft = std::path::PathBuf::from(name);
    let mut options = std::fs::OpenOptions::new();
    options.write(true).create_new(true).mode(0o600);
    let written = options.open(&draft).and_then(|mut file| {
        std::io::Write::write_all(&mut file, &text)?;
        file.sync_all()?;
        std::fs::rename(&draft, path)
    });
    if written.is_err() {
        // Nothing is to be left of it; if that fails, too, the first error says why.
        let _ = std::fs::remove_file(&draft);
    }
    written.map_err(|error| failed(&error))
}

/// A plan from a file.
pub(super) fn read(path: &Path) -> Result<Plan, Failure> {
    let failed = |error: &dyn std::error::Error| {
        Failure::new(format!("{} is not a repair plan", path.display())).caused_by(error)
    };
    let text = std::fs::read(path)
        .map_err(|error| Failure::new(format!("cannot read {}", path.display())).caused_by(&error))?;
    let plan: Plan = serde_json::from_slice(&text).map_err(|error| failed(&error))?;
    match plan.version {
        PLAN_VERSION => Ok(plan),
        other => Err(Failure::new(format!(
            "{} is a plan of version {other}, which this release does not support",
            path.display()
        ))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_failed_again_and_again_is_left_and_what_differs_is_not() {
        let step = |number: u32, subject: &str| Step {
            number,
            ..Step::new(model::FindingCode::DeviceDown, subject, format!("set {subject} up"))
        };
        let failed = |subject: &str, times: u32| Failed {
            step: step(9, subject),
            times,
            said: "the kernel refused".to_owned(),
        };
        let mut plan = Plan { steps: vec![step(1, "a"), step(2, "b"), step(3, "c")], ..Plan::default() };
        leave_what_failed(&mut plan, &[failed("a", 2), failed("b", 1)]);
        let subjects: Vec<&str> = plan.steps.iter().map(|step| step.subject.as_str()).collect();
        assert_eq!(subjects, ["b", "c"]);
        assert_eq!(plan.left.len(), 1);
        assert!(plan.left[0].why.starts_with("it failed in 2 repairs in a row: the kernel refused; "));
    }
}
