//! Certificates and keys, from files or texts to what the connection needs.

use std::path::PathBuf;
use std::sync::Arc;

use rustls::crypto::ring::default_provider;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{ClientConfig, RootCertStore};
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

/// The TLS settings for `https` endpoints, twice: as the transport takes them, and for looking at a handshake
/// ourselves when the transport cannot say why it failed.
#[derive(Clone, Debug)]
pub(super) struct ClientTls {
    pub(super) transport: ClientTlsConfig,
    pub(super) handshake: Arc<ClientConfig>,
}

impl ClientTls {
    pub(super) fn new(config: &EtcdConfig) -> Result<ClientTls, StoreError> {
        let ca = match &config.ca {
            Some(ca) => ca.clone(),
            None => system_authorities()?,
        };
        let setting = named("etcd certificate authority", &ca);
        let ca_pem = read(&ca, &setting)?;
        let mut roots = RootCertStore::empty();
        roots.add_parsable_certificates(certificates(&ca_pem, &setting)?);
        let handshake = ClientConfig::builder_with_provider(Arc::new(default_provider()))
            .with_safe_default_protocol_versions()
            .map_err(|error| bad("TLS", &format!("cannot be set up: {error}")))?
            .with_root_certificates(roots);
        let transport = ClientTlsConfig::new().ca_certificate(Certificate::from_pem(ca_pem));
        let (transport, handshake) = match identity(config)? {
            None => (transport, handshake.with_no_client_auth()),
            Some(identity) => (
                transport.identity(Identity::from_pem(&identity.cert_pem, &identity.key_pem)),
                handshake
                    .with_client_auth_cert(identity.chain, identity.key)
                    .map_err(|error| unusable_key(&identity.key_setting, &error))?,
            ),
        };
        Ok(ClientTls { transport, handshake: Arc::new(handshake) })
    }
}

struct ClientIdentity {
    cert_pem: Vec<u8>,
    key_pem: Vec<u8>,
    key_setting: String,
    chain: Vec<CertificateDer<'static>>,
    key: PrivateKeyDer<'static>,
}

fn identity(config: &EtcdConfig) -> Result<Option<ClientIdentity>, StoreError> {
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
    Ok(Some(ClientIdentity { cert_pem, key_pem, key_setting, chain, key }))
}

fn unusable_key(setting: &str, error: &rustls::Error) -> StoreError {
    match error {
        rustls::Error::InconsistentKeys(_) => bad(setting, "does not belong to the client certificate"),
        other => bad(setting, &format!("cannot be used: {other}")),
    }
}

fn system_authorities() -> Result<PemSource, StoreError> {
    let named = std::env::var_os("SSL_CERT_FILE").map(PathBuf::from);
    let usual = SYSTEM_AUTHORITIES.iter().map(PathBuf::from);
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
