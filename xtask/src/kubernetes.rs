//! `cargo xtask kubernetes`: Kubernetes' own programs for tests, from Go modules by their names. `tests/kube` lists them; they
//! are built once, in the cache beside the work tree, because that takes minutes.

use std::fs::File;
use std::hash::{DefaultHasher, Hasher as _};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context as _, Result, bail};

use crate::workspace::{has_program, root, search_path};
use crate::{go_tools, process};

/// The names under which the one program is called.
const PROGRAMS: &[&str] = &["kube-apiserver", "kube-controller-manager", "kubectl"];
/// What makes another build.
const SOURCES: &[&str] = &["go.mod", "go.sum", "main.go"];
/// From an empty cache, on two busy cores.
const ALLOWED: Duration = Duration::from_secs(45 * 60);

pub(crate) fn run(args: &[String]) -> Result<bool> {
    if let Some(unknown) = args.first() {
        bail!("unknown argument {unknown:?}; usage: cargo xtask kubernetes");
    }
    let Some(folder) = folder() else { bail!("without HOME there is no cache to keep the programs in") };
    if !is_built(&folder) {
        if !has_program("go") {
            bail!("Go is not installed, and Kubernetes' programs are built from Go modules");
        }
        build(&folder)?;
    }
    println!("{}", folder.display());
    Ok(is_built(&folder))
}

/// Builds the programs if they are not there. What cannot be built is named, not an error: the tests that need them skip
/// themselves and say so.
pub(crate) fn ensure() -> Result<()> {
    let Some(folder) = folder() else {
        println!("not built: Kubernetes. Without HOME there is no cache to keep it in.");
        return Ok(());
    };
    if is_built(&folder) {
        return Ok(());
    }
    if !has_program("go") {
        println!("not built: Kubernetes. There is no Go here. Tests that need its API server are skipped.");
        return Ok(());
    }
    build(&folder)
}

/// Where the programs are, one folder for each version of their sources. It need not exist.
pub(crate) fn folder() -> Option<PathBuf> {
    let mut hasher = DefaultHasher::new();
    for source in SOURCES {
        hasher.write(&std::fs::read(sources().join(source)).ok()?);
    }
    Some(go_tools::cache()?.join(format!("kubernetes-{}-{:016x}", version()?, hasher.finish())))
}

fn sources() -> PathBuf {
    root().join("tests").join("kube")
}

/// `v1.35.4`, as `go.mod` requires it.
fn version() -> Option<String> {
    let required = std::fs::read_to_string(sources().join("go.mod")).ok()?;
    let mut versions = required.lines().filter_map(|line| line.trim().strip_prefix("k8s.io/kubernetes "));
    versions.next().map(|version| version.trim().to_owned())
}

fn is_built(folder: &Path) -> bool {
    PROGRAMS.iter().all(|program| folder.join(program).is_file())
}

/// Another run may be at it just now: one builds, the other waits and finds everything there.
fn build(folder: &Path) -> Result<()> {
    std::fs::create_dir_all(folder).with_context(|| format!("cannot make {}", folder.display()))?;
    let lock = File::options().create(true).append(true).open(folder.join("lock"))?;
    lock.lock().context("cannot lock the cache of Kubernetes' programs")?;
    if is_built(folder) {
        return Ok(());
    }
    let version = version().context("tests/kube/go.mod does not require k8s.io/kubernetes")?;
    println!("building Kubernetes {version} from Go modules; this takes 5 to 15 minutes, once");
    let built = folder.join("kube");
    let finished = process::capture(&mut go_build(&version, &built), ALLOWED, &mut |_| {})?;
    if !finished.succeeded() {
        println!("go build in tests/kube {}: {}", finished.end, finished.output.trim());
        println!("still missing: Kubernetes. Tests that need its API server are skipped.");
        return Ok(());
    }
    for program in PROGRAMS {
        let path = folder.join(program);
        // A hard link keeps the name it was started with, as a symbolic link would, and survives a move.
        if !path.exists() {
            std::fs::hard_link(&built, &path).with_context(|| format!("cannot make {}", path.display()))?;
        }
    }
    Ok(())
}

fn go_build(version: &str, built: &Path) -> Command {
    let mut stamps = format!("-s -w -X k8s.io/component-base/version.gitVersion={version}");
    let mut numbers = version.trim_start_matches('v').split('.');
    for name in ["gitMajor", "gitMinor"] {
        if let Some(number) = numbers.next() {
            stamps.push_str(&format!(" -X k8s.io/component-base/version.{name}={number}"));
        }
    }
    let mut command = Command::new("go");
    command.current_dir(sources()).env("PATH", search_path()).env("CGO_ENABLED", "0");
    command.args(["build", "-trimpath", "-buildvcs=false", "-ldflags", &stamps, "-o"]).arg(built).arg(".");
    command
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_version_is_the_one_that_is_required() {
        let version = version().unwrap();
        assert!(version.starts_with("v1.") && version.split('.').count() == 3, "{version}");
        let command = format!("{:?}", go_build("v1.35.4", Path::new("x")));
        assert!(command.contains("gitMajor=1") && command.contains("gitMinor=35"), "{command}");
    }

    #[test]
    fn the_programs_are_those_that_the_source_knows() {
        let source = std::fs::read_to_string(sources().join("main.go")).unwrap();
        for program in PROGRAMS {
            assert!(source.contains(&format!("\"{program}\":")), "{program}");
        }
    }
}
