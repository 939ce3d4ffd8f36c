//! Networks as Calico writes them: masked, in canonical text, with `-` for `/` inside keys.

#![cfg_attr(not(test), deny(clippy::string_slice, clippy::indexing_slicing))]

use std::fmt;
use std::net::IpAddr;
use std::str::FromStr;

use ipnet::IpNet;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum IpVersion {
    V4,
    V6,
}

impl IpVersion {
    pub fn of(address: IpAddr) -> IpVersion {
        if address.is_ipv4() { IpVersion::V4 } else { IpVersion::V6 }
    }

    /// The segment that stands for this family in a key.
    pub fn key_segment(self) -> &'static str {
        match self {
            IpVersion::V4 => "ipv4",
            IpVersion::V6 => "ipv6",
        }
    }

    /// How many bits an address of this family has.
    pub fn bits(self) -> u8 {
        match self {
            IpVersion::V4 => 32,
            IpVersion::V6 => 128,
        }
    }
}

/// A network with no host bits set. `10.0.0.1/24` is not one; `10.0.0.0/24` is.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Cidr(IpNet);

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CidrError {
    #[error("{0:?} is not an address with a prefix length, such as 10.244.0.0/16")]
    Syntax(String),
    #[error("{given} has host bits set; the network is {network}")]
    HostBits { given: String, network: Cidr },
}

impl Cidr {
    /// The network that `address` lies in.
    pub fn containing(address: IpAddr, prefix_len: u8) -> Option<Cidr> {
        IpNet::new(address, prefix_len).ok().map(|net| Cidr(net.trunc()))
    }

    /// The network of this one address.
    pub fn single(address: IpAddr) -> Cidr {
        Cidr(IpNet::from(address))
    }

    /// Like parsing, but host bits are cut off instead of refused, as Calico does with stored pools.
    pub fn parse_masked(text: &str) -> Result<Cidr, CidrError> {
        parse_net(text).map(|net| Cidr(net.trunc())).ok_or_else(|| CidrError::Syntax(text.to_owned()))
    }

    pub fn network(&self) -> IpAddr {
        self.0.network()
    }

    pub fn prefix_len(&self) -> u8 {
        self.0.prefix_len()
    }

    pub fn version(&self) -> IpVersion {
        IpVersion::of(self.0.network())
    }

    pub fn contains(&self, address: IpAddr) -> bool {
        self.0.contains(&address)
    }

    pub fn contains_cidr(&self, other: &Cidr) -> bool {
        self.0.contains(&other.0)
    }

    pub fn overlaps(&self, other: &Cidr) -> bool {
        self.contains_cidr(other) || other.contains_cidr(self)
    }

    /// As it stands in a key: `192.168.106.64-26`.
    pub fn key_segment(&self) -> String {
        self.to_string().replacen('/', "-", 1)
    }

    /// Reads what [`Cidr::key_segment`] wrote.
    pub fn from_key_segment(segment: &str) -> Result<Cidr, CidrError> {
        match segment.rsplit_once('-') {
            Some((address, prefix)) => format!("{address}/{prefix}").parse(),
            None => Err(CidrError::Syntax(segment.to_owned())),
        }
    }
}

/// An address with a prefix length. Leading zeros are refused in both, as Calico does: `010` is eight to some
/// readers and ten to others. (`IpNet`'s own parser takes them for decimal.)
pub(crate) fn parse_net(text: &str) -> Option<IpNet> {
    let (address, prefix_len) = text.split_once('/')?;
    let is_plain = prefix_len == "0" || prefix_len.starts_with(|first: char| matches!(first, '1'..='9'));
    if !is_plain {
        return None;
    }
    IpNet::new(address.parse().ok()?, prefix_len.parse().ok()?).ok()
}

impl FromStr for Cidr {
    type Err = CidrError;

    fn from_str(text: &str) -> Result<Cidr, CidrError> {
        let net = parse_net(text).ok_or_else(|| CidrError::Syntax(text.to_owned()))?;
        if net.addr() != net.network() {
            return Err(CidrError::HostBits { given: text.to_owned(), network: Cidr(net.trunc()) });
        }
        Ok(Cidr(net))
    }
}

impl fmt::Display for Cidr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl fmt::Debug for Cidr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl Serialize for Cidr {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Cidr {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Cidr, D::Error> {
        let text = String::deserialize(deserializer)?;
        text.parse().map_err(serde::de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn host_bits_are_refused_with_the_network_named() {
        let error = "10.0.0.1/24".parse::<Cidr>().unwrap_err();
        assert_eq!(error.to_string(), "10.0.0.1/24 has host bits set; the network is 10.0.0.0/24");
        assert!("10.0.0.0".parse::<Cidr>().is_err());
        assert!("10.0.0.0/33".parse::<Cidr>().is_err());
    }

    #[test]
    fn ambiguous_spellings_are_refused() {
        for text in
            ["010.0.0.0/8", "10.0.0.0/08", "10.0.0.0/+8", "10.0.0.0/", "10.0.0.0/00", "fd00::%eth0/64"]
        {
            assert_eq!(text.parse::<Cidr>(), Err(CidrError::Syntax(text.to_owned())));
            assert_eq!(Cidr::parse_masked(text), Err(CidrError::Syntax(text.to_owned())));
        }
        assert_eq!("0.0.0.0/0".parse::<Cidr>().unwrap().to_string(), "0.0.0.0/0");
        assert_eq!("FD00::/48".parse::<Cidr>().unwrap().to_string(), "fd00::/48");
    }

    #[test]
    fn key_segments_are_calicos() {
        for (text, segment) in
            [("192.168.106.64/26", "192.168.106.64-26"), ("fd00:10:244::40/122", "fd00:10:244::40-122")]
        {
            let cidr: Cidr = text.parse().unwrap();
            assert_eq!(cidr.key_segment(), segment);
            assert_eq!(Cidr::from_key_segment(segment).unwrap(), cidr);
        }
    }

    #[test]
    fn overlap_is_symmetric_and_families_never_overlap() {
        let cidr = |text: &str| text.parse::<Cidr>().unwrap();
        assert!(cidr("10.0.0.0/8").overlaps(&cidr("10.1.0.0/16")));
        assert!(cidr("10.1.0.0/16").overlaps(&cidr("10.0.0.0/8")));
        assert!(!cidr("10.0.0.0/16").overlaps(&cidr("10.1.0.0/16")));
        assert!(!cidr("0.0.0.0/0").overlaps(&cidr("::/0")));
    }
}
