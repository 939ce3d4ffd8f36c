//! `plumb install` into a folder: everything in place, again and again, and nothing of others touched.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::{Command, Output};

use model::settings::{AGENT_CAPABILITIES, Carried, SETTINGS, parse_settings_file};
use tempfile::TempDir;

const SETTINGS_FILE: &str = "etc/default/plumbd";

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
        self.install_with(&[("NODENAME", "n1")], arguments)
    }

    fn install_with(&self, variables: &[(&str, &str)], arguments: &[&str]) -> Output {
        let mut plumb = Command::new(env!("CARGO_BIN_EXE_plumb"));
        plumb.env_clear().envs(variables.iter().copied()).arg("install").arg("--root").arg(self.root());
        plumb.arg("--bin-dir").arg(self.folder.path().join("programs")).args(arguments);
        plumb.output().unwrap()
    }

    #[track_caller]
    fn installed(&self, arguments: &[&str]) -> String {
        let output = self.install(arguments);
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap().replace(&*self.root().to_string_lossy(), "")
    }

    /// `plumb` on the installed node, with these settings of its agent.
    fn plumb(&self, variables: &[(&str, &str)], arguments: &[&str]) -> Output {
        let mut plumb = Command::new(env!("CARGO_BIN_EXE_plumb"));
        plumb.env_clear().envs(variables.iter().copied());
        plumb.env("PLUMB_AGENT_SETTINGS", self.root().join(SETTINGS_FILE)).args(arguments).output().unwrap()
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
    let bound = format!("\nCapabilityBoundingSet={}\n", AGENT_CAPABILITIES.join(" "));
    assert!(image.read("etc/systemd/system/plumbd.service").contains(&bound));
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
    assert!(said.contains("kept another plugin's network configuration: "), "{said}");
    assert!(said.contains("runtimes use 10-calico.conflist"), "{said}");
    assert_eq!(fs::read_to_string(folder.join("10-calico.conflist")).unwrap(), "{}");
}

#[test]
fn a_missing_program_is_named() {
    let image = Image::new();
    fs::remove_file(image.folder.path().join("programs/plumbd")).unwrap();
    let output = image.install(&[]);
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(output.status.code() == Some(1) && said.starts_with("error: plumbd is missing in "), "{said}");
    assert!(!Path::new(&image.root()).exists());
}

#[test]
fn every_setting_that_the_agent_knows_is_carried_over_and_no_secret_is_shown() {
    let image = Image::new();
    let value = |name: &str| match name {
        "DATASTORE_TYPE" => "kubernetes".to_owned(),
        other => format!("value of {other}: \"quoted\" $HOME \\ `x` 'y' #z"),
    };
    let known = SETTINGS.iter().filter(|setting| setting.carried != Carried::Never);
    let given: Vec<(&str, String)> = known.map(|setting| (setting.name, value(setting.name))).collect();
    let variables: Vec<(&str, &str)> = given.iter().map(|(name, value)| (*name, value.as_str())).collect();
    let output = image.install_with(&variables, &[]);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let carried = parse_settings_file(&image.read(SETTINGS_FILE)).unwrap();
    for (name, value) in &given {
        assert_eq!(carried.get(*name), Some(value), "{name} was dropped");
    }
    assert_eq!(image.mode(SETTINGS_FILE), 0o600);
    let unit = image.read("etc/systemd/system/plumbd.service");
    let conflist = image.read("etc/cni/net.d/10-plumb.conflist");
    let printed = [output.stdout, output.stderr].map(|text| String::from_utf8(text).unwrap());
    for shown in [&unit, &conflist, &printed[0], &printed[1]] {
        for secret in SETTINGS.iter().filter(|setting| setting.is_secret) {
            assert!(!shown.contains(&value(secret.name)), "{shown}");
        }
    }
}

#[test]
fn settings_that_are_kept_are_named_where_they_differ_and_kept_private() {
    let image = Image::new();
    image.installed(&[]);
    let path = image.root().join(SETTINGS_FILE);
    fs::write(&path, "NODENAME=n1\nETCD_PASSWORD=old-secret\n").unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o644)).unwrap();
    let variables =
        [("NODENAME", "n1"), ("ETCD_PASSWORD", "new-secret"), ("IP_AUTODETECTION_METHOD", "first-found")];
    let output = image.install_with(&variables, &[]);
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(
        said.contains("another value in the environment: IP_AUTODETECTION_METHOD, ETCD_PASSWORD;"),
        "{said}"
    );
    assert!(said.contains("from 0644 to 0600: it contains a password"), "{said}");
    assert!(!said.contains("-secret"), "{said}");
    assert_eq!((image.mode(SETTINGS_FILE), fs::read_to_string(&path).unwrap().lines().count()), (0o600, 2));
    image.install_with(&variables, &["--replace-settings"]);
    let carried = parse_settings_file(&image.read(SETTINGS_FILE)).unwrap();
    assert_eq!(carried["ETCD_PASSWORD"], "new-secret");
}

#[test]
fn plumb_on_an_installed_node_finds_the_agents_store_and_says_by_what() {
    let image = Image::new();
    let database = image.folder.path().join("own.db");
    let path = database.display().to_string();
    image.install_with(&[("SQLITE_PATH", &path)], &[]);
    let pool = image.folder.path().join("pool.yaml");
    let manifest = "apiVersion: projectcalico.org/v3\nkind: IPPool\nmetadata: {name: pods}\nspec: {cidr: 10.64.0.0/16}\n";
    fs::write(&pool, manifest).unwrap();
    let output = image.plumb(&[], &["apply", "-f", &pool.display().to_string()]);
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(output.status.success(), "{said}");
    let named = format!("store: SQLite file {path} (from {}", image.root().join(SETTINGS_FILE).display());
    assert!(said.starts_with(&named), "{said}");
    assert!(database.is_file());
    let output = image.plumb(&[], &["doctor", "--settle", "0"]);
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(said.starts_with(&named), "{said}");
    // The environment wins.
    let output = image.plumb(&[("SQLITE_PATH", "/nonexistent/x.db")], &["get", "ippools"]);
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(!output.status.success() && !said.contains("named by"), "{said}");
}
