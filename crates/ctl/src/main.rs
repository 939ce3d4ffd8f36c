//! `plumb`: the operator's tool. Calico's resource verbs, on whatever store keeps the records.
//!
//! `cli` says what can be typed, `commands` what it does. Data goes to stdout, everything else to stderr.

mod cli;
mod commands;
mod compat;
mod connect;
mod failure;
mod input;
mod merge;
mod output;
mod progress;
mod reader;
mod records;
mod report;
mod scope;
mod texts;
mod write;

use std::io::IsTerminal as _;
use std::process::ExitCode;

use tracing::level_filters::LevelFilter;

use cli::{Cli, LogLevel};
use failure::{EXIT_OK, EXIT_USAGE, Failure, Failures};

fn main() -> ExitCode {
    // A heap for each thread would keep what only the reading of a large store needed.
    host::share_heaps();
    host::use_built_in_resolver();
    if let Err(failure) = compat::decide() {
        return ExitCode::from(Failures::from(failure).report());
    }
    let cli = match parse() {
        Ok(cli) => cli,
        Err(code) => return ExitCode::from(code),
    };
    start_logging(cli.global.log_level);
    // This thread works on one page while the other fetches the next; more would only cost memory.
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build();
    let result = match runtime {
        Ok(runtime) => runtime.block_on(commands::run(cli)),
        Err(error) => Err(Failures::from(Failure::new("cannot start").caused_by(&error))),
    };
    ExitCode::from(match result {
        Ok(()) => EXIT_OK,
        Err(failures) => failures.report(),
    })
}

/// Understands the command line, or prints help or why not.
fn parse() -> Result<Cli, u8> {
    let mut command = cli::command();
    if let Some(name) = called_as() {
        command = command.bin_name(name).display_name(name);
    }
    cli::parse(command, std::env::args_os().collect()).map_err(|error| {
        if !error.use_stderr() {
            // Printing help to a closed pipe is nobody's failure.
            let _ = error.print();
            return EXIT_OK;
        }
        if compat::is_strict() {
            return Failures::from(Failure::usage(cli::in_one_line(&error))).report();
        }
        let _ = error.print();
        EXIT_USAGE
    })
}

/// The name that help shows, if it is not ours. kubectl runs `kubectl-plumb` for `kubectl plumb`.
fn called_as() -> Option<&'static str> {
    let program = std::env::args_os().next().unwrap_or_default();
    match std::path::Path::new(&program).file_stem()?.to_str()? {
        "kubectl-plumb" => Some("kubectl plumb"),
        "kubectl-calico" => Some("kubectl calico"),
        "calicoctl" => Some("calicoctl"),
        _ => None,
    }
}

fn start_logging(level: LogLevel) {
    let level = match level {
        LogLevel::Panic | LogLevel::Fatal => return,
        LogLevel::Error => LevelFilter::ERROR,
        LogLevel::Warn => LevelFilter::WARN,
        LogLevel::Info => LevelFilter::INFO,
        LogLevel::Debug => LevelFilter::DEBUG,
        LogLevel::Trace => LevelFilter::TRACE,
    };
    let is_terminal = std::io::stderr().is_terminal();
    tracing_subscriber::fmt()
        .with_max_level(level)
        .with_writer(std::io::stderr)
        .with_ansi(is_terminal)
        .init();
}
