//! The plugin as it is released: one static file, with nothing to load and nothing to install beside it.

use std::path::{Path, PathBuf};
use std::process::Command;

const SIZE_MAX: u64 = 1024 * 1024;
/// The program header of what asks for a dynamic loader.
const PT_INTERP: u32 = 3;

#[test]
fn the_released_plugin_is_static_and_small() {
    let target = format!("{}-unknown-linux-musl", std::env::consts::ARCH);
    if !is_installed(&target) {
        testkit::skip("the_released_plugin_is_static_and_small", &format!("`rustup target add {target}`"));
        return;
    }
    let program = build(&target);
    let content = std::fs::read(&program).unwrap();
    println!("plumb-cni: {} bytes", content.len());
    assert!(!program_headers(&content).contains(&PT_INTERP), "it asks for a dynamic loader");
    assert!(content.len() as u64 <= SIZE_MAX, "{} bytes", content.len());
    let answer = Command::new(&program).env("CNI_COMMAND", "VERSION").output().unwrap();
    assert!(answer.status.success());
}

fn is_installed(target: &str) -> bool {
    let rustc = std::env::var_os("RUSTC").unwrap_or_else(|| "rustc".into());
    let asked = Command::new(rustc).args(["--print", "target-libdir", "--target", target]).output();
    let Ok(output) = asked else { return false };
    Path::new(String::from_utf8_lossy(&output.stdout).trim()).is_dir()
}

fn build(target: &str) -> PathBuf {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let folder = Path::new(env!("CARGO_BIN_EXE_plumb-cni")).ancestors().nth(2).unwrap();
    let mut build = Command::new(cargo);
    build.args(["build", "--quiet", "--release", "-p", "cni", "--target", target]);
    build.arg("--target-dir").arg(folder);
    assert!(build.status().unwrap().success(), "the plugin does not build for {target}");
    folder.join(target).join("release/plumb-cni")
}

/// The types of an ELF file's program headers (64 bit, little endian).
fn program_headers(content: &[u8]) -> Vec<u32> {
    assert_eq!(&content[..6], b"\x7fELF\x02\x01", "an ELF file of 64 bits");
    let number = |at: usize, length: usize| {
        let bytes = &content[at..at + length];
        bytes.iter().rev().fold(0usize, |number, byte| number << 8 | usize::from(*byte))
    };
    let (start, size, count) = (number(32, 8), number(54, 2), number(56, 2));
    (0..count).map(|index| u32::try_from(number(start + index * size, 4)).unwrap()).collect()
}
