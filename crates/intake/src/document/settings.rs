//! How other components are set: options of pods, configuration maps, ranges of services, machines of a cloud.

use serde_json::Value;

use crate::draft::Draft;
use evidence::{Origin, Setting, SettingKind, Sighted};

/// Notes the options that the containers of a pod are started with.
pub(super) fn of_pod(object: &Value, origin: &Origin, draft: &mut Draft) {
    let spec = &object["spec"];
    let containers = spec["containers"].as_array().into_iter().flatten();
    let words = containers.flat_map(|container| {
        let lists = [&container["command"], &container["args"]];
        lists.into_iter().filter_map(Value::as_array).flatten().filter_map(Value::as_str)
    });
    let found: Vec<Setting> = words.filter_map(Setting::of_option).collect();
    add(found, origin, draft);
}

/// Notes what the configurations of kubeadm and kube-proxy say.
pub(super) fn of_map(object: &Value, origin: &Origin, draft: &mut Draft) {
    let metadata = &object["metadata"];
    let name = metadata["name"].as_str().unwrap_or_default();
    if !(name.starts_with("kube-proxy") || name.starts_with("kubeadm-config")) {
        return;
    }
    let texts = object["data"].as_object().into_iter().flatten().filter_map(|(_, text)| text.as_str());
    let found: Vec<Setting> = texts.flat_map(str::lines).filter_map(Setting::of_field).collect();
    add(found, origin, draft);
}

/// Notes the ranges of services that Kubernetes keeps as objects.
pub(super) fn of_range(object: &Value, origin: &Origin, draft: &mut Draft) {
    let spec = &object["spec"];
    let ranges = spec["cidrs"].as_array().into_iter().flatten().filter_map(Value::as_str);
    let found = ranges.map(|range| Setting { kind: SettingKind::ServiceRange, value: range.to_owned() });
    add(found.collect(), origin, draft);
}

/// Notes a service's address.
pub(super) fn of_service(object: &Value, origin: &Origin, draft: &mut Draft) {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let (metadata, spec) = (&object["metadata"], &object["spec"]);
    let address = text(&spec["clusterIP"]);
    let value = format!("{address} {}/{}", text(&metadata["namespace"]), text(&metadata["name"]));
    if address.parse::<std::net::IpAddr>().is_ok() {
        add(vec![Setting { kind: SettingKind::ServiceAddress, value }], origin, draft);
    }
}

/// Machines of AWS, at any depth of what its tool prints. `false`: there are none.
pub(super) fn of_cloud(value: &Value, origin: &Origin, draft: &mut Draft) -> bool {
    let mut machines = Vec::new();
    let mut rest = vec![value];
    while let Some(value) = rest.pop() {
        match value {
            Value::Array(items) => rest.extend(items),
            Value::Object(fields) => {
                machines.extend(fields.contains_key("SourceDestCheck").then_some(value));
                rest.extend(fields.values().filter(|value| value.is_array() || value.is_object()));
            }
            _ => {}
        }
    }
    let first = |value: &Value, names: &[&str]| {
        names.iter().find_map(|name| value[*name].as_str()).unwrap_or_default().to_owned()
    };
    let checked = machines.iter().rev().filter(|machine| machine["SourceDestCheck"] == true);
    let found: Vec<Setting> = checked
        .map(|machine| {
            let id = first(machine, &["InstanceId", "Id", "NetworkInterfaceId"]);
            let value = format!("{id} {}", first(machine, &["PrivateIpAddress", "Ip", "PrivateIp"]));
            Setting { kind: SettingKind::SourceDestCheck, value: value.trim().to_owned() }
        })
        .collect();
    add(found, origin, draft);
    !machines.is_empty()
}

fn add(found: Vec<Setting>, origin: &Origin, draft: &mut Draft) {
    for setting in found {
        draft.keep_one();
        let settings = draft.cluster.settings.get_or_insert_default();
        settings.push(Sighted::new(setting, origin.clone()));
    }
}
