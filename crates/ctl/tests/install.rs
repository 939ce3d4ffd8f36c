//! `plumb install` into a folder: everything in place, again and again, and nothing of others touched.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::{Command, Output};

use tempfile::TempDir;

/// A folder with programs, and a root to install into.
struct Image {
    folder: TempDir,
}

impl Image {
    fn new() -> Image {
        let image = Image { folder: tempfile::tempdir().unwrap() };
        for program in ["plumb", "plumbd", "plumb-cni"] {
            image.program(program, "first version");
        }
        image
    }

    fn program(&self, name: &str, text: &str) {
        let folder = self.folder.path().join("programs");
        fs::create_dir_all(&folder).unwrap();
        fs::write(folder.join(name), format!("{name}: {text}")).unwrap();
    }

    fn install(&self, arguments: &[&str]) -> Output {
        let mut plumb = Command::new(env!("CARGO_BIN_EXE_plumb"));
        plumb.env_clear().env("NODENAME", "n1").arg("install").arg("--root").arg(self.root());
        plumb.arg("--bin-dir").arg(self.folder.path().join("programs")).args(arguments);
        plumb.output().unwrap()
    }

    #[track_caller]
    fn installed(&self, arguments: &[&str]) -> String {
        let output = self.install(arguments);
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap().replace(&*self.root().to_string_lossy(), "")
    }

    fn root(&self) -> std::path::PathBuf {
        self.folder.path().join("root")
    }

    fn read(&self, path: &str) -> String {
        fs::read_to_string(self.root().join(path)).unwrap()
    }

    fn mode(&self, path: &str) -> u32 {
        fs::metadata(self.root().join(path)).unwrap().permissions().mode() & 0o7777
    }
}

const EVERYTHING: &str = "\
installed /usr/local/bin/plumb
installed /usr/local/bin/plumbd
installed /opt/cni/bin/plumb-cni
installed /opt/cni/bin/plumb-ipam
installed /etc/systemd/system/plumbd.service
installed /etc/default/plumbd
installed /etc/cni/net.d/10-plumb.conflist
";

#[test]
fn a_node_gets_everything_once() {
    let image = Image::new();
    assert_eq!(image.installed(&["--dry-run"]), EVERYTHING.replace("installed", "would install"));
    assert!(!image.root().exists());
    assert_eq!(image.installed(&[]), EVERYTHING);
    assert_eq!(image.installed(&[]), EVERYTHING.replace("installed", "unchanged"));
    assert_eq!(image.read("opt/cni/bin/plumb-ipam"), "plumb-cni: first version");
    assert_eq!(
        (image.mode("opt/cni/bin/plumb-cni"), image.mode("etc/cni/net.d/10-plumb.conflist")),
        (0o755, 0o600)
    );
    assert!(
        image.read("etc/systemd/system/plumbd.service").contains("\nExecStart=/usr/local/bin/plumbd node\n")
    );
    assert!(image.read("etc/default/plumbd").contains("\nNODENAME=\"n1\"\n"));
    let conflist: serde_json::Value =
        serde_json::from_str(&image.read("etc/cni/net.d/10-plumb.conflist")).unwrap();
    assert_eq!(conflist["plugins"][0]["agent_socket"], "/run/plumb/agent.sock");
}

#[test]
fn a_new_version_replaces_programs_and_keeps_what_was_changed() {
    let image = Image::new();
    image.installed(&[]);
    image.program("plumb-cni", "second version");
    let conflist = image.root().join("etc/cni/net.d/10-plumb.conflist");
    fs::write(&conflist, "changed by hand").unwrap();
    let said = image.installed(&[]);
    assert!(said.contains("replaced /opt/cni/bin/plumb-cni\n"), "{said}");
    assert!(said.contains("kept /etc/cni/net.d/10-plumb.conflist\n"), "{said}");
    assert_eq!(image.read("opt/cni/bin/plumb-cni"), "plumb-cni: second version");
    assert_eq!(image.read("etc/cni/net.d/10-plumb.conflist"), "changed by hand");
    let said = image.installed(&["--replace-config"]);
    assert!(said.contains("replaced /etc/cni/net.d/10-plumb.conflist\n"), "{said}");
    let left = fs::read_dir(conflist.parent().unwrap()).unwrap().count();
    assert_eq!(left, 1, "files of the replacement are left");
}

#[test]
fn a_strangers_configuration_is_kept_and_named() {
    let image = Image::new();
    let folder = image.root().join("etc/cni/net.d");
    fs::create_dir_all(&folder).unwrap();
    fs::write(folder.join("10-calico.conflist"), "{}").unwrap();
    let output = image.install(&[]);
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(said.contains("kept the network configuration of somebody else: "), "{said}");
    assert!(said.contains("runtimes use 10-calico.conflist"), "{said}");
    assert_eq!(fs::read_to_string(folder.join("10-calico.conflist")).unwrap(), "{}");
}

#[test]
fn what_is_missing_or_not_there_yet_is_said() {
    let image = Image::new();
    fs::remove_file(image.folder.path().join("programs/plumbd")).unwrap();
    let output = image.install(&[]);
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(output.status.code() == Some(1) && said.starts_with("error: there is no plumbd in "), "{said}");
    assert!(!Path::new(&image.root()).exists());
    let output = image.install(&["--print"]);
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(output.status.code() == Some(1) && said.contains("not there yet"), "{said}");
}
