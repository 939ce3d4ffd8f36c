//! Deleting a node: what belongs to it goes along, but nothing that a pod may still live on.

use model::ipam::Block;
use model::{AffinityOwner, Key, KeyRange, Kind};
use serde_json::Value;
use store::{Change, MAX_CHANGES, Record};

use super::pool::addresses_in_use;
use super::{WriteError, Writer};
use crate::failure::Failure;
use crate::output::endpoint::Endpoint;
use crate::reader::Pages;
use crate::records;

impl Writer {
    /// Deletes a node with its peers, host endpoints, own configurations and empty blocks. Refused while it has
    /// endpoints or addresses: they may belong to pods that run.
    pub(super) async fn delete_node(&self, name: &str, record: Record) -> Result<(), WriteError> {
        let endpoints = self.endpoints_of(name).await?;
        let addresses = self.addresses_of(name).await?;
        if endpoints > 0 || addresses > 0 {
            return Err(Failure::new(format!(
                "Node({name}) cannot be deleted: it has {endpoints} endpoint(s) and {addresses} address(es) in use"
            ))
            .hint("remove its pods first; what they left behind is found by plumb ipam check and given back by plumb ipam release")
            .into());
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

    /// Addresses in use in the node's blocks, or borrowed by it from blocks of others.
    async fn addresses_of(&self, node: &str) -> Result<usize, WriteError> {
        let owner = AffinityOwner::Host(node.to_owned());
        let mut count = 0;
        let mut pages = Pages::new(&self.store, Kind::IpamBlock, None);
        while let Some(page) = pages.next().await? {
            for record in &page.records {
                let Key::Block(cidr) = &record.key else { continue };
                let block = Block::decode(cidr, &record.value).map_err(|error| Failure::of(&error))?;
                count += if block.owner().as_ref() == Some(&owner) {
                    addresses_in_use(&block)
                } else {
                    let of_node = |ordinal: &usize| {
                        let attribute = block.attribute(*ordinal);
                        attribute
                            .is_some_and(|found| found.secondary.get("node").is_some_and(|of| of == node))
                    };
                    (0..block.allocations.len()).filter(of_node).count()
                };
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
