//! Many objects that are like a few: what the API server has stored of some objects, copied with other texts, straight into its etcd.
//! To create as many through the server would take many minutes; these are byte for byte what it would have stored.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use anyhow::{Context as _, Result, anyhow, bail, ensure};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};

/// How many transactions are under way at once.
const AT_ONCE: usize = 4;

/// The originals, with the places of the texts that every copy has others for.
#[derive(Debug)]
pub struct Template {
    lengths: Vec<usize>,
    objects: Vec<Object>,
}

#[derive(Debug)]
struct Object {
    key: Part,
    value: Part,
}

/// Bytes, and where in them which text stands.
#[derive(Debug)]
struct Part {
    bytes: Vec<u8>,
    places: Vec<(usize, usize)>,
}

impl Template {
    /// All objects below some keys of the etcd at this address, such as `/registry/pods/`.
    pub fn read(etcd: &str, prefixes: &[&str], texts: &[String]) -> Result<Template> {
        let mut objects = Vec::new();
        for prefix in prefixes {
            let mut end = prefix.as_bytes().to_vec();
            *end.last_mut().context("a prefix is not empty")? += 1;
            let range = json!({ "key": STANDARD.encode(prefix), "range_end": STANDARD.encode(end) });
            let answer = post(etcd, "/v3/kv/range", &range)?;
            let found = answer["kvs"].as_array().with_context(|| format!("nothing lies below {prefix}"))?;
            for pair in found {
                let part = |field: &str| -> Result<Part> {
                    let text = pair[field].as_str().context("a key and a value")?;
                    Ok(Part::new(STANDARD.decode(text)?, texts))
                };
                objects.push(Object { key: part("key")?, value: part("value")? });
            }
        }
        Ok(Template { lengths: texts.iter().map(String::len).collect(), objects })
    }

    /// How many objects a copy has.
    pub fn len(&self) -> usize {
        self.objects.len()
    }

    pub fn is_empty(&self) -> bool {
        self.objects.is_empty()
    }

    /// Writes `count` copies, each in a transaction of its own. `texts_of` gives what stands in a copy in the place of the texts, each as
    /// long as the one it replaces: the API server stores the length of a text before it.
    pub fn write(
        &self,
        etcd: &str,
        count: usize,
        texts_of: &(dyn Fn(usize) -> Vec<String> + Sync),
    ) -> Result<()> {
        let next = AtomicUsize::new(0);
        let work = || -> Result<()> {
            loop {
                let number = next.fetch_add(1, Ordering::Relaxed);
                if number >= count {
                    return Ok(());
                }
                self.write_one(etcd, &texts_of(number))?;
            }
        };
        thread::scope(|scope| {
            let threads: Vec<_> = (0..AT_ONCE).map(|_| scope.spawn(work)).collect();
            threads.into_iter().try_for_each(|thread| thread.join().map_err(|_| anyhow!("a writer broke"))?)
        })
    }

    fn write_one(&self, etcd: &str, texts: &[String]) -> Result<()> {
        ensure!(texts.iter().map(String::len).eq(self.lengths.iter().copied()), "a text of another length");
        let put = |object: &Object| {
            let [key, value] = [&object.key, &object.value].map(|part| STANDARD.encode(part.with(texts)));
            json!({ "requestPut": { "key": key, "value": value } })
        };
        let puts: Vec<Value> = self.objects.iter().map(put).collect();
        let answer = post(etcd, "/v3/kv/txn", &json!({ "success": puts }))?;
        ensure!(answer["succeeded"] == true, "etcd refused a copy: {answer}");
        Ok(())
    }
}

impl Part {
    fn new(bytes: Vec<u8>, texts: &[String]) -> Part {
        let mut places = Vec::new();
        for (number, text) in texts.iter().enumerate() {
            let windows = bytes.windows(text.len()).enumerate();
            let found = windows.filter(|(_, window)| *window == text.as_bytes());
            places.extend(found.map(|(place, _)| (place, number)));
        }
        Part { bytes, places }
    }

    fn with(&self, texts: &[String]) -> Vec<u8> {
        let mut bytes = self.bytes.clone();
        for (place, number) in &self.places {
            let text = texts[*number].as_bytes();
            bytes[*place..*place + text.len()].copy_from_slice(text);
        }
        bytes
    }
}

/// A request to etcd's JSON gateway.
fn post(etcd: &str, path: &str, body: &Value) -> Result<Value> {
    let address = etcd.strip_prefix("http://").context("an etcd without TLS")?;
    let body = body.to_string();
    let head = format!("POST {path} HTTP/1.0\r\nHost: {address}\r\nContent-Length: {}\r\n\r\n", body.len());
    let mut stream = TcpStream::connect(address)?;
    stream.write_all(head.as_bytes())?;
    stream.write_all(body.as_bytes())?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer)?;
    let Some((head, body)) = answer.split_once("\r\n\r\n") else { bail!("not an answer: {answer:?}") };
    ensure!(head.split(' ').nth(1) == Some("200"), "POST {path}: {answer}");
    serde_json::from_str(body).with_context(|| format!("POST {path}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::etcd::EtcdCluster;

    #[test]
    fn copies_differ_in_the_texts_alone() {
        const TEST: &str = "kube::copies::tests::copies_differ_in_the_texts_alone";
        let Some(cluster) = crate::etcd::start_or_skip(TEST, crate::etcd::Setup::default()) else { return };
        let etcd = cluster.endpoint(0);
        let put = |key: &str, value: &[u8]| {
            let put = json!({ "key": STANDARD.encode(key), "value": STANDARD.encode(value) });
            post(&etcd, "/v3/kv/put", &put).unwrap();
        };
        put("/a/n0", b"\x02n0\x00\xff: n0 and u0");
        put("/b/u0", b"n0");
        put("/c/n0", b"not asked for");
        let texts = ["n0", "u0"].map(str::to_owned);
        let template = Template::read(&etcd, &["/a/", "/b/"], &texts).unwrap();
        assert_eq!(template.len(), 2);
        let texts_of = |number: usize| vec![format!("n{}", number + 1), format!("u{}", number + 1)];
        template.write(&etcd, 3, &texts_of).unwrap();
        assert!(template.write(&etcd, 1, &|_| vec!["n10".to_owned(), "u1".to_owned()]).is_err());
        assert_eq!(read(&cluster, "/a/n3"), b"\x02n3\x00\xff: n3 and u3\n");
        assert_eq!(read(&cluster, "/b/u2"), b"n2\n");
        assert!(read(&cluster, "/c/n1").is_empty());
    }

    fn read(cluster: &EtcdCluster, key: &str) -> Vec<u8> {
        let mut command = cluster.etcdctl();
        command.args(["get", "--print-value-only", key]);
        crate::process::run(&mut command).unwrap().stdout
    }
}
