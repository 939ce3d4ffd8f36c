//! Who lives behind a pod's device: whoever is in the namespace where its other end lies.
//!
//! The kernel gives each namespace that a device leads to a number, and tells the number of any namespace that is shown to it. So the
//! namespaces of all ready sandboxes and of all processes are shown to it, one by one. A namespace that is neither's is held by a
//! forgotten file at most, and nobody lives there.

use std::collections::BTreeSet;
use std::fs;
use std::os::fd::AsRawFd as _;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use model::Sandbox;

use super::{NotDone, TaskContext, surprise};
use plan::Link;

use crate::messages;
use crate::netlink::message::{Attributes, read_u32};
use crate::netlink::numbers::*;
use crate::netlink::{Message, Request};
use crate::objects::LINK_HEADER;
use crate::{Host, HostError, NetNs};

/// `struct rtgenmsg`, and what it is filled up with.
const NAMESPACE_HEADER: usize = 4;

impl Host {
    /// Who it is, in words. A surprise if that cannot be told.
    pub(super) fn who_lives_behind(
        &mut self,
        link: &Link,
        context: &TaskContext,
    ) -> Result<Option<String>, NotDone> {
        let Some(ready) = &context.ready else {
            return surprise(format!("{} is left alone: the runtime cannot be asked whose it is", link.name));
        };
        let owner = link.alias.as_deref().and_then(Sandbox::from_alias);
        if let Some(owner) = owner
            && ready.iter().any(|sandbox| sandbox.container_id == owner.container_id())
        {
            return Ok(Some(format!("{owner} is ready")));
        }
        let Some(number) = self.namespace_behind(link)? else { return Ok(None) };
        for sandbox in ready {
            let Some(netns) = &sandbox.netns else { continue };
            if self.has_number(netns, number)? {
                return Ok(Some(format!("it leads to sandbox {}, which is ready", sandbox.container_id)));
            }
        }
        for (process, netns) in namespaces_of_processes() {
            if self.has_number(&netns, number)? {
                return Ok(Some(format!("process {process} lives where it leads")));
            }
        }
        Ok(None)
    }

    /// The kernel's number for the namespace of the other end; `None` if that is the node's own.
    fn namespace_behind(&mut self, link: &Link) -> Result<Option<u32>, HostError> {
        let found = self.netlink.get(messages::get_link_by_index(link.index))?;
        let mut attributes = Attributes::after(&found.body, LINK_HEADER);
        let number = attributes.find(|(kind, _)| *kind == IFLA_LINK_NETNSID);
        Ok(number.and_then(|(_, number)| read_u32(number, 0)))
    }

    /// One that is gone by now is nobody's.
    fn has_number(&mut self, netns: &Path, number: u32) -> Result<bool, HostError> {
        let Ok(namespace) = NetNs::open(netns) else { return Ok(false) };
        let message = Message::new(RTM_GETNSID, &[AF_UNSPEC, 0, 0, 0])
            .with(NETNSA_FD, &namespace.as_raw_fd().to_ne_bytes());
        let what = format!("ask for the number of namespace {}", netns.display());
        let answer = self.netlink.get(Request::new(what, message, 0))?;
        let mut attributes = Attributes::after(&answer.body, NAMESPACE_HEADER);
        let told = attributes.find(|(kind, _)| *kind == NETNSA_NSID);
        Ok(told.and_then(|(_, told)| read_u32(told, 0)) == Some(number))
    }
}

/// One process for each namespace in which there are any, and the path to that.
fn namespaces_of_processes() -> Vec<(String, PathBuf)> {
    let (mut seen, mut found) = (BTreeSet::new(), Vec::new());
    for entry in fs::read_dir("/proc").into_iter().flatten().flatten() {
        let name = entry.file_name().to_string_lossy().into_owned();
        if !name.bytes().all(|byte| byte.is_ascii_digit()) {
            continue;
        }
        let netns = entry.path().join("ns/net");
        // A process that ended in the meantime has none.
        let Ok(status) = fs::metadata(&netns) else { continue };
        if seen.insert((status.dev(), status.ino())) {
            found.push((name, netns));
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn processes_tell_where_they_live() {
        let found = namespaces_of_processes();
        let own = fs::metadata("/proc/self/ns/net").unwrap().ino();
        assert!(found.iter().any(|(_, netns)| fs::metadata(netns).is_ok_and(|status| status.ino() == own)));
        let places: BTreeSet<u64> =
            found.iter().filter_map(|(_, netns)| Some(fs::metadata(netns).ok()?.ino())).collect();
        assert!(places.len() <= found.len(), "each namespace once");
    }
}
