//! User and password, and the token they were last exchanged for.

use tokio::sync::Mutex;
use tonic::metadata::AsciiMetadataValue;

use super::EtcdConfig;
use super::failure::{Failure, Refusal};
use super::members::Member;
use super::rpc::{Along, AuthenticateRequest};
use super::trouble::Trouble;

pub(super) struct Credentials {
    user: Option<(String, String)>,
    /// Tokens are good at every member, so one will do. `None` before the first use and after a rejection.
    token: Mutex<Option<AsciiMetadataValue>>,
}

impl std::fmt::Debug for Credentials {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let name = self.user.as_ref().map(|(name, _)| name);
        f.debug_struct("Credentials").field("user", &name).finish_non_exhaustive()
    }
}

impl Credentials {
    pub(super) fn new(config: &EtcdConfig) -> Credentials {
        let user = config.username.clone().zip(config.password.clone());
        Credentials { user: user.filter(|(name, _)| !name.is_empty()), token: Mutex::default() }
    }

    /// The token to send along; fetches one from `member` if need be. None if no user was given, or if the
    /// cluster knows no users.
    pub(super) async fn token(&self, member: &Member) -> Result<Option<AsciiMetadataValue>, Failure> {
        let Some((name, password)) = &self.user else { return Ok(None) };
        let mut held = self.token.lock().await;
        if let Some(token) = &*held {
            return Ok(Some(token.clone()));
        }
        let request = AuthenticateRequest { name: name.clone(), password: password.clone() };
        let along = Along { token: None, require_leader: true };
        let answer = match member.connection.call(request, &along).await {
            Ok(answer) => answer,
            Err(status) => {
                return match Failure::of(&status) {
                    Failure::Refused(Refusal::NoUsersHere) => Ok(None),
                    // Whether a token was made does not matter: the request it is for has not been sent.
                    Failure::Unanswered(trouble) => Err(Failure::NotDone(trouble)),
                    other => Err(other),
                };
            }
        };
        let token = AsciiMetadataValue::try_from(answer.token)
            .map_err(|_| Failure::NotDone(Trouble::NotEtcd("its token is not plain text".to_owned())))?;
        *held = Some(token.clone());
        Ok(Some(token))
    }

    /// Forgets a token that a member did not accept, unless a newer one is there already.
    pub(super) async fn forget(&self, rejected: &AsciiMetadataValue) {
        let mut held = self.token.lock().await;
        if held.as_ref() == Some(rejected) {
            *held = None;
        }
    }
}
