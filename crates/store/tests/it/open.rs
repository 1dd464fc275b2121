//! What an open database is like, and which contents are refused.

use std::path::{Path, PathBuf};

use portcullis_store::sqlite::error::{OpenError, UnsafeObject};
use portcullis_store::sqlite::migrate::Migration;
use portcullis_store::sqlite::open::{OpenMode, Opened, open};
use rusqlite::Connection;
use tempfile::TempDir;

/// A schema of two steps.
pub const SCHEMA: &[Migration] = &[
    Migration {
        version: 1,
        sql: "CREATE TABLE thing (name TEXT NOT NULL) STRICT;",
        oldest_writer: 1,
    },
    Migration { version: 2, sql: "CREATE INDEX thing_name ON thing (name);", oldest_writer: 1 },
];

/// Each way to open.
pub const MODES: [OpenMode; 3] = [OpenMode::CreateOrOpen, OpenMode::Existing, OpenMode::ReadOnly];

/// An empty folder and the path of a database in it.
pub fn place() -> (TempDir, PathBuf) {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("portcullis.db");
    (dir, path)
}

/// The same, with a database there that was closed cleanly.
pub fn existing() -> (TempDir, PathBuf) {
    let (dir, path) = place();
    drop(open_new(&path));
    (dir, path)
}

/// Opens or creates a database that must open.
pub fn open_new(path: &Path) -> Opened {
    open(path, OpenMode::CreateOrOpen, SCHEMA).unwrap()
}

/// The refusal that opening must end in: one printable line that says what to do.
pub fn refusal(path: &Path, mode: OpenMode) -> OpenError {
    let error = open(path, mode, SCHEMA).expect_err("opened what it should refuse");
    let text = error.to_string();
    assert!(!text.chars().any(char::is_control), "{text}");
    assert!(text.contains("; "), "says what to do: {text}");
    error
}

/// Changes a database with a connection that checks nothing.
pub fn spoil(path: &Path, sql: &str) {
    let conn = Connection::open(path).unwrap();
    conn.execute_batch(sql).unwrap();
}

fn pragma(conn: &Connection, name: &str) -> String {
    conn.query_row(&format!("PRAGMA {name}"), [], |row| row.get::<_, rusqlite::types::Value>(0))
        .map(|value| match value {
            rusqlite::types::Value::Integer(number) => number.to_string(),
            rusqlite::types::Value::Text(text) => text,
            other => panic!("{other:?}"),
        })
        .unwrap()
}

#[test]
fn a_writer_is_hardened_and_synced() {
    let (_dir, path) = place();
    let opened = open_new(&path);
    assert!(opened.created);
    assert!(!opened.immutable);
    let conn = &opened.conn;
    for (name, value) in [
        ("journal_mode", "wal"),
        ("synchronous", "2"),
        ("page_size", "8192"),
        ("foreign_keys", "1"),
        ("trusted_schema", "0"),
        ("secure_delete", "1"),
        ("temp_store", "2"),
        ("busy_timeout", "5000"),
        ("cell_size_check", "1"),
        ("wal_autocheckpoint", "1000"),
        ("user_version", "2"),
        ("application_id", "1346590028"),
    ] {
        assert_eq!(pragma(conn, name), value, "{name}");
    }
    use rusqlite::config::DbConfig;
    for (setting, on) in [
        (DbConfig::SQLITE_DBCONFIG_DEFENSIVE, true),
        (DbConfig::SQLITE_DBCONFIG_TRUSTED_SCHEMA, false),
        (DbConfig::SQLITE_DBCONFIG_DQS_DDL, false),
        (DbConfig::SQLITE_DBCONFIG_DQS_DML, false),
        (DbConfig::SQLITE_DBCONFIG_ENABLE_TRIGGER, false),
        (DbConfig::SQLITE_DBCONFIG_ENABLE_VIEW, false),
        (DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, false),
    ] {
        assert_eq!(conn.db_config(setting).unwrap(), on, "{setting:?}");
    }
    assert!(conn.execute_batch("ATTACH ':memory:' AS other").is_err());
    assert!(conn.execute_batch("SELECT \"no such column\"").is_err());
    assert!(conn.execute_batch("UPDATE sqlite_schema SET sql = ''").is_err());
    assert!(
        conn.query_row("SELECT length(zeroblob(70000000))", [], |row| row.get::<_, i64>(0))
            .is_err()
    );
}

#[test]
fn a_reader_cannot_write() {
    let (_dir, path) = existing();
    let opened = open(&path, OpenMode::ReadOnly, SCHEMA).unwrap();
    assert!(opened.conn.is_readonly("main").unwrap());
    assert!(opened.conn.execute("INSERT INTO thing (name) VALUES ('x')", []).is_err());
}

#[test]
fn what_one_wrote_the_next_reads_in_each_mode() {
    let (_dir, path) = place();
    let first = open_new(&path);
    first.conn.execute("INSERT INTO thing (name) VALUES ('kept')", []).unwrap();
    for mode in MODES {
        let next = open(&path, mode, SCHEMA).unwrap();
        assert!(!next.created);
        let name: String =
            next.conn.query_row("SELECT name FROM thing", [], |row| row.get(0)).unwrap();
        assert_eq!(name, "kept", "{mode:?}");
    }
}

#[test]
fn a_mistyped_path_creates_nothing() {
    let (dir, path) = place();
    for mode in [OpenMode::Existing, OpenMode::ReadOnly] {
        assert_eq!(refusal(&path, mode).kind(), "not_found");
    }
    assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0);
    for mode in MODES {
        assert_eq!(refusal(&dir.path().join("missing/x.db"), mode).kind(), "folder_not_found");
    }
}

#[test]
fn each_character_of_a_path_is_only_a_character() {
    let dir = tempfile::tempdir().unwrap();
    let folder = dir.path().join("a ?#% folder");
    std::fs::create_dir(&folder).unwrap();
    for name in ["x?mode=memory", "x#y", "x%41", "file:x.db", ":memory:", "ä\u{202e}\n.db"] {
        let path = folder.join(name);
        drop(open_new(&path));
        assert!(path.is_file(), "{name:?}");
        for mode in MODES {
            assert!(!open(&path, mode, SCHEMA).unwrap().created, "{name:?} {mode:?}");
        }
    }
    assert!(!folder.join("xA").exists());
    let odd = std::os::unix::ffi::OsStrExt::from_bytes(b"\xff\xfe.db");
    let odd: &std::ffi::OsStr = odd;
    drop(open_new(&folder.join(odd)));
    assert!(folder.join(odd).is_file());
}

#[test]
fn a_path_that_names_no_file_is_refused() {
    let (dir, _) = place();
    for path in ["", "/", "..", "x.db/"] {
        assert_eq!(refusal(Path::new(path), OpenMode::CreateOrOpen).kind(), "bad_path", "{path:?}");
    }
    assert_eq!(refusal(&dir.path().join("a\0b"), OpenMode::CreateOrOpen).kind(), "bad_path");
}

#[test]
fn triggers_views_and_virtual_tables_are_refused_by_all() {
    for (sql, kind, name) in [
        (
            "CREATE TRIGGER t AFTER INSERT ON thing BEGIN DELETE FROM thing; END",
            UnsafeObject::Trigger,
            "t",
        ),
        ("CREATE VIEW v AS SELECT 1", UnsafeObject::View, "v"),
        ("CREATE VIRTUAL TABLE s USING fts5(body)", UnsafeObject::VirtualTable, "s"),
    ] {
        let (_dir, path) = existing();
        spoil(&path, sql);
        for mode in MODES {
            match refusal(&path, mode) {
                OpenError::UnsafeSchema { kind: found, name: at, .. } => {
                    assert_eq!((found, &*at), (kind, name))
                }
                other => panic!("{mode:?}: {other}"),
            }
        }
    }
}

#[test]
fn a_schema_that_is_not_exactly_ours_is_refused_by_all() {
    for sql in [
        "CREATE TABLE extra (x)",
        "CREATE INDEX extra ON thing (lower(name))",
        "DROP INDEX thing_name",
        "ALTER TABLE thing ADD COLUMN more TEXT GENERATED ALWAYS AS (upper(name))",
        "DROP TABLE thing; CREATE TABLE thing (name TEXT NOT NULL CHECK (name <> 'x')) STRICT;
         CREATE INDEX thing_name ON thing (name)",
    ] {
        let (_dir, path) = existing();
        spoil(&path, sql);
        for mode in MODES {
            assert_eq!(refusal(&path, mode).kind(), "schema_differs", "{sql}");
        }
    }
    // SQLite's own tables are no difference.
    let (_dir, path) = existing();
    spoil(&path, "INSERT INTO thing VALUES ('x'); ANALYZE");
    for mode in MODES {
        open(&path, mode, SCHEMA).unwrap();
    }
}

#[test]
fn a_name_in_the_schema_cannot_break_the_message() {
    let (_dir, path) = existing();
    spoil(&path, &format!("CREATE VIEW \"a\x1b[2J\n{}\" AS SELECT 1", "b".repeat(1000)));
    let text = refusal(&path, OpenMode::Existing).to_string();
    assert!(text.contains(r"a\u{1b}[2J\nbbb"), "{text}");
    assert!(text.len() < 400, "{text}");
}

#[test]
fn a_newer_schema_is_refused_with_both_versions() {
    let (_dir, path) = existing();
    spoil(&path, "PRAGMA user_version = 3");
    for mode in MODES {
        match refusal(&path, mode) {
            OpenError::SchemaNewer { found: 3, supported: 2, .. } => {}
            other => panic!("{other}"),
        }
    }
}

#[test]
fn another_programs_database_is_refused_and_left_as_it_is() {
    for (sql, id) in [
        ("CREATE TABLE theirs (x); INSERT INTO theirs VALUES (1)", 0),
        ("CREATE TABLE theirs (x); PRAGMA application_id = 1196444487", 1_196_444_487),
        ("PRAGMA journal_mode = WAL; CREATE TABLE theirs (x)", 0),
        ("PRAGMA user_version = 2", 0),
    ] {
        let (_dir, path) = place();
        spoil(&path, sql);
        restrict(&path);
        let before = std::fs::read(&path).unwrap();
        for mode in MODES {
            match refusal(&path, mode) {
                OpenError::ForeignDatabase { application_id, .. } => assert_eq!(application_id, id),
                other => panic!("{other}"),
            }
        }
        assert_eq!(std::fs::read(&path).unwrap(), before, "{sql}");
    }
}

#[test]
fn a_foreign_log_is_not_moved_into_its_database() {
    let (_dir, path) = place();
    let theirs = Connection::open(&path).unwrap();
    theirs.execute_batch("PRAGMA journal_mode = WAL; CREATE TABLE theirs (x)").unwrap();
    theirs
        .set_db_config(rusqlite::config::DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, true)
        .unwrap();
    drop(theirs);
    let log = path.with_file_name("portcullis.db-wal");
    for file in [&path, &log, &path.with_file_name("portcullis.db-shm")] {
        restrict(file);
    }
    let before = (std::fs::read(&path).unwrap(), std::fs::read(&log).unwrap());
    assert!(!before.1.is_empty());
    for mode in MODES {
        assert_eq!(refusal(&path, mode).kind(), "foreign_database");
    }
    assert_eq!((std::fs::read(&path).unwrap(), std::fs::read(&log).unwrap()), before);
}

/// Sets mode 0600, whatever the umask of the tests is.
pub fn restrict(path: &Path) {
    use std::os::unix::fs::PermissionsExt as _;
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o600)).unwrap();
}

#[test]
fn something_else_than_a_database_is_refused_and_left_as_it_is() {
    for bytes in [&b"hello"[..], &[0; 8192], &[b'x'; 100_000]] {
        let (_dir, path) = place();
        std::fs::write(&path, bytes).unwrap();
        restrict(&path);
        for mode in MODES {
            assert_eq!(refusal(&path, mode).kind(), "not_a_database", "{}", bytes.len());
        }
        assert_eq!(std::fs::read(&path).unwrap(), bytes);
    }
}

#[test]
fn a_file_cut_anywhere_is_refused() {
    let (_dir, path) = existing();
    let whole = std::fs::read(&path).unwrap();
    assert!(whole.len() >= 3 * 8192);
    let mut lengths: Vec<usize> = vec![1, 15, 16, 50, 99, 100, 101, 511, 512, 513, 4096, 8191];
    lengths.extend((8192..whole.len()).step_by(1021));
    lengths.push(whole.len() - 1);
    for length in lengths {
        let (_dir, cut) = place();
        std::fs::write(&cut, &whole[..length]).unwrap();
        restrict(&cut);
        for mode in MODES {
            let kind = refusal(&cut, mode).kind();
            assert!(["damaged", "not_a_database"].contains(&kind), "{length}: {kind}");
        }
        assert_eq!(std::fs::read(&cut).unwrap(), &whole[..length], "{length}");
    }
    // The control: all of it opens.
    let (_dir, copy) = place();
    std::fs::write(&copy, &whole).unwrap();
    open(&copy, OpenMode::Existing, SCHEMA).unwrap();
}

#[test]
fn an_empty_file_is_a_database_only_for_whoever_may_create_one() {
    let (_dir, path) = place();
    std::fs::write(&path, b"").unwrap();
    for mode in [OpenMode::Existing, OpenMode::ReadOnly] {
        assert_eq!(refusal(&path, mode).kind(), "not_a_database");
        assert_eq!(std::fs::metadata(&path).unwrap().len(), 0);
    }
    assert!(!open_new(&path).created);
}

#[test]
fn a_log_without_its_database_is_not_destroyed() {
    let (_dir, path) = place();
    let log = path.with_file_name("portcullis.db-wal");
    std::fs::write(&log, b"the only copy").unwrap();
    assert_eq!(refusal(&path, OpenMode::CreateOrOpen).kind(), "orphan");
    assert_eq!(std::fs::read(&log).unwrap(), b"the only copy");
    assert!(!path.exists());
}

#[test]
fn a_database_locked_by_another_is_busy_and_not_waited_for_for_ever() {
    let (_dir, path) = existing();
    let other = Connection::open(&path).unwrap();
    other
        .execute_batch(
            "PRAGMA locking_mode = EXCLUSIVE; BEGIN IMMEDIATE; INSERT INTO thing VALUES ('x')",
        )
        .unwrap();
    let start = std::time::Instant::now();
    // A process apart: SQLite knows the locks of its own.
    assert_eq!(crate::child::open_elsewhere(&path, OpenMode::Existing, 0o022, None), "busy");
    assert!(start.elapsed() < std::time::Duration::from_secs(20));
    drop(other);
    assert_eq!(crate::child::open_elsewhere(&path, OpenMode::Existing, 0o022, None), "ok");
}

#[test]
fn opening_drops_no_lock_that_this_process_holds() {
    let (dir, path) = existing();
    let holder = open_new(&path);
    holder.conn.execute("INSERT INTO thing (name) VALUES ('held')", []).unwrap();
    let held = locks_on(&path);
    assert!(held > 0);
    for mode in MODES {
        drop(open(&path, mode, SCHEMA).unwrap());
    }
    std::os::unix::fs::symlink(&path, dir.path().join("link")).unwrap();
    assert_eq!(refusal(&dir.path().join("link"), OpenMode::Existing).kind(), "symlink");
    assert_eq!(locks_on(&path), held);
    // The control: closing an ordinary descriptor drops them.
    drop(std::fs::File::open(&path).unwrap());
    assert_eq!(locks_on(&path), 0);
}

/// How many record locks this process holds on the file.
fn locks_on(path: &Path) -> usize {
    let pid = format!(" {} ", std::process::id());
    let inode =
        format!(":{} ", std::os::unix::fs::MetadataExt::ino(&std::fs::metadata(path).unwrap()));
    let locks = std::fs::read_to_string("/proc/locks").unwrap();
    locks
        .lines()
        .filter(|line| line.contains(" POSIX ") && line.contains(&pid) && line.contains(&inode))
        .count()
}

#[test]
fn the_bundled_library_syncs_with_fdatasync() {
    // No pragma tells: HAVE_FDATASYNC is not in SQLite's list of options. The compiled library does: it
    // asks for the symbol, or, built without the flag, has it replaced by fsync and does not.
    let exe = std::env::current_exe().unwrap();
    let build = exe.parent().and_then(Path::parent).unwrap().join("build");
    let newest = std::fs::read_dir(&build)
        .into_iter()
        .flatten()
        .map(|entry| entry.unwrap().path().join("out/libsqlite3.a"))
        .filter(|path| path.exists())
        .max_by_key(|path| std::fs::metadata(path).unwrap().modified().unwrap());
    let Some(library) = newest else {
        println!("skipped 1: the compiled library is not where cargo usually puts it");
        return;
    };
    let bytes = std::fs::read(library).unwrap();
    let names = |name: &[u8]| bytes.windows(name.len()).any(|window| window == name);
    assert!(names(b"\0pread64\0") || names(b"\0pread\0"), "the control: an imported name is found");
    assert!(names(b"\0fdatasync\0"));
}

#[test]
fn the_bundled_library_keeps_no_cache_and_no_count_for_all_connections() {
    let conn = Connection::open_in_memory().unwrap();
    let mut options = conn.prepare("PRAGMA compile_options").unwrap();
    let options = options.query_map([], |row| row.get::<_, String>(0)).unwrap();
    let options: Vec<String> = options.map(Result::unwrap).collect();
    assert!(options.iter().any(|option| option == "ENABLE_API_ARMOR"), "the control: {options:?}");
    assert!(options.iter().any(|option| option == "DEFAULT_MEMSTATUS=0"), "{options:?}");
    assert!(!options.iter().any(|option| option == "ENABLE_MEMORY_MANAGEMENT"), "{options:?}");
}
