//! Results and versions, in the shape that each version of the specification gives them.

use std::net::IpAddr;
use std::path::Path;

use ipnet::IpNet;
use plan::PodWiring;
use serde_json::{Value, json};
use wire::CNI_VERSIONS;

use super::error::{CniError, code};
use super::request::Verb;

pub(crate) use wire::CNI_VERSION_NEWEST as NEWEST;

/// The index of the pod's end in the list of interfaces; the host's end comes first, as with Calico.
const POD_INTERFACE: usize = 1;

pub(crate) fn versions(input: &[u8]) -> Value {
    let netconf: Value = serde_json::from_slice(input).unwrap_or_default();
    let version = netconf.get("cniVersion").and_then(Value::as_str).unwrap_or(NEWEST);
    json!({"cniVersion": version, "supportedVersions": CNI_VERSIONS})
}

pub(crate) fn check_version(version: &str) -> Result<(), CniError> {
    if CNI_VERSIONS.contains(&version) {
        return Ok(());
    }
    let shown = if version.is_empty() { "(none)" } else { version };
    let message = format!("cniVersion {shown} is not supported");
    Err(CniError::new(code::VERSION, message).hint(format!("supported are {}", CNI_VERSIONS.join(", "))))
}

/// Since 0.4.0.
pub(crate) fn has_check(version: &str) -> bool {
    !has_flat_addresses(version) && !version.starts_with("0.3.")
}

/// GC and STATUS exist since 1.1.0.
pub(super) fn check_verb(verb: Verb, version: &str) -> Result<(), CniError> {
    let name = match verb {
        Verb::Gc => "GC",
        Verb::Status => "STATUS",
        Verb::Add | Verb::Del | Verb::Check | Verb::Version => return Ok(()),
    };
    if has_gc(version) {
        return Ok(());
    }
    Err(CniError::new(code::VERSION, format!("cniVersion {version} has no {name}")))
}

fn has_gc(version: &str) -> bool {
    version == "1.1.0"
}

/// Before 0.3.0 a result had one address of each version at most, and no interfaces.
fn has_flat_addresses(version: &str) -> bool {
    version.starts_with("0.1.") || version.starts_with("0.2.")
}

/// What an ADD answers beside the wiring.
#[derive(Clone, Debug, Default)]
pub(crate) struct Answered {
    /// As whoever allocated the addresses gives them.
    pub(crate) routes: Vec<Value>,
    /// Where somebody has set it.
    pub(crate) mtu: Option<u32>,
}

/// The ends of a pod's interface, as a result names them.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ends<'a> {
    pub(crate) host: &'a str,
    pub(crate) pod: &'a str,
    pub(crate) mac: &'a str,
    pub(crate) addresses: &'a [IpNet],
    pub(crate) netns: &'a Path,
}

/// The result of ADD.
pub(crate) fn of_add(version: &str, wiring: &PodWiring, netns: &Path, answered: &Answered) -> Value {
    let (host, pod, mac) = (&wiring.host.device, &wiring.pod.device, wiring.pod.mac.to_string());
    let addresses = &wiring.pod.addresses;
    let ends = Ends { host: host.as_str(), pod: pod.as_str(), mac: &mac, addresses, netns };
    let mtu = answered.mtu.or_else(|| has_gc(version).then_some(wiring.pod.mtu));
    of_ends(version, ends, &Answered { mtu, routes: answered.routes.clone() })
}

pub(crate) fn of_ends(version: &str, ends: Ends<'_>, answered: &Answered) -> Value {
    if has_flat_addresses(version) {
        let networks = ends.addresses.iter().map(|address| (*address, None));
        return flat(version, networks, &json!(answered.routes));
    }
    let ip = |address: &IpNet| {
        let mut ip = json!({"address": address.to_string(), "interface": POD_INTERFACE});
        if has_ip_version(version) {
            ip["version"] = if address.addr().is_ipv4() { "4" } else { "6" }.into();
        }
        ip
    };
    let mut interfaces =
        json!([{"name": ends.host}, {"name": ends.pod, "mac": ends.mac, "sandbox": ends.netns}]);
    if let Some(mtu) = answered.mtu.filter(|_| !has_ip_version(version)) {
        interfaces[POD_INTERFACE]["mtu"] = mtu.into();
    }
    let mut answer = json!({
        "cniVersion": version,
        "interfaces": interfaces,
        "ips": ends.addresses.iter().map(ip).collect::<Vec<_>>(),
        "dns": {},
    });
    if !answered.routes.is_empty() {
        answer["routes"] = answered.routes.clone().into();
    }
    answer
}

/// The route that Calico's IPAM plugin answers for an address.
pub(crate) fn route_to(network: IpNet) -> Value {
    json!({"dst": network.to_string()})
}

/// An address allocated for another plugin, with its network.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct AllocatedAddress {
    pub(crate) network: IpNet,
    pub(crate) gateway: Option<IpAddr>,
}

/// The result of another plugin's ADD, which asked for addresses only.
pub(crate) fn of_ipam(version: &str, allocated: &[AllocatedAddress]) -> Value {
    let default =
        |address: &AllocatedAddress| if address.network.addr().is_ipv4() { "0.0.0.0/0" } else { "::/0" };
    let route = |address: &AllocatedAddress| {
        let mut route = json!({"dst": default(address)});
        if let Some(gateway) = address.gateway {
            route["gw"] = gateway.to_string().into();
        }
        route
    };
    let routes: Vec<Value> = allocated.iter().map(route).collect();
    of_ipam_with(version, allocated, &routes)
}

/// The same with other routes.
pub(crate) fn of_ipam_with(version: &str, allocated: &[AllocatedAddress], routes: &[Value]) -> Value {
    if has_flat_addresses(version) {
        let networks = allocated.iter().map(|address| (address.network, address.gateway));
        return flat(version, networks, &json!(routes));
    }
    let ip = |address: &AllocatedAddress| {
        let mut ip = json!({"address": address.network.to_string()});
        if let Some(gateway) = address.gateway {
            ip["gateway"] = gateway.to_string().into();
        }
        if has_ip_version(version) {
            ip["version"] = if address.network.addr().is_ipv4() { "4" } else { "6" }.into();
        }
        ip
    };
    let ips: Vec<Value> = allocated.iter().map(ip).collect();
    json!({"cniVersion": version, "ips": ips, "routes": routes, "dns": {}})
}

fn flat(version: &str, networks: impl Iterator<Item = (IpNet, Option<IpAddr>)>, routes: &Value) -> Value {
    let mut answer = json!({"cniVersion": version, "dns": {}});
    for (network, gateway) in networks {
        let is_v4 = network.addr().is_ipv4();
        let of_version = |route: &&Value| route["dst"].as_str().is_some_and(|dst| dst.contains('.') == is_v4);
        let own: Vec<&Value> = routes.as_array().into_iter().flatten().filter(of_version).collect();
        let mut config = json!({"ip": network.to_string(), "routes": own});
        if let Some(gateway) = gateway {
            config["gateway"] = gateway.to_string().into();
        }
        answer[if is_v4 { "ip4" } else { "ip6" }] = config;
    }
    answer
}

/// The routes in a plugin's result.
pub(crate) fn routes_of(result: &Value) -> Vec<Value> {
    let listed = |value: Option<&Value>| value.and_then(Value::as_array).cloned().unwrap_or_default();
    let flat = ["ip4", "ip6"].map(|key| listed(result.get(key).and_then(|config| config.get("routes"))));
    let routes = listed(result.get("routes")).into_iter().chain(flat.into_iter().flatten());
    routes.filter(Value::is_object).collect()
}

/// The addresses in an earlier result of ADD. Later plugins of a chain may have added to it.
pub(crate) fn addresses_of(result: &Value, interface: &str) -> Vec<IpAddr> {
    networks_of(result, interface).iter().map(IpNet::addr).collect()
}

/// The same with their prefix lengths.
pub(crate) fn networks_of(result: &Value, interface: &str) -> Vec<IpNet> {
    let name_of = |ip: &Value| {
        let index = usize::try_from(ip.get("interface")?.as_u64()?).ok()?;
        result.get("interfaces")?.get(index)?.get("name")?.as_str()
    };
    let is_ours = |ip: &&Value| name_of(ip).is_none_or(|name| name == interface);
    let network =
        |text: &str| text.parse::<IpNet>().ok().or_else(|| Some(text.parse::<IpAddr>().ok()?.into()));
    let address = |ip: &Value| network(ip.get("address")?.as_str()?);
    let ips = result.get("ips").and_then(Value::as_array);
    let listed = ips.into_iter().flatten().filter(is_ours).filter_map(address);
    let flat = |key: &str| network(result.get(key)?.get("ip")?.as_str()?);
    listed.chain(["ip4", "ip6"].into_iter().filter_map(flat)).collect()
}

/// Since 1.0.0 the result has no IP version field.
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
            pod_routes: Vec::new(),
        };
        PodWiring::new(&attachment, &NodeFacts { rp_filter: 0, has_ipv6: false }).unwrap()
    }

    #[test]
    fn each_version_has_its_shape() {
        let netns = Path::new("/run/netns/x");
        let expected = json!({
            "cniVersion": "1.0.0",
            "interfaces": [
                {"name": "cali0d7763386da"},
                {"name": "eth0", "mac": "02:00:00:00:00:01", "sandbox": "/run/netns/x"},
            ],
            "ips": [{"address": "10.0.0.5/32", "interface": 1}],
            "dns": {},
        });
        let nothing = Answered::default();
        assert_eq!(of_add("1.0.0", &wiring(), netns, &nothing), expected);
        let newest = of_add("1.1.0", &wiring(), netns, &nothing);
        assert_eq!(newest["interfaces"][1]["mtu"], 1500);
        let answered = Answered { routes: vec![route_to("10.0.0.5/26".parse().unwrap())], mtu: Some(1450) };
        let result = of_add("1.0.0", &wiring(), netns, &answered);
        assert_eq!(
            (&result["interfaces"][1]["mtu"], &result["routes"]),
            (&json!(1450), &json!([{"dst": "10.0.0.5/26"}]))
        );
        for version in ["0.3.0", "0.3.1", "0.4.0"] {
            let result = of_add(version, &wiring(), netns, &answered);
            assert_eq!(result["ips"][0]["version"], "4");
            assert_eq!(result["interfaces"][1].get("mtu"), None);
            assert_eq!(result["cniVersion"], version);
        }
    }

    #[test]
    fn the_oldest_versions_have_one_address_each() {
        for version in ["0.1.0", "0.2.0"] {
            let answer = of_add(version, &wiring(), Path::new("/x"), &Answered::default());
            let expected =
                json!({"cniVersion": version, "ip4": {"ip": "10.0.0.5/32", "routes": []}, "dns": {}});
            assert_eq!(answer, expected);
            assert_eq!(addresses_of(&answer, "eth0"), ["10.0.0.5".parse::<IpAddr>().unwrap()]);
            assert!(!has_check(version));
        }
        assert!(!has_check("0.3.1") && has_check("0.4.0") && has_check("1.1.0"));
    }

    #[test]
    fn another_plugin_gets_addresses_with_their_networks() {
        let given = [
            AllocatedAddress { network: "10.1.0.4/26".parse().unwrap(), gateway: "10.1.0.1".parse().ok() },
            AllocatedAddress { network: "fd00::4/122".parse().unwrap(), gateway: None },
        ];
        let expected = json!({
            "cniVersion": "1.0.0",
            "ips": [{"address": "10.1.0.4/26", "gateway": "10.1.0.1"}, {"address": "fd00::4/122"}],
            "routes": [{"dst": "0.0.0.0/0", "gw": "10.1.0.1"}, {"dst": "::/0"}],
            "dns": {},
        });
        assert_eq!(of_ipam("1.0.0", &given), expected);
        let expected = json!({
            "cniVersion": "0.2.0",
            "ip4": {"ip": "10.1.0.4/26", "gateway": "10.1.0.1", "routes": [{"dst": "0.0.0.0/0", "gw": "10.1.0.1"}]},
            "ip6": {"ip": "fd00::4/122", "routes": [{"dst": "::/0"}]},
            "dns": {},
        });
        assert_eq!(of_ipam("0.2.0", &given), expected);
    }

    #[test]
    fn an_answer_can_be_read_back() {
        let mut result = of_add("1.0.0", &wiring(), Path::new("/x"), &Answered::default());
        assert_eq!(addresses_of(&result, "eth0"), ["10.0.0.5".parse::<IpAddr>().unwrap()]);
        assert_eq!(addresses_of(&result, "net1"), [] as [IpAddr; 0]);
        result["ips"][0].as_object_mut().unwrap().remove("interface");
        assert_eq!(addresses_of(&result, "eth0").len(), 1);
    }

    #[test]
    fn unknown_versions_are_refused_with_the_list() {
        for version in ["", "0.5.0", "1.2.0", "x"] {
            let error = check_version(version).unwrap_err();
            let list = "supported are 0.1.0, 0.2.0, 0.3.0, 0.3.1, 0.4.0, 1.0.0, 1.1.0";
            assert_eq!((error.code, error.details.as_str()), (1, list));
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
