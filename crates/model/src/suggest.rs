//! "Did you mean": the known word nearest to a misspelt one.

/// The candidate that `word` most likely stands for, or none if nothing is near enough to be helpful.
pub fn nearest<'a>(word: &str, candidates: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let folded = word.to_ascii_lowercase();
    candidates
        .into_iter()
        .map(|candidate| (distance(&folded, &candidate.to_ascii_lowercase()), candidate))
        .filter(|(distance, candidate)| *distance <= tolerance(candidate))
        .min_by_key(|(distance, _)| *distance)
        .map(|(_, candidate)| candidate)
}

/// One slip in a short word, more in a long one.
fn tolerance(candidate: &str) -> usize {
    (candidate.len() / 3).clamp(1, 4)
}

/// Edit distance (insert, delete, replace, swap of neighbours), over bytes: the known words are ASCII.
/// Words too long to be a slip of the pen are not compared.
fn distance(left: &str, right: &str) -> usize {
    const LONGEST: usize = 64;
    let (left, right) = (left.as_bytes(), right.as_bytes());
    if left.len() > LONGEST || right.len() > LONGEST {
        return usize::MAX;
    }
    let mut before_last: Vec<usize> = Vec::new();
    let mut last: Vec<usize> = (0..=right.len()).collect();
    for row in 0..left.len() {
        let mut current = vec![row + 1];
        for column in 0..right.len() {
            let replace = last[column] + usize::from(left[row] != right[column]);
            let mut best = replace.min(last[column + 1] + 1).min(current[column] + 1);
            let swapped =
                row > 0 && column > 0 && left[row] == right[column - 1] && left[row - 1] == right[column];
            if swapped {
                best = best.min(before_last[column - 1] + 1);
            }
            current.push(best);
        }
        before_last = std::mem::replace(&mut last, current);
    }
    last[right.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slips_are_recognised_and_strangers_are_not() {
        let kinds = ["IPPool", "IPReservation", "BGPPeer", "Node"];
        assert_eq!(nearest("ippool", kinds), Some("IPPool"));
        assert_eq!(nearest("IPPol", kinds), Some("IPPool"));
        assert_eq!(nearest("IPReservations", kinds), Some("IPReservation"));
        assert_eq!(nearest("Ndoe", kinds), Some("Node"));
        assert_eq!(nearest("Deployment", kinds), None);
        assert_eq!(nearest("", kinds), None);
        assert_eq!(nearest(&"x".repeat(10_000), kinds), None);
    }
}
