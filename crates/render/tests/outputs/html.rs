//! The page: everything is on it, nothing comes from elsewhere, its size is bounded.

use doctor::{Report, Subject, diagnose};
use evidence::Unseen;
use evidence::kernel::Route;
use evidence::log::CniCommand;
use evidence::sample::Sample;
use evidence::{Evidence, Origin, Sighted};
use evidence::{Happening, LogEvent, PodName};
use model::FindingCode;
use proptest::prelude::*;
use render::html;

use crate::reports::{finding, huge, mixed};

/// A cluster with a leak and a missing route, and a log.
pub(crate) fn cluster(name: &str) -> (Report, Evidence) {
    let mut evidence =
        Sample { nodes: 3, blocks_per_node: 1, pods_per_node: 5, has_kernels: true }.evidence();
    let first = evidence.nodes.values_mut().next().unwrap();
    first.name = name.into();
    // A sandbox that runs would excuse the leak.
    first.sandboxes = None;
    let is_of_pool =
        |route: &Sighted<Route>| route.seen.via.is_some() && route.seen.destination.prefix_len() == 26;
    if let Some(routes) = &mut first.kernel.routes {
        let missing = routes.iter().position(is_of_pool).expect("a node has routes to others");
        routes.remove(missing);
    }
    evidence.endpoints.as_mut().unwrap().remove(0);
    evidence.pods.as_mut().unwrap().remove(0);
    let event = LogEvent {
        at: Some("2026-01-02T03:04:05".parse().unwrap()),
        node: Some(name.into()),
        what: Happening::CniCall {
            command: CniCommand::Del,
            container_id: "0f3a".to_owned(),
            pod: Some(PodName::new("shop", name)),
            interface: None,
            netns: Some(String::new()),
        },
        count: 2,
        last_at: None,
    };
    evidence.log = Some(vec![Sighted::new(event, Origin::line("kubelet.log", 7, name))]);
    let mut report = diagnose(&evidence);
    let mut marked = finding(FindingCode::AddressShared, Subject::node(name), name);
    marked.seen(Origin::line("kubelet.log", 7, name).exhibit(""));
    report.findings.push(marked);
    report.unseen.push(Unseen::Reported(name.to_owned()));
    (report, evidence)
}

#[test]
fn every_section_is_on_the_page() {
    let (report, evidence) = cluster("node-x");
    let page = html(&report, &evidence);
    for id in ["findings", "reachability", "addresses", "timeline", "unseen"] {
        assert!(page.contains(&format!("<section id=\"{id}\"")), "{id}");
        assert!(page.contains(&format!("<a href=\"#{id}\"")), "{id}");
    }
    for words in [
        "1 leaked",
        "no route to 10.0.",
        "DEL for sandbox 0f3a of pod shop/node-x, its network namespace is gone (2 times)",
    ] {
        assert!(page.contains(words), "{words}");
    }
    assert!(
        page.contains("<tr class=\"marked\"><td>01-02 03:04:05"),
        "a line that a finding rests on is marked"
    );
}

#[test]
fn what_was_not_collected_has_no_section() {
    let page = html(&mixed(), &Evidence::default());
    for id in ["reachability", "addresses", "timeline"] {
        assert!(!page.contains(&format!("id=\"{id}\"")), "{id}");
    }
    assert!(html(&Report::default(), &Evidence::default()).contains("<h1>Nothing wrong was found</h1>"));
}

#[test]
fn nothing_comes_from_elsewhere() {
    let (report, evidence) = cluster("node-x");
    let page = html(&report, &evidence);
    for word in [
        "<script",
        "<link",
        "<img",
        "<iframe",
        "src=",
        "url(",
        "@import",
        "http://",
        "https://",
        "javascript:",
    ] {
        assert!(!page.contains(word), "{word}");
    }
    let foreign = page.split("href=\"").skip(1).filter(|rest| !rest.starts_with('#')).count();
    assert_eq!(foreign, 0, "links stay on the page");
    assert!(page.contains("Content-Security-Policy\" content=\"default-src 'none';"));
}

#[test]
fn its_size_is_bounded() {
    let number = testkit::count(20_000, 150_000);
    let sample =
        Sample { nodes: testkit::count(60, 500), blocks_per_node: 5, pods_per_node: 1, has_kernels: false };
    let page = html(&huge(number as u32), &sample.evidence());
    assert!(page.len() < 2 << 20, "{} bytes", page.len());
    assert!(page.contains("more like these, not shown here"), "and it says what it leaves out");
    assert!(page.contains("more blocks"), "blocks, too");
}

/// Of very many lines of a log, those that findings rest on are on the page.
#[test]
fn marked_lines_are_never_left_out_and_all_stand_in_the_order_of_time() {
    let event = |number: u32| {
        let second = 1_300 - number;
        let at = format!("2026-01-02T03:{:02}:{:02}", second / 60, second % 60).parse().unwrap();
        let what = Happening::UnitFailed { unit: format!("unit-{number}") };
        let event = LogEvent { at: Some(at), node: None, what, count: 1, last_at: None };
        Sighted::new(event, Origin::line("log", number, "x"))
    };
    let evidence = Evidence { log: Some((1..=1_200).map(event).collect()), ..Evidence::default() };
    let mut rests = finding(FindingCode::AddressShared, Subject::node("a"), "x");
    rests.seen(Origin::line("log", 1_190, "x").exhibit(""));
    let page = html(&Report { findings: vec![rests], unseen: Vec::new(), ..Report::default() }, &evidence);
    let place = |unit: &str| page.find(&format!("unit {unit} failed"));
    assert!(page.contains("200 more events, not shown here"));
    assert!(place("unit-1190").is_some() && place("unit-1191").is_none());
    assert!(
        place("unit-1190") < place("unit-999") && place("unit-999") < place("unit-1"),
        "late lines come last"
    );
    assert_eq!(page.matches("<tr class=\"marked\">").count(), 1);
}

#[test]
fn blocks_with_findings_are_drawn_before_others() {
    let evidence = Sample { nodes: 60, blocks_per_node: 5, pods_per_node: 1, has_kernels: false }.evidence();
    let last = evidence.ipam.as_ref().unwrap().books.blocks.values().last().unwrap().value.clone();
    let address = last.address(3).unwrap();
    let leaked = finding(FindingCode::AddressLeaked, address, "nobody has it");
    let page = |findings: Vec<doctor::Finding>| {
        html(&Report { findings, unseen: Vec::new(), ..Report::default() }, &evidence)
    };
    let drawn = page(vec![leaked.clone()]);
    assert!(drawn.contains(&format!("<span class=\"mono\">{address} leaked</span>")));
    assert!(drawn.contains("60 more blocks without findings, not shown here"));
    let both = page(vec![leaked, finding(FindingCode::AddressShared, address, "two have it")]);
    assert!(both.contains(&format!("<span class=\"mono\">{address} shared</span>")), "the worse of two");
}

#[test]
fn few_findings_are_open_and_many_are_not() {
    let open = |count| html(&huge(count), &Evidence::default()).matches("<details open>").count();
    assert_eq!((open(3), open(4)), (3, 0));
}

/// The tags in their order, and how many quotes there are: what strangers write changes neither.
fn skeleton(page: &str) -> (Vec<&str>, usize) {
    let tag = |rest: &'_ str| -> usize { rest.find([' ', '>']).unwrap_or(rest.len()) };
    (page.split('<').skip(1).map(|rest| &rest[..tag(rest)]).collect(), page.matches('"').count())
}

fn check(name: &str) {
    let page_for = |name: &str| {
        let (report, evidence) = cluster(name);
        html(&report, &evidence)
    };
    let (plain, hostile) = (page_for("plain"), page_for(name));
    assert_eq!(skeleton(&hostile), skeleton(&plain), "{name:?}");
    assert!(!hostile.chars().any(|shown| shown.is_control() && shown != '\n'), "{name:?}");
}

#[test]
fn names_are_never_markup() {
    for name in [
        "</script><script>alert(1)</script>",
        "\"><img src=x onerror=alert(1)>",
        "' onmouseover='alert(1)",
        "<!--",
        "</style><style>*{display:none}",
        "\u{1b}[2J&lt;b&gt;",
        "]]>",
    ] {
        check(name);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(32))]
    #[test]
    fn no_name_at_all_is_markup(name in "[^a-z]{1,12}") {
        check(&name);
    }
}
