//! The texts that are installed: network configuration, systemd unit, the agent's settings.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use model::settings::{AGENT_CAPABILITIES, Carried, SETTINGS, Setting, SettingGroup, quote_setting};
use serde_json::{Value, json};

use crate::cli::install::Family;
use crate::failure::Failure;

const AGENT_SOCKET: &str = "/run/plumb/agent.sock";

/// Who reads and writes records for the plugin.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Access {
    /// The agent, so the plugin needs no credentials.
    Agent,
    /// Each call, with this kubeconfig.
    Kubeconfig(PathBuf),
}

/// What the network configuration says of addresses and packets.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct PodNetwork {
    /// Versions of the addresses that a pod gets; none for the plugin's default.
    pub(super) versions: Vec<Family>,
    pub(super) mtu: Option<u32>,
}

/// Our plugin, then those that are customary after it and `has_plugin`.
pub(super) fn conflist(network: &PodNetwork, access: &Access, has_plugin: &dyn Fn(&str) -> bool) -> String {
    let mut plugin = json!({"type": "plumb-cni", "log_level": "info", "ipam": {"type": "plumb-ipam"}});
    if !network.versions.is_empty() {
        for (key, version) in [("assign_ipv4", Family::Ipv4), ("assign_ipv6", Family::Ipv6)] {
            plugin["ipam"][key] = json!(network.versions.contains(&version).to_string());
        }
    }
    if let Some(mtu) = network.mtu {
        plugin["mtu"] = json!(mtu);
    }
    match access {
        Access::Agent => plugin["agent_socket"] = json!(AGENT_SOCKET),
        Access::Kubeconfig(path) => {
            plugin["datastore_type"] = json!("kubernetes");
            plugin["kubernetes"] = json!({"kubeconfig": path});
        }
    }
    let mut plugins = vec![plugin];
    let customary = [
        json!({"type": "portmap", "snat": true, "capabilities": {"portMappings": true}}),
        json!({"type": "bandwidth", "capabilities": {"bandwidth": true}}),
    ];
    let is_there = |plugin: &Value| plugin["type"].as_str().is_some_and(has_plugin);
    plugins.extend(customary.into_iter().filter(is_there));
    // Older containerds call plugins of version 1.1.0 and then refuse their answers.
    let list = json!({"cniVersion": "1.0.0", "name": "k8s-pod-network", "plugins": plugins});
    format!("{list:#}\n")
}

pub(super) fn unit(plumbd: &Path, settings: &Path) -> String {
    include_str!("plumbd.service.in")
        .replace("{settings}", &settings.display().to_string())
        .replace("{plumbd}", &plumbd.display().to_string())
        .replace("{capabilities}", &AGENT_CAPABILITIES.join(" "))
}

/// What the environment sets for the agent, and what of it is not meant for the agent.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct AgentSettings {
    /// Variables with their values, in the order of the table.
    pub(super) carried: Vec<(String, String)>,
    /// Variables that are set and were left out.
    pub(super) left_out: Vec<String>,
}

impl AgentSettings {
    /// Every setting that the agent knows, from the environment of whoever installs. A value that the file cannot hold is an error: dropped
    /// without a word, the agent would run with other settings than were given.
    pub(super) fn read(variable: &dyn Fn(&str) -> Option<OsString>) -> Result<AgentSettings, Failure> {
        let is_kubernetes = Setting::find("DATASTORE_TYPE").is_some_and(|setting| {
            let first =
                setting.variables().filter_map(|name| variable(&name)).find(|value| !value.is_empty());
            first.is_some_and(|value| value == "kubernetes")
        });
        let mut settings = AgentSettings::default();
        for setting in SETTINGS {
            for name in setting.variables() {
                let Some(value) = variable(&name).filter(|value| !value.is_empty()) else { continue };
                match setting.carried {
                    Carried::Always => {}
                    Carried::WithKubernetesStore if is_kubernetes => {}
                    Carried::WithKubernetesStore => {
                        settings.left_out.push(name);
                        continue;
                    }
                    Carried::Never => continue,
                }
                let value = value.into_string().map_err(|_| refused(&name, "is not UTF-8 text"))?;
                quote_setting(&value)
                    .map_err(|error| refused(&name, &format!("cannot be written: {error}")))?;
                settings.carried.push((name, value));
            }
        }
        Ok(settings)
    }

    /// The file: what is set, and the rest as comments to be filled in.
    pub(super) fn file(&self) -> String {
        let mut text = HEAD.to_owned();
        for group in SettingGroup::ALL {
            text.push_str(&format!("\n# {}\n", group.title()));
            let members = SETTINGS.iter().filter(|setting| setting.group == group);
            for setting in members.filter(|setting| setting.carried != Carried::Never) {
                let names: Vec<String> = setting.variables().collect();
                let set: Vec<_> = self.carried.iter().filter(|(name, _)| names.contains(name)).collect();
                for (name, value) in &set {
                    // It was checked when it was read.
                    let quoted = quote_setting(value).unwrap_or_default();
                    text.push_str(&format!("{name}={quoted}\n"));
                }
                if set.is_empty() {
                    text.push_str(&format!("#{}=\n", setting.name));
                }
            }
        }
        text
    }
}

const HEAD: &str = "\
# Settings of the node agent (plumbd), one NAME=\"value\" per line. systemd passes them to the agent, and plumb on
# this node finds the store with them. Only root may read this file: it can contain passwords.
";

fn refused(name: &str, why: &str) -> Failure {
    Failure::new(format!("the setting {name} {why}")).hint("unset it or change its value, and install again")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plugins(network: &PodNetwork, there: &[&str]) -> Vec<Value> {
        let text = conflist(network, &Access::Agent, &|name| there.contains(&name));
        let list: Value = serde_json::from_str(&text).unwrap();
        list["plugins"].as_array().unwrap().clone()
    }

    #[test]
    fn a_chain_names_only_plugins_that_are_there() {
        let types = |there: &[&str]| {
            let plugins = plugins(&PodNetwork::default(), there);
            plugins.iter().map(|plugin| plugin["type"].as_str().unwrap().to_owned()).collect::<Vec<_>>()
        };
        assert_eq!(types(&[]), ["plumb-cni"]);
        assert_eq!(types(&["portmap"]), ["plumb-cni", "portmap"]);
        assert_eq!(types(&["bandwidth", "portmap", "loopback"]), ["plumb-cni", "portmap", "bandwidth"]);
    }

    #[test]
    fn a_configuration_says_which_addresses_pods_get() {
        let plugin = |versions: &[Family], mtu| {
            plugins(&PodNetwork { versions: versions.to_vec(), mtu }, &[]).remove(0)
        };
        assert_eq!(plugin(&[], None)["ipam"], json!({"type": "plumb-ipam"}));
        let both = plugin(&[Family::Ipv4, Family::Ipv6], Some(1400));
        assert_eq!(
            (&both["ipam"]["assign_ipv4"], &both["ipam"]["assign_ipv6"]),
            (&json!("true"), &json!("true"))
        );
        assert_eq!(both["mtu"], 1400);
        let six = plugin(&[Family::Ipv6], None);
        assert_eq!((&six["ipam"]["assign_ipv4"], six.get("mtu")), (&json!("false"), None));
    }

    fn read(variables: &[(&str, &str)]) -> Result<AgentSettings, Failure> {
        AgentSettings::read(&|wanted| {
            variables.iter().find(|(name, _)| *name == wanted).map(|(_, value)| OsString::from(value))
        })
    }

    #[test]
    fn settings_keep_what_is_set() {
        let settings =
            read(&[("ETCD_ENDPOINTS", "http://a:1,\"b\""), ("CALICO_ETCD_PASSWORD", "$x`")]).unwrap();
        let text = settings.file();
        assert!(text.contains("\nETCD_ENDPOINTS=\"http://a:1,\\\"b\\\"\"\n"), "{text}");
        assert!(text.contains("\nCALICO_ETCD_PASSWORD=\"\\$x\\`\"\n"), "{text}");
        assert!(text.contains("\n#NODENAME=\n"), "{text}");
        assert!(!text.contains("\n#ETCD_PASSWORD=\n"), "{text}");
    }

    #[test]
    fn what_the_file_cannot_hold_is_refused_by_name_and_not_shown() {
        let failure = read(&[("ETCD_PASSWORD", "hunter2\nEVIL=1")]).unwrap_err();
        let words = failure.words();
        assert!(words.contains("ETCD_PASSWORD") && !words.contains("hunter2"), "{words}");
    }

    #[test]
    fn a_kubeconfig_is_kubectls_unless_the_store_is_kubernetes() {
        let settings = read(&[("KUBECONFIG", "/k"), ("KUBERNETES_SERVICE_HOST", "10.0.0.1")]).unwrap();
        assert_eq!((settings.carried, settings.left_out), (vec![], vec!["KUBECONFIG".to_owned()]));
        let settings = read(&[("KUBECONFIG", "/k"), ("DATASTORE_TYPE", "kubernetes")]).unwrap();
        assert!(settings.left_out.is_empty() && settings.file().contains("\nKUBECONFIG=\"/k\"\n"));
    }
}
