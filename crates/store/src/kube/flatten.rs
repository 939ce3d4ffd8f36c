//! A kubeconfig for somebody else on this machine: one context, with the content of the files that it names.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use kube_client::config::{AuthInfo, Cluster, Context, Kubeconfig};

use super::config::{KubeConfig, cluster_of, context_of, put_cluster, put_user, user_of};
use crate::StoreError;

impl KubeConfig {
    /// The chosen context alone, as the text of a kubeconfig. It holds secrets.
    ///
    /// A file with a token stays a file, because its content is replaced from time to time.
    pub fn flattened(&self) -> Result<String, StoreError> {
        let Some((setting, mut kubeconfig)) = self.read()? else {
            return Err(StoreError::BadSetting {
                setting: "the service account of this pod".to_owned(),
                problem: "has a token that ends with the pod; name a kubeconfig with KUBECONFIG".to_owned(),
            });
        };
        let name = self.chosen_context(&setting, &kubeconfig)?;
        self.settings.put_into(&mut kubeconfig, &name);
        let bad = |problem: String| StoreError::BadSetting { setting: setting.clone(), problem };
        let cluster = cluster_of(&mut kubeconfig, &name).map(std::mem::take).unwrap_or_default();
        let user = user_of(&mut kubeconfig, &name).map(std::mem::take).unwrap_or_default();
        let context = context_of(&kubeconfig, &name).cloned().unwrap_or_default();
        let flat = only(&name, context, whole_cluster(cluster).map_err(bad)?, whole_user(user).map_err(bad)?);
        serde_json::to_string_pretty(&flat).map(|text| text + "\n").map_err(|error| bad(error.to_string()))
    }
}

/// Nothing else of the file: it may have credentials of other clusters.
fn only(name: &str, context: Context, cluster: Cluster, user: AuthInfo) -> Kubeconfig {
    let mut flat = Kubeconfig {
        api_version: Some("v1".to_owned()),
        kind: Some("Config".to_owned()),
        current_context: Some(name.to_owned()),
        ..Kubeconfig::default()
    };
    let named = kube_client::config::NamedContext {
        name: name.to_owned(),
        context: Some(context),
        ..Default::default()
    };
    flat.contexts.push(named);
    put_cluster(&mut flat, name, cluster);
    put_user(&mut flat, name, user);
    flat
}

fn whole_cluster(mut cluster: Cluster) -> Result<Cluster, String> {
    if let Some(path) = cluster.certificate_authority.take() {
        cluster.certificate_authority_data = cluster.certificate_authority_data.or(Some(content(&path)?));
    }
    Ok(cluster)
}

fn whole_user(mut user: AuthInfo) -> Result<AuthInfo, String> {
    if user.exec.is_some() || user.auth_provider.is_some() {
        return Err(
            "gets its credentials from a program, which a plugin cannot run; use a token or a certificate"
                .to_owned(),
        );
    }
    if let Some(path) = user.client_certificate.take() {
        user.client_certificate_data = user.client_certificate_data.or(Some(content(&path)?));
    }
    if let Some(path) = user.client_key.take() {
        user.client_key_data = match user.client_key_data {
            Some(data) => Some(data),
            None => Some(content(&path)?.into()),
        };
    }
    Ok(user)
}

fn content(path: &str) -> Result<String, String> {
    let read = std::fs::read(path).map_err(|error| format!("names {path}, which cannot be read: {error}"))?;
    Ok(STANDARD.encode(read))
}
