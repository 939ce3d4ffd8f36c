//! Writing a bundle, line by line.

use std::io::{self, Write};

use evidence::{Evidence, NodeEvidence, Unseen};
use jiff::Timestamp;
use model::Key;
use serde::Serialize;
use serde_json::{Value, json};

use super::mask::mask;
use super::{BEGINNING, KUBE_NODE, KUBE_NODES, POD, PODS, VERSION, WHOLE_KUBERNETES};

/// Writes a bundle, look by look.
#[derive(Debug)]
pub struct BundleWriter<W: Write> {
    out: W,
}

impl<W: Write> BundleWriter<W> {
    pub fn new(out: W) -> BundleWriter<W> {
        BundleWriter { out }
    }

    /// Begins a look.
    pub fn look(&mut self, taken_at: Timestamp) -> io::Result<()> {
        // The key that tells a bundle from other files comes first, whatever order a map has.
        writeln!(self.out, "{BEGINNING}{VERSION},\"takenAt\":{}}}", json!(taken_at))
    }

    pub fn record(&mut self, key: &Key, value: &[u8]) -> io::Result<()> {
        let key = key.etcd_text();
        match serde_json::from_slice::<Value>(value) {
            Ok(mut value) => {
                mask(&mut value);
                self.line(&json!({"record": {"key": key, "value": value}}))
            }
            Err(_) => {
                let text = model::text::masked(&String::from_utf8_lossy(value));
                self.line(&json!({"record": {"key": key, "text": text}}))
            }
        }
    }

    /// Every record of the store was written.
    pub fn whole_store(&mut self) -> io::Result<()> {
        self.line(&json!({"wholeStore": true}))
    }

    /// What Kubernetes says of pods and nodes, each list whole, and what of it could not be read.
    pub fn kubernetes(&mut self, evidence: &Evidence) -> io::Result<()> {
        let mut whole = Vec::new();
        if let Some(pods) = &evidence.pods {
            pods.iter().try_for_each(|pod| self.masked_line(POD, pod))?;
            whole.push(PODS);
        }
        if let Some(nodes) = &evidence.kube_nodes {
            nodes.iter().try_for_each(|node| self.masked_line(KUBE_NODE, node))?;
            whole.push(KUBE_NODES);
        }
        if !whole.is_empty() {
            self.line(&json!({WHOLE_KUBERNETES: whole}))?;
        }
        evidence.unseen.iter().try_for_each(|unseen| self.unseen(unseen))
    }

    fn masked_line(&mut self, name: &str, thing: &impl Serialize) -> io::Result<()> {
        let mut value = serde_json::to_value(thing).map_err(io::Error::other)?;
        mask(&mut value);
        self.line(&json!({name: value}))
    }

    /// Pods from inside are on lines of their own, which a reader puts together: a pod holds as much as it likes, and what is
    /// written takes far more memory for a moment than what was read.
    pub fn node(&mut self, mut node: NodeEvidence) -> io::Result<()> {
        let views = node.pod_views.as_mut().map(std::mem::take).unwrap_or_default();
        let name = node.name.clone();
        self.part_of_node(node)?;
        for view in views {
            let pod_views = Some(vec![view]);
            self.part_of_node(NodeEvidence { pod_views, ..NodeEvidence::new(name.as_str()) })?;
        }
        Ok(())
    }

    fn part_of_node(&mut self, node: NodeEvidence) -> io::Result<()> {
        let mut value = serde_json::to_value(&node).map_err(io::Error::other)?;
        drop(node);
        mask(&mut value);
        self.line(&json!({"node": value}))
    }

    pub fn unseen(&mut self, unseen: &Unseen) -> io::Result<()> {
        self.line(&json!({"unread": model::text::masked(&unseen.to_string())}))
    }

    /// Nodes of evidence, and what could not be read of them.
    pub fn nodes(&mut self, evidence: Evidence) -> io::Result<()> {
        evidence.nodes.into_values().try_for_each(|node| self.node(node))?;
        evidence.unseen.iter().try_for_each(|unseen| self.unseen(unseen))
    }

    pub fn finish(mut self) -> io::Result<W> {
        self.out.flush()?;
        Ok(self.out)
    }

    fn line(&mut self, value: &Value) -> io::Result<()> {
        writeln!(self.out, "{value}")
    }
}
