//! The SQLite store against the contract.

use std::path::PathBuf;
use std::sync::Arc;

use portcullis_domain::ports::Observer;
use portcullis_domain::row::Cell;
use portcullis_domain::time::Timestamp;
use portcullis_store::sqlite::open::OpenMode;
use portcullis_store::sqlite::{Committing, Opening, SqliteStore};
use portcullis_testkit::ports::SeededEntropy;
use portcullis_testkit::store_contract::{Backend, Subject};
use rusqlite::types::Value;
use tempfile::TempDir;

pub struct Sqlite {
    folder: TempDir,
    committing: Committing,
}

/// A store that commits on its own thread.
pub fn fresh() -> Sqlite {
    Sqlite { folder: tempfile::tempdir().unwrap(), committing: Committing::OwnThread }
}

/// A store whose callers commit, as the command has it.
pub fn fresh_by_caller() -> Sqlite {
    Sqlite { committing: Committing::Caller, ..fresh() }
}

/// Opens a store with ids from a seed.
pub fn open_at(
    path: &std::path::Path,
    observers: Vec<Arc<dyn Observer>>,
) -> Result<SqliteStore, portcullis_store::sqlite::error::OpenError> {
    open_with(path, observers, Committing::OwnThread)
}

/// The same, with who commits.
pub fn open_with(
    path: &std::path::Path,
    observers: Vec<Arc<dyn Observer>>,
    committing: Committing,
) -> Result<SqliteStore, portcullis_store::sqlite::error::OpenError> {
    let now = Timestamp::from_micros(0);
    let opening = Opening { now, entropy: &SeededEntropy::new(1), observers, committing };
    SqliteStore::open(path, OpenMode::CreateOrOpen, opening)
}

impl Sqlite {
    pub fn path(&self) -> PathBuf {
        self.folder.path().join("portcullis.db")
    }
}

impl Backend for Sqlite {
    fn open(&self, observers: Vec<Arc<dyn Observer>>) -> Arc<dyn Subject> {
        Arc::new(open_with(&self.path(), observers, self.committing).unwrap())
    }

    fn set_cell(&self, table: &str, key: &[Cell], column: &str, value: Cell) {
        let [id] = key else { panic!("one key column") };
        let name = if matches!(table, "contents" | "specs") { "digest" } else { "id" };
        let conn = rusqlite::Connection::open(self.path()).unwrap();
        let query = format!("UPDATE {table} SET \"{column}\" = ?1 WHERE {name} = ?2");
        let rows = conn.execute(&query, [parameter(&value), parameter(id)]).unwrap();
        assert_eq!(rows, 1);
    }
}

fn parameter(cell: &Cell) -> Value {
    match cell.clone() {
        Cell::Null => Value::Null,
        Cell::Int(value) => Value::Integer(value),
        Cell::Text(text) => Value::Text(text),
        Cell::Blob(bytes) => Value::Blob(bytes),
    }
}

portcullis_testkit::store_contract!(crate::sqlite::fresh);

mod by_caller {
    portcullis_testkit::store_contract!(crate::sqlite::fresh_by_caller);
}
