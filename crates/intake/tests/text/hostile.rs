//! Input that nobody means well with.

use evidence::Evidence;
use intake::read;
use proptest::prelude::*;

/// Everything that a report may print.
fn printable(evidence: &Evidence) -> String {
    format!("{evidence:?}")
}

const SAMPLES: &[&str] = &[
    include_str!("../../../../tests/incidents/shared-address/workloadendpoints.wide.txt"),
    include_str!("../../../../tests/incidents/shared-address/store-mysql-0.workloadendpoint.yaml"),
    include_str!("../../../../tests/incidents/shared-address/healthy-pod.txt"),
    include_str!("../../../../tests/incidents/shared-address/slave-140.ip-neigh.txt"),
    include_str!("../../../../tests/incidents/ipam-drift/block-192.168.106.64-26.excerpt.txt"),
    include_str!("../../../../tests/incidents/stale-delete/kubelet-slave-197.log"),
    include_str!("../../../../tests/incidents/leaked-endpoints/kubelet-paas-slave-20-48.log"),
    include_str!("../../../../tests/incidents/wrong-nic/k8scephnode.describe.txt"),
    include_str!("../../../../tests/incidents/wrong-nic/pods.wide.txt"),
    include_str!("../../../../tests/incidents/wrong-nic/readiness-event.txt"),
    include_str!("../../../../tests/incidents/wrong-nic/k8smater1.bgp-status.txt"),
    crate::formats::BRIEF,
    crate::formats::LEGACY_ROUTES,
    crate::formats::JSON_LOG,
    crate::formats::USAGE,
];

#[test]
fn escapes_do_not_get_through() {
    let text = "\u{1b}[2J\u{1b}]0;owned\u{7}NAMESPACE   NAME        READY   STATUS    RESTARTS   AGE\n\
                shop        ev\u{1b}[31mil\u{202e}   1/1     Running   0          1m\n";
    let evidence = read([("\u{1b}[31mpods.txt", text.as_bytes())]);
    let pod = &evidence.pods.as_ref().unwrap()[0];
    assert_eq!(pod.seen.name.name, "evil");
    assert!(!printable(&evidence).contains(['\u{1b}', '\u{202e}']));
    assert!(!printable(&evidence).contains("owned"));
}

#[test]
fn carriage_returns_and_nuls_do_not_matter() {
    for sample in SAMPLES {
        let plain = read([("n.x.txt", sample.as_bytes())]);
        let windows = sample.replace('\n', "\r\n");
        assert_eq!(printable(&read([("n.x.txt", windows.as_bytes())])), printable(&plain));
        let wide: Vec<u8> = sample.bytes().flat_map(|byte| [byte, 0]).collect();
        assert_eq!(printable(&read([("n.x.txt", wide.as_slice())])), printable(&plain));
    }
}

#[test]
fn secrets_are_never_in_evidence() {
    let text = "apiVersion: v1\nkind: Secret\nmetadata:\n  name: s\ndata:\n  password: aHVudGVyMg==\n---\n\
                apiVersion: v1\nkind: Pod\nmetadata:\n  name: p\n  annotations:\n    projectcalico.org/token: abcdef123456\n";
    let log =
        "2024-01-01 00:00:00.000 [ERROR][1] a.go 1: failed with token=abcdef123456 for Bearer abcdef123456\n";
    let evidence = read([("a.yaml", text.as_bytes()), ("b.log", log.as_bytes())]);
    assert_eq!(evidence.pods.as_ref().unwrap().len(), 1);
    assert_eq!(evidence.log.as_ref().unwrap().len(), 1);
    for secret in ["aHVudGVyMg", "abcdef123456"] {
        assert!(!printable(&evidence).contains(secret), "{secret}");
    }
}

#[test]
fn a_long_log_leaves_little() {
    let line = "Dec 12 20:00:18 n kubelet[1]: I1212 20:00:18.000000 1 a.go:1] nothing of interest here, again and again\n";
    let mut intake = intake::Intake::default();
    {
        let mut file = intake.file("n.log");
        for _ in 0..2_000 {
            file.feed(line.repeat(10).as_bytes());
        }
    }
    assert_eq!(intake.finish().log.as_ref().map(Vec::len), Some(0));
}

proptest! {
    #[test]
    fn any_bytes_are_survived(bytes: Vec<u8>) {
        read([("x", bytes.as_slice())]);
    }

    #[test]
    fn any_text_is_survived(text in "(\\PC|\n){0,300}") {
        read([("x.y", text.as_bytes())]);
    }

    /// A known text, cut anywhere, with something else in the middle.
    #[test]
    fn damaged_texts_are_survived(sample in 0..SAMPLES.len(), from in 0usize..12_000, to in 0usize..12_000, junk in "\\PC{0,20}", at in 0usize..12_000) {
        let bytes = SAMPLES[sample].as_bytes();
        let (from, to) = (from.min(bytes.len()), to.min(bytes.len()));
        let mut text = bytes[from.min(to)..to.max(from)].to_vec();
        let at = at.min(text.len());
        text.splice(at..at, junk.bytes());
        let evidence = read([("x.y.z", text.as_slice())]);
        doctor::diagnose(&evidence);
    }
}
