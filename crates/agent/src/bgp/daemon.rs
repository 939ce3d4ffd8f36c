//! BIRD itself: its configuration file, its process, its socket.
//!
//! A BIRD that runs is told of a new configuration over its socket, and keeps its sessions. One that an earlier agent started is
//! used as it is: stopping the agent does not stop it. A configuration that BIRD refuses is never put into place: peers and filters are left out
//! until it takes the rest.

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

/// In the place of a program: there is a BIRD, and somebody else runs it.
pub(super) const EXTERNAL: &str = "external";

const START_DELAY_MIN: Duration = Duration::from_secs(1);
const START_DELAY_MAX: Duration = Duration::from_secs(60);
/// One that ran for this long was all right.
const STEADY_AFTER: Duration = Duration::from_secs(30);
/// From start to its socket.
const START_PATIENCE: Duration = Duration::from_secs(5);
/// To read a configuration takes it some milliseconds.
const CHECK_PATIENCE: Duration = Duration::from_secs(10);

/// Where everything is.
#[derive(Clone, Debug)]
pub(crate) struct BirdPlaces {
    pub(crate) program: String,
    pub(crate) config: PathBuf,
    pub(crate) socket: PathBuf,
}

#[derive(Debug)]
pub(super) struct Daemon {
    places: BirdPlaces,
    /// The text that BIRD was last told to use.
    told: Option<String>,
    /// The text that it refused last, and why.
    refused: Option<(String, String)>,
    /// What is left out, because BIRD refuses it.
    left_out: LeftOut,
    /// A text of which nothing could be made that BIRD takes.
    searched: Option<String>,
    child: Option<Child>,
    started_at: Option<Instant>,
    start_delay: Duration,
}

/// Why BGP is not as it should be.
#[derive(Debug, thiserror::Error)]
pub(super) enum DaemonError {
    #[error("BIRD refuses the new configuration and goes on with the old one: {said}")]
    Refused { said: String },
    #[error("{} cannot be written", .path.display())]
    Write {
        path: PathBuf,
        #[source]
        source: io::Error,
    },
    #[error("{program} cannot be started; install the package bird2, or set --bird")]
    NotThere {
        program: String,
        #[source]
        source: io::Error,
    },
    #[error("{program} does not say whether it takes the new configuration")]
    Unchecked {
        program: String,
        #[source]
        source: io::Error,
    },
    #[error("nobody serves {}; the BIRD there is not this agent's to start", .socket.display())]
    Away { socket: PathBuf },
    #[error("BIRD ended{said}; it is started again in {} s", .wait.as_secs())]
    Ended { said: String, wait: Duration },
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
            told: None,
            refused: None,
            left_out: LeftOut::default(),
            searched: None,
            child: None,
            started_at: None,
            start_delay,
        }
    }

    /// Has BIRD run with what the records ask for, or with what it takes of that. Gives what it was told. Takes as long as its programs take.
    pub(super) fn ensure(&mut self, view: &BgpView) -> (Bird, Result<(), DaemonError>) {
        let bird = self.acceptable(view);
        let outcome = self.ensure_text(&bird.config);
        (bird, outcome)
    }

    /// What the records ask for, less what BIRD refuses.
    fn acceptable(&mut self, view: &BgpView) -> Bird {
        let whole = view.decide().expect("only a node with an address gets here");
        if self.accept(&whole.config).is_ok() {
            self.left_out = LeftOut::default();
            return whole;
        }
        // Most likely it is what it was before.
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
        // One that could not be asked about is asked about again.
        self.searched = found.is_ok().then(|| whole.config.clone());
        if let Ok(Some(left_out)) = found
            && let Some(bird) = without(&left_out)
            && self.accept(&bird.config).is_ok()
        {
            warn!("BIRD goes on without what it refuses: {left_out:?}");
            self.left_out = left_out;
            self.searched = None;
            return bird;
        }
        whole
    }

    /// Asks BIRD about a text, and puts nothing into place.
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
        if self.is_answering() {
            if self.started_at.is_some_and(|started| started.elapsed() > STEADY_AFTER) {
                self.start_delay = START_DELAY_MIN;
            }
        } else {
            self.start()?;
        }
        match refused {
            Some(error) => Err(error),
            None => self.tell(config),
        }
    }

    /// Puts a configuration into place, if BIRD takes it.
    fn accept(&mut self, config: &str) -> Result<(), DaemonError> {
        // Somebody may have removed it, and BIRD would not start again without.
        if self.told.as_deref() == Some(config) && self.places.config.exists() {
            return Ok(());
        }
        if let Some((text, said)) = &self.refused
            && text == config
        {
            return Err(DaemonError::Refused { said: said.clone() });
        }
        let path = &self.places.config;
        let new = path.with_extension("new");
        let failed = |source| DaemonError::Write { path: path.clone(), source };
        write_private(&new, config).map_err(failed)?;
        failpoint::hit(Point::BgpConfigWritten);
        if let Some(said) = self.complaint(&new)? {
            self.refused = Some((config.to_owned(), said.clone()));
            warn!("BIRD refuses its new configuration, {}: {said}", new.display());
            return Err(DaemonError::Refused { said });
        }
        failpoint::hit(Point::BgpConfigChecked);
        std::fs::rename(&new, path).map_err(failed)?;
        failpoint::hit(Point::BgpConfigPlaced);
        Ok(())
    }

    /// What BIRD has against a configuration.
    fn complaint(&self, path: &Path) -> Result<Option<String>, DaemonError> {
        if self.places.program == EXTERNAL {
            let answer = self.ask(&format!("configure check \"{}\"", path.display()))?;
            let is_fine = answer.contains("Configuration OK");
            return Ok((!is_fine).then(|| last_line(&answer)));
        }
        let mut check = Command::new(&self.places.program);
        check.arg("-p").arg("-c").arg(path);
        let checked =
            program::run(&mut check, b"", CHECK_PATIENCE).map_err(|source| match source.kind() {
                io::ErrorKind::TimedOut | io::ErrorKind::ResourceBusy => {
                    DaemonError::Unchecked { program: self.places.program.clone(), source }
                }
                _ => self.not_there(source),
            })?;
        Ok((!checked.status.success()).then(|| last_line(&String::from_utf8_lossy(&checked.stderr))))
    }

    fn tell(&mut self, config: &str) -> Result<(), DaemonError> {
        if self.told.as_deref() == Some(config) {
            return Ok(());
        }
        failpoint::hit(Point::BgpBeforeConfigure);
        // Not `soft`: that would leave routes as older filters judged them.
        let answer = self.ask("configure")?;
        if !answer.contains("Reconfigur") {
            return Err(DaemonError::Refused { said: last_line(&answer) });
        }
        failpoint::hit(Point::BgpConfigured);
        info!("BIRD has a new configuration");
        self.told = Some(config.to_owned());
        Ok(())
    }

    fn is_answering(&self) -> bool {
        host::bird::ask(&self.places.socket, "show status").is_ok()
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
            let said = ended.map_or_else(String::new, |status| format!(" ({status})"));
            return Err(DaemonError::Ended { said, wait: self.start_delay.saturating_sub(since) });
        }
        if self.started_at.is_some() {
            self.start_delay = (self.start_delay * 2).min(START_DELAY_MAX);
        }
        self.started_at = Some(Instant::now());
        // It reads the file; what it was told before is gone with it.
        self.told = None;
        let mut bird = Command::new(&self.places.program);
        bird.arg("-f").arg("-R").arg("-c").arg(&self.places.config).arg("-s").arg(&self.places.socket);
        // In a group of its own: a signal for the agent is not meant for it.
        bird.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).process_group(0);
        self.child = Some(bird.spawn().map_err(|source| self.not_there(source))?);
        failpoint::hit(Point::BgpStarted);
        info!(config = %self.places.config.display(), "started BIRD");
        let deadline = Instant::now() + START_PATIENCE;
        while !self.is_answering() && Instant::now() < deadline {
            let ended = self.child.as_mut().and_then(|child| child.try_wait().ok().flatten());
            if let Some(status) = ended {
                return Err(DaemonError::Ended { said: format!(" ({status})"), wait: self.start_delay });
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
    let line = text.lines().rfind(|line| !line.trim().is_empty()).unwrap_or("it does not say why");
    line.chars().take(300).collect()
}

/// It holds passwords.
fn write_private(path: &Path, text: &str) -> io::Result<()> {
    if let Some(folder) = path.parent() {
        std::fs::create_dir_all(folder)?;
    }
    let mut file = OpenOptions::new().create(true).truncate(true).write(true).mode(0o600).open(path)?;
    file.write_all(text.as_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn places(folder: &Path, program: &str) -> BirdPlaces {
        BirdPlaces {
            program: program.to_owned(),
            config: folder.join("bird.conf"),
            socket: folder.join("bird.ctl"),
        }
    }

    #[test]
    fn a_program_that_is_not_there_is_named() {
        let folder = tempfile::tempdir().unwrap();
        let mut daemon = Daemon::new(places(folder.path(), "/nowhere/bird"));
        let error = daemon.ensure_text("router id 1.2.3.4;\n").unwrap_err();
        assert_eq!(
            error.to_string(),
            "/nowhere/bird cannot be started; install the package bird2, or set --bird"
        );
        assert!(!folder.path().join("bird.conf").exists(), "nothing was checked, so nothing is in place");
    }

    #[test]
    fn one_that_ends_at_once_is_not_started_over_and_over() {
        let folder = tempfile::tempdir().unwrap();
        let mut daemon = Daemon::new(places(folder.path(), "true"));
        for _ in 0..2 {
            let ended = daemon.start().unwrap_err();
            assert!(ended.to_string().starts_with("BIRD ended (exit status: 0)"), "{ended}");
        }
        let first = daemon.child.as_ref().unwrap().id();
        let _ = daemon.start();
        assert_eq!(daemon.child.as_ref().unwrap().id(), first, "it waits before the next try");
    }

    #[test]
    fn what_bird_refuses_is_not_put_into_place() {
        let folder = tempfile::tempdir().unwrap();
        let mut daemon = Daemon::new(places(folder.path(), "false"));
        std::fs::write(folder.path().join("bird.conf"), "the old one").unwrap();
        for _ in 0..2 {
            let refused = daemon.accept("the new one").unwrap_err();
            assert!(matches!(refused, DaemonError::Refused { .. }), "{refused}");
        }
        let kept = std::fs::read_to_string(folder.path().join("bird.conf")).unwrap();
        assert_eq!(kept, "the old one");
    }

    #[test]
    fn the_configuration_is_for_its_owner_only() {
        use std::os::unix::fs::PermissionsExt as _;
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("deep").join("bird.conf");
        write_private(&path, "x").unwrap();
        assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
    }
}
