//! The commands that the docs show are run, and must print what the docs say they print.
//!
//! In a Markdown page:
//! * a fence marked `console` holds commands (`$ command`) and what they print. `...` on a line of its own
//!   stands for any lines, `[..]` for anything within a line. A command that fails must be followed by
//!   `$ echo $?`, so that the reader sees the exit code too. `<<WORD` here-documents and a trailing `\` work;
//! * `<!-- not tested: reason -->` before such a fence leaves it out;
//! * `<!-- file: NAME -->` before any fence puts its text into a file that later commands can use.
//!
//! The commands of one page share a folder, a home and an empty SQLite store.

mod generated;
mod matching;
mod page;
mod session;

use std::path::PathBuf;

use anyhow::{Context as _, Result, bail};

use crate::metadata::Metadata;
use crate::scratch::Scratch;
use crate::workspace;

pub(crate) use page::{Item, Page, parse};
pub(crate) use session::{Outcome, run as run_page};

/// `cargo xtask docs [--accept]`
pub(crate) fn run(args: &[String]) -> Result<bool> {
    let accept = match args {
        [] => false,
        [flag] if flag == "--accept" => true,
        _ => bail!("usage: cargo xtask docs [--accept]"),
    };
    if let Some(obstacle) = obstacle() {
        bail!("{obstacle}");
    }
    let metadata = Metadata::ours()?;
    let built = workspace::cargo().args(["build", "--bins"]).status().context("cargo build")?;
    if !built.success() {
        bail!("the programs could not be built");
    }
    let scratch = Scratch::new()?;
    let mut failed = 0;
    for path in pages() {
        let page = read(&path)?;
        let outcomes = run_page(&page, &metadata.program_dir(), scratch.path())?;
        failed += report(&page, &outcomes);
        if accept {
            let text = session::accepted(&page, &outcomes);
            std::fs::write(&path, text).with_context(|| format!("cannot write {}", path.display()))?;
        }
    }
    failed += generated::compare(&metadata.program_dir(), accept)?;
    println!("{failed} commands print something else than the docs say");
    Ok(failed == 0 || accept)
}

/// Why no command may be run here.
pub(crate) fn obstacle() -> Option<String> {
    let config = "/etc/calico/calicoctl.cfg";
    std::path::Path::new(config)
        .exists()
        .then(|| format!("{config} exists: the commands would change the store that it names"))
}

fn report(page: &Page, outcomes: &[Outcome]) -> usize {
    let failures: Vec<&String> = outcomes.iter().filter_map(|outcome| outcome.failure.as_ref()).collect();
    println!("{}: {} commands, {} wrong", page.name, outcomes.len(), failures.len());
    failures.iter().for_each(|failure| println!("{failure}"));
    for item in &page.items {
        if let Item::Untested { line, reason } = item {
            println!("  not run: line {line}: {reason}");
        }
    }
    failures.len()
}

/// The pages whose commands are run: those at the root and everything in `docs/`.
pub(crate) fn pages() -> Vec<PathBuf> {
    let is_page = |path: &PathBuf| {
        let shown = workspace::shown(path);
        shown.starts_with("docs/") || !shown.contains('/')
    };
    workspace::files_with_extension("md").into_iter().filter(is_page).collect()
}

pub(crate) fn read(path: &std::path::Path) -> Result<Page> {
    parse(&workspace::shown(path), &workspace::read(path)?)
}
