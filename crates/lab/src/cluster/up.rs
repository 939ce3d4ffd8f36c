//! Makes a lab, step by step. Each step can die: what it made carries the lab's name, and `down` finds it by that.

use std::fs::{self, File};
use std::net::SocketAddr;
use std::os::unix::fs::symlink;
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use anyhow::{Context as _, Result, bail, ensure};

use super::down::{remove_abandoned, remove_locked};
use super::{Cluster, Description, Mode, Place, Plan, Stage, StoreKind, fabric, http, settings};
use crate::file::tail;
use crate::node_init::{InitRequest, prepare_node};
use crate::{Hopeless, wait_for};

const HEALTH_PORT: u16 = 9099;

impl Cluster {
    /// Makes a lab. `tell` hears what is being done. What was made so far goes away again if it fails.
    pub fn up(plan: &Plan, tell: &dyn Fn(&str)) -> Result<Cluster> {
        if let Some(reason) = crate::missing_for_cluster(plan.store, plan.kubernetes_bin.as_deref()) {
            bail!("a lab cannot run here: {reason}");
        }
        let description = plan.describe()?;
        for program in ["plumb", "plumbd", "plumb-cni"] {
            let path = description.programs.join(program);
            ensure!(path.is_file(), "{program} is missing in {}", description.programs.display());
        }
        remove_abandoned()?;
        let place = Place::of(&plan.name);
        let _lock = place.lock()?;
        if Description::exists(place.folder()) {
            bail!("lab {0} already exists; remove it with `plumb lab down --name {0}`", plan.name);
        }
        // What a lab of this name left when its folder was taken away by hand.
        remove_locked(&plan.name, &place)?;
        let mut cluster = Cluster { description, place };
        match cluster.build(tell) {
            Ok(()) => Ok(cluster),
            Err(error) => {
                match remove_locked(cluster.name(), &cluster.place) {
                    Ok(_) => cluster.place.remove_lock(),
                    Err(left) => eprintln!("lab {} was not completely removed: {left:#}", cluster.name()),
                }
                Err(error)
            }
        }
    }

    fn build(&mut self, tell: &dyn Fn(&str)) -> Result<()> {
        fs::create_dir_all(self.place.folder())?;
        self.description.save(self.place.folder())?;
        tell(&format!(
            "fabric and {} nodes: network namespaces, connected by a bridge",
            self.description.nodes.len()
        ));
        fabric::build(&self.description)?;
        self.build_store(tell)?;
        for node in &self.description.nodes {
            self.furnish(node)?;
        }
        self.boot_all(tell)?;
        if !self.description.has_agents {
            self.create_pools()?;
        } else if self.description.mode == Mode::Bgp {
            self.leave_routes_to_bird()?;
        }
        self.description.stage = Stage::Up;
        self.description.save(self.place.folder())
    }

    fn build_store(&self, tell: &dyn Fn(&str)) -> Result<()> {
        match self.description.store {
            StoreKind::Sqlite => {
                let file = self.place.store_file();
                tell(&format!("store: SQLite, one file for all nodes ({})", file.display()));
                Ok(fs::create_dir_all(file.parent().context("the store has a folder")?)?)
            }
            StoreKind::Etcdv3 => {
                let endpoint = settings::etcd_endpoint(&self.description);
                tell(&format!("store: etcd on the fabric ({endpoint})"));
                self.start_etcd(&endpoint)
            }
            StoreKind::Kubernetes => self.start_kubernetes(tell),
        }
    }

    pub(super) fn start_etcd(&self, endpoint: &str) -> Result<()> {
        let namespace = fabric::namespace_path(self.name(), fabric::FABRIC);
        let folder = self.place.etcd_folder();
        fs::create_dir_all(&folder)?;
        let mut etcd = Command::new("nsenter");
        etcd.arg(format!("--net={namespace}")).args(["--", "etcd", "--name", "lab", "--logger", "zap"]);
        etcd.arg("--data-dir").arg(folder.join("data"));
        etcd.args(["--listen-client-urls", endpoint, "--advertise-client-urls", endpoint]);
        etcd.args(["--listen-peer-urls", "http://127.0.0.1:2380"]);
        etcd.args(["--initial-advertise-peer-urls", "http://127.0.0.1:2380"]);
        etcd.args(["--initial-cluster", "lab=http://127.0.0.1:2380"]);
        let mut process = detach(etcd, &folder.join("etcd.log"))?;
        let address: SocketAddr = endpoint.trim_start_matches("http://").parse()?;
        wait_for("etcd", || {
            ensure!(process.try_wait()?.is_none(), Hopeless(tail(&folder.join("etcd.log"), 5)));
            let (status, answer) = http::get(Path::new(&namespace), address, "/health")?;
            ensure!(status == 200 && answer.contains("true"), "etcd is not healthy: {answer}");
            Ok(())
        })
    }

    /// What an operator would have installed on the node.
    fn furnish(&self, node: &super::NodeDescription) -> Result<()> {
        let folder = self.place.node(&node.name);
        prepare_node(&folder)?;
        let conflist = settings::conflist(&self.description, node, &self.place);
        let path = folder.join("etc/cni/net.d/10-plumb.conflist");
        crate::file::replace(&path, serde_json::to_string_pretty(&conflist)?.as_bytes())?;
        for (name, program) in [("plumb-cni", "plumb-cni"), ("plumb-ipam", "plumb-cni")] {
            symlink(self.description.programs.join(program), folder.join("opt/cni/bin").join(name))?;
        }
        self.link_other_plugins(&folder.join("opt/cni/bin"))
    }

    /// Debian's plugins, where they are installed, so that chains can be tried.
    fn link_other_plugins(&self, bin: &Path) -> Result<()> {
        let Ok(entries) = fs::read_dir("/usr/lib/cni") else { return Ok(()) };
        for entry in entries.flatten() {
            let own = bin.join(entry.file_name());
            if !own.exists() {
                symlink(entry.path(), own)?;
            }
        }
        Ok(())
    }

    fn boot_all(&self, tell: &dyn Fn(&str)) -> Result<()> {
        let what =
            if self.description.has_agents { "agent and kubelet stand-in" } else { "kubelet stand-in" };
        tell(&format!("nodes boot, each with {what}"));
        let mut first_processes = Vec::new();
        for node in &self.description.nodes {
            first_processes.push((&node.name, self.start_node(&node.name)?));
        }
        for (node, process) in &mut first_processes {
            self.wait_for_node(node, process)?;
        }
        self.description.nodes.iter().try_for_each(|node| self.wait_for_services(&node.name))
    }

    /// Boots a node whose power was cut, and waits until its services can be asked.
    pub fn boot(&self, node: &str) -> Result<()> {
        self.description.node(node)?;
        let mut process = self.start_node(node)?;
        self.wait_for_node(node, &mut process)?;
        self.wait_for_services(node)
    }

    fn wait_for_services(&self, node: &str) -> Result<()> {
        self.wait_for_service(node, "kubelet")?;
        if self.description.store == StoreKind::Kubernetes {
            self.wait_for_registration(node)?;
        }
        if self.description.has_agents {
            self.wait_for_service(node, "agent")?;
        }
        Ok(())
    }

    fn start_node(&self, node: &str) -> Result<Child> {
        let mut unshare = Command::new("nsenter");
        unshare.arg(format!("--net={}", fabric::namespace_path(self.name(), node))).arg("--");
        unshare.args(["unshare", "--mount", "--uts", "--pid", "--fork", "--kill-child"]);
        unshare.args(["--propagation", "private", "--"]);
        unshare.arg(self.description.programs.join("plumb-lab"));
        unshare.args(["node", "--name", self.name().as_str(), "--node", node]);
        detach(unshare, &self.place.log(node, "init.log"))
    }

    fn wait_for_node(&self, node: &str, process: &mut Child) -> Result<()> {
        wait_for(&format!("node {node}"), || {
            let log = self.place.log(node, "init.log");
            ensure!(
                process.try_wait()?.is_none(),
                Hopeless(format!("node {node} did not start: {}", tail(&log, 5)))
            );
            self.init(node, &InitRequest::Status).map(|_| ())
        })
    }

    /// Else the agents would write them, and BGP would show nothing.
    fn leave_routes_to_bird(&self) -> Result<()> {
        let patch = r#"{"spec": {"programClusterRoutes": "Enabled"}}"#;
        self.plumb(&["patch", "bgpconfiguration", "default", "-p", patch])?;
        Ok(())
    }

    /// Without agents nobody else does.
    fn create_pools(&self) -> Result<()> {
        for (index, pool) in self.description.pools.iter().enumerate() {
            let manifest = self.place.folder().join(format!("pool{index}.yaml"));
            let family = if pool.contains(':') { "ipv6" } else { "ipv4" };
            let text = format!(
                "apiVersion: projectcalico.org/v3\nkind: IPPool\nmetadata: {{name: default-{family}-ippool}}\nspec: {{cidr: \"{pool}\", vxlanMode: {}}}\n",
                self.description.mode.vxlan()
            );
            crate::file::replace(&manifest, text.as_bytes())?;
            self.plumb(&["apply", "-f", &manifest.display().to_string()])?;
        }
        Ok(())
    }

    /// Waits until a service can be asked: the agent is ready then.
    pub fn wait_for_service(&self, node: &str, service: &str) -> Result<()> {
        let waited = wait_for(&format!("the {service} of {node}"), || match service {
            "kubelet" => self.pods(node).map(drop),
            _ => self.agent_readiness(node),
        });
        waited.with_context(|| {
            let log = self.log_tail(node, service, 10);
            if log.is_empty() { format!("{service} of {node} logged nothing") } else { log }
        })
    }

    pub(crate) fn agent_readiness(&self, node: &str) -> Result<()> {
        let namespace = fabric::namespace_path(self.name(), node);
        let address = SocketAddr::from(([127, 0, 0, 1], HEALTH_PORT));
        let (status, answer) = http::get(Path::new(&namespace), address, "/readiness")?;
        let body = answer.split("\r\n\r\n").nth(1).unwrap_or_default().trim();
        ensure!((200..300).contains(&status), "the agent of {node} is not ready: {body}");
        Ok(())
    }
}

/// Starts what outlives us: with its own process group, so that Ctrl-C at our terminal does not reach it.
pub(super) fn detach(mut command: Command, log: &Path) -> Result<Child> {
    let file = File::options().create(true).append(true).open(log);
    let file = file.with_context(|| format!("cannot open {}", log.display()))?;
    command.process_group(0).stdin(Stdio::null()).stdout(file.try_clone()?).stderr(file);
    command.spawn().with_context(|| format!("cannot run {}", command.get_program().display()))
}
