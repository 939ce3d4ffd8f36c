//! Another IPAM plugin that allocates the addresses: executed as the specification requires, with the same configuration.

use std::borrow::Cow;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use ipnet::IpNet;
use serde_json::Value;
use tokio::io::AsyncWriteExt as _;
use tokio::process::Command;

use super::error::{CniError, code};
use super::{Call, kubernetes, result};
use crate::services::Services;

/// IPAM plugins work on local files; one that takes this long hangs.
const TIMEOUT: Duration = Duration::from_secs(60);
/// More than any plugin prints.
const ANSWER_BYTES_MAX: usize = 1024 * 1024;

/// What a plugin allocated.
#[derive(Debug, Default)]
pub(super) struct Allocated {
    /// With the prefix lengths that the plugin answered.
    pub(super) networks: Vec<IpNet>,
    /// As the plugin wrote them.
    pub(super) routes: Vec<Value>,
}

/// The addresses that the plugin allocates; or those that the pod brings along, which no plugin allocates.
pub(super) async fn add(call: &Call, node: &str, services: Services<'_>) -> Result<Allocated, CniError> {
    if !call.netconf.asked.without_ipam.is_empty() {
        let networks = call.netconf.asked.without_ipam.iter().copied().map(IpNet::from).collect();
        return Ok(Allocated { networks, ..Allocated::default() });
    }
    let Some(mut plugin) = plugin_of(call)? else { return Ok(Allocated::default()) };
    if call.netconf.ipam.uses_pod_cidrs {
        plugin.config = kubernetes::configuration_with_pod_cidrs(call, node, services).await?.into();
    }
    let answer = plugin.run("ADD").await?;
    let answer: Value = serde_json::from_slice(&answer).map_err(|error| {
        CniError::new(code::NOT_DECODED, format!("the answer of {} is not JSON", plugin.name)).because(&error)
    })?;
    let networks = result::networks_of(&answer, call.sandbox.interface());
    if networks.is_empty() {
        return Err(CniError::new(code::ADDRESSES, format!("{} allocated no address", plugin.name)));
    }
    Ok(Allocated { networks, routes: result::routes_of(&answer) })
}

/// Releases the addresses, if another plugin allocated them.
pub(super) async fn release(call: &Call) -> Result<(), CniError> {
    forward(call, "DEL").await
}

/// Lets the plugin check its own part.
pub(super) async fn check(call: &Call) -> Result<(), CniError> {
    forward(call, "CHECK").await
}

async fn forward(call: &Call, verb: &str) -> Result<(), CniError> {
    match plugin_of(call)? {
        Some(plugin) => plugin.run(verb).await.map(|_| ()),
        None => Ok(()),
    }
}

/// Forwards a call that names no sandbox: GC or STATUS.
pub(super) async fn forward_as_it_is(name: Option<&str>, call: &wire::Call) -> Result<(), CniError> {
    let Some(name) = name else { return Ok(()) };
    Plugin { name, call, config: call.config.as_str().into() }.run(call.verb()).await.map(|_| ())
}

fn plugin_of(call: &Call) -> Result<Option<Plugin<'_>>, CniError> {
    if !call.netconf.asked.without_ipam.is_empty() {
        return Ok(None);
    }
    let Some(name) = call.netconf.ipam.other.as_deref() else { return Ok(None) };
    let config = match call.netconf.ipam.uses_pod_cidrs {
        true => kubernetes::configuration_with_any_cidrs(&call.netconf)?.into(),
        false => call.message.config.as_str().into(),
    };
    Ok(Some(Plugin { name, call: &call.message, config }))
}

struct Plugin<'a> {
    name: &'a str,
    call: &'a wire::Call,
    config: Cow<'a, str>,
}

impl Plugin<'_> {
    async fn run(&self, verb: &str) -> Result<Vec<u8>, CniError> {
        let program = find(self.name, self.call.variable("CNI_PATH").unwrap_or_default())?;
        let failed = |error: std::io::Error| {
            CniError::new(code::TRY_LATER, format!("cannot run {}", program.display())).because(&error)
        };
        let mut child = Command::new(&program)
            .envs(self.call.variables())
            .env("CNI_COMMAND", verb)
            .env("CNI_ARGS", arguments(self.call.variable("CNI_ARGS").unwrap_or_default()))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::inherit())
            .kill_on_drop(true)
            .spawn()
            .map_err(failed)?;
        let mut input = child.stdin.take().expect("stdin is piped");
        let config = self.config.as_bytes();
        let talk = async {
            // A plugin that does not read its configuration still answers.
            let _ = input.write_all(config).await;
            drop(input);
            child.wait_with_output().await
        };
        let Ok(output) = tokio::time::timeout(TIMEOUT, talk).await else {
            let message = format!("{} did not end within {} s", program.display(), TIMEOUT.as_secs());
            return Err(CniError::new(code::TRY_LATER, message));
        };
        let output = output.map_err(failed)?;
        if output.status.success() && output.stdout.len() <= ANSWER_BYTES_MAX {
            return Ok(output.stdout);
        }
        Err(refusal(self.name, &output.stdout))
    }
}

/// Those of Kubernetes are unknown to most plugins, which refuse them unless they are told otherwise.
fn arguments(passed: &str) -> String {
    const TOLERANT: &str = "IgnoreUnknown=1";
    if passed.is_empty() { TOLERANT.to_owned() } else { format!("{TOLERANT};{passed}") }
}

/// The plugin's own error message, if it printed one.
fn refusal(name: &str, answer: &[u8]) -> CniError {
    let printed: Value = serde_json::from_slice(answer).unwrap_or_default();
    let code = printed.get("code").and_then(Value::as_u64).and_then(|code| u32::try_from(code).ok());
    let text = |key: &str| printed.get(key).and_then(Value::as_str).unwrap_or_default();
    let message =
        format!("{name} failed: {}", if text("msg").is_empty() { "no reason given" } else { text("msg") });
    let error = CniError::new(code.unwrap_or(code::ADDRESSES), message);
    if text("details").is_empty() { error } else { error.hint(text("details")) }
}

/// Finds a plugin in the directories of `CNI_PATH`.
fn find(name: &str, directories: &str) -> Result<PathBuf, CniError> {
    if name.contains('/') {
        return Err(CniError::configuration(format!("ipam.type {name:?} is not the name of a plugin")));
    }
    let candidates = directories.split(':').filter(|directory| !directory.is_empty());
    let found = candidates.map(|directory| Path::new(directory).join(name)).find(|path| path.is_file());
    found.ok_or_else(|| {
        CniError::configuration(format!("no plugin {name} in CNI_PATH ({directories})"))
            .hint("install the plugin that ipam.type names, or leave ipam.type out")
    })
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    fn plugin(directory: &Path, script: &str, config: &str) -> wire::Call {
        let path = directory.join("some-ipam");
        std::fs::write(&path, format!("#!/bin/sh\n{script}\n")).unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).unwrap();
        let directories = format!("/nowhere:{}", directory.display());
        let variables = [("CNI_COMMAND", "STATUS"), ("CNI_PATH", &directories)];
        let variables = variables.map(|(name, value)| (name.to_owned(), value.to_owned()));
        wire::Call::new(wire::Role::Network, variables, config)
    }

    #[tokio::test]
    async fn a_plugin_gets_verb_and_configuration_and_its_error_is_passed_on() {
        let directory = tempfile::tempdir().unwrap();
        let call =
            plugin(directory.path(), "echo \"$CNI_ARGS\" > $0.args; cat > $0.$CNI_COMMAND", "{\"a\":1}");
        forward_as_it_is(Some("some-ipam"), &call).await.unwrap();
        let arguments = std::fs::read_to_string(directory.path().join("some-ipam.args")).unwrap();
        assert_eq!(arguments, "IgnoreUnknown=1\n");
        let received = std::fs::read_to_string(directory.path().join("some-ipam.STATUS")).unwrap();
        assert_eq!(received, "{\"a\":1}");
        let call =
            plugin(directory.path(), "echo '{\"code\":50,\"msg\":\"full\",\"details\":\"x\"}'; exit 1", "{}");
        let error = forward_as_it_is(Some("some-ipam"), &call).await.unwrap_err();
        assert_eq!((error.code, error.message.as_str()), (50, "some-ipam failed: full"));
        let call = plugin(directory.path(), "exit 1", "{}");
        let error = forward_as_it_is(Some("some-ipam"), &call).await.unwrap_err();
        assert_eq!(error.message, "some-ipam failed: no reason given");
    }

    #[test]
    fn arguments_that_a_plugin_does_not_know_are_no_reason_to_refuse() {
        assert_eq!(arguments("K8S_POD_NAME=web;IP=10.0.0.1"), "IgnoreUnknown=1;K8S_POD_NAME=web;IP=10.0.0.1");
    }

    #[test]
    fn plugins_are_searched_in_cni_path_only() {
        assert!(find("../../bin/sh", "/bin").is_err());
        assert!(find("no-such-plugin", "/bin::/usr/bin").is_err());
        assert_eq!(find("sh", "/nowhere:/bin").unwrap(), Path::new("/bin/sh"));
    }
}
