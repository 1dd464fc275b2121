//! Tables for people: plain columns, every cell sanitised and bounded.

use comfy_table::{ContentArrangement, Table, presets};

use super::{screen, text};

/// The most bytes of a cell that is not set narrower by its command.
const MAX_CELL_BYTES: usize = 400;

/// A table in the making.
pub(crate) struct Columns {
    table: Table,
}

impl Columns {
    /// A table with these headings, which are our own.
    pub(crate) fn new(headings: &[&str]) -> Self {
        let mut table = Table::new();
        table.load_style(presets::NOTHING).set_header(headings.iter().copied());
        match screen::terminal_columns() {
            // On a terminal a long cell is broken inside its column, so that no part of it can pass as a row.
            Some(columns) => {
                table
                    .set_content_arrangement(ContentArrangement::Dynamic)
                    .set_width(u16::try_from(columns).unwrap_or(u16::MAX));
            }
            None => {
                table.set_content_arrangement(ContentArrangement::Disabled);
            }
        }
        for column in table.column_iter_mut() {
            column.set_padding((0, 2));
        }
        Self { table }
    }

    /// Adds a row. Every cell is treated as foreign.
    pub(crate) fn row<I: IntoIterator<Item = String>>(&mut self, cells: I) {
        self.table.add_row(cells.into_iter().map(|cell| text::one_line(&cell, MAX_CELL_BYTES)));
    }

    /// The table's lines, without blanks at their ends.
    pub(crate) fn lines(&self) -> Vec<String> {
        self.table.lines().map(|line| line.trim_end().to_owned()).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cell_is_one_line_of_safe_text() {
        let mut table = Columns::new(&["A", "B"]);
        table.row(["x".to_owned(), "evil\n\u{1b}[2Jrow".to_owned()]);
        let lines = table.lines();
        assert_eq!(lines.len(), 2, "{lines:?}");
        assert!(lines.iter().any(|line| line.contains("evil \\x1B[2Jrow")), "{lines:?}");
    }
}
