//! The log: lines on stderr, with a level for all of the program or for single modules.

use tracing::level_filters::LevelFilter;
use tracing_subscriber::filter::Targets;
use tracing_subscriber::layer::SubscriberExt as _;
use tracing_subscriber::util::SubscriberInitExt as _;

/// Starts it with a level, or with a list such as `info,store=debug`.
pub(crate) fn start(levels: &str) {
    let (filter, unread) = read(levels);
    let lines = tracing_subscriber::fmt::layer().with_writer(std::io::stderr).with_ansi(false);
    tracing_subscriber::registry().with(lines).with(filter).init();
    for part in unread {
        tracing::warn!("ignored {part:?} in the log level: it must be LEVEL or MODULE=LEVEL");
    }
}

/// What cannot be read is left out: a wrong level must not keep a node from its network.
fn read(levels: &str) -> (Targets, Vec<&str>) {
    let parts = levels.split(',').map(str::trim).filter(|part| !part.is_empty());
    let (read, unread): (Vec<&str>, Vec<&str>) = parts.partition(|part| part.parse::<Targets>().is_ok());
    let info = Targets::new().with_default(LevelFilter::INFO);
    let filter = if read.is_empty() { info } else { read.join(",").parse().unwrap_or(info) };
    (filter, unread)
}

#[cfg(test)]
mod tests {
    use tracing::Level;

    use super::*;

    #[test]
    fn levels_are_for_all_or_for_modules() {
        let check = |levels: &'static str, enabled: &[(&str, Level)], disabled: &[(&str, Level)]| {
            let (filter, unread) = read(levels);
            let is_enabled = |(module, level): &(&str, Level)| filter.would_enable(module, level);
            assert!(enabled.iter().all(is_enabled) && !disabled.iter().any(is_enabled), "{levels}");
            unread
        };
        check("warn", &[("store", Level::WARN)], &[("store", Level::INFO)]);
        check("info,store=debug", &[("store::etcd", Level::DEBUG)], &[("book", Level::DEBUG)]);
        check("", &[("book", Level::INFO)], &[("book", Level::DEBUG)]);
        let unread = check("DEBUG, store=loud", &[("book", Level::DEBUG)], &[("book", Level::TRACE)]);
        assert_eq!(unread, ["store=loud"]);
        assert_eq!(check("book=loud", &[("store", Level::INFO)], &[]), ["book=loud"]);
    }
}
