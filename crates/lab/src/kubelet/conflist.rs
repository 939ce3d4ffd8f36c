//! The network configuration as a runtime reads it: a list of plugins, and what each is given on stdin.

use std::fs;
use std::path::Path;

use anyhow::{Context as _, Result, bail};
use serde_json::{Map, Value, json};

/// The network that pods of this node join.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Conflist {
    pub(crate) cni_version: String,
    pub(crate) name: String,
    pub(crate) disable_check: bool,
    pub(crate) plugins: Vec<Map<String, Value>>,
}

/// A spec version, for comparing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct SpecVersion(u32, u32, u32);

impl SpecVersion {
    /// From which on DEL gets the earlier result, and CHECK exists.
    pub(crate) const CHECK: SpecVersion = SpecVersion(0, 4, 0);
    /// From which on GC and STATUS exist.
    pub(crate) const GC: SpecVersion = SpecVersion(1, 1, 0);
}

impl Conflist {
    /// The first usable file of a folder in the order of names, as runtimes choose. `None`: there is no file.
    pub(crate) fn find(folder: &Path) -> Result<Option<Conflist>> {
        let entries = fs::read_dir(folder).with_context(|| format!("cannot read {}", folder.display()))?;
        let mut paths: Vec<_> = entries.flatten().map(|entry| entry.path()).collect();
        paths.retain(|path| {
            path.extension()
                .is_some_and(|ending| ["conflist", "conf", "json"].iter().any(|known| ending == *known))
        });
        paths.sort();
        let Some(path) = paths.first() else { return Ok(None) };
        let text = fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))?;
        Conflist::parse(&text).map(Some).with_context(|| path.display().to_string())
    }

    /// A list, or a single plugin's configuration, which is a list of one.
    pub(crate) fn parse(text: &str) -> Result<Conflist> {
        let document: Value = serde_json::from_str(text).context("not JSON")?;
        let Value::Object(document) = document else { bail!("not a JSON object") };
        let word = |key: &str| document.get(key).and_then(Value::as_str).unwrap_or_default().to_owned();
        let plugins = match document.get("plugins") {
            Some(Value::Array(plugins)) => plugins
                .iter()
                .map(|plugin| plugin.as_object().cloned().context("a plugin is not an object"))
                .collect::<Result<_>>()?,
            Some(_) => bail!("plugins is not a list"),
            None => vec![document.clone()],
        };
        let conflist = Conflist {
            cni_version: Some(word("cniVersion")).filter(|word| !word.is_empty()).unwrap_or("0.1.0".into()),
            name: word("name"),
            disable_check: document.get("disableCheck").and_then(Value::as_bool).unwrap_or(false),
            plugins,
        };
        conflist.check()?;
        Ok(conflist)
    }

    fn check(&self) -> Result<()> {
        if self.name.is_empty() {
            bail!("the network has no name");
        }
        if self.plugins.is_empty() {
            bail!("the network has no plugins");
        }
        for plugin in &self.plugins {
            let program = plugin.get("type").and_then(Value::as_str).unwrap_or_default();
            if program.is_empty() || program.contains('/') {
                bail!("a plugin has no type");
            }
        }
        self.version().map(|_| ())
    }

    pub(crate) fn version(&self) -> Result<SpecVersion> {
        let mut numbers = self.cni_version.split('.').map(str::parse::<u32>);
        let mut next = || numbers.next().and_then(Result::ok);
        match (next(), next(), next()) {
            (Some(major), Some(minor), Some(patch)) => Ok(SpecVersion(major, minor, patch)),
            _ => bail!("{:?} is not a version of the specification", self.cni_version),
        }
    }

    /// What one plugin of the list is given: its own section, the list's name and version, the result so far, and of
    /// the runtime's offers those that it declares.
    pub(crate) fn input(
        &self,
        plugin: &Map<String, Value>,
        previous: Option<&Value>,
        offers: &Map<String, Value>,
    ) -> Value {
        let mut input = plugin.clone();
        input.insert("name".into(), json!(self.name));
        input.insert("cniVersion".into(), json!(self.cni_version));
        let is_declared = |capability: &str| {
            plugin.get("capabilities").and_then(|all| all.get(capability)).and_then(Value::as_bool)
                == Some(true)
        };
        let accepted: Map<String, Value> = offers
            .iter()
            .filter(|(capability, _)| is_declared(capability))
            .map(|(capability, value)| (capability.clone(), value.clone()))
            .collect();
        if !accepted.is_empty() {
            input.insert("runtimeConfig".into(), Value::Object(accepted));
        }
        if let Some(previous) = previous {
            input.insert("prevResult".into(), previous.clone());
        }
        Value::Object(input)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn the_first_file_by_name_counts() {
        let folder = tempfile::tempdir().unwrap();
        assert_eq!(Conflist::find(folder.path()).unwrap(), None);
        let write = |name: &str, text: &str| fs::write(folder.path().join(name), text).unwrap();
        write("20-b.conflist", r#"{"name":"b","plugins":[{"type":"x"}]}"#);
        write("10-a.conf", r#"{"name":"a","type":"y","cniVersion":"0.3.1"}"#);
        write("00-readme", "no configuration");
        let found = Conflist::find(folder.path()).unwrap().unwrap();
        assert_eq!((&*found.name, found.plugins.len(), &*found.cni_version), ("a", 1, "0.3.1"));
    }

    #[test]
    fn nonsense_is_refused() {
        for bad in [
            "",
            "[]",
            "{}",
            r#"{"name":"a","plugins":[]}"#,
            r#"{"name":"a","plugins":[{}]}"#,
            r#"{"name":"a","plugins":[1]}"#,
            r#"{"name":"a","type":"../evil"}"#,
            r#"{"name":"a","type":"x","cniVersion":"new"}"#,
        ] {
            assert!(Conflist::parse(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn a_plugin_gets_only_the_offers_it_declares() {
        let list = Conflist::parse(
            r#"{"cniVersion":"1.0.0","name":"n","plugins":[
                {"type":"x","capabilities":{"portMappings":true,"bandwidth":false}},{"type":"y"}]}"#,
        )
        .unwrap();
        let offers = json!({"portMappings": [], "bandwidth": {}, "other": 1});
        let previous = json!({"ips": []});
        let first = list.input(&list.plugins[0], Some(&previous), offers.as_object().unwrap());
        assert_eq!(first["runtimeConfig"], json!({"portMappings": []}));
        assert_eq!(
            (&first["prevResult"], &first["name"], &first["cniVersion"]),
            (&previous, &json!("n"), &json!("1.0.0"))
        );
        let second = list.input(&list.plugins[1], None, offers.as_object().unwrap());
        assert!(second.get("runtimeConfig").is_none() && second.get("prevResult").is_none());
    }

    #[test]
    fn versions_compare_by_number() {
        let of = |text: &str| {
            Conflist::parse(&format!(r#"{{"name":"a","type":"x","cniVersion":"{text}"}}"#))
                .unwrap()
                .version()
                .unwrap()
        };
        assert!(of("0.3.1") < SpecVersion::CHECK && of("1.0.0") > SpecVersion::CHECK);
        assert!(
            of("1.0.0") < SpecVersion::GC && of("1.1.0") >= SpecVersion::GC && of("1.10.0") > of("1.9.0")
        );
    }

    proptest! {
        #[test]
        fn any_text_is_read_or_refused(text in ".*") {
            let _ = Conflist::parse(&text);
        }
    }
}
