//! The history that logs tell, for people.

use doctor::timeline::Timeline;
use doctor::{Report, Subject};
use evidence::PodName;
use model::FindingCode;
use render::{Style, history_text};

use crate::reports::finding;

/// A log of so many pods, each with a sandbox.
fn timeline(pods: usize) -> Timeline {
    let line = |number: usize| {
        format!(
            "May 26 05:33:01 node-a containerd[1]: time=\"2024-05-26T05:33:01Z\" level=info msg=\"RunPodSandbox for \
             &PodSandboxMetadata{{Name:web-{number:02},Uid:u,Namespace:shop,Attempt:0,}} returns sandbox id \\\"{number:064}\\\"\"\n"
        )
    };
    let log: String = (0..pods).map(line).collect();
    let evidence = intake::read([("containerd.log", log.as_bytes())]);
    Timeline::of(evidence.log.as_deref().unwrap())
}

#[test]
fn pods_with_findings_are_always_shown() {
    let last = Subject::Pod(PodName::new("shop", "web-24"));
    let report = Report {
        findings: vec![finding(FindingCode::StaleDel, last, "it went wrong")],
        unseen: Vec::new(),
        ..Report::default()
    };
    let timeline = timeline(25);
    let shown = history_text(&report, &timeline, &Style::PLAIN);
    let pods: Vec<&str> = shown.lines().filter(|line| line.starts_with("pod ")).collect();
    assert_eq!(pods.len(), 21, "{shown}");
    assert!(pods[0].starts_with("pod shop/web-24 on node-a"), "{shown}");
    assert!(shown.ends_with("\n4 more pods: --all shows them\n"), "{shown}");
    let whole = history_text(&report, &timeline, &Style { is_whole: true, ..Style::PLAIN });
    assert_eq!(whole.lines().filter(|line| line.starts_with("pod ")).count(), 25);
}

#[test]
fn a_year_that_is_not_told_is_not_shown() {
    let shown = history_text(&Report::default(), &timeline(1), &Style::PLAIN);
    assert!(shown.contains("  2024-05-26 05:33:01  sandbox 000000000000 started (UID u)\n"), "{shown}");
    let log = b"E0526 05:33:02.000000 1 kubelet.go:1] Missing default interface \"eth0\" or IP for pod:shop_web-0\n";
    let evidence = intake::read([("kubelet.log", log.as_slice())]);
    let timeline = Timeline::of(evidence.log.as_deref().unwrap());
    let shown = history_text(&Report::default(), &timeline, &Style::PLAIN);
    assert!(shown.contains("  May 26 05:33:02      the kubelet finds no eth0\n"), "{shown}");
}
