//! Clusters as operators paste them, `tests/clusters/` at the top of the repository: most with a fault that public issues describe, some
//! healthy. Each finding that is expected stands here with the words that it must have; there is no other.

#![expect(clippy::disallowed_methods, reason = "evidence is files of this test")]

mod broken;
mod lines;

use std::path::{Path, PathBuf};

use doctor::{Finding, Report, diagnose};
use evidence::Evidence;

fn top() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/clusters")
}

/// All files below a directory, in the order of their names, by their paths below it.
fn files(folder: &Path, below: &str, found: &mut Vec<(String, Vec<u8>)>) {
    let entries = std::fs::read_dir(folder).expect("clusters are part of the repository");
    let mut entries: Vec<PathBuf> = entries.map(|entry| entry.unwrap().path()).collect();
    entries.sort();
    for path in entries {
        let name = format!("{below}{}", path.file_name().unwrap().to_str().unwrap());
        if path.is_dir() {
            files(&path, &format!("{name}/"), found);
        } else {
            found.push((name, std::fs::read(&path).unwrap()));
        }
    }
}

fn evidence(cluster: &str) -> Evidence {
    let mut found = Vec::new();
    files(&top().join(cluster), "", &mut found);
    intake::read(found.iter().map(|(name, bytes)| (name.as_str(), bytes.as_slice())))
}

fn report(cluster: &str) -> Report {
    diagnose(&evidence(cluster))
}

fn shown(report: &Report) -> String {
    let show = |finding: &Finding| {
        let cause = finding.cause.iter().map(|step| format!("\n    - {step}")).collect::<String>();
        format!("  {} [{}] {}{cause}\n", finding.code, finding.subject, finding.summary)
    };
    report.findings.iter().map(show).collect()
}

/// A finding: its code, what it is about, and words of its summary, its causes or its evidence.
type Expected<'w> = (&'w str, &'w str, &'w [&'w str]);

#[track_caller]
fn expect(cluster: &str, expected: &[Expected<'_>]) -> Report {
    let report = report(cluster);
    let found: Vec<(&str, String)> =
        report.findings.iter().map(|finding| (finding.code.as_str(), finding.subject.to_string())).collect();
    let wanted: Vec<(&str, String)> =
        expected.iter().map(|(code, subject, _)| (*code, (*subject).to_owned())).collect();
    assert_eq!(found, wanted, "{cluster}:\n{}", shown(&report));
    for (finding, (code, _, words)) in report.findings.iter().zip(expected) {
        let mut text = format!("{}\n{}", finding.summary, finding.cause.join("\n"));
        finding.evidence.iter().for_each(|exhibit| text.push_str(&exhibit.text));
        for word in *words {
            assert!(text.contains(word), "{cluster}: {code} has not {word:?}:\n{text}");
        }
    }
    report
}

/// With pods that come and go, a finished job, static pods, Docker's rules, and the errors of the first minute in the logs.
#[test]
fn a_healthy_cluster_with_vxlan() {
    expect("healthy-vxlan", &[]);
    let evidence = evidence("healthy-vxlan");
    assert!(!evidence.partial.pods && !evidence.partial.kube_nodes && !evidence.partial.endpoints);
    let ipam = evidence.ipam.as_ref().unwrap();
    assert!(ipam.whole.blocks && ipam.whole.handles && ipam.whole.affinities);
    assert_eq!(evidence.nodes.len(), 3, "{:?}", evidence.nodes.keys());
    let node = evidence.node(&"worker-1".into()).unwrap();
    assert!(node.firewall.is_some() && node.kernel.forwards.as_ref().unwrap().len() == 2);
    assert_eq!(evidence.unseen, []);
}

/// Terminals with their prompts, a directory for each node.
#[test]
fn a_healthy_cluster_with_bgp() {
    expect("healthy-bgp", &[]);
    let evidence = evidence("healthy-bgp");
    assert!(!evidence.partial.pods && !evidence.partial.endpoints);
    assert_eq!(evidence.endpoints.as_ref().unwrap().len(), 6);
    assert_eq!(evidence.nodes.len(), 3, "{:?}", evidence.nodes.keys());
    assert_eq!(evidence.unseen, []);
}
