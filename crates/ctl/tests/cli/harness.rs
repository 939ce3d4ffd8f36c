//! A folder, a store and the program.

use std::ffi::OsStr;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;

use model::{Key, KeyRange, Kind};
use serde_json::{Value, json};
use store::etcd::{EtcdConfig, EtcdStore};
use store::kube::{KubeConfig, KubeStore};
use store::{Change, OpenMode, Precondition, SqliteStore, Store, Write};
use tempfile::TempDir;
use testkit::etcd::EtcdCluster;
use testkit::kube::Api;

pub(crate) const PLUMB: &str = env!("CARGO_BIN_EXE_plumb");

/// Whatever stands on this machine must not decide what tests see.
pub(crate) fn machine_has_own_config(test: &str) -> bool {
    let is_there = Path::new(store::config::DEFAULT_CONFIG_FILE).exists();
    if is_there {
        testkit::skip(test, "this machine has a calicoctl.cfg of its own");
    }
    is_there
}

/// Where the records of a test are.
#[derive(Clone, Debug)]
pub(crate) enum Place {
    Sqlite(PathBuf),
    Etcd(String),
    Kubernetes { kubeconfig: PathBuf, api: Api },
}

/// One operator at one store.
#[derive(Debug)]
pub(crate) struct Desk {
    pub(crate) folder: TempDir,
    pub(crate) place: Place,
}

/// How a command ended.
#[derive(Debug)]
pub(crate) struct Ran {
    pub(crate) code: Option<i32>,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

impl Desk {
    pub(crate) fn on_sqlite() -> Desk {
        let folder = TempDir::with_prefix("plumb-cli-").unwrap();
        let place = Place::Sqlite(folder.path().join("plumb.db"));
        Desk { folder, place }
    }

    pub(crate) fn on_etcd(cluster: &EtcdCluster) -> Desk {
        let folder = TempDir::with_prefix("plumb-cli-").unwrap();
        Desk { folder, place: Place::Etcd(cluster.endpoint(0)) }
    }

    pub(crate) fn on_kubernetes(kubeconfig: PathBuf, api: Api) -> Desk {
        let folder = TempDir::with_prefix("plumb-cli-").unwrap();
        Desk { folder, place: Place::Kubernetes { kubeconfig, api } }
    }

    /// A file in the operator's folder, which is also where commands run.
    pub(crate) fn file(&self, name: &str, text: impl AsRef<[u8]>) {
        let path = self.folder.path().join(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
    }

    /// `plumb` with these arguments, in the folder and with nothing else in the environment.
    pub(crate) fn command(&self, program: impl AsRef<OsStr>) -> Command {
        let mut command = Command::new(program);
        command.current_dir(self.folder.path()).env_clear().stdin(Stdio::null());
        command.env("PATH", std::env::var_os("PATH").unwrap_or_default());
        match &self.place {
            Place::Sqlite(path) => command.env("DATASTORE_TYPE", "sqlite").env("SQLITE_PATH", path),
            Place::Etcd(endpoint) => command.env("ETCD_ENDPOINTS", endpoint),
            Place::Kubernetes { kubeconfig, .. } => command.env("KUBECONFIG", kubeconfig),
        };
        command
    }

    pub(crate) fn plumb(&self, args: &[&str]) -> Ran {
        finish(self.command(PLUMB).args(args))
    }

    pub(crate) fn plumb_with_stdin(&self, args: &[&str], stdin: &[u8]) -> Ran {
        let mut command = self.command(PLUMB);
        command.args(args).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        // It may well stop reading before the end.
        let _ = child.stdin.take().unwrap().write_all(stdin);
        ran(child.wait_with_output().unwrap())
    }

    /// Applies a manifest that must be accepted.
    pub(crate) fn apply(&self, manifest: &str) {
        let applied = self.plumb_with_stdin(&["apply", "-f", "-"], manifest.as_bytes());
        assert_eq!(applied.code, Some(0), "{applied:?}");
    }

    pub(crate) fn open(&self) -> Option<Arc<dyn Store>> {
        match &self.place {
            Place::Sqlite(path) if !path.exists() => None,
            Place::Sqlite(path) => Some(Arc::new(SqliteStore::open(path, OpenMode::Existing).unwrap())),
            Place::Etcd(endpoint) => {
                let config = EtcdConfig::new([endpoint.as_str()]);
                Some(Arc::new(runtime().block_on(EtcdStore::connect(config)).unwrap()))
            }
            Place::Kubernetes { kubeconfig, .. } => {
                let config = KubeConfig { kubeconfig: Some(kubeconfig.clone()), ..KubeConfig::default() };
                Some(Arc::new(runtime().block_on(KubeStore::connect(config)).unwrap()))
            }
        }
    }

    /// Writes records past all rules, as other programs may.
    pub(crate) fn write(&self, mut changes: Vec<Change>) {
        if let Place::Kubernetes { api, .. } = &self.place {
            changes.retain(|change| !make_view(api, change));
        }
        runtime().block_on(self.open().unwrap().commit(changes)).unwrap();
    }

    /// Every record of the store, to be compared with how it was before.
    pub(crate) fn dump(&self) -> Vec<String> {
        let Some(store) = self.open() else { return Vec::new() };
        let (records, _) = runtime().block_on(store.list_all(KeyRange::Everything)).unwrap();
        let line = |record: &store::Record| {
            format!("{} @{} {}", record.key, record.revision, String::from_utf8_lossy(&record.value))
        };
        records.iter().map(line).collect()
    }
}

/// Where endpoints are Pods and nodes are Nodes, Kubernetes makes them. `false`: the change is for the store to make.
fn make_view(api: &Api, change: &Change) -> bool {
    let (Key::Resource { kind, namespace, name }, Precondition::Absent) = (&change.key, &change.precondition)
    else {
        return false;
    };
    let Write::Put(value) = &change.write else { return false };
    let record: Value = serde_json::from_slice(value).unwrap();
    let spec = &record["spec"];
    match kind {
        Kind::WorkloadEndpoint => {
            let networks = json!(spec["ipNetworks"].as_array().unwrap()[0]);
            let annotations = json!({ "cni.projectcalico.org/podIP": networks,
                "cni.projectcalico.org/podIPs": networks, "cni.projectcalico.org/containerID": spec["containerID"] });
            let pod = json!({ "metadata": { "name": spec["pod"], "annotations": annotations },
                "spec": { "nodeName": spec["node"], "containers": [{ "name": "c", "image": "i" }] } });
            let namespace = namespace.as_deref().unwrap();
            api.create(&format!("/api/v1/namespaces/{namespace}/pods"), &pod).unwrap();
        }
        Kind::Node => {
            let mut annotations = serde_json::Map::new();
            for (field, annotation) in [
                ("ipv4VXLANTunnelAddr", "projectcalico.org/IPv4VXLANTunnelAddr"),
                ("ipv6VXLANTunnelAddr", "projectcalico.org/IPv6VXLANTunnelAddr"),
            ] {
                annotations.extend(spec.get(field).map(|value| (annotation.to_owned(), value.clone())));
            }
            api.create("/api/v1/nodes", &json!({ "metadata": { "name": name, "annotations": annotations } }))
                .unwrap();
        }
        _ => return false,
    }
    true
}

/// The manifest of a pool.
pub(crate) fn pool(name: &str, cidr: &str) -> String {
    format!(
        "apiVersion: projectcalico.org/v3\nkind: IPPool\nmetadata: {{name: {name}}}\nspec: {{cidr: {cidr}}}\n"
    )
}

/// Of pools that overlap and are created at the same moment, one wins.
pub(crate) fn one_of_many_pools_wins(desk: &Desk, rounds: usize) {
    for round in 0..rounds {
        let wins = std::thread::scope(|scope| {
            let tries: Vec<_> = (0..4)
                .map(|number| {
                    let manifest =
                        pool(&format!("p{round}-{number}"), &format!("10.{round}.0.0/{}", 16 + number));
                    scope.spawn(move || {
                        let ran = desk.plumb_with_stdin(&["create", "-f", "-"], manifest.as_bytes());
                        let lost = ran.stderr.contains("overlaps pool");
                        assert_ne!(ran.code == Some(0), lost, "{ran:?}");
                        ran.code == Some(0)
                    })
                })
                .collect();
            tries.into_iter().map(|thread| thread.join().unwrap()).filter(|won| *won).count()
        });
        assert_eq!(wins, 1, "round {round}");
    }
    let listed = desk.plumb(&["get", "ippools", "-o", "name"]);
    assert_eq!(listed.succeeded().lines().count(), rounds);
}

/// One runtime for all: the connections of a store live in the runtime that made it.
pub(crate) fn runtime() -> &'static tokio::runtime::Runtime {
    static RUNTIME: std::sync::OnceLock<tokio::runtime::Runtime> = std::sync::OnceLock::new();
    RUNTIME.get_or_init(|| tokio::runtime::Runtime::new().unwrap())
}

pub(crate) fn finish(command: &mut Command) -> Ran {
    ran(command.output().unwrap())
}

fn ran(output: std::process::Output) -> Ran {
    Ran {
        code: output.status.code(),
        stdout: String::from_utf8(output.stdout).unwrap(),
        stderr: String::from_utf8(output.stderr).unwrap(),
    }
}

impl Ran {
    /// Asserts a refusal: the exit code, every one of these texts on stderr, nothing on stdout.
    #[track_caller]
    pub(crate) fn refused(&self, code: i32, texts: &[&str]) {
        assert_eq!(self.code, Some(code), "{self:?}");
        assert!(self.stderr.starts_with("error: "), "{self:?}");
        assert_eq!(self.stdout, "", "{self:?}");
        for text in texts {
            assert!(self.stderr.contains(text), "{text:?} is not said in {self:?}");
        }
    }

    #[track_caller]
    pub(crate) fn succeeded(&self) -> &str {
        assert_eq!(self.code, Some(0), "{self:?}");
        assert_eq!(self.stderr, "", "{self:?}");
        &self.stdout
    }
}
