//! Network namespaces: opening them with care, and being in one for a moment.

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, AsRawFd, RawFd};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use model::DeviceName;
use rustix::fs::{Mode, OFlags};
use rustix::thread::LinkNameSpaceType;

use crate::HostError;
use crate::links::find_link;
use crate::netlink::Netlink;

/// What `statfs` says of a namespace file.
const NSFS_MAGIC: u64 = 0x6e73_6673;

/// A network namespace, held open.
#[derive(Debug)]
pub struct NetNs {
    path: PathBuf,
    file: File,
}

/// A pod's namespace, with a socket in it.
#[derive(Debug)]
pub struct PodNamespace {
    pub(crate) ns: NetNs,
    pub(crate) netlink: Netlink,
}

impl NetNs {
    /// Opens a namespace by its path, and makes sure that it is one.
    pub fn open(path: &Path) -> Result<NetNs, HostError> {
        // Not blocking, because the path is a stranger's: opening a pipe would wait for ever.
        let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NONBLOCK;
        let file =
            rustix::fs::open(path, flags, Mode::empty()).map_err(|errno| failed(path, errno.into()))?;
        let kind = rustix::fs::fstatfs(&file).map_err(|errno| failed(path, errno.into()))?;
        if u64::try_from(kind.f_type).ok() != Some(NSFS_MAGIC) {
            return Err(unfit(path, "it is not a namespace"));
        }
        Ok(NetNs { path: path.to_owned(), file: File::from(file) })
    }

    /// The namespace of the calling thread.
    pub fn current() -> Result<NetNs, HostError> {
        NetNs::open(Path::new("/proc/thread-self/ns/net"))
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    pub fn is_same(&self, other: &NetNs) -> Result<bool, HostError> {
        let identity = |ns: &NetNs| {
            let status = ns.file.metadata().map_err(|source| failed(&ns.path, source))?;
            Ok((status.dev(), status.ino()))
        };
        Ok(identity(self)? == identity(other)?)
    }

    /// Runs `act` in this namespace, on a thread of its own. The thread ends with the visit, also when `act`
    /// panics, so that no other work can ever find itself in the wrong namespace: there is nothing to restore.
    pub fn visit<T: Send>(&self, act: impl FnOnce() -> T + Send) -> Result<T, HostError> {
        std::thread::scope(|scope| {
            let visitor = scope.spawn(|| {
                rustix::thread::move_into_link_name_space(
                    self.file.as_fd(),
                    Some(LinkNameSpaceType::Network),
                )
                .map_err(|errno| failed(&self.path, errno.into()))?;
                Ok(act())
            });
            visitor.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
        })
    }
}

impl AsRawFd for NetNs {
    fn as_raw_fd(&self) -> RawFd {
        self.file.as_raw_fd()
    }
}

impl PodNamespace {
    /// Opens a pod's namespace. The node's own is refused: wiring it would take the node off its network.
    pub fn open(path: &Path) -> Result<PodNamespace, HostError> {
        let ns = NetNs::open(path)?;
        if ns.is_same(&NetNs::current()?)? {
            return Err(unfit(path, "it is the node's own, not a pod's"));
        }
        let netlink = ns.visit(Netlink::open)??;
        Ok(PodNamespace { ns, netlink })
    }

    /// Whether the pod has a device of this name.
    pub fn has_device(&mut self, device: &DeviceName) -> Result<bool, HostError> {
        Ok(find_link(&mut self.netlink, device)?.is_some())
    }
}

fn failed(path: &Path, source: io::Error) -> HostError {
    HostError::Namespace { path: path.to_owned(), problem: None, source: Some(source) }
}

fn unfit(path: &Path, problem: &'static str) -> HostError {
    HostError::Namespace { path: path.to_owned(), problem: Some(problem), source: None }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_a_namespace_is_refused() {
        let error = NetNs::open(Path::new("/proc/self/status")).unwrap_err();
        assert_eq!(
            error.to_string(),
            "cannot use network namespace /proc/self/status: it is not a namespace"
        );
        assert!(!error.is_namespace_gone());
        let error = NetNs::open(Path::new("/proc/self/ns/nowhere")).unwrap_err();
        assert!(error.is_namespace_gone());
    }

    #[test]
    fn the_nodes_own_namespace_is_not_a_pods() {
        let error = PodNamespace::open(Path::new("/proc/self/ns/net")).unwrap_err();
        assert!(error.to_string().ends_with("it is the node's own, not a pod's"), "{error}");
    }

    #[test]
    fn another_kind_of_namespace_cannot_be_visited() {
        let Ok(ns) = NetNs::open(Path::new("/proc/self/ns/mnt")) else { return };
        assert!(ns.visit(|| ()).is_err());
    }
}
