//! Bundles of `plumb collect`, and what an agent answers.

#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    let read = |bytes: &[u8]| gather::bundle::read("b", &mut &*bytes).expect("memory can be read");
    let node = [&b"{\"plumbBundle\":1}\n{\"node\":"[..], data, b"}\n"].concat();
    for evidence in [read(data), read(&node)] {
        let report = doctor::diagnose(&evidence);
        let _ = render::json(&report, evidence.taken_at);
    }
});
