//! What is left to people, and why.

use super::{Area, Remedy};

const fn by_hand(code: &'static str, why: &'static str) -> Remedy {
    Remedy { code, area: Area::ByHand, does: why, undo: "", act: None }
}

const LOG: &str =
    "a log tells what has happened; what is still wrong is found by looking at the cluster itself";
const BGP: &str = "the other side of a session is somebody else's: correct the peer, its password or its firewall as the finding says";
const PEOPLE: &str =
    "this is a decision about the cluster that nobody but its operators can make; the finding says how";
const MACHINE: &str = "this is the machine's own: its kubelet, its files, its clock; the finding says how";

pub(super) const ALL: &[Remedy] = &[
    by_hand("add-failing", LOG),
    by_hand("del-retried", LOG),
    by_hand("stale-del", LOG),
    by_hand("pod-replaced-without-del", LOG),
    by_hand(
        "reported-by-calicoctl",
        "another tool said so at another time: look at the cluster itself with plumb doctor",
    ),
    by_hand("bgp-as-wrong", BGP),
    by_hand("bgp-not-running", "BIRD is started by the node's agent, or by whoever runs it there"),
    by_hand("bgp-password-wrong", BGP),
    by_hand("bgp-port-closed", BGP),
    by_hand("bgp-session-down", BGP),
    by_hand("bgp-record-unfit", PEOPLE),
    by_hand(
        "address-outside-pools",
        "the pod works; make a pool for its address, or recreate the pod so that it gets one of a pool",
    ),
    by_hand(
        "affinity-unlabelled",
        "calico-node labels the affinities of its node at its start; a Kubernetes store is not written here",
    ),
    by_hand("block-limit-reached", PEOPLE),
    by_hand(
        "block-hides-address",
        "which of the two networks is the wrong one only its operators know: make a pool that overlaps neither nodes nor services",
    ),
    by_hand(
        "ipam-config-ignored",
        "which of the two is meant only its operators know: set what is meant with plumb ipam configure",
    ),
    by_hand(
        "pool-not-for-node",
        "the pods work; recreate them so that they get addresses of a pool for their node, if that matters",
    ),
    by_hand("pool-full", PEOPLE),
    by_hand("pool-overlap", PEOPLE),
    by_hand("leak-collection-off", PEOPLE),
    by_hand("cluster-routes-contradictory", PEOPLE),
    by_hand("etcd-even-members", PEOPLE),
    by_hand("policy-not-enforced", PEOPLE),
    by_hand("mode-unsupported", PEOPLE),
    by_hand(
        "node-address-shared",
        "two machines claim one address: which of them is wrong cannot be seen from here; correct IP_AUTODETECTION_METHOD or the machine",
    ),
    by_hand(
        "forwarding-dropped",
        "the rules are a stranger's, and strangers' rules are never touched: accept what comes from and goes to pods, if it is not meant",
    ),
    by_hand(
        "tunnel-dropped",
        "the rules are a stranger's, and strangers' rules are never touched: accept the tunnel's packets, as the finding says, if it is not meant",
    ),
    by_hand(
        "pod-namespace-gone",
        "only the runtime makes a sandbox's network namespace: delete the pod, so that it is made anew (a static pod: crictl stopp, then crictl rmp)",
    ),
    by_hand("packets-lost", "where packets are lost between nodes cannot be seen from here"),
    by_hand(
        "nat-missing",
        "the node's agent loads its rules again by itself within a minute; see what removes them, and that nft is installed",
    ),
    by_hand(
        "pod-spoofing-possible",
        "the node's agent loads the rules by itself; check that it runs, that nft is installed, and what removes them",
    ),
    by_hand(
        "route-shadowed",
        "the route in front is a stranger's, and strangers' routes are never touched: remove it with ip route del, if it is not meant",
    ),
    by_hand(
        "route-gateway-unreachable",
        "the gateway does not answer: the machine, its card or the network between has to be put right",
    ),
    by_hand("calico-node-not-ready", MACHINE),
    by_hand("clock-skew", MACHINE),
    by_hand("cni-config-shadowed", MACHINE),
    by_hand("credentials-expired", MACHINE),
    by_hand(
        "del-unfinished",
        "the node's agent tries what waits again and again by itself; what was set aside has to be looked at, and its file removed",
    ),
    by_hand(
        "node-address-doubtful",
        "which address the other nodes are meant to use only its operators know; they set it for the node's agent",
    ),
    by_hand("kubelet-failing", MACHINE),
    by_hand("kubelet-refuses-swap", MACHINE),
    by_hand("node-not-ready", MACHINE),
    by_hand(
        "node-unrecorded",
        "an agent that starts records its node by itself; whether the machine is meant to be a node its operators know",
    ),
    by_hand("nodename-differs", MACHINE),
    by_hand(
        "pod-network-crowded",
        "a program in the pod made them: see there whether they are meant, and take CAP_NET_ADMIN from the pod if not",
    ),
    by_hand(
        "state-folder-unusable",
        "the disk or its mount is the machine's own; the node's agent goes on by itself once it can write",
    ),
    by_hand(
        "store-unreachable",
        "the store and its disk are somebody else's; the node's agent goes on by itself once it can use the store",
    ),
    by_hand("store-unstable", MACHINE),
];
