//! `cargo xtask image`: a container image of the agents and controllers, without a container daemon.
//!
//! It holds our programs, nft and BIRD with the shared libraries that they need, and the plugins portmap, bandwidth and loopback; no shell and
//! no package manager. The same programs and packages make the same image, byte for byte.

mod contents;
mod debian;
mod layout;
mod sbom;
mod tree;

use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, bail};

use crate::build;
use crate::metadata::Metadata;
use crate::workspace;
use contents::Contents;

/// What the image is made of.
struct Wanted {
    /// Where the programs are; built as they are released if nobody says.
    programs: Option<PathBuf>,
    out: PathBuf,
    name: String,
}

const USAGE: &str = "cargo xtask image [--programs DIR] [--out DIR] [--name IMAGE:TAG]";

pub(crate) fn run(args: &[String]) -> Result<bool> {
    let metadata = Metadata::ours()?;
    let version = &metadata.package("ctl").context("there is a crate ctl")?.version;
    let wanted = parse(args, &metadata.target_dir, version)?;
    let programs = match &wanted.programs {
        Some(folder) => folder.clone(),
        None => {
            let shipped = build::PROGRAMS.iter().filter(|program| contents::PROGRAMS.contains(&program.name));
            build::build(&shipped.copied().collect::<Vec<_>>())?;
            metadata.target_dir.join("release")
        }
    };
    for path in make(&programs, &debian::cache()?, &wanted.out, &wanted.name, version)? {
        let size = std::fs::metadata(&path).map_or(0, |metadata| metadata.len());
        println!("{} ({:.1} MB)", workspace::shown(&path), size as f64 / 1e6);
    }
    Ok(true)
}

fn parse(args: &[String], target_dir: &Path, version: &str) -> Result<Wanted> {
    let mut wanted = Wanted {
        programs: None,
        out: target_dir.join("image"),
        name: format!("localhost/plumbline:{version}"),
    };
    let mut words = args.iter();
    while let Some(word) = words.next() {
        let mut value = || words.next().with_context(|| format!("{word} needs a value. Usage: {USAGE}"));
        match word.as_str() {
            "--programs" => wanted.programs = Some(value()?.into()),
            "--out" => wanted.out = value()?.into(),
            "--name" => wanted.name = value()?.clone(),
            _ => bail!("unknown argument {word:?}. Usage: {USAGE}"),
        }
    }
    let is_named =
        wanted.name.rsplit_once(':').is_some_and(|(image, tag)| !image.is_empty() && !tag.contains('/'));
    if !is_named {
        bail!("the name {:?} has no tag: write it as IMAGE:TAG", wanted.name);
    }
    Ok(wanted)
}

/// Writes the image as a directory (`oci`), as a tar, and its list of parts beside it. Gives back the files.
fn make(programs: &Path, packages: &Path, out: &Path, name: &str, version: &str) -> Result<Vec<PathBuf>> {
    if std::env::consts::ARCH != "x86_64" {
        bail!("images are made on amd64 only, because the Debian packages are those of this machine");
    }
    let contents = Contents::collect(programs, packages)?;
    for program in &contents.not_static {
        eprintln!(
            "note: {program} is not static: the image has the libraries of its own Debian release only"
        );
    }
    let layers = contents.layers()?;
    std::fs::create_dir_all(out).with_context(|| format!("cannot make {}", workspace::shown(out)))?;
    let digest = layout::write(&out.join("oci"), &layers, name, version)?;
    let tar = out.join(format!("plumbline-{version}.tar"));
    layout::pack(&out.join("oci"), &tar)?;
    let list = out.join(format!("plumbline-{version}.spdx.json"));
    let text = format!("{:#}\n", sbom::document(&contents, version, &digest)?);
    std::fs::write(&list, text).with_context(|| format!("cannot write {}", workspace::shown(&list)))?;
    Ok(vec![tar, list])
}

#[cfg(test)]
mod tests;
