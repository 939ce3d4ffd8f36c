//! The settings of `calicoctl.cfg`, and the environment variables that stand for the same ones.

use std::ffi::OsString;
use std::fmt;

use model::settings::LONG_PREFIX;
use serde::Deserialize;

use super::ConfigError;

/// What one source said, as text. Whether it makes sense together is decided later, so that a wrong setting
/// can be named with the words of its source.
#[derive(Clone, Default, PartialEq, Deserialize)]
#[serde(default, rename_all = "camelCase", deny_unknown_fields)]
pub(crate) struct Settings {
    pub(crate) datastore_type: Option<String>,
    /// Our own; Calico has no such store.
    pub(crate) sqlite_path: Option<String>,

    pub(crate) etcd_endpoints: Option<String>,
    pub(crate) etcd_discovery_srv: Option<String>,
    pub(crate) etcd_username: Option<String>,
    pub(crate) etcd_password: Option<String>,
    pub(crate) etcd_key_file: Option<String>,
    pub(crate) etcd_cert_file: Option<String>,
    #[serde(rename = "etcdCACertFile")]
    pub(crate) etcd_ca_cert_file: Option<String>,
    pub(crate) etcd_key: Option<String>,
    pub(crate) etcd_cert: Option<String>,
    #[serde(rename = "etcdCACert")]
    pub(crate) etcd_ca_cert: Option<String>,

    pub(crate) kubeconfig: Option<String>,
    pub(crate) kubeconfig_inline: Option<String>,
    #[serde(rename = "k8sAPIEndpoint")]
    pub(crate) k8s_api_endpoint: Option<String>,
    #[serde(rename = "k8sKeyFile")]
    pub(crate) k8s_key_file: Option<String>,
    #[serde(rename = "k8sCertFile")]
    pub(crate) k8s_cert_file: Option<String>,
    #[serde(rename = "k8sCAFile")]
    pub(crate) k8s_ca_file: Option<String>,
    #[serde(rename = "k8sAPIToken")]
    pub(crate) k8s_api_token: Option<String>,
    #[serde(rename = "k8sInsecureSkipTLSVerify")]
    pub(crate) k8s_insecure_skip_tls_verify: Option<bool>,
    #[serde(rename = "k8sDisableNodePoll")]
    k8s_disable_node_poll: Option<bool>,
    #[serde(rename = "usePodCIDR")]
    pub(crate) use_pod_cidr: Option<bool>,
    #[serde(rename = "k8sClientQPS")]
    k8s_client_qps: Option<f32>,
    #[serde(rename = "k8sClientBurst")]
    k8s_client_burst: Option<i64>,
    #[serde(rename = "k8sCurrentContext")]
    pub(crate) k8s_current_context: Option<String>,
    #[serde(rename = "calicoAPIGroup")]
    pub(crate) calico_api_group: Option<String>,
}

impl Settings {
    /// Reads the variables that matter to a store this release has. `variable` gives the value of one
    /// environment variable; each is looked up with the prefix `CALICO_` first, then plain. Empty is unset.
    pub(crate) fn from_environment(
        variable: &dyn Fn(&str) -> Option<OsString>,
    ) -> Result<Settings, ConfigError> {
        let set = |name: String| match variable(&name).filter(|value| !value.is_empty()) {
            Some(value) => value.into_string().map(Some).map_err(|_| ConfigError::NotText(name)),
            None => Ok(None),
        };
        let get = |name: &str| match set(format!("{LONG_PREFIX}{name}"))? {
            Some(value) => Ok(Some(value)),
            None => set(name.to_owned()),
        };
        Ok(Settings {
            datastore_type: get("DATASTORE_TYPE")?,
            sqlite_path: get("SQLITE_PATH")?,
            etcd_endpoints: get("ETCD_ENDPOINTS")?,
            etcd_discovery_srv: get("ETCD_DISCOVERY_SRV")?,
            etcd_username: get("ETCD_USERNAME")?,
            etcd_password: get("ETCD_PASSWORD")?,
            etcd_key_file: get("ETCD_KEY_FILE")?,
            etcd_cert_file: get("ETCD_CERT_FILE")?,
            etcd_ca_cert_file: get("ETCD_CA_CERT_FILE")?,
            kubeconfig: get("KUBECONFIG")?,
            kubeconfig_inline: get("KUBECONFIG_INLINE")?,
            k8s_api_endpoint: get("K8S_API_ENDPOINT")?,
            k8s_key_file: get("K8S_KEY_FILE")?,
            k8s_cert_file: get("K8S_CERT_FILE")?,
            k8s_ca_file: get("K8S_CA_FILE")?,
            k8s_api_token: get("K8S_API_TOKEN")?,
            k8s_insecure_skip_tls_verify: get("K8S_INSECURE_SKIP_TLS_VERIFY")?.map(|word| is_true(&word)),
            k8s_current_context: get("K8S_CURRENT_CONTEXT")?,
            use_pod_cidr: get("USE_POD_CIDR")?.map(|word| is_true(&word)),
            calico_api_group: get("CALICO_API_GROUP")?,
            ..Settings::default()
        })
    }

    /// Reads a file in calicoctl's format, YAML or JSON (which is YAML too).
    pub(crate) fn from_file_text(path: &str, text: &str) -> Result<Settings, ConfigError> {
        let invalid = |problem: String| ConfigError::FileInvalid { path: path.to_owned(), problem };
        // Excerpts of the text in messages would show passwords and keys.
        let options = serde_saphyr::options! { with_snippet: false };
        let file: ConfigFile =
            serde_saphyr::from_str_with_options(text, options).map_err(|error| invalid(error.to_string()))?;
        if file.api_version != model::resource::API_VERSION {
            return Err(invalid(format!("unknown apiVersion {:?}", file.api_version)));
        }
        if file.kind != FILE_KIND {
            return Err(invalid(format!("expected kind {FILE_KIND:?}, got {:?}", file.kind)));
        }
        Ok(file.spec.unwrap_or_default())
    }

    /// Whether a store is named. Being inside a cluster, or having a kubeconfig, names none: an operator's shell has one for kubectl.
    pub(crate) fn names_store(&self) -> bool {
        let named = [&self.datastore_type, &self.sqlite_path, &self.etcd_endpoints, &self.etcd_discovery_srv];
        named.into_iter().any(Option::is_some)
    }

    /// Takes over whom to sign in as, if that is said at all: never one's name with the other's password.
    pub(crate) fn with_identity_of(mut self, other: Settings) -> Settings {
        let said = [&other.etcd_username, &other.etcd_password, &other.etcd_cert_file, &other.etcd_key_file];
        if said.into_iter().any(Option::is_some) {
            self.etcd_username = other.etcd_username;
            self.etcd_password = other.etcd_password;
            self.etcd_cert_file = other.etcd_cert_file;
            self.etcd_key_file = other.etcd_key_file;
        }
        self.etcd_ca_cert_file = other.etcd_ca_cert_file.or(self.etcd_ca_cert_file);
        self
    }

    /// Treats empty text as not given, as Calico does.
    pub(crate) fn without_empty(mut self) -> Settings {
        for field in [
            &mut self.datastore_type,
            &mut self.sqlite_path,
            &mut self.etcd_endpoints,
            &mut self.etcd_discovery_srv,
            &mut self.etcd_username,
            &mut self.etcd_password,
            &mut self.etcd_key_file,
            &mut self.etcd_cert_file,
            &mut self.etcd_ca_cert_file,
            &mut self.etcd_key,
            &mut self.etcd_cert,
            &mut self.etcd_ca_cert,
            &mut self.kubeconfig,
            &mut self.kubeconfig_inline,
            &mut self.k8s_api_endpoint,
            &mut self.k8s_key_file,
            &mut self.k8s_cert_file,
            &mut self.k8s_ca_file,
            &mut self.k8s_api_token,
            &mut self.k8s_current_context,
            &mut self.calico_api_group,
        ] {
            field.take_if(|text| text.is_empty());
        }
        self
    }
}

/// As Go reads a boolean from the environment.
fn is_true(word: &str) -> bool {
    matches!(word, "1" | "t" | "T" | "true" | "TRUE" | "True")
}

/// Names what is set, never what it is set to: passwords, keys and tokens are among it.
impl fmt::Debug for Settings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Settings")
            .field("datastore_type", &self.datastore_type)
            .field("sqlite_path", &self.sqlite_path)
            .field(
                "etcd_endpoints",
                &self.etcd_endpoints.as_deref().map(crate::etcd::list_without_credentials),
            )
            .finish_non_exhaustive()
    }
}

const FILE_KIND: &str = "CalicoAPIConfig";

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct ConfigFile {
    #[serde(default)]
    api_version: String,
    #[serde(default)]
    kind: String,
    #[serde(default, rename = "metadata")]
    _metadata: serde::de::IgnoredAny,
    spec: Option<Settings>,
}
