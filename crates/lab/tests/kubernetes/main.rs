//! Labs whose store is a real Kubernetes API server: the stand-ins register their nodes, make their pods there, and tell what becomes
//! of them.

mod desk;
mod doctor;
mod modes;
mod pods;
mod scene;
