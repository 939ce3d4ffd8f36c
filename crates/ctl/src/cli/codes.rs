//! Codes of findings on the command line.

use std::ffi::OsStr;

use clap::builder::{PossibleValue, StringValueParser, TypedValueParser};
use model::FindingCode;

/// Completes codes, but accepts any word: the command refuses a wrong one with the nearest code.
#[derive(Clone, Debug)]
pub(super) struct CodeParser;

impl TypedValueParser for CodeParser {
    type Value = String;

    fn parse_ref(
        &self,
        command: &clap::Command,
        argument: Option<&clap::Arg>,
        value: &OsStr,
    ) -> Result<String, clap::Error> {
        StringValueParser::new().parse_ref(command, argument, value)
    }

    fn possible_values(&self) -> Option<Box<dyn Iterator<Item = PossibleValue>>> {
        Some(Box::new(FindingCode::ALL.iter().map(|code| PossibleValue::new(code.as_str()))))
    }
}
