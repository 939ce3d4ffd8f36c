//! Secrets that are known by the name before them: `password=…`, `"token": "…"`, `--password …`, YAML over several lines, and
//! `value: …` below `name: ETCD_PASSWORD`.

use std::ops::Range;

use super::MASK;
use super::scan::{Scan, is_blank};
use super::shapes::scheme;

/// Ends of names whose values are secrets, without the signs that part their words. Paths to files with secrets are not secrets.
const SECRET_NAMES: &[&[u8]] = &[
    b"password",
    b"passwd",
    b"passphrase",
    b"token",
    b"secret",
    b"secretkey",
    b"apikey",
    b"accesskey",
    b"privatekey",
    b"keydata",
    b"credential",
    b"credentials",
    b"authorization",
    b"psk",
    b"presharedkey",
    b"sharedkey",
    b"authkey",
    b"etcdkey",
    b"tlskey",
    b"sshkey",
    b"signingkey",
    b"encryptionkey",
    b"cookie",
    b"dockerconfigjson",
    b"dockercfg",
];

/// Longer than every name; of a longer one the end tells.
const NAME_BYTES_MAX: usize = 64;
/// `value` follows `name` at once.
const VALUE_LINES: u8 = 2;

/// Finds values line by line; remembers what a line said about the next.
#[derive(Debug, Default)]
pub(super) struct Names {
    block: Option<Block>,
    /// For how many more lines `value` is the value of a secret, since its name was told.
    value_lines: u8,
    /// The line before is an item of a list, and a flag whose value is the next item.
    is_flag_open: bool,
}

/// A value that stands in the lines below its name.
#[derive(Clone, Copy, Debug)]
struct Block {
    /// Where the name stands. Its value is indented further.
    indent: usize,
    /// Nothing said what follows: fields of an object are no secret.
    may_be_object: bool,
}

/// Whether a name, or a text that ends in one, is that of a secret.
pub fn is_secret_name(before: &str) -> bool {
    let trimmed = before.trim_end().trim_end_matches(['"', '\'', '\\']);
    let start = trimmed.len().saturating_sub(NAME_BYTES_MAX);
    let name = trimmed.as_bytes().get(start..).unwrap_or_default();
    if name.to_ascii_lowercase().ends_with(b".key") || is_pass(name) {
        return true;
    }
    let is_parting = |byte: &u8| matches!(byte, b'-' | b'_' | b'.');
    let bare: Vec<u8> = name.iter().filter(|byte| !is_parting(byte)).map(u8::to_ascii_lowercase).collect();
    !name.last().is_some_and(is_parting) && SECRET_NAMES.iter().any(|secret| bare.ends_with(secret))
}

/// `ETCD_PASS`, but not `bypass`.
fn is_pass(name: &[u8]) -> bool {
    let before = name.len().checked_sub(4).and_then(|at| name.split_at_checked(at));
    before.is_some_and(|(before, word)| {
        word.eq_ignore_ascii_case(b"pass")
            && before.last().is_none_or(|byte| matches!(byte, b'_' | b'-' | b'.'))
    })
}

impl Names {
    /// Values that begin in lines before.
    pub(super) fn follow(&mut self, scan: &Scan<'_>, masks: &mut Vec<Range<usize>>) {
        let indent = scan.find(0, |byte| !is_blank(byte));
        if std::mem::take(&mut self.is_flag_open) {
            let start = scan.find(indent, |byte| !matches!(byte, b' ' | b'"' | b'\''));
            let start = if scan.begins(start, b"- ") { start + 2 } else { start };
            let start = scan.find(start, |byte| !matches!(byte, b' ' | b'"' | b'\''));
            if scan.at(start).is_some_and(|byte| byte != b'-') {
                masks.push(start..scan.find(start, |byte| matches!(byte, b'"' | b'\'')));
            }
        }
        let Some(block) = self.block.filter(|_| indent < scan.len()) else { return };
        let is_inside = indent > block.indent && !(block.may_be_object && is_field(scan, indent));
        if !is_inside {
            self.block = None;
        } else if scan.begins(indent, b"- ") && block.may_be_object {
            masks.push(indent + 2..scan.len());
        } else {
            masks.push(indent..scan.len());
        }
    }

    /// Whether the next line may hold the value of a name that an earlier one told.
    pub(super) fn is_waiting(&self) -> bool {
        self.value_lines > 0
    }

    /// Values after `name=`, `name:` and `"name":`.
    pub(super) fn find(&mut self, scan: &Scan<'_>, masks: &mut Vec<Range<usize>>) {
        self.value_lines = self.value_lines.saturating_sub(1);
        let (mut from, mut is_line_start) = (0, true);
        loop {
            let separator = scan.find(from, |byte| matches!(byte, b'=' | b':'));
            if separator >= scan.len() {
                return;
            }
            let field = Field::read(scan, from, separator, is_line_start);
            let is_secret = field.is_secret || (field.is("value") && self.value_lines > 0);
            from = separator + 1;
            if field.is("name") {
                self.value_lines = if names_secret(scan, from) { VALUE_LINES } else { 0 };
            }
            if is_secret {
                self.value_lines = 0;
                from = self.value(scan, &field, masks);
            }
            is_line_start = false;
        }
    }

    /// Masks what stands after a name, and says where to go on.
    fn value(&mut self, scan: &Scan<'_>, field: &Field<'_>, masks: &mut Vec<Range<usize>>) -> usize {
        let after = field.separator + 1;
        // `=>`, `:=`
        let sign = scan.at(after).is_some_and(|byte| byte == b'=' || (byte == b'>' && !field.is_colon(scan)));
        let after = after + usize::from(sign);
        let start = scan.find(after, |byte| !is_blank(byte));
        let below = |may_be_object| Block { indent: field.indent, may_be_object };
        let inside = start + usize::from(scan.begins(start, b"[["));
        if scan.begins(inside, MASK.as_bytes()) {
            return inside + MASK.len();
        }
        if start >= scan.len() {
            self.block = field.is_lone.then(|| below(true));
            return start;
        }
        if field.is_lone && is_block_sign(scan, start) {
            self.block = Some(below(false));
            return scan.len();
        }
        match scan.at(start) {
            Some(b'{') => start + 1,
            Some(b'[') => {
                let end = scan.find(start, |byte| byte == b']');
                if end == scan.len() {
                    self.block = field.is_first.then(|| below(false));
                }
                keep(scan, start + 1, end, masks)
            }
            _ => match quoted(scan, start) {
                Some((content, end)) => {
                    if end == scan.len() {
                        self.block = field.is_lone.then(|| below(false));
                    }
                    keep(scan, content, end, masks)
                }
                None => {
                    let end = bare_end(scan, start, field, start > after);
                    keep(scan, start, end, masks)
                }
            },
        }
    }

    /// `--password VALUE`, `--user NAME:PASSWORD`, `-u NAME:PASSWORD`, on one line or as items of a list.
    pub(super) fn flags(&mut self, scan: &Scan<'_>, masks: &mut Vec<Range<usize>>) {
        let first = scan.find(0, |byte| !matches!(byte, b' ' | b'\t' | b'-' | b'"' | b'\''));
        let is_item = scan.get(0, first).iter().any(|byte| !is_blank(*byte));
        let mut at = 0;
        loop {
            at = scan.find(at, |byte| byte == b'-');
            if at >= scan.len() {
                return;
            }
            let start = scan.find(at, |byte| byte != b'-');
            let name_end = scan.find(start, |byte| !(byte.is_ascii_alphanumeric() || b"-_.".contains(&byte)));
            let name = scan.get(start, name_end);
            let is_flag = at == 0 || scan.at(at - 1).is_some_and(|byte| b" \t\"'[,".contains(&byte));
            let value = scan.find(name_end, |byte| !b" \t\"',=".contains(&byte));
            let is_long = is_flag && start - at == 2;
            let is_user = (is_long && name == b"user") || (is_flag && start - at == 1 && name == b"u");
            let is_secret = is_long && str::from_utf8(name).is_ok_and(is_secret_name);
            at = name_end.max(at + 1);
            if !(is_secret || is_user) || value == name_end || scan.begins(value, MASK.as_bytes()) {
                self.is_flag_open |= is_secret && name_end == scan.len() && is_item;
                continue;
            }
            self.is_flag_open |= is_secret && value == scan.len() && is_item;
            let end = scan.find(value, |byte| b" \t\"',]".contains(&byte));
            let colon = scan.get(value, end).iter().position(|byte| *byte == b':');
            let from = if is_user { colon.map_or(end, |colon| value + colon + 1) } else { value };
            if scan.at(value) != Some(b'-') && from < end {
                masks.push(from..end);
                at = end;
            }
        }
    }
}

/// `password "…"`, as BIRD's configuration has it.
pub(super) fn spoken(scan: &Scan<'_>, masks: &mut Vec<Range<usize>>) {
    let mut at = 0;
    while let Some(found) = scan.find_text(at, b"assword") {
        at = found + b"assword".len();
        let start = scan.find(at, |byte| !is_blank(byte));
        if start > at
            && let Some((content, end)) = quoted(scan, start)
        {
            at = keep(scan, content, end, masks);
        }
    }
}

/// The name before a separator, and where it stands.
struct Field<'a> {
    separator: usize,
    name: &'a [u8],
    is_secret: bool,
    /// The first of its line.
    is_first: bool,
    /// A field of YAML: its value may have blanks, and goes on to the end of the line.
    is_lone: bool,
    /// The line is one inside of a text: `…\npassword: …`
    is_embedded: bool,
    /// Inside of braces: the value goes on to the next comma.
    is_flow: bool,
    /// How far a field of YAML is indented.
    indent: usize,
}

impl<'a> Field<'a> {
    fn read(scan: &Scan<'a>, from: usize, separator: usize, is_first: bool) -> Field<'a> {
        let is_quote = |byte: u8| matches!(byte, b'"' | b'\'' | b'\\');
        let trimmed = scan.find_back(from, separator, |byte| !is_blank(byte));
        let end = scan.find_back(from, trimmed, |byte| !is_quote(byte));
        let is_word = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
        let nearest = from.max(end.saturating_sub(NAME_BYTES_MAX));
        let start = scan.find_back(nearest, end, |byte| !is_word(byte));
        let name = scan.get(start, end);
        // Only near: a line inside of a text that is longer is none of YAML's.
        let escape = scan.get(nearest, end).windows(2).rposition(|window| window == br"\n");
        let line_start = escape.map_or(0, |at| nearest + at + 2);
        let is_alone = is_first || escape.is_some();
        // Read for one name of a line only, which may have many.
        let before_name = if is_alone { scan.get(line_start, end) } else { &[] };
        let is_indent = |byte: &u8| matches!(byte, b' ' | b'-' | b'\t');
        let depth = before_name.iter().position(|byte| !is_indent(byte)).unwrap_or(before_name.len());
        let is_one_word = !before_name.iter().skip(depth).any(|byte| is_blank(*byte));
        let before = scan.find_back(from.max(start.saturating_sub(4)), start, |byte| !is_blank(byte));
        Field {
            separator,
            name: name.strip_prefix(b"n").filter(|_| line_start > start).unwrap_or(name),
            is_secret: str::from_utf8(name).is_ok_and(is_secret_name) || (name == b"auth" && end < trimmed),
            is_first,
            is_lone: is_alone && is_one_word && end == trimmed && scan.at(separator) == Some(b':'),
            is_embedded: escape.is_some(),
            is_flow: before > 0 && matches!(scan.at(before - 1), Some(b'{' | b',')),
            indent: line_start + depth,
        }
    }

    fn is(&self, name: &str) -> bool {
        self.name == name.as_bytes()
    }

    fn is_colon(&self, scan: &Scan<'_>) -> bool {
        scan.at(self.separator) == Some(b':')
    }
}

/// `|`, `>-`, `|2+`, and nothing else but a remark.
fn is_block_sign(scan: &Scan<'_>, start: usize) -> bool {
    let is_sign = matches!(scan.at(start), Some(b'|' | b'>'));
    let end = scan.find(start + 1, |byte| !matches!(byte, b'0'..=b'9' | b'+' | b'-'));
    let rest = scan.find(end, |byte| !is_blank(byte));
    is_sign && (rest == scan.len() || (rest > end && scan.at(rest) == Some(b'#')))
}

/// `name:` or `"name":`, which begins a field of an object.
fn is_field(scan: &Scan<'_>, indent: usize) -> bool {
    let start = if scan.begins(indent, b"- ") { indent + 2 } else { indent };
    let start = scan.find(start, |byte| !matches!(byte, b'"' | b'\'' | b' '));
    let end = scan.find(start, |byte| !(byte.is_ascii_alphanumeric() || b"-_./".contains(&byte)));
    let end = scan.find(end, |byte| !matches!(byte, b'"' | b'\''));
    scan.at(end) == Some(b':') && scan.at(end + 1).is_none_or(is_blank)
}

/// Whether the value that follows is itself the name of a secret.
fn names_secret(scan: &Scan<'_>, from: usize) -> bool {
    let near = scan.get(from, from + 2 * NAME_BYTES_MAX);
    let is_around = |byte: &u8| matches!(byte, b' ' | b'\t' | b'"' | b'\'' | b'\\');
    let start = near.iter().position(|byte| !is_around(byte)).unwrap_or(near.len());
    let rest = near.get(start..).unwrap_or_default();
    let end = rest.iter().position(|byte| is_around(byte) || b",}".contains(byte)).unwrap_or(rest.len());
    str::from_utf8(rest.get(..end).unwrap_or_default()).is_ok_and(is_secret_name)
}

/// Where a quoted value begins and ends. It begins with as many backslashes as the text was quoted before, and ends
/// with the same; what has more of them is inside.
fn quoted(scan: &Scan<'_>, start: usize) -> Option<(usize, usize)> {
    let opening = scan.find(start, |byte| byte != b'\\');
    let quote = scan.at(opening).filter(|byte| matches!(byte, b'"' | b'\''))?;
    let level = opening - start;
    let mut at = opening + 1;
    loop {
        let next = scan.find(at, |byte| byte == b'\\' || byte == quote);
        if next >= scan.len() {
            return Some((opening + 1, scan.len()));
        }
        let after = scan.find(next, |byte| byte != b'\\');
        if scan.at(after) != Some(quote) {
            at = after.max(next + 1);
        } else if quote == b'\'' && scan.at(after + 1) == Some(quote) {
            // YAML doubles it.
            at = after + 2;
        } else if (after - next) % (2 * (level + 1)) == level {
            return Some((opening + 1, after - level));
        } else {
            at = after + 1;
        }
    }
}

/// Where a value without quotes ends.
fn bare_end(scan: &Scan<'_>, start: usize, field: &Field<'_>, is_apart: bool) -> usize {
    if field.is_lone && is_apart && !field.is_embedded {
        return scan.len();
    }
    if field.is_embedded && field.is_lone && is_apart {
        return scan.find(start, |byte| matches!(byte, b'"' | b'\\'));
    }
    let ends = |byte: u8| b",;]})&\"".contains(&byte);
    let end = match field.is_flow && is_apart {
        true => scan.find(start, |byte| matches!(byte, b',' | b'}' | b'"')),
        false => scan.find(start, |byte| is_blank(byte) || ends(byte)),
    };
    // The backslash before a quote is the quote's.
    match scan.at(end) {
        Some(b'"') => scan.find_back(start, end, |byte| byte != b'\\'),
        _ => end,
    }
}

/// Masks a value unless there is none, or only a word for none. What a scheme of authorization is called stays.
fn keep(scan: &Scan<'_>, start: usize, end: usize, masks: &mut Vec<Range<usize>>) -> usize {
    let start = scheme(scan, start).filter(|credentials| *credentials < end).unwrap_or(start);
    if start < end && !is_harmless(scan, start, end) {
        masks.push(start..end);
    }
    end
}

/// Paths, variables, and words that say that there is nothing, or that it was masked before.
fn is_harmless(scan: &Scan<'_>, start: usize, end: usize) -> bool {
    /// Longer ones are none of these.
    const BYTES_MAX: usize = 256;
    if end - start > BYTES_MAX {
        return false;
    }
    let value = scan.get(start, end).trim_ascii();
    let is_word = |byte: &u8| byte.is_ascii_alphanumeric() || b"-_./".contains(byte);
    match value {
        [] | b"null" | b"nil" | b"true" | b"false" | b"REDACTED" | b"none" | b"|" | b">" => true,
        [b'/', path @ ..] => path.contains(&b'/') && path.iter().all(is_word),
        [b'<', .., b'>'] | [b'$', b'(', .., b')'] | [b'$', b'{', .., b'}'] => true,
        [b'$', name @ ..] => name.iter().all(|byte| byte.is_ascii_uppercase() || *byte == b'_'),
        _ => value == MASK.as_bytes(),
    }
}
