//! Markup in which texts can only be texts.

use std::fmt::{self, Write as _};

use model::text::Harmless;

/// A page under construction. What we write ourselves goes in as it is and is fixed when the program is built;
/// whatever else comes in is escaped.
#[derive(Debug, Default)]
pub(super) struct Markup(String);

/// Writes markup. Values go where its braces are, escaped: between tags, or inside a quoted attribute.
macro_rules! html {
    ($page:expr, $markup:literal $(, $value:expr)* $(,)?) => {
        // `concat!` refuses names inside the braces, which would get in as they are.
        $page.push(format_args!(concat!($markup) $(, $crate::html::markup::Escaped(&$value))*))
    };
}
pub(super) use html;

impl Markup {
    pub(super) fn raw(&mut self, markup: &'static str) -> &mut Markup {
        self.0.push_str(markup);
        self
    }

    /// Only for [`html!`], which escapes the values.
    pub(super) fn push(&mut self, markup: fmt::Arguments<'_>) {
        self.0.write_fmt(markup).expect("a string takes any text");
    }

    /// Begins a part of the page that can be linked to; `</section>` ends it.
    pub(super) fn section(&mut self, id: &'static str, title: &'static str) {
        html!(
            self,
            "<section id=\"{}\" aria-labelledby=\"{}-title\">\n<h2 id=\"{}-title\">{}</h2>\n",
            id,
            id,
            id,
            title
        );
    }

    pub(super) fn finish(self) -> String {
        self.0
    }
}

/// A text that is no markup.
pub(super) struct Escaped<'a, T: ?Sized>(pub(super) &'a T);

impl<T: fmt::Display + ?Sized> fmt::Display for Escaped<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        Harmless(&self.0.to_string()).to_string().chars().try_for_each(|character| match character {
            '&' => f.write_str("&amp;"),
            '<' => f.write_str("&lt;"),
            '>' => f.write_str("&gt;"),
            '"' => f.write_str("&quot;"),
            '\'' => f.write_str("&#39;"),
            other => f.write_char(other),
        })
    }
}
