//! Who holds an address, in the words that Calico's tools and controllers look for.

use std::collections::BTreeMap;

use jiff::Timestamp;
use jiff::civil::DateTime;
use jiff::tz::TimeZone;
use model::HandleId;
use model::ipam::BlockAttribute;

/// The attributes of Calico that say whose an address is.
pub const POD_ATTRIBUTE: &str = "pod";
pub const NAMESPACE_ATTRIBUTE: &str = "namespace";
pub const NODE_ATTRIBUTE: &str = "node";
pub const TIMESTAMP_ATTRIBUTE: &str = "timestamp";
pub const TYPE_ATTRIBUTE: &str = "type";

/// An attribute of ours beside Calico's: which interface of the sandbox an address is for. All attachments of one
/// container to one network share a handle, and each is released on its own.
pub const INTERFACE_ATTRIBUTE: &str = "interface";

/// An attribute of ours beside Calico's: the pod's UID. A pod that was made again under its name is another one.
pub const POD_UID_ATTRIBUTE: &str = "pod-uid";

/// An attribute of ours beside Calico's: the address was given to another network plugin, which keeps no endpoint. Only
/// the node that it is on knows whether the sandbox still lives.
pub const ROLE_ATTRIBUTE: &str = "role";

/// The type of a node's own address in a block that another network plugin uses.
pub const GATEWAY_TYPE: &str = "gateway";

/// Whether no record would tell that the address is in use.
pub(crate) fn is_of_other_plugin(attribute: &BlockAttribute) -> bool {
    let kind = attribute.secondary.get(TYPE_ATTRIBUTE);
    attribute.secondary.contains_key(ROLE_ATTRIBUTE) || kind.is_some_and(|kind| kind == GATEWAY_TYPE)
}

/// Who holds an address.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Owner {
    pub handle: HandleId,
    pub attributes: BTreeMap<String, String>,
}

impl Owner {
    /// An owner on a node, from now on.
    pub fn on_node(handle: impl Into<HandleId>, node: &str, now: Timestamp) -> Owner {
        let timestamp = now.strftime("%Y-%m-%d %H:%M:%S%.f +0000 UTC").to_string();
        Owner { handle: handle.into(), attributes: BTreeMap::new() }
            .with(NODE_ATTRIBUTE, node)
            .with(TIMESTAMP_ATTRIBUTE, &timestamp)
    }

    #[must_use]
    pub fn of_pod(self, namespace: &str, name: &str, uid: Option<&str>) -> Owner {
        let owner = self.with(NAMESPACE_ATTRIBUTE, namespace).with(POD_ATTRIBUTE, name);
        match uid {
            Some(uid) => owner.with(POD_UID_ATTRIBUTE, uid),
            None => owner,
        }
    }

    #[must_use]
    pub fn with(mut self, attribute: &str, value: &str) -> Owner {
        self.attributes.insert(attribute.to_owned(), value.to_owned());
        self
    }

    pub(crate) fn attribute(&self) -> BlockAttribute {
        BlockAttribute {
            handle_id: Some((&self.handle).into()),
            secondary: (&self.attributes).into(),
            ..BlockAttribute::default()
        }
    }
}

/// When an address was given, as Calico notes it: `2026-08-22 05:33:20.123 +0000 UTC`.
pub fn allocated_at(attribute: &BlockAttribute) -> Option<Timestamp> {
    let text = attribute.secondary.get(TIMESTAMP_ATTRIBUTE)?;
    let second: DateTime = text.get(..19)?.parse().ok()?;
    Some(second.to_zoned(TimeZone::UTC).ok()?.timestamp())
}
