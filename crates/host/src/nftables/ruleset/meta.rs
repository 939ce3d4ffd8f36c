//! The kernel's numbers for what rules of ours look at.

use model::IpVersion;
use policy::ruleset::{ConnectionStates, Device, Hook, LimitUnit, LogLevel, Rejection, SetKind, Side};

use crate::nftables::object::Register;

pub(super) const NFT_META_MARK: u32 = 3;
pub(super) const NFT_META_IIFNAME: u32 = 6;
pub(super) const NFT_META_OIFNAME: u32 = 7;
pub(super) const NFT_META_NFTRACE: u32 = 12;
pub(super) const NFT_META_NFPROTO: u32 = 15;
pub(super) const NFT_META_L4PROTO: u32 = 16;
pub(super) const NFT_CT_STATE: u32 = 0;
pub(super) const NFT_CT_STATUS: u32 = 2;
pub(super) const IPS_DST_NAT: u32 = 1 << 5;
pub(super) const NETWORK_HEADER: u32 = 1;
pub(super) const TRANSPORT_HEADER: u32 = 2;
pub(super) const EQUAL: u32 = 0;
pub(super) const UNEQUAL: u32 = 1;
/// The name of a device with zeros behind it.
pub(super) const IFNAMSIZ: usize = 16;
pub(super) const TYPE_IFNAME: u32 = 41;

/// Where every match puts its value. Those of several parts go on from there.
pub(super) const FIRST: Register = Register(0);

const TYPE_IPV4_ADDR: u32 = 7;
const TYPE_IPV6_ADDR: u32 = 8;
const TYPE_INET_PROTO: u32 = 12;
const TYPE_INET_SERVICE: u32 = 13;
/// How many bits `nft` has for each part of a concatenation.
const TYPE_BITS: u32 = 6;

const STATE_INVALID: u32 = 1;
const STATE_ESTABLISHED: u32 = 2;
const STATE_RELATED: u32 = 4;
const STATE_NEW: u32 = 8;
const STATE_UNTRACKED: u32 = 64;

pub(super) fn name_of(end: Device) -> u32 {
    match end {
        Device::Input => NFT_META_IIFNAME,
        Device::Output => NFT_META_OIFNAME,
    }
}

pub(super) fn device_of(key: u32) -> Option<Device> {
    [Device::Input, Device::Output].into_iter().find(|end| name_of(*end) == key)
}

/// `NFPROTO_IPV4` or `NFPROTO_IPV6`.
pub(super) fn family(version: IpVersion) -> u8 {
    match version {
        IpVersion::V4 => 2,
        IpVersion::V6 => 10,
    }
}

/// Where an address is in its header, and how long it is.
pub(super) fn address_place(version: IpVersion, side: Side) -> (u32, u32) {
    match (version, side) {
        (IpVersion::V4, Side::Source) => (12, 4),
        (IpVersion::V4, Side::Destination) => (16, 4),
        (IpVersion::V6, Side::Source) => (8, 16),
        (IpVersion::V6, Side::Destination) => (24, 16),
    }
}

pub(super) fn address_at(place: (u32, u32)) -> Option<(IpVersion, Side)> {
    let all =
        [IpVersion::V4, IpVersion::V6].into_iter().flat_map(|version| SIDES.map(|side| (version, side)));
    all.into_iter().find(|(version, side)| address_place(*version, *side) == place)
}

pub(super) const SIDES: [Side; 2] = [Side::Source, Side::Destination];

/// Where a port is in the header of any protocol that has ports.
pub(super) fn port_place(side: Side) -> (u32, u32) {
    match side {
        Side::Source => (0, 2),
        Side::Destination => (2, 2),
    }
}

pub(super) fn port_at(place: (u32, u32)) -> Option<Side> {
    SIDES.into_iter().find(|side| port_place(*side) == place)
}

pub(super) fn state_bits(states: ConnectionStates) -> u32 {
    let bit = |is_set: bool, bit: u32| if is_set { bit } else { 0 };
    bit(states.invalid, STATE_INVALID)
        | bit(states.established, STATE_ESTABLISHED)
        | bit(states.related, STATE_RELATED)
        | bit(states.new, STATE_NEW)
        | bit(states.untracked, STATE_UNTRACKED)
}

pub(super) fn states_of(bits: u32) -> Option<ConnectionStates> {
    let states = ConnectionStates {
        invalid: bits & STATE_INVALID != 0,
        established: bits & STATE_ESTABLISHED != 0,
        related: bits & STATE_RELATED != 0,
        new: bits & STATE_NEW != 0,
        untracked: bits & STATE_UNTRACKED != 0,
    };
    (state_bits(states) == bits).then_some(states)
}

const HOOKS: [Hook; 5] = [Hook::Prerouting, Hook::Input, Hook::Forward, Hook::Output, Hook::Postrouting];

/// `NF_INET_PRE_ROUTING` and so on.
pub(super) fn hook_number(hook: Hook) -> u32 {
    match hook {
        Hook::Prerouting => 0,
        Hook::Input => 1,
        Hook::Forward => 2,
        Hook::Output => 3,
        Hook::Postrouting => 4,
    }
}

pub(super) fn hook_of(number: u32) -> Option<Hook> {
    HOOKS.into_iter().find(|hook| hook_number(*hook) == number)
}

pub(super) fn seconds(unit: LimitUnit) -> u64 {
    match unit {
        LimitUnit::Second => 1,
        LimitUnit::Minute => 60,
        LimitUnit::Hour => 3_600,
        LimitUnit::Day => 86_400,
    }
}

pub(super) fn unit_of(found: u64) -> Option<LimitUnit> {
    let all = [LimitUnit::Second, LimitUnit::Minute, LimitUnit::Hour, LimitUnit::Day];
    all.into_iter().find(|unit| seconds(*unit) == found)
}

/// As syslog counts them.
pub(super) fn level_number(level: LogLevel) -> u32 {
    match level {
        LogLevel::Warn => 4,
        LogLevel::Info => 6,
    }
}

pub(super) fn level_of(number: u32) -> Option<LogLevel> {
    [LogLevel::Info, LogLevel::Warn].into_iter().find(|level| level_number(*level) == number)
}

/// The kind of a rejection, and its code.
pub(super) fn rejection_numbers(rejection: Rejection) -> (u32, u8) {
    match rejection {
        // NFT_REJECT_ICMPX_UNREACH, NFT_REJECT_ICMPX_PORT_UNREACH
        Rejection::PortUnreachable => (2, 1),
        // NFT_REJECT_TCP_RST
        Rejection::TcpReset => (1, 0),
    }
}

pub(super) fn rejection_of(numbers: (u32, u8)) -> Option<Rejection> {
    let all = [Rejection::PortUnreachable, Rejection::TcpReset];
    all.into_iter().find(|rejection| rejection_numbers(*rejection) == numbers)
}

/// The number of the type of a set's members, how long they are, and whether they are intervals.
pub(super) fn shape(kind: SetKind) -> (u32, u32, bool) {
    let address = |version: IpVersion| match version {
        IpVersion::V4 => (TYPE_IPV4_ADDR, 4),
        IpVersion::V6 => (TYPE_IPV6_ADDR, 16),
    };
    match kind {
        SetKind::Addresses(version) => {
            let (number, length) = address(version);
            (number, length, false)
        }
        SetKind::Networks(version) => {
            let (number, length) = address(version);
            (number, length, true)
        }
        SetKind::AddressPorts(version) => {
            let (number, length) = address(version);
            let number = (((number << TYPE_BITS) | TYPE_INET_PROTO) << TYPE_BITS) | TYPE_INET_SERVICE;
            (number, length + 8, false)
        }
        SetKind::Ports => (TYPE_INET_SERVICE, 2, true),
    }
}

pub(super) fn kind_of(found: (u32, u32, bool)) -> Option<SetKind> {
    let of_version = [SetKind::Addresses, SetKind::Networks, SetKind::AddressPorts];
    let versions = [IpVersion::V4, IpVersion::V6];
    let mut all = versions.into_iter().flat_map(|version| of_version.map(|kind| kind(version)));
    all.find(|kind| shape(*kind) == found)
        .or_else(|| (shape(SetKind::Ports) == found).then_some(SetKind::Ports))
}
