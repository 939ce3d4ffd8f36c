//! How the allocator of a long-lived process behaves: by default it keeps a heap for nearly every thread, and keeps in
//! each what a burst of calls once needed.

/// One for each of the threads that are at work on a call at the same time: where two share one, they wait for each other.
#[cfg(target_env = "gnu")]
const HEAPS: i32 = 4;

#[cfg(target_env = "gnu")]
#[expect(unsafe_code, reason = "no crate here offers these two")]
mod glibc {
    /// `M_ARENA_MAX` of malloc.h.
    pub(super) const ARENA_MAX: i32 = -8;

    // SAFETY: declared as in malloc.h. Both take numbers only, take the allocator's own locks, touch nothing that is in
    // use, and may be called at any time; a number that mallopt does not like it ignores.
    unsafe extern "C" {
        pub(super) safe fn mallopt(parameter: i32, value: i32) -> i32;
        pub(super) safe fn malloc_trim(keep: usize) -> i32;
    }
}

/// Has all threads share a few heaps. To be called before there is a second thread.
#[cfg(target_env = "gnu")]
pub fn share_heaps() {
    glibc::mallopt(glibc::ARENA_MAX, HEAPS);
}

/// Gives memory that is not in use back to the machine. Takes some hundred microseconds.
#[cfg(target_env = "gnu")]
pub fn give_back_memory() {
    glibc::malloc_trim(0);
}

/// Other allocators do as they like.
#[cfg(not(target_env = "gnu"))]
pub fn share_heaps() {}

#[cfg(not(target_env = "gnu"))]
pub fn give_back_memory() {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_that_was_freed_goes_back() {
        share_heaps();
        let resident = || testkit::effort::resident_bytes(std::process::id()).unwrap();
        let pieces: Vec<Vec<u8>> = (0..2000).map(|_| vec![1; 10_000]).collect();
        let kept = vec![1_u8; 10_000];
        let full = resident();
        drop(pieces);
        give_back_memory();
        if cfg!(target_env = "gnu") {
            assert!(full - resident() > 10_000_000, "{full} before, {} after", resident());
        }
        drop(kept);
    }
}
