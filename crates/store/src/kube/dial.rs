//! Connections to the API server: straight, or through the proxy that the kubeconfig names.
//!
//! One HTTP/2 connection carries all requests and watches. It is probed, so that a server that died without a word is noticed and
//! the next connection finds another one behind the same address.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use http::Uri;
use hyper_rustls::{FixedServerNameResolver, HttpsConnector, HttpsConnectorBuilder};
use hyper_util::client::legacy;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::client::legacy::connect::proxy::{SocksV5, Tunnel};
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use kube_client::client::{Body, ConfigExt as _};
use kube_client::{Client, Config};
use rustls::pki_types::ServerName;
use tokio::net::TcpStream;
use tower::{BoxError, Service, ServiceBuilder};

use super::config::invalid;
use super::{plugin, proxy};
use crate::StoreError;

/// What is to be put right where a program cannot give us any.
pub(super) const CREDENTIALS: &str = "the credential plugin of the kubeconfig";

const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
const PROBE_EVERY: Duration = Duration::from_secs(15);
const PROBE_TIMEOUT: Duration = Duration::from_secs(10);
/// How much may be under way for one watch whose reader is slow, and for all of them together: the slow ones must not use up
/// what the others need.
const STREAM_WINDOW: u32 = 512 * 1024;
const CONNECTION_WINDOW: u32 = 64 * STREAM_WINDOW;

/// A client for the server. Credentials are obtained here, by running a program if the kubeconfig says so.
pub(super) async fn client(config: Config) -> Result<Client, StoreError> {
    let loaded = tokio::task::spawn_blocking(move || {
        let layers = (config.auth_layer()?, config.extra_headers_layer()?);
        Ok((layers, config.rustls_client_config()?, config))
    });
    let ((auth, headers), tls, config) = loaded
        .await
        .map_err(|error| StoreError::Other {
            operation: "obtaining credentials".to_owned(),
            source: Box::new(error),
        })?
        .map_err(|error: kube_client::Error| match plugin::problem_in(&error) {
            Some(problem) => StoreError::BadSetting { setting: CREDENTIALS.to_owned(), problem },
            None => invalid("the kubeconfig".to_owned(), &error),
        })?;
    let connector = https(&config, tls)?;
    let mut builder = legacy::Client::builder(TokioExecutor::new());
    builder
        .timer(TokioTimer::new())
        .pool_timer(TokioTimer::new())
        .http2_initial_stream_window_size(STREAM_WINDOW)
        .http2_initial_connection_window_size(CONNECTION_WINDOW)
        .http2_keep_alive_interval(PROBE_EVERY)
        .http2_keep_alive_timeout(PROBE_TIMEOUT)
        .http2_keep_alive_while_idle(true);
    let service = ServiceBuilder::new()
        .layer(config.base_uri_layer())
        .option_layer(auth)
        .layer(headers)
        .map_err(BoxError::from)
        .service(builder.build::<_, Body>(connector));
    Ok(Client::new(service, config.default_namespace))
}

fn https(config: &Config, tls: rustls::ClientConfig) -> Result<HttpsConnector<Dial>, StoreError> {
    let mut builder = HttpsConnectorBuilder::new().with_tls_config(tls).https_or_http();
    if let Some(name) = &config.tls_server_name {
        let parsed = ServerName::try_from(name.clone())
            .map_err(|error| invalid(format!("tls-server-name {name:?} of the kubeconfig"), &error))?;
        builder = builder.with_server_name_resolver(FixedServerNameResolver::new(parsed));
    }
    Ok(builder.enable_http1().enable_http2().wrap_connector(Dial::new(config)?))
}

/// The way to the server. All of them end in a TCP connection.
#[derive(Clone, Debug)]
enum Dial {
    Straight(HttpConnector),
    Http(Tunnel<HttpConnector>),
    Socks(SocksV5<HttpConnector>),
}

impl Dial {
    fn new(config: &Config) -> Result<Dial, StoreError> {
        let mut tcp = HttpConnector::new();
        tcp.enforce_http(false);
        tcp.set_nodelay(true);
        tcp.set_connect_timeout(Some(CONNECT_TIMEOUT));
        tcp.set_keepalive(Some(PROBE_EVERY));
        let Some(proxy) = &config.proxy_url else { return Ok(Dial::Straight(tcp)) };
        match proxy.scheme_str() {
            Some("http") => {
                let tunnel = Tunnel::new(proxy.clone(), tcp);
                Ok(Dial::Http(match proxy::basic(proxy) {
                    Some(header) => tunnel.with_auth(header),
                    None => tunnel,
                }))
            }
            Some("socks5" | "socks5h") => {
                let socks = SocksV5::new(proxy.clone(), tcp);
                Ok(Dial::Socks(match proxy::credentials(proxy) {
                    Some((name, password)) => socks.with_auth(name, password),
                    None => socks,
                }))
            }
            _ => Err(StoreError::BadSetting {
                setting: format!("the proxy {}", proxy::shown(proxy)),
                problem: "is neither http:// nor socks5://".to_owned(),
            }),
        }
    }
}

impl Service<Uri> for Dial {
    type Response = TokioIo<TcpStream>;
    type Error = BoxError;
    type Future = Pin<Box<dyn Future<Output = Result<TokioIo<TcpStream>, BoxError>> + Send>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        match self {
            Dial::Straight(connector) => connector.poll_ready(context).map_err(Into::into),
            Dial::Http(connector) => connector.poll_ready(context).map_err(Into::into),
            Dial::Socks(connector) => connector.poll_ready(context).map_err(Into::into),
        }
    }

    fn call(&mut self, to: Uri) -> Self::Future {
        match self {
            Dial::Straight(connector) => boxed(connector.call(to)),
            Dial::Http(connector) => boxed(connector.call(to)),
            Dial::Socks(connector) => boxed(connector.call(to)),
        }
    }
}

fn boxed<E: Into<BoxError>>(
    connecting: impl Future<Output = Result<TokioIo<TcpStream>, E>> + Send + 'static,
) -> Pin<Box<dyn Future<Output = Result<TokioIo<TcpStream>, BoxError>> + Send>> {
    Box::pin(async move { connecting.await.map_err(Into::into) })
}
