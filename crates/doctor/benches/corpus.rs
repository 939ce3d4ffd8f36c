//! How many root causes the doctor names in the clusters of `tests/corpus`, and what it claims besides.
//!
//! `cargo bench -p doctor --bench corpus [-- -o json]`, or by `cargo xtask bench doctor`.

#![expect(clippy::disallowed_methods, reason = "the corpus is files")]

#[expect(dead_code, reason = "the test of the corpus shows more of it")]
#[path = "../tests/corpus/score.rs"]
mod score;

use testkit::figures::{self, Figure, Goal};

fn main() {
    let score = score::score(&score::judge_all());
    let count = |name: &str, value: usize| Figure::new(name, value as f64, "");
    let per_cause = (score.found + score.extra) as f64 / score.causes as f64;
    figures::print(
        "doctor",
        &[
            count("corpus: root causes found", score.found).wanted(Goal::ValueAtLeast(score.causes as f64)),
            count("corpus: found in own words", score.in_own_words)
                .wanted(Goal::ValueAtLeast(score.causes as f64)),
            Figure::new("corpus: findings for each cause", per_cause, "").wanted(Goal::ValueAtMost(1.2)),
            count("corpus: false alarms in healthy clusters", score.false_alarms)
                .wanted(Goal::ValueAtMost(0.0)),
            count("corpus: claims that are forbidden", score.forbidden).wanted(Goal::ValueAtMost(0.0)),
        ],
    );
}
