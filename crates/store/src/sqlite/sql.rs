//! SQL for the state tables, made once from their columns, and the cells that go in and out.

use std::sync::LazyLock;

use portcullis_domain::event::MAX_PAYLOAD_BYTES;
use portcullis_domain::row::{Cell, Row};
use rusqlite::limits::Limit;
use rusqlite::types::{ToSql, ToSqlOutput, Value, ValueRef};
use rusqlite::{Connection, ErrorCode, OptionalExtension as _, params_from_iter};

use crate::tables::{MAX_CELL_BYTES, TABLES, Table};

/// The statements of one table.
#[derive(Debug)]
pub(super) struct Statements {
    table: &'static Table,
    insert: String,
    update: String,
    /// The same without the columns that an index lists.
    update_unlisted: String,
    /// The columns as they are read.
    pub(super) columns: String,
    by_key: String,
    /// The same with columns that are not measured; see [`bounded`].
    by_key_plain: String,
}

static STATEMENTS: LazyLock<Vec<Statements>> =
    LazyLock::new(|| TABLES.iter().map(Statements::of).collect());

/// A column as it is read. One that is too large for any value of ours is read as an empty blob, which fits
/// no column, so that a hostile file exhausts no memory.
pub(super) fn guarded(column: &str, most: usize) -> String {
    format!(r#"CASE WHEN octet_length("{column}") > {most} THEN x'' ELSE "{column}" END"#)
}

/// Reads with plain columns, and with guarded ones only when a value is larger than `most` bytes: SQLite refuses such a
/// value before it reads it, and to measure each column of each row costs more than to read it.
pub(super) fn bounded<T>(
    conn: &Connection,
    most: usize,
    plain: impl FnOnce() -> rusqlite::Result<T>,
    guarded: impl FnOnce() -> rusqlite::Result<T>,
) -> rusqlite::Result<T> {
    let most = i32::try_from(most).unwrap_or(i32::MAX);
    let before = conn.set_limit(Limit::SQLITE_LIMIT_LENGTH, most)?;
    let read = plain();
    conn.set_limit(Limit::SQLITE_LIMIT_LENGTH, before)?;
    match read {
        Err(error) if error.sqlite_error_code() == Some(ErrorCode::TooBig) => guarded(),
        read => read,
    }
}

fn list(columns: &[&str], each: impl Fn(&str) -> String, between: &str) -> String {
    columns.iter().map(|column| each(column)).collect::<Vec<_>>().join(between)
}

impl Statements {
    fn of(table: &'static Table) -> Self {
        let (key, rest) = table.columns.split_at(table.key);
        let changing: Vec<&str> =
            rest.iter().skip(table.fixed.saturating_sub(table.key)).copied().collect();
        let name = table.name;
        let unlisted: Vec<&str> =
            changing.iter().copied().filter(|column| !table.listed.contains(column)).collect();
        let quoted = |column: &str| format!(r#""{column}""#);
        let set = |column: &str| format!(r#""{column}" = ?"#);
        let columns = list(table.columns, |column| guarded(column, MAX_CELL_BYTES), ", ");
        let whose = list(key, set, " AND ");
        Self {
            table,
            insert: format!(
                "INSERT INTO {name} ({}) VALUES ({})",
                list(table.columns, quoted, ", "),
                list(table.columns, |_| "?".to_owned(), ", "),
            ),
            update: format!("UPDATE {name} SET {} WHERE {whose}", list(&changing, set, ", ")),
            update_unlisted: format!(
                "UPDATE {name} SET {} WHERE {whose}",
                list(&unlisted, set, ", ")
            ),
            by_key: format!("SELECT {columns} FROM {name} WHERE {whose}"),
            by_key_plain: format!(
                "SELECT {} FROM {name} WHERE {whose}",
                list(table.columns, quoted, ", ")
            ),
            columns,
        }
    }
}

/// The statements of the table with this name.
pub(super) fn statements(table: &str) -> Option<&'static Statements> {
    STATEMENTS.iter().find(|statements| statements.table.name == table)
}

/// The columns of a struct's table as they are read.
pub(super) fn columns<R: Row>() -> &'static str {
    statements(R::TABLE).map_or("", |statements| &statements.columns)
}

/// A cell as a parameter.
struct Bind<'a>(&'a Cell);

impl ToSql for Bind<'_> {
    fn to_sql(&self) -> rusqlite::Result<ToSqlOutput<'_>> {
        Ok(match self.0 {
            Cell::Null => ToSqlOutput::Owned(Value::Null),
            Cell::Int(value) => ToSqlOutput::Owned(Value::Integer(*value)),
            Cell::Text(text) => ToSqlOutput::Borrowed(ValueRef::Text(text.as_bytes())),
            Cell::Blob(bytes) => ToSqlOutput::Borrowed(ValueRef::Blob(bytes)),
        })
    }
}

/// A column's value as a cell. What no cell can hold is read as an empty blob, which fits no column.
pub(super) fn cell(value: ValueRef<'_>) -> Cell {
    match value {
        ValueRef::Null => Cell::Null,
        ValueRef::Integer(value) => Cell::Int(value),
        ValueRef::Text(text) => match std::str::from_utf8(text) {
            Ok(text) => Cell::Text(text.to_owned()),
            Err(_) => Cell::Blob(Vec::new()),
        },
        ValueRef::Blob(bytes) => Cell::Blob(bytes.to_vec()),
        ValueRef::Real(_) => Cell::Blob(Vec::new()),
    }
}

/// The first `count` columns of a row.
pub(super) fn cells(row: &rusqlite::Row<'_>, count: usize) -> rusqlite::Result<Vec<Cell>> {
    (0..count).map(|place| row.get_ref(place).map(cell)).collect()
}

/// Adds a row.
pub(super) fn insert<R: Row>(conn: &Connection, row: &R) -> rusqlite::Result<()> {
    let Some(statements) = statements(R::TABLE) else { return Ok(()) };
    let cells = row.cells();
    conn.prepare_cached(&statements.insert)?.execute(params_from_iter(cells.iter().map(Bind)))?;
    Ok(())
}

/// What of a row is written again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Written {
    /// All that can change.
    All,
    /// All but what an index lists: that is as it was.
    Unlisted,
}

/// Writes the cells of a row that can change; false when there is no such row.
pub(super) fn update<R: Row>(
    conn: &Connection,
    row: &R,
    written: Written,
) -> rusqlite::Result<bool> {
    let Some(statements) = statements(R::TABLE) else { return Ok(false) };
    let (changing, key) = (row.changing_cells(), row.key_cells());
    let listed = |column: &&str| statements.table.listed.contains(column);
    let (sql, left_out) = match written {
        Written::All => (&statements.update, false),
        Written::Unlisted => (&statements.update_unlisted, true),
    };
    let changing = changing.iter().zip(R::COLUMNS.iter().skip(R::FIXED));
    let changing = changing.filter(|(_, column)| !(left_out && listed(column)));
    let cells = changing.map(|(cell, _)| cell).chain(&key).map(Bind);
    let rows = conn.prepare_cached(sql)?.execute(params_from_iter(cells))?;
    Ok(rows == 1)
}

/// The cells of the row with this key.
pub(super) fn by_key(
    conn: &Connection,
    table: &str,
    key: &[Cell],
) -> rusqlite::Result<Option<Vec<Cell>>> {
    let Some(statements) = statements(table) else { return Ok(None) };
    let count = statements.table.columns.len();
    let read = |query: &str| {
        conn.prepare_cached(query)?
            .query_row(params_from_iter(key.iter().map(Bind)), |row| cells(row, count))
            .optional()
    };
    let (plain, guarded) = (&statements.by_key_plain, &statements.by_key);
    bounded(conn, MAX_CELL_BYTES, || read(plain), || read(guarded))
}

/// The columns of an event in the order in which [`super::read`] reads them.
const EVENT: [&str; 14] = [
    "journal",
    "journal_seq",
    "tenant",
    "stream_kind",
    "stream_id",
    "stream_seq",
    "step",
    "at",
    "kind",
    "version",
    "payload",
    "journal_prev",
    "stream_prev",
    "hash",
];

/// The columns of an event, each within the bound of a payload.
pub(super) static EVENT_COLUMNS: LazyLock<String> =
    LazyLock::new(|| list(&EVENT, |column| guarded(column, MAX_PAYLOAD_BYTES), ", "));

/// The same, not measured; see [`bounded`].
pub(super) static EVENT_COLUMNS_PLAIN: LazyLock<String> =
    LazyLock::new(|| list(&EVENT, str::to_owned, ", "));
