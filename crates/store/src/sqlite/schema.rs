//! The comparison of a database's schema with the one that the migrations make.
//!
//! An exact comparison refuses more than triggers and views: a foreign `CHECK`, default, generated column
//! or index expression would run inside our statements too, and a missing constraint would let rows in
//! that ours keeps out.

use std::collections::BTreeMap;
use std::path::Path;

use rusqlite::{Connection, Row};

use super::error::{OpenError, UnsafeObject};

/// `sqlite_schema` holds one row for each object; SQLite's own tables are listed where they may stand.
const OBJECTS: &str = "SELECT type, name, tbl_name, sql, rootpage FROM main.sqlite_schema";

/// Tables that SQLite adds by itself, for `AUTOINCREMENT` and `ANALYZE`, in a shape that only it decides.
const OWN_TABLES: [&str; 3] = ["sqlite_sequence", "sqlite_stat1", "sqlite_stat4"];

/// Longest name of an object that a message repeats, in characters.
const SHOWN_NAME: usize = 64;

/// Type, name and table of an object.
type Key = (String, String, String);

/// A schema, each object with the text that made it.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Schema(BTreeMap<Key, Option<String>>);

impl Schema {
    /// The schema of a database that is known to be ours.
    pub(super) fn of(conn: &Connection) -> rusqlite::Result<Self> {
        let mut statement = conn.prepare(OBJECTS)?;
        let rows = statement.query_map([], |row| Ok((key(row)?, row.get(3)?)))?;
        let mut objects = BTreeMap::new();
        for row in rows {
            let (key, sql): (Key, Option<String>) = row?;
            if !OWN_TABLES.contains(&key.1.as_str()) {
                objects.insert(key, sql);
            }
        }
        Ok(Self(objects))
    }

    /// Refuses the first object of `conn` that is not exactly one of this schema, and a missing one.
    pub(super) fn check(&self, conn: &Connection, path: &Path) -> Result<(), OpenError> {
        let differs =
            |name: &str| OpenError::SchemaDiffers { path: path.to_path_buf(), name: shown(name) };
        let sqlite = |error| OpenError::from_sqlite(path, &error);
        let mut statement = conn.prepare(OBJECTS).map_err(sqlite)?;
        let mut rows = statement.query([]).map_err(sqlite)?;
        let mut seen = std::collections::BTreeSet::new();
        while let Some(row) = rows.next().map_err(sqlite)? {
            let key = key(row).map_err(sqlite)?;
            if OWN_TABLES.contains(&key.1.as_str()) && key.0 == "table" {
                continue;
            }
            let sql: Option<String> = row.get(3).map_err(sqlite)?;
            if self.0.get(&key) != Some(&sql) || !seen.insert(key.clone()) {
                return Err(differs(&key.1));
            }
        }
        match self.0.keys().find(|key| !seen.contains(*key)) {
            Some((_, name, _)) => Err(differs(name)),
            None => Ok(()),
        }
    }
}

/// Refuses triggers, views and virtual tables, whatever else the database is.
pub(super) fn refuse_unsafe(conn: &Connection, path: &Path) -> Result<(), OpenError> {
    let sqlite = |error| OpenError::from_sqlite(path, &error);
    let mut statement = conn.prepare(OBJECTS).map_err(sqlite)?;
    let mut rows = statement.query([]).map_err(sqlite)?;
    while let Some(row) = rows.next().map_err(sqlite)? {
        let (of_type, name, _) = key(row).map_err(sqlite)?;
        let root: Option<i64> = row.get(4).map_err(sqlite)?;
        let kind = match of_type.as_str() {
            "trigger" => UnsafeObject::Trigger,
            "view" => UnsafeObject::View,
            // Only what is stored in pages of its own has a root page.
            _ if root.is_none_or(|root| root <= 0) => UnsafeObject::VirtualTable,
            "table" | "index" => continue,
            _ => {
                return Err(OpenError::SchemaDiffers {
                    path: path.to_path_buf(),
                    name: shown(&name),
                });
            }
        };
        return Err(OpenError::UnsafeSchema { path: path.to_path_buf(), kind, name: shown(&name) });
    }
    Ok(())
}

fn key(row: &Row<'_>) -> rusqlite::Result<Key> {
    Ok((row.get(0)?, row.get(1)?, row.get(2)?))
}

fn shown(name: &str) -> String {
    name.chars().take(SHOWN_NAME).collect()
}
