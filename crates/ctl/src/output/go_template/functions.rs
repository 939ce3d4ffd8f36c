//! The functions that a template may call: Go's, and calicoctl's own.

use std::cmp::Ordering;

use serde_json::Value;

use super::value::Val;

const FUNCTIONS: [&str; 17] = [
    "and",
    "or",
    "not",
    "len",
    "index",
    "print",
    "println",
    "printf",
    "eq",
    "ne",
    "lt",
    "le",
    "gt",
    "ge",
    "join",
    "joinAndTruncate",
    "config",
];

pub(super) fn is_function(name: &str) -> bool {
    FUNCTIONS.contains(&name)
}

pub(super) fn call(name: &str, arguments: &[Val], as_number: &str) -> Result<Val, String> {
    let text =
        |at: usize| arguments.get(at).and_then(|argument| argument.value().as_str()).unwrap_or_default();
    let fewer = |wanted: usize| {
        let got = arguments.len();
        (got < wanted).then(|| format!("wrong number of args for {name}: want {wanted} got {got}"))
    };
    let wanted = match name {
        "not" | "len" | "config" | "printf" | "and" | "or" => 1,
        "eq" | "ne" | "lt" | "le" | "gt" | "ge" | "index" | "join" => 2,
        "joinAndTruncate" => 3,
        _ => 0,
    };
    if let Some(problem) = fewer(wanted) {
        return Err(problem);
    }
    match name {
        "and" => Ok(arguments
            .iter()
            .find(|one| !one.truth())
            .or(arguments.last())
            .cloned()
            .unwrap_or(Val::Nothing)),
        "or" => {
            Ok(arguments.iter().find(|one| one.truth()).or(arguments.last()).cloned().unwrap_or(Val::Nothing))
        }
        "not" => Ok(Val::plain(!arguments.first().is_some_and(Val::truth))),
        "len" => length(arguments),
        "index" => index(arguments),
        "print" => Ok(Val::plain(printed(arguments, false))),
        "println" => Ok(Val::plain(format!("{}\n", printed(arguments, true)))),
        "printf" => Ok(Val::plain(formatted(text(0), arguments.get(1..).unwrap_or_default()))),
        "join" => Ok(Val::plain(joined(arguments.first(), text(1), 0))),
        "joinAndTruncate" => {
            let most = arguments.get(2).and_then(|most| most.value().as_u64()).unwrap_or_default();
            Ok(Val::plain(joined(arguments.first(), text(1), usize::try_from(most).unwrap_or(usize::MAX))))
        }
        "config" if text(0).eq_ignore_ascii_case("asnumber") => Ok(Val::plain(as_number)),
        "config" => Err("unhandled config type".to_owned()),
        _ => compared(name, arguments),
    }
}

fn length(arguments: &[Val]) -> Result<Val, String> {
    match arguments.first().map(Val::value) {
        Some(Value::Array(items)) => Ok(Val::plain(items.len() as u64)),
        Some(Value::Object(fields)) => Ok(Val::plain(fields.len() as u64)),
        Some(Value::String(text)) => Ok(Val::plain(text.len() as u64)),
        _ => Err("error calling len: len of nil pointer".to_owned()),
    }
}

fn index(arguments: &[Val]) -> Result<Val, String> {
    let (of, keys) = arguments.split_first().ok_or("error calling index: no list")?;
    let mut found = of.clone();
    for key in keys {
        found = match (found.value(), key.value()) {
            (Value::Array(items), Value::Number(at)) => {
                let at = at.as_u64().and_then(|at| usize::try_from(at).ok());
                let item = at.and_then(|at| items.get(at)).cloned();
                found.inside(item.ok_or("error calling index: reflect: slice index out of range")?)
            }
            (Value::Object(fields), Value::String(key)) => {
                fields.get(key).cloned().map_or_else(|| Val::plain(""), |value| found.inside(value))
            }
            _ => return Err("error calling index: can't index item of this type".to_owned()),
        };
    }
    Ok(found)
}

/// Go puts a blank between two operands of which neither is text.
fn printed(arguments: &[Val], always: bool) -> String {
    let mut text = String::new();
    let mut before_is_text = true;
    for (at, argument) in arguments.iter().enumerate() {
        let is_text = argument.value().is_string();
        if at > 0 && (always || !(is_text || before_is_text)) {
            text.push(' ');
        }
        text.push_str(&argument_text(argument));
        before_is_text = is_text;
    }
    text
}

fn argument_text(argument: &Val) -> String {
    match argument {
        Val::Nothing => "<nil>".to_owned(),
        other => other.print(),
    }
}

/// `printf`, with the verbs and widths that make sense for records.
fn formatted(format: &str, arguments: &[Val]) -> String {
    let mut out = String::new();
    let mut arguments = arguments.iter();
    let mut characters = format.chars().peekable();
    while let Some(character) = characters.next() {
        if character != '%' {
            out.push(character);
            continue;
        }
        let mut flags = String::new();
        while let Some(flag) = characters.next_if(|c| matches!(c, '-' | '0'..='9' | '.' | '+' | '#')) {
            flags.push(flag);
        }
        let verb = characters.next().unwrap_or('%');
        if verb == '%' {
            out.push('%');
            continue;
        }
        let Some(argument) = arguments.next() else {
            out.push_str(&format!("%!{verb}(MISSING)"));
            continue;
        };
        let text = match verb {
            'q' => Value::from(argument_text(argument)).to_string(),
            _ => argument_text(argument),
        };
        pad(&mut out, &text, &flags);
    }
    out
}

fn pad(out: &mut String, text: &str, flags: &str) {
    const WIDTH_MAX: usize = 1 << 10;
    let digits = flags.trim_start_matches(['-', '+', '#']).split('.').next().unwrap_or_default();
    let width = digits.parse::<usize>().unwrap_or_default().min(WIDTH_MAX);
    let gap = " ".repeat(width.saturating_sub(text.chars().count()));
    if flags.starts_with('-') {
        out.push_str(text);
        out.push_str(&gap);
    } else {
        out.push_str(&gap);
        out.push_str(text);
    }
}

/// calicoctl's `join`: items of a list, or `key=value` of a map, cut with dots where it grows too long.
fn joined(items: Option<&Val>, separator: &str, most: usize) -> String {
    let Some(items) = items else { return String::new() };
    let parts: Vec<String> = match items.value() {
        Value::Null => return String::new(),
        Value::Array(values) => values.iter().map(|item| items.inside(item.clone()).print()).collect(),
        Value::Object(fields) => fields
            .iter()
            .map(|(key, value)| format!("{key}={}", items.inside(value.clone()).print()))
            .collect(),
        _ => vec![items.print()],
    };
    let text = parts.join(separator);
    if most == 0 || text.len() <= most {
        return text;
    }
    let end = text.floor_char_boundary(most.saturating_sub("...".len()));
    format!("{}...", text.split_at_checked(end).map_or("", |(start, _)| start))
}

fn compared(name: &str, arguments: &[Val]) -> Result<Val, String> {
    let (first, others) =
        arguments.split_first().ok_or_else(|| format!("error calling {name}: no arguments"))?;
    let order = |other: &Val| {
        first.compare(other).ok_or_else(|| format!("error calling {name}: incompatible types for comparison"))
    };
    let Some(second) = others.first() else { return Err(format!("error calling {name}: missing argument")) };
    Ok(Val::plain(match name {
        "eq" => {
            let mut is_equal = false;
            for other in others {
                is_equal |= order(other)? == Ordering::Equal;
            }
            is_equal
        }
        "ne" => order(second)? != Ordering::Equal,
        "lt" => order(second)? == Ordering::Less,
        "le" => order(second)? != Ordering::Greater,
        "gt" => order(second)? == Ordering::Greater,
        _ => order(second)? != Ordering::Less,
    }))
}
