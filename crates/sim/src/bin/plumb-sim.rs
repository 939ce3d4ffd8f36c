//! Runs the simulator: `plumb-sim --seed N --steps N`. Exit code 0 if every rule was kept, 1 if not.

use std::process::ExitCode;
use std::sync::Arc;

use clap::Parser;
use sim::{Failure, Options, Outcome};
use store::MemoryStore;

/// Simulated processes on a simulated store, checked at every step.
#[derive(Debug, Parser)]
#[command(name = "plumb-sim", version)]
struct Arguments {
    /// The same seed gives the same run.
    #[arg(long)]
    seed: u64,
    /// How many steps each scenario takes.
    #[arg(long, default_value_t = 20_000)]
    steps: u64,
}

fn main() -> anyhow::Result<ExitCode> {
    let arguments = Arguments::parse();
    let options = Options::new(arguments.seed, arguments.steps);
    let forgetful = Options { history_may_go: true, ..options.clone() };
    let scenarios = [
        ("lasting history", MemoryStore::new(), options),
        ("short history", MemoryStore::with_history(8), forgetful),
    ];
    let mut code = ExitCode::SUCCESS;
    for (name, store, options) in scenarios {
        match sim::run(Arc::new(store), &options) {
            Ok(outcome) => println!("{}", kept(name, &options, &outcome)),
            Err(failure) => {
                eprintln!("{}", broken(name, &options, &failure));
                code = ExitCode::FAILURE;
            }
        }
    }
    Ok(code)
}

fn kept(name: &str, options: &Options, outcome: &Outcome) -> String {
    format!(
        "{name}: seed {}, {} steps: {} commits, {} refused, {} events, {} lists, {} crashes, history gone {} times, \
         trace {:016x}",
        options.seed,
        options.steps,
        outcome.accepted,
        outcome.refused,
        outcome.events,
        outcome.lists,
        outcome.crashes,
        outcome.histories_gone,
        outcome.trace_hash
    )
}

fn broken(name: &str, options: &Options, failure: &Failure) -> String {
    format!(
        "{}\n{name}: {failure}\n  {}\n  again: plumb-sim --seed {} --steps {}",
        failure.trace.join("\n"),
        failure.violation,
        options.seed,
        options.steps
    )
}
