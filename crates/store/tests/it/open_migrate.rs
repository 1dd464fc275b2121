//! Schema versions: first opens at once, upgrades, changed migrations, old writers.

use std::collections::BTreeSet;

use portcullis_store::sqlite::error::OpenError;
use portcullis_store::sqlite::migrate::{Migration, WriterError, check_writer};
use portcullis_store::sqlite::open::{OpenMode, open};
use rusqlite::TransactionBehavior;

use crate::child::open_elsewhere;
use crate::open::{MODES, SCHEMA, existing, open_new, place, spoil};

const THIRD: Migration =
    Migration { version: 3, sql: "CREATE TABLE third (x INTEGER) STRICT;", oldest_writer: 3 };

fn with_third() -> Vec<Migration> {
    let mut all = SCHEMA.to_vec();
    all.push(THIRD);
    all
}

#[test]
fn first_opens_at_once_make_one_database() {
    for _ in 0..4 {
        let (_dir, path) = place();
        std::thread::scope(|scope| {
            let mut all = Vec::new();
            for _ in 0..4 {
                all.push(
                    scope.spawn(|| open_elsewhere(&path, OpenMode::CreateOrOpen, 0o022, None)),
                );
                all.push(scope.spawn(|| {
                    open(&path, OpenMode::CreateOrOpen, SCHEMA)
                        .map_or_else(|error| error.kind().to_owned(), |_| "ok".to_owned())
                }));
            }
            for one in all {
                assert_eq!(one.join().unwrap(), "ok");
            }
        });
        let opened = open(&path, OpenMode::Existing, SCHEMA).unwrap();
        let rows: i64 =
            opened.conn.query_row("SELECT count(*) FROM thing", [], |row| row.get(0)).unwrap();
        assert_eq!(rows, 4, "each child's row is there");
        let page: i64 = opened.conn.query_row("PRAGMA page_size", [], |row| row.get(0)).unwrap();
        assert_eq!(page, 8192);
    }
}

#[test]
fn what_was_applied_is_remembered() {
    let (_dir, path) = place();
    let opened = open_new(&path);
    let rows: Vec<(i64, Vec<u8>)> = opened
        .conn
        .prepare("SELECT * FROM migrations ORDER BY version")
        .unwrap()
        .query_map([], |row| Ok((row.get(0)?, row.get(1)?)))
        .unwrap()
        .collect::<Result<_, _>>()
        .unwrap();
    let expected: Vec<_> = SCHEMA.iter().map(|m| (m.version, m.checksum().to_vec())).collect();
    assert_eq!(rows, expected);
    // Each opening compares all of it: a column more would be one that nobody does.
    let columns = opened.conn.prepare("SELECT * FROM migrations").unwrap().column_count();
    assert_eq!(columns, 2);
}

#[test]
fn a_checksum_is_that_of_the_text() {
    let migration = Migration { version: 1, sql: "abc", oldest_writer: 1 };
    let hex: String = migration.checksum().iter().map(|byte| format!("{byte:02x}")).collect();
    assert_eq!(hex, "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
}

#[test]
fn an_old_schema_is_upgraded_by_a_writer_and_refused_by_a_reader() {
    let (_dir, path) = existing();
    spoil(&path, "INSERT INTO thing VALUES ('kept')");
    match open(&path, OpenMode::ReadOnly, &with_third()) {
        Err(OpenError::SchemaOlder { found: 2, supported: 3, .. }) => {}
        other => panic!("{other:?}"),
    }
    let opened = open(&path, OpenMode::Existing, &with_third()).unwrap();
    let kept: String =
        opened.conn.query_row("SELECT name FROM thing", [], |row| row.get(0)).unwrap();
    assert_eq!(kept, "kept");
    open(&path, OpenMode::ReadOnly, &with_third()).unwrap();
    match open(&path, OpenMode::Existing, SCHEMA) {
        Err(OpenError::SchemaNewer { found: 3, supported: 2, .. }) => {}
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_writer_that_is_too_old_is_stopped_in_its_next_transaction() {
    let (_dir, path) = place();
    let mut old = open_new(&path);
    let tx = old.conn.transaction_with_behavior(TransactionBehavior::Immediate).unwrap();
    check_writer(&tx, 2).unwrap();
    drop(tx);
    let mut new = open(&path, OpenMode::Existing, &with_third()).unwrap();
    let tx = old.conn.transaction_with_behavior(TransactionBehavior::Immediate).unwrap();
    match check_writer(&tx, 2) {
        Err(WriterError::TooOld { oldest: 3, ours: 2 }) => {}
        other => panic!("{other:?}"),
    }
    drop(tx);
    let tx = new.conn.transaction_with_behavior(TransactionBehavior::Immediate).unwrap();
    check_writer(&tx, 3).unwrap();
    tx.execute("DELETE FROM meta", []).unwrap();
    assert!(matches!(check_writer(&tx, 3), Err(WriterError::Unreadable(_))));
}

#[test]
fn a_migration_that_fails_leaves_the_database_as_it_was() {
    for sql in [
        "CREATE TABLE third (x); CREATE TABLE thing (y);",
        "nonsense",
        "COMMIT; CREATE TABLE third (x);",
    ] {
        let (_dir, path) = existing();
        let mut all = SCHEMA.to_vec();
        all.push(Migration { version: 3, sql, oldest_writer: 1 });
        match open(&path, OpenMode::Existing, &all) {
            Err(OpenError::BadMigration { version: 3, .. }) => {}
            other => panic!("{other:?}"),
        }
        for mode in MODES {
            open(&path, mode, SCHEMA).unwrap();
        }
    }
}

#[test]
fn a_list_of_migrations_with_a_gap_is_refused_before_the_file_is_touched() {
    let third = Migration { oldest_writer: 4, ..THIRD };
    for list in [&[][..], &[SCHEMA[1]], &[SCHEMA[0], THIRD], &[SCHEMA[0], SCHEMA[1], third]] {
        let (_dir, path) = place();
        match open(&path, OpenMode::CreateOrOpen, list) {
            Err(OpenError::BadMigration { .. }) => {}
            other => panic!("{other:?}"),
        }
        assert!(!path.exists());
    }
}

#[test]
fn a_migration_with_another_text_is_refused() {
    // Same schema, other text: only the checksum tells.
    let changed =
        Migration { sql: "CREATE TABLE thing (name TEXT NOT NULL) STRICT; ", ..SCHEMA[0] };
    let (_dir, path) = existing();
    for mode in MODES {
        match open(&path, mode, &[changed, SCHEMA[1]]) {
            Err(OpenError::MigrationDiffers { version: 1, .. }) => {}
            other => panic!("{other:?}"),
        }
    }
}

#[test]
fn a_forged_list_of_applied_migrations_is_refused() {
    let mut kinds = BTreeSet::new();
    for sql in [
        "DELETE FROM migrations WHERE version = 2",
        "DELETE FROM migrations",
        "INSERT INTO migrations VALUES (3, zeroblob(32))",
        "UPDATE migrations SET checksum = zeroblob(32) WHERE version = 1",
        "UPDATE migrations SET version = 9 WHERE version = 1",
        "PRAGMA user_version = 1",
        "PRAGMA user_version = 0",
        "PRAGMA user_version = -1",
    ] {
        let (_dir, path) = existing();
        spoil(&path, sql);
        for mode in MODES {
            kinds.insert(crate::open::refusal(&path, mode).kind());
        }
    }
    assert_eq!(
        kinds,
        BTreeSet::from(["damaged", "migration_differs", "schema_differs", "schema_older"])
    );
}
