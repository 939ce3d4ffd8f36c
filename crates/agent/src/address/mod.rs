//! This node's own address: the settings, the local addresses to choose from, and the Node record.
//!
//! `plan::address` makes the choice: at the start, and regularly while the node runs (`between/address.rs`).

mod local;
mod probing;

use std::net::IpAddr;
use std::time::Duration;

use ipnet::IpNet;
use model::{IpVersion, Resource};
use plan::address::{Choice, Method, MethodError, OtherNode, Probe, Silences, Why, Wish, choose_address};
use serde_json::{Map, Value, json};

pub(crate) use local::LocalAddresses;

/// The type of the addresses that Calico itself writes.
const OWN_TYPE: &str = "CalicoNodeIP";
const POLL_EVERY: Duration = Duration::from_secs(60);
/// Between two probes at the start: other nodes may still have an old neighbour entry for this node.
const START_PAUSE: Duration = Duration::from_secs(1);

/// The operator's settings, in Calico's variables.
#[derive(Clone, Debug)]
pub(crate) struct AddressSettings {
    v4: (Wish, Method),
    v6: (Wish, Method),
    pub(crate) poll_every: Duration,
}

impl AddressSettings {
    /// `environment` reads a variable; an empty one counts as not set.
    pub(crate) fn read(environment: &dyn Fn(&str) -> Option<String>) -> Result<AddressSettings, MethodError> {
        let of = |variable: &str, version| {
            let method = Method::read(environment(&format!("{variable}_AUTODETECTION_METHOD")).as_deref())?;
            Ok::<_, MethodError>((Wish::read(environment(variable).as_deref(), version)?, method))
        };
        let (mut v6, method) = of("IP6", IpVersion::V6)?;
        if v6 == Wish::Unsaid {
            // IPv6 is off unless it is asked for.
            v6 = Wish::Keep;
        }
        let poll = environment("AUTODETECT_POLL_INTERVAL").and_then(|text| model::parse_duration(&text).ok());
        let poll_every = poll.filter(|every| !every.is_zero()).unwrap_or(POLL_EVERY);
        Ok(AddressSettings { v4: of("IP", IpVersion::V4)?, v6: (v6, method), poll_every })
    }

    fn of(&self, version: IpVersion) -> (&Wish, &Method) {
        let (wish, method) = match version {
            IpVersion::V4 => &self.v4,
            IpVersion::V6 => &self.v6,
        };
        (wish, method)
    }

    /// The address at the start. Other nodes are probed only if it is a new one: a start must not wait for nodes that do not answer. Blocks.
    pub(crate) fn choose_first(
        &self,
        version: IpVersion,
        local: &LocalAddresses,
        recorded: Option<IpNet>,
        others: Vec<OtherNode>,
    ) -> Choice {
        let (wish, method) = self.of(version);
        let mut surroundings = local.surroundings(version, method, recorded, others);
        let choice = choose_address(wish, method, version, &surroundings);
        let is_settled = choice.address.as_ref().is_none_or(|chosen| {
            chosen.why == Why::Said
                || recorded.is_some_and(|recorded| recorded.addr() == chosen.network.addr())
        });
        if is_settled {
            return choice;
        }
        let mut silences = Silences::default();
        for turn in 0..Silences::LOOKS {
            if turn > 0 {
                std::thread::sleep(START_PAUSE);
            }
            surroundings.probes = probing::probe(surroundings.questions(wish, version, 0));
            silences.judge(&mut surroundings.probes);
            if !silences.is_any() {
                break;
            }
        }
        choose_address(wish, method, version, &surroundings)
    }

    /// The address now, and which probes other nodes answered. `turn` counts the observations, and `silences` remembers them. Blocks.
    pub(crate) fn choose_again(
        &self,
        version: IpVersion,
        local: &LocalAddresses,
        recorded: Option<IpNet>,
        others: Vec<OtherNode>,
        turn: usize,
        silences: &mut Silences,
    ) -> (Choice, Vec<Probe>) {
        let (wish, method) = self.of(version);
        let mut surroundings = local.surroundings(version, method, recorded, others);
        surroundings.probes = probing::probe(surroundings.questions(wish, version, turn));
        silences.judge(&mut surroundings.probes);
        let choice = choose_address(wish, method, version, &surroundings);
        (choice, surroundings.probes)
    }
}

/// The address in a node's record.
pub(crate) fn recorded(node: &Resource, version: IpVersion) -> Option<IpNet> {
    let text = node.spec("bgp")?.get(field(version))?.as_str()?;
    text.parse::<IpNet>().or_else(|_| text.parse::<IpAddr>().map(IpNet::from)).ok()
}

/// Kubernetes' InternalIP addresses in a node's record.
pub(crate) fn internal(node: &Resource) -> Vec<IpAddr> {
    let listed = node.spec("addresses").and_then(Value::as_array).into_iter().flatten();
    let internal = listed.filter(|entry| entry["type"] == "InternalIP");
    internal.filter_map(|entry| entry["address"].as_str()?.parse().ok()).collect()
}

/// Writes an address into a node's record, and keeps everything else.
pub(crate) fn write(node: &mut Resource, network: IpNet) {
    let version = IpVersion::of(network.addr());
    let spec = node.spec_mut();
    let bgp = spec.entry("bgp").or_insert_with(|| json!({}));
    if !bgp.is_object() {
        *bgp = Value::Object(Map::new());
    }
    bgp[field(version)] = network.to_string().into();
    add_to_list(spec.entry("addresses").or_insert_with(|| json!([])), network);
}

fn field(version: IpVersion) -> &'static str {
    match version {
        IpVersion::V4 => "ipv4Address",
        IpVersion::V6 => "ipv6Address",
    }
}

/// Replaces our own address of this version in the list of all addresses.
fn add_to_list(addresses: &mut Value, network: IpNet) {
    let Some(listed) = addresses.as_array_mut() else { return };
    let text = network.to_string();
    let is_ours = |entry: &Value| {
        let is_v4 = entry["address"].as_str().is_some_and(|address| !address.contains(':'));
        entry["type"] == OWN_TYPE && is_v4 == network.addr().is_ipv4()
    };
    if listed.iter().any(|entry| is_ours(entry) && entry["address"] == text.as_str()) {
        return;
    }
    listed.retain(|entry| !is_ours(entry));
    let place = if network.addr().is_ipv4() { 0 } else { listed.len() };
    listed.insert(place, json!({"address": text, "type": OWN_TYPE}));
}

#[cfg(test)]
mod tests {
    use model::Kind;

    use super::*;

    #[test]
    fn both_versions_are_recorded_side_by_side() {
        let mut node = Resource::new(Kind::Node, "a");
        for (address, version) in [("192.0.2.1/24", IpVersion::V4), ("fd00::1/64", IpVersion::V6)] {
            write(&mut node, address.parse().unwrap());
            assert_eq!(recorded(&node, version), address.parse().ok());
        }
        write(&mut node, "192.0.2.2/24".parse().unwrap());
        let listed = node.spec("addresses").unwrap().as_array().unwrap();
        assert_eq!(
            listed.iter().map(|entry| entry["address"].as_str().unwrap()).collect::<Vec<_>>(),
            ["192.0.2.2/24", "fd00::1/64"]
        );
    }

    #[test]
    fn settings_are_read_or_refused() {
        let read = |variables: &'static [(&str, &str)]| {
            AddressSettings::read(&move |name| {
                variables.iter().find(|(variable, _)| *variable == name).map(|(_, value)| (*value).to_owned())
            })
        };
        assert_eq!(read(&[]).unwrap().v6.0, Wish::Keep);
        assert_eq!(read(&[("IP6", "autodetect")]).unwrap().v6.0, Wish::Detect);
        assert_eq!(read(&[("AUTODETECT_POLL_INTERVAL", "2s")]).unwrap().poll_every.as_secs(), 2);
        let mut node = Resource::new(Kind::Node, "a");
        let addresses = json!([{"address": "10.0.0.9", "type": "InternalIP"}, {"address": "10.0.0.8/24", "type": OWN_TYPE}]);
        node.spec_mut().insert("addresses".to_owned(), addresses);
        assert_eq!(internal(&node), ["10.0.0.9".parse::<IpAddr>().unwrap()]);
        for wrong in [&[("IP", "x")], &[("IP6", "10.0.0.1")], &[("IP_AUTODETECTION_METHOD", "guess")]] {
            assert!(read(wrong).is_err(), "{wrong:?}");
        }
    }
}
