//! Real etcd members, made for one test and gone with it. On loopback, unless a test has a network of its own for them.

use std::fs::File;
use std::net::Ipv4Addr;
use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::{Context as _, Result, anyhow};
use tempfile::TempDir;

use crate::certificates::Certificates;
use crate::process::{self, Process, on_path, run};
use crate::{free_port, scratch};

/// Why etcd cannot be started on this machine, if it cannot.
pub fn missing() -> Option<String> {
    let missing = ["etcd", "etcdctl"].into_iter().find(|program| !on_path(program))?;
    Some(format!("{missing} is not installed"))
}

/// What kind of cluster to start.
#[derive(Clone, Debug)]
pub struct Setup {
    pub members: usize,
    /// `None`: plain HTTP.
    pub tls: Option<Tls>,
    /// The password of user `root`; with it the cluster lets nobody in without user and password.
    pub root_password: Option<String>,
    /// Where clients find the members. Members find each other on loopback.
    pub address: Ipv4Addr,
    pub extra_args: Vec<String>,
}

/// How members identify themselves and what they want of clients.
#[derive(Clone, Debug)]
pub struct Tls {
    /// The pair to serve with, as [`Certificates`] names it.
    pub server: &'static str,
    pub client_certificates_required: bool,
}

impl Default for Setup {
    fn default() -> Setup {
        Setup {
            members: 1,
            tls: None,
            root_password: None,
            address: Ipv4Addr::LOCALHOST,
            extra_args: Vec::new(),
        }
    }
}

impl Setup {
    pub fn members(count: usize) -> Setup {
        Setup { members: count, ..Setup::default() }
    }

    /// TLS on the client port, with client certificates.
    pub fn mutual_tls() -> Setup {
        Setup::tls("server", true)
    }

    pub fn tls(server: &'static str, client_certificates_required: bool) -> Setup {
        Setup { tls: Some(Tls { server, client_certificates_required }), ..Setup::default() }
    }

    pub fn with_root_password(password: &str) -> Setup {
        Setup { root_password: Some(password.to_owned()), ..Setup::default() }
    }
}

/// Some members and everything they have on disk. All of it goes when this is dropped.
#[derive(Debug)]
pub struct EtcdCluster {
    setup: Setup,
    members: Vec<Member>,
    certificates: Option<Certificates>,
    directory: TempDir,
}

/// One member, running or not.
#[derive(Debug)]
struct Member {
    name: String,
    client_port: u16,
    peer_port: u16,
    process: Option<Process>,
}

impl EtcdCluster {
    pub fn single() -> Result<EtcdCluster> {
        EtcdCluster::start(Setup::default())
    }

    /// Starts all members and waits until the cluster takes requests.
    pub fn start(setup: Setup) -> Result<EtcdCluster> {
        let directory = scratch("etcd")?;
        let certificates = match setup.tls {
            Some(_) => Some(Certificates::create(directory.path().join("pki"))?),
            None => None,
        };
        let members = (0..setup.members)
            .map(|index| Member {
                name: format!("m{index}"),
                client_port: free_port(),
                peer_port: free_port(),
                process: None,
            })
            .collect();
        let mut cluster = EtcdCluster { setup, members, certificates, directory };
        for index in 0..cluster.members.len() {
            cluster.launch(index)?;
        }
        cluster.wait_healthy()?;
        if let Some(password) = cluster.setup.root_password.clone() {
            cluster.turn_authentication_on(&password)?;
        }
        Ok(cluster)
    }

    pub fn len(&self) -> usize {
        self.members.len()
    }

    pub fn is_empty(&self) -> bool {
        self.members.is_empty()
    }

    /// The client URL of one member.
    pub fn endpoint(&self, index: usize) -> String {
        let scheme = if self.setup.tls.is_some() { "https" } else { "http" };
        format!("{scheme}://{}:{}", self.setup.address, self.members[index].client_port)
    }

    pub fn endpoints(&self) -> Vec<String> {
        (0..self.members.len()).map(|index| self.endpoint(index)).collect()
    }

    pub fn client_port(&self, index: usize) -> u16 {
        self.members[index].client_port
    }

    /// Only with TLS.
    pub fn certificates(&self) -> &Certificates {
        self.certificates.as_ref().expect("the cluster was set up with TLS")
    }

    /// `kill -9`.
    pub fn kill(&mut self, index: usize) {
        self.members[index].process = None;
    }

    pub fn is_running(&mut self, index: usize) -> bool {
        self.members[index].process.as_mut().is_some_and(|process| process.exit_status().is_none())
    }

    pub fn stop_all(&mut self) {
        for index in 0..self.members.len() {
            self.kill(index);
        }
    }

    /// Starts a member that was killed, on its old ports and with what it has on disk. Does not wait for it.
    pub fn restart(&mut self, index: usize) -> Result<()> {
        self.kill(index);
        self.launch(index)
    }

    /// Removes what a member that was killed has on disk.
    pub fn wipe(&mut self, index: usize) -> Result<()> {
        self.kill(index);
        let data = self.data_directory(index);
        std::fs::remove_dir_all(&data).with_context(|| format!("cannot remove {}", data.display()))
    }

    /// Waits until every member that runs says it is healthy, which needs a leader.
    pub fn wait_healthy(&mut self) -> Result<()> {
        for index in 0..self.members.len() {
            if self.members[index].process.is_some() {
                self.wait_healthy_member(index)?;
            }
        }
        Ok(())
    }

    pub fn wait_healthy_member(&mut self, index: usize) -> Result<()> {
        let mut ended = None;
        let waited =
            process::wait_until(&format!("etcd {} to become healthy", self.members[index].name), || {
                ended = self.members[index].process.as_mut().and_then(Process::exit_status);
                ended.is_some() || run(self.etcdctl_at(index).args(["endpoint", "health"])).is_ok()
            });
        match ended {
            Some(status) => Err(anyhow!("etcd ended with {status}")),
            None => waited,
        }
        .with_context(|| self.log_tail(index))
    }

    /// The member that leads, as far as those that run know.
    pub fn leader(&mut self) -> Result<usize> {
        let mut leader = None;
        process::wait_until("a leader", || {
            leader = (0..self.members.len()).find(|index| self.is_running(*index) && self.leads(*index));
            leader.is_some()
        })?;
        leader.context("there is no leader")
    }

    /// `etcdctl` for the whole cluster, with all it needs to be let in.
    pub fn etcdctl(&self) -> Command {
        self.etcdctl_for(&self.endpoints().join(","))
    }

    /// `etcdctl` for one member.
    pub fn etcdctl_at(&self, index: usize) -> Command {
        self.etcdctl_for(&self.endpoint(index))
    }

    /// The last lines a member has written.
    pub fn log_tail(&self, index: usize) -> String {
        let path = self.log_path(index);
        let log = std::fs::read_to_string(&path).unwrap_or_default();
        let lines: Vec<&str> = log.lines().collect();
        lines[lines.len().saturating_sub(15)..].join("\n")
    }

    fn leads(&self, index: usize) -> bool {
        let status = run(self.etcdctl_at(index).args(["endpoint", "status", "--write-out", "simple"]));
        // endpoint, ID, version, size, is leader, …
        status.is_ok_and(|output| {
            String::from_utf8_lossy(&output.stdout).split(", ").nth(4).is_some_and(|leads| leads == "true")
        })
    }

    fn etcdctl_for(&self, endpoints: &str) -> Command {
        let mut command = Command::new("etcdctl");
        command.env("ETCDCTL_API", "3").args(["--endpoints", endpoints]);
        command.args(["--dial-timeout", "5s", "--command-timeout", "20s"]);
        if let Some(certificates) = &self.certificates {
            // Also where no client certificate is wanted: one that is offered does no harm. Test servers with a
            // strange certificate are not worth checking here.
            command.arg("--cacert").arg(certificates.cert("ca"));
            command.arg("--cert").arg(certificates.cert("client"));
            command.arg("--key").arg(certificates.key("client"));
            if self.setup.tls.as_ref().is_some_and(|tls| tls.server != "server") {
                command.arg("--insecure-skip-tls-verify");
            }
        }
        if let Some(password) = &self.setup.root_password {
            command.args(["--user", &format!("root:{password}")]);
        }
        command
    }

    fn turn_authentication_on(&mut self, password: &str) -> Result<()> {
        self.setup.root_password = None;
        for args in [
            vec!["user".to_owned(), "add".to_owned(), format!("root:{password}")],
            ["user", "grant-role", "root", "root"].map(str::to_owned).into(),
            ["auth", "enable"].map(str::to_owned).into(),
        ] {
            run(self.etcdctl().args(args))?;
        }
        self.setup.root_password = Some(password.to_owned());
        Ok(())
    }

    fn launch(&mut self, index: usize) -> Result<()> {
        let log = File::options().create(true).append(true).open(self.log_path(index))?;
        let member = &self.members[index];
        let client_url = self.endpoint(index);
        let peer_url = member.peer_url();
        let initial: Vec<String> =
            self.members.iter().map(|member| format!("{}={}", member.name, member.peer_url())).collect();
        let mut command = process::command("etcd");
        command.args(["--name", &member.name, "--unsafe-no-fsync"]);
        command.arg("--data-dir").arg(self.data_directory(index));
        command.args(["--listen-client-urls", &client_url, "--advertise-client-urls", &client_url]);
        command.args(["--listen-peer-urls", &peer_url, "--initial-advertise-peer-urls", &peer_url]);
        command.args(["--initial-cluster", &initial.join(","), "--initial-cluster-state", "new"]);
        command.args(["--logger", "zap", "--log-level", "warn"]);
        self.tls_args(&mut command);
        command.args(&self.setup.extra_args);
        command.stdin(Stdio::null()).stdout(log.try_clone()?).stderr(log);
        self.members[index].process = Some(Process::spawn(command).context("cannot start etcd")?);
        Ok(())
    }

    fn tls_args(&self, command: &mut Command) {
        let (Some(tls), Some(certificates)) = (&self.setup.tls, &self.certificates) else { return };
        command.arg("--cert-file").arg(certificates.cert(tls.server));
        command.arg("--key-file").arg(certificates.key(tls.server));
        if tls.client_certificates_required {
            command.arg("--client-cert-auth").arg("--trusted-ca-file").arg(certificates.cert("ca"));
        }
    }

    fn data_directory(&self, index: usize) -> std::path::PathBuf {
        self.path().join(&self.members[index].name)
    }

    fn log_path(&self, index: usize) -> std::path::PathBuf {
        self.path().join(format!("{}.log", self.members[index].name))
    }

    fn path(&self) -> &Path {
        self.directory.path()
    }
}

impl Member {
    fn peer_url(&self) -> String {
        format!("http://127.0.0.1:{}", self.peer_port)
    }
}

/// Skips the calling test if etcd is not there: `let Some(cluster) = etcd::start_or_skip("name", setup) else { return };`
pub fn start_or_skip(test: &str, setup: Setup) -> Option<EtcdCluster> {
    if let Some(reason) = missing() {
        crate::skip(test, &reason);
        return None;
    }
    match EtcdCluster::start(setup) {
        Ok(cluster) => Some(cluster),
        Err(error) => panic!("etcd is installed but does not start: {error:?}"),
    }
}
