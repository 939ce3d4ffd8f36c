//! By what each trouble is known. Of several that a line could name the first counts, so the more special stand first.

use super::Trouble;

/// Parts that a line has, all of them, in any order.
pub(super) type Sign = &'static [&'static str];

pub(super) const SIGNS: &[(Trouble, &[Sign])] = &[
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
        Trouble::ApiServerUnreachable,
        &[
            &["https://", ":6443", "i/o timeout"],
            &["https://", ":6443", "no route to host"],
            &["https://", ":6443", "connection refused"],
            &["https://", ":6443", "network is unreachable"],
        ],
    ),
    (Trouble::LocalhostUnresolved, &[&["lookup localhost"]]),
    (
        Trouble::NodeNameTaken,
        &[&["Node password rejected"], &["duplicate hostname"], &["Node password validation failed"]],
    ),
    (
        Trouble::CloudRightsMissing,
        &[
            &["source-destination-check", "UnauthorizedOperation"],
            &["ource-destination check", "UnauthorizedOperation"],
            &["ModifyNetworkInterfaceAttribute", "UnauthorizedOperation"],
            &["error setting src-dst-check"],
        ],
    ),
    (
        Trouble::LinkFlaps,
        &[
            &["NIC Link is Down"],
            &[": Link is Down"],
            &["link status definitely down for interface"],
            &["NIC Copper Link is Down"],
        ],
    ),
    (
        Trouble::OtherNetworkLeft,
        &[
            &["unable to connect to Cilium"],
            &["cilium.sock: connect: no such file"],
            &["plugin type=\"weave-net\"", "connection refused"],
            &["antrea", "cni.sock", "no such file"],
            &["kube-ovn-daemon.sock", "no such file"],
            &["failed to connect to the agent", "aws-cni"],
            &["plugin type=\"aws-cni\"", "connection refused"],
        ],
    ),
    (Trouble::LargePacketsLost, &[&["large packets are lost"]]),
    (
        Trouble::NetlinkOverrun,
        &[&["netlink", "no buffer space available"], &["Netlink", "no buffer space available"]],
    ),
    (Trouble::PeerAs, &[&["Bad peer AS: "]]),
    (Trouble::ClockBehind, &[&["certificate has expired or is not yet valid", " is before "]]),
    (
        Trouble::TyphaCertificate,
        &[
            &["ypha", "x509: "],
            &["sync_client", "x509: "],
            &["ypha", "tls: bad certificate"],
            &["ypha", "tls: unknown certificate"],
        ],
    ),
    (
        Trouble::ForeignAuthority,
        &[
            &["ClusterInformation", "x509: certificate signed by unknown authority"],
            &["clusterinformations", "x509: certificate signed by unknown authority"],
        ],
    ),
    (Trouble::SandboxImage, &[&["failed to get sandbox image"], &["failed pulling image", "pause"]]),
    (Trouble::RuntimeWithoutCri, &[&["unknown service runtime.v1"]]),
    (
        Trouble::RuntimeDown,
        &[
            &["PLEG is not healthy"],
            &["container runtime is down"],
            &["containerd.sock", "connect: connection refused"],
            &["containerd.sock", "connect: no such file or directory"],
            &["failed to reserve sandbox name"],
        ],
    ),
    (
        Trouble::PluginNotExecutable,
        &[&["/opt/cni/bin/", "permission denied"], &["/opt/cni/bin/", "exec format error"]],
    ),
    (
        Trouble::PluginKilled,
        &[&["netplugin failed with no error message"], &["netplugin failed", "signal: killed"]],
    ),
    (
        Trouble::OperatorRefuses,
        &[
            &["is not within the platform's configured pod network CIDR"],
            &["Could not resolve CalicoNetwork IPPool"],
        ],
    ),
    (
        Trouble::ApiExtension,
        &[
            &["failing or missing response from https"],
            &["stale GroupVersion discovery"],
            &["(FailedDiscoveryCheck)"],
            &["False (MissingEndpoints)"],
            &["False (ServiceNotFound)"],
        ],
    ),
    (
        Trouble::WebhookUnreachable,
        &[
            &["failed calling webhook", "context deadline exceeded"],
            &["failed calling webhook", "i/o timeout"],
            &["failed calling webhook", "no route to host"],
            &["failed calling webhook", "connection refused"],
            &["failed calling webhook", "no endpoints available"],
        ],
    ),
    (
        Trouble::ApiUnreachable,
        &[
            &["https://", ":443/api", "i/o timeout"],
            &["https://", ":443/api", "no route to host"],
            &["https://", ":443/api", "connection refused"],
            &["https://", ":443/api", "network is unreachable"],
        ],
    ),
    (
        Trouble::ImageMissing,
        &[
            &["Failed to pull image", "calico"],
            &["Failed to pull image", "kube-proxy"],
            &["Failed to pull image", "coredns"],
            &["Failed to pull image", "tigera"],
            &["Failed to pull image", "flannel"],
            &["Failed to pull image", "cilium"],
        ],
    ),
    (Trouble::DnsLoop, &[&["plugin/loop: Loop", "detected for zone"]]),
    (
        Trouble::DnsFailing,
        &[
            &["lookup ", ":53: read udp", "i/o timeout"],
            &["plugin/errors: 2", "i/o timeout"],
            &["plugin/errors: 2", "no route to host"],
            &["plugin/errors: 2", "network is unreachable"],
        ],
    ),
    (Trouble::PortTaken, &[&["listen ", "bind: address already in use"]]),
    (
        Trouble::ModuleMissing,
        &[
            &["Couldn't load match `"],
            &["Couldn't load target `"],
            &["missing kernel module"],
            &["modprobe: FATAL: Module xt_"],
            &["modprobe: FATAL: Module ip_"],
            &["modprobe: FATAL: Module ipt_"],
            &["modprobe: FATAL: Module vxlan"],
            &["modprobe: FATAL: Module br_netfilter"],
            &["modprobe: FATAL: Module nf_"],
            &["modprobe: FATAL: Module ipip"],
            &["can't initialize iptables table"],
            &["vxlan", "operation not supported"],
            &["bridge-nf-call-iptables: no such file"],
            &["bridge-nf-call-iptables does not exist"],
        ],
    ),
    (
        Trouble::SettingDenied,
        &[
            &["/proc/sys/net/", "permission denied"],
            &["/proc/sys/net/", "read-only file system"],
            &["nf_conntrack/parameters/hashsize", "read-only file system"],
            &["nf_conntrack/parameters/hashsize", "permission denied"],
        ],
    ),
    (
        Trouble::SecurityDenied,
        &[
            &["avc:  denied", "calico"],
            &["avc: denied", "calico"],
            &["avc:  denied", "comm=\"bird"],
            &["avc:  denied", "/cni"],
            &["avc:  denied", "flannel"],
            &["avc:  denied", "comm=\"kube-proxy"],
            &["apparmor=\"DENIED\"", "calico"],
            &["apparmor=\"DENIED\"", "cni"],
        ],
    ),
    (Trouble::BridgeAddress, &[&["already has an IP address different from"]]),
    (
        Trouble::PodSubnetMissing,
        &[
            &["/run/flannel/subnet.env: no such file"],
            &["pod cidr not assigned"],
            &["no podCIDR"],
            &["CIDRNotAvailable"],
            &["CIDR allocation failed"],
        ],
    ),
    (
        Trouble::DiskFull,
        &[
            &["no space left on device"],
            &["kubelet has disk pressure"],
            &["Failed to garbage collect required amount of images"],
            &["Attempting to reclaim ephemeral-storage"],
        ],
    ),
    (
        Trouble::MemoryShort,
        &[&["kubelet has insufficient memory available"], &["Attempting to reclaim memory"]],
    ),
    (
        Trouble::ProcessLimit,
        &[
            &["fork", "esource temporarily unavailable"],
            &["fork rejected by pids controller"],
            &["kubelet has insufficient PID available"],
            &["pthread_create failed"],
            &["newosproc"],
        ],
    ),
    (
        Trouble::CgroupDriver,
        &[&["expected cgroupsPath to be of format"], &["misconfiguration: kubelet cgroup driver"]],
    ),
    (
        Trouble::NodeNameRefused,
        &[
            &["is not allowed to modify node"],
            &["can only create", "node with the same name as the requesting user"],
        ],
    ),
    (Trouble::DeviceStuck, &[&["unregister_netdevice: waiting for"]]),
    (
        Trouble::KernelHangs,
        &[
            &["soft lockup - CPU"],
            &["blocked for more than", " seconds."],
            &["self-detected stall on CPU"],
            &["hard LOCKUP"],
        ],
    ),
    (
        Trouble::AddressConflict,
        &[
            &["IPv6 duplicate address"],
            &["IPv4 address conflict"],
            &["address conflict detected"],
            &["duplicate address detected"],
        ],
    ),
    (Trouble::HostRouteHeld, &[&["already exists for an interface other than"]]),
    (
        Trouble::RequestedPoolMissing,
        &[&["error parsing pool"], &["given pool", "does not exist"], &["pool", "is not enabled"]],
    ),
    (
        Trouble::MetaPluginWaits,
        &[
            &["PollImmediate error waiting for ReadinessIndicatorFile"],
            &["cannot find a network-attachment-definition"],
            &["still waiting for readinessindicatorfile"],
        ],
    ),
    (
        Trouble::FirewallLog,
        &[
            &["BLOCK] IN=", "DPT=4789 "],
            &["BLOCK] IN=", "DPT=8472 "],
            &["BLOCK] IN=", "DPT=179 "],
            &["BLOCK] IN=", "DPT=5473 "],
            &["BLOCK] IN=", "PROTO=4 "],
            &["REJECT: ", "DPT=4789 "],
            &["REJECT: ", "DPT=179 "],
            &["DROP: ", "DPT=4789 "],
        ],
    ),
    (Trouble::ChecksumBroken, &[&["4789: [bad udp cksum"], &["8472: [bad udp cksum"]]),
    (Trouble::ConnectionsNotInserted, &[&["insert_failed is high"]]),
    (
        Trouble::BpfRefused,
        &[
            &["Failed to attach BPF"],
            &["Failed to load BPF"],
            &["BPF enabled but not supported"],
            &["BPF", "load program", "operation not permitted"],
        ],
    ),
    (Trouble::IdentifierShared, &[&["Bad BGP identifier"], &["BGP identifier collision"]]),
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
            &["cali", ": Configuring with "],
            &["vxlan.calico: Configuring with "],
            &["tunl0: Configuring with "],
        ],
    ),
    (
        Trouble::StoreLocked,
        &[&["Calico is currently not ready to process requests"], &["datastoreReady", "false", "locked"]],
    ),
];
