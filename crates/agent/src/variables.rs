//! The only way to read settings from the environment. A variable without a row in [`model::settings::SETTINGS`] is not read, so that every setting
//! that works is one that `plumb install` carries over.

use std::ffi::OsString;

use model::settings::Setting;

/// A setting, unchanged.
pub(crate) fn os(name: &str) -> Option<OsString> {
    debug_assert!(Setting::find(name).is_some(), "{name} has no row in model::settings::SETTINGS");
    Setting::find(name).and_then(|_| std::env::var_os(name))
}

/// A setting as text; empty counts as not set.
pub(crate) fn text(name: &str) -> Option<String> {
    os(name)?.into_string().ok().filter(|value| !value.is_empty())
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;
    use std::collections::BTreeSet;
    use std::path::{Path, PathBuf};
    use std::sync::Mutex;

    use clap::{CommandFactory as _, Parser};
    use model::settings::SETTINGS;
    use store::config::{Overrides, Reason, Sources};
    use store::{MemoryStore, StoreConfig};

    use super::*;

    #[derive(Parser)]
    struct Program {
        #[command(flatten)]
        _node: crate::node::NodeArguments,
    }

    /// Every variable that a start of the agent reads, found by running the readers.
    async fn read_at_start() -> BTreeSet<String> {
        let arguments = Program::command();
        let flags = arguments.get_arguments().filter_map(|argument| argument.get_env());
        let mut asked: BTreeSet<String> = flags.map(|name| name.to_string_lossy().into_owned()).collect();

        let of_store = RefCell::new(BTreeSet::new());
        let note = |name: &str| {
            of_store.borrow_mut().insert(name.to_owned());
            None
        };
        let sources = Sources {
            overrides: Overrides::default(),
            config_file: None,
            default_config_file: PathBuf::new(),
            environment: &note,
            agent_settings: None,
        };
        StoreConfig::from_sources(&sources).unwrap();
        asked.append(&mut of_store.borrow_mut());
        plan::between::felix_variables(&|name| {
            of_store.borrow_mut().insert(name.to_owned());
            None
        });
        asked.append(&mut of_store.borrow_mut());

        let of_start = Mutex::new(BTreeSet::new());
        let note = |name: &str| {
            of_start.lock().unwrap().insert(name.to_owned());
            // Both versions, so that all of the pools' settings are asked for.
            matches!(name, "CALICO_IPV6POOL_CIDR").then(|| "fd00::/48".to_owned())
        };
        crate::bootstrap::run_with(&MemoryStore::new(), "node-a", Reason::Named, &note).await.unwrap();
        asked.append(&mut of_start.lock().unwrap());
        asked
    }

    #[tokio::test]
    async fn every_setting_that_the_agent_reads_is_in_the_table() {
        let asked = read_at_start().await;
        let unknown: Vec<&String> = asked.iter().filter(|name| Setting::find(name).is_none()).collect();
        assert!(
            unknown.is_empty(),
            "the agent reads {unknown:?}, which `plumb install` would not carry over"
        );
        // These are read by libraries, or for each pod; the test below finds them.
        let elsewhere = ["SSL_CERT_FILE", "FELIX_INTERFACEPREFIX", "HTTPS_PROXY", "HTTP_PROXY", "NO_PROXY"];
        let dead: Vec<&str> = SETTINGS
            .iter()
            .filter(|setting| !setting.variables().any(|name| asked.contains(&name)))
            .map(|setting| setting.name)
            .filter(|name| !elsewhere.contains(&name.to_ascii_uppercase().as_str()))
            .collect();
        assert!(dead.is_empty(), "nobody reads {dead:?}");
    }

    /// Variables of tests, of the operator's tool, and of every program.
    const NOT_THE_AGENTS: [&str; 4] = ["PLUMB_FAILPOINT", "AGENT_SETTINGS_VARIABLE", "VARIABLE", "PATH"];

    /// The files with functions that read any variable of the table.
    const DOORS: [&str; 3] = ["agent/src/variables.rs", "store/src/config.rs", "store/src/kube/config.rs"];

    #[test]
    fn nothing_the_agent_is_made_of_reads_the_environment_in_another_way() {
        let crates = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
        let mut found = Vec::new();
        for part in ["agent", "book", "gather", "host", "store", "plan", "model", "ipam", "doctor"] {
            sources_below(&crates.join(part).join("src"), &mut found);
        }
        assert!(found.len() > 100, "the sources are not there");
        let mut faults = Vec::new();
        for path in found {
            let text = std::fs::read_to_string(&path).unwrap();
            for line in text.split("\n#[cfg(test)]").next().unwrap_or_default().lines() {
                for call in ["env::var(", "env::var_os("] {
                    let Some((_, argument)) = line.split_once(call) else { continue };
                    let argument = argument.split(')').next().unwrap_or_default();
                    let is_listed = Setting::find(argument.trim_matches('"')).is_some();
                    let is_door = DOORS.iter().any(|door| path.ends_with(door));
                    if !is_listed && !NOT_THE_AGENTS.contains(&argument.trim_matches('"')) && !is_door {
                        faults.push(format!("{}: {}", path.display(), line.trim()));
                    }
                }
            }
        }
        assert!(faults.is_empty(), "read settings through `variables`:\n{}", faults.join("\n"));
    }

    fn sources_below(directory: &Path, found: &mut Vec<PathBuf>) {
        for entry in std::fs::read_dir(directory).unwrap().flatten() {
            let path = entry.path();
            if path.is_dir() {
                sources_below(&path, found);
            } else if path.extension().is_some_and(|ending| ending == "rs") {
                found.push(path);
            }
        }
    }
}
