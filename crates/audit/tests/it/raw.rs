//! A SQLite file as somebody with an editor sees it: every table, read and written past the store.

use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use portcullis_domain::ports::Ledgers;
use portcullis_domain::row::Cell;
use portcullis_store::sqlite::open::OpenMode;
use portcullis_store::sqlite::{Committing, Opening, SqliteStore};
use rusqlite::types::{Value, ValueRef};
use rusqlite::{Connection, params_from_iter};

use crate::scene::{Drawn, START};
use crate::tables::{Editable, Table};

/// Soft state and the file's own books, which verification leaves out.
const SOFT: [&str; 4] = ["leases", "meta", "migrations", "reminders"];

/// A store and a second, ordinary connection to its file.
pub(crate) struct RawFile {
    pub(crate) store: Arc<SqliteStore>,
    conn: Mutex<Connection>,
}

impl RawFile {
    /// A new store in this file.
    pub(crate) fn create(path: &Path) -> Self {
        let entropy = Drawn::default();
        let opening = Opening {
            now: START,
            entropy: &entropy,
            observers: Vec::new(),
            committing: Committing::OwnThread,
        };
        let store = SqliteStore::open(path, OpenMode::CreateOrOpen, opening).unwrap();
        let conn = Connection::open(path).unwrap();
        conn.busy_timeout(Duration::from_secs(5)).unwrap();
        conn.pragma_update(None, "synchronous", "OFF").unwrap();
        // Whoever edits a file can leave the schema's own checks out.
        conn.pragma_update(None, "ignore_check_constraints", true).unwrap();
        Self { store: Arc::new(store), conn: Mutex::new(conn) }
    }

    /// Runs statements on the file.
    pub(crate) fn execute(&self, sql: &str) {
        self.conn.lock().unwrap().execute_batch(sql).unwrap();
    }
}

fn quoted(names: &[String]) -> String {
    names.iter().map(|name| format!("\"{name}\"")).collect::<Vec<_>>().join(", ")
}

fn read(conn: &Connection, name: &str) -> Table {
    let mut info = conn.prepare(&format!("PRAGMA table_info(\"{name}\")")).unwrap();
    let described: Vec<(String, i64)> = info
        .query_map([], |row| Ok((row.get("name")?, row.get("pk")?)))
        .unwrap()
        .collect::<Result<_, _>>()
        .unwrap();
    let columns: Vec<String> = described.iter().map(|(name, _)| name.clone()).collect();
    let key = (0..described.len()).filter(|place| described[*place].1 > 0).collect();
    let sql = format!("SELECT {} FROM \"{name}\" ORDER BY rowid", quoted(&columns));
    let mut statement = conn.prepare(&sql).unwrap();
    let rows = statement
        .query_map([], |row| {
            (0..columns.len()).map(|place| Ok(cell(row.get_ref(place)?))).collect()
        })
        .unwrap()
        .collect::<Result<_, _>>()
        .unwrap();
    Table { name: name.to_owned(), columns, key, rows }
}

fn cell(value: ValueRef<'_>) -> Cell {
    match value {
        ValueRef::Null => Cell::Null,
        ValueRef::Integer(value) => Cell::Int(value),
        ValueRef::Real(_) => panic!("no table has a column for reals"),
        ValueRef::Text(text) => Cell::Text(String::from_utf8(text.to_vec()).unwrap()),
        ValueRef::Blob(bytes) => Cell::Blob(bytes.to_vec()),
    }
}

fn value(cell: &Cell) -> Value {
    match cell {
        Cell::Null => Value::Null,
        Cell::Int(value) => Value::Integer(*value),
        Cell::Text(text) => Value::Text(text.clone()),
        Cell::Blob(bytes) => Value::Blob(bytes.clone()),
    }
}

impl Editable for RawFile {
    fn tables(&self) -> Vec<Table> {
        let conn = self.conn.lock().unwrap();
        let list = "SELECT name FROM sqlite_schema
                    WHERE type = 'table' AND name NOT LIKE 'sqlite_%' ORDER BY name";
        let names: Vec<String> = conn
            .prepare(list)
            .unwrap()
            .query_map([], |row| row.get(0))
            .unwrap()
            .collect::<Result<_, _>>()
            .unwrap();
        let covered = names.iter().filter(|name| !SOFT.contains(&name.as_str()));
        covered.map(|name| read(&conn, name)).collect()
    }

    fn write(&self, table: &Table) -> Result<(), String> {
        let mut conn = self.conn.lock().unwrap();
        let name = &table.name;
        let places = vec!["?"; table.columns.len()].join(", ");
        let insert =
            format!("INSERT INTO \"{name}\" ({}) VALUES ({places})", quoted(&table.columns));
        let change = || -> rusqlite::Result<()> {
            let transaction = conn.transaction()?;
            transaction.execute(&format!("DELETE FROM \"{name}\""), [])?;
            for row in &table.rows {
                transaction
                    .prepare_cached(&insert)?
                    .execute(params_from_iter(row.iter().map(value)))?;
            }
            transaction.commit()
        };
        let mut change = change;
        change().map_err(|error| error.to_string())
    }

    fn ledgers(&self) -> &dyn Ledgers {
        &*self.store
    }
}
