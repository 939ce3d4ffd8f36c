//! Network namespaces: opening them with care, and being in one for a moment.

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, AsRawFd, RawFd};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustix::fs::{Mode, OFlags};
use rustix::thread::LinkNameSpaceType;

use crate::HostError;
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
    /// The node's, where whoever works in it comes from.
    pub(crate) home: Arc<NetNs>,
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
        let path = Path::new("/proc/thread-self/ns/net");
        let file = File::open(path).map_err(|source| failed(path, source))?;
        Ok(NetNs { path: path.to_owned(), file })
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    pub fn is_same(&self, other: &NetNs) -> Result<bool, HostError> {
        Ok(self.identity()? == other.identity()?)
    }

    /// Device and inode, which no other namespace has while this one is held open.
    pub(crate) fn identity(&self) -> Result<(u64, u64), HostError> {
        let status = self.file.metadata().map_err(|source| failed(&self.path, source))?;
        Ok((status.dev(), status.ino()))
    }

    /// Runs `act` in this namespace, on a thread of its own. The thread ends with the visit, also when `act`
    /// panics, so that no other work can ever find itself in the wrong namespace: there is nothing to restore.
    pub fn visit<T: Send>(&self, act: impl FnOnce() -> T + Send) -> Result<T, HostError> {
        std::thread::scope(|scope| {
            let visitor = scope.spawn(|| {
                enter(self)?;
                Ok(act())
            });
            visitor.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
        })
    }
}

impl NetNs {
    /// Runs `act` in this namespace on the calling thread, and comes back: `home` is where the thread is now. Much
    /// cheaper than [`NetNs::visit`]; only for `act`s of ours that are over at once.
    pub(crate) fn stay<T>(&self, home: &NetNs, act: impl FnOnce() -> T) -> Result<T, HostError> {
        enter(self)?;
        let _way_home = WayHome(home);
        Ok(act())
    }
}

/// Brings the thread back, also when a panic passes by.
struct WayHome<'a>(&'a NetNs);

impl Drop for WayHome<'_> {
    fn drop(&mut self) {
        if let Err(error) = enter(self.0) {
            // Whatever this thread did next would happen in a pod.
            eprintln!("cannot return from a pod's network namespace: {error}");
            std::process::abort();
        }
    }
}

fn enter(ns: &NetNs) -> Result<(), HostError> {
    rustix::thread::move_into_link_name_space(ns.file.as_fd(), Some(LinkNameSpaceType::Network))
        .map_err(|errno| failed(&ns.path, errno.into()))
}

impl AsRawFd for NetNs {
    fn as_raw_fd(&self) -> RawFd {
        self.file.as_raw_fd()
    }
}

impl PodNamespace {
    /// Opens a pod's namespace. The node's own is refused: wiring it would take the node off its network.
    pub fn open(path: &Path) -> Result<PodNamespace, HostError> {
        PodNamespace::open_from(path, &Arc::new(NetNs::current()?))
    }

    /// The same from a namespace that is known to be the calling thread's.
    pub(crate) fn open_from(path: &Path, home: &Arc<NetNs>) -> Result<PodNamespace, HostError> {
        let ns = NetNs::open(path)?;
        if ns.is_same(home)? {
            return Err(unfit(path, "it is the node's own, not a pod's"));
        }
        let netlink = ns.stay(home, Netlink::open_in_pod)??;
        Ok(PodNamespace { ns, netlink, home: Arc::clone(home) })
    }

    /// Runs `act` in the pod's namespace on the calling thread, and comes back.
    pub(crate) fn stay<T>(&self, act: impl FnOnce() -> T) -> Result<T, HostError> {
        self.ns.stay(&self.home, act)
    }

    pub fn path(&self) -> &Path {
        self.ns.path()
    }
}

fn failed(path: &Path, source: io::Error) -> HostError {
    HostError::Namespace { path: path.to_owned(), problem: None, source: Some(source) }
}

fn unfit(path: &Path, problem: &'static str) -> HostError {
    HostError::Namespace { path: path.to_owned(), problem: Some(problem), source: None }
}

#[cfg(test)]
pub(crate) mod tests {
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
        assert!(ns.stay(&NetNs::current().unwrap(), || ()).is_err());
    }

    #[test]
    fn a_stay_ends_also_in_a_panic() {
        if !rustix::process::geteuid().is_root() {
            testkit::skip("a_stay_ends_also_in_a_panic", "it needs root, to make a network namespace");
            return;
        }
        let home = NetNs::current().unwrap();
        let elsewhere = new_namespace();
        let is_home = || NetNs::current().unwrap().is_same(&home).unwrap();
        assert!(!elsewhere.stay(&home, is_home).unwrap());
        assert!(is_home());
        let panicking = std::panic::AssertUnwindSafe(|| elsewhere.stay(&home, || panic!("as asked for")));
        let _ = std::panic::catch_unwind(panicking).unwrap_err();
        assert!(is_home());
    }

    /// A namespace without a name: it lives as long as it is held open.
    #[expect(unsafe_code, reason = "leaving a namespace is marked unsafe")]
    pub(crate) fn new_namespace() -> NetNs {
        let make = || {
            // SAFETY: only the network namespace of this thread changes, and the thread ends at once.
            unsafe { rustix::thread::unshare_unsafe(rustix::thread::UnshareFlags::NEWNET) }.unwrap();
            NetNs::current().unwrap()
        };
        std::thread::spawn(make).join().unwrap()
    }
}
