//! Databases as former schemas left them, and what a run's row has to name.

use std::path::Path;

use portcullis_domain::approval::Answer;
use portcullis_domain::event::LeaseCause;
use portcullis_domain::observation::ObservationKind;
use portcullis_domain::ports::{Append, Durability, Store, StoreError};
use portcullis_domain::question::QuestionKind;
use portcullis_domain::run::EndReason;
use portcullis_domain::scope::Scope;
use portcullis_domain::wait::Wait;
use portcullis_store::sqlite::MIGRATIONS;
use portcullis_store::sqlite::open::{OpenMode, open};
use portcullis_testkit::block_on;
use portcullis_testkit::scenario::{Scenario, allow, ask};
use portcullis_testkit::store_contract::fold;
use rusqlite::Connection;
use rusqlite::types::Value;

use crate::sqlite::{fresh, open_at};

/// The same record in a database that the first `version` migrations made: what that program had left.
pub(crate) fn set_back(path: &Path, version: usize) {
    let former = path.with_extension("former");
    drop(open(&former, OpenMode::CreateOrOpen, &MIGRATIONS[..version]).unwrap());
    let conn = Connection::open(&former).unwrap();
    conn.execute("ATTACH ?1 AS today", [path.to_str().unwrap()]).unwrap();
    conn.execute_batch("INSERT OR IGNORE INTO meta SELECT * FROM today.meta").unwrap();
    let tables: Vec<String> = conn
        .prepare("SELECT name FROM sqlite_schema WHERE type = 'table' AND name NOT IN ('meta', 'migrations')")
        .unwrap()
        .query_map([], |row| row.get(0))
        .unwrap()
        .collect::<Result<_, _>>()
        .unwrap();
    assert!(tables.len() >= 9, "{tables:?}");
    for table in tables {
        let columns: String = conn
            .query_row(
                "SELECT group_concat('\"' || name || '\"', ', ') FROM pragma_table_info(?1)",
                [&table],
                |row| row.get(0),
            )
            .unwrap();
        let order = match table.as_str() {
            "leases" => "run",
            "reminders" => "question",
            _ => "rowid",
        };
        conn.execute_batch(&format!(
            "INSERT INTO main.{table} ({columns}) SELECT {columns} FROM today.{table} ORDER BY {order}"
        ))
        .unwrap();
    }
    conn.execute_batch("DETACH today; PRAGMA wal_checkpoint(TRUNCATE)").unwrap();
    drop(conn);
    for side in ["-wal", "-shm"] {
        let mut name = path.as_os_str().to_owned();
        name.push(side);
        drop(std::fs::remove_file(name));
    }
    std::fs::rename(&former, path).unwrap();
    let conn = Connection::open(path).unwrap();
    let found: i64 = conn.query_row("PRAGMA user_version", [], |row| row.get(0)).unwrap();
    assert_eq!(found, i64::try_from(version).unwrap());
}

/// All cells of the runs, with their place in the list.
fn runs(path: &Path) -> Vec<Vec<Value>> {
    let conn = Connection::open(path).unwrap();
    let mut statement = conn.prepare("SELECT rowid, * FROM runs ORDER BY rowid").unwrap();
    let width = statement.column_count();
    statement
        .query_map([], |row| (0..width).map(|place| row.get(place)).collect())
        .unwrap()
        .collect::<Result<_, _>>()
        .unwrap()
}

fn asked(run: &mut Scenario, kind: QuestionKind) -> Vec<Append> {
    let begin = run.begin();
    run.step_opened();
    run.proposed(b"{}");
    match kind {
        QuestionKind::Approval => run.judged(ask()),
        QuestionKind::UnknownOutcome => {
            run.judged(allow());
            run.started();
        }
    }
    run.asked(kind, 1);
    vec![begin, run.driver(Durability::Synced)]
}

/// A history that ends in this wait, or in the end of its run.
fn history(run: &mut Scenario, wait: Option<Wait>) -> Vec<Append> {
    let second = std::time::Duration::from_secs(1);
    match wait {
        Some(Wait::Driver) => vec![run.begin()],
        Some(Wait::People) => asked(run, QuestionKind::Approval),
        Some(Wait::Outcome) => asked(run, QuestionKind::UnknownOutcome),
        Some(Wait::Child) => {
            let mut appends = vec![run.begin()];
            appends.extend(run.waiting_for_child());
            appends
        }
        Some(Wait::Grant) => {
            let mut appends = asked(run, QuestionKind::Approval);
            run.tick(second);
            run.answered("ann", Answer::Approve);
            appends.push(run.operator());
            // Taken up and let go again, which makes it free anew.
            run.tick(second);
            run.lease_acquired(LeaseCause::Free);
            appends.push(run.taking(false));
            run.tick(second);
            run.lease_released();
            appends.push(run.driver(Durability::Synced));
            appends
        }
        Some(Wait::Resume) => {
            let mut appends = asked(run, QuestionKind::UnknownOutcome);
            run.tick(second);
            run.answered("ann", Answer::Happened);
            run.finished(ObservationKind::ToolResult);
            appends.push(run.operator());
            // A late word of it sets nothing free.
            run.tick(second);
            run.outcome_late();
            appends.push(run.late());
            appends
        }
        None => {
            let mut appends = vec![run.begin()];
            run.run_finished(EndReason::GoalFailed);
            appends.push(run.driver(Durability::Synced));
            appends
        }
    }
}

#[test]
fn the_runs_of_the_schema_before_are_given_what_the_fold_says() {
    let backend = fresh();
    let path = backend.path();
    let store = open_at(&path, Vec::new()).unwrap();
    // The schema before had no runs that wait for others.
    let before = Wait::ALL.into_iter().filter(|wait| *wait != Wait::Child);
    let waits: Vec<Option<Wait>> = before.map(Some).chain([None]).collect();
    for (seed, wait) in (1..).zip(&waits) {
        let mut run = Scenario::new(seed, store.instance());
        // Another owner each: an open outcome keeps its tool.
        run.owner = format!("owner {seed}");
        for append in history(&mut run, *wait) {
            block_on(store.append(&Scope::of_file_owner(), append)).unwrap();
        }
        let state = block_on(store.run(&Scope::of_file_owner(), run.run)).unwrap().unwrap();
        assert_eq!(state.run.waits, *wait);
        assert_eq!(state.run.free_since.is_some(), wait.is_some_and(Wait::is_free), "{wait:?}");
    }
    drop(store);
    let today = runs(&path);
    assert_eq!(today.len(), waits.len());
    set_back(&path, 2);
    let without = runs(&path);
    assert_eq!(without[0].len() + 2, today[0].len(), "the former rows name nothing");

    let store = open_at(&path, Vec::new()).unwrap();
    fold::check(&store);
    drop(store);
    assert_eq!(runs(&path), today);
}

/// Sets cells of the one run; false when the schema refuses it.
fn set(path: &Path, cells: &str) -> bool {
    let conn = Connection::open(path).unwrap();
    match conn.execute(&format!("UPDATE runs SET {cells}"), []) {
        Ok(rows) => rows == 1,
        Err(rusqlite::Error::SqliteFailure(_, Some(why))) => {
            assert_eq!(why, "CHECK constraint failed: what_a_run_waits_for", "{cells}");
            false
        }
        Err(error) => panic!("{cells}: {error}"),
    }
}

#[test]
fn a_run_that_names_no_wait_or_half_of_one_is_refused_by_the_schema() {
    for (wait, refused) in [
        (Some(Wait::Driver), "waits = 'driver', holder = NULL"),
        (Some(Wait::People), "waits = 'people', question = NULL"),
        (Some(Wait::Outcome), "waits = 'outcome', status = 'running'"),
        (Some(Wait::Child), "waits = 'child', status = 'running'"),
        (Some(Wait::Child), "waits = 'child', free_since = 1"),
        (Some(Wait::Grant), "waits = 'grant', free_since = NULL"),
        (Some(Wait::Resume), "waits = 'resume', free_since = NULL"),
        (None, "waits = 'resume', free_since = 1"),
    ] {
        let backend = fresh();
        let path = backend.path();
        let store = open_at(&path, Vec::new()).unwrap();
        let mut run = Scenario::new(1, store.instance());
        for append in history(&mut run, wait) {
            block_on(store.append(&Scope::of_file_owner(), append)).unwrap();
        }
        drop(store);
        // The control: a row that is as whole as before is taken, by the same hand.
        assert!(set(&path, "failures = 7"), "{wait:?}");
        assert!(!set(&path, refused), "{refused}");
        if wait.is_some() {
            assert!(!set(&path, "waits = NULL"), "{wait:?}");
            assert!(!set(&path, "waits = 'nobody'"), "{wait:?}");
            assert!(!set(&path, "waits = NULL, free_since = NULL, status = 'paused'"), "{wait:?}");
        }
    }
}

/// A file as the schema before the second left it: with an outcome that nobody knows, and no index of such.
#[test]
fn a_database_of_the_first_schema_is_upgraded_and_its_open_outcome_still_keeps_its_tool() {
    let backend = fresh();
    let path = backend.path();
    let store = open_at(&path, Vec::new()).unwrap();
    let scope = Scope::of_file_owner();
    let mut lost = Scenario::new(1, store.instance());
    let begin = lost.begin();
    for append in std::iter::once(begin).chain(lost.executing()) {
        block_on(store.append(&scope, append)).unwrap();
    }
    lost.asked(QuestionKind::UnknownOutcome, 1);
    block_on(store.append(&scope, lost.driver(Durability::Synced))).unwrap();
    drop(store);
    set_back(&path, 1);

    let store = open_at(&path, Vec::new()).unwrap();
    let mut other = Scenario::new(2, store.instance());
    block_on(store.append(&scope, other.begin())).unwrap();
    let mut appends = other.executing();
    let intent = appends.pop().unwrap();
    for append in appends {
        block_on(store.append(&scope, append)).unwrap();
    }
    let question = lost.question.unwrap().0;
    let refused = block_on(store.append(&scope, intent)).unwrap_err();
    assert_eq!(refused, StoreError::OutcomeOpen { question });
    fold::check(&store);
    let conn = Connection::open(&path).unwrap();
    let version: i64 = conn.query_row("PRAGMA user_version", [], |row| row.get(0)).unwrap();
    assert_eq!(version, i64::try_from(MIGRATIONS.len()).unwrap());
}
