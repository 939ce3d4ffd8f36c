//! How a node is set up, as far as somebody pasted it: kernel settings, units, the files that name a node.

use evidence::answers::{ClockLine, clock_line};

use super::draft::{Draft, Section};
use evidence::Sighted;
use model::text::Line;

/// Takes in a line. `false`: it says nothing of the kind.
pub(crate) fn line(line: &Line, section: &Section, draft: &mut Draft) -> bool {
    sysctl(line, section, draft)
        || clock(line, section, draft)
        || unit(line, section, draft)
        || printed_file(line, section, draft)
        || listening(line, section, draft)
        || listed_config(line, section, draft)
        || is_passed_over(&line.text)
}

/// `LISTEN 0 8 0.0.0.0:179 0.0.0.0:*`: a socket of `ss -lnt`, with the kind of socket before it or without.
fn listening(line: &Line, section: &Section, draft: &mut Draft) -> bool {
    let words: Vec<&str> = line.text.split_whitespace().collect();
    if words.starts_with(&["State", "Recv-Q"]) || words.starts_with(&["Netid", "State"]) {
        let origin = draft.origin(line);
        draft.node(section).setup.listening_ports.get_or_insert_with(|| Sighted::new(Vec::new(), origin));
        return true;
    }
    let (words, is_tcp) = match words.as_slice() {
        [kind @ ("tcp" | "udp" | "u_str" | "raw"), rest @ ..] => (rest, *kind == "tcp"),
        rest => (rest, true),
    };
    let [state, received, sent, local, ..] = words else { return false };
    const STATES: [&str; 8] =
        ["LISTEN", "ESTAB", "UNCONN", "TIME-WAIT", "CLOSE-WAIT", "SYN-SENT", "SYN-RECV", "FIN-WAIT-2"];
    let is_socket = STATES.contains(state) && received.parse::<u64>().is_ok() && sent.parse::<u64>().is_ok();
    if !is_socket {
        return false;
    }
    let port = local.rsplit(':').next().and_then(|port| port.parse::<u16>().ok());
    let owner = line.text.split_once("users:((\"").and_then(|(_, rest)| rest.split('"').next());
    if let (Some(port), Some(owner), "LISTEN" | "UNCONN") = (port, owner, *state) {
        let owner = draft.sight(line, owner.to_owned());
        draft.node(section).setup.port_owners.get_or_insert_default().entry(port).or_insert(owner);
    }
    // One that only the machine itself reaches is nobody else's.
    let is_local = local.starts_with("127.") || local.starts_with("[::1]");
    let ports = &mut draft.node(section).setup.listening_ports;
    if let Some(port) = port.filter(|_| *state == "LISTEN" && is_tcp && !is_local)
        && let Some(ports) = ports
    {
        ports.seen.push(port);
    }
    true
}

/// What tools print that says nothing to the checks: `conntrack -S`.
fn is_passed_over(text: &str) -> bool {
    text.trim().strip_prefix("cpu=").is_some_and(|rest| rest.contains("insert_failed="))
}

/// `ls /etc/cni/net.d`: which configurations there are, without what is in them.
fn listed_config(line: &Line, section: &Section, draft: &mut Draft) -> bool {
    let command = section.command.as_deref().unwrap_or_default();
    let is_list = command.split_whitespace().any(|word| word == "ls") && command.contains("cni/net.d");
    let Some(name) = line.text.split_whitespace().last().filter(|_| is_list) else { return false };
    if ![".conf", ".conflist", ".json"].iter().any(|end| name.ends_with(end)) {
        return false;
    }
    let listed = draft.sight(line, String::new());
    let configs = draft.node(section).setup.cni_configs.get_or_insert_default();
    configs.entry(name.to_owned()).or_insert(listed);
    true
}

/// `net.ipv4.ip_forward = 0`
fn sysctl(line: &Line, section: &Section, draft: &mut Draft) -> bool {
    if line.text.starts_with("sysctl: ") {
        return true;
    }
    let Some((path, value)) = sysctl_line(&line.text).or_else(|| proc_file(&line.text, section)) else {
        return false;
    };
    if !(path.starts_with("net/") || path.starts_with("fs/inotify/")) {
        return true;
    }
    let value = draft.sight(line, value.to_owned());
    draft.node(section).kernel.sysctls.get_or_insert_default().insert(path, value);
    true
}

/// The path and the value of a setting. `sysctl -a` has those of all kinds, many of several numbers.
fn sysctl_line(text: &str) -> Option<(String, &str)> {
    const FIRST: [&str; 9] = ["net", "kernel", "vm", "fs", "dev", "abi", "debug", "user", "crypto"];
    let (name, value) = text.split_once('=')?;
    let (name, value) = (name.trim(), value.trim());
    let (first, rest) = name.split_once(['.', '/'])?;
    let is_name = FIRST.contains(&first) && !rest.is_empty() && !name.contains([' ', '"', '\'', '(', ',']);
    is_name.then(|| (path_of(name), value))
}

/// `cat /proc/sys/net/ipv4/ip_forward`
fn proc_file<'t>(text: &'t str, section: &Section) -> Option<(String, &'t str)> {
    let command = section.command.as_deref()?;
    let mut files = command.split_whitespace().filter_map(|word| word.strip_prefix("/proc/sys/"));
    let path = files.next().filter(|path| !path.contains(['*', '?', '[']))?;
    let value = text.trim();
    let is_value =
        !value.is_empty() && value.bytes().all(|byte| byte.is_ascii_digit() || byte == b'\t' || byte == b'-');
    (files.next().is_none() && command.contains("cat ") && is_value).then(|| (path.to_owned(), value))
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
