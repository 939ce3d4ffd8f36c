//! The checklist of Calico's own IPAM tests, on SQLite and on a real etcd. The words are the checklist's. What it says
//! about one block in memory, and its longer tables, are in `crates/ipam/tests`.

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
