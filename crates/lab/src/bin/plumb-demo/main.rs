//! The main job, shown: a cluster of three nodes on one machine, from nothing to nothing, with the real programs.
//!
//! `cargo xtask demo` builds the programs and runs this. It fails loudly if anything is not as it says.

mod outages;
mod story;

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail, ensure};
use clap::Parser;
use lab::Programs;
use lab::cluster::{Mode, OwnCluster, Plan};

use story::{Story, note, step};

/// Three nodes with agents: pods, traffic, outages of the past, and nothing left behind.
#[derive(Debug, Parser)]
#[command(name = "plumb-demo", version)]
struct Arguments {
    /// The folder with plumb, plumbd and plumb-cni; that of this program if not given.
    #[arg(long)]
    bin_dir: Option<PathBuf>,
    /// The folder with what people collected in the outages; without it, those that are only read about are left out.
    #[arg(long)]
    incidents: Option<PathBuf>,
}

const NODES: usize = 3;
/// Short, because somebody is watching; an operator's agents wait a minute between two looks.
const GRACE: Duration = Duration::from_secs(2);

fn main() -> ExitCode {
    match Arguments::parse().run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("plumb-demo: {error:#}");
            ExitCode::FAILURE
        }
    }
}

impl Arguments {
    fn run(self) -> Result<()> {
        if let Some(reason) = lab::missing() {
            bail!("the demo cannot run here: {reason}");
        }
        let folder = match self.bin_dir {
            Some(folder) => folder,
            None => std::env::current_exe()?.parent().context("this program is in a directory")?.to_owned(),
        };
        let started = Instant::now();
        println!("Three nodes on one machine, from nothing to nothing.");
        step("A lab: nodes with their own namespaces and directories, and an agent on each");
        let programs = Programs::in_folder(&folder)?;
        let cluster = OwnCluster::up(plan(&programs, Mode::Direct), &note)?;
        let name = cluster.name().to_string();
        Story::new(&cluster).tell()?;
        step("The lab is removed");
        let removed = cluster.down()?;
        let (namespaces, processes) = (removed.namespaces, removed.processes);
        note(&format!(
            "removed {namespaces} network namespaces, {processes} processes and the directory of the lab"
        ));
        ensure_no_namespace(&name)?;
        outages::wrong_nic(&programs)?;
        if let Some(incidents) = &self.incidents {
            outages::from_evidence(&programs, incidents)?;
        }
        outages::repaired(&programs)?;
        println!("\nDone in {:.1} s: everything was as expected.", started.elapsed().as_secs_f32());
        Ok(())
    }
}

fn plan(programs: &Programs, mode: Mode) -> Plan {
    Plan { nodes: NODES, mode, grace: GRACE, ..Plan::new(programs) }
}

fn ensure_no_namespace(lab: &str) -> Result<()> {
    for entry in std::fs::read_dir(Path::new("/run/netns")).into_iter().flatten().flatten() {
        let name = entry.file_name();
        ensure!(!name.to_string_lossy().contains(lab), "namespace {} still exists", name.display());
    }
    Ok(())
}
