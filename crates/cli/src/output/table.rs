//! Tables for people: plain columns, every cell sanitised and bounded.
//!
//! Ids are never broken, so that they can be copied: on a narrow terminal only the last column gives way, and
//! where there is no room for it at all it stands beneath its row.

use comfy_table::{ContentArrangement, Table, presets};

use super::{screen, text};

/// The most bytes of a cell that is not set narrower by its command.
const MAX_CELL_BYTES: usize = 400;

/// Blanks between columns.
const GAP: u16 = 2;

/// The narrowest last column.
const MIN_LAST: usize = 16;

/// How far the last cell is set in when it stands beneath its row.
const INDENT: usize = 4;

/// A table in the making.
#[derive(Debug)]
pub(crate) struct Columns {
    headings: Vec<String>,
    rows: Vec<Vec<String>>,
}

impl Columns {
    /// A table with these headings, which are our own.
    pub(crate) fn new(headings: &[&str]) -> Self {
        Self { headings: headings.iter().map(|&name| name.to_owned()).collect(), rows: Vec::new() }
    }

    /// Adds a row. Every cell is treated as foreign.
    pub(crate) fn row<I: IntoIterator<Item = String>>(&mut self, cells: I) {
        self.rows
            .push(cells.into_iter().map(|cell| text::one_line(&cell, MAX_CELL_BYTES)).collect());
    }

    /// The table's lines, without blanks at their ends.
    pub(crate) fn lines(self) -> Vec<String> {
        self.lines_for(screen::terminal_columns())
    }

    /// For a terminal of so many columns, or for a file.
    fn lines_for(mut self, columns: Option<usize>) -> Vec<String> {
        let Some(columns) = columns else { return self.plain() };
        let room = columns.saturating_sub(self.fixed_width());
        if room >= MIN_LAST {
            for row in &mut self.rows {
                if let Some(last) = row.last_mut() {
                    *last = fit(last, room);
                }
            }
            return self.plain();
        }
        let beneath: Vec<String> = self.rows.iter_mut().filter_map(Vec::pop).collect();
        self.headings.pop();
        let mut plain = self.plain().into_iter();
        let mut lines: Vec<String> = plain.next().into_iter().collect();
        for (line, last) in plain.zip(beneath) {
            lines.push(line);
            if last != "-" {
                let last = fit(&last, columns.saturating_sub(INDENT));
                lines.push(format!("{}{last}", " ".repeat(INDENT)));
            }
        }
        lines
    }

    /// Columns of everything but the last column.
    fn fixed_width(&self) -> usize {
        let widest = |at: usize, heading: &String| {
            let cells = self.rows.iter().filter_map(|row| row.get(at)).chain([heading]);
            cells.map(|cell| text::width(cell)).max().unwrap_or(0).saturating_add(usize::from(GAP))
        };
        let fixed = self.headings.iter().enumerate().take(self.headings.len().saturating_sub(1));
        fixed.map(|(at, heading)| widest(at, heading)).sum()
    }

    fn plain(&self) -> Vec<String> {
        let mut table = Table::new();
        table
            .load_style(presets::NOTHING)
            .set_content_arrangement(ContentArrangement::Disabled)
            .set_header(&self.headings)
            .add_rows(&self.rows);
        for column in table.column_iter_mut() {
            column.set_padding((0, GAP));
        }
        table.lines().map(|line| line.trim_end().to_owned()).collect()
    }
}

/// At most so many columns of safe text.
fn fit(text: &str, columns: usize) -> String {
    match text::wrap(text, columns).as_slice() {
        [whole] => (*whole).to_owned(),
        _ => {
            let marker = portcullis_canon::sanitize::CLIP_MARKER;
            let pieces = text::wrap(text, columns.saturating_sub(2));
            format!("{}{marker}", pieces.first().copied().unwrap_or_default())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn table() -> Columns {
        let mut table = Columns::new(&["ID", "GOAL"]);
        table.row(["run_0123456789".to_owned(), "evil\n\u{1b}[2Jrow ".repeat(6)]);
        table.row(["run_1".to_owned(), "-".to_owned()]);
        table
    }

    #[test]
    fn a_row_is_one_line_of_safe_text() {
        let lines = table().lines_for(None);
        assert_eq!(lines.len(), 3, "{lines:?}");
        assert!(lines[1].starts_with("run_0123456789  evil \\x1B[2Jrow evil"), "{lines:?}");
        assert_eq!(
            (lines[0].as_str(), lines[2].as_str()),
            ("ID              GOAL", "run_1           -")
        );
    }

    #[test]
    fn on_a_terminal_the_last_column_gives_way() {
        let lines = table().lines_for(Some(40));
        assert_eq!(lines.len(), 3, "{lines:?}");
        assert!(lines.iter().all(|line| text::width(line) <= 40), "{lines:?}");
        assert!(lines[1].ends_with('…'), "{lines:?}");
        let lines = table().lines_for(Some(28));
        assert_eq!(lines.len(), 4, "{lines:?}");
        assert_eq!(lines[1], "run_0123456789");
        assert!(lines[2].starts_with("    evil \\x1B[2J"), "{lines:?}");
        assert!(lines.iter().all(|line| text::width(line) <= 28), "{lines:?}");
        assert_eq!(lines[3], "run_1");
    }
}
