//! Finds out whether a port that hung up on a plain request wants TLS.

use std::sync::Arc;
use std::time::Duration;

use rustls::pki_types::ServerName;
use rustls::{ClientConfig, ClientConnection, RootCertStore};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::time::timeout;

use super::endpoint::EndpointAddress;

const PATIENCE: Duration = Duration::from_secs(2);
/// First bytes of a TLS record that a server may answer a greeting with.
const TLS_ALERT: u8 = 0x15;
const TLS_HANDSHAKE: u8 = 0x16;

/// Greets the port in TLS and looks at the first byte of the answer. Nothing is trusted and nothing else is sent.
pub(super) async fn speaks_tls(address: &EndpointAddress) -> bool {
    timeout(PATIENCE, first_answer(address))
        .await
        .ok()
        .flatten()
        .is_some_and(|byte| byte == TLS_ALERT || byte == TLS_HANDSHAKE)
}

async fn first_answer(address: &EndpointAddress) -> Option<u8> {
    let mut stream = TcpStream::connect((address.host(), address.port())).await.ok()?;
    stream.write_all(&greeting(address.host())?).await.ok()?;
    stream.read_u8().await.ok()
}

fn greeting(host: &str) -> Option<Vec<u8>> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .ok()?
        .with_root_certificates(RootCertStore::empty())
        .with_no_client_auth();
    let name = ServerName::try_from(host.to_owned()).ok()?;
    let mut connection = ClientConnection::new(Arc::new(config), name).ok()?;
    let mut greeting = Vec::new();
    connection.write_tls(&mut greeting).ok()?;
    Some(greeting)
}
