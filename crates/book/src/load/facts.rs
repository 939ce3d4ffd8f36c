//! Who uses which address, and which pools there are: as much of those records as a check of the books needs.

use std::borrow::Cow;
use std::net::IpAddr;

use ipam::check::{EndpointFacts, NodeFacts};
use ipam::{Books, Corrupt, Pool, Tunnel};
use model::{Cidr, Key, Kind, Resource};
use serde::Deserialize;
use serde_json::Value;
use store::{Record, Store, StoreError};

use super::{Progress, books, gather, of_kind, unreadable};
use crate::tunnel::place;

/// Everything that a check of the books looks at.
#[derive(Debug, Default)]
pub struct Facts {
    /// What could not be read stands in its `unreadable`, endpoints, nodes and pools included.
    pub books: Books,
    /// In the order of their names.
    pub pools: Vec<Pool>,
    pub nodes: Vec<NodeFacts>,
    pub endpoints: Vec<EndpointFacts<'static>>,
}

/// Those who use addresses.
#[derive(Debug, Default)]
pub struct Users {
    pub nodes: Vec<NodeFacts>,
    pub endpoints: Vec<EndpointFacts<'static>>,
    pub unreadable: Vec<Corrupt>,
}

/// Reads everything.
pub async fn facts(store: &dyn Store, progress: &Progress) -> Result<Facts, StoreError> {
    let (books, users, pools) =
        tokio::try_join!(books(store, progress), users(store, progress, |_| true), pools(store, progress),)?;
    let mut facts = Facts { books, pools: pools.pools, nodes: users.nodes, endpoints: users.endpoints };
    facts.books.unreadable.extend(users.unreadable);
    facts.books.unreadable.extend(pools.unreadable);
    Ok(facts)
}

/// The endpoints with an address that `is_wanted`, and all nodes.
pub async fn users(
    store: &dyn Store,
    progress: &Progress,
    is_wanted: impl Fn(IpAddr) -> bool,
) -> Result<Users, StoreError> {
    let (endpoints, nodes) = tokio::try_join!(
        gather(store, of_kind(Kind::WorkloadEndpoint), progress, |users: &mut Users, record| {
            users.add_endpoint(record, &is_wanted);
        }),
        gather(store, of_kind(Kind::Node), progress, Users::add_node),
    )?;
    let unreadable = endpoints.unreadable.into_iter().chain(nodes.unreadable).collect();
    Ok(Users { nodes: nodes.nodes, endpoints: endpoints.endpoints, unreadable })
}

/// All pools, in the order of their names.
#[derive(Debug, Default)]
pub struct Pools {
    pub pools: Vec<Pool>,
    pub unreadable: Vec<Corrupt>,
}

pub async fn pools(store: &dyn Store, progress: &Progress) -> Result<Pools, StoreError> {
    gather(store, of_kind(Kind::IpPool), progress, add_pool).await
}

fn add_pool(pools: &mut Pools, record: &Record) {
    match read_pool(record) {
        Ok(pool) => pools.pools.push(pool),
        Err(reason) => pools.unreadable.push(unreadable(&record.key, reason)),
    }
}

fn read_pool(record: &Record) -> Result<Pool, String> {
    let resource = Resource::decode(&record.key, Kind::IpPool, &record.value, record.revision.as_str());
    let mut resource = resource.map_err(|error| error.to_string())?;
    if let (true, Key::Resource { name, .. }) = (resource.metadata.name.is_empty(), &record.key) {
        resource.metadata.name.clone_from(name);
    }
    Pool::new(&resource).map_err(|error| error.to_string())
}

impl Users {
    fn add_endpoint(&mut self, record: &Record, is_wanted: impl Fn(IpAddr) -> bool) {
        match read_endpoint(record) {
            Ok(endpoint) if !endpoint.addresses.iter().any(|address| is_wanted(*address)) => {}
            Ok(endpoint) => self.endpoints.push(endpoint),
            Err(reason) => self.unreadable.push(unreadable(&record.key, reason)),
        }
    }

    fn add_node(&mut self, record: &Record) {
        match read_node(record) {
            Ok(node) => self.nodes.push(node),
            Err(reason) => self.unreadable.push(unreadable(&record.key, reason)),
        }
    }
}

fn read_endpoint(record: &Record) -> Result<EndpointFacts<'static>, String> {
    let document: EndpointDocument<'_> = read_object(&record.value)?;
    let Key::Resource { namespace, name, .. } = &record.key else {
        return Err("it is not an endpoint".to_owned());
    };
    let networks = document.spec.unwrap_or_default().ip_networks.unwrap_or_default();
    let addresses = networks.iter().map(|text| read_address(text)).collect::<Result<_, _>>()?;
    Ok(EndpointFacts::owned(namespace.clone().unwrap_or_default(), name.clone(), addresses))
}

fn read_node(record: &Record) -> Result<NodeFacts, String> {
    let document: Value = read_object(&record.value)?;
    let Key::Resource { name, .. } = &record.key else { return Err("it is not a node".to_owned()) };
    let spec = part_of(&document, "spec")?;
    let mut tunnels = Vec::new();
    for tunnel in Tunnel::ALL {
        let (part, field) = place(tunnel);
        let fields = part.map_or(Ok(spec), |part| part_of(spec, part))?;
        match &fields[field] {
            Value::String(text) if !text.is_empty() => tunnels.push((tunnel, read_address(text)?)),
            Value::String(_) | Value::Null => {}
            other => return Err(format!("{field} is {other}, not an address")),
        }
    }
    Ok(NodeFacts { name: name.clone(), tunnels })
}

/// An object inside another, or nothing.
fn part_of<'a>(fields: &'a Value, name: &str) -> Result<&'a Value, String> {
    match &fields[name] {
        part @ (Value::Object(_) | Value::Null) => Ok(part),
        other => Err(format!("{name} is {other}, not an object")),
    }
}

/// serde would take a list for an object too, and a damaged user of addresses for one that uses none.
fn read_object<'a, T: Deserialize<'a>>(value: &'a [u8]) -> Result<T, String> {
    if value.trim_ascii_start().first() != Some(&b'{') {
        return Err("it is not a JSON object".to_owned());
    }
    serde_json::from_slice(value).map_err(|error| error.to_string())
}

/// An address, with or without the length of its network.
fn read_address(text: &str) -> Result<IpAddr, String> {
    let bare = text.split_once('/').map_or(text, |(address, _)| address);
    let is_network = !text.contains('/') || Cidr::parse_masked(text).is_ok();
    bare.parse().ok().filter(|_| is_network).ok_or_else(|| format!("{text:?} is not an address"))
}

#[derive(Deserialize)]
struct EndpointDocument<'a> {
    #[serde(borrow, default)]
    spec: Option<EndpointSpec<'a>>,
}

#[derive(Default, Deserialize)]
struct EndpointSpec<'a> {
    #[serde(borrow, default, rename = "ipNetworks")]
    ip_networks: Option<Vec<Text<'a>>>,
}

/// Borrowed from the record unless it holds escapes.
#[derive(Deserialize)]
struct Text<'a>(#[serde(borrow)] Cow<'a, str>);

impl std::ops::Deref for Text<'_> {
    type Target = str;

    fn deref(&self) -> &str {
        &self.0
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use store::{Change, MemoryStore, Revision};

    use super::*;

    fn record(key: Key, value: impl AsRef<[u8]>) -> Record {
        Record { key, value: value.as_ref().to_vec().into(), revision: Revision::new("7") }
    }

    fn node(value: &str) -> Result<NodeFacts, String> {
        read_node(&record(Key::cluster(Kind::Node, "a"), value))
    }

    fn endpoint(value: &str) -> Result<EndpointFacts<'static>, String> {
        read_endpoint(&record(Key::namespaced(Kind::WorkloadEndpoint, "shop", "a-k8s-cart-eth0"), value))
    }

    #[test]
    fn the_tunnels_of_both_ip_versions_are_known() {
        let full = r#"{"spec":{"bgp":{"ipv4Address":"192.0.2.1/24","ipv4IPIPTunnelAddr":"10.0.0.1"},
            "ipv4VXLANTunnelAddr":"10.0.0.2","ipv6VXLANTunnelAddr":"fd00::2",
            "wireguard":{"interfaceIPv4Address":"10.0.0.3","interfaceIPv6Address":"fd00::3"}}}"#;
        let tunnels: Vec<String> = node(full)
            .unwrap()
            .tunnels
            .iter()
            .map(|(tunnel, address)| format!("{} {address}", tunnel.type_word()))
            .collect();
        assert_eq!(
            tunnels,
            [
                "ipipTunnelAddress 10.0.0.1",
                "vxlanTunnelAddress 10.0.0.2",
                "vxlanV6TunnelAddress fd00::2",
                "wireguardTunnelAddress 10.0.0.3",
                "wireguardV6TunnelAddress fd00::3",
            ]
        );
        for none in ["{}", r#"{"spec":null}"#, r#"{"spec":{"bgp":null,"ipv4VXLANTunnelAddr":""}}"#] {
            assert_eq!(node(none).unwrap().tunnels, []);
        }
        assert!(node(r#"{"spec":{"ipv4VXLANTunnelAddr":"ten"}}"#).is_err());
    }

    #[test]
    fn the_networks_of_an_endpoint_are_its_addresses() {
        let both =
            endpoint(r#"{"spec":{"ipNetworks":["10.0.0.1/32","fd00::\u0031/128","10.0.0.2"]}}"#).unwrap();
        assert_eq!(
            *both.addresses,
            ["10.0.0.1", "fd00::1", "10.0.0.2"].map(|text| text.parse::<IpAddr>().unwrap())
        );
        assert_eq!((both.namespace.as_ref(), both.name.as_ref()), ("shop", "a-k8s-cart-eth0"));
        for none in ["{}", r#"{"spec":null}"#, r#"{"spec":{"ipNetworks":null}}"#] {
            assert_eq!(endpoint(none).unwrap().addresses, Vec::<IpAddr>::new());
        }
        for bad in
            ["", "[]", r#"{"spec":{"ipNetworks":["x"]}}"#, r#"{"spec":{"ipNetworks":["10.0.0.1/33"]}}"#]
        {
            assert!(endpoint(bad).is_err(), "{bad}");
        }
    }

    #[tokio::test]
    async fn what_cannot_be_read_is_named_and_hides_nothing() {
        let store = MemoryStore::new();
        let changes = vec![
            Change::create(Key::Block("10.0.0.0/30".parse().unwrap()), "{"),
            Change::create(Key::Handle("h".into()), r#"{"block":{"10.0.0.0/30":1}}"#),
            Change::create(Key::cluster(Kind::IpPool, "bad"), r#"{"spec":{"cidr":"ten"}}"#),
            Change::create(Key::cluster(Kind::IpPool, "good"), r#"{"spec":{"cidr":"10.0.0.0/16"}}"#),
            Change::create(Key::cluster(Kind::Node, "a"), "{}"),
            Change::create(Key::namespaced(Kind::WorkloadEndpoint, "n", "e"), "null"),
        ];
        store.commit(changes).await.unwrap();
        let progress = Progress::default();
        let mut facts = facts(&store, &progress).await.unwrap();
        let named: Vec<String> =
            facts.books.unreadable.iter().map(|corrupt| corrupt.key.to_string()).collect();
        assert_eq!(named, ["IPAMBlock(10.0.0.0/30)", "WorkloadEndpoint(n/e)", "IPPool(bad)"]);
        assert_eq!((facts.pools.len(), facts.pools[0].name.as_str()), (1, "good"));
        assert_eq!((facts.nodes.len(), facts.endpoints.len(), facts.books.handles.len()), (1, 0, 1));
        assert_eq!(progress.records(), 6);

        let keys = [Key::Handle("h".into()), Key::Block("10.0.0.0/30".parse().unwrap())];
        let found = store.get(&keys[0]).await.unwrap().unwrap();
        store.commit(vec![Change::delete(keys[0].clone(), found.revision)]).await.unwrap();
        crate::load::look_again(&store, &mut facts.books, &keys).await.unwrap();
        assert_eq!((facts.books.handles.len(), facts.books.unreadable.len()), (0, 3));
    }

    #[tokio::test]
    async fn only_users_of_wanted_addresses_are_kept_but_every_node() {
        let store = MemoryStore::new();
        let using = |address: &str| format!(r#"{{"spec":{{"ipNetworks":["{address}/32"]}}}}"#);
        let changes = vec![
            Change::create(Key::namespaced(Kind::WorkloadEndpoint, "n", "a"), using("10.0.0.1")),
            Change::create(Key::namespaced(Kind::WorkloadEndpoint, "n", "b"), using("10.0.0.2")),
            Change::create(Key::cluster(Kind::Node, "a"), r#"{"spec":{"ipv4VXLANTunnelAddr":"10.0.0.3"}}"#),
        ];
        store.commit(changes).await.unwrap();
        let wanted: IpAddr = "10.0.0.2".parse().unwrap();
        let users = users(&store, &Progress::default(), |address| address == wanted).await.unwrap();
        assert_eq!((users.endpoints.len(), users.endpoints[0].name.as_ref()), (1, "b"));
        assert_eq!(users.nodes.len(), 1);
    }

    proptest! {
        #[test]
        fn anything_is_read_or_refused(value in proptest::collection::vec(any::<u8>(), 0..64), text in "\\PC{0,40}") {
            let _ = read_endpoint(&record(Key::namespaced(Kind::WorkloadEndpoint, "n", "e"), &value));
            let _ = read_node(&record(Key::cluster(Kind::Node, "a"), &value));
            let _ = read_pool(&record(Key::cluster(Kind::IpPool, "p"), &value));
            let _ = read_address(&text);
        }
    }
}
