//! What can be wrong with the text of a manifest, and the advice that goes with it.

use std::fmt;

use crate::Kind;
use crate::resource::API_VERSION;

/// A place in a manifest, as an operator finds it in an editor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    /// Documents count from 1; empty ones count too.
    pub document: usize,
    /// Lines count from 1, from the top of the whole text.
    pub line: usize,
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "document {}, line {}", self.document, self.line)
    }
}

/// Why a text is not a list of v3 resources. The first problem found is reported.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ManifestError {
    #[error("the manifest is too large: {bytes} bytes, at most {limit} can be read at once")]
    TooLarge { bytes: usize, limit: usize },
    #[error("{at}: not valid YAML or JSON: {problem}")]
    Syntax { at: Place, problem: String },
    #[error("{at}: {problem}")]
    Excess { at: Place, problem: String },
    #[error("{at}: {field} is given twice")]
    DuplicateKey { at: Place, field: String },
    #[error("{at}: {}expected a resource, found {found}", on(.field))]
    NotAResource { at: Place, field: String, found: String },
    #[error("{at}: {}kind is missing", on(.field))]
    MissingKind { at: Place, field: String },
    #[error("{at}: unknown kind {kind:?}")]
    UnknownKind { at: Place, kind: String, version: String, suggestion: Option<&'static str> },
    #[error("{at}: {kind} has apiVersion {found:?}; only {API_VERSION} is supported")]
    ApiVersion { at: Place, kind: Kind, found: String },
    #[error("{at}: {kind} has no apiVersion; {API_VERSION} is required")]
    MissingApiVersion { at: Place, kind: Kind },
    #[error("{at}: {kind} has no field {field}")]
    UnknownField { at: Place, kind: Kind, field: String, suggestion: Option<&'static str> },
    #[error("{at}: {field}: {found}: must be {expected}")]
    WrongType {
        at: Place,
        field: String,
        found: String,
        expected: &'static str,
        advice: Option<&'static str>,
    },
}

fn on(field: &str) -> String {
    if field.is_empty() { String::new() } else { format!("{field}: ") }
}

impl ManifestError {
    /// Where the problem is, unless it is the manifest as a whole.
    pub fn place(&self) -> Option<Place> {
        match self {
            ManifestError::TooLarge { .. } => None,
            ManifestError::Syntax { at, .. }
            | ManifestError::Excess { at, .. }
            | ManifestError::DuplicateKey { at, .. }
            | ManifestError::NotAResource { at, .. }
            | ManifestError::MissingKind { at, .. }
            | ManifestError::UnknownKind { at, .. }
            | ManifestError::ApiVersion { at, .. }
            | ManifestError::MissingApiVersion { at, .. }
            | ManifestError::UnknownField { at, .. }
            | ManifestError::WrongType { at, .. } => Some(*at),
        }
    }

    /// What the author may want to do about it.
    pub fn hint(&self) -> Option<String> {
        match self {
            ManifestError::UnknownKind { suggestion: Some(word), .. }
            | ManifestError::UnknownField { suggestion: Some(word), .. } => {
                Some(format!("did you mean {word}?"))
            }
            ManifestError::ApiVersion { kind: Kind::NetworkPolicy, found, .. }
                if found.starts_with("networking.k8s.io/") =>
            {
                Some("this is Kubernetes' own NetworkPolicy: apply it with kubectl".to_owned())
            }
            ManifestError::ApiVersion { .. } | ManifestError::MissingApiVersion { .. } => {
                Some(format!("write `apiVersion: {API_VERSION}`"))
            }
            ManifestError::WrongType { advice, .. } => advice.map(str::to_owned),
            ManifestError::TooLarge { .. } => Some("split it into several files".to_owned()),
            _ => None,
        }
    }
}
