//! Addresses that are used by another node than their block's, or lie in a block of nobody.

use std::io::Write;
use std::sync::Arc;

use ipam::{NAMESPACE_ATTRIBUTE, NODE_ATTRIBUTE, POD_ATTRIBUTE, TYPE_ATTRIBUTE, is_cooling_down};
use model::ipam::{Block, BlockAttribute};
use model::{AffinityOwner, HandleId, Key, Kind};
use serde_json::{Value, json};
use store::Store;

use crate::failure::{Failure, Problems};
use crate::output::boxed::Boxed;
use crate::output::document::Syntax;
use crate::reader::Pages;

/// The attribute by which KubeVirt's machines are known.
const MACHINE_ATTRIBUTE: &str = "vmi-name";

/// In the order of the table's columns.
const FIELDS: [(&str, &str); 6] = [
    ("IP", "ip"),
    ("BORROWING-NODE", "borrowingNode"),
    ("BLOCK", "block"),
    ("BLOCK OWNER", "blockOwner"),
    ("TYPE", "type"),
    ("ALLOCATED-TO", "allocatedTo"),
];

#[derive(Default)]
struct Borrowed {
    rows: Vec<[String; 6]>,
    /// Addresses that say no node: very old ones.
    unclassified: usize,
}

pub(super) async fn show(
    store: &Arc<dyn Store>,
    format: Option<Syntax>,
    out: &mut dyn Write,
    problems: &mut Problems,
) -> Result<(), Failure> {
    let mut borrowed = Borrowed::default();
    let mut pages = Pages::new(store, Kind::IpamBlock, None);
    while let Some(page) = pages.next().await? {
        for record in &page.records {
            let Key::Block(cidr) = &record.key else { continue };
            match Block::decode(cidr, &record.value) {
                Ok(block) => borrowed.add(&block),
                Err(error) => problems.push(Failure::of(&error)),
            }
        }
    }
    match format {
        Some(syntax) => syntax.write_bare(out, &borrowed.document())?,
        None => borrowed.write_table(out)?,
    }
    Ok(())
}

impl Borrowed {
    fn add(&mut self, block: &Block) {
        let owner = block.owner();
        let owner = owner.as_ref().map_or("", AffinityOwner::name);
        for ordinal in 0..block.allocations.len() {
            let (Some(attribute), Some(address)) = (block.attribute(ordinal), block.address(ordinal)) else {
                continue;
            };
            if is_cooling_down(attribute) || attribute.handle().is_some_and(HandleId::is_windows_reserved) {
                continue;
            }
            let Some(node) = attribute.secondary.get(NODE_ATTRIBUTE) else {
                self.unclassified += 1;
                continue;
            };
            if node != owner {
                let (kind, holder) = holder(attribute);
                let (address, cidr) = (address.to_string(), block.cidr.to_string());
                self.rows.push([address, node.clone(), cidr, owner.to_owned(), kind, holder]);
            }
        }
    }

    fn write_table(&self, out: &mut dyn Write) -> std::io::Result<()> {
        let mut table = Boxed::new(&FIELDS.map(|(heading, _)| heading));
        self.rows.iter().for_each(|row| table.row(row.to_vec()));
        table.write(out)?;
        if self.unclassified > 0 {
            let count = self.unclassified;
            writeln!(
                out,
                "\nNote: {count} IP allocations do not name a node, so it is unknown whether they are borrowed."
            )?;
        }
        Ok(())
    }

    fn document(&self) -> Value {
        let shown = |row: &[String; 6]| -> Value {
            let fields =
                FIELDS.iter().zip(row).map(|((_, field), value)| ((*field).to_owned(), json!(value)));
            Value::Object(fields.collect())
        };
        json!({"borrowed": self.rows.iter().map(shown).collect::<Vec<_>>(), "unclassified": self.unclassified})
    }
}

/// What sort of owner an address has, and its name.
fn holder(attribute: &BlockAttribute) -> (String, String) {
    let known = |name: &str| attribute.secondary.get(name).map(String::as_str);
    let namespace = known(NAMESPACE_ATTRIBUTE).unwrap_or_default();
    match (known(MACHINE_ATTRIBUTE), known(POD_ATTRIBUTE), known(TYPE_ATTRIBUTE)) {
        (Some(machine), _, _) => ("vmi".to_owned(), format!("{namespace}/{machine}")),
        (None, Some(pod), _) => ("pod".to_owned(), format!("{namespace}/{pod}")),
        (None, None, kind) => (kind.unwrap_or_default().to_owned(), String::new()),
    }
}
