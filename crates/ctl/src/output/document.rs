//! YAML and JSON: one resource bare, several asked for by name as an array, a whole kind as a list document that
//! is written item by item, so that its length does not matter.

use std::io::{self, Write};

use model::Kind;
use model::resource::API_VERSION;
use serde_json::{Map, Value, json};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Syntax {
    Yaml,
    Json,
}

impl Syntax {
    /// One document on its own.
    pub(crate) fn write_bare(self, out: &mut dyn Write, document: &Value) -> io::Result<()> {
        match self {
            Syntax::Yaml => out.write_all(model::yaml::to_yaml(document).as_bytes()),
            Syntax::Json => writeln!(out, "{document:#}"),
        }
    }
}

/// A list that is being written. Keys stand in alphabetical order, as calicoctl writes YAML.
#[derive(Debug)]
pub(crate) struct ListWriter {
    syntax: Syntax,
    /// The kind of all items and the moment the list shows, or nothing for a plain array.
    head: Option<(Kind, String)>,
    is_empty: bool,
}

impl ListWriter {
    pub(crate) fn of_kind(syntax: Syntax, kind: Kind, revision: &str) -> ListWriter {
        ListWriter { syntax, head: Some((kind, revision.to_owned())), is_empty: true }
    }

    pub(crate) fn array(syntax: Syntax) -> ListWriter {
        ListWriter { syntax, head: None, is_empty: true }
    }

    pub(crate) fn item(&mut self, out: &mut dyn Write, document: &Value) -> io::Result<()> {
        if self.is_empty {
            self.write_opening(out)?;
        }
        let first = std::mem::take(&mut self.is_empty);
        match self.syntax {
            Syntax::Yaml => indent(out, &model::yaml::to_yaml(document), "- ", "  "),
            Syntax::Json => {
                let indentation = if self.head.is_some() { "    " } else { "  " };
                out.write_all(if first { b"\n" } else { b",\n" })?;
                let text = format!("{document:#}");
                let mut lines = text.lines();
                write!(out, "{indentation}{}", lines.next().unwrap_or_default())?;
                lines.try_for_each(|line| write!(out, "\n{indentation}{line}"))
            }
        }
    }

    pub(crate) fn end(self, out: &mut dyn Write) -> io::Result<()> {
        if self.is_empty {
            let document = match &self.head {
                Some((kind, revision)) => Value::Object(list_document(*kind, revision, Vec::new())),
                None => json!([]),
            };
            return self.syntax.write_bare(out, &document);
        }
        match (self.syntax, &self.head) {
            (Syntax::Yaml, None) => Ok(()),
            (Syntax::Yaml, Some((kind, revision))) => {
                let tail = json!({"kind": list_kind(*kind), "metadata": {"resourceVersion": revision}});
                out.write_all(model::yaml::to_yaml(&tail).as_bytes())
            }
            (Syntax::Json, None) => out.write_all(b"\n]\n"),
            (Syntax::Json, Some((kind, revision))) => write!(
                out,
                "\n  ],\n  \"kind\": {},\n  \"metadata\": {{\n    \"resourceVersion\": {}\n  }}\n}}\n",
                json!(list_kind(*kind)),
                json!(revision)
            ),
        }
    }

    fn write_opening(&self, out: &mut dyn Write) -> io::Result<()> {
        match (self.syntax, self.head.is_some()) {
            (Syntax::Yaml, false) => Ok(()),
            (Syntax::Yaml, true) => writeln!(out, "apiVersion: {API_VERSION}\nitems:"),
            (Syntax::Json, false) => out.write_all(b"["),
            (Syntax::Json, true) => {
                write!(out, "{{\n  \"apiVersion\": {},\n  \"items\": [", json!(API_VERSION))
            }
        }
    }
}

/// A list as one value, for those who need it whole.
pub(crate) fn list_document(kind: Kind, revision: &str, items: Vec<Value>) -> Map<String, Value> {
    let mut list = Map::new();
    list.insert("apiVersion".into(), API_VERSION.into());
    list.insert("items".into(), items.into());
    list.insert("kind".into(), list_kind(kind).into());
    list.insert("metadata".into(), json!({"resourceVersion": revision}));
    list
}

fn list_kind(kind: Kind) -> String {
    format!("{kind}List")
}

fn indent(out: &mut dyn Write, text: &str, first: &str, others: &str) -> io::Result<()> {
    for (index, line) in text.lines().enumerate() {
        match (index, line) {
            (0, _) => writeln!(out, "{first}{line}")?,
            (_, "") => writeln!(out)?,
            _ => writeln!(out, "{others}{line}")?,
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn items() -> Vec<Value> {
        vec![
            json!({"kind": "Tier", "metadata": {"name": "a"}, "spec": {"text": "one\n\ntwo\n", "list": [1, {"x": "y"}]}}),
            json!({"kind": "Tier", "metadata": {"name": "b"}, "spec": {}}),
        ]
    }

    fn write(syntax: Syntax, with_head: bool, items: &[Value]) -> String {
        let mut out = Vec::new();
        let mut list =
            if with_head { ListWriter::of_kind(syntax, Kind::Tier, "12") } else { ListWriter::array(syntax) };
        for item in items {
            list.item(&mut out, item).unwrap();
        }
        list.end(&mut out).unwrap();
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn what_is_written_in_pieces_reads_as_the_whole() {
        for items in [items(), vec![], items()[..1].to_vec()] {
            let whole = Value::Object(list_document(Kind::Tier, "12", items.clone()));
            assert_eq!(serde_json::from_str::<Value>(&write(Syntax::Json, true, &items)).unwrap(), whole);
            assert_eq!(serde_saphyr::from_str::<Value>(&write(Syntax::Yaml, true, &items)).unwrap(), whole);
            let array = Value::Array(items.clone());
            assert_eq!(serde_json::from_str::<Value>(&write(Syntax::Json, false, &items)).unwrap(), array);
            assert_eq!(serde_saphyr::from_str::<Value>(&write(Syntax::Yaml, false, &items)).unwrap(), array);
        }
    }

    #[test]
    fn json_in_pieces_looks_like_json_at_once() {
        let whole = Value::Object(list_document(Kind::Tier, "12", items()));
        assert_eq!(write(Syntax::Json, true, &items()), format!("{whole:#}\n"));
        assert_eq!(write(Syntax::Json, false, &items()), format!("{:#}\n", Value::Array(items())));
    }
}
