//! `plumb doctor`: evidence in, findings out.

mod collect;
mod explain;
mod from;
mod live;
mod logs;
mod node;
mod tell;
mod watch;

pub(crate) use collect::run as collect;
pub(super) use explain::unknown_code;
pub(super) use live::{Examiner, open, probes, rule};

use doctor::{Report, Severity};

use crate::cli::Global;
use crate::cli::doctor::{Doctor, DoctorCommand, FailOn};
use crate::failure::{Failure, Failures};

pub(crate) async fn run(global: &Global, doctor: &Doctor) -> Result<(), Failures> {
    match &doctor.command {
        Some(DoctorCommand::Explain(wanted)) => explain::run(wanted),
        Some(DoctorCommand::Logs(wanted)) => logs::run(wanted),
        None => match examine(global, doctor).await {
            Ok(report) => verdict(&report, doctor.output.fail_on),
            Err(failures) => Err(failures.unable()),
        },
    }
}

async fn examine(global: &Global, doctor: &Doctor) -> Result<Report, Failures> {
    if doctor.watch {
        return watch::run(global, doctor).await;
    }
    let is_live = doctor.from.is_empty() || doctor.live;
    if doctor.probe && !is_live {
        return Err(Failure::usage(
            "--probe sends packets from nodes, but --from does not contact any node; add --live",
        )
        .into());
    }
    if doctor.this_node.kubeconfig.is_some() && !is_live {
        let problem = "--kubeconfig asks a cluster, but --from does not contact any; add --live";
        return Err(Failure::usage(problem).into());
    }
    let examined = if is_live { live::examine(global, doctor).await? } else { from::examine(doctor)? };
    tell::tell(&doctor.output, &examined)?;
    Ok(examined.report)
}

/// What was looked at, and what was found in it.
pub(in crate::commands) struct Examined {
    pub(in crate::commands) evidence: evidence::Evidence,
    pub(in crate::commands) report: Report,
}

/// Findings are reported already; they only decide how the process ends. Without the store's records, or a cluster that was to be asked, there is no verdict: nothing
/// found is not the same as nothing wrong.
fn verdict(report: &Report, fail_on: FailOn) -> Result<(), Failures> {
    let bad = match fail_on {
        FailOn::Error => Severity::Error,
        FailOn::Warning => Severity::Warning,
    };
    match report.worst() {
        Some(worst) if worst >= bad => Err(Failure::found().into()),
        _ => match live::essential_gap(report) {
            Some(gap) => Err(Failures::from(gap).unable()),
            None => Ok(()),
        },
    }
}
