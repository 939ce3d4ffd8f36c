//! Deleting a node: what belongs to it goes along, but nothing that a pod may still live on.

use std::net::IpAddr;
use std::sync::Arc;

use book::{Book, BookError};
use ipam::{NODE_ATTRIBUTE, ReleaseItem, Tunnel};
use model::ipam::{Block, BlockAttribute};
use model::{AffinityOwner, Key, KeyRange, Kind, Resource, ShellCommand};
use serde_json::Value;
use store::{Change, MAX_CHANGES, Record};

use super::pool::in_use;
use super::{WriteError, Writer};
use crate::compat;
use crate::failure::Failure;
use crate::output::endpoint::Endpoint;
use crate::reader::Pages;
use crate::records;

impl Writer {
    /// Deletes a node with its peers, host endpoints, own configurations, tunnels' addresses and empty blocks. Refused while
    /// it has endpoints or other addresses: they may belong to pods that run.
    pub(super) async fn delete_node(&self, name: &str, mut record: Record) -> Result<(), WriteError> {
        if compat::is_strict() && !self.dry_run {
            self.remove_endpoints(name).await?;
        }
        let endpoints = self.endpoints_of(name).await?;
        let addresses = self.addresses_of(name).await?;
        // calicoctl leaves other addresses allocated, in blocks without owner.
        if endpoints > 0 || (addresses > 0 && !compat::is_strict()) {
            return Err(Failure::new(format!(
                "Node({name}) cannot be deleted: it has {endpoints} endpoint(s) and {addresses} address(es) in use"
            ))
            .hint(format!(
                "remove its pods first; if the node is gone for good, this removes its records and releases its addresses: {}",
                ShellCommand::new("plumb repair node").value(name).plain("gone --apply")
            ))
            .into());
        }
        if !self.dry_run {
            record = self.without_tunnels(record).await?;
        }
        let owner = AffinityOwner::Host(name.to_owned());
        self.give_up_blocks(|of, _| *of == owner).await?;
        let mut changes = self.belongings_of(name).await?;
        changes.push(Change::delete(record.key, record.revision));
        if !self.dry_run {
            // The node itself goes with the last of them.
            for batch in changes.chunks(MAX_CHANGES) {
                self.store.commit(batch.to_vec()).await?;
                self.gone.borrow_mut().extend(batch.iter().map(|change| change.key.clone()));
            }
        }
        Ok(())
    }

    /// Gives back what the node holds for its tunnels, by its own handles. Gives the node's record as it is then; a change by
    /// others since it was read is a lost race.
    async fn without_tunnels(&self, mut record: Record) -> Result<Record, WriteError> {
        let book = Book::new(self.store.clone());
        for tunnel in Tunnel::ALL {
            record = book.release_tunnel_address(record, tunnel).await.map_err(overtaken)?;
        }
        Ok(record)
    }

    /// Deletes the endpoints of a node and releases their addresses, as `calicoctl delete node` does. An address that another node
    /// has by now, or that was allocated again, stays.
    async fn remove_endpoints(&self, node: &str) -> Result<(), WriteError> {
        let book = Book::new(self.store.clone());
        let mut pages = Pages::new(&self.store, Kind::WorkloadEndpoint, None);
        while let Some(page) = pages.next().await? {
            for record in page.records {
                let resource = records::to_resource(&record)?;
                if resource.spec("node").and_then(Value::as_str) != Some(node) {
                    continue;
                }
                let mut items = Vec::new();
                for address in endpoint_addresses(&resource) {
                    let found = book.lookup(address).await.map_err(overtaken)?;
                    let is_its = |attribute: &BlockAttribute| {
                        attribute.secondary.get(NODE_ATTRIBUTE).is_some_and(|of| of == node)
                    };
                    if let Some(found) = found.filter(|found| is_its(&found.attribute)) {
                        items.push(ReleaseItem {
                            address,
                            handle: found.attribute.handle().cloned(),
                            sequence_number: Some(found.sequence_number),
                        });
                    }
                }
                book.release_addresses(items).await.map_err(overtaken)?;
                self.store.delete(record.key, record.revision).await?;
            }
        }
        Ok(())
    }

    async fn endpoints_of(&self, node: &str) -> Result<usize, WriteError> {
        let mut count = 0;
        let mut pages = Pages::new(&self.store, Kind::WorkloadEndpoint, None);
        while let Some(page) = pages.next().await? {
            // One that cannot be read counts: it might be the node's.
            let is_of_node = |record: &&Record| {
                !self.is_gone(record) && Endpoint::read(record).map_or(true, |found| found.node() == node)
            };
            count += page.records.iter().filter(is_of_node).count();
        }
        Ok(count)
    }

    /// Addresses in use in the node's blocks, or borrowed by it from blocks of others; without those of its tunnels, which
    /// go with it.
    async fn addresses_of(&self, node: &str) -> Result<usize, WriteError> {
        let owner = AffinityOwner::Host(node.to_owned());
        let tunnels = Tunnel::ALL.map(|tunnel| tunnel.handle(node));
        let is_tunnel = |block: &Block, ordinal: usize| {
            let handle = block.attribute(ordinal).and_then(BlockAttribute::handle);
            handle.is_some_and(|handle| tunnels.iter().any(|tunnel| tunnel == handle))
        };
        let mut count = 0;
        let mut pages = Pages::new(&self.store, Kind::IpamBlock, None);
        while let Some(page) = pages.next().await? {
            for record in &page.records {
                let Key::Block(cidr) = &record.key else { continue };
                let block = Block::decode(cidr, &record.value).map_err(|error| Failure::of(&error))?;
                let is_own = block.owner().as_ref() == Some(&owner);
                let of_node = |ordinal: usize| {
                    let note = block.attribute(ordinal).and_then(|found| found.secondary.get(NODE_ATTRIBUTE));
                    note.is_some_and(|of| of == node)
                };
                let is_its = |ordinal: &usize| (is_own || of_node(*ordinal)) && !is_tunnel(&block, *ordinal);
                count += in_use(&block).filter(is_its).count();
            }
        }
        Ok(count)
    }

    /// The records that mean nothing without the node.
    async fn belongings_of(&self, node: &str) -> Result<Vec<Change>, WriteError> {
        let mut changes = Vec::new();
        for kind in [Kind::BgpPeer, Kind::HostEndpoint] {
            let (found, _) = self.store.list_all(KeyRange::Kind(kind)).await?;
            for record in found {
                if records::to_resource(&record)?.spec("node").and_then(Value::as_str) == Some(node) {
                    changes.push(Change::delete(record.key, record.revision));
                }
            }
        }
        for kind in [Kind::FelixConfiguration, Kind::BgpConfiguration] {
            if let Some(record) = self.store.get(&Key::cluster(kind, format!("node.{node}"))).await? {
                changes.push(Change::delete(record.key, record.revision));
            }
        }
        Ok(changes)
    }
}

/// The addresses of an endpoint, without those that cannot be read.
fn endpoint_addresses(endpoint: &Resource) -> Vec<IpAddr> {
    let networks = endpoint.spec("ipNetworks").and_then(Value::as_array).into_iter().flatten();
    let texts = networks.filter_map(Value::as_str).map(|text| text.split('/').next().unwrap_or(text));
    texts.filter_map(|text| text.parse().ok()).collect()
}

fn overtaken(error: BookError) -> WriteError {
    let failure = Failure::of(&error).maybe_hint(error.hint());
    let lost = match error {
        BookError::Addition { source: Some(source), .. } => Arc::into_inner(source),
        _ => None,
    };
    lost.map_or(WriteError::Other(failure), WriteError::from)
}

#[cfg(test)]
mod tests {
    use serde_json::json;
    use store::{MemoryStore, Store};

    use super::*;

    /// A label is set between our reading of the record and the release of its tunnel's address.
    #[tokio::test]
    async fn a_change_while_tunnels_are_released_is_a_lost_race() {
        let store: Arc<dyn Store> = Arc::new(MemoryStore::new());
        let mut node = Resource::new(Kind::Node, "a");
        node.body.insert("spec".to_owned(), json!({"ipv4VXLANTunnelAddr": "10.0.0.7"}));
        store.create(node.key(), node.encode()).await.unwrap();
        let read = store.get(&node.key()).await.unwrap().unwrap();
        node.metadata.labels.insert("rack".to_owned(), "b".to_owned());
        store.update(node.key(), node.encode(), read.revision.clone()).await.unwrap();
        let writer = Writer::new(store.clone(), false);
        let lost = writer.delete_node("a", read).await;
        assert!(matches!(lost, Err(WriteError::Overtaken(_))), "{lost:?}");
        let kept = store.get(&node.key()).await.unwrap().expect("it was changed, so it stays");
        writer.delete_node("a", kept).await.unwrap();
        assert_eq!(store.get(&node.key()).await.unwrap(), None);
    }
}
