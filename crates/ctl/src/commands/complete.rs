//! `plumb __complete`: what could stand in the place of the last word, for completion scripts: kinds, names of resources,
//! labs. What the command line itself knows (commands, flags, codes of findings) is in the scripts.

use std::collections::BTreeSet;
use std::io::Write as _;
use std::path::PathBuf;

use model::{Key, Kind};

use crate::cli::{Complete, Global};
use crate::connect;
use crate::failure::Failures;
use crate::reader::Pages;
use crate::records;

/// Nobody reads more, and no shell shows them well.
const NAMES_MAX: usize = 500;
/// Where labs are, unless the environment says otherwise; `plumb-lab` goes by the same.
const LABS: &str = "/var/lib/plumb-lab";
const LABS_VARIABLE: &str = "PLUMB_LAB_DIR";

pub(crate) async fn run(global: &Global, wanted: &Complete) -> Result<(), Failures> {
    let words: Vec<&str> = wanted.words.iter().map(String::as_str).collect();
    let mut out = std::io::stdout().lock();
    for candidate in candidates(global, &words).await {
        writeln!(out, "{candidate}")?;
    }
    Ok(())
}

/// Words that complete the last one. None where a shell, or a store that cannot be read, has to do.
async fn candidates(global: &Global, words: &[&str]) -> Vec<String> {
    let Some((last, before)) = words.split_last() else { return Vec::new() };
    if last.starts_with('-') {
        return Vec::new();
    }
    let line = Line::of(before);
    let found = match (line.words.as_slice(), line.flag) {
        (["lab", ..], Some("--name")) => labs(),
        (_, Some("-n" | "--namespace")) => namespaces(global).await,
        (_, Some(_)) => return Vec::new(),
        (["get" | "delete" | "patch" | "label"], None) => kinds(),
        (["get" | "delete", kind, ..], None) | (["patch" | "label", kind], None) => {
            names(global, kind, line.namespace, line.is_everywhere).await
        }
        (["node", "status"] | ["repair", "node"], None) => names(global, "node", None, false).await,
        _ => return Vec::new(),
    };
    found.into_iter().filter(|word| word.starts_with(last)).take(NAMES_MAX).collect()
}

/// What was typed before the last word.
struct Line<'a> {
    /// Without flags.
    words: Vec<&'a str>,
    namespace: Option<&'a str>,
    is_everywhere: bool,
    /// The flag whose value the last word is.
    flag: Option<&'a str>,
}

/// Flags of these commands that have a value in the next word.
const WITH_VALUE: [&str; 16] = [
    "-c",
    "--config",
    "-l",
    "--log-level",
    "--context",
    "-f",
    "--filename",
    "-n",
    "--namespace",
    "-o",
    "--output",
    "--selector",
    "-p",
    "--patch",
    "--name",
    "--max-input-size",
];

impl<'a> Line<'a> {
    fn of(before: &[&'a str]) -> Line<'a> {
        let mut line = Line { words: Vec::new(), namespace: None, is_everywhere: false, flag: None };
        for word in before {
            match line.flag.take() {
                Some("-n" | "--namespace") => line.namespace = Some(word),
                Some(_) => {}
                None if WITH_VALUE.contains(word) => line.flag = Some(word),
                None if word.starts_with('-') => {
                    line.is_everywhere |= matches!(*word, "-A" | "-a" | "--all-namespaces");
                    line.namespace = word.strip_prefix("--namespace=").or(line.namespace);
                }
                None => line.words.push(word),
            }
        }
        line
    }
}

fn kinds() -> Vec<String> {
    let mut words: BTreeSet<String> = BTreeSet::new();
    for kind in Kind::all() {
        words.insert(kind.name().to_ascii_lowercase());
        words.extend(kind.aliases().iter().map(|alias| (*alias).to_owned()));
    }
    words.into_iter().collect()
}

async fn names(global: &Global, kind: &str, namespace: Option<&str>, is_everywhere: bool) -> Vec<String> {
    let Some(kind) = Kind::from_command_line(kind) else { return Vec::new() };
    let namespace = match kind.is_namespaced() && !is_everywhere {
        true => Some(namespace.unwrap_or(crate::scope::DEFAULT_NAMESPACE)),
        false => None,
    };
    let Ok(store) = connect::open_for_reading(global).await else { return Vec::new() };
    let mut pages = Pages::new(&store, kind, namespace);
    let mut names = Vec::new();
    while let (true, Ok(Some(page))) = (names.len() < NAMES_MAX, pages.next().await) {
        names.extend(page.records.iter().map(records::name));
    }
    names
}

/// Namespaces that have endpoints or policies.
async fn namespaces(global: &Global) -> Vec<String> {
    let Ok(store) = connect::open_for_reading(global).await else { return Vec::new() };
    let mut found = BTreeSet::new();
    for kind in [Kind::WorkloadEndpoint, Kind::NetworkPolicy, Kind::NetworkSet] {
        let mut pages = Pages::new(&store, kind, None);
        while let (true, Ok(Some(page))) = (found.len() < NAMES_MAX, pages.next().await) {
            found.extend(page.records.iter().filter_map(|record| match &record.key {
                Key::Resource { namespace, .. } => namespace.clone(),
                _ => None,
            }));
        }
    }
    found.into_iter().collect()
}

fn labs() -> Vec<String> {
    let folder = std::env::var_os(LABS_VARIABLE).map_or_else(|| PathBuf::from(LABS), PathBuf::from);
    let Ok(entries) = folder.read_dir() else { return Vec::new() };
    let folders = entries.flatten().filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()));
    let mut names: Vec<String> = folders.filter_map(|entry| entry.file_name().into_string().ok()).collect();
    names.sort();
    names
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flags_and_their_values_are_no_words_of_the_command() {
        let line = Line::of(&["-c", "file", "get", "-n", "shop", "wep", "-o", "wide", "-A"]);
        assert_eq!(line.words, ["get", "wep"]);
        assert_eq!((line.namespace, line.is_everywhere, line.flag), (Some("shop"), true, None));
        assert_eq!(Line::of(&["get", "wep", "-n"]).flag, Some("-n"));
        assert_eq!(Line::of(&["get", "--namespace=a"]).namespace, Some("a"));
    }

    #[test]
    fn every_word_for_a_kind_is_a_kind() {
        let words = kinds();
        assert!(words.contains(&"ippool".to_owned()) && words.contains(&"wep".to_owned()), "{words:?}");
        assert!(words.iter().all(|word| Kind::from_command_line(word).is_some()), "{words:?}");
    }
}
