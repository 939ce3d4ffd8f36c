//! The kubelet's half: pods that should run, and the stubbornness with which it gets there.
//!
//! Creating is repeated, each time with a new sandbox; ending means stopping several times and then removing, and
//! each step is repeated until it succeeds. Every pod is worked on by itself, so that two pods of one name, the old
//! one ending and the new one starting, go on side by side.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use uuid::Uuid;

use super::kubernetes::{Kubernetes, ListedPod};
use super::protocol::{KubeletRequest, LeftBehind, NewPod, PodKey, PodReport, PodState};
use super::records::{Memory, PodRecord, SandboxRecord, State};
use super::runtime::{Runtime, attachment};

/// The real one waits seconds and then minutes; a lab is in more of a hurry.
const BACK_OFF_MIN: Duration = Duration::from_millis(200);
const BACK_OFF_MAX: Duration = Duration::from_secs(5);
/// How long a request that waits does so.
const PATIENCE: Duration = crate::wait::PATIENCE;
/// The real one stops a sandbox when the pod ends, and again before it removes the sandbox.
const STOPS: usize = 2;

#[derive(Clone, Debug)]
pub(super) struct Kubelet {
    runtime: Arc<Runtime>,
    /// `None`: pods and their UIDs are this program's own.
    kubernetes: Option<Kubernetes>,
    /// Held while the pods that Kubernetes has and those of the memory are brought together: a list of the former is soon old.
    turn: Arc<Mutex<()>>,
}

impl Kubelet {
    /// Takes up the work where it was left.
    pub(super) fn start(runtime: Arc<Runtime>, kubernetes: Option<Kubernetes>) -> Result<Kubelet> {
        let kubelet = Kubelet { runtime, kubernetes, turn: Arc::default() };
        kubelet.runtime.records.change(retire_sandboxes_without_namespace)?;
        for pod in kubelet.runtime.records.look().pods.into_values() {
            kubelet.work_on(pod);
        }
        if let Some(kubernetes) = kubelet.kubernetes.clone() {
            let kubelet = kubelet.clone();
            std::thread::spawn(move || kubelet.join(&kubernetes));
        }
        Ok(kubelet)
    }

    /// Registers the node, and takes up the pods that only Kubernetes knows of. Until Kubernetes answers, the pods that are known
    /// run all the same.
    fn join(&self, kubernetes: &Kubernetes) {
        let mut back_off = BACK_OFF_MIN;
        while let Err(error) = kubernetes.register().and_then(|()| self.take_up(kubernetes)) {
            eprintln!("joining the cluster: {error:#}");
            std::thread::sleep(back_off);
            back_off = (back_off * 2).min(BACK_OFF_MAX);
        }
        kubernetes.beat();
    }

    fn take_up(&self, kubernetes: &Kubernetes) -> Result<()> {
        let _turn = self.take_turn();
        for ListedPod { key, uid, is_deleted } in kubernetes.pods()? {
            let PodKey { namespace, name } = key;
            let pod = PodRecord { namespace, name, uid, is_deleted, ..PodRecord::default() };
            let is_new = self.runtime.records.change(|memory| {
                let is_new = !memory.pods.contains_key(&pod.uid);
                memory.pods.entry(pod.uid.clone()).or_insert_with(|| pod.clone());
                is_new
            })?;
            if is_new {
                self.work_on(pod);
            }
        }
        Ok(())
    }

    fn take_turn(&self) -> MutexGuard<'_, ()> {
        self.turn.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn handle(&self, request: KubeletRequest) -> Result<Vec<PodReport>> {
        match request {
            KubeletRequest::Pods => {}
            KubeletRequest::Add { pods, waits } => return self.add(pods, waits),
            KubeletRequest::Delete { pods, waits } => self.delete(&pods, waits)?,
            KubeletRequest::HoldDels { is_held } => self.runtime.hold_dels(is_held),
            KubeletRequest::Lose { pods, leaves } => self.lose(&pods, leaves)?,
            KubeletRequest::RepeatDel { sandbox } => {
                self.runtime.chain.del(&self.runtime.network()?, &sandbox.attachment())?;
            }
            KubeletRequest::Check => self.check()?,
            KubeletRequest::Gc => self.gc()?,
        }
        Ok(reports(&self.runtime.records.look()))
    }

    fn add(&self, pods: Vec<NewPod>, waits: bool) -> Result<Vec<PodReport>> {
        let mut uids = Vec::new();
        for pod in pods {
            let admitted = self.admit(pod)?;
            uids.push(admitted.uid.clone());
            self.work_on(admitted);
        }
        let is_told = |sandbox: &SandboxRecord| sandbox.is_reported || self.kubernetes.is_none();
        let is_running =
            |memory: &Memory| uids.iter().all(|uid| memory.ready_sandbox(uid).is_some_and(is_told));
        let is_done = !waits || self.runtime.records.wait(PATIENCE, is_running);
        let memory = self.runtime.records.look();
        if !is_done {
            let errors = memory.pods.values().filter_map(|pod| pod.last_error.clone()).next();
            bail!("not all pods run: {}", errors.unwrap_or_else(|| "for an unknown reason".to_owned()));
        }
        let mut reports = reports(&memory);
        reports.retain(|report| uids.contains(&report.uid));
        Ok(reports)
    }

    fn admit(&self, pod: NewPod) -> Result<PodRecord> {
        let _turn = self.take_turn();
        let key = PodKey { namespace: pod.namespace.clone(), name: pod.name.clone() };
        if self.runtime.records.look().find(&key).is_some() {
            bail!("pod {key} already exists");
        }
        let uid = match &self.kubernetes {
            Some(kubernetes) => kubernetes.create(&pod)?,
            None => Uuid::new_v4().to_string(),
        };
        let NewPod { namespace, name, offers, .. } = pod;
        let record = PodRecord { namespace, name, uid, offers, ..PodRecord::default() };
        self.runtime.records.change(|memory| memory.pods.insert(record.uid.clone(), record.clone()))?;
        Ok(record)
    }

    fn delete(&self, pods: &[PodKey], waits: bool) -> Result<()> {
        let mut uids = Vec::new();
        for key in pods {
            let memory = self.runtime.records.look();
            let known = memory.find(key).and_then(|uid| memory.pods.get(&uid));
            let pod = PodRecord {
                is_deleted: true,
                ..known.with_context(|| format!("pod {key} does not exist"))?.clone()
            };
            if let Some(kubernetes) = &self.kubernetes {
                kubernetes.begin_deletion(&pod)?;
            }
            self.runtime.records.change(|memory| {
                if let Some(known) = memory.pods.get_mut(&pod.uid) {
                    known.is_deleted = true;
                }
            })?;
            uids.push(pod.uid.clone());
            self.work_on(pod);
        }
        let are_gone = |memory: &Memory| uids.iter().all(|uid| !memory.pods.contains_key(uid));
        if waits && !self.runtime.records.wait(PATIENCE, are_gone) {
            bail!("the pods do not end");
        }
        Ok(())
    }

    fn lose(&self, pods: &[PodKey], leaves: LeftBehind) -> Result<()> {
        let _turn = self.take_turn();
        for key in pods {
            // Together: whoever looks after a pod that is gone ends its sandboxes with a DEL.
            let lost = self.runtime.records.change(|memory| {
                let uid = memory.find(key)?;
                let pod = memory.pods.remove(&uid)?;
                let ids = memory.sandboxes_of(&uid);
                Some((pod, ids.iter().filter_map(|id| memory.sandboxes.remove(id)).collect::<Vec<_>>()))
            })?;
            let (pod, sandboxes) = lost.with_context(|| format!("pod {key} does not exist"))?;
            if let Some(kubernetes) = &self.kubernetes {
                kubernetes.finish_deletion(&pod)?;
            }
            for sandbox in sandboxes {
                self.runtime.leave_behind(&sandbox, leaves)?;
            }
        }
        Ok(())
    }

    fn check(&self) -> Result<()> {
        let network = self.runtime.network()?;
        let memory = self.runtime.records.look();
        let ready = memory.sandboxes.values().filter(|sandbox| sandbox.state == State::Ready);
        for sandbox in ready {
            let pod = &sandbox.pod;
            let checked = self.runtime.chain.check(&network, &attachment(sandbox));
            checked.with_context(|| format!("pod {}/{}", pod.namespace, pod.name))?;
        }
        Ok(())
    }

    fn gc(&self) -> Result<()> {
        let memory = self.runtime.records.look();
        let known: Vec<_> = memory.sandboxes.values().map(attachment).collect();
        self.runtime.chain.gc(&self.runtime.network()?, &known)
    }

    fn work_on(&self, pod: PodRecord) {
        let kubelet = self.clone();
        std::thread::spawn(move || {
            let worked = if pod.is_deleted { kubelet.end(&pod) } else { kubelet.begin(&pod) };
            if let Err(error) = worked {
                eprintln!("pod {}/{}: {error:#}", pod.namespace, pod.name);
            }
        });
    }

    /// Until the pod has a sandbox that is ready, and Kubernetes knows, or is not wanted any more.
    fn begin(&self, pod: &PodRecord) -> Result<()> {
        let is_unwanted = |memory: &Memory| memory.pods.get(&pod.uid).is_none_or(|pod| pod.is_deleted);
        let mut back_off = BACK_OFF_MIN;
        loop {
            let memory = self.runtime.records.look();
            if is_unwanted(&memory) {
                return Ok(());
            }
            if let Some(ready) = memory.ready_sandbox(&pod.uid) {
                match self.report(pod, ready) {
                    Ok(()) => return Ok(()),
                    Err(error) => self.note_error(pod, &error)?,
                }
            } else {
                self.remove_sandboxes(&pod.uid);
                self.count_attempt(pod)?;
                match self.runtime.run_sandbox(pod) {
                    // Deleted meanwhile, while there was no sandbox to stop.
                    Ok(_) if is_unwanted(&self.runtime.records.look()) => return self.end(pod),
                    Ok(_) => continue,
                    Err(error) => self.note_error(pod, &error)?,
                }
            }
            self.runtime.records.wait(back_off, is_unwanted);
            back_off = (back_off * 2).min(BACK_OFF_MAX);
        }
    }

    fn report(&self, pod: &PodRecord, sandbox: &SandboxRecord) -> Result<()> {
        let Some(kubernetes) = self.kubernetes.as_ref().filter(|_| !sandbox.is_reported) else {
            return Ok(());
        };
        kubernetes.report(pod, &sandbox.addresses)?;
        self.runtime.records.change(|memory| {
            if let Some(sandbox) = memory.sandboxes.get_mut(&sandbox.id) {
                sandbox.is_reported = true;
            }
        })
    }

    /// Until nothing of the pod is left.
    fn end(&self, pod: &PodRecord) -> Result<()> {
        let mut back_off = BACK_OFF_MIN;
        while let Err(error) = self.end_once(&pod.uid).and_then(|()| self.forget(pod)) {
            self.note_error(pod, &error)?;
            std::thread::sleep(back_off);
            back_off = (back_off * 2).min(BACK_OFF_MAX);
        }
        Ok(())
    }

    fn forget(&self, pod: &PodRecord) -> Result<()> {
        let _turn = self.take_turn();
        if let Some(kubernetes) = &self.kubernetes {
            kubernetes.finish_deletion(pod)?;
        }
        self.runtime.records.change(|memory| memory.pods.remove(&pod.uid)).map(drop)
    }

    fn end_once(&self, uid: &str) -> Result<()> {
        // One whose ADD is under way is ended by whoever is at it.
        let is_creating = |memory: &Memory| {
            memory
                .sandboxes
                .values()
                .any(|sandbox| sandbox.pod.uid == uid && sandbox.state == State::Creating)
        };
        self.runtime.records.wait(PATIENCE, |memory| !is_creating(memory));
        for sandbox in self.runtime.records.look().sandboxes_of(uid) {
            for _ in 0..STOPS {
                self.runtime.stop_sandbox(&sandbox)?;
            }
            self.runtime.remove_sandbox(&sandbox)?;
        }
        Ok(())
    }

    /// Old ones of a pod, before it gets a new one.
    fn remove_sandboxes(&self, uid: &str) {
        for sandbox in self.runtime.records.look().sandboxes_of(uid) {
            if let Err(error) = self.runtime.remove_sandbox(&sandbox) {
                eprintln!("{sandbox}: {error:#}");
            }
        }
    }

    fn count_attempt(&self, pod: &PodRecord) -> Result<()> {
        self.runtime.records.change(|memory| {
            if let Some(pod) = memory.pods.get_mut(&pod.uid) {
                pod.attempts += 1;
            }
        })
    }

    fn note_error(&self, pod: &PodRecord, error: &anyhow::Error) -> Result<()> {
        eprintln!("pod {}/{}: {error:#}", pod.namespace, pod.name);
        self.runtime.records.change(|memory| {
            if let Some(pod) = memory.pods.get_mut(&pod.uid) {
                pod.last_error = Some(format!("{error:#}"));
            }
        })
    }
}

/// After a boot the namespaces are gone; and an ADD that was under way when this process died is not any more.
fn retire_sandboxes_without_namespace(memory: &mut Memory) {
    for sandbox in memory.sandboxes.values_mut() {
        let has_namespace = sandbox.netns.as_deref().is_some_and(|path| std::path::Path::new(path).exists());
        if !has_namespace || sandbox.state == State::Creating {
            sandbox.state = State::Stopped;
        }
    }
}

impl Memory {
    /// The UID of the pod of this name that is not ending.
    fn find(&self, key: &PodKey) -> Option<String> {
        let mut pods = self.pods.values().filter(|pod| !pod.is_deleted && pod.key() == *key);
        pods.next().map(|pod| pod.uid.clone())
    }
}

impl PodRecord {
    pub(super) fn key(&self) -> PodKey {
        PodKey { namespace: self.namespace.clone(), name: self.name.clone() }
    }
}

fn reports(memory: &Memory) -> Vec<PodReport> {
    let report = |pod: &PodRecord| {
        let sandbox = memory.ready_sandbox(&pod.uid);
        let state = match (pod.is_deleted, sandbox) {
            (true, _) => PodState::Ending,
            (false, Some(_)) => PodState::Running,
            (false, None) => PodState::Starting,
        };
        PodReport {
            namespace: pod.namespace.clone(),
            name: pod.name.clone(),
            uid: pod.uid.clone(),
            state,
            container_id: sandbox.map(|sandbox| sandbox.id.clone()).unwrap_or_default(),
            netns: sandbox.and_then(|sandbox| sandbox.netns.clone()).unwrap_or_default(),
            device: sandbox.map(|sandbox| sandbox.device.clone()).unwrap_or_default(),
            addresses: sandbox.map(|sandbox| sandbox.addresses.clone()).unwrap_or_default(),
            attempts: pod.attempts,
            last_error: pod.last_error.clone(),
        }
    };
    memory.pods.values().map(report).collect()
}
