//! The words of Plumbline: names, addresses, blocks, endpoints, nodes, pools, and Calico's encodings of them.
//!
//! A decision crate: no clock, no randomness, no files, no sockets. Time and identifiers are arguments.
//!
//! * [`Kind`], [`Key`], [`KeyRange`]: what a record is called, in every store.
//! * [`Resource`]: one record of Calico's v3 API, with every field kept, known or not.
//! * [`Cidr`]: a network with no host bits set.
//! * [`Selector`]: which labels a record speaks of, in Calico's language.
//! * [`Sandbox`]: who a pod's network belongs to. [`DeviceName`], [`Mac`]: what its devices are called.

pub mod cidr;
pub mod device;
pub mod key;
pub mod kind;
pub mod resource;
pub mod sandbox;
pub mod selector;

pub use cidr::{Cidr, IpVersion};
pub use device::{DeviceName, Mac};
pub use key::{AffinityOwner, Key, KeyRange};
pub use kind::Kind;
pub use resource::{Metadata, Resource};
pub use sandbox::Sandbox;
pub use selector::{Selector, SelectorError};
