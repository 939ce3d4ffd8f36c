//! What runs on a node: the kubelet stand-in and the agent. One that dies by itself is started again.

use std::collections::BTreeMap;
use std::fs::File;
use std::process::{Command, Stdio};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};
use rustix::process::{Pid, Signal, WaitOptions, kill_process, wait};
use serde::{Deserialize, Serialize};

use crate::cluster::{Description, NodeDescription, Place, agent_settings, environment};

/// As a service manager would: at once would only fill the log.
const RESTART_PAUSE: Duration = Duration::from_millis(500);
const AGENT: &str = "agent";
/// A service that was told to end and does not is killed after this.
const STOP_PATIENCE: Duration = Duration::from_secs(20);

#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) enum InitRequest {
    Status,
    /// Arguments and variables are for this one time.
    Start {
        service: String,
        arguments: Vec<String>,
        environment: Vec<(String, String)>,
    },
    Stop {
        service: String,
        signal: StopSignal,
    },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum StopSignal {
    Terminate,
    Kill,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct ServiceStatus {
    pub(crate) name: String,
    pub(crate) is_running: bool,
}

#[derive(Clone)]
pub(super) struct Services {
    shared: Arc<Shared>,
}

struct Shared {
    state: Mutex<BTreeMap<String, Service>>,
    changed: Condvar,
}

struct Service {
    program: Vec<String>,
    environment: Vec<(String, String)>,
    log: File,
    running: Option<Pid>,
    is_wanted: bool,
}

impl Services {
    pub(super) fn start(
        description: &Description,
        node: &NodeDescription,
        place: &Place,
    ) -> Result<Services> {
        let mut services = BTreeMap::new();
        for (name, program) in programs(description, node) {
            let path = place.log(&node.name, &format!("{name}.log"));
            let log = File::options().create(true).append(true).open(&path);
            let log = log.with_context(|| format!("cannot open {}", path.display()))?;
            let mut environment = environment(description, node, place);
            if name == AGENT {
                environment.extend(agent_settings(description, node, place));
            }
            let service = Service { program, environment, log, running: None, is_wanted: true };
            services.insert(name.to_owned(), service);
        }
        let shared = Arc::new(Shared { state: Mutex::new(services), changed: Condvar::new() });
        let services = Services { shared };
        for service in services.state().values_mut() {
            service.launch(&[], &[])?;
        }
        let reaper = services.clone();
        std::thread::spawn(move || reaper.collect_children());
        Ok(services)
    }

    pub(super) fn handle(&self, request: InitRequest) -> Result<Vec<ServiceStatus>> {
        match request {
            InitRequest::Status => {}
            InitRequest::Start { service, arguments, environment } => {
                let mut state = self.state();
                let service = find(&mut state, &service)?;
                service.is_wanted = true;
                if service.running.is_none() {
                    service.launch(&arguments, &environment)?;
                }
            }
            InitRequest::Stop { service, signal } => self.stop(&service, signal)?,
        }
        Ok(self.state().iter().map(|(name, service)| service.status(name)).collect())
    }

    /// Returns once the service has ended.
    fn stop(&self, name: &str, signal: StopSignal) -> Result<()> {
        let mut state = self.state();
        let service = find(&mut state, name)?;
        service.is_wanted = false;
        service.signal(match signal {
            StopSignal::Terminate => Signal::TERM,
            StopSignal::Kill => Signal::KILL,
        });
        let mut deadline = Instant::now() + STOP_PATIENCE;
        while let Some(service) = state.get(name).filter(|service| service.running.is_some()) {
            if Instant::now() > deadline {
                eprintln!("{name} does not end; killing it");
                service.signal(Signal::KILL);
                deadline = Instant::now() + STOP_PATIENCE;
            }
            let waited = self.shared.changed.wait_timeout(state, Duration::from_secs(1));
            state = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
        Ok(())
    }

    /// Collects every child, also those of others that ended before their children: this is process 1.
    fn collect_children(&self) {
        loop {
            match wait(WaitOptions::empty()) {
                Ok(Some((pid, _status))) => self.handle_ended(pid),
                Ok(None) | Err(_) => std::thread::sleep(Duration::from_millis(100)),
            }
        }
    }

    fn handle_ended(&self, pid: Pid) {
        let mut state = self.state();
        let ended = state.iter_mut().find(|(_, service)| service.running == Some(pid));
        let Some((name, service)) = ended else { return };
        service.running = None;
        let name = service.is_wanted.then(|| name.clone());
        drop(state);
        self.shared.changed.notify_all();
        if let Some(name) = name {
            eprintln!("{name} died; starting it again");
            let services = self.clone();
            std::thread::spawn(move || services.restart(&name));
        }
    }

    fn restart(&self, name: &str) {
        std::thread::sleep(RESTART_PAUSE);
        let mut state = self.state();
        let Ok(service) = find(&mut state, name) else { return };
        if service.is_wanted
            && service.running.is_none()
            && let Err(error) = service.launch(&[], &[])
        {
            eprintln!("{name}: {error:#}");
        }
    }

    fn state(&self) -> MutexGuard<'_, BTreeMap<String, Service>> {
        self.shared.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Service {
    fn launch(&mut self, more: &[String], environment: &[(String, String)]) -> Result<()> {
        let Some((program, arguments)) = self.program.split_first() else { bail!("no program") };
        let mut command = Command::new(program);
        command.args(arguments).args(more).env_clear().envs(self.environment.iter().cloned());
        command.envs(environment.iter().cloned());
        command.stdin(Stdio::null()).stdout(self.log.try_clone()?).stderr(self.log.try_clone()?);
        let child = command.spawn().with_context(|| format!("cannot run {program}"))?;
        // Collected by `collect_children`, not through this handle.
        self.running = i32::try_from(child.id()).ok().and_then(Pid::from_raw);
        Ok(())
    }

    fn signal(&self, signal: Signal) {
        if let Some(pid) = self.running {
            // It may be gone by itself.
            let _ = kill_process(pid, signal);
        }
    }

    fn status(&self, name: &str) -> ServiceStatus {
        ServiceStatus { name: name.to_owned(), is_running: self.running.is_some() }
    }
}

fn find<'a>(state: &'a mut BTreeMap<String, Service>, name: &str) -> Result<&'a mut Service> {
    state.get_mut(name).with_context(|| format!("this node runs no {name}"))
}

fn programs(description: &Description, node: &NodeDescription) -> Vec<(&'static str, Vec<String>)> {
    let program = |name: &str| description.programs.join(name).display().to_string();
    let words = |words: &[&str]| words.iter().map(|word| (*word).to_owned()).collect::<Vec<_>>();
    let mut kubelet = vec![program("plumb-lab")];
    kubelet.extend(words(&["kubelet", "--name", description.name.as_str(), "--node", &node.name]));
    let mut programs = vec![("kubelet", kubelet)];
    if description.has_agents {
        programs.push((AGENT, vec![program("plumbd"), "node".to_owned()]));
    }
    programs
}
