//! What repairs have done, as files: one per repair, lines that are only ever added.
//!
//! Before something is changed its undo is on disk; so whoever is killed in between can go on or be taken back.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use jiff::Timestamp;
use model::NodeName;
use plan::task::RepairTask;
use repair::{Edit, PLAN_VERSION, Plan, Scope, Step};
use serde::{Deserialize, Serialize};

/// Why a history cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum HistoryError {
    #[error("there is no repair {id} in {}", .folder.display())]
    Unknown { id: String, folder: PathBuf },
    #[error("another process is applying or undoing repair {id}")]
    Busy { id: String },
    #[error("cannot read {}: {problem}", .path.display())]
    Damaged { path: PathBuf, problem: String },
    #[error("cannot access {}", .path.display())]
    Files {
        path: PathBuf,
        #[source]
        source: io::Error,
    },
}

/// A line of a history.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", rename_all_fields = "camelCase")]
pub enum Told {
    Plan(Box<Plan>),
    /// This is about to be done, and what will take it back.
    Begun {
        step: u32,
        undo: Undo,
    },
    /// How it went. `undo` only where it is known better by now.
    Done {
        step: u32,
        how: How,
        said: Option<String>,
        undo: Option<Undo>,
    },
    Ended {
        at: Timestamp,
        how: Ended,
    },
    UndoBegun {
        at: Timestamp,
    },
    Undone {
        step: u32,
        how: How,
        said: Option<String>,
    },
    UndoEnded {
        at: Timestamp,
        left_alone: usize,
    },
}

/// What takes a step back.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Undo {
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub edits: Vec<Edit>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node: Option<NodeName>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub works: Vec<RepairTask>,
}

/// How a step went.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum How {
    Done,
    /// It was so already.
    Already,
    /// It is not as planned; nothing was touched.
    Surprise,
    Failed,
}

/// How a repair ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Ended {
    Complete,
    /// A surprise or a failure: the rest was not done.
    Stopped,
}

/// One repair's history, open for adding to.
#[derive(Debug)]
pub struct History {
    path: PathBuf,
    file: File,
}

/// A repair, as a list shows it.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Summary {
    pub id: String,
    pub scope: Scope,
    pub planned: usize,
    pub done: usize,
    pub surprises: usize,
    pub failed: usize,
    pub state: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub at: Option<Timestamp>,
}

impl History {
    /// Begins the history of a plan. The folder is made if it is not there; only its owner can read it.
    pub fn begin(folder: &Path, plan: &Plan) -> Result<History, HistoryError> {
        let files = |source| HistoryError::Files { path: folder.to_owned(), source };
        fs::DirBuilder::new().recursive(true).mode(0o700).create(folder).map_err(files)?;
        let path = path_of(folder, &plan.id)?;
        let files = |source| HistoryError::Files { path: path.clone(), source };
        let mut options = OpenOptions::new();
        options.create_new(true).append(true).read(true).mode(0o600);
        let file = options.open(&path).map_err(files)?;
        let mut history = History { path, file };
        history.lock(&plan.id)?;
        history.tell(&[Told::Plan(Box::new(plan.clone()))])?;
        Ok(history)
    }

    /// Opens an earlier one, and gives what it tells. A last line that was cut by a crash is left out.
    pub fn open(folder: &Path, id: &str) -> Result<(History, Vec<Told>), HistoryError> {
        let path = path_of(folder, id)?;
        let unknown = || HistoryError::Unknown { id: id.to_owned(), folder: folder.to_owned() };
        let file =
            OpenOptions::new().append(true).read(true).open(&path).map_err(|source| match source.kind() {
                io::ErrorKind::NotFound => unknown(),
                _ => HistoryError::Files { path: path.clone(), source },
            })?;
        let mut history = History { path, file };
        history.lock(id)?;
        let told = read(&history.path)?;
        history.drop_cut_line()?;
        Ok((history, told))
    }

    /// Every repair in a folder, the newest first.
    pub fn list(folder: &Path) -> Result<Vec<Summary>, HistoryError> {
        let files = |source| HistoryError::Files { path: folder.to_owned(), source };
        let entries = match fs::read_dir(folder) {
            Ok(entries) => entries,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            Err(error) => return Err(files(error)),
        };
        let mut found = Vec::new();
        for entry in entries {
            let path = entry.map_err(files)?.path();
            if path.extension().is_some_and(|extension| extension == "repair") {
                found.push(Summary::of(&read(&path)?));
            }
        }
        found.sort_by(|a, b| b.id.cmp(&a.id));
        Ok(found)
    }

    /// Adds lines, and does not return before they are on disk.
    pub fn tell(&mut self, lines: &[Told]) -> Result<(), HistoryError> {
        self.add(lines)?;
        self.file.sync_data().map_err(|source| self.files(source))
    }

    /// Adds lines that may be lost in a crash: whoever goes on finds out again.
    pub(crate) fn add(&mut self, lines: &[Told]) -> Result<(), HistoryError> {
        let mut text = Vec::new();
        for line in lines {
            serde_json::to_writer(&mut text, line).map_err(|error| self.files(error.into()))?;
            text.push(b'\n');
        }
        self.file.write_all(&text).map_err(|source| self.files(source))
    }

    fn files(&self, source: io::Error) -> HistoryError {
        HistoryError::Files { path: self.path.clone(), source }
    }

    fn lock(&mut self, id: &str) -> Result<(), HistoryError> {
        match self.file.try_lock() {
            Ok(()) => Ok(()),
            Err(fs::TryLockError::WouldBlock) => Err(HistoryError::Busy { id: id.to_owned() }),
            Err(fs::TryLockError::Error(source)) => Err(self.files(source)),
        }
    }

    /// What is added must not become part of a line that a crash cut: nobody relied on that line yet.
    fn drop_cut_line(&mut self) -> Result<(), HistoryError> {
        let text = fs::read(&self.path).map_err(|source| self.files(source))?;
        let whole = text.iter().rposition(|byte| *byte == b'\n').map_or(0, |at| at + 1);
        self.file.set_len(whole as u64).map_err(|source| self.files(source))
    }
}

/// A step that earlier repairs tried and could not do.
#[derive(Clone, Debug, PartialEq)]
pub struct Failure {
    pub step: Step,
    /// How often in a row.
    pub times: u32,
    /// What was said the last time.
    pub said: String,
}

impl Failure {
    /// What failed in the repairs of a folder and has not been done since. A folder or a file that cannot be read tells nothing.
    pub fn list(folder: &Path) -> Vec<Failure> {
        let Ok(summaries) = History::list(folder) else { return Vec::new() };
        let mut failures: Vec<Failure> = Vec::new();
        for summary in summaries.iter().rev() {
            let Ok(told) = path_of(folder, &summary.id).and_then(|path| read(&path)) else { continue };
            let mut steps: Vec<Step> = Vec::new();
            for line in told {
                match line {
                    Told::Plan(plan) => steps = plan.steps,
                    Told::Done { step, how, said, .. } => {
                        if let Some(step) = steps.iter().find(|known| known.number == step) {
                            note(&mut failures, step, how, said);
                        }
                    }
                    _ => {}
                }
            }
        }
        failures
    }
}

fn note(failures: &mut Vec<Failure>, step: &Step, how: How, said: Option<String>) {
    let known = failures.iter().position(|failure| failure.step.id() == step.id());
    match (how, known) {
        (How::Failed, Some(known)) => {
            failures[known].times += 1;
            failures[known].said = said.unwrap_or_default();
        }
        (How::Failed, None) => {
            failures.push(Failure { step: step.clone(), times: 1, said: said.unwrap_or_default() });
        }
        (How::Done | How::Already, Some(known)) => drop(failures.swap_remove(known)),
        _ => {}
    }
}

impl Summary {
    /// What a history amounts to.
    pub fn of(told: &[Told]) -> Summary {
        let mut summary = Summary {
            id: String::new(),
            scope: Scope::default(),
            planned: 0,
            done: 0,
            surprises: 0,
            failed: 0,
            state: "begun",
            at: None,
        };
        for line in told {
            match line {
                Told::Plan(plan) => {
                    (summary.id, summary.scope) = (plan.id.clone(), plan.scope.clone());
                    (summary.planned, summary.at) = (plan.steps.len(), plan.looked_at);
                }
                Told::Done { how, .. } => match how {
                    How::Done | How::Already => summary.done += 1,
                    How::Surprise => summary.surprises += 1,
                    How::Failed => summary.failed += 1,
                },
                Told::Ended { at, how } => {
                    summary.at = Some(*at);
                    summary.state = if *how == Ended::Complete { "complete" } else { "stopped" };
                }
                Told::UndoBegun { .. } => summary.state = "being undone",
                Told::UndoEnded { at, left_alone } => {
                    summary.at = Some(*at);
                    summary.state = if *left_alone == 0 { "undone" } else { "partly undone" };
                }
                Told::Begun { .. } | Told::Undone { .. } => {}
            }
        }
        summary
    }
}

/// IDs are names of files, and come from the command line.
fn path_of(folder: &Path, id: &str) -> Result<PathBuf, HistoryError> {
    let is_name = !id.is_empty() && id.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-');
    match is_name {
        true => Ok(folder.join(format!("{id}.repair"))),
        false => Err(HistoryError::Unknown { id: id.to_owned(), folder: folder.to_owned() }),
    }
}

fn read(path: &Path) -> Result<Vec<Told>, HistoryError> {
    let files = |source| HistoryError::Files { path: path.to_owned(), source };
    let damaged = |problem: String| HistoryError::Damaged { path: path.to_owned(), problem };
    let text = fs::read(path).map_err(files)?;
    let whole = text.iter().rposition(|byte| *byte == b'\n').map_or(0, |at| at + 1);
    let mut told = Vec::new();
    for (number, line) in (1..).zip(text[..whole].split(|byte| *byte == b'\n')) {
        if !line.is_empty() {
            told.push(
                serde_json::from_slice(line).map_err(|error| damaged(format!("line {number}: {error}")))?,
            );
        }
    }
    match told.first() {
        Some(Told::Plan(plan)) if plan.version == PLAN_VERSION => Ok(told),
        Some(Told::Plan(plan)) => Err(damaged(format!("version {} is not supported", plan.version))),
        _ => Err(damaged("its first line is not a plan".to_owned())),
    }
}
