//! The doctor's page in a real browser: what it looks like, and that it asks nobody for anything.

mod browser;

use std::path::Path;

use doctor::diagnose;
use evidence::log::CniCommand;
use evidence::sample::Sample;
use evidence::{Evidence, Origin, Sighted};
use evidence::{Happening, LogEvent, PodName};
use tempfile::TempDir;

use browser::Browser;

/// Wide as on a desk, narrow as in a hand.
const SIZES: [(&str, u32, u32); 2] = [("desk", 1280, 3200), ("phone", 390, 4000)];

/// A cluster in which something of every sort is wrong.
fn troubled() -> Evidence {
    let mut evidence =
        Sample { nodes: 6, blocks_per_node: 2, pods_per_node: 30, has_kernels: true }.evidence();
    let nodes: Vec<_> = evidence.nodes.keys().cloned().collect();
    for (index, name) in nodes.iter().enumerate() {
        let node = evidence.nodes.get_mut(name).unwrap();
        node.sandboxes = None;
        match index {
            0 => node.kernel.routes.as_mut().unwrap().retain(|route| route.seen.via.is_none()),
            1 => drop(node.kernel.routes.as_mut().unwrap().pop()),
            2 => node.kernel.routes = None,
            _ => {}
        }
    }
    let endpoints = evidence.endpoints.as_mut().unwrap();
    let taken = endpoints[40].seen.addresses.clone();
    endpoints[41].seen.addresses = taken;
    let gone: Vec<Option<String>> = endpoints.drain(3..9).map(|endpoint| endpoint.seen.pod).collect();
    evidence.pods.as_mut().unwrap().retain(|pod| !gone.contains(&Some(pod.seen.name.name.clone())));
    evidence.log = Some((0..20).map(event).collect());
    evidence
}

fn event(number: u32) -> Sighted<LogEvent> {
    let command = if number.is_multiple_of(2) { CniCommand::Add } else { CniCommand::Del };
    let what = Happening::CniCall {
        command,
        container_id: format!("{number:064x}"),
        pod: Some(PodName::new("shop", "cart-0")),
        interface: Some("eth0".to_owned()),
        netns: None,
    };
    let at = format!("2026-01-02T03:04:{number:02}").parse().ok();
    let event = LogEvent { at, node: Some("node-0".into()), what, count: 1, last_at: None };
    Sighted::new(event, Origin::line("kubelet.log", number + 1, "a line of the log"))
}

fn page(folder: &Path, evidence: &Evidence) -> std::path::PathBuf {
    let path = folder.join("report.html");
    std::fs::write(&path, render::html(&diagnose(evidence), evidence)).unwrap();
    path
}

#[test]
fn a_browser_shows_every_section_and_asks_nobody() {
    let Some(browser) = Browser::find("a_browser_shows_every_section_and_asks_nobody") else { return };
    let folder = TempDir::with_prefix("plumb-page-").unwrap();
    let page = page(folder.path(), &troubled());
    let seen = browser.open(&page, folder.path());
    for id in ["findings", "reachability", "addresses", "timeline"] {
        assert!(seen.dom.contains(&format!("<section id=\"{id}\"")), "{id}");
    }
    assert!(seen.dom.contains("<rect class=\"leaked\""), "leaked addresses are drawn");
    assert!(seen.dom.contains("class=\"no\""), "a node that cannot be reached is marked");
    assert_eq!(seen.requests, [] as [&str; 0], "only the file itself is read");
    let empty = folder.path().join("empty.html");
    std::fs::write(&empty, "<!doctype html>").unwrap();
    for (name, width, height) in SIZES {
        let picture = browser.photograph(&page, folder.path(), name, width, height);
        let nothing = browser.photograph(&empty, folder.path(), "empty", width, height);
        assert!(picture.bytes > 5 * nothing.bytes, "{name}: {} bytes are an empty picture", picture.bytes);
        assert_eq!((picture.width, picture.height), (width, height));
    }
}

#[test]
fn names_stay_names_in_a_browser() {
    let Some(browser) = Browser::find("names_stay_names_in_a_browser") else { return };
    let mut evidence = troubled();
    let hostile =
        "</title><script>document.title='taken'</script><img src=x onerror=\"document.title='taken'\">";
    for node in evidence.nodes.values_mut() {
        node.name = hostile.into();
    }
    evidence.unseen.push(evidence::Unseen::Reported(hostile.to_owned()));
    let folder = TempDir::with_prefix("plumb-page-").unwrap();
    let seen = browser.open(&page(folder.path(), &evidence), folder.path());
    assert!(!seen.dom.contains("<script") && !seen.dom.contains("<img"), "no element was made of a name");
    assert!(!seen.dom.contains("<title>taken"), "nothing was run");
    assert!(seen.dom.contains("document.title='taken'"), "the name is shown as it is");
    assert_eq!(seen.requests, [] as [&str; 0]);
}
