//! What happened, line by line: a hash of all of it, and the last lines in full.

use std::collections::VecDeque;
use std::hash::Hasher as _;

use fnv::FnvHasher;

const KEPT: usize = 40;

#[derive(Clone, Debug)]
pub(crate) struct Trace {
    hash: u64,
    tail: VecDeque<String>,
}

impl Trace {
    pub(crate) fn new() -> Trace {
        Trace { hash: FnvHasher::default().finish(), tail: VecDeque::with_capacity(KEPT) }
    }

    pub(crate) fn push(&mut self, line: String) {
        // The standard library's hasher may change between versions, a seed in a report must not.
        let mut hasher = FnvHasher::with_key(self.hash);
        hasher.write(line.as_bytes());
        hasher.write_u8(b'\n');
        self.hash = hasher.finish();
        if self.tail.len() == KEPT {
            self.tail.pop_front();
        }
        self.tail.push_back(line);
    }

    pub(crate) fn hash(&self) -> u64 {
        self.hash
    }

    pub(crate) fn tail(&self) -> Vec<String> {
        self.tail.iter().cloned().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn trace(lines: &[&str]) -> Trace {
        let mut trace = Trace::new();
        lines.iter().for_each(|line| trace.push(line.to_string()));
        trace
    }

    #[test]
    fn the_hash_is_of_every_line_in_order() {
        assert_eq!(trace(&["a", "b"]).hash(), trace(&["a", "b"]).hash());
        assert_ne!(trace(&["a", "b"]).hash(), trace(&["b", "a"]).hash());
        assert_ne!(trace(&["ab"]).hash(), trace(&["a", "b"]).hash());
        assert_eq!(trace(&["a"]).hash(), 0x089b_dc07_b544_e7b2);
    }

    #[test]
    fn the_last_lines_are_kept() {
        let lines: Vec<String> = (0..100).map(|number| number.to_string()).collect();
        let lines: Vec<&str> = lines.iter().map(String::as_str).collect();
        assert_eq!(trace(&lines).tail(), lines[60..]);
    }
}
