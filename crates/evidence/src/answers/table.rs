//! Tables as tools print them: a header, and rows whose cells stand under it.

/// No tool prints more. Every row costs as much as its table has columns.
const COLUMNS_MAX: usize = 64;

/// Where the columns of a table begin, in characters.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Header {
    columns: Vec<(String, usize)>,
}

/// A row, cut at its header's columns.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Row<'h> {
    header: &'h Header,
    cells: Vec<String>,
}

impl Header {
    /// Reads a line of column names. Names may hold single spaces (`CONTAINER ID`), so two or more part them; a line
    /// without any double space is parted at single ones.
    pub fn read(line: &str) -> Option<Header> {
        let columns =
            spans(line, 2).or_else(|| spans(line, 1)).filter(|columns| columns.len() <= COLUMNS_MAX)?;
        let columns = columns.into_iter().map(|(start, name)| (name.to_uppercase(), start)).collect();
        Some(Header { columns })
    }

    /// A single column of names.
    pub fn single(name: &str) -> Header {
        Header { columns: vec![(name.to_owned(), 0)] }
    }

    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.columns.iter().map(|(name, _)| name.as_str())
    }

    /// Whether all of these columns are there.
    pub fn has(&self, names: &[&str]) -> bool {
        names.iter().all(|name| self.names().any(|column| column == *name))
    }

    /// Cuts a row. Texts are edited and reflowed on their way, so a row whose cells do not stand under the header is
    /// parted at spaces, if that gives as many cells as there are columns.
    pub fn row<'h>(&'h self, line: &str) -> Option<Row<'h>> {
        let cells = self
            .cells_by_position(line)
            .or_else(|| self.cells_by_spaces(line, 2))
            .or_else(|| self.cells_by_spaces(line, 1))?;
        Some(Row { header: self, cells })
    }

    fn cells_by_position(&self, line: &str) -> Option<Vec<String>> {
        let characters: Vec<char> = line.chars().collect();
        let mut cells = Vec::with_capacity(self.columns.len());
        for (index, (_, start)) in self.columns.iter().enumerate() {
            let end =
                self.columns.get(index + 1).map_or(characters.len(), |(_, next)| *next).min(characters.len());
            let before = start.checked_sub(1).and_then(|before| characters.get(before));
            let begins_inside = *start < characters.len() && before.is_some_and(|before| *before != ' ');
            if begins_inside {
                return None;
            }
            let cell: String = characters.get(*start..end.max(*start)).unwrap_or_default().iter().collect();
            // Whatever begins a cell stands right under its header.
            if cell.starts_with(' ') && !cell.trim().is_empty() {
                return None;
            }
            cells.push(cell.trim().to_owned());
        }
        (!cells.first()?.is_empty()).then_some(cells)
    }

    fn cells_by_spaces(&self, line: &str, gap: usize) -> Option<Vec<String>> {
        let cells: Vec<String> = spans(line, gap)?.into_iter().map(|(_, cell)| cell.to_owned()).collect();
        (cells.len() == self.columns.len()).then_some(cells)
    }
}

impl Row<'_> {
    /// The cell of a column. Empty cells and `<none>` are `None`.
    pub fn get(&self, name: &str) -> Option<&str> {
        let index = self.header.names().position(|column| column == name)?;
        let cell = self.cells.get(index)?.as_str();
        (!matches!(cell, "" | "<none>" | "<unknown>" | "<unset>")).then_some(cell)
    }
}

/// Pieces parted by at least `gap` spaces, each with where it starts. `None` if there is only one.
pub fn spans(line: &str, gap: usize) -> Option<Vec<(usize, &str)>> {
    let mut found: Vec<(usize, &str)> = Vec::new();
    let mut piece: Option<(usize, usize)> = None;
    let mut spaces = 0;
    let mut last_end = 0;
    for (position, (offset, character)) in line.char_indices().enumerate() {
        if character == ' ' || character == '\t' {
            spaces += if character == '\t' { gap } else { 1 };
            continue;
        }
        if let Some((start, from)) = piece
            && spaces >= gap
        {
            found.push((start, line.get(from..last_end).unwrap_or_default()));
            piece = None;
        }
        piece.get_or_insert((position, offset));
        spaces = 0;
        last_end = offset + character.len_utf8();
    }
    if let Some((start, from)) = piece {
        found.push((start, line.get(from..last_end).unwrap_or_default()));
    }
    (found.len() > 1).then_some(found)
}

/// The cells of a row of a boxed table: `| a | b |`.
pub fn boxed(line: &str) -> Option<Vec<&str>> {
    let inner = line.trim().strip_prefix('|')?.strip_suffix('|')?;
    let cells: Vec<&str> = inner.split('|').take(COLUMNS_MAX + 1).map(str::trim).collect();
    (cells.len() <= COLUMNS_MAX).then_some(cells)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn cells_stand_under_their_header() {
        let header = Header::read("CONTAINER ID   IMAGE    NAMES").unwrap();
        let row = header.row("f8189c4b982a            web one").unwrap();
        assert_eq!(row.get("CONTAINER ID"), Some("f8189c4b982a"));
        assert_eq!((row.get("IMAGE"), row.get("NAMES"), row.get("NONE")), (None, Some("web one"), None));
    }

    #[test]
    fn reflowed_rows_are_parted_at_spaces() {
        let header = Header::read("NAME          STATUS     ROLES").unwrap();
        let row = header.row("a-very-long-name-indeed NotReady <none>").unwrap();
        assert_eq!((row.get("NAME"), row.get("STATUS")), (Some("a-very-long-name-indeed"), Some("NotReady")));
        assert_eq!(row.get("ROLES"), None);
        assert!(header.row("  off the very edge").is_none());
    }

    #[test]
    fn boxes_are_opened() {
        assert_eq!(boxed("| a |  b c  |").unwrap(), ["a", "b c"]);
        assert!(boxed("+---+").is_none());
        assert!(boxed(&"|".repeat(COLUMNS_MAX + 2)).is_none(), "no tool prints so many columns");
    }

    proptest! {
        #[test]
        fn any_lines_can_be_tried(header in "\\PC{0,60}", row in "\\PC{0,60}") {
            if let Some(header) = Header::read(&header) {
                header.row(&row);
            }
            boxed(&row);
        }
    }
}
