//! How components of the cluster are set, as far as it matters to the pod network: by their options and configuration maps.

use serde::{Deserialize, Serialize};

/// One setting of the cluster.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Setting {
    pub kind: SettingKind,
    pub value: String,
}

/// What is set.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum SettingKind {
    /// Where addresses of services come from: a network, or several with commas between.
    ServiceRange,
    /// The address of one service: `10.96.0.10 kube-system/kube-dns`.
    ServiceAddress,
    /// The network of pods that Kubernetes was set up with.
    ClusterRange,
    /// `ipvs`, `iptables`, `nftables`.
    ProxyMode,
    /// `true`, `false`: whether kube-proxy keeps nodes from answering for services' addresses.
    StrictArp,
    /// A machine of AWS whose packets are dropped unless they are from or to itself: `i-0aa11 172.20.32.10`.
    SourceDestCheck,
    /// A namespace that is being deleted.
    NamespaceTerminating,
}

/// Options of Kubernetes' components, and fields of their configuration, that are kept.
const NAMED: [(&str, SettingKind); 8] = [
    ("service-cluster-ip-range", SettingKind::ServiceRange),
    ("serviceSubnet", SettingKind::ServiceRange),
    ("service-cidr", SettingKind::ServiceRange),
    ("cluster-cidr", SettingKind::ClusterRange),
    ("podSubnet", SettingKind::ClusterRange),
    ("clusterCIDR", SettingKind::ClusterRange),
    ("mode", SettingKind::ProxyMode),
    ("strictARP", SettingKind::StrictArp),
];

impl Setting {
    /// From an option such as `--service-cluster-ip-range=10.96.0.0/12`.
    pub fn of_option(text: &str) -> Option<Setting> {
        let (name, value) = text.trim().strip_prefix("--")?.split_once('=')?;
        Setting::named(name, value).filter(|setting| setting.kind != SettingKind::ProxyMode)
    }

    /// From a line of a configuration such as `serviceSubnet: 10.96.0.0/12`.
    pub fn of_field(text: &str) -> Option<Setting> {
        let (name, value) = text.trim().split_once(':')?;
        Setting::named(name, value)
    }

    fn named(name: &str, value: &str) -> Option<Setting> {
        let value = value.trim().trim_matches(['"', '\'']);
        let (_, kind) = NAMED.iter().find(|(known, _)| *known == name)?;
        (!value.is_empty()).then(|| Setting { kind: *kind, value: value.to_owned() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_and_fields() {
        let shown = |setting: Option<Setting>| setting.map(|setting| (setting.kind, setting.value));
        let range = Some((SettingKind::ServiceRange, "10.96.0.0/12".to_owned()));
        assert_eq!(shown(Setting::of_option("--service-cluster-ip-range=10.96.0.0/12")), range);
        assert_eq!(shown(Setting::of_field("  serviceSubnet: \"10.96.0.0/12\"")), range);
        assert_eq!(
            shown(Setting::of_field("strictARP: false")),
            Some((SettingKind::StrictArp, "false".to_owned()))
        );
        for other in ["--mode=x", "--v=2", "mode", "serviceSubnet:", "mode: \"\""] {
            assert_eq!(
                shown(Setting::of_option(other).or_else(|| Setting::of_field(other))),
                None,
                "{other}"
            );
        }
    }
}
