//! Every fault that can be put into a lab, by layer.

mod bgp;
mod books;
mod endpoints;
mod kernel;
mod logs;
mod nodes;
mod pods;

use crate::injection::Fault;

/// A layer's name and its faults.
pub(crate) const LAYERS: &[(&str, &[Fault])] = &[
    ("books", books::FAULTS),
    ("endpoints", endpoints::FAULTS),
    ("kernel", kernel::FAULTS),
    ("pods", pods::FAULTS),
    ("nodes", nodes::FAULTS),
    ("logs", logs::FAULTS),
    ("bgp", bgp::FAULTS),
];

pub(crate) fn all() -> impl Iterator<Item = &'static Fault> {
    LAYERS.iter().flat_map(|(_, faults)| faults.iter())
}
