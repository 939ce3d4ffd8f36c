//! Routes and tunnels between nodes: each mode by itself, and any sequence of changes.

mod cluster;
mod kernel;
mod lawful;
mod modes;
mod repair;
mod sequences;
mod trouble;
