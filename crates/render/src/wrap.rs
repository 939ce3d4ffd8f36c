//! Breaks long lines between words.

/// The width of a text on a terminal, roughly: wide characters take two columns.
pub(crate) fn columns(text: &str) -> usize {
    text.chars().map(|character| if is_wide(character) { 2 } else { 1 }).sum()
}

/// East Asian scripts and emoji.
fn is_wide(character: char) -> bool {
    matches!(u32::from(character), 0x1100..=0x115f | 0x2e80..=0xa4cf | 0xac00..=0xd7a3 | 0xf900..=0xfaff
        | 0xfe30..=0xfe6f | 0xff00..=0xff60 | 0xffe0..=0xffe6 | 0x1f300..=0x1faff | 0x20000..=0x3fffd)
}

/// Lines of at most `width` columns, as far as words allow: keys and paths are never broken, so that they can be copied.
pub(crate) fn wrapped(text: &str, width: usize) -> Vec<String> {
    let mut lines = Vec::new();
    let (mut line, mut used) = (String::new(), 0);
    for word in text.split_whitespace() {
        let length = columns(word);
        if used > 0 && used + 1 + length > width {
            lines.push(std::mem::take(&mut line));
            used = 0;
        }
        if used > 0 {
            line.push(' ');
            used += 1;
        }
        line.push_str(word);
        used += length;
    }
    if used > 0 || lines.is_empty() {
        lines.push(line);
    }
    lines
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn lines_end_between_words() {
        assert_eq!(wrapped("one two three", 7), ["one two", "three"]);
        assert_eq!(wrapped("/a/very/long/key x", 5), ["/a/very/long/key", "x"]);
        assert_eq!(wrapped("", 5), [""]);
        assert_eq!(wrapped("名前 名前", 8), ["名前", "名前"]);
    }

    proptest! {
        #[test]
        fn no_word_is_lost(text in "\\PC{0,80}", width in 1usize..40) {
            let lines = wrapped(&text, width);
            let words: Vec<&str> = text.split_whitespace().collect();
            let joined = lines.join(" ");
            prop_assert_eq!(joined.split_whitespace().collect::<Vec<_>>(), words);
            for line in lines {
                prop_assert!(columns(&line) <= width || !line.contains(' '));
            }
        }
    }
}
