//! What the kernel can refuse, and on which object.

use std::io;
use std::path::PathBuf;

use ipnet::IpNet;
use model::DeviceName;
use plan::Difference;

#[derive(Debug, thiserror::Error)]
pub enum HostError {
    /// The kernel said no to one request. `detail` is its own explanation, where it gave one.
    #[error("cannot {what}{}", .detail.as_ref().map(|text| format!(" ({text})")).unwrap_or_default())]
    Refused {
        what: String,
        detail: Option<String>,
        #[source]
        source: io::Error,
    },

    /// Another link got the name first. Nothing was left behind.
    #[error("device name {device} is taken")]
    NameTaken { device: DeviceName },

    /// Something of a stranger is in the way. Nothing was changed.
    #[error("{difference}")]
    Foreign { difference: Difference },

    /// The kernel accepted everything, and still holds something else.
    #[error("the kernel does not hold what was asked for: {difference}")]
    ReadBack { difference: Difference },

    /// A stranger's route comes first, and leaves no place before it.
    #[error("no route to {destination} can come before one with metric {metric}")]
    Outranked { destination: IpNet, metric: u32 },

    /// It takes a device that is not there.
    #[error("the device for it is not there: {what}")]
    NoDevice { what: String },

    /// `problem` is in nft's own words.
    #[error("nft {what}: {problem}")]
    Nft { what: String, problem: String },

    /// Nothing else keeps a pod from sending as somebody else.
    #[error("cannot load the nftables rules that restrict pods to their own addresses")]
    PodGuard {
        #[source]
        source: Box<HostError>,
    },

    #[error("cannot {what} over netlink")]
    Socket {
        what: String,
        #[source]
        source: io::Error,
    },

    #[error("the kernel did not answer when asked to {what}")]
    NoAnswer { what: String },

    #[error("the kernel's answer cannot be read when asked to {what}: {problem}")]
    Malformed { what: String, problem: String },

    /// A pod can make as many as it likes; nobody reads them all.
    #[error("cannot {what}: there are more than {max}")]
    TooMany { what: String, max: usize },

    #[error("cannot use network namespace {}{}", .path.display(), .problem.map(|text| format!(": {text}")).unwrap_or_default())]
    Namespace {
        path: PathBuf,
        problem: Option<&'static str>,
        #[source]
        source: Option<io::Error>,
    },

    /// A piece of kernel work panicked, or its thread could not be started.
    #[error("the thread for kernel work did not do it")]
    Worker {
        #[source]
        source: Option<io::Error>,
    },

    #[error("cannot {verb} kernel setting {path}")]
    Sysctl {
        verb: &'static str,
        path: String,
        #[source]
        source: io::Error,
    },
}

impl HostError {
    /// The kernel's error number, if it was the kernel that refused.
    pub fn errno(&self) -> Option<i32> {
        match self {
            HostError::Refused { source, .. } => source.raw_os_error(),
            _ => None,
        }
    }

    /// Something of that kind is there already, and was not replaced.
    pub fn is_in_the_way(&self) -> bool {
        self.errno() == Some(rustix::io::Errno::EXIST.raw_os_error())
    }

    /// The namespace is not there (any more).
    pub fn is_namespace_gone(&self) -> bool {
        let HostError::Namespace { source: Some(source), .. } = self else { return false };
        source.kind() == io::ErrorKind::NotFound
    }
}
