//! Requests on the agent's socket, and network configurations.

#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| agent::fuzzing::request(data));
