//! What programs of a node print when they are asked, line by line: the same readers for an answer that we got ourselves and for one that
//! somebody pasted.

mod bird;
mod clock;
mod table;

pub use bird::BgpReader;
pub use clock::{ClockLine, clock_line};
pub use table::{Header, Row, boxed, spans};
