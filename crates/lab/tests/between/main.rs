//! Pods of different nodes: over every sort of network, and while things happen.

mod address;
mod arrivals;
mod bird;
mod crashes;
mod killed;
mod modes;
mod partition;
mod scene;
mod strangers;
mod traffic;
