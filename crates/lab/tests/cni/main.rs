//! The plugin called as Calico's is: by Calico's names, with Calico's keys, on a real etcd and with a real Kubernetes API server. Each
//! story is told twice, without an agent and with one.

mod backend;
#[expect(dead_code, reason = "shared with other tests of pods, which look at more of it")]
#[path = "../common/books.rs"]
mod books;
mod earlier;
mod ipam_role;
mod kubernetes;
mod place;
mod plain;
