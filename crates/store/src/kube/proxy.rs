//! The proxy on the way to the API server, chosen as kubectl does: the kubeconfig's, else the environment's unless it excepts the
//! server.

use std::net::IpAddr;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use http::{HeaderValue, Uri};
use model::Cidr;

use crate::StoreError;

/// The proxy for a server. `of_cluster`: what the kubeconfig says.
pub(super) fn choose(
    of_cluster: Option<&str>,
    server: &Uri,
    variable: &dyn Fn(&str) -> Option<String>,
) -> Result<Option<Uri>, StoreError> {
    let either = |upper: &str| {
        let set = variable(upper).filter(|value| !value.is_empty());
        set.or_else(|| variable(&upper.to_ascii_lowercase()).filter(|value| !value.is_empty()))
    };
    if let Some(proxy) = of_cluster.filter(|proxy| !proxy.is_empty()) {
        return parse("proxy-url of the kubeconfig", proxy).map(Some);
    }
    let name = if server.scheme_str() == Some("http") { "HTTP_PROXY" } else { "HTTPS_PROXY" };
    match either(name) {
        Some(proxy) if !is_excepted(server, &either("NO_PROXY").unwrap_or_default()) => {
            parse(name, &proxy).map(Some)
        }
        _ => Ok(None),
    }
}

fn parse(setting: &str, proxy: &str) -> Result<Uri, StoreError> {
    // As in Go, a name alone is a proxy that speaks HTTP.
    let whole = if proxy.contains("://") { proxy.to_owned() } else { format!("http://{proxy}") };
    whole.parse().map_err(|error: http::uri::InvalidUri| StoreError::BadSetting {
        setting: setting.to_owned(),
        problem: format!("is not the address of a proxy: {error}"),
    })
}

/// Whether the server is reached without the environment's proxy.
fn is_excepted(server: &Uri, exceptions: &str) -> bool {
    let host = server.host().unwrap_or_default().trim_matches(['[', ']']).to_ascii_lowercase();
    let address: Option<IpAddr> = host.parse().ok();
    if host == "localhost" || address.is_some_and(|address| address.is_loopback()) {
        return true;
    }
    let port = server.port_u16().unwrap_or(if server.scheme_str() == Some("http") { 80 } else { 443 });
    exceptions.split(',').map(|entry| entry.trim().to_ascii_lowercase()).any(|entry| {
        let entry = match entry.rsplit_once(':') {
            Some((name, digits)) if !name.contains(':') => match digits.parse::<u16>() {
                Ok(number) if number == port => name.to_owned(),
                _ => return false,
            },
            _ => entry,
        };
        covers(&entry, &host, address)
    })
}

fn covers(entry: &str, host: &str, address: Option<IpAddr>) -> bool {
    if entry == "*" {
        return true;
    }
    if let Some(address) = address {
        let network = Cidr::parse_masked(entry).ok().filter(|_| entry.contains('/'));
        return entry.parse() == Ok(address) || network.is_some_and(|network| network.contains(address));
    }
    let (name, is_of_domain) = match entry.strip_prefix("*.").or_else(|| entry.strip_prefix('.')) {
        Some(domain) => (domain, true),
        None => (entry, false),
    };
    let is_below = host.strip_suffix(name).is_some_and(|rest| rest.ends_with('.'));
    !name.is_empty() && (is_below || !is_of_domain && host == name)
}

/// Name and password in a proxy's address.
pub(super) fn credentials(proxy: &Uri) -> Option<(String, String)> {
    let (said, _) = proxy.authority()?.as_str().rsplit_once('@')?;
    let (name, password) = said.split_once(':').unwrap_or((said, ""));
    Some((unescaped(name), unescaped(password)))
}

/// The same, as a proxy that speaks HTTP wants it.
pub(super) fn basic(proxy: &Uri) -> Option<HeaderValue> {
    let (name, password) = credentials(proxy)?;
    let mut header =
        HeaderValue::try_from(format!("Basic {}", STANDARD.encode(format!("{name}:{password}")))).ok()?;
    header.set_sensitive(true);
    Some(header)
}

/// An address that can be shown.
pub(super) fn shown(proxy: &Uri) -> String {
    let host =
        proxy.authority().map_or("", |authority| authority.as_str().rsplit('@').next().unwrap_or_default());
    format!("{}://{host}", proxy.scheme_str().unwrap_or_default())
}

fn unescaped(text: &str) -> String {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes().iter();
    while let Some(&byte) = rest.next() {
        let digits = rest.as_slice().get(..2).filter(|_| byte == b'%');
        let escaped = digits.and_then(|digits| std::str::from_utf8(digits).ok());
        match escaped.and_then(|digits| u8::from_str_radix(digits, 16).ok()) {
            Some(escaped) => {
                bytes.push(escaped);
                rest.nth(1);
            }
            None => bytes.push(byte),
        }
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn chosen(of_cluster: Option<&str>, server: &str, variables: &[(&str, &str)]) -> Option<String> {
        let variable = |name: &str| {
            let set = variables.iter().find(|(known, _)| *known == name);
            set.map(|(_, value)| (*value).to_owned())
        };
        choose(of_cluster, &server.parse().unwrap(), &variable).unwrap().map(|proxy| proxy.to_string())
    }

    #[test]
    fn the_kubeconfig_comes_before_the_environment() {
        let both = [("HTTPS_PROXY", "http://env:1"), ("NO_PROXY", "*")];
        assert_eq!(
            chosen(Some("socks5://own:2"), "https://api:6443", &both).as_deref(),
            Some("socks5://own:2/")
        );
        assert_eq!(chosen(Some(""), "https://api:6443", &both), None);
        assert_eq!(
            chosen(None, "https://api", &[("https_proxy", "env:1")]).as_deref(),
            Some("http://env:1/")
        );
        assert_eq!(chosen(None, "http://api", &[("HTTPS_PROXY", "http://env:1")]), None);
        assert_eq!(
            chosen(None, "http://api", &[("HTTP_PROXY", "http://env:1")]).as_deref(),
            Some("http://env:1/")
        );
    }

    #[test]
    fn servers_that_the_environment_excepts_are_reached_directly() {
        for (server, exceptions, is_direct) in [
            ("https://127.0.0.1:6443", "", true),
            ("https://[::1]:6443", "", true),
            ("https://localhost:6443", "", true),
            ("https://10.0.0.1:6443", "", false),
            ("https://10.0.0.1:6443", "10.0.0.0/8", true),
            ("https://10.0.0.1:6443", "a, 10.0.0.1:6443", true),
            ("https://10.0.0.1:6443", "10.0.0.1:443", false),
            ("https://[fd00::1]:6443", "fd00::/8", true),
            ("https://api.example.com", "example.com", true),
            ("https://api.example.com", ".example.com", true),
            ("https://api.example.com", "*.example.com", true),
            ("https://example.com", ".example.com", false),
            ("https://badexample.com", "example.com", false),
            ("https://API.example.com", "api.EXAMPLE.com:443", true),
            ("https://api.example.com", ",,", false),
            ("https://api.example.com", "*", true),
        ] {
            let variables = [("HTTPS_PROXY", "http://env:1"), ("NO_PROXY", exceptions)];
            assert_eq!(chosen(None, server, &variables).is_none(), is_direct, "{server} {exceptions}");
        }
    }

    #[test]
    fn passwords_are_sent_and_not_shown() {
        let proxy: Uri = "http://joe:p%40ss@proxy:3128".parse().unwrap();
        assert_eq!(credentials(&proxy), Some(("joe".to_owned(), "p@ss".to_owned())));
        assert_eq!(basic(&proxy).unwrap(), "Basic am9lOnBAc3M=");
        assert_eq!(shown(&proxy), "http://proxy:3128");
        assert_eq!(credentials(&"http://proxy:3128".parse().unwrap()), None);
    }

    proptest! {
        #[test]
        fn any_environment_is_survived(proxy in "\\PC*", exceptions in "\\PC*", host in "[a-z.]{1,9}") {
            let server: Uri = format!("https://x{host}:6443").parse().unwrap();
            let variable = |name: &str| match name {
                "NO_PROXY" => Some(exceptions.clone()),
                "HTTPS_PROXY" => Some(proxy.clone()),
                _ => None,
            };
            if let Ok(Some(chosen)) = choose(None, &server, &variable) {
                let _ = (basic(&chosen), shown(&chosen));
            }
        }

        #[test]
        fn what_is_not_escaped_stays(text in "[^%]*") {
            prop_assert_eq!(unescaped(&text), text);
        }
    }
}
