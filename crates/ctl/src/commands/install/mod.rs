//! `plumb install`: what a node needs, put in place; and what a cluster needs, as manifests.
//!
//! First everything is laid out as a list of files, then the list is compared with what is there and carried out.

mod agent_settings;
mod check;
mod content;
mod credential;
mod definitions;
mod files;
mod manifests;
mod pod;
mod standard;
mod workloads;

use std::fs;
use std::io::Write as _;
use std::path::{Path, PathBuf};

use crate::cli::Global;
use crate::cli::install::{Install, InstallCommand, Part};
use crate::connect;
use crate::failure::{Failure, Failures};

use content::{Access, AgentSettings, PodNetwork};
use files::{Content, Existing, Item, Outcome};
use model::settings::SETTINGS_FILE;
use store::StoreConfig;
use store::kube::KubeConfig;

pub(super) use standard::Standard;

pub(super) const PLUGIN: &str = "plumb-cni";
/// The same program under another name is the plugin for addresses.
pub(super) const PLUGIN_LINK: &str = "plumb-ipam";
pub(super) const PROGRAMS: [&str; 2] = ["plumb", "plumbd"];
pub(super) const CONFLIST: &str = "10-plumb.conflist";
pub(super) const UNIT: &str = "plumbd.service";
/// No runtime takes it for a network configuration.
pub(super) const KUBECONFIG: &str = "plumb-kubeconfig";

pub(super) async fn run(global: &Global, command: &Install) -> Result<(), Failures> {
    if let Some(InstallCommand::Check(check)) = &command.command {
        return check::run(global, check).await;
    }
    match &command.print {
        _ if command.crds && command.apply => definitions::apply(global, command).await,
        _ if command.crds => manifests::print(command, &[Part::Crds]),
        Some(parts) => manifests::print(command, parts),
        None if command.node => pod::run(command),
        None => on_this_node(global, command),
    }
}

fn on_this_node(global: &Global, command: &Install) -> Result<(), Failures> {
    let source = source(command)?;
    let settings = AgentSettings::read(&|name| std::env::var_os(name))?;
    let kubeconfig = if command.one_shot_kubeconfig { Some(one_shot_kubeconfig(global)?) } else { None };
    let warning = kubeconfig.as_deref().and_then(credential::warning);
    let items = items(command, &source, &settings, kubeconfig)?;
    put_in_place(&items, command.dry_run)?;
    if let Some(warning) = warning {
        tell(&warning);
    }
    agent_settings::report(command, &below(&command.root, Path::new(SETTINGS_FILE)), &settings)?;
    say_which_configuration_counts(command)?;
    if !command.dry_run && command.root == Path::new("/") {
        tell("next: systemctl daemon-reload && systemctl enable --now plumbd");
    }
    Ok(())
}

/// In their order, each told.
fn put_in_place(items: &[Item], is_dry_run: bool) -> Result<(), Failure> {
    let mut out = std::io::stdout().lock();
    for item in items {
        let outcome = if is_dry_run { item.compare()? } else { item.put_in_place()? };
        writeln!(out, "{} {}", outcome.word(is_dry_run), item.path.display())?;
    }
    Ok(())
}

/// The text of a kubeconfig with what this command would use.
fn one_shot_kubeconfig(global: &Global) -> Result<String, Failure> {
    let config = kubernetes_store(global, "--one-shot-kubeconfig")?;
    Ok(config.flattened()?)
}

/// The chosen store, which must be Kubernetes for this flag.
fn kubernetes_store(global: &Global, flag: &str) -> Result<KubeConfig, Failure> {
    match connect::select(global)?.config {
        StoreConfig::Kubernetes(config) => Ok(config),
        other => {
            let failure =
                Failure::usage(format!("{flag} requires the Kubernetes store, but the store is the {other}"));
            Err(failure.hint("set DATASTORE_TYPE=kubernetes, and KUBECONFIG or --context"))
        }
    }
}

fn items(
    command: &Install,
    source: &Path,
    settings: &AgentSettings,
    kubeconfig: Option<String>,
) -> Result<Vec<Item>, Failure> {
    let at = |folder: &Path, name: &str| below(&command.root, &folder.join(name));
    let program = |folder: &Path, name: &str| -> Result<Item, Failure> {
        Ok(Item::new(at(folder, name), 0o755, Content::Text(read(&source.join(name))?)))
    };
    let mut items = Vec::new();
    for name in PROGRAMS {
        items.push(program(&command.program_dir, name)?);
    }
    items.push(program(&command.cni_bin_dir, PLUGIN)?);
    items.push(Item::new(at(&command.cni_bin_dir, PLUGIN_LINK), 0o777, Content::Link(PLUGIN.into())));
    let unit = content::unit(&command.program_dir.join("plumbd"), Path::new(SETTINGS_FILE));
    items.push(Item::new(at(&command.unit_dir, UNIT), 0o644, Content::Text(unit.into_bytes())));
    let path = below(&command.root, Path::new(SETTINGS_FILE));
    let settings = Item::new(path, 0o600, Content::Text(settings.file().into_bytes()));
    items.push(settings.or_kept(Existing::kept_unless(command.replace_settings)));
    let mut access = Access::Agent;
    if let Some(text) = kubeconfig {
        access = Access::Kubeconfig(command.cni_conf_dir.join(KUBECONFIG));
        items.push(Item::new(at(&command.cni_conf_dir, KUBECONFIG), 0o600, Content::Text(text.into_bytes())));
    }
    // Last: from then on the runtime makes use of the rest.
    let network = PodNetwork { versions: Vec::new(), mtu: command.cluster.mtu };
    let conflist = content::conflist(&network, &access, &|name| at(&command.cni_bin_dir, name).is_file());
    let conflist =
        Item::new(at(&command.cni_conf_dir, CONFLIST), 0o600, Content::Text(conflist.into_bytes()));
    items.push(conflist.or_kept(Existing::kept_unless(command.replace_config)));
    Ok(items)
}

/// Runtimes take the first configuration in the order of names; it may be somebody else's.
fn say_which_configuration_counts(command: &Install) -> Result<(), Failure> {
    let folder = below(&command.root, &command.cni_conf_dir);
    let others = configurations(&folder);
    for other in &others {
        tell(&format!("kept another plugin's network configuration: {}", folder.join(other).display()));
    }
    if let Some(first) = others.first().filter(|name| name.as_str() < CONFLIST) {
        tell(&format!(
            "note: container runtimes use {first}, because its name sorts before {CONFLIST}; move it away to use Plumbline"
        ));
    }
    Ok(())
}

/// Network configurations of others, in the order in which runtimes take them.
fn configurations(folder: &Path) -> Vec<String> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    let names = entries.filter_map(|entry| entry.file_name().into_string().ok());
    let is_configuration =
        |name: &String| [".conflist", ".conf", ".json"].iter().any(|ending| name.ends_with(ending));
    let mut others: Vec<String> = names.filter(is_configuration).filter(|name| name != CONFLIST).collect();
    others.sort();
    others
}

fn source(command: &Install) -> Result<PathBuf, Failure> {
    let beside = || std::env::current_exe().ok().and_then(|own| Some(own.parent()?.to_owned()));
    let folder = command.bin_dir.clone().or_else(beside).unwrap_or_default();
    let programs = PROGRAMS.iter().filter(|_| !command.node);
    match programs.chain([&PLUGIN]).find(|name| !folder.join(name).is_file()) {
        None => Ok(folder),
        Some(missing) => Err(Failure::new(format!("{missing} is missing in {}", folder.display()))
            .hint("use --bin-dir to name the directory that contains plumb, plumbd and plumb-cni")),
    }
}

fn read(path: &Path) -> Result<Vec<u8>, Failure> {
    fs::read(path).map_err(|error| Failure::new(format!("cannot read {}", path.display())).caused_by(&error))
}

/// A path of the installed system, seen from here.
pub(super) fn below(root: &Path, path: &Path) -> PathBuf {
    root.join(path.strip_prefix("/").unwrap_or(path))
}

pub(super) fn tell(line: &str) {
    // Nobody is left to tell if stderr is closed.
    let _ = writeln!(std::io::stderr(), "{line}");
}

impl Outcome {
    fn word(self, is_dry_run: bool) -> &'static str {
        match (self, is_dry_run) {
            (Outcome::UpToDate, _) => "unchanged",
            (Outcome::Kept, _) => "kept",
            (Outcome::Installed, false) => "installed",
            (Outcome::Replaced, false) => "replaced",
            (Outcome::Installed, true) => "would install",
            (Outcome::Replaced, true) => "would replace",
        }
    }
}
