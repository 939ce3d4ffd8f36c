//! The words of Plumbline: names, addresses, blocks, endpoints, nodes, pools, and Calico's encodings of them.
//!
//! A decision crate: no clock, no randomness, no files, no sockets. Time and identifiers are arguments.
//!
//! * [`Kind`], [`Key`], [`KeyRange`]: what a record is called, in every store.
//! * [`Resource`]: one record of Calico's v3 API, with every field kept, known or not.
//! * [`manifest`]: text to resources; [`validate`]: which rules a resource breaks; [`schema`]: what both go by;
//!   [`yaml`]: values back to text.
//! * [`ipam`]: the records of address management, which are no v3 resources.
//! * [`kube`]: the same records as custom resources of Kubernetes.
//! * [`transfer`]: copying all records of one store to another.
//! * [`names`]: names that are computed from other names.
//! * [`FindingCode`]: what the doctor can find.
//! * [`HandleId`]: which sandbox it names, if it can name one.
//! * [`NodeName`]: compared without case, and kept as it was read.
//! * [`Cidr`]: a network with no host bits set.
//! * [`Selector`]: which labels a record speaks of, in Calico's language.
//! * [`Sandbox`]: who a pod's network belongs to. [`DeviceName`], [`Mac`]: what its devices are called.

pub mod access;
mod agent_mode;
pub mod cidr;
pub mod cluster;
mod defaults;
pub mod device;
mod endpoint;
mod finding_code;
mod handle_id;
pub mod ipam;
pub mod key;
pub mod kind;
pub mod kube;
pub mod manifest;
pub mod names;
mod node_name;
pub mod originals;
pub mod path;
pub mod resource;
pub mod sandbox;
pub mod schema;
pub mod selector;
pub mod settings;
pub mod shell;
pub mod suggest;
pub mod text;
mod text_map;
pub mod transfer;
pub mod validate;
mod word;
pub mod yaml;

pub use agent_mode::AgentMode;
pub use cidr::{Cidr, IpVersion};
pub use device::{DeviceName, DevicePrefixes, Mac};
pub use endpoint::{
    EndpointSpec, as_attached, endpoint_networks, endpoint_spec, is_detached, is_same_attachment,
};
pub use finding_code::{FindingCode, UnknownCode};
pub use handle_id::HandleId;
pub use key::{AffinityOwner, Key, KeyRange};
pub use kind::Kind;
pub use node_name::{NodeName, NodeNameError};
pub use resource::{Metadata, Resource};
pub use sandbox::Sandbox;
pub use selector::{Selector, SelectorError};
pub use shell::ShellCommand;
pub use text_map::TextMap;
