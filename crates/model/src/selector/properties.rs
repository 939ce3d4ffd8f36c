//! Laws of the selector language, tried on random selectors, random spellings and random labels.

use std::collections::BTreeMap;

use proptest::prelude::*;

use super::Selector;

/// A selector in the simplest form that can be spelled and evaluated, sharing no code with the real one.
#[derive(Clone, Debug)]
enum Plain {
    All,
    Global,
    Has(String),
    Value(String, Comparison, String),
    Set(String, bool, Vec<String>),
    Not(Box<Plain>),
    And(Box<Plain>, Box<Plain>),
    Or(Box<Plain>, Box<Plain>),
}

#[derive(Clone, Copy, Debug)]
enum Comparison {
    Equals,
    Differs,
    Contains,
    Starts,
    Ends,
}

impl Plain {
    fn holds(&self, labels: &BTreeMap<String, String>) -> bool {
        match self {
            Plain::All | Plain::Global => true,
            Plain::Has(name) => labels.contains_key(name),
            Plain::Value(name, comparison, wanted) => match (labels.get(name), comparison) {
                (None, comparison) => matches!(comparison, Comparison::Differs),
                (Some(value), Comparison::Equals) => value == wanted,
                (Some(value), Comparison::Differs) => value != wanted,
                (Some(value), Comparison::Contains) => value.find(wanted.as_str()).is_some(),
                (Some(value), Comparison::Starts) => value.strip_prefix(wanted.as_str()).is_some(),
                (Some(value), Comparison::Ends) => value.strip_suffix(wanted.as_str()).is_some(),
            },
            Plain::Set(name, wanted_inside, values) => {
                let inside = labels.get(name).is_some_and(|value| values.iter().any(|one| one == value));
                inside == *wanted_inside
            }
            Plain::Not(operand) => !operand.holds(labels),
            Plain::And(left, right) => left.holds(labels) & right.holds(labels),
            Plain::Or(left, right) => left.holds(labels) | right.holds(labels),
        }
    }

    /// One of the many ways to write it: `style` picks blanks, quotes and the spelling of operators.
    fn spelled(&self, style: &mut Style) -> String {
        let s = style.blanks();
        match self {
            Plain::All => format!("all({s})"),
            Plain::Global => format!("global({s})"),
            Plain::Has(name) => format!("has({s}{name}{s})"),
            Plain::Value(name, comparison, value) => {
                let operator = match comparison {
                    Comparison::Equals => format!("{s}=={s}"),
                    Comparison::Differs => format!("{s}!={s}"),
                    Comparison::Contains => format!(" {s}contains{s}"),
                    Comparison::Starts => format!(" {s}starts{s}with{s}"),
                    Comparison::Ends => format!(" {s}ends{s}with{s}"),
                };
                format!("{name}{operator}{}", style.quoted(value))
            }
            Plain::Set(name, inside, values) => {
                let operator = if *inside { "in".to_owned() } else { format!("not{s}in") };
                let values: Vec<String> = values.iter().map(|value| style.quoted(value)).collect();
                let comma = if !values.is_empty() && style.coin() { "," } else { "" };
                format!("{name} {operator}{s}{{{}{comma}{s}}}", values.join(&format!("{s},{s}")))
            }
            Plain::Not(operand) => format!("!{s}{}", self.operand_spelled(operand, style)),
            Plain::And(left, right) => {
                let left = self.operand_spelled(left, style);
                format!("{left}{s}&&{s}{}", self.operand_spelled(right, style))
            }
            Plain::Or(left, right) => {
                let left = self.operand_spelled(left, style);
                format!("{left}{s}||{s}{}", self.operand_spelled(right, style))
            }
        }
    }

    /// Parentheses where the grammar needs them, and sometimes where it does not.
    fn operand_spelled(&self, operand: &Plain, style: &mut Style) -> String {
        let text = operand.spelled(style);
        let same_group = operand.binding() == self.binding() && !matches!(self, Plain::Not(_));
        let needed = operand.binding() < self.binding();
        let wanted = (style.regroup || !same_group) && style.coin();
        if needed || wanted { format!("({text})") } else { text }
    }

    fn binding(&self) -> u8 {
        match self {
            Plain::Or(..) => 0,
            Plain::And(..) => 1,
            _ => 2,
        }
    }
}

/// A stream of small choices, drawn by the test's generator.
#[derive(Debug)]
struct Style {
    choices: Vec<u8>,
    used: usize,
    /// Whether `a && b && c` may also be written `(a && b) && c`, which matches the same but is another selector.
    regroup: bool,
}

impl Style {
    fn choice(&mut self) -> u8 {
        self.used += 1;
        self.choices[self.used % self.choices.len()]
    }

    fn coin(&mut self) -> bool {
        self.choice().is_multiple_of(2)
    }

    fn blanks(&mut self) -> &'static str {
        ["", " ", "\t", "  "][usize::from(self.choice() % 4)]
    }

    fn quoted(&mut self, value: &str) -> String {
        let single = if value.contains('"') { true } else { !value.contains('\'') && self.coin() };
        if single { format!("'{value}'") } else { format!("\"{value}\"") }
    }
}

/// Few names and short values, so that labels and selectors often speak of the same.
fn name() -> impl Strategy<Value = String> {
    prop_oneof![
        Just("a"),
        Just("b"),
        Just("in"),
        Just("not"),
        Just("has"),
        Just("all"),
        Just("k8s.io/app_1-x")
    ]
    .prop_map(str::to_owned)
}

fn value() -> impl Strategy<Value = String> {
    prop_oneof![4 => "[xy]{0,3}", 1 => "[^\"]{0,6}", 1 => "[^']{0,6}"]
}

fn comparison() -> impl Strategy<Value = Comparison> {
    use Comparison::*;
    prop_oneof![Just(Equals), Just(Differs), Just(Contains), Just(Starts), Just(Ends)]
}

fn plain() -> impl Strategy<Value = Plain> {
    let leaf = prop_oneof![
        1 => Just(Plain::All),
        1 => Just(Plain::Global),
        2 => name().prop_map(Plain::Has),
        5 => (name(), comparison(), value()).prop_map(|(name, test, value)| Plain::Value(name, test, value)),
        3 => (name(), any::<bool>(), prop::collection::vec(value(), 0..4))
            .prop_map(|(name, inside, values)| Plain::Set(name, inside, values)),
    ];
    leaf.prop_recursive(5, 40, 2, |inner| {
        prop_oneof![
            inner.clone().prop_map(|operand| Plain::Not(Box::new(operand))),
            (inner.clone(), inner.clone()).prop_map(|(a, b)| Plain::And(Box::new(a), Box::new(b))),
            (inner.clone(), inner).prop_map(|(a, b)| Plain::Or(Box::new(a), Box::new(b))),
        ]
    })
}

fn style() -> impl Strategy<Value = Style> {
    prop::collection::vec(any::<u8>(), 1..40).prop_map(|choices| Style { choices, used: 0, regroup: true })
}

fn labels() -> impl Strategy<Value = BTreeMap<String, String>> {
    prop::collection::btree_map(name(), value(), 0..5)
}

/// Text made of the language's own pieces: far more often nearly right than arbitrary text is.
fn nearly_a_selector() -> impl Strategy<Value = String> {
    let piece = prop_oneof![
        prop::sample::select(vec![
            "a",
            "in",
            "not",
            "notin",
            "starts with",
            "ends",
            "contains",
            "has(",
            "all()",
            "global(",
            "(",
            ")",
            "{",
            "}",
            ",",
            "==",
            "=",
            "!=",
            "!",
            "&&",
            "&",
            "||",
            "'x'",
            "\"",
            "'",
            " ",
            "\t",
            "\n",
            "ü",
        ])
        .prop_map(str::to_owned),
        "\\PC",
    ];
    prop::collection::vec(piece, 0..20).prop_map(|pieces| pieces.concat())
}

fn parse(text: &str) -> Selector {
    text.parse().unwrap_or_else(|error| panic!("{text:?}: {error}"))
}

fn check_any_text(text: &str) -> Result<(), TestCaseError> {
    match text.parse::<Selector>() {
        Ok(selector) => prop_assert_eq!(parse(&selector.to_string()), selector),
        Err(error) => {
            prop_assert!(error.position() <= text.chars().count() + 1);
            prop_assert_eq!(error.pointer().lines().count(), 2);
        }
    }
    Ok(())
}

proptest! {
    #[test]
    fn evaluation_agrees_with_the_plain_one(plain in plain(), mut style in style(), labels in labels()) {
        let text = plain.spelled(&mut style);
        prop_assert_eq!(parse(&text).matches(&labels), plain.holds(&labels), "{}", text);
    }

    #[test]
    fn printing_and_parsing_again_changes_nothing(plain in plain(), mut style in style()) {
        let selector = parse(&plain.spelled(&mut style));
        let printed = selector.to_string();
        let again = parse(&printed);
        prop_assert_eq!(&again, &selector, "{}", &printed);
        prop_assert_eq!(again.to_string(), printed);
    }

    #[test]
    fn spelling_does_not_matter(plain in plain(), mut one in style(), mut other in style()) {
        (one.regroup, other.regroup) = (false, false);
        prop_assert_eq!(parse(&plain.spelled(&mut one)), parse(&plain.spelled(&mut other)));
    }

    #[test]
    fn de_morgan(a in plain(), b in plain(), mut style in style(), labels in labels()) {
        let (a, b) = (a.spelled(&mut style), b.spelled(&mut style));
        let neither = parse(&format!("!(({a}) || ({b}))")).matches(&labels);
        prop_assert_eq!(parse(&format!("!({a}) && !({b})")).matches(&labels), neither);
        let not_both = parse(&format!("!(({a}) && ({b}))")).matches(&labels);
        prop_assert_eq!(parse(&format!("!({a}) || !({b})")).matches(&labels), not_both);
    }

    #[test]
    fn double_negation_is_none(plain in plain(), mut style in style()) {
        let text = plain.spelled(&mut style);
        prop_assert_eq!(parse(&format!("!!({text})")), parse(&text));
        prop_assert_eq!(parse(&format!("!(!({text}))")), parse(&text));
    }

    #[test]
    fn a_negation_matches_what_the_rest_does_not(plain in plain(), mut style in style(), labels in labels()) {
        let text = plain.spelled(&mut style);
        prop_assert_ne!(parse(&format!("!({text})")).matches(&labels), parse(&text).matches(&labels));
    }

    #[test]
    fn arbitrary_text_is_answered(text in any::<String>()) {
        check_any_text(&text)?;
    }

    #[test]
    fn nearly_right_text_is_answered(text in nearly_a_selector()) {
        check_any_text(&text)?;
    }
}
