//! Lines of a terminal as a picture (SVG). Each line is coloured by what it is: a heading, a command, an error, or output.

/// A longer line is cut.
const COLUMNS: usize = 100;
const LINE_HEIGHT: usize = 18;
/// Of the font, rounded up, so that the widest line fits with any monospaced font.
const LETTER_WIDTH: usize = 8;
const MARGIN: usize = 20;

const STYLE: &str = "\
text{font:13px ui-monospace,SFMono-Regular,Menlo,Consolas,'DejaVu Sans Mono',monospace;fill:#c9d1d9;white-space:pre}\
.heading{fill:#79c0ff;font-weight:bold}.prompt{fill:#7ee787}.error{fill:#ff7b72;font-weight:bold}.warning{fill:#e3b341}\
.dim{fill:#8b949e}";

/// The picture of these lines. `title` is for those who cannot see it.
pub(crate) fn svg(title: &str, lines: &[&str]) -> String {
    let (width, height) = (COLUMNS * LETTER_WIDTH + 2 * MARGIN, lines.len() * LINE_HEIGHT + 2 * MARGIN);
    let mut text = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{width}\" height=\"{height}\" viewBox=\"0 0 {width} {height}\" \
         role=\"img\">\n<title>{}</title>\n<style>{STYLE}</style>\n\
         <rect width=\"{width}\" height=\"{height}\" rx=\"8\" fill=\"#0d1117\"/>\n",
        escaped(title)
    );
    for (number, line) in lines.iter().enumerate().filter(|(_, line)| !line.trim().is_empty()) {
        let bottom = MARGIN + number * LINE_HEIGHT + LINE_HEIGHT * 3 / 4;
        let spans: String = spans(&fitted(line)).into_iter().map(|(class, part)| span(class, part)).collect();
        text += &format!("<text x=\"{MARGIN}\" y=\"{bottom}\" xml:space=\"preserve\">{spans}</text>\n");
    }
    text + "</svg>\n"
}

/// A part of a line, and the class of its colour; empty for ordinary output.
fn span(class: &str, part: &str) -> String {
    match class {
        "" => escaped(part),
        class => format!("<tspan class=\"{class}\">{}</tspan>", escaped(part)),
    }
}

/// Without control characters, and cut where the picture ends.
fn fitted(line: &str) -> String {
    let shown: String = line.chars().filter(|char| !char.is_control()).collect();
    match shown.char_indices().nth(COLUMNS) {
        None => shown,
        Some(_) => shown.chars().take(COLUMNS - 1).chain(['…']).collect(),
    }
}

fn spans(line: &str) -> Vec<(&'static str, &str)> {
    let words = line.trim_start();
    let is_heading = words.starts_with("== ") || words.starts_with("-- ");
    if is_heading {
        return vec![("heading", line)];
    }
    if let Some(at) = line.find("$ ") {
        // What stands before a prompt is where it is: `[node1] $ ip route`.
        let place = line[..at].trim();
        if place.is_empty() || (place.starts_with('[') && place.ends_with(']')) {
            return vec![("dim", &line[..at]), ("prompt", &line[at..])];
        }
    }
    for (word, class) in [("ERROR", "error"), ("WARNING", "warning")] {
        if words.starts_with(word) {
            let (before, after) = line.split_at(line.len() - words.len() + word.len());
            return vec![(class, before), ("", after)];
        }
    }
    for label in ["why ", "seen ", "next ", "also ", "run "] {
        if words.starts_with(label) {
            let (before, after) = line.split_at(line.len() - words.len() + label.len());
            return vec![("dim", before), ("", after)];
        }
    }
    vec![("", line)]
}

fn escaped(text: &str) -> String {
    let mut safe = String::with_capacity(text.len());
    for char in text.chars() {
        match char {
            '&' => safe += "&amp;",
            '<' => safe += "&lt;",
            '>' => safe += "&gt;",
            '"' => safe += "&quot;",
            '\'' => safe += "&apos;",
            char if char.is_control() => {}
            char => safe.push(char),
        }
    }
    safe
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_printed_gives_the_picture_no_markup() {
        let picture =
            svg("<a> & \"b\"", &["</text><script>alert('x')</script>", "$ echo \u{1b}[31m<b>", "== <c>"]);
        assert!(!picture.contains("<script") && !picture.contains("<b>") && !picture.contains("<c>"));
        assert!(!picture.chars().any(|char| char.is_control() && char != '\n'));
        assert!(picture.contains("<title>&lt;a&gt; &amp; &quot;b&quot;</title>"), "{picture}");
        assert!(picture.contains("&lt;/text&gt;&lt;script&gt;alert(&apos;x&apos;)"), "{picture}");
    }

    #[test]
    fn colours_change_no_letter() {
        for line in [
            "== A heading",
            "   [node1] $ ip route",
            "   $ plumb doctor",
            "     ERROR Several endpoints have the same address",
            "     WARNING it",
            "    why   because of $ 5",
            "plain",
            "",
        ] {
            let together: String = spans(line).into_iter().map(|(_, part)| part).collect();
            assert_eq!(together, line);
        }
        let classes = |line| spans(line).into_iter().map(|(class, _)| class).collect::<Vec<_>>();
        assert_eq!(classes("   [node1] $ ip route"), ["dim", "prompt"]);
        assert_eq!(classes("it costs 5 $ a day"), [""]);
        assert_eq!(classes("  ERROR x"), ["error", ""]);
    }

    #[test]
    fn a_long_line_is_cut_and_every_line_has_its_place() {
        let long = "ä".repeat(COLUMNS + 1);
        assert_eq!(fitted(&long).chars().count(), COLUMNS);
        assert!(fitted(&long).ends_with('…'));
        assert_eq!(fitted(&"x".repeat(COLUMNS)), "x".repeat(COLUMNS));
        let picture = svg("", &["a", "", "b"]);
        assert_eq!(picture.matches("<text ").count(), 2);
        assert!(picture.contains("y=\"33\"") && picture.contains("y=\"69\""), "{picture}");
    }
}
