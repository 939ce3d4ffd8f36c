//! etcd's JSON gateway and metrics: another way to the same data, with none of our code in between.

use std::collections::BTreeMap;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpStream;

use serde_json::{Value, json};

/// The records under a prefix at one revision: key text to (mod revision, value).
pub(crate) type Snapshot = BTreeMap<String, (i64, String)>;

pub(crate) struct Gateway {
    stream: BufReader<TcpStream>,
}

impl Gateway {
    pub(crate) fn connect(port: u16) -> Gateway {
        let stream = TcpStream::connect(("127.0.0.1", port)).expect("the gateway is there");
        Gateway { stream: BufReader::new(stream) }
    }

    /// What was under `prefix` at `revision`.
    pub(crate) fn at(&mut self, prefix: &str, revision: i64) -> Snapshot {
        let end =
            format!("{}{}", &prefix[..prefix.len() - 1], (prefix.as_bytes()[prefix.len() - 1] + 1) as char);
        let request = json!({"key": encode(prefix.as_bytes()), "range_end": encode(end.as_bytes()),
            "revision": revision.to_string()});
        let answer = self.post("/v3/kv/range", &request);
        let empty = Vec::new();
        let records = answer["kvs"].as_array().unwrap_or(&empty);
        records
            .iter()
            .map(|record| {
                let text = |field: &str| decode(record[field].as_str().unwrap_or_default());
                (text("key"), (number(&record["mod_revision"]), text("value")))
            })
            .collect()
    }

    /// What the member counts under this name.
    pub(crate) fn metric(&mut self, name: &str) -> String {
        let metrics = self.exchange("GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n");
        let metrics = String::from_utf8(metrics).unwrap();
        let line = metrics.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
        line.unwrap_or_else(|| panic!("no metric {name}")).to_owned()
    }

    fn post(&mut self, path: &str, body: &Value) -> Value {
        let body = body.to_string();
        let answer = self.exchange(&format!(
            "POST {path} HTTP/1.1\r\nHost: localhost\r\nContent-Length: {}\r\n\r\n{body}",
            body.len()
        ));
        serde_json::from_slice(&answer).unwrap()
    }

    fn exchange(&mut self, request: &str) -> Vec<u8> {
        self.stream.get_mut().write_all(request.as_bytes()).unwrap();
        let mut length = None;
        let mut chunked = false;
        let status = self.line();
        assert!(status.contains(" 200 "), "{status}");
        loop {
            let line = self.line().to_ascii_lowercase();
            if line.is_empty() {
                break;
            }
            if let Some(value) = line.strip_prefix("content-length:") {
                length = Some(value.trim().parse::<usize>().unwrap());
            }
            chunked |= line.starts_with("transfer-encoding:") && line.contains("chunked");
        }
        if chunked { self.chunks() } else { self.exactly(length.unwrap()) }
    }

    fn line(&mut self) -> String {
        let mut line = String::new();
        self.stream.read_line(&mut line).unwrap();
        line.trim_end().to_owned()
    }

    fn exactly(&mut self, length: usize) -> Vec<u8> {
        let mut bytes = vec![0; length];
        self.stream.read_exact(&mut bytes).unwrap();
        bytes
    }

    fn chunks(&mut self) -> Vec<u8> {
        let mut all = Vec::new();
        loop {
            let length = usize::from_str_radix(&self.line(), 16).unwrap();
            all.extend(self.exactly(length));
            self.line();
            if length == 0 {
                return all;
            }
        }
    }
}

/// 64-bit numbers are texts in this JSON.
fn number(value: &Value) -> i64 {
    value.as_str().unwrap().parse().unwrap()
}

const ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

fn encode(bytes: &[u8]) -> String {
    let mut text = String::new();
    for group in bytes.chunks(3) {
        let bits =
            group.iter().fold(0_u32, |bits, byte| bits << 8 | u32::from(*byte)) << (8 * (3 - group.len()));
        for position in 0..4 {
            let digit = ALPHABET[(bits >> (18 - 6 * position) & 63) as usize] as char;
            text.push(if position <= group.len() { digit } else { '=' });
        }
    }
    text
}

fn decode(text: &str) -> String {
    let mut bytes = Vec::new();
    for group in text.trim_end_matches('=').as_bytes().chunks(4) {
        let digits = group.iter().map(|byte| ALPHABET.iter().position(|digit| digit == byte).unwrap() as u32);
        let bits = digits.fold(0, |bits, digit| bits << 6 | digit) << (6 * (4 - group.len()));
        bytes.extend(&bits.to_be_bytes()[1..group.len()]);
    }
    String::from_utf8(bytes).unwrap()
}
