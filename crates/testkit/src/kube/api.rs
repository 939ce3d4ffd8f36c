//! A few requests to an API server, one connection each. Tests write and read through it what the code under test must understand,
//! so it must not be that code.

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context as _, Result, bail, ensure};
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned};
use serde_json::{Value, json};

use crate::PATIENCE;
use crate::process::wait_until;

/// One user's way to the server.
#[derive(Clone, Debug)]
pub struct Api {
    address: SocketAddr,
    authority: PathBuf,
    token: String,
}

/// What the server said.
#[derive(Clone, Debug)]
pub struct Answer {
    pub status: u16,
    pub text: String,
}

impl Answer {
    pub fn json(&self) -> Value {
        serde_json::from_str(&self.text).unwrap_or_else(|error| panic!("{error}: {}", self.text))
    }
}

impl Api {
    /// For whoever has the token. `authority` is the file of the certificate that vouches for the server.
    pub fn new(address: SocketAddr, authority: &Path, token: &str) -> Api {
        Api { address, authority: authority.to_owned(), token: token.to_owned() }
    }

    /// The way of another process, by a kubeconfig that has a token.
    pub fn from_kubeconfig(path: &Path) -> Result<Api> {
        let config: Value = serde_json::from_slice(&std::fs::read(path)?)?;
        let cluster = &config["clusters"][0]["cluster"];
        let text = |value: &Value| value.as_str().map(str::to_owned).context("a kubeconfig with a token");
        let server = text(&cluster["server"])?;
        Ok(Api {
            address: server.trim_start_matches("https://").parse().context("a server's address and port")?,
            authority: text(&cluster["certificate-authority"])?.into(),
            token: text(&config["users"][0]["user"]["token"])?,
        })
    }

    pub fn get(&self, path: &str) -> Result<Answer> {
        self.request("GET", path, None)
    }

    /// The object at a path, which must exist.
    pub fn read(&self, path: &str) -> Result<Value> {
        Ok(expect_success("GET", path, self.get(path)?)?.json())
    }

    /// Creates an object in a collection.
    pub fn create(&self, path: &str, object: &Value) -> Result<Value> {
        Ok(expect_success("POST", path, self.request("POST", path, Some(object))?)?.json())
    }

    /// Replaces an object.
    pub fn replace(&self, path: &str, object: &Value) -> Result<Value> {
        Ok(expect_success("PUT", path, self.request("PUT", path, Some(object))?)?.json())
    }

    /// Removes an object or a whole collection.
    pub fn delete(&self, path: &str) -> Result<()> {
        expect_success("DELETE", path, self.request("DELETE", path, None)?).map(drop)
    }

    /// Changes part of an object. `how` is the kind of patch: `merge`, `strategic-merge`, `apply`.
    pub fn patch(&self, how: &str, path: &str, change: &Value) -> Result<Answer> {
        // JSON is YAML, too.
        let format = if how == "apply" { "yaml" } else { "json" };
        self.exchange("PATCH", path, &format!("application/{how}-patch+{format}"), Some(change))
    }

    /// Creates or changes the object of a manifest, as `kubectl apply --server-side` does. `query` may ask for a dry run.
    pub fn apply(&self, manifest: &Value, query: &str) -> Result<()> {
        let path = format!("{}?fieldManager=test{query}", path_of(manifest));
        expect_success("PATCH", &path, self.patch("apply", &path, manifest)?).map(drop)
    }

    /// A token of a service account, bound to a `Pod` (in the account's namespace) or a `Node`.
    pub fn token_of(&self, namespace: &str, account: &str, kind: &str, name: &str) -> Result<String> {
        let bound = json!({ "apiVersion": "v1", "kind": kind, "name": name });
        self.token(namespace, account, json!({ "boundObjectRef": bound, "expirationSeconds": 3600 }))
    }

    /// A token of a service account that is bound to nothing, as an operator has it.
    pub fn loose_token_of(&self, namespace: &str, account: &str) -> Result<String> {
        self.token(namespace, account, json!({ "expirationSeconds": 3600 }))
    }

    fn token(&self, namespace: &str, account: &str, spec: Value) -> Result<String> {
        let request = json!({ "spec": spec });
        let path = format!("/api/v1/namespaces/{namespace}/serviceaccounts/{account}/token");
        let answer = self.create(&path, &request)?;
        Ok(answer["status"]["token"].as_str().context("a token")?.to_owned())
    }

    /// Makes the server serve kinds, each by its CustomResourceDefinition, and waits until it does.
    pub fn define(&self, definitions: &[Value]) -> Result<()> {
        for definition in definitions {
            self.create("/apis/apiextensions.k8s.io/v1/customresourcedefinitions", definition)?;
        }
        for definition in definitions {
            let spec = &definition["spec"];
            let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
            let version = text(&spec["versions"][0]["name"]);
            let path = format!("/apis/{}/{version}/{}", text(&spec["group"]), text(&spec["names"]["plural"]));
            let is_served = || self.get(&path).is_ok_and(|answer| answer.status == 200);
            wait_until(&format!("{path} to be served"), is_served)?;
        }
        Ok(())
    }

    pub fn request(&self, method: &str, path: &str, body: Option<&Value>) -> Result<Answer> {
        self.exchange(method, path, "application/json", body)
    }

    fn exchange(&self, method: &str, path: &str, content: &str, body: Option<&Value>) -> Result<Answer> {
        let body = body.map(Value::to_string).unwrap_or_default();
        // Of version 1.0, so that the answer comes in one piece and its end is the connection's.
        let head = format!(
            "{method} {path} HTTP/1.0\r\nHost: {}\r\nAuthorization: Bearer {}\r\nAccept: application/json\r\n\
             Content-Type: {content}\r\nContent-Length: {}\r\n\r\n",
            self.address.ip(),
            self.token,
            body.len()
        );
        let mut stream = self.connect()?;
        stream.write_all(head.as_bytes())?;
        stream.write_all(body.as_bytes())?;
        stream.flush()?;
        let mut answer = Vec::new();
        match stream.read_to_end(&mut answer) {
            // Not every end of a connection is announced, and the length is checked below.
            Err(error) if error.kind() != std::io::ErrorKind::UnexpectedEof => return Err(error.into()),
            _ => {}
        }
        parse(&String::from_utf8(answer)?)
    }

    fn connect(&self) -> Result<StreamOwned<ClientConnection, TcpStream>> {
        let mut roots = RootCertStore::empty();
        roots.add(CertificateDer::from_pem_file(&self.authority).context("cannot read the authority")?)?;
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let config = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()?
            .with_root_certificates(roots)
            .with_no_client_auth();
        let name = ServerName::from(self.address.ip());
        let connection = ClientConnection::new(Arc::new(config), name)?;
        let stream = TcpStream::connect_timeout(&self.address, PATIENCE)?;
        stream.set_read_timeout(Some(PATIENCE))?;
        Ok(StreamOwned::new(connection, stream))
    }
}

/// Where an object is in the API.
fn path_of(manifest: &Value) -> String {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let (version, kind) = (text(&manifest["apiVersion"]), text(&manifest["kind"]));
    let (name, namespace) = (text(&manifest["metadata"]["name"]), text(&manifest["metadata"]["namespace"]));
    let plural = match kind.strip_suffix("Policy") {
        Some(start) => format!("{}policies", start.to_lowercase()),
        None => format!("{}s", kind.to_lowercase()),
    };
    // Kubernetes' oldest kinds belong to no group.
    let root = if version.contains('/') { "/apis" } else { "/api" };
    match namespace.is_empty() {
        true => format!("{root}/{version}/{plural}/{name}"),
        false => format!("{root}/{version}/namespaces/{namespace}/{plural}/{name}"),
    }
}

fn expect_success(method: &str, path: &str, answer: Answer) -> Result<Answer> {
    ensure!((200..300).contains(&answer.status), "{method} {path}: {} {}", answer.status, answer.text);
    Ok(answer)
}

fn parse(answer: &str) -> Result<Answer> {
    let Some((head, text)) = answer.split_once("\r\n\r\n") else { bail!("not an answer: {answer:?}") };
    let mut lines = head.lines();
    let status = lines.next().and_then(|line| line.split(' ').nth(1)).context("a status line")?;
    let length = lines.find_map(|line| {
        let (name, value) = line.split_once(": ")?;
        name.eq_ignore_ascii_case("content-length").then(|| value.parse::<usize>().ok())?
    });
    ensure!(length.is_none_or(|length| length == text.len()), "the answer was cut short: {answer:?}");
    Ok(Answer { status: status.parse()?, text: text.to_owned() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_are_read_to_their_announced_end() {
        let answer = parse("HTTP/1.0 200 OK\r\nContent-Length: 2\r\n\r\nok").unwrap();
        assert_eq!((answer.status, answer.text.as_str()), (200, "ok"));
        assert_eq!(parse("HTTP/1.0 404 Not Found\r\n\r\n{}").unwrap().status, 404);
        for broken in ["", "HTTP/1.0 200 OK", "HTTP/1.0 200 OK\r\nContent-Length: 3\r\n\r\nok"] {
            assert!(parse(broken).is_err(), "{broken:?}");
        }
    }
}
