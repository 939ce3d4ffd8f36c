//! The rows of a table of endpoints. There may be a hundred thousand of them, so only the fields that a table
//! shows are read, and read in place.

use std::borrow::Cow;

use model::Key;
use serde::Deserialize;
use store::Record;

/// One column of the table.
pub(crate) struct Column {
    pub(crate) heading: &'static str,
    pub(crate) cell: fn(&Endpoint<'_>, &mut String),
}

/// What a table shows of an endpoint.
pub(crate) struct Endpoint<'a> {
    namespace: &'a str,
    name: &'a str,
    spec: Spec<'a>,
}

pub(crate) const COLUMNS: &[Column] = &[
    Column { heading: "NAMESPACE", cell: |endpoint, text| text.push_str(endpoint.namespace) },
    Column { heading: "NAME", cell: |endpoint, text| text.push_str(endpoint.name) },
    Column { heading: "WORKLOAD", cell: |endpoint, text| text.push_str(endpoint.workload()) },
    Column { heading: "NODE", cell: |endpoint, text| text.push_str(endpoint.node()) },
    Column { heading: "NETWORKS", cell: |endpoint, text| join(&endpoint.spec.ip_networks, text) },
    Column { heading: "INTERFACE", cell: |endpoint, text| text.push_str(&endpoint.spec.interface_name.0) },
    Column { heading: "PROFILES", cell: |endpoint, text| join(&endpoint.spec.profiles, text) },
    Column { heading: "NATS", cell: |endpoint, text| endpoint.nats(text) },
    Column { heading: "ORCHESTRATOR", cell: |endpoint, text| text.push_str(&endpoint.spec.orchestrator.0) },
];

/// The columns of a wide table.
pub(crate) const WIDE: &[&str] = &["NAME", "WORKLOAD", "NODE", "NETWORKS", "INTERFACE", "PROFILES", "NATS"];

impl<'a> Endpoint<'a> {
    pub(crate) fn read(record: &'a Record) -> Result<Endpoint<'a>, serde_json::Error> {
        let document: Document<'a> = serde_json::from_slice(&record.value)?;
        let (namespace, name) = match &record.key {
            Key::Resource { namespace, name, .. } => {
                (namespace.as_deref().unwrap_or_default(), name.as_str())
            }
            _ => ("", ""),
        };
        Ok(Endpoint { namespace, name, spec: document.spec })
    }

    pub(crate) fn node(&self) -> &str {
        &self.spec.node.0
    }

    fn workload(&self) -> &str {
        if self.spec.workload.0.is_empty() { &self.spec.pod.0 } else { &self.spec.workload.0 }
    }

    /// As calicoctl shows them: `{internal external}`.
    fn nats(&self, text: &mut String) {
        for (index, nat) in self.spec.ip_nats.iter().enumerate() {
            if index > 0 {
                text.push(',');
            }
            text.extend(["{", &nat.internal_ip.0, " ", &nat.external_ip.0, "}"]);
        }
    }
}

fn join(items: &[Text<'_>], text: &mut String) {
    for (index, item) in items.iter().enumerate() {
        if index > 0 {
            text.push(',');
        }
        text.push_str(&item.0);
    }
}

/// A text that is borrowed from the record unless it holds escapes. null is empty.
#[derive(Default)]
struct Text<'a>(Cow<'a, str>);

impl<'de: 'a, 'a> Deserialize<'de> for Text<'a> {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Text<'a>, D::Error> {
        #[derive(Deserialize)]
        struct Borrowed<'b>(#[serde(borrow)] Cow<'b, str>);
        Ok(Option::<Borrowed<'a>>::deserialize(deserializer)?.map(|text| Text(text.0)).unwrap_or_default())
    }
}

#[derive(Deserialize)]
struct Document<'a> {
    #[serde(borrow, default)]
    spec: Spec<'a>,
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct Spec<'a> {
    #[serde(borrow)]
    workload: Text<'a>,
    #[serde(borrow)]
    pod: Text<'a>,
    #[serde(borrow)]
    node: Text<'a>,
    #[serde(borrow)]
    orchestrator: Text<'a>,
    #[serde(borrow)]
    interface_name: Text<'a>,
    #[serde(borrow, deserialize_with = "null_is_empty")]
    ip_networks: Vec<Text<'a>>,
    #[serde(borrow, deserialize_with = "null_is_empty")]
    profiles: Vec<Text<'a>>,
    #[serde(borrow, rename = "ipNATs", deserialize_with = "null_is_empty")]
    ip_nats: Vec<Nat<'a>>,
}

#[derive(Deserialize)]
struct Nat<'a> {
    #[serde(borrow, default, rename = "internalIP")]
    internal_ip: Text<'a>,
    #[serde(borrow, default, rename = "externalIP")]
    external_ip: Text<'a>,
}

fn null_is_empty<'de, D, T>(deserializer: D) -> Result<Vec<T>, D::Error>
where
    D: serde::Deserializer<'de>,
    T: Deserialize<'de>,
{
    Ok(Option::<Vec<T>>::deserialize(deserializer)?.unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use model::Kind;
    use store::Revision;

    use super::*;

    fn row(value: &str) -> Vec<String> {
        let key = Key::namespaced(Kind::WorkloadEndpoint, "shop", "n1-k8s-cart-eth0");
        let record = Record { key, value: value.to_owned().into(), revision: Revision::new("7") };
        let endpoint = Endpoint::read(&record).unwrap();
        let cell = |column: &Column| {
            let mut text = String::new();
            (column.cell)(&endpoint, &mut text);
            text
        };
        COLUMNS.iter().map(cell).collect()
    }

    #[test]
    fn every_column_shows_its_field() {
        let value = r#"{"kind":"WorkloadEndpoint","metadata":{"labels":{"a":"b"}},"spec":{"orchestrator":"k8s",
            "node":"n1","pod":"cart","containerID":"x","endpoint":"eth0","ipNetworks":["10.0.0.1/32","fd00::1/128"],
            "ipNATs":[{"internalIP":"10.0.0.1","externalIP":"192.0.2.1"}],"profiles":["kns.shop","ksa.shop.\u0061"],
            "interfaceName":"cali1","ports":null}}"#;
        let expected = [
            "shop",
            "n1-k8s-cart-eth0",
            "cart",
            "n1",
            "10.0.0.1/32,fd00::1/128",
            "cali1",
            "kns.shop,ksa.shop.a",
            "{10.0.0.1 192.0.2.1}",
            "k8s",
        ];
        assert_eq!(row(value), expected);
    }

    #[test]
    fn absent_and_null_fields_are_empty_and_workload_wins_over_pod() {
        let value = r#"{"spec":{"workload":"w","pod":"p","node":null,"ipNetworks":null}}"#;
        assert_eq!(row(value), ["shop", "n1-k8s-cart-eth0", "w", "", "", "", "", "", ""]);
        assert_eq!(row("{}")[3], "");
    }
}
