//! Whole programs as tests: the demo, and the simulator.

use std::process::Command;
use std::time::Duration;

use super::Run;
use super::binaries::{Built, describe_run};
use super::report::KindReport;
use crate::{demo, process, sim, workspace};

/// Against hanging only: it waits for what it shows.
const DEMO_ALLOWED: Duration = Duration::from_secs(1200);

/// The demo must end well, every time.
pub(crate) fn demo(run: &Run, built: &Built) -> KindReport {
    let mut report = KindReport::new("demo");
    let missing_tool = ["ip", "ping"].into_iter().find(|tool| !workspace::has_program(tool));
    if !workspace::is_root() {
        report.skip("demo", "making network namespaces needs root");
    } else if let Some(tool) = missing_tool {
        report.skip("demo", &format!("{tool} is not installed"));
    } else if let Some(program) = built.missing(&[demo::PROGRAM, "plumb", "plumbd", "plumb-cni"]) {
        report.add("demo", Some(format!("{program} was not built")), Duration::ZERO);
    } else {
        run_program(
            run,
            &mut report,
            "demo",
            &mut demo::command(&run.metadata),
            DEMO_ALLOWED * run.options.slowness(),
        );
    }
    report
}

pub(crate) fn simulation(run: &Run, built: &Built) -> KindReport {
    let mut report = KindReport::new("simulation");
    if let Some(program) = built.missing(&[sim::PROGRAM]) {
        report.add(program, Some(format!("{program} was not built")), Duration::ZERO);
        return report;
    }
    let mut command = Command::new(run.metadata.program_dir().join(sim::PROGRAM));
    command.args(["--seed", &run.options.seed.to_string()]);
    if run.options.full {
        command.args(["--steps", "1000000"]);
    }
    run_program(run, &mut report, sim::PROGRAM, &mut command, run.options.allowed());
    report
}

fn run_program(run: &Run, report: &mut KindReport, name: &str, command: &mut Command, allowed: Duration) {
    describe_run(run, command);
    match process::capture(command, allowed, &mut |_| ()) {
        Ok(finished) if finished.succeeded() => report.add(name, None, finished.took),
        Ok(finished) => {
            let failure = format!("{}\n{name} {}", finished.output.trim_end(), finished.end);
            report.add(name, Some(failure), finished.took);
        }
        Err(error) => report.add(name, Some(format!("{error:#}")), Duration::ZERO),
    }
}
