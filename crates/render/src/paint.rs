//! Colours of a terminal, where they are wanted.

use doctor::Severity;

#[derive(Clone, Copy, Debug)]
pub(crate) enum Paint {
    Of(Severity),
    Strong,
    Faint,
}

impl Paint {
    /// The text, in colour if `colour`. The text itself is harmless already.
    pub(crate) fn on(self, text: &str, colour: bool) -> String {
        if !colour {
            return text.to_owned();
        }
        let number = match self {
            Paint::Of(Severity::Error) => "1;31",
            Paint::Of(Severity::Warning) => "1;33",
            Paint::Of(Severity::Info) => "1;36",
            Paint::Strong => "1",
            Paint::Faint => "2",
        };
        format!("\u{1b}[{number}m{text}\u{1b}[0m")
    }
}
