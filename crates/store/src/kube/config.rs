//! Which API server, as whom: a kubeconfig, or the service account of the pod we run in.

use std::path::{Path, PathBuf};

use kube_client::Config;
use kube_client::config::{KubeConfigOptions, Kubeconfig, KubeconfigError};

use crate::StoreError;

/// How to reach a cluster.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct KubeConfig {
    /// A file, or several joined by `:` as in `KUBECONFIG`. `None`: the service account if we run in a pod, else the file in
    /// the home directory.
    pub kubeconfig: Option<PathBuf>,
    /// Another context than the file's current one.
    pub context: Option<String>,
    /// Calico's `CALICO_API_GROUP`: decides which API group keeps the records. `None`: what the cluster serves decides.
    pub api_group: Option<String>,
    /// Another address of the API server than the kubeconfig's.
    pub api_endpoint: Option<String>,
}

impl KubeConfig {
    pub(super) async fn load(&self) -> Result<Config, StoreError> {
        let mut loaded = self.load_file().await?;
        if let Some(endpoint) = &self.api_endpoint {
            let setting = || format!("the address {endpoint:?} of the API server");
            loaded.cluster_url = endpoint.parse().map_err(|error| invalid(setting(), &error))?;
        }
        Ok(loaded)
    }

    async fn load_file(&self) -> Result<Config, StoreError> {
        let options = KubeConfigOptions { context: self.context.clone(), ..KubeConfigOptions::default() };
        match &self.kubeconfig {
            Some(paths) => {
                let setting = || format!("the kubeconfig {}", paths.display());
                let merged = read_all(paths).map_err(|error| invalid(setting(), &error))?;
                let loaded = Config::from_custom_kubeconfig(merged, &options).await;
                loaded.map_err(|error| invalid(setting(), &error))
            }
            None if is_in_cluster() => Config::incluster()
                .map_err(|error| invalid("the service account of this pod".to_owned(), &error)),
            None => Config::from_kubeconfig(&options)
                .await
                .map_err(|error| invalid("the kubeconfig of this user".to_owned(), &error)),
        }
    }
}

/// Several files are one: the first that names a thing decides.
fn read_all(paths: &Path) -> Result<Kubeconfig, KubeconfigError> {
    let mut merged: Option<Kubeconfig> = None;
    for path in std::env::split_paths(paths).filter(|path| !path.as_os_str().is_empty()) {
        let read = Kubeconfig::read_from(path)?;
        merged = Some(match merged {
            Some(before) => before.merge(read)?,
            None => read,
        });
    }
    merged.ok_or(KubeconfigError::FindPath)
}

fn is_in_cluster() -> bool {
    std::env::var_os("KUBERNETES_SERVICE_HOST").is_some_and(|host| !host.is_empty())
}

pub(super) fn invalid(setting: String, error: &(dyn std::error::Error + 'static)) -> StoreError {
    // The library's errors repeat their sources, so the text of the first is all.
    StoreError::BadSetting { setting, problem: format!("cannot be used: {error}") }
}
