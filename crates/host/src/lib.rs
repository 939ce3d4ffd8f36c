//! The only door to the kernel and the node.
//!
//! * [`Host`]: the node's side, in verbs of ours, all of them blocking. For one pod: [`Host::ensure`] gives it its
//!   network and waits until packets pass (or [`Host::prepare`] and [`Host::finish`], with time for the records in
//!   between), [`Host::check`] and [`Host::observe`] look at both ends,
//!   [`Host::detach`] takes it out of service at once, [`Host::adopt`] takes over what another program wired. For the node: [`Host::observe_node`] reads everything,
//!   [`Host::check_host_end`] the host end of one pod, [`Host::mend`] puts differences right, [`Host::sweep`]
//!   removes what was detached. Between nodes: [`Host::find_uplinks`], [`Host::ensure_vxlan`], [`Host::observe_between`] and
//!   [`Host::apply_between`], and [`between::nft`]; [`Host::ensure_pod_guard`] holds pods to their own addresses.
//!   For a repair: [`Host::run_task`] changes one thing as the plan says, and only if it is as the plan found it.
//! * [`nftables`]: rulesets of nf_tables over netlink.
//! * [`Worker`]: a thread with a `Host`, for asynchronous programs.
//! * [`Monitor`]: what the kernel announces, as [`plan::Notice`]s.
//! * [`NetNs`], [`PodNamespace`]: network namespaces, and how to be in one for a moment.
//! * [`survey`]: everything that a namespace holds, whoever made it.
//! * [`probe`]: other hosts, asked whether they answer.
//! * [`kubelet`]: which address the kubelet was given.
//! * [`cri`]: the container runtime, asked which sandboxes it has.
//! * [`backend`]: a dataplane of another program, asked to make an interface.
//! * [`program`]: other programs, run within a limit of time.
//!
//! Everything made here can be recognised as ours without memory: links by the sandbox in their alias, routes by
//! [`plan::ROUTE_PROTOCOL`]. What cannot be recognised is never removed.
//!
//! # Keeping a node right
//!
//! ```text
//!   monitor = Monitor::open()                          before the first look, so that nothing is missed
//!   observed = worker.run(Host::observe_node)          at the start, after an overrun, and when idle: also finds
//!   found = plan::node_differences(desired, observed)    what the kernel does not announce
//!     Renamed, RouteStray, OfPod        worker.run(Host::mend)
//!     OfPod { Missing }                 Host::ensure, with the pod's namespace
//!     Unexpected                        a decision: Host::detach
//!     Detached                          Host::sweep, on a worker of its own: it takes tens of milliseconds
//!   for each link with an owner         watched.learn(index, owner)
//!
//!   monitor.next(notice → watched.affected(notice))    Pod(sandbox): Host::check_host_end, then Host::mend
//!                                                      Node: as at the start
//! ```

#![expect(unexpected_cfgs, reason = "cargo-fuzz sets `fuzzing`, which cargo does not know")]

mod adopt;
mod apply;
pub mod backend;
pub mod between;
pub mod bird;
mod create;
pub mod cri;
mod detach;
mod error;
#[cfg(fuzzing)]
pub mod fuzzing;
pub mod kubelet;
mod links;
mod memory;
mod messages;
mod monitor;
mod netlink;
mod netns;
pub mod nftables;
mod node;
mod objects;
mod observe;
pub mod probe;
pub mod program;
mod resolver;
mod strayed;
pub mod survey;
mod sysctl;
mod task;
mod turn;
mod worker;

pub use adopt::{Adoption, Claim};
pub use between::guard::RulesTouched;
pub use create::{Ahead, Prepared};
pub use detach::{Detached, PodInterface, Swept};
pub use error::HostError;
pub use links::{Halfway, Host, OwnedLink};
pub use memory::{give_back_memory, share_heaps};
pub use monitor::{Monitor, TableTouched};
pub use netns::{NetNs, PodNamespace};
pub use node::Unmended;
pub use resolver::use_built_in_resolver;
pub use task::{ReadySandbox, TaskContext};
pub use turn::take_short_turns;
pub use worker::Worker;
