//! Names and labels of IPAM's custom resources.

use sha2::Sha256;
use sha3::{Digest as _, Sha3_256};

use crate::{AffinityOwner, Cidr, IpVersion};

/// Since v3.31 Calico finds the affinities of a node by these labels alone.
pub const HOSTNAME_HASH_LABEL: &str = "projectcalico.org/hostname-hash";
pub const AFFINITY_TYPE_LABEL: &str = "projectcalico.org/affinity-type";
pub const IP_VERSION_LABEL: &str = "projectcalico.org/ip-version";

/// The longest name that Kubernetes takes.
const LONGEST_NAME: usize = 252;
const HASH_DIGITS: usize = 11;

/// A network as custom resources are named by it: `10-244-7-64-26`.
pub(super) fn network_name(cidr: &Cidr) -> String {
    cidr.to_string().replace(['.', ':', '/'], "-")
}

/// The network that such a name is of. Five numbers are IPv4's: an IPv6 address without `::` has eight parts.
pub(super) fn network_of_name(name: &str) -> Option<Cidr> {
    let (address, length) = name.rsplit_once('-')?;
    let network = |separator: &str| format!("{}/{length}", address.replace('-', separator)).parse().ok();
    network(".").or_else(|| network(":")).filter(|network| network_name(network) == name)
}

/// The name of an affinity: the owner and the network. An owner whose name is too long is cut, and a hash tells it from others
/// that begin alike.
pub fn affinity_name(owner: &str, block: &Cidr) -> String {
    let network = network_name(block);
    let name = format!("{owner}-{network}");
    if name.len() <= LONGEST_NAME {
        return name;
    }
    let digest = Sha256::digest(format!("{owner}+{network}").as_bytes());
    let hash: String = digest.iter().map(|byte| format!("{byte:02x}")).collect();
    let room = LONGEST_NAME.saturating_sub(network.len() + HASH_DIGITS + 2);
    let cut: String = owner.chars().take(room).collect();
    format!("{cut}-{network}-{}", hash.chars().take(HASH_DIGITS).collect::<String>())
}

/// The labels by which the affinities of an owner are found.
pub fn affinity_labels(owner: &AffinityOwner, version: IpVersion) -> [(&'static str, String); 3] {
    let version = match version {
        IpVersion::V4 => "4",
        IpVersion::V6 => "6",
    };
    [
        (HOSTNAME_HASH_LABEL, hostname_hash(owner.name())),
        (AFFINITY_TYPE_LABEL, owner.type_word().to_owned()),
        (IP_VERSION_LABEL, version.to_owned()),
    ]
}

/// A node's name as the value of a label, which may be shorter than a node's name and has fewer characters to choose from.
fn hostname_hash(name: &str) -> String {
    base32(&Sha3_256::digest(name.as_bytes()))
}

/// The alphabet of RFC 4648, without padding.
fn base32(bytes: &[u8]) -> String {
    const ALPHABET: &[u8; 32] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZ234567";
    let digit = |bits: u32| char::from(ALPHABET[(bits & 31) as usize]);
    let mut text = String::with_capacity(bytes.len().div_ceil(5) * 8);
    let (mut bits, mut held) = (0_u32, 0);
    for byte in bytes {
        bits = bits << 8 | u32::from(*byte);
        held += 8;
        while held >= 5 {
            held -= 5;
            text.push(digit(bits >> held));
        }
    }
    if held > 0 {
        text.push(digit(bits << (5 - held)));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cidr(text: &str) -> Cidr {
        text.parse().unwrap()
    }

    #[test]
    fn names_are_calicos() {
        assert_eq!(network_name(&cidr("10.244.7.64/26")), "10-244-7-64-26");
        assert_eq!(network_name(&cidr("fd00:10:244::/122")), "fd00-10-244---122");
        assert_eq!(affinity_name("node-a", &cidr("10.244.7.64/26")), "node-a-10-244-7-64-26");
        let long = affinity_name(&"a".repeat(250), &cidr("10.0.0.0/26"));
        assert_eq!(long, format!("{}-10-0-0-0-26-8f7e6ea6753", "a".repeat(228)));
    }

    #[test]
    fn a_network_is_read_off_its_name() {
        for text in ["10.244.7.64/26", "0.0.0.0/0", "fd00:10:244::/122", "::/0", "1:2:3:4:5:6:7:8/128"] {
            assert_eq!(network_of_name(&network_name(&cidr(text))), Some(cidr(text)));
        }
        for name in ["", "x", "10-0-0-0", "10-0-0-1-26", "10-0-0-0-33", "010-0-0-0-26", "a-10-0-0-0-26"] {
            assert_eq!(network_of_name(name), None, "{name}");
        }
    }

    #[test]
    fn long_names_differ_where_only_their_ends_do() {
        let block = cidr("10.0.0.0/26");
        let names: Vec<String> =
            ["x", "y"].map(|end| affinity_name(&format!("{}{end}", "n".repeat(251)), &block)).to_vec();
        assert_ne!(names[0], names[1]);
        assert!(names.iter().all(|name| name.len() <= 253));
        let fits = "n".repeat(252 - "-10-0-0-0-26".len());
        assert_eq!(affinity_name(&fits, &block), format!("{fits}-10-0-0-0-26"));
    }

    #[test]
    fn labels_are_calicos() {
        let labels = affinity_labels(&AffinityOwner::Host("node-a".into()), IpVersion::V4);
        assert_eq!(labels[0].1, "PY3TQE2E3XMTETLM2MJO3UITKPFB27YUJ4T4E5XGPEJON3SM4QAA");
        assert_eq!(labels[1], (AFFINITY_TYPE_LABEL, "host".to_owned()));
        assert_eq!(labels[2], (IP_VERSION_LABEL, "4".to_owned()));
    }

    #[test]
    fn base32_is_that_of_rfc_4648() {
        for (plain, coded) in
            [("", ""), ("f", "MY"), ("fo", "MZXQ"), ("foo", "MZXW6"), ("foobar", "MZXW6YTBOI")]
        {
            assert_eq!(base32(plain.as_bytes()), coded);
        }
    }
}
