//! Why a member could not be talked to, in words an operator can act on.
//!
//! The transport reports nearly everything as "transport error"; the cause lies somewhere down the chain of
//! sources, sometimes only as text.

use std::error::Error;
use std::{fmt, io};

use rustls::{AlertDescription, CertificateError, InvalidMessage};

use crate::StoreError;

/// What stands between us and one member.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Trouble {
    #[error("the connection was refused")]
    Refused,
    #[error("no answer in time")]
    TimedOut,
    #[error("the host name cannot be resolved ({0})")]
    NameUnknown(String),
    #[error("there is no route to it ({0})")]
    NoRoute(String),
    #[error("the connection broke ({0})")]
    Broken(String),
    #[error("its certificate is not signed by an authority trusted here")]
    UntrustedServer,
    #[error("its certificate has expired")]
    ServerExpired,
    #[error("its certificate is not valid yet")]
    ServerNotYetValid,
    #[error("its certificate is for another name or address")]
    ServerNameMismatch,
    #[error("its certificate is not acceptable ({0})")]
    ServerCertificate(String),
    #[error("it wants a client certificate, and none was given")]
    ClientCertificateMissing,
    #[error("it does not accept the client certificate ({0})")]
    ClientCertificateRejected(String),
    #[error("it does not speak TLS")]
    PlainOnly,
    #[error("it speaks TLS only")]
    TlsOnly,
    #[error("TLS could not be set up ({0})")]
    Tls(String),
    #[error("it does not speak etcd's protocol ({0})")]
    NotEtcd(String),
    #[error("it knows no leader")]
    NoLeader,
    #[error("it is a learner and takes no requests yet")]
    Learner,
    #[error("it answered: {0}")]
    Answered(String),
}

impl Trouble {
    /// Reads the cause out of an error's chain of sources.
    pub(crate) fn of(error: &(dyn Error + 'static)) -> Trouble {
        let chain = || std::iter::successors(Some(error), |&error| error.source());
        let broken = || Trouble::Broken(chain().last().unwrap_or(error).to_string());
        chain().find_map(recognise).unwrap_or_else(broken)
    }

    /// Our credentials are the problem rather than the network or the server.
    pub(crate) fn is_denial(&self) -> bool {
        matches!(self, Trouble::ClientCertificateMissing | Trouble::ClientCertificateRejected(_))
    }

    /// Waiting a little may be all that is needed.
    pub(super) fn is_passing(&self) -> bool {
        matches!(self, Trouble::NoLeader | Trouble::Answered(_))
    }

    pub(super) fn hint(&self) -> Option<&'static str> {
        Some(match self {
            Trouble::Refused => "is etcd running there, and is the port right?",
            Trouble::TimedOut | Trouble::NoRoute(_) => {
                "is the host up, and does a firewall let its client port through?"
            }
            Trouble::NameUnknown(_) => "check the host name in the endpoints, and this machine's DNS",
            Trouble::UntrustedServer | Trouble::ServerCertificate(_) => {
                "give the authority that signed the servers' certificates (ETCD_CA_CERT_FILE, etcdCACertFile)"
            }
            Trouble::ServerExpired | Trouble::ServerNotYetValid => {
                "renew the server's certificate, or check the clocks of both machines"
            }
            Trouble::ServerNameMismatch => {
                "use an endpoint that the certificate names, or add this one to its subject alternative names"
            }
            Trouble::ClientCertificateMissing | Trouble::ClientCertificateRejected(_) => {
                "give a client certificate and key that the servers' authority signed \
                 (ETCD_CERT_FILE and ETCD_KEY_FILE, etcdCertFile and etcdKeyFile)"
            }
            Trouble::PlainOnly => "use http:// in the endpoint, or turn TLS on in etcd",
            Trouble::TlsOnly => "use https:// in the endpoint",
            Trouble::NotEtcd(_) => "is the port etcd's client port?",
            Trouble::NoLeader => "are most members of the cluster running, and do they reach each other?",
            _ => return None,
        })
    }
}

/// A trouble and the endpoint that has it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{address}: {trouble}")]
pub(super) struct MemberTrouble {
    pub(super) address: String,
    pub(super) trouble: Trouble,
}

/// What stood in the way at every endpoint that was tried; the source of `StoreError::Unreachable`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Troubles(pub(super) Vec<MemberTrouble>);

impl Troubles {
    /// What the whole thing amounts to for the caller.
    pub(super) fn into_store_error(self) -> StoreError {
        let address = self.0.iter().map(|member| member.address.as_str()).collect::<Vec<_>>().join(",");
        if !self.0.is_empty() && self.0.iter().all(|member| member.trouble.is_denial()) {
            let reason = self.0[0].trouble.to_string();
            return StoreError::AccessDenied { address, reason, hint: None };
        }
        StoreError::Unreachable { address, source: Box::new(self) }
    }

    pub(super) fn hint(&self) -> Option<&'static str> {
        self.0.iter().find_map(|member| member.trouble.hint())
    }
}

impl Error for Troubles {}

/// The address of a lone endpoint is left out: `Unreachable` names it already.
impl fmt::Display for Troubles {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let [member] = self.0.as_slice() {
            return write!(f, "{}", member.trouble);
        }
        for (position, member) in self.0.iter().enumerate() {
            let separator = if position == 0 { "" } else { "; " };
            write!(f, "{separator}{member}")?;
        }
        Ok(())
    }
}

fn recognise(error: &(dyn Error + 'static)) -> Option<Trouble> {
    if let Some(trouble) = error.downcast_ref::<Trouble>() {
        return Some(trouble.clone());
    }
    if let Some(error) = error.downcast_ref::<rustls::Error>() {
        return Some(of_tls(error));
    }
    if let Some(error) = error.downcast_ref::<io::Error>() {
        return of_io(error);
    }
    of_text(&error.to_string())
}

fn of_io(error: &io::Error) -> Option<Trouble> {
    // An io::Error does not name the error it wraps as its source.
    if let Some(trouble) = error.get_ref().and_then(|inner| recognise(inner)) {
        return Some(trouble);
    }
    match error.kind() {
        io::ErrorKind::ConnectionRefused => Some(Trouble::Refused),
        io::ErrorKind::TimedOut => Some(Trouble::TimedOut),
        io::ErrorKind::HostUnreachable
        | io::ErrorKind::NetworkUnreachable
        | io::ErrorKind::NetworkDown
        | io::ErrorKind::AddrNotAvailable => Some(Trouble::NoRoute(error.to_string())),
        _ => of_text(&error.to_string()),
    }
}

pub(super) fn of_tls(error: &rustls::Error) -> Trouble {
    use CertificateError as Bad;
    match error {
        rustls::Error::InvalidCertificate(bad) => match bad {
            Bad::UnknownIssuer | Bad::BadSignature => Trouble::UntrustedServer,
            Bad::Expired | Bad::ExpiredContext { .. } => Trouble::ServerExpired,
            Bad::NotValidYet | Bad::NotValidYetContext { .. } => Trouble::ServerNotYetValid,
            Bad::NotValidForName | Bad::NotValidForNameContext { .. } => Trouble::ServerNameMismatch,
            other => Trouble::ServerCertificate(other.to_string()),
        },
        rustls::Error::AlertReceived(alert) => of_alert(*alert),
        rustls::Error::InvalidMessage(InvalidMessage::InvalidContentType) => Trouble::PlainOnly,
        other => Trouble::Tls(other.to_string()),
    }
}

fn of_alert(alert: AlertDescription) -> Trouble {
    use AlertDescription as Alert;
    match alert {
        Alert::CertificateRequired => Trouble::ClientCertificateMissing,
        Alert::BadCertificate
        | Alert::UnsupportedCertificate
        | Alert::CertificateRevoked
        | Alert::CertificateExpired
        | Alert::CertificateUnknown
        | Alert::UnknownCA
        | Alert::AccessDenied => Trouble::ClientCertificateRejected(format!("{alert:?}")),
        other => Trouble::Tls(format!("the server says {other:?}")),
    }
}

/// HTTP/2 keeps only the text of what broke a connection.
fn of_text(text: &str) -> Option<Trouble> {
    const ALERT: &str = "received fatal alert: ";
    const ALERTS: [AlertDescription; 8] = [
        AlertDescription::CertificateRequired,
        AlertDescription::BadCertificate,
        AlertDescription::UnsupportedCertificate,
        AlertDescription::CertificateRevoked,
        AlertDescription::CertificateExpired,
        AlertDescription::CertificateUnknown,
        AlertDescription::UnknownCA,
        AlertDescription::AccessDenied,
    ];
    if let Some((_, alert)) = text.split_once(ALERT) {
        let known = ALERTS.into_iter().find(|known| alert.starts_with(&format!("{known:?}")));
        return Some(known.map_or_else(|| Trouble::Tls(format!("the server says {alert}")), of_alert));
    }
    // Our end found that what it received is not HTTP/2.
    if text.contains("connection error detected") {
        return Some(Trouble::NotEtcd(text.to_owned()));
    }
    if text.contains("failed to lookup address information") {
        return Some(Trouble::NameUnknown(text.to_owned()));
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An error of the transport's kind, which says nothing itself.
    #[derive(Debug, thiserror::Error)]
    #[error("transport error")]
    struct Transport(#[source] Box<dyn Error + Send + Sync>);

    fn io(kind: io::ErrorKind, inner: impl Into<Box<dyn Error + Send + Sync>>) -> Transport {
        Transport(Box::new(io::Error::new(kind, inner)))
    }

    #[test]
    fn the_cause_is_found_down_the_chain() {
        let refused = io::Error::from(io::ErrorKind::ConnectionRefused);
        let untrusted = rustls::Error::InvalidCertificate(CertificateError::UnknownIssuer);
        let cases = [
            (Transport(Box::new(Transport(Box::new(refused)))), Trouble::Refused),
            (io(io::ErrorKind::InvalidData, untrusted), Trouble::UntrustedServer),
            (
                io(io::ErrorKind::Other, "received fatal alert: CertificateRequired"),
                Trouble::ClientCertificateMissing,
            ),
            (
                Transport("error reading: received fatal alert: UnknownCA".into()),
                Trouble::ClientCertificateRejected("UnknownCA".to_owned()),
            ),
            (Transport("something else".into()), Trouble::Broken("something else".to_owned())),
        ];
        for (error, expected) in cases {
            assert_eq!(Trouble::of(&error), expected, "{error:?}");
        }
    }

    #[test]
    fn every_endpoint_is_named_with_its_trouble() {
        let at = |address: &str, trouble| MemberTrouble { address: address.to_owned(), trouble };
        let one = Troubles(vec![at("http://a:1", Trouble::Refused)]);
        assert_eq!(one.to_string(), "the connection was refused");
        let two = Troubles(vec![at("http://a:1", Trouble::Refused), at("http://b:2", Trouble::NoLeader)]);
        assert_eq!(two.to_string(), "http://a:1: the connection was refused; http://b:2: it knows no leader");
        assert!(matches!(two.into_store_error(), StoreError::Unreachable { address, .. }
            if address == "http://a:1,http://b:2"));
        let denied = Troubles(vec![at("http://a:1", Trouble::ClientCertificateMissing)]);
        assert!(matches!(denied.into_store_error(), StoreError::AccessDenied { .. }));
    }

    proptest::proptest! {
        #[test]
        fn any_text_has_a_trouble(text in ".*") {
            let _ = Trouble::of(&Transport(text.into()));
        }
    }
}
