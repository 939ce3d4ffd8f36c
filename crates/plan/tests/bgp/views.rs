//! Clusters for these tests.

use std::collections::BTreeMap;

use model::{Kind, Metadata, Resource};
use plan::bgp::{BgpFilter, BgpNode, BgpPeer, BgpPool, BgpSettings, BgpView, Bird};
use serde_json::{Map, Value, json};

pub(crate) fn resource(kind: Kind, name: &str, labels: &[(&str, &str)], spec: Value) -> Resource {
    let labels: BTreeMap<String, String> =
        labels.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
    let metadata = Metadata { name: name.to_owned(), labels, ..Metadata::default() };
    Resource { kind, metadata, body: Map::from_iter([("spec".to_owned(), spec)]) }
}

/// Nodes `a`, `b`, `c` at 10.0.0.1 to 3 and fd00::1 to 3, seen from `a`, which has one block in each IP version.
pub(crate) fn three() -> BgpView {
    let mut view = BgpView {
        node: "a".to_owned(),
        pools: vec![pool("10.244.0.0/16"), pool("fd10::/64")],
        blocks: ["10.244.0.0/26", "fd10::/122"].map(|text| text.parse().unwrap()).to_vec(),
        ..BgpView::default()
    };
    for (number, name) in (1..).zip(["a", "b", "c"]) {
        node(
            &mut view,
            name,
            json!({"ipv4Address": format!("10.0.0.{number}/24"), "ipv6Address": format!("fd00::{number}/64")}),
        );
    }
    view
}

pub(crate) fn pool(cidr: &str) -> BgpPool {
    BgpPool { cidr: cidr.parse().unwrap(), is_exported: true, is_birds: false }
}

/// A node that bears the label `role: NAME`.
pub(crate) fn node(view: &mut BgpView, name: &str, bgp: Value) {
    let record = resource(Kind::Node, name, &[("role", name)], json!({"bgp": bgp}));
    view.nodes.insert(name.to_owned(), BgpNode::read(&record));
}

pub(crate) fn peer(view: &mut BgpView, name: &str, spec: Value) {
    view.peers.insert(name.to_owned(), BgpPeer::read(&resource(Kind::BgpPeer, name, &[], spec)));
}

pub(crate) fn filter(view: &mut BgpView, name: &str, spec: Value) {
    view.filters.insert(name.to_owned(), BgpFilter::read(&resource(Kind::BgpFilter, name, &[], spec)));
}

pub(crate) fn configuration(view: &mut BgpView, spec: Value) {
    let record = resource(Kind::BgpConfiguration, "default", &[], spec);
    view.settings = BgpSettings::read(Some(&record), []);
}

pub(crate) fn decided(view: &BgpView) -> Bird {
    view.decide().expect("the node has an address")
}

/// Every session in a few words.
pub(crate) fn sessions(view: &BgpView) -> Vec<String> {
    let words = |session: &plan::bgp::Session| {
        let mut words = format!("{} AS {}", session.name(), session.peer_as);
        for (is_so, word) in [
            (session.is_passive, " passive"),
            (session.is_client, " client"),
            (!session.is_made(), " not made"),
        ] {
            words.push_str(if is_so { word } else { "" });
        }
        words
    };
    decided(view).sessions.iter().map(words).collect()
}

pub(crate) fn troubles(view: &BgpView) -> Vec<String> {
    decided(view).troubles.iter().map(ToString::to_string).collect()
}
