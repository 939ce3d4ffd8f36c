//! What BIRD answers on its socket, up to the sessions that are read from it.

#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    let answer = host::fuzzing::bird(data);
    let pasted = format!("bird> show protocols\n{answer}");
    let evidence = intake::read([("a.bird.txt", pasted.as_bytes())]);
    let _ = doctor::diagnose(&evidence);
});
