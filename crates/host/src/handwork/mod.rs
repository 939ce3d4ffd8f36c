//! Carries out what a repair asks for on a node ([`plan::work`]): look, change, look again.
//!
//! What is as wanted already is left alone, and so is what is not as the plan found it. Nothing is remembered in between, so the
//! same work may be asked for twice.

mod behind;
mod place;
mod route;
mod tunnel;
mod veth;
mod wire;

use std::path::PathBuf;

use model::DeviceName;
use plan::ROUTE_PROTOCOL;
use plan::between::BETWEEN_PROTOCOL;
use plan::work::{Act, NodeWork, WorkDone};

use crate::{Host, HostError};
use place::Place;

/// What is known of the node besides its kernel, at this moment.
#[derive(Clone, Debug, Default)]
pub struct Around {
    pub maker: Maker,
    /// `None`: the runtime could not be asked, so that nobody is known to be gone.
    pub ready: Option<Vec<ReadySandbox>>,
}

/// A sandbox that the runtime lists as ready.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReadySandbox {
    pub container_id: String,
    /// `None`: the runtime does not tell, or it is the node's own.
    pub netns: Option<PathBuf>,
}

/// Whose network it is. New routes get the number by which their owner knows its own, so that it will look after them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Maker {
    /// Our agent acts here.
    #[default]
    Ours,
    Calico,
}

/// Calico's Felix marks the routes to pods as `boot` and all others of its own as 80, unless it is told otherwise.
const FELIX_PODS: u8 = 3;
const FELIX: u8 = 80;

impl Maker {
    /// For a new route through `device` that does not say whose it is.
    fn protocol(self, device: Option<&str>, is_inside: bool) -> u8 {
        let is_pods = is_inside || device.is_some_and(|name| name.starts_with(DeviceName::CALICO_PREFIX));
        match (self, is_pods) {
            (Maker::Ours, true) => ROUTE_PROTOCOL,
            (Maker::Ours, false) => BETWEEN_PROTOCOL,
            (Maker::Calico, true) => FELIX_PODS,
            (Maker::Calico, false) => FELIX,
        }
    }
}

/// What takes it back, if something can; or why nothing was done.
type Outcome = Result<Option<Act>, NotDone>;

#[derive(Debug)]
enum NotDone {
    Already,
    Surprise(String),
    /// The kernel accepted it, and holds something else.
    NotHeld(String),
    Failed(HostError),
}

impl From<HostError> for NotDone {
    fn from(error: HostError) -> NotDone {
        NotDone::Failed(error)
    }
}

fn surprise<T>(said: impl Into<String>) -> Result<T, NotDone> {
    Err(NotDone::Surprise(said.into()))
}

impl Host {
    /// Carries out one work, or says why not.
    pub fn carry_out(&mut self, work: &NodeWork, around: &Around) -> WorkDone {
        match self.try_carry_out(work, around) {
            Ok(undo) => {
                let inside = work.inside.clone();
                WorkDone::Done { undo: undo.map(|act| Box::new(NodeWork { inside, act })) }
            }
            Err(NotDone::Already) => WorkDone::Already,
            Err(NotDone::Surprise(said)) => WorkDone::Surprise { said },
            Err(NotDone::NotHeld(said)) => WorkDone::Failed { said },
            Err(NotDone::Failed(error)) => WorkDone::Failed { said: in_words(&error) },
        }
    }

    fn try_carry_out(&mut self, work: &NodeWork, around: &Around) -> Outcome {
        match (&work.act, &work.inside) {
            (Act::Device { device, from, to }, None) => {
                self.change_veth(&known(device)?, from.as_ref(), to.as_ref(), around)
            }
            (Act::Wire(wire), None) => self.wire(wire, around),
            (Act::Unwire(wire), None) => self.unwire(wire, around),
            (Act::Tunnel { device, from, to }, None) => {
                self.change_tunnel(device, from.as_ref(), to.as_ref())
            }
            (Act::Device { .. } | Act::Wire(_) | Act::Unwire(_) | Act::Tunnel { .. }, Some(_)) => {
                surprise("that is done on the node, not inside a sandbox")
            }
            (act, None) => Place::Node(&mut self.netlink).change(act, around.maker),
            (act, Some(id)) => {
                let mut pod = self.open_pod(&around.namespace_of(id)?)?;
                Place::Pod(&mut pod).change(act, around.maker)
            }
        }
    }
}

impl Around {
    /// Where a sandbox lives that the runtime vouches for.
    fn namespace_of(&self, container_id: &str) -> Result<PathBuf, NotDone> {
        let Some(ready) = &self.ready else {
            return surprise(format!("the runtime cannot be asked about sandbox {container_id}"));
        };
        match ready.iter().find(|sandbox| sandbox.container_id == container_id) {
            None => surprise(format!("the runtime does not list sandbox {container_id} as ready")),
            Some(ReadySandbox { netns: Some(netns), .. }) => Ok(netns.clone()),
            Some(ReadySandbox { netns: None, .. }) => {
                surprise(format!("the runtime does not tell where sandbox {container_id} lives"))
            }
        }
    }
}

fn known(device: &str) -> Result<DeviceName, NotDone> {
    DeviceName::new(device).or_else(|error| surprise(error.to_string()))
}

/// With all causes.
fn in_words(error: &HostError) -> String {
    let mut words = error.to_string();
    let mut source = std::error::Error::source(error);
    while let Some(cause) = source {
        words = format!("{words}: {cause}");
        source = cause.source();
    }
    words
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn new_routes_are_their_owners() {
        let protocol = |maker: Maker, device| maker.protocol(Some(device), false);
        assert_eq!(protocol(Maker::Ours, "cali1"), ROUTE_PROTOCOL);
        assert_eq!(protocol(Maker::Ours, "eth0"), BETWEEN_PROTOCOL);
        assert_eq!(protocol(Maker::Calico, "cali1"), 3);
        assert_eq!(protocol(Maker::Calico, "vxlan.calico"), 80);
        assert_eq!(Maker::Calico.protocol(None, false), 80, "a black hole");
        assert_eq!(Maker::Ours.protocol(Some("eth0"), true), ROUTE_PROTOCOL, "inside a pod");
    }

    #[test]
    fn a_sandbox_is_where_the_runtime_says() {
        let sandbox = |id: &str, netns: Option<&str>| ReadySandbox {
            container_id: id.to_owned(),
            netns: netns.map(PathBuf::from),
        };
        let mut around = Around {
            ready: Some(vec![sandbox("c1", Some("/run/netns/c1")), sandbox("c2", None)]),
            ..Around::default()
        };
        assert_eq!(around.namespace_of("c1").unwrap(), PathBuf::from("/run/netns/c1"));
        assert!(matches!(around.namespace_of("c2"), Err(NotDone::Surprise(_))));
        assert!(matches!(around.namespace_of("c3"), Err(NotDone::Surprise(_))));
        around.ready = None;
        assert!(matches!(around.namespace_of("c1"), Err(NotDone::Surprise(_))));
    }
}
