//! Faults of the node and of other components that a log names.

use model::FindingCode;

use super::Inject;
use super::named::{say, subject};

pub(super) const FAULTS: &[(FindingCode, Inject)] = &[
    (FindingCode::AddressConflict, |evidence, node| {
        say(
            evidence,
            node,
            1,
            "conflict: duplicate address detected for 192.0.2.7 on eth0, used by 52:54:00:aa:00:01",
        );
        subject(node)
    }),
    (FindingCode::ApiExtensionUnavailable, |evidence, node| {
        say(
            evidence,
            node,
            1,
            "v3.projectcalico.org failed with: failing or missing response from https://10.98.41.7:443/apis",
        );
        "cluster".to_owned()
    }),
    (FindingCode::BgpIdentifierShared, |evidence, node| {
        say(evidence, node, 1, "bird: Mesh_10_0_0_2: Error: Bad BGP identifier: 10.0.0.1");
        subject(node)
    }),
    (FindingCode::BpfProgramRefused, |evidence, node| {
        say(evidence, node, 1, "BPF enabled but not supported by kernel (disabling) error=kernel too old");
        subject(node)
    }),
    (FindingCode::BridgeAddressDiffers, |evidence, node| {
        say(
            evidence,
            node,
            1,
            "failed to set bridge addr: \"cni0\" already has an IP address different from 10.244.3.1/24",
        );
        subject(node)
    }),
    (FindingCode::CgroupDriverDiffers, |evidence, node| {
        say(
            evidence,
            node,
            1,
            "runc create failed: expected cgroupsPath to be of format \"slice:prefix:name\" for systemd cgroups",
        );
        subject(node)
    }),
    (FindingCode::ClusterAuthorityChanged, |evidence, node| {
        say(
            evidence,
            node,
            1,
            "error getting ClusterInformation: Get \"https://10.96.0.1:443/apis\": x509: certificate signed by unknown authority",
        );
        subject(node)
    }),
    (FindingCode::CniPluginKilled, |evidence, node| {
        say(evidence, node, 2, "netplugin failed with no error message: signal: killed");
        subject(node)
    }),
    (FindingCode::CniPluginNotExecutable, |evidence, node| {
        say(evidence, node, 1, "fork/exec /opt/cni/bin/calico: permission denied");
        subject(node)
    }),
    (FindingCode::ConnectionsNotInserted, |evidence, node| {
        say(evidence, node, 1, "conntrack: insert_failed is high: 270194");
        subject(node)
    }),
    (FindingCode::DiskFull, |evidence, node| {
        say(evidence, node, 1, "write /var/lib/cni/networks/lock: no space left on device");
        subject(node)
    }),
    (FindingCode::DnsFailing, |evidence, node| {
        say(
            evidence,
            node,
            3,
            "dial tcp: lookup cart.shop.svc on 10.96.0.10:53: read udp 10.4.9.31:41022->10.96.0.10:53: i/o timeout",
        );
        "cluster".to_owned()
    }),
    (FindingCode::DnsLoop, |evidence, node| {
        say(evidence, node, 1, "plugin/loop: Loop (127.0.0.1:38733 -> :53) detected for zone \".\"");
        "cluster".to_owned()
    }),
    (FindingCode::FirewallLogBlocks, |evidence, node| {
        say(
            evidence,
            node,
            1,
            "[UFW BLOCK] IN=eno1 OUT= SRC=192.0.2.1 DST=192.0.2.3 PROTO=UDP SPT=50133 DPT=4789 LEN=114",
        );
        subject(node)
    }),
    (FindingCode::HostRouteHeld, |evidence, node| {
        say(
            evidence,
            node,
            1,
            "error adding host side routes for interface: cali12, error: route (Dst: 10.0.0.7/32) already exists for an interface other than 'cali12'",
        );
        subject(node)
    }),
    (FindingCode::KernelDeviceStuck, |evidence, node| {
        say(evidence, node, 2, "unregister_netdevice: waiting for lo to become free. Usage count = 1");
        subject(node)
    }),
    (FindingCode::KernelHangs, |evidence, node| {
        say(evidence, node, 1, "watchdog: BUG: soft lockup - CPU#3 stuck for 22s! [kworker/3:1:211]");
        subject(node)
    }),
    (FindingCode::KernelModuleMissing, |evidence, node| {
        say(
            evidence,
            node,
            1,
            "iptables-restore v1.8.4 (legacy): Couldn't load match `rpfilter':No such file or directory",
        );
        subject(node)
    }),
    (FindingCode::KernelSettingDenied, |evidence, node| {
        say(evidence, node, 1, "open /proc/sys/net/netfilter/nf_conntrack_max: permission denied");
        subject(node)
    }),
    (FindingCode::KubeletNameRefused, |evidence, node| {
        say(evidence, node, 1, "nodes \"n2\" is forbidden: node \"n1\" is not allowed to modify node \"n2\"");
        subject(node)
    }),
    (FindingCode::MemoryShort, |evidence, node| {
        say(evidence, node, 1, "kubelet has insufficient memory available");
        subject(node)
    }),
    (FindingCode::MetaPluginWaits, |evidence, node| {
        say(
            evidence,
            node,
            1,
            "have you checked that your default network is ready? still waiting for readinessindicatorfile @ /host/etc/cni/net.d/10-calico.conflist",
        );
        subject(node)
    }),
    (FindingCode::NetworkImageMissing, |evidence, node| {
        say(
            evidence,
            node,
            1,
            "Failed to pull image \"registry.example/calico/node:v3.28.0\": toomanyrequests",
        );
        subject(node)
    }),
    (FindingCode::OperatorRefusesPool, |evidence, node| {
        say(
            evidence,
            node,
            1,
            "IPPool 192.168.0.0/16 is not within the platform's configured pod network CIDR(s) [10.244.0.0/16]",
        );
        "cluster".to_owned()
    }),
    (FindingCode::PodSubnetMissing, |evidence, node| {
        say(evidence, node, 1, "failed to acquire lease: node \"n1\" pod cidr not assigned");
        subject(node)
    }),
    (FindingCode::PortTaken, |evidence, node| {
        say(evidence, node, 2, "listen tcp 127.0.0.1:9099: bind: address already in use");
        subject(node)
    }),
    (FindingCode::ProcessLimitReached, |evidence, node| {
        say(evidence, node, 1, "fork/exec /usr/bin/runc: resource temporarily unavailable");
        subject(node)
    }),
    (FindingCode::RequestedPoolMissing, |evidence, node| {
        say(evidence, node, 1, "error parsing pool \"new-pool2\": invalid CIDR address: new-pool2");
        subject(node)
    }),
    (FindingCode::RuntimeNotAnswering, |evidence, node| {
        say(
            evidence,
            node,
            2,
            "skipping pod synchronization - PLEG is not healthy: pleg was last seen active 5m0s ago",
        );
        subject(node)
    }),
    (FindingCode::RuntimeWithoutCri, |evidence, node| {
        say(
            evidence,
            node,
            1,
            "rpc error: code = Unimplemented desc = unknown service runtime.v1.RuntimeService",
        );
        subject(node)
    }),
    (FindingCode::SandboxImageMissing, |evidence, node| {
        say(
            evidence,
            node,
            1,
            "failed to get sandbox image \"registry.example/pause:3.8\": failed to pull image",
        );
        subject(node)
    }),
    (FindingCode::SecurityModuleDenies, |evidence, node| {
        say(
            evidence,
            node,
            1,
            "avc:  denied  { write } for  pid=20811 comm=\"calico\" name=\"calico\" dev=\"tmpfs\"",
        );
        subject(node)
    }),
    (FindingCode::ServiceAddressUnreachable, |evidence, node| {
        say(
            evidence,
            node,
            2,
            "Get \"https://10.96.0.1:443/api/v1/nodes\": dial tcp 10.96.0.1:443: i/o timeout",
        );
        subject(node)
    }),
    (FindingCode::TyphaCertificateRefused, |evidence, node| {
        say(
            evidence,
            node,
            1,
            "Failed to connect to typha endpoint 192.0.2.1:5473 error=x509: certificate signed by unknown authority",
        );
        subject(node)
    }),
    (FindingCode::VxlanChecksumBroken, |evidence, node| {
        say(
            evidence,
            node,
            1,
            "10.0.10.14.7103 > 10.0.10.10.4789: [bad udp cksum 0xbd67 -> 0x4e7f!] VXLAN, flags [I] (0x08), vni 4096",
        );
        "cluster".to_owned()
    }),
    (FindingCode::WebhookUnreachable, |evidence, node| {
        say(
            evidence,
            node,
            2,
            "failed calling webhook \"v.example.org\": Post \"https://v.shop.svc:443/\": context deadline exceeded",
        );
        "cluster".to_owned()
    }),
    (FindingCode::ApiServerUnreachable, |evidence, node| {
        say(
            evidence,
            node,
            3,
            "Failed to update lease err=Get https://192.0.2.10:6443/apis: dial tcp 192.0.2.10:6443: connect: no route to host",
        );
        subject(node)
    }),
    (FindingCode::LocalhostUnresolved, |evidence, node| {
        say(
            evidence,
            node,
            1,
            "Liveness probe failed: calico/node is not ready: Felix is not live: Get http://localhost:9099/liveness: dial tcp: lookup localhost on 192.0.2.53:53: no such host",
        );
        subject(node)
    }),
    (FindingCode::NodeNameTaken, |evidence, node| {
        say(
            evidence,
            node,
            1,
            "Node password rejected, duplicate hostname or contents of '/etc/rancher/node/password' may not match server node-passwd entry",
        );
        subject(node)
    }),
    (FindingCode::CloudRightsMissing, |evidence, node| {
        say(
            evidence,
            node,
            1,
            "Error modify network interface attribute source-destination-check error=UnauthorizedOperation: You are not authorized",
        );
        subject(node)
    }),
    (FindingCode::LinkFlaps, |evidence, node| {
        say(evidence, node, 3, "igb 0000:01:00.0 eth0: igb: eth0 NIC Link is Down");
        subject(node)
    }),
    (FindingCode::OtherNetworkLeft, |evidence, node| {
        say(
            evidence,
            node,
            1,
            "plugin type=\"cilium-cni\" failed (add): unable to connect to Cilium daemon: failed to create cilium agent client: dial unix /var/run/cilium/cilium.sock: connect: no such file or directory",
        );
        subject(node)
    }),
    (FindingCode::LargePacketsLost, |evidence, node| {
        say(evidence, node, 1, "ping: large packets are lost: 1428 bytes to 10.0.1.7, while 84 bytes arrive");
        subject(node)
    }),
    (FindingCode::NetlinkOverrun, |evidence, node| {
        say(evidence, node, 2, "Failed to read from netlink socket error=no buffer space available netlink");
        subject(node)
    }),
];
