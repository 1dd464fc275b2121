//! Schema versions: embedded SQL, applied once, in order, in one immediate transaction.
//!
//! Two bookkeeping tables belong to this file and not to any migration: `migrations` (what was applied,
//! with the SHA-256 of its text) and `meta` (named values, among them `oldest_writer`).

use std::path::Path;

use rusqlite::{Connection, Transaction, TransactionBehavior, params};
use sha2::{Digest, Sha256};

use super::error::OpenError;
use super::schema::{self, Schema};

/// Marks a file as ours in SQLite's header: `PCUL`.
pub const APPLICATION_ID: i32 = 0x5043_554c;

/// The bookkeeping tables.
const BOOKKEEPING: &str = "
CREATE TABLE migrations (
    version INTEGER NOT NULL PRIMARY KEY CHECK (version > 0),
    checksum BLOB NOT NULL CHECK (length(checksum) = 32)
) STRICT;
CREATE TABLE meta (
    name TEXT NOT NULL PRIMARY KEY,
    value ANY NOT NULL
) STRICT, WITHOUT ROWID;
";

/// One step of the schema. A released one never changes: every database remembers its checksum.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Migration {
    /// Counts from 1 without a gap.
    pub version: i64,
    /// The statements. They run inside a transaction and contain no transaction statement.
    pub sql: &'static str,
    /// The oldest version whose writers may go on writing once this step is applied. A process that
    /// already had the database open learns it from [`check_writer`].
    pub oldest_writer: i64,
}

impl Migration {
    /// SHA-256 of the SQL text.
    #[must_use]
    pub fn checksum(&self) -> [u8; 32] {
        Sha256::digest(self.sql.as_bytes()).into()
    }
}

/// How far a database is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum State {
    /// Nothing was ever stored.
    Empty,
    /// Ours, at this version, which is at least 1 and at most the newest known.
    At(i64),
}

/// The newest version in the list, after checking that it counts 1, 2, 3… and that no step shuts out
/// itself.
pub(super) fn newest(path: &Path, migrations: &[Migration]) -> Result<i64, OpenError> {
    let mut newest = 0;
    for migration in migrations {
        newest += 1;
        let sound = migration.version == newest && (1..=newest).contains(&migration.oldest_writer);
        if !sound {
            return Err(bad(path, migration.version));
        }
    }
    if newest == 0 { Err(bad(path, 0)) } else { Ok(newest) }
}

/// Tells what the database is, and refuses everything that is not ours or newer than we know. Reads only
/// the header, so that another program's schema is not even parsed; and in one look, since somebody else's first
/// open may make the whole database between two.
pub(super) fn state(
    conn: &Transaction<'_>,
    path: &Path,
    migrations: &[Migration],
) -> Result<State, OpenError> {
    let supported = newest(path, migrations)?;
    let sqlite = |error| OpenError::from_sqlite(path, &error);
    let application_id: i32 =
        conn.query_row("PRAGMA main.application_id", [], |row| row.get(0)).map_err(sqlite)?;
    let found: i64 =
        conn.query_row("PRAGMA main.user_version", [], |row| row.get(0)).map_err(sqlite)?;
    // Counts every change of the schema, so nothing was ever created while it is 0.
    let changes: i64 =
        conn.query_row("PRAGMA main.schema_version", [], |row| row.get(0)).map_err(sqlite)?;
    if (application_id, found, changes) == (0, 0, 0) {
        return Ok(State::Empty);
    }
    if application_id != APPLICATION_ID {
        return Err(OpenError::ForeignDatabase { path: path.to_path_buf(), application_id });
    }
    if found > supported {
        return Err(OpenError::SchemaNewer { path: path.to_path_buf(), found, supported });
    }
    if found < 1 {
        return Err(OpenError::Damaged { path: path.to_path_buf() });
    }
    Ok(State::At(found))
}

/// Proves that a database at `version` is exactly what the first `version` migrations make. In the look that gave
/// the version, since somebody else may upgrade it.
pub(super) fn verify(
    conn: &Transaction<'_>,
    path: &Path,
    migrations: &[Migration],
    version: i64,
) -> Result<(), OpenError> {
    schema::refuse_unsafe(conn, path)?;
    expected_schema(path, migrations, version)?.check(conn, path)?;
    let sqlite = |error| OpenError::from_sqlite(path, &error);
    let mut statement = conn
        .prepare("SELECT version, checksum FROM migrations ORDER BY version")
        .map_err(sqlite)?;
    let mut rows = statement.query([]).map_err(sqlite)?;
    let mut applied = 0;
    while let Some(row) = rows.next().map_err(sqlite)? {
        let recorded: i64 = row.get(0).map_err(sqlite)?;
        let checksum: [u8; 32] = row.get(1).map_err(sqlite)?;
        applied += 1;
        let known = migrations.iter().find(|migration| migration.version == recorded);
        if recorded != applied || known.is_none_or(|known| known.checksum() != checksum) {
            return Err(OpenError::MigrationDiffers {
                path: path.to_path_buf(),
                version: recorded,
            });
        }
    }
    if applied == version { Ok(()) } else { Err(OpenError::Damaged { path: path.to_path_buf() }) }
}

/// Brings the database up to the newest version, in one transaction: all of it or nothing. Concurrent
/// first openers are safe, since the state is read again under the write lock.
pub(super) fn migrate(
    conn: &mut Connection,
    path: &Path,
    migrations: &[Migration],
) -> Result<(), OpenError> {
    let sqlite = |error| OpenError::from_sqlite(path, &error);
    let version = newest(path, migrations)?;
    expected_schema(path, migrations, version)?; // tried in memory before the file is touched
    let tx = conn.transaction_with_behavior(TransactionBehavior::Immediate).map_err(sqlite)?;
    let from = match state(&tx, path, migrations)? {
        State::Empty => {
            tx.execute_batch(BOOKKEEPING).map_err(sqlite)?;
            tx.pragma_update(None, "application_id", APPLICATION_ID).map_err(sqlite)?;
            0
        }
        State::At(version) => {
            verify(&tx, path, migrations, version)?;
            version
        }
    };
    for migration in migrations.iter().filter(|migration| migration.version > from) {
        apply(&tx, path, migration)?;
    }
    verify(&tx, path, migrations, version)?;
    tx.commit().map_err(sqlite)
}

fn apply(tx: &Transaction<'_>, path: &Path, migration: &Migration) -> Result<(), OpenError> {
    use rusqlite::ErrorCode as Code;
    let sqlite = |error: rusqlite::Error| match error.sqlite_error_code() {
        Some(
            Code::DatabaseBusy
            | Code::DiskFull
            | Code::ReadOnly
            | Code::SystemIoFailure
            | Code::DatabaseCorrupt,
        ) => OpenError::from_sqlite(path, &error),
        _ => bad(path, migration.version), // the statements are wrong, or the rows break a new constraint
    };
    tx.execute_batch(migration.sql).map_err(sqlite)?;
    tx.execute(
        "INSERT INTO migrations (version, checksum) VALUES (?1, ?2)",
        params![migration.version, migration.checksum()],
    )
    .map_err(sqlite)?;
    tx.execute(
        "INSERT INTO meta (name, value) VALUES ('oldest_writer', ?1)
         ON CONFLICT (name) DO UPDATE SET value = max(value, excluded.value)",
        params![migration.oldest_writer],
    )
    .map_err(sqlite)?;
    tx.pragma_update(None, "user_version", migration.version).map_err(sqlite)
}

fn bad(path: &Path, version: i64) -> OpenError {
    OpenError::BadMigration { path: path.to_path_buf(), version }
}

/// What the first `version` migrations make, from a database in memory.
fn expected_schema(
    path: &Path,
    migrations: &[Migration],
    version: i64,
) -> Result<Schema, OpenError> {
    let open = || -> rusqlite::Result<Connection> {
        let conn = Connection::open_in_memory()?;
        conn.execute_batch("BEGIN")?;
        conn.execute_batch(BOOKKEEPING)?;
        Ok(conn)
    };
    let conn = open().map_err(|_| bad(path, 0))?;
    for migration in migrations.iter().filter(|migration| migration.version <= version) {
        let applied = conn.execute_batch(migration.sql);
        // One that ends our transaction would let half of an upgrade stay.
        if applied.is_err() || conn.is_autocommit() {
            return Err(bad(path, migration.version));
        }
    }
    Schema::of(&conn).map_err(|_| bad(path, version))
}

/// Why a writer must not write.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
#[allow(missing_docs, reason = "the fields are schema versions, named in the message")]
pub enum WriterError {
    /// Another process has upgraded the database past what this writer understands.
    #[error(
        "the database was upgraded and now needs writers of schema {oldest} or newer, this one has {ours}; restart with the newer program"
    )]
    TooOld { oldest: i64, ours: i64 },
    /// The oldest allowed writer cannot be read.
    #[error("the database does not say which writers it allows; restore it from a backup")]
    Unreadable(#[source] rusqlite::Error),
}

/// Refuses to write with a program that is older than the schema allows. To be called in each write
/// transaction, with the newest migration that this program knows: a process that opened the database
/// before an upgrade would otherwise go on writing rows of the old kind.
///
/// # Errors
///
/// [`WriterError::TooOld`] after such an upgrade; [`WriterError::Unreadable`] when the row is missing or odd.
pub fn check_writer(tx: &Connection, ours: i64) -> Result<(), WriterError> {
    let oldest: i64 = tx
        .prepare_cached("SELECT value FROM meta WHERE name = 'oldest_writer'")
        .and_then(|mut statement| statement.query_row([], |row| row.get(0)))
        .map_err(WriterError::Unreadable)?;
    if ours < oldest { Err(WriterError::TooOld { oldest, ours }) } else { Ok(()) }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use std::sync::atomic::{AtomicBool, Ordering};

    use super::*;

    #[test]
    fn a_database_that_is_being_made_is_empty_or_whole() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("p.db");
        let connect = || {
            let conn = Connection::open(&path).unwrap();
            conn.busy_timeout(std::time::Duration::from_secs(5)).unwrap();
            conn.execute_batch("PRAGMA journal_mode = WAL; PRAGMA synchronous = OFF").unwrap();
            conn
        };
        let one = [Migration { version: 1, sql: "", oldest_writer: 1 }];
        let (maker, looker) = (connect(), connect());
        let done = &AtomicBool::new(false);
        let turns = std::thread::scope(|scope| {
            let making = scope.spawn(move || {
                let mut turns = 0_u64;
                while !done.load(Ordering::Relaxed) {
                    let (id, version) =
                        if turns.is_multiple_of(2) { (APPLICATION_ID, 1) } else { (0, 0) };
                    let header = format!(
                        "BEGIN IMMEDIATE; PRAGMA application_id = {id}; \
                         PRAGMA user_version = {version}; PRAGMA schema_version = {version}; COMMIT"
                    );
                    maker.execute_batch(&header).unwrap();
                    turns += 1;
                }
                turns
            });
            let look = |_| state(&looker.unchecked_transaction().unwrap(), &path, &one);
            let looks: Vec<_> = (0..5_000).map(look).collect();
            done.store(true, Ordering::Relaxed);
            let odd = looks.iter().find(|look| !matches!(look, Ok(State::Empty | State::At(1))));
            assert!(odd.is_none(), "{odd:?}");
            making.join().unwrap()
        });
        assert!(turns > 2, "the header changed under the looks");
    }
}
