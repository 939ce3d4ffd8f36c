//! Markup in which texts can only be texts.

use std::fmt::Write as _;

use model::text::Harmless;

/// A page under construction. What we write ourselves goes in as it is and is fixed when the program is built;
/// whatever else comes in is escaped.
#[derive(Debug, Default)]
pub(super) struct Markup(String);

impl Markup {
    pub(super) fn raw(&mut self, markup: &'static str) -> &mut Markup {
        self.0.push_str(markup);
        self
    }

    /// A text between tags, or inside a quoted attribute.
    pub(super) fn text(&mut self, text: &str) -> &mut Markup {
        for character in Harmless(text).to_string().chars() {
            match character {
                '&' => self.0.push_str("&amp;"),
                '<' => self.0.push_str("&lt;"),
                '>' => self.0.push_str("&gt;"),
                '"' => self.0.push_str("&quot;"),
                '\'' => self.0.push_str("&#39;"),
                other => self.0.push(other),
            }
        }
        self
    }

    pub(super) fn number(&mut self, number: usize) -> &mut Markup {
        write!(self.0, "{number}").expect("a string takes any text");
        self
    }

    /// `<tag class="class">text</tag>`; no class if that is empty.
    pub(super) fn element(&mut self, tag: &'static str, class: &'static str, text: &str) -> &mut Markup {
        self.raw("<").raw(tag);
        if !class.is_empty() {
            self.raw(" class=\"").raw(class).raw("\"");
        }
        self.raw(">").text(text).raw("</").raw(tag).raw(">")
    }

    pub(super) fn finish(self) -> String {
        self.0
    }
}
