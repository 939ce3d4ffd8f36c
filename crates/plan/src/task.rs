//! The tasks of a repair on a node: single changes of the kernel, each as "from" and "to".
//!
//! `host` runs them. It reads the kernel first: what is `to` already is left alone, and what is not `from` any more is a surprise
//! and left alone, too. Swapped, a task is its own undo.

use std::fmt;
use std::net::IpAddr;

use ipnet::IpNet;
use model::{DeviceName, Mac, ShellCommand};
use serde::{Deserialize, Serialize};

use crate::difference::{Difference, DifferenceKind};
use crate::objects::{Route, usual_metric};

/// One change, in the node's own namespace or in that of a sandbox.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct RepairTask {
    /// The container ID of a sandbox, in full, if it is to be done inside of it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub inside: Option<String>,
    #[serde(flatten)]
    pub change: KernelChange,
}

/// What is changed. `None` stands for: not there.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(tag = "act", rename_all = "camelCase", rename_all_fields = "camelCase")]
pub enum KernelChange {
    /// A route of the main table to exactly this destination.
    Route {
        destination: IpNet,
        from: Option<NextHop>,
        to: Option<NextHop>,
    },
    /// A permanent neighbour. `from` is whatever the kernel knows, permanent or not.
    Neighbour {
        address: IpAddr,
        device: String,
        from: Option<Mac>,
        to: Option<Mac>,
    },
    /// A permanent entry of a VXLAN device: behind which node a hardware address is.
    Forward {
        device: String,
        mac: Mac,
        from: Option<IpAddr>,
        to: Option<IpAddr>,
    },
    /// The device of the tunnel to other nodes. What leads through it goes with it when it is made anew.
    Tunnel {
        device: String,
        from: Option<Tunnel>,
        to: Option<Tunnel>,
    },
    /// An address of a device.
    Address {
        device: String,
        net: IpNet,
        from: bool,
        to: bool,
    },
    /// Whether a device is set up.
    Up {
        device: String,
        from: bool,
        to: bool,
    },
    Mtu {
        device: String,
        from: u32,
        to: u32,
    },
    /// A kernel setting, by its path below `/proc/sys`.
    Sysctl {
        path: String,
        from: String,
        to: String,
    },
    /// A pod's device on the node. To remove one: nothing may live behind it, which whoever does it makes sure of once more.
    /// To put one back (undo): a veth of that name which leads nowhere; what was behind it is gone.
    Device {
        device: String,
        from: Option<Veth>,
        to: Option<Veth>,
    },
    /// The whole network of a running sandbox, made anew in its namespace: veth, addresses, routes, neighbours, settings.
    Wire(PodNetwork),
    /// Takes such a network away again: the undo of [`KernelChange::Wire`].
    Unwire(PodNetwork),
}

/// Where a route leads.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct NextHop {
    pub device: Option<String>,
    pub via: Option<IpAddr>,
    /// The kernel's number or iproute2's name, as it was seen. `None`: `boot`, or for a new route our own number.
    pub protocol: Option<String>,
    pub scope: Option<String>,
    pub source: Option<IpAddr>,
    pub metric: Option<u32>,
    pub is_onlink: bool,
    /// A route that leads nowhere: `blackhole`.
    pub is_blackhole: bool,
    /// Of a new route: others to the same destination stay, and it goes in front of those of its metric. So it was before it was removed.
    pub is_beside_others: bool,
}

/// A VXLAN device.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Tunnel {
    pub vni: u32,
    pub port: u16,
    /// The node's address: packets come from there.
    pub local: IpAddr,
    /// The device that packets leave by.
    pub parent: String,
    pub mac: Mac,
    pub mtu: u32,
    /// Its own address.
    pub address: Option<IpAddr>,
    pub is_up: bool,
}

/// What a pod's device is known by.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Veth {
    /// Of a device that is to be removed; the one that is put back has another.
    pub index: Option<u32>,
    pub alias: Option<String>,
    pub mac: Option<Mac>,
    pub mtu: Option<u32>,
    pub is_up: bool,
}

/// The network of a sandbox.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct PodNetwork {
    pub network: String,
    pub container_id: String,
    /// Inside the sandbox.
    pub interface: String,
    /// On the node.
    pub device: String,
    pub addresses: Vec<IpAddr>,
    pub mac: Option<Mac>,
    pub mtu: Option<u32>,
}

/// How a change went.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "outcome", rename_all = "camelCase", rename_all_fields = "camelCase")]
pub enum TaskOutcome {
    Done {
        /// What takes it back, with what was really there before.
        undo: Option<Box<RepairTask>>,
    },
    /// It was so already; nothing was touched.
    Already,
    /// It is not as the plan says; nothing was touched.
    Surprise { said: String },
    /// It was tried and the kernel, or the runtime, refused.
    Failed { said: String },
}

impl RepairTask {
    /// On the node itself.
    pub fn here(change: KernelChange) -> RepairTask {
        RepairTask { inside: None, change }
    }

    /// Inside a sandbox.
    pub fn inside(container_id: impl Into<String>, change: KernelChange) -> RepairTask {
        RepairTask { inside: Some(container_id.into()), change }
    }

    /// What takes it back.
    pub fn undo(&self) -> RepairTask {
        RepairTask { inside: self.inside.clone(), change: self.change.undo() }
    }

    /// Whether it takes something away that may belong to somebody.
    pub fn is_removal(&self) -> bool {
        match &self.change {
            KernelChange::Route { to, .. } => to.is_none(),
            KernelChange::Neighbour { to, .. } => to.is_none(),
            KernelChange::Forward { to, .. } => to.is_none(),
            KernelChange::Tunnel { to, .. } => to.is_none(),
            KernelChange::Device { to, .. } => to.is_none(),
            KernelChange::Address { to, .. } | KernelChange::Up { to, .. } => !to,
            KernelChange::Unwire(_) => true,
            KernelChange::Mtu { .. } | KernelChange::Sysctl { .. } | KernelChange::Wire(_) => false,
        }
    }

    /// The same for an operator's hands, to be run on the node.
    pub fn commands(&self) -> Vec<ShellCommand> {
        let commands = self.change.commands();
        match &self.inside {
            Some(id) => commands.into_iter().map(|command| command.in_sandbox(short(id))).collect(),
            None => commands,
        }
    }
}

/// As runtimes show IDs.
fn short(id: &str) -> &str {
    id.get(..13).unwrap_or(id)
}

impl KernelChange {
    fn undo(&self) -> KernelChange {
        let mut change = self.clone();
        match &mut change {
            KernelChange::Route { from, to, .. } => std::mem::swap(from, to),
            KernelChange::Neighbour { from, to, .. } => std::mem::swap(from, to),
            KernelChange::Forward { from, to, .. } => std::mem::swap(from, to),
            KernelChange::Tunnel { from, to, .. } => std::mem::swap(from, to),
            KernelChange::Device { from, to, .. } => std::mem::swap(from, to),
            KernelChange::Address { from, to, .. } | KernelChange::Up { from, to, .. } => {
                std::mem::swap(from, to)
            }
            KernelChange::Mtu { from, to, .. } => std::mem::swap(from, to),
            KernelChange::Sysctl { from, to, .. } => std::mem::swap(from, to),
            KernelChange::Wire(wire) => return KernelChange::Unwire(wire.clone()),
            KernelChange::Unwire(wire) => return KernelChange::Wire(wire.clone()),
        }
        change
    }

    fn commands(&self) -> Vec<ShellCommand> {
        match self {
            KernelChange::Tunnel { device, from, to } => tunnel_commands(device, from.as_ref(), to.as_ref()),
            change => vec![change.command()],
        }
    }

    fn command(&self) -> ShellCommand {
        match self {
            KernelChange::Route { destination, to: Some(way), .. } => {
                let verb = if way.is_beside_others { "ip route prepend" } else { "ip route replace" };
                way.added_to(ShellCommand::new(verb), *destination)
            }
            KernelChange::Route { destination, from, to: None } => {
                let way = from.clone().unwrap_or_default();
                way.added_to(ShellCommand::new("ip route del"), *destination)
            }
            KernelChange::Neighbour { address, device, to: Some(mac), .. } => {
                ShellCommand::new("ip neigh replace")
                    .value(address)
                    .plain("lladdr")
                    .value(mac)
                    .plain("dev")
                    .value(device)
                    .plain("nud permanent")
            }
            KernelChange::Neighbour { address, device, to: None, .. } => {
                ShellCommand::new("ip neigh del").value(address).plain("dev").value(device)
            }
            KernelChange::Forward { device, mac, to: Some(node), .. } => {
                ShellCommand::new("bridge fdb replace")
                    .value(mac)
                    .plain("dev")
                    .value(device)
                    .plain("dst")
                    .value(node)
                    .plain("self permanent")
            }
            KernelChange::Forward { device, mac, to: None, .. } => {
                ShellCommand::new("bridge fdb del").value(mac).plain("dev").value(device).plain("self")
            }
            KernelChange::Tunnel { device, .. } => {
                ShellCommand::remark("make the tunnel device anew:", device)
            }
            KernelChange::Address { device, net, to, .. } => {
                let verb = if *to { "ip address add" } else { "ip address del" };
                ShellCommand::new(verb).value(net).plain("dev").value(device)
            }
            KernelChange::Up { device, to, .. } => {
                ShellCommand::new("ip link set").value(device).plain(if *to { "up" } else { "down" })
            }
            KernelChange::Mtu { device, to, .. } => {
                ShellCommand::new("ip link set").value(device).plain("mtu").value(to)
            }
            KernelChange::Sysctl { path, to, .. } => ShellCommand::new("sysctl -w").assigned(path, to),
            KernelChange::Device { device, to: None, .. } => ShellCommand::new("ip link del").value(device),
            KernelChange::Device { device, to: Some(_), .. } => {
                ShellCommand::new("ip link add").value(device).plain("type veth")
            }
            // There is no short way by hand: the runtime has to do it.
            KernelChange::Wire(wire) | KernelChange::Unwire(wire) => {
                ShellCommand::remark("recreate the pod of sandbox", short(&wire.container_id))
            }
        }
    }
}

fn tunnel_commands(device: &str, from: Option<&Tunnel>, to: Option<&Tunnel>) -> Vec<ShellCommand> {
    let delete = || ShellCommand::new("ip link del").value(device);
    let Some(to) = to else { return vec![delete()] };
    let Tunnel { vni, port, local, parent, mac, mtu, address, is_up } = to;
    let mut commands = Vec::new();
    if !from.is_some_and(|from| from.is_same_tunnel(to)) {
        commands.extend(from.map(|_| delete()));
        let add = ShellCommand::new("ip link add").value(device).plain("address").value(mac);
        let add = add.plain("mtu").value(mtu).plain("type vxlan id").value(vni).plain("dstport").value(port);
        commands.push(add.plain("local").value(local).plain("dev").value(parent).plain("nolearning"));
    }
    if let Some(address) = address.filter(|address| from.and_then(|from| from.address) != Some(*address)) {
        let add = ShellCommand::new("ip address add").value(IpNet::from(address));
        commands.push(add.plain("dev").value(device));
    }
    if *is_up && !from.is_some_and(|from| from.is_up) {
        commands.push(ShellCommand::new("ip link set").value(device).plain("up"));
    }
    commands
}

impl Tunnel {
    /// Whether one can become the other without being made anew.
    pub fn is_same_tunnel(&self, other: &Tunnel) -> bool {
        (self.vni, self.port, self.local, &self.parent) == (other.vni, other.port, other.local, &other.parent)
    }
}

impl Difference {
    /// What puts it right, as a repair does it in the namespace of its side. `None`: it takes more than one change, or nothing does.
    pub fn change(&self) -> Option<KernelChange> {
        let device = self.device.to_string();
        Some(match &self.kind {
            DifferenceKind::Down => KernelChange::Up { device, from: false, to: true },
            DifferenceKind::Mtu { wanted, found } => KernelChange::Mtu { device, from: *found, to: *wanted },
            DifferenceKind::Sysctl { wanted, found: Some(found) } => KernelChange::Sysctl {
                path: wanted.path.clone(),
                from: found.clone(),
                to: wanted.value.clone(),
            },
            DifferenceKind::AddressMissing { address } => {
                KernelChange::Address { device, net: *address, from: false, to: true }
            }
            DifferenceKind::RouteMissing { route } | DifferenceKind::RouteTaken { route, .. } => {
                let to = Some(NextHop::of(route, &self.device));
                KernelChange::Route { destination: route.destination, from: None, to }
            }
            DifferenceKind::NeighbourMissing { neighbour, found } => KernelChange::Neighbour {
                address: neighbour.address,
                device,
                from: *found,
                to: Some(neighbour.mac),
            },
            DifferenceKind::Missing
            | DifferenceKind::Foreign { .. }
            | DifferenceKind::NotRunning
            | DifferenceKind::Mac { .. }
            | DifferenceKind::Sysctl { found: None, .. }
            | DifferenceKind::RouteStray { .. }
            | DifferenceKind::NeighbourUnresolved { .. } => return None,
        })
    }
}

impl NextHop {
    /// Where a wanted route leads. Whoever makes it marks it as its own.
    pub fn of(route: &Route, device: &DeviceName) -> NextHop {
        NextHop {
            device: Some(device.as_str().to_owned()),
            via: route.gateway,
            scope: (route.scope == Route::LINK).then(|| "link".to_owned()),
            metric: Some(route.metric).filter(|metric| *metric != usual_metric(route.destination.addr())),
            ..NextHop::default()
        }
    }

    fn added_to(&self, mut command: ShellCommand, destination: IpNet) -> ShellCommand {
        if self.is_blackhole {
            command = command.plain("blackhole");
        }
        command = command.value(destination);
        if let Some(via) = self.via {
            command = command.plain("via").value(via);
        }
        if let Some(device) = &self.device {
            command = command.plain("dev").value(device);
        }
        if let Some(scope) = &self.scope {
            command = command.plain("scope").value(scope);
        }
        if let Some(protocol) = &self.protocol {
            command = command.plain("proto").value(protocol);
        }
        if let Some(source) = self.source {
            command = command.plain("src").value(source);
        }
        if let Some(metric) = self.metric {
            command = command.plain("metric").value(metric);
        }
        if self.is_onlink {
            command = command.plain("onlink");
        }
        command
    }
}

impl fmt::Display for RepairTask {
    /// As an operator would do it.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.change {
            KernelChange::Wire(wire) => {
                write!(f, "make the network of sandbox {} anew", short(&wire.container_id))
            }
            KernelChange::Unwire(wire) => {
                write!(f, "take the network of sandbox {} away", short(&wire.container_id))
            }
            change => {
                let commands: Vec<String> = change.commands().iter().map(ToString::to_string).collect();
                f.write_str(&commands.join("; "))?;
                match &self.inside {
                    Some(id) => write!(f, " (inside sandbox {})", short(id)),
                    None => Ok(()),
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn route(to: Option<&str>) -> RepairTask {
        let way = |device: &str| NextHop {
            device: Some(device.to_owned()),
            scope: Some("link".to_owned()),
            ..NextHop::default()
        };
        RepairTask::here(KernelChange::Route {
            destination: "10.0.0.1/32".parse().unwrap(),
            from: Some(way("cali1")),
            to: to.map(way),
        })
    }

    #[test]
    fn the_undo_of_an_undo_is_the_work() {
        for work in [
            route(None),
            route(Some("cali2")),
            RepairTask::inside("abc", KernelChange::Up { device: "eth0".into(), from: false, to: true }),
            RepairTask::here(KernelChange::Sysctl {
                path: "net/ipv4/ip_forward".into(),
                from: "0".into(),
                to: "1".into(),
            }),
        ] {
            assert_ne!(work.undo(), work);
            assert_eq!(work.undo().undo(), work);
            let text = serde_json::to_string(&work).unwrap();
            assert_eq!(serde_json::from_str::<RepairTask>(&text).unwrap(), work, "{text}");
        }
    }

    #[test]
    fn the_words_are_commands() {
        assert_eq!(route(None).to_string(), "ip route del 10.0.0.1/32 dev cali1 scope link");
        assert_eq!(route(Some("cali2")).to_string(), "ip route replace 10.0.0.1/32 dev cali2 scope link");
        let setting = KernelChange::Sysctl {
            path: "net/ipv4/conf/eth0.5/rp_filter".into(),
            from: "0".into(),
            to: "1".into(),
        };
        assert_eq!(RepairTask::here(setting).to_string(), "sysctl -w net/ipv4/conf/eth0.5/rp_filter=1");
    }

    #[test]
    fn what_takes_away_is_known() {
        assert!(route(None).is_removal() && !route(Some("cali2")).is_removal());
        assert!(
            RepairTask::here(KernelChange::Up { device: "x".into(), from: true, to: false }).is_removal()
        );
    }
}
