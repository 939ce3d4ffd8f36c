//! What is the same for all pods of a node: the node's name, the MTU, the prefix of device names.

use std::fs;

use host::Host;
use model::{DeviceName, DevicePrefixes, NodeName, Sandbox};

use super::error::CniError;
use super::netconf::NetConf;
use super::request::PodName;

/// Where Calico's node agent writes the node's name and the pods' MTU.
const NODENAME_FILE: &str = "/var/lib/calico/nodename";
const MTU_FILE: &str = "/var/lib/calico/mtu";
const MTU_DEFAULT: u32 = 1500;
/// The least that IPv4 requires, and the most that a veth accepts.
const MTU_RANGE: std::ops::RangeInclusive<u32> = 68..=65535;

/// The key `nodename`, else the nodename file, else the key `hostname`, else the machine's own name.
pub(crate) fn name(netconf: &NetConf) -> Result<String, CniError> {
    let file = netconf.nodename_file.as_deref().unwrap_or(NODENAME_FILE);
    let own = || {
        let name = NodeName::of_machine(&Host::machine_name().ok()?);
        Some(name).filter(|name| !name.is_empty())
    };
    let from_file = || Some(fs::read_to_string(file).ok()?.trim().to_owned()).filter(|name| !name.is_empty());
    let configured = netconf.nodename.clone().or_else(from_file).or_else(|| netconf.hostname.clone());
    let name = configured.map(NodeName::from).or_else(own).ok_or_else(|| {
        CniError::configuration("this node has no name").hint("set nodename in the network configuration")
    })?;
    name.check().map_err(|error| CniError::configuration(error.to_string()))?;
    Ok(name.to_string())
}

pub(super) fn mtu(netconf: &NetConf) -> Result<u32, CniError> {
    let mtu = match (netconf.mtu, fs::read_to_string(MTU_FILE)) {
        (0, Err(_)) if netconf.require_mtu_file => {
            let message = format!("require_mtu_file is set but {MTU_FILE} does not exist");
            return Err(CniError::configuration(message));
        }
        (0, Err(_)) => Some(MTU_DEFAULT),
        (0, Ok(text)) => text.trim().parse().ok(),
        (mtu, _) => u32::try_from(mtu).ok(),
    };
    mtu.filter(|mtu| MTU_RANGE.contains(mtu))
        .ok_or_else(|| CniError::configuration("the MTU must be between 68 and 65535"))
}

/// Calico's name for the host end.
pub(super) fn device_name(pod: Option<&PodName>, sandbox: &Sandbox) -> Result<DeviceName, CniError> {
    let prefixes = device_prefixes();
    let name = match pod {
        Some(pod) => DeviceName::of_pod(prefixes.first(), &pod.namespace, &pod.name),
        None => DeviceName::of_container(prefixes.first(), sandbox.container_id()),
    };
    name.map_err(|error| CniError::configuration(error.to_string()))
}

/// The name of the host end when another sandbox holds Calico's.
pub(super) fn own_device_name(sandbox: &Sandbox) -> DeviceName {
    let name = sandbox.device_name(device_prefixes().first());
    let name = name.or_else(|| sandbox.device_name(DeviceName::CALICO_PREFIX));
    name.expect("`cali` leaves room for the hash")
}

/// Felix recognises devices by their prefix, so both read the same setting.
fn device_prefixes() -> DevicePrefixes {
    DevicePrefixes::configured(&crate::variables::text("FELIX_INTERFACEPREFIX").unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_nodes_name_is_read_in_calicos_order() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("nodename");
        fs::write(&file, "from-file\n").unwrap();
        let nodename_file = Some(file.display().to_string());
        let mut netconf = NetConf {
            nodename: Some("from-key".to_owned()),
            nodename_file,
            hostname: Some("from-old-key".to_owned()),
            ..NetConf::default()
        };
        assert_eq!(name(&netconf).unwrap(), "from-key");
        netconf.nodename = None;
        assert_eq!(name(&netconf).unwrap(), "from-file");
        fs::remove_file(&file).unwrap();
        assert_eq!(name(&netconf).unwrap(), "from-old-key");
        netconf.nodename = Some("no/slash".to_owned());
        assert!(name(&netconf).is_err());
    }

    #[test]
    fn the_mtu_has_bounds() {
        assert_eq!(mtu(&NetConf { mtu: 1450, ..NetConf::default() }).unwrap(), 1450);
        for wrong in [67, 65536, 1 << 40] {
            assert!(mtu(&NetConf { mtu: wrong, ..NetConf::default() }).is_err());
        }
    }
}
