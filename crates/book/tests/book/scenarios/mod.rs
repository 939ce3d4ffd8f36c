//! The checklist of Calico's own IPAM tests, on SQLite, on a real etcd and on a real API server of Kubernetes. The words are the
//! checklist's. What it says about one block in memory, and its longer tables, are in `crates/ipam/tests`.

mod affinities;
mod handles;
mod limits;
mod overtaken;
mod pools;
mod races;
mod releases;
mod uses;
mod world;

pub(crate) use world::World;
