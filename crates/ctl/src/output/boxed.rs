//! Tables in boxes, as calicoctl's `ipam` commands print them: headings in the middle, numbers to the right. Its latest
//! release, and so strict mode, has headings on the left and whole columns of counts on the right.

use std::io::{self, Write};

use crate::compat;

/// How the headings of columns begin that calicoctl aligns to the right.
const COUNTED: &str = "IPS ";

/// A whole table: how wide its columns are is known only at its end.
#[derive(Debug)]
pub(crate) struct Boxed {
    headings: Vec<&'static str>,
    rows: Vec<Vec<String>>,
}

impl Boxed {
    pub(crate) fn new(headings: &[&'static str]) -> Boxed {
        Boxed { headings: headings.to_vec(), rows: Vec::new() }
    }

    /// A cell for each heading. Line breaks and orders to the terminal, which others wrote, become blanks.
    pub(crate) fn row(&mut self, cells: Vec<String>) {
        debug_assert_eq!(cells.len(), self.headings.len(), "a row has a cell for each column");
        let clean = |cell: String| cell.replace(char::is_control, " ");
        self.rows.push(cells.into_iter().map(clean).collect());
    }

    pub(crate) fn write(&self, out: &mut dyn Write) -> io::Result<()> {
        let width = |column: usize| {
            let cells = self.rows.iter().map(|row| row[column].chars().count());
            cells.chain([self.headings[column].chars().count()]).max().unwrap_or_default()
        };
        let widths: Vec<usize> = (0..self.headings.len()).map(width).collect();
        let rule = |out: &mut dyn Write| {
            widths.iter().try_for_each(|width| write!(out, "+{}", "-".repeat(width + 2)))?;
            writeln!(out, "+")
        };
        rule(out)?;
        for (heading, width) in self.headings.iter().zip(&widths) {
            if compat::is_strict() {
                write!(out, "| {heading:width$} ")?;
                continue;
            }
            let gap = width - heading.chars().count();
            write!(out, "| {}{heading}{} ", " ".repeat(gap / 2), " ".repeat(gap - gap / 2))?;
        }
        writeln!(out, "|")?;
        rule(out)?;
        for row in &self.rows {
            for ((cell, width), heading) in row.iter().zip(&widths).zip(&self.headings) {
                let is_right = match compat::is_strict() {
                    true => heading.starts_with(COUNTED),
                    false => is_number(cell),
                };
                match is_right {
                    true => write!(out, "| {cell:>width$} ")?,
                    false => write!(out, "| {cell:width$} ")?,
                }
            }
            writeln!(out, "|")?;
        }
        if !self.rows.is_empty() || compat::is_strict() {
            rule(out)?;
        }
        Ok(())
    }
}

fn is_number(cell: &str) -> bool {
    let digits = cell.strip_prefix('-').unwrap_or(cell);
    let (whole, fraction) = digits.split_once('.').unwrap_or((digits, "0"));
    let are_digits = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    are_digits(whole) && are_digits(fraction)
}

/// A count with five significant digits, as Go's `%.5g` prints it.
pub(crate) fn five_digits(count: u128) -> String {
    const DIGITS: usize = 5;
    if count < 10u128.pow(DIGITS as u32) {
        return count.to_string();
    }
    let scientific = format!("{:.*e}", DIGITS - 1, count as f64);
    let (digits, exponent) = scientific.split_once('e').unwrap_or((&scientific, "0"));
    let digits = digits.trim_end_matches('0').trim_end_matches('.');
    format!("{digits}e+{exponent:0>2}")
}

/// A count and its part of the whole: `5 (8%)`.
pub(crate) fn with_percentage(count: u128, whole: u128) -> String {
    let percentage = if whole == 0 { 0.0 } else { 100.0 * (count as f64) / (whole as f64) };
    format!("{} ({percentage:.0}%)", five_digits(count))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_look_as_calicoctl_prints_them() {
        let cases = [
            (0, "0"),
            (64, "64"),
            (65_536, "65536"),
            (99_999, "99999"),
            (100_000, "1e+05"),
            (131_072, "1.3107e+05"),
            (1_048_576, "1.0486e+06"),
            (1 << 80, "1.2089e+24"),
            (u128::MAX, "3.4028e+38"),
        ];
        for (count, text) in cases {
            assert_eq!(five_digits(count), text);
        }
    }

    #[test]
    fn percentages_are_rounded_as_go_rounds_them() {
        let cases = [
            (5, 64, "5 (8%)"),
            (3, 8, "3 (38%)"),
            (5, 8, "5 (62%)"),
            (1, 200, "1 (0%)"),
            (3, 200, "3 (2%)"),
            (0, 0, "0 (0%)"),
        ];
        for (count, whole, text) in cases {
            assert_eq!(with_percentage(count, whole), text);
        }
    }

    #[test]
    fn headings_stand_in_the_middle_and_numbers_to_the_right() {
        let mut table = Boxed::new(&["GROUPING", "CIDR", "IPS TOTAL", "IPS FREE"]);
        let rows = [
            ["IP Pool", "10.65.0.0/16", "65536", "65531 (100%)"],
            ["IP Pool", "fd5f:abcd:64::/48", "1.2089e+24", "1.2089e+24 (100%)"],
            ["Block", "10.65.\u{1b}[0m\n/26", "64", "59 (92%)"],
        ];
        rows.iter().for_each(|row| table.row(row.map(str::to_owned).to_vec()));
        let mut text = Vec::new();
        table.write(&mut text).unwrap();
        let expected = "\
+----------+-------------------+------------+-------------------+
| GROUPING |       CIDR        | IPS TOTAL  |     IPS FREE      |
+----------+-------------------+------------+-------------------+
| IP Pool  | 10.65.0.0/16      |      65536 | 65531 (100%)      |
| IP Pool  | fd5f:abcd:64::/48 | 1.2089e+24 | 1.2089e+24 (100%) |
| Block    | 10.65. [0m /26    |         64 | 59 (92%)          |
+----------+-------------------+------------+-------------------+
";
        assert_eq!(String::from_utf8(text).unwrap(), expected);
    }
}
