//! The real `plumb`, run as operators run it.
//!
//! * `transcripts`: whole sessions as text files, on SQLite and on etcd.
//! * `across_records`: records that name, hold or hide one another.
//! * `calicoctl`: strict mode, case by case beside what calicoctl prints.
//! * `copy`: all records of one store to another.
//! * `doctor`: findings in a live store.
//! * `ipam`: address management on a small cluster.
//! * `bad_input`: what must be refused, with a clear word and without a trace.
//! * `places`: stores that cannot be reached, read or written.
//! * `records`: records that others made.
//! * `repair`: plans, what becomes of them when they are killed, and undo.
//! * `status`: does the network work?
//! * `together`: several operators at once.

mod across_records;
mod bad_input;
mod calicoctl;
mod copy;
mod doctor;
mod harness;
mod ipam;
mod places;
mod records;
mod repair;
mod shell;
mod status;
mod together;
mod transcripts;
