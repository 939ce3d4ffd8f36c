//! What is said about the agent's settings after they were installed or kept. Never a value: some are secrets.

use std::ffi::OsString;
use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use model::settings::{Setting, parse_settings_file};
use store::StoreConfig;
use store::config::{Overrides, Sources};

use super::content::AgentSettings;
use super::tell;
use crate::cli::install::Install;
use crate::failure::Failure;

/// What the environment says and the file does not; whether others can read a password; which store the agent will use.
pub(super) fn report(command: &Install, path: &Path, given: &AgentSettings) -> Result<(), Failure> {
    for name in &given.left_out {
        tell(&format!(
            "note: {name} was not added to the agent's settings, because kubectl uses it too; it is added only with DATASTORE_TYPE=kubernetes"
        ));
    }
    // With --dry-run there may be none.
    let Ok(text) = fs::read_to_string(path) else { return Ok(()) };
    let settings = match parse_settings_file(&text) {
        Ok(settings) => settings,
        Err(error) => {
            tell(&format!("warning: {} is not valid: {error}", path.display()));
            return Ok(());
        }
    };
    let missing = given.carried.iter().filter(|(name, value)| settings.get(name) != Some(value));
    let missing: Vec<&str> = missing.map(|(name, _)| name.as_str()).collect();
    let is_to_be_written = command.dry_run && command.replace_settings;
    if !missing.is_empty() && !is_to_be_written {
        tell(&format!(
            "warning: {} was kept, but these variables have another value in the environment: {}; use --replace-settings to rewrite it",
            path.display(),
            missing.join(", ")
        ));
    }
    let has_secret = |(name, value): (&String, &String)| {
        !value.is_empty() && Setting::find(name).is_some_and(|setting| setting.is_secret)
    };
    if settings.iter().any(has_secret) {
        keep_private(command, path)?;
    }
    tell_store(&|name| settings.get(name).map(OsString::from));
    Ok(())
}

fn keep_private(command: &Install, path: &Path) -> Result<(), Failure> {
    let failed = |error: std::io::Error| {
        Failure::new(format!("cannot make {} readable by root only", path.display())).caused_by(&error)
    };
    let mode = fs::metadata(path).map_err(failed)?.permissions().mode() & 0o7777;
    if mode & 0o077 == 0 {
        return Ok(());
    }
    let shown = path.display();
    if command.dry_run {
        tell(&format!("would set the mode of {shown} from {mode:04o} to 0600: it contains a password"));
        return Ok(());
    }
    fs::set_permissions(path, fs::Permissions::from_mode(0o600)).map_err(failed)?;
    tell(&format!("set the mode of {shown} from {mode:04o} to 0600: it contains a password"));
    Ok(())
}

/// The same choice that the agent will make.
fn tell_store(environment: &dyn Fn(&str) -> Option<OsString>) {
    let sources = Sources {
        overrides: Overrides::default(),
        config_file: None,
        default_config_file: PathBuf::new(),
        environment,
        agent_settings: None,
    };
    match StoreConfig::from_sources(&sources) {
        Ok(selected) => tell(&format!("the agent's store: {}", selected.config)),
        Err(error) => {
            let hint = error.hint().map(|hint| format!(" ({hint})")).unwrap_or_default();
            tell(&format!("warning: with these settings the agent will not start: {error}{hint}"));
        }
    }
}
