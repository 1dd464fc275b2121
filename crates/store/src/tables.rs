//! The six state tables by name, and what both back ends do with their rows.

use portcullis_canon::sanitize;
use portcullis_domain::approval::Approval;
use portcullis_domain::budget::Budget;
use portcullis_domain::ports::{DamagedRow, MAX_PAGE, Page, StoreError};
use portcullis_domain::question::Question;
use portcullis_domain::row::{Cell, Row};
use portcullis_domain::run::Run;
use portcullis_domain::step::Step;
use portcullis_domain::thread::Thread;

/// What a table's rows look like.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Table {
    pub(crate) name: &'static str,
    pub(crate) columns: &'static [&'static str],
    pub(crate) key: usize,
    pub(crate) fixed: usize,
    /// Columns that change and stand in an index. An update may leave them out when they are as they were, since SQLite
    /// writes an index anew for each update that names its column.
    pub(crate) listed: &'static [&'static str],
}

impl Table {
    /// The table of a struct.
    pub(crate) const fn of<R: Row>() -> Self {
        Self { name: R::TABLE, columns: R::COLUMNS, key: R::KEY, fixed: R::FIXED, listed: &[] }
    }

    const fn listed(self, listed: &'static [&'static str]) -> Self {
        Self { listed, ..self }
    }

    /// The state table with this name.
    pub(crate) fn named(name: &str) -> Option<&'static Self> {
        TABLES.iter().find(|table| table.name == name)
    }

    /// Where a column stands.
    pub(crate) fn column(&self, name: &str) -> Option<usize> {
        self.columns.iter().position(|column| *column == name)
    }
}

/// The state tables.
pub(crate) const TABLES: [Table; 6] = [
    Table::of::<Run>().listed(&["status"]),
    Table::of::<Step>(),
    Table::of::<Question>().listed(&["status"]),
    Table::of::<Approval>(),
    Table::of::<Thread>(),
    Table::of::<Budget>(),
];

/// The largest cell of a state table in bytes: an event's payload holds more than any cell that it makes.
pub(crate) const MAX_CELL_BYTES: usize = portcullis_domain::event::MAX_PAYLOAD_BYTES;

/// Reads a row; a cell beyond the bound is damage.
fn read<R: Row>(cells: &[Cell]) -> Result<R, &'static str> {
    let large = cells.iter().zip(R::COLUMNS).find(|(cell, _)| match cell {
        Cell::Null | Cell::Int(_) => false,
        Cell::Text(text) => text.len() > MAX_CELL_BYTES,
        Cell::Blob(bytes) => bytes.len() > MAX_CELL_BYTES,
    });
    match large {
        Some((_, column)) => Err(column),
        None => R::from_cells(cells).map_err(|error| error.column),
    }
}

/// Reads a row for a list: a damaged one is an `Err` in its place.
pub(crate) fn read_row<R: Row>(cells: &[Cell]) -> Result<R, DamagedRow> {
    read(cells).map_err(|column| DamagedRow { key: key_text::<R>(cells), column })
}

/// Reads a row that everything after it depends on.
pub(crate) fn need_row<R: Row>(cells: &[Cell]) -> Result<R, StoreError> {
    read(cells).map_err(|_| StoreError::Damaged { table: R::TABLE })
}

/// Refuses a page that is empty or larger than a page may be.
pub(crate) fn check_limit(limit: u32) -> Result<(), StoreError> {
    if (1..=MAX_PAGE).contains(&limit) { Ok(()) } else { Err(StoreError::NotAdmitted) }
}

/// See [`check_limit`].
pub(crate) fn check_page(page: Page) -> Result<(), StoreError> {
    check_limit(page.limit)
}

/// The primary key as one line of printable text: ids as they are written everywhere, the rest as it is.
fn key_text<R: Row>(cells: &[Cell]) -> String {
    let prefix = match R::TABLE {
        "runs" => "run_",
        "steps" => "step_",
        "questions" | "approvals" => "q_",
        "threads" => "thread_",
        "budgets" => "bud_",
        _ => "",
    };
    let parts: Vec<String> = cells
        .iter()
        .take(R::KEY)
        .map(|cell| match cell {
            Cell::Null => "null".to_owned(),
            Cell::Int(value) => value.to_string(),
            Cell::Text(text) => sanitize::clip(text, 128),
            Cell::Blob(bytes) => {
                let digits: String = bytes.iter().take(16).map(|b| format!("{b:02x}")).collect();
                format!("{prefix}{digits}")
            }
        })
        .collect();
    parts.join(" ")
}
