//! The plugin as it is released: one static file, with nothing to load and nothing to install beside it.

use std::process::Command;

/// With musl it is half of this; glibc brings more along.
const SIZE_MAX: u64 = 3 * 512 * 1024;

#[test]
fn the_released_plugin_is_small_and_needs_no_other_file() {
    let program = testkit::release::build("plumb-cni").unwrap();
    let size = program.metadata().unwrap().len();
    testkit::note("plumb-cni", &format!("{size} bytes"));
    assert!(size <= SIZE_MAX, "{size} bytes");
    if !rustix::process::geteuid().is_root() {
        testkit::skip("the_released_plugin_is_small_and_needs_no_other_file", "chroot needs root");
        return;
    }
    let root = testkit::scratch("root").unwrap();
    std::fs::copy(&program, root.path().join("plumb-cni")).unwrap();
    let mut chroot = Command::new("chroot");
    let answer = chroot.arg(root.path()).arg("/plumb-cni").env("CNI_COMMAND", "VERSION").output().unwrap();
    assert!(answer.status.success(), "{answer:?}");
}
