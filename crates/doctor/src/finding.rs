//! What the doctor says, in the words and the order of its JSON.

use std::collections::BTreeSet;

use evidence::{Exhibit, Unseen};
use model::{FindingCode, ShellCommand};
use serde::Serialize;

use crate::Subject;

/// One thing that is wrong. Checks start one with [`crate::Look::found`] and add to it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Finding {
    /// Stable: operators silence, search and explain by it.
    pub code: FindingCode,
    pub severity: Severity,
    /// What it is about: an address, a node, a record.
    pub subject: Subject,
    /// One sentence.
    pub summary: String,
    /// What led to it, or follows from it, step by step. Says so where the evidence does not tell.
    pub cause: Vec<String>,
    /// What it was seen in.
    pub evidence: Vec<Exhibit>,
    /// What would mend it.
    pub remedy: String,
    /// Commands that do it by hand, ready to be pasted.
    pub commands: Vec<ShellCommand>,
    /// Findings of their own that this one explains; they are not listed again.
    pub symptoms: Vec<Symptom>,
    /// What this finding explains, if it is found as well.
    #[serde(skip)]
    pub(crate) explains: Vec<(FindingCode, Subject)>,
    /// What makes it the same fault in a second look. The summary, unless that changes from look to look.
    #[serde(skip)]
    pub(crate) identity: Option<String>,
}

/// By which a fault is recognised in another observation.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct FindingId {
    pub code: FindingCode,
    subject: Subject,
    identity: String,
}

/// A finding that another one explains.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Symptom {
    pub code: FindingCode,
    pub severity: Severity,
    pub subject: Subject,
    pub summary: String,
}

/// How bad it is. Later is worse.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Severity {
    /// Worth knowing.
    Info,
    /// Will hurt, or hurts where it cannot be seen from here.
    Warning,
    /// Traffic or records are broken now.
    Error,
}

/// Everything that was found, and what could not be looked at.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Report {
    pub findings: Vec<Finding>,
    pub unseen: Vec<Unseen>,
    /// What would be a finding, and is too new to be one.
    #[serde(rename = "notJudged")]
    pub not_judged: Vec<NotJudged>,
}

/// Something that looks wrong and is not judged yet: it may just be on its way in or out.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct NotJudged {
    pub code: FindingCode,
    pub subject: Subject,
    pub summary: String,
    pub why: String,
}

impl Finding {
    /// The next step of the chain: what led to it, or what follows from it.
    pub fn because(&mut self, step: impl Into<String>) -> &mut Finding {
        self.cause.push(step.into());
        self
    }

    /// Several steps, or none.
    pub fn because_all(&mut self, steps: impl IntoIterator<Item = String>) -> &mut Finding {
        self.cause.extend(steps);
        self
    }

    /// Something it rests on: `sighted.exhibit("words")`.
    pub fn seen(&mut self, exhibit: Exhibit) -> &mut Finding {
        if !self.evidence.contains(&exhibit) {
            self.evidence.push(exhibit);
        }
        self
    }

    /// Many things it rests on, each of which is known to be there once.
    pub fn seen_all(&mut self, exhibits: impl IntoIterator<Item = Exhibit>) -> &mut Finding {
        self.evidence.extend(exhibits);
        self
    }

    /// Worse or less bad than findings of this code usually are.
    pub fn severity(&mut self, severity: Severity) -> &mut Finding {
        self.severity = severity;
        self
    }

    /// What an operator would run, on a line of its own.
    pub fn command(&mut self, command: impl Into<Option<ShellCommand>>) -> &mut Finding {
        self.commands.extend(command.into());
        self
    }

    /// A remedy that names the things at hand, instead of the check's general one.
    pub fn remedy(&mut self, remedy: impl Into<String>) -> &mut Finding {
        self.remedy = remedy.into();
        self
    }

    /// If a finding with this code and subject is there as well, it is a symptom of this one.
    pub fn explains(&mut self, code: FindingCode, subject: impl Into<Subject>) -> &mut Finding {
        self.explains.push((code, subject.into()));
        self
    }

    /// What makes it the same fault in a second look, where the summary holds numbers that move.
    pub fn known_by(&mut self, identity: impl Into<String>) -> &mut Finding {
        self.identity = Some(identity.into());
        self
    }

    /// The same fault of another sandbox is another fault: pods of one name come and go.
    pub fn of_sandbox(&mut self, container_id: Option<&str>) -> &mut Finding {
        if let Some(id) = container_id {
            let known_by = self.identity.as_deref().unwrap_or(&self.summary);
            self.identity = Some(format!("{known_by} of {id}"));
        }
        self
    }

    /// Findings of two observations with the same identity are the same fault.
    pub fn id(&self) -> FindingId {
        let identity = self.identity.as_ref().unwrap_or(&self.summary).clone();
        FindingId { code: self.code, subject: self.subject.clone(), identity }
    }
}

impl Severity {
    pub fn as_str(self) -> &'static str {
        match self {
            Severity::Info => "info",
            Severity::Warning => "warning",
            Severity::Error => "error",
        }
    }
}

impl Report {
    /// How bad the worst finding is.
    pub fn worst(&self) -> Option<Severity> {
        self.findings.iter().map(|finding| finding.severity).max()
    }

    /// What a finding says or explains is judged.
    pub(crate) fn drop_explained(&mut self) {
        let mut judged = BTreeSet::new();
        for finding in &self.findings {
            judged.insert((finding.code, &finding.subject));
            judged.extend(finding.symptoms.iter().map(|symptom| (symptom.code, &symptom.subject)));
            judged.extend(finding.explains.iter().map(|(code, subject)| (*code, subject)));
        }
        self.not_judged.retain(|new| !judged.contains(&(new.code, &new.subject)));
    }

    /// Worst first, then alphabetically; what several checks missed is said once.
    pub(crate) fn sort(&mut self) {
        self.findings.sort_by(|a, b| {
            b.severity.cmp(&a.severity).then_with(|| (a.code, &a.subject).cmp(&(b.code, &b.subject)))
        });
        // What was there and could not be used says more than what nobody collected.
        self.unseen.sort_by_cached_key(|unseen| (unseen.is_not_collected(), unseen.to_string()));
        self.unseen.dedup();
        self.not_judged.sort();
        self.not_judged.dedup_by(|a, b| (a.code, &a.subject) == (b.code, &b.subject));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn finding(severity: Severity, code: FindingCode, subject: &str) -> Finding {
        Finding {
            code,
            severity,
            subject: Subject::node(subject),
            summary: "It is broken".to_owned(),
            cause: vec!["someone pulled".to_owned()],
            evidence: vec![Exhibit { file: "a.txt".to_owned(), line: Some(3), text: "snap".to_owned() }],
            remedy: "push".to_owned(),
            commands: vec![ShellCommand::new("push").value("a b")],
            symptoms: Vec::new(),
            explains: Vec::new(),
            identity: None,
        }
    }

    #[test]
    fn the_json_has_the_documented_fields_in_order() {
        let mut report = Report {
            findings: vec![finding(Severity::Error, FindingCode::PoolFull, "rope-1")],
            unseen: vec![Unseen::Reported("the other end".to_owned())],
            ..Report::default()
        };
        report.findings[0].evidence.push(Exhibit { file: "b".into(), line: None, text: String::new() });
        assert_eq!(
            serde_json::to_string(&report).unwrap(),
            concat!(
                r#"{"findings":[{"code":"pool-full","severity":"error","subject":"node rope-1","#,
                r#""summary":"It is broken","cause":["someone pulled"],"#,
                r#""evidence":[{"file":"a.txt","line":3,"text":"snap"},{"file":"b","line":null,"text":""}],"#,
                r#""remedy":"push","commands":["push 'a b'"],"symptoms":[]}],"unseen":["the other end"],"notJudged":[]}"#
            )
        );
    }

    #[test]
    fn the_worst_comes_first() {
        let mut report = Report {
            findings: vec![
                finding(Severity::Info, FindingCode::AddFailing, "1"),
                finding(Severity::Error, FindingCode::BlockMissing, "2"),
                finding(Severity::Warning, FindingCode::AddFailing, "1"),
                finding(Severity::Error, FindingCode::BlockMissing, "1"),
            ],
            unseen: ["z", "y", "z"].map(|words| Unseen::Reported(words.to_owned())).into(),
            ..Report::default()
        };
        assert_eq!(report.worst(), Some(Severity::Error));
        report.sort();
        let order: Vec<_> = report.findings.iter().map(|f| (f.severity, f.subject.to_string())).collect();
        let node = |name: &str| format!("node {name}");
        assert_eq!(
            order,
            [
                (Severity::Error, node("1")),
                (Severity::Error, node("2")),
                (Severity::Warning, node("1")),
                (Severity::Info, node("1"))
            ]
        );
        assert_eq!(report.unseen, ["y", "z"].map(|words| Unseen::Reported(words.to_owned())));
        assert_eq!(Report::default().worst(), None);
    }
}
