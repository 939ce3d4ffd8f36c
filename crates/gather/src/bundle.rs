//! A bundle: evidence as one file, to be looked at elsewhere and later. Also what the agent answers.
//!
//! A line of JSON per thing, so that it can be written and read piece by piece:
//!
//! ```text
//! {"plumbBundle":1,"takenAt":"2026-08-22T06:33:20Z"}             begins a look; a later look may follow
//! {"record":{"key":"/calico/…","value":{…}}}                    a record of the store, as it is; `text` if it is no JSON
//! {"wholeStore":true}                                           every record of the store stands above
//! {"pod":{"seen":{…},"origin":{…}}}                             a pod, as far as checks need it; `kubeNode`: a node of Kubernetes
//! {"wholeKubernetes":["pods","kubeNodes"]}                      every one of these stands above
//! {"node":{"name":"node-a","kernel":{…},…}}                     one node's evidence
//! {"unread":"node node-a: … could not be read: …"}
//! ```
//!
//! Secrets are masked when it is written, and again when it is read: whoever wrote it may have known fewer of them.

#![cfg_attr(not(test), deny(clippy::string_slice, clippy::indexing_slicing))]

use std::io::{self, BufRead, Write};

use evidence::Evidence;
use evidence::NodeEvidence;
use evidence::{FileGap, Unseen};
use jiff::Timestamp;
use model::Key;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use crate::kubernetes::of_this_cluster;
use crate::records::Records;

const VERSION: u64 = 1;
/// How a bundle begins, so that it can be told from other files.
const BEGINNING: &str = "{\"plumbBundle\":";
/// No piece of evidence is longer, or has more values: a node with a thousand pods has some megabytes. What is larger is left out.
const LINE_BYTES_MAX: usize = 32 << 20;
const VALUES_MAX: usize = 2_000_000;
/// What lines about Kubernetes are called.
const POD: &str = "pod";
const KUBE_NODE: &str = "kubeNode";
const WHOLE_KUBERNETES: &str = "wholeKubernetes";
/// The lists that such a line may name.
const PODS: &str = "pods";
const KUBE_NODES: &str = "kubeNodes";

/// More lines that cannot be used are counted, and not named.
const UNSEEN_MAX: usize = 100;

/// Whether a file is a bundle, by its first bytes.
pub fn is_bundle(first: &[u8]) -> bool {
    first.starts_with(BEGINNING.as_bytes())
}

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

/// Reads a bundle. Of several looks, the one before the last is the earlier one; those before it are of no use to anybody, and are forgotten
/// as soon as there is a newer one, so that any number of them takes no more memory than two. A line that cannot be used is said, and hides
/// no other.
pub fn read(name: &str, from: &mut dyn BufRead) -> io::Result<Evidence> {
    let (mut earlier, mut look): (Option<Reading>, Option<Reading>) = (None, None);
    let mut number = 0;
    while let Some(line) = next_line(from)? {
        number += 1;
        let parsed = match &line {
            Line::Whole(line) if line.trim_ascii().is_empty() => continue,
            Line::Whole(line) => parse(line),
            Line::TooLong => Err("it is too long".to_owned()),
        };
        let began = parsed.as_ref().is_ok_and(|value| value.get("plumbBundle").is_some());
        if began && let Some(before) = look.take() {
            earlier = Some(before);
        }
        let look = look.get_or_insert_default();
        if let Err(problem) = parsed.and_then(|value| look.take(value)) {
            look.unseen(Unseen::file(name, FileGap::BundleLine { line: number, why: problem }));
        }
    }
    let earlier = earlier.map(|earlier| Box::new(earlier.finish(name)));
    let evidence = look.map(|look| look.finish(name)).unwrap_or_default();
    Ok(Evidence { earlier, ..evidence })
}

/// Without more than a line is worth: a value of two letters takes a hundred bytes of memory.
fn parse(line: &[u8]) -> Result<Value, String> {
    if line.iter().filter(|byte| matches!(byte, b',' | b'[' | b'{')).count() > VALUES_MAX {
        return Err("it has too many values".to_owned());
    }
    let mut value: Value = serde_json::from_slice(line).map_err(|_| "it is not JSON".to_owned())?;
    mask(&mut value);
    Ok(value)
}

enum Line {
    Whole(Vec<u8>),
    /// It is skipped, and the next one can be read.
    TooLong,
}

/// A line without its end; `None` at the end of the file.
fn next_line(from: &mut dyn BufRead) -> io::Result<Option<Line>> {
    let mut line = Vec::new();
    let mut bounded = io::Read::take(&mut *from, LINE_BYTES_MAX as u64);
    if bounded.read_until(b'\n', &mut line)? == 0 {
        return Ok(None);
    }
    if line.len() < LINE_BYTES_MAX || line.ends_with(b"\n") {
        return Ok(Some(Line::Whole(line)));
    }
    from.skip_until(b'\n')?;
    Ok(Some(Line::TooLong))
}

#[derive(Default)]
struct Reading {
    evidence: Evidence,
    /// What Kubernetes said.
    kubernetes: Evidence,
    has_whole_pods: bool,
    has_whole_nodes: bool,
    records: Records,
    has_records: bool,
    is_whole: bool,
    /// What could not be used and is only counted.
    more_unseen: usize,
}

impl Reading {
    fn unseen(&mut self, unseen: Unseen) {
        if self.evidence.unseen.len() < UNSEEN_MAX {
            self.evidence.unseen.push(unseen);
        } else {
            self.more_unseen += 1;
        }
    }

    fn take(&mut self, mut value: Value) -> Result<(), String> {
        if let Some(version) = value.get("plumbBundle") {
            if version.as_u64() != Some(VERSION) {
                return Err(format!("bundle version {version} is not supported"));
            }
            let taken_at = value.get("takenAt").and_then(Value::as_str);
            self.evidence.taken_at = taken_at.and_then(|text| text.parse().ok());
        } else if let Some(record) = value.get("record") {
            self.record(record)?;
        } else if let Some(node) = value.get_mut("node").filter(|node| node.is_object()) {
            let node: NodeEvidence = read_as(node)?;
            self.evidence.node_mut(node.name.clone()).absorb(node);
        } else if let Some(pod) = value.get_mut(POD) {
            self.kubernetes.pods.get_or_insert_default().push(read_as(pod)?);
        } else if let Some(node) = value.get_mut(KUBE_NODE) {
            self.kubernetes.kube_nodes.get_or_insert_default().push(read_as(node)?);
        } else if let Some(lists) = value.get(WHOLE_KUBERNETES).and_then(Value::as_array) {
            self.has_whole_pods |= lists.iter().any(|list| list == PODS);
            self.has_whole_nodes |= lists.iter().any(|list| list == KUBE_NODES);
        } else if let Some(what) = value.get("unread").and_then(Value::as_str) {
            self.unseen(Unseen::Reported(what.to_owned()));
        } else if value.get("wholeStore") == Some(&Value::Bool(true)) {
            self.is_whole = true;
        } else {
            return Err("its kind is unknown".to_owned());
        }
        Ok(())
    }

    fn record(&mut self, record: &Value) -> Result<(), String> {
        let text = |name: &str| record.get(name).and_then(Value::as_str);
        let key = text("key").ok_or("the record has no key")?;
        let key = Key::from_etcd_text(key).map_err(|error| error.to_string())?;
        let value = match (record.get("value"), text("text")) {
            (Some(value), _) => value.to_string().into_bytes(),
            (None, Some(text)) => text.as_bytes().to_vec(),
            (None, None) => return Err("the record has no value".to_owned()),
        };
        self.has_records = true;
        self.records.add(&key, &value, "");
        Ok(())
    }

    fn finish(self, name: &str) -> Evidence {
        let mut evidence = self.evidence;
        if self.more_unseen > 0 {
            evidence.unseen.push(Unseen::file(name, FileGap::MoreBundleLines(self.more_unseen)));
        }
        if self.has_records || self.is_whole {
            let mut of_store = self.records.finish(self.is_whole);
            of_store.taken_at = evidence.taken_at;
            evidence.absorb(of_store);
        }
        let mut kubernetes = self.kubernetes;
        if self.has_whole_pods {
            kubernetes.pods.get_or_insert_default();
        }
        if self.has_whole_nodes {
            kubernetes.kube_nodes.get_or_insert_default();
        }
        kubernetes.partial.pods = kubernetes.pods.is_some() && !self.has_whole_pods;
        kubernetes.partial.kube_nodes = kubernetes.kube_nodes.is_some() && !self.has_whole_nodes;
        let kubernetes = of_this_cluster(kubernetes, &evidence);
        evidence.absorb(kubernetes);
        evidence
    }
}

fn read_as<T: DeserializeOwned>(value: &mut Value) -> Result<T, String> {
    serde_json::from_value(value.take()).map_err(|error| error.to_string())
}

/// Texts and numbers under names of secrets, also as `{"name": NAME, "value": …}`, and texts that look like one. What a parser takes is not
/// deep.
fn mask(value: &mut Value) {
    match value {
        Value::Object(fields) => {
            let names_secret =
                fields.get("name").and_then(Value::as_str).is_some_and(model::text::is_secret_name);
            for (name, field) in fields {
                if model::text::is_secret_name(name) || (name == "value" && names_secret) {
                    mask_secret(field);
                }
                mask(field);
            }
        }
        Value::Array(items) => items.iter_mut().for_each(mask),
        Value::String(content) => {
            let masked = model::text::masked(content);
            // What is merely unfit for a terminal is kept: records are compared letter by letter.
            if masked.contains(model::text::MASK) {
                *content = masked;
            }
        }
        _ => {}
    }
}

/// A secret's own value. Fields of an object say where the secret is kept.
fn mask_secret(value: &mut Value) {
    match value {
        Value::String(secret) if secret.is_empty() => {}
        Value::String(_) | Value::Number(_) => *value = Value::String(model::text::MASK.to_owned()),
        Value::Array(items) => items.iter_mut().for_each(mask_secret),
        // Something that was seen, with where.
        Value::Object(fields) => fields.get_mut("seen").into_iter().for_each(mask_secret),
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use evidence::{Origin, Sighted, sample};
    use model::Kind;
    use proptest::prelude::*;

    use super::*;

    fn write(act: impl FnOnce(&mut BundleWriter<Vec<u8>>) -> io::Result<()>) -> Vec<u8> {
        let mut writer = BundleWriter::new(Vec::new());
        act(&mut writer).unwrap();
        writer.finish().unwrap()
    }

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).unwrap()
    }

    fn reported(words: &str) -> Unseen {
        Unseen::Reported(words.to_owned())
    }

    fn words(evidence: &Evidence) -> Vec<String> {
        evidence.unseen.iter().map(Unseen::to_string).collect()
    }

    #[test]
    fn what_is_written_is_read() {
        let sample = sample::small();
        let pool = Key::cluster(Kind::IpPool, "pods");
        let bundle = write(|writer| {
            writer.look(at(1))?;
            writer.record(&pool, br#"{"spec":{"cidr":"10.0.0.0/16"}}"#)?;
            writer.record(&Key::Handle("h".into()), br#"{"block":{"10.0.0.0/26":9007199254740993}}"#)?;
            writer.whole_store()?;
            writer.nodes(sample.clone())?;
            writer.unseen(&reported("something"))
        });
        assert!(is_bundle(&bundle));
        let evidence = read("b", &mut &bundle[..]).unwrap();
        assert_eq!((evidence.taken_at, words(&evidence)), (Some(at(1)), vec!["something".to_owned()]));
        assert_eq!(evidence.nodes, sample.nodes);
        assert!(evidence.records.find(Kind::IpPool, "pods").is_some());
        assert!(evidence.records.of(Kind::Node).is_some(), "a whole store has no nodes");
        let books = evidence.ipam.unwrap().books;
        assert_eq!(
            books.handles["h"].value.block.values().next(),
            Some(&9_007_199_254_740_993),
            "to the last digit"
        );
    }

    #[test]
    fn what_kubernetes_said_is_read() {
        let sample = sample::small();
        let said = |sample: &Evidence| Evidence {
            pods: sample.pods.clone(),
            kube_nodes: sample.kube_nodes.clone(),
            ..Evidence::default()
        };
        let bundle = |kubernetes: &Evidence| {
            write(|writer| {
                writer.look(at(1))?;
                writer.kubernetes(kubernetes)?;
                writer.nodes(sample.clone())
            })
        };
        let evidence = read("b", &mut &bundle(&said(&sample))[..]).unwrap();
        assert_eq!((&evidence.pods, &evidence.kube_nodes), (&sample.pods, &sample.kube_nodes));
        assert_eq!(evidence.partial, evidence::Partial::default());
        let none = Evidence { pods: Some(Vec::new()), ..said(&sample) };
        assert_eq!(
            read("b", &mut &bundle(&none)[..]).unwrap().pods,
            Some(Vec::new()),
            "that there is none is known"
        );
        let cut: Vec<u8> = bundle(&said(&sample))
            .split_inclusive(|byte| *byte == b'\n')
            .filter(|line| !line.starts_with(b"{\"wholeKubernetes"))
            .flatten()
            .copied()
            .collect();
        let cut = read("b", &mut &cut[..]).unwrap();
        assert!(cut.partial.pods && cut.partial.kube_nodes && cut.pods.is_some());
    }

    #[test]
    fn the_last_look_counts_and_the_others_are_earlier() {
        let bundle = write(|writer| {
            writer.look(at(1))?;
            writer.unseen(&reported("then"))?;
            writer.look(at(2))?;
            writer.unseen(&reported("now"))
        });
        let evidence = read("b", &mut &bundle[..]).unwrap();
        assert_eq!(words(&evidence), ["now"]);
        assert_eq!(evidence.earlier.unwrap().taken_at, Some(at(1)));
    }

    /// Each look held the one before it, and the last of them was dropped with all others on the stack.
    #[test]
    fn any_number_of_looks_can_be_read() {
        let mut bundle = b"{\"plumbBundle\":1,\"takenAt\":\"2026-01-01T00:00:00Z\"}\n".repeat(300_000);
        bundle.extend(write(|writer| {
            writer.look(at(1))?;
            writer.unseen(&reported("then"))?;
            writer.look(at(2))?;
            writer.unseen(&reported("now"))
        }));
        let evidence = read("b", &mut &bundle[..]).unwrap();
        assert_eq!(words(&evidence), ["now"]);
        let earlier = evidence.earlier.unwrap();
        assert_eq!(words(&earlier), ["then"]);
        assert!(earlier.earlier.is_none());
    }

    #[test]
    fn what_is_too_large_is_skipped_and_hides_nothing() {
        let long = format!("{{\"unread\":\"{}\"}}", "x".repeat(LINE_BYTES_MAX));
        let many = format!("{{\"unread\":[0{}]}}", ",0".repeat(VALUES_MAX));
        let bundle = format!("{{\"plumbBundle\":1}}\n{long}\n{many}\n{{\"unread\":\"x\"}}\n");
        let evidence = read("b", &mut bundle.as_bytes()).unwrap();
        let told =
            ["b:2 could not be used: it is too long", "b:3 could not be used: it has too many values", "x"];
        assert_eq!(words(&evidence), told);
        let nonsense = format!("{{\"plumbBundle\":1}}\n{}", "nonsense\n".repeat(UNSEEN_MAX + 5));
        let evidence = read("b", &mut nonsense.as_bytes()).unwrap();
        assert_eq!(evidence.unseen.len(), UNSEEN_MAX + 1);
        assert_eq!(words(&evidence)[UNSEEN_MAX], "b: 5 more lines could not be used");
    }

    /// By whatever wrote it, also by an older version that knew fewer forms.
    #[test]
    fn secrets_do_not_get_out_of_a_bundle() {
        let mut node = NodeEvidence::new("a");
        let seen = |text: &str| Sighted::new(text.to_owned(), Origin::file("x"));
        node.setup.environment = Some(BTreeMap::from([
            ("ETCD_PASSWORD".to_owned(), seen("hunter2")),
            ("X".to_owned(), seen("Bearer aaaaaaaa Bearer hunter2hunter2")),
        ]));
        let record = json!({"record": {"key": "/calico/resources/v3/projectcalico.org/bgppeers/p",
            "value": {"spec": {"token": ["hunter2"], "password": "hunter2"}}}});
        let unread = json!({"unread": "cannot ask https://root:hunter2@h"});
        let bundle = format!("{{\"plumbBundle\":1}}\n{}\n{record}\n{unread}\n", json!({"node": node}));
        assert!(bundle.contains("hunter2"));
        let evidence = read("b", &mut bundle.as_bytes()).unwrap();
        assert_eq!(evidence.nodes.len(), 1);
        let shown = format!("{evidence:?}");
        assert!(!shown.contains("hunter2") && shown.contains(model::text::MASK), "{shown}");
    }

    #[test]
    fn a_store_that_was_not_written_to_its_end_is_a_part() {
        let read_back = |is_whole: bool| {
            let bundle = write(|writer| {
                writer.look(at(1))?;
                let value = br#"{"spec":{"node":"a","ipNetworks":["10.0.0.1/32"]}}"#;
                writer.record(&Key::namespaced(Kind::WorkloadEndpoint, "shop", "a-k8s-cart-eth0"), value)?;
                if is_whole { writer.whole_store() } else { Ok(()) }
            });
            read("b", &mut &bundle[..]).unwrap()
        };
        let (part, whole) = (read_back(false), read_back(true));
        assert!(part.partial.endpoints && !whole.partial.endpoints);
        assert!(part.records.of(Kind::Node).is_none() && whole.records.of(Kind::Node).is_some());
        assert!(!part.ipam.unwrap().whole.blocks && whole.ipam.unwrap().whole.blocks);
    }

    #[test]
    fn secrets_do_not_get_in() {
        let bundle = write(|writer| {
            writer.look(at(1))?;
            writer.unseen(&reported("http://root:hunter2@h: no answer"))?;
            let listed = br#"{"spec":{"tls.key":"hunter2","pin":{"token":["hunter2"]},"password":7331,
                "env":[{"value":"hunter2","name":"ETCD_PASSWORD"}]}}"#;
            writer.record(&Key::cluster(Kind::IpPool, "q"), listed)?;
            let value = br#"{"spec":{"password":"hunter2","ref":{"secretKeyRef":{"name":"bgp","key":"pw"}},
                "note":"eyJhbGciOiJSUzI1NiJ9.eyJpc3MiOiJrdWJlcm5ldGVzIn0.c2lnbmF0dXJlLXNpZ25hdHVyZQ"}}"#;
            writer.record(&Key::cluster(Kind::BgpPeer, "p"), value)?;
            writer.record(&Key::IpamConfig, b"password=hunter2")
        });
        let text = String::from_utf8(bundle).unwrap();
        assert!(!text.contains("hunter2") && !text.contains("7331") && !text.contains("eyJpc3Mi"), "{text}");
        assert!(
            text.contains(r#""secretKeyRef":{"key":"pw","name":"bgp"}"#),
            "the name of a secret is none: {text}"
        );
    }

    #[test]
    fn damaged_lines_are_said_and_hide_nothing() {
        let bundle = b"{\"plumbBundle\":1}\nnonsense\n{\"record\":{\"key\":\"/x\"}}\n{\"unread\":\"x\"}\n{\"else\":1}\n{\"node\":[]}";
        let evidence = read("b", &mut &bundle[..]).unwrap();
        assert_eq!(evidence.unseen.len(), 5, "{:?}", evidence.unseen);
        assert_eq!(words(&evidence)[0], "b:2 could not be used: it is not JSON");
        let later = read("b", &mut &b"{\"plumbBundle\":2}\n"[..]).unwrap();
        assert_eq!(words(&later), ["b:1 could not be used: bundle version 2 is not supported"]);
    }

    proptest! {
        #[test]
        fn anything_can_be_read(text in any::<String>(), bytes in proptest::collection::vec(any::<u8>(), 0..80)) {
            let _ = read("b", &mut text.as_bytes()).unwrap();
            let _ = read("b", &mut &bytes[..]).unwrap();
            let _ = read("b", &mut format!("{{\"plumbBundle\":1}}\n{{\"node\":{text:?}}}").as_bytes()).unwrap();
        }
    }
}
