//! From the text of an endpoint to something that can be dialled.

use std::fmt;
use std::str::FromStr as _;

use tonic::codegen::http::Uri;

use crate::StoreError;

/// The text of an endpoint as it may be shown and logged: without the user and the password that somebody wrote into it.
pub(crate) fn without_credentials(text: &str) -> String {
    let Some((before, host)) = text.rsplit_once('@') else { return text.to_owned() };
    match before.split_once("://") {
        Some((scheme, _)) => format!("{scheme}://(hidden)@{host}"),
        None => format!("(hidden)@{host}"),
    }
}

/// A list of endpoints, parted by commas, as it may be shown.
pub(crate) fn list_without_credentials(list: &str) -> String {
    list.split(',').map(without_credentials).collect::<Vec<_>>().join(",")
}

/// One member's client address.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct EndpointAddress {
    uri: Uri,
}

impl EndpointAddress {
    /// Reads `[http[s]://]host:port[/]`. `tls_given` decides what a missing scheme means.
    pub(super) fn parse(text: &str, tls_given: bool) -> Result<EndpointAddress, StoreError> {
        let bad = |problem: &str| StoreError::BadSetting {
            setting: format!("etcd endpoint {:?}", without_credentials(text)),
            problem: problem.to_owned(),
        };
        let trimmed = text.trim();
        if trimmed.is_empty() {
            return Err(bad("is empty"));
        }
        let (scheme, rest) = match trimmed.split_once("://") {
            None => (if tls_given { "https" } else { "http" }, trimmed),
            Some((scheme, rest)) => (scheme, rest),
        };
        let scheme = scheme.to_ascii_lowercase();
        if scheme != "http" && scheme != "https" {
            return Err(bad("must start with http:// or https://"));
        }
        let authority = rest.trim_end_matches('/');
        if authority.contains(['/', '?', '#']) {
            return Err(bad("must be host:port, without a path"));
        }
        if authority.contains('@') {
            return Err(bad("must not hold a user name; give user and password apart"));
        }
        let uri = Uri::from_str(&format!("{scheme}://{authority}/"))
            .map_err(|_| bad("is not of the form http://host:port (an IPv6 address needs [ ])"))?;
        if uri.host().is_none_or(str::is_empty) {
            return Err(bad("has no host"));
        }
        if uri.port_u16().is_none_or(|port| port == 0) {
            // The colons of an IPv6 address are before its closing bracket.
            let port = authority.rsplit(']').next().and_then(|rest| rest.split_once(':'));
            return Err(bad(match port {
                Some((_, port)) if !port.is_empty() => "has a port that is not between 1 and 65535",
                _ => "has no port; etcd usually listens on 2379",
            }));
        }
        Ok(EndpointAddress { uri })
    }

    pub(super) fn uri(&self) -> &Uri {
        &self.uri
    }

    pub(super) fn is_tls(&self) -> bool {
        self.uri.scheme_str() == Some("https")
    }

    /// The host as a resolver wants it: without the brackets of an IPv6 address.
    pub(super) fn host(&self) -> &str {
        let host = self.uri.host().unwrap_or_default();
        host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host)
    }

    pub(super) fn port(&self) -> u16 {
        self.uri.port_u16().unwrap_or_default()
    }
}

impl fmt::Display for EndpointAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let scheme = self.uri.scheme_str().unwrap_or_default();
        write!(f, "{scheme}://{}", self.uri.authority().map_or("", |authority| authority.as_str()))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn endpoints_are_read_as_etcdctl_reads_them() {
        let cases = [
            ("http://127.0.0.1:2379", false, "http://127.0.0.1:2379"),
            ("https://etcd.example.org:2379/", false, "https://etcd.example.org:2379"),
            ("HTTPS://etcd:2379//", false, "https://etcd:2379"),
            (" http://[fd00::1]:2379 ", false, "http://[fd00::1]:2379"),
            ("etcd-0.etcd:2379", false, "http://etcd-0.etcd:2379"),
            ("etcd-0.etcd:2379", true, "https://etcd-0.etcd:2379"),
            ("http://plain:2379", true, "http://plain:2379"),
        ];
        for (text, tls_given, expected) in cases {
            let address = EndpointAddress::parse(text, tls_given).unwrap();
            assert_eq!(address.to_string(), expected, "{text}");
            assert_eq!(address.is_tls(), expected.starts_with("https"), "{text}");
        }
        assert_eq!(EndpointAddress::parse("[::1]:2379", false).unwrap().host(), "::1");
    }

    #[test]
    fn bad_endpoints_say_what_is_wrong() {
        let cases = [
            ("", "empty"),
            ("ftp://host:21", "http://"),
            ("unix:///run/etcd.sock", "http://"),
            ("http://host", "port"),
            ("http://host:0", "between 1 and 65535"),
            ("http://:2379", ""),
            ("http://host:2379/v3", "path"),
            ("http://user:hunter2@host:2379", "user"),
            ("user:hunter2@host:2379", "user"),
            ("http://user:hun@ter2/hunter2@host:2379", "path"),
            ("fd00::1:2379", ""),
            ("http://host:99999", "between 1 and 65535"),
            ("http://two words:2379", ""),
        ];
        for (text, expected) in cases {
            let error = EndpointAddress::parse(text, false).unwrap_err().to_string();
            assert!(error.contains(expected) && error.contains("endpoint"), "{text}: {error}");
            assert!(!error.contains("hunter2") && !error.contains("ter2"), "{error}");
        }
    }

    proptest! {
        #[test]
        fn any_text_is_read_or_refused(text in ".*", tls_given: bool) {
            if let Ok(address) = EndpointAddress::parse(&text, tls_given) {
                prop_assert_eq!(EndpointAddress::parse(&address.to_string(), false).unwrap(), address);
            }
        }
    }
}
