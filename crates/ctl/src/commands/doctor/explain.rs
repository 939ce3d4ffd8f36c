//! `plumb doctor explain [CODE]`.

use std::io::Write as _;

use doctor::checks;
use model::suggest;

use super::tell;
use crate::cli::doctor::Explain;
use crate::failure::{Failure, Failures};

pub(super) fn run(wanted: &Explain) -> Result<(), Failures> {
    let style = tell::style_of_stdout(true);
    let text = match &wanted.code {
        None if wanted.markdown => render::explain::page(checks::ALL),
        None => render::explain::list(checks::ALL, &style),
        Some(code) => {
            let check = checks::find(&code.to_lowercase()).ok_or_else(|| unknown(code))?;
            render::explain::one(check, &style)
        }
    };
    std::io::stdout().lock().write_all(text.as_bytes())?;
    Ok(())
}

fn unknown(code: &str) -> Failure {
    let nearest = suggest::nearest(code, checks::ALL.iter().map(|check| check.code));
    let hint = nearest.map(|nearest| format!("did you mean {nearest}?"));
    Failure::usage(format!("no finding has the code '{code}'"))
        .hint(hint.unwrap_or_else(|| "plumb doctor explain lists all codes".to_owned()))
}
