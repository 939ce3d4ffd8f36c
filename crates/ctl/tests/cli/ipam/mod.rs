//! `plumb ipam …` on a small cluster.

mod check;
mod churn;
mod release;
mod settings;
mod show;
mod split;
pub(crate) mod town;
