//! The program itself, where its answer cannot be written.

use std::fs::OpenOptions;
use std::process::{Command, Stdio};

#[test]
fn an_answer_that_cannot_be_written_is_a_failure_and_no_crash() {
    let full = OpenOptions::new().write(true).open("/dev/full").unwrap();
    let status = Command::new(env!("CARGO_BIN_EXE_plumbd"))
        .args(&["cni"] as &[&str])
        .env("CNI_COMMAND", "VERSION")
        .stdin(Stdio::null())
        .stdout(full)
        .stderr(Stdio::null())
        .status()
        .unwrap();
    assert_eq!(status.code(), Some(1), "{status}");
}
