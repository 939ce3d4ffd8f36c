//! The ID of a handle, and what it tells about the owner.
//!
//! | owner | ID |
//! |---|---|
//! | a sandbox | `NETWORK.CONTAINER`; in Kubernetes the container ID has 64 hex digits. Old ones are the container ID alone |
//! | a pod, as Calico's plugin wrote it in 2017 | `NAMESPACE.POD` |
//! | a virtual machine | `NETWORK.vmi.NAMESPACE.NAME` |
//! | a node's tunnel | `DEVICE-tunnel-addr-NODE`; names of nodes contain dots |
//! | a node's gateway for another plugin | `gateway-NETWORK-NODE` |
//! | a service, a reservation | words without a dot |

#![cfg_attr(not(test), deny(clippy::string_slice, clippy::indexing_slicing))]

use std::sync::Arc;

use crate::word::plain_word;

/// Any text that stands where a handle is named.
#[derive(Clone, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct HandleId(Arc<str>);

plain_word!(HandleId);

const GATEWAY: &str = "gateway-";
/// Between the device and the node in the handle of a tunnel's address.
const TUNNEL: &str = "-tunnel-addr-";

/// Fewer hex digits than any runtime's ID has, and more than the name of a pod would have.
const DIGITS_OF_ID: usize = 32;

impl HandleId {
    /// Holds the addresses that Windows does not give to pods.
    pub const WINDOWS_RESERVED: &str = "windows-reserved-ipam-handle";

    /// In the order of the handles.
    pub const TUNNEL_DEVICES: [&str; 5] = ["ipip", "vxlan", "vxlan-v6", "wireguard", "wireguard-v6"];

    pub fn of_sandbox(network: &str, container_id: &str) -> HandleId {
        HandleId::from(format!("{network}.{container_id}"))
    }

    /// Of a node's own address in a block that another network plugin uses.
    pub fn of_gateway(network: &str, node: &str) -> HandleId {
        HandleId::from(format!("{GATEWAY}{network}-{node}"))
    }

    pub fn of_tunnel(device: &str, node: &str) -> HandleId {
        HandleId::from(format!("{device}{TUNNEL}{node}"))
    }

    /// The network and the container ID; `None` if the handle cannot be that of a sandbox.
    ///
    /// CNI allows a caller any container ID, so a handle by a pod's name has this form, too. It names a sandbox that does not exist:
    /// that is harmless in a comparison with sandboxes that do. Use [`HandleId::certain_container`] to ask whether a sandbox is gone.
    pub fn sandbox(&self) -> Option<(&str, &str)> {
        let (network, container) = self.0.rsplit_once('.')?;
        let is_either_empty = network.is_empty() || container.is_empty();
        (!is_either_empty && !self.is_of_other()).then_some((network, container))
    }

    /// The container ID of [`HandleId::sandbox`], or a handle that is nothing but an ID.
    pub fn container(&self) -> Option<&str> {
        match self.sandbox() {
            Some((_, container)) => Some(container),
            None => Some(&*self.0).filter(|text| is_id(text)),
        }
    }

    /// The container ID, unless it could be a part of a name: no runtime runs that, which proves nothing.
    pub fn certain_container(&self) -> Option<&str> {
        self.container().filter(|_| !self.is_by_name())
    }

    /// The network, if the container ID is one of a Kubernetes runtime.
    pub fn kubernetes_network(&self) -> Option<&str> {
        self.sandbox()
            .filter(|(_, container)| container.len() == 64 && is_hex(container))
            .map(|(network, _)| network)
    }

    pub fn is_windows_reserved(&self) -> bool {
        *self == *HandleId::WINDOWS_RESERVED
    }

    /// `NAMESPACE.POD`, without anything of a sandbox.
    pub fn is_by_name(&self) -> bool {
        self.pod().is_some()
    }

    /// The namespace and the name of the pod, if the handle is by its name.
    pub fn pod(&self) -> Option<(&str, &str)> {
        let (namespace, name) = self.0.split_once('.')?;
        // Nearly all handles are of sandboxes, so that is asked first.
        if is_id(name.rsplit('.').next().unwrap_or(name)) {
            return None;
        }
        (!self.is_of_other() && is_label(namespace) && name.split('.').all(is_label))
            .then_some((namespace, name))
    }

    pub fn is_of_tunnel(&self) -> bool {
        let (start, _) = self.0.split_once('.').unwrap_or((&self.0, ""));
        start.contains(TUNNEL)
    }

    /// A tunnel's, a gateway's or a virtual machine's.
    fn is_of_other(&self) -> bool {
        let rest = self.0.split_once('.').map_or("", |(_, rest)| rest);
        let is_of_gateway = || self.0.starts_with(GATEWAY) && !is_id(rest.rsplit('.').next().unwrap_or(rest));
        rest.starts_with("vmi.") || rest.starts_with("vm.") || self.is_of_tunnel() || is_of_gateway()
    }
}

fn is_id(text: &str) -> bool {
    text.len() >= DIGITS_OF_ID && is_hex(text)
}

fn is_hex(text: &str) -> bool {
    text.bytes().all(|byte| byte.is_ascii_hexdigit())
}

fn is_label(text: &str) -> bool {
    !text.is_empty()
        && text.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-')
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn names_are_told_from_sandboxes_and_tunnels() {
        for named in
            ["lijiaob.etcd1-0", "kube-system.kubernetes-dashboard-2069275773-iun7h", "default.web.example"]
        {
            let handle = HandleId::from(named);
            assert_eq!(handle.pod(), named.split_once('.'), "{named}");
            assert_eq!(handle.certain_container(), None, "{named}");
        }
        let id = format!("k8s-pod-network.{}", "0a".repeat(32));
        for other in [
            id.as_str(),
            "ipip-tunnel-addr-node.example",
            "vxlan-v6-tunnel-addr-a.b",
            "windows-reserved-ipam-handle",
            "lb-default-web",
            "k8s-pod-network.vmi.web",
            "",
            ".",
        ] {
            assert!(!HandleId::from(other).is_by_name(), "{other}");
        }
    }

    #[test]
    fn only_what_can_be_a_sandbox_has_one() {
        let id = "0a".repeat(32);
        let handle = HandleId::of_sandbox("k8s-pod-network", &id);
        assert_eq!(handle.sandbox(), Some(("k8s-pod-network", id.as_str())));
        assert_eq!(handle.certain_container(), Some(id.as_str()));
        assert_eq!(handle.kubernetes_network(), Some("k8s-pod-network"));
        // CNI allows networks with dots and IDs of any kind.
        assert_eq!(HandleId::from("my.net.Cnitool_1").certain_container(), Some("Cnitool_1"));
        assert_eq!(HandleId::from("net.c1").sandbox(), Some(("net", "c1")));
        assert_eq!(HandleId::from("net.c1").kubernetes_network(), None);
        let machine = format!("net.vmi.{id}");
        let gateway = HandleId::of_gateway("net", "node.example.com");
        assert_eq!((gateway.sandbox(), gateway.pod()), (None, None));
        assert_eq!(HandleId::of_sandbox("gateway-net", &id).certain_container(), Some(id.as_str()));
        for other in
            ["vxlan-tunnel-addr-a.example.com", "net.vmi.shop.db", machine.as_str(), "net.", ".c1", ""]
        {
            assert_eq!(HandleId::from(other).sandbox(), None, "{other}");
        }
        let bare = HandleId::from(id.as_str());
        assert_eq!((bare.sandbox(), bare.certain_container()), (None, Some(id.as_str())));
        let tunnel = HandleId::of_tunnel("vxlan", &format!("node.{id}"));
        assert_eq!((tunnel.container(), tunnel.pod()), (None, None));
    }

    proptest! {
        #[test]
        fn any_text_is_kept_as_it_is(text in "[a-z0-9.]{0,20}\\PC{0,20}") {
            let handle = HandleId::from(text.as_str());
            let json = serde_json::to_string(&handle).unwrap();
            prop_assert_eq!(&json, &serde_json::to_string(&text).unwrap());
            prop_assert_eq!(&serde_json::from_str::<HandleId>(&json).unwrap(), &handle);
            if let Some((network, container)) = handle.sandbox() {
                prop_assert_eq!(HandleId::of_sandbox(network, container), handle.clone());
            }
            prop_assert!(handle.certain_container().is_none() || !handle.is_by_name());
        }
    }
}
