//! What the kernel sends over netlink, and packets that answer a probe.

#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| host::fuzzing::netlink(data));
