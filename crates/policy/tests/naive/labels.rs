//! Whom an address belongs to, and by which labels it is selected.

use std::collections::BTreeMap;

use ipnet::IpNet;
use model::selector::Selector;
use serde_json::Value;

use super::{Member, list, text};

const NAMESPACE: &str = "projectcalico.org/namespace";
const ORCHESTRATOR: &str = "projectcalico.org/orchestrator";
const ACCOUNT: &str = "projectcalico.org/serviceaccount";
const OF_NAMESPACE: &str = "pcns.";
const OF_ACCOUNT: &str = "pcsa.";

#[derive(Clone, Debug, Default)]
pub(crate) struct LabelMap(BTreeMap<String, String>);

impl LabelMap {
    fn of(record: &Value) -> LabelMap {
        let labels = record["metadata"]["labels"].as_object().cloned().unwrap_or_default();
        LabelMap(labels.iter().map(|(key, value)| (key.clone(), text(value))).collect())
    }

    /// A profile's labels, if neither the endpoint nor a profile before it has them.
    pub(crate) fn inherit(&mut self, names: &[String], profiles: &[&Value]) {
        for name in names {
            for profile in profiles.iter().filter(|profile| text(&profile["metadata"]["name"]) == *name) {
                for (key, value) in profile["spec"]["labelsToApply"].as_object().into_iter().flatten() {
                    self.0.entry(key.clone()).or_insert_with(|| text(value));
                }
            }
        }
    }

    /// The empty selector matches everything.
    pub(crate) fn matches(&self, selector: &str) -> bool {
        parsed(selector).matches(&self.0)
    }

    pub(crate) fn has_namespace(&self) -> bool {
        self.0.contains_key(NAMESPACE)
    }

    pub(crate) fn namespace(&self) -> &str {
        self.0.get(NAMESPACE).map_or("", String::as_str)
    }

    pub(crate) fn account(&self) -> Option<&str> {
        self.0.get(ACCOUNT).map(String::as_str)
    }

    pub(crate) fn namespace_matches(&self, selector: &str) -> bool {
        match selector.trim() {
            "" => true,
            "all()" => self.has_namespace(),
            "global()" => !self.has_namespace(),
            selector => parsed(selector).matches(&self.without_prefix(OF_NAMESPACE)),
        }
    }

    pub(crate) fn account_matches(&self, selector: &str) -> bool {
        selector.trim().is_empty() || parsed(selector).matches(&self.without_prefix(OF_ACCOUNT))
    }

    fn without_prefix(&self, prefix: &str) -> BTreeMap<String, String> {
        let with = self
            .0
            .iter()
            .filter_map(|(key, value)| Some((key.strip_prefix(prefix)?.to_owned(), value.clone())));
        with.collect()
    }
}

fn parsed(selector: &str) -> Selector {
    selector.parse().expect("only selectors that parse are made")
}

/// A pod cannot claim labels of a namespace or an account.
pub(crate) fn workload(name: String, namespace: String, record: &Value) -> Member {
    let spec = &record["spec"];
    let mut labels = LabelMap::of(record);
    labels.0.retain(|key, _| !key.starts_with(OF_NAMESPACE) && !key.starts_with(OF_ACCOUNT));
    // The names of namespace and orchestrator are labels, too.
    labels.0.insert(NAMESPACE.to_owned(), namespace.clone());
    let orchestrator = text(&spec["orchestrator"]);
    labels.0.entry(ORCHESTRATOR.to_owned()).or_insert(orchestrator);
    if let Some(account) = spec["serviceAccountName"].as_str().filter(|account| !account.is_empty()) {
        labels.0.insert(ACCOUNT.to_owned(), account.to_owned());
    }
    Member {
        nets: nets(&spec["ipNetworks"]),
        ports: ports(&spec["ports"]),
        profiles: list(&spec["profiles"]).iter().map(text).collect(),
        is_workload: true,
        is_set: false,
        name,
        namespace,
        labels,
    }
}

/// A host endpoint is found by its expected addresses alone.
pub(crate) fn host(name: String, record: &Value) -> Member {
    let spec = &record["spec"];
    Member {
        nets: nets(&spec["expectedIPs"]),
        ports: ports(&spec["ports"]),
        profiles: list(&spec["profiles"]).iter().map(text).collect(),
        namespace: String::new(),
        labels: LabelMap::of(record),
        is_workload: false,
        is_set: false,
        name,
    }
}

/// A set of a namespace has the namespace's labels.
pub(crate) fn set(name: String, namespace: String, record: &Value) -> Member {
    let mut labels = LabelMap::of(record);
    let mut profiles = Vec::new();
    if !namespace.is_empty() {
        labels.0.insert(NAMESPACE.to_owned(), namespace.clone());
        profiles.push(format!("kns.{namespace}"));
    }
    Member {
        nets: nets(&record["spec"]["nets"]),
        ports: Vec::new(),
        is_workload: false,
        is_set: true,
        profiles,
        name,
        namespace,
        labels,
    }
}

pub(crate) fn nets(value: &Value) -> Vec<IpNet> {
    list(value).iter().filter_map(|one| net(one.as_str()?)).collect()
}

fn net(text: &str) -> Option<IpNet> {
    text.parse()
        .or_else(|_| text.parse().map(|address: std::net::IpAddr| IpNet::from(address)))
        .ok()
        .map(|net| net.trunc())
}

fn ports(value: &Value) -> Vec<(String, u8, u16)> {
    let one = |port: &Value| {
        let number = u16::try_from(port["port"].as_u64()?).ok()?;
        Some((
            port["name"].as_str().filter(|name| !name.is_empty())?.to_owned(),
            super::matching::protocol(&port["protocol"])?,
            number,
        ))
    };
    list(value).iter().filter_map(one).collect()
}
