//! `chronyc tracking` and `timedatectl status`.

use jiff::SignedDuration;

/// What a line of either says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ClockLine {
    /// `System time     : 93.1 seconds slow of NTP time`
    Ahead(SignedDuration),
    /// `System clock synchronized: no`
    IsKept(bool),
    /// Any other line of them.
    Other,
}

/// `None`: it is of neither program.
pub fn clock_line(text: &str) -> Option<ClockLine> {
    let (name, value) = text.split_once(':')?;
    let (name, value) = (name.trim(), value.trim());
    match name {
        "System time" => {
            let (seconds, direction) = value.split_once(" seconds ")?;
            let seconds = seconds.parse::<f64>().ok()?;
            let seconds = match direction {
                "slow of NTP time" => -seconds,
                "fast of NTP time" => seconds,
                _ => return None,
            };
            SignedDuration::try_from_secs_f64(seconds).ok().map(ClockLine::Ahead)
        }
        "System clock synchronized" | "NTP synchronized" if matches!(value, "yes" | "no") => {
            Some(ClockLine::IsKept(value == "yes"))
        }
        _ => OTHER_LINES.contains(&name).then_some(ClockLine::Other),
    }
}

const OTHER_LINES: [&str; 19] = [
    "Reference ID",
    "Stratum",
    "Ref time (UTC)",
    "Last offset",
    "RMS offset",
    "Frequency",
    "Residual freq",
    "Skew",
    "Root delay",
    "Root dispersion",
    "Update interval",
    "Leap status",
    "Local time",
    "Universal time",
    "RTC time",
    "Time zone",
    "NTP service",
    "RTC in local TZ",
    "NTP enabled",
];
