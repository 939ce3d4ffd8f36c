//! What the demo shows, step by step.

use std::time::Instant;

use anyhow::{Context as _, Result, ensure};
use lab::cluster::Cluster;
use lab::kubelet::{KubeletRequest, NewPod, PodKey, PodReport};
use lab::ping::Outcome;
use lab::replay;

/// On every node.
const PODS: [&str; 2] = ["web", "db"];
/// Endpoints that leak in the second outage, over all nodes.
const LEAKS: usize = 30;

pub(super) struct Story<'a> {
    cluster: &'a Cluster,
}

impl Story<'_> {
    pub(super) fn new(cluster: &Cluster) -> Story<'_> {
        Story { cluster }
    }

    pub(super) fn tell(&self) -> Result<()> {
        self.show_what_agents_made()?;
        let pods = self.add_pods()?;
        self.ping()?;
        self.show_kernel(&pods)?;
        self.show_store()?;
        self.check()?;
        step("First outage: the DEL of an old sandbox arrives when a pod of the same name runs");
        replay::stale_delete(self.cluster, &indented)?;
        step("Second outage: a runtime loses its pods without a DEL");
        replay::leaked_endpoints(self.cluster, LEAKS, &indented)?;
        self.delete_pods()?;
        self.show_nothing_is_left()
    }

    fn show_what_agents_made(&self) -> Result<()> {
        step("On the empty store the agents have created the records that a first Calico node creates");
        self.plumb(&["get", "nodes", "-o", "wide"])?;
        self.plumb(&["get", "ippools", "-o", "wide"])
    }

    fn add_pods(&self) -> Result<Vec<PodReport>> {
        step("The runtimes call plumb-cni for two pods on each node: ADD");
        let mut all = Vec::new();
        for (number, node) in self.nodes().into_iter().enumerate() {
            let key = |name: &&str| PodKey { namespace: "shop".to_owned(), name: format!("{name}-{number}") };
            let pods = PODS.iter().map(|name| NewPod::new(&key(name))).collect();
            let started = Instant::now();
            let added = self.cluster.kubelet(node, &KubeletRequest::Add { pods, waits: true })?;
            for pod in &added {
                let address = pod.addresses.first().context("a pod has an address")?;
                note(&format!("{node}: {} has {address} on eth0, {} on the node", pod.key(), pod.device));
            }
            note(&format!(
                "{node}: both at the same time in {} ms, namespaces included",
                started.elapsed().as_millis()
            ));
            all.extend(added);
        }
        let mut addresses: Vec<&String> = all.iter().flat_map(|pod| &pod.addresses).collect();
        addresses.sort();
        addresses.dedup();
        ensure!(addresses.len() == all.len(), "pods share addresses");
        Ok(all)
    }

    fn ping(&self) -> Result<()> {
        step("All pods ping each other, on the same node and between nodes");
        let trips = lab::ping::all(self.cluster)?;
        for trip in &trips {
            ensure!(
                trip.outcome == Outcome::Answered,
                "{} gets no answer from {} ({})",
                trip.from,
                trip.to,
                trip.address
            );
        }
        let nodes = self.nodes().len();
        let on_node = nodes * (PODS.len() * 2 + PODS.len() * (PODS.len() - 1));
        let between = nodes * PODS.len() * (nodes - 1);
        ensure!(trips.len() >= on_node + between, "only {} paths were tried", trips.len());
        note(&format!("{on_node} paths on nodes and {between} between nodes: all answered"));
        Ok(())
    }

    fn show_kernel(&self, pods: &[PodReport]) -> Result<()> {
        step("Kernel state");
        let nodes = self.nodes();
        let node = nodes.first().context("a lab has nodes")?;
        for words in [
            &["ip", "-4", "route", "show", "proto", "112"][..],
            &["ip", "-4", "neigh", "show", "nud", "permanent"],
        ] {
            let shown = self.cluster.run_on(node, words)?;
            ensure!(shown.lines().count() >= PODS.len(), "{node} does not hold it: {shown}");
            command(&words.join(" "), node);
            show(&shown);
        }
        let pod = pods.first().context("there are pods")?;
        for words in [&["-4", "-br", "address", "show", "dev", "eth0"][..], &["-4", "route", "show"]] {
            let output = self.cluster.command_in(node, &pod.netns)?.arg("ip").args(words).output()?;
            command(&format!("ip {}", words.join(" ")), &pod.key().to_string());
            show(&String::from_utf8_lossy(&output.stdout));
        }
        Ok(())
    }

    fn show_store(&self) -> Result<()> {
        step("Records in the store");
        self.plumb(&["get", "wep", "-A", "-o", "wide"])?;
        self.plumb(&["get", "blockaffinities"])
    }

    fn check(&self) -> Result<()> {
        step("CHECK compares links, addresses, routes, neighbours and records of all pods");
        for node in self.nodes() {
            self.cluster.kubelet(node, &KubeletRequest::Check)?;
            note(&format!("{node}: as expected"));
        }
        Ok(())
    }

    fn delete_pods(&self) -> Result<()> {
        step("All pods end: each is stopped twice and removed, as container runtimes do");
        for node in self.nodes() {
            let pods: Vec<PodKey> = self.cluster.pods(node)?.iter().map(PodReport::key).collect();
            let count = pods.len();
            self.cluster.kubelet(node, &KubeletRequest::Delete { pods, waits: true })?;
            note(&format!("{node}: {count} pods are gone"));
        }
        Ok(())
    }

    fn show_nothing_is_left(&self) -> Result<()> {
        step("Nothing is left");
        let rest = lab::wait_for("everything to be released", || {
            let rest = self.rest()?;
            ensure!(rest.iter().all(|(_, shown)| shown.is_empty()), "something is left: {rest:?}");
            Ok(rest)
        })?;
        for (what, _) in rest {
            note(&format!("no {what}"));
        }
        note("what remains: nodes, pools, and the nodes' blocks, for the next pods");
        Ok(())
    }

    fn rest(&self) -> Result<Vec<(&'static str, String)>> {
        let mut on_nodes = ["", "", ""].map(str::to_owned);
        for node in self.nodes() {
            let links = self.cluster.run_on(node, &["ip", "-br", "link", "show", "type", "veth"])?;
            let cables = |line: &&str| !line.starts_with("eth");
            on_nodes[0].extend(links.lines().filter(cables));
            on_nodes[1] += &self.cluster.run_on(node, &["ip", "-4", "route", "show", "proto", "112"])?;
            on_nodes[2] += &self.cluster.run_on(node, &["ip", "-4", "neigh", "show", "nud", "permanent"])?;
        }
        let [links, routes, neighbours] = on_nodes;
        Ok(vec![
            ("devices of pods", links),
            ("routes to pods", routes),
            ("permanent neighbours", neighbours),
            ("endpoint records", self.cluster.plumb(&["get", "wep", "-A", "-o", "name"])?),
            ("allocated addresses", self.taken_addresses()?),
        ])
    }

    fn taken_addresses(&self) -> Result<String> {
        let blocks: serde_json::Value =
            serde_json::from_str(&self.cluster.plumb(&["get", "ipamblocks", "-o", "json"])?)?;
        let items = blocks["items"].as_array().context("plumb lists blocks as items")?;
        ensure!(!items.is_empty(), "the nodes' blocks have disappeared");
        let allocations = items.iter().filter_map(|block| block["spec"]["allocations"].as_array()).flatten();
        let taken: Vec<String> =
            allocations.filter(|entry| !entry.is_null()).map(ToString::to_string).collect();
        Ok(taken.join(" "))
    }

    /// Runs `plumb` with the lab's store and shows what it prints.
    fn plumb(&self, arguments: &[&str]) -> Result<()> {
        let output = self.cluster.plumb(arguments)?;
        command(&format!("plumb {}", arguments.join(" ")), "");
        show(&output);
        Ok(())
    }

    fn nodes(&self) -> Vec<&str> {
        self.cluster.description().node_names()
    }
}

pub(super) fn step(title: &str) {
    println!("\n== {title}");
}

pub(super) fn note(line: &str) {
    println!("   {line}");
}

/// A replay's own steps, below ours.
pub(super) fn indented(line: &str) {
    println!("   {}", line.trim_start_matches('\n').replacen("==", "--", 1));
}

pub(super) fn command(line: &str, place: &str) {
    let place = if place.is_empty() { String::new() } else { format!("[{place}] ") };
    println!("   {place}$ {line}");
}

pub(super) fn show(text: &str) {
    for line in text.lines() {
        println!("     {}", line.trim_end());
    }
}
