//! The witness rule: a sandbox is gone when two witnesses say so and none says that it lives. A witness that cannot be asked says nothing.

/// What one witness says about a sandbox.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Word {
    Alive,
    Gone,
    /// It could not be asked, or cannot know.
    Nothing,
}

/// Whether these words, at one moment, say that a sandbox is gone.
pub fn say_gone(words: &[Word]) -> bool {
    let gone = words.iter().filter(|word| **word == Word::Gone).count();
    gone >= 2 && !words.contains(&Word::Alive)
}
