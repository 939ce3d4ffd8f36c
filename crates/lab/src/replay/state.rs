//! What a lab really holds, counted from three sides: the records, the kernels of the nodes, the runtimes.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::{Context as _, Result, bail, ensure};
use serde_json::Value;

use crate::cluster::{Cluster, NETWORK, StoreKind};
use crate::kubelet::PodReport;

/// One look at everything.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct State {
    /// Container IDs in endpoint records.
    pub(super) endpoints: BTreeSet<String>,
    /// Handles that hold addresses, as container IDs, with the addresses.
    pub(super) addresses: BTreeMap<String, BTreeSet<String>>,
    /// Node and name of each device of a pod.
    pub(super) devices: BTreeSet<(String, String)>,
    /// Node and interface index of each of them. A new pod may get the name of a lost one's device.
    pub(super) indexes: BTreeSet<(String, String)>,
    /// Node and destination of each route of ours.
    pub(super) routes: BTreeSet<(String, String)>,
    /// Pods that run.
    pub(super) pods: Vec<(String, PodReport)>,
}

impl State {
    pub(super) fn look(cluster: &Cluster) -> Result<State> {
        let mut state = State::default();
        for node in &cluster.description().nodes {
            state.look_at_node(cluster, &node.name)?;
        }
        let is_kubernetes = cluster.description().store == StoreKind::Kubernetes;
        state.look_at_endpoints(&json(cluster, &["get", "wep", "-A", "-o", "json"])?, is_kubernetes)?;
        state.look_at_blocks(&json(cluster, &["get", "ipamblocks", "-o", "json"])?)?;
        Ok(state)
    }

    fn look_at_node(&mut self, cluster: &Cluster, node: &str) -> Result<()> {
        let links = cluster.run_on(node, &["ip", "-o", "link", "show"])?;
        for line in links.lines() {
            let mut parts = line.split(": ");
            let (Some(index), Some(name)) = (parts.next(), parts.next()) else { continue };
            let name = name.split('@').next().unwrap_or(name);
            if name.starts_with("cali") {
                self.devices.insert((node.to_owned(), name.to_owned()));
                self.indexes.insert((node.to_owned(), index.to_owned()));
            }
        }
        let routes = cluster.run_on(node, &["ip", "route", "show", "proto", "112"])?;
        let destinations = routes.lines().filter_map(|line| line.split(' ').next());
        self.routes.extend(destinations.map(|to| (node.to_owned(), to.to_owned())));
        self.pods.extend(cluster.pods(node)?.into_iter().map(|pod| (node.to_owned(), pod)));
        Ok(())
    }

    fn look_at_endpoints(&mut self, list: &Value, is_kubernetes: bool) -> Result<()> {
        for item in items(list)? {
            match item["spec"]["containerID"].as_str() {
                Some(id) => self.endpoints.insert(id.to_owned()),
                // A Pod that has no sandbox yet, or none any more.
                None if is_kubernetes => continue,
                None => bail!("an endpoint names no sandbox: {item}"),
            };
        }
        Ok(())
    }

    fn look_at_blocks(&mut self, list: &Value) -> Result<()> {
        for block in items(list)? {
            let spec = &block["spec"];
            let attributes = spec["attributes"].as_array().context("a block has attributes")?;
            for (ordinal, index) in spec["allocations"].as_array().into_iter().flatten().enumerate() {
                let Some(index) = index.as_u64().and_then(|index| usize::try_from(index).ok()) else {
                    continue;
                };
                let handle = attributes.get(index).and_then(|attribute| handle_of(attribute));
                let handle =
                    handle.with_context(|| format!("an allocation of {} has no handle", spec["cidr"]))?;
                // Handles are "network.container"; others (of tunnels) are not pods'.
                if let Some(id) = handle.strip_prefix(&format!("{NETWORK}.")) {
                    let address = format!("{}#{ordinal}", spec["cidr"].as_str().unwrap_or_default());
                    self.addresses.entry(id.to_owned()).or_default().insert(address);
                }
            }
        }
        Ok(())
    }

    /// Container IDs of the sandboxes that the runtimes vouch for.
    pub(super) fn living(&self) -> BTreeSet<String> {
        self.pods.iter().map(|(_, pod)| pod.container_id.clone()).filter(|id| !id.is_empty()).collect()
    }

    /// Endpoints of sandboxes that no runtime knows.
    pub(super) fn ownerless_endpoints(&self) -> usize {
        self.endpoints.difference(&self.living()).count()
    }

    pub(super) fn ownerless_addresses(&self) -> usize {
        let living = self.living();
        self.addresses.iter().filter(|(id, _)| !living.contains(*id)).map(|(_, held)| held.len()).sum()
    }

    pub(super) fn ownerless_devices(&self) -> usize {
        let owned: BTreeSet<(String, String)> =
            self.pods.iter().map(|(node, pod)| (node.clone(), pod.device.clone())).collect();
        self.devices.difference(&owned).count()
    }

    /// Records, kernels and runtimes speak of exactly the same sandboxes.
    pub(super) fn ensure_in_order(&self) -> Result<()> {
        let living = self.living();
        ensure!(self.endpoints == living, "endpoints: {:?}, sandboxes: {living:?}", self.endpoints);
        let holders: BTreeSet<String> = self.addresses.keys().cloned().collect();
        ensure!(holders == living, "addresses are held by {holders:?}, sandboxes are {living:?}");
        let devices: BTreeSet<(String, String)> =
            self.pods.iter().map(|(node, pod)| (node.clone(), pod.device.clone())).collect();
        ensure!(self.devices == devices, "devices: {:?}, should be {devices:?}", self.devices);
        let routes: BTreeSet<(String, String)> = self
            .pods
            .iter()
            .flat_map(|(node, pod)| pod.addresses.iter().map(move |address| (node.clone(), address.clone())))
            .filter(|(_, address)| !address.contains(':'))
            .collect();
        let missing: Vec<_> = routes.difference(&self.routes).collect();
        ensure!(missing.is_empty(), "routes are missing: {missing:?}");
        Ok(())
    }
}

fn json(cluster: &Cluster, arguments: &[&str]) -> Result<Value> {
    serde_json::from_str(&cluster.plumb(arguments)?).context("plumb prints JSON")
}

fn items(list: &Value) -> Result<&Vec<Value>> {
    list["items"].as_array().context("a list has items")
}

fn handle_of(attribute: &Value) -> Option<&str> {
    attribute["handle_id"].as_str().or_else(|| attribute["handleID"].as_str())
}
