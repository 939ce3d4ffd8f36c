//! Tables: columns aligned within a page of rows, as kubectl does it, so that a table of any length needs the
//! memory of one page.

use std::io::{self, Write};

use model::text::{is_deceptive, one_column};
use store::ListRequest;

use crate::compat;

/// Blanks between two columns; calicoctl's number.
const GAP: usize = 3;
/// No column is narrower, the gap included; calicoctl's number too.
const COLUMN_WIDTH_MIN: usize = 5;

/// Rows that wait to be printed. The header goes out with the first page, and even if no row ever comes.
#[derive(Debug)]
pub(crate) struct Table {
    columns: usize,
    /// All cells of the page, one after the other.
    text: String,
    /// Where each cell ends in `text`, and how many characters it has.
    cells: Vec<(usize, usize)>,
    header_is_out: bool,
}

impl Table {
    pub(crate) const ROWS_PER_PAGE: usize = ListRequest::PAGE;

    pub(crate) fn new<'a>(headings: impl IntoIterator<Item = &'a str>) -> Table {
        let mut table = Table { columns: 0, text: String::new(), cells: Vec::new(), header_is_out: false };
        for heading in headings {
            table.cell(|text| text.push_str(heading));
            table.columns += 1;
        }
        table
    }

    /// Adds the next cell of the current row; `write` appends its text. Cells hold no line breaks: one that a
    /// record brings along is shown as a blank.
    pub(crate) fn cell(&mut self, write: impl FnOnce(&mut String)) {
        let start = self.text.len();
        write(&mut self.text);
        let cell = &self.text[start..];
        if cell.contains(is_deceptive) {
            let clean: String = cell.chars().map(one_column).collect();
            self.text.truncate(start);
            self.text.push_str(&clean);
        }
        let cell = &self.text[start..];
        let width = if cell.is_ascii() { cell.len() } else { cell.chars().count() };
        self.cells.push((self.text.len(), width));
    }

    /// Ends a row; a full page goes out.
    pub(crate) fn end_row(&mut self, out: &mut dyn Write) -> io::Result<()> {
        debug_assert_eq!(self.cells.len() % self.columns, 0, "a row has a cell for each column");
        // calicoctl aligns a table as a whole.
        if self.rows() >= Table::ROWS_PER_PAGE && !compat::is_strict() { self.flush(out) } else { Ok(()) }
    }

    fn rows(&self) -> usize {
        self.cells.len() / self.columns - usize::from(!self.header_is_out)
    }

    /// Prints what waits.
    pub(crate) fn flush(&mut self, out: &mut dyn Write) -> io::Result<()> {
        let widths = self.widths();
        let mut page = String::with_capacity(self.text.len() * 2);
        let mut start = 0;
        for row in self.cells.chunks(self.columns) {
            let line_start = page.len();
            for ((end, width), column) in row.iter().zip(&widths) {
                page.push_str(&self.text[start..*end]);
                page.extend(std::iter::repeat_n(' ', column - width));
                start = *end;
            }
            // The last column needs no filling, but calicoctl fills it.
            if !compat::is_strict() {
                page.truncate(line_start + page[line_start..].trim_end_matches(' ').len());
            }
            page.push('\n');
        }
        self.text.clear();
        self.cells.clear();
        self.header_is_out = true;
        out.write_all(page.as_bytes())
    }

    fn widths(&self) -> Vec<usize> {
        let mut widths = vec![COLUMN_WIDTH_MIN; self.columns];
        for row in self.cells.chunks(self.columns) {
            for (widest, (_, width)) in widths.iter_mut().zip(row) {
                *widest = (*widest).max(width + GAP);
            }
        }
        widths
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn print(headings: &[&str], rows: &[&[&str]]) -> String {
        let mut out = Vec::new();
        let mut table = Table::new(headings.iter().copied());
        for row in rows {
            for cell in *row {
                table.cell(|text| text.push_str(cell));
            }
            table.end_row(&mut out).unwrap();
        }
        table.flush(&mut out).unwrap();
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn columns_are_aligned_with_three_blanks_between() {
        let text = print(&["NAME", "N"], &[&["a", "1"], &["longer-name", ""], &["é", "x"]]);
        assert_eq!(text, "NAME          N\na             1\nlonger-name\né             x\n");
    }

    #[test]
    fn the_header_comes_even_without_rows() {
        assert_eq!(print(&["NAME", "CIDR"], &[]), "NAME   CIDR\n");
    }

    #[test]
    fn control_characters_cannot_break_a_row() {
        assert_eq!(
            print(&["A", "B"], &[&["x\ny\u{1b}[1m\u{202e}", "z"]]),
            "A          B\nx y\u{fffd}[1m\u{fffd}   z\n"
        );
    }

    #[test]
    fn each_page_is_aligned_on_its_own_and_has_no_header_of_its_own() {
        let mut out = Vec::new();
        let mut table = Table::new(["NAME", "X"]);
        for row in 0..Table::ROWS_PER_PAGE + 1 {
            let name = if row == 3 { "a-very-long-name" } else { "short" };
            table.cell(|text| text.push_str(name));
            table.cell(|text| text.push('x'));
            table.end_row(&mut out).unwrap();
            if row + 1 == Table::ROWS_PER_PAGE {
                let page = String::from_utf8(out.clone()).unwrap();
                assert_eq!(page.lines().count(), Table::ROWS_PER_PAGE + 1, "a full page is out at once");
                assert_eq!(page.lines().next(), Some("NAME               X"));
                out.clear();
            }
        }
        table.flush(&mut out).unwrap();
        assert_eq!(String::from_utf8(out).unwrap(), "short   x\n");
    }
}
