//! Every setting that the node agent takes from its environment: one table, which the agent reads by and `plumb install` writes by.
//!
//! The agent sees no variable that has no row here, so a new setting cannot work and yet be forgotten by the installer.

mod file;

pub use file::{SettingsFileError, parse_settings_file, quote_setting};

/// Where `plumb install` writes the agent's settings, and systemd and `plumb` read them.
pub const SETTINGS_FILE: &str = "/etc/default/plumbd";

/// What the agent may do beyond an ordinary process, and so the programs that it runs (`nft`, BIRD). Its systemd unit gives it these and
/// no others; `the_agent_works_with_the_capabilities_of_its_unit` holds that.
pub const AGENT_CAPABILITIES: [&str; 5] = [
    // Links, routes, neighbours, nftables, settings of the network.
    "CAP_NET_ADMIN",
    // BIRD's port 179.
    "CAP_NET_BIND_SERVICE",
    // Echo requests to other nodes, and BIRD's sockets.
    "CAP_NET_RAW",
    // Entering the network namespaces of pods.
    "CAP_SYS_ADMIN",
    // Reading to which network namespaces other processes belong.
    "CAP_SYS_PTRACE",
];

/// A variable of the agent's environment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Setting {
    pub name: &'static str,
    pub group: SettingGroup,
    pub carried: Carried,
    /// Nobody but root may see its value: it is shown in no output, log or world-readable file.
    pub is_secret: bool,
}

/// What a setting is about, in the order of the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum SettingGroup {
    Node,
    Store,
    Pools,
    Agent,
    Felix,
}

/// Whether the installer writes a variable that is set into the agent's settings.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Carried {
    Always,
    /// An operator's shell has it for kubectl; it is meant for the agent only if the store is named as Kubernetes.
    WithKubernetesStore,
    /// It describes where a process runs, and is set by whoever starts it.
    Never,
}

impl SettingGroup {
    pub const ALL: [SettingGroup; 5] = [
        SettingGroup::Node,
        SettingGroup::Store,
        SettingGroup::Pools,
        SettingGroup::Agent,
        SettingGroup::Felix,
    ];

    pub fn title(self) -> &'static str {
        match self {
            SettingGroup::Node => "This node",
            SettingGroup::Store => "The store",
            SettingGroup::Pools => "The default pools, created by the first node",
            SettingGroup::Agent => "The agent itself",
            SettingGroup::Felix => "Felix settings; they take precedence over FelixConfiguration records",
        }
    }
}

const fn of(group: SettingGroup, name: &'static str) -> Setting {
    Setting { name, group, carried: Carried::Always, is_secret: false }
}

const fn node(name: &'static str) -> Setting {
    of(SettingGroup::Node, name)
}

const fn store(name: &'static str) -> Setting {
    of(SettingGroup::Store, name)
}

const fn pool(name: &'static str) -> Setting {
    of(SettingGroup::Pools, name)
}

const fn agent(name: &'static str) -> Setting {
    of(SettingGroup::Agent, name)
}

const fn felix(name: &'static str) -> Setting {
    of(SettingGroup::Felix, name)
}

const fn secret(setting: Setting) -> Setting {
    Setting { is_secret: true, ..setting }
}

const fn kubernetes(setting: Setting) -> Setting {
    carried(Carried::WithKubernetesStore, setting)
}

const fn carried(carried: Carried, setting: Setting) -> Setting {
    Setting { carried, ..setting }
}

/// All of them. Those of the store are understood with [`LONG_PREFIX`] as well.
pub const SETTINGS: &[Setting] = &[
    node("NODENAME"),
    node("IP"),
    node("IP_AUTODETECTION_METHOD"),
    node("IP6"),
    node("IP6_AUTODETECTION_METHOD"),
    node("AUTODETECT_POLL_INTERVAL"),
    node("AS"),
    node("CALICO_K8S_NODE_REF"),
    node("CLUSTER_TYPE"),
    store("DATASTORE_TYPE"),
    store("SQLITE_PATH"),
    // It may carry a user and a password.
    secret(store("ETCD_ENDPOINTS")),
    store("ETCD_DISCOVERY_SRV"),
    store("ETCD_USERNAME"),
    secret(store("ETCD_PASSWORD")),
    store("ETCD_CA_CERT_FILE"),
    store("ETCD_CERT_FILE"),
    store("ETCD_KEY_FILE"),
    store("SSL_CERT_FILE"),
    kubernetes(store("KUBECONFIG")),
    secret(kubernetes(store("KUBECONFIG_INLINE"))),
    kubernetes(store("K8S_API_ENDPOINT")),
    secret(kubernetes(store("K8S_API_TOKEN"))),
    kubernetes(store("K8S_CA_FILE")),
    kubernetes(store("K8S_CERT_FILE")),
    kubernetes(store("K8S_KEY_FILE")),
    kubernetes(store("K8S_INSECURE_SKIP_TLS_VERIFY")),
    kubernetes(store("CALICO_API_GROUP")),
    kubernetes(store("K8S_CURRENT_CONTEXT")),
    kubernetes(store("USE_POD_CIDR")),
    carried(Carried::Never, store("KUBERNETES_SERVICE_HOST")),
    pool("NO_DEFAULT_POOLS"),
    pool("CALICO_IPV4POOL_CIDR"),
    pool("CALICO_IPV4POOL_BLOCK_SIZE"),
    pool("CALICO_IPV4POOL_IPIP"),
    pool("CALICO_IPV4POOL_VXLAN"),
    pool("CALICO_IPV4POOL_NAT_OUTGOING"),
    pool("CALICO_IPV4POOL_DISABLE_BGP_EXPORT"),
    pool("CALICO_IPV4POOL_NODE_SELECTOR"),
    pool("CALICO_IPV6POOL_CIDR"),
    pool("CALICO_IPV6POOL_BLOCK_SIZE"),
    pool("CALICO_IPV6POOL_VXLAN"),
    pool("CALICO_IPV6POOL_NAT_OUTGOING"),
    pool("CALICO_IPV6POOL_DISABLE_BGP_EXPORT"),
    pool("CALICO_IPV6POOL_NODE_SELECTOR"),
    agent("CALICO_NETWORKING_BACKEND"),
    agent("CALICO_ROUTER_ID"),
    agent("CONTAINER_RUNTIME_ENDPOINT"),
    // The way to the API server. A proxy's address may carry a user and a password.
    secret(kubernetes(agent("HTTPS_PROXY"))),
    secret(kubernetes(agent("https_proxy"))),
    secret(kubernetes(agent("HTTP_PROXY"))),
    secret(kubernetes(agent("http_proxy"))),
    kubernetes(agent("NO_PROXY")),
    kubernetes(agent("no_proxy")),
    agent("PLUMB_BIRD"),
    agent("PLUMB_BIRD_CONFIG"),
    agent("PLUMB_BIRD_SOCKET"),
    agent("PLUMB_BGP_SECRETS"),
    agent("PLUMB_DOCTOR_EVERY"),
    agent("PLUMB_GRACE"),
    agent("PLUMB_HEALTH_ADDRESS"),
    agent("PLUMB_LOG"),
    agent("PLUMB_MTU_FILE"),
    agent("PLUMB_OBSERVE"),
    agent("PLUMB_REPAIR"),
    felix("FELIX_ALLOWIPIPPACKETSFROMWORKLOADS"),
    felix("FELIX_ALLOWVXLANPACKETSFROMWORKLOADS"),
    felix("FELIX_EXTERNALNODESCIDRLIST"),
    felix("FELIX_INTERFACEPREFIX"),
    felix("FELIX_IPINIPMTU"),
    felix("FELIX_IPTABLESNATOUTGOINGINTERFACEFILTER"),
    felix("FELIX_MTUIFACEPATTERN"),
    felix("FELIX_NATOUTGOINGADDRESS"),
    felix("FELIX_NATOUTGOINGEXCLUSIONS"),
    felix("FELIX_NATPORTRANGE"),
    felix("FELIX_PROGRAMCLUSTERROUTES"),
    felix("FELIX_VXLANENABLED"),
    felix("FELIX_VXLANMTU"),
    felix("FELIX_VXLANMTUV6"),
    felix("FELIX_VXLANPORT"),
    felix("FELIX_VXLANVNI"),
    felix("FELIX_WORKLOADSOURCESPOOFING"),
];

/// calicoctl understands the store's variables with this prefix, too, and prefers them so.
pub const LONG_PREFIX: &str = "CALICO_";

impl Setting {
    /// The setting that a variable stands for, by its plain or its longer name.
    pub fn find(variable: &str) -> Option<&'static Setting> {
        let plain = |name: &str| SETTINGS.iter().find(|setting| setting.name == name);
        plain(variable).or_else(|| {
            plain(variable.strip_prefix(LONG_PREFIX)?).filter(|setting| setting.group == SettingGroup::Store)
        })
    }

    /// The variables that are read for it, the one that wins first.
    pub fn variables(&self) -> impl Iterator<Item = String> + use<> {
        let long = (self.group == SettingGroup::Store).then(|| format!("{LONG_PREFIX}{}", self.name));
        long.into_iter().chain([self.name.to_owned()])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_setting_stands_once_and_together_with_its_group() {
        let mut names: Vec<&str> = SETTINGS.iter().map(|setting| setting.name).collect();
        let groups: Vec<SettingGroup> = SETTINGS.iter().map(|setting| setting.group).collect();
        assert!(groups.is_sorted());
        names.sort_unstable();
        let count = names.len();
        names.dedup();
        assert_eq!(names.len(), count);
    }

    #[test]
    fn only_the_stores_variables_have_a_longer_name() {
        assert_eq!(Setting::find("CALICO_ETCD_PASSWORD").unwrap().name, "ETCD_PASSWORD");
        assert!(Setting::find("CALICO_ETCD_PASSWORD").unwrap().is_secret);
        assert_eq!(Setting::find("CALICO_ROUTER_ID").unwrap().name, "CALICO_ROUTER_ID");
        assert_eq!(Setting::find("CALICO_NODENAME"), None);
        assert_eq!(Setting::find("PATH"), None);
        let variables: Vec<String> = Setting::find("SQLITE_PATH").unwrap().variables().collect();
        assert_eq!(variables, ["CALICO_SQLITE_PATH", "SQLITE_PATH"]);
    }
}
