//! What a runtime asks for beyond the network's own settings: addresses, a MAC, pools. It can do so in several places, and pods in their
//! annotations, where the runtime passes them on or the store has them.

use std::collections::BTreeMap;
use std::net::IpAddr;

use ipnet::IpNet;
use model::Mac;
use serde_json::Value;

use super::read::{Object, flag, section};
use super::{CniError, IpamConf};

/// Where containerd puts a pod's annotations, for plugins that declare this capability.
const ANNOTATIONS: &str = "io.kubernetes.cri.pod-annotations";
const PREFIX: &str = "cni.projectcalico.org/";
/// Annotations that the network configuration must allow, as with Calico.
const WITHOUT_IPAM: &str = "ipAddrsNoIpam";
const FLOATING: &str = "floatingIPs";

/// What a namespace may ask for on behalf of its pods.
const OF_NAMESPACE: [&str; 3] = ["ipv4pools", "ipv6pools", "ipFamilies"];

/// The annotations that count for a pod: its own before its namespace's.
pub(in crate::verbs) fn annotations_of_pod(
    namespace: &BTreeMap<String, String>,
    pod: &BTreeMap<String, String>,
) -> BTreeMap<String, String> {
    let is_inherited = |name: &&str| OF_NAMESPACE.contains(name);
    let mut merged = namespace.clone();
    merged.retain(|name, _| name.strip_prefix(PREFIX).as_ref().is_some_and(is_inherited));
    merged.extend(
        pod.iter()
            .filter(|(name, _)| name.starts_with(PREFIX))
            .map(|(name, value)| (name.clone(), value.clone())),
    );
    merged
}

/// Adds annotations to those that the runtime passed.
pub(super) fn pass_annotations(document: &mut Object, annotations: &BTreeMap<String, String>) {
    let runtime = document.entry("runtimeConfig").or_insert_with(|| Object::new().into());
    if runtime.is_null() {
        *runtime = Object::new().into();
    }
    // Anything else than an object is refused when it is read.
    let Some(runtime) = runtime.as_object_mut() else { return };
    let passed = runtime.entry(ANNOTATIONS).or_insert_with(|| Object::new().into());
    if passed.is_null() {
        *passed = Object::new().into();
    }
    let Some(passed) = passed.as_object_mut() else { return };
    for (name, value) in annotations {
        passed.entry(name.clone()).or_insert_with(|| value.as_str().into());
    }
}

/// What is asked for one attachment.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Asked {
    /// At most one of each version.
    pub(crate) addresses: Vec<IpAddr>,
    /// The same, but from no pool: nothing checks that they are free.
    pub(crate) without_ipam: Vec<IpAddr>,
    pub(crate) mac: Option<Mac>,
    /// Further addresses of the pod that others translate to its own.
    pub(crate) floating: Vec<IpAddr>,
    /// Further networks that it may send from.
    pub(crate) more_sources: Vec<IpNet>,
    /// An annotation asks for addresses, rather than the caller.
    pub(crate) is_by_annotation: bool,
}

impl Asked {
    /// Reads every place in the configuration; annotations may change the settings for addresses, too.
    pub(super) fn read(document: &Object, ipam: &mut IpamConf) -> Result<Asked, CniError> {
        let mut asked = Asked::default();
        let runtime = section(document, "runtimeConfig")?;
        let arguments = section(&section(document, "args")?, "cni")?;
        for (place, given) in [("runtimeConfig", &runtime), ("args.cni", &arguments)] {
            if let Some(listed) = given.get("ips").filter(|listed| !listed.is_null()) {
                asked.add_addresses(&format!("{place}.ips"), listed)?;
            }
            if let Some(mac) = given.get("mac").and_then(Value::as_str).filter(|mac| !mac.is_empty()) {
                asked.set_mac(&format!("{place}.mac"), mac)?;
            }
        }
        let annotations = section(&runtime, ANNOTATIONS)?;
        asked.add_annotations(&annotations, ipam)?;
        let features = section(document, "feature_control")?;
        asked.add_addresses_without_ipam(&annotations, flag(&features, "ip_addrs_no_ipam", false)?)?;
        asked.add_floating(&annotations, flag(&features, "floating_ips", false)?)?;
        if let Some(other) = ipam.other.as_ref().filter(|_| asked.is_by_annotation) {
            let message = format!("the pod's annotation asks for addresses, but ipam.type is {other}");
            return Err(CniError::configuration(message)
                .hint("only our own pools give the addresses that pods ask for"));
        }
        Ok(asked)
    }

    /// Adds what `CNI_ARGS` asks for.
    pub(in crate::verbs) fn add_arguments(
        &mut self,
        addresses: Option<&str>,
        mac: Option<&str>,
    ) -> Result<(), CniError> {
        for text in addresses.unwrap_or_default().split(',').filter(|text| !text.is_empty()) {
            self.add_address("IP in CNI_ARGS", text)?;
        }
        mac.map_or(Ok(()), |mac| self.set_mac("MAC in CNI_ARGS", mac))
    }

    fn add_annotations(&mut self, annotations: &Object, ipam: &mut IpamConf) -> Result<(), CniError> {
        let value = |name: &str| annotations.get(&format!("{PREFIX}{name}")).and_then(Value::as_str);
        if let Some(text) = value("ipAddrs").filter(|text| !text.is_empty()) {
            self.add_addresses("the annotation ipAddrs", &not_empty(text, "ipAddrs")?)?;
            self.is_by_annotation = true;
        }
        if let Some(text) = value("allowedSourcePrefixes").filter(|text| !text.is_empty()) {
            let name = "allowedSourcePrefixes";
            let listed = list(&parse(text, name)?).ok_or_else(|| not_a_list(name))?;
            self.more_sources = listed.iter().map(|text| network(name, text)).collect::<Result<_, _>>()?;
        }
        if let Some(mac) = value("hwAddr") {
            self.set_mac("the annotation hwAddr", mac)?;
        }
        for (name, pools) in [("ipv4pools", &mut ipam.ipv4_pools), ("ipv6pools", &mut ipam.ipv6_pools)] {
            if let Some(text) = value(name).filter(|text| !text.is_empty()) {
                *pools = list(&parse(text, name)?).ok_or_else(|| not_a_list(name))?;
            }
        }
        if let Some(text) = value("ipFamilies").filter(|text| !text.is_empty()) {
            let families = list(&parse(text, "ipFamilies")?).ok_or_else(|| not_a_list("ipFamilies"))?;
            if let Some(other) = families.iter().find(|family| !["IPv4", "IPv6"].contains(&family.as_str())) {
                return Err(CniError::configuration(format!(
                    "ipFamilies: {other:?} is neither IPv4 nor IPv6"
                )));
            }
            ipam.assign_v4 = families.iter().any(|family| family == "IPv4");
            ipam.assign_v6 = families.iter().any(|family| family == "IPv6");
        }
        Ok(())
    }

    fn add_addresses_without_ipam(&mut self, annotations: &Object, is_allowed: bool) -> Result<(), CniError> {
        let text = annotations.get(&format!("{PREFIX}{WITHOUT_IPAM}")).and_then(Value::as_str);
        let Some(text) = text.filter(|text| !text.is_empty()) else { return Ok(()) };
        if !is_allowed {
            let message = format!("the network does not allow the pod's annotation {PREFIX}{WITHOUT_IPAM}");
            let hint = "set feature_control.ip_addrs_no_ipam in the network configuration to allow it";
            return Err(CniError::configuration(message).hint(hint));
        }
        if !self.addresses.is_empty() {
            let message =
                format!("the pod's annotation {PREFIX}{WITHOUT_IPAM} excludes other requested addresses");
            return Err(CniError::configuration(message));
        }
        let mut listed = Asked::default();
        listed.add_addresses("the annotation ipAddrsNoIpam", &not_empty(text, WITHOUT_IPAM)?)?;
        self.without_ipam = listed.addresses;
        self.is_by_annotation = true;
        Ok(())
    }

    fn add_floating(&mut self, annotations: &Object, is_allowed: bool) -> Result<(), CniError> {
        let text = annotations.get(&format!("{PREFIX}{FLOATING}")).and_then(Value::as_str);
        let Some(text) = text.filter(|text| !text.is_empty()) else { return Ok(()) };
        if !is_allowed {
            let message = format!("the network does not allow the pod's annotation {PREFIX}{FLOATING}");
            let hint = "set feature_control.floating_ips in the network configuration to allow it";
            return Err(CniError::configuration(message).hint(hint));
        }
        let listed = list(&parse(text, FLOATING)?).ok_or_else(|| not_a_list(FLOATING))?;
        let address = |text: &String| {
            let message = || format!("{FLOATING} asks for {text:?}, which is not an address");
            text.parse::<IpAddr>().map_err(|_| CniError::configuration(message()))
        };
        self.floating = listed.iter().map(address).collect::<Result<_, _>>()?;
        Ok(())
    }

    fn add_addresses(&mut self, place: &str, listed: &Value) -> Result<(), CniError> {
        let listed = list(listed).ok_or_else(|| not_a_list(place))?;
        listed.iter().try_for_each(|text| self.add_address(place, text))
    }

    /// With or without a prefix length, which says nothing here: pods get their address alone.
    fn add_address(&mut self, place: &str, text: &str) -> Result<(), CniError> {
        let parsed = text.parse::<IpNet>().map(|network| network.addr()).or_else(|_| text.parse::<IpAddr>());
        let address = parsed.map_err(|_| {
            CniError::configuration(format!("{place} asks for {text:?}, which is not an address"))
        })?;
        if self.addresses.contains(&address) {
            return Ok(());
        }
        if let Some(other) = self.addresses.iter().find(|other| other.is_ipv4() == address.is_ipv4()) {
            let message = format!("{place} asks for {address} in addition to {other}");
            return Err(CniError::configuration(message).hint("a pod gets one address of each IP version"));
        }
        self.addresses.push(address);
        Ok(())
    }

    fn set_mac(&mut self, place: &str, text: &str) -> Result<(), CniError> {
        let mac: Mac = text
            .parse()
            .map_err(|_| CniError::configuration(format!("{place}: {text:?} is not a MAC address")))?;
        self.mac = Some(mac);
        Ok(())
    }
}

/// With or without a prefix length; what it says of the host does not count.
fn network(place: &str, text: &str) -> Result<IpNet, CniError> {
    let parsed = text.parse::<IpNet>().or_else(|_| text.parse::<IpAddr>().map(IpNet::from));
    let network =
        parsed.map_err(|_| CniError::configuration(format!("{place}: {text:?} is not a network")))?;
    Ok(network.trunc())
}

fn not_empty(text: &str, name: &str) -> Result<Value, CniError> {
    match parse(text, name)? {
        Value::Array(listed) if listed.is_empty() => {
            Err(CniError::configuration(format!("the annotation {name} is there but names no address")))
        }
        listed => Ok(listed),
    }
}

fn parse(text: &str, name: &str) -> Result<Value, CniError> {
    serde_json::from_str(text).map_err(|_| not_a_list(name))
}

fn list(value: &Value) -> Option<Vec<String>> {
    value.as_array()?.iter().map(|entry| entry.as_str().map(str::to_owned)).collect()
}

fn not_a_list(place: &str) -> CniError {
    CniError::configuration(format!("{place} must be a list of strings"))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn read(document: Value) -> Result<(Asked, IpamConf), CniError> {
        let Value::Object(document) = document else { unreachable!("tests give objects") };
        let mut ipam = IpamConf { assign_v4: true, ..IpamConf::default() };
        Asked::read(&document, &mut ipam).map(|asked| (asked, ipam))
    }

    fn addresses(asked: &Asked) -> Vec<String> {
        asked.addresses.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn every_place_is_read() {
        let (asked, _) = read(json!({
            "runtimeConfig": {"ips": ["10.0.0.7/24", "fd00::7"], "mac": "02:00:00:00:00:07"},
            "args": {"cni": {"ips": ["10.0.0.7"]}},
        }))
        .unwrap();
        assert_eq!(addresses(&asked), ["10.0.0.7", "fd00::7"]);
        assert_eq!(asked.mac.unwrap().to_string(), "02:00:00:00:00:07");
        let mut asked = Asked::default();
        asked.add_arguments(Some("10.0.0.8,fd00::8/64"), Some("02:00:00:00:00:08")).unwrap();
        assert_eq!(addresses(&asked), ["10.0.0.8", "fd00::8"]);
    }

    #[test]
    fn a_pods_annotations_count() {
        let annotations = json!({
            "cni.projectcalico.org/ipAddrs": "[\"10.0.0.9\"]",
            "cni.projectcalico.org/ipv4pools": "[\"special\"]",
            "cni.projectcalico.org/ipFamilies": "[\"IPv4\",\"IPv6\"]",
            "cni.projectcalico.org/hwAddr": "02:00:00:00:00:09",
            "other": "x",
        });
        let (asked, ipam) = read(json!({"runtimeConfig": {ANNOTATIONS: annotations}})).unwrap();
        assert_eq!(addresses(&asked), ["10.0.0.9"]);
        assert_eq!(ipam.ipv4_pools, ["special"]);
        assert!(ipam.assign_v4 && ipam.assign_v6 && asked.mac.is_some());
    }

    #[test]
    fn a_pod_counts_more_than_its_namespace_and_the_runtime_more_than_both() {
        let map = |pairs: &[(&str, &str)]| {
            let pairs = pairs.iter().map(|(name, value)| (format!("{PREFIX}{name}"), (*value).to_owned()));
            pairs.collect::<BTreeMap<_, _>>()
        };
        let namespace =
            map(&[("ipv4pools", "[\"n\"]"), ("ipv6pools", "[\"n\"]"), ("hwAddr", "no"), ("ipAddrs", "no")]);
        let pod = map(&[("ipv4pools", "[\"p\"]")]);
        let merged = annotations_of_pod(&namespace, &pod);
        assert_eq!(merged, map(&[("ipv4pools", "[\"p\"]"), ("ipv6pools", "[\"n\"]")]));
        for (runtime, expected) in [
            (json!({}), "p"),
            (json!({"runtimeConfig": null}), "p"),
            (json!({"runtimeConfig": {ANNOTATIONS: {"cni.projectcalico.org/ipv4pools": "[\"r\"]"}}}), "r"),
        ] {
            let Value::Object(mut document) = runtime else { unreachable!("tests give objects") };
            pass_annotations(&mut document, &merged);
            let (_, ipam) = read(Value::Object(document)).unwrap();
            assert_eq!((ipam.ipv4_pools, ipam.ipv6_pools), (vec![expected.to_owned()], vec!["n".to_owned()]));
        }
    }

    #[test]
    fn addresses_from_no_book_must_be_allowed() {
        let wish = |is_allowed: bool, others: Value| {
            let name = "cni.projectcalico.org/ipAddrsNoIpam";
            let annotations = json!({name: "[\"10.9.0.9\", \"fd00::9\"]"});
            read(json!({
                "feature_control": {"ip_addrs_no_ipam": is_allowed},
                "runtimeConfig": {ANNOTATIONS: annotations, "ips": others},
            }))
        };
        let (asked, _) = wish(true, json!([])).unwrap();
        assert_eq!(asked.without_ipam.len(), 2);
        assert_eq!(addresses(&asked), [] as [&str; 0]);
        for (is_allowed, others, expected) in [
            (false, json!([]), "does not allow the pod's annotation cni.projectcalico.org/ipAddrsNoIpam"),
            (true, json!(["10.0.0.7"]), "excludes other requested addresses"),
        ] {
            let error = wish(is_allowed, others).unwrap_err();
            assert!(error.message.ends_with(expected), "{}", error.message);
        }
    }

    #[test]
    fn further_addresses_and_networks_are_read() {
        let annotations = json!({
            "cni.projectcalico.org/floatingIPs": "[\"10.9.0.1\", \"fd09::1\"]",
            "cni.projectcalico.org/allowedSourcePrefixes": "[\"10.8.1.1/16\", \"fd08::/64\"]",
        });
        let (asked, _) = read(json!({
            "feature_control": {"floating_ips": true}, "runtimeConfig": {ANNOTATIONS: annotations},
        }))
        .unwrap();
        assert_eq!(
            asked.floating.iter().map(ToString::to_string).collect::<Vec<_>>(),
            ["10.9.0.1", "fd09::1"]
        );
        let networks: Vec<String> = asked.more_sources.iter().map(ToString::to_string).collect();
        assert_eq!(networks, ["10.8.0.0/16", "fd08::/64"]);
    }

    #[test]
    fn addresses_that_pods_ask_for_come_from_our_pools_only() {
        let annotations = json!({"cni.projectcalico.org/ipAddrs": "[\"10.0.0.9\"]"});
        let document = json!({"runtimeConfig": {ANNOTATIONS: annotations}});
        let mut ipam = IpamConf { other: Some("host-local".to_owned()), ..IpamConf::default() };
        let error = Asked::read(document.as_object().unwrap(), &mut ipam).unwrap_err();
        assert!(error.message.ends_with("ipam.type is host-local"), "{}", error.message);
    }

    #[test]
    fn what_cannot_be_given_is_refused() {
        let annotated = |name: &str, text: &str| json!({"runtimeConfig": {ANNOTATIONS: {format!("cni.projectcalico.org/{name}"): text}}});
        for (document, message) in [
            (json!({"runtimeConfig": {"ips": "10.0.0.7"}}), "runtimeConfig.ips must be a list of strings"),
            (
                json!({"runtimeConfig": {"ips": ["10.0.0.7", "10.0.0.8"]}}),
                "runtimeConfig.ips asks for 10.0.0.8 in addition to 10.0.0.7",
            ),
            (
                json!({"args": {"cni": {"ips": ["x"]}}}),
                "args.cni.ips asks for \"x\", which is not an address",
            ),
            (annotated("ipFamilies", "[\"IPX\"]"), "ipFamilies: \"IPX\" is neither IPv4 nor IPv6"),
            (annotated("ipAddrs", "10.0.0.7"), "ipAddrs must be a list of strings"),
            (annotated("ipAddrs", "[]"), "the annotation ipAddrs is there but names no address"),
            (
                annotated("floatingIPs", "[\"10.9.0.1\"]"),
                "the network does not allow the pod's annotation cni.projectcalico.org/floatingIPs",
            ),
            (annotated("allowedSourcePrefixes", "[\"x\"]"), "allowedSourcePrefixes: \"x\" is not a network"),
        ] {
            assert_eq!(read(document).unwrap_err().message, message);
        }
    }
}
