//! What is believed of an endpoint record that is a view of a pod. Whoever may edit the pod's annotations may write any address and any
//! device into it, so IPAM's records, the kernel and the names themselves have the last word.

use std::collections::BTreeSet;
use std::net::IpAddr;

use book::Book;
use ipam::{Allocation, NAMESPACE_ATTRIBUTE, POD_ATTRIBUTE};
use model::kube::views;
use model::{DeviceName, Key, Sandbox};

use super::endpoint::Keeping;
use super::error::CniError;
use super::node;
use super::records::Held;
use super::request::PodName;

/// The addresses with which a sandbox may be adopted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Confirmed {
    pub(crate) addresses: Vec<IpAddr>,
    /// Those that are nobody's in IPAM: only the node's own routes can confirm them.
    pub(crate) unallocated: Vec<IpAddr>,
}

/// The addresses of a sandbox whose record at `key` says `recorded`; or why the record is not believed.
pub(crate) async fn addresses(
    book: &Book,
    sandbox: &Sandbox,
    key: &Key,
    recorded: &[IpAddr],
    is_protected: impl Fn(IpAddr) -> bool,
) -> Result<Result<Confirmed, &'static str>, CniError> {
    match Keeping::of(book) {
        Keeping::Records => Ok(Ok(confirmed(recorded.to_vec()))),
        Keeping::Views => addresses_of_view(book, sandbox, key, recorded, is_protected).await,
    }
}

fn confirmed(addresses: Vec<IpAddr>) -> Confirmed {
    Confirmed { addresses, unallocated: Vec::new() }
}

async fn addresses_of_view(
    book: &Book,
    sandbox: &Sandbox,
    key: &Key,
    recorded: &[IpAddr],
    is_protected: impl Fn(IpAddr) -> bool,
) -> Result<Result<Confirmed, &'static str>, CniError> {
    let held = Held::read(book, sandbox, Vec::new()).await?.addresses();
    if !held.is_empty() {
        return Ok(Ok(confirmed(agreed(recorded, &held))));
    }
    let mut unallocated = Vec::new();
    for address in recorded {
        match book.lookup(*address).await? {
            Some(allocation) if is_of(&allocation, sandbox, pod_behind(key).as_ref()) => {}
            Some(_) => {
                return Ok(Err("its endpoint record has an address that IPAM holds for another owner"));
            }
            None if is_protected(*address) => {
                return Ok(Err("its endpoint record has the address of a node or a service"));
            }
            None => unallocated.push(*address),
        }
    }
    Ok(Ok(Confirmed { addresses: recorded.to_vec(), unallocated }))
}

/// The device of a sandbox whose record says `recorded`. `own` is the link that carries its alias.
pub(crate) fn device(
    book: &Book,
    recorded: &DeviceName,
    own: Option<DeviceName>,
    pod: Option<&PodName>,
    sandbox: &Sandbox,
) -> Result<DeviceName, CniError> {
    if Keeping::of(book) == Keeping::Records || is_device_of(recorded, pod, sandbox)? {
        return Ok(recorded.clone());
    }
    own.map_or_else(|| node::device_name(pod, sandbox), Ok)
}

/// Whether a sandbox's device can have this name.
pub(super) fn is_device_of(
    device: &DeviceName,
    pod: Option<&PodName>,
    sandbox: &Sandbox,
) -> Result<bool, CniError> {
    Ok(*device == node::device_name(pod, sandbox)? || *device == node::own_device_name(sandbox))
}

/// In the record's order, if that says the same.
pub(super) fn agreed(recorded: &[IpAddr], held: &[IpAddr]) -> Vec<IpAddr> {
    if are_the_same(recorded, held) {
        return recorded.to_vec();
    }
    let mut held = held.to_vec();
    held.sort_by_key(IpAddr::is_ipv6);
    held
}

pub(super) fn are_the_same(one: &[IpAddr], other: &[IpAddr]) -> bool {
    one.iter().collect::<BTreeSet<_>>() == other.iter().collect::<BTreeSet<_>>()
}

/// The pod of a record, by the record's name: annotations may call it anything.
pub(crate) fn pod_behind(key: &Key) -> Option<PodName> {
    let behind = views::behind(key)?;
    Some(PodName { namespace: behind.namespace?, name: behind.name, uid: None })
}

/// The sandbox's own, or of the same pod: a handle that is missing is no reason not to look after a pod.
fn is_of(allocation: &Allocation, sandbox: &Sandbox, pod: Option<&PodName>) -> bool {
    let attribute = &allocation.attribute;
    let said = |key: &str| attribute.secondary.get(key).map(String::as_str);
    let is_of_pod = |pod: &PodName| {
        said(NAMESPACE_ATTRIBUTE) == Some(&pod.namespace) && said(POD_ATTRIBUTE) == Some(&pod.name)
    };
    attribute.handle() == Some(&sandbox.handle()) || pod.is_some_and(is_of_pod)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use book::AssignRequest;
    use ipam::Owner;
    use jiff::Timestamp;
    use model::{IpVersion, Kind, Resource};
    use store::{MemoryStore, Store};

    use super::*;

    fn sandbox(container: &str) -> Sandbox {
        Sandbox::new("net", container, "eth0").unwrap()
    }

    fn key(pod: &str) -> Key {
        Key::namespaced(Kind::WorkloadEndpoint, "shop", format!("node-k8s-{pod}-eth0"))
    }

    fn address(text: &str) -> IpAddr {
        text.parse().unwrap()
    }

    /// The pods `mine` and `yours` with an address each.
    async fn cluster() -> (Book, Arc<dyn Store>, IpAddr, IpAddr) {
        let store: Arc<dyn Store> = Arc::new(MemoryStore::new());
        let mut pool = Resource::new(Kind::IpPool, "pods");
        pool.body.insert("spec".to_owned(), serde_json::json!({"cidr": "10.0.0.0/24", "blockSize": 29}));
        store.create(pool.key(), pool.encode()).await.unwrap();
        let book = Book::new(Arc::clone(&store));
        let mut given = Vec::new();
        for name in ["mine", "yours"] {
            let owner = Owner::on_node(sandbox(name).handle(), "node", Timestamp::UNIX_EPOCH);
            let owner = owner.of_pod("shop", name, None);
            let request = AssignRequest::new("node", owner, &[IpVersion::V4]);
            given.push(book.assign(request).await.unwrap().addresses[0].address);
        }
        (book, store, given[0], given[1])
    }

    #[tokio::test]
    async fn an_annotation_gives_a_pod_no_address_that_ipam_did_not() {
        let (book, store, mine, yours) = cluster().await;
        let of = async |container: &str, recorded: &[IpAddr]| {
            let is_protected = |address: IpAddr| address.to_string() == "192.0.2.1";
            addresses_of_view(&book, &sandbox(container), &key("mine"), recorded, is_protected).await.unwrap()
        };
        for recorded in [mine, yours, address("192.0.2.1")] {
            assert_eq!(of("mine", &[recorded]).await, Ok(confirmed(vec![mine])), "{recorded}");
        }
        // Its addresses are not from our pools.
        assert!(of("host-local", &[yours]).await.unwrap_err().contains("another owner"));
        assert!(of("host-local", &[address("192.0.2.1")]).await.unwrap_err().contains("a node"));
        let foreign = address("198.51.100.7");
        let unallocated = Confirmed { addresses: vec![foreign], unallocated: vec![foreign] };
        assert_eq!(of("host-local", &[foreign]).await, Ok(unallocated));
        // A handle that is missing.
        let handle = store.get(&Key::Handle(sandbox("mine").handle())).await.unwrap().unwrap();
        store.delete(handle.key, handle.revision).await.unwrap();
        assert_eq!(of("mine", &[mine]).await, Ok(confirmed(vec![mine])));
    }

    #[test]
    fn the_order_of_the_record_stays_where_it_says_the_same() {
        let [v4, v6, other] = ["10.0.0.1", "fd00::1", "10.0.0.2"].map(address);
        assert_eq!(agreed(&[v6, v4], &[v4, v6]), [v6, v4]);
        assert_eq!(agreed(&[v6, other], &[v6, v4]), [v4, v6]);
    }

    #[test]
    fn a_device_has_the_name_of_its_pod_or_of_its_sandbox() {
        let pod = pod_behind(&key("mine")).unwrap();
        assert_eq!((pod.namespace.as_str(), pod.name.as_str()), ("shop", "mine"));
        let sandbox = sandbox("mine");
        let name = |pod: &str| DeviceName::of_pod("cali", "shop", pod).unwrap();
        assert!(is_device_of(&name("mine"), Some(&pod), &sandbox).unwrap());
        assert!(is_device_of(&node::own_device_name(&sandbox), Some(&pod), &sandbox).unwrap());
        assert!(!is_device_of(&name("yours"), Some(&pod), &sandbox).unwrap());
    }
}
