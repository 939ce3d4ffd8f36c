//! The formats of single values.
//!
//! Each check returns the rule that is broken, worded so that it reads after the value: "must be …".

mod address;
mod name;
mod number;
mod regular_expression;

pub use address::*;
pub use name::*;
pub use number::*;
pub use regular_expression::regular_expression;

type Verdict = Result<(), String>;

fn must(holds: bool, rule: &str) -> Verdict {
    if holds { Ok(()) } else { Err(rule.to_owned()) }
}
