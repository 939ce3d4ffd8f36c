//! The library's client, made anew when a certificate or a key is replaced that it was made of: such files are rotated while we run, and
//! the server goes on to refuse a connection that was opened with an old one.

use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::path::PathBuf;
use std::time::{Duration, Instant};

use kube_client::{Client, Config};
use tokio::sync::Mutex;

use super::config::Source;
use super::token::TokenFile;
use super::{dial, once};
use crate::StoreError;

/// How long the files count as unchanged. When the server refuses us they are read again at once.
const FRESH_FOR: Duration = Duration::from_secs(10);

#[derive(Debug)]
pub(super) struct Connection {
    source: Source,
    files: Vec<PathBuf>,
    made: Mutex<Made>,
}

struct Made {
    client: Client,
    /// Of what the client was made.
    contents: Vec<Option<u64>>,
    checked: Instant,
}

impl std::fmt::Debug for Made {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Made").field("checked", &self.checked).finish_non_exhaustive()
    }
}

impl Connection {
    /// `config`: what was loaded from the source.
    pub(super) async fn new(source: Source, config: Config) -> Result<Connection, StoreError> {
        let files = source.files();
        // Before the client is made: what changes in between is found the next time.
        let contents = contents(&files);
        let made = Made { client: dial::client(config).await?, contents, checked: Instant::now() };
        Ok(Connection { source, files, made: Mutex::new(made) })
    }

    pub(super) async fn client(&self) -> Client {
        let mut made = self.made.lock().await;
        if !self.files.is_empty() && made.checked.elapsed() >= FRESH_FOR {
            self.renew(&mut made).await;
        }
        made.client.clone()
    }

    /// The server has refused us, or we do not trust it. Whether there is another client now.
    pub(super) async fn has_changed(&self) -> bool {
        !self.files.is_empty() && self.renew(&mut *self.made.lock().await).await
    }

    /// Files that do not fit each other, as while they are being replaced, leave the last client in use.
    async fn renew(&self, made: &mut Made) -> bool {
        made.checked = Instant::now();
        let contents = contents(&self.files);
        if contents == made.contents {
            return false;
        }
        let loaded = self.source.load().await;
        let client = match loaded {
            Ok(mut config) => {
                // It is ours to send.
                drop(TokenFile::take_from(&mut config.auth_info));
                dial::client(config).await
            }
            Err(error) => Err(error),
        };
        match client {
            Ok(client) => {
                tracing::info!("connecting to the API server with the certificates that have been replaced");
                (made.client, made.contents) = (client, contents);
                true
            }
            Err(error) => {
                once::warn(format!(
                    "certificates for the API server have been replaced and cannot be used: {error}; the last ones stay in use"
                ));
                false
            }
        }
    }
}

/// What tells whether files have changed. Times do not: a mounted secret is replaced by turning a link.
fn contents(files: &[PathBuf]) -> Vec<Option<u64>> {
    let of = |path: &PathBuf| {
        let mut hasher = DefaultHasher::new();
        std::fs::read(path).ok()?.hash(&mut hasher);
        Some(hasher.finish())
    };
    files.iter().map(of).collect()
}
