//! Network configurations, as a container runtime passes them on.

#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| agent::fuzzing::netconf(data));
