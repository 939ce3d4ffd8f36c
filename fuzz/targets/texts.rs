//! Texts that people paste: everything from bytes to a report. The first line is the file's name.

#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    let (name, content) = data.split_at(data.iter().position(|byte| *byte == b'\n').unwrap_or(0));
    let evidence = intake::read([(&*String::from_utf8_lossy(name), content)]);
    let report = doctor::diagnose(&evidence);
    let _ = (render::json(&report, None), render::html(&report, &evidence));
    let masked = model::text::masked(&String::from_utf8_lossy(content));
    assert!(!masked.contains('\u{1b}'), "an escape got through");
});
