//! How to reach an etcd cluster. Filled in by the programs from `ETCD_*` and `calicoctl.cfg`; nothing is read here.

use std::fmt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use super::endpoint::without_credentials;

/// Everything a connection needs. Passwords and key texts never show in its debug output.
#[derive(Clone, PartialEq, Eq)]
pub struct EtcdConfig {
    /// `http://host:port` or `https://host:port`, each a member of the same cluster. A missing scheme means
    /// `https` if any of `ca`, `cert`, `key` is given and `http` otherwise, which is also how etcdctl reads it.
    pub endpoints: Vec<String>,
    /// Used only together with `password`.
    pub username: Option<String>,
    pub password: Option<String>,
    /// Who must have signed the servers' certificates. Without it the system's authorities count.
    pub ca: Option<PemSource>,
    /// The client certificate, and after it any intermediates. Only together with `key`.
    pub cert: Option<PemSource>,
    pub key: Option<PemSource>,
    /// How long finding a member that answers may take, over all endpoints.
    pub connect_timeout: Duration,
    /// How long one request may take, with all its tries on several members.
    pub request_timeout: Duration,
}

impl EtcdConfig {
    /// The endpoints as they may be shown and logged.
    pub(crate) fn shown_endpoints(&self) -> Vec<String> {
        self.endpoints.iter().map(|endpoint| without_credentials(endpoint)).collect()
    }

    /// Endpoints to which user and password would go as plain text.
    pub(crate) fn open_endpoints(&self) -> Vec<String> {
        let has_credentials = self.username.is_some() && self.password.is_some();
        let has_tls = self.ca.is_some() || self.cert.is_some() || self.key.is_some();
        let is_open = |endpoint: &&String| {
            let scheme = endpoint.trim().split_once("://").map(|(scheme, _)| scheme.to_ascii_lowercase());
            scheme.map_or(!has_tls, |scheme| scheme == "http")
        };
        let open = self.endpoints.iter().filter(|_| has_credentials).filter(is_open);
        open.map(|endpoint| without_credentials(endpoint)).collect()
    }

    pub fn new(endpoints: impl IntoIterator<Item = impl Into<String>>) -> EtcdConfig {
        EtcdConfig { endpoints: endpoints.into_iter().map(Into::into).collect(), ..EtcdConfig::default() }
    }
}

impl Default for EtcdConfig {
    fn default() -> EtcdConfig {
        EtcdConfig {
            endpoints: Vec::new(),
            username: None,
            password: None,
            ca: None,
            cert: None,
            key: None,
            connect_timeout: Duration::from_secs(10),
            request_timeout: Duration::from_secs(10),
        }
    }
}

impl fmt::Debug for EtcdConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("EtcdConfig")
            .field("endpoints", &self.shown_endpoints())
            .field("username", &self.username)
            .field("password", &self.password.as_ref().map(|_| Hidden))
            .field("ca", &self.ca)
            .field("cert", &self.cert)
            .field("key", &self.key)
            .field("connect_timeout", &self.connect_timeout)
            .field("request_timeout", &self.request_timeout)
            .finish()
    }
}

/// Where a certificate or key comes from: a file, or its PEM text as `ETCD_CA_CERT` and the like carry it.
#[derive(Clone, PartialEq, Eq)]
pub enum PemSource {
    File(PathBuf),
    Text(String),
}

impl PemSource {
    pub fn file(path: impl AsRef<Path>) -> PemSource {
        PemSource::File(path.as_ref().to_owned())
    }
}

impl fmt::Debug for PemSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            PemSource::File(path) => f.debug_tuple("File").field(path).finish(),
            PemSource::Text(_) => f.debug_tuple("Text").field(&Hidden).finish(),
        }
    }
}

struct Hidden;

impl fmt::Debug for Hidden {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("(hidden)")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn debug_output_keeps_secrets() {
        let config = EtcdConfig {
            username: Some("root".into()),
            password: Some("swordfish".into()),
            ca: Some(PemSource::file("/etc/ca.pem")),
            key: Some(PemSource::Text("PRIVATE KEY".into())),
            ..EtcdConfig::new([
                "http://127.0.0.1:2379",
                "http://root:swordfish@h:2379",
                "root:swordfish@h:2379",
            ])
        };
        let shown = format!("{config:?}");
        assert!(shown.contains("root") && shown.contains("/etc/ca.pem") && shown.contains("2379"), "{shown}");
        assert!(!shown.contains("swordfish") && !shown.contains("PRIVATE"), "{shown}");
    }

    #[test]
    fn credentials_over_plain_http_are_noticed() {
        let open = |endpoint: &str, password: Option<&str>, ca: bool| {
            let config = EtcdConfig {
                username: Some("root".into()),
                password: password.map(str::to_owned),
                ca: ca.then(|| PemSource::file("/etc/ca.pem")),
                ..EtcdConfig::new([endpoint])
            };
            config.open_endpoints()
        };
        assert_eq!(open("http://h:2379", Some("x"), false), ["http://h:2379"]);
        assert_eq!(open("HTTP://h:2379", Some("x"), true), ["HTTP://h:2379"]);
        assert_eq!(open("h:2379", Some("x"), false), ["h:2379"]);
        for (endpoint, password, ca) in [
            ("https://h:2379", Some("x"), false),
            ("h:2379", Some("x"), true),
            ("http://h:2379", None, false),
        ] {
            assert!(open(endpoint, password, ca).is_empty(), "{endpoint}");
        }
    }
}
