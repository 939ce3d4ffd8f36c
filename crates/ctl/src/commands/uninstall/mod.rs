//! `plumb uninstall`: the network configuration first, so that no new pod comes, then the kernel, then the files.

mod kernel;

use std::fs;
use std::io::{self, Write as _};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};

use model::settings::SETTINGS_FILE;
use wire::Call;

use super::install::{CONFLIST, KUBECONFIG, PLUGIN, PLUGIN_LINK, PROGRAMS, Standard, UNIT, below, tell};
use crate::cli::uninstall::Uninstall;
use crate::failure::{Failure, Failures};

/// The agent's journal: the name of a file has the sandbox's network, container and interface.
const JOURNAL: &str = "attachments";
/// Records live here where no other store is configured; SQLite keeps its journal beside it.
const DATABASE: &str = "plumb.db";
/// The agent writes the first; the second is there where Calico has run, which then owns the first.
const MTU_FILE: &str = "/var/lib/calico/mtu";
const NODENAME_FILE: &str = "/var/lib/calico/nodename";

pub(crate) async fn run(command: &Uninstall) -> Result<(), Failures> {
    let cleans_kernel = command.kernel || command.root == Path::new("/");
    refuse_while_in_use(command)?;
    let kernel = if cleans_kernel { kernel::observe()? } else { kernel::Kernel::default() };
    refuse_while_pods_run(command, kernel.pods)?;
    // Asked before the list itself is removed.
    let standard = Standard::read(&command.root)?.installed();
    remove_files(command, &[command.cni_conf_dir.join(CONFLIST)].map(|path| below(&command.root, &path)))?;
    for line in &kernel.lines {
        report(command, line)?;
    }
    if cleans_kernel && !command.dry_run {
        kernel::remove()?;
    }
    remove_files(command, &standard)?;
    remove_files(command, &own_files(command))?;
    if let (Some(folder), false) = (below(&command.root, Path::new(MTU_FILE)).parent(), command.dry_run) {
        // Only if it is empty.
        let _ = fs::remove_dir(folder);
    }
    remove_state(command)?;
    if command.root == Path::new("/") && !command.dry_run {
        tell("next: systemctl daemon-reload");
    }
    if command.stay {
        wait_for_the_end().await?;
    }
    Ok(())
}

fn refuse_while_in_use(command: &Uninstall) -> Result<(), Failure> {
    let socket = below(&command.root, Path::new(wire::AGENT_SOCKET));
    if UnixStream::connect(&socket).is_ok() {
        return Err(Failure::new(format!(
            "the agent of this node still runs: it answers at {}",
            socket.display()
        ))
        .hint("stop it first: systemctl disable --now plumbd, or delete the DaemonSet plumb-node"));
    }
    match waiting_dels(&below(&command.root, Path::new(wire::STATE_DIR))) {
        waiting @ 1.. if !command.force => Err(Failure::new(format!(
            "{waiting} DELs wait in the queue of this node, whose addresses are not released yet"
        ))
        .hint(
            "start the agent until they are done, or use --force and release the addresses with plumb repair",
        )),
        _ => Ok(()),
    }
}

/// Queued DELs of sandboxes that still hold something, by the agent's journal. Runtimes call DEL twice: the second one, when they forget the
/// sandbox, may come when the agent is gone already, and asks for nothing.
fn waiting_dels(state: &Path) -> usize {
    let names = |folder: PathBuf| fs::read_dir(folder).into_iter().flatten().flatten();
    let journal = names(state.join(JOURNAL)).map(|entry| entry.file_name().to_string_lossy().into_owned());
    let journal: Vec<String> = journal.collect();
    let is_waiting = |path: &PathBuf| {
        if path.extension().is_none_or(|extension| extension != "json") {
            return false;
        }
        let call = fs::read(path).ok().and_then(|text| Call::decode(&text).ok());
        let id = call.as_ref().and_then(|call| call.variable("CNI_CONTAINERID"));
        // What cannot be read may be anything.
        id.is_none_or(|id| journal.iter().any(|name| name.contains(&format!("@{id}@"))))
    };
    names(state.join(wire::QUEUE_DIR)).map(|entry| entry.path()).filter(is_waiting).count()
}

fn refuse_while_pods_run(command: &Uninstall, pods: usize) -> Result<(), Failure> {
    if pods == 0 || command.force {
        return Ok(());
    }
    Err(Failure::new(format!("{pods} pods on this node use the network, and would lose it"))
        .hint("drain the node first (kubectl drain), or use --force"))
}

fn own_files(command: &Uninstall) -> Vec<PathBuf> {
    let mut paths = vec![
        command.cni_bin_dir.join(PLUGIN_LINK),
        command.cni_bin_dir.join(PLUGIN),
        command.cni_conf_dir.join(KUBECONFIG),
        command.unit_dir.join(UNIT),
        PathBuf::from(SETTINGS_FILE),
    ];
    paths.extend(PROGRAMS.iter().map(|name| command.program_dir.join(name)));
    let mut paths: Vec<PathBuf> = paths.iter().map(|path| below(&command.root, path)).collect();
    if !below(&command.root, Path::new(NODENAME_FILE)).exists() {
        paths.push(below(&command.root, Path::new(MTU_FILE)));
    }
    paths
}

fn remove_files(command: &Uninstall, paths: &[PathBuf]) -> Result<(), Failure> {
    for path in paths {
        if fs::symlink_metadata(path).is_err() {
            continue;
        }
        if !command.dry_run {
            gone(fs::remove_file(path)).map_err(|error| cannot_remove(path, &error))?;
        }
        report(command, &path.display().to_string())?;
    }
    Ok(())
}

/// The journal and the rest of the state directory. Records are not state of this node alone.
fn remove_state(command: &Uninstall) -> Result<(), Failure> {
    let folder = below(&command.root, Path::new(wire::STATE_DIR));
    let Ok(entries) = fs::read_dir(&folder) else { return Ok(()) };
    let mut kept = Vec::new();
    for path in entries.flatten().map(|entry| entry.path()) {
        let is_database = path.file_name().is_some_and(|name| name.to_string_lossy().starts_with(DATABASE));
        if is_database && !command.purge {
            kept.push(path);
        } else if !command.dry_run {
            let is_folder = fs::symlink_metadata(&path).is_ok_and(|metadata| metadata.is_dir());
            let removed = if is_folder { fs::remove_dir_all(&path) } else { fs::remove_file(&path) };
            gone(removed).map_err(|error| cannot_remove(&path, &error))?;
        }
    }
    if kept.is_empty() {
        if !command.dry_run {
            match fs::remove_dir(&folder) {
                // A file system of its own: what is in it is gone.
                Err(error) if error.kind() == io::ErrorKind::ResourceBusy => {}
                removed => gone(removed).map_err(|error| cannot_remove(&folder, &error))?,
            }
        }
        return report(command, &folder.display().to_string());
    }
    for path in kept {
        tell(&format!("kept {}, which holds records; --purge removes it", path.display()));
    }
    Ok(())
}

fn gone(removed: io::Result<()>) -> io::Result<()> {
    match removed {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        removed => removed,
    }
}

fn cannot_remove(path: &Path, error: &io::Error) -> Failure {
    Failure::new(format!("cannot remove {}", path.display())).caused_by(error)
}

fn report(command: &Uninstall, what: &str) -> Result<(), Failure> {
    let word = if command.dry_run { "would remove" } else { "removed" };
    Ok(writeln!(io::stdout().lock(), "{word} {what}")?)
}

async fn wait_for_the_end() -> Result<(), Failure> {
    use tokio::signal::unix::{SignalKind, signal};
    let failed = |error: io::Error| Failure::new("cannot wait for SIGTERM").caused_by(&error);
    let mut terminated = signal(SignalKind::terminate()).map_err(failed)?;
    terminated.recv().await;
    Ok(())
}
