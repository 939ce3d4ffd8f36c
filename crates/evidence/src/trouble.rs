//! Trouble that a log line, an event or a condition names in words which mean one thing only: what the kernel, the kubelet, a
//! runtime, the CNI plugin, Felix, Typha, kube-proxy and etcd print.

mod signs;

use serde::{Deserialize, Serialize};

use signs::{SIGNS, Sign};

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
    /// The API server is not reached at its own address.
    ApiServerUnreachable,
    /// localhost is not resolved.
    LocalhostUnresolved,
    /// Two machines have one name.
    NodeNameTaken,
    /// Felix lacks rights in the cloud.
    CloudRightsMissing,
    /// A link goes up and down.
    LinkFlaps,
    /// The plugin of another network is called.
    OtherNetworkLeft,
    /// Only small packets arrive.
    LargePacketsLost,
    /// Felix misses messages of the kernel.
    NetlinkOverrun,
    /// A BGP peer has another AS number than expected; the line says which.
    PeerAs,
    /// A clock shows a time before a certificate was made.
    ClockBehind,
    /// Felix and Typha do not accept each other's certificate.
    TyphaCertificate,
    /// The plugin's credentials are of another cluster.
    ForeignAuthority,
    /// The runtime has no image for sandboxes.
    SandboxImage,
    /// The runtime has its CRI switched off.
    RuntimeWithoutCri,
    /// The runtime does not answer, or too late.
    RuntimeDown,
    /// The plugin is there and cannot be run.
    PluginNotExecutable,
    /// The plugin is killed.
    PluginKilled,
    /// The operator refuses a pool.
    OperatorRefuses,
    /// An extension of the API does not answer.
    ApiExtension,
    /// A webhook does not answer.
    WebhookUnreachable,
    /// The API is not reached by its service address.
    ApiUnreachable,
    /// A network program's image is missing.
    ImageMissing,
    /// CoreDNS asks itself.
    DnsLoop,
    /// Names are not resolved.
    DnsFailing,
    /// A port is taken.
    PortTaken,
    /// The kernel lacks a module.
    ModuleMissing,
    /// A kernel setting cannot be changed.
    SettingDenied,
    /// A security module denies something.
    SecurityDenied,
    /// The bridge has another address.
    BridgeAddress,
    /// A node has no subnet for pods.
    PodSubnetMissing,
    /// A disk is full.
    DiskFull,
    /// Memory is short.
    MemoryShort,
    /// No process can be started.
    ProcessLimit,
    /// Two cgroup drivers are in use.
    CgroupDriver,
    /// The kubelet has another node's name.
    NodeNameRefused,
    /// A device cannot be removed.
    DeviceStuck,
    /// The kernel hangs.
    KernelHangs,
    /// An address is used twice.
    AddressConflict,
    /// An address is still routed elsewhere.
    HostRouteHeld,
    /// A pod asks for a pool that is not there.
    RequestedPoolMissing,
    /// Multus waits.
    MetaPluginWaits,
    /// The firewall's log shows what it drops.
    FirewallLog,
    /// Checksums of tunnelled packets are wrong.
    ChecksumBroken,
    /// Connections cannot be inserted.
    ConnectionsNotInserted,
    /// BPF programs are refused.
    BpfRefused,
    /// Two speakers have one router ID.
    IdentifierShared,
}

impl Trouble {
    /// Where in a line the words stand by which it is known.
    pub fn place_in(self, text: &str) -> Option<usize> {
        let (_, signs) = SIGNS.iter().find(|(trouble, _)| *trouble == self)?;
        let found = signs.iter().find(|sign| sign.iter().all(|part| text.contains(part)))?;
        found.iter().filter_map(|part| text.find(part)).max()
    }

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
