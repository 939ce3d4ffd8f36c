//! What a code means, how to check it, what a repair does about it and how to undo that: for a terminal, and as the page of all
//! codes.

use std::fmt::Write as _;

use doctor::{Certainty, Check, Need, Severity};
use repair::{self, Remedy};

use crate::Style;
use crate::paint::Paint;
use crate::wrap::wrapped;

/// One code in full.
pub fn one(check: &Check, style: &Style) -> String {
    let mut text = String::new();
    let title = Paint::Strong.on(check.title, style.is_coloured);
    let severity = Paint::Of(check.severity).on(check.severity.as_str(), style.is_coloured);
    let mut line = |words: &str| writeln!(text, "{words}").expect("a string takes any text");
    line(&format!("{}: {title} ({severity})", check.code));
    line("");
    for words in wrapped(check.explanation, style.columns()) {
        line(&words);
    }
    let (does, undo) = repairs(check);
    let rows = [
        ("next", Some(check.remedy.to_owned())),
        ("check", Some(looks(check).join(", "))),
        ("repair", Some(does)),
        ("undo", undo.map(|undo| format!("plumb repair undo ID {undo}"))),
        ("needs", Some(needs(check))),
        ("when", Some(reported(check).to_owned())),
    ];
    for (label, words) in rows.into_iter().filter_map(|(label, words)| Some((label, words?))) {
        line("");
        let indent = 8;
        for (index, words) in wrapped(&words, style.columns() - indent).iter().enumerate() {
            let label = if index == 0 { label } else { "" };
            line(&format!("{}{words}", Paint::Faint.on(&format!("{label:<indent$}"), style.is_coloured)));
        }
    }
    text
}

/// Every code with its heading, worst first.
pub fn list(checks: &[&Check], style: &Style) -> String {
    let width = checks.iter().map(|check| check.code.as_str().len()).max().unwrap_or(0);
    let mut text = String::new();
    for severity in [Severity::Error, Severity::Warning, Severity::Info] {
        for check in checks.iter().filter(|check| check.severity == severity) {
            let word = Paint::Of(severity).on(&format!("{:<7}", severity.as_str()), style.is_coloured);
            writeln!(text, "{word}  {:<width$}  {}", check.code, check.title)
                .expect("a string takes any text");
        }
    }
    text
}

/// `docs/findings.md`.
pub fn page(checks: &[&Check]) -> String {
    let mut text = PAGE_HEAD.to_owned();
    for check in checks {
        let row = format!("| [`{0}`](#{0}) | {1} | {2} |", check.code, check.severity.as_str(), check.title);
        writeln!(text, "{row}").expect("a string takes any text");
    }
    for check in checks {
        writeln!(text, "\n## {}\n\n**{}** · {}\n", check.code, check.title, check.severity.as_str())
            .expect("a string takes any text");
        let remedy = markdown(check.remedy.trim_end_matches('.'));
        let commands: Vec<String> = looks(check).into_iter().map(quoted).collect();
        let (does, undo) = repairs(check);
        let paragraphs = [
            Some(markdown(check.explanation)),
            Some(format!("*What to do:* {remedy}.")),
            Some(format!("*How to check:* {}.", commands.join(", "))),
            Some(format!("*What repair does:* {}.", markdown(&does))),
            undo.map(|undo| format!("*How to undo:* `plumb repair undo ID` {}.", markdown(&undo))),
        ];
        for paragraph in paragraphs.into_iter().flatten() {
            for line in wrapped(&paragraph, PAGE_WIDTH) {
                writeln!(text, "{line}").expect("a string takes any text");
            }
            text.push('\n');
        }
        let conditions = format!("*Needs:* {}. *Reported:* {}.", needs(check), reported(check));
        for line in wrapped(&conditions, PAGE_WIDTH) {
            writeln!(text, "{line}").expect("a string takes any text");
        }
    }
    text
}

const PAGE_WIDTH: usize = 120;

const PAGE_HEAD: &str = include_str!("page_head.md");

/// What markdown would take for its own.
fn markdown(text: &str) -> String {
    text.replace('<', "&lt;").replace('*', "\\*").replace('_', "\\_")
}

/// What a repair does, and how that is taken back; or why it does nothing.
fn repairs(check: &Check) -> (String, Option<String>) {
    match repair::find(check.code) {
        remedy if remedy.is_by_hand() => (format!("nothing: {}", remedy.does), None),
        Remedy { does, undo, .. } => ((*does).to_owned(), Some((*undo).to_owned())),
    }
}

/// A command as markdown shows it; where it is to be run is no part of it.
fn quoted(command: &str) -> String {
    match command.split_once(" (") {
        Some((command, place)) => format!("`{command}` ({place}"),
        None => format!("`{command}`"),
    }
}

/// Commands that show what the check looks at, in the order of what it needs.
fn looks(check: &Check) -> Vec<&'static str> {
    let mut commands = vec!["plumb doctor"];
    let needs = check.needs.iter().flat_map(|set| set.iter());
    for command in needs.filter_map(|need| command_for(*need)) {
        if !commands.contains(&command) {
            commands.push(command);
        }
    }
    commands
}

fn command_for(need: Need) -> Option<&'static str> {
    Some(match need {
        Need::Pods => "kubectl get pods -A -o wide",
        Need::KubeNodes => "kubectl get nodes -o wide",
        Need::Events => "kubectl get events -A",
        Need::Endpoints => "plumb get workloadendpoints -A -o wide",
        Need::Record(model::Kind::Node) => "plumb get nodes -o wide",
        Need::Record(model::Kind::IpPool) => "plumb get ippools -o wide",
        Need::Record(_) => return None,
        Need::Ipam => "plumb ipam check",
        Need::Links => "ip -d link (on the node)",
        Need::Addresses => "ip address (on the node)",
        Need::Routes => "ip route (on the node)",
        Need::Neighbours => "ip neigh (on the node)",
        Need::Sysctls => "sysctl -a (on the node)",
        Need::Firewall => "nft list ruleset (on the node)",
        Need::PodViews => "nsenter --net=/proc/PID/ns/net ip address (on the node, PID from crictl inspectp)",
        Need::Bgp => "plumb node status",
        Need::Runtime => "crictl pods (on the node)",
        Need::Setup => "plumb collect (on the node)",
        Need::Probes => "plumb doctor --probe",
        Need::Log => "journalctl -u kubelet (on the node)",
        Need::Settings => "kubectl -n kube-system get configmap kube-proxy -o yaml",
    })
}

/// `pools; or endpoints and IPAM records`.
fn needs(check: &Check) -> String {
    if check.needs.is_empty() {
        return "any evidence".to_owned();
    }
    let set = |set: &&[Need]| match set {
        [] => String::new(),
        [only] => only.words(),
        [first @ .., last] => {
            let first: Vec<String> = first.iter().map(|need| need.words()).collect();
            format!("{} and {}", first.join(", "), last.words())
        }
    };
    check.needs.iter().map(set).collect::<Vec<_>>().join("; or ")
}

fn reported(check: &Check) -> &'static str {
    match check.certainty {
        Certainty::Certain => "the first time an observation finds it",
        Certainty::MayBeChurn | Certainty::Young => {
            "only if two observations in a row find it, so short-lived states are not reported"
        }
    }
}

#[cfg(test)]
mod tests {
    use doctor::checks;

    use super::*;

    #[test]
    fn a_code_is_explained() {
        let text = one(checks::find(model::FindingCode::PoolOverlap), &Style { width: 60, ..Style::PLAIN });
        assert!(text.starts_with("pool-overlap: IP pools overlap (error)\n\nTwo IP pools contain"), "{text}");
        assert!(text.contains("\nnext    keep the common range"), "{text}");
        assert!(text.contains("\nneeds   IPPool records\n"), "{text}");
        assert!(text.contains("\ncheck   plumb doctor, plumb get ippools -o wide\n"), "{text}");
        assert!(text.contains("\nrepair  nothing: this is a decision"), "{text}");
        assert!(!text.contains("undo"), "{text}");
        assert!(text.lines().all(|line| line.len() <= 60), "{text}");
    }

    #[test]
    fn every_code_is_listed_and_on_the_page() {
        let (list, page) = (list(checks::ALL, &Style::PLAIN), page(checks::ALL));
        assert_eq!(list.lines().count(), checks::ALL.len());
        for check in checks::ALL {
            assert!(
                list.contains(check.code.as_str()) && page.contains(&format!("\n## {}\n", check.code)),
                "{}",
                check.code
            );
        }
        assert!(list.starts_with("error"), "{list}");
        let count = |words: &str| page.matches(words).count();
        assert_eq!(count("\n*What repair does:*"), checks::ALL.len());
        let by_hand =
            repair::ALL.iter().flat_map(|remedies| remedies.iter()).filter(|remedy| remedy.is_by_hand());
        assert_eq!(count("\n*How to undo:*"), checks::ALL.len() - by_hand.count());
    }
}
