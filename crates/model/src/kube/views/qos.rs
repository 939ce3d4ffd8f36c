//! Limits of a pod's traffic, from its annotations.

use serde_json::{Map, Value};

use crate::validate::formats;

const PREFIX: &str = "qos.projectcalico.org/";
/// What the plugin `bandwidth` reads; Calico's own annotations come before it.
const KUBERNETES: [(&str, &str); 2] = [
    ("ingressBandwidth", "kubernetes.io/ingress-bandwidth"),
    ("egressBandwidth", "kubernetes.io/egress-bandwidth"),
];
/// Each for traffic into the pod and out of it.
const LIMITS: [&str; 7] =
    ["Bandwidth", "Burst", "Peakrate", "Minburst", "PacketRate", "PacketBurst", "MaxConnections"];

/// The controls that annotations ask for. What cannot be read is passed over, as in Calico: a typing error in a limit must
/// not keep a pod from its network.
pub(super) fn controls<'p>(annotation: impl Fn(&str) -> Option<&'p str>) -> Map<String, Value> {
    let mut controls = Map::new();
    for limit in ["ingress", "egress"].iter().flat_map(|way| LIMITS.map(|limit| format!("{way}{limit}"))) {
        let of_kubernetes = KUBERNETES.iter().find(|(name, _)| *name == limit).map(|(_, name)| *name);
        let noted = annotation(&format!("{PREFIX}{limit}")).or_else(|| annotation(of_kubernetes?));
        if let Some(number) = noted.and_then(quantity) {
            controls.insert(limit, number.into());
        }
    }
    let mark = annotation(&format!("{PREFIX}dscp")).map(|mark| match mark.parse::<u8>() {
        Ok(number) => Value::from(number),
        Err(_) => Value::from(mark),
    });
    if let Some(mark) = mark.filter(|mark| formats::dscp(mark).is_ok()) {
        controls.insert("dscp".to_owned(), mark);
    }
    controls
}

/// A whole number as Kubernetes writes quantities: `1500`, `10M`, `64Ki`, `1e6`, `1.5G`. Parts of a whole are rounded up, as
/// Kubernetes does.
fn quantity(text: &str) -> Option<i64> {
    let number_end = text
        .find(|next: char| !next.is_ascii_digit() && !matches!(next, '.' | '+' | '-'))
        .unwrap_or(text.len());
    let (number, suffix) = text.split_at_checked(number_end)?;
    let number: f64 = number.parse().ok()?;
    let value = (number * factor(suffix)?).ceil();
    // Beyond this a double no longer holds every whole number.
    (0.0..=9_007_199_254_740_992.0).contains(&value).then_some(value as i64)
}

fn factor(suffix: &str) -> Option<f64> {
    const THOUSANDS: [&str; 7] = ["", "k", "M", "G", "T", "P", "E"];
    let power = |name: &str| THOUSANDS.iter().position(|known| *known == name);
    if let Some(exponent) = suffix.strip_prefix(['e', 'E']).filter(|exponent| !exponent.is_empty()) {
        return Some(10f64.powi(exponent.parse().ok()?));
    }
    match suffix.strip_suffix('i') {
        Some("K") => Some(1024.0),
        Some(name) if !matches!(name, "" | "k") => Some(1024f64.powi(power(name)?.try_into().ok()?)),
        Some(_) => None,
        None if suffix == "m" => Some(0.001),
        None => Some(1000f64.powi(power(suffix)?.try_into().ok()?)),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn quantities_are_those_of_kubernetes() {
        for (text, number) in [
            ("1500", Some(1500)),
            ("10M", Some(10_000_000)),
            ("64Ki", Some(65_536)),
            ("1Gi", Some(1 << 30)),
            ("1e6", Some(1_000_000)),
            ("1.5G", Some(1_500_000_000)),
            ("100m", Some(1)),
            ("2E", None),
            ("0", Some(0)),
            ("-1", None),
            ("1ki", None),
            ("1i", None),
            ("M", None),
            ("", None),
            ("1 M", None),
            ("1e99999999999", None),
            ("1e999", None),
            ("NaN", None),
        ] {
            assert_eq!(quantity(text), number, "{text}");
        }
    }

    #[test]
    fn calicos_annotations_come_before_those_of_kubernetes() {
        let annotations = json!({
            "kubernetes.io/ingress-bandwidth": "1M",
            "kubernetes.io/egress-bandwidth": "2M",
            "qos.projectcalico.org/egressBandwidth": "3M",
            "qos.projectcalico.org/ingressPacketRate": "lots",
            "qos.projectcalico.org/egressMaxConnections": "40",
            "qos.projectcalico.org/dscp": "AF11",
        });
        let found = controls(|name| annotations.get(name)?.as_str());
        let expected = json!({
            "ingressBandwidth": 1_000_000, "egressBandwidth": 3_000_000, "egressMaxConnections": 40, "dscp": "AF11",
        });
        assert_eq!(Value::Object(found), expected);
    }
}
