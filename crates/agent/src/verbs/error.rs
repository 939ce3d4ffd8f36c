//! Errors in the form of the CNI specification: a code, a message, and details.

use std::error::Error;
use std::fmt::{self, Write as _};

use book::BookError;
use host::HostError;
use model::sandbox::SandboxError;
use serde_json::{Value, json};
use store::StoreError;

/// Codes below 100 are the specification's, the others ours.
pub(crate) mod code {
    pub(crate) const VERSION: u32 = 1;
    pub(crate) const ENVIRONMENT: u32 = 4;
    pub(crate) const INPUT: u32 = 5;
    pub(crate) const NOT_DECODED: u32 = 6;
    pub(crate) const CONFIGURATION: u32 = 7;
    pub(crate) const TRY_LATER: u32 = 11;
    /// STATUS: no pod can be added.
    pub(crate) const CANNOT_ADD: u32 = 50;
    /// STATUS: no pod can be added, and running pods may lose their connections.
    pub(crate) const CANNOT_SERVE: u32 = 51;
    /// A bug of ours, or a fault of the node.
    pub(crate) const INTERNAL: u32 = 100;
    /// The kernel refused a change, or holds something else than was asked for.
    pub(crate) const KERNEL: u32 = 101;
    /// The store refused a change, or holds a record that cannot be read.
    pub(crate) const STORE: u32 = 102;
    /// No address could be allocated.
    pub(crate) const ADDRESSES: u32 = 103;
    /// CHECK found differences.
    pub(crate) const CHECK: u32 = 104;
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct CniError {
    pub(crate) code: u32,
    pub(crate) message: String,
    /// Causes and advice.
    pub(crate) details: String,
    /// What is wrong is not in the request: it may be right when the same request comes again.
    pub(crate) is_outside: bool,
}

impl CniError {
    pub(crate) fn new(code: u32, message: impl Into<String>) -> CniError {
        CniError { code, message: message.into(), details: String::new(), is_outside: false }
    }

    pub(crate) fn environment(message: impl Into<String>) -> CniError {
        CniError::new(code::ENVIRONMENT, message)
    }

    pub(crate) fn configuration(message: impl Into<String>) -> CniError {
        CniError::new(code::CONFIGURATION, message)
    }

    pub(crate) fn internal(message: impl Into<String>) -> CniError {
        CniError::new(code::INTERNAL, message)
    }

    pub(crate) fn input(error: std::io::Error) -> CniError {
        CniError::new(code::INPUT, "cannot read the network configuration").because(&error)
    }

    /// Adds an error and everything that caused it.
    #[must_use]
    pub(crate) fn because(mut self, cause: &dyn Error) -> CniError {
        self.add_detail(&cause.to_string());
        model::text::causes(cause).iter().for_each(|cause| self.add_detail(cause));
        self
    }

    #[must_use]
    pub(crate) fn hint(mut self, hint: impl AsRef<str>) -> CniError {
        self.add_detail(hint.as_ref());
        self
    }

    fn add_detail(&mut self, text: &str) {
        let separator = if self.details.is_empty() { "" } else { "; " };
        write!(self.details, "{separator}{text}").expect("a string takes any text");
    }

    /// Something beside the request is wrong: a file that it names, a variable of the environment.
    #[must_use]
    pub(crate) fn outside(self) -> CniError {
        CniError { is_outside: true, ..self }
    }

    /// The request itself is wrong, so repeating it cannot help.
    pub(crate) fn is_permanent(&self) -> bool {
        !self.is_outside
            && matches!(
                self.code,
                code::VERSION | code::ENVIRONMENT | code::INPUT | code::NOT_DECODED | code::CONFIGURATION
            )
    }

    /// The store did not answer, or refused the change.
    pub(crate) fn is_store_failure(&self) -> bool {
        matches!(self.code, code::STORE | code::TRY_LATER)
    }

    pub(crate) fn document(&self, version: &str) -> Value {
        json!({"cniVersion": version, "code": self.code, "msg": self.message, "details": self.details})
    }

    fn of(code: u32, error: &dyn Error) -> CniError {
        let first = CniError::new(code, error.to_string());
        match error.source() {
            Some(source) => first.because(source),
            None => first,
        }
    }
}

impl From<HostError> for CniError {
    fn from(error: HostError) -> CniError {
        let code = match error {
            HostError::Namespace { .. } => code::ENVIRONMENT,
            _ => code::KERNEL,
        };
        CniError::of(code, &error)
    }
}

impl From<StoreError> for CniError {
    fn from(error: StoreError) -> CniError {
        let mut converted = CniError::of(code_of(&error), &error);
        converted.is_outside = matches!(error, StoreError::BadSetting { .. });
        match error.hint() {
            Some(hint) => converted.hint(hint),
            None => converted,
        }
    }
}

impl fmt::Display for CniError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)?;
        if self.details.is_empty() { Ok(()) } else { write!(f, " ({})", self.details) }
    }
}

impl Error for CniError {}

impl From<BookError> for CniError {
    fn from(error: BookError) -> CniError {
        let code = match &error {
            BookError::Assign(_) | BookError::Claim(_) => code::ADDRESSES,
            BookError::Locked
            | BookError::Contended { .. }
            | BookError::Addition { .. }
            | BookError::Closed => code::TRY_LATER,
            BookError::Store(source) => code_of(source),
            _ => code::STORE,
        };
        let converted = CniError::of(code, &error);
        match error.hint() {
            Some(hint) => converted.hint(hint),
            None => converted,
        }
    }
}

impl From<SandboxError> for CniError {
    fn from(error: SandboxError) -> CniError {
        CniError::of(code::ENVIRONMENT, &error)
    }
}

fn code_of(error: &StoreError) -> u32 {
    match error {
        StoreError::Unreachable { .. } | StoreError::Uncertain { .. } => code::TRY_LATER,
        StoreError::BadSetting { .. } => code::CONFIGURATION,
        _ => code::STORE,
    }
}

/// A runtime must get an answer that it can parse, whatever happens.
pub(crate) fn answer_even_when_panicking() {
    std::panic::set_hook(Box::new(|panic| {
        eprintln!("plumbd cni: {panic}");
        // With unwinding, a panic of another thread is an error for the one that answers.
        if std::thread::current().name() != Some("main") && cfg!(panic = "unwind") {
            return;
        }
        let error = CniError::internal("plumbd panicked").hint("this is a bug; see the log");
        let _ = super::one_shot::write_answer(&super::failed(&error, super::result::NEWEST).stdout);
    }));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn causes_and_advice_are_details() {
        let io = std::io::Error::other("disk on fire");
        let error = StoreError::Unreachable { address: "etcd:2379".to_owned(), source: Box::new(io) };
        let error = CniError::from(error);
        assert_eq!((error.code, error.message.as_str()), (11, "cannot reach the store at etcd:2379"));
        assert!(error.details.starts_with("disk on fire"), "{}", error.details);
    }

    /// A queued DEL waits until the file is right again.
    #[test]
    fn a_kubeconfig_that_cannot_be_used_may_be_repaired() {
        let problem = "cannot be read".to_owned();
        let error = CniError::from(StoreError::BadSetting { setting: "kubeconfig /kc".to_owned(), problem });
        assert_eq!(error.code, code::CONFIGURATION);
        assert!(!error.is_permanent(), "{error}");
        assert!(CniError::configuration("the MTU is wrong").is_permanent());
    }

    #[test]
    fn an_empty_store_says_how_to_fill_it() {
        let error = CniError::from(BookError::from(ipam::AssignError::NoPools));
        assert_eq!(error.message, "there is no IP pool");
        assert!(error.details.contains("plumb apply -f"), "{}", error.details);
    }
}
