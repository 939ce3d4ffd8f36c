//! JSON, fed line by line: counts brackets, and hands out each element of a list as soon as it is complete.

use serde_json::Value;

use model::text::Line;

use super::Item;

/// An item, or what is around a list, is not larger than this, and has no more values. Larger ones are handed out unread: a value of two
/// letters may take a hundred bytes of memory.
const ITEM_BYTES_MAX: usize = 16 << 20;
const VALUES_MAX: usize = 1_000_000;
/// What a value takes besides its text, about.
const VALUE_BYTES: usize = 32;
/// As many of its lines are kept with an item: a block of IPAM that was cut is read by its lines.
const LINES_MAX: usize = 20_000;
const LINE_BYTES_MAX: usize = 500;

#[derive(Debug, Default)]
pub(crate) struct JsonSplitter {
    depth: usize,
    is_in_string: bool,
    is_escaped: bool,
    /// The last text seen at depth 1: the name of what follows.
    name: String,
    is_naming: bool,
    /// The depth inside the list whose elements are handed out one by one: 1 for a bare list, 2 for `items`.
    list: Option<usize>,
    had_elements: bool,
    item: Buffer,
    /// The document without its elements.
    around: Buffer,
}

#[derive(Debug, Default)]
struct Buffer {
    text: String,
    lines: Vec<Line>,
    /// About how many values it has.
    values: usize,
    is_too_large: bool,
}

impl Buffer {
    fn push(&mut self, piece: &str, line: &Line) {
        let is_gap = self.text.is_empty() && piece.trim_matches([' ', '\t', ',', '\n']).is_empty();
        if is_gap {
            return;
        }
        self.values += piece.bytes().filter(|byte| matches!(byte, b',' | b'[' | b'{')).count();
        self.is_too_large |= self.text.len() + piece.len() > ITEM_BYTES_MAX || self.values > VALUES_MAX;
        if self.is_too_large {
            // Something must stay that it is known by.
            self.text = "…".to_owned();
        } else {
            self.text.push_str(piece);
        }
        let is_new = self.lines.last().is_none_or(|last| last.number != line.number);
        if is_new && self.lines.len() < LINES_MAX {
            let text =
                line.text.get(..line.text.floor_char_boundary(LINE_BYTES_MAX)).unwrap_or_default().to_owned();
            self.lines.push(Line { number: line.number, text, is_cut: line.is_cut });
        }
    }

    fn take(&mut self, is_listed: bool) -> Option<Item> {
        let Buffer { text, lines, is_too_large, values } = std::mem::take(self);
        if text.trim().trim_matches(',').is_empty() {
            return None;
        }
        let text = text.trim().trim_matches(',');
        let value: Option<Value> = serde_json::from_str(text).ok().filter(|_| !is_too_large);
        let bytes = text.len() + values * VALUE_BYTES;
        Some(Item { lines, value, bytes, is_listed, is_frame: false })
    }
}

fn piece(text: &str, start: usize, end: usize) -> &str {
    text.get(start..end).unwrap_or_default()
}

impl JsonSplitter {
    /// Whether a document may begin with this line. Lines of logs and boxes begin with brackets, too.
    pub(crate) fn begins(line: &str) -> bool {
        let line = line.trim();
        match line.as_bytes() {
            [b'{'] | [b'['] => true,
            [b'{', rest @ ..] => matches!(rest.trim_ascii_start().first(), Some(b'"' | b'}')),
            [b'[', rest @ ..] => matches!(rest.trim_ascii_start().first(), Some(b'{' | b']')),
            _ => false,
        }
    }

    /// Takes in a line and hands out what is complete. `true`: the document has ended.
    pub(crate) fn feed(&mut self, line: &Line, mut each: impl FnMut(Item)) -> bool {
        let text = line.text.as_str();
        let mut start = 0;
        for (offset, character) in text.char_indices() {
            let end = offset + character.len_utf8();
            if self.is_in_string {
                self.in_string(character);
                continue;
            }
            match character {
                '"' => {
                    self.is_in_string = true;
                    self.is_naming = self.depth == 1;
                    if self.is_naming {
                        self.name.clear();
                    }
                }
                '{' | '[' => {
                    if self.list.is_none() && self.opens_list(character) {
                        self.keep(piece(text, start, end), line);
                        start = end;
                        self.list = Some(self.depth + 1);
                    }
                    self.depth += 1;
                }
                '}' | ']' => {
                    if self.list == Some(self.depth) {
                        // The list ends: what is left of its last element was handed out.
                        self.keep(piece(text, start, offset), line);
                        start = offset;
                        self.hand_out(&mut each);
                        self.had_elements = true;
                        self.list = None;
                    }
                    self.depth = self.depth.saturating_sub(1);
                    if self.depth == 0 {
                        self.keep(piece(text, start, end), line);
                        self.end(&mut each);
                        return true;
                    }
                    if self.list == Some(self.depth) {
                        self.keep(piece(text, start, end), line);
                        start = end;
                        self.hand_out(&mut each);
                    }
                }
                _ => {}
            }
        }
        self.keep(piece(text, start, text.len()), line);
        self.keep("\n", line);
        false
    }

    /// The text has ended before the document did.
    pub(crate) fn finish(mut self, mut each: impl FnMut(Item)) {
        self.hand_out(&mut each);
        if let Some(item) = self.around.take(false).filter(|_| !self.had_elements && self.list.is_none()) {
            each(Item { value: None, ..item });
        }
    }

    fn in_string(&mut self, character: char) {
        if self.is_escaped {
            self.is_escaped = false;
        } else if character == '\\' {
            self.is_escaped = true;
        } else if character == '"' {
            self.is_in_string = false;
            self.is_naming = false;
        } else if self.is_naming && self.name.len() < 64 {
            self.name.push(character);
        }
    }

    fn opens_list(&self, character: char) -> bool {
        let is_list = self.depth == 1 && matches!(self.name.as_str(), "items" | "kvs");
        character == '[' && (self.depth == 0 || is_list)
    }

    fn keep(&mut self, piece: &str, line: &Line) {
        let is_inside = self.list.is_some();
        let buffer = if is_inside { &mut self.item } else { &mut self.around };
        buffer.push(piece, line);
    }

    fn hand_out(&mut self, each: &mut impl FnMut(Item)) {
        if let Some(item) = self.item.take(true) {
            self.had_elements = true;
            each(item);
        }
    }

    /// What is around a list says that the list has ended, and what it is a list of; a document without one is an item.
    fn end(&mut self, each: &mut impl FnMut(Item)) {
        if let Some(item) = self.around.take(false) {
            each(Item { is_frame: self.had_elements, ..item });
        }
        *self = JsonSplitter::default();
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    fn split(text: &str) -> Vec<(u32, Option<Value>, bool)> {
        let mut splitter = JsonSplitter::default();
        let mut all = Vec::new();
        let mut is_over = false;
        for (number, text) in (1..).zip(text.lines()) {
            let line = Line { number, text: text.to_owned(), is_cut: false };
            is_over = splitter.feed(&line, |item| all.push(item));
        }
        if !is_over {
            splitter.finish(|item| all.push(item));
        }
        let items = all.into_iter().filter(|item| !item.is_frame);
        let items: Vec<_> = items.map(|item| (item.lines[0].number, item.value, item.is_listed)).collect();
        items
    }

    #[test]
    fn lists_are_taken_apart() {
        let text = "{\n \"apiVersion\": \"v1\",\n \"items\": [\n  {\"a\": \"}]\"},\n  {\n   \"b\": [1]\n  }\n ],\n \"kind\": \"List\"\n}";
        assert_eq!(split(text), [(4, Some(json!({"a": "}]"})), true), (5, Some(json!({"b": [1]})), true)]);
        assert_eq!(split("[{\"a\":1},{\"a\":2}]").len(), 2);
        assert_eq!(split("{\"kind\":\"x\",\"spec\":{\"items\":[1,2]}}").len(), 1);
        assert_eq!(split("{\"items\":[]}"), []);
        assert_eq!(split("[]"), []);
    }

    #[test]
    fn what_is_cut_is_handed_out_unread() {
        assert_eq!(split("{\"a\": 1,"), [(1, None, false)]);
        assert_eq!(split("{\n \"a\": [\n 1,\n ...\n ]\n}"), [(1, None, false)]);
        let cut = split("{\"items\": [\n{\"a\": 1},\n{\"b\": ");
        assert_eq!(cut, [(2, Some(json!({"a": 1})), true), (3, None, true)]);
    }

    /// Memory, not time, is what a document of many small values costs.
    #[test]
    fn what_is_too_large_is_handed_out_unread() {
        let many = format!("{{\"a\": [0{}]}}", ",0".repeat(VALUES_MAX));
        assert_eq!(split(&many), [(1, None, false)]);
        let long = format!("{{\"a\": \"{}\"}}", "x".repeat(ITEM_BYTES_MAX));
        assert_eq!(split(&long), [(1, None, false)]);
        let both = format!("[{{\"a\": [0{}]}}, {{\"b\": 1}}]", ",0".repeat(VALUES_MAX));
        assert_eq!(split(&both), [(1, None, true), (1, Some(json!({"b": 1})), true)]);
        let lines = format!("{{\"a\": [\n{}0]}}", "0,\n".repeat(LINES_MAX + 9));
        let mut splitter = JsonSplitter::default();
        let mut kept = 0;
        for (number, text) in (1..).zip(lines.lines()) {
            splitter
                .feed(&Line { number, text: text.to_owned(), is_cut: false }, |item| kept = item.lines.len());
        }
        assert_eq!(kept, LINES_MAX);
    }

    fn value() -> impl Strategy<Value = Value> {
        let leaf = prop_oneof![
            any::<i32>().prop_map(Value::from),
            "[ -~]{0,8}".prop_map(Value::from),
            Just(Value::Null)
        ];
        leaf.prop_recursive(3, 16, 4, |inner| {
            prop_oneof![
                prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
                prop::collection::btree_map("[a-z\\\\\"{}]{0,4}", inner, 0..4).prop_map(|map| json!(map)),
            ]
        })
    }

    proptest! {
        #[test]
        fn elements_round_trip(elements in prop::collection::vec(prop::collection::btree_map("[a-z]{1,5}", value(), 0..4), 1..5), form in 0usize..3) {
            let elements: Vec<Value> = elements.into_iter().map(|map| json!(map)).collect();
            let text = match form {
                0 => serde_json::to_string(&elements),
                1 => serde_json::to_string_pretty(&json!({"kind": "List", "items": elements})),
                _ => serde_json::to_string_pretty(&elements),
            }.unwrap();
            let found: Vec<Value> = split(&text).into_iter().filter_map(|(_, value, _)| value).collect();
            prop_assert_eq!(found, elements);
        }

        #[test]
        fn anything_can_be_fed(text in "[\\[\\]{}\",:a\\\\\n 1]{0,80}") {
            split(&text);
        }
    }
}
