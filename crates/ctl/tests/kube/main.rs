//! `plumb install` for Kubernetes, against a real API server: the definitions, and what the shipped roles and policies allow.

mod acts;
mod agent;
mod definitions;
mod fixture;
mod networks;
mod operators;
mod refused;
mod workloads;
