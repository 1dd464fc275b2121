//! Opening a database file: checked, hardened, identified, and only then handed out.
//!
//! The order matters. The folder and the files are checked before SQLite sees them and again after its
//! first read. The file is identified before anything is written to it, so that another program's database
//! stays as it is.

use std::fmt::Write as _;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rusqlite::config::DbConfig;
use rusqlite::limits::Limit;
use rusqlite::{Connection, ErrorCode, OpenFlags};

use super::error::OpenError;
use super::files::{Identity, Place, Purpose};
use super::migrate::{self, Migration, State};

/// How long a lock held by another process is waited for.
const BUSY: Duration = Duration::from_secs(5);

/// Pause between two attempts to switch to the write-ahead log.
const WAL_PAUSE: Duration = Duration::from_millis(5);

/// Bytes of a page of a new database.
const PAGE_SIZE: i64 = 8192;

/// 3.51.3, the first SQLite without the fault that could corrupt a database when a checkpoint reset the
/// write-ahead log while another connection wrote.
const OLDEST_SQLITE: i32 = 3_051_003;

/// Ceilings on what one statement, value or schema may be, far above what ours need.
const LIMITS: [(Limit, i32); 12] = [
    (Limit::SQLITE_LIMIT_LENGTH, 64 << 20),
    (Limit::SQLITE_LIMIT_SQL_LENGTH, 1 << 20),
    (Limit::SQLITE_LIMIT_COLUMN, 128),
    (Limit::SQLITE_LIMIT_EXPR_DEPTH, 64),
    (Limit::SQLITE_LIMIT_COMPOUND_SELECT, 16),
    (Limit::SQLITE_LIMIT_VDBE_OP, 1 << 20),
    (Limit::SQLITE_LIMIT_FUNCTION_ARG, 32),
    (Limit::SQLITE_LIMIT_ATTACHED, 0),
    (Limit::SQLITE_LIMIT_LIKE_PATTERN_LENGTH, 1024),
    (Limit::SQLITE_LIMIT_VARIABLE_NUMBER, 1024),
    (Limit::SQLITE_LIMIT_WORKER_THREADS, 0),
    (Limit::SQLITE_LIMIT_SCHEMA, 1024),
];

/// `secure_delete` overwrites what is erased; the rest are SQLite's own defences and fixed sizes.
const PRAGMAS: &str = "
PRAGMA cell_size_check = ON;
PRAGMA mmap_size = 0;
PRAGMA temp_store = MEMORY;
PRAGMA foreign_keys = ON;
PRAGMA trusted_schema = OFF;
PRAGMA secure_delete = ON;
PRAGMA wal_autocheckpoint = 1000;
PRAGMA journal_size_limit = 67108864;
";

/// Each commit is on the disk when it returns. Apart from the others since SQLite parses the schema first.
const SYNCED: &str = "PRAGMA main.synchronous = FULL";

/// How a database is opened.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OpenMode {
    /// To write; a missing database is created, an old one upgraded.
    CreateOrOpen,
    /// To write; a missing database is refused, so that a mistyped path creates nothing. An old one is
    /// upgraded.
    Existing,
    /// To read; nothing is created, upgraded or changed.
    ReadOnly,
}

/// An open database.
#[derive(Debug)]
pub struct Opened {
    /// The connection, hardened and at the newest schema.
    pub conn: Connection,
    /// The file's absolute path, free of links.
    pub path: PathBuf,
    /// Whether this call created the file.
    pub created: bool,
    /// Whether the file was opened as one that nobody changes, since its folder cannot be written. What
    /// another user writes meanwhile is then not seen.
    pub immutable: bool,
    /// Which file it is.
    pub(super) file: Identity,
}

/// Opens the database at `path`, exactly that file: no character of it has a meaning of its own.
///
/// A writer's connection has the write-ahead log on and syncs each commit. Its files are the user's own
/// with mode 0600: bits that let others read are taken away, bits that let others write are a refusal. A
/// reader also takes root's files and changes no bits.
///
/// Waits up to five seconds for each lock that another process holds.
///
/// # Errors
///
/// Every [`OpenError`] is a refusal; none leaves a connection behind.
///
/// # Examples
///
/// ```
/// use portcullis_store::sqlite::{migrate::Migration, open::{OpenMode, open}};
///
/// const SCHEMA: &[Migration] =
///     &[Migration { version: 1, sql: "CREATE TABLE note (text TEXT NOT NULL) STRICT;", oldest_writer: 1 }];
///
/// let folder = tempfile::tempdir()?;
/// let path = folder.path().join("notes.db");
/// assert_eq!(open(&path, OpenMode::Existing, SCHEMA).unwrap_err().kind(), "not_found");
/// assert!(open(&path, OpenMode::CreateOrOpen, SCHEMA)?.created);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn open(path: &Path, mode: OpenMode, migrations: &[Migration]) -> Result<Opened, OpenError> {
    match mode {
        OpenMode::CreateOrOpen => open_writer(path, Purpose::Create, migrations),
        OpenMode::Existing => open_writer(path, Purpose::Write, migrations),
        OpenMode::ReadOnly => open_reader(path, migrations),
    }
}

fn open_writer(
    path: &Path,
    purpose: Purpose,
    migrations: &[Migration],
) -> Result<Opened, OpenError> {
    check_library()?;
    migrate::newest(path, migrations)?;
    let place = Place::resolve(path, purpose)?;
    let (identity, created) = place.prepare()?;
    let path = place.path();
    let sqlite = |error| OpenError::from_sqlite(&path, &error);

    let mut conn = Connection::open_with_flags(&path, flags(OpenFlags::SQLITE_OPEN_READ_WRITE))
        .map_err(|error| OpenError::from_sqlite(&path, &error))?;
    // Until it is known to be ours, closing must not move its log into it either.
    conn.set_db_config(DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, true).map_err(sqlite)?;
    harden(&conn).map_err(sqlite)?;
    first_read(&conn, &place, identity)?;
    let look = conn.unchecked_transaction().map_err(sqlite)?;
    let state = migrate::state(&look, &path, migrations)?;
    if conn.is_readonly("main").map_err(sqlite)? {
        return Err(OpenError::NotWritable { path }); // SQLite falls back to reading by itself
    }
    let newest = migrate::newest(&path, migrations)?;
    match state {
        State::Empty if purpose != Purpose::Create => return Err(OpenError::NotADatabase { path }),
        State::Empty => {}
        State::At(version) => migrate::verify(&look, &path, migrations, version)?,
    }
    look.commit().map_err(sqlite)?;
    if state == State::Empty {
        conn.pragma_update(None, "page_size", PAGE_SIZE).map_err(sqlite)?;
    }
    conn.set_db_config(DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, false).map_err(sqlite)?;
    conn.execute_batch(SYNCED).map_err(sqlite)?;
    enter_wal(&conn, &path)?;
    if state != State::At(newest) {
        migrate::migrate(&mut conn, &path, migrations)?;
    }
    place.recheck(identity)?;
    Ok(Opened { conn, path, created, immutable: false, file: identity })
}

fn open_reader(path: &Path, migrations: &[Migration]) -> Result<Opened, OpenError> {
    check_library()?;
    migrate::newest(path, migrations)?;
    let place = Place::resolve(path, Purpose::Read)?;
    let (identity, _) = place.prepare()?;
    let path = place.path();
    let (conn, immutable) = match start_reading(&path, false) {
        Ok(conn) => (conn, false),
        Err(error) if needs_writable_folder(&error) && !place.folder_is_writable() => {
            // Without its log the file would show an older state as if it were the present one.
            if place.has_pending_log()? {
                return Err(OpenError::NeedsRecovery { path });
            }
            let conn = start_reading(&path, true)
                .map_err(|error| OpenError::from_sqlite(&path, &error))?;
            (conn, true)
        }
        Err(error) => return Err(OpenError::from_sqlite(&path, &error)),
    };
    first_read(&conn, &place, identity)?;
    let sqlite = |error| OpenError::from_sqlite(&path, &error);
    let look = conn.unchecked_transaction().map_err(sqlite)?;
    let supported = migrate::newest(&path, migrations)?;
    match migrate::state(&look, &path, migrations)? {
        State::Empty => return Err(OpenError::NotADatabase { path }),
        State::At(found) if found < supported => {
            return Err(OpenError::SchemaOlder { path, found, supported });
        }
        State::At(version) => migrate::verify(&look, &path, migrations, version)?,
    }
    look.commit().map_err(sqlite)?;
    Ok(Opened { conn, path, created: false, immutable, file: identity })
}

/// Opens for reading, up to the first read.
fn start_reading(path: &Path, immutable: bool) -> rusqlite::Result<Connection> {
    let flags = flags(OpenFlags::SQLITE_OPEN_READ_ONLY);
    let conn = if immutable {
        Connection::open_with_flags(immutable_uri(path), flags | OpenFlags::SQLITE_OPEN_URI)?
    } else {
        Connection::open_with_flags(path, flags)?
    };
    harden(&conn)?;
    conn.execute_batch("PRAGMA query_only = ON; PRAGMA main.schema_version")?;
    Ok(conn)
}

fn flags(access: OpenFlags) -> OpenFlags {
    access
        | OpenFlags::SQLITE_OPEN_NO_MUTEX
        | OpenFlags::SQLITE_OPEN_NOFOLLOW
        | OpenFlags::SQLITE_OPEN_EXRESCODE
        | OpenFlags::SQLITE_OPEN_PRIVATE_CACHE
}

/// Whether the refusal is that of a reader who lacks side files and may not create them.
fn needs_writable_folder(error: &rusqlite::Error) -> bool {
    matches!(error.sqlite_error_code(), Some(ErrorCode::CannotOpen | ErrorCode::ReadOnly))
}

/// The path as a URI, every byte escaped that could mean something there. The file is promised not to
/// change, so SQLite takes no locks and wants no side files.
fn immutable_uri(path: &Path) -> String {
    let mut uri = String::from("file:");
    for &byte in path.as_os_str().as_bytes() {
        if byte.is_ascii_alphanumeric() || b"/._-".contains(&byte) {
            uri.push(char::from(byte));
        } else {
            let _ = write!(uri, "%{byte:02X}"); // writing to a string does not fail
        }
    }
    uri.push_str("?immutable=1");
    uri
}

/// Makes SQLite open all its files, then sees that they are the ones that were checked, and whole.
fn first_read(conn: &Connection, place: &Place, identity: Identity) -> Result<(), OpenError> {
    let path = place.path();
    let sqlite = |error| OpenError::from_sqlite(&path, &error);
    conn.execute_batch("PRAGMA main.schema_version").map_err(sqlite)?;
    place.recheck(identity)?;
    // While a log waits, its writer may be at work, or a crash may have left half a page that the log
    // repairs. Without one the file ends with a page; SQLite itself notices only whole pages that miss.
    if place.has_pending_log()? {
        return Ok(());
    }
    let page: i64 =
        conn.query_row("PRAGMA main.page_size", [], |row| row.get(0)).map_err(sqlite)?;
    match place.length()?.checked_rem(page) {
        Some(0) => Ok(()),
        _ => Err(OpenError::Damaged { path }),
    }
}

fn check_library() -> Result<(), OpenError> {
    let found = rusqlite::version_number();
    if found < OLDEST_SQLITE { Err(OpenError::OldSqlite { found }) } else { Ok(()) }
}

/// Everything that makes a connection safe to use on a file that somebody else may have prepared.
fn harden(conn: &Connection) -> rusqlite::Result<()> {
    conn.busy_timeout(BUSY)?;
    for (setting, on) in [
        (DbConfig::SQLITE_DBCONFIG_DEFENSIVE, true),
        (DbConfig::SQLITE_DBCONFIG_TRUSTED_SCHEMA, false),
        (DbConfig::SQLITE_DBCONFIG_WRITABLE_SCHEMA, false),
        (DbConfig::SQLITE_DBCONFIG_DQS_DDL, false),
        (DbConfig::SQLITE_DBCONFIG_DQS_DML, false),
        (DbConfig::SQLITE_DBCONFIG_ENABLE_FKEY, true),
        (DbConfig::SQLITE_DBCONFIG_ENABLE_TRIGGER, false),
        (DbConfig::SQLITE_DBCONFIG_ENABLE_VIEW, false),
        (DbConfig::SQLITE_DBCONFIG_ENABLE_FTS3_TOKENIZER, false),
        (DbConfig::SQLITE_DBCONFIG_ENABLE_ATTACH_CREATE, false),
        (DbConfig::SQLITE_DBCONFIG_ENABLE_ATTACH_WRITE, false),
        // Plans that depend on no parameter: else a statement is compiled anew each time that one is bound.
        (DbConfig::SQLITE_DBCONFIG_ENABLE_QPSG, true),
    ] {
        conn.set_db_config(setting, on)?;
    }
    for (limit, value) in LIMITS {
        conn.set_limit(limit, value)?;
    }
    conn.execute_batch(PRAGMAS)
}

/// Moves the whole log into the database, and both onto the disk; false when another connection is in the way.
///
/// Behind a sync that failed, what the log holds may be on no disk: Linux takes it for clean, and later syncs of the log pass
/// it by. Copied it is written anew, and the log begins again from its head.
pub(super) fn start_log_anew(conn: &Connection) -> rusqlite::Result<bool> {
    conn.query_row("PRAGMA main.wal_checkpoint(TRUNCATE)", [], |row| {
        row.get(0).map(|busy: i64| busy == 0)
    })
}

/// The same for as much as nobody else is using: a process before this one may have ended on a sync that failed. What stays
/// belongs to others that are at work, and they have seen their own syncs.
pub(super) fn settle_log(conn: &Connection) -> rusqlite::Result<()> {
    conn.query_row("PRAGMA main.wal_checkpoint(PASSIVE)", [], |_| Ok(()))
}

/// Switches to the write-ahead log. SQLite does not wait for every lock that this takes, so waiting is
/// done here.
#[allow(
    clippy::disallowed_methods,
    reason = "waits for locks of other processes, in real time, as SQLite's own busy timeout does"
)]
fn enter_wal(conn: &Connection, path: &Path) -> Result<(), OpenError> {
    let sqlite = |error| OpenError::from_sqlite(path, &error);
    let deadline = Instant::now() + BUSY;
    conn.busy_timeout(Duration::ZERO).map_err(sqlite)?;
    loop {
        match conn.query_row("PRAGMA main.journal_mode = WAL", [], |row| row.get::<_, String>(0)) {
            Ok(mode) if mode == "wal" => break,
            Ok(_) => return Err(OpenError::NoWal { path: path.to_path_buf() }),
            Err(error) => match OpenError::from_sqlite(path, &error) {
                OpenError::Busy { .. } if Instant::now() < deadline => {
                    std::thread::sleep(WAL_PAUSE)
                }
                error => return Err(error),
            },
        }
    }
    conn.busy_timeout(BUSY).map_err(sqlite)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_byte_with_a_meaning_in_a_uri_is_escaped() {
        assert_eq!(
            immutable_uri(Path::new("/a b/c?d#e%f&g=h")),
            "file:/a%20b/c%3Fd%23e%25f%26g%3Dh?immutable=1"
        );
        assert_eq!(immutable_uri(Path::new("/ä.db")), "file:/%C3%A4.db?immutable=1");
    }
}
