//! Pauses that differ from agent to agent: many of them start at the same moment.

use std::hash::{BuildHasher as _, Hasher as _, RandomState};
use std::time::Duration;

/// Any duration up to this one.
pub(crate) fn up_to(longest: Duration) -> Duration {
    let random = RandomState::new().build_hasher().finish() % 1000;
    longest / 1000 * u32::try_from(random).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_are_bounded() {
        let longest = Duration::from_secs(10);
        assert!((0..100).all(|_| up_to(longest) <= longest));
    }
}
