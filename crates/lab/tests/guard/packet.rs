//! Packets as somebody with a raw socket makes them: any source, any port, anything inside.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// The node's end of every pod's device.
const NODE_MAC: [u8; 6] = [0xee; 6];
const ANY_MAC: [u8; 6] = [2, 0, 0, 0, 0, 1];
const UDP: u8 = 17;
pub(crate) const VXLAN_PORT: u16 = 4789;
const VNI: u32 = 4096;

/// UDP. The source port is what it is recognised by where it arrives.
#[derive(Clone, Debug)]
pub(crate) struct Datagram {
    pub(crate) from: IpAddr,
    pub(crate) to: IpAddr,
    pub(crate) source_port: u16,
    pub(crate) port: u16,
    pub(crate) payload: Vec<u8>,
}

impl Datagram {
    pub(crate) fn new(from: IpAddr, to: IpAddr, source_port: u16, port: u16) -> Datagram {
        Datagram { from, to, source_port, port, payload: b"hello".to_vec() }
    }

    /// Another one inside, as in a tunnel, for the device with this hardware address.
    pub(crate) fn carrying(self, inner: &Datagram, mac: [u8; 6]) -> Datagram {
        let vni = VNI.to_be_bytes();
        let header = [8, 0, 0, 0, vni[1], vni[2], vni[3], 0];
        let payload = [&header[..], &ethernet(mac, inner)].concat();
        Datagram { port: VXLAN_PORT, payload, ..self }
    }

    /// What goes over a pod's cable.
    pub(crate) fn frame(&self) -> Vec<u8> {
        ethernet(NODE_MAC, self)
    }

    /// In two pieces of IPv6. The ports are in the first one only; the kernel takes none that ends before them.
    pub(crate) fn fragments(&self) -> Vec<Vec<u8>> {
        const FRAGMENT: u8 = 44;
        const HEADER: usize = 8;
        let (IpAddr::V6(from), IpAddr::V6(to)) = (self.from, self.to) else { panic!("only of IPv6") };
        let datagram = self.udp();
        let (first, rest) = datagram.split_at(HEADER);
        let piece = |place: u16, part: &[u8]| {
            let header =
                [&[UDP, 0][..], &place.to_be_bytes(), &self.source_port.to_be_bytes(), &[0, 7]].concat();
            framed(NODE_MAC, &v6(from, to, FRAGMENT, &[&header, part].concat()), false)
        };
        // The lowest bit says that more follows; the rest is where it belongs.
        vec![piece(1, first), piece(8, rest)]
    }

    fn udp(&self) -> Vec<u8> {
        let length = u16::try_from(8 + self.payload.len()).unwrap();
        let mut bytes = [self.source_port, self.port, length, 0].map(u16::to_be_bytes).concat();
        bytes.extend(&self.payload);
        let addresses = match (self.from, self.to) {
            (IpAddr::V4(from), IpAddr::V4(to)) => [from.octets(), to.octets()].concat(),
            (IpAddr::V6(from), IpAddr::V6(to)) => [from.octets(), to.octets()].concat(),
            _ => panic!("from one version to the other"),
        };
        let pseudo = [&addresses[..], &[0, UDP], &length.to_be_bytes()].concat();
        let sum = match checksum(&[&pseudo[..], &bytes].concat()) {
            0 => u16::MAX,
            sum => sum,
        };
        bytes[6..8].copy_from_slice(&sum.to_be_bytes());
        bytes
    }

    fn ip(&self) -> Vec<u8> {
        match (self.from, self.to) {
            (IpAddr::V4(from), IpAddr::V4(to)) => v4(from, to, UDP, &self.udp()),
            (IpAddr::V6(from), IpAddr::V6(to)) => v6(from, to, UDP, &self.udp()),
            _ => panic!("from one version to the other"),
        }
    }
}

fn ethernet(to: [u8; 6], datagram: &Datagram) -> Vec<u8> {
    framed(to, &datagram.ip(), datagram.to.is_ipv4())
}

fn framed(to: [u8; 6], packet: &[u8], is_ipv4: bool) -> Vec<u8> {
    let kind: u16 = if is_ipv4 { 0x0800 } else { 0x86dd };
    [&to[..], &ANY_MAC, &kind.to_be_bytes(), packet].concat()
}

/// IPv4 in IPv4, as a tunnel of IPIP has it.
pub(crate) fn ipip_frame(from: Ipv4Addr, to: Ipv4Addr, inner: &Datagram) -> Vec<u8> {
    framed(NODE_MAC, &v4(from, to, 4, &inner.ip()), true)
}

fn v4(from: Ipv4Addr, to: Ipv4Addr, protocol: u8, payload: &[u8]) -> Vec<u8> {
    let length = u16::try_from(20 + payload.len()).unwrap().to_be_bytes();
    let mut header =
        [&[0x45, 0][..], &length, &[0, 7, 0, 0, 64, protocol, 0, 0], &from.octets(), &to.octets()].concat();
    let sum = checksum(&header).to_be_bytes();
    header[10..12].copy_from_slice(&sum);
    header.extend(payload);
    header
}

fn v6(from: Ipv6Addr, to: Ipv6Addr, next: u8, payload: &[u8]) -> Vec<u8> {
    let length = u16::try_from(payload.len()).unwrap().to_be_bytes();
    [&[0x60, 0, 0, 0][..], &length, &[next, 64], &from.octets(), &to.octets(), payload].concat()
}

/// A claim to have an address: an answer of ARP that nobody asked for.
pub(crate) fn arp_claim(address: Ipv4Addr, mac: [u8; 6]) -> Vec<u8> {
    let answer =
        [&[0, 1, 8, 0, 6, 4, 0, 2][..], &mac, &address.octets(), &NODE_MAC, &address.octets()].concat();
    [&NODE_MAC[..], &mac, &[8, 6], &answer].concat()
}

/// The same for IPv6: a neighbour advertisement that overrides.
pub(crate) fn neighbour_claim(from: Ipv6Addr, to: Ipv6Addr, address: Ipv6Addr, mac: [u8; 6]) -> Vec<u8> {
    const ICMPV6: u8 = 58;
    let mut message = [&[136, 0, 0, 0, 0x60, 0, 0, 0][..], &address.octets(), &[2, 1], &mac].concat();
    let length = u32::try_from(message.len()).unwrap().to_be_bytes();
    let pseudo = [&from.octets()[..], &to.octets(), &length, &[0, 0, 0, ICMPV6], &message].concat();
    let sum = checksum(&pseudo).to_be_bytes();
    message[2..4].copy_from_slice(&sum);
    let mut packet = v6(from, to, ICMPV6, &message);
    // Neighbours count only from right next door.
    packet[7] = 255;
    framed(NODE_MAC, &packet, false)
}

fn checksum(bytes: &[u8]) -> u16 {
    let words = bytes.chunks(2).map(|pair| u32::from(pair[0]) << 8 | u32::from(*pair.get(1).unwrap_or(&0)));
    let mut sum: u32 = words.sum();
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    !(sum as u16)
}
