//! Trouble that a log line, an event or a condition names in words which mean one thing only: what the kernel, the kubelet, a
//! runtime, the CNI plugin, Felix, Typha, kube-proxy and etcd print.

use serde::{Deserialize, Serialize};

/// A trouble with a name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Trouble {
    /// The kernel's table of connections is full.
    ConnectionsFull,
    /// The kernel's table of neighbours is full.
    NeighboursFull,
    /// The API server or etcd refuses the credentials of Calico's plugin or agent.
    CredentialsRefused,
    /// A certificate has expired, or is not valid yet.
    CertificateExpired,
    /// An account may not do what Calico needs.
    RightsMissing,
    /// The runtime has no plugin, no configuration for one, or no calico-node beside it.
    PluginMissing,
    /// etcd takes no more writes.
    StoreFull,
    /// Felix has no connection to Typha.
    TyphaUnreachable,
    /// calico-node finds no address for its node.
    NodeAddressUndetected,
    /// Another node has the address that calico-node found.
    NodeAddressTaken,
    /// Felix does not start with loose reverse path filtering.
    RpFilterLoose,
    /// There is no address left to allocate, or no pool to take one from.
    AddressesExhausted,
    /// Felix cannot make its tunnel device.
    TunnelNotMade,
    /// Felix or kube-proxy cannot write its rules.
    RulesNotWritten,
    /// The kernel killed a part of the network for want of memory.
    Killed,
    /// The kernel drops packets whose source it does not expect on that device.
    MartianPackets,
    /// A network card, or its driver, fails.
    CardFailing,
    /// Another program manages the devices of pods or tunnels.
    DevicesManaged,
    /// No file can be watched any more, or opened.
    WatchesExhausted,
    /// The store is locked, as for a migration.
    StoreLocked,
}

/// Parts that a line has, all of them, in any order.
type Sign = &'static [&'static str];

const SIGNS: &[(Trouble, &[Sign])] = &[
    (Trouble::ConnectionsFull, &[&["conntrack: table full"]]),
    (
        Trouble::NeighboursFull,
        &[&["neighbor table overflow"], &["neighbour table overflow"], &["Neighbour table overflow"]],
    ),
    (
        Trouble::CredentialsRefused,
        &[
            &["connection is unauthorized"],
            &["error getting ClusterInformation", "Unauthorized"],
            &["calico", "x509: certificate signed by unknown authority"],
            &["ClusterInformation", "x509: certificate signed by unknown authority"],
            &["projectcalico.org", "the server has asked for the client to provide credentials"],
        ],
    ),
    (Trouble::CertificateExpired, &[&["certificate has expired or is not yet valid"]]),
    (
        Trouble::RightsMissing,
        &[
            &["is forbidden: User \"system:serviceaccount:", ":calico-"],
            &["is forbidden: User \"system:serviceaccount:", "projectcalico.org"],
            &["is forbidden: User \\\"system:serviceaccount:", "projectcalico.org"],
        ],
    ),
    (
        Trouble::PluginMissing,
        &[
            &["failed to find plugin \"calico"],
            &["failed to find plugin \\\"calico"],
            &["no networks found in /etc/cni/net.d"],
            &["cni plugin not initialized"],
            &["cni config uninitialized"],
            &["stat /var/lib/calico/nodename: no such file or directory"],
            &["no CNI configuration file in /etc/cni/net.d"],
        ],
    ),
    (Trouble::StoreFull, &[&["database space exceeded"], &["alarm:NOSPACE"], &["alarm NOSPACE"]]),
    (
        Trouble::TyphaUnreachable,
        &[
            &["Failed to connect to Typha"],
            &["Failed to connect to typha"],
            &["Typha discovery enabled but discovery failed"],
            &["Couldn't connect to Typha"],
        ],
    ),
    (
        Trouble::NodeAddressUndetected,
        &[
            &["Unable to auto-detect an IPv4 address"],
            &["Unable to auto-detect an IPv6 address"],
            &["Couldn't autodetect an IPv4 address"],
            &["Couldn't autodetect an IPv6 address"],
            &["Couldn't autodetect a management IPv4 address"],
        ],
    ),
    (
        Trouble::NodeAddressTaken,
        &[&["is already using the IPv4 address"], &["is already using the IPv6 address"]],
    ),
    (Trouble::RpFilterLoose, &[&["RPF check is set to 'loose'"]]),
    (
        Trouble::AddressesExhausted,
        &[
            &["No more free affine blocks and strict affinity enabled"],
            &["Assigned 0 out of", "requested IPv4 addresses"],
            &["Assigned 0 out of", "requested IPv6 addresses"],
            &["no configured Calico pools"],
            &["no IP addresses available in range set"],
            &["unable to find an allocatable IP"],
        ],
    ),
    (
        Trouble::TunnelNotMade,
        &[
            &["Failed to configure VXLAN tunnel device"],
            &["Failed to configure IPIP tunnel device"],
            &["Failed to configure Wireguard", "device"],
        ],
    ),
    (
        Trouble::RulesNotWritten,
        &[
            &["Failed to execute iptables-restore"],
            &["Failed to program iptables, giving up"],
            &["Failed to program iptables"],
            &["iptables-restore failed"],
            &["Another app is currently holding the xtables lock"],
            &["Failed to program nftables"],
        ],
    ),
    (
        Trouble::Killed,
        &[
            &["Killed process", "(calico-node)"],
            &["Killed process", "(felix)"],
            &["Killed process", "(bird)"],
            &["Killed process", "(calico-typha)"],
            &["Killed process", "(kube-proxy)"],
            &["Killed process", "(plumbd)"],
        ],
    ),
    (Trouble::MartianPackets, &[&["martian source"]]),
    (
        Trouble::CardFailing,
        &[&["NETDEV WATCHDOG"], &["transmit queue", "timed out"], &["Detected Hardware Unit Hang"]],
    ),
    (
        Trouble::DevicesManaged,
        &[
            &["Activation: starting connection", "device (cali"],
            &["Activation: starting connection", "device (vxlan.calico"],
            &["Activation: starting connection", "device (tunl0"],
            &["(cali", "Activation", "starting connection"],
        ],
    ),
    (
        Trouble::WatchesExhausted,
        &[
            &["fsnotify", "too many open files"],
            &["inotify", "too many open files"],
            &["inotify", "no space left on device"],
            &["fsnotify", "no space left on device"],
        ],
    ),
    (
        Trouble::StoreLocked,
        &[&["Calico is currently not ready to process requests"], &["datastoreReady", "false", "locked"]],
    ),
];

impl Trouble {
    /// The trouble that a line names. Of several the first of the table.
    pub fn named_in(text: &str) -> Option<Trouble> {
        let has_all = |sign: &Sign| sign.iter().all(|part| text.contains(part));
        SIGNS.iter().find(|(_, signs)| signs.iter().any(has_all)).map(|(trouble, _)| *trouble)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_of_real_programs_are_told_apart() {
        for (text, trouble) in [
            ("nf_conntrack: nf_conntrack: table full, dropping packet", Trouble::ConnectionsFull),
            ("neighbour: arp_cache: neighbor table overflow!", Trouble::NeighboursFull),
            (
                "plugin type=\"calico\" failed (add): error getting ClusterInformation: connection is unauthorized: Unauthorized",
                Trouble::CredentialsRefused,
            ),
            (
                "container runtime network not ready: NetworkReady=false reason:NetworkPluginNotReady message:Network plugin returns error: cni plugin not initialized",
                Trouble::PluginMissing,
            ),
            (
                "stat /var/lib/calico/nodename: no such file or directory: check that the calico/node container is running and has mounted /var/lib/calico/",
                Trouble::PluginMissing,
            ),
            (
                "rpc error: code = ResourceExhausted desc = etcdserver: mvcc: database space exceeded",
                Trouble::StoreFull,
            ),
            (
                "Kernel's RPF check is set to 'loose'.  This would allow endpoints to spoof their IP address.",
                Trouble::RpFilterLoose,
            ),
            (
                "Memory cgroup out of memory: Killed process 4711 (calico-node) total-vm:1884308kB",
                Trouble::Killed,
            ),
            ("IPv4: martian source 10.244.1.5 from 10.244.2.3, on dev eth1", Trouble::MartianPackets),
        ] {
            assert_eq!(Trouble::named_in(text), Some(trouble), "{text}");
        }
        for text in [
            "",
            "Calico node started successfully",
            "Killed process 1 (java)",
            "connection refused",
            "table is full",
        ] {
            assert_eq!(Trouble::named_in(text), None, "{text}");
        }
    }
}
