//! Selectors made of selectors, and what a selector asks for at least.

use super::Selector;
use super::ast::{Expr, Test};

/// Something that is true of all labels that a selector matches: there is such a label, with one of these values if any are given.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Requirement<'a> {
    pub label: &'a str,
    /// Empty if any value will do.
    pub values: Vec<&'a str>,
}

impl Selector {
    /// `label == "value"`.
    pub fn equals(label: impl Into<String>, value: impl Into<String>) -> Selector {
        Selector { root: Expr::Label { name: label.into(), test: Test::Equals(value.into()) } }
    }

    /// `label in {…}`.
    pub fn is_in(label: impl Into<String>, values: impl IntoIterator<Item = String>) -> Selector {
        Selector { root: Expr::Label { name: label.into(), test: Test::In(values.into_iter().collect()) } }
    }

    /// `has(label)`.
    pub fn has(label: impl Into<String>) -> Selector {
        Selector { root: Expr::Has(label.into()) }
    }

    /// What all of them match. Those that match everything are left out.
    pub fn all_of(selectors: impl IntoIterator<Item = Selector>) -> Selector {
        let mut operands: Vec<Expr> =
            selectors.into_iter().map(|selector| selector.root).filter(|root| *root != Expr::All).collect();
        let root = match operands.len() {
            0 => Expr::All,
            1 => operands.remove(0),
            _ => Expr::And(operands),
        };
        Selector { root }
    }

    pub fn negated(self) -> Selector {
        Selector { root: self.root.negated() }
    }

    /// The same question, asked of labels whose names have this prefix. Where the selector says `all()`, `of_all` stands instead, and `of_global`
    /// for `global()`.
    pub fn prefixed(&self, prefix: &str, of_all: &Selector, of_global: &Selector) -> Selector {
        Selector { root: prefixed(&self.root, prefix, &of_all.root, &of_global.root) }
    }

    /// What must hold of a record's labels for the selector to match. Not all there is: negations and `||` say nothing here.
    pub fn requirements(&self) -> Vec<Requirement<'_>> {
        let mut found = Vec::new();
        require(&self.root, &mut found);
        found
    }
}

fn prefixed(expr: &Expr, prefix: &str, of_all: &Expr, of_global: &Expr) -> Expr {
    let each = |operands: &[Expr]| {
        operands.iter().map(|operand| prefixed(operand, prefix, of_all, of_global)).collect()
    };
    match expr {
        Expr::All => of_all.clone(),
        Expr::Global => of_global.clone(),
        Expr::Has(name) => Expr::Has(format!("{prefix}{name}")),
        Expr::Label { name, test } => Expr::Label { name: format!("{prefix}{name}"), test: test.clone() },
        Expr::Not(operand) => prefixed(operand, prefix, of_all, of_global).negated(),
        Expr::And(operands) => Expr::And(each(operands)),
        Expr::Or(operands) => Expr::Or(each(operands)),
    }
}

fn require<'a>(expr: &'a Expr, found: &mut Vec<Requirement<'a>>) {
    match expr {
        Expr::Has(label) => found.push(Requirement { label, values: Vec::new() }),
        Expr::Label { name, test } => {
            let values = match test {
                Test::Equals(value) => vec![value.as_str()],
                // An empty set matches nothing, so any requirement is true.
                Test::In(values) => values.iter().map(String::as_str).collect(),
                Test::Contains(_) | Test::StartsWith(_) | Test::EndsWith(_) => Vec::new(),
                Test::Differs(_) | Test::NotIn(_) => return,
            };
            found.push(Requirement { label: name, values });
        }
        Expr::And(operands) => operands.iter().for_each(|operand| require(operand, found)),
        Expr::All | Expr::Global | Expr::Not(_) | Expr::Or(_) => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn selector(text: &str) -> Selector {
        text.parse().unwrap()
    }

    #[test]
    fn what_is_put_together_is_what_its_text_says() {
        let both =
            Selector::all_of([Selector::equals("a", "b"), Selector::all(), Selector::has("c").negated()]);
        assert_eq!(both, selector("a == 'b' && !has(c)"));
        assert_eq!(Selector::all_of([]), selector("all()"));
        assert_eq!(
            Selector::all_of([Selector::is_in("a", ["y".into(), "x".into()])]),
            selector("a in {'x', 'y'}")
        );
        assert_eq!(Selector::has("a").negated().negated(), selector("has(a)"));
    }

    #[test]
    fn a_prefix_stands_before_every_label() {
        let (all, global) = (Selector::has("ns"), Selector::has("ns").negated());
        for (text, expected) in [
            ("a == 'b' && !has(c)", "p.a == 'b' && !has(p.c)"),
            ("all()", "has(ns)"),
            ("global()", "!has(ns)"),
            ("!(global())", "has(ns)"),
            ("a in {'x'} || !all()", "p.a in {'x'} || !has(ns)"),
        ] {
            assert_eq!(selector(text).prefixed("p.", &all, &global), selector(expected), "{text}");
        }
    }

    #[test]
    fn a_selector_asks_for_what_its_conjunction_says() {
        let of = |text: &str| {
            let parsed = selector(text);
            let found = parsed.requirements();
            found
                .iter()
                .map(|found| format!("{}={}", found.label, found.values.join(",")))
                .collect::<Vec<_>>()
        };
        assert_eq!(
            of("a == 'b' && (c in {'x', 'y'} && has(d)) && e contains 'f'"),
            ["a=b", "c=x,y", "d=", "e="]
        );
        assert!(of("a != 'b' && c not in {'d'} && !has(e) && !(f == 'g') && (has(h) || has(i))").is_empty());
    }
}
