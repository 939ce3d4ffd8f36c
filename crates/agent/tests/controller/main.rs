//! `plumbd controller` against real stores: who leads, what is removed, and above all what is not.

mod collection;
mod election;
mod program;
mod projection;
mod world;
