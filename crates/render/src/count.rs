//! Numbers in sentences.

/// `1 error`, `1,500 errors`.
pub(crate) fn count(number: usize, word: &str) -> String {
    let plural = if number == 1 { "" } else { "s" };
    format!("{} {word}{plural}", grouped(number))
}

/// Digits in threes.
pub(crate) fn grouped(number: usize) -> String {
    let digits = number.to_string();
    let mut text = String::new();
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_written_for_people() {
        assert_eq!(
            [0, 7, 999, 1000, 150_000, 1_234_567].map(grouped),
            ["0", "7", "999", "1,000", "150,000", "1,234,567"]
        );
        assert_eq!(
            [count(1, "error"), count(0, "error"), count(2500, "error")],
            ["1 error", "0 errors", "2,500 errors"]
        );
    }
}
