//! Each format in the form that its tool prints it, beyond those of the incidents.

use evidence::Evidence;
use intake::read;
use model::Kind;

fn one(text: &str) -> Evidence {
    let evidence = read([("paste.txt", text.as_bytes())]);
    assert_eq!(evidence.unseen, [], "{text}");
    evidence
}

#[test]
fn endpoints_of_v3_as_tables() {
    let evidence = one(
        "NAMESPACE     NAME                                WORKLOAD        NODE     NETWORKS            INTERFACE         PROFILES                                  NATS   \n\
         kube-system   node--a-k8s-coredns--7f89-eth0      coredns-7f89    node-a   192.168.84.131/32   cali9c1a2b3c4d5   kns.kube-system,ksa.kube-system.coredns          \n",
    );
    let endpoint = &evidence.endpoints.as_ref().unwrap()[0].seen;
    assert_eq!((endpoint.pod.as_deref(), &endpoint.node), (Some("coredns-7f89"), &Some("node-a".into())));
    assert_eq!(endpoint.addresses[0].to_string(), "192.168.84.131");
    assert!(!evidence.partial.endpoints);
    let short = one(
        "WORKLOAD       NODE     NETWORKS            INTERFACE         \nweb-0          node-a   10.0.0.1/32         cali111111111aa   \n",
    );
    assert_eq!(short.endpoints.as_ref().unwrap()[0].seen.name, "node--a-k8s-web--0-eth0");
    assert!(short.partial.endpoints);
}

#[test]
fn pools_and_nodes_as_tables() {
    let evidence = one(
        "NAME                  CIDR             NAT    IPIPMODE   VXLANMODE   DISABLED   DISABLEBGPEXPORT   SELECTOR   \n\
         default-ipv4-ippool   192.168.0.0/16   true   Always     Never       false      false              all()      \n",
    );
    let pool = &evidence.records.of(Kind::IpPool).unwrap()[0].seen;
    assert_eq!(pool.spec("ipipMode").unwrap(), "Always");
    assert_eq!(pool.spec("natOutgoing").unwrap(), true);
    let evidence = one(
        "NAME     ASN       IPV4            IPV6   \nnode-a   (64512)   10.0.0.63/24           \nnode-b   64513     10.0.0.64/24           \n",
    );
    let nodes = evidence.records.of(Kind::Node).unwrap();
    assert_eq!(nodes[0].seen.spec("bgp").unwrap()["ipv4Address"], "10.0.0.63/24");
    assert_eq!(nodes[1].seen.spec("bgp").unwrap()["asNumber"], 64_513);
}

#[test]
fn kubernetes_lists_as_json() {
    let evidence = one(r#"{
    "apiVersion": "v1",
    "items": [
        {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": "web-0", "namespace": "shop", "uid": "u-1", "creationTimestamp": "2024-01-01T00:00:00Z",
                "annotations": {"cni.projectcalico.org/podIP": "10.0.0.1/32", "other": "x"},
                "ownerReferences": [{"kind": "StatefulSet", "name": "web", "controller": true}]},
            "spec": {"nodeName": "node-a"},
            "status": {"phase": "Running", "podIP": "10.0.0.1", "podIPs": [{"ip": "10.0.0.1"}, {"ip": "fd00::1"}],
                "containerStatuses": [{"name": "c", "ready": true, "restartCount": 2, "containerID": "containerd://abc", "state": {"running": {}}}]}
        },
        {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": "proxy", "namespace": "kube-system", "deletionTimestamp": "2024-01-01T00:00:00Z"},
            "spec": {"hostNetwork": true},
            "status": {"phase": "Running"}
        }
    ],
    "kind": "List",
    "metadata": {"resourceVersion": ""}
}"#);
    let pods = evidence.pods.as_ref().unwrap();
    let web = &pods[0].seen;
    assert_eq!((web.addresses.len(), web.ready, web.annotations.len()), (2, Some((1, 1)), 1));
    assert!(pods[1].seen.is_terminating() && pods[1].seen.host_network == Some(true));
    assert!(!evidence.partial.pods);
    let exhibit = pods[0].exhibit("");
    assert_eq!((exhibit.line, exhibit.text.as_str()), (Some(4), "Pod shop/web-0"));
}

#[test]
fn custom_resources_as_yaml() {
    let evidence = one(
        "apiVersion: v1\nitems:\n- apiVersion: crd.projectcalico.org/v1\n  kind: IPAMHandle\n  metadata:\n    name: k8s-pod-network.0f\n  spec:\n    block:\n      10.244.7.64/26: 1\n    deleted: false\n    handleID: k8s-pod-network.0F\n\
         - apiVersion: crd.projectcalico.org/v1\n  kind: BlockAffinity\n  metadata:\n    name: node-a-10-244-7-64-26\n  spec:\n    cidr: 10.244.7.64/26\n    deleted: \"false\"\n    node: node-a\n    state: confirmed\n\
         - apiVersion: crd.projectcalico.org/v1\n  kind: IPPool\n  metadata:\n    name: p\n  spec:\n    cidr: 10.244.0.0/16\nkind: List\nmetadata:\n  resourceVersion: \"\"\n",
    );
    let ipam = evidence.ipam.as_ref().unwrap();
    assert_eq!(ipam.books.handles.keys().collect::<Vec<_>>(), ["k8s-pod-network.0F"]);
    assert_eq!(ipam.books.affinities.len(), 1);
    assert!(ipam.books.unreadable.is_empty(), "{:?}", ipam.books.unreadable);
    assert_eq!(evidence.records.of(Kind::IpPool).unwrap().len(), 1);
}

#[test]
fn values_of_etcd_under_their_keys() {
    let block = model::ipam::Block::new("10.0.0.0/30".parse().unwrap(), None, 7);
    let text = format!(
        "/calico/ipam/v2/assignment/ipv4/block/10.0.0.0-30\n{}\n/calico/ipam/v2/handle/h1\n{{\"block\":{{\"10.0.0.0/30\":1}},\"id\":\"h1\"}}\n\
         /calico/ipam/v2/host/node-a/ipv4/block/10.0.0.0-30\n{{\"state\":\"confirmed\"}}\n\
         /calico/ipam/v2/config\n{{\"strict_affinity\":true,\"auto_allocate_blocks\":true}}\n\
         /calico/resources/v3/projectcalico.org/ippools/p\n{{\"kind\":\"IPPool\",\"apiVersion\":\"projectcalico.org/v3\",\"metadata\":{{\"name\":\"p\"}},\"spec\":{{\"cidr\":\"10.0.0.0/24\"}}}}\n",
        String::from_utf8(block.encode()).unwrap()
    );
    let evidence = one(&text);
    let ipam = evidence.ipam.as_ref().unwrap();
    assert_eq!((ipam.books.blocks.len(), ipam.books.handles.len(), ipam.books.affinities.len()), (1, 1, 1));
    assert!(ipam.books.unreadable.is_empty(), "{:?}", ipam.books.unreadable);
    assert_eq!(ipam.books.blocks.values().next().unwrap().value, block);
    assert!(ipam.config.as_ref().unwrap().seen.strict_affinity);
    assert_eq!(evidence.records.of(Kind::IpPool).unwrap().len(), 1);
    let key = model::Key::Handle("h1".into());
    assert_eq!(ipam.origin(&key).exhibit("").line, Some(4));
}

#[test]
fn values_of_etcd_without_their_keys() {
    let block = model::ipam::Block::new("10.0.0.0/30".parse().unwrap(), None, 7);
    let block = String::from_utf8(block.encode()).unwrap();
    let evidence = one(&format!(
        "{block}\n$ etcdctl get /calico/ipam/v2/handle/shop.web-0\n{{\"block\":{{\"10.0.0.0/30\":1}},\"id\":\"shop.web-0\"}}\n\
         $ etcdctl get /calico/v1/host/n1/workload/k8s/shop.web-0/endpoint/eth0\n\
         {{\"state\":\"active\",\"name\":\"cali11111111111\",\"mac\":\"aa:aa:aa:aa:aa:aa\",\"ipv4_nets\":[\"10.0.0.1/32\"],\"ipv6_nets\":[]}}\n"
    ));
    let ipam = evidence.ipam.as_ref().unwrap();
    assert_eq!((ipam.books.blocks.len(), ipam.books.handles.len()), (1, 1));
    assert!(ipam.books.handles.contains_key("shop.web-0"));
    assert_eq!(evidence.endpoints.as_ref().unwrap()[0].seen.to_string(), "shop.web-0");
}

#[test]
fn a_document_that_is_cut_does_not_swallow_the_log_around_it() {
    let line = "Dec 12 20:00:18 n kubelet[1]: E1212 20:00:18.678639 1 a.go:1] it failed\n";
    let text = format!(
        "{line}{{\n  \"a\": [\n{line}kind: Pod\nmetadata:\n{line}Name:         web-0\nNode:  n\n{line}"
    );
    let evidence = read([("n.log", text.as_bytes())]);
    let told: u32 = evidence.log.iter().flatten().map(|event| event.seen.count).sum();
    assert_eq!(told, 4, "{:?}", evidence.log);
}

#[test]
fn sandboxes_and_containers() {
    let evidence = one("[root@node-a ~]# crictl pods\n\
         POD ID              CREATED             STATE               NAME                NAMESPACE           ATTEMPT             RUNTIME\n\
         0123456789abc       2 hours ago         Ready               web-0               shop                0                   (default)\n\
         1123456789abc       3 days ago          NotReady            web-1               shop                1                   (default)\n\
         [root@node-a ~]# crictl ps\n\
         CONTAINER           IMAGE               CREATED             STATE               NAME                ATTEMPT             POD ID              POD\n\
         aaaa456789abc       nginx               2 hours ago         Running             app                 0                   0123456789abc       web-0\n\
         [root@node-a ~]# docker ps\n\
         CONTAINER ID        IMAGE                  COMMAND        CREATED          STATUS          PORTS     NAMES\n\
         f8189c4b982a        k8s.gcr.io/pause:3.2   \"/pause\"       41 minutes ago   Up 41 minutes             k8s_POD_web-0_shop_u-1_0\n");
    let node = evidence.node(&"node-a".into()).unwrap();
    let sandboxes = node.sandboxes.as_ref().unwrap();
    assert_eq!(sandboxes[0].seen.is_ready, Some(true));
    assert_eq!((sandboxes[1].seen.is_ready, sandboxes[1].seen.attempt), (Some(false), Some(1)));
    let containers = node.containers.as_ref().unwrap().iter().map(|id| id.seen.as_str());
    assert_eq!(containers.collect::<Vec<_>>(), ["aaaa456789abc", "f8189c4b982a"]);
}

#[test]
fn pods_described() {
    let evidence = one(
        "Name:         web-0\nNamespace:    shop\nPriority:     0\nNode:         node-a/10.0.0.5\nStart Time:   Mon, 01 Jan 2024 00:00:00 +0000\n\
         Labels:       app=web\nAnnotations:  cni.projectcalico.org/podIP: 192.168.1.5/32\nStatus:       Running\nIP:           192.168.1.5\nIPs:\n  IP:           192.168.1.5\n\
         Controlled By:  StatefulSet/web\nContainers:\n  app:\n    Container ID:   containerd://abcdef\n    State:          Waiting\n      Reason:       CrashLoopBackOff\n    Ready:          False\n    Restart Count:  7\n\
         Events:\n  Type     Reason     Age                 From     Message\n  ----     ------     ----                ----     -------\n  Warning  BackOff    2m (x10 over 10m)   kubelet  Back-off restarting failed container\n",
    );
    let pod = &evidence.pods.as_ref().unwrap()[0].seen;
    assert_eq!((&pod.node, pod.addresses.len(), pod.ready), (&Some("node-a".into()), 1, Some((0, 1))));
    assert_eq!(evidence.events.as_ref().unwrap()[0].seen.count, 10);
}

#[test]
fn one_paste_with_everything_in_it() {
    let evidence = one(
        "[root@n1 ~]# ip route\ndefault via 10.0.0.1 dev eth0\n192.168.1.5 dev cali11111111111 scope link\n\
         [root@n1 ~]# calicoctl node status\nCalico process is running.\n\nIPv4 BGP status\n\
         +--------------+-------------------+-------+----------+-------------+\n\
         | PEER ADDRESS |     PEER TYPE     | STATE |  SINCE   |    INFO     |\n\
         +--------------+-------------------+-------+----------+-------------+\n\
         | 10.0.0.2     | node-to-node mesh | up    | 07:11:05 | Established |\n\
         +--------------+-------------------+-------+----------+-------------+\n\n\
         [root@n1 ~]# sysctl net.ipv4.ip_forward\nnet.ipv4.ip_forward = 0\n\
         [root@n1 ~]# cat /proc/swaps\nFilename\t\t\t\tType\t\tSize\tUsed\tPriority\n/dev/dm-1                               partition\t1003516\t0\t-2\n\
         [root@n1 ~]# cat /var/lib/calico/nodename\ntemplate\n\
         $ kubectl exec -n shop web-0 -- ip route\ndefault via 169.254.1.1 dev eth0\n169.254.1.1 dev eth0 scope link\n\
         $ calicoctl get ippool -o yaml\napiVersion: projectcalico.org/v3\nitems:\n- apiVersion: projectcalico.org/v3\n  kind: IPPool\n  metadata:\n    name: p\n  spec:\n    cidr: 10.0.0.0/24\nkind: IPPoolList\n\
         $ calicoctl get nodes\nNAME   \nn1     \n",
    );
    let node = evidence.node(&"n1".into()).unwrap();
    assert_eq!(node.kernel.routes.as_ref().unwrap().len(), 2);
    assert_eq!(node.kernel.sysctl("net/ipv4/ip_forward").unwrap().seen, "0");
    assert_eq!(node.bgp.as_ref().unwrap().sessions.len(), 1);
    assert_eq!(node.setup.swaps.as_ref().unwrap().seen, ["/dev/dm-1"]);
    assert_eq!(node.setup.nodename_file.as_ref().unwrap().seen, "template");
    let inside = evidence
        .nodes
        .values()
        .chain(&evidence.unplaced)
        .filter_map(|node| node.pod_views.as_ref())
        .flatten();
    let pods: Vec<_> = inside.map(|view| view.pod.as_ref().unwrap().to_string()).collect();
    assert_eq!(pods, ["shop/web-0"]);
    assert_eq!(evidence.records.of(Kind::IpPool).unwrap().len(), 1);
}

/// `nft` prints all of it in one line.
#[test]
fn rules_of_nft_as_json() {
    let evidence = one(
        r#"{"nftables": [{"metainfo": {"version": "1.0.6", "json_schema_version": 1}}, {"table": {"family": "ip", "name": "filter", "handle": 1}}, {"chain": {"family": "ip", "table": "filter", "name": "FORWARD", "handle": 1, "type": "filter", "hook": "forward", "prio": 0, "policy": "drop"}}, {"rule": {"family": "ip", "table": "filter", "chain": "FORWARD", "handle": 4, "expr": [{"match": {"op": "==", "left": {"meta": {"key": "iifname"}}, "right": "docker0"}}, {"accept": null}]}}]}
"#,
    );
    let firewall = &evidence.unplaced[0].firewall.as_ref().unwrap().seen;
    assert_eq!(firewall.chains[0].rules.len(), 1);
    assert!(firewall.chains[0].hook.as_ref().unwrap().drops_the_rest);
}

/// `etcdctl get --prefix /calico -w json`: one line.
#[test]
fn records_of_etcdctl_as_json() {
    let evidence = one(
        r#"{"header":{"cluster_id":1,"member_id":2,"revision":7,"raft_term":2},"kvs":[{"key":"L2NhbGljby9pcGFtL3YyL2hhbmRsZS9rOHMtcG9kLW5ldHdvcmsuYWJj","create_revision":5,"mod_revision":5,"version":1,"value":"eyJoYW5kbGVJRCI6ICJrOHMtcG9kLW5ldHdvcmsuYWJjIiwgImJsb2NrIjogeyIxMC4wLjAuMC8yNiI6IDF9LCAiZGVsZXRlZCI6IGZhbHNlfQ=="},{"key":"L2NhbGljby9yZXNvdXJjZXMvdjMvcHJvamVjdGNhbGljby5vcmcvaXBwb29scy9wb2Rz","create_revision":6,"mod_revision":6,"version":1,"value":"eyJraW5kIjogIklQUG9vbCIsICJhcGlWZXJzaW9uIjogInByb2plY3RjYWxpY28ub3JnL3YzIiwgIm1ldGFkYXRhIjogeyJuYW1lIjogInBvZHMifSwgInNwZWMiOiB7ImNpZHIiOiAiMTAuMC4wLjAvMTYifX0="}],"count":2}
"#,
    );
    assert_eq!(evidence.ipam.as_ref().unwrap().books.handles.len(), 1);
    assert_eq!(evidence.records.all(Kind::IpPool)[0].seen.spec("cidr").unwrap(), "10.0.0.0/16");
}

pub(crate) const BRIEF: &str = "[root@n1 ~]# ip -br link\n\
         lo               UNKNOWN        00:00:00:00:00:00 <LOOPBACK,UP,LOWER_UP> \n\
         ens18            UP             52:54:00:12:34:56 <BROADCAST,MULTICAST,UP,LOWER_UP> \n\
         docker0          DOWN           02:42:00:00:00:01 <NO-CARRIER,BROADCAST,MULTICAST,UP> \n\
         tunl0@NONE       UNKNOWN        0.0.0.0 <NOARP,UP,LOWER_UP> \n\
         cali11111111111@if3 DOWN        ee:ee:ee:ee:ee:ee <BROADCAST,MULTICAST> \n\
         [root@n2 ~]# ip -br addr\n\
         lo               UNKNOWN        127.0.0.1/8 ::1/128 \n\
         ens18            UP             172.17.73.66/22 metric 100 172.17.73.63/22 fe80::1/64 \n\
         docker0          DOWN           \n\
         tun0             UNKNOWN        10.8.0.1 peer 10.8.0.2/32 \n";

pub(crate) const LEGACY_ROUTES: &str = "[root@n1 ~]# route -n\nKernel IP routing table\n\
         Destination     Gateway         Genmask         Flags Metric Ref    Use Iface\n\
         0.0.0.0         10.0.0.1        0.0.0.0         UG    100    0        0 eth0\n\
         10.0.0.0        0.0.0.0         255.255.255.0   U     0      0        0 eth0\n\
         192.168.8.0     0.0.0.0         255.255.255.192 U     0      0        0 *\n\
         192.168.8.5     0.0.0.0         255.255.255.255 UH    0      0        0 cali11111111111\n\
         192.168.9.0     10.0.0.6        255.255.255.192 UG    0      0        0 tunl0\n\
         192.168.10.0    -               255.255.255.192 !     0      -        0 -\n\
         [root@n2 ~]# netstat -rn\nKernel IP routing table\n\
         Destination     Gateway         Genmask         Flags   MSS Window  irtt Iface\n\
         default         10.0.0.1        0.0.0.0         UG        7 0          0 eth0\n\
         backbone        *               255.255.255.0   U         0 0          0 eth1\n";

pub(crate) const JSON_LOG: &str = r#"{"ts":1704067200000.1,"caller":"kubelet/kubelet.go:2425","msg":"SyncLoop ADD","v":2,"source":"api","pods":[{"name":"web-0","namespace":"shop"}]}
{"ts":1704067201000.2,"caller":"kubelet/util.go:30","msg":"No sandbox for pod can be found. Need to start a new one","v":2,"pod":{"name":"web-0","namespace":"shop"}}
{"ts":1704067202000.3,"caller":"remote/remote_runtime.go:205","msg":"StopPodSandbox from runtime service failed","err":"rpc error: code = Unknown desc = failed to destroy network for sandbox","podSandboxID":"94feeebc95fbcf081f75"}
{"ts":1704067203000.4,"caller":"kubelet/kubelet.go:1","msg":"nothing of interest","v":4}
"#;

pub(crate) const USAGE: &str = "$ calicoctl ipam show --show-blocks\n\
         +----------+------------------+-----------+------------+--------------+\n\
         | GROUPING |       CIDR       | IPS TOTAL | IPS IN USE |   IPS FREE   |\n\
         +----------+------------------+-----------+------------+--------------+\n\
         | IP Pool  | 192.168.0.0/16   |     65536 | 5 (0%)     | 65531 (100%) |\n\
         | Block    | 192.168.8.0/26   |        64 | 4 (6%)     | 60 (94%)     |\n\
         | Block    | 192.168.9.64/26  |        64 | 1 (2%)     | 63 (98%)     |\n\
         | IP Pool  | fd00::/48        | 1.2089e+24 | 0 (0%)    | 1.2089e+24 (100%) |\n\
         +----------+------------------+-----------+------------+--------------+\n";

#[test]
fn devices_in_brief() {
    let evidence = one(BRIEF);
    let kernel = &evidence.node(&"n1".into()).unwrap().kernel;
    let up: Vec<_> =
        kernel.links.iter().flatten().map(|link| (link.seen.is_up, link.seen.is_running)).collect();
    let (on, off) = (Some(true), Some(false));
    assert_eq!(up, [(on, on), (on, on), (on, off), (on, on), (off, off)]);
    let cali = &kernel.link("cali11111111111").unwrap().seen;
    assert_eq!((cali.peer_index, cali.mac.unwrap().to_string().as_str()), (Some(3), "ee:ee:ee:ee:ee:ee"));
    assert!(kernel.addresses.is_none() && !kernel.partial.links);
    let kernel = &evidence.node(&"n2".into()).unwrap().kernel;
    let addresses: Vec<String> = kernel
        .addresses
        .iter()
        .flatten()
        .map(|address| format!("{} {} {}", address.seen.device, address.seen.net, address.seen.scope))
        .collect();
    assert_eq!(
        addresses,
        [
            "lo 127.0.0.1/8 host",
            "lo ::1/128 host",
            "ens18 172.17.73.66/22 global",
            "ens18 172.17.73.63/22 global",
            "ens18 fe80::1/64 link",
            "tun0 10.8.0.1/32 global"
        ]
    );
    assert_eq!(kernel.link("docker0").unwrap().seen.is_up, None, "off, or without a carrier");
    assert!(!kernel.partial.addresses);
    let part = one("[root@n1 ~]# ip -br addr show ens18\nens18            UP             172.17.73.66/22 \n");
    assert!(part.node(&"n1".into()).unwrap().kernel.partial.addresses);
}

#[test]
fn routes_as_route_prints_them() {
    let evidence = one(LEGACY_ROUTES);
    let shown = |node: &str| -> Vec<String> {
        let routes = evidence.node(&node.into()).unwrap().kernel.routes.as_ref().unwrap();
        routes.iter().map(|route| format!("{} {:?}", route.seen, route.seen.metric)).collect()
    };
    assert_eq!(
        shown("n1"),
        [
            "0.0.0.0/0 via 10.0.0.1 dev eth0 Some(100)",
            "10.0.0.0/24 dev eth0 None",
            "blackhole 192.168.8.0/26 None",
            "192.168.8.5/32 dev cali11111111111 None",
            "192.168.9.0/26 via 10.0.0.6 dev tunl0 None",
            "unreachable 192.168.10.0/26 None"
        ]
    );
    assert!(!evidence.node(&"n1".into()).unwrap().kernel.partial.routes);
    assert_eq!(shown("n2"), ["0.0.0.0/0 via 10.0.0.1 dev eth0 None"]);
    assert!(evidence.node(&"n2".into()).unwrap().kernel.partial.routes, "a network goes by its name");
}

/// A kubelet with `--logging-format=json`, as its file has it.
#[test]
fn logs_as_lines_of_json() {
    let evidence = one(JSON_LOG);
    let log = evidence.log.as_ref().unwrap();
    use evidence::Happening;
    assert!(matches!(log[0].seen.what, Happening::PodAdded { .. }), "{log:?}");
    assert!(matches!(log[1].seen.what, Happening::SandboxChanged { .. }), "{log:?}");
    let Happening::SandboxStopFailed { container_id, .. } = &log[2].seen.what else { panic!("{log:?}") };
    assert_eq!((log.len(), container_id.as_str()), (3, "94feeebc95fbcf081f75"));
    assert_eq!(log[2].exhibit("").line, Some(3));
}

#[test]
fn use_of_pools_and_blocks() {
    let evidence = one(USAGE);
    assert_eq!(evidence.unseen, [], "every line is known");
    assert_eq!(evidence.ipam.as_ref().unwrap().reported, [], "and none is a problem");
}

/// After a `grep -v`, or with `--no-headers`.
#[test]
fn lists_without_headings() {
    let evidence = one(
        "master-1   Ready                      control-plane   412d   v1.28.4   10.0.0.11     <none>        Ubuntu 22.04.3 LTS\n\
         worker-2   NotReady,SchedulingDisabled   <none>          41d    v1.28.4\n\n\
         kube-system   calico-node-x7k2p   1/1   Running   1 (5h12m ago)   40d   10.0.0.11   master-1   <none>   <none>\n\
         shop          cart-2xkqv   0/1   CrashLoopBackOff   271 (2m4s ago)   22h   192.168.84.131   worker-1   <none>   <none>\n\n\
         6a661302e272   3f8a4339aadd   \"nginx -g 'daemon of…\"   41 minutes ago   Up 41 minutes   k8s_nginx_web-0_shop_u-1_0\n",
    );
    let nodes = evidence.kube_nodes.as_ref().unwrap();
    assert_eq!((nodes.len(), nodes[0].seen.internal_ips.len(), nodes[1].seen.internal_ips.len()), (2, 1, 0));
    assert!(evidence.partial.kube_nodes, "some lines of a list need not be all");
    let pods = evidence.pods.as_ref().unwrap();
    assert_eq!((pods[0].seen.ready, pods[1].seen.ready), (Some((1, 1)), Some((0, 1))));
    assert_eq!(pods[1].seen.node, Some("worker-1".into()));
    assert_eq!(evidence.unplaced[0].containers.as_ref().unwrap()[0].seen, "6a661302e272");
}

#[test]
fn etcdctl_of_2017() {
    let handle = r#"{"block":{"192.168.106.64/30":1},"id":"shop.web-0"}"#;
    let evidence = one(&format!(
        "$ etcdctl ls /calico/ipam/v2/handle\n/calico/ipam/v2/handle/shop.web-0\n\
         $ etcdctl -o extended get /calico/ipam/v2/handle/shop.web-0\nKey: /calico/ipam/v2/handle/shop.web-0\nCreated-Index: 12\n\
         Modified-Index: 12\nTTL: 0\nIndex: 3333\n\n{handle}\n"
    ));
    assert!(evidence.ipam.as_ref().unwrap().books.handles.contains_key("shop.web-0"));
    let node =
        serde_json::json!({"key": "/calico/ipam/v2/handle/shop.web-0", "value": handle, "createdIndex": 12});
    let evidence = one(&serde_json::json!({"action": "get", "node": node, "prevNode": null}).to_string());
    assert!(evidence.ipam.as_ref().unwrap().books.handles.contains_key("shop.web-0"));
}

/// Two ADDs at once: each line belongs to the sandbox that it names.
#[test]
fn lines_of_the_plugin_are_told_apart_by_their_sandbox() {
    let (one_id, other_id) = ("a1".repeat(32), "b2".repeat(32));
    let add = |id: &str, pod: &str| {
        format!(
            "2023-11-20 11:22:33.125 [INFO][1] k8s.go 74: Extracted identifiers for CmdAddK8s ContainerID=\"{id}\" Namespace=\"shop\" Pod=\"{pod}\"\n"
        )
    };
    let assigned = |id: &str, address: &str| {
        format!(
            "2023-11-20 11:22:33.301 [INFO][1] ipam.go 847: Auto-assigned 1 out of 1 IPv4s: [{address}/26] handle=\"k8s-pod-network.{id}\" host=\"worker-1\"\n"
        )
    };
    let text = add(&one_id, "web-0")
        + &add(&other_id, "web-1")
        + &assigned(&one_id, "10.0.0.1")
        + &assigned(&other_id, "10.0.0.2");
    let evidence = one(&text);
    let timeline = doctor::timeline::Timeline::of(evidence.log.as_ref().unwrap());
    let told: Vec<_> = timeline
        .pods
        .iter()
        .map(|history| {
            (history.pod.to_string(), history.calls.len(), history.calls[0].addresses()[0].to_string())
        })
        .collect();
    assert_eq!(
        told,
        [
            ("shop/web-0".to_owned(), 1, "10.0.0.1".to_owned()),
            ("shop/web-1".to_owned(), 1, "10.0.0.2".to_owned())
        ]
    );
    assert_eq!(timeline.pods[0].calls[0].container_id.as_deref(), Some(one_id.as_str()));
}
