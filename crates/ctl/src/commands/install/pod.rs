//! `plumb install --node`: what a node needs whose agent runs in a pod. The plugins first, the network configuration last.

use super::content::{Access, PodNetwork, conflist};
use super::files::{Content, Existing, Item};
use super::standard::Standard;
use super::{
    CONFLIST, PLUGIN, PLUGIN_LINK, below, put_in_place, read, say_which_configuration_counts, source,
};
use crate::cli::install::Install;
use crate::failure::{Failure, Failures};

pub(super) fn run(command: &Install) -> Result<(), Failures> {
    let source = source(command)?;
    let at = |name: &str| below(&command.root, &command.cni_bin_dir.join(name));
    let mut standard = Standard::read(&command.root)?;
    let mut items = match &command.standard_plugins {
        Some(folder) => standard.items(folder, &command.cni_bin_dir)?,
        None => Vec::new(),
    };
    let comes: Vec<_> = items.iter().map(|item| item.path.clone()).collect();
    items.push(Item::new(at(PLUGIN), 0o755, Content::Text(read(&source.join(PLUGIN))?)));
    items.push(Item::new(at(PLUGIN_LINK), 0o777, Content::Link(PLUGIN.into())));
    let network = PodNetwork { versions: command.ip_versions.clone(), mtu: command.cluster.mtu };
    let has_plugin = |name: &str| at(name).is_file() || comes.contains(&at(name));
    let text = conflist(&network, &Access::Agent, &has_plugin);
    let path = below(&command.root, &command.cni_conf_dir.join(CONFLIST));
    let configuration = Item::new(path, 0o600, Content::Text(text.into_bytes()));
    items.push(configuration.or_kept(Existing::kept_unless(command.replace_config)));
    if !command.dry_run {
        // Before the files: what stands in the list and not on the disk is no harm, the other way round it would stay for ever.
        standard.write().map_err(|error| {
            Failure::new(format!("cannot write {}", standard.path().display())).caused_by(&error)
        })?;
    }
    put_in_place(&items, command.dry_run)?;
    say_which_configuration_counts(command)?;
    Ok(())
}
