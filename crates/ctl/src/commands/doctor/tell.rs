//! Writes a report where it was asked for, as it was asked for.

use std::fs::OpenOptions;
use std::io::{IsTerminal as _, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;

use render::Style;

use super::Examined;
use crate::cli::doctor::{DoctorOutput, Format};
use crate::failure::Failure;

/// Where nobody says how wide a line may be.
const WIDTH: usize = 100;

pub(super) fn tell(output: &DoctorOutput, examined: &Examined) -> Result<(), Failure> {
    let style = style(output);
    let text = match output.output {
        Format::Text => render::text(&examined.report, &style),
        Format::Json => render::json(&examined.report, examined.evidence.taken_at),
        Format::Html => render::html(&examined.report, &examined.evidence),
    };
    write(output, &text)
}

/// As plain as a file, or as stdout can show it.
pub(super) fn style(output: &DoctorOutput) -> Style {
    if output.out.is_some() { plain(output.all) } else { style_of_stdout(output.all) }
}

/// To the file, or to stdout.
pub(super) fn write(output: &DoctorOutput, text: &str) -> Result<(), Failure> {
    let Some(path) = &output.out else {
        return Ok(std::io::stdout().lock().write_all(text.as_bytes())?);
    };
    // Reports name hosts and pods: for the owner's eyes.
    let file = OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(path);
    file.and_then(|mut file| file.write_all(text.as_bytes()))
        .map_err(|error| Failure::new(format!("cannot write {}", path.display())).caused_by(&error))
}

/// Colours and width of the terminal, if stdout is one.
pub(super) fn style_of_stdout(is_whole: bool) -> Style {
    let stdout = std::io::stdout();
    if !stdout.is_terminal() {
        return plain(is_whole);
    }
    let is_set = |name: &str| std::env::var_os(name).is_some_and(|value| !value.is_empty());
    let is_dumb = std::env::var_os("TERM").is_some_and(|term| term == "dumb");
    let width = rustix::termios::tcgetwinsize(&stdout).map(|size| usize::from(size.ws_col));
    Style {
        is_coloured: !is_set("NO_COLOR") && !is_dumb,
        width: width.ok().filter(|width| *width > 0).unwrap_or(WIDTH),
        is_whole,
    }
}

fn plain(is_whole: bool) -> Style {
    Style { is_coloured: false, width: WIDTH, is_whole }
}
