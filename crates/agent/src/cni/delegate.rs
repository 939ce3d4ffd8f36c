//! Another plugin that gives the addresses: called as the specification wants it, with the same configuration.

use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use serde_json::Value;
use tokio::io::AsyncWriteExt as _;
use tokio::process::Command;

use super::environment::Environment;
use super::error::{CniError, code};
use super::{Call, result};

/// Address plugins work on local files; one that takes this long hangs.
const PATIENCE: Duration = Duration::from_secs(60);
/// More than any plugin says.
const ANSWER_BYTES_MAX: usize = 1024 * 1024;

/// Asks the plugin for addresses; or takes those that the pod brings along, which nobody gives.
pub(super) async fn add(call: &Call) -> Result<Vec<IpAddr>, CniError> {
    if !call.netconf.asked.without_ipam.is_empty() {
        return Ok(call.netconf.asked.without_ipam.clone());
    }
    let Some(plugin) = plugin_of(call) else { return Ok(Vec::new()) };
    let answer = plugin.run("ADD").await?;
    let answer: Value = serde_json::from_slice(&answer).map_err(|error| {
        CniError::new(code::NOT_DECODED, format!("{} did not answer in JSON", plugin.name)).because(&error)
    })?;
    let addresses = result::addresses_of(&answer, call.sandbox.interface());
    if addresses.is_empty() {
        return Err(CniError::new(code::ADDRESSES, format!("{} gave no address", plugin.name)));
    }
    Ok(addresses)
}

/// Gives addresses back, if another plugin gave them.
pub(super) async fn give_back(call: &Call) -> Result<(), CniError> {
    forward(call, "DEL").await
}

/// Lets the plugin check its own part.
pub(super) async fn check(call: &Call) -> Result<(), CniError> {
    forward(call, "CHECK").await
}

async fn forward(call: &Call, verb: &str) -> Result<(), CniError> {
    match plugin_of(call) {
        Some(plugin) => plugin.run(verb).await.map(|_| ()),
        None => Ok(()),
    }
}

/// Passes a call on that is about no sandbox: GC and STATUS.
pub(super) async fn forward_as_it_is(
    name: Option<&str>,
    environment: &Environment,
    config: &str,
) -> Result<(), CniError> {
    let Some(name) = name else { return Ok(()) };
    let verb = environment.get("CNI_COMMAND").unwrap_or_default().to_owned();
    Plugin { name, environment, config }.run(&verb).await.map(|_| ())
}

fn plugin_of(call: &Call) -> Option<Plugin<'_>> {
    if !call.netconf.asked.without_ipam.is_empty() {
        return None;
    }
    let name = call.netconf.ipam.other.as_deref()?;
    Some(Plugin { name, environment: &call.message.environment, config: &call.message.config })
}

struct Plugin<'a> {
    name: &'a str,
    environment: &'a Environment,
    config: &'a str,
}

impl Plugin<'_> {
    async fn run(&self, verb: &str) -> Result<Vec<u8>, CniError> {
        let program = find(self.name, self.environment.get("CNI_PATH").unwrap_or_default())?;
        let failed = |error: std::io::Error| {
            CniError::new(code::TRY_LATER, format!("cannot run {}", program.display())).because(&error)
        };
        let mut child = Command::new(&program)
            .envs(self.environment.iter())
            .env("CNI_COMMAND", verb)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::inherit())
            .kill_on_drop(true)
            .spawn()
            .map_err(failed)?;
        let mut input = child.stdin.take().expect("it was asked for");
        let config = self.config.as_bytes();
        let talk = async {
            // One that does not read its configuration still has an answer.
            let _ = input.write_all(config).await;
            drop(input);
            child.wait_with_output().await
        };
        let Ok(output) = tokio::time::timeout(PATIENCE, talk).await else {
            let message = format!("{} did not end within {} s", program.display(), PATIENCE.as_secs());
            return Err(CniError::new(code::TRY_LATER, message));
        };
        let output = output.map_err(failed)?;
        if output.status.success() && output.stdout.len() <= ANSWER_BYTES_MAX {
            return Ok(output.stdout);
        }
        Err(refusal(self.name, &output.stdout))
    }
}

/// What the plugin says went wrong, in its own words if it has some.
fn refusal(name: &str, answer: &[u8]) -> CniError {
    let said: Value = serde_json::from_slice(answer).unwrap_or_default();
    let code = said.get("code").and_then(Value::as_u64).and_then(|code| u32::try_from(code).ok());
    let text = |key: &str| said.get(key).and_then(Value::as_str).unwrap_or_default();
    let message =
        format!("{name} failed: {}", if text("msg").is_empty() { "no reason given" } else { text("msg") });
    let error = CniError::new(code.unwrap_or(code::ADDRESSES), message);
    if text("details").is_empty() { error } else { error.hint(text("details")) }
}

/// Looks for a plugin where the runtime says they are.
fn find(name: &str, folders: &str) -> Result<PathBuf, CniError> {
    if name.contains('/') {
        return Err(CniError::configuration(format!("ipam.type {name:?} is not the name of a plugin")));
    }
    let candidates = folders.split(':').filter(|folder| !folder.is_empty());
    let found = candidates.map(|folder| Path::new(folder).join(name)).find(|path| path.is_file());
    found.ok_or_else(|| {
        CniError::configuration(format!("there is no plugin {name} in CNI_PATH ({folders})"))
            .hint("ipam.type names a plugin that must be installed, or leave it out")
    })
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    fn plugin(folder: &Path, script: &str) -> Environment {
        let path = folder.join("some-ipam");
        std::fs::write(&path, format!("#!/bin/sh\n{script}\n")).unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).unwrap();
        let folders = format!("/nowhere:{}", folder.display());
        [("CNI_COMMAND", "STATUS"), ("CNI_PATH", &folders)].into_iter().collect()
    }

    #[tokio::test]
    async fn a_plugin_gets_verb_and_configuration_and_its_error_is_passed_on() {
        let folder = tempfile::tempdir().unwrap();
        let environment = plugin(folder.path(), "cat > $0.$CNI_COMMAND");
        forward_as_it_is(Some("some-ipam"), &environment, "{\"a\":1}").await.unwrap();
        let said = std::fs::read_to_string(folder.path().join("some-ipam.STATUS")).unwrap();
        assert_eq!(said, "{\"a\":1}");
        let environment =
            plugin(folder.path(), "echo '{\"code\":50,\"msg\":\"full\",\"details\":\"x\"}'; exit 1");
        let error = forward_as_it_is(Some("some-ipam"), &environment, "{}").await.unwrap_err();
        assert_eq!((error.code, error.message.as_str()), (50, "some-ipam failed: full"));
        let environment = plugin(folder.path(), "exit 1");
        let error = forward_as_it_is(Some("some-ipam"), &environment, "{}").await.unwrap_err();
        assert_eq!(error.message, "some-ipam failed: no reason given");
    }

    #[test]
    fn plugins_are_looked_for_in_their_folders_only() {
        assert!(find("../../bin/sh", "/bin").is_err());
        assert!(find("no-such-plugin", "/bin::/usr/bin").is_err());
        assert_eq!(find("sh", "/nowhere:/bin").unwrap(), Path::new("/bin/sh"));
    }
}
