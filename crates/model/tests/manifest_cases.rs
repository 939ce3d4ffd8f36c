//! Given this manifest, expect these lines: one text file per kind in `tests/cases/`.
//!
//! A file starts with the head of a document. Each case is `== title`, the rest of the document, `--`, and the
//! expected lines: `ok`, or the violations, or `error:` and `hint:` if the text cannot be read at all. A case that
//! starts with `apiVersion:` or `kind:` stands alone, without the head.
//!
//! `cargo xtask accept` writes what is found as what is expected.

#![expect(clippy::disallowed_methods, reason = "the cases are files of this test")]

use std::path::{Path, PathBuf};

use model::{Kind, manifest, validate};

struct Case {
    title: String,
    body: String,
    expected: Vec<String>,
}

fn read_cases(text: &str) -> (String, Vec<Case>) {
    let (mut head, mut cases) = (String::new(), Vec::<Case>::new());
    let mut in_body = true;
    for line in text.lines() {
        match (line.strip_prefix("== "), cases.last_mut()) {
            (Some(title), _) => {
                cases.push(Case { title: title.to_owned(), body: String::new(), expected: Vec::new() });
                in_body = true;
            }
            (None, None) => head += &format!("{line}\n"),
            (None, Some(_)) if line == "--" => in_body = false,
            (None, Some(case)) if in_body => case.body += &format!("{line}\n"),
            (None, Some(_)) if line.is_empty() => {}
            (None, Some(case)) => case.expected.push(line.to_owned()),
        }
    }
    (head, cases)
}

fn outcome(head: &str, case: &Case) -> Vec<String> {
    let alone = case.body.starts_with("apiVersion:") || case.body.starts_with("kind:");
    let text = if alone { case.body.clone() } else { format!("{head}{}", case.body) };
    let resources = match manifest::parse(&text) {
        Ok(resources) => resources,
        Err(error) => {
            let hint = error.hint().map(|hint| format!("hint: {hint}"));
            return std::iter::once(format!("error: {error}")).chain(hint).collect();
        }
    };
    let mut lines = Vec::new();
    for mut resource in resources {
        resource.fill_defaults();
        lines.extend(validate::validate(&resource).iter().map(ToString::to_string));
    }
    if lines.is_empty() { vec!["ok".to_owned()] } else { lines }
}

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/cases")
}

#[test]
fn every_case_has_the_expected_outcome() {
    let mut wrong = Vec::new();
    for kind in Kind::all() {
        let path = folder().join(format!("{}.txt", kind.name().to_lowercase()));
        let text =
            std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        let (head, cases) = read_cases(&text);
        let (mut accepted, mut refused, mut written) = (0, 0, head.clone());
        for case in &cases {
            let found = outcome(&head, case);
            if found == ["ok"] {
                accepted += 1
            } else {
                refused += 1
            }
            if found != case.expected {
                wrong.push(format!(
                    "{kind}, {}:\n  expected {:#?}\n  found {found:#?}",
                    case.title, case.expected
                ));
            }
            written += &format!("== {}\n{}--\n{}\n\n", case.title, case.body, found.join("\n"));
        }
        assert!(
            accepted > 0 && refused > 0,
            "{kind} needs manifests that are accepted and some that are refused"
        );
        if std::env::var_os("PLUMB_ACCEPT").is_some() {
            std::fs::write(&path, format!("{}\n", written.trim_end())).expect("cases can be written");
            wrong.clear();
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
