//! Which store, and how to reach it: from flags, a file in calicoctl's format, or the environment.
//!
//! A configuration file that can be read is the only source besides flags; without one the environment is; where that names no store, on a
//! node that was installed, the settings of its agent are. Within a source, what is said outright decides; else etcd endpoints mean etcd; else a cluster around us, a
//! kubeconfig or a context mean Kubernetes; else the store is a SQLite file on this machine.

#![cfg_attr(not(test), deny(clippy::string_slice, clippy::indexing_slicing))]

mod settings;

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fmt;
use std::io;
use std::path::{Path, PathBuf};

use model::DevicePrefixes;
use model::settings::{SETTINGS_FILE, SettingsFileError, parse_settings_file};
use settings::Settings;

use crate::etcd::{EtcdConfig, PemSource};
use crate::kube::{KubeConfig, KubeSettings};

/// Where calicoctl looks for its configuration, and so do we.
pub const DEFAULT_CONFIG_FILE: &str = "/etc/calico/calicoctl.cfg";

/// Where the SQLite store lies if nobody says otherwise.
pub const DEFAULT_SQLITE_PATH: &str = "/var/lib/plumb/plumb.db";

/// Names another file with the settings of the node's agent.
pub const AGENT_SETTINGS_VARIABLE: &str = "PLUMB_AGENT_SETTINGS";

/// A store and how to reach it. Printing one shows no secret.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StoreConfig {
    Sqlite { path: PathBuf },
    Etcd(EtcdConfig),
    Kubernetes(KubeConfig),
}

/// Where to look. `Sources::of_process` is what a program wants; tests build their own.
pub struct Sources<'a> {
    /// What was said on the command line; it wins over every other source.
    pub overrides: Overrides,
    /// A file the operator named. It must be there.
    pub config_file: Option<PathBuf>,
    /// The file to read if none was named and it is there.
    pub default_config_file: PathBuf,
    pub environment: &'a dyn Fn(&str) -> Option<OsString>,
    /// The settings of this node's agent, to be used where nothing else names a store. They need not be there.
    pub agent_settings: Option<PathBuf>,
}

/// Settings from the command line.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Overrides {
    /// `sqlite`, `etcdv3` or `kubernetes`.
    pub datastore_type: Option<String>,
    pub sqlite_path: Option<PathBuf>,
    pub etcd_endpoints: Option<String>,
    pub kubeconfig: Option<PathBuf>,
    pub kube_context: Option<String>,
}

impl fmt::Debug for Overrides {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let endpoints = self.etcd_endpoints.as_deref().map(crate::etcd::list_without_credentials);
        f.debug_struct("Overrides")
            .field("datastore_type", &self.datastore_type)
            .field("sqlite_path", &self.sqlite_path)
            .field("etcd_endpoints", &endpoints)
            .field("kubeconfig", &self.kubeconfig)
            .field("kube_context", &self.kube_context)
            .finish()
    }
}

impl Overrides {
    /// The type that the flags name, or that one of them makes no sense without.
    fn meant_type(&self) -> Option<String> {
        let implied = match (&self.etcd_endpoints, &self.sqlite_path) {
            (Some(_), _) => Some("etcdv3"),
            (None, Some(_)) => Some("sqlite"),
            (None, None) => None,
        };
        self.datastore_type.clone().or(implied.map(str::to_owned))
    }
}

/// The store that was chosen, and why.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Selected {
    pub config: StoreConfig,
    pub reason: Reason,
    pub origin: Origin,
}

/// Where the settings came from, apart from flags.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Origin {
    ConfigFile(PathBuf),
    Environment,
    AgentSettings(PathBuf),
}

/// Why a store was chosen. A program that must not end up on a file of its own by accident looks at this.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reason {
    /// The type was named in a flag, in the file or in the environment.
    Named,
    /// The type follows from another setting, or from being inside a cluster.
    Implied,
    /// Nothing said anything: SQLite at its default place.
    Fallback,
}

#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    #[error("cannot read the configuration file {path}")]
    FileUnreadable {
        path: String,
        #[source]
        source: io::Error,
    },
    #[error("the configuration file {path} is not valid: {problem}")]
    FileInvalid { path: String, problem: String },
    #[error("cannot read the settings of this node's agent, {path}")]
    AgentSettingsUnreadable {
        path: String,
        #[source]
        source: io::Error,
    },
    #[error("the settings of this node's agent, {path}, are not valid: {problem}")]
    AgentSettingsInvalid { path: String, problem: SettingsFileError },
    #[error("the environment variable {0} is not UTF-8 text")]
    NotText(String),
    #[error("unknown datastore type {0:?}")]
    UnknownType(String),
    #[error("the datastore type is etcdv3, but no endpoints are given")]
    NoEndpoints,
    #[error("both etcd endpoints and an etcd discovery domain are given")]
    EndpointsAndDiscovery,
    #[error("etcd discovery through DNS SRV records ({0}) is not supported yet")]
    DiscoveryUnsupported(String),
    #[error("etcd certificates are given both inline and as files")]
    MixedCertificates,
    #[error("an etcd client certificate needs a key and a key needs a certificate; only the {0} is given")]
    HalfCertificate(&'static str),
    #[error(
        "usePodCIDR (USE_POD_CIDR) is on, but addresses from the pod CIDRs of Kubernetes' nodes are not supported"
    )]
    PodCidrs,
}

impl ConfigError {
    /// What the operator can do about it.
    pub fn hint(&self) -> Option<&'static str> {
        match self {
            ConfigError::FileUnreadable { .. } | ConfigError::NotText(_) => None,
            ConfigError::AgentSettingsUnreadable { .. } => Some(
                "only root may read them; run as root, or name the store with DATASTORE_TYPE, ETCD_ENDPOINTS or -c FILE",
            ),
            ConfigError::AgentSettingsInvalid { .. } => {
                Some("each line is NAME=value, as in an EnvironmentFile of systemd")
            }
            ConfigError::FileInvalid { .. } => Some(
                "the file needs `apiVersion: projectcalico.org/v3`, `kind: CalicoAPIConfig` and settings under `spec`",
            ),
            ConfigError::UnknownType(_) => Some("use one of sqlite, etcdv3, kubernetes"),
            ConfigError::NoEndpoints => {
                Some("set ETCD_ENDPOINTS, or etcdEndpoints in the configuration file")
            }
            ConfigError::EndpointsAndDiscovery => {
                Some("give only one of ETCD_ENDPOINTS and ETCD_DISCOVERY_SRV")
            }
            ConfigError::DiscoveryUnsupported(_) => Some("list the members in ETCD_ENDPOINTS instead"),
            ConfigError::MixedCertificates => Some(
                "use either etcdKey, etcdCert and etcdCACert, or etcdKeyFile, etcdCertFile and etcdCACertFile",
            ),
            ConfigError::HalfCertificate(_) => Some("give both the certificate and its key"),
            ConfigError::PodCidrs => Some(
                "move the cluster to Calico's IPAM (calico-ipam), or remove the setting if its addresses are from IP pools already",
            ),
        }
    }
}

impl StoreConfig {
    /// Chooses the store.
    pub fn from_sources(sources: &Sources<'_>) -> Result<Selected, ConfigError> {
        let (settings, origin) = sources.settings()?;
        let mut settings = settings.without_empty();
        let overrides = sources.overrides.clone();
        settings.datastore_type = overrides.meant_type().or(settings.datastore_type);
        settings.etcd_endpoints = overrides.etcd_endpoints.or(settings.etcd_endpoints);
        settings.k8s_current_context = overrides.kube_context.or(settings.k8s_current_context);
        let sqlite_path = overrides.sqlite_path.or(settings.sqlite_path.take().map(PathBuf::from));
        let in_cluster = !matches!(origin, Origin::AgentSettings(_))
            && (sources.environment)("KUBERNETES_SERVICE_HOST").is_some_and(|host| !host.is_empty());
        let (kind, reason) = chosen_kind(&settings, sqlite_path.is_some(), in_cluster)?;
        let config = match kind {
            DatastoreType::Sqlite => {
                StoreConfig::Sqlite { path: sqlite_path.unwrap_or_else(|| DEFAULT_SQLITE_PATH.into()) }
            }
            DatastoreType::Etcd => StoreConfig::Etcd(etcd_config(settings)?),
            DatastoreType::Kubernetes if settings.use_pod_cidr == Some(true) => {
                return Err(ConfigError::PodCidrs);
            }
            DatastoreType::Kubernetes => StoreConfig::Kubernetes(KubeConfig {
                kubeconfig: overrides.kubeconfig.or(settings.kubeconfig.map(PathBuf::from)),
                context: settings.k8s_current_context,
                api_group: settings.calico_api_group,
                settings: KubeSettings {
                    inline: settings.kubeconfig_inline,
                    server: settings.k8s_api_endpoint,
                    authority_file: settings.k8s_ca_file,
                    certificate_file: settings.k8s_cert_file,
                    key_file: settings.k8s_key_file,
                    token: settings.k8s_api_token,
                    skips_verification: settings.k8s_insecure_skip_tls_verify,
                },
                device_prefixes: (sources.environment)("FELIX_INTERFACEPREFIX")
                    .map(|text| DevicePrefixes::configured(&text.to_string_lossy()))
                    .unwrap_or_default(),
            }),
        };
        Ok(Selected { config, reason, origin })
    }
}

impl StoreConfig {
    /// What an operator should know before it is used: a warning in words, if there is one.
    pub fn warning(&self) -> Option<String> {
        match self {
            StoreConfig::Sqlite { .. } => None,
            StoreConfig::Etcd(etcd) => {
                let open = etcd.open_endpoints();
                (!open.is_empty()).then(|| {
                    format!(
                        "the user name and the password for etcd are sent unencrypted to {}: use https:// endpoints",
                        open.join(",")
                    )
                })
            }
            StoreConfig::Kubernetes(kube) => kube.warning(),
        }
    }
}

impl fmt::Display for StoreConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            StoreConfig::Sqlite { path } => write!(f, "SQLite file {}", path.display()),
            StoreConfig::Etcd(etcd) => write!(f, "etcd at {}", etcd.shown_endpoints().join(",")),
            StoreConfig::Kubernetes(KubeConfig { kubeconfig: Some(path), .. }) => {
                write!(f, "Kubernetes by {}", path.display())
            }
            StoreConfig::Kubernetes(KubeConfig {
                settings: KubeSettings { server: Some(server), .. },
                ..
            }) => {
                write!(f, "Kubernetes at {server}")
            }
            StoreConfig::Kubernetes(_) => f.write_str("Kubernetes"),
        }
    }
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Origin::ConfigFile(path) => write!(f, "{}", path.display()),
            Origin::Environment => f.write_str("the environment"),
            Origin::AgentSettings(path) => write!(f, "{}, the settings of this node's agent", path.display()),
        }
    }
}

impl Sources<'static> {
    /// What this process was given: the environment, the file at calicoctl's default place, and the settings of the node's agent, which
    /// `PLUMB_AGENT_SETTINGS` may name (empty: none).
    pub fn of_process(config_file: Option<PathBuf>, overrides: Overrides) -> Sources<'static> {
        Sources {
            overrides,
            config_file,
            default_config_file: DEFAULT_CONFIG_FILE.into(),
            environment: &|name| std::env::var_os(name),
            agent_settings: agent_settings_file(),
        }
    }
}

impl Sources<'_> {
    fn settings(&self) -> Result<(Settings, Origin), ConfigError> {
        let path = self.config_file.as_ref().unwrap_or(&self.default_config_file);
        match read_file(path) {
            Err(ConfigError::FileUnreadable { source, .. })
                if self.config_file.is_none() && source.kind() == io::ErrorKind::NotFound => {}
            read => return Ok((read?, Origin::ConfigFile(path.clone()))),
        }
        let environment = Settings::from_environment(self.environment)?;
        let is_chosen = self.overrides.meant_type().is_some() || self.overrides.kube_context.is_some();
        if environment.names_store() || is_chosen {
            return Ok((environment, Origin::Environment));
        }
        match &self.agent_settings {
            Some(path) => match read_agent_settings(path)? {
                Some(settings) => {
                    Ok((settings.with_identity_of(environment), Origin::AgentSettings(path.clone())))
                }
                None => Ok((environment, Origin::Environment)),
            },
            None => Ok((environment, Origin::Environment)),
        }
    }
}

/// Where the settings of this node's agent are, if they are to be looked for.
fn agent_settings_file() -> Option<PathBuf> {
    match std::env::var_os(AGENT_SETTINGS_VARIABLE) {
        None => Some(SETTINGS_FILE.into()),
        Some(path) => Some(PathBuf::from(path)).filter(|path| !path.as_os_str().is_empty()),
    }
}

/// One setting of this node's agent. `None` if it is not set, or if the settings are not there or not for us to read.
pub fn agent_setting(name: &str) -> Option<String> {
    let mut variables = read_variables(&agent_settings_file()?).ok()??;
    variables.remove(name).filter(|value| !value.is_empty())
}

fn read_agent_settings(path: &Path) -> Result<Option<Settings>, ConfigError> {
    let Some(variables) = read_variables(path)? else { return Ok(None) };
    Settings::from_environment(&|name| variables.get(name).map(OsString::from)).map(Some)
}

/// `None` if there are none: this is no node, or it was installed in another way.
fn read_variables(path: &Path) -> Result<Option<BTreeMap<String, String>>, ConfigError> {
    let shown = || path.display().to_string();
    let text = match std::fs::read_to_string(path) {
        Ok(text) => text,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(source) => return Err(ConfigError::AgentSettingsUnreadable { path: shown(), source }),
    };
    let invalid = |problem| ConfigError::AgentSettingsInvalid { path: shown(), problem };
    parse_settings_file(&text).map(Some).map_err(invalid)
}

impl fmt::Debug for Sources<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Sources")
            .field("overrides", &self.overrides)
            .field("config_file", &self.config_file)
            .finish_non_exhaustive()
    }
}

fn read_file(path: &Path) -> Result<Settings, ConfigError> {
    let text = std::fs::read_to_string(path)
        .map_err(|source| ConfigError::FileUnreadable { path: path.display().to_string(), source })?;
    Settings::from_file_text(&path.display().to_string(), &text)
}

#[derive(Clone, Copy)]
enum DatastoreType {
    Sqlite,
    Etcd,
    Kubernetes,
}

fn chosen_kind(
    settings: &Settings,
    sqlite_path_given: bool,
    in_cluster: bool,
) -> Result<(DatastoreType, Reason), ConfigError> {
    if let Some(name) = &settings.datastore_type {
        let kind = match name.as_str() {
            "sqlite" => DatastoreType::Sqlite,
            "etcdv3" => DatastoreType::Etcd,
            "kubernetes" => DatastoreType::Kubernetes,
            _ => return Err(ConfigError::UnknownType(name.clone())),
        };
        return Ok((kind, Reason::Named));
    }
    let kubernetes = in_cluster
        || settings.kubeconfig.is_some()
        || settings.kubeconfig_inline.is_some()
        || settings.k8s_api_endpoint.is_some()
        || settings.k8s_current_context.is_some();
    if settings.etcd_endpoints.is_some() || settings.etcd_discovery_srv.is_some() {
        Ok((DatastoreType::Etcd, Reason::Implied))
    } else if kubernetes {
        Ok((DatastoreType::Kubernetes, Reason::Implied))
    } else if sqlite_path_given {
        Ok((DatastoreType::Sqlite, Reason::Implied))
    } else {
        Ok((DatastoreType::Sqlite, Reason::Fallback))
    }
}

fn etcd_config(settings: Settings) -> Result<EtcdConfig, ConfigError> {
    let endpoints = match (&settings.etcd_endpoints, &settings.etcd_discovery_srv) {
        (Some(_), Some(_)) => return Err(ConfigError::EndpointsAndDiscovery),
        (None, Some(domain)) => return Err(ConfigError::DiscoveryUnsupported(domain.clone())),
        (None, None) => return Err(ConfigError::NoEndpoints),
        (Some(list), None) => parse_endpoints(list)?,
    };
    let inline = [settings.etcd_ca_cert, settings.etcd_cert, settings.etcd_key];
    let files = [settings.etcd_ca_cert_file, settings.etcd_cert_file, settings.etcd_key_file];
    let is_given = |set: &[Option<String>; 3]| set.iter().any(Option::is_some);
    let [ca, cert, key] = match (is_given(&inline), is_given(&files)) {
        (true, true) => return Err(ConfigError::MixedCertificates),
        (true, false) => inline.map(|text| text.map(PemSource::Text)),
        (false, _) => files.map(|path| path.map(PemSource::file)),
    };
    match (&cert, &key) {
        (Some(_), None) => return Err(ConfigError::HalfCertificate("certificate")),
        (None, Some(_)) => return Err(ConfigError::HalfCertificate("key")),
        _ => {}
    }
    let (username, password) = (settings.etcd_username, settings.etcd_password);
    Ok(EtcdConfig { username, password, ca, cert, key, ..EtcdConfig::new(endpoints) })
}

fn parse_endpoints(list: &str) -> Result<Vec<String>, ConfigError> {
    let endpoints: Vec<String> =
        list.split(',').map(str::trim).filter(|endpoint| !endpoint.is_empty()).map(str::to_owned).collect();
    if endpoints.is_empty() { Err(ConfigError::NoEndpoints) } else { Ok(endpoints) }
}

#[cfg(test)]
mod tests;
