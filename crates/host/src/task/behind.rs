//! Who lives behind a pod's device: whoever is in the namespace where its other end lies.
//!
//! The kernel gives each namespace that a device leads to a number, and tells the number of any namespace that is shown to it. So the
//! namespaces of all ready sandboxes and of all processes are shown to it, one by one. A namespace that is neither's is held by a
//! forgotten file at most, and nobody lives there.

use std::collections::BTreeSet;
use std::fs;
use std::os::fd::AsRawFd as _;
use std::path::Path;

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
            let Some(path) = &sandbox.netns else { continue };
            let Some(netns) = open_if_there(path)? else { continue };
            if self.has_number(&netns, number)? {
                return Ok(Some(format!("it leads to sandbox {}, which is ready", sandbox.container_id)));
            }
        }
        for (process, netns) in namespaces_of_processes()? {
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

    fn has_number(&mut self, netns: &NetNs, number: u32) -> Result<bool, HostError> {
        let message = Message::new(RTM_GETNSID, &[AF_UNSPEC, 0, 0, 0])
            .with(NETNSA_FD, &netns.as_raw_fd().to_ne_bytes());
        let what = format!("ask for the number of namespace {}", netns.path().display());
        let answer = self.netlink.get(Request::new(what, message, 0))?;
        let mut attributes = Attributes::after(&answer.body, NAMESPACE_HEADER);
        let told = attributes.find(|(kind, _)| *kind == NETNSA_NSID);
        Ok(told.and_then(|(_, told)| read_u32(told, 0)) == Some(number))
    }
}

/// One process for each namespace in which there are any. The namespaces are held open: the process may end before
/// the kernel is asked, while another one goes on living there.
fn namespaces_of_processes() -> Result<Vec<(String, NetNs)>, HostError> {
    let (mut seen, mut found) = (BTreeSet::new(), Vec::new());
    for entry in fs::read_dir("/proc").into_iter().flatten().flatten() {
        let name = entry.file_name().to_string_lossy().into_owned();
        if !name.bytes().all(|byte| byte.is_ascii_digit()) {
            continue;
        }
        let Some(netns) = open_if_there(&entry.path().join("ns/net"))? else { continue };
        if seen.insert(netns.identity()?) {
            found.push((name, netns));
        }
    }
    Ok(found)
}

/// What is gone by now is nobody's. What is there and cannot be opened may be anybody's.
fn open_if_there(path: &Path) -> Result<Option<NetNs>, HostError> {
    match NetNs::open(path) {
        Ok(netns) => Ok(Some(netns)),
        Err(_) if fs::metadata(path).is_err() => Ok(None),
        Err(error) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn processes_tell_where_they_live() {
        let found = namespaces_of_processes().unwrap();
        let own = NetNs::current().unwrap();
        assert!(found.iter().any(|(_, netns)| netns.is_same(&own).unwrap()));
        let places: BTreeSet<_> = found.iter().map(|(_, netns)| netns.identity().unwrap()).collect();
        assert_eq!(places.len(), found.len(), "each namespace once");
    }
}
