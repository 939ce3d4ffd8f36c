//! The checks on the evidence of real outages, `tests/incidents/` at the top of the repository: what is found, word by word, is in
//! `golden/`. `cargo xtask accept` writes what is found as what is expected.
//!
//! Beside it, the drift of which the incident's file shows a part only, whole; and clusters that look odd and are healthy.

#![expect(clippy::disallowed_methods, reason = "evidence and golden files are files of this test")]

mod drift;
mod healthy;

use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use doctor::{Report, Severity, diagnose};
use model::FindingCode;

fn top() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/incidents")
}

/// Everything that is found in an incident's files.
fn report(incident: &str) -> Report {
    let folder = top().join(incident);
    let mut names: Vec<String> = std::fs::read_dir(&folder)
        .expect("incidents are part of the repository")
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort();
    let files: Vec<(String, Vec<u8>)> =
        names.into_iter().map(|name| (name.clone(), std::fs::read(folder.join(&name)).unwrap())).collect();
    diagnose(&intake::read(files.iter().map(|(name, bytes)| (name.as_str(), bytes.as_slice()))))
}

/// As people compare it. Kinds of evidence that nobody collected are left out: they are in every incident.
fn written(report: &Report) -> String {
    let mut text = String::new();
    for finding in &report.findings {
        writeln!(text, "{} {} [{}]", finding.severity.as_str(), finding.code, finding.subject).unwrap();
        writeln!(text, "  {}", finding.summary).unwrap();
        finding.cause.iter().for_each(|step| writeln!(text, "  - {step}").unwrap());
        for symptom in &finding.symptoms {
            writeln!(text, "  ~ {} [{}]", symptom.code, symptom.subject).unwrap();
        }
        for exhibit in &finding.evidence {
            let line = exhibit.line.map_or_else(String::new, |line| format!(":{line}"));
            writeln!(text, "  > {}{line}", exhibit.file).unwrap();
        }
        writeln!(text, "  = {}\n", finding.remedy).unwrap();
    }
    for line in report.unseen.iter().filter(|unseen| !unseen.is_not_collected()) {
        writeln!(text, "? {line}").unwrap();
    }
    text
}

fn check(incident: &str) -> Report {
    let report = report(incident);
    let found = written(&report);
    let golden =
        Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/incidents/golden").join(format!("{incident}.txt"));
    if std::env::var_os("PLUMB_ACCEPT").is_some() {
        std::fs::write(&golden, &found).unwrap();
    }
    let expected = std::fs::read_to_string(&golden).unwrap_or_default();
    assert_eq!(found, expected, "{incident} is not as {}", golden.display());
    report
}

/// Codes and subjects, in the order of the report.
fn told(report: &Report) -> Vec<(FindingCode, String)> {
    report.findings.iter().map(|finding| (finding.code, finding.subject.to_string())).collect()
}

fn expect(report: &Report, expected: &[(FindingCode, &str)]) {
    let expected: Vec<(FindingCode, String)> =
        expected.iter().map(|(code, subject)| (*code, (*subject).to_owned())).collect();
    assert_eq!(told(report), expected);
}

#[test]
fn stale_delete() {
    let report = check("stale-delete");
    expect(
        &report,
        &[
            (FindingCode::StaleDel, "pod lijiaob/etcd1-0"),
            (FindingCode::StaleDel, "pod lijiaob/stateful-new-pod-0"),
        ],
    );
    let [production, reproduction] = &report.findings[..] else { panic!("two findings") };
    let tells =
        |finding: &doctor::Finding, words: &str| finding.cause.iter().any(|step| step.contains(words));
    for words in
        ["192.168.252.66", "cali9118ebbb10b", "the log does not show what happened to 192.168.252.66"]
    {
        assert!(tells(production, words), "{words}");
    }
    assert!(!tells(production, "is free in the IPAM records"), "the files do not show that");
    assert!(tells(reproduction, "192.168.8.34 is free in the IPAM records but in use"));
    assert!(
        report
            .findings
            .iter()
            .all(|finding| finding.symptoms.iter().any(|symptom| symptom.code == FindingCode::DelRetried))
    );
}

#[test]
fn leaked_endpoints() {
    let report = check("leaked-endpoints");
    expect(
        &report,
        &[
            (FindingCode::PodGatewayUnresolved, "pod XXXXX-system/XXXXX-0"),
            (FindingCode::PodReplacedWithoutDel, "pod XXXXX-system/XXXXX-0"),
        ],
    );
    assert_eq!(report.findings[0].severity, Severity::Error);
    let replaced = &report.findings[1];
    assert_eq!(replaced.severity, Severity::Warning);
    assert!(replaced.summary.contains("within 84 s"), "{}", replaced.summary);
    assert!(replaced.cause[0].starts_with("192.168.247.220 is probably leaked"), "{:?}", replaced.cause);
}

#[test]
fn ipam_drift() {
    let report = check("ipam-drift");
    expect(&report, &[(FindingCode::HandleByName, "block 192.168.106.64/26")]);
    assert!(report.unseen.iter().any(|unseen| unseen.to_string().contains("is cut")), "{:?}", report.unseen);
}

#[test]
fn shared_address() {
    let report = check("shared-address");
    expect(
        &report,
        &[
            (FindingCode::AddressShared, "192.168.91.33"),
            (FindingCode::EndpointOnTwoNodes, "pod adqsdxadc/store-mysql-0"),
            (FindingCode::EndpointWithoutPod, "endpoint olef-idalijn-adcbackend.etcd-2"),
        ],
    );
    let shared = &report.findings[0];
    assert_eq!(shared.summary, "11 endpoints on node slave-140 have address 192.168.91.33");
    let cause = shared.cause.join("\n");
    for words in [
        "calia3201341d16, which belongs to adqsdxadc.store-mysql-0",
        "11 neighbour entries",
        "10 permanent",
        "10 pods",
        "does not show which of them is entitled",
    ] {
        assert!(cause.contains(words), "{words} in {cause}");
    }
}

#[test]
fn wrong_nic() {
    let report = check("wrong-nic");
    expect(
        &report,
        &[
            (FindingCode::KubeletRefusesSwap, "node k8scephnode"),
            (FindingCode::NodeAddressWrong, "node k8scephnode"),
            (FindingCode::NodeAddressWrong, "node k8smater1"),
            (FindingCode::EtcdEvenMembers, "cluster"),
            (FindingCode::StoreUnstable, "cluster"),
        ],
    );
    let chain = &report.findings[2];
    let cause = chain.cause.join("\n");
    for words in
        ["k8smaster2 tries to reach 10.0.0.66", "52551 times in 6 days", "Passive", "since 2020-05-21"]
    {
        assert!(cause.contains(words), "{words} in {cause}");
    }
    assert!(
        chain.summary.contains("172.17.72.0/22") && chain.summary.contains("172.17.73.66"),
        "{}",
        chain.summary
    );
    let not_ready: Vec<String> = report
        .findings
        .iter()
        .flat_map(|finding| &finding.symptoms)
        .filter(|symptom| symptom.code == FindingCode::CalicoNodeNotReady)
        .map(|symptom| symptom.subject.to_string())
        .collect();
    for node in ["node k8scephnode", "node k8smater1", "node k8smaster2"] {
        assert!(not_ready.iter().any(|subject| subject == node), "{node} in {not_ready:?}");
    }
}

#[test]
fn wrong_nic_after_the_mend() {
    let report = check("wrong-nic-after");
    expect(&report, &[]);
}
