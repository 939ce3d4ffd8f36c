//! How well the doctor names what is wrong with the clusters of `tests/corpus`.
//!
//! A directory there has texts and an `expect.txt`: `cause:` words of which all must be in one finding, `names:` what that finding
//! must name, `forbid:` words that no finding may have, `also:` codes of further findings that are true. Words are compared
//! without case. A cluster without a cause is healthy.

use std::path::{Path, PathBuf};

use doctor::{Finding, Report, diagnose};

/// What one cluster must be told, as its `expect.txt` says.
#[derive(Debug, Default)]
pub(crate) struct Expectation {
    pub(crate) causes: Vec<Cause>,
    pub(crate) forbidden: Vec<String>,
    pub(crate) also: Vec<String>,
}

/// A root cause, and whether the doctor is known to miss it.
#[derive(Debug, Default)]
pub(crate) struct Cause {
    pub(crate) words: Vec<String>,
    pub(crate) names: Vec<String>,
    pub(crate) is_missed: bool,
}

/// One cluster with what the doctor made of it.
pub(crate) struct Judged {
    pub(crate) name: String,
    pub(crate) expectation: Expectation,
    pub(crate) report: Report,
    /// For each cause the finding that names it, and whether it does in its own words.
    pub(crate) found: Vec<Option<(usize, bool)>>,
    /// Findings that name no cause and are not among the further true ones.
    pub(crate) extra: Vec<usize>,
    pub(crate) forbidden: Vec<String>,
}

fn top() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/corpus")
}

fn sorted(directory: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(directory).expect("the corpus is part of the repository");
    let mut paths: Vec<PathBuf> = entries.map(|entry| entry.expect("an entry").path()).collect();
    paths.sort();
    paths
}

fn files(directory: &Path, below: &str, found: &mut Vec<(String, Vec<u8>)>) {
    for path in sorted(directory) {
        let name = path.file_name().expect("a name").to_string_lossy().into_owned();
        if path.is_dir() {
            files(&path, &format!("{below}{name}/"), found);
        } else if name != "expect.txt" {
            found.push((format!("{below}{name}"), std::fs::read(&path).expect("a file")));
        }
    }
}

fn expectation(text: &str) -> Expectation {
    let mut read = Expectation::default();
    let list =
        |value: &str, mark: char| value.split(mark).map(|word| word.trim().to_owned()).collect::<Vec<_>>();
    for line in text.lines() {
        let (key, value) = line.split_once(": ").unwrap_or_else(|| panic!("not `key: value`: {line}"));
        match key {
            "cause" => read.causes.push(Cause { words: list(value, '|'), ..Cause::default() }),
            "names" => read.causes.last_mut().expect("a cause before").names = list(value, ','),
            "missed" => read.causes.last_mut().expect("a cause before").is_missed = true,
            "forbid" => read.forbidden.push(value.trim().to_owned()),
            "also" => read.also = list(value, ','),
            "store" | "source" => {}
            _ => panic!("no such key: {key}"),
        }
    }
    read
}

/// Every word of the doctor's own about a finding, without what it quotes.
fn own_words(finding: &Finding) -> String {
    let title = doctor::checks::find(finding.code).title;
    let commands: Vec<String> = finding.commands.iter().map(ToString::to_string).collect();
    format!(
        "{title}\n{}\n{}\n{}\n{}\n{}",
        finding.subject,
        finding.summary,
        finding.cause.join("\n"),
        finding.remedy,
        commands.join("\n")
    )
    .to_lowercase()
}

fn all_words(finding: &Finding) -> String {
    let quoted: Vec<&str> = finding.evidence.iter().map(|exhibit| exhibit.text.as_str()).collect();
    format!("{}\n{}", own_words(finding), quoted.join("\n").to_lowercase())
}

fn has_all(text: &str, words: &[String]) -> bool {
    words.iter().all(|word| text.contains(&word.to_lowercase()))
}

fn names_it(report: &Report, cause: &Cause) -> Option<(usize, bool)> {
    let wanted: Vec<String> = cause.words.iter().chain(&cause.names).cloned().collect();
    let own = report.findings.iter().position(|finding| has_all(&own_words(finding), &wanted));
    let quoted = || report.findings.iter().position(|finding| has_all(&all_words(finding), &wanted));
    own.map(|index| (index, true)).or_else(|| quoted().map(|index| (index, false)))
}

pub(crate) fn judge(name: &str) -> Judged {
    let directory = top().join(name);
    let text =
        std::fs::read_to_string(directory.join("expect.txt")).expect("every cluster has its expect.txt");
    let expectation = expectation(&text);
    let mut read = Vec::new();
    files(&directory, "", &mut read);
    let report = diagnose(&intake::read(read.iter().map(|(name, bytes)| (name.as_str(), bytes.as_slice()))));
    let found: Vec<_> = expectation.causes.iter().map(|cause| names_it(&report, cause)).collect();
    let is_true = |index: usize, finding: &Finding| {
        found.iter().flatten().any(|(place, _)| *place == index)
            || expectation.also.iter().any(|code| code == finding.code.as_str())
    };
    let extra = report.findings.iter().enumerate().filter(|(index, finding)| !is_true(*index, finding));
    let extra = extra.map(|(index, _)| index).collect();
    let has = |word: &&String| {
        report.findings.iter().any(|finding| own_words(finding).contains(&word.to_lowercase()))
    };
    let forbidden = expectation.forbidden.iter().filter(has).cloned().collect();
    Judged { name: name.to_owned(), expectation, report, found, extra, forbidden }
}

/// All clusters, by name.
pub(crate) fn judge_all() -> Vec<Judged> {
    let names = sorted(&top()).into_iter().filter(|path| path.is_dir());
    names.map(|path| judge(&path.file_name().expect("a name").to_string_lossy())).collect()
}

/// What all of them come to.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Score {
    pub(crate) causes: usize,
    pub(crate) found: usize,
    pub(crate) in_own_words: usize,
    pub(crate) extra: usize,
    pub(crate) false_alarms: usize,
    pub(crate) forbidden: usize,
}

pub(crate) fn score(judged: &[Judged]) -> Score {
    let mut score = Score::default();
    for cluster in judged {
        let is_healthy = cluster.expectation.causes.is_empty();
        score.causes += cluster.found.len();
        score.found += cluster.found.iter().flatten().count();
        score.in_own_words += cluster.found.iter().flatten().filter(|(_, is_own)| *is_own).count();
        *(if is_healthy { &mut score.false_alarms } else { &mut score.extra }) += cluster.extra.len();
        score.forbidden += cluster.forbidden.len();
    }
    score
}
