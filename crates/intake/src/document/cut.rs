//! Documents of which a part is missing. A block of IPAM is read as far as it goes; of anything else it is said.

use model::Cidr;

use crate::draft::Draft;
use evidence::books::CutBlock;
use evidence::{FileGap, Sighted};
use model::text::Line;

use super::Item;

/// Reads a block. `false`: it is none.
pub(super) fn block(item: &Item, draft: &mut Draft) -> bool {
    let has = |name: &str| item.lines.iter().any(|line| line.text.contains(name));
    if !(has("\"allocations\"") && has("\"cidr\"")) {
        return false;
    }
    let mut block = CutBlock::default();
    for line in &item.lines {
        if let Some((name, value)) = field(line.text.trim().trim_end_matches(',')) {
            read_field(&mut block, name, value, line, draft);
        }
    }
    let Some(first) = item.lines.first() else { return false };
    draft.unseen(FileGap::CutBlock { line: first.number, block: block.cidr });
    let block = Sighted::new(block, draft.origin(first));
    draft.ipam().cut_blocks.push(block);
    true
}

/// Says that something cannot be read.
pub(super) fn tell(item: &Item, draft: &mut Draft) -> bool {
    let Some(first) = item.lines.first() else { return false };
    draft.unseen(FileGap::Document { line: first.number });
    true
}

fn field(text: &str) -> Option<(&str, &str)> {
    let (name, value) = text.trim_start_matches('{').trim_start().strip_prefix('"')?.split_once('"')?;
    Some((name, value.trim_start().strip_prefix(':')?.trim()))
}

fn read_field(block: &mut CutBlock, name: &str, value: &str, line: &Line, draft: &Draft) {
    let text = value.trim_matches('"');
    match name {
        "cidr" => block.cidr = Cidr::parse_masked(text).ok(),
        "handle_id" if !text.is_empty() && text != "null" => {
            block.handles.push(draft.sight(line, text.into()))
        }
        _ => {}
    }
}
