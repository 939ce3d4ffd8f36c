//! Splits the text of a selector into words.

use super::{LABEL_LEN_MAX, SelectorError};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Word<'a> {
    Label(&'a str),
    /// A string, without its quotes.
    Text(&'a str),
    Equals,
    Differs,
    Contains,
    StartsWith,
    EndsWith,
    In,
    NotIn,
    All,
    Global,
    Has(&'a str),
    Not,
    And,
    Or,
    OpenParen,
    CloseParen,
    OpenBrace,
    CloseBrace,
    Comma,
    End,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Token<'a> {
    pub(super) word: Word<'a>,
    /// Where it stands in the text, in bytes.
    pub(super) start: usize,
    pub(super) end: usize,
}

/// The words of `text`; the last is always [`Word::End`].
pub(super) fn tokenize(text: &str) -> Result<Vec<Token<'_>>, SelectorError> {
    let mut tokenizer = Tokenizer { text, offset: 0, label: None };
    let mut tokens = Vec::new();
    loop {
        tokenizer.skip_blanks();
        let start = tokenizer.offset;
        let word = tokenizer.word()?;
        tokenizer.label = if let Word::Label(name) = word { Some(name) } else { None };
        tokens.push(Token { word, start, end: tokenizer.offset });
        if word == Word::End {
            return Ok(tokens);
        }
    }
}

/// A piece of the text for an error message, cut if it is long.
pub(super) fn shown(piece: &str) -> String {
    const CHARS_MAX: usize = 40;
    let start: String = piece.chars().take(CHARS_MAX).collect();
    let dots = if start.len() < piece.len() { "…" } else { "" };
    format!("'{}{dots}'", start.escape_debug())
}

/// Every operator that may follow a label.
pub(super) const OPERATORS: &str = "==, !=, in, not in, contains, starts with or ends with";

const SIGNS: [(&str, Word<'static>); 10] = [
    ("(", Word::OpenParen),
    (")", Word::CloseParen),
    ("{", Word::OpenBrace),
    ("}", Word::CloseBrace),
    (",", Word::Comma),
    ("==", Word::Equals),
    ("!=", Word::Differs),
    ("!", Word::Not),
    ("&&", Word::And),
    ("||", Word::Or),
];

const WORD_OPERATORS: [(&[&str], Word<'static>); 5] = [
    (&["contains"], Word::Contains),
    (&["starts", "with"], Word::StartsWith),
    (&["ends", "with"], Word::EndsWith),
    (&["not", "in"], Word::NotIn),
    (&["in"], Word::In),
];

struct Tokenizer<'a> {
    text: &'a str,
    offset: usize,
    /// The label that was the word before this one, if it was a label.
    label: Option<&'a str>,
}

impl<'a> Tokenizer<'a> {
    fn word(&mut self) -> Result<Word<'a>, SelectorError> {
        let Some(first) = self.rest().chars().next() else { return Ok(Word::End) };
        if let Some((sign, word)) = SIGNS.iter().find(|(sign, _)| self.rest().starts_with(sign)) {
            self.offset += sign.len();
            return Ok(*word);
        }
        match first {
            '"' | '\'' => self.string(first),
            '=' | '&' | '|' => Err(self.error(format!("{first}{first}"))),
            _ => match self.label {
                Some(label) => self.operator(label),
                None => self.operand(),
            },
        }
    }

    fn string(&mut self, quote: char) -> Result<Word<'a>, SelectorError> {
        let inside = self.rest().strip_prefix(quote).unwrap_or_default();
        let Some((inside, _)) = inside.split_once(quote) else {
            let found = "a string that does not end";
            return Err(SelectorError::new(self.text, self.offset, found, format!("a closing {quote}")));
        };
        self.offset += inside.len() + 2;
        Ok(Word::Text(inside))
    }

    fn operator(&mut self, label: &str) -> Result<Word<'a>, SelectorError> {
        for (parts, word) in WORD_OPERATORS {
            if let Some(end) = self.end_of_words(parts) {
                self.offset = end;
                return Ok(word);
            }
        }
        Err(self.error(format!("{OPERATORS} after the label {}", shown(label))))
    }

    /// Where these words end, if they stand here one after the other, with or without blanks between them.
    fn end_of_words(&self, parts: &[&str]) -> Option<usize> {
        let mut rest = self.rest();
        for part in parts {
            rest = trim_blanks(rest).strip_prefix(part)?;
        }
        (label_len(rest) == 0).then(|| self.text.len() - rest.len())
    }

    fn operand(&mut self) -> Result<Word<'a>, SelectorError> {
        if self.skip("has(") {
            self.skip_blanks();
            let label = self.label_name("the name of a label")?;
            return self.close_call(Word::Has(label));
        }
        if self.skip("all(") {
            return self.close_call(Word::All);
        }
        if self.skip("global(") {
            return self.close_call(Word::Global);
        }
        self.label_name("a label, has(), all(), global(), ! or (").map(Word::Label)
    }

    fn close_call(&mut self, word: Word<'a>) -> Result<Word<'a>, SelectorError> {
        self.skip_blanks();
        if self.skip(")") { Ok(word) } else { Err(self.error(")")) }
    }

    fn label_name(&mut self, expected: &str) -> Result<&'a str, SelectorError> {
        match label_len(self.rest()) {
            0 => Err(self.error(expected)),
            len if len > LABEL_LEN_MAX => {
                let found = format!("a label of {len} characters");
                let expected = format!("at most {LABEL_LEN_MAX}");
                Err(SelectorError::new(self.text, self.offset, found, expected))
            }
            len => {
                let name = start(self.rest(), len);
                self.offset += len;
                Ok(name)
            }
        }
    }

    fn rest(&self) -> &'a str {
        end(self.text, self.offset)
    }

    fn skip(&mut self, prefix: &str) -> bool {
        let there = self.rest().starts_with(prefix);
        self.offset += if there { prefix.len() } else { 0 };
        there
    }

    fn skip_blanks(&mut self) {
        self.offset = self.text.len() - trim_blanks(self.rest()).len();
    }

    fn error(&self, expected: impl Into<String>) -> SelectorError {
        let rest = self.rest();
        let found = match rest.chars().next() {
            None => "the end".to_owned(),
            Some(first) => shown(start(rest, label_len(rest).max(first.len_utf8()))),
        };
        SelectorError::new(self.text, self.offset, found, expected)
    }
}

/// A text up to a place, or nothing if there is no such place.
pub(super) fn start(text: &str, to: usize) -> &str {
    text.get(..to).unwrap_or_default()
}

/// A text from a place on.
pub(super) fn end(text: &str, from: usize) -> &str {
    text.get(from..).unwrap_or_default()
}

fn trim_blanks(text: &str) -> &str {
    text.trim_start_matches([' ', '\t'])
}

/// How many bytes at the start can belong to a label's name; they are all ASCII.
fn label_len(text: &str) -> usize {
    let is_label_byte = |byte: &u8| byte.is_ascii_alphanumeric() || b"_./-".contains(byte);
    text.bytes().take_while(is_label_byte).count()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(text: &str, expected: &[Word<'_>]) {
        let tokens = tokenize(text).unwrap_or_else(|error| panic!("{text}: {error}"));
        let words: Vec<Word<'_>> = tokens.iter().map(|token| token.word).collect();
        let (last, words) = words.split_last().unwrap();
        assert_eq!((words, *last), (expected, Word::End), "{text}");
    }

    fn check_refused(text: &str, message: &str) {
        let error = tokenize(text).expect_err(text);
        assert_eq!(error.to_string(), message, "{text}");
    }

    #[test]
    fn signs_need_no_blanks() {
        use Word::*;
        check("", &[]);
        check("a==\"b\"", &[Label("a"), Equals, Text("b")]);
        check(" a\t!= 'b' ", &[Label("a"), Differs, Text("b")]);
        check("!!(a)", &[Not, Not, OpenParen, Label("a"), CloseParen]);
        check("{'a',\"b\"}", &[OpenBrace, Text("a"), Comma, Text("b"), CloseBrace]);
        check("has(a)&&all()||global()", &[Has("a"), And, All, Or, Global]);
    }

    #[test]
    fn word_operators_stand_after_a_label_only() {
        use Word::*;
        check("contains contains 'contains'", &[Label("contains"), Contains, Text("contains")]);
        check("a contains'b'", &[Label("a"), Contains, Text("b")]);
        check("in in {}", &[Label("in"), In, OpenBrace, CloseBrace]);
        check("a notin{}", &[Label("a"), NotIn, OpenBrace, CloseBrace]);
        check("a not \t in {}", &[Label("a"), NotIn, OpenBrace, CloseBrace]);
        check("starts startswith ''", &[Label("starts"), StartsWith, Text("")]);
        check("ends ends  with ''", &[Label("ends"), EndsWith, Text("")]);
        check("a in c", &[Label("a"), In, Label("c")]);
    }

    #[test]
    fn calls_may_hold_blanks_but_not_before_the_parenthesis() {
        use Word::*;
        check("has( a )", &[Has("a")]);
        check("all( ) global(\t)", &[All, Global]);
        check("has == 'x'", &[Label("has"), Equals, Text("x")]);
        check("has (", &[Label("has"), OpenParen]);
        check("hash()", &[Label("hash"), OpenParen, CloseParen]);
    }

    #[test]
    fn labels_and_strings_have_their_characters() {
        use Word::*;
        check("has(calico/k8s_NS-.1/role)", &[Has("calico/k8s_NS-.1/role")]);
        check("'\"' \"'\" 'ü\n\\'", &[Text("\""), Text("'"), Text("ü\n\\")]);
        let longest = "a".repeat(LABEL_LEN_MAX);
        check(&longest, &[Label(&longest)]);
        check_refused(
            &format!("!{longest}a"),
            "character 2: found a label of 513 characters, expected at most 512",
        );
    }

    #[test]
    fn refusals_name_place_and_expectation() {
        let operators = format!("expected {OPERATORS} after the label 'a'");
        let operand = "expected a label, has(), all(), global(), ! or (";
        for (text, message) in [
            ("a = 'b'", "character 3: found '=', expected =="),
            ("has(a) & has(b)", "character 8: found '&', expected &&"),
            ("has(a) | has(b)", "character 8: found '|', expected ||"),
            ("a == 'b", "character 6: found a string that does not end, expected a closing '"),
            ("\"FOO'", "character 1: found a string that does not end, expected a closing \""),
            ("has()", "character 5: found ')', expected the name of a label"),
            ("has( a ", "character 8: found the end, expected )"),
            ("all(a)", "character 5: found 'a', expected )"),
            ("global(", "character 8: found the end, expected )"),
            ("a inf {}", &format!("character 3: found 'inf', {operators}")),
            ("a starts", &format!("character 3: found 'starts', {operators}")),
            ("a ends withs ''", &format!("character 3: found 'ends', {operators}")),
            ("a has(b)", &format!("character 3: found 'has', {operators}")),
            ("a % b", &format!("character 3: found '%', {operators}")),
            ("%", &format!("character 1: found '%', {operand}")),
            ("ä == 'b'", &format!("character 1: found 'ä', {operand}")),
            ("\n", &format!("character 1: found '\\n', {operand}")),
        ] {
            check_refused(text, message);
        }
    }
}
