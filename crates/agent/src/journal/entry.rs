//! One attachment, in memory and on disk.

use std::path::PathBuf;

use ipnet::IpNet;
use model::{DeviceName, Sandbox};
use plan::Attachment;
use serde::{Deserialize, Serialize};

/// Increased when an older agent could misread an entry.
const VERSION: u32 = 1;

/// A journal entry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Entry {
    pub(crate) attachment: Attachment,
    /// The path of the pod's namespace, from the runtime.
    pub(crate) netns: PathBuf,
    /// Namespace and name, if it is a pod.
    pub(crate) pod: Option<(String, String)>,
}

/// The form on disk.
#[derive(Debug, Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
struct Written {
    version: u32,
    network: String,
    container_id: String,
    interface: String,
    netns: PathBuf,
    pod: Option<(String, String)>,
    device: String,
    mac: String,
    mtu: u32,
    addresses: Vec<std::net::IpAddr>,
    pod_forwards: bool,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pod_routes: Vec<String>,
}

impl Entry {
    pub(super) fn encode(&self) -> Vec<u8> {
        let Attachment { sandbox, device, mac, mtu, addresses, pod_forwards, pod_routes } = &self.attachment;
        let written = Written {
            version: VERSION,
            network: sandbox.network().to_owned(),
            container_id: sandbox.container_id().to_owned(),
            interface: sandbox.interface().to_owned(),
            netns: self.netns.clone(),
            pod: self.pod.clone(),
            device: device.to_string(),
            mac: mac.to_string(),
            mtu: *mtu,
            addresses: addresses.clone(),
            pod_forwards: *pod_forwards,
            pod_routes: pod_routes.iter().map(ToString::to_string).collect(),
        };
        serde_json::to_vec(&written).expect("strings and numbers can be encoded")
    }

    /// The error says what is wrong.
    pub(super) fn decode(content: &[u8]) -> Result<Entry, String> {
        let written: Written = serde_json::from_slice(content).map_err(|error| error.to_string())?;
        if written.version != VERSION {
            return Err(format!("version {} is not supported", written.version));
        }
        let sandbox = Sandbox::new(&written.network, &written.container_id, &written.interface)
            .map_err(|error| error.to_string())?;
        Ok(Entry {
            attachment: Attachment {
                sandbox,
                device: DeviceName::new(&written.device).map_err(|error| error.to_string())?,
                mac: written.mac.parse().map_err(|_| format!("{:?} is not a MAC address", written.mac))?,
                mtu: written.mtu,
                addresses: written.addresses,
                pod_forwards: written.pod_forwards,
                pod_routes: networks(&written.pod_routes)?,
            },
            netns: written.netns,
            pod: written.pod,
        })
    }
}

fn networks(texts: &[String]) -> Result<Vec<IpNet>, String> {
    texts.iter().map(|text| text.parse().map_err(|_| format!("{text:?} is not a network"))).collect()
}

#[cfg(test)]
pub(crate) mod tests {
    use proptest::prelude::*;

    use super::*;

    pub(crate) fn example(container: &str) -> Entry {
        let sandbox = Sandbox::new("net", container, "eth0").unwrap();
        Entry {
            attachment: Attachment {
                device: DeviceName::of_pod("cali", "shop", "web-0").unwrap(),
                mac: sandbox.mac(),
                sandbox,
                mtu: 1450,
                addresses: vec!["10.0.0.5".parse().unwrap(), "fd00::5".parse().unwrap()],
                pod_forwards: true,
                pod_routes: vec!["10.9.0.0/16".parse().unwrap()],
            },
            netns: "/run/netns/x".into(),
            pod: Some(("shop".to_owned(), "web-0".to_owned())),
        }
    }

    #[test]
    fn an_entry_comes_back_as_it_was() {
        let entry = example("c1");
        assert_eq!(Entry::decode(&entry.encode()), Ok(entry));
    }

    #[test]
    fn an_unreadable_entry_is_an_error() {
        let text = String::from_utf8(example("c1").encode()).unwrap();
        let newer = text.replace("\"version\":1", "\"version\":2");
        assert_eq!(Entry::decode(newer.as_bytes()), Err("version 2 is not supported".to_owned()));
        assert!(Entry::decode(text.replace("c1", "c/1").as_bytes()).is_err());
        assert!(Entry::decode(b"").is_err());
    }

    proptest! {
        #[test]
        fn any_content_can_be_looked_at(cut in 0usize..400, byte in any::<u8>()) {
            let mut content = example("c1").encode();
            if let Some(place) = content.get_mut(cut) {
                *place = byte;
            }
            let _ = Entry::decode(&content);
            content.truncate(cut);
            let _ = Entry::decode(&content);
        }
    }
}
