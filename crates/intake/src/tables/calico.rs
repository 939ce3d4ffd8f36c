//! `calicoctl get nodes -o wide` and `calicoctl get ippools [-o wide]`.

use model::{Cidr, Kind, Resource};
use serde_json::{Value, json};

use crate::draft::Draft;
use crate::words;
use evidence::answers::Row;
use model::text::Line;

pub(super) fn node_row(row: &Row<'_>, line: &Line, draft: &mut Draft) -> Option<()> {
    let mut node = Resource::new(Kind::Node, row.get("NAME")?);
    let mut bgp = serde_json::Map::new();
    for (column, field) in [("IPV4", "ipv4Address"), ("IPV6", "ipv6Address")] {
        if let Some(cell) = row.get(column).filter(|cell| words::address(cell).is_some()) {
            bgp.insert(field.to_owned(), Value::from(cell));
        }
    }
    // In brackets: the cluster's default, not the node's own.
    if let Some(number) = row.get("ASN").and_then(|cell| cell.parse::<u32>().ok()) {
        bgp.insert("asNumber".to_owned(), Value::from(number));
    }
    node.spec_mut().insert("bgp".to_owned(), Value::Object(bgp));
    draft.cluster.records.add(draft.sight(line, node));
    Some(())
}

pub(super) fn pool_row(row: &Row<'_>, line: &Line, draft: &mut Draft) -> Option<()> {
    let cidr = Cidr::parse_masked(row.get("CIDR")?).ok()?;
    // Pools of 2017 had no names: Calico's own upgrade makes one of the network.
    let name = row.get("NAME").map_or_else(|| cidr.to_string().replace(['.', ':', '/'], "-"), str::to_owned);
    let mut pool = Resource::new(Kind::IpPool, name);
    let spec = pool.spec_mut();
    spec.insert("cidr".to_owned(), json!(cidr));
    for (column, field) in
        [("NAT", "natOutgoing"), ("DISABLED", "disabled"), ("DISABLEBGPEXPORT", "disableBGPExport")]
    {
        if let Some(value) = row.get(column).and_then(|cell| cell.parse::<bool>().ok()) {
            spec.insert(field.to_owned(), Value::from(value));
        }
    }
    for (column, field) in
        [("IPIPMODE", "ipipMode"), ("VXLANMODE", "vxlanMode"), ("SELECTOR", "nodeSelector")]
    {
        if let Some(value) = row.get(column) {
            spec.insert(field.to_owned(), Value::from(value));
        }
    }
    draft.cluster.records.add(draft.sight(line, pool));
    Some(())
}
