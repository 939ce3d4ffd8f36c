//! YAML as Go's encoder writes it: the same words quoted, in the same way, and long lines folded at the same places.

use std::cmp::Ordering;

use serde_json::{Map, Value};

/// Longer lines are folded at their next blank.
const WIDTH: usize = 80;

/// A value as one document.
pub(crate) fn go_yaml(value: &Value) -> String {
    let mut text = String::new();
    match value {
        Value::Object(fields) if !fields.is_empty() => write_map(&mut text, fields, 0),
        Value::Array(items) if !items.is_empty() => write_list(&mut text, items, 0),
        other => {
            write_scalar(&mut text, other, 0, 0);
            text.push('\n');
        }
    }
    text
}

fn write_map(text: &mut String, fields: &Map<String, Value>, indent: usize) {
    let mut sorted: Vec<(&String, &Value)> = fields.iter().collect();
    sorted.sort_by(|(a, _), (b, _)| natural(a, b));
    for (index, (key, value)) in sorted.into_iter().enumerate() {
        if index > 0 || !text.ends_with("- ") {
            text.push_str(&" ".repeat(indent));
        }
        text.push_str(&spelt(key));
        text.push(':');
        write_value(text, value, indent, true);
    }
}

fn write_list(text: &mut String, items: &[Value], indent: usize) {
    for (index, item) in items.iter().enumerate() {
        if index > 0 || !text.ends_with("- ") {
            text.push_str(&" ".repeat(indent));
        }
        text.push('-');
        write_value(text, item, indent, false);
    }
}

/// What follows a key or a dash.
fn write_value(text: &mut String, value: &Value, indent: usize, after_key: bool) {
    match value {
        Value::Object(fields) if !fields.is_empty() && after_key => {
            text.push('\n');
            write_map(text, fields, indent + 2);
        }
        Value::Array(items) if !items.is_empty() && after_key => {
            text.push('\n');
            write_list(text, items, indent);
        }
        Value::Object(fields) if !fields.is_empty() => {
            text.push(' ');
            write_map(text, fields, indent + 2);
        }
        Value::Array(items) if !items.is_empty() => {
            text.push(' ');
            write_list(text, items, indent + 2);
        }
        scalar => {
            text.push(' ');
            let column = text.len() - text.rfind('\n').map_or(0, |at| at + 1);
            write_scalar(text, scalar, indent + 2, column);
            text.push('\n');
        }
    }
}

fn write_scalar(text: &mut String, value: &Value, indent: usize, column: usize) {
    match value {
        Value::String(string) if string.contains('\n') && may_be_literal(string) => {
            write_literal(text, string, indent);
        }
        Value::String(string) => text.push_str(&folded(&spelt(string), indent, column)),
        Value::Array(_) => text.push_str("[]"),
        Value::Object(_) => text.push_str("{}"),
        other => text.push_str(&other.to_string()),
    }
}

fn may_be_literal(string: &str) -> bool {
    !string.starts_with([' ', '\n']) && !string.chars().any(|c| c.is_control() && c != '\n')
}

fn write_literal(text: &mut String, string: &str, indent: usize) {
    text.push_str(match (string.ends_with("\n\n"), string.ends_with('\n')) {
        (true, _) => "|+",
        (_, true) => "|",
        _ => "|-",
    });
    for line in string.strip_suffix('\n').unwrap_or(string).split('\n') {
        text.push('\n');
        if !line.is_empty() {
            text.push_str(&" ".repeat(indent));
            text.push_str(line);
        }
    }
}

/// Go breaks a line at the first single blank after its width.
fn folded(spelt: &str, indent: usize, column: usize) -> String {
    let mut out = String::with_capacity(spelt.len());
    let mut width = column;
    let mut characters = spelt.chars().peekable();
    let mut before = '\0';
    while let Some(character) = characters.next() {
        let is_single =
            character == ' ' && before != ' ' && characters.peek().is_some_and(|next| *next != ' ');
        if is_single && width > WIDTH && before != '\0' {
            out.push('\n');
            out.push_str(&" ".repeat(indent));
            width = indent;
        } else {
            out.push(character);
            width += 1;
        }
        before = character;
    }
    out
}

/// A text with the quotes it needs.
fn spelt(string: &str) -> String {
    let has_special =
        string.chars().any(|c| c.is_control() || matches!(c, '\u{feff}' | '\u{2028}' | '\u{2029}'));
    if has_special || reads_as_other(string) {
        return Value::from(string).to_string();
    }
    if may_be_plain(string) { string.to_owned() } else { format!("'{}'", string.replace('\'', "''")) }
}

fn may_be_plain(string: &str) -> bool {
    let mut characters = string.chars();
    let (first, second) = (characters.next().unwrap_or_default(), characters.next());
    let indicates = match first {
        '#' | ',' | '[' | ']' | '{' | '}' | '&' | '*' | '!' | '|' | '>' | '\'' | '"' | '%' | '@' | '`' => {
            true
        }
        '-' | '?' | ':' => second.is_none_or(char::is_whitespace),
        _ => false,
    };
    let is_mark = string.starts_with("---") || string.starts_with("...");
    !(indicates
        || is_mark
        || string.starts_with(' ')
        || string.ends_with([' ', ':'])
        || string.contains(": ")
        || string.contains(" #"))
}

/// Whether a reader of YAML 1.1 would take the bare text for something else than text.
fn reads_as_other(string: &str) -> bool {
    const WORDS: [&str; 31] = [
        "", "~", "null", "Null", "NULL", "y", "Y", "yes", "Yes", "YES", "true", "True", "TRUE", "on", "On",
        "ON", "n", "N", "no", "No", "NO", "false", "False", "FALSE", "off", "Off", "OFF", "<<", ".nan",
        ".NaN", ".NAN",
    ];
    let unsigned = string.strip_prefix(['+', '-']).unwrap_or(string);
    WORDS.contains(&string)
        || matches!(unsigned, ".inf" | ".Inf" | ".INF")
        || is_number(unsigned)
        || is_time(string)
        || is_sexagesimal(unsigned)
}

fn is_number(unsigned: &str) -> bool {
    let plain = unsigned.replace('_', "");
    if !plain.starts_with(|c: char| c.is_ascii_digit() || c == '.') {
        return false;
    }
    let of_base = |prefix: &str, is_digit: fn(&u8) -> bool| {
        plain
            .strip_prefix(prefix)
            .is_some_and(|digits| !digits.is_empty() && digits.bytes().all(|b| is_digit(&b)))
    };
    let is_octal = |byte: &u8| (b'0'..=b'7').contains(byte);
    if of_base("0x", u8::is_ascii_hexdigit)
        || of_base("0X", u8::is_ascii_hexdigit)
        || of_base("0o", is_octal)
        || of_base("0b", |byte| matches!(byte, b'0' | b'1'))
    {
        return true;
    }
    let (mantissa, exponent) =
        plain.split_once(['e', 'E']).map_or((plain.as_str(), None), |(m, e)| (m, Some(e)));
    let are_digits = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
    let (whole, fraction) = mantissa.split_once('.').unwrap_or((mantissa, ""));
    let exponent_holds = exponent.is_none_or(|exponent| {
        let digits = exponent.strip_prefix(['+', '-']).unwrap_or(exponent);
        !digits.is_empty() && are_digits(digits)
    });
    !(whole.is_empty() && fraction.is_empty()) && are_digits(whole) && are_digits(fraction) && exponent_holds
}

/// `2026-08-22`, alone or with a time of day.
fn is_time(string: &str) -> bool {
    let date = string.get(..10).unwrap_or_default();
    let parts: Vec<&str> = date.split('-').collect();
    let is_date = parts.len() == 3
        && parts.iter().map(|part| part.len()).eq([4, 2, 2])
        && parts.iter().all(|part| part.bytes().all(|byte| byte.is_ascii_digit()));
    is_date && (string.len() == 10 || string.get(10..11).is_some_and(|next| matches!(next, "T" | "t" | " ")))
}

/// `1:30`: a number to the base of sixty.
fn is_sexagesimal(unsigned: &str) -> bool {
    let mut parts = unsigned.split(':');
    let is_first = |part: &str| {
        part.starts_with(|c: char| c.is_ascii_digit())
            && part.bytes().all(|b| b.is_ascii_digit() || b == b'_')
    };
    let is_next = |part: &str| {
        let part = part.split('.').next().unwrap_or_default();
        matches!(part.len(), 1 | 2) && part.parse::<u8>().is_ok_and(|number| number < 60)
    };
    parts.next().is_some_and(is_first) && unsigned.contains(':') && parts.all(is_next)
}

/// The order of keys: letters after everything else, runs of digits by their number.
fn natural(a: &str, b: &str) -> Ordering {
    let (a_all, b_all): (Vec<char>, Vec<char>) = (a.chars().collect(), b.chars().collect());
    let at = a_all.iter().zip(&b_all).position(|(a, b)| a != b);
    let Some(at) = at else { return a_all.len().cmp(&b_all.len()) };
    let (Some(&left), Some(&right)) = (a_all.get(at), b_all.get(at)) else { return Ordering::Equal };
    let inside_digits = at > 0 && a_all.get(at - 1).is_some_and(char::is_ascii_digit);
    match (left.is_alphabetic(), right.is_alphabetic()) {
        (true, true) => left.cmp(&right),
        // A name that goes on with a letter after the same digits has the smaller number.
        (true, false) => {
            if inside_digits {
                Ordering::Less
            } else {
                Ordering::Greater
            }
        }
        (false, true) => {
            if inside_digits {
                Ordering::Greater
            } else {
                Ordering::Less
            }
        }
        (false, false) => {
            let number = |all: &[char]| {
                let digits: String = all.iter().skip(at).take_while(|c| c.is_ascii_digit()).collect();
                digits.parse::<u128>().unwrap_or_default()
            };
            number(&a_all).cmp(&number(&b_all)).then(left.cmp(&right))
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    #[test]
    fn texts_are_quoted_as_go_does() {
        for (text, spelt_text) in [
            ("10.0.0.0/16", "10.0.0.0/16"),
            ("192.168.1.1", "192.168.1.1"),
            ("7", "\"7\""),
            ("1e3", "\"1e3\""),
            ("0x1f", "\"0x1f\""),
            ("y", "\"y\""),
            ("", "\"\""),
            ("2026-08-22T06:33:20Z", "\"2026-08-22T06:33:20Z\""),
            ("all()", "all()"),
            ("a == 'b'", "a == 'b'"),
            ("!has(a)", "'!has(a)'"),
            ("*", "'*'"),
            ("a: b", "'a: b'"),
            ("fd00::/64", "fd00::/64"),
            ("1:30", "\"1:30\""),
            ("'x' in y", "'''x'' in y'"),
            ("a\tb", "\"a\\tb\""),
            ("-", "'-'"),
            ("-a", "-a"),
        ] {
            assert_eq!(go_yaml(&json!({ "k": text })), format!("k: {spelt_text}\n"), "{text}");
        }
    }

    #[test]
    fn maps_and_lists_are_laid_out_as_go_does() {
        let value =
            json!({"b": [{"x": 1, "a": []}, [1, 2], "t"], "a10": {}, "a2": null, "_z": {"k": {"l": true}}});
        let expected = "_z:\n  k:\n    l: true\na2: null\na10: {}\nb:\n- a: []\n  x: 1\n- - 1\n  - 2\n- t\n";
        assert_eq!(go_yaml(&value), expected);
        assert_eq!(go_yaml(&json!([{"a": 1}])), "- a: 1\n");
        assert_eq!(
            go_yaml(&json!({"a": "one\ntwo\n", "b": "x\ny"})),
            "a: |\n  one\n  two\nb: |-\n  x\n  y\n"
        );
    }

    fn value() -> impl Strategy<Value = Value> {
        let text = prop_oneof!["[ -~]{0,100}", "[a-z0-9:./#' -]{0,20}", "[\\PC\n]{0,10}"];
        let leaf = prop_oneof![
            any::<bool>().prop_map(Value::from),
            any::<i64>().prop_map(Value::from),
            text.prop_map(Value::from)
        ];
        leaf.prop_recursive(3, 20, 4, |inner| {
            prop_oneof![
                prop::collection::vec(inner.clone(), 0..4).prop_map(Value::Array),
                prop::collection::btree_map("[a-zA-Z0-9./_-]{1,12}", inner, 0..4)
                    .prop_map(|map| Value::Object(map.into_iter().collect())),
            ]
        })
    }

    proptest! {
        #[test]
        fn what_is_written_reads_as_it_was(value in value()) {
            let text = go_yaml(&value);
            let options = serde_saphyr::options! { with_snippet: false, strict_booleans: true };
            let read: Value = serde_saphyr::from_str_with_options(&text, options).unwrap();
            prop_assert_eq!(read, value, "{}", text);
        }
    }
}
