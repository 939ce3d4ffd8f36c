//! What FelixConfiguration says about enforcing policy.

use std::sync::Arc;

use ipnet::IpNet;

use crate::ruleset::{Limit, LogLevel, Name};

/// What happens to packets from a workload to its own node that egress policy allows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum EndpointToHost {
    Drop,
    /// The host's own firewall decides.
    Return,
    Accept,
}

/// What happens to packets that policy denies.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum DenyAction {
    Drop,
    Reject,
}

/// A port of a host that no policy of a host endpoint closes.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Failsafe {
    pub protocol: u8,
    pub port: u16,
    pub net: Option<IpNet>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// The table that holds all of policy.
    pub table: Name,
    /// Devices with these names are those of workloads. One that no endpoint has is shut.
    pub device_prefixes: Vec<Arc<str>>,
    /// At least three bits of the packet mark that nobody else uses.
    pub mark_mask: u32,
    pub endpoint_to_host: EndpointToHost,
    pub deny: DenyAction,
    pub drops_invalid: bool,
    pub vxlan_port: u16,
    /// Whether workloads may send encapsulated packets.
    pub allows_vxlan: bool,
    pub allows_ipip: bool,
    /// With Calico's placeholders: `%t` tier, `%k` kind, `%n` name, `%p` namespace and name.
    pub log_prefix: String,
    pub log_level: LogLevel,
    pub log_limit: Option<Limit>,
    pub failsafe_inbound: Vec<Failsafe>,
    pub failsafe_outbound: Vec<Failsafe>,
}

const BOTH_WAYS: [u16; 7] = [179, 2379, 2380, 5473, 6443, 6666, 6667];

fn failsafes(further: &[(u8, u16)]) -> Vec<Failsafe> {
    let both = BOTH_WAYS.into_iter().map(|port| (6, port));
    let all = both.chain(further.iter().copied());
    all.map(|(protocol, port)| Failsafe { protocol, port, net: None }).collect()
}

impl Default for Settings {
    /// Calico's.
    fn default() -> Settings {
        Settings {
            table: "plumb-policy".into(),
            device_prefixes: vec!["cali".into()],
            mark_mask: 0xFFFF_0000,
            endpoint_to_host: EndpointToHost::Drop,
            deny: DenyAction::Drop,
            drops_invalid: true,
            vxlan_port: 4789,
            allows_vxlan: false,
            allows_ipip: false,
            log_prefix: "calico-packet".to_owned(),
            log_level: LogLevel::Info,
            log_limit: None,
            failsafe_inbound: failsafes(&[(6, 22), (17, 68)]),
            failsafe_outbound: failsafes(&[(17, 53), (17, 67)]),
        }
    }
}

/// The bits of the packet mark that policy uses, all cleared when a packet enters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Marks {
    /// This end accepts: ask the next one.
    pub(crate) accept: u32,
    /// The rest of the tier is skipped.
    pub(crate) pass: u32,
    /// An early policy of a host accepts: its later ones are not asked.
    pub(crate) host: u32,
}

impl Settings {
    /// Why policy cannot be enforced with them.
    pub fn fault(&self) -> Option<String> {
        let bits = self.mark_mask.count_ones();
        (bits < 3)
            .then(|| format!("nftablesMarkMask: {:#x} has {bits} bits, and policy needs 3", self.mark_mask))
    }

    /// The lowest bits of the mask.
    pub(crate) fn marks(&self) -> Marks {
        let lowest = |mask: u32| mask & mask.wrapping_neg();
        let accept = lowest(self.mark_mask);
        let pass = lowest(self.mark_mask & !accept);
        let host = lowest(self.mark_mask & !accept & !pass);
        Marks { accept, pass, host }
    }
}
