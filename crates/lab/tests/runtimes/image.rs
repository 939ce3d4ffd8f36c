//! An image for pods, made of the machine's own static busybox: no registry is asked for anything.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result};
use serde_json::{Value, json};
use testkit::process::run;

pub(crate) const NAME: &str = "localhost/plumb-test:1";

const BUSYBOX: &str = "/usr/bin/busybox";

/// Why no image can be made here, if so.
pub(crate) fn missing() -> Option<String> {
    let program = fs::read(BUSYBOX).unwrap_or_default();
    // One that needs libraries names their loader.
    let is_static = !program.is_empty() && !program.windows(9).any(|window| window == b"/ld-linux");
    (!is_static).then(|| format!("there is no static {BUSYBOX} (Debian package busybox-static)"))
}

/// A root file system in a folder, with the applets that pods use.
pub(crate) fn root_folder(parent: &Path) -> Result<PathBuf> {
    let root = parent.join("rootfs");
    for folder in ["bin", "etc", "proc", "sys", "dev", "tmp", "run"] {
        fs::create_dir_all(root.join(folder))?;
    }
    fs::copy(BUSYBOX, root.join("bin/busybox")).context("cannot copy busybox")?;
    for applet in ["sh", "sleep", "ip", "ping", "nc"] {
        symlink("busybox", root.join("bin").join(applet))?;
    }
    Ok(root)
}

/// The same as an archive in the OCI image layout. By itself it sleeps, as a pod's first container does.
pub(crate) fn archive(parent: &Path) -> Result<PathBuf> {
    let root = root_folder(parent)?;
    let layout = parent.join("image");
    let blobs = layout.join("blobs/sha256");
    fs::create_dir_all(&blobs)?;
    let layer = blobs.join("layer");
    run(Command::new("tar").args(["--numeric-owner", "-cf"]).arg(&layer).arg("-C").arg(&root).arg("."))?;
    let layer = seal(&layer, "application/vnd.oci.image.layer.v1.tar")?;
    let config = json!({
        "architecture": if cfg!(target_arch = "aarch64") { "arm64" } else { "amd64" },
        "os": "linux",
        "config": {"Entrypoint": ["/bin/sleep", "infinity"], "Env": ["PATH=/bin"], "WorkingDir": "/"},
        "rootfs": {"type": "layers", "diff_ids": [layer["digest"]]},
    });
    let config = store(&blobs, &config, "application/vnd.oci.image.config.v1+json")?;
    let kind = "application/vnd.oci.image.manifest.v1+json";
    let manifest = json!({"schemaVersion": 2, "mediaType": kind, "config": config, "layers": [layer]});
    let mut manifest = store(&blobs, &manifest, kind)?;
    manifest["annotations"] = json!({
        "io.containerd.image.name": NAME, "org.opencontainers.image.ref.name": NAME,
    });
    fs::write(layout.join("index.json"), json!({"schemaVersion": 2, "manifests": [manifest]}).to_string())?;
    fs::write(layout.join("oci-layout"), json!({"imageLayoutVersion": "1.0.0"}).to_string())?;
    let archive = parent.join("image.tar");
    run(Command::new("tar").arg("-cf").arg(&archive).arg("-C").arg(&layout).arg("."))?;
    Ok(archive)
}

fn store(blobs: &Path, document: &Value, kind: &str) -> Result<Value> {
    let path = blobs.join("document");
    fs::write(&path, document.to_string())?;
    seal(&path, kind)
}

/// Gives a blob the name of its content; how others refer to it.
fn seal(path: &Path, kind: &str) -> Result<Value> {
    let output = run(Command::new("sha256sum").arg(path))?;
    let printed = String::from_utf8(output.stdout)?;
    let digest = printed.split_whitespace().next().context("sha256sum prints a digest")?;
    let size = path.metadata()?.len();
    fs::rename(path, path.with_file_name(digest))?;
    Ok(json!({"mediaType": kind, "digest": format!("sha256:{digest}"), "size": size}))
}
