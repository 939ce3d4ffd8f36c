//! Names and hardware addresses of network devices.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Deserializer, Serialize, Serializer};
use sha1::{Digest, Sha1};

use crate::IpVersion;

/// The name of a network device, as the kernel accepts it.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct DeviceName(String);

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("device name {text:?} {problem}")]
pub struct DeviceNameError {
    pub text: String,
    pub problem: &'static str,
}

/// What names of the host ends of pods start with: Felix's setting `interfacePrefix`, a list. Devices are named by the first.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DevicePrefixes(Vec<String>);

impl DevicePrefixes {
    /// From the text of the setting. Empty is unset.
    pub fn configured(text: &str) -> DevicePrefixes {
        let prefixes = text.split(',').map(str::trim).filter(|prefix| !prefix.is_empty());
        DevicePrefixes(prefixes.map(str::to_owned).collect())
    }

    /// The one that devices are named by.
    pub fn first(&self) -> &str {
        self.0.first().map_or(DeviceName::CALICO_PREFIX, String::as_str)
    }

    /// Whether the host end of a pod can have this name. Pods may have been made before the setting was.
    pub fn may_name(&self, device: &str) -> bool {
        let prefixes = self.0.iter().map(String::as_str).chain([DeviceName::CALICO_PREFIX]);
        prefixes.into_iter().any(|prefix| device.starts_with(prefix))
    }
}

impl DeviceName {
    /// The longest name the kernel accepts.
    pub const MAX: usize = 15;
    /// How many hex digits of a hash follow the prefix.
    pub(crate) const HASH_DIGITS: usize = 11;
    /// Calico's prefix for the host ends of pods.
    pub const CALICO_PREFIX: &str = "cali";

    pub fn new(text: &str) -> Result<DeviceName, DeviceNameError> {
        let problem = if text.is_empty() {
            "is empty"
        } else if text.len() > DeviceName::MAX {
            "has more than 15 bytes"
        } else if text == "." || text == ".." {
            "is a directory's name"
        } else if text.bytes().any(|byte| matches!(byte, b'/' | b':') || byte <= b' ' || byte >= 0x7f) {
            "has a character that the kernel refuses"
        } else {
            return Ok(DeviceName(text.to_owned()));
        };
        Err(DeviceNameError { text: text.to_owned(), problem })
    }

    /// Calico's name for the host end of a pod: it depends on the pod's name alone.
    pub fn of_pod(prefix: &str, namespace: &str, pod: &str) -> Result<DeviceName, DeviceNameError> {
        let digest: [u8; 20] = Sha1::digest(format!("{namespace}.{pod}")).into();
        let hex: String = digest.iter().map(|byte| format!("{byte:02x}")).collect();
        DeviceName::new(&format!("{prefix}{}", &hex[..DeviceName::HASH_DIGITS]))
    }

    /// Calico's name for the host end of a container that is no pod.
    pub fn of_container(prefix: &str, container_id: &str) -> Result<DeviceName, DeviceNameError> {
        let end = container_id.len().min(DeviceName::HASH_DIGITS);
        DeviceName::new(&format!("{prefix}{}", container_id.get(..end).unwrap_or_default()))
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for DeviceName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// A hardware address.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Mac(pub [u8; 6]);

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is not a hardware address such as ee:ee:ee:ee:ee:ee")]
pub struct MacError(String);

impl Mac {
    /// What Calico gives to the host end of every pod.
    pub const HOST_END: Mac = Mac([0xee; 6]);

    /// What Calico gives to a node's VXLAN device where the record of the node names none.
    pub fn of_vxlan(node: &str, version: IpVersion) -> Mac {
        let digest: [u8; 20] = match version {
            IpVersion::V4 => Sha1::digest(node).into(),
            IpVersion::V6 => Sha1::digest(format!("{node}-v6")).into(),
        };
        let [a, b, c, d, e, ..] = digest;
        Mac([0x66, a, b, c, d, e])
    }
}

impl fmt::Display for Mac {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [a, b, c, d, e, g] = self.0;
        write!(f, "{a:02x}:{b:02x}:{c:02x}:{d:02x}:{e:02x}:{g:02x}")
    }
}

impl fmt::Debug for Mac {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl FromStr for Mac {
    type Err = MacError;

    fn from_str(text: &str) -> Result<Mac, MacError> {
        let mut bytes = [0; 6];
        let mut words = text.split(':');
        for byte in &mut bytes {
            *byte = words.next().and_then(parse_byte).ok_or_else(|| MacError(text.to_owned()))?;
        }
        match words.next() {
            None => Ok(Mac(bytes)),
            Some(_) => Err(MacError(text.to_owned())),
        }
    }
}

impl Serialize for Mac {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Mac {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Mac, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(serde::de::Error::custom)
    }
}

fn parse_byte(word: &str) -> Option<u8> {
    let is_hex = word.len() == 2 && word.bytes().all(|byte| byte.is_ascii_hexdigit());
    is_hex.then(|| u8::from_str_radix(word, 16).ok()).flatten()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn tunnels_have_calicos_hardware_addresses() {
        assert_eq!(Mac::of_vxlan("node-a", IpVersion::V4).to_string(), "66:07:02:c1:cc:60");
        assert_eq!(Mac::of_vxlan("node-a", IpVersion::V6).to_string(), "66:d4:d5:51:3d:42");
    }

    #[test]
    fn pod_devices_have_calicos_names() {
        let name = |namespace, pod| DeviceName::of_pod("cali", namespace, pod).unwrap().to_string();
        assert_eq!(name("default", "web-0"), "cali0d7763386da");
        assert_eq!(name("payments", "db-1"), "cali3a309e85f43");
        assert_eq!(name("lijiaob", "etcd1-0"), "cali9118ebbb10b");
        assert_eq!(DeviceName::of_container("cali", "0123456789abcdef").unwrap().as_str(), "cali0123456789a");
        assert!(DeviceName::of_pod("prefix-too-long", "default", "web-0").is_err());
    }

    proptest! {
        #[test]
        fn macs_round_trip(bytes: [u8; 6]) {
            prop_assert_eq!(Mac(bytes).to_string().parse(), Ok(Mac(bytes)));
        }

        #[test]
        fn any_text_can_be_tried(text in "\\PC{0,40}") {
            if let Ok(mac) = text.parse::<Mac>() {
                prop_assert_eq!(mac.to_string(), text.to_lowercase());
            }
            if let Ok(name) = DeviceName::new(&text) {
                prop_assert!(name.as_str().len() <= DeviceName::MAX);
            }
        }
    }
}
