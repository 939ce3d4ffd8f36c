//! How a node is set up, as far as somebody pasted it: kernel settings, units, the files that name a node.

use evidence::answers::{ClockLine, clock_line};

use super::draft::{Draft, Section};
use model::text::Line;

/// Takes in a line. `false`: it says nothing of the kind.
pub(crate) fn line(line: &Line, section: &Section, draft: &mut Draft) -> bool {
    sysctl(line, section, draft)
        || clock(line, section, draft)
        || unit(line, section, draft)
        || printed_file(line, section, draft)
}

/// `net.ipv4.ip_forward = 0`
fn sysctl(line: &Line, section: &Section, draft: &mut Draft) -> bool {
    let Some((name, value)) = line.text.split_once('=') else { return false };
    let (name, value) = (name.trim(), value.trim());
    let is_name = name.starts_with("net.") && !name.contains(' ');
    if !is_name || value.contains(' ') {
        return false;
    }
    let path = path_of(name);
    let value = draft.sight(line, value.to_owned());
    draft.node(section).kernel.sysctls.get_or_insert_default().insert(path, value);
    true
}

fn clock(line: &Line, section: &Section, draft: &mut Draft) -> bool {
    match clock_line(&line.text) {
        None => return false,
        Some(ClockLine::Ahead(ahead)) => {
            let ahead = draft.sight(line, ahead);
            draft.node(section).setup.clock_ahead.get_or_insert(ahead);
        }
        Some(ClockLine::IsKept(kept)) => {
            let kept = draft.sight(line, kept);
            draft.node(section).setup.is_clock_kept.get_or_insert(kept);
        }
        Some(ClockLine::Other) => {}
    }
    true
}

/// Dots part the words, except where a device's own name has dots: then those are slashes.
fn path_of(name: &str) -> String {
    if name.contains('/') {
        name.chars()
            .map(|character| match character {
                '.' => '/',
                '/' => '.',
                other => other,
            })
            .collect()
    } else {
        name.replace('.', "/")
    }
}

/// `● kubelet.service - …` and, below it, `Active: failed (Result: exit-code) …`.
fn unit(line: &Line, section: &Section, draft: &mut Draft) -> bool {
    let text = line.text.trim();
    let Some(state) = text.strip_prefix("Active: ") else {
        return text.starts_with("Loaded: loaded") || text.starts_with('●');
    };
    let words = section.command.as_deref().unwrap_or_default().split_whitespace();
    let unit =
        words.skip_while(|word| *word != "status").nth(1).unwrap_or("kubelet").trim_end_matches(".service");
    let state = draft.sight(line, state.split_whitespace().next().unwrap_or_default().to_owned());
    draft.node(section).setup.units.get_or_insert_default().insert(unit.to_owned(), state);
    true
}

/// What `cat` and `hostname` print, which only the prompt tells.
fn printed_file(line: &Line, section: &Section, draft: &mut Draft) -> bool {
    let Some(command) = &section.command else { return false };
    let value = draft.sight(line, line.text.trim().to_owned());
    let is_word = !value.seen.contains(' ');
    let node = draft.node(section);
    if command.contains("/var/lib/calico/nodename") && is_word {
        node.setup.nodename_file.get_or_insert(value);
    } else if command.trim() == "hostname" && is_word {
        node.setup.hostname.get_or_insert(value);
    } else {
        return false;
    }
    true
}
