//! Every command a developer needs. `cargo xtask help` lists them; each has a file of its own.

mod accept;
mod bench;
mod build;
mod demo;
mod go_tools;
mod image;
mod kubernetes;
mod metadata;
mod packages;
mod picture;
mod process;
mod scratch;
mod sim;
mod test;
mod tidy;
mod transcript;
mod workspace;

use std::process::ExitCode;

const HELP: &str = "\
Usage: cargo xtask COMMAND

  build [PROGRAM…]                      the programs as they are released: static, in target/release
  image [--programs DIR] [--out DIR]    a container image of the programs, as an OCI layout and a tar, and the list of
                                        its parts; without a container daemon
  demo [--picture FILE]                 a three-node network on the embedded store: pods, traffic, the five
                                        outages found, explained and repaired; --picture draws a part of it as SVG
  test [--full] [--seed N] [FILTER…]    every kind of test; --full: the big counts. FILTER: a kind (tidy, unit,
                                        integration, doc, transcripts, demo, simulation, fuzz, released),
                                        a crate, or part of a test's name
  tidy                                  format, lints, dependency direction, purity, policy, sizes, docs
  docs [--accept]                       runs the commands shown in the docs; --accept writes what they print now
  accept                                writes what the programs print now into every recorded output: golden files,
                                        sessions, and what docs --accept writes; names the files that changed
  bench NAME [-o json]                  measures beside a peer; NAME: store, ipam, cni, routes,
                                        doctor, repair
  kubernetes                            builds Kubernetes' API server for tests, once, and prints where it is
  sim --seed N …                        simulated processes on a simulated store, checked at every step
  help                                  this text
";

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let (command, rest) = match args.split_first() {
        Some((command, rest)) => (command.as_str(), rest),
        None => ("help", &[][..]),
    };
    let outcome = match command {
        "test" => test::run(rest),
        "build" => build::run(rest),
        "image" => image::run(rest),
        "demo" => demo::run(rest),
        "tidy" => tidy::run(rest),
        "docs" => transcript::run(rest),
        "accept" => accept::run(rest),
        "bench" => bench::run(rest),
        "sim" => sim::run(rest),
        "kubernetes" => kubernetes::run(rest),
        "help" | "--help" | "-h" => {
            print!("{HELP}");
            return ExitCode::SUCCESS;
        }
        unknown => {
            eprint!("error: there is no command {unknown:?}\n\n{HELP}");
            return ExitCode::from(2);
        }
    };
    match outcome {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::from(2)
        }
    }
}
