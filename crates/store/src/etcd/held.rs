//! A key that one process holds for as long as it renews it: who is there first has it, and etcd removes it with its lease.
//!
//! Each renewal attaches the key to a new lease in one transaction, by compare-and-swap. So a lease that was lost on the way holds nothing,
//! and no stream must be kept open beside the requests. etcd's clock alone decides when a lease ends.

use std::time::Duration;

use bytes::Bytes;

use super::EtcdStore;
use super::client::Effect;
use super::commit::operation;
use super::rpc::compare::{CompareResult, CompareTarget, TargetUnion};
use super::rpc::request_op::Request;
use super::rpc::response_op::Response;
use super::rpc::{
    Compare, DeleteRangeRequest, KeyValue, LeaseGrantRequest, LeaseRevokeRequest, PutRequest, RangeRequest,
    TxnRequest,
};
use crate::StoreError;

/// A key in etcd, outside of Calico's layout, that is held by one process at a time.
#[derive(Clone, Debug)]
pub struct HeldKey {
    store: EtcdStore,
    key: Bytes,
    holder: Bytes,
    lasts: Duration,
}

/// Who has the key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Held {
    Ours,
    /// Another process, by the name that it gave.
    Anothers(String),
}

impl EtcdStore {
    /// `holder` names this process; no other one may have the same name. A key that is not renewed for `lasts`, which is counted in whole
    /// seconds, is free.
    pub fn held_key(&self, key: &str, holder: &str, lasts: Duration) -> HeldKey {
        let (key, holder) =
            (Bytes::copy_from_slice(key.as_bytes()), Bytes::copy_from_slice(holder.as_bytes()));
        HeldKey { store: self.clone(), key, holder, lasts }
    }
}

impl HeldKey {
    /// Takes the key if it is free, and renews it if it is ours.
    pub async fn take_or_renew(&self) -> Result<Held, StoreError> {
        let found = self.found().await?;
        if let Some(other) = found.as_ref().filter(|found| found.value != self.holder) {
            return Ok(anothers(&other.value));
        }
        let client = &self.store.client;
        let ttl = i64::try_from(self.lasts.as_secs()).unwrap_or(i64::MAX).max(1);
        // A lease that nobody uses ends by itself, so granting a second one does no harm.
        let granted = client.call(LeaseGrantRequest { ttl }, Effect::Reads).await;
        let lease = granted.map_err(|error| error.into_store_error("granting a lease"))?.id;
        let put = PutRequest { key: self.key.clone(), value: self.holder.clone(), lease };
        let changed = self.change(found.as_ref(), Request::Put(put), "holding a key").await?;
        if let Err(faster) = changed {
            // It ends by itself, too.
            drop(client.call(LeaseRevokeRequest { id: lease }, Effect::Reads).await);
            return Ok(anothers(&faster));
        }
        Ok(Held::Ours)
    }

    /// Lets go of the key, if it is ours.
    pub async fn release(&self) -> Result<(), StoreError> {
        let found = self.found().await?;
        if let Some(ours) = found.filter(|found| found.value == self.holder) {
            let delete = DeleteRangeRequest { key: self.key.clone() };
            let deletion = Request::DeleteRange(delete);
            // If another process was faster, there is nothing to let go of.
            let _ = self.change(Some(&ours), deletion, "letting go of a key").await?;
        }
        Ok(())
    }

    /// Makes a change if the key is as it was found. If not: who has it now.
    async fn change(
        &self,
        found: Option<&KeyValue>,
        change: Request,
        words: &str,
    ) -> Result<Result<(), Bytes>, StoreError> {
        let (target, expected) = match found {
            Some(found) => (CompareTarget::Mod, TargetUnion::ModRevision(found.mod_revision)),
            None => (CompareTarget::Version, TargetUnion::Version(0)),
        };
        let condition = Compare {
            result: CompareResult::Equal.into(),
            target: target.into(),
            key: self.key.clone(),
            target_union: Some(expected),
        };
        let request = TxnRequest {
            compare: vec![condition],
            success: vec![operation(change)],
            failure: vec![operation(Request::Range(self.read()))],
        };
        let answer = self.store.client.call(request, Effect::Writes).await;
        let answer = answer.map_err(|error| error.into_store_error(words))?;
        if answer.succeeded {
            return Ok(Ok(()));
        }
        let faster = answer.responses.into_iter().find_map(|response| match response.response {
            Some(Response::Range(range)) => range.kvs.into_iter().next(),
            None => None,
        });
        Ok(Err(faster.map(|faster| faster.value).unwrap_or_default()))
    }

    async fn found(&self) -> Result<Option<KeyValue>, StoreError> {
        let answer = self.store.client.call(self.read(), Effect::Reads).await;
        let answer = answer.map_err(|error| error.into_store_error("reading who holds a key"))?;
        Ok(answer.kvs.into_iter().next())
    }

    fn read(&self) -> RangeRequest {
        RangeRequest { key: self.key.clone(), ..RangeRequest::default() }
    }
}

fn anothers(value: &Bytes) -> Held {
    Held::Anothers(String::from_utf8_lossy(value).into_owned())
}
