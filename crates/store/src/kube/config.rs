//! Which API server, as whom: a kubeconfig, single settings as calicoctl has them, or the service account of the pod we run in.

use std::fmt;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use kube_client::Config;
use kube_client::config::{
    AuthInfo, Cluster, Context, KubeConfigOptions, Kubeconfig, KubeconfigError, NamedAuthInfo, NamedCluster,
    NamedContext,
};

use model::DevicePrefixes;
use model::kube::Layout;
use model::settings::Setting;

use super::proxy;
use crate::StoreError;

/// What the parts of a kubeconfig are called that is made of single settings.
const OF_SETTINGS: &str = "settings";

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
    /// What comes before the kubeconfig, or takes its place.
    pub settings: KubeSettings,
    /// Felix's `FELIX_INTERFACEPREFIX`: a pod's device is named by it, unless the pod says otherwise.
    pub device_prefixes: DevicePrefixes,
}

/// Calico's settings for single parts of a kubeconfig, and one for its text.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct KubeSettings {
    pub inline: Option<String>,
    pub server: Option<String>,
    pub authority_file: Option<String>,
    pub certificate_file: Option<String>,
    pub key_file: Option<String>,
    pub token: Option<String>,
    pub skips_verification: Option<bool>,
}

/// Names what is set. A token, and the text of a kubeconfig, are secrets.
impl fmt::Debug for KubeSettings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("KubeSettings")
            .field("inline", &self.inline.as_ref().map(|_| ".."))
            .field("server", &self.server)
            .field("authority_file", &self.authority_file)
            .field("certificate_file", &self.certificate_file)
            .field("token", &self.token.as_ref().map(|_| ".."))
            .finish_non_exhaustive()
    }
}

impl KubeConfig {
    /// What an operator should know about these settings.
    pub(crate) fn warning(&self) -> Option<String> {
        let group = self.api_group.as_deref().filter(|group| !group.is_empty())?;
        let known = [Layout::V1, Layout::V3].map(Layout::api_version);
        let is_known = known.iter().any(|known| known.eq_ignore_ascii_case(group));
        (!is_known).then(|| {
            let [v1, v3] = known;
            format!("CALICO_API_GROUP is {group:?}, expected {v1} or {v3}; as Calico does, {v1} is used")
        })
    }

    /// What these settings amount to now. The files that they name are read later, and again.
    pub(super) fn source(&self) -> Result<Source, StoreError> {
        let Some((setting, mut kubeconfig)) = self.read()? else {
            return Ok(Source::ServiceAccount { server: self.settings.server.clone() });
        };
        let context = self.chosen_context(&setting, &kubeconfig)?;
        self.settings.put_into(&mut kubeconfig, &context);
        Ok(Source::Kubeconfig { setting, context, kubeconfig: Box::new(kubeconfig) })
    }

    /// What is to be read, and what it is called. `None`: the service account is meant.
    pub(super) fn read(&self) -> Result<Option<(String, Kubeconfig)>, StoreError> {
        if let Some(paths) = &self.kubeconfig {
            return read_all(paths).map(|read| Some((named(paths), read)));
        }
        if let Some(text) = &self.settings.inline {
            let setting = "the kubeconfig in kubeconfigInline".to_owned();
            let parsed = Kubeconfig::from_yaml(text).map_err(|_| not_yaml(&setting, text))?;
            return Ok(Some((setting, parsed)));
        }
        if is_in_cluster() && !self.settings.has_credentials() {
            return Ok(None);
        }
        if self.settings.server.is_some() {
            return Ok(Some(("the settings of the API server".to_owned(), Kubeconfig::default())));
        }
        let Some(home) = std::env::home_dir() else {
            return Err(StoreError::BadSetting {
                setting: "the kubeconfig of this user".to_owned(),
                problem: "cannot be found, because HOME is not set; name one with KUBECONFIG".to_owned(),
            });
        };
        let path = home.join(".kube").join("config");
        read_one(&path).map(|read| Some((named(&path), read)))
    }

    pub(super) fn chosen_context(
        &self,
        setting: &str,
        kubeconfig: &Kubeconfig,
    ) -> Result<String, StoreError> {
        let bad = |problem: String| StoreError::BadSetting { setting: setting.to_owned(), problem };
        let known: Vec<&str> = kubeconfig.contexts.iter().map(|context| context.name.as_str()).collect();
        let current = kubeconfig.current_context.clone().filter(|name| !name.is_empty());
        let Some(name) = self.context.clone().or(current) else {
            if known.is_empty() && self.settings.server.is_some() {
                return Ok(OF_SETTINGS.to_owned());
            }
            let how = "choose one with --context, or with kubectl config use-context";
            return Err(bad(format!("has no current context; {how}. It has {}", listed(&known))));
        };
        if !known.contains(&name.as_str()) {
            return Err(bad(format!("has no context {name:?}; it has {}", listed(&known))));
        }
        Ok(name)
    }
}

/// What a connection is made of.
#[derive(Debug)]
pub(super) enum Source {
    ServiceAccount { server: Option<String> },
    Kubeconfig { setting: String, context: String, kubeconfig: Box<Kubeconfig> },
}

impl Source {
    /// With the content of the files.
    pub(super) async fn load(&self) -> Result<Config, StoreError> {
        let (setting, context, mut kubeconfig) = match self {
            Source::ServiceAccount { server } => return of_service_account(server.as_deref()),
            Source::Kubeconfig { setting, context, kubeconfig } => (setting, context, (**kubeconfig).clone()),
        };
        // The library asks whether its proxy is excepted from being proxied, so it is not asked.
        let of_cluster = cluster_of(&mut kubeconfig, context).and_then(|cluster| cluster.proxy_url.take());
        let options = KubeConfigOptions { context: Some(context.clone()), ..KubeConfigOptions::default() };
        let loaded = Config::from_custom_kubeconfig(kubeconfig, &options).await;
        let mut config = loaded
            .map_err(|error| StoreError::BadSetting { setting: setting.clone(), problem: words(&error) })?;
        config.proxy_url = proxy::choose(of_cluster.as_deref(), &config.cluster_url, &listed_variable)?;
        Ok(config)
    }

    /// The files with certificates and keys. Those of a service account the library reads again.
    pub(super) fn files(&self) -> Vec<PathBuf> {
        let Source::Kubeconfig { context, kubeconfig, .. } = self else { return Vec::new() };
        let mut kubeconfig = (**kubeconfig).clone();
        let cluster = cluster_of(&mut kubeconfig, context);
        let authority = cluster.and_then(|cluster| cluster.certificate_authority.take());
        let user = user_of(&mut kubeconfig, context).map(std::mem::take).unwrap_or_default();
        let named = [authority, user.client_certificate, user.client_key];
        named.into_iter().flatten().map(PathBuf::from).collect()
    }
}

fn of_service_account(server: Option<&str>) -> Result<Config, StoreError> {
    let setting = "the service account of this pod".to_owned();
    let mut config = Config::incluster().map_err(|error| invalid(setting, &error))?;
    if let Some(server) = server {
        let setting = || format!("the address {server:?} of the API server");
        config.cluster_url = server.parse().map_err(|error| invalid(setting(), &error))?;
    }
    Ok(config)
}

impl KubeSettings {
    fn has_credentials(&self) -> bool {
        self.token.is_some() || self.certificate_file.is_some()
    }

    /// Single settings come before what the kubeconfig says, as in Calico.
    pub(super) fn put_into(&self, kubeconfig: &mut Kubeconfig, context: &str) {
        if *self == (KubeSettings { inline: self.inline.clone(), ..KubeSettings::default() }) {
            return;
        }
        if !kubeconfig.contexts.iter().any(|known| known.name == context) {
            let whole = Context {
                cluster: OF_SETTINGS.to_owned(),
                user: Some(OF_SETTINGS.to_owned()),
                ..Context::default()
            };
            kubeconfig.contexts.push(NamedContext {
                name: context.to_owned(),
                context: Some(whole),
                ..NamedContext::default()
            });
        }
        let mut cluster = cluster_of(kubeconfig, context).map(std::mem::take).unwrap_or_default();
        let mut user = user_of(kubeconfig, context).map(std::mem::take).unwrap_or_default();
        set(&mut cluster.server, &self.server);
        if self.authority_file.is_some() {
            (cluster.certificate_authority, cluster.certificate_authority_data) =
                (self.authority_file.clone(), None);
        }
        set(&mut cluster.insecure_skip_tls_verify, &self.skips_verification);
        if self.certificate_file.is_some() || self.key_file.is_some() {
            (user.client_certificate, user.client_certificate_data) = (self.certificate_file.clone(), None);
            (user.client_key, user.client_key_data) = (self.key_file.clone(), None);
        }
        if let Some(token) = &self.token {
            user.token = Some(token.as_str().into());
            user.token_file = None;
            user.exec = None;
        }
        put_cluster(kubeconfig, context, cluster);
        put_user(kubeconfig, context, user);
    }
}

fn set<T: Clone>(field: &mut Option<T>, said: &Option<T>) {
    if said.is_some() {
        field.clone_from(said);
    }
}

pub(super) fn context_of<'k>(kubeconfig: &'k Kubeconfig, name: &str) -> Option<&'k Context> {
    kubeconfig.contexts.iter().find(|context| context.name == name)?.context.as_ref()
}

pub(super) fn cluster_of<'k>(kubeconfig: &'k mut Kubeconfig, context: &str) -> Option<&'k mut Cluster> {
    let name = context_of(kubeconfig, context)?.cluster.clone();
    kubeconfig.clusters.iter_mut().find(|cluster| cluster.name == name)?.cluster.as_mut()
}

pub(super) fn user_of<'k>(kubeconfig: &'k mut Kubeconfig, context: &str) -> Option<&'k mut AuthInfo> {
    let name = context_of(kubeconfig, context)?.user.clone()?;
    kubeconfig.auth_infos.iter_mut().find(|user| user.name == name)?.auth_info.as_mut()
}

pub(super) fn put_cluster(kubeconfig: &mut Kubeconfig, context: &str, cluster: Cluster) {
    let Some(name) = context_of(kubeconfig, context).map(|context| context.cluster.clone()) else { return };
    kubeconfig.clusters.retain(|known| known.name != name);
    kubeconfig.clusters.push(NamedCluster { name, cluster: Some(cluster), ..NamedCluster::default() });
}

pub(super) fn put_user(kubeconfig: &mut Kubeconfig, context: &str, user: AuthInfo) {
    let Some(chosen) = kubeconfig.contexts.iter_mut().find(|known| known.name == context) else { return };
    let Some(chosen) = &mut chosen.context else { return };
    let name = chosen.user.get_or_insert_with(|| OF_SETTINGS.to_owned()).clone();
    kubeconfig.auth_infos.retain(|known| known.name != name);
    kubeconfig.auth_infos.push(NamedAuthInfo { name, auth_info: Some(user), ..NamedAuthInfo::default() });
}

fn named(paths: &Path) -> String {
    format!("the kubeconfig {}", paths.display())
}

fn listed(names: &[&str]) -> String {
    if names.is_empty() { "none".to_owned() } else { names.join(", ") }
}

/// Several files are one: the first that names a thing decides. As with kubectl, some of several may be missing.
fn read_all(paths: &Path) -> Result<Kubeconfig, StoreError> {
    let paths: Vec<PathBuf> =
        std::env::split_paths(paths).filter(|path| !path.as_os_str().is_empty()).collect();
    let there: Vec<&PathBuf> = paths.iter().filter(|path| path.exists()).collect();
    let mut merged: Option<Kubeconfig> = None;
    for path in if there.is_empty() { paths.iter().collect() } else { there } {
        let read = read_one(path)?;
        merged = Some(match merged {
            Some(before) => before.merge(read).map_err(|error| invalid(named(path), &error))?,
            None => read,
        });
    }
    merged.ok_or_else(|| StoreError::BadSetting {
        setting: "KUBECONFIG".to_owned(),
        problem: "names no file".to_owned(),
    })
}

fn read_one(path: &Path) -> Result<Kubeconfig, StoreError> {
    Kubeconfig::read_from(path).map_err(|error| match error {
        KubeconfigError::Parse(_) => {
            not_yaml(&named(path), &std::fs::read_to_string(path).unwrap_or_default())
        }
        error => StoreError::BadSetting { setting: named(path), problem: words(&error) },
    })
}

/// The library would show the line, with a token or a key in it.
fn not_yaml(setting: &str, text: &str) -> StoreError {
    let options = serde_saphyr::options! { with_snippet: false };
    let parsed = serde_saphyr::from_str_with_options::<Kubeconfig>(text, options);
    let problem = parsed.err().map_or_else(|| "it is not YAML".to_owned(), |error| error.to_string());
    StoreError::BadSetting { setting: setting.to_owned(), problem: format!("is not valid: {problem}") }
}

fn words(error: &KubeconfigError) -> String {
    match error {
        KubeconfigError::ReadConfig(source, _) if source.kind() == ErrorKind::NotFound => {
            "does not exist; name another one with KUBECONFIG".to_owned()
        }
        KubeconfigError::ReadConfig(source, _) => format!("cannot be read: {source}"),
        KubeconfigError::LoadClusterOfContext(cluster) => {
            format!("has no cluster {cluster:?}, which its context refers to")
        }
        KubeconfigError::MissingClusterUrl => "has no server in its cluster".to_owned(),
        error => format!("cannot be used: {error}"),
    }
}

/// A variable of the environment, if `plumb install` would carry it over to the agent.
fn listed_variable(name: &str) -> Option<String> {
    debug_assert!(Setting::find(name).is_some(), "{name} has no row in model::settings::SETTINGS");
    Setting::find(name).and_then(|_| std::env::var(name).ok())
}

fn is_in_cluster() -> bool {
    std::env::var_os("KUBERNETES_SERVICE_HOST").is_some_and(|host| !host.is_empty())
}

pub(super) fn invalid(setting: String, error: &(dyn std::error::Error + 'static)) -> StoreError {
    // The library's errors repeat their sources, so the text of the first is all.
    StoreError::BadSetting { setting, problem: format!("cannot be used: {error}") }
}
