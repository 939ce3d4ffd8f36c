//! Long texts that begin alike, told apart by a number.

/// FNV-1a, 64 bits: for sorting and finding. Equal numbers do not prove equal texts.
pub fn fingerprint(text: &str) -> u64 {
    text.bytes()
        .fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3))
}
