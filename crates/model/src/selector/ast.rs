//! A parsed selector: what it matches, and its canonical text.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::{self, Display, Formatter};

/// Anything that can be asked for the value of a label.
pub trait Labels {
    fn value_of(&self, label: &str) -> Option<&str>;
}

impl Labels for BTreeMap<String, String> {
    fn value_of(&self, label: &str) -> Option<&str> {
        self.get(label).map(String::as_str)
    }
}

/// The parser keeps two rules that printing relies on: a group has at least two operands, and what is negated
/// is not itself a negation.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) enum Expr {
    All,
    Global,
    Has(String),
    Label { name: String, test: Test },
    Not(Box<Expr>),
    And(Vec<Expr>),
    Or(Vec<Expr>),
}

/// What is asked of one label's value.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) enum Test {
    Equals(String),
    Differs(String),
    Contains(String),
    StartsWith(String),
    EndsWith(String),
    In(BTreeSet<String>),
    NotIn(BTreeSet<String>),
}

impl Expr {
    pub(super) fn matches(&self, labels: &(impl Labels + ?Sized)) -> bool {
        match self {
            // Whether a rule with `global()` speaks of this object at all is decided before labels are looked at.
            Expr::All | Expr::Global => true,
            Expr::Has(name) => labels.value_of(name).is_some(),
            Expr::Label { name, test } => test.accepts(labels.value_of(name)),
            Expr::Not(operand) => !operand.matches(labels),
            Expr::And(operands) => operands.iter().all(|operand| operand.matches(labels)),
            Expr::Or(operands) => operands.iter().any(|operand| operand.matches(labels)),
        }
    }

    pub(super) fn mentions_global(&self) -> bool {
        match self {
            Expr::Global => true,
            Expr::All | Expr::Has(_) | Expr::Label { .. } => false,
            Expr::Not(operand) => operand.mentions_global(),
            Expr::And(operands) | Expr::Or(operands) => operands.iter().any(Expr::mentions_global),
        }
    }

    pub(super) fn negated(self) -> Expr {
        match self {
            Expr::Not(operand) => *operand,
            other => Expr::Not(Box::new(other)),
        }
    }
}

impl Test {
    fn accepts(&self, value: Option<&str>) -> bool {
        let Some(value) = value else {
            return matches!(self, Test::Differs(_) | Test::NotIn(_));
        };
        match self {
            Test::Equals(wanted) => value == wanted,
            Test::Differs(unwanted) => value != unwanted,
            Test::Contains(part) => value.contains(part),
            Test::StartsWith(start) => value.starts_with(start),
            Test::EndsWith(end) => value.ends_with(end),
            Test::In(wanted) => wanted.contains(value),
            Test::NotIn(unwanted) => !unwanted.contains(value),
        }
    }
}

impl Display for Expr {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            Expr::All => f.write_str("all()"),
            Expr::Global => f.write_str("global()"),
            Expr::Has(name) => write!(f, "has({name})"),
            Expr::Label { name, test } => write!(f, "{name} {test}"),
            Expr::Not(operand) => write!(f, "!{operand}"),
            Expr::And(operands) => write!(f, "({})", joined(operands, " && ")),
            Expr::Or(operands) => write!(f, "({})", joined(operands, " || ")),
        }
    }
}

impl Display for Test {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            Test::Equals(value) => write!(f, "== {}", Quoted(value)),
            Test::Differs(value) => write!(f, "!= {}", Quoted(value)),
            Test::Contains(value) => write!(f, "contains {}", Quoted(value)),
            Test::StartsWith(value) => write!(f, "starts with {}", Quoted(value)),
            Test::EndsWith(value) => write!(f, "ends with {}", Quoted(value)),
            Test::In(values) => write!(f, "in {{{}}}", joined(values.iter().map(Quoted), ", ")),
            Test::NotIn(values) => write!(f, "not in {{{}}}", joined(values.iter().map(Quoted), ", ")),
        }
    }
}

struct Quoted<'a>(&'a String);

impl Display for Quoted<'_> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let quote = if self.0.contains('"') { '\'' } else { '"' };
        write!(f, "{quote}{}{quote}", self.0)
    }
}

/// Prints the items straight into the formatter: building a string per group would copy a nested selector once
/// per level.
fn joined<I>(items: I, separator: &str) -> impl Display
where
    I: IntoIterator<Item: Display, IntoIter: Clone>,
{
    let items = items.into_iter();
    fmt::from_fn(move |f| {
        for (index, item) in items.clone().enumerate() {
            f.write_str(if index > 0 { separator } else { "" })?;
            item.fmt(f)?;
        }
        Ok(())
    })
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use crate::Selector;

    type Pairs = &'static [(&'static str, &'static str)];

    fn check(selector: &str, matching: &[Pairs], others: &[Pairs]) {
        let parsed: Selector = selector.parse().unwrap_or_else(|error| panic!("{selector}: {error}"));
        let printed: Selector = parsed.to_string().parse().unwrap();
        for (pairs, expected) in
            matching.iter().map(|pairs| (pairs, true)).chain(others.iter().map(|pairs| (pairs, false)))
        {
            let labels: BTreeMap<String, String> =
                pairs.iter().map(|(name, value)| (name.to_string(), value.to_string())).collect();
            assert_eq!(parsed.matches(&labels), expected, "{selector} on {labels:?}");
            assert_eq!(printed.matches(&labels), expected, "{selector}, printed, on {labels:?}");
        }
    }

    #[test]
    fn each_test_of_a_label() {
        check("a == 'b'", &[&[("a", "b")], &[("a", "b"), ("c", "d")]], &[&[], &[("a", "c")], &[("c", "b")]]);
        check("a != 'b'", &[&[], &[("a", "c")], &[("c", "b")]], &[&[("a", "b")]]);
        check("a contains 'a'", &[&[("a", "bab")], &[("a", "a")]], &[&[], &[("a", "b")], &[("b", "a")]]);
        check(
            "a starts with 'ab'",
            &[&[("a", "abc")], &[("a", "ab")]],
            &[&[], &[("a", "cab")], &[("a", "a")]],
        );
        check("a ends with 'ab'", &[&[("a", "cab")], &[("a", "ab")]], &[&[], &[("a", "abc")], &[("a", "b")]]);
        check("a in {'b', \"'\"}", &[&[("a", "b")], &[("a", "'")]], &[&[], &[("a", "c")]]);
        check("a not in {'b', \"'\"}", &[&[], &[("a", "c")]], &[&[("a", "b")], &[("a", "'")]]);
        check("has(a)", &[&[("a", "")]], &[&[], &[("b", "a")]]);
        check("!has(a)", &[&[], &[("b", "a")]], &[&[("a", "")]]);
    }

    #[test]
    fn empty_values_and_empty_sets() {
        check("a == ''", &[&[("a", "")]], &[&[], &[("a", "b")]]);
        check("a contains ''", &[&[("a", "")], &[("a", "b")]], &[&[]]);
        check("a in {}", &[], &[&[], &[("a", "")], &[("a", "b")]]);
        check("a not in {}", &[&[], &[("a", "")], &[("a", "b")]], &[]);
    }

    #[test]
    fn everything_and_nothing() {
        check("", &[&[], &[("a", "b")]], &[]);
        check("all()", &[&[], &[("a", "b")]], &[]);
        check("global()", &[&[], &[("a", "b")]], &[]);
        check("!all()", &[], &[&[], &[("a", "b")]]);
    }

    #[test]
    fn negation_binds_tightest_then_and_then_or() {
        check("!a == 'b'", &[&[], &[("a", "c")]], &[&[("a", "b")]]);
        check("!has(a) && has(b)", &[&[("b", "")]], &[&[], &[("a", "")], &[("a", ""), ("b", "")]]);
        check(
            "has(a) || has(b) && has(c)",
            &[&[("a", "")], &[("b", ""), ("c", "")]],
            &[&[("b", "")], &[("c", "")]],
        );
        check("(has(a) || has(b)) && has(c)", &[&[("a", ""), ("c", "")]], &[&[("a", "")], &[("c", "")]]);
        check("!(has(b) || !has(a))", &[&[("a", "")]], &[&[], &[("b", "")], &[("a", ""), ("b", "")]]);
    }

    #[test]
    fn the_canonical_text_is_calicos() {
        for (text, canonical) in [
            ("", "all()"),
            (" (all() )", "all()"),
            ("a=='b'", r#"a == "b""#),
            ("a!='\"'", "a != '\"'"),
            ("a == \"'\"", "a == \"'\""),
            ("a startswith 'x'", r#"a starts with "x""#),
            ("a endswith 'x'", r#"a ends with "x""#),
            ("a notin{}", "a not in {}"),
            (r#"a in {"z", 'z', "x", "y", "x", 'a', '"',}"#, r#"a in {'"', "a", "x", "y", "z"}"#),
            ("! (has( b)||! has(a ))", "!(has(b) || !has(a))"),
            (r#"! (a == "b"&&! c != "d")"#, r#"!(a == "b" && !c != "d")"#),
            ("has(a) && has(b) && has(c)", "(has(a) && has(b) && has(c))"),
            ("(has(a) && has(b)) && has(c)", "((has(a) && has(b)) && has(c))"),
            ("has(a) || has(b) && global()", "(has(a) || (has(b) && global()))"),
            ("!!! has(a)", "!has(a)"),
            ("!(!(has(a)))", "has(a)"),
        ] {
            assert_eq!(text.parse::<Selector>().unwrap().to_string(), canonical, "{text}");
        }
    }
}
