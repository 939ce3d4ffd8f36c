//! Results and versions, in the shape that each version of the specification gives them.

use std::net::IpAddr;
use std::path::Path;

use plan::PodWiring;
use serde_json::{Value, json};

use super::error::{CniError, code};

/// The same list as `plumb-cni` has; a test of the lab compares them.
const VERSIONS: [&str; 3] = ["0.3.1", "0.4.0", "1.0.0"];
pub(crate) const NEWEST: &str = "1.0.0";

/// Where the pod's end stands in the list of interfaces; the host's end comes first, as with Calico.
const POD_INTERFACE: usize = 1;

pub(crate) fn versions(input: &[u8]) -> Value {
    let netconf: Value = serde_json::from_slice(input).unwrap_or_default();
    let version = netconf.get("cniVersion").and_then(Value::as_str).unwrap_or(NEWEST);
    json!({"cniVersion": version, "supportedVersions": VERSIONS})
}

pub(crate) fn check_version(version: &str) -> Result<(), CniError> {
    if VERSIONS.contains(&version) {
        return Ok(());
    }
    let shown = if version.is_empty() { "(none)" } else { version };
    let message = format!("cniVersion {shown} is not supported");
    Err(CniError::new(code::VERSION, message).hint(format!("supported are {}", VERSIONS.join(", "))))
}

/// CHECK came with 0.4.0.
pub(crate) fn has_check(version: &str) -> bool {
    version != "0.3.1"
}

/// The answer to ADD.
pub(crate) fn of_add(version: &str, wiring: &PodWiring, netns: &Path) -> Value {
    let ip = |address: &ipnet::IpNet| {
        let mut ip = json!({"address": address.to_string(), "interface": POD_INTERFACE});
        if has_ip_version(version) {
            ip["version"] = if address.addr().is_ipv4() { "4" } else { "6" }.into();
        }
        ip
    };
    json!({
        "cniVersion": version,
        "interfaces": [
            {"name": wiring.host.device.as_str(), "mac": wiring.host.mac.to_string()},
            {"name": wiring.pod.device.as_str(), "mac": wiring.pod.mac.to_string(), "sandbox": netns},
        ],
        "ips": wiring.pod.addresses.iter().map(ip).collect::<Vec<_>>(),
        "dns": {},
    })
}

/// The addresses in an earlier answer to ADD. Later plugins of a chain may have added to it.
pub(crate) fn addresses_of(result: &Value, interface: &str) -> Vec<IpAddr> {
    let name_of = |ip: &Value| {
        let index = usize::try_from(ip.get("interface")?.as_u64()?).ok()?;
        result.get("interfaces")?.get(index)?.get("name")?.as_str()
    };
    let is_ours = |ip: &&Value| name_of(ip).is_none_or(|name| name == interface);
    let address = |ip: &Value| ip.get("address")?.as_str()?.split('/').next()?.parse().ok();
    let ips = result.get("ips").and_then(Value::as_array);
    ips.into_iter().flatten().filter(is_ours).filter_map(address).collect()
}

/// From 1.0.0 on the address alone says its version.
fn has_ip_version(version: &str) -> bool {
    version.starts_with("0.")
}

#[cfg(test)]
mod tests {
    use model::{DeviceName, Sandbox};
    use plan::{Attachment, NodeFacts};
    use proptest::prelude::*;

    use super::*;

    fn wiring() -> PodWiring {
        let sandbox = Sandbox::new("net", "c1", "eth0").unwrap();
        let attachment = Attachment {
            device: DeviceName::of_pod("cali", "default", "web-0").unwrap(),
            mac: "02:00:00:00:00:01".parse().unwrap(),
            sandbox,
            mtu: 1500,
            addresses: vec!["10.0.0.5".parse().unwrap()],
            pod_forwards: false,
        };
        PodWiring::new(&attachment, &NodeFacts { rp_filter: 0, has_ipv6: false }).unwrap()
    }

    #[test]
    fn each_version_has_its_shape() {
        let netns = Path::new("/run/netns/x");
        let expected = json!({
            "cniVersion": "1.0.0",
            "interfaces": [
                {"name": "cali0d7763386da", "mac": "ee:ee:ee:ee:ee:ee"},
                {"name": "eth0", "mac": "02:00:00:00:00:01", "sandbox": "/run/netns/x"},
            ],
            "ips": [{"address": "10.0.0.5/32", "interface": 1}],
            "dns": {},
        });
        assert_eq!(of_add("1.0.0", &wiring(), netns), expected);
        for version in ["0.3.1", "0.4.0"] {
            let result = of_add(version, &wiring(), netns);
            assert_eq!(result["ips"][0]["version"], "4");
            assert_eq!(result["cniVersion"], version);
        }
    }

    #[test]
    fn an_answer_can_be_read_back() {
        let mut result = of_add("1.0.0", &wiring(), Path::new("/x"));
        assert_eq!(addresses_of(&result, "eth0"), ["10.0.0.5".parse::<IpAddr>().unwrap()]);
        assert_eq!(addresses_of(&result, "net1"), [] as [IpAddr; 0]);
        result["ips"][0].as_object_mut().unwrap().remove("interface");
        assert_eq!(addresses_of(&result, "eth0").len(), 1);
    }

    #[test]
    fn unknown_versions_are_refused_with_the_list() {
        for version in ["", "0.2.0", "1.1.0", "x"] {
            let error = check_version(version).unwrap_err();
            assert_eq!((error.code, error.details.as_str()), (1, "supported are 0.3.1, 0.4.0, 1.0.0"));
        }
    }

    proptest! {
        #[test]
        fn any_earlier_answer_can_be_looked_at(text in "[\\[\\]{}\":,a-z0-9./]{0,60}") {
            let value: Value = serde_json::from_str(&text).unwrap_or(Value::String(text));
            let _ = addresses_of(&value, "eth0");
            let _ = addresses_of(&json!({"ips": [value.clone(), {"interface": value}]}), "eth0");
        }
    }
}
