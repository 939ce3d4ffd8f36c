//! IPAM's settings: two records on etcd, one resource in Kubernetes.
//!
//! On etcd IPAM reads `/calico/ipam/v2/config` alone. The resource `ipamconfigurations/default` beside it changes no allocation; of it,
//! Calico's plugin reads one switch. In Kubernetes both are one resource, which must hold what is in force.

use std::collections::BTreeMap;

use serde_json::{Map, Value, json};

use super::Altered;
use crate::ipam::CONFIG_NAME;
use crate::{Key, Kind};

const SWITCH: &str = "kubeVirtVMAddressPersistence";

/// Puts the switch into the settings that are carried. Without any, those that are in force are Calico's defaults.
pub(super) fn merge<V>(source: &mut BTreeMap<Key, V>, altered: &mut Vec<(Key, Altered)>)
where
    V: AsRef<[u8]> + From<Vec<u8>>,
{
    let parsed = |value: &V| serde_json::from_slice::<Map<String, Value>>(value.as_ref()).unwrap_or_default();
    let resource = source.get(&Key::cluster(Kind::IpamConfiguration, CONFIG_NAME)).map(parsed);
    let switch = resource.as_ref().and_then(|resource| resource.get("spec")?.get(SWITCH));
    let Some(switch) = switch.filter(|switch| !switch.is_null()) else { return };
    let mut settings = match source.get(&Key::IpamConfig).map(parsed) {
        Some(settings) if settings.is_empty() || settings.contains_key(SWITCH) => return,
        Some(settings) => settings,
        None => json!({"strict_affinity": false, "auto_allocate_blocks": true})
            .as_object()
            .cloned()
            .unwrap_or_default(),
    };
    settings.insert(SWITCH.to_owned(), switch.clone());
    source.insert(Key::IpamConfig, Value::Object(settings).to_string().into_bytes().into());
    altered.push((Key::IpamConfig, Altered::SettingMoved { setting: SWITCH }));
}

#[cfg(test)]
mod tests {
    use super::*;

    fn merged(config: Option<&str>, resource: Option<&str>) -> (Option<Value>, usize) {
        let mut source: BTreeMap<Key, Vec<u8>> = BTreeMap::new();
        let key = Key::cluster(Kind::IpamConfiguration, CONFIG_NAME);
        for (key, value) in [(Key::IpamConfig, config), (key, resource)] {
            source.extend(value.map(|value| (key, value.as_bytes().to_vec())));
        }
        let mut altered = Vec::new();
        merge(&mut source, &mut altered);
        (source.get(&Key::IpamConfig).map(|value| serde_json::from_slice(value).unwrap()), altered.len())
    }

    #[test]
    fn what_is_in_force_is_carried_and_the_other_records_strictness_is_not() {
        let config = r#"{"strict_affinity":true,"maxBlocksPerHost":3}"#;
        let resource = r#"{"spec":{"strictAffinity":false,"kubeVirtVMAddressPersistence":"Disabled"}}"#;
        let kept: Value = serde_json::from_str(config).unwrap();
        assert_eq!(merged(Some(config), None), (Some(kept.clone()), 0));
        assert_eq!(
            merged(Some(config), Some(r#"{"spec":{"strictAffinity":false}}"#)),
            (Some(kept.clone()), 0)
        );
        assert_eq!(merged(None, Some(r#"{"spec":{"strictAffinity":true}}"#)), (None, 0));
        let mut with_switch = kept;
        with_switch[SWITCH] = "Disabled".into();
        assert_eq!(merged(Some(config), Some(resource)), (Some(with_switch), 1));
        let defaults = json!({"strict_affinity": false, "auto_allocate_blocks": true, SWITCH: "Disabled"});
        assert_eq!(merged(None, Some(resource)), (Some(defaults), 1));
        let own = r#"{"kubeVirtVMAddressPersistence":"Enabled"}"#;
        assert_eq!(merged(Some(own), Some(resource)).1, 0);
    }
}
