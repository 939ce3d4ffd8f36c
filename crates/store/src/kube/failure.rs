//! What an API server refuses and what stands between us and it, in words an operator can act on.

use std::time::Duration;

use http::StatusCode;
use serde::Deserialize;

use model::Key;
use model::shell::quoted;

use super::client::Answer;
use crate::StoreError;
use crate::etcd::Trouble as Cause;

/// Why there was no usable answer; the source of `StoreError::Unreachable` and `StoreError::Uncertain`.
#[derive(Debug, thiserror::Error)]
pub(super) enum Trouble {
    #[error("{}", spoken(.0))]
    Connection(Cause),
    #[error("no answer in time")]
    TimedOut,
    #[error("it answered {status}: {message}")]
    Answered { status: u16, message: String, retry_after: Option<Duration> },
    #[error("it has too many requests and asks to try again later")]
    Busy { retry_after: Option<Duration> },
}

/// The causes are etcd's, and so is a word of them.
fn spoken(cause: &Cause) -> String {
    match cause {
        Cause::NotEtcd(said) => format!("it does not speak HTTP as an API server does ({said})"),
        cause => cause.to_string(),
    }
}

/// What to do about a refusal of who we are, before any request is looked at.
pub(super) const DENIED: &str = "the kubeconfig must name a client certificate that has not expired, with its key, and the API server \
     must trust the authority that signed it";

impl Trouble {
    pub(super) fn pause_asked_for(&self) -> Option<Duration> {
        match self {
            Trouble::Answered { retry_after, .. } | Trouble::Busy { retry_after } => *retry_after,
            Trouble::Connection(_) | Trouble::TimedOut => None,
        }
    }

    pub(super) fn is_out_of_reach(&self) -> bool {
        matches!(self, Trouble::Connection(Cause::Refused | Cause::NameUnknown(_) | Cause::NoRoute(_)))
    }

    pub(super) fn hint(&self) -> Option<&'static str> {
        Some(match self {
            Trouble::Connection(Cause::Refused) => {
                "is the API server running there, and is the address right?"
            }
            Trouble::Connection(Cause::TimedOut | Cause::NoRoute(_)) | Trouble::TimedOut => {
                "is the host up, and does a firewall let the API server's port through?"
            }
            Trouble::Connection(Cause::NameUnknown(_)) => {
                "check the server's name in the kubeconfig, and this machine's DNS"
            }
            Trouble::Connection(Cause::UntrustedServer | Cause::ServerCertificate(_)) => {
                "the kubeconfig must name the authority that signed the server's certificate \
                 (certificate-authority)"
            }
            Trouble::Connection(Cause::ServerExpired | Cause::ServerNotYetValid) => {
                "renew the server's certificate, or check the clocks of both machines"
            }
            Trouble::Connection(Cause::ServerNameMismatch) => {
                "use an address that the certificate names, or set tls-server-name in the kubeconfig"
            }
            Trouble::Connection(Cause::PlainOnly) => "use http:// as the server's address in the kubeconfig",
            Trouble::Connection(Cause::TlsOnly) => "use https:// as the server's address in the kubeconfig",
            Trouble::Connection(Cause::NotEtcd(_)) => {
                "is the server's address in the kubeconfig the API server's?"
            }
            Trouble::Busy { .. } => {
                "the API server limits requests (429); try again, or give this user a priority level"
            }
            Trouble::Answered { .. } => "look at the API server's log and at its etcd",
            Trouble::Connection(_) => return None,
        })
    }
}

/// A record takes two requests, and only the first was carried out: neither made nor not made.
#[derive(Debug, thiserror::Error)]
#[error("{key} was written, but not its status")]
pub(super) struct HalfWritten {
    pub(super) key: Key,
    pub(super) source: StoreError,
}

/// Kubernetes' description of a refusal.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Status {
    #[serde(default)]
    pub(super) message: String,
    #[serde(default)]
    pub(super) reason: String,
    #[serde(default)]
    pub(super) code: u16,
    #[serde(default)]
    pub(super) details: Details,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Details {
    #[serde(default)]
    pub(super) name: String,
    #[serde(default)]
    pub(super) kind: String,
    #[serde(default)]
    pub(super) retry_after_seconds: u64,
}

impl Status {
    /// What the body says. A proxy's page, or nothing, is its own message.
    pub(super) fn of(answer: &Answer) -> Status {
        let mut status: Status = serde_json::from_slice(&answer.body).unwrap_or_default();
        if status.message.is_empty() {
            let text = String::from_utf8_lossy(&answer.body);
            status.message = text.lines().next().unwrap_or_default().chars().take(200).collect();
        }
        status
    }

    /// The server could not ask a webhook of the cluster, so it has not carried out the request.
    pub(super) fn is_of_admission(&self) -> bool {
        self.message.contains("failed calling webhook")
    }
}

/// What became of a request that the server answered with a refusal nobody expected.
pub(super) fn refusal(address: &str, operation: &str, answer: &Answer) -> StoreError {
    let status = Status::of(answer);
    let message = status.message.clone();
    match answer.status {
        StatusCode::UNAUTHORIZED => StoreError::AccessDenied {
            address: address.to_owned(),
            reason: "it does not accept the credentials (401)".to_owned(),
            hint: Some(
                "renew the token or the client certificate that the kubeconfig names (in a pod without one: the service \
                 account's token), and check that it is this cluster's"
                    .to_owned(),
            ),
        },
        StatusCode::FORBIDDEN => forbidden(address, message),
        StatusCode::NOT_FOUND if status.details.kind == "namespaces" => {
            StoreError::Invalid { problem: message }
        }
        StatusCode::NOT_FOUND => StoreError::Unsupported {
            operation: format!(
                "do this ({operation}): the cluster does not serve that kind. Calico's CustomResourceDefinitions are \
                 missing, or of a version that does not have it. `kubectl get crd` lists them, and \
                 `plumb install --crds --apply` creates those that are missing. If the records are in the other of \
                 Calico's API groups, set CALICO_API_GROUP"
            ),
        },
        StatusCode::BAD_REQUEST | StatusCode::UNPROCESSABLE_ENTITY => {
            StoreError::Invalid { problem: message }
        }
        StatusCode::PAYLOAD_TOO_LARGE => {
            StoreError::Unsupported { operation: format!("take a record of this size: {message}") }
        }
        other => StoreError::Other {
            operation: operation.to_owned(),
            source: Box::new(Trouble::Answered { status: other.as_u16(), message, retry_after: None }),
        },
    }
}

/// The server's message names user, verb and resource.
fn forbidden(address: &str, message: String) -> StoreError {
    let hint = match Missing::of(&message) {
        Some(missing) if READS.contains(&missing.verb.as_str()) => {
            format!("grant it: {}; the ClusterRole plumb-reader allows all that is read", missing.grant())
        }
        Some(missing) => format!("grant it: {}", missing.grant()),
        None => policy(&message)
            .unwrap_or_else(|| "a rule of this cluster refuses it: the message names the rule".to_owned()),
    };
    StoreError::AccessDenied { address: address.to_owned(), reason: message, hint: Some(hint) }
}

const READS: [&str; 3] = ["get", "list", "watch"];

/// A right that a user lacks, as far as the server says what it was.
#[derive(Debug, PartialEq, Eq)]
struct Missing {
    user: String,
    verb: String,
    /// `pods/status`, `ippools.crd.projectcalico.org`: as kubectl spells it.
    resource: String,
    /// `None`: in the whole cluster.
    namespace: Option<String>,
}

impl Missing {
    fn of(message: &str) -> Option<Missing> {
        let quoted = |after: &str| {
            let (_, rest) = message.split_once(after)?;
            rest.split('"').nth(1).map(str::to_owned)
        };
        let (_, rest) = message.split_once(" cannot ")?;
        let (user, resource) = (quoted("User ")?, quoted("resource ")?);
        let group = quoted("API group ").filter(|group| !group.is_empty());
        Some(Missing {
            user,
            verb: rest.split(' ').next()?.to_owned(),
            resource: match (group, resource.split_once('/')) {
                (None, _) => resource,
                (Some(group), None) => format!("{resource}.{group}"),
                (Some(group), Some((resource, part))) => format!("{resource}.{group}/{part}"),
            },
            namespace: quoted("in the namespace "),
        })
    }

    /// The commands that grant it. Each right has a role of its own, so that granting the next one does not collide.
    fn grant(&self) -> String {
        let Missing { user, verb, resource, namespace } = self;
        let tame = |text: &str| -> String {
            let keep =
                |next: char| if next.is_ascii_alphanumeric() { next.to_ascii_lowercase() } else { '-' };
            text.chars().map(keep).collect()
        };
        let plural = resource.split('.').next().unwrap_or_default();
        let name = format!("plumb-{}-{}-{}", tame(verb), tame(plural), tame(user));
        let subject = match user.strip_prefix("system:serviceaccount:") {
            Some(account) => quoted(&format!("--serviceaccount={account}")),
            None => quoted(&format!("--user={user}")),
        };
        let (role, scope) = match namespace {
            Some(namespace) => ("role", format!(" {}", quoted(&format!("--namespace={namespace}")))),
            None => ("clusterrole", String::new()),
        };
        format!(
            "kubectl create {role} {name} --verb={} --resource={}{scope} && \
             kubectl create {role}binding {name} --{role}={name} {subject}{scope}",
            quoted(verb),
            quoted(resource)
        )
    }
}

/// Where an admission policy refused, no role helps.
fn policy(message: &str) -> Option<String> {
    let (_, rest) = message.split_once("ValidatingAdmissionPolicy '")?;
    let (name, _) = rest.split_once('\'')?;
    Some(format!(
        "the admission policy {name} forbids it; docs/kubernetes.md lists what a node's agent may write, and with which credential"
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_that_asks_for_a_pause_gets_it_before_the_next_list() {
        let refused = |trouble: Trouble| StoreError::Unreachable {
            address: "here".to_owned(),
            source: Box::new(trouble),
        };
        let asked = Some(Duration::from_secs(20));
        let mut pauses = crate::RelistPauses::default();
        for trouble in [
            Trouble::Busy { retry_after: asked },
            Trouble::Answered { status: 503, message: String::new(), retry_after: asked },
        ] {
            pauses.begin();
            assert!(pauses.before_next(&Err(refused(trouble))) >= Duration::from_secs(20));
        }
        assert!(!refused(Trouble::TimedOut).is_out_of_reach(), "a server that is busy answers late");
        assert!(refused(Trouble::Connection(Cause::Refused)).is_out_of_reach());
    }

    use proptest::prelude::*;

    #[test]
    fn what_is_missing_is_granted_by_a_command() {
        let message = "ippools.crd.projectcalico.org is forbidden: User \"system:serviceaccount:kube-system:plumb\" \
            cannot list resource \"ippools\" in API group \"crd.projectcalico.org\" at the cluster scope";
        let error = forbidden("https://a:1", message.to_owned());
        let hint = error.hint().unwrap();
        for words in
            ["--verb=list", "--resource=ippools.crd.projectcalico.org", "--serviceaccount=kube-system:plumb"]
        {
            assert!(hint.contains(words), "{hint}");
        }
        assert!(
            hint.contains("clusterrole plumb-list-ippools-system-serviceaccount-kube-system-plumb "),
            "{hint}"
        );
    }

    #[test]
    fn rights_in_a_namespace_and_to_parts_are_granted_as_narrowly() {
        let grant = |message: &str| Missing::of(message).map(|missing| missing.grant());
        let of_core = "nodes \"a\" is forbidden: User \"joe\" cannot patch resource \"nodes\" in API group \"\" at the cluster scope";
        assert!(grant(of_core).unwrap().contains("--verb=patch --resource=nodes &&"));
        let in_namespace = "pods \"a\" is forbidden: User \"joe's\" cannot patch resource \"pods/status\" in API group \"\" in the \
            namespace \"shop\"";
        assert_eq!(
            grant(in_namespace).unwrap(),
            "kubectl create role plumb-patch-pods-status-joe-s --verb=patch --resource=pods/status --namespace=shop && \
             kubectl create rolebinding plumb-patch-pods-status-joe-s --role=plumb-patch-pods-status-joe-s \
             '--user=joe'\\''s' --namespace=shop"
        );
        assert_eq!(grant("no"), None);
        let by_policy = "ipamblocks.crd.projectcalico.org \"x\" is forbidden: ValidatingAdmissionPolicy 'p' denied request: no";
        assert_eq!(grant(by_policy), None);
        let hint = |message: &str| forbidden("https://a", message.to_owned()).hint().unwrap().to_string();
        assert!(hint(by_policy).contains("the admission policy p forbids it"));
        assert!(hint("admission webhook \"w\" denied the request").contains("a rule of this cluster"));
    }

    #[test]
    fn a_policy_that_forbids_is_named() {
        let message = "pods \"web\" is forbidden: ValidatingAdmissionPolicy 'plumb-node-pods' with binding \
            'plumb-node-pods' denied request: the pod runs on another node";
        let hint = forbidden("https://a:1", message.to_owned()).hint().unwrap();
        assert!(hint.contains("policy plumb-node-pods forbids"), "{hint}");
        assert_eq!(policy("ValidatingAdmissionPolicy 'cut"), None);
    }

    #[test]
    fn nobody_is_told_of_etcd() {
        for cause in [Cause::NotEtcd("connection error detected".to_owned()), Cause::TlsOnly, Cause::Refused]
        {
            let trouble = Trouble::Connection(cause);
            let words = format!("{trouble} {}", trouble.hint().unwrap());
            assert!(!words.to_lowercase().contains("etcd"), "{words}");
        }
    }

    proptest! {
        #[test]
        fn any_refusal_is_put_into_words(status in 300_u16..600, body in any::<Vec<u8>>(), text in "\\PC*") {
            let status = StatusCode::from_u16(status).unwrap();
            for body in [body, text.clone().into_bytes(), serde_json::json!({ "message": text }).to_string().into()] {
                let error = refusal("https://a", "reading", &Answer { status, body: body.into() });
                prop_assert!(!error.to_string().is_empty());
                let _ = error.hint();
            }
        }
    }
}
