//! YAML, fed line by line: parted at `---` and at the items of its outermost list.

use serde_json::Value;

use model::text::Line;

use super::Item;

/// An item is not larger than this. Larger ones are handed out unread.
const ITEM_BYTES_MAX: usize = 4 << 20;
const LINES_MAX: usize = 100_000;

#[derive(Debug, Default)]
pub(crate) struct YamlSplitter {
    lines: Vec<Line>,
    bytes: usize,
    is_too_large: bool,
    /// How far the items of the outermost list are indented, once one was seen.
    indent: Option<usize>,
}

impl YamlSplitter {
    /// Whether a document may begin with this line.
    pub(crate) fn begins(line: &str) -> bool {
        let first = line.strip_prefix("- ").unwrap_or(line);
        let is_field = |name: &str| {
            first.strip_prefix(name).is_some_and(|rest| rest.is_empty() || rest.starts_with(' '))
        };
        line.trim_end() == "---" || ["apiVersion:", "kind:", "items:", "metadata:"].into_iter().any(is_field)
    }

    pub(crate) fn feed(&mut self, line: &Line, mut each: impl FnMut(Item)) {
        if line.text == "---" || line.text.starts_with("--- ") {
            self.hand_out(&mut each);
            self.indent = None;
            return;
        }
        let indent = line.text.len() - line.text.trim_start().len();
        let begins_item = line.text.get(indent..).is_some_and(|text| text.starts_with("- "));
        match self.indent {
            Some(list) if begins_item && indent == list => self.hand_out(&mut each),
            // Back at the edge, after the list: `kind: List`.
            Some(_) if !begins_item && indent == 0 && !line.text.is_empty() => {
                self.hand_out(&mut each);
                self.indent = None;
            }
            None if begins_item && self.may_begin_list() => {
                self.lines.clear();
                self.bytes = 0;
                self.indent = Some(indent);
            }
            _ => {}
        }
        self.bytes += line.text.len() + 1;
        if self.bytes <= ITEM_BYTES_MAX && self.lines.len() < LINES_MAX {
            self.lines.push(line.clone());
        } else {
            self.is_too_large = true;
        }
    }

    pub(crate) fn finish(mut self, mut each: impl FnMut(Item)) {
        self.hand_out(&mut each);
    }

    /// Nothing before the first item but what is around a list, which is a few lines.
    fn may_begin_list(&self) -> bool {
        const AROUND_MAX: usize = 100;
        let known = |line: &Line| {
            let text = line.text.trim_end();
            text.is_empty()
                || text == "items:"
                || text.starts_with("apiVersion:")
                || text.starts_with("kind:")
                || text.starts_with('#')
        };
        // What belongs to a list itself, where its items come last.
        let is_metadata = |line: &Line| line.text.starts_with("metadata:") || line.text.starts_with("  ");
        let is_at_items = self.lines.last().is_some_and(|line| line.text.trim_end() == "items:");
        self.lines.len() <= AROUND_MAX
            && self.lines.iter().all(|line| known(line) || is_at_items && is_metadata(line))
    }

    fn hand_out(&mut self, each: &mut impl FnMut(Item)) {
        let lines = std::mem::take(&mut self.lines);
        self.bytes = 0;
        let is_whole = !std::mem::take(&mut self.is_too_large);
        let Some(first) = lines.iter().position(|line| !line.text.trim().is_empty()) else { return };
        let mut text = String::new();
        for line in &lines {
            text.push_str(&line.text);
            text.push('\n');
        }
        let begins_item = |indent: usize| {
            let text = lines.get(first).and_then(|line| line.text.get(indent..));
            text.is_some_and(|text| text.starts_with("- "))
        };
        if let Some(indent) = self.indent.filter(|indent| begins_item(*indent)) {
            let dash: usize =
                lines.iter().take(first).map(|line| line.text.len() + 1).sum::<usize>() + indent;
            text.replace_range(dash..=dash, " ");
        }
        let options = serde_saphyr::options! { with_snippet: false };
        let value: Option<Value> =
            is_whole.then(|| serde_saphyr::from_str_with_options(&text, options).ok()).flatten();
        // What is left around a list. Its kind comes after its items: only then the list has ended.
        let is_frame = value.as_ref().is_some_and(|value| value.as_object().is_some_and(is_frame));
        if value.as_ref().is_some_and(Value::is_null) {
            return;
        }
        each(Item {
            value,
            // About: each line is a value.
            bytes: text.len() * 2,
            is_listed: self.indent.is_some(),
            lines: lines.into_iter().skip(first).collect(),
            is_frame,
        });
    }
}

fn is_frame(map: &serde_json::Map<String, Value>) -> bool {
    let is_list = map.get("kind").and_then(Value::as_str).is_some_and(|kind| kind.ends_with("List"));
    is_list || map.keys().all(|key| matches!(key.as_str(), "apiVersion" | "items" | "metadata"))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn split(text: &str) -> Vec<(u32, Option<Value>, bool)> {
        let mut splitter = YamlSplitter::default();
        let mut items = Vec::new();
        for (number, text) in (1..).zip(text.lines()) {
            let line = Line { number, text: text.to_owned(), is_cut: false };
            splitter.feed(&line, |item| items.push(item));
        }
        splitter.finish(|item| items.push(item));
        let items = items.into_iter().filter(|item| !item.is_frame);
        items.map(|item| (item.lines[0].number, item.value, item.is_listed)).collect()
    }

    fn names(text: &str) -> Vec<(u32, String)> {
        let name =
            |value: &Option<Value>| value.as_ref().unwrap()["metadata"]["name"].as_str().unwrap().to_owned();
        split(text).iter().map(|(line, value, _)| (*line, name(value))).collect()
    }

    #[test]
    fn lists_and_documents_are_taken_apart() {
        let list = "apiVersion: v1\nitems:\n- kind: Pod\n  metadata:\n    name: a\n  spec:\n    x:\n    - 1\n- kind: Pod\n  metadata: {name: b}\nkind: List\nmetadata:\n  resourceVersion: \"\"\n";
        assert_eq!(names(list), [(3, "a".to_owned()), (9, "b".to_owned())]);
        let bare =
            "- apiVersion: v1\n  metadata:\n    name: eth0\n  spec:\n    ipNetworks:\n    - 1.1.1.1/32\n";
        assert_eq!(names(bare), [(1, "eth0".to_owned())]);
        let documents =
            "kind: A\nmetadata:\n  name: a\n  list:\n  - x\n---\n\nkind: B\nmetadata:\n  name: b\n";
        assert_eq!(names(documents), [(1, "a".to_owned()), (8, "b".to_owned())]);
        assert!(split(list)[0].2 && !split(documents)[0].2);
        let indented =
            "items:\n  - kind: A\n    metadata:\n      name: a\n  - kind: A\n    metadata:\n      name: b\n";
        assert_eq!(names(indented), [(2, "a".to_owned()), (5, "b".to_owned())]);
    }

    #[test]
    fn what_is_no_yaml_is_handed_out_unread() {
        assert_eq!(split("kind: A\n  x: [\n")[0].1, None);
    }

    proptest! {
        #[test]
        fn anything_can_be_fed(text in "([- :a\n\\[{#&*]|kind: |items:\n){0,60}") {
            split(&text);
        }
    }
}
