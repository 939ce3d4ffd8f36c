//! What the doctor says, in the words and the order of its JSON.

use serde::Serialize;

/// One thing that is wrong.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Finding {
    /// Stable: operators silence, search and explain by it.
    pub code: &'static str,
    pub severity: Severity,
    /// What it is about: an address, a node, a record.
    pub subject: String,
    /// One sentence.
    pub summary: String,
    /// What led to it, or follows from it, step by step. Says so where the evidence does not tell.
    pub cause: Vec<String>,
    /// What it was seen in.
    pub evidence: Vec<Exhibit>,
    /// What would mend it.
    pub remedy: String,
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

/// A piece of evidence as an operator can look it up.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Exhibit {
    /// The file, or the key of the record in the store.
    pub file: String,
    /// Counted from 1; `null` where the whole file or record is meant.
    pub line: Option<u32>,
    pub text: String,
}

/// Everything that was found, and what could not be looked at.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Report {
    pub findings: Vec<Finding>,
    pub unseen: Vec<String>,
}

impl Report {
    /// How bad the worst finding is.
    pub fn worst(&self) -> Option<Severity> {
        self.findings.iter().map(|finding| finding.severity).max()
    }

    /// Worst first, then alphabetically; what several checks missed is said once.
    pub(crate) fn sort(&mut self) {
        self.findings.sort_by(|a, b| {
            b.severity.cmp(&a.severity).then_with(|| (a.code, &a.subject).cmp(&(b.code, &b.subject)))
        });
        self.unseen.sort();
        self.unseen.dedup();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn finding(severity: Severity, code: &'static str, subject: &str) -> Finding {
        Finding {
            code,
            severity,
            subject: subject.to_owned(),
            summary: "It is broken".to_owned(),
            cause: vec!["someone pulled".to_owned()],
            evidence: vec![Exhibit { file: "a.txt".to_owned(), line: Some(3), text: "snap".to_owned() }],
            remedy: "push".to_owned(),
        }
    }

    #[test]
    fn the_json_has_the_documented_fields_in_order() {
        let mut report = Report {
            findings: vec![finding(Severity::Error, "rope-torn", "rope-1")],
            unseen: vec!["the other end".to_owned()],
        };
        report.findings[0].evidence.push(Exhibit { file: "b".into(), line: None, text: String::new() });
        assert_eq!(
            serde_json::to_string(&report).unwrap(),
            concat!(
                r#"{"findings":[{"code":"rope-torn","severity":"error","subject":"rope-1","#,
                r#""summary":"It is broken","cause":["someone pulled"],"#,
                r#""evidence":[{"file":"a.txt","line":3,"text":"snap"},{"file":"b","line":null,"text":""}],"#,
                r#""remedy":"push"}],"unseen":["the other end"]}"#
            )
        );
    }

    #[test]
    fn the_worst_comes_first() {
        let mut report = Report {
            findings: vec![
                finding(Severity::Info, "a", "1"),
                finding(Severity::Error, "b", "2"),
                finding(Severity::Warning, "a", "1"),
                finding(Severity::Error, "b", "1"),
            ],
            unseen: vec!["z".into(), "y".into(), "z".into()],
        };
        assert_eq!(report.worst(), Some(Severity::Error));
        report.sort();
        let order: Vec<_> = report.findings.iter().map(|f| (f.severity, f.subject.as_str())).collect();
        assert_eq!(
            order,
            [(Severity::Error, "1"), (Severity::Error, "2"), (Severity::Warning, "1"), (Severity::Info, "1")]
        );
        assert_eq!(report.unseen, ["y", "z"]);
        assert_eq!(Report::default().worst(), None);
    }
}
