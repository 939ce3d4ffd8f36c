//! A real Kubernetes API server with an etcd of its own, on loopback, made for one test and gone with it. There are no nodes and
//! no controllers: what a test needs of those it writes itself.

mod api;
mod copies;
mod files;

use std::fs::File;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::process::Stdio;

use anyhow::{Context as _, Result, bail};
use serde_json::{Value, json};
use tempfile::TempDir;

pub use api::{Answer, Api};
pub use copies::Template;
pub use files::ServerFiles;

use crate::certificates::Certificates;
use crate::etcd::{self, EtcdCluster};
use crate::process::{self, Process, on_path};
use crate::{free_port, scratch};

const PROGRAM: &str = "kube-apiserver";
/// The token of a user who may do everything.
pub const ADMIN_TOKEN: &str = "token-of-admin";

/// Why no API server can be started on this machine, if none can.
pub fn missing() -> Option<String> {
    if !on_path(PROGRAM) {
        let how = "`cargo xtask kubernetes` builds it where there is Go, and prints the directory for PATH";
        return Some(format!("{PROGRAM} is not built; {how}"));
    }
    etcd::missing()
}

/// What kind of API server to start.
#[derive(Clone, Debug, Default)]
pub struct Setup {
    /// More users than the administrator, by their tokens. They may do what RBAC lets them.
    pub users: Vec<User>,
    /// Groups that users are in: the user's name and the group.
    pub groups: Vec<(String, String)>,
    pub extra_args: Vec<String>,
    /// Of its etcd.
    pub etcd_args: Vec<String>,
}

/// A user that RBAC decides about.
#[derive(Clone, Debug)]
pub struct User {
    pub name: String,
    pub token: String,
}

impl Setup {
    /// Every read and watch goes to etcd, so that what etcd forgets is forgotten at once.
    pub fn without_watch_cache() -> Setup {
        Setup { extra_args: vec!["--watch-cache=false".to_owned()], ..Setup::default() }
    }
}

/// The server and everything it has on disk. All of it goes when this is dropped: the API server first, because without its etcd
/// it does not end.
#[derive(Debug)]
pub struct KubeApiServer {
    server: Option<Process>,
    etcd: EtcdCluster,
    setup: Setup,
    port: u16,
    files: ServerFiles,
    directory: TempDir,
}

/// A second API server of a cluster.
#[derive(Debug)]
pub struct Twin {
    port: u16,
    _process: Process,
}

impl Twin {
    pub fn port(&self) -> u16 {
        self.port
    }
}

impl KubeApiServer {
    /// Starts etcd and the API server and waits until it is ready.
    pub fn start(setup: Setup) -> Result<KubeApiServer> {
        let directory = scratch("kube")?;
        let certificates = Certificates::create(directory.path().join("pki"))?;
        let files = ServerFiles::create(directory.path(), certificates)?;
        let etcd = EtcdCluster::start(etcd::Setup {
            extra_args: setup.etcd_args.clone(),
            ..etcd::Setup::default()
        })?;
        let mut server = KubeApiServer { server: None, etcd, setup, port: free_port(), files, directory };
        server.write_tokens()?;
        server.launch()?;
        server.wait_ready()?;
        Ok(server)
    }

    pub fn url(&self) -> String {
        format!("https://127.0.0.1:{}", self.port)
    }

    pub fn port(&self) -> u16 {
        self.port
    }

    /// The authority `ca` has signed the server's certificate and is trusted with clients': `admin` may do everything.
    pub fn certificates(&self) -> &Certificates {
        self.files.certificates()
    }

    pub fn etcd(&mut self) -> &mut EtcdCluster {
        &mut self.etcd
    }

    /// The API as the administrator sees it, by a client that shares nothing with the one under test.
    pub fn api(&self) -> Api {
        self.api_as(ADMIN_TOKEN)
    }

    pub fn api_as(&self, token: &str) -> Api {
        let address = SocketAddr::from((Ipv4Addr::LOCALHOST, self.port));
        Api::new(address, &self.certificates().cert("ca"), token)
    }

    /// `kill -9`.
    pub fn kill(&mut self) {
        self.server = None;
    }

    /// Starts it again after a kill, on its old port, and waits until it is ready.
    pub fn restart(&mut self) -> Result<()> {
        self.kill();
        self.launch()?;
        self.wait_ready()
    }

    /// Other tokens from the next restart on.
    pub fn set_users(&mut self, users: Vec<User>) -> Result<()> {
        self.setup.users = users;
        self.write_tokens()
    }

    /// A kubeconfig with the administrator's client certificate.
    pub fn kubeconfig(&self) -> Result<PathBuf> {
        let user = json!({
            "client-certificate": self.certificates().cert("admin"),
            "client-key": self.certificates().key("admin"),
        });
        self.write_kubeconfig("admin", &self.url(), user)
    }

    /// A kubeconfig for this server, or for a proxy before it, with a user as kubeconfig files describe one.
    pub fn write_kubeconfig(&self, name: &str, url: &str, user: Value) -> Result<PathBuf> {
        let path = self.directory.path().join(format!("{name}.kubeconfig"));
        self.files.write_kubeconfig(&path, url, user)?;
        Ok(path)
    }

    /// Makes etcd forget everything before now. Without a watch cache the API server then has no history either.
    pub fn compact(&self) -> Result<()> {
        let status =
            process::run(self.etcd.etcdctl_at(0).args(["endpoint", "status", "--write-out", "json"]))?;
        let status: Value = serde_json::from_slice(&status.stdout)?;
        let revision = status[0]["Status"]["header"]["revision"].as_u64().context("etcd has a revision")?;
        process::run(self.etcd.etcdctl_at(0).args(["compact", &revision.to_string()]))?;
        Ok(())
    }

    /// Removes every object under these prefixes in etcd, such as `pods` or a whole API group. The server learns it from etcd.
    pub fn clear(&self, prefixes: &[&str]) -> Result<()> {
        for prefix in prefixes {
            let prefix = format!("/registry/{prefix}/");
            process::run(self.etcd.etcdctl_at(0).args(["del", "--prefix", &prefix]))?;
        }
        Ok(())
    }

    /// The last lines the server has written.
    pub fn log_tail(&self) -> String {
        let log = std::fs::read_to_string(self.files.log()).unwrap_or_default();
        let lines: Vec<&str> = log.lines().collect();
        lines[lines.len().saturating_sub(15)..].join("\n")
    }

    /// A second server with the same etcd, as a cluster has several. It ends when it is dropped.
    pub fn twin(&self) -> Result<Twin> {
        let port = free_port();
        let twin = Twin { port, _process: self.spawn(port)? };
        let address = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
        let api = Api::new(address, &self.certificates().cert("ca"), ADMIN_TOKEN);
        process::wait_until("the second Kubernetes API server to be ready", || {
            api.get("/readyz").is_ok_and(|answer| answer.status == 200)
        })
        .with_context(|| self.log_tail())?;
        Ok(twin)
    }

    fn wait_ready(&mut self) -> Result<()> {
        let api = self.api();
        let mut ended = None;
        let waited = process::wait_until("the Kubernetes API server to be ready", || {
            ended = self.server.as_mut().and_then(Process::exit_status);
            ended.is_some() || api.get("/readyz").is_ok_and(|answer| answer.status == 200)
        });
        match ended {
            Some(status) => bail!("{PROGRAM} ended with {status}: {}", self.log_tail()),
            None => waited.with_context(|| self.log_tail()),
        }
    }

    fn launch(&mut self) -> Result<()> {
        self.server = Some(self.spawn(self.port)?);
        Ok(())
    }

    fn spawn(&self, port: u16) -> Result<Process> {
        let log = File::options().create(true).append(true).open(self.files.log())?;
        let mut command = process::command(PROGRAM);
        command.args(self.files.arguments(&self.etcd.endpoint(0), Ipv4Addr::LOCALHOST.into(), port));
        command.args(&self.setup.extra_args);
        command.stdin(Stdio::null()).stdout(log.try_clone()?).stderr(log);
        Process::spawn(command).with_context(|| format!("cannot start {PROGRAM}"))
    }

    fn write_tokens(&self) -> Result<()> {
        let mut lines = format!("{ADMIN_TOKEN},admin-by-token,uid-of-admin,\"system:masters\"\n");
        for user in &self.setup.users {
            let groups = self.setup.groups.iter().filter(|(name, _)| *name == user.name);
            let groups: Vec<&str> = groups.map(|(_, group)| group.as_str()).collect();
            let User { name, token } = user;
            lines.push_str(&format!("{token},{name},uid-of-{name},\"{}\"\n", groups.join(",")));
        }
        self.files.write_tokens(&lines)
    }
}

/// Skips the calling test if there is no API server:
/// `let Some(server) = kube::start_or_skip("name", setup) else { return };`
pub fn start_or_skip(test: &str, setup: Setup) -> Option<KubeApiServer> {
    if let Some(reason) = missing() {
        crate::skip(test, &reason);
        return None;
    }
    match KubeApiServer::start(setup) {
        Ok(server) => Some(server),
        Err(error) => panic!("{PROGRAM} is there but does not start: {error:?}"),
    }
}
