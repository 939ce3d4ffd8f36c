//! The image as OCI describes it: blobs by their digest, a configuration, a manifest, an index.

use std::fs;
use std::path::Path;

use anyhow::{Context as _, Result};
use serde_json::{Value, json};

use super::tree::{Entry, Tree, compress, sha256, write_tar};
use crate::workspace;

const MANIFEST: &str = "application/vnd.oci.image.manifest.v1+json";
const CONFIG: &str = "application/vnd.oci.image.config.v1+json";
const LAYER: &str = "application/vnd.oci.image.layer.v1.tar+gzip";
/// No user of the node. Agents run as root, because the node's files are root's; everything else needs nobody's rights.
const USER: &str = "65532:65532";
/// The same for every build, so that builds can be compared.
const CREATED: &str = "1970-01-01T00:00:00Z";

/// Writes the directory anew. Gives back the digest of the manifest, which is the image's.
pub(super) fn write(folder: &Path, layers: &[Vec<u8>], name: &str, version: &str) -> Result<String> {
    if folder.exists() {
        fs::remove_dir_all(folder).with_context(|| format!("cannot remove {}", workspace::shown(folder)))?;
    }
    let blobs = folder.join("blobs/sha256");
    fs::create_dir_all(&blobs).with_context(|| format!("cannot make {}", workspace::shown(&blobs)))?;
    let blob = |media_type: &str, content: &[u8]| -> Result<Value> {
        let digest = sha256(content);
        fs::write(blobs.join(&digest), content).context("cannot write a part of the image")?;
        Ok(json!({ "mediaType": media_type, "digest": format!("sha256:{digest}"), "size": content.len() }))
    };
    let mut descriptors = Vec::new();
    for layer in layers {
        descriptors.push(blob(LAYER, &compress(layer)?)?);
    }
    let config = blob(CONFIG, configuration(layers, version).to_string().as_bytes())?;
    let manifest = json!({
        "schemaVersion": 2, "mediaType": MANIFEST, "config": config, "layers": descriptors,
        "annotations": labels(version),
    });
    let mut descriptor = blob(MANIFEST, manifest.to_string().as_bytes())?;
    let digest = descriptor["digest"].as_str().unwrap_or_default().to_owned();
    descriptor["platform"] = json!({ "architecture": "amd64", "os": "linux" });
    // podman and skopeo read the first, containerd the second.
    descriptor["annotations"] =
        json!({ "org.opencontainers.image.ref.name": name, "io.containerd.image.name": name });
    let index = json!({ "schemaVersion": 2, "manifests": [descriptor] });
    for (file, text) in [
        ("oci-layout", json!({ "imageLayoutVersion": "1.0.0" }).to_string()),
        ("index.json", index.to_string()),
    ] {
        fs::write(folder.join(file), text).with_context(|| format!("cannot write {file}"))?;
    }
    Ok(digest)
}

fn configuration(layers: &[Vec<u8>], version: &str) -> Value {
    let digests: Vec<String> = layers.iter().map(|layer| format!("sha256:{}", sha256(layer))).collect();
    let history = ["Debian packages", "Plumbline"].map(|of| json!({ "created": CREATED, "created_by": of }));
    json!({
        "architecture": "amd64",
        "os": "linux",
        "created": CREATED,
        "config": {
            "User": USER,
            "Env": ["PATH=/usr/sbin:/usr/bin"],
            "Cmd": ["/usr/bin/plumb", "version", "--client"],
            "WorkingDir": "/",
            "Labels": labels(version),
        },
        "rootfs": { "type": "layers", "diff_ids": digests },
        "history": history,
    })
}

fn labels(version: &str) -> Value {
    json!({
        "org.opencontainers.image.title": "plumbline",
        "org.opencontainers.image.version": version,
        "org.opencontainers.image.licenses": "Apache-2.0",
    })
}

/// The directory as one file, for `podman load` and `ctr image import`.
pub(super) fn pack(folder: &Path, tar: &Path) -> Result<()> {
    let mut tree = Tree::new();
    for path in workspace::files(folder) {
        let content = fs::read(&path).with_context(|| format!("cannot read {}", workspace::shown(&path)))?;
        let name = path.strip_prefix(folder).unwrap_or(&path).to_string_lossy().into_owned();
        tree.insert(name, Entry::File { mode: 0o644, content });
    }
    for folder in ["blobs", "blobs/sha256"] {
        tree.insert(folder.to_owned(), Entry::Directory { mode: 0o755 });
    }
    fs::write(tar, write_tar(&tree)?).with_context(|| format!("cannot write {}", workspace::shown(tar)))
}
