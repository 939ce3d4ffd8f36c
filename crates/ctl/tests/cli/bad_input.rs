//! Input that must be refused: a clear word about it, the right exit code, and a store that is as it was.

use proptest::prelude::*;

use crate::harness::{Desk, machine_has_own_config};

const POOL: &str =
    "{apiVersion: projectcalico.org/v3, kind: IPPool, metadata: {name: pods}, spec: {cidr: 10.244.0.0/16}}";

/// A good resource in front: if anything at all were written, it would be this.
const GOOD: &str = "apiVersion: projectcalico.org/v3\nkind: NetworkSet\nmetadata: {name: good}\nspec: {}\n";

/// Applies a file with one good and one bad document. Nothing may change.
#[track_caller]
fn refuses(bad: &str, texts: &[&str]) {
    let desk = Desk::on_sqlite();
    desk.apply(POOL);
    desk.file("input.yaml", format!("{GOOD}---\n{bad}"));
    let before = desk.dump();
    for verb in ["apply", "create"] {
        desk.plumb(&[verb, "-f", "input.yaml"]).refused(1, texts);
        assert_eq!(desk.dump(), before, "{verb} left something behind");
    }
}

fn pool(name: &str, spec: &str) -> String {
    format!("apiVersion: projectcalico.org/v3\nkind: IPPool\nmetadata: {{name: {name}}}\nspec: {{{spec}}}\n")
}

#[test]
fn broken_yaml() {
    refuses("kind: IPPool\n  spec: [", &["input.yaml: document 2, line", "not valid YAML or JSON"]);
}

#[test]
fn broken_json() {
    refuses("{\"kind\": \"IPPool\", }}", &["input.yaml: document 2"]);
}

#[test]
fn wrong_kind() {
    let bad = "apiVersion: projectcalico.org/v3\nkind: IPool\nmetadata: {name: x}\n";
    refuses(bad, &["input.yaml: document 2, line", "unknown kind \"IPool\"", "hint: did you mean IPPool?"]);
}

#[test]
fn wrong_api_version() {
    let bad = "apiVersion: networking.k8s.io/v1\nkind: NetworkPolicy\nmetadata: {name: x}\n";
    refuses(bad, &["apiVersion \"networking.k8s.io/v1\"", "hint: this is Kubernetes' own NetworkPolicy"]);
}

#[test]
fn unknown_field() {
    refuses(
        &pool("x", "cidr: 10.0.0.0/16, blockSiz: 26"),
        &["IPPool has no field spec.blockSiz", "blockSize?"],
    );
}

#[test]
fn overlapping_pools() {
    refuses(
        &pool("other", "cidr: 10.244.128.0/17"),
        &["IPPool(other): spec.cidr: 10.244.128.0/17: overlaps pool pods (10.244.0.0/16)"],
    );
}

#[test]
fn pools_of_one_file_that_overlap() {
    let both = format!("{}---\n{}", pool("a", "cidr: 10.1.0.0/16"), pool("b", "cidr: 10.1.2.0/24"));
    refuses(&both, &["IPPool(b): spec.cidr: 10.1.2.0/24: overlaps pool a (10.1.0.0/16)"]);
}

#[test]
fn what_is_refused_offline_does_not_even_make_the_store() {
    let desk = Desk::on_sqlite();
    let both = format!("{}---\n{}", pool("a", "cidr: 10.1.0.0/16"), pool("b", "cidr: 10.1.2.0/24"));
    desk.file("input.yaml", both);
    for verb in ["validate", "apply", "create"] {
        desk.plumb(&[verb, "-f", "input.yaml"]).refused(1, &["IPPool(b)", "overlaps pool a (10.1.0.0/16)"]);
    }
    assert!(desk.open().is_none(), "a store was made for nothing");
}

#[test]
fn block_size_too_small() {
    refuses(
        &pool("x", "cidr: 10.1.0.0/16, blockSize: 10"),
        &["IPPool(x): spec.blockSize: 10: must be between 20 and 32"],
    );
}

#[test]
fn pool_smaller_than_a_block() {
    refuses(&pool("x", "cidr: 10.1.0.0/28"), &["IPPool(x): spec.", "10.1.0.0/28"]);
}

#[test]
fn changed_network_of_a_pool() {
    let desk = Desk::on_sqlite();
    desk.apply(POOL);
    desk.file("input.yaml", pool("pods", "cidr: 10.9.0.0/16"));
    let before = desk.dump();
    desk.plumb(&["apply", "-f", "input.yaml"])
        .refused(1, &["spec.cidr", "cannot be changed (is 10.244.0.0/16)"]);
    assert_eq!(desk.dump(), before);
}

#[test]
fn name_with_a_slash() {
    refuses(&pool("a/b", "cidr: 10.1.0.0/16"), &["IPPool(a/b): metadata.name: a/b: "]);
}

#[test]
fn endpoint_name_that_does_not_fit_its_spec() {
    let bad = "apiVersion: projectcalico.org/v3\nkind: WorkloadEndpoint\nmetadata: {name: node1-k8s-web-eth0}\n\
               spec: {orchestrator: k8s, node: node2, pod: web, endpoint: eth0}\n";
    refuses(bad, &["metadata.name: node1-k8s-web-eth0", "node2-k8s-web-eth0"]);
}

#[test]
fn namespace_where_none_belongs() {
    let bad = pool("x", "cidr: 10.1.0.0/16").replace("{name: x}", "{name: x, namespace: shop}");
    refuses(&bad, &["IPPool is not a namespaced resource"]);
}

#[test]
fn records_of_address_management() {
    let bad = "apiVersion: projectcalico.org/v3\nkind: IPAMHandle\nmetadata: {name: x}\nspec: {handleID: x, block: {}}\n";
    refuses(bad, &["IPAMHandle cannot be written", "hint: it changes with its pods and pools"]);
}

#[test]
fn file_of_50_megabytes() {
    let desk = Desk::on_sqlite();
    desk.apply(POOL);
    let before = desk.dump();
    let line = "# a comment that is here to be long and to say nothing at all\n";
    let huge = format!("{GOOD}{}", line.repeat((50 << 20) / line.len()));
    desk.file("huge.yaml", &huge);
    let texts = [
        "huge.yaml is larger than the limit of 16777216 bytes",
        "hint: split it into several files, or raise the limit",
    ];
    desk.plumb(&["apply", "-f", "huge.yaml"]).refused(1, &texts);
    let from_stdin = desk.plumb_with_stdin(&["apply", "-f", "-"], huge.as_bytes());
    from_stdin.refused(1, &["stdin is larger than the limit of 16777216 bytes"]);
    // The limit is the operator's to raise, up to what can be held in memory.
    desk.plumb(&["apply", "-f", "huge.yaml", "--max-input-size", "64M"]).refused(1, &["too large"]);
    assert_eq!(desk.dump(), before);
    desk.plumb(&["apply", "-f", "huge.yaml", "--max-input-size", "1"])
        .refused(1, &["larger than the limit of 1 bytes"]);
    desk.plumb(&["apply", "-f", "huge.yaml", "--max-input-size", "big"]).refused(2, &["--max-input-size"]);
}

#[test]
fn bytes_that_are_no_text() {
    let desk = Desk::on_sqlite();
    desk.apply(POOL);
    let before = desk.dump();
    desk.file("garbage.yaml", [0x89, b'P', b'N', b'G', 0, 0xff]);
    desk.plumb(&["apply", "-f", "garbage.yaml"])
        .refused(1, &["garbage.yaml is not text: byte 0 (0x89) is not UTF-8"]);
    desk.file("nul.yaml", b"kind: IPPool\0\n");
    desk.plumb(&["apply", "-f", "nul.yaml"]).refused(1, &["nul.yaml: document 1"]);
    desk.file("utf16.yaml", [0xff, 0xfe, b'k', 0]);
    desk.plumb(&["apply", "-f", "utf16.yaml"]).refused(1, &["utf16.yaml is not text"]);
    assert_eq!(desk.dump(), before);
}

#[test]
fn nesting_without_end() {
    let desk = Desk::on_sqlite();
    for (open, close) in [("[", "]"), ("{\"a\":", "}")] {
        let deep = format!("kind: IPPool\nspec: {}1{}\n", open.repeat(100_000), close.repeat(100_000));
        desk.plumb_with_stdin(&["apply", "-f", "-"], deep.as_bytes()).refused(1, &["stdin: document 1"]);
        let patch = format!("{{\"spec\":{}1{}}}", open.repeat(20_000), close.repeat(20_000));
        desk.plumb(&["patch", "node", "x", "-p", &patch]).refused(2, &["cannot read the patch"]);
    }
    let bomb = "a: &a [x,x,x,x,x,x,x,x,x]\nb: &b [*a,*a,*a,*a,*a,*a,*a,*a,*a]\nc: &c [*b,*b,*b,*b,*b,*b,*b,*b]\n\
                d: &d [*c,*c,*c,*c,*c,*c,*c,*c]\ne: &e [*d,*d,*d,*d,*d,*d,*d,*d]\nf: &f [*e,*e,*e,*e,*e,*e,*e,*e]\n\
                g: &g [*f,*f,*f,*f,*f,*f,*f,*f]\nh: [*g,*g,*g,*g,*g,*g,*g,*g]\n";
    desk.plumb_with_stdin(&["apply", "-f", "-"], bomb.as_bytes()).refused(1, &["stdin: document 1"]);
    assert_eq!(desk.dump(), Vec::<String>::new());
}

#[test]
fn every_problem_of_every_file_is_told_at_once() {
    let desk = Desk::on_sqlite();
    desk.file("many/a.yaml", pool("a", "cidr: 10.1.0.0/16, blockSize: 10, ipipMode: Sometimes"));
    desk.file("many/b.yaml", pool("b", "cidr: nonsense"));
    let told = desk.plumb(&["validate", "-f", "many"]);
    told.refused(1, &["many/a.yaml", "spec.blockSize", "spec.ipipMode", "many/b.yaml", "spec.cidr"]);
    assert_eq!(told.stderr.matches("error: ").count(), 3, "{told:?}");
}

#[test]
fn arbitrary_input_never_crashes_the_program() {
    if machine_has_own_config("arbitrary_input_never_crashes_the_program") {
        return;
    }
    let desk = Desk::on_sqlite();
    let cases = u32::try_from(testkit::count(20, 500)).unwrap();
    let mut runner = proptest::test_runner::TestRunner::new_with_rng(
        ProptestConfig { cases, failure_persistence: None, ..ProptestConfig::default() },
        proptest::test_runner::TestRng::from_seed(
            proptest::test_runner::RngAlgorithm::ChaCha,
            &[testkit::seed().to_le_bytes(); 4].concat(),
        ),
    );
    let input = prop_oneof![
        prop::collection::vec(any::<u8>(), 0..200),
        "[a-z:{}\\[\\]\\-\"'&*!|>#%@ \n]{0,120}".prop_map(String::into_bytes),
    ];
    let outcome = runner.run(&input, |input| {
        let ran = desk.plumb_with_stdin(&["validate", "-f", "-"], &input);
        prop_assert!(matches!(ran.code, Some(0 | 1)), "seed {}: {:?}", testkit::seed(), ran);
        prop_assert!(!ran.stderr.contains("panicked"), "seed {}: {:?}", testkit::seed(), ran);
        Ok(())
    });
    outcome.unwrap();
}
