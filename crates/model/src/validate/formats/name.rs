//! Names of resources, devices, containers, ports, and other words with an alphabet of their own.

use super::{Verdict, must};
use crate::Selector;
use crate::validate::labels;

/// A DNS subdomain: what resources are named by.
pub fn name(text: &str) -> Verdict {
    if text.contains('/') {
        return Err("must not contain a slash: names are part of the record's key".to_owned());
    }
    must(
        text.split('.').all(is_label),
        "must consist of lower case letters, digits, '-' and '.', and each part must start and end with a letter or digit",
    )
}

/// One part of a DNS name, of any length.
pub(crate) fn is_label(part: &str) -> bool {
    let bytes = part.as_bytes();
    let is_alphanumeric = |byte: &u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
    bytes.first().is_some_and(is_alphanumeric)
        && bytes.last().is_some_and(is_alphanumeric)
        && bytes.iter().all(|byte| is_alphanumeric(byte) || *byte == b'-')
}

pub fn container_id(text: &str) -> Verdict {
    let ends = |byte: Option<&u8>| byte.is_some_and(u8::is_ascii_alphanumeric);
    let bytes = text.as_bytes();
    must(
        ends(bytes.first())
            && ends(bytes.last())
            && bytes.iter().all(|byte| byte.is_ascii_alphanumeric() || *byte == b'-'),
        "must consist of letters, digits and '-', and start and end with a letter or digit",
    )
}

/// A name the kernel could give to a device.
pub fn interface(text: &str) -> Verdict {
    must(
        text == "*" || is_made_of(text, 15, "_.-"),
        "must be an interface name: at most 15 letters, digits, '_', '.' or '-'",
    )
}

/// The same; `*` stands for all interfaces of a host.
pub fn interface_or_all(text: &str) -> Verdict {
    interface(text).map_err(|rule| format!("{rule}, or '*' for all"))
}

/// Between one and `longest` letters, digits and these other characters.
pub(crate) fn is_made_of(text: &str, longest: usize, others: &str) -> bool {
    (1..=longest).contains(&text.len())
        && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || others.as_bytes().contains(&byte))
}

/// A Kubernetes port name: an IANA service name.
pub fn port_name(text: &str) -> Verdict {
    let bytes = text.as_bytes();
    let holds = (1..=15).contains(&bytes.len())
        && bytes.iter().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || *byte == b'-')
        && bytes.iter().any(u8::is_ascii_lowercase)
        && !text.starts_with('-')
        && !text.ends_with('-')
        && !text.contains("--");
    must(
        holds,
        "must be a port name: at most 15 lower case letters, digits and single '-', at least one letter",
    )
}

pub fn selector(text: &str) -> Verdict {
    match text.parse::<Selector>() {
        Ok(_) => Ok(()),
        Err(error) => Err(format!("must be a selector: {error}")),
    }
}

/// `host:<node>` or `virtual:<owner>`.
pub fn affinity(text: &str) -> Verdict {
    let owner = text.strip_prefix("host:").or_else(|| text.strip_prefix("virtual:"));
    must(
        owner.is_some_and(|owner| is_made_of(owner, usize::MAX, "_.-")),
        "must be host:NODE or virtual:OWNER",
    )
}

/// 32 bytes in base64.
pub fn wireguard_key(text: &str) -> Verdict {
    let is_digit = |byte: &u8| byte.is_ascii_alphanumeric() || matches!(byte, b'+' | b'/');
    let holds = text.len() == 44 && text.ends_with('=') && text.as_bytes()[..43].iter().all(is_digit);
    must(holds, "must be a WireGuard key: 32 bytes in base64")
}

/// An interface's name in which `*` stands for any characters.
pub fn interface_pattern(text: &str) -> Verdict {
    must(
        is_made_of(text, 15, "_.-*"),
        "must be an interface name or pattern: at most 15 letters, digits, '_', '.', '-' or '*'",
    )
}

/// The same, but not all interfaces at once.
pub fn ignored_interface(text: &str) -> Verdict {
    interface_pattern(text)?;
    must(text != "*", "must not be '*': that would ignore every interface")
}

/// An interface's name as iptables matches it; `+` at the end stands for any characters.
pub fn interface_filter(text: &str) -> Verdict {
    must(
        is_made_of(text, 15, ":._+-"),
        "must be an interface filter: at most 15 letters, digits, ':', '.', '_', '+' or '-'",
    )
}

/// A host's name or address to listen on.
pub fn host_word(text: &str) -> Verdict {
    must(
        is_made_of(text, 64, ":._+-"),
        "must be a host name or address: at most 64 letters, digits, ':', '.', '_', '+' or '-'",
    )
}

pub fn health_name(text: &str) -> Verdict {
    must(is_made_of(text, usize::MAX, "_ -"), "must consist of letters, digits, '_', '-' and spaces")
}

/// A region becomes part of a namespace's name, `openstack-region-…`, which has at most 63 characters.
pub fn openstack_region(text: &str) -> Verdict {
    must(text.len() <= 63 - "openstack-region-".len(), "must have at most 46 characters")?;
    must(
        is_label(text),
        "must consist of lower case letters, digits and '-', and start and end with a letter or digit",
    )
}

pub fn log_prefix(text: &str) -> Verdict {
    must(
        is_made_of(text, usize::MAX, "%: /_-"),
        "must consist of letters, digits, '%', ':', '/', '_', '-' and spaces",
    )
}

pub fn label_value(text: &str) -> Verdict {
    labels::label_value(text)
}

/// The path of a URL.
pub fn http_path(text: &str) -> Verdict {
    must(
        text.starts_with('/') && !text.contains(['?', ' ', '#']),
        "must start with '/' and must not contain '?', '#' or a space",
    )
}

/// `name=value,name=value`.
pub fn key_values(text: &str) -> Verdict {
    let holds = |item: &str| match item.split_once('=') {
        Some((key, value)) => is_made_of(key, usize::MAX, "-_") && !value.is_empty() && !value.contains('='),
        None => false,
    };
    must(text.split(',').all(holds), "must be NAME=VALUE pairs joined by commas")
}

/// The same with `true`, `false` or nothing for values.
pub fn switches(text: &str) -> Verdict {
    let holds = |item: &str| match item.split_once('=') {
        Some((key, value)) => is_made_of(key, usize::MAX, "-_") && matches!(value, "true" | "false" | ""),
        None => item.is_empty(),
    };
    must(text.split(',').all(holds), "must be NAME=true or NAME=false pairs joined by commas")
}
