//! What was asked for on the command line of `cargo xtask test`.

use std::process::Command;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use anyhow::{Context as _, Result, bail};

/// The kinds of test, in the order they run.
pub(crate) const KINDS: &[&str] =
    &["tidy", "unit", "integration", "doc", "transcripts", "demo", "simulation", "fuzz", "released"];

#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Options {
    pub(crate) seed: u64,
    pub(crate) full: bool,
    /// Keeps the machine's cores busy meanwhile.
    pub(crate) busy: bool,
    /// Empty: all kinds.
    kinds: Vec<String>,
    /// Whatever is neither a flag nor a kind: a crate's name, or part of a test's name.
    pub(crate) words: Vec<String>,
}

impl Options {
    pub(crate) fn parse(args: &[String]) -> Result<Options> {
        let mut options =
            Options { seed: fresh_seed(), full: false, busy: false, kinds: Vec::new(), words: Vec::new() };
        let mut args = args.iter();
        while let Some(arg) = args.next() {
            match arg.as_str() {
                "--full" => options.full = true,
                "--busy" => options.busy = true,
                "--seed" => options.seed = seed(args.next().context("--seed needs a number")?)?,
                other if other.starts_with("--seed=") => options.seed = seed(&other["--seed=".len()..])?,
                flag if flag.starts_with('-') => {
                    bail!(
                        "unknown flag {flag}; usage: cargo xtask test [--full] [--busy] [--seed N] [FILTER…]"
                    )
                }
                kind if KINDS.contains(&kind) => options.kinds.push(kind.to_owned()),
                word => options.words.push(word.to_owned()),
            }
        }
        Ok(options)
    }

    /// A word alone asks for tests by name, which only the kinds that cargo builds have.
    pub(crate) fn wants_kind(&self, kind: &str) -> bool {
        if !self.kinds.is_empty() {
            return self.is_named(kind);
        }
        self.words.is_empty() || ["unit", "integration", "doc"].contains(&kind)
    }

    /// Whether the command line names this kind, which is then not too long for an ordinary run.
    pub(crate) fn is_named(&self, kind: &str) -> bool {
        self.kinds.iter().any(|named| named == kind)
    }

    /// How long one program may take before it counts as stuck.
    pub(crate) fn allowed(&self) -> Duration {
        Duration::from_secs(if self.full { 8 * 3600 } else { 3600 }) * self.slowness()
    }

    /// How long one test may take before it counts as hanging. Longer than testkit's patience, so that a test which waits in vain can
    /// say for what.
    pub(crate) fn allowed_for_test(&self) -> Duration {
        Duration::from_secs(if self.full { 2 * 3600 } else { 600 }) * self.slowness()
    }

    /// How much longer everything takes.
    pub(crate) fn slowness(&self) -> u32 {
        if self.busy { 3 } else { 1 }
    }

    /// Tells a test program about the run: see the crate `testkit`. Property tests take the seed from
    /// variables of their own.
    pub(crate) fn describe_to(&self, command: &mut Command) {
        command.env("PLUMB_TEST_SEED", self.seed.to_string());
        command.env("PROPTEST_RNG_SEED", self.seed.to_string());
        command.env_remove("PLUMB_TEST_FULL");
        if self.full {
            command.env("PLUMB_TEST_FULL", "1").env("PROPTEST_CASES", "4096");
        }
    }
}

fn seed(text: &str) -> Result<u64> {
    text.parse().with_context(|| format!("--seed wants a number, not {text:?}"))
}

/// Another one each time, short enough to be typed again.
fn fresh_seed() -> u64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    (now.as_nanos() as u64 ^ u64::from(std::process::id()) << 20) % 1_000_000_007
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(args: &[&str]) -> Result<Options> {
        Options::parse(&args.iter().map(|arg| (*arg).to_owned()).collect::<Vec<_>>())
    }

    #[test]
    fn flags_kinds_and_words_are_told_apart() {
        let options = parse(&["--full", "--busy", "--seed", "7", "unit", "store", "watch"]).unwrap();
        assert!(options.full && options.busy);
        assert_eq!(options.seed, 7);
        assert_eq!(options.words, ["store", "watch"]);
        assert!(options.wants_kind("unit"));
        assert!(!options.wants_kind("tidy"));
        assert_eq!(parse(&["--seed=18446744073709551615"]).unwrap().seed, u64::MAX);
    }

    #[test]
    fn without_filter_everything_runs_and_a_word_asks_for_named_tests() {
        let all = parse(&[]).unwrap();
        assert!(KINDS.iter().all(|kind| all.wants_kind(kind)));
        let named = parse(&["watch"]).unwrap();
        assert!(named.wants_kind("integration") && !named.wants_kind("demo"));
    }

    #[test]
    fn wrong_arguments_are_refused() {
        assert!(parse(&["--seed", "x"]).unwrap_err().to_string().contains("\"x\""));
        assert!(parse(&["--seed"]).is_err());
        assert!(parse(&["--ful"]).unwrap_err().to_string().contains("--ful"));
    }
}
