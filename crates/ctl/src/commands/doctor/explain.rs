//! `plumb doctor explain [CODE]`.

use std::io::Write as _;

use doctor::checks;
use model::UnknownCode;

use super::tell;
use crate::cli::doctor::Explain;
use crate::failure::{Failure, Failures};

pub(super) fn run(wanted: &Explain) -> Result<(), Failures> {
    let style = tell::style_of_stdout(true);
    let text = match &wanted.code {
        None if wanted.markdown => render::explain::page(checks::ALL),
        None => render::explain::list(checks::ALL, &style),
        Some(code) => {
            let code = code.parse().map_err(|unknown| unknown_code(&unknown))?;
            render::explain::one(checks::find(code), &style)
        }
    };
    std::io::stdout().lock().write_all(text.as_bytes())?;
    Ok(())
}

pub(in crate::commands) fn unknown_code(unknown: &UnknownCode) -> Failure {
    let hint = match unknown.nearest {
        Some(nearest) => format!("did you mean {nearest}?"),
        None => "plumb doctor explain lists all codes".to_owned(),
    };
    Failure::usage(unknown.to_string()).hint(hint)
}
