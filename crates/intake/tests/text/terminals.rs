//! What operators paste out of terminals: several commands in one file, files named after nodes in many ways, lists of all and of a part.

use evidence::Evidence;
use evidence::firewall::Act;
use intake::read;
use model::{Kind, NodeName};

const NODES: &str = "NAME       STATUS   ROLES    AGE   VERSION   INTERNAL-IP   EXTERNAL-IP   OS-IMAGE\n\
    worker-1   Ready    <none>   9d    v1.29.3   192.0.2.12    <none>        Debian\n\
    worker-11  Ready    <none>   9d    v1.29.3   192.0.2.22    <none>        Debian\n";
const ROUTE: &str = "default via 192.0.2.1 dev eth0 proto static\n";
const PODS: &str = "NAMESPACE     NAME                READY   STATUS    RESTARTS   AGE   IP           NODE\n\
    kube-system   calico-node-x2x7q   1/1     Running   0          9d    192.0.2.12   worker-1\n\
    shop          web-0               1/1     Running   0          9d    10.244.1.5   worker-1\n";

fn names(evidence: &Evidence) -> Vec<&str> {
    evidence.nodes.keys().map(NodeName::as_str).collect()
}

#[test]
fn a_node_is_told_by_the_name_of_a_file_or_of_a_directory() {
    for file in [
        "worker-1.ip-route.txt",
        "ip-route_worker-1.txt",
        "dumps/worker-1/routes",
        "dumps/node-worker-1-2026/routes.txt",
        "WORKER-1.txt",
        "logs/calico-node-x2x7q.txt",
    ] {
        let evidence =
            read([("nodes.txt", NODES.as_bytes()), ("pods.txt", PODS.as_bytes()), (file, ROUTE.as_bytes())]);
        assert_eq!(names(&evidence), ["worker-1"], "{file}");
    }
    let evidence = read([("nodes.txt", NODES.as_bytes()), ("worker-11.routes.txt", ROUTE.as_bytes())]);
    assert_eq!(names(&evidence), ["worker-11"], "not a part of a longer name");
    let evidence = read([("nodes.txt", NODES.as_bytes()), ("other.routes.txt", ROUTE.as_bytes())]);
    assert!(evidence.nodes.is_empty() && evidence.unplaced.len() == 1, "a file's name alone is no node");
}

#[test]
fn a_node_is_told_by_the_content() {
    let addresses = "1: lo: <LOOPBACK,UP,LOWER_UP> mtu 65536 state UNKNOWN\n    inet 127.0.0.1/8 scope host lo\n\
        2: eth0: <BROADCAST,UP,LOWER_UP> mtu 1500 state UP\n    inet 192.0.2.22/24 scope global eth0\n";
    let evidence = read([("nodes.txt", NODES.as_bytes()), ("paste.txt", addresses.as_bytes())]);
    assert_eq!(names(&evidence), ["worker-11"]);
    let named = format!("# hostname\nworker-1\n# ip route\n{ROUTE}");
    let evidence = read([("nodes.txt", NODES.as_bytes()), ("paste.txt", named.as_bytes())]);
    assert_eq!(names(&evidence), ["worker-1"]);
}

#[test]
fn a_shell_elsewhere_is_the_other_machines() {
    let text = format!(
        "$ ssh root@worker-1 ip route\n{ROUTE}$ kubectl debug node/worker-11 -it --image=busybox -- ip route\n{ROUTE}"
    );
    let evidence = read([("nodes.txt", NODES.as_bytes()), ("paste.txt", text.as_bytes())]);
    assert_eq!(names(&evidence), ["worker-1", "worker-11"]);
}

#[test]
fn a_pod_on_its_nodes_network_shows_the_node() {
    let text = format!(
        "$ kubectl exec -n kube-system calico-node-x2x7q -c calico-node -- ip route\n{ROUTE}\
         $ kubectl exec -n shop web-0 -- ip route\ndefault via 169.254.1.1 dev eth0\n\
         $ kubectl logs -n kube-system calico-node-x2x7q\n\
         2026-03-04 10:11:02.813 [ERROR][52] felix/daemon.go 391: Something failed error=odd\n"
    );
    let evidence = read([("pods.txt", PODS.as_bytes()), ("paste.txt", text.as_bytes())]);
    assert_eq!(names(&evidence), ["worker-1"]);
    assert_eq!(evidence.unplaced.len(), 1, "the other pod's view");
    let event = &evidence.log.as_ref().unwrap()[0].seen;
    assert_eq!(event.node.as_ref().map(NodeName::as_str), Some("worker-1"));
}

#[test]
fn a_list_is_whole_if_nothing_narrows_it() {
    let partial =
        |command: &str| read([("paste.txt", format!("$ {command}\n{PODS}").as_bytes())]).partial.pods;
    assert!(!partial("kubectl get pods -A -o wide"));
    assert!(partial("kubectl get pods -A -o wide -l app=web"));
    assert!(partial("kubectl get pods -A -o wide | grep -E 'NAME|web'"));
    let list = |more: &str, close: &str| {
        let pod = |space: &str| {
            format!(r#"{{"apiVersion":"v1","kind":"Pod","metadata":{{"name":"a","namespace":"{space}"}}}}"#)
        };
        let text = format!(
            r#"{{"apiVersion":"v1","kind":"PodList","metadata":{{"continue":"{more}"}},"items":[{},{}{close}"#,
            pod("x"),
            pod("y")
        );
        read([("pods.json", text.as_bytes())]).partial.pods
    };
    assert!(!list("", "]}"));
    assert!(list("eyJ2", "]}"), "it continues elsewhere");
    assert!(list("", ""), "its end is missing");
}

#[test]
fn an_empty_list_is_an_answer() {
    let empty = "apiVersion: v1\nitems: []\nkind: List\nmetadata:\n  resourceVersion: \"\"\n";
    let text = format!("$ kubectl get ipamhandles,bgppeers -o yaml\n{empty}");
    let evidence = read([("paste.txt", text.as_bytes())]);
    assert!(evidence.ipam.as_ref().unwrap().whole.handles);
    assert_eq!(evidence.records.of(Kind::BgpPeer).map(<[_]>::len), Some(0));
    assert!(evidence.ipam.as_ref().is_some_and(|ipam| !ipam.whole.blocks));
}

#[test]
fn settings_sockets_and_rules_of_a_node() {
    let text = "root@n1:~# sysctl -a\nkernel.printk = 4\t4\t1\t7\nnet.ipv4.ip_forward = 0\nnet.ipv4.tcp_rmem = 4096\t131072\t6291456\n\
        sysctl: reading key \"net.ipv6.conf.all.stable_secret\"\n\
        root@n1:~# cat /proc/sys/net/ipv4/conf/all/rp_filter\n2\n\
        root@n1:~# ss -lnt\nState   Recv-Q  Send-Q   Local Address:Port    Peer Address:Port Process\n\
        LISTEN  0       8              0.0.0.0:179          0.0.0.0:*\nLISTEN  0       4096         127.0.0.1:9099         0.0.0.0:*\n\
        root@n1:~# ip rule\n0:\tfrom all lookup local\n32766:\tfrom all lookup main\n\
        root@n1:~# bridge fdb show dev vxlan.calico\n66:05:a1:0b:0c:0d dst 192.0.2.12 self permanent\n66:05:a1:0b:0c:0e dev vxlan.calico dst 192.0.2.13 self permanent\n\
        root@n1:~# iptables-save\n*filter\n:FORWARD DROP [0:0]\n-A FORWARD -i docker0 -j ACCEPT\nCOMMIT\n\
        root@n1:~# dmesg | tail -1\n[12345.678901] nf_conntrack: nf_conntrack: table full, dropping packet\n";
    let evidence = read([("paste.txt", text.as_bytes())]);
    assert_eq!(evidence.unseen, []);
    let node = evidence.node(&"n1".into()).unwrap();
    let value = |path: &str| node.kernel.sysctl(path).map(|value| value.seen.as_str());
    assert_eq!((value("net/ipv4/ip_forward"), value("net/ipv4/conf/all/rp_filter")), (Some("0"), Some("2")));
    assert_eq!(value("kernel/printk"), None);
    assert_eq!(node.setup.listening_ports.as_ref().unwrap().seen, [179]);
    assert_eq!(node.kernel.forwards.as_ref().unwrap().len(), 2);
    assert_eq!(node.firewall.as_ref().unwrap().seen.chains[0].rules[0].act, Act::Accept);
    let event = &evidence.log.as_ref().unwrap()[0].seen;
    assert!(matches!(event.what, evidence::Happening::Named { .. }), "{event:?}");
}
