//! Who a pod's network belongs to: the sandbox, never the pod's name.
//!
//! Two sandboxes of one pod name live side by side whenever a pod is recreated and the runtime is late with the
//! old one's DEL. Whatever is released or removed is therefore compared with the sandbox first.

use std::fmt;

use sha1::{Digest, Sha1};

use crate::HandleId;
use crate::device::{DeviceName, Mac};

/// The kernel keeps at most 255 bytes of a link's alias, a closing zero among them.
const ALIAS_MAX: usize = 254;
const ALIAS_PREFIX: &str = "plumb/";
/// As long as the other one, because the longest alias fills what the kernel keeps.
const DETACHED_PREFIX: &str = "plumb-";

/// One attachment of one sandbox to one network.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Sandbox {
    network: String,
    container_id: String,
    interface: String,
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SandboxError {
    #[error("{what} {text:?} must be letters, digits, `_`, `.` or `-`, and start with a letter or digit")]
    Word { what: &'static str, text: String },
    #[error("interface name {text:?} {problem}")]
    Interface { text: String, problem: &'static str },
    #[error("network name and container ID are too long: together {length} bytes, at most {max}")]
    TooLong { length: usize, max: usize },
}

impl Sandbox {
    /// The rules are those of the CNI specification, and of the kernel for the interface name.
    pub fn new(network: &str, container_id: &str, interface: &str) -> Result<Sandbox, SandboxError> {
        check_word("network name", network)?;
        check_word("container ID", container_id)?;
        check_interface(interface)?;
        let max = ALIAS_MAX - ALIAS_PREFIX.len() - "//".len() - DeviceName::MAX;
        let length = network.len() + container_id.len();
        if length > max {
            return Err(SandboxError::TooLong { length, max });
        }
        Ok(Sandbox {
            network: network.to_owned(),
            container_id: container_id.to_owned(),
            interface: interface.to_owned(),
        })
    }

    pub fn network(&self) -> &str {
        &self.network
    }

    pub fn container_id(&self) -> &str {
        &self.container_id
    }

    /// The interface's name inside the pod.
    pub fn interface(&self) -> &str {
        &self.interface
    }

    /// The IPAM handle. All attachments of one container to one network share it.
    pub fn handle(&self) -> HandleId {
        HandleId::of_sandbox(&self.network, &self.container_id)
    }

    /// What the host end of the veth carries as its alias: the fence around every link of ours.
    pub fn alias(&self) -> String {
        format!("{ALIAS_PREFIX}{}/{}/{}", self.network, self.container_id, self.interface)
    }

    /// The alias of a link that was this sandbox's and only waits for its removal.
    pub fn detached_alias(&self) -> String {
        self.alias().replacen(ALIAS_PREFIX, DETACHED_PREFIX, 1)
    }

    /// Reads what [`Sandbox::alias`] wrote; `None` for any other alias.
    pub fn from_alias(alias: &str) -> Option<Sandbox> {
        Sandbox::from_words(alias.strip_prefix(ALIAS_PREFIX)?)
    }

    /// Reads what [`Sandbox::detached_alias`] wrote; `None` for any other alias.
    pub fn from_detached_alias(alias: &str) -> Option<Sandbox> {
        Sandbox::from_words(alias.strip_prefix(DETACHED_PREFIX)?)
    }

    fn from_words(text: &str) -> Option<Sandbox> {
        let mut words = text.split('/');
        let (network, container_id, interface) = (words.next()?, words.next()?, words.next()?);
        if words.next().is_some() {
            return None;
        }
        Sandbox::new(network, container_id, interface).ok()
    }

    /// The name of the host end when Calico's name for the pod is held by another sandbox.
    pub fn device_name(&self, prefix: &str) -> Option<DeviceName> {
        let hex: String = self.digest().iter().map(|byte| format!("{byte:02x}")).collect();
        DeviceName::new(&format!("{prefix}{}", &hex[..DeviceName::HASH_DIGITS])).ok()
    }

    /// The hardware address of the pod's end: the same each time it is asked for, so that the endpoint record can
    /// be complete before there is a link.
    pub fn mac(&self) -> Mac {
        let digest = self.digest();
        // 0x02 set: locally administered; 0x01 clear: one station.
        Mac([(digest[0] & 0xfc) | 0x02, digest[1], digest[2], digest[3], digest[4], digest[5]])
    }

    fn digest(&self) -> [u8; 20] {
        Sha1::digest(self.alias()).into()
    }
}

impl fmt::Display for Sandbox {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "sandbox {} ({} on network {})", self.container_id, self.interface, self.network)
    }
}

fn check_word(what: &'static str, text: &str) -> Result<(), SandboxError> {
    let starts_well = text.starts_with(|first: char| first.is_ascii_alphanumeric());
    let is_allowed = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'.' | b'-');
    if starts_well && text.bytes().all(is_allowed) {
        Ok(())
    } else {
        Err(SandboxError::Word { what, text: text.to_owned() })
    }
}

fn check_interface(text: &str) -> Result<(), SandboxError> {
    DeviceName::new(text)
        .map(|_| ())
        .map_err(|error| SandboxError::Interface { text: error.text, problem: error.problem })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn handle_and_alias_name_the_sandbox() {
        let sandbox = Sandbox::new("k8s-pod-network", "0f3a", "eth0").unwrap();
        assert_eq!(sandbox.handle(), "k8s-pod-network.0f3a");
        assert_eq!(sandbox.alias(), "plumb/k8s-pod-network/0f3a/eth0");
        assert_eq!(Sandbox::from_alias(&sandbox.alias()), Some(sandbox.clone()));
        assert_eq!(sandbox.detached_alias(), "plumb-k8s-pod-network/0f3a/eth0");
        assert_eq!(Sandbox::from_alias(&sandbox.detached_alias()), None);
        assert_eq!(Sandbox::from_detached_alias(&sandbox.alias()), None);
    }

    #[test]
    fn strange_words_are_refused() {
        for (network, container, interface) in [
            ("", "a", "eth0"),
            ("n", "", "eth0"),
            ("n", "a/b", "eth0"),
            ("-n", "a", "eth0"),
            ("n", "a", ""),
            ("n", "a", "sixteen-letters-"),
            ("n", "a", "eth/0"),
            ("n", "a", ".."),
            ("n", "a", "eth 0"),
        ] {
            assert!(
                Sandbox::new(network, container, interface).is_err(),
                "{network} {container} {interface}"
            );
        }
        let long = "x".repeat(250);
        assert!(matches!(Sandbox::new("n", &long, "eth0"), Err(SandboxError::TooLong { .. })));
    }

    #[test]
    fn the_longest_sandbox_still_fits_an_alias() {
        let sandbox = Sandbox::new(&"n".repeat(100), &"c".repeat(131), "fifteen-letters").unwrap();
        assert_eq!(sandbox.alias().len(), ALIAS_MAX);
    }

    #[test]
    fn each_attachment_has_its_own_device_and_address() {
        let first = Sandbox::new("net", "c1", "eth0").unwrap();
        let second = Sandbox::new("net", "c1", "net1").unwrap();
        assert_ne!(first.device_name("cali"), second.device_name("cali"));
        assert_ne!(first.mac(), second.mac());
        assert_eq!(first.mac().0[0] & 0x03, 0x02);
    }

    proptest! {
        #[test]
        fn any_alias_can_be_read(alias in ".{0,300}") {
            if let Some(sandbox) = Sandbox::from_alias(&alias) {
                prop_assert_eq!(sandbox.alias(), alias.clone());
            }
            if let Some(sandbox) = Sandbox::from_detached_alias(&alias) {
                prop_assert_eq!(sandbox.detached_alias(), alias);
            }
        }

        #[test]
        fn aliases_round_trip(
            network in "[a-z0-9][a-z0-9_.-]{0,20}",
            container in "[a-f0-9]{1,64}",
            interface in "[a-z][a-z0-9]{0,14}",
        ) {
            let sandbox = Sandbox::new(&network, &container, &interface).unwrap();
            prop_assert_eq!(Sandbox::from_alias(&sandbox.alias()), Some(sandbox.clone()));
            prop_assert_eq!(Sandbox::from_detached_alias(&sandbox.detached_alias()), Some(sandbox));
        }
    }
}
