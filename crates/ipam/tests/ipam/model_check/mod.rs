//! Every order in which everything can happen, on a cluster small enough to try them all.
//!
//! Actors (the ADD and DEL of each sandbox, a controller that gives up a host's blocks, a collector of leaks, recovery)
//! take turns after every single round trip to the store, and may die between any two. The search visits every state
//! that can be reached and looks at each:
//!
//! * **One owner** (invariant 1), in every state: the address of a live sandbox is allocated to its handle, and to no
//!   other live sandbox.
//! * **Books agree** (invariant 5): on a store with transactions in every state; on a store without, in every state in
//!   which nobody is at work, after recovery.
//! * **No orphans** (invariant 3), with the same two meanings: every allocation belongs to a sandbox that lives, or
//!   whose DEL is still to come or under way. At the end of everything nothing is left but the pool.
//!
//! A search of our own rather than a library's: the one considered brings a web server, threads and random hashing
//! for the sake of a loop of forty lines.

mod process;
mod scenario;
mod search;
mod state;
mod tests;
mod writing;
