//! Certificates and keys, from files or texts to what the connection needs.

use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tonic::transport::{Certificate, ClientTlsConfig, Identity};

use super::{EtcdConfig, PemSource};
use crate::StoreError;

/// Where systems keep the authorities they trust. `SSL_CERT_FILE` goes before all of them.
const SYSTEM_AUTHORITIES: [&str; 4] = [
    "/etc/ssl/certs/ca-certificates.crt",
    "/etc/pki/tls/certs/ca-bundle.crt",
    "/etc/ssl/ca-bundle.pem",
    "/etc/ssl/cert.pem",
];

/// The TLS settings for `https` endpoints.
pub(super) fn client_tls(config: &EtcdConfig) -> Result<ClientTlsConfig, StoreError> {
    let authorities = match &config.ca {
        Some(ca) => authorities(ca)?,
        None => authorities(&system_authorities()?)?,
    };
    let tls = ClientTlsConfig::new().ca_certificate(Certificate::from_pem(authorities));
    Ok(match identity(config)? {
        Some(identity) => tls.identity(identity),
        None => tls,
    })
}

fn authorities(source: &PemSource) -> Result<Vec<u8>, StoreError> {
    let setting = named("etcd certificate authority", source);
    let pem = read(source, &setting)?;
    certificates(&pem, &setting)?;
    Ok(pem)
}

fn identity(config: &EtcdConfig) -> Result<Option<Identity>, StoreError> {
    let (cert, key) = match (&config.cert, &config.key) {
        (None, None) => return Ok(None),
        (Some(cert), Some(key)) => (cert, key),
        (Some(_), None) => return Err(bad("the etcd client certificate", "was given without its key")),
        (None, Some(_)) => return Err(bad("the etcd client key", "was given without its certificate")),
    };
    let cert_setting = named("etcd client certificate", cert);
    let cert_pem = read(cert, &cert_setting)?;
    let chain = certificates(&cert_pem, &cert_setting)?;
    let key_setting = named("etcd client key", key);
    let key_pem = read(key, &key_setting)?;
    let key = PrivateKeyDer::from_pem_slice(&key_pem)
        .map_err(|_| bad(&key_setting, "holds no private key in PEM form"))?;
    let provider = rustls::crypto::ring::default_provider();
    rustls::sign::CertifiedKey::from_der(chain, key, &provider).map_err(|error| match error {
        rustls::Error::InconsistentKeys(_) => bad(&key_setting, "does not belong to the client certificate"),
        other => bad(&key_setting, &format!("cannot be used: {other}")),
    })?;
    Ok(Some(Identity::from_pem(cert_pem, key_pem)))
}

fn system_authorities() -> Result<PemSource, StoreError> {
    let named = std::env::var_os("SSL_CERT_FILE").map(std::path::PathBuf::from);
    let usual = SYSTEM_AUTHORITIES.iter().map(std::path::PathBuf::from);
    named.into_iter().chain(usual).find(|path| path.is_file()).map(PemSource::File).ok_or_else(|| {
        bad("etcd certificate authority", "is not given, and this system has no list of trusted authorities")
    })
}

fn certificates(pem: &[u8], setting: &str) -> Result<Vec<CertificateDer<'static>>, StoreError> {
    let certificates: Vec<_> = CertificateDer::pem_slice_iter(pem)
        .collect::<Result<_, _>>()
        .map_err(|error| bad(setting, &format!("is not valid PEM: {error}")))?;
    if certificates.is_empty() {
        return Err(bad(setting, "holds no certificate in PEM form"));
    }
    Ok(certificates)
}

fn read(source: &PemSource, setting: &str) -> Result<Vec<u8>, StoreError> {
    match source {
        PemSource::Text(text) => Ok(text.clone().into_bytes()),
        PemSource::File(path) => {
            std::fs::read(path).map_err(|error| bad(setting, &format!("cannot be read: {error}")))
        }
    }
}

fn named(what: &str, source: &PemSource) -> String {
    match source {
        PemSource::File(path) => format!("{what} {}", path.display()),
        PemSource::Text(_) => format!("{what} (given inline)"),
    }
}

fn bad(setting: &str, problem: &str) -> StoreError {
    StoreError::BadSetting { setting: setting.to_owned(), problem: problem.to_owned() }
}
