//! Manifests in, resources or the exact complaint out.

use model::manifest::{self, ManifestError};

fn complaint(text: &str) -> (String, Option<String>) {
    let error = manifest::parse(text).expect_err("the manifest should be refused");
    (error.to_string(), error.hint())
}

fn check_refused(text: &str, message: &str, hint: Option<&str>) {
    assert_eq!(complaint(text), (message.to_owned(), hint.map(str::to_owned)), "for:\n{text}");
}

const POOL: &str = "apiVersion: projectcalico.org/v3\nkind: IPPool\nmetadata: {name: a}\n";

#[test]
fn documents_lists_and_arrays_are_read_in_order() {
    let text = format!(
        "{POOL}spec: {{cidr: 10.0.0.0/16}}\n---\n# nothing here\n---\n{}\n---\n{}\n",
        r#"[{"apiVersion": "projectcalico.org/v3", "kind": "Node", "metadata": {"name": "b"}}]"#,
        "apiVersion: projectcalico.org/v3\nkind: IPPoolList\nitems:\n- metadata: {name: c}\n  spec: {cidr: 10.1.0.0/16}\n"
    );
    let located = manifest::parse_located(&text).unwrap();
    let names: Vec<_> = located.iter().map(|entry| entry.resource.metadata.name.as_str()).collect();
    assert_eq!(names, ["a", "b", "c"]);
    assert_eq!(located[2].at.to_string(), "document 4, line 13");
    assert!(manifest::parse("").unwrap().is_empty());
    assert!(manifest::parse("---\n---\n...\n# only a comment\n").unwrap().is_empty());
}

#[test]
fn texts_stay_texts_and_numbers_stay_numbers() {
    let text = format!(
        "{POOL}spec:\n  cidr: 10.0.0.0/16\n  nodeSelector: yes\n  blockSize: 26\n  natOutgoing: yes\n  namespaceSelector: 017\n"
    );
    let pool = &manifest::parse(&text).unwrap()[0];
    assert_eq!(pool.spec("nodeSelector").unwrap(), "yes");
    assert_eq!(pool.spec("namespaceSelector").unwrap(), "017");
    assert_eq!(pool.spec("natOutgoing").unwrap(), true);
    assert_eq!(pool.spec("blockSize").unwrap(), 26);
}

#[test]
fn mistakes_are_named_with_place_field_and_advice() {
    check_refused("a: [1", "document 1, line 1: not valid YAML or JSON: unclosed bracket '['", None);
    check_refused(
        "kind: IPPol",
        "document 1, line 1: \"IPPol\" is not a kind known here",
        Some("did you mean IPPool?"),
    );
    check_refused("---\n---\nmetadata: {}", "document 2, line 3: kind is missing", None);
    check_refused(
        "kind: NetworkPolicy\napiVersion: networking.k8s.io/v1",
        "document 1, line 2: NetworkPolicy has apiVersion \"networking.k8s.io/v1\"; only projectcalico.org/v3 is known here",
        Some("this is Kubernetes' own NetworkPolicy: apply it with kubectl"),
    );
    check_refused(
        &format!("{POOL}spec:\n  cdir: 10.0.0.0/16"),
        "document 1, line 5: IPPool has no field spec.cdir",
        Some("did you mean cidr?"),
    );
    check_refused(
        &format!("{POOL}spec:\n  cidr: 10.0.0.0/16\n  cidr: 10.1.0.0/16"),
        "document 1, line 6: spec.cidr is given twice",
        None,
    );
    check_refused(
        &format!("{POOL}spec:\n  blockSize: \"26\""),
        "document 1, line 5: spec.blockSize: \"26\": must be a whole number",
        Some("write it without quotes"),
    );
}

#[test]
fn bombs_are_refused_quickly() {
    let mut bomb = String::from("a0: &a0 [x,x,x,x,x,x,x,x,x,x]\n");
    for level in 1..10 {
        let before = level - 1;
        bomb += &format!("a{level}: &a{level} [{}]\n", vec![format!("*a{before}"); 10].join(","));
    }
    assert!(matches!(manifest::parse(&bomb), Err(ManifestError::Excess { .. })));
    for text in ["[".repeat(100_000), "- ".repeat(100_000), "{a: ".repeat(100_000), "? ".repeat(100_000)] {
        assert!(manifest::parse(&text).is_err());
    }
}
