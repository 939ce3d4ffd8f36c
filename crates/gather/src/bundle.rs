//! A bundle: evidence as one file, to be looked at elsewhere and later. Also what the agent answers.
//!
//! A line of JSON per thing, so that it can be written and read piece by piece:
//!
//! ```text
//! {"plumbBundle":1,"takenAt":"2026-08-22T06:33:20Z"}             begins a look; a later look may follow
//! {"record":{"key":"/calico/…","value":{…}}}                    a record of the store, as it is; `text` if it is no JSON
//! {"wholeStore":true}                                           every record of the store stands above
//! {"node":{"name":"node-a","kernel":{…},…}}                     one node's evidence
//! {"unread":"node node-a: … could not be read: …"}
//! ```
//!
//! Secrets are masked when it is written.

use std::io::{self, BufRead, Write};

use doctor::evidence::NodeEvidence;
use doctor::{Evidence, text};
use jiff::Timestamp;
use model::Key;
use serde_json::{Value, json};

use crate::records::Records;

const VERSION: u64 = 1;
/// How a bundle begins, so that it can be told from other files.
const BEGINNING: &str = "{\"plumbBundle\":";
/// No piece of evidence is longer: a node with a thousand pods has some megabytes.
const LINE_BYTES_MAX: usize = 256 << 20;

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
                let text = text::masked(&String::from_utf8_lossy(value));
                self.line(&json!({"record": {"key": key, "text": text}}))
            }
        }
    }

    /// Every record of the store was written.
    pub fn whole_store(&mut self) -> io::Result<()> {
        self.line(&json!({"wholeStore": true}))
    }

    pub fn node(&mut self, node: &NodeEvidence) -> io::Result<()> {
        let mut node = serde_json::to_value(node).map_err(io::Error::other)?;
        mask(&mut node);
        self.line(&json!({"node": node}))
    }

    pub fn unread(&mut self, what: &str) -> io::Result<()> {
        self.line(&json!({"unread": what}))
    }

    /// Nodes of evidence, and what could not be read of them.
    pub fn nodes(&mut self, evidence: &Evidence) -> io::Result<()> {
        evidence.nodes.values().try_for_each(|node| self.node(node))?;
        evidence.unread.iter().try_for_each(|what| self.unread(what))
    }

    pub fn finish(mut self) -> io::Result<W> {
        self.out.flush()?;
        Ok(self.out)
    }

    fn line(&mut self, value: &Value) -> io::Result<()> {
        writeln!(self.out, "{value}")
    }
}

/// Reads a bundle. Of several looks, those before the last are earlier ones. A line that cannot be used is said, and
/// hides no other.
pub fn read(name: &str, from: &mut dyn BufRead) -> io::Result<Evidence> {
    let mut looks: Vec<Reading> = Vec::new();
    let mut number = 0;
    while let Some(line) = next_line(from)? {
        number += 1;
        if line.trim_ascii().is_empty() {
            continue;
        }
        let parsed: Option<Value> = serde_json::from_slice(&line).ok();
        let began = parsed.as_ref().and_then(|value| value.get("plumbBundle"));
        if looks.is_empty() || began.is_some() {
            looks.push(Reading::default());
        }
        let look = looks.last_mut().expect("there is one");
        let problem = match parsed {
            Some(value) => look.take(value),
            None => Err("it is not JSON".to_owned()),
        };
        if let Err(problem) = problem {
            look.evidence.unread.push(format!("{name}:{number} could not be used: {problem}"));
        }
    }
    let mut evidence: Option<Evidence> = None;
    for look in looks {
        let earlier = evidence.take().map(Box::new);
        evidence = Some(Evidence { earlier, ..look.finish() });
    }
    Ok(evidence.unwrap_or_default())
}

/// A line without its end; `None` at the end of the file.
fn next_line(from: &mut dyn BufRead) -> io::Result<Option<Vec<u8>>> {
    let mut line = Vec::new();
    let mut bounded = io::Read::take(from, LINE_BYTES_MAX as u64);
    match bounded.read_until(b'\n', &mut line)? {
        0 => Ok(None),
        _ if line.len() == LINE_BYTES_MAX => Err(io::Error::other("a line is too long")),
        _ => Ok(Some(line)),
    }
}

#[derive(Default)]
struct Reading {
    evidence: Evidence,
    records: Records,
    has_records: bool,
    is_whole: bool,
}

impl Reading {
    fn take(&mut self, mut value: Value) -> Result<(), String> {
        if let Some(version) = value.get("plumbBundle") {
            if version.as_u64() != Some(VERSION) {
                return Err(format!("version {version} of bundles is not known here"));
            }
            self.evidence.taken_at = value["takenAt"].as_str().and_then(|text| text.parse().ok());
        } else if let Some(record) = value.get("record") {
            self.record(record)?;
        } else if let Some(node) = value.get_mut("node").filter(|node| node.is_object()) {
            let node: NodeEvidence =
                serde_json::from_value(node.take()).map_err(|error| error.to_string())?;
            self.evidence.node_mut(&node.name.clone()).absorb(node);
        } else if let Some(what) = value.get("unread").and_then(Value::as_str) {
            self.evidence.unread.push(what.to_owned());
        } else if value.get("wholeStore") == Some(&Value::Bool(true)) {
            self.is_whole = true;
        } else {
            return Err("it is of no sort that is known here".to_owned());
        }
        Ok(())
    }

    fn record(&mut self, record: &Value) -> Result<(), String> {
        let key = record["key"].as_str().ok_or("the record has no key")?;
        let key = Key::from_etcd_text(key).map_err(|error| error.to_string())?;
        let value = match (record.get("value"), record["text"].as_str()) {
            (Some(value), _) => value.to_string().into_bytes(),
            (None, Some(text)) => text.as_bytes().to_vec(),
            (None, None) => return Err("the record has no value".to_owned()),
        };
        self.has_records = true;
        self.records.add(&key, &value, "");
        Ok(())
    }

    fn finish(self) -> Evidence {
        let mut evidence = self.evidence;
        if self.has_records || self.is_whole {
            let mut of_store = self.records.finish(self.is_whole);
            of_store.taken_at = evidence.taken_at;
            evidence.absorb(of_store);
        }
        evidence
    }
}

/// Texts under names of secrets, and texts that look like one.
fn mask(value: &mut Value) {
    match value {
        Value::Object(fields) => {
            for (name, field) in fields {
                match field {
                    Value::String(secret) if text::is_secret_name(name) && !secret.is_empty() => {
                        *field = Value::String(text::MASK.to_owned());
                    }
                    field => mask(field),
                }
            }
        }
        Value::Array(items) => items.iter_mut().for_each(mask),
        Value::String(content) => {
            let masked = text::masked(content);
            // What is merely unfit for a terminal is kept: records are compared letter by letter.
            if masked.contains(text::MASK) {
                *content = masked;
            }
        }
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use doctor::sample;
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

    #[test]
    fn what_is_written_is_read() {
        let sample = sample::small();
        let pool = Key::cluster(Kind::IpPool, "pods");
        let bundle = write(|writer| {
            writer.look(at(1))?;
            writer.record(&pool, br#"{"spec":{"cidr":"10.0.0.0/16"}}"#)?;
            writer.record(&Key::Handle("h".to_owned()), br#"{"block":{"10.0.0.0/26":9007199254740993}}"#)?;
            writer.whole_store()?;
            writer.nodes(&sample)?;
            writer.unread("something")
        });
        assert!(is_bundle(&bundle));
        let evidence = read("b", &mut &bundle[..]).unwrap();
        assert_eq!(
            (evidence.taken_at, evidence.unread.as_slice()),
            (Some(at(1)), &["something".to_owned()][..])
        );
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
    fn the_last_look_counts_and_the_others_are_earlier() {
        let bundle = write(|writer| {
            writer.look(at(1))?;
            writer.unread("then")?;
            writer.look(at(2))?;
            writer.unread("now")
        });
        let evidence = read("b", &mut &bundle[..]).unwrap();
        assert_eq!(evidence.unread, ["now"]);
        assert_eq!(evidence.earlier.unwrap().taken_at, Some(at(1)));
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
            let value = br#"{"spec":{"password":"hunter2","ref":{"secretKeyRef":{"name":"bgp","key":"pw"}},
                "note":"eyJhbGciOiJSUzI1NiJ9.eyJpc3MiOiJrdWJlcm5ldGVzIn0.c2lnbmF0dXJlLXNpZ25hdHVyZQ"}}"#;
            writer.record(&Key::cluster(Kind::BgpPeer, "p"), value)?;
            writer.record(&Key::IpamConfig, b"password=hunter2")
        });
        let text = String::from_utf8(bundle).unwrap();
        assert!(!text.contains("hunter2") && !text.contains("eyJpc3Mi"), "{text}");
        assert!(
            text.contains(r#""secretKeyRef":{"key":"pw","name":"bgp"}"#),
            "the name of a secret is none: {text}"
        );
    }

    #[test]
    fn damaged_lines_are_said_and_hide_nothing() {
        let bundle = b"{\"plumbBundle\":1}\nnonsense\n{\"record\":{\"key\":\"/x\"}}\n{\"unread\":\"x\"}\n{\"else\":1}\n{\"node\":[]}";
        let evidence = read("b", &mut &bundle[..]).unwrap();
        assert_eq!(evidence.unread.len(), 5, "{:?}", evidence.unread);
        assert_eq!(evidence.unread[0], "b:2 could not be used: it is not JSON");
        let later = read("b", &mut &b"{\"plumbBundle\":2}\n"[..]).unwrap();
        assert_eq!(later.unread, ["b:1 could not be used: version 2 of bundles is not known here"]);
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
