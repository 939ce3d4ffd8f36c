//! Finds out why a port hung up on us, by looking again with bare hands.
//!
//! A server that expects TLS closes a plain connection without a word, and the other way round; one that does not
//! like our certificate says so after the handshake is done on our side, where the transport no longer listens.
//! Nothing that matters is ever sent here.

use std::sync::Arc;
use std::time::Duration;

use rustls::pki_types::ServerName;
use rustls::{ClientConfig, ClientConnection, RootCertStore};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::time::timeout;

use super::endpoint::EndpointAddress;
use super::trouble::{Trouble, of_tls};

const PATIENCE: Duration = Duration::from_secs(2);
/// First bytes of a TLS record that a server may answer a greeting with.
const TLS_ALERT: u8 = 0x15;
const TLS_HANDSHAKE: u8 = 0x16;

/// The cause, if it shows. `handshake` is there for endpoints that are to speak TLS.
pub(super) async fn second_look(
    address: &EndpointAddress,
    handshake: Option<&Arc<ClientConfig>>,
) -> Option<Trouble> {
    let looking = async {
        match handshake {
            None => speaks_tls(address).await.then_some(Trouble::TlsOnly),
            Some(_) if speaks_plainly(address).await => Some(Trouble::PlainOnly),
            Some(config) => complaint(address, Arc::clone(config)).await,
        }
    };
    timeout(PATIENCE, looking).await.ok().flatten()
}

async fn dial(address: &EndpointAddress) -> Option<TcpStream> {
    TcpStream::connect((address.host(), address.port())).await.ok()
}

async fn speaks_tls(address: &EndpointAddress) -> bool {
    let config = ClientConfig::builder_with_provider(Arc::new(rustls::crypto::ring::default_provider()))
        .with_safe_default_protocol_versions()
        .map(|builder| builder.with_root_certificates(RootCertStore::empty()).with_no_client_auth());
    let answer = async {
        let mut connection = connection(address, Arc::new(config.ok()?))?;
        let mut greeting = Vec::new();
        connection.write_tls(&mut greeting).ok()?;
        first_byte_after(address, &greeting).await
    };
    matches!(answer.await, Some(TLS_ALERT | TLS_HANDSHAKE))
}

async fn speaks_plainly(address: &EndpointAddress) -> bool {
    first_byte_after(address, b"GET /version HTTP/1.0\r\n\r\n").await == Some(b'H')
}

async fn first_byte_after(address: &EndpointAddress, greeting: &[u8]) -> Option<u8> {
    let mut stream = dial(address).await?;
    stream.write_all(greeting).await.ok()?;
    stream.read_u8().await.ok()
}

/// Shakes hands and listens until the server complains or hangs up.
async fn complaint(address: &EndpointAddress, config: Arc<ClientConfig>) -> Option<Trouble> {
    let mut stream = dial(address).await?;
    let mut connection = connection(address, config)?;
    let mut received = [0; 4096];
    loop {
        let mut to_send = Vec::new();
        while connection.wants_write() {
            connection.write_tls(&mut to_send).ok()?;
        }
        stream.write_all(&to_send).await.ok()?;
        let length = stream.read(&mut received).await.ok().filter(|length| *length > 0)?;
        let mut rest = &received[..length];
        while !rest.is_empty() {
            connection.read_tls(&mut rest).ok()?;
            if let Err(error) = connection.process_new_packets() {
                return Some(of_tls(&error));
            }
        }
    }
}

fn connection(address: &EndpointAddress, config: Arc<ClientConfig>) -> Option<ClientConnection> {
    let name = ServerName::try_from(address.host().to_owned()).ok()?;
    ClientConnection::new(config, name).ok()
}
