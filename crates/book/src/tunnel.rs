//! The addresses of a node's tunnel devices: the address book and the Node record say the same.

use std::net::IpAddr;
use std::sync::Arc;

use ipam::{
    Allocation, Pool, PoolUse, ReleaseItem, Tunnel, TunnelAddress, TunnelNode, TunnelRelease, tunnel_address,
};
use model::{IpVersion, Key, KeyRange, Kind, Resource};
use serde_json::{Map, Value};
use store::{Lookup, Record, StoreError, Write};

use crate::book::Book;
use crate::request::{AssignRequest, HandleRequest};
use crate::scene::{decode, understand_pools};
use crate::{Addition, Additions, BookError};

impl Book {
    /// Sees to it that a node has an address for a tunnel exactly if some pool wants it to: takes one, keeps it, or gives
    /// it back, together with the change of the Node record. Gives the address that the node has now.
    pub async fn ensure_tunnel_address(
        &self,
        node: &str,
        tunnel: Tunnel,
    ) -> Result<Option<IpAddr>, BookError> {
        let mut patience = self.inner.patience();
        loop {
            let error = match self.try_tunnel_address(node, tunnel).await {
                Ok(address) => return Ok(address),
                Err(error) => error,
            };
            // Someone else has written the Node.
            let BookError::Addition { source: Some(source), .. } = &error else { return Err(error) };
            patience.check_shared(source)?;
            tokio::time::sleep(patience.delay()).await;
        }
    }

    /// Gives back what a node holds for a tunnel, and removes it from the Node record. For a node that goes. Gives the record as it
    /// is then; fails if it is not the one that the caller has read.
    pub async fn release_tunnel_address(&self, record: Record, tunnel: Tunnel) -> Result<Record, BookError> {
        let node = decode(&record, Kind::Node)?;
        let handle = HandleRequest::all(tunnel.handle(&node.metadata.name));
        if address_of(&node, tunnel).is_none() {
            self.release_handle(handle).await?;
            return Ok(record);
        }
        let addition = with_address(&record, node, tunnel, None);
        let written = addition.change.write.clone();
        self.release_handle(handle.with(vec![addition])).await?;
        let source = match self.inner.store.get(&record.key).await? {
            Some(now) if Write::Put(now.value.clone()) == written => return Ok(now),
            Some(now) => StoreError::Conflict { current: Box::new(now) },
            None => StoreError::NotFound { key: record.key.clone() },
        };
        Err(BookError::Addition { key: record.key, source: Some(Arc::new(source)) })
    }

    async fn try_tunnel_address(&self, node: &str, tunnel: Tunnel) -> Result<Option<IpAddr>, BookError> {
        let key = Key::cluster(Kind::Node, node);
        let lookups = vec![Lookup::Record(key.clone()), Lookup::Range(KeyRange::Kind(Kind::IpPool))];
        let mut answers = self.inner.store.read(lookups).await?.into_iter();
        let record = answers.next().unwrap_or_default().pop();
        let record = record.ok_or_else(|| BookError::NoNode { node: node.to_owned() })?;
        // A pool that is passed over may be the one that wants the tunnel: then the address would be cleared.
        let pools = understand_pools(&answers.next().unwrap_or_default())?;
        let pools: Vec<Pool> = pools.into_iter().map(|stored| stored.value).collect();
        let resource = decode(&record, Kind::Node)?;
        let address = address_of(&resource, tunnel);
        let allocation = match address {
            Some(address) => self.lookup(address).await?,
            None => None,
        };
        let known = TunnelNode {
            name: node,
            labels: &resource.metadata.labels,
            address,
            allocation: allocation.as_ref().map(|allocation| &allocation.attribute),
            has_wireguard_key: has_wireguard_key(&resource, tunnel),
        };
        match tunnel_address(tunnel, &known, &pools) {
            TunnelAddress::Keep => Ok(address),
            TunnelAddress::Clear { release } => {
                let addition = with_address(&record, resource, tunnel, None);
                self.release_tunnel(&release, allocation.as_ref(), vec![addition]).await?;
                Ok(None)
            }
            TunnelAddress::Assign { pools, release } => {
                if let Some(release) = release {
                    self.release_tunnel(&release, allocation.as_ref(), Vec::new()).await?;
                }
                self.assign_tunnel(node, tunnel, pools, record, resource).await.map(Some)
            }
        }
    }

    async fn release_tunnel(
        &self,
        release: &TunnelRelease,
        allocation: Option<&Allocation>,
        additions: Vec<Addition>,
    ) -> Result<(), BookError> {
        self.release_handle(HandleRequest::all(&release.handle).with(additions)).await?;
        if let (Some(address), Some(allocation)) = (release.address, allocation) {
            // Without a handle: only if it is still the allocation that was looked at.
            let sequence_number = Some(allocation.sequence_number);
            self.release_addresses([ReleaseItem { address, handle: None, sequence_number }]).await?;
        }
        Ok(())
    }

    async fn assign_tunnel(
        &self,
        node: &str,
        tunnel: Tunnel,
        pools: Vec<String>,
        record: Record,
        resource: Resource,
    ) -> Result<IpAddr, BookError> {
        let mut request = AssignRequest::new(node, tunnel.owner(node), &[tunnel.version()]);
        request.purpose = PoolUse::Tunnel;
        match tunnel.version() {
            IpVersion::V4 => request.pools_v4 = pools,
            IpVersion::V6 => request.pools_v6 = pools,
        }
        request.additions = Additions::new(1, move |granted| {
            let address = granted.first().map(|granted| granted.address);
            Ok(vec![with_address(&record, resource.clone(), tunnel, address)])
        });
        let grant = self.assign(request).await?;
        Ok(grant.addresses.first().expect("a request for all or nothing gets all").address)
    }
}

/// Where the Node record has the address: in a part of its spec, if any, and under which name.
pub(crate) fn place(tunnel: Tunnel) -> (Option<&'static str>, &'static str) {
    match tunnel {
        Tunnel::Ipip => (Some("bgp"), "ipv4IPIPTunnelAddr"),
        Tunnel::Vxlan => (None, "ipv4VXLANTunnelAddr"),
        Tunnel::VxlanV6 => (None, "ipv6VXLANTunnelAddr"),
        Tunnel::Wireguard => (Some("wireguard"), "interfaceIPv4Address"),
        Tunnel::WireguardV6 => (Some("wireguard"), "interfaceIPv6Address"),
    }
}

fn address_of(node: &Resource, tunnel: Tunnel) -> Option<IpAddr> {
    let (part, field) = place(tunnel);
    let value = match part {
        Some(part) => node.spec(part).and_then(|part| part.get(field)),
        None => node.spec(field),
    };
    value.and_then(Value::as_str).and_then(|text| text.parse().ok())
}

fn has_wireguard_key(node: &Resource, tunnel: Tunnel) -> bool {
    let field = match tunnel {
        Tunnel::WireguardV6 => "wireguardPublicKeyV6",
        _ => "wireguardPublicKey",
    };
    let key = node.body.get("status").and_then(|status| status.get(field)).and_then(Value::as_str);
    key.is_some_and(|key| !key.is_empty())
}

/// The Node record with this address for the tunnel, or without any. A part of the spec that would be left empty goes:
/// Calico refuses an empty one.
fn with_address(record: &Record, mut node: Resource, tunnel: Tunnel, address: Option<IpAddr>) -> Addition {
    let (part, field) = place(tunnel);
    let spec = node.spec_mut();
    let value = address.map(|address| Value::from(address.to_string()));
    match part {
        None => set(spec, field, value),
        Some(part) => {
            let inside = spec.entry(part).or_insert_with(|| Value::Object(Map::new()));
            if !inside.is_object() {
                *inside = Value::Object(Map::new());
            }
            if let Some(inside) = inside.as_object_mut() {
                set(inside, field, value);
            }
            if spec.get(part).and_then(Value::as_object).is_some_and(Map::is_empty) {
                spec.remove(part);
            }
        }
    }
    Addition::replace(record, node.encode())
}

fn set(fields: &mut Map<String, Value>, field: &str, value: Option<Value>) {
    match value {
        Some(value) => drop(fields.insert(field.to_owned(), value)),
        None => drop(fields.remove(field)),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;
    use store::Revision;

    use super::*;

    fn node(spec: Value) -> (Record, Resource) {
        let mut node = Resource::new(Kind::Node, "a");
        node.body.insert("spec".to_owned(), spec);
        let record = Record { key: node.key(), value: node.encode().into(), revision: Revision::new("1") };
        (record, node)
    }

    #[test]
    fn every_tunnel_has_its_place_and_leaves_the_rest_alone() {
        for tunnel in Tunnel::ALL {
            let (record, resource) =
                node(json!({"bgp": {"asNumber": 1}, "mine": {"kept": 18446744073709551615u64}}));
            let address = match tunnel.version() {
                IpVersion::V4 => "10.0.0.7",
                IpVersion::V6 => "fd00::7",
            };
            let written = with_address(&record, resource, tunnel, address.parse().ok());
            let store::Write::Put(value) = &written.change.write else { panic!("{written:?}") };
            let changed = Record { value: value.clone(), ..record.clone() };
            let mut resource = decode(&changed, Kind::Node).unwrap();
            assert_eq!(address_of(&resource, tunnel), address.parse().ok());
            assert_eq!(resource.spec("mine"), Some(&json!({"kept": 18446744073709551615u64})));
            let cleared = with_address(&changed, resource.clone(), tunnel, None);
            let store::Write::Put(value) = &cleared.change.write else { panic!("{cleared:?}") };
            resource = decode(&Record { value: value.clone(), ..changed }, Kind::Node).unwrap();
            assert_eq!(resource.spec("bgp"), Some(&json!({"asNumber": 1})));
            assert_eq!(resource.spec("wireguard"), None, "nothing empty is left");
        }
    }
}
