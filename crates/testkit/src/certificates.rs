//! Certificates for servers and their clients, made anew for each test and each lab. Tests have their servers on loopback.

use std::path::{Path, PathBuf};

use anyhow::Result;
use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, DnType, ExtendedKeyUsagePurpose, IsCa, KeyPair,
    KeyUsagePurpose, date_time_ymd,
};

/// PEM files in one directory.
#[derive(Clone, Debug)]
pub struct Certificates {
    directory: PathBuf,
}

impl Certificates {
    /// Writes an authority, a server pair and a client pair, and the same of a stranger that nobody trusts.
    pub fn create(directory: impl AsRef<Path>) -> Result<Certificates> {
        let certificates = Certificates { directory: directory.as_ref().to_owned() };
        std::fs::create_dir_all(&certificates.directory)?;
        for (authority, server, client) in
            [("ca", "server", "client"), ("stranger-ca", "stranger-server", "stranger-client")]
        {
            let issuer = certificates.authority(authority)?;
            certificates.pair(named(server)?, server, &issuer)?;
            certificates.pair(named(client)?, client, &issuer)?;
            if authority == "ca" {
                certificates.pair(expired("expired-server")?, "expired-server", &issuer)?;
                certificates.pair(expired("expired-client")?, "expired-client", &issuer)?;
                let elsewhere = params("misnamed-server", &["elsewhere.example"])?;
                certificates.pair(elsewhere, "misnamed-server", &issuer)?;
                certificates.pair(admin()?, "admin", &issuer)?;
            }
        }
        Ok(certificates)
    }

    /// Writes an authority, a pair for a server that is reached at these addresses, and the pair `admin`.
    pub fn of_server(directory: impl AsRef<Path>, addresses: &[&str]) -> Result<Certificates> {
        let certificates = Certificates { directory: directory.as_ref().to_owned() };
        std::fs::create_dir_all(&certificates.directory)?;
        let issuer = certificates.authority("ca")?;
        certificates.pair(params("server", addresses)?, "server", &issuer)?;
        certificates.pair(admin()?, "admin", &issuer)?;
        Ok(certificates)
    }

    /// The certificate of `ca`, `server`, `client`, `admin`, `expired-server`, `expired-client`, `misnamed-server`,
    /// `stranger-ca`, `stranger-server` or `stranger-client`.
    pub fn cert(&self, name: &str) -> PathBuf {
        self.directory.join(format!("{name}.pem"))
    }

    pub fn key(&self, name: &str) -> PathBuf {
        self.directory.join(format!("{name}-key.pem"))
    }

    fn authority(&self, name: &str) -> Result<CertifiedIssuer<'static, KeyPair>> {
        let mut params = named(name)?;
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
        let issuer = CertifiedIssuer::self_signed(params, KeyPair::generate()?)?;
        std::fs::write(self.cert(name), issuer.pem())?;
        Ok(issuer)
    }

    fn pair(
        &self,
        mut params: CertificateParams,
        name: &str,
        issuer: &CertifiedIssuer<'_, KeyPair>,
    ) -> Result<()> {
        // Both, because etcd's server also calls itself as a client.
        params.extended_key_usages =
            vec![ExtendedKeyUsagePurpose::ServerAuth, ExtendedKeyUsagePurpose::ClientAuth];
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        let key = KeyPair::generate()?;
        std::fs::write(self.cert(name), params.signed_by(&key, issuer)?.pem())?;
        std::fs::write(self.key(name), key.serialize_pem())?;
        Ok(())
    }
}

fn admin() -> Result<CertificateParams> {
    let mut admin = named("admin")?;
    // Kubernetes' group of those who may do everything.
    admin.distinguished_name.push(DnType::OrganizationName, "system:masters");
    Ok(admin)
}

fn named(name: &str) -> Result<CertificateParams> {
    params(name, &["localhost", "127.0.0.1", "::1"])
}

fn expired(name: &str) -> Result<CertificateParams> {
    let mut params = named(name)?;
    params.not_before = date_time_ymd(2019, 1, 1);
    params.not_after = date_time_ymd(2020, 1, 1);
    Ok(params)
}

fn params(name: &str, hosts: &[&str]) -> Result<CertificateParams> {
    let mut params = CertificateParams::new(hosts.iter().map(|&host| host.to_owned()).collect::<Vec<_>>())?;
    params.distinguished_name.push(DnType::CommonName, name);
    params.not_before = date_time_ymd(2020, 1, 1);
    params.not_after = date_time_ymd(2120, 1, 1);
    Ok(params)
}
