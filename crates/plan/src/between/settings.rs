//! What FelixConfiguration and BGPConfiguration say about routes between nodes.

use std::net::IpAddr;

use ipnet::IpNet;
use model::Resource;
use serde_json::Value;

/// Calico's defaults where nothing is said.
const VNI: u32 = 4096;
pub(super) const VXLAN_PORT: u16 = 4789;

/// Settings as they hold for one node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BetweenSettings {
    /// Tunnels are made where pools want them, unless this says that there shall be none.
    pub vxlan_enabled: bool,
    pub vxlan_vni: u32,
    pub vxlan_port: u16,
    /// Of the device for IPv4; what the network card leaves room for if not said.
    pub vxlan_mtu: Option<u32>,
    pub vxlan_mtu_v6: Option<u32>,
    pub ipip_mtu: Option<u32>,
    /// Devices that count as the node's cards when the MTU of pods is found out.
    pub mtu_pattern: Option<String>,
    /// What each side was told about routes that need no tunnel.
    pub felix_programs: Option<bool>,
    pub bird_programs: Option<bool>,
    pub nat: NatSettings,
    pub tunnels: TunnelSettings,
    /// How names of pods' devices begin, besides Calico's usual prefix.
    pub device_prefixes: Vec<String>,
    /// Pods may send from the networks that their endpoint records allow them (`allowSpoofedSourcePrefixes`).
    pub lets_pods_spoof: bool,
    /// Where services have their addresses, as far as records say: no pod's route may hide these.
    pub services: Vec<IpNet>,
}

/// Who may send into tunnels besides nodes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TunnelSettings {
    pub external_nodes: Vec<IpNet>,
    pub lets_vxlan_of_pods: bool,
    pub lets_ipip_of_pods: bool,
}

/// How packets that leave the cluster get the node's address.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NatSettings {
    /// This one instead of the address of the device that the packet leaves by.
    pub address: Option<IpAddr>,
    pub ports: Option<(u16, u16)>,
    /// Packets to nodes keep their source, too.
    pub excludes_nodes: bool,
    /// Packets that leave by devices of this name only.
    pub device: Option<String>,
}

/// Who writes the routes to other nodes' blocks that need no tunnel. Those that do are always the agent's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Writer {
    Agent,
    Bird,
}

impl Default for BetweenSettings {
    fn default() -> BetweenSettings {
        BetweenSettings {
            vxlan_enabled: true,
            vxlan_vni: VNI,
            vxlan_port: VXLAN_PORT,
            vxlan_mtu: None,
            vxlan_mtu_v6: None,
            ipip_mtu: None,
            mtu_pattern: None,
            felix_programs: None,
            bird_programs: None,
            nat: NatSettings::default(),
            tunnels: TunnelSettings::default(),
            device_prefixes: Vec::new(),
            lets_pods_spoof: false,
            services: Vec::new(),
        }
    }
}

impl BetweenSettings {
    /// From `FelixConfiguration(default)`, the node's own, which comes first, and `BGPConfiguration(default)`.
    pub fn read(
        felix: Option<&Resource>,
        felix_of_node: Option<&Resource>,
        bgp: Option<&Resource>,
    ) -> BetweenSettings {
        let said = |field: &str| {
            let of = |resource: Option<&Resource>| resource.and_then(|known| known.spec(field)).cloned();
            of(felix_of_node).or_else(|| of(felix))
        };
        let number = |field: &str| said(field).and_then(|value| value.as_u64()).filter(|number| *number > 0);
        let text = |field: &str| said(field).and_then(|value| value.as_str().map(str::to_owned));
        let small = |field: &str| number(field).and_then(|number| u32::try_from(number).ok());
        BetweenSettings {
            vxlan_enabled: said("vxlanEnabled") != Some(Value::Bool(false)),
            vxlan_vni: small("vxlanVNI").unwrap_or(VNI),
            vxlan_port: number("vxlanPort").and_then(|port| u16::try_from(port).ok()).unwrap_or(VXLAN_PORT),
            vxlan_mtu: small("vxlanMTU"),
            vxlan_mtu_v6: small("vxlanMTUV6"),
            ipip_mtu: small("ipipMTU"),
            mtu_pattern: text("mtuIfacePattern").filter(|pattern| !pattern.is_empty()),
            felix_programs: programs(said("programClusterRoutes").as_ref()),
            bird_programs: programs(bgp.and_then(|known| known.spec("programClusterRoutes"))),
            nat: NatSettings {
                address: text("natOutgoingAddress").and_then(|text| text.parse().ok()),
                ports: said("natPortRange").as_ref().and_then(port_range),
                excludes_nodes: text("natOutgoingExclusions").as_deref() == Some("IPPoolsAndHostIPs"),
                device: text("iptablesNATOutgoingInterfaceFilter").filter(|name| !name.is_empty()),
            },
            tunnels: TunnelSettings {
                external_nodes: said("externalNodesList").as_ref().map(networks).unwrap_or_default(),
                lets_vxlan_of_pods: said("allowVXLANPacketsFromWorkloads") == Some(Value::Bool(true)),
                lets_ipip_of_pods: said("allowIPIPPacketsFromWorkloads") == Some(Value::Bool(true)),
            },
            device_prefixes: text("interfacePrefix").as_deref().map(prefixes).unwrap_or_default(),
            lets_pods_spoof: text("workloadSourceSpoofing").as_deref() == Some("Any"),
            services: crate::bgp::service_networks(bgp),
        }
    }

    /// Exactly one, whatever is said: Felix's setting decides, else that of BGP, else it is the agent. BIRD's configuration
    /// is made by the same answer.
    pub fn writer(&self) -> Writer {
        match (self.felix_programs, self.bird_programs) {
            (Some(true), _) | (None, Some(false) | None) => Writer::Agent,
            (Some(false), _) | (None, Some(true)) => Writer::Bird,
        }
    }

    /// Both sides were told to write those routes, or both not to.
    pub fn is_contradictory(&self) -> bool {
        self.felix_programs.is_some() && self.felix_programs == self.bird_programs
    }
}

/// Whether a side writes routes without a tunnel.
fn programs(value: Option<&Value>) -> Option<bool> {
    match value?.as_str()? {
        "Enabled" | "EnabledNoEncapOnly" => Some(true),
        "Disabled" | "EnabledIPIPOnly" => Some(false),
        _ => None,
    }
}

/// Separated by commas.
fn prefixes(text: &str) -> Vec<String> {
    text.split(',').map(str::trim).filter(|prefix| !prefix.is_empty()).map(str::to_owned).collect()
}

/// Networks, or single addresses; what is neither is left out.
fn networks(value: &Value) -> Vec<IpNet> {
    let network = |text: &str| text.parse().or_else(|_| text.parse::<IpAddr>().map(IpNet::from)).ok();
    value.as_array().into_iter().flatten().filter_map(Value::as_str).filter_map(network).collect()
}

/// A number, or a text such as `32768:65535`.
fn port_range(value: &Value) -> Option<(u16, u16)> {
    let port = |number: u64| u16::try_from(number).ok().filter(|port| *port > 0);
    if let Some(number) = value.as_u64() {
        return port(number).map(|port| (port, port));
    }
    let text = value.as_str()?;
    let (first, last) = text.split_once(':').unwrap_or((text, text));
    let (first, last) = (port(first.trim().parse().ok()?)?, port(last.trim().parse().ok()?)?);
    (first <= last).then_some((first, last))
}

#[cfg(test)]
mod tests {
    use model::Kind;
    use serde_json::json;

    use super::*;

    fn resource(kind: Kind, spec: Value) -> Resource {
        let mut resource = Resource::new(kind, "default");
        resource.body.insert("spec".to_owned(), spec);
        resource
    }

    fn programs(felix: Value, bgp: Value) -> BetweenSettings {
        let felix = resource(Kind::FelixConfiguration, json!({"programClusterRoutes": felix}));
        let bgp = resource(Kind::BgpConfiguration, json!({"programClusterRoutes": bgp}));
        BetweenSettings::read(Some(&felix), None, Some(&bgp))
    }

    #[test]
    fn exactly_one_writes_and_contradictions_are_known() {
        let check = |felix: Value, bgp: Value, writer, contradictory| {
            let settings = programs(felix.clone(), bgp.clone());
            assert_eq!(
                (settings.writer(), settings.is_contradictory()),
                (writer, contradictory),
                "{felix} {bgp}"
            );
        };
        check(json!(null), json!(null), Writer::Agent, false);
        check(json!("Enabled"), json!("Disabled"), Writer::Agent, false);
        check(json!("Disabled"), json!("Enabled"), Writer::Bird, false);
        check(json!(null), json!("Enabled"), Writer::Bird, false);
        check(json!("EnabledIPIPOnly"), json!("EnabledNoEncapOnly"), Writer::Bird, false);
        check(json!("Enabled"), json!("Enabled"), Writer::Agent, true);
        check(json!("Disabled"), json!("Disabled"), Writer::Bird, true);
    }

    #[test]
    fn the_nodes_own_settings_come_first() {
        let felix = resource(
            Kind::FelixConfiguration,
            json!({"vxlanVNI": 1, "vxlanPort": 2, "natPortRange": "30:40", "externalNodesList": ["192.0.2.0/24", "x", "fd00::1"], "allowVXLANPacketsFromWorkloads": true,
                   "interfacePrefix": "tap, cali", "workloadSourceSpoofing": "Any"}),
        );
        let own = resource(Kind::FelixConfiguration, json!({"vxlanVNI": 9, "vxlanMTU": 0}));
        let settings = BetweenSettings::read(Some(&felix), Some(&own), None);
        assert_eq!((settings.vxlan_vni, settings.vxlan_port, settings.vxlan_mtu), (9, 2, None));
        assert_eq!(settings.nat.ports, Some((30, 40)));
        assert_eq!(settings.tunnels.external_nodes.len(), 2);
        assert!(settings.tunnels.lets_vxlan_of_pods && !settings.tunnels.lets_ipip_of_pods);
        assert_eq!(settings.device_prefixes, ["tap", "cali"]);
        assert!(settings.lets_pods_spoof);
        assert_eq!(BetweenSettings::read(None, None, None), BetweenSettings::default());
    }
}
