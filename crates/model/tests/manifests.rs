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
    check_refused("kind: IPPol", "document 1, line 1: unknown kind \"IPPol\"", Some("did you mean IPPool?"));
    check_refused("---\n---\nmetadata: {}", "document 2, line 3: kind is missing", None);
    check_refused(
        "kind: NetworkPolicy\napiVersion: networking.k8s.io/v1",
        "document 1, line 2: NetworkPolicy has apiVersion \"networking.k8s.io/v1\"; only projectcalico.org/v3 is supported",
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
    let large = "x".repeat(1 << 20);
    let copies = format!("a: &a {large}\nb: [{}]\n", "*a, ".repeat(10_000));
    assert_eq!(complaint(&copies).0, "document 1, line 2: aliases expand to more than 4194304 bytes");
    let nested = format!("{}{large}{}", "[&a".to_owned() + &" [&a".repeat(60), "]".repeat(61));
    assert_eq!(
        complaint(&nested.replace("[&a", "&a [")).0,
        "document 1, line 1: anchors hold more than 4194304 bytes"
    );
    for text in ["[".repeat(100_000), "- ".repeat(100_000), "{a: ".repeat(100_000), "? ".repeat(100_000)] {
        assert!(manifest::parse(&text).is_err());
    }
}

/// The value of one field of the one resource in a text.
fn spec(text: &str, field: &str) -> serde_json::Value {
    let resources = manifest::parse(text).unwrap_or_else(|error| panic!("{error}\n{text}"));
    assert_eq!(resources.len(), 1);
    resources[0].spec(field).cloned().unwrap_or(serde_json::Value::Null)
}

#[test]
fn kind_may_stand_anywhere() {
    let text =
        "spec: {cidr: 10.0.0.0/16}\nmetadata: {name: a}\nkind: IPPool\napiVersion: projectcalico.org/v3\n";
    assert_eq!(spec(text, "cidr"), "10.0.0.0/16");
}

#[test]
fn json_is_read_with_all_it_allows() {
    let head = r#"{"apiVersion":"projectcalico.org/v3","kind":"IPPool","metadata":{"name":"a"#;
    let text = format!("{head}\"}},\n\t\"spec\":\t{{\"cidr\":\"\\u0031\\ud83d\\ude00\\/\u{7f}\u{2028}\"}}}}");
    assert_eq!(spec(&text, "cidr"), "1\u{1f600}/\u{7f}\u{2028}");
    let long = "k".repeat(5000);
    let text = format!(r#"{head}","annotations":{{"{long}":"v"}}}}}}"#);
    assert_eq!(manifest::parse(&text).unwrap()[0].metadata.annotations[&long], "v");
    check_refused(
        &format!(r#"{head}","name":"b"}}}}"#),
        "document 1, line 1: metadata.name is given twice",
        None,
    );
    assert!(manifest::parse(&format!("{head}\"}}")).is_err(), "a brace is missing");
}

#[test]
fn files_from_other_systems_are_read() {
    let text = format!("\u{feff}{POOL}spec: {{cidr: 10.0.0.0/16}}\n").replace('\n', "\r\n");
    assert_eq!(spec(&text, "cidr"), "10.0.0.0/16");
}

#[test]
fn aliases_merges_and_text_tags_work() {
    let text = format!(
        "{POOL}spec:\n  <<: &common {{natOutgoing: true, cidr: 10.9.0.0/16}}\n  cidr: &net 10.0.0.0/16\n  nodeSelector: !!str 017\n  namespaceSelector: *net\n"
    );
    assert_eq!(spec(&text, "cidr"), "10.0.0.0/16", "what is said itself counts");
    assert_eq!(spec(&text, "natOutgoing"), true);
    assert_eq!(spec(&text, "nodeSelector"), "017");
    assert_eq!(spec(&text, "namespaceSelector"), "10.0.0.0/16");
}

#[test]
fn yaml_that_means_nothing_here_is_refused() {
    for (rest, message) in [
        ("spec: {? [a] : b}", "document 1, line 4: not valid YAML or JSON: a key must be plain text"),
        (
            "spec: {cidr: !secret x}",
            "document 1, line 4: not valid YAML or JSON: the tag !secret is not supported",
        ),
        (
            "spec: &a {cidr: *a}",
            "document 1, line 4: not valid YAML or JSON: an alias refers to a value that contains it",
        ),
        ("spec: {<<: x}", "document 1, line 4: not valid YAML or JSON: << can only merge maps"),
        (
            "spec: {cidr: *x}",
            "document 1, line 4: not valid YAML or JSON: while parsing node, found unknown anchor",
        ),
        (
            "spec:\n\tcidr: x",
            "document 1, line 5: not valid YAML or JSON: tabs disallowed within this context (block indentation)",
        ),
        ("spec: [a]", "document 1, line 4: spec: a list: must be a map"),
        ("spec: soon", "document 1, line 4: spec: soon: must be a map"),
        ("spec: {natOutgoing: 1}", "document 1, line 4: spec.natOutgoing: 1: must be true or false"),
    ] {
        check_refused(&format!("{POOL}{rest}"), message, None);
    }
}

#[test]
fn what_is_no_resource_is_refused() {
    for (text, message) in [
        ("just words", "document 1, line 1: expected a resource, found just words"),
        ("- [a]", "document 1, line 1: [0][0]: expected a resource, found a"),
        ("kind: List\nitems: {}", "document 1, line 2: items: a map: must be a list"),
        ("kind: IPPoolList", "document 1, line 1: items: nothing: must be a list"),
        ("kind: List\nitems: [{}]", "document 1, line 2: items[0]: kind is missing"),
        ("kind: IPPool", "document 1, line 1: IPPool has no apiVersion; projectcalico.org/v3 is required"),
        ("kind: [a]", "document 1, line 1: kind is missing"),
        ("kind: PodList\nitems: []", "document 1, line 1: unknown kind \"Pod\""),
    ] {
        let (found, _) = complaint(text);
        assert_eq!(found, message, "for: {text}");
    }
    assert!(manifest::parse("kind: List\nitems:\n").unwrap().is_empty());
}

#[test]
fn null_is_nothing_said() {
    let text = format!(
        "{POOL}spec: {{cidr: 10.0.0.0/16, nodeSelector: ~, allowedUses: null, natOutgoing: }}\nstatus:\n"
    );
    let pool = &manifest::parse(&text).unwrap()[0];
    assert_eq!(pool.body["spec"].as_object().unwrap().len(), 1);
    assert!(!pool.body.contains_key("status"));
}

#[test]
fn a_manifest_that_is_too_large_is_refused_at_once() {
    let text = " ".repeat(manifest::MANIFEST_BYTES_MAX + 1);
    let (message, hint) = complaint(&text);
    assert_eq!(message, "the manifest is too large: 33554433 bytes, at most 33554432 can be read at once");
    assert_eq!(hint.as_deref(), Some("split it into several files"));
}
