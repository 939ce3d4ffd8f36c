//! Where the product's binaries are, and what the machine lacks to run them in namespaces.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

use anyhow::{Context as _, Result, bail, ensure};

use crate::cluster::StoreKind;

/// The folder in which the product's binaries lie side by side.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Programs {
    folder: PathBuf,
}

impl Programs {
    pub fn in_folder(folder: &Path) -> Result<Programs> {
        let folder = folder.canonicalize().with_context(|| {
            format!("the directory {} with the binaries does not exist", folder.display())
        })?;
        for name in ["plumb-cni", "plumbd"] {
            ensure!(folder.join(name).is_file(), "{name} is missing in {}", folder.display());
        }
        Ok(Programs { folder })
    }

    /// The binaries beside a running test, brought up to date with the source. `PLUMB_BIN_DIR` names other ones.
    pub fn of_test() -> Result<Programs> {
        static BUILT: OnceLock<Result<Programs, String>> = OnceLock::new();
        let built = BUILT.get_or_init(|| Programs::build_for_test().map_err(|error| format!("{error:#}")));
        built.clone().map_err(anyhow::Error::msg)
    }

    fn build_for_test() -> Result<Programs> {
        if let Some(folder) = std::env::var_os("PLUMB_BIN_DIR") {
            return Programs::in_folder(Path::new(&folder));
        }
        let test = std::env::current_exe().context("cannot tell where this test lies")?;
        let folder = test.parent().and_then(Path::parent).context("a test lies two folders below target")?;
        // Under `cargo xtask test` everything has been built; building again would only choose other features.
        if std::env::var_os("PLUMB_TEST_SEED").is_some() {
            return Programs::in_folder(folder);
        }
        let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
        let mut build = Command::new(cargo);
        build.args(["build", "--quiet", "-p", "cni", "-p", "agent", "-p", "ctl", "-p", "lab", "--bins"]);
        // What cargo tells a test about itself would look like a change to build scripts that ask for it.
        for (name, _) in std::env::vars_os() {
            let is_of_test = ["CARGO_PKG_", "CARGO_MANIFEST_", "CARGO_CRATE_", "CARGO_BIN_"];
            if is_of_test.iter().any(|prefix| name.to_string_lossy().starts_with(prefix)) {
                build.env_remove(name);
            }
        }
        if folder.ends_with("release") {
            build.arg("--release");
        }
        let status = build.status().context("cannot run cargo")?;
        if !status.success() {
            bail!("the binaries do not build");
        }
        Programs::in_folder(folder)
    }

    pub fn folder(&self) -> &Path {
        &self.folder
    }

    pub fn cni(&self) -> PathBuf {
        self.folder.join("plumb-cni")
    }

    pub fn daemon(&self) -> PathBuf {
        self.folder.join("plumbd")
    }

    pub fn plumb(&self) -> PathBuf {
        self.folder.join("plumb")
    }
}

/// Whether this process may make namespaces at all.
pub fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

/// What is missing on this machine; `None` if a lab can run.
pub fn missing() -> Option<String> {
    if !is_root() {
        return Some("it needs root to create network namespaces".to_owned());
    }
    missing_program(&[("ip", "iproute2"), ("ping", "iputils-ping"), ("nft", "nftables")])
}

/// The first of these programs that cannot be started, each with its Debian package.
fn missing_program(wanted: &[(&str, &str)]) -> Option<String> {
    let is_missing = |program: &str| Command::new(program).arg("-V").output().is_err();
    let (program, package) = wanted.iter().find(|(program, _)| is_missing(program))?;
    Some(format!("it needs `{program}` (Debian package {package})"))
}

/// What is missing for a lab of whole nodes; `None` if it can run. Kubernetes' programs are in the given folder or where others
/// are.
pub fn missing_for_cluster(store: StoreKind, kubernetes_bin: Option<&Path>) -> Option<String> {
    let mut wanted = vec![("nsenter", "util-linux"), ("unshare", "util-linux")];
    if store != StoreKind::Sqlite {
        wanted.push(("etcd", "etcd-server"));
    }
    let kubernetes = || match store {
        StoreKind::Kubernetes => missing_api_server(kubernetes_bin),
        StoreKind::Sqlite | StoreKind::Etcdv3 => None,
    };
    missing().or_else(|| missing_program(&wanted)).or_else(kubernetes).or_else(missing_in_kernel)
}

/// Kubernetes' own program, which no package of Debian has.
pub(crate) const API_SERVER: &str = "kube-apiserver";

fn missing_api_server(bin: Option<&Path>) -> Option<String> {
    let is_there = match bin {
        Some(bin) => bin.join(API_SERVER).is_file(),
        None => testkit::process::on_path(API_SERVER),
    };
    if is_there {
        return None;
    }
    let place = bin.map_or("in PATH".to_owned(), |bin| format!("in {}", bin.display()));
    Some(format!(
        "{API_SERVER} is not {place}; `cargo xtask kubernetes` builds it, and prints the directory for --kubernetes-bin"
    ))
}

/// Tries what a lab does, in namespaces that go away at once.
fn missing_in_kernel() -> Option<String> {
    let try_out = |namespaces: &[&str], words: &[&str]| {
        let output = Command::new("unshare").args(namespaces).arg("--").args(words).output();
        output.is_ok_and(|output| output.status.success())
    };
    if !try_out(&["--net", "--mount", "--uts", "--pid", "--fork"], &["true"]) {
        return Some("the kernel does not allow creating namespaces (net, mount, uts, pid)".to_owned());
    }
    for (what, kind) in [("veth pairs", "veth"), ("bridges", "bridge")] {
        if !try_out(&["--net"], &["ip", "link", "add", "try0", "type", kind]) {
            return Some(format!("the kernel has no {what} (module {kind})"));
        }
    }
    None
}
