//! Calls that outlive the member they were sent to.
//!
//! A read is repeated on other members until its time is up. A write is repeated only while it surely was not
//! done; once it may have been, the caller is told so and has to look.

use std::time::Duration;

use tokio::time::{Instant, sleep, timeout, timeout_at};
use tonic::metadata::AsciiMetadataValue;

use super::EtcdConfig;
use super::credentials::Credentials;
use super::failure::{Failure, Refusal};
use super::members::{Member, Members};
use super::rpc::{Along, Call};
use super::trouble::{MemberTrouble, Trouble, Troubles};
use crate::StoreError;
use crate::backoff::Backoff;

/// Whether doing a request twice could matter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Effect {
    Reads,
    Writes,
}

/// Why a call came back without an answer to it.
#[derive(Debug)]
pub(super) enum CallError {
    /// etcd said no; what that means depends on what was asked.
    Refused {
        address: String,
        refusal: Refusal,
    },
    Failed(StoreError),
}

#[derive(Debug)]
pub(super) struct Client {
    members: Members,
    credentials: Credentials,
    request_timeout: Duration,
}

/// How often in a row a token may be rejected before it is taken for a refusal.
const TOKEN_REJECTIONS_MAX: usize = 2;

impl Client {
    /// Finds a member that answers, and has the credentials checked.
    pub(super) async fn connect(config: &EtcdConfig) -> Result<Client, StoreError> {
        let client = Client {
            members: Members::new(config)?,
            credentials: Credentials::new(config),
            request_timeout: config.request_timeout,
        };
        client.first_member(Instant::now() + config.connect_timeout).await?;
        Ok(client)
    }

    /// Gives up after one round through the endpoints, unless a little patience may help: a port that is closed
    /// and a certificate that is wrong will be so in ten seconds too.
    async fn first_member(&self, until: Instant) -> Result<(), StoreError> {
        let mut backoff = Backoff::new();
        loop {
            let troubles = match self.members.get(until).await {
                Ok(member) => match timeout_at(until, self.along(&member))
                    .await
                    .unwrap_or(Err(Failure::NotDone(Trouble::TimedOut)))
                {
                    Ok(_) => return Ok(()),
                    Err(Failure::Refused(refusal)) => {
                        return Err(refused(&member.address, refusal, "signing in to etcd"));
                    }
                    Err(Failure::NotDone(trouble) | Failure::Unanswered(trouble)) => {
                        self.members.give_up_on(&member).await;
                        Troubles(vec![member.has(trouble)])
                    }
                },
                Err(troubles) => troubles,
            };
            let pause = backoff.pause();
            let may_pass = troubles.0.iter().any(|member| member.trouble.is_passing());
            if !may_pass || Instant::now() + pause >= until {
                return Err(troubles.into_store_error());
            }
            sleep(pause).await;
        }
    }

    /// Makes a call, wherever it succeeds.
    pub(super) async fn call<R: Call>(&self, request: R, effect: Effect) -> Result<R::Answer, CallError> {
        let mut tries = Tries::new(Instant::now() + self.request_timeout, self.members.count());
        loop {
            let member = match self.members.get(tries.until).await {
                Ok(member) => member,
                Err(troubles) => {
                    tries.pause_after_round(troubles).await?;
                    continue;
                }
            };
            match self.try_once(&member, request.clone(), effect, &mut tries).await {
                Ok(answer) => return Ok(answer),
                Err(Failure::Refused(refusal)) => {
                    return Err(CallError::Refused { address: member.address.to_string(), refusal });
                }
                Err(Failure::Unanswered(trouble)) if effect == Effect::Writes => {
                    self.members.give_up_on(&member).await;
                    let source = Box::new(member.has(trouble));
                    return Err(CallError::Failed(StoreError::Uncertain { source }));
                }
                Err(Failure::NotDone(trouble) | Failure::Unanswered(trouble)) => {
                    self.members.give_up_on(&member).await;
                    tries.pause_after(member.has(trouble)).await?;
                }
            }
        }
    }

    async fn try_once<R: Call>(
        &self,
        member: &Member,
        request: R,
        effect: Effect,
        tries: &mut Tries,
    ) -> Result<R::Answer, Failure> {
        loop {
            // A time-out in here is not one of the request: that has not been sent yet.
            let along = timeout(tries.patience(Effect::Reads), self.along(member))
                .await
                .unwrap_or(Err(Failure::NotDone(Trouble::TimedOut)))?;
            let calling = member.connection.call(request.clone(), &along);
            let failure = match timeout(tries.patience(effect), calling).await {
                Ok(Ok(answer)) => return Ok(answer),
                Ok(Err(status)) => Failure::of(&status),
                Err(_) => Failure::Unanswered(Trouble::TimedOut),
            };
            if failure != Failure::Refused(Refusal::TokenRejected) {
                return Err(failure);
            }
            self.renew_token(along.token.as_ref(), &mut tries.token_rejections).await?;
        }
    }

    /// What to send along with a request to this member.
    pub(super) async fn along(&self, member: &Member) -> Result<Along, Failure> {
        Ok(Along { token: self.credentials.token(member).await?, require_leader: true })
    }

    /// Prepares another try after a token was rejected; refuses if that has happened too often.
    pub(super) async fn renew_token(
        &self,
        rejected: Option<&AsciiMetadataValue>,
        rejections: &mut usize,
    ) -> Result<(), Failure> {
        *rejections += 1;
        let Some(rejected) = rejected.filter(|_| *rejections <= TOKEN_REJECTIONS_MAX) else {
            return Err(Failure::Refused(Refusal::Denied("it does not accept the session's token")));
        };
        self.credentials.forget(rejected).await;
        Ok(())
    }

    pub(super) fn members(&self) -> &Members {
        &self.members
    }

    pub(super) fn request_timeout(&self) -> Duration {
        self.request_timeout
    }
}

impl Member {
    pub(super) fn has(&self, trouble: Trouble) -> MemberTrouble {
        MemberTrouble { address: self.address.to_string(), trouble }
    }
}

impl CallError {
    /// What it means where no refusal is expected.
    pub(super) fn into_store_error(self, operation: &str) -> StoreError {
        match self {
            CallError::Refused { address, refusal } => refused(&address, refusal, operation),
            CallError::Failed(error) => error,
        }
    }
}

fn refused(address: &str, refusal: Refusal, operation: &str) -> StoreError {
    let answer = match refusal {
        Refusal::Denied(reason) => {
            return StoreError::AccessDenied {
                address: address.to_owned(),
                reason: reason.to_owned(),
                hint: None,
            };
        }
        Refusal::Forbidden => {
            let reason = format!("the roles of its user do not allow {operation}");
            return StoreError::AccessDenied { address: address.to_owned(), reason, hint: None };
        }
        Refusal::NoSpace => {
            return StoreError::Storage {
                path: address.to_owned(),
                problem: "etcd's database has reached its size limit".to_owned(),
                hint: Some(
                    "compact and defragment it, then clear its alarm (etcdctl alarm disarm)".to_owned(),
                ),
                source: None,
            };
        }
        Refusal::TooLarge => "the request is too large".to_owned(),
        Refusal::Compacted => "the revision is forgotten".to_owned(),
        Refusal::FutureRevision => "the revision has not been reached".to_owned(),
        Refusal::TokenRejected => "the session's token is not accepted".to_owned(),
        Refusal::NoUsersHere => "the cluster knows no users".to_owned(),
        Refusal::Other(answer) => answer,
    };
    StoreError::Other { operation: operation.to_owned(), source: answer.into() }
}

/// The tries of one call.
#[derive(Debug)]
struct Tries {
    until: Instant,
    members: usize,
    failed: usize,
    token_rejections: usize,
    backoff: Backoff,
}

impl Tries {
    fn new(until: Instant, members: usize) -> Tries {
        Tries { until, members, failed: 0, token_rejections: 0, backoff: Backoff::new() }
    }

    /// How long one member may take. A read can be asked of another one, so half of the time is enough for each;
    /// a write gets all the time there is, since giving up on it early only makes more of them uncertain.
    fn patience(&self, effect: Effect) -> Duration {
        let left = self.until.saturating_duration_since(Instant::now());
        if effect == Effect::Reads && self.members > 1 { left / 2 } else { left }
    }

    /// The next member is tried at once, until all have had their turn.
    async fn pause_after(&mut self, trouble: MemberTrouble) -> Result<(), CallError> {
        self.failed += 1;
        if self.failed < self.members && Instant::now() < self.until {
            return Ok(());
        }
        self.pause_after_round(Troubles(vec![trouble])).await
    }

    async fn pause_after_round(&mut self, troubles: Troubles) -> Result<(), CallError> {
        let pause = self.backoff.pause();
        if Instant::now() + pause >= self.until {
            return Err(CallError::Failed(troubles.into_store_error()));
        }
        sleep(pause).await;
        Ok(())
    }
}
