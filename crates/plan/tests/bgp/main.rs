//! BGP as records ask for it: with whom a node speaks, and what BIRD is told.

mod config;
mod odd;
mod sessions;
mod views;
