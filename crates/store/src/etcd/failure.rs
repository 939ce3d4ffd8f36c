//! What a call that failed tells: was anything done, may it have been, and what was wrong.

use std::error::Error as _;

use tonic::{Code, ConnectError, Status};

use super::trouble::Trouble;

/// How a call failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Failure {
    /// etcd said no. Nothing was done, and another member would say the same.
    Refused(Refusal),
    /// Nothing was sent, or the member declined before doing anything. Another member may do it.
    NotDone(Trouble),
    /// The answer is missing: it may have been done.
    Unanswered(Trouble),
}

/// What etcd says no to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Refusal {
    /// The revision asked for is forgotten.
    Compacted,
    /// The revision asked for has not been reached: it is of another cluster, or of one before a restore.
    FutureRevision,
    /// The token is not known (any more).
    TokenRejected,
    /// User or password.
    Denied(&'static str),
    /// The user's roles do not allow it.
    Forbidden,
    /// User and password were given to a cluster without users.
    NoUsersHere,
    TooLarge,
    NoSpace,
    Other(String),
}

impl Failure {
    pub(super) fn of(status: &Status) -> Failure {
        if let Some(answer) = etcd_answer(status) {
            return of_answer(status.code(), answer);
        }
        if status.source().is_none() && status.code() == Code::Unimplemented {
            return Failure::NotDone(Trouble::NotEtcd(status.message().to_owned()));
        }
        if status.source().is_none() && status.message().contains("received message larger than max") {
            return Failure::Refused(Refusal::TooLarge);
        }
        let trouble = match status.source() {
            Some(source) => Trouble::of(source),
            None => Trouble::Broken(status.message().to_owned()),
        };
        // A certificate is refused during the handshake, before any request is looked at.
        if is_connect_error(status) || trouble.is_denial() {
            return Failure::NotDone(trouble);
        }
        Failure::Unanswered(trouble)
    }
}

/// The server's own words, if the status is an answer of etcd rather than of the transport.
fn etcd_answer(status: &Status) -> Option<&str> {
    if status.source().is_some() {
        return None;
    }
    status.message().strip_prefix("etcdserver: ")
}

fn of_answer(code: Code, answer: &str) -> Failure {
    let refusal = match (code, answer) {
        (Code::Unavailable, "no leader") => return Failure::NotDone(Trouble::NoLeader),
        (_, "rpc not supported for learner") => return Failure::NotDone(Trouble::Learner),
        (_, "too many requests") => return Failure::NotDone(Trouble::Answered(answer.to_owned())),
        (_, "mvcc: required revision has been compacted") => Refusal::Compacted,
        (_, "mvcc: required revision is a future revision") => Refusal::FutureRevision,
        (_, "mvcc: database space exceeded") => Refusal::NoSpace,
        (_, "request is too large") => Refusal::TooLarge,
        (_, "invalid auth token" | "revision of auth store is old") => Refusal::TokenRejected,
        (_, "user name is empty") => Refusal::Denied("it wants a user and a password, and none was given"),
        (_, "authentication failed, invalid user ID or password") => {
            Refusal::Denied("the user or the password is wrong")
        }
        (_, "permission denied") => Refusal::Forbidden,
        (_, "authentication is not enabled") => Refusal::NoUsersHere,
        (Code::InvalidArgument | Code::OutOfRange | Code::FailedPrecondition | Code::DataLoss, _) => {
            Refusal::Other(answer.to_owned())
        }
        // Time-outs and lost leaders: the proposal may still go through.
        _ => return Failure::Unanswered(Trouble::Answered(answer.to_owned())),
    };
    Failure::Refused(refusal)
}

fn is_connect_error(status: &Status) -> bool {
    std::iter::successors(status.source(), |&error| error.source()).any(|error| error.is::<ConnectError>())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_of_etcd_are_told_from_silence() {
        let cases = [
            (Code::OutOfRange, "etcdserver: mvcc: required revision has been compacted", "Compacted"),
            (Code::Unauthenticated, "etcdserver: invalid auth token", "TokenRejected"),
            (Code::PermissionDenied, "etcdserver: permission denied", "Forbidden"),
            (Code::Unavailable, "etcdserver: no leader", "NotDone(NoLeader)"),
            (Code::Unavailable, "etcdserver: request timed out", "Unanswered"),
            (Code::Unavailable, "etcdserver: leader changed", "Unanswered"),
            (Code::Unknown, "raft: stopped", "Unanswered"),
            (Code::OutOfRange, "Error, decoded message length too large", "Unanswered"),
            (Code::InvalidArgument, "etcdserver: duplicate key given in txn request", "Other"),
            (Code::Unimplemented, "unknown service etcdserverpb.KV", "NotEtcd"),
        ];
        for (code, message, expected) in cases {
            let failure = format!("{:?}", Failure::of(&Status::new(code, message)));
            assert!(failure.contains(expected), "{message}: {failure}");
        }
    }

    #[test]
    fn a_request_that_never_left_was_not_done() {
        let refused = std::io::Error::from(std::io::ErrorKind::ConnectionRefused);
        let status = Status::from_error(Box::new(ConnectError(Box::new(refused))));
        assert_eq!(Failure::of(&status), Failure::NotDone(Trouble::Refused));
        let broken = std::io::Error::from(std::io::ErrorKind::BrokenPipe);
        let status = Status::from_error(Box::new(broken));
        assert!(matches!(Failure::of(&status), Failure::Unanswered(Trouble::Broken(_))));
    }
}
