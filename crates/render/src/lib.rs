//! The doctor's report as people and programs read it: text for a terminal, JSON, one page of HTML.
//!
//! Pure: a report and its evidence go in, a text comes out; how wide a terminal is and whether it takes colours are
//! arguments. Names, lines of logs and whatever else strangers wrote is made harmless here, for every output: it
//! gives a terminal no orders and a page no markup.

mod changes;
mod count;
pub mod explain;
mod group;
mod happening;
mod history;
mod html;
mod json;
mod paint;
mod text;
mod wrap;

pub use changes::Changes;
pub use history::{history_json, history_text};
pub use html::html;
pub use json::json;
pub use model::text::{Harmless, harmless};
pub use text::{Style, text};
