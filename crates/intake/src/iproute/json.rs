//! The same tools with `-j`: one element of their list at a time, told by its fields.

use serde_json::Value;

use crate::words;
use evidence::kernel::{Address, Kernel, Link, Neighbour, Route, Vxlan};
use evidence::{Origin, Sighted};

/// Takes in an element. `false`: it is none of these tools'.
pub(crate) fn element(value: &Value, kernel: &mut Kernel, origin: &Origin) -> bool {
    let text = |field: &str| value[field].as_str();
    if text("ifname").is_some() && value["flags"].is_array() {
        link(value, kernel, origin);
        return true;
    }
    let Some(destination) = text("dst") else { return false };
    match neighbour(value, destination) {
        Some(neighbour) => {
            kernel.neighbours.get_or_insert_default().push(Sighted::new(neighbour, origin.clone()))
        }
        None => {
            let routes = routes(value, destination);
            if routes.is_empty() {
                return false;
            }
            let sighted = routes.into_iter().map(|route| Sighted::new(route, origin.clone()));
            kernel.routes.get_or_insert_default().extend(sighted);
        }
    }
    true
}

/// Of one device, and next hops of one route: every one is kept with where it was seen.
const ADDRESSES_MAX: usize = 1_000;

fn link(value: &Value, kernel: &mut Kernel, origin: &Origin) {
    let name = value["ifname"].as_str().unwrap_or_default().to_owned();
    let has_flag =
        |flag: &str| value["flags"].as_array().is_some_and(|flags| flags.iter().any(|found| found == flag));
    let info = &value["linkinfo"];
    let data = &info["info_data"];
    let kind = info["info_kind"].as_str().map(str::to_owned);
    let link = Link {
        index: number(&value["ifindex"]),
        peer_index: number(&value["link_index"]),
        has_peer_elsewhere: (!value["link_netnsid"].is_null()).then_some(true),
        alias: value["ifalias"].as_str().map(str::to_owned),
        mac: value["address"].as_str().and_then(|text| text.parse().ok()),
        mtu: number(&value["mtu"]),
        is_up: Some(has_flag("UP")),
        is_running: Some(has_flag("LOWER_UP")),
        master: value["master"].as_str().map(str::to_owned),
        vxlan: (kind.as_deref() == Some("vxlan")).then(|| Vxlan {
            vni: number(&data["id"]),
            port: number(&data["port"]).and_then(|port| u16::try_from(port).ok()),
            local: data["local"].as_str().and_then(|text| text.parse().ok()),
            parent: data["link"].as_str().map(str::to_owned),
        }),
        kind,
        name: name.clone(),
    };
    kernel.links.get_or_insert_default().push(Sighted::new(link, origin.clone()));
    let Some(infos) = value["addr_info"].as_array() else { return };
    let addresses = kernel.addresses.get_or_insert_default();
    for info in infos.iter().take(ADDRESSES_MAX) {
        if let Some(address) = address(info, &name) {
            addresses.push(Sighted::new(address, origin.clone()));
        }
    }
}

fn address(info: &Value, device: &str) -> Option<Address> {
    let local = info["local"].as_str()?.parse().ok()?;
    let net = ipnet::IpNet::new(local, u8::try_from(info["prefixlen"].as_u64()?).ok()?).ok()?;
    Some(Address {
        device: device.to_owned(),
        net,
        scope: info["scope"].as_str().unwrap_or_default().to_owned(),
        is_secondary: info["secondary"].as_bool().unwrap_or(false),
        is_duplicate: info["dadfailed"].as_bool().unwrap_or(false),
    })
}

fn neighbour(value: &Value, destination: &str) -> Option<Neighbour> {
    let state =
        value["state"].as_array()?.iter().filter_map(Value::as_str).find_map(super::neigh::read_state)?;
    Some(Neighbour {
        address: destination.parse().ok()?,
        device: value["dev"].as_str()?.to_owned(),
        mac: value["lladdr"].as_str().and_then(|text| text.parse().ok()),
        state,
        is_proxy: false,
    })
}

/// One for each of its ways.
fn routes(value: &Value, destination: &str) -> Vec<Route> {
    let Some(hops) = value["nexthops"].as_array() else {
        return route(value, destination).into_iter().collect();
    };
    let way = |hop: &Value| {
        let mut whole = value.clone();
        whole.as_object_mut()?.extend(hop.as_object()?.clone());
        route(&whole, destination)
    };
    hops.iter().take(ADDRESSES_MAX).filter_map(way).collect()
}

fn route(value: &Value, destination: &str) -> Option<Route> {
    let text = |field: &str| value[field].as_str().map(str::to_owned);
    let through = &value["via"];
    let gateway = value["gateway"].as_str().or_else(|| through["host"].as_str());
    let via = gateway.and_then(|text| text.parse::<std::net::IpAddr>().ok());
    let has_flag =
        |flag: &str| value["flags"].as_array().is_some_and(|flags| flags.iter().any(|found| found == flag));
    Some(Route {
        destination: words::destination(destination, via.is_some_and(|via| via.is_ipv6()))?,
        kind: super::route::kind(value["type"].as_str().unwrap_or_default()),
        via,
        device: text("dev"),
        protocol: text("protocol"),
        scope: text("scope"),
        source: value["prefsrc"].as_str().and_then(|text| text.parse().ok()),
        metric: number(&value["metric"]),
        table: text("table"),
        is_onlink: has_flag("onlink"),
        is_dead: has_flag("linkdown") || has_flag("dead"),
    })
}

fn number(value: &Value) -> Option<u32> {
    value.as_u64().and_then(|number| u32::try_from(number).ok())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn elements_tell_themselves_by_their_fields() {
        let mut kernel = Kernel::default();
        let origin = Origin::file("f");
        let elements = json!([
            {"ifindex": 4, "link_index": 2, "ifname": "cali1", "flags": ["UP"], "mtu": 1450, "address": "ee:ee:ee:ee:ee:ee",
             "link_netnsid": 0, "linkinfo": {"info_kind": "veth"},
             "addr_info": [{"family": "inet6", "local": "fe80::1", "prefixlen": 64, "scope": "link"}]},
            {"ifindex": 5, "ifname": "vxlan.calico", "flags": ["UP", "LOWER_UP"],
             "linkinfo": {"info_kind": "vxlan", "info_data": {"id": 4096, "link": "eth0", "local": "10.0.0.1", "port": 4789}}},
            {"dst": "default", "gateway": "fe80::2", "dev": "eth0", "protocol": "static", "metric": 1024, "flags": []},
            {"type": "blackhole", "dst": "10.1.0.0/26", "protocol": "80", "flags": []},
            {"dst": "10.2.0.0/26", "protocol": "bird", "flags": [], "nexthops": [
                {"gateway": "10.0.0.2", "dev": "eth0", "weight": 1, "flags": []},
                {"gateway": "10.0.0.3", "dev": "eth1", "weight": 1, "flags": ["dead"]}]},
            {"dst": "10.1.0.1", "dev": "cali1", "lladdr": "aa:aa:aa:aa:aa:aa", "state": ["PERMANENT"]},
        ]);
        for value in elements.as_array().unwrap() {
            assert!(element(value, &mut kernel, &origin), "{value}");
        }
        assert!(!element(&json!({"a": 1}), &mut kernel, &origin));
        assert_eq!(kernel.links.as_ref().unwrap()[1].seen.vxlan.as_ref().unwrap().vni, Some(4096));
        assert_eq!(kernel.addresses.as_ref().unwrap().len(), 1);
        assert_eq!(kernel.routes.as_ref().unwrap()[0].seen.destination.to_string(), "::/0");
        let ways = &kernel.routes.as_ref().unwrap()[2..];
        assert_eq!(ways[0].seen.to_string(), "10.2.0.0/26 via 10.0.0.2 dev eth0");
        assert!(ways[1].seen.is_dead && ways[1].seen.protocol.as_deref() == Some("bird"));
        assert_eq!(kernel.neighbours.as_ref().unwrap().len(), 1);
    }
}
