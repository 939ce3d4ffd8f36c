//! What there is one of: a Lease in Kubernetes, a key with a lease in etcd, a lock on a file beside a SQLite store.

use std::fs::{File, TryLockError};
use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use async_trait::async_trait;
use jiff::Timestamp;
use serde_json::{Map, Value, json};
use store::StoreError;
use store::etcd::{Held, HeldKey};
use store::kube::KubeObjects;

use super::lease::{Candidate, Decision};

/// Who has the seat.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Taken {
    Ours,
    /// Another replica, as far as it is known which.
    Anothers(String),
}

/// Something that one replica has at a time.
#[async_trait]
pub trait Seat: Send + Sync {
    /// Takes it if it is free, and renews it if it is ours.
    async fn take_or_renew(&mut self) -> Result<Taken, StoreError>;

    /// Leaves it, if it is ours, so that another replica need not wait.
    async fn leave(&mut self) -> Result<(), StoreError>;
}

/// A Lease of Kubernetes.
#[derive(Debug)]
pub struct KubeSeat {
    objects: KubeObjects,
    namespace: String,
    name: String,
    candidate: Candidate,
    started: Instant,
}

impl KubeSeat {
    pub fn new(objects: KubeObjects, namespace: &str, name: &str, holder: &str, lasts: Duration) -> KubeSeat {
        let candidate = Candidate::new(holder, lasts);
        let (namespace, name) = (namespace.to_owned(), name.to_owned());
        KubeSeat { objects, namespace, name, candidate, started: Instant::now() }
    }

    fn collection(&self) -> String {
        format!("/apis/coordination.k8s.io/v1/namespaces/{}/leases", self.namespace)
    }

    fn path(&self) -> String {
        format!("{}/{}", self.collection(), self.name)
    }

    fn new_lease(&self, mut lease: Map<String, Value>) -> Map<String, Value> {
        let metadata = json!({ "namespace": self.namespace, "name": self.name });
        lease.insert("apiVersion".to_owned(), "coordination.k8s.io/v1".into());
        lease.insert("kind".to_owned(), "Lease".into());
        lease.insert("metadata".to_owned(), metadata);
        lease
    }
}

#[async_trait]
impl Seat for KubeSeat {
    async fn take_or_renew(&mut self) -> Result<Taken, StoreError> {
        let found = self.objects.read(&self.path()).await?;
        let written = match self.candidate.decide(found.as_ref(), self.started.elapsed(), Timestamp::now()) {
            Decision::Follow { leader } => return Ok(Taken::Anothers(leader)),
            Decision::Create(lease) => {
                self.objects.create(&self.collection(), &self.new_lease(lease)).await?
            }
            Decision::Replace(lease) => self.objects.replace(&self.path(), &lease).await?,
        };
        Ok(match written {
            Some(_) => Taken::Ours,
            None => Taken::Anothers("a replica that was faster".to_owned()),
        })
    }

    async fn leave(&mut self) -> Result<(), StoreError> {
        let Some(found) = self.objects.read(&self.path()).await? else { return Ok(()) };
        if let Some(released) = self.candidate.release(found) {
            self.objects.replace(&self.path(), &released).await?;
        }
        Ok(())
    }
}

/// A key in etcd.
#[derive(Debug)]
pub struct EtcdSeat(pub HeldKey);

#[async_trait]
impl Seat for EtcdSeat {
    async fn take_or_renew(&mut self) -> Result<Taken, StoreError> {
        Ok(match self.0.take_or_renew().await? {
            Held::Ours => Taken::Ours,
            Held::Anothers(name) => Taken::Anothers(name),
        })
    }

    async fn leave(&mut self) -> Result<(), StoreError> {
        self.0.release().await
    }
}

/// A lock on a file of this machine. The kernel takes it from a process that ends.
#[derive(Debug)]
pub struct FileSeat {
    path: PathBuf,
    locked: Option<File>,
}

impl FileSeat {
    /// Beside a SQLite store: whoever can write that can write here.
    pub fn beside(store: &Path) -> FileSeat {
        let mut name = store.as_os_str().to_owned();
        name.push(".controller");
        FileSeat { path: name.into(), locked: None }
    }

    fn failed(&self, source: io::Error) -> StoreError {
        StoreError::Storage {
            path: self.path.display().to_string(),
            problem: "it cannot be locked".to_owned(),
            hint: None,
            source: Some(source.into()),
        }
    }
}

#[async_trait]
impl Seat for FileSeat {
    async fn take_or_renew(&mut self) -> Result<Taken, StoreError> {
        if self.locked.is_some() {
            return Ok(Taken::Ours);
        }
        let opened = File::options().create(true).append(true).open(&self.path);
        let file = opened.map_err(|source| self.failed(source))?;
        match file.try_lock() {
            Ok(()) => {
                self.locked = Some(file);
                Ok(Taken::Ours)
            }
            Err(TryLockError::WouldBlock) => Ok(Taken::Anothers("another process".to_owned())),
            Err(TryLockError::Error(source)) => Err(self.failed(source)),
        }
    }

    async fn leave(&mut self) -> Result<(), StoreError> {
        self.locked = None;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_lock_is_of_one_and_ends_with_it() {
        let folder = tempfile::tempdir().unwrap();
        let store = folder.path().join("plumb.db");
        let (mut one, mut two) = (FileSeat::beside(&store), FileSeat::beside(&store));
        assert_eq!(one.take_or_renew().await.unwrap(), Taken::Ours);
        assert_eq!(one.take_or_renew().await.unwrap(), Taken::Ours);
        assert!(matches!(two.take_or_renew().await.unwrap(), Taken::Anothers(_)));
        drop(one);
        assert_eq!(two.take_or_renew().await.unwrap(), Taken::Ours);
    }

    #[tokio::test]
    async fn a_lock_that_cannot_be_made_is_an_error() {
        let mut seat = FileSeat::beside(Path::new("/proc/none/plumb.db"));
        assert!(
            seat.take_or_renew().await.unwrap_err().to_string().contains("/proc/none/plumb.db.controller")
        );
    }
}
