//! Records in etcd v3, in Calico's own layout.

mod config;

pub use config::{EtcdConfig, PemSource};
