//! Secrets that are known by their shape, whatever they are called: tokens in three parts, passwords in addresses, keys of clouds, keys
//! and certificates in base64, and what follows `Bearer` and `Basic`. Each of them as often as it stands in a line.

use std::ops::Range;

use super::scan::{Scan, is_base64, is_blank};

/// How far behind a colon a password with a slash in it is looked for.
const PASSWORD_BYTES_MAX: usize = 256;

pub(super) fn find(scan: &Scan<'_>, masks: &mut Vec<Range<usize>>) {
    web_tokens(scan, masks);
    url_passwords(scan, masks);
    cloud_keys(scan, masks);
    encoded_keys(scan, masks);
}

/// What follows `Bearer` and `Basic`, which are spelled in any case.
pub(super) fn schemes(scan: &Scan<'_>, masks: &mut Vec<Range<usize>>) {
    let mut at = 0;
    while at < scan.len() {
        at = scan.find(at, |byte| matches!(byte, b'b' | b'B'));
        let Some(scheme) = scheme(scan, at) else {
            at += 1;
            continue;
        };
        let start = scan.find(scheme, |byte| !is_blank(byte));
        let end = scan.find(start, |byte| !is_token(byte));
        if end - start >= 8 {
            masks.push(start..end);
        }
        at = end.max(at + 1);
    }
}

/// Where the credentials after a scheme begin.
pub(super) fn scheme(scan: &Scan<'_>, at: usize) -> Option<usize> {
    let schemes: [&[u8]; 2] = [b"Bearer ", b"Basic "];
    schemes.iter().find(|scheme| scan.begins_in_any_case(at, scheme)).map(|scheme| at + scheme.len())
}

fn is_token(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"-_.+/=~".contains(&byte)
}

/// `eyJ….….…`
fn web_tokens(scan: &Scan<'_>, masks: &mut Vec<Range<usize>>) {
    let mut at = 0;
    while let Some(start) = scan.find_text(at, b"eyJ") {
        let end = scan.find(start, |byte| !(byte.is_ascii_alphanumeric() || b"-_.".contains(&byte)));
        // What is too short from its first beginning on is too short from every later one.
        if end - start > 40 && scan.find(start, |byte| byte == b'.') < end {
            masks.push(start..end);
        }
        at = end;
    }
}

/// `://user:password@`, also with escaped slashes.
fn url_passwords(scan: &Scan<'_>, masks: &mut Vec<Range<usize>>) {
    let mut at = 0;
    loop {
        let colon = scan.find(at, |byte| byte == b':');
        if colon >= scan.len() {
            return;
        }
        at = colon + 1;
        let slashes: [&[u8]; 2] = [b"//", br"\/\/"];
        let Some(slashes) = slashes.iter().find(|slashes| scan.begins(at, slashes)) else { continue };
        at += slashes.len();
        masks.extend(password(scan, at));
    }
}

/// The password in what begins here, which is `user:password@host`.
fn password(scan: &Scan<'_>, start: usize) -> Option<Range<usize>> {
    let ends = |byte: u8| b"/ \t\"'\\".contains(&byte);
    let end = scan.find(start, ends);
    let colon = scan.find(start, |byte| byte == b':' || ends(byte));
    if scan.at(colon) != Some(b':') || colon >= end {
        return None;
    }
    let last_at = |to: usize| {
        let behind = scan.find_back(colon + 1, to, |byte| byte == b'@');
        (behind > colon + 1).then(|| behind - 1)
    };
    if let Some(at) = last_at(end) {
        return Some(colon + 1..at);
    }
    // A slash in the password, which nobody may write so, and which parsers complain of with the whole text. A port is a number.
    let is_port = scan.get(colon + 1, end).iter().all(u8::is_ascii_digit);
    let near = scan.get(colon, colon + PASSWORD_BYTES_MAX);
    let length = near.iter().position(|byte| b" \t\"'".contains(byte)).unwrap_or(near.len());
    last_at(colon + length).filter(|_| !is_port).map(|at| colon + 1..at)
}

/// Names of keys of AWS.
fn cloud_keys(scan: &Scan<'_>, masks: &mut Vec<Range<usize>>) {
    for beginning in [b"AKIA", b"ASIA"] {
        let mut at = 0;
        while let Some(start) = scan.find_text(at, beginning) {
            at = scan.find(start, |byte| !(byte.is_ascii_uppercase() || byte.is_ascii_digit()));
            if at - start >= 20 {
                masks.push(start..at);
            }
        }
    }
}

/// `-----BEGIN` in base64, at each of the three places that it can have in there. Certificates, too: keys may follow them.
fn encoded_keys(scan: &Scan<'_>, masks: &mut Vec<Range<usize>>) {
    const BEGINNINGS: [&[u8]; 3] = [b"LS0tLS1CRUdJ", b"LS0tQkVHSU", b"LS0tLUJFR0lO"];
    let mut at = 0;
    while let Some(found) = scan.find_text(at, b"LS0t") {
        if !BEGINNINGS.iter().any(|beginning| scan.begins(found, beginning)) {
            at = found + 1;
            continue;
        }
        let start = scan.find_back(at, found, |byte| !is_base64(byte));
        let mut end = scan.find(found, |byte| !is_base64(byte));
        // Broken into lines, inside of a text.
        while scan.begins(end, br"\n") || scan.begins(end, br"\r") {
            end = scan.find(end + 2, |byte| !is_base64(byte));
        }
        masks.push(start..end);
        at = end;
    }
}
