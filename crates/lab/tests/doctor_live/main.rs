//! The doctor on a cluster that runs: faults are put into the store, the kernel, pods and nodes with the means that make them
//! in the wild, and `plumb doctor` must find each with its right subject, and nothing else.

mod bird;
mod bundles;
mod churn;
mod combos;
mod extent;
mod faults;
mod injection;
mod kubernetes;
mod loops;
mod modes;
mod relay;
mod repair;
mod repair_combos;
mod scene;
mod singles;
mod table;
mod tunnels;
