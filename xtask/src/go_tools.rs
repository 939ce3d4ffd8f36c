//! Programs that are in no Debian package but can be built from their Go module, by its name: what is missing is
//! built once, in a cache beside the work tree, and never without saying what and why.

use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

use anyhow::Result;

use crate::workspace::{has_program, search_path};
use crate::{kubernetes, process};

/// A program, and the module it comes from.
struct GoTool {
    program: &'static str,
    module: &'static str,
    version: &'static str,
    why: &'static str,
}

const FOR_TESTS: &[GoTool] = &[GoTool {
    program: "cnitool",
    module: "github.com/containernetworking/cni/cnitool",
    version: "v1.3.1",
    why: "calls a plugin the way the library does that most runtimes use",
}];

/// Fetching and building takes a minute; a network that swallows everything must not take for ever.
const ALLOWED: Duration = Duration::from_secs(300);

/// Sees to it that the tools are there. What cannot be built is named, not an error: the tests that need it skip
/// themselves and say so.
pub(crate) fn ensure() -> Result<()> {
    for tool in FOR_TESTS {
        if has_program(tool.program) {
            continue;
        }
        println!("missing: {} from the Go module {}: {}", tool.program, tool.module, tool.why);
        match (tool.folder(), has_program("go")) {
            (Some(folder), true) => build(tool, &folder)?,
            (_, false) => println!("not built: there is no Go here. Tests that need it are skipped."),
            (None, _) => println!("not built: without HOME there is no cache to keep it in."),
        }
    }
    Ok(())
}

/// Where built programs are. They need not exist.
pub(crate) fn folders() -> Vec<String> {
    let of_tools = FOR_TESTS.iter().map(GoTool::folder);
    of_tools.chain([kubernetes::folder()]).flatten().map(|folder| folder.display().to_string()).collect()
}

/// Where we keep what we built, beside all work trees.
pub(crate) fn cache() -> Option<PathBuf> {
    let variable = |name: &str| std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    let cache = variable("XDG_CACHE_HOME").or_else(|| Some(variable("HOME")?.join(".cache")))?;
    Some(cache.join("plumb").join("go"))
}

impl GoTool {
    /// One for each version, so that another version is another program.
    fn folder(&self) -> Option<PathBuf> {
        Some(cache()?.join(format!("{}-{}", self.program, self.version)))
    }
}

fn build(tool: &GoTool, folder: &PathBuf) -> Result<()> {
    let source = format!("{}@{}", tool.module, tool.version);
    println!("building {source}");
    let mut command = Command::new("go");
    command.args(["install", &source]).env("GOBIN", folder).env("PATH", search_path());
    // Not from within a module of someone else's, which would have its own idea of versions.
    command.current_dir(std::env::temp_dir());
    let finished = process::capture(&mut command, ALLOWED, &mut |_| {})?;
    if !finished.succeeded() {
        println!("go install {source} {}: {}", finished.end, finished.output.trim());
        println!("still missing: {}. Tests that need it are skipped.", tool.program);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn built_programs_are_found_by_their_names() {
        let path = search_path();
        for folder in folders() {
            assert!(path.split(':').any(|known| known == folder), "{folder} is not in {path}");
        }
    }
}
