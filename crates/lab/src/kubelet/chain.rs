//! Runs a network's plugins one after the other, as the library that runtimes use does: results are handed on and
//! kept, DEL goes backwards.

use std::fs;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context as _, Result, anyhow, bail};
use serde_json::{Map, Value, json};

use super::conflist::{Conflist, SpecVersion};

/// Where plugins lie and where results are kept, on a node.
#[derive(Clone, Debug)]
pub(crate) struct Chain {
    pub(crate) bin: PathBuf,
    pub(crate) cache: PathBuf,
}

/// One attachment, as the plugins are told.
#[derive(Clone, Debug)]
pub(crate) struct Attachment {
    pub(crate) container_id: String,
    /// Empty once the namespace is closed.
    pub(crate) netns: String,
    pub(crate) interface: String,
    pub(crate) arguments: Vec<(String, String)>,
    /// What the runtime offers to plugins that declare the capability.
    pub(crate) offers: Map<String, Value>,
}

impl Chain {
    /// The last plugin's result, also kept for CHECK and DEL.
    pub(crate) fn add(&self, list: &Conflist, attachment: &Attachment) -> Result<Value> {
        let mut result: Option<Value> = None;
        for plugin in &list.plugins {
            let input = list.input(plugin, result.as_ref(), &attachment.offers);
            let printed = self.call("ADD", plugin, &input, attachment)?;
            result =
                Some(serde_json::from_str(&printed).with_context(|| format!("ADD printed {printed:?}"))?);
        }
        let result = result.context("a network has plugins")?;
        self.keep(list, attachment, &result)?;
        Ok(result)
    }

    /// Plugins in reverse. The kept result goes along if the version knows that, and goes away once all is done.
    pub(crate) fn del(&self, list: &Conflist, attachment: &Attachment) -> Result<()> {
        let kept = if list.version()? >= SpecVersion::CHECK { self.kept(list, attachment) } else { None };
        for plugin in list.plugins.iter().rev() {
            let input = list.input(plugin, kept.as_ref(), &attachment.offers);
            self.call("DEL", plugin, &input, attachment)?;
        }
        match fs::remove_file(self.cache_file(list, attachment)) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => Err(error.into()),
            _ => Ok(()),
        }
    }

    pub(crate) fn check(&self, list: &Conflist, attachment: &Attachment) -> Result<()> {
        if list.version()? < SpecVersion::CHECK || list.disable_check {
            return Ok(());
        }
        let kept = self.kept(list, attachment).context("there is no result of an ADD to check against")?;
        for plugin in &list.plugins {
            let input = list.input(plugin, Some(&kept), &attachment.offers);
            self.call("CHECK", plugin, &input, attachment)?;
        }
        Ok(())
    }

    /// Whether the plugins are ready for an ADD.
    pub(crate) fn status(&self, list: &Conflist) -> Result<()> {
        if list.version()? < SpecVersion::GC {
            return Ok(());
        }
        for plugin in &list.plugins {
            let input = list.input(plugin, None, &Map::new());
            self.run("STATUS", plugin, &input, &[])?;
        }
        Ok(())
    }

    /// Tells the plugins which attachments there are; what they know beyond that is to go.
    pub(crate) fn gc(&self, list: &Conflist, valid: &[Attachment]) -> Result<()> {
        if list.version()? < SpecVersion::GC {
            return Ok(());
        }
        let valid: Vec<Value> = valid
            .iter()
            .map(|attachment| json!({"containerID": attachment.container_id, "ifname": attachment.interface}))
            .collect();
        for plugin in &list.plugins {
            let mut input = list.input(plugin, None, &Map::new());
            input["cni.dev/valid-attachments"] = json!(valid);
            self.run("GC", plugin, &input, &[])?;
        }
        Ok(())
    }

    fn call(
        &self,
        verb: &str,
        plugin: &Map<String, Value>,
        input: &Value,
        attachment: &Attachment,
    ) -> Result<String> {
        let arguments: Vec<String> =
            attachment.arguments.iter().map(|(name, value)| format!("{name}={value}")).collect();
        let environment = [
            ("CNI_CONTAINERID", attachment.container_id.clone()),
            ("CNI_NETNS", attachment.netns.clone()),
            ("CNI_IFNAME", attachment.interface.clone()),
            ("CNI_ARGS", arguments.join(";")),
        ];
        self.run(verb, plugin, input, &environment)
    }

    fn run(
        &self,
        verb: &str,
        plugin: &Map<String, Value>,
        input: &Value,
        environment: &[(&str, String)],
    ) -> Result<String> {
        let name = plugin.get("type").and_then(Value::as_str).unwrap_or_default();
        let mut command = Command::new(self.bin.join(name));
        command.env("CNI_COMMAND", verb).env("CNI_PATH", &self.bin);
        command.envs(environment.iter().map(|(name, value)| (name, value)));
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::inherit());
        let mut child = command.spawn().with_context(|| format!("cannot run plugin {name}"))?;
        let text = input.to_string();
        // A plugin that ends without reading says why on stdout.
        let _ = child.stdin.take().context("a plugin has an input")?.write_all(text.as_bytes());
        let output = child.wait_with_output()?;
        let printed = String::from_utf8_lossy(&output.stdout).into_owned();
        if output.status.success() { Ok(printed) } else { Err(plugin_error(name, verb, &printed)) }
    }

    fn cache_file(&self, list: &Conflist, attachment: &Attachment) -> PathBuf {
        let name = format!("{}-{}-{}", list.name, attachment.container_id, attachment.interface);
        self.cache.join("results").join(name)
    }

    fn keep(&self, list: &Conflist, attachment: &Attachment, result: &Value) -> Result<()> {
        let path = self.cache_file(list, attachment);
        fs::create_dir_all(path.parent().unwrap_or(Path::new("/")))?;
        let kept = json!({
            "kind": "cniCacheV1",
            "containerId": attachment.container_id,
            "ifName": attachment.interface,
            "networkName": list.name,
            "netns": attachment.netns,
            "result": result,
        });
        crate::file::replace(&path, kept.to_string().as_bytes())
    }

    fn kept(&self, list: &Conflist, attachment: &Attachment) -> Option<Value> {
        let text = fs::read(self.cache_file(list, attachment)).ok()?;
        let mut kept: Value = serde_json::from_slice(&text).ok()?;
        Some(kept["result"].take()).filter(|result| !result.is_null())
    }
}

fn plugin_error(plugin: &str, verb: &str, printed: &str) -> anyhow::Error {
    let error: Value = serde_json::from_str(printed).unwrap_or_default();
    match (error["code"].as_u64(), error["msg"].as_str()) {
        (Some(code), Some(message)) => {
            let details = error["details"].as_str().unwrap_or_default();
            let details = if details.is_empty() { String::new() } else { format!("; {details}") };
            anyhow!("{verb} of plugin {plugin} failed: {message} (code {code}){details}")
        }
        _ => anyhow!("{verb} of plugin {plugin} failed without a proper error: {printed:?}"),
    }
}

/// The address in a result, without its prefix length.
pub(crate) fn addresses(result: &Value) -> Vec<String> {
    let ips = result["ips"].as_array().into_iter().flatten();
    let texts = ips.filter_map(|ip| ip["address"].as_str());
    texts.filter_map(|text| Some(text.split_once('/')?.0.to_owned())).collect()
}

/// The name of the pod's device on the node: the first interface without a sandbox.
pub(crate) fn device(result: &Value) -> Result<String> {
    let interfaces = result["interfaces"].as_array().into_iter().flatten();
    let mut on_node =
        interfaces.filter(|interface| interface["sandbox"].as_str().unwrap_or_default().is_empty());
    match on_node.next().and_then(|interface| interface["name"].as_str()) {
        Some(name) => Ok(name.to_owned()),
        None => bail!("no device on the node in {result}"),
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    /// Plugins that write down how they were called, and answer with their own name.
    struct Bench {
        folder: tempfile::TempDir,
        list: Conflist,
    }

    impl Bench {
        fn new(version: &str, plugins: &[&str]) -> Bench {
            let folder = tempfile::tempdir().unwrap();
            for name in plugins {
                let log = folder.path().join("log");
                let script = format!(
                    "#!/bin/sh\ninput=$(cat)\n\
                     echo \"$CNI_COMMAND {name} $CNI_CONTAINERID [$CNI_NETNS] $CNI_IFNAME $CNI_ARGS $input\" >> {}\n\
                     test -e {} && {{ echo '{{\"code\":11,\"msg\":\"not now\",\"details\":\"why\"}}'; exit 1; }}\n\
                     test $CNI_COMMAND = ADD && echo '{{\"ips\":[{{\"address\":\"10.0.0.1/32\"}}],\"by\":\"{name}\"}}'\n\
                     exit 0\n",
                    log.display(),
                    folder.path().join(format!("fail-{name}")).display(),
                );
                let path = folder.path().join(name);
                fs::write(&path, script).unwrap();
                fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
            }
            let plugins: Vec<Value> = plugins.iter().map(|name| json!({"type": name})).collect();
            let list = json!({"cniVersion": version, "name": "net", "plugins": plugins});
            Bench { folder, list: Conflist::parse(&list.to_string()).unwrap() }
        }

        fn chain(&self) -> Chain {
            Chain { bin: self.folder.path().to_owned(), cache: self.folder.path().join("cache") }
        }

        fn break_plugin(&self, name: &str) {
            fs::write(self.folder.path().join(format!("fail-{name}")), "").unwrap();
        }

        /// What was called since the last look: the verb, the plugin, and whose result it was given.
        fn calls(&self) -> Vec<String> {
            let path = self.folder.path().join("log");
            let text = fs::read_to_string(&path).unwrap_or_default();
            let _ = fs::remove_file(path);
            let call = |line: &str| {
                let (words, input) = line.split_at(line.find('{').unwrap());
                let input: Value = serde_json::from_str(input).unwrap();
                let mut words = words.split(' ');
                let (verb, plugin) = (words.next().unwrap(), words.next().unwrap());
                format!("{verb} {plugin} {}", input["prevResult"]["by"].as_str().unwrap_or("-"))
            };
            text.lines().map(call).collect()
        }
    }

    fn attachment() -> Attachment {
        Attachment {
            container_id: "c1".into(),
            netns: "/run/netns/x".into(),
            interface: "eth0".into(),
            arguments: vec![("K8S_POD_NAME".into(), "web-0".into()), ("A".into(), "b".into())],
            offers: Map::new(),
        }
    }

    #[test]
    fn results_are_handed_on_and_del_goes_backwards() {
        let bench = Bench::new("1.0.0", &["one", "two"]);
        let chain = bench.chain();
        let result = chain.add(&bench.list, &attachment()).unwrap();
        assert_eq!((addresses(&result), &result["by"]), (vec!["10.0.0.1".to_owned()], &json!("two")));
        assert_eq!(bench.calls(), ["ADD one -", "ADD two one"]);
        chain.check(&bench.list, &attachment()).unwrap();
        assert_eq!(bench.calls(), ["CHECK one two", "CHECK two two"]);
        chain.del(&bench.list, &attachment()).unwrap();
        assert_eq!(bench.calls(), ["DEL two two", "DEL one two"]);
        // What was kept is gone, and a DEL without it works, too.
        chain.del(&bench.list, &attachment()).unwrap();
        assert_eq!(bench.calls(), ["DEL two -", "DEL one -"]);
        assert!(chain.check(&bench.list, &attachment()).is_err());
    }

    #[test]
    fn a_failure_stops_the_chain_and_keeps_the_result_for_the_next_del() {
        let bench = Bench::new("1.0.0", &["one", "two"]);
        let chain = bench.chain();
        chain.add(&bench.list, &attachment()).unwrap();
        bench.calls();
        bench.break_plugin("two");
        let error = chain.del(&bench.list, &attachment()).unwrap_err().to_string();
        assert_eq!(error, "DEL of plugin two failed: not now (code 11); why");
        assert_eq!(bench.calls(), ["DEL two two"]);
        let error = chain.del(&bench.list, &attachment()).unwrap_err().to_string();
        assert!(error.contains("not now") && bench.calls() == ["DEL two two"], "{error}");
        assert!(chain.add(&bench.list, &attachment()).is_err());
        assert_eq!(bench.calls(), ["ADD one -", "ADD two one"]);
    }

    #[test]
    fn old_versions_know_neither_check_nor_gc_nor_earlier_results() {
        let bench = Bench::new("0.3.1", &["one"]);
        let chain = bench.chain();
        chain.add(&bench.list, &attachment()).unwrap();
        chain.check(&bench.list, &attachment()).unwrap();
        chain.gc(&bench.list, &[attachment()]).unwrap();
        chain.status(&bench.list).unwrap();
        chain.del(&bench.list, &attachment()).unwrap();
        assert_eq!(bench.calls(), ["ADD one -", "DEL one -"]);
        let newest = Bench::new("1.1.0", &["one"]);
        newest.chain().gc(&newest.list, &[attachment()]).unwrap();
        newest.chain().status(&newest.list).unwrap();
        assert_eq!(newest.calls(), ["GC one -", "STATUS one -"]);
    }

    #[test]
    fn a_plugin_that_is_not_there_is_named() {
        let bench = Bench::new("1.0.0", &["one"]);
        fs::remove_file(bench.folder.path().join("one")).unwrap();
        let error = bench.chain().add(&bench.list, &attachment()).unwrap_err();
        assert_eq!(error.to_string(), "cannot run plugin one");
    }
}
