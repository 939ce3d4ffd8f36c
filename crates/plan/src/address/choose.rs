//! The choice itself.

use std::net::IpAddr;

use ipnet::IpNet;
use model::IpVersion;

use super::method::is_excluded;
use super::{
    Choice, Chosen, Doubt, Interface, InterfaceAddress, Method, Refusal, RefusalReason, Surroundings, Why,
    Wish, is_single, unanswered,
};

/// Which address a node is to be known by, of one IP version.
pub fn choose_address(
    wish: &Wish,
    method: &Method,
    version: IpVersion,
    surroundings: &Surroundings,
) -> Choice {
    let mut chooser = Chooser { version, surroundings, method, refused: Vec::new() };
    let address = match wish {
        Wish::Keep => return chooser.keep(),
        Wish::Address(said) => chooser.said(*said),
        Wish::Unsaid => chooser.recorded().or_else(|| chooser.detect(method)),
        Wish::Detect => chooser.detect(method),
    };
    chooser.finish(address)
}

struct Chooser<'a> {
    version: IpVersion,
    surroundings: &'a Surroundings,
    method: &'a Method,
    refused: Vec<Refusal>,
}

impl Chooser<'_> {
    /// Whatever is recorded, without a look at anything.
    fn keep(&self) -> Choice {
        let chosen = |network| Chosen { network, interface: self.interface(network), why: Why::Recorded };
        let address = self.recorded_network().map(chosen);
        Choice { address, doubts: Vec::new(), refused: Vec::new() }
    }

    fn recorded_network(&self) -> Option<IpNet> {
        self.surroundings.recorded.filter(|network| IpVersion::of(network.addr()) == self.version)
    }

    fn interface(&self, network: IpNet) -> Option<String> {
        self.surroundings.find(network.addr()).map(|(interface, _)| interface.name.clone())
    }

    /// What the operator says is taken, on a device or not, unless it is another node's.
    fn said(&mut self, said: IpNet) -> Option<Chosen> {
        let found = self.surroundings.with_network(said.addr());
        let network = if is_single(&said) { found } else { said };
        (!self.is_others(said.addr())).then(|| self.chosen(network, Why::Said))
    }

    /// The address the node has had, if it still has it.
    fn recorded(&mut self) -> Option<Chosen> {
        let recorded = self.recorded_network()?;
        let (_, found) = self.surroundings.find(recorded.addr())?;
        let network = found.network;
        (!self.is_others(network.addr())).then(|| self.chosen(network, Why::Recorded))
    }

    fn detect(&mut self, method: &Method) -> Option<Chosen> {
        let why = || Why::Method(method.to_string());
        let own = self.surroundings;
        match method {
            Method::Ours => self.by_default(),
            Method::FirstFound => self.first(|interface, _| !is_excluded(&interface.name), why()),
            Method::Interface(names) => {
                self.first(|interface, _| names.iter().any(|name| name.is_match(&interface.name)), why())
            }
            Method::SkipInterface(names) => self.first(
                |interface, _| {
                    !is_excluded(&interface.name) && !names.iter().any(|name| name.is_match(&interface.name))
                },
                why(),
            ),
            Method::Cidr(networks) => self.first(
                |_, address| networks.iter().any(|cidr| cidr.contains(&address.network.addr())),
                why(),
            ),
            Method::CanReach(_) => own.towards.and_then(|address| self.local(address, why())),
            Method::KubernetesInternalIp => self.internal(why()),
        }
    }

    /// As Calico goes through them: the device that came last comes first.
    fn first(
        &mut self,
        is_wanted: impl Fn(&Interface, &InterfaceAddress) -> bool,
        why: Why,
    ) -> Option<Chosen> {
        let surroundings = self.surroundings;
        for interface in surroundings.interfaces.iter().rev() {
            for address in interface.addresses.iter().filter(|address| is_wanted(interface, address)) {
                let network = address.network;
                if self.is_version(network.addr())
                    && is_global(network.addr())
                    && !self.is_others(network.addr())
                {
                    return Some(self.chosen(network, why));
                }
            }
        }
        None
    }

    /// Nothing was said: what Kubernetes says, else what the default route says. Here nothing doubtful is taken.
    fn by_default(&mut self) -> Option<Chosen> {
        if let Some(chosen) = self.internal(Why::KubernetesInternal).filter(|chosen| self.is_heard(chosen)) {
            return Some(chosen);
        }
        let common = self.surroundings.common_network(self.version);
        for address in self.surroundings.default_sources.clone() {
            if !self.is_version(address) {
                continue;
            }
            if let Some((common, _)) = common
                && !common.contains(&address)
                && self.has_one_in(common)
            {
                self.refuse(address, RefusalReason::OtherNetwork { common });
                continue;
            }
            if let Some(chosen) =
                self.local(address, Why::DefaultRoute).filter(|chosen| self.is_heard(chosen))
            {
                return Some(chosen);
            }
        }
        // The default route leads another way, but there is a device where the other nodes are.
        common.and_then(|(common, _)| self.first_sound(common)).or_else(|| self.first_answered())
    }

    /// Another one is there that other nodes answer to, and they do not answer to this: refused.
    fn is_heard(&mut self, chosen: &Chosen) -> bool {
        let address = chosen.network.addr();
        let unanswered = unanswered(&self.surroundings.probes, address);
        let is_heard = unanswered.is_none();
        unanswered.into_iter().for_each(|why| self.refuse(address, RefusalReason::Unanswered(why)));
        is_heard
    }

    /// Whatever other nodes answer to, if that is known.
    fn first_answered(&mut self) -> Option<Chosen> {
        let own = self.surroundings;
        let is_answered = |address: &IpAddr| {
            own.probes.iter().any(|probe| probe.from == *address && !probe.answered.is_empty())
        };
        let addresses: Vec<IpAddr> = own.fit().filter(is_answered).collect();
        addresses.into_iter().find_map(|address| {
            let is_fit = self.is_version(address) && !self.is_others(address);
            is_fit.then(|| self.chosen(own.with_network(address), Why::Answered))
        })
    }

    fn has_one_in(&self, common: IpNet) -> bool {
        let addresses = self.surroundings.interfaces.iter().flat_map(|interface| &interface.addresses);
        addresses.into_iter().any(|address| common.contains(&address.network.addr()))
    }

    fn first_sound(&mut self, common: IpNet) -> Option<Chosen> {
        let interfaces =
            self.surroundings.interfaces.iter().filter(|interface| !is_excluded(&interface.name));
        let addresses: Vec<IpAddr> = interfaces
            .flat_map(|interface| &interface.addresses)
            .map(|address| address.network.addr())
            .filter(|address| common.contains(address))
            .collect();
        let why = Why::Method(format!("cidr={common}"));
        addresses
            .into_iter()
            .find_map(|address| self.local(address, why.clone()).filter(|chosen| self.is_heard(chosen)))
    }

    fn internal(&mut self, why: Why) -> Option<Chosen> {
        let of_version =
            self.surroundings.internal_addresses.iter().copied().find(|address| self.is_version(*address))?;
        // Without a device that has it, its network is not known.
        self.surroundings.find(of_version)?;
        (!self.is_others(of_version)).then(|| self.chosen(self.surroundings.with_network(of_version), why))
    }

    /// An address that a device of the node has, and that stays with it.
    fn local(&mut self, address: IpAddr, why: Why) -> Option<Chosen> {
        let (interface, found) = self.surroundings.find(address)?;
        if !is_global(address) {
            self.refuse(address, RefusalReason::NotGlobal);
            return None;
        }
        if is_virtual(interface, found) {
            self.refuse(address, RefusalReason::Virtual { interface: interface.name.clone() });
            // The address beside it is the machine's own.
            let beside = interface.addresses.iter().find(|beside| {
                self.is_version(beside.network.addr()) && !is_virtual(interface, beside) && !beside.is_unfit
            })?;
            return (!self.is_others(beside.network.addr())).then(|| self.chosen(beside.network, why));
        }
        (!self.is_others(address)).then(|| self.chosen(found.network, why))
    }

    fn is_version(&self, address: IpAddr) -> bool {
        IpVersion::of(address) == self.version
    }

    /// Whether another node has it. Two nodes with one address are never reached both.
    fn is_others(&mut self, address: IpAddr) -> bool {
        let other = self.surroundings.others.iter().find(|other| other.address.addr() == address);
        if let Some(other) = other {
            self.refuse(address, RefusalReason::OtherNode { node: other.name.clone() });
        }
        other.is_some()
    }

    fn refuse(&mut self, address: IpAddr, reason: RefusalReason) {
        let refusal = Refusal { address, reason };
        if !self.refused.contains(&refusal) {
            self.refused.push(refusal);
        }
    }

    fn chosen(&self, network: IpNet, why: Why) -> Chosen {
        Chosen { network, interface: self.interface(network), why }
    }

    fn finish(self, address: Option<Chosen>) -> Choice {
        let doubts = address.as_ref().map(|chosen| self.doubts(chosen)).unwrap_or_default();
        Choice { address, doubts, refused: self.refused }
    }

    fn doubts(&self, chosen: &Chosen) -> Vec<Doubt> {
        let (address, network) = (chosen.network.addr(), chosen.network);
        let mut doubts = Vec::new();
        match self.surroundings.find(address) {
            None => doubts.push(Doubt::NotOnNode { address }),
            Some((interface, _)) if !interface.is_up => {
                doubts.push(Doubt::DeviceDown { address, interface: interface.name.clone() });
            }
            Some(_) => {}
        }
        if let Some((common, nodes)) = self.surroundings.common_network(self.version)
            && !common.contains(&address)
        {
            doubts.push(Doubt::OtherNetwork { network, common, nodes });
        }
        let internal = self.surroundings.internal_addresses.iter().find(|known| self.is_version(**known));
        if let Some(&internal) = internal.filter(|internal| **internal != address) {
            doubts.push(Doubt::NotInternal { address, internal });
        }
        if let Some(before) = self.recorded_network().filter(|before| before.addr() != address) {
            doubts.push(Doubt::Moved { from: before.addr(), to: address });
        }
        let unanswered = unanswered(&self.surroundings.probes, address);
        doubts.extend(unanswered.map(|unanswered| Doubt::Unanswered { address, unanswered }));
        doubts.extend(self.method_unused(chosen));
        doubts.extend(self.several_cards(chosen));
        doubts
    }

    /// Calico keeps what is recorded, too, and says nothing.
    fn method_unused(&self, chosen: &Chosen) -> Option<Doubt> {
        if chosen.why != Why::Recorded || matches!(self.method, Method::Ours) {
            return None;
        }
        let mut anew = Chooser { refused: Vec::new(), ..*self };
        let found = anew.detect(self.method).map(|found| found.network.addr());
        let address = chosen.network.addr();
        (found != Some(address)).then(|| Doubt::MethodUnused {
            method: self.method.to_string(),
            address,
            found,
        })
    }

    /// Whether the choice among several cards rests on nothing but the default route, now or when it was recorded.
    fn several_cards(&self, chosen: &Chosen) -> Option<Doubt> {
        let own = self.surroundings;
        let address = chosen.network.addr();
        let is_guess = matches!(self.method, Method::Ours)
            && matches!(chosen.why, Why::DefaultRoute | Why::Recorded)
            && !own.internal_addresses.iter().any(|known| self.is_version(*known));
        let is_near = own.common_network(self.version).is_some_and(|(common, _)| common.contains(&address));
        let is_answered = own.probes.iter().any(|probe| probe.from == address && !probe.answered.is_empty());
        if !is_guess || is_near || is_answered {
            return None;
        }
        let device = own.find(address).map(|(interface, _)| interface.name.as_str());
        let is_on_other = |other: &IpAddr| {
            self.is_version(*other)
                && own.find(*other).is_some_and(|(interface, _)| Some(interface.name.as_str()) != device)
        };
        let others: Vec<IpAddr> = own.fit().filter(is_on_other).collect();
        (!others.is_empty()).then_some(Doubt::SeveralCards { address, others })
    }
}

/// An address that another machine may have tomorrow: keepalived and its like put a second one beside the machine's own,
/// mostly without a network.
pub(super) fn is_virtual(interface: &Interface, address: &InterfaceAddress) -> bool {
    let has_own_beside = interface.addresses.iter().any(|beside| {
        beside.network.addr() != address.network.addr()
            && !beside.is_secondary
            && !is_single(&beside.network)
            && is_global(beside.network.addr())
            && IpVersion::of(beside.network.addr()) == IpVersion::of(address.network.addr())
    });
    (address.is_secondary || is_single(&address.network) || address.is_unfit) && has_own_beside
}

pub(super) fn is_global(address: IpAddr) -> bool {
    let is_special = address.is_loopback() || address.is_unspecified() || address.is_multicast();
    let is_link_local = match address {
        IpAddr::V4(address) => address.is_link_local() || address.is_broadcast(),
        IpAddr::V6(address) => address.is_unicast_link_local(),
    };
    !is_special && !is_link_local
}
