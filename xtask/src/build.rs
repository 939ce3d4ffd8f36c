//! `cargo xtask build [PROGRAM…]`: the programs as they are released, static, in `target/release`.
//!
//! A static program runs on every Linux of its architecture: hosts with musl or an old libc, and images that hold nothing
//! else. The plugin has no C code, so it is built for musl where that target is installed: it starts in half the time. The
//! other programs are built for glibc, whose allocator is several times as fast, and which needs no second C compiler.

use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, bail};

use crate::metadata::Metadata;
use crate::workspace;

/// A program that is released, and the crate that holds it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Program {
    pub(crate) name: &'static str,
    package: &'static str,
    has_c_code: bool,
}

pub(crate) const PROGRAMS: &[Program] = &[
    Program { name: "plumb-cni", package: "cni", has_c_code: false },
    Program { name: "plumbd", package: "agent", has_c_code: true },
    Program { name: "plumb", package: "ctl", has_c_code: true },
    Program { name: "plumb-lab", package: "lab", has_c_code: true },
];

/// For glibc. Relative relocations are packed: they are a tenth of a static program otherwise.
const GLIBC_FLAGS: &str = "-Ctarget-feature=+crt-static -Clink-arg=-Wl,-z,pack-relative-relocs";

pub(crate) fn run(args: &[String]) -> Result<bool> {
    let programs = select(args)?;
    for path in build(&programs)? {
        println!("{}", workspace::shown(&path));
    }
    Ok(true)
}

fn select(names: &[String]) -> Result<Vec<Program>> {
    if names.is_empty() {
        return Ok(PROGRAMS.to_vec());
    }
    let known = || PROGRAMS.iter().map(|program| program.name).collect::<Vec<_>>().join(", ");
    let find = |name: &String| {
        let found = PROGRAMS.iter().find(|program| program.name == name.as_str()).copied();
        found.with_context(|| format!("there is no program {name:?}; there are: {}", known()))
    };
    names.iter().map(find).collect()
}

/// Builds them, and puts them where a plain release build puts its own.
pub(crate) fn build(programs: &[Program]) -> Result<Vec<PathBuf>> {
    let target_dir = Metadata::ours()?.target_dir;
    let musl = format!("{}-unknown-linux-musl", std::env::consts::ARCH);
    let has_musl = is_installed(&musl);
    let (glibc, musl_only): (Vec<Program>, Vec<Program>) =
        programs.iter().partition(|program| program.has_c_code || !has_musl);
    let mut built = compile(&musl_only, &musl, "", &target_dir)?;
    let platform = format!("{}-unknown-linux-gnu", std::env::consts::ARCH);
    built.extend(compile(&glibc, &platform, GLIBC_FLAGS, &target_dir)?);
    built.iter().map(|program| install(program, &target_dir.join("release"))).collect()
}

fn is_installed(target: &str) -> bool {
    let mut rustc = std::process::Command::new(std::env::var_os("RUSTC").unwrap_or_else(|| "rustc".into()));
    let asked = rustc.args(["--print", "target-libdir", "--target", target]).current_dir(workspace::root());
    let Ok(output) = asked.output() else { return false };
    Path::new(String::from_utf8_lossy(&output.stdout).trim()).is_dir()
}

/// The target is named even where it is this machine's own: flags are then for the programs alone, and not for
/// procedural macros, which cannot be static.
fn compile(programs: &[Program], target: &str, flags: &str, target_dir: &Path) -> Result<Vec<PathBuf>> {
    if programs.is_empty() {
        return Ok(Vec::new());
    }
    let mut cargo = workspace::cargo();
    cargo.args(["build", "--release", "--locked", "--target", target]);
    for program in programs {
        cargo.args(["--package", program.package, "--bin", program.name]);
    }
    let given = std::env::var("RUSTFLAGS").unwrap_or_default();
    cargo.env("RUSTFLAGS", format!("{given} {flags}").trim());
    if !cargo.status().context("cargo build")?.success() {
        bail!("the programs do not build for {target}");
    }
    let folder = target_dir.join(target).join("release");
    Ok(programs.iter().map(|program| folder.join(program.name)).collect())
}

/// Never writes into the file that is there: it may be running, and it is the same file as one of cargo's own.
fn install(program: &Path, folder: &Path) -> Result<PathBuf> {
    let name = program.file_name().context("a program has a name")?.to_string_lossy();
    let (path, new) = (folder.join(&*name), folder.join(format!(".{name}.new")));
    let copied = std::fs::create_dir_all(folder).and_then(|()| std::fs::copy(program, &new));
    copied
        .and_then(|_| std::fs::rename(&new, &path))
        .with_context(|| format!("cannot write {}", path.display()))?;
    Ok(path)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn programs_are_chosen_by_name() {
        assert_eq!(select(&[]).unwrap(), PROGRAMS);
        assert_eq!(select(&["plumbd".to_owned()]).unwrap()[0].package, "agent");
        assert!(select(&["plum".to_owned()]).unwrap_err().to_string().contains("plumb-cni, plumbd"));
    }

    #[test]
    fn a_program_takes_the_place_of_an_older_one() {
        let scratch = crate::scratch::Scratch::new().unwrap();
        let (source, folder) = (scratch.path().join("plumb"), scratch.path().join("release"));
        std::fs::create_dir(&folder).unwrap();
        std::fs::write(folder.join("plumb"), "old").unwrap();
        std::fs::hard_link(folder.join("plumb"), scratch.path().join("of-cargo")).unwrap();
        std::fs::write(&source, "new").unwrap();
        let installed = install(&source, &folder).unwrap();
        assert_eq!(std::fs::read_to_string(installed).unwrap(), "new");
        assert_eq!(std::fs::read_to_string(scratch.path().join("of-cargo")).unwrap(), "old");
    }
}
