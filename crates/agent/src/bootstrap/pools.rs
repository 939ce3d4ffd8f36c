//! The default pools, from Calico's settings, where there is no pool of that IP version.

use std::net::{IpAddr, Ipv4Addr};

use host::Host;
use host::survey::Survey;
use ipnet::IpNet;
use model::cluster::DefaultPool;
use model::{Cidr, IpVersion, KeyRange, Kind, Resource};
use store::Store;
use tracing::{info, warn};
use uuid::Uuid;

use super::{Environment, Failure};

pub(super) async fn ensure(store: &dyn Store, environment: Environment<'_>) -> Result<(), Failure> {
    if environment("NO_DEFAULT_POOLS").is_some_and(|value| value.eq_ignore_ascii_case("true")) {
        return Ok(());
    }
    let kernel_has_ipv6 = || Host::here().and_then(|mut host| host.facts()).is_ok_and(|facts| facts.has_ipv6);
    let v4 = v4_pool(environment)?;
    let mut v6 = v6_pool(environment)?;
    if v6.is_some() && !(kernel_has_ipv6() && is_ipv6_wanted(store, environment).await?) {
        v6 = None;
    }
    let present = versions_present(store).await?;
    for pool in [v4, v6].into_iter().flatten() {
        let is_v4 = pool.metadata.name == DefaultPool::name(IpVersion::V4);
        if !present.contains(&is_v4) {
            super::ensure(store, pool).await?;
        }
    }
    Ok(())
}

/// An IPv6 pool is configured, or a node has an IPv6 address. Otherwise pods would get IPv6 addresses that are unreachable from other nodes, and
/// programs would try them first.
async fn is_ipv6_wanted(store: &dyn Store, environment: Environment<'_>) -> Result<bool, Failure> {
    if environment("CALICO_IPV6POOL_CIDR").is_some() {
        return Ok(true);
    }
    let (nodes, _) = store.list_all(KeyRange::NodesInBrief).await?;
    let has_ipv6 = |record: &store::Record| {
        Resource::decode(&record.key, Kind::Node, &record.value, record.revision.as_str())
            .is_ok_and(|node| crate::address::recorded(&node, IpVersion::V6).is_some())
    };
    Ok(nodes.iter().any(has_ipv6))
}

/// Which versions have a pool: true for IPv4.
async fn versions_present(store: &dyn Store) -> Result<Vec<bool>, Failure> {
    let (pools, _) = store.list_all(KeyRange::Kind(Kind::IpPool)).await?;
    let version = |record: &store::Record| {
        let pool =
            Resource::decode(&record.key, Kind::IpPool, &record.value, record.revision.as_str()).ok()?;
        let network: IpNet = pool.spec("cidr")?.as_str()?.parse().ok()?;
        Some(network.addr().is_ipv4())
    };
    Ok(pools.iter().filter_map(version).collect())
}

fn v4_pool(environment: Environment<'_>) -> Result<Option<Resource>, Failure> {
    let default = || free_network(&own_addresses()).to_string();
    let Some(network) = network(environment, "CALICO_IPV4POOL_CIDR", true, default)? else { return Ok(None) };
    let ipip_mode = mode(environment, "CALICO_IPV4POOL_IPIP")?;
    pool(environment, "CALICO_IPV4POOL", DefaultPool { ipip_mode, ..DefaultPool::of(network) }).map(Some)
}

fn v6_pool(environment: Environment<'_>) -> Result<Option<Resource>, Failure> {
    let Some(network) = network(environment, "CALICO_IPV6POOL_CIDR", false, unique_local)? else {
        return Ok(None);
    };
    pool(environment, "CALICO_IPV6POOL", DefaultPool::of(network)).map(Some)
}

fn pool(environment: Environment<'_>, prefix: &str, default: DefaultPool) -> Result<Resource, Failure> {
    let block_size = match environment(&format!("{prefix}_BLOCK_SIZE")) {
        None => default.block_size,
        Some(text) => {
            text.parse().map_err(|_| wrong(&format!("{prefix}_BLOCK_SIZE"), &text, "a prefix length"))?
        }
    };
    let flag = |name: &str, default| flag(environment, &format!("{prefix}_{name}"), default);
    let pool = DefaultPool {
        block_size,
        vxlan_mode: mode(environment, &format!("{prefix}_VXLAN"))?,
        nat_outgoing: flag("NAT_OUTGOING", default.nat_outgoing)?,
        disable_bgp_export: flag("DISABLE_BGP_EXPORT", default.disable_bgp_export)?,
        node_selector: environment(&format!("{prefix}_NODE_SELECTOR")).unwrap_or(default.node_selector),
        ..default
    };
    let pool = pool.resource();
    if let Some(violation) = model::validate::validate(&pool).first() {
        return Err(Failure::Refused(format!(
            "the settings {prefix}_* do not make a valid pool: {violation}"
        )));
    }
    Ok(pool)
}

/// The configured network; `None` for `none`.
fn network(
    environment: Environment<'_>,
    variable: &str,
    is_v4: bool,
    default: impl FnOnce() -> String,
) -> Result<Option<Cidr>, Failure> {
    let text = environment(variable).unwrap_or_else(default);
    if text == "none" {
        return Ok(None);
    }
    let network = Cidr::parse_masked(&text).ok();
    let network = network.filter(|network| network.network().is_ipv4() == is_v4);
    let wanted = if is_v4 { "an IPv4 network" } else { "an IPv6 network" };
    network.map(Some).ok_or_else(|| wrong(variable, &text, wanted))
}

fn mode(environment: Environment<'_>, variable: &str) -> Result<&'static str, Failure> {
    let text = environment(variable).unwrap_or_default();
    match text.to_ascii_lowercase().as_str() {
        "" | "off" | "never" => Ok("Never"),
        "crosssubnet" | "cross-subnet" => Ok("CrossSubnet"),
        "always" => Ok("Always"),
        _ => Err(wrong(variable, &text, "Always, CrossSubnet or Never")),
    }
}

fn flag(environment: Environment<'_>, variable: &str, default: bool) -> Result<bool, Failure> {
    match environment(variable) {
        None => Ok(default),
        Some(text) if text.eq_ignore_ascii_case("true") || text == "1" => Ok(true),
        Some(text) if text.eq_ignore_ascii_case("false") || text == "0" => Ok(false),
        Some(text) => Err(wrong(variable, &text, "true or false")),
    }
}

fn wrong(variable: &str, found: &str, wanted: &str) -> Failure {
    Failure::Refused(format!("{variable} is {found:?}, expected {wanted}"))
}

/// Every address of this machine.
fn own_addresses() -> Vec<IpAddr> {
    let addresses = Survey::here().map(|survey| survey.addresses).unwrap_or_default();
    addresses.into_iter().map(|held| held.net.addr()).collect()
}

/// Calico's default, or the first of its alternatives that this machine has no address in.
fn free_network(own: &[IpAddr]) -> IpNet {
    let candidates = std::iter::once(Ipv4Addr::new(192, 168, 0, 0))
        .chain((16..32).map(|second| Ipv4Addr::new(172, second, 0, 0)));
    let mut networks = candidates.map(|start| IpNet::new(start.into(), 16).expect("16 is a prefix length"));
    let default = networks.next().expect("the list is not empty");
    let is_free = |network: &IpNet| !own.iter().any(|address| network.contains(address));
    if is_free(&default) {
        return default;
    }
    let chosen = networks.find(is_free);
    match chosen {
        Some(network) => {
            info!(pool = %network, "chose another default pool, because this machine has an address in {default}")
        }
        None => warn!("this machine has an address in every network that could be the default pool"),
    }
    chosen.unwrap_or(default)
}

/// A network of our own, as RFC 4193 wants it: nobody else is likely to have chosen the same.
fn unique_local() -> String {
    let random = Uuid::new_v4().into_bytes();
    let [a, b, c, d, e, ..] = random;
    format!("fd{a:02x}:{b:02x}{c:02x}:{d:02x}{e:02x}::/48")
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn settings_are_calicos() {
        let environment = |name: &str| {
            let said = match name {
                "CALICO_IPV4POOL_CIDR" => "10.1.2.3/16",
                "CALICO_IPV4POOL_VXLAN" => "cross-subnet",
                "CALICO_IPV4POOL_BLOCK_SIZE" => "28",
                "CALICO_IPV4POOL_NAT_OUTGOING" => "false",
                "CALICO_IPV4POOL_NODE_SELECTOR" => "has(x)",
                "CALICO_IPV6POOL_CIDR" => "none",
                _ => return None,
            };
            Some(said.to_owned())
        };
        let pool = v4_pool(&environment).unwrap().unwrap();
        let spec = |field: &str| pool.spec(field).unwrap().clone();
        assert_eq!(spec("cidr"), "10.1.0.0/16");
        assert_eq!((spec("vxlanMode"), spec("ipipMode")), (json!("CrossSubnet"), json!("Never")));
        assert_eq!(spec("blockSize"), 28);
        // Calico stores it where it is true.
        assert_eq!(pool.spec("natOutgoing"), None);
        assert_eq!(spec("nodeSelector"), "has(x)");
        assert!(v6_pool(&environment).unwrap().is_none());
    }

    #[tokio::test]
    async fn no_ipv6_pool_is_made_where_no_node_has_ipv6() {
        let names = async |node_ip6: Option<&'static str>, cidr: Option<&'static str>| {
            let memory = store::MemoryStore::new();
            let store: &dyn Store = &memory;
            let environment = move |name: &str| match name {
                "IP" => Some("192.0.2.7/24".to_owned()),
                "IP6" => node_ip6.map(str::to_owned),
                "CALICO_IPV6POOL_CIDR" => cidr.map(str::to_owned),
                _ => None,
            };
            super::super::node::ensure(store, "node-a", &environment).await.unwrap();
            ensure(store, &environment).await.unwrap();
            let (pools, _) = store.list_all(KeyRange::Kind(Kind::IpPool)).await.unwrap();
            pools.iter().map(|pool| pool.key.to_string()).collect::<Vec<_>>()
        };
        let (v4, v6) = ("IPPool(default-ipv4-ippool)", "IPPool(default-ipv6-ippool)");
        assert_eq!(names(None, None).await, [v4]);
        assert_eq!(names(Some("2001:db8::7/64"), Some("none")).await, [v4]);
        if !Host::here().and_then(|mut host| host.facts()).is_ok_and(|facts| facts.has_ipv6) {
            testkit::skip("no_ipv6_pool_is_made_where_no_node_has_ipv6", "this kernel has no IPv6");
            return;
        }
        assert_eq!(names(Some("2001:db8::7/64"), None).await, [v4, v6]);
        assert_eq!(names(None, Some("fd00:7::/48")).await, [v4, v6]);
    }

    #[test]
    fn wrong_settings_are_refused() {
        for (variable, value) in [
            ("CALICO_IPV4POOL_CIDR", "fd00::/48"),
            ("CALICO_IPV4POOL_CIDR", "x"),
            ("CALICO_IPV4POOL_IPIP", "sometimes"),
            ("CALICO_IPV4POOL_BLOCK_SIZE", "big"),
            ("CALICO_IPV4POOL_BLOCK_SIZE", "8"),
            ("CALICO_IPV4POOL_NAT_OUTGOING", "perhaps"),
        ] {
            let environment = |name: &str| (name == variable).then(|| value.to_owned());
            assert!(v4_pool(&environment).is_err(), "{variable}={value}");
        }
    }

    #[test]
    fn the_default_pool_avoids_this_machines_addresses() {
        let own = |text: &[&str]| text.iter().map(|text| text.parse().unwrap()).collect::<Vec<_>>();
        assert_eq!(free_network(&own(&["10.0.0.1"])).to_string(), "192.168.0.0/16");
        assert_eq!(free_network(&own(&["192.168.7.1"])).to_string(), "172.16.0.0/16");
        assert_eq!(free_network(&own(&["192.168.7.1", "172.16.0.9"])).to_string(), "172.17.0.0/16");
    }

    #[test]
    fn generated_networks_are_unique_local() {
        let network: IpNet = unique_local().parse().unwrap();
        assert!(network.to_string().starts_with("fd") && network.prefix_len() == 48);
        assert_ne!(unique_local(), unique_local());
    }
}
