//! Requests on the agent's socket.

#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| agent::fuzzing::request(data));
