//! An image of the programs as tests have them, looked at as a container runtime would.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use flate2::read::GzDecoder;
use serde_json::Value;

use super::tree::{Entry, Tree, read_tar, sha256};
use super::{contents, debian, make, parse};
use crate::metadata::Metadata;
use crate::scratch::Scratch;

const NAME: &str = "localhost/plumbline:1.2.3";

/// The programs of a debug build without what is for debuggers only, which is most of them, and the Debian packages.
fn parts(test: &str, scratch: &Scratch) -> Option<(PathBuf, PathBuf)> {
    let programs = Metadata::ours().unwrap().program_dir();
    if let Some(missing) = contents::PROGRAMS.iter().find(|name| !programs.join(name).is_file()) {
        testkit::skip(test, &format!("{missing} is not built: cargo build"));
        return None;
    }
    let packages = debian::cache().unwrap();
    if let Err(error) = debian::fetch(&packages) {
        testkit::skip(test, &format!("{error:#}"));
        return None;
    }
    let stripped = scratch.path().join("programs");
    fs::create_dir(&stripped).unwrap();
    for name in contents::PROGRAMS {
        let mut strip = Command::new("strip");
        let status = strip.arg("-o").arg(stripped.join(name)).arg(programs.join(name)).status();
        assert!(status.unwrap().success(), "strip {name}");
    }
    Some((stripped, packages))
}

fn read(path: &Path) -> Vec<u8> {
    fs::read(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

fn document(path: &Path) -> Value {
    serde_json::from_slice(&read(path)).unwrap()
}

/// The content that a descriptor names, if it is what it says.
fn blob(layout: &Path, descriptor: &Value) -> Vec<u8> {
    let digest = descriptor["digest"].as_str().unwrap().strip_prefix("sha256:").unwrap();
    let content = read(&layout.join("blobs/sha256").join(digest));
    assert_eq!(sha256(&content), digest);
    assert_eq!(descriptor["size"], content.len());
    content
}

/// The files of an image, layer on layer.
fn files(layout: &Path) -> Tree {
    let index = document(&layout.join("index.json"));
    let manifest: Value = serde_json::from_slice(&blob(layout, &index["manifests"][0])).unwrap();
    let config: Value = serde_json::from_slice(&blob(layout, &manifest["config"])).unwrap();
    assert_eq!((&config["architecture"], &config["os"]), (&Value::from("amd64"), &Value::from("linux")));
    assert_eq!(config["config"]["User"], "65532:65532");
    let layers = manifest["layers"].as_array().unwrap();
    assert_eq!(config["rootfs"]["diff_ids"].as_array().unwrap().len(), layers.len());
    let mut tree = Tree::new();
    let mut referred =
        BTreeSet::from([&index["manifests"][0], &manifest["config"]].map(|of| of["digest"].to_string()));
    for (layer, id) in layers.iter().zip(config["rootfs"]["diff_ids"].as_array().unwrap()) {
        referred.insert(layer["digest"].to_string());
        let mut archive = Vec::new();
        std::io::copy(&mut GzDecoder::new(blob(layout, layer).as_slice()), &mut archive).unwrap();
        assert_eq!(*id, format!("sha256:{}", sha256(&archive)));
        tree.extend(read_tar(&archive).unwrap());
    }
    let blobs = fs::read_dir(layout.join("blobs/sha256")).unwrap().count();
    assert_eq!(blobs, referred.len(), "blobs that nothing refers to");
    tree
}

#[test]
fn an_image_is_whole_has_nothing_else_and_is_always_the_same() {
    let test = "an_image_is_whole_has_nothing_else_and_is_always_the_same";
    let scratch = Scratch::new().unwrap();
    let Some((programs, packages)) = parts(test, &scratch) else { return };
    let made: Vec<Vec<PathBuf>> = ["a", "b"]
        .map(|folder| make(&programs, &packages, &scratch.path().join(folder), NAME, "1.2.3").unwrap())
        .into();
    for (first, second) in made[0].iter().zip(&made[1]) {
        assert!(read(first) == read(second), "{} differs from build to build", first.display());
    }
    let layout = scratch.path().join("a/oci");
    let tree = files(&layout);
    for name in contents::PROGRAMS {
        let Some(Entry::File { mode: 0o755, content }) = tree.get(&format!("usr/bin/{name}")) else {
            panic!("{name} is missing")
        };
        assert!(*content == read(&programs.join(name)), "{name}");
    }
    assert_eq!(strangers(&tree), [] as [&String; 0]);
    let packed = read_tar(&read(&made[0][0])).unwrap();
    for path in ["oci-layout", "index.json"] {
        assert_eq!(packed.get(path), Some(&Entry::File { mode: 0o644, content: read(&layout.join(path)) }));
    }
    listed(&document(&made[0][1]), &tree);
}

/// Files of which nobody has said that they belong.
fn strangers(tree: &Tree) -> Vec<&String> {
    let programs = ["bin/plumb", "bin/plumbd", "bin/plumb-cni", "sbin/nft", "sbin/bird"]
        .map(|path| format!("usr/{path}"));
    let plugins = ["portmap", "bandwidth", "loopback"].map(|name| format!("usr/lib/cni/{name}"));
    let known: BTreeSet<String> = programs.into_iter().chain(plugins).collect();
    let is_library = |path: &str| {
        let name = path.strip_prefix("usr/lib/x86_64-linux-gnu/").or_else(|| path.strip_prefix("usr/lib64/"));
        name.is_some_and(|name| name.contains(".so.") && !name.contains('/'))
    };
    let is_licence = |path: &str| {
        path.starts_with("usr/share/doc/")
            && (path.ends_with("/copyright") || path == "usr/share/doc/plumbline/LICENSE")
    };
    let files = tree.iter().filter(|(_, entry)| matches!(entry, Entry::File { .. })).map(|(path, _)| path);
    files.filter(|path| !known.contains(*path) && !is_library(path) && !is_licence(path)).collect()
}

/// Every file is in the list of parts, with its digest, and every relationship is one of parts that are there.
fn listed(sbom: &Value, tree: &Tree) {
    let mut files: BTreeMap<&str, &Value> = BTreeMap::new();
    for file in sbom["files"].as_array().unwrap() {
        files.insert(file["fileName"].as_str().unwrap(), file);
    }
    for (path, entry) in tree {
        let Entry::File { content, .. } = entry else { continue };
        let file =
            files.remove(format!("./{path}").as_str()).unwrap_or_else(|| panic!("{path} is not listed"));
        assert_eq!(file["checksums"][1]["checksumValue"], sha256(content), "{path}");
    }
    assert!(files.is_empty(), "{files:?}");
    let packages = sbom["packages"].as_array().unwrap();
    let names: Vec<&str> = packages.iter().filter_map(|package| package["name"].as_str()).collect();
    for name in ["nftables", "bird2", "containernetworking-plugins", "libc6", "tokio", "agent"] {
        assert!(names.contains(&name), "{name} is not listed");
    }
    let parts =
        packages.iter().chain(sbom["files"].as_array().unwrap()).map(|part| part["SPDXID"].as_str().unwrap());
    let ids: Vec<&str> = parts.collect();
    assert_eq!(ids.iter().collect::<BTreeSet<_>>().len(), ids.len(), "an identifier stands twice");
    for relationship in sbom["relationships"].as_array().unwrap() {
        assert!(ids.contains(&relationship["relatedSpdxElement"].as_str().unwrap()), "{relationship}");
    }
}

#[test]
fn a_missing_program_is_named_and_nothing_is_written() {
    let scratch = Scratch::new().unwrap();
    let out = scratch.path().join("out");
    let error = make(scratch.path(), scratch.path(), &out, NAME, "1.2.3").unwrap_err();
    assert!(format!("{error:#}").contains("/plumb"), "{error:#}");
    assert!(!out.exists());
}

#[test]
fn arguments_are_checked() {
    let parse = |words: &[&str]| {
        let words: Vec<String> = words.iter().map(|word| (*word).to_owned()).collect();
        parse(&words, Path::new("/t"), "1.2.3")
    };
    assert_eq!(parse(&[]).unwrap().name, NAME);
    assert_eq!(parse(&["--name", "r.example:5000/a:b"]).unwrap().name, "r.example:5000/a:b");
    for bad in [&["--name", "untagged"][..], &["--name", "r.example:5000/a"], &["--name"], &["x"]] {
        assert!(parse(bad).is_err(), "{bad:?}");
    }
}
