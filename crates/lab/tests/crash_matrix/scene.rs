//! A lab of one node with a pod that must not notice anything, and ways to kill what runs there.

use std::fs;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use host::NetNs;
use lab::cluster::{ApiGroup, OwnCluster, Plan, StoreKind};
use lab::kubelet::{KubeletRequest, LeftBehind, NewPod, PodKey, PodReport, PodState};
use lab::{Pinger, Programs, wait_for};
use store::config::{Overrides, Sources};
use store::{OpenMode, Store, StoreConfig};

use crate::cells::{Cell, Victim, Way};

pub(crate) const NODE: &str = "node1";
/// Lives through everything.
const BYSTANDER: &str = "default/bystander";
/// Nothing is collected unless a story wants it.
const GRACE_LONG: Duration = Duration::from_secs(3600);
const GRACE_SHORT: (&str, &str) = ("PLUMB_GRACE", "300ms");
/// In the node's /run: who finds it there is the one to be killed.
const ARMED: &str = "run/plumb-armed";

pub(crate) struct Scene {
    pub(crate) lab: OwnCluster,
    pinger: Option<Pinger>,
    /// Sandboxes that this test made without the kubelet.
    pub(crate) own: Vec<PodReport>,
    /// Namespaces on the node in which nothing of ours must be.
    pub(crate) idle: Vec<String>,
}

impl Scene {
    pub(crate) fn up(cell: &Cell, programs: &Programs) -> Result<Scene> {
        // Nothing depends on it, so each run tries one.
        let api_group = if testkit::seed().is_multiple_of(2) { ApiGroup::V1 } else { ApiGroup::V3 };
        let plan = Plan {
            nodes: 1,
            store: cell.store,
            api_group,
            ipv6: cell.has_ipv6(),
            grace: GRACE_LONG,
            has_agents: cell.victim != Victim::OneShot,
            ..Plan::new(programs)
        };
        let lab = OwnCluster::up(plan, &|_| {})?;
        if cell.victim == Victim::OneShot && cell.store != StoreKind::Kubernetes {
            // Where no agent makes it, an operator does.
            let manifest = lab.root_of(NODE)?.join("run/node.yaml");
            fs::write(
                &manifest,
                format!("{{apiVersion: projectcalico.org/v3, kind: Node, metadata: {{name: {NODE}}}}}"),
            )?;
            lab.plumb(&["apply", "-f", "/run/node.yaml"])?;
        }
        let bystander = add(&lab, BYSTANDER)?;
        let address = lab.description().node(NODE)?.address().context("a node has an address")?;
        let from_pod = lab.command_in(NODE, &bystander.netns)?;
        let pinger = Pinger::start("bystander", from_pod, &address.to_string())?;
        Ok(Scene { lab, pinger: Some(pinger), own: Vec::new(), idle: Vec::new() })
    }

    /// A pod that runs.
    pub(crate) fn add(&self, name: &str) -> Result<PodReport> {
        add(&self.lab, name)
    }

    /// Has the kubelet begin with a pod.
    pub(crate) fn begin_add(&self, name: &str) -> Result<()> {
        self.begin_adds(&[name.to_owned()])
    }

    /// Has it begin with several at once.
    pub(crate) fn begin_adds(&self, names: &[String]) -> Result<()> {
        let pods = names.iter().map(|name| Ok(NewPod::new(&key(name)?))).collect::<Result<_>>()?;
        self.ask(&KubeletRequest::Add { pods, waits: false })
    }

    pub(crate) fn wait_until_running(&self, name: &str) -> Result<PodReport> {
        let key = key(name)?;
        wait_for(&format!("{name} to run"), || {
            let pod = self.lab.pods(NODE)?.into_iter().find(|pod| pod.key() == key).context("no such pod")?;
            ensure!(pod.state == PodState::Running, "it does not run yet: {:?}", pod.last_error);
            Ok(pod)
        })
    }

    pub(crate) fn begin_delete(&self, name: &str) -> Result<()> {
        self.begin_deletes(&[name.to_owned()])
    }

    pub(crate) fn begin_deletes(&self, names: &[String]) -> Result<()> {
        let pods = names.iter().map(|name| key(name)).collect::<Result<_>>()?;
        self.ask(&KubeletRequest::Delete { pods, waits: false })
    }

    pub(crate) fn delete(&self, name: &str) -> Result<()> {
        self.ask(&KubeletRequest::Delete { pods: vec![key(name)?], waits: true })
    }

    pub(crate) fn wait_until_gone(&self, name: &str) -> Result<()> {
        let key = key(name)?;
        wait_for(&format!("{name} to end"), || {
            let pods = self.lab.pods(NODE)?;
            ensure!(pods.iter().all(|pod| pod.key() != key), "it is there: {pods:?}");
            Ok(())
        })
    }

    /// The runtime forgets a pod, and its device stays on the node.
    pub(crate) fn lose(&self, name: &str) -> Result<()> {
        self.ask(&KubeletRequest::Lose { pods: vec![key(name)?], leaves: LeftBehind::Devices })
    }

    /// As if the pod had been there before the agent.
    pub(crate) fn forget_journal_of(&self, pod: &PodReport) -> Result<()> {
        let journal = self.root()?.join("var/lib/plumb/attachments");
        for entry in fs::read_dir(&journal)? {
            let path = entry?.path();
            if path.to_string_lossy().contains(&pod.container_id) {
                return Ok(fs::remove_file(path)?);
            }
        }
        anyhow::bail!("{} is not in the journal", pod.key())
    }

    /// One more DEL of a sandbox that is long gone, as kubelets make them.
    pub(crate) fn repeat_del(&self, old: &PodReport) -> Result<()> {
        self.ask(&KubeletRequest::RepeatDel { sandbox: old.sandbox() })
    }

    pub(crate) fn restart_kubelet(&self) -> Result<()> {
        self.lab.kill(NODE, "kubelet")?;
        self.lab.start(NODE, "kubelet", &[])
    }

    /// CNI's GC; whether it succeeded.
    pub(crate) fn gc(&self) -> Result<()> {
        self.ask(&KubeletRequest::Gc)
    }

    fn ask(&self, request: &KubeletRequest) -> Result<()> {
        self.lab.kubelet(NODE, request).map(|_| ())
    }

    /// Starts an agent that will not get past the point. Waits for nothing.
    pub(crate) fn arm_agent(&self, point: &str, way: Way, is_grace_short: bool) -> Result<()> {
        self.kill_agent()?;
        let setting = way.setting(point);
        let mut environment = vec![("PLUMB_FAILPOINT", setting.as_str())];
        environment.extend(is_grace_short.then_some(GRACE_SHORT));
        self.lab.launch(NODE, "agent", &environment)
    }

    pub(crate) fn wait_until_ready(&self) -> Result<()> {
        self.lab.wait_for_service(NODE, "agent")
    }

    pub(crate) fn kill_agent(&self) -> Result<()> {
        self.lab.kill(NODE, "agent")
    }

    pub(crate) fn start_agent(&self) -> Result<()> {
        self.lab.start(NODE, "agent", &[])
    }

    pub(crate) fn start_impatient_agent(&self) -> Result<()> {
        self.lab.launch(NODE, "agent", &[GRACE_SHORT])?;
        self.wait_until_ready()
    }

    /// The agent is dead when this returns, killed at the point and nowhere else.
    pub(crate) fn see_agent_die_at(&self, point: &str) -> Result<()> {
        self.wait_for_hit("agent", point)?;
        self.kill_agent()
    }

    pub(crate) fn wait_for_hit(&self, program: &str, point: &str) -> Result<()> {
        wait_for(&format!("failpoint {point}"), || {
            ensure!(self.is_hit(program, point), "it was not reached");
            Ok(())
        })
    }

    pub(crate) fn is_hit(&self, program: &str, point: &str) -> bool {
        self.lab.log_tail(NODE, program, usize::MAX).contains(&format!("failpoint {point} reached"))
    }

    /// The next call of this verb will not get past the point.
    pub(crate) fn arm_plugin(&self, verb: &str, point: &str, way: Way) -> Result<()> {
        let root = self.root()?;
        let plugin = root.join("opt/cni/bin/plumb-cni");
        let real = self.lab.description().programs.join("plumb-cni");
        let script = format!(
            "#!/bin/sh\nif [ \"$CNI_COMMAND\" = {verb} ] && mv /{ARMED} /{ARMED}.used 2>/dev/null; then\n  \
             echo $$ > /{ARMED}.pid\n  export PLUMB_FAILPOINT={}\nfi\nexec {} \"$@\"\n",
            way.setting(point),
            real.display(),
        );
        fs::write(root.join(ARMED), "")?;
        // In one step: the kubelet may be calling it.
        let unfinished = plugin.with_extension("new");
        fs::write(&unfinished, script)?;
        fs::set_permissions(&unfinished, std::os::unix::fs::PermissionsExt::from_mode(0o755))?;
        Ok(fs::rename(unfinished, plugin)?)
    }

    /// The plugin is dead when this returns, killed at the point and nowhere else.
    pub(crate) fn see_plugin_die_at(&self, point: &str, way: Way) -> Result<()> {
        self.wait_for_hit("kubelet", point)?;
        if way == Way::Held {
            let number = fs::read_to_string(self.root()?.join(format!("{ARMED}.pid")))?;
            self.lab.run_on(NODE, &["kill", "-9", number.trim()])?;
        }
        Ok(())
    }

    /// Where the records are in Kubernetes, endpoints and nodes are views, and commits are made step by step.
    pub(crate) fn is_on_kubernetes(&self) -> bool {
        self.lab.description().store == StoreKind::Kubernetes
    }

    /// Whoever wants to change records is refused.
    pub(crate) fn lock_store(&self, is_locked: bool) -> Result<()> {
        let word = if is_locked { "lock" } else { "unlock" };
        self.lab.plumb(&["datastore", "migrate", word]).map(|_| ())
    }

    /// The node's files.
    pub(crate) fn root(&self) -> Result<PathBuf> {
        self.lab.root_of(NODE)
    }

    /// Does something in the node's network.
    pub(crate) fn on_node<T: Send>(&self, act: impl FnOnce() -> T + Send) -> Result<T> {
        Ok(NetNs::open(&self.lab.network_of(NODE)?)?.visit(act)?)
    }

    /// The lab's store, seen from the node.
    pub(crate) fn with_store<T: Send>(
        &self,
        act: impl AsyncFnOnce(&dyn Store) -> Result<T> + Send,
    ) -> Result<T> {
        let variables = self.lab.environment_of(NODE)?;
        self.on_node(move || {
            let environment = |wanted: &str| {
                variables.iter().find(|(name, _)| name == wanted).map(|(_, value)| value.into())
            };
            let sources = Sources {
                overrides: Overrides::default(),
                config_file: None,
                default_config_file: PathBuf::new(),
                environment: &environment,
                agent_settings: None,
            };
            let config = StoreConfig::from_sources(&sources)?.config;
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
            runtime.block_on(async {
                let store = store::open(&config, OpenMode::Existing).await?;
                act(&*store).await
            })
        })?
    }

    /// The bystander has not missed a packet. It goes, too, and everybody else with it.
    pub(crate) fn end_everything(&mut self) -> Result<()> {
        let tally = self.pinger.take().context("the bystander is there")?.stop()?;
        ensure!(tally.lost == 0, "the bystander missed {} of its packets: {tally:?}", tally.lost);
        let pods = self.lab.pods(NODE)?.iter().map(PodReport::key).collect();
        self.ask(&KubeletRequest::Delete { pods, waits: true })
    }

    /// What is worth knowing when something went wrong.
    pub(crate) fn logs(&self) -> String {
        let tail = |program| self.lab.log_tail(NODE, program, 40);
        format!("--- agent\n{}\n--- kubelet\n{}", tail("agent"), tail("kubelet"))
    }
}

fn add(lab: &OwnCluster, name: &str) -> Result<PodReport> {
    let request = KubeletRequest::Add { pods: vec![NewPod::new(&key(name)?)], waits: true };
    lab.kubelet(NODE, &request)?.pop().context("the kubelet tells of the pod")
}

pub(crate) fn key(name: &str) -> Result<PodKey> {
    Ok(name.parse()?)
}
