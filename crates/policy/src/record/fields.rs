//! Reading a record's fields, so that every fault says where it is. Absent and `null` are the same.

use std::fmt;
use std::sync::Arc;

use model::Selector;
use model::path::FieldPath;
use serde_json::{Map, Value};

/// A field that cannot be understood.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Fault(Arc<str>);

impl Fault {
    pub(crate) fn text(&self) -> Arc<str> {
        self.0.clone()
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

pub(super) type Read<T> = Result<T, Fault>;

/// A value inside a record, and where it stands.
#[derive(Clone)]
pub(super) struct At<'a> {
    value: Option<&'a Value>,
    path: FieldPath,
}

impl<'a> At<'a> {
    pub(super) fn spec(body: &'a Map<String, Value>) -> At<'a> {
        At { value: body.get("spec").filter(|value| !value.is_null()), path: FieldPath::root().key("spec") }
    }

    pub(super) fn root(value: &'a Value) -> At<'a> {
        At { value: Some(value), path: FieldPath::root() }
    }

    pub(super) fn fault(&self, problem: impl fmt::Display) -> Fault {
        let shown = match self.value {
            None => String::new(),
            Some(value) => {
                let text = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
                let short: String = text.chars().take(80).collect();
                format!(" {}:", model::text::harmless(&short))
            }
        };
        Fault(format!("{}:{shown} {problem}", self.path).into())
    }

    pub(super) fn field(&self, name: &str) -> At<'a> {
        let value = self.value.and_then(|value| value.get(name)).filter(|value| !value.is_null());
        At { value, path: self.path.key(name) }
    }

    pub(super) fn exists(&self) -> bool {
        self.value.is_some()
    }

    pub(super) fn value(&self) -> Option<&'a Value> {
        self.value
    }

    pub(super) fn object(&self) -> Read<Option<&'a Map<String, Value>>> {
        match self.value {
            None => Ok(None),
            Some(Value::Object(object)) => Ok(Some(object)),
            Some(_) => Err(self.fault("must be a map")),
        }
    }

    /// Refuses what this program does not know: it might say that a rule matches less.
    pub(super) fn only(&self, known: &[&str]) -> Read<()> {
        let Some(object) = self.object()? else { return Ok(()) };
        let unknown = object.iter().find(|(name, value)| !known.contains(&name.as_str()) && !value.is_null());
        unknown.map_or(Ok(()), |(name, _)| {
            Err(self.field(name).fault("this field is not known, so what it means cannot be enforced"))
        })
    }

    pub(super) fn items(&self) -> Read<Vec<At<'a>>> {
        match self.value {
            None => Ok(Vec::new()),
            Some(Value::Array(items)) => Ok(items
                .iter()
                .enumerate()
                .map(|(index, value)| At { value: Some(value), path: self.path.index(index) })
                .collect()),
            Some(_) => Err(self.fault("must be a list")),
        }
    }

    pub(super) fn text(&self) -> Read<Option<&'a str>> {
        match self.value {
            None => Ok(None),
            Some(Value::String(text)) => Ok(Some(text)),
            Some(_) => Err(self.fault("must be text")),
        }
    }

    /// Text, where the empty one is the same as none.
    pub(super) fn word(&self) -> Read<Option<&'a str>> {
        Ok(self.text()?.filter(|text| !text.is_empty()))
    }

    pub(super) fn texts(&self) -> Read<Vec<&'a str>> {
        self.items()?.iter().map(|item| item.text()?.ok_or_else(|| item.fault("must be text"))).collect()
    }

    pub(super) fn flag(&self) -> Read<bool> {
        match self.value {
            None => Ok(false),
            Some(Value::Bool(flag)) => Ok(*flag),
            Some(_) => Err(self.fault("must be true or false")),
        }
    }

    pub(super) fn float(&self) -> Read<Option<f64>> {
        match self.value {
            None => Ok(None),
            Some(value) => value.as_f64().map(Some).ok_or_else(|| self.fault("must be a number")),
        }
    }

    pub(super) fn whole(&self, first: u64, last: u64) -> Read<Option<u64>> {
        let Some(value) = self.value else { return Ok(None) };
        match value.as_u64().filter(|number| (first..=last).contains(number)) {
            Some(number) => Ok(Some(number)),
            None => Err(self.fault(format_args!("must be a number from {first} to {last}"))),
        }
    }

    pub(super) fn selector(&self) -> Read<Option<Selector>> {
        let Some(text) = self.word()? else { return Ok(None) };
        text.parse().map(Some).map_err(|error| self.fault(error))
    }
}

/// A shared text.
pub(super) fn shared(text: &str) -> Arc<str> {
    text.into()
}
