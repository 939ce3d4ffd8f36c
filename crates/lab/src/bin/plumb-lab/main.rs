//! `plumb-lab`: the command line around the crate `lab`. `plumb lab …` runs it.

mod cli;
mod failure;
mod ping;
mod replay;
mod show;

use std::io::Write as _;
use std::os::unix::process::CommandExt as _;
use std::process::ExitCode;

use clap::Parser as _;

use lab::Programs;
use lab::cluster::{self, Cluster, Mode, OwnCluster, Plan, StoreKind};
use lab::kubelet::{KubeletRequest, NewPod, PodKey};

use crate::cli::{Exec, Lab, LabCommand, Making, PodCommand, PodsOnNode, Up};
use crate::failure::Failure;

fn main() -> ExitCode {
    let lab = Lab::parse();
    match work(lab.command) {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            if !failure.is_silent {
                tell(&failure.to_string());
            }
            ExitCode::from(failure.exit)
        }
    }
}

fn work(command: LabCommand) -> Result<(), Failure> {
    match command {
        LabCommand::Up(command) => up(command),
        LabCommand::Down(command) => down(&command),
        LabCommand::List(command) => show::list(command.output),
        LabCommand::Status(command) => show::status(&open(&command.which.name)?, command.output),
        LabCommand::Ping(command) => ping::run(&open(&command.which.name)?, command.output),
        LabCommand::Pod(PodCommand::Add(pods)) => pod_add(&pods),
        LabCommand::Pod(PodCommand::Del(pods)) => pod_del(&pods),
        LabCommand::Exec(command) => exec(&command),
        LabCommand::Partition(command) => {
            let nodes: Vec<&str> = command.nodes.iter().map(String::as_str).collect();
            open(&command.which.name)?.partition(&nodes)?;
            Ok(writeln!(std::io::stdout(), "cut off from the other nodes: {}", nodes.join(", "))?)
        }
        LabCommand::Heal(which) => {
            open(&which.name)?.heal()?;
            Ok(writeln!(std::io::stdout(), "all nodes of lab {} are connected", which.name)?)
        }
        LabCommand::Replay(command) => replay::run(&command),
        LabCommand::Node(command) => Ok(lab::node_init::run(&command.which.name, &command.node)?),
        LabCommand::Kubelet(command) => {
            Ok(lab::kubelet::run(&command.which.name, &command.node, command.forget)?)
        }
    }
}

fn up(command: Up) -> Result<(), Failure> {
    let plan = Plan {
        name: command.which.name,
        topology: command.topology.unwrap_or_else(|| command.mode.usual_topology()),
        ipv6: command.ipv6,
        ..plan(command.nodes, command.store, command.mode, &command.making)?
    };
    let cluster = Cluster::up(&plan, &tell)?;
    show::nodes(&cluster.status())?;
    if plan.nodes > 1 && !plan.has_agents {
        tell(show::NO_ROUTES);
    }
    Ok(())
}

fn down(command: &crate::cli::Down) -> Result<(), Failure> {
    if !lab::is_root() {
        return Err(Failure::new("removing a lab needs root"));
    }
    // Of replays that were killed.
    cluster::remove_abandoned()?;
    let names = if command.all { cluster::labs() } else { vec![command.which.name.clone()] };
    for name in names {
        let removed = cluster::down(&name)?;
        if removed.is_nothing() {
            tell(&format!("lab {name} does not exist"));
        } else {
            let (namespaces, processes) = (removed.namespaces, removed.processes);
            tell(&format!(
                "removed lab {name}: {namespaces} network namespaces, {processes} processes and its directory"
            ));
        }
    }
    Ok(())
}

fn pod_add(command: &PodsOnNode) -> Result<(), Failure> {
    let cluster = open(&command.which.name)?;
    let pods = command.pods.iter().map(NewPod::new).collect();
    let added = cluster.kubelet(&command.node, &KubeletRequest::Add { pods, waits: true })?;
    show::pods(&added)?;
    Ok(())
}

fn pod_del(command: &PodsOnNode) -> Result<(), Failure> {
    let cluster = open(&command.which.name)?;
    let pods = command.pods.clone();
    cluster.kubelet(&command.node, &KubeletRequest::Delete { pods, waits: true })?;
    for pod in &command.pods {
        writeln!(std::io::stdout(), "pod {pod} on {} is gone, and its addresses are released", command.node)?;
    }
    Ok(())
}

fn exec(command: &Exec) -> Result<(), Failure> {
    let cluster = open(&command.which.name)?;
    let (node, pod) = match command.place.split_once('/') {
        Some((node, pod)) => {
            (node, Some(pod.parse::<PodKey>().map_err(|error| Failure::usage(error.to_string()))?))
        }
        None => (command.place.as_str(), None),
    };
    let mut program = match &pod {
        None => cluster.command_on(node)?,
        Some(key) => {
            let pods = cluster.pods(node)?;
            let running = pods.iter().find(|pod| pod.key() == *key && !pod.netns.is_empty());
            let running = running.ok_or_else(|| Failure::new(format!("pod {key} does not run on {node}")))?;
            cluster.command_in(node, &running.netns)?
        }
    };
    // Takes our place, so that signals, the terminal and the exit code are the command's own.
    let error = program.args(&command.words).exec();
    Err(Failure::new("cannot run nsenter").caused_by(&error))
}

fn open(name: &cluster::LabName) -> Result<Cluster, Failure> {
    if !lab::is_root() {
        return Err(Failure::new("using a lab needs root"));
    }
    Ok(Cluster::open(name)?)
}

/// A lab of this process, for a replay.
fn own(nodes: usize, store: StoreKind, mode: Mode, making: &Making) -> Result<OwnCluster, Failure> {
    Ok(OwnCluster::up(plan(nodes, store, mode, making)?, &tell)?)
}

fn plan(nodes: usize, store: StoreKind, mode: Mode, making: &Making) -> Result<Plan, Failure> {
    Ok(Plan {
        nodes,
        store,
        mode,
        grace: making.grace,
        has_agents: !making.without_agents,
        kubernetes_bin: making.kubernetes_bin.clone(),
        api_group: making.api_group,
        ..Plan::new(&programs(making)?)
    })
}

fn programs(making: &Making) -> Result<Programs, Failure> {
    let beside = || std::env::current_exe().ok().and_then(|own| Some(own.parent()?.to_owned()));
    let folder = making.bin_dir.clone().or_else(beside).unwrap_or_default();
    Ok(Programs::in_folder(&folder)?)
}

/// What is going on, for whoever watches.
fn tell(line: &str) {
    // Nobody is left to tell if stderr is closed.
    let _ = writeln!(std::io::stderr(), "{line}");
}
