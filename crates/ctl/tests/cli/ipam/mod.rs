//! `plumb ipam …` on a small cluster.

mod check;
mod release;
mod settings;
mod show;
mod split;
mod town;
