//! What a container runtime answers.

#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| host::fuzzing::cri(data));
