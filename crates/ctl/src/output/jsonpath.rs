//! kubectl's JSONPath templates: `{.items[*].metadata.name}`, `{range …}…{end}`, `{"\n"}`.
//!
//! A template is text with expressions in braces. Expressions are rewritten into the JSONPath of RFC 9535, which
//! differs in small ways (names with dashes and escaped dots must be quoted there), and evaluated as such.

use jsonpath_rust::parser::model::JpQuery;
use jsonpath_rust::parser::parse_json_path;
use jsonpath_rust::query::js_path_process;
use serde_json::Value;

/// A template, ready to be filled in.
#[derive(Debug)]
pub(crate) struct Template {
    parts: Vec<Part>,
}

#[derive(Debug)]
enum Part {
    Text(String),
    Values(JpQuery),
    Range(JpQuery, Vec<Part>),
}

impl Template {
    /// Understands a template. The error says what is wrong with it.
    pub(crate) fn parse(text: &str) -> Result<Template, String> {
        if !text.contains('{') {
            return Ok(Template { parts: vec![Part::Values(path(text)?)] });
        }
        let mut parser = Parser { rest: text };
        let parts = parser.parts(false)?;
        Ok(Template { parts })
    }

    /// The text for one document. What is not there is empty.
    pub(crate) fn fill(&self, document: &Value) -> Result<String, String> {
        let mut out = String::new();
        fill(&self.parts, document, &mut out)?;
        Ok(out)
    }
}

/// One path, as in a column `NAME:.metadata.name`.
pub(crate) fn path(expression: &str) -> Result<JpQuery, String> {
    let mut rest = expression.trim();
    let translated = format!("${}", translate(&mut rest, expression)?);
    if !rest.is_empty() {
        return Err(format!("{expression:?}: {rest:?} is not supported"));
    }
    parse_json_path(&translated).map_err(|_| format!("{expression:?} is not a path"))
}

/// The values at a path, separated by blanks.
pub(crate) fn values(query: &JpQuery, document: &Value) -> Result<String, String> {
    let texts: Vec<String> = evaluate(query, document)?.into_iter().map(plain).collect();
    Ok(texts.join(" "))
}

fn fill(parts: &[Part], document: &Value, out: &mut String) -> Result<(), String> {
    for part in parts {
        match part {
            Part::Text(text) => out.push_str(text),
            Part::Values(query) => out.push_str(&values(query, document)?),
            Part::Range(query, body) => {
                for item in evaluate(query, document)? {
                    fill(body, item, out)?;
                }
            }
        }
    }
    Ok(())
}

fn evaluate<'a>(query: &JpQuery, document: &'a Value) -> Result<Vec<&'a Value>, String> {
    let found = js_path_process(query, document).map_err(|error| error.to_string())?;
    Ok(found.into_iter().map(|reference| reference.val).collect())
}

fn plain(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        other => other.to_string(),
    }
}

struct Parser<'a> {
    rest: &'a str,
}

impl Parser<'_> {
    /// Parts up to the end, or up to `{end}` inside a range.
    fn parts(&mut self, inside_range: bool) -> Result<Vec<Part>, String> {
        let mut parts = Vec::new();
        loop {
            let (text, expression) = match self.rest.split_once('{') {
                Some((text, rest)) => {
                    self.rest = rest;
                    (text, Some(self.expression()?))
                }
                None => (std::mem::take(&mut self.rest), None),
            };
            if !text.is_empty() {
                parts.push(Part::Text(text.to_owned()));
            }
            match expression.as_deref().map(str::trim) {
                None if inside_range => return Err("{range …} without {end}".to_owned()),
                None => return Ok(parts),
                Some("end") if inside_range => return Ok(parts),
                Some("end") => return Err("{end} without {range …}".to_owned()),
                Some(expression) => parts.push(self.part(expression)?),
            }
        }
    }

    fn part(&mut self, expression: &str) -> Result<Part, String> {
        if let Some(list) = expression.strip_prefix("range ") {
            let query = path(list)?;
            return Ok(Part::Range(query, self.parts(true)?));
        }
        match quoted(expression) {
            Some(text) => Ok(Part::Text(text)),
            None => Ok(Part::Values(path(expression)?)),
        }
    }

    /// The inside of a pair of braces; the opening one is already gone. Braces in quotes do not count.
    fn expression(&mut self) -> Result<String, String> {
        let mut quote = None;
        let mut escaped = false;
        for (at, c) in self.rest.char_indices() {
            match c {
                _ if escaped => escaped = false,
                '\\' => escaped = true,
                '"' | '\'' if quote.is_none() => quote = Some(c),
                _ if quote == Some(c) => quote = None,
                '}' if quote.is_none() => {
                    let inside = self.rest[..at].to_owned();
                    self.rest = &self.rest[at + 1..];
                    return Ok(inside);
                }
                _ => {}
            }
        }
        Err("a { has no matching }".to_owned())
    }
}

/// The text inside quotes, escapes resolved; `None` if it is not just one quoted text.
fn quoted(expression: &str) -> Option<String> {
    let quote = expression.chars().next().filter(|c| matches!(c, '"' | '\''))?;
    let inside = expression.strip_prefix(quote)?.strip_suffix(quote)?;
    let mut text = String::new();
    let mut chars = inside.chars();
    while let Some(c) = chars.next() {
        match c {
            '\\' => match chars.next()? {
                'n' => text.push('\n'),
                't' => text.push('\t'),
                'r' => text.push('\r'),
                other => text.push(other),
            },
            _ if c == quote => return None,
            _ => text.push(c),
        }
    }
    Some(text)
}

/// Rewrites a path up to a character that cannot belong to it.
fn translate(rest: &mut &str, whole: &str) -> Result<String, String> {
    *rest = rest.strip_prefix(['$', '@']).unwrap_or(rest);
    let mut out = String::new();
    loop {
        if let Some(after) = rest.strip_prefix("..") {
            *rest = after;
            out.push_str("..");
            if !rest.starts_with('[') {
                out.push_str(&name(rest, whole)?);
            }
        } else if let Some(after) = rest.strip_prefix('.') {
            *rest = after;
            // A lone dot is the document itself; `.[0]` is `[0]`.
            if !rest.is_empty() && !rest.starts_with('[') {
                out.push_str(&name(rest, whole)?);
            }
        } else if rest.starts_with('[') {
            out.push_str(&bracket(rest, whole)?);
        } else if out.is_empty() && rest.chars().next().is_some_and(|c| !ends_name(c)) {
            out.push_str(&name(rest, whole)?);
        } else {
            return Ok(out);
        }
    }
}

fn ends_name(c: char) -> bool {
    c.is_whitespace() || ".[]()=!<>&|,'\"".contains(c)
}

/// A name after a dot, as a quoted name in brackets. A backslash takes the next character as it is.
fn name(rest: &mut &str, whole: &str) -> Result<String, String> {
    let mut name = String::new();
    let mut chars = rest.chars();
    while let Some(c) = chars.clone().next() {
        match c {
            '\\' => {
                chars.next();
                name.extend(chars.next());
            }
            _ if ends_name(c) => break,
            _ => {
                chars.next();
                name.push(c);
            }
        }
    }
    *rest = chars.as_str();
    match name.as_str() {
        "" => Err(format!("{whole:?}: a name is missing after a dot")),
        "*" => Ok("[*]".to_owned()),
        _ => Ok(format!("['{}']", name.replace('\\', "\\\\").replace('\'', "\\'"))),
    }
}

/// What stands in brackets, with the paths inside a filter rewritten too.
fn bracket(rest: &mut &str, whole: &str) -> Result<String, String> {
    let mut out = String::new();
    let mut depth = 0usize;
    loop {
        let Some(c) = rest.chars().next() else { return Err(format!("{whole:?}: a [ has no matching ]")) };
        match c {
            '@' | '$' => {
                out.push(c);
                out.push_str(&translate(rest, whole)?);
                continue;
            }
            '"' | '\'' => {
                out.push_str(string(rest, c, whole)?);
                continue;
            }
            '[' => depth += 1,
            ']' => depth -= 1,
            _ => {}
        }
        out.push(c);
        *rest = &rest[c.len_utf8()..];
        if depth == 0 {
            return Ok(out);
        }
    }
}

/// A quoted text, quotes and all.
fn string<'a>(rest: &mut &'a str, quote: char, whole: &str) -> Result<&'a str, String> {
    let mut escaped = false;
    for (at, c) in rest.char_indices().skip(1) {
        match c {
            _ if escaped => escaped = false,
            '\\' => escaped = true,
            _ if c == quote => {
                let (string, after) = rest.split_at(at + 1);
                *rest = after;
                return Ok(string);
            }
            _ => {}
        }
    }
    Err(format!("{whole:?}: a quote is not closed"))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    fn fill(template: &str) -> String {
        let document = json!({"items": [
            {"metadata": {"name": "a", "labels": {"my-key": "x", "kubernetes.io/os": "linux"}}, "spec": {"n": 1}},
            {"metadata": {"name": "b"}, "spec": {"n": 2, "nets": ["10.0.0.0/8", "fd00::/8"]}},
        ]});
        Template::parse(template).unwrap().fill(&document).unwrap()
    }

    #[test]
    fn kubectls_templates_work() {
        let cases = [
            ("{.items[*].metadata.name}", "a b"),
            (".items[0].metadata.name", "a"),
            ("{.items[-1].metadata.name}", "b"),
            ("{.items[0:1].metadata.name}", "a"),
            ("{range .items[*]}{.metadata.name}={@.spec.n}{\"\\n\"}{end}", "a=1\nb=2\n"),
            ("names: {.items[*]['metadata'].name}!", "names: a b!"),
            ("{.items[?(@.metadata.name==\"b\")].spec.n}", "2"),
            ("{.items[?(@.metadata.labels.my-key == 'x')].metadata.name}", "a"),
            ("{.items[0].metadata.labels.my-key}", "x"),
            ("{.items[0].metadata.labels.kubernetes\\.io/os}", "linux"),
            ("{..name}", "a b"),
            ("{.items[1].spec.nets}", "[\"10.0.0.0/8\",\"fd00::/8\"]"),
            ("{range .items[*]}{range .spec.nets[*]}<{@}>{end}{end}", "<10.0.0.0/8><fd00::/8>"),
            ("{.nothing.here}", ""),
            ("{'{'}{.items[0].spec.n}{\"}\"}", "{1}"),
        ];
        for (template, expected) in cases {
            assert_eq!(fill(template), expected, "{template}");
        }
    }

    #[test]
    fn bad_templates_are_refused_with_a_reason() {
        let cases = [
            ("{.items[*]", "a { has no matching }"),
            ("{range .items[*]}x", "{range …} without {end}"),
            ("{end}", "{end} without {range …}"),
            ("{.items[}", "\".items[\": a [ has no matching ]"),
            ("{.a b}", "\".a b\": \" b\" is not supported"),
            ("{.a.!}", "\".a.!\": a name is missing after a dot"),
        ];
        for (template, expected) in cases {
            assert_eq!(Template::parse(template).unwrap_err(), expected, "{template}");
        }
    }

    proptest! {
        #[test]
        fn arbitrary_templates_never_panic(text in "[ -~\\n]{0,60}", wild in any::<String>()) {
            let document = json!({"items": [{"a": 1}, {"b": ["x"]}]});
            for text in [text.as_str(), wild.as_str(), &format!("{{{text}}}"), &format!("{{.items[{text}]}}")] {
                if let Ok(template) = Template::parse(text) {
                    let _ = template.fill(&document);
                }
            }
        }

        #[test]
        fn any_name_can_be_asked_for(key in "[a-zA-Z0-9./_'\"\\\\-]{1,20}") {
            let escaped: String = key.chars().flat_map(|c| ['\\', c]).collect();
            let document = json!({ &key: "found" });
            let template = Template::parse(&format!("{{.{escaped}}}")).unwrap();
            prop_assert_eq!(template.fill(&document).unwrap(), "found");
        }
    }
}
