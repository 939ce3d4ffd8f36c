//! Kubernetes as a lab's store: a real API server with an etcd of its own, both on the fabric. No controller, no scheduler, and the
//! kubelets are stand-ins.

use std::fs::{self, DirBuilder};
use std::net::{IpAddr, SocketAddr};
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command};

use anyhow::{Context as _, Result, ensure};
use host::NetNs;
use model::kube::definitions;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};
use testkit::certificates::Certificates;
use testkit::kube::{Api, ServerFiles};
use uuid::Uuid;

use super::{Cluster, Description, Place, credentials, fabric, settings};
use crate::file::tail;
use crate::programs::API_SERVER;
use crate::{Hopeless, wait_for};

const PORT: u16 = 6443;
/// Only the API server reaches it: no node has this loopback.
const ETCD: &str = "http://127.0.0.1:2379";
const PID: &str = "apiserver.pid";

impl Cluster {
    pub(super) fn start_kubernetes(&self, tell: &dyn Fn(&str)) -> Result<()> {
        let address = api_address(&self.description)?;
        tell(&format!("store: a Kubernetes API server on the fabric (https://{address})"));
        let folder = self.place.kubernetes_folder();
        DirBuilder::new().mode(0o700).create(&folder)?;
        let host = address.ip().to_string();
        let certificates = Certificates::of_server(folder.join("pki"), &[&host])?;
        let files = ServerFiles::create(&folder, certificates)?;
        let token = Uuid::new_v4().to_string();
        files.write_tokens(&format!("{token},lab,uid-of-lab,\"system:masters\"\n"))?;
        let url = format!("https://{address}");
        files.write_kubeconfig(&self.place.kubeconfig(), &url, json!({ "token": token }))?;
        let arguments = files.arguments(ETCD, address.ip(), address.port());
        let arguments = arguments.iter().map(|word| word.to_string_lossy().into_owned());
        let arguments = serde_json::to_string(&arguments.collect::<Vec<_>>())?;
        fs::write(self.arguments_file(), arguments)?;
        let layout = self.description.api_group.layout();
        self.start_etcd(ETCD)?;
        self.start_api_server()?;
        self.with_api(|api| {
            api.define(&definitions(layout))?;
            credentials::install(api, layout)
        })?;
        let agent =
            |node| (self.place.agent_kubeconfig(node), json!({ "tokenFile": self.place.agent_token(node) }));
        let agents = self.description.nodes.iter().map(|node| agent(&node.name));
        agents.into_iter().try_for_each(|(path, user)| files.write_kubeconfig(&path, &url, user))
    }

    /// Starts the API server, also after it was killed, and waits until it answers.
    pub fn start_api_server(&self) -> Result<()> {
        let arguments: Vec<String> = serde_json::from_slice(&fs::read(self.arguments_file())?)?;
        let program = self.description.kubernetes_bin.as_ref().map(|bin| bin.join(API_SERVER));
        let program = program.unwrap_or_else(|| PathBuf::from(API_SERVER));
        let mut server = Command::new("nsenter");
        server.arg(format!("--net={}", self.fabric())).arg("--").arg(program).args(arguments);
        let log = self.place.kubernetes_folder().join("apiserver.log");
        let mut process = super::up::detach(server, &log)?;
        // nsenter executes the server in its place.
        fs::write(self.place.kubernetes_folder().join(PID), process.id().to_string())?;
        self.wait_for_api_server(&mut process, &log)
    }

    fn wait_for_api_server(&self, process: &mut Child, log: &Path) -> Result<()> {
        wait_for("the API server", || {
            ensure!(process.try_wait()?.is_none(), Hopeless(tail(log, 5)));
            let answer = self.with_api(|api| api.get("/readyz"))?;
            ensure!(answer.status == 200, "the API server is not ready: {}", answer.text);
            Ok(())
        })
    }

    /// `kill -9`. It is gone when this returns; what it has recorded is in its etcd.
    pub fn kill_api_server(&self) -> Result<()> {
        let text = fs::read_to_string(self.place.kubernetes_folder().join(PID))?;
        let process = text.parse().ok().and_then(Pid::from_raw).context("the API server has a process")?;
        // Its number may be another's by now, who then does not live on the fabric.
        let own = format!("/proc/{}/ns/net", text.trim());
        let is_ours =
            || super::down::identity(Path::new(&own)) == super::down::identity(Path::new(&self.fabric()));
        ensure!(is_ours(), "the API server of lab {} does not run", self.name());
        kill_process(process, Signal::KILL).context("cannot kill the API server")?;
        wait_for("the API server to end", || {
            ensure!(!is_ours(), "it still runs");
            Ok(())
        })
    }

    /// Does something with Kubernetes' API, which only the lab itself reaches, as somebody who may do everything.
    pub fn with_api<T: Send>(&self, act: impl FnOnce(&Api) -> Result<T> + Send) -> Result<T> {
        let api = api(&self.place)?;
        NetNs::open(Path::new(&self.fabric()))?.visit(|| act(&api))?
    }

    /// The kubelet of a node has made the node's object.
    pub(super) fn wait_for_registration(&self, node: &str) -> Result<()> {
        wait_for(&format!("{node} to join the cluster"), || {
            let found = self.with_api(|api| api.read(&format!("/api/v1/nodes/{node}")))?;
            ensure!(found["status"]["addresses"].is_array(), "{node} has no addresses yet");
            Ok(())
        })
    }

    fn arguments_file(&self) -> PathBuf {
        self.place.kubernetes_folder().join("apiserver.json")
    }

    fn fabric(&self) -> String {
        fabric::namespace_path(self.name(), fabric::FABRIC)
    }
}

/// A client with what the lab's kubeconfig says.
pub(crate) fn api(place: &Place) -> Result<Api> {
    let path = place.kubeconfig();
    let text = fs::read(&path).with_context(|| format!("cannot read {}", path.display()))?;
    let config: Value = serde_json::from_slice(&text)?;
    let field =
        |value: &Value| value.as_str().map(str::to_owned).context("a field of the kubeconfig is missing");
    let (cluster, user) = (&config["clusters"][0]["cluster"], &config["users"][0]["user"]);
    let address: SocketAddr = field(&cluster["server"])?.trim_start_matches("https://").parse()?;
    Ok(Api::new(address, Path::new(&field(&cluster["certificate-authority"])?), &field(&user["token"])?))
}

fn api_address(description: &Description) -> Result<SocketAddr> {
    let address: IpAddr = settings::fabric_address(description).context("the fabric has an address")?;
    Ok(SocketAddr::new(address, PORT))
}
