//! What an API server has on disk, and how it is started with it. A test's server and a lab's are the same, but for where they
//! listen and how long they live.

use std::ffi::OsString;
use std::fs::File;
use std::io::Write as _;
use std::net::IpAddr;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

use anyhow::Result;
use rcgen::KeyPair;
use serde_json::{Value, json};

use crate::certificates::Certificates;

/// The directory of one server.
#[derive(Clone, Debug)]
pub struct ServerFiles {
    directory: PathBuf,
    certificates: Certificates,
}

impl ServerFiles {
    /// The files are written here, except for the certificates, which exist.
    pub fn create(directory: &Path, certificates: Certificates) -> Result<ServerFiles> {
        // The pair that tokens of service accounts are signed with.
        let pair = KeyPair::generate()?;
        std::fs::write(directory.join("accounts.key"), pair.serialize_pem())?;
        std::fs::write(directory.join("accounts.pub"), pair.public_key_pem())?;
        Ok(ServerFiles { directory: directory.to_owned(), certificates })
    }

    pub fn certificates(&self) -> &Certificates {
        &self.certificates
    }

    pub fn log(&self) -> PathBuf {
        self.directory.join("apiserver.log")
    }

    /// Lines of users, as `--token-auth-file` takes them: token, name, UID, groups.
    pub fn write_tokens(&self, lines: &str) -> Result<()> {
        Ok(std::fs::write(self.directory.join("tokens.csv"), lines)?)
    }

    /// A kubeconfig for this server, or for a proxy before it, with a user as kubeconfig files describe one. Only its owner can
    /// read it.
    pub fn write_kubeconfig(&self, path: &Path, url: &str, user: Value) -> Result<()> {
        let config = json!({
            "apiVersion": "v1", "kind": "Config", "current-context": "test",
            "clusters": [{ "name": "test", "cluster": {
                "server": url, "certificate-authority": self.certificates.cert("ca") } }],
            "users": [{ "name": "test", "user": user }],
            "contexts": [{ "name": "test", "context": { "cluster": "test", "user": "test" } }],
        });
        let mut file = File::options().create(true).write(true).truncate(true).mode(0o600).open(path)?;
        Ok(file.write_all(config.to_string().as_bytes())?)
    }

    /// For a server without controllers: what those would make is not asked for.
    pub fn arguments(&self, etcd: &str, address: IpAddr, port: u16) -> Vec<OsString> {
        let file = |name: &str| self.directory.join(name);
        let mut arguments: Vec<OsString> = vec![
            format!("--etcd-servers={etcd}").into(),
            format!("--bind-address={address}").into(),
            format!("--advertise-address={address}").into(),
            format!("--secure-port={port}").into(),
        ];
        for (flag, path) in [
            ("--tls-cert-file", self.certificates.cert("server")),
            ("--tls-private-key-file", self.certificates.key("server")),
            ("--client-ca-file", self.certificates.cert("ca")),
            ("--token-auth-file", file("tokens.csv")),
            ("--service-account-key-file", file("accounts.pub")),
            ("--service-account-signing-key-file", file("accounts.key")),
            ("--cert-dir", file("certs")),
        ] {
            arguments.extend([flag.into(), path.into()]);
        }
        let fixed = [
            "--service-account-issuer=https://kubernetes.default.svc",
            "--authorization-mode=Node,RBAC",
            // Accounts and their tokens are made by controllers, and none runs here.
            "--disable-admission-plugins=ServiceAccount",
            "--endpoint-reconciler-type=none",
            "--service-cluster-ip-range=10.96.0.0/16",
            "--allow-privileged=true",
        ];
        arguments.extend(fixed.map(OsString::from));
        arguments
    }
}
