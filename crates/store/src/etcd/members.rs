//! The members of a cluster, one of which is connected at a time.
//!
//! A member that fails in any way is left for the next one in the list; which failures count is decided by the
//! callers. A connection is handed out only after the member has answered on it, so that whatever is wrong with
//! certificates, ports or protocols shows here and nowhere else.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::Mutex;
use tokio::time::{Instant, timeout, timeout_at};
use tonic::transport::{Channel, Endpoint};

use super::EtcdConfig;
use super::endpoint::EndpointAddress;
use super::failure::Failure;
use super::rpc::{Along, Connection, StatusRequest};
use super::second_look::second_look;
use super::tls::ClientTls;
use super::trouble::{MemberTrouble, Trouble, Troubles};
use crate::StoreError;

const KEEP_ALIVE_INTERVAL: Duration = Duration::from_secs(30);
const KEEP_ALIVE_TIMEOUT: Duration = Duration::from_secs(10);
/// How much a member may send before it must wait for us. Pages of lists are about this large.
const STREAM_WINDOW: u32 = 4 << 20;
const CONNECTION_WINDOW: u32 = 8 << 20;

/// An open connection, to be used for as many calls as one likes.
#[derive(Clone, Debug)]
pub(super) struct Member {
    pub(super) address: Arc<str>,
    pub(super) connection: Connection,
    /// Which connection this is, for [`Members::give_up_on`].
    generation: u64,
}

#[derive(Debug)]
pub(super) struct Members {
    candidates: Vec<Candidate>,
    state: Mutex<State>,
}

#[derive(Debug)]
struct Candidate {
    address: EndpointAddress,
    endpoint: Endpoint,
    tls: Option<ClientTls>,
}

#[derive(Debug, Default)]
struct State {
    /// The candidate that is connected, or the first one to try.
    position: usize,
    open: Option<Member>,
    generation: u64,
}

impl Members {
    pub(super) fn new(config: &EtcdConfig) -> Result<Members, StoreError> {
        let tls_given = config.ca.is_some() || config.cert.is_some() || config.key.is_some();
        let addresses = config
            .endpoints
            .iter()
            .map(|text| EndpointAddress::parse(text, tls_given))
            .collect::<Result<Vec<_>, _>>()?;
        if addresses.is_empty() {
            return Err(StoreError::BadSetting {
                setting: "etcd endpoints".to_owned(),
                problem: "are not given".to_owned(),
            });
        }
        let tls = match addresses.iter().any(EndpointAddress::is_tls) {
            true => Some(ClientTls::new(config)?),
            false => None,
        };
        // Also a connection that the transport makes anew by itself must not take for ever.
        let share = config.connect_timeout / u32::try_from(addresses.len()).unwrap_or(u32::MAX);
        let candidates = addresses
            .into_iter()
            .map(|address| {
                let mut endpoint = tuned(Endpoint::from(address.uri().clone())).connect_timeout(share);
                let tls = tls.clone().filter(|_| address.is_tls());
                if let Some(ClientTls { transport, .. }) = tls.clone() {
                    endpoint = endpoint.tls_config(transport).map_err(|error| unusable(&address, &error))?;
                }
                Ok(Candidate { address, endpoint, tls })
            })
            .collect::<Result<_, StoreError>>()?;
        Ok(Members { candidates, state: Mutex::default() })
    }

    pub(super) fn count(&self) -> usize {
        self.candidates.len()
    }

    /// The connected member. If there is none, every candidate is tried once; the time left is shared among those
    /// not yet tried, so that one that swallows packets does not keep us from the others.
    pub(super) async fn get(&self, until: Instant) -> Result<Member, Troubles> {
        let Ok(mut state) = timeout_at(until, self.state.lock()).await else {
            return Err(self.all_have(&Trouble::TimedOut));
        };
        if let Some(member) = &state.open {
            return Ok(member.clone());
        }
        let mut troubles = Vec::new();
        let count = self.candidates.len();
        for step in 0..count {
            let position = (state.position + step) % count;
            let candidate = &self.candidates[position];
            let untried = u32::try_from(count - step).unwrap_or(u32::MAX);
            let share = until.saturating_duration_since(Instant::now()) / untried;
            let opened = timeout(share, candidate.open()).await.unwrap_or(Err(Trouble::TimedOut));
            match opened {
                Ok(connection) => return Ok(state.opened(position, &candidate.address, connection)),
                Err(trouble) => troubles.push(candidate.has(trouble)),
            }
        }
        Err(Troubles(troubles))
    }

    /// Leaves a member for the next one, unless that has been done already.
    pub(super) async fn give_up_on(&self, member: &Member) {
        let mut state = self.state.lock().await;
        if state.open.as_ref().is_some_and(|open| open.generation == member.generation) {
            state.open = None;
            state.position = (state.position + 1) % self.candidates.len();
        }
    }

    fn all_have(&self, trouble: &Trouble) -> Troubles {
        Troubles(self.candidates.iter().map(|candidate| candidate.has(trouble.clone())).collect())
    }
}

impl State {
    fn opened(&mut self, position: usize, address: &EndpointAddress, connection: Connection) -> Member {
        self.generation += 1;
        self.position = position;
        let member = Member { address: address.to_string().into(), connection, generation: self.generation };
        self.open = Some(member.clone());
        member
    }
}

impl Candidate {
    async fn open(&self) -> Result<Connection, Trouble> {
        let trouble = match self.try_open().await {
            Ok(connection) => return Ok(connection),
            // The transport does not know why the other end hung up.
            Err(Trouble::Broken(text)) => {
                let handshake = self.tls.as_ref().map(|tls| &tls.handshake);
                second_look(&self.address, handshake).await.unwrap_or(Trouble::Broken(text))
            }
            Err(trouble) => trouble,
        };
        Err(match trouble {
            // There is a word of its own for a missing certificate, but few servers use it.
            Trouble::ClientCertificateRejected(_) if !self.has_certificate() => {
                Trouble::ClientCertificateMissing
            }
            other => other,
        })
    }

    fn has_certificate(&self) -> bool {
        self.tls.as_ref().is_some_and(|tls| tls.handshake.client_auth_cert_resolver.has_certs())
    }

    async fn try_open(&self) -> Result<Connection, Trouble> {
        let channel: Channel = self.endpoint.connect().await.map_err(|error| Trouble::of(&error))?;
        let connection = Connection::new(channel);
        match connection.call(StatusRequest {}, &Along::default()).await {
            Ok(status) if status.is_learner => Err(Trouble::Learner),
            Ok(status) if status.leader == 0 => Err(Trouble::NoLeader),
            Ok(_) => Ok(connection),
            Err(status) => match Failure::of(&status) {
                // It does not tell strangers, but it is etcd and it answers.
                Failure::Refused(_) => Ok(connection),
                Failure::NotDone(trouble) | Failure::Unanswered(trouble) => Err(trouble),
            },
        }
    }

    fn has(&self, trouble: Trouble) -> MemberTrouble {
        MemberTrouble { address: self.address.to_string(), trouble }
    }
}

/// HTTP/2's own keep-alive is for connections with a watch or a call on them: etcd takes pings on an idle
/// connection for an attack and closes it. Those that are idle have TCP's.
fn tuned(endpoint: Endpoint) -> Endpoint {
    endpoint
        .tcp_nodelay(true)
        .tcp_keepalive(Some(KEEP_ALIVE_INTERVAL))
        .tcp_keepalive_interval(Some(KEEP_ALIVE_TIMEOUT))
        .tcp_keepalive_retries(Some(1))
        .http2_keep_alive_interval(KEEP_ALIVE_INTERVAL)
        .keep_alive_timeout(KEEP_ALIVE_TIMEOUT)
        .keep_alive_while_idle(false)
        .initial_stream_window_size(STREAM_WINDOW)
        .initial_connection_window_size(CONNECTION_WINDOW)
}

fn unusable(address: &EndpointAddress, error: &tonic::transport::Error) -> StoreError {
    let cause = std::error::Error::source(error).map_or_else(|| error.to_string(), ToString::to_string);
    StoreError::BadSetting {
        setting: format!("etcd endpoint {address}"),
        problem: format!("cannot be used with these TLS settings: {cause}"),
    }
}
