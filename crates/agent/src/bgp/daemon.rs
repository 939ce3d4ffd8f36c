//! The BIRD process: its configuration file, its process, its socket.
//!
//! A running BIRD reloads a new configuration over its socket, and keeps its sessions. One that an earlier agent started is used as it is: stopping
//! the agent does not stop it. A configuration that BIRD refuses is never installed: peers and filters are left out until BIRD accepts the rest.

use std::fs::OpenOptions;
use std::io::{self, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use host::program;
use plan::bgp::{BgpView, Bird, LeftOut, find_refused};
use tracing::{info, warn};

use crate::failpoint::{self, Point};

/// In place of a program: another service runs BIRD.
pub(super) const EXTERNAL: &str = "external";

const START_DELAY_MIN: Duration = Duration::from_secs(1);
const START_DELAY_MAX: Duration = Duration::from_secs(60);
/// After this long, a start counts as successful.
const STEADY_AFTER: Duration = Duration::from_secs(30);
/// From the start until the socket answers.
const START_TIMEOUT: Duration = Duration::from_secs(5);
/// BIRD checks a configuration in some milliseconds.
const CHECK_TIMEOUT: Duration = Duration::from_secs(10);

/// BIRD's program and files.
#[derive(Clone, Debug)]
pub(crate) struct BirdPlaces {
    pub(crate) program: String,
    pub(crate) config: PathBuf,
    pub(crate) socket: PathBuf,
}

#[derive(Debug)]
pub(super) struct Daemon {
    places: BirdPlaces,
    /// The configuration that BIRD has loaded.
    loaded: Option<String>,
    /// The configuration that it refused last, and why.
    refused: Option<(String, String)>,
    /// What is left out because BIRD refuses it.
    left_out: LeftOut,
    /// A configuration of which BIRD accepts no part.
    searched: Option<String>,
    child: Option<Child>,
    started_at: Option<Instant>,
    start_delay: Duration,
}

/// Why BIRD does not run with the desired configuration.
#[derive(Debug, thiserror::Error)]
pub(super) enum DaemonError {
    #[error("BIRD refuses the new configuration and keeps the old one: {message}")]
    Refused { message: String },
    #[error("cannot write {}", .path.display())]
    Write {
        path: PathBuf,
        #[source]
        source: io::Error,
    },
    #[error("cannot start {program}; install the package bird2, or set --bird")]
    NotThere {
        program: String,
        #[source]
        source: io::Error,
    },
    #[error("{program} cannot check the new configuration")]
    Unchecked {
        program: String,
        #[source]
        source: io::Error,
    },
    #[error("no BIRD answers on {}, and this agent does not start it (--bird external)", .socket.display())]
    Away { socket: PathBuf },
    #[error("BIRD ended{status}; restarting it in {} s", .wait.as_secs())]
    Ended { status: String, wait: Duration },
    #[error("BIRD at {} does not answer", .socket.display())]
    Silent {
        socket: PathBuf,
        #[source]
        source: io::Error,
    },
}

impl Daemon {
    pub(super) fn new(places: BirdPlaces) -> Daemon {
        let start_delay = START_DELAY_MIN;
        Daemon {
            places,
            loaded: None,
            refused: None,
            left_out: LeftOut::default(),
            searched: None,
            child: None,
            started_at: None,
            start_delay,
        }
    }

    /// Runs BIRD with the desired configuration, or with the part of it that BIRD accepts. Returns that part. Blocks while programs run.
    pub(super) fn ensure(&mut self, view: &BgpView) -> (Bird, Result<(), DaemonError>) {
        let bird = self.acceptable(view);
        let outcome = self.ensure_text(&bird.config);
        (bird, outcome)
    }

    /// The desired configuration without what BIRD refuses.
    fn acceptable(&mut self, view: &BgpView) -> Bird {
        let whole = view.decide().expect("the caller checked that the node has an address");
        if self.accept(&whole.config).is_ok() {
            self.left_out = LeftOut::default();
            return whole;
        }
        // Most likely the same records are invalid as before.
        let without = |left_out: &LeftOut| BgpView { left_out: left_out.clone(), ..view.clone() }.decide();
        if self.left_out != LeftOut::default()
            && let Some(bird) = without(&self.left_out)
            && self.accept(&bird.config).is_ok()
        {
            return bird;
        }
        if self.searched.as_ref() == Some(&whole.config) {
            return whole;
        }
        let found = find_refused(view, |text| self.would_accept(text));
        // Not remembered if BIRD could not check it.
        self.searched = found.is_ok().then(|| whole.config.clone());
        if let Ok(Some(left_out)) = found
            && let Some(bird) = without(&left_out)
            && self.accept(&bird.config).is_ok()
        {
            warn!(?left_out, "BIRD refused a part of the configuration; loaded the rest");
            self.left_out = left_out;
            self.searched = None;
            return bird;
        }
        whole
    }

    /// Lets BIRD check a configuration without installing it.
    fn would_accept(&self, config: &str) -> Result<bool, DaemonError> {
        let tried = self.places.config.with_extension("try");
        let failed = |source| DaemonError::Write { path: tried.clone(), source };
        write_private(&tried, config).map_err(failed)?;
        let complaint = self.complaint(&tried);
        let _ = std::fs::remove_file(&tried);
        Ok(complaint?.is_none())
    }

    fn ensure_text(&mut self, config: &str) -> Result<(), DaemonError> {
        let refused = self.accept(config).err();
        match self.is_answering() {
            Ok(false) => self.start()?,
            Ok(true) if self.started_at.is_some_and(|started| started.elapsed() > STEADY_AFTER) => {
                self.start_delay = START_DELAY_MIN;
            }
            Ok(true) => {}
            Err(silent) => return Err(refused.unwrap_or(silent)),
        }
        match refused {
            Some(error) => Err(error),
            None => self.reload(config),
        }
    }

    /// Installs a configuration, if BIRD accepts it.
    fn accept(&mut self, config: &str) -> Result<(), DaemonError> {
        // BIRD would not restart without the file, which may have been removed.
        if self.loaded.as_deref() == Some(config) && self.places.config.exists() {
            return Ok(());
        }
        if let Some((text, message)) = &self.refused
            && text == config
        {
            return Err(DaemonError::Refused { message: message.clone() });
        }
        let path = &self.places.config;
        let new = path.with_extension("new");
        let failed = |source| DaemonError::Write { path: path.clone(), source };
        write_private(&new, config).map_err(failed)?;
        failpoint::hit(Point::BgpConfigWritten);
        if let Some(message) = self.complaint(&new)? {
            self.refused = Some((config.to_owned(), message.clone()));
            warn!(file = %new.display(), error = message, "BIRD refused the new configuration");
            return Err(DaemonError::Refused { message });
        }
        failpoint::hit(Point::BgpConfigChecked);
        std::fs::rename(&new, path).map_err(failed)?;
        failpoint::hit(Point::BgpConfigPlaced);
        Ok(())
    }

    /// BIRD's error message about a configuration.
    fn complaint(&self, path: &Path) -> Result<Option<String>, DaemonError> {
        if self.places.program == EXTERNAL {
            let answer = self.ask(&format!("configure check \"{}\"", path.display()))?;
            let is_fine = answer.contains("Configuration OK");
            return Ok((!is_fine).then(|| last_line(&answer)));
        }
        let mut check = Command::new(&self.places.program);
        check.arg("-p").arg("-c").arg(path);
        let checked = program::run(&mut check, b"", CHECK_TIMEOUT).map_err(|source| match source.kind() {
            io::ErrorKind::TimedOut | io::ErrorKind::ResourceBusy => {
                DaemonError::Unchecked { program: self.places.program.clone(), source }
            }
            _ => self.not_there(source),
        })?;
        Ok((!checked.status.success()).then(|| last_line(&String::from_utf8_lossy(&checked.stderr))))
    }

    fn reload(&mut self, config: &str) -> Result<(), DaemonError> {
        if self.loaded.as_deref() == Some(config) {
            return Ok(());
        }
        failpoint::hit(Point::BgpBeforeConfigure);
        // Not `soft`, which would keep routes that older filters accepted.
        let answer = self.ask("configure")?;
        if !answer.contains("Reconfigur") {
            return Err(DaemonError::Refused { message: last_line(&answer) });
        }
        failpoint::hit(Point::BgpConfigured);
        info!("BIRD loaded a new configuration");
        self.loaded = Some(config.to_owned());
        Ok(())
    }

    /// A process that is stopped or hangs is an error: beside it no second one can start.
    fn is_answering(&self) -> Result<bool, DaemonError> {
        match self.ask("show status") {
            Ok(_) => Ok(true),
            Err(DaemonError::Silent { source, .. }) if source.kind() != io::ErrorKind::TimedOut => Ok(false),
            Err(error) => Err(error),
        }
    }

    fn ask(&self, question: &str) -> Result<String, DaemonError> {
        let socket = &self.places.socket;
        host::bird::ask(socket, question)
            .map_err(|source| DaemonError::Silent { socket: socket.clone(), source })
    }

    fn start(&mut self) -> Result<(), DaemonError> {
        if self.places.program == EXTERNAL {
            return Err(DaemonError::Away { socket: self.places.socket.clone() });
        }
        let ended = self.child.as_mut().and_then(|child| child.try_wait().ok().flatten());
        if let Some(since) = self.started_at.map(|started| started.elapsed())
            && since < self.start_delay
        {
            let status = ended.map_or_else(String::new, |status| format!(" ({status})"));
            return Err(DaemonError::Ended { status, wait: self.start_delay.saturating_sub(since) });
        }
        if self.started_at.is_some() {
            self.start_delay = (self.start_delay * 2).min(START_DELAY_MAX);
        }
        self.started_at = Some(Instant::now());
        // A new process has to load it again.
        self.loaded = None;
        let mut bird = Command::new(&self.places.program);
        bird.arg("-f").arg("-R").arg("-c").arg(&self.places.config).arg("-s").arg(&self.places.socket);
        // In a process group of its own, so that a signal to the agent's group does not stop it.
        bird.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).process_group(0);
        self.child = Some(bird.spawn().map_err(|source| self.not_there(source))?);
        failpoint::hit(Point::BgpStarted);
        info!(config = %self.places.config.display(), "started BIRD");
        let deadline = Instant::now() + START_TIMEOUT;
        while !self.is_answering()? && Instant::now() < deadline {
            let ended = self.child.as_mut().and_then(|child| child.try_wait().ok().flatten());
            if let Some(status) = ended {
                return Err(DaemonError::Ended { status: format!(" ({status})"), wait: self.start_delay });
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        Ok(())
    }

    fn not_there(&self, source: io::Error) -> DaemonError {
        DaemonError::NotThere { program: self.places.program.clone(), source }
    }
}

fn last_line(text: &str) -> String {
    let line = text.lines().rfind(|line| !line.trim().is_empty()).unwrap_or("no error message");
    line.chars().take(300).collect()
}

/// Readable for root only: it holds passwords.
fn write_private(path: &Path, text: &str) -> io::Result<()> {
    if let Some(directory) = path.parent() {
        std::fs::create_dir_all(directory)?;
    }
    let mut file = OpenOptions::new().create(true).truncate(true).write(true).mode(0o600).open(path)?;
    file.write_all(text.as_bytes())
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    fn places(directory: &Path, program: &str) -> BirdPlaces {
        BirdPlaces {
            program: program.to_owned(),
            config: directory.join("bird.conf"),
            socket: directory.join("bird.ctl"),
        }
    }

    #[test]
    fn a_missing_program_is_named() {
        let directory = tempfile::tempdir().unwrap();
        let mut daemon = Daemon::new(places(directory.path(), "/nowhere/bird"));
        let error = daemon.ensure_text("router id 1.2.3.4;\n").unwrap_err();
        assert_eq!(error.to_string(), "cannot start /nowhere/bird; install the package bird2, or set --bird");
        assert!(!directory.path().join("bird.conf").exists(), "nothing was checked, so nothing is installed");
    }

    #[test]
    fn one_that_ends_at_once_is_not_restarted_at_once() {
        let directory = tempfile::tempdir().unwrap();
        let mut daemon = Daemon::new(places(directory.path(), "true"));
        for _ in 0..2 {
            let ended = daemon.start().unwrap_err();
            assert!(ended.to_string().starts_with("BIRD ended (exit status: 0)"), "{ended}");
        }
        let first = daemon.child.as_ref().unwrap().id();
        let _ = daemon.start();
        assert_eq!(daemon.child.as_ref().unwrap().id(), first, "it waits before the next start");
    }

    #[test]
    fn a_refused_configuration_is_not_installed() {
        let directory = tempfile::tempdir().unwrap();
        let mut daemon = Daemon::new(places(directory.path(), "false"));
        std::fs::write(directory.path().join("bird.conf"), "the old one").unwrap();
        for _ in 0..2 {
            let refused = daemon.accept("the new one").unwrap_err();
            assert!(matches!(refused, DaemonError::Refused { .. }), "{refused}");
        }
        let kept = std::fs::read_to_string(directory.path().join("bird.conf")).unwrap();
        assert_eq!(kept, "the old one");
    }

    #[test]
    fn beside_one_that_does_not_answer_no_second_one_is_started() {
        let directory = tempfile::tempdir().unwrap();
        let started = directory.path().join("started");
        let program = directory.path().join("bird");
        // It accepts every configuration.
        let script = format!("#!/bin/sh\n[ \"$1\" = -p ] || echo $$ > {}\n", started.display());
        std::fs::write(&program, script).unwrap();
        std::fs::set_permissions(&program, std::fs::Permissions::from_mode(0o755)).unwrap();
        let places = places(directory.path(), program.to_str().unwrap());
        let _listener = std::os::unix::net::UnixListener::bind(&places.socket).unwrap();
        let error = Daemon::new(places).ensure_text("router id 192.0.2.1;\n").unwrap_err();
        assert!(matches!(error, DaemonError::Silent { .. }), "{error}");
        assert!(!started.exists());
    }

    #[test]
    fn the_configuration_is_for_its_owner_only() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("deep").join("bird.conf");
        write_private(&path, "x").unwrap();
        assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
    }
}
