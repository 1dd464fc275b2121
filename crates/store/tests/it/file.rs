//! What only the store in a file has: modes, odd paths, futures that are dropped, a hostile file.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Context, Waker};

use portcullis_domain::event::Event;
use portcullis_domain::ports::{
    Durability, EventFilter, Ledgers, Observer, Page, Store, StoreError,
};
use portcullis_domain::row::{Cell, Row as _};
use portcullis_domain::run::Run;
use portcullis_domain::scope::Scope;
use portcullis_domain::stream::Stream;
use portcullis_domain::time::Timestamp;
use portcullis_store::sqlite::open::OpenMode;
use portcullis_store::sqlite::{Committing, Opening, SqliteStore};
use portcullis_testkit::block_on;
use portcullis_testkit::ports::SeededEntropy;
use portcullis_testkit::scenario::Scenario;
use portcullis_testkit::store_contract::fold;

use crate::sqlite::{fresh, open_at};

fn scope() -> Scope {
    Scope::of_file_owner()
}

fn open_reader(path: &std::path::Path) -> SqliteStore {
    let now = Timestamp::from_micros(0);
    let opening = Opening {
        now,
        entropy: &SeededEntropy::new(9),
        observers: Vec::new(),
        committing: Committing::OwnThread,
    };
    SqliteStore::open(path, OpenMode::ReadOnly, opening).unwrap()
}

#[test]
fn a_reader_reads_and_refuses_every_append() {
    let backend = fresh();
    let writer = open_at(&backend.path(), Vec::new()).unwrap();
    let reader = open_reader(&backend.path());
    assert_eq!((reader.instance(), reader.journal()), (writer.instance(), writer.journal()));
    let mut run = Scenario::new(1, writer.instance());
    let begin = run.begin();
    let refused = block_on(reader.append(&scope(), begin.clone())).unwrap_err();
    assert_eq!(refused, StoreError::ReadOnly);
    block_on(writer.append(&scope(), begin)).unwrap();
    // What was written after it was opened is seen.
    assert!(block_on(reader.run(&scope(), run.run)).unwrap().is_some());
    fold::check(&reader);
}

#[test]
fn an_odd_path_is_one_file() {
    let folder = tempfile::tempdir().unwrap();
    for name in ["a b", "ü?x=1#y%41", "file:z", "-wal", "'; DROP TABLE runs; --", "new\nline"] {
        let path = folder.path().join(name);
        let store = open_at(&path, Vec::new()).unwrap();
        let mut run = Scenario::new(1, store.instance());
        block_on(store.append(&scope(), run.begin())).unwrap();
        assert_eq!(store.path(), path.canonicalize().unwrap());
        assert_eq!(fold::check(&open_reader(&path)).runs.len(), 1);
    }
}

#[test]
fn a_watch_is_told_each_statement_inside_its_transaction() {
    let backend = fresh();
    let told: Arc<Mutex<Vec<String>>> = Arc::default();
    let (hears, path) = (Arc::clone(&told), backend.path());
    let seen = Arc::new(Mutex::new(Vec::new()));
    let (at, looks) = (Arc::clone(&seen), path.clone());
    let watch = move |sql: &str| {
        if sql.starts_with("INSERT INTO runs") {
            // Nobody else sees what is written and not committed.
            at.lock().unwrap().push(fold::check(&open_reader(&looks)).runs.len());
        }
        hears.lock().unwrap().push(sql.split_whitespace().take(3).collect::<Vec<_>>().join(" "));
    };
    let opening = Opening {
        now: Timestamp::from_micros(0),
        entropy: &SeededEntropy::new(1),
        observers: Vec::new(),
        committing: Committing::Caller,
    };
    let store = SqliteStore::open_watched(&path, OpenMode::CreateOrOpen, opening, watch).unwrap();
    let first = std::mem::take(&mut *told.lock().unwrap());
    assert!(first.iter().any(|sql| sql == "INSERT INTO events"), "{first:?}");
    let last: Vec<&str> = first.iter().rev().take(2).map(String::as_str).collect();
    assert_eq!(last, ["PRAGMA main.wal_checkpoint(PASSIVE)", "COMMIT"]);
    let mut run = Scenario::new(1, store.instance());
    block_on(store.append(&scope(), run.begin())).unwrap();
    let told = told.lock().unwrap();
    let place = |wanted: &str| told.iter().position(|sql| sql == wanted).unwrap();
    assert!(place("BEGIN IMMEDIATE") < place("INSERT INTO events"));
    assert!(place("INSERT INTO events") < place("INSERT INTO runs"));
    assert_eq!(place("COMMIT"), told.len() - 1);
    assert_eq!(*seen.lock().unwrap(), [0]);
    assert_eq!(fold::check(&store).runs.len(), 1);
}

#[test]
fn a_clean_end_leaves_one_file() {
    let backend = fresh();
    let store = open_at(&backend.path(), Vec::new()).unwrap();
    let mut run = Scenario::new(1, store.instance());
    block_on(store.append(&scope(), run.begin())).unwrap();
    block_on(store.run(&scope(), run.run)).unwrap();
    let beside = |suffix: &str| {
        let mut name = backend.path().into_os_string();
        name.push(suffix);
        std::path::PathBuf::from(name).exists()
    };
    assert!(beside("-wal"), "the control: while it is open there is a log");
    drop(store);
    assert!(!beside("-wal") && !beside("-shm"));
}

#[test]
fn an_append_outlives_the_future_that_asked_for_it() {
    let backend = fresh();
    let store = open_at(&backend.path(), Vec::new()).unwrap();
    let mut run = Scenario::new(1, store.instance());
    let scope = scope();
    // Never polled: nothing was asked.
    drop(store.append(&scope, run.begin()));
    assert_eq!(store.begin().unwrap().count("events").unwrap(), 1);
    let mut run = Scenario::new(1, store.instance());
    let mut asked = store.append(&scope, run.begin());
    let _ = asked.as_mut().poll(&mut Context::from_waker(Waker::noop()));
    drop(asked);
    // The next append waits behind it.
    run.step_opened();
    block_on(store.append(&scope, run.driver(Durability::Synced))).unwrap();
    assert_eq!(fold::check(&store).runs[&run.run].run.step_count, 1);
    // Dropping the store commits what waits.
    run.proposed(b"{}");
    let mut asked = store.append(&scope, run.driver(Durability::Written));
    let _ = asked.as_mut().poll(&mut Context::from_waker(Waker::noop()));
    drop(asked);
    drop(store);
    let store = open_reader(&backend.path());
    assert!(fold::check(&store).runs[&run.run].batch[0].proposal.is_some());
}

/// Keeps a store alive from inside its own observer.
#[derive(Default)]
struct Holds(Mutex<Option<Arc<SqliteStore>>>);

impl Observer for Holds {
    fn committed(&self, _: &[Event]) {
        drop(self.0.lock().unwrap().take());
    }
}

#[test]
fn a_store_can_be_dropped_by_its_own_observer() {
    let backend = fresh();
    let holds = Arc::new(Holds::default());
    let store = Arc::new(open_at(&backend.path(), vec![holds.clone()]).unwrap());
    let mut run = Scenario::new(1, store.instance());
    *holds.0.lock().unwrap() = Some(Arc::clone(&store));
    let begin = run.begin();
    let scope = scope();
    let mut asked = store.append(&scope, begin);
    let _ = asked.as_mut().poll(&mut Context::from_waker(Waker::noop()));
    drop(asked);
    drop(store);
    while holds.0.lock().unwrap().is_some() {
        std::thread::yield_now();
    }
    let store = open_at(&backend.path(), Vec::new()).unwrap();
    // The commit came before its observers.
    assert_eq!(fold::check(&store).runs.len(), 1);
}

#[test]
fn readers_that_begin_together_see_the_same_whatever_is_written_meanwhile() {
    let backend = fresh();
    let store = open_at(&backend.path(), Vec::new()).unwrap();
    let done = AtomicBool::new(false);
    std::thread::scope(|threads| {
        threads.spawn(|| {
            for seed in (1..).take_while(|_| !done.load(Ordering::Relaxed)) {
                let begin = Scenario::new(seed, store.instance()).begin();
                block_on(store.append(&scope(), begin)).unwrap();
            }
        });
        let (mut end, mut moved) = (0, 0);
        // Until it was written to often enough in between, which is the control.
        while moved < 100 {
            let mut first = store.begin_for(4).unwrap();
            let mut all: Vec<_> = std::iter::from_fn(|| first.another()).collect();
            assert_eq!(all.len(), 3);
            let now = first.count("events").unwrap();
            let seen = all.iter_mut().map(|other| other.count("events").unwrap());
            let same = seen.eq([now; 3]);
            done.store(!same, Ordering::Relaxed);
            assert!(same, "one of them sees more or less than {now} events");
            moved += u32::from(now > end);
            end = now;
        }
        done.store(true, Ordering::Relaxed);
    });
    assert!(store.begin().unwrap().another().is_none(), "one reader was asked for");
}

#[test]
fn what_is_too_large_is_not_loaded() {
    let backend = fresh();
    let store = open_at(&backend.path(), Vec::new()).unwrap();
    let mut run = Scenario::new(1, store.instance());
    let begin = run.begin();
    let content = begin.contents[0].reference().digest;
    block_on(store.append(&scope(), begin)).unwrap();
    drop(store);
    let conn = rusqlite::Connection::open(backend.path()).unwrap();
    conn.execute_batch(
        "UPDATE events SET payload = zeroblob(40000000) WHERE kind = 'run.created';
         UPDATE runs SET goal = printf('%.*c', 2000000, 'x');
         UPDATE contents SET bytes = zeroblob(40000000);
         UPDATE specs SET bytes = zeroblob(40000000);",
    )
    .unwrap();
    let store = open_at(&backend.path(), Vec::new()).unwrap();
    let mut ledger = store.begin().unwrap();
    let events = ledger.stream_after(Stream::from(run.run), 0, 500).unwrap();
    let lengths: Vec<bool> = events.iter().map(|event| event.payload.is_empty()).collect();
    assert_eq!(lengths, [true, false]);
    let row = ledger.row(Run::TABLE, &[Cell::Blob(run.run.as_bytes().to_vec())]).unwrap().unwrap();
    let goal = Run::COLUMNS.iter().position(|column| *column == "goal").unwrap();
    assert_eq!((&row[goal], row[0] == Cell::Blob(Vec::new())), (&Cell::Blob(Vec::new()), false));
    assert_eq!(ledger.content(content).unwrap().unwrap().bytes, b"");
    assert_eq!(ledger.spec(run.tool.digest()).unwrap().unwrap(), b"");
    let damaged = |table| StoreError::Damaged { table };
    assert_eq!(block_on(store.content(&scope(), content)).unwrap_err(), damaged("contents"));
    assert_eq!(block_on(store.spec(run.tool.digest())).unwrap_err(), damaged("specs"));
    let filter = EventFilter { stream: None, after: 0, limit: 500 };
    assert_eq!(block_on(store.events(&scope(), filter)).unwrap().len(), 4);
}

#[test]
fn a_page_of_large_payloads_is_cut_and_none_is_skipped() {
    let backend = fresh();
    let store = open_at(&backend.path(), Vec::new()).unwrap();
    let conn = rusqlite::Connection::open(backend.path()).unwrap();
    for seq in 2..=40 {
        conn.execute(
            "INSERT INTO events SELECT ?1, journal, tenant, stream_kind, stream_id, ?1, step, at, kind,
             version, journal_prev, stream_prev, hash, zeroblob(1000000) FROM events WHERE journal_seq = 1",
            [seq],
        )
        .unwrap();
    }
    let mut ledger = store.begin().unwrap();
    let (mut after, mut pages, mut seen) = (0, 0, 0);
    loop {
        let page = ledger.events_after(store.journal(), after, 500).unwrap();
        let Some(last) = page.last() else { break };
        (after, pages, seen) = (last.journal_seq, pages + 1, seen + page.len());
        assert!(page.len() <= 18);
    }
    assert_eq!((seen, pages), (40, 3));
}

#[test]
fn a_row_of_another_journal_is_listed_with_it() {
    let backend = fresh();
    let store = open_at(&backend.path(), Vec::new()).unwrap();
    let conn = rusqlite::Connection::open(backend.path()).unwrap();
    conn.execute_batch(
        "INSERT INTO events SELECT 2, x'00000000000000000000000000000001', tenant, stream_kind,
         stream_id, 2, step, at, kind, version, journal_prev, stream_prev, hash, payload FROM events",
    )
    .unwrap();
    let journals = store.begin().unwrap().journals().unwrap();
    assert_eq!(journals.len(), 2);
    assert!(journals.contains(&store.journal()));
}

#[test]
fn reads_and_writes_go_on_beside_each_other() {
    let backend = fresh();
    let store = open_at(&backend.path(), Vec::new()).unwrap();
    let mut run = Scenario::new(1, store.instance());
    block_on(store.append(&scope(), run.begin())).unwrap();
    let id = run.run;
    let page = Page { offset: 0, limit: 50 };
    std::thread::scope(|threads| {
        let reading = threads.spawn(|| {
            let mut last = 0;
            for _ in 0..200 {
                let state = block_on(store.run(&scope(), id)).unwrap().unwrap();
                let steps = block_on(store.steps(&scope(), id, page)).unwrap();
                // Each read is one transaction; a later one never shows less.
                assert!(state.run.seq >= last && steps.total >= state.run.step_count);
                last = state.run.seq;
            }
        });
        for _ in 0..40 {
            for append in run.whole_step() {
                block_on(store.append(&scope(), append)).unwrap();
            }
        }
        reading.join().unwrap();
    });
    fold::check(&store);
}

/// A file as the schema before the fourth left it: without budgets. A model can be called once it is upgraded.
#[test]
fn a_database_without_budgets_is_upgraded_and_holds() {
    let backend = fresh();
    let path = backend.path();
    let store = open_at(&path, Vec::new()).unwrap();
    let mut run = Scenario::new(1, store.instance());
    block_on(store.append(&scope(), run.begin())).unwrap();
    run.step_opened();
    block_on(store.append(&scope(), run.driver(Durability::Synced))).unwrap();
    drop(store);
    crate::former::set_back(&path, 3);

    let store = open_at(&path, Vec::new()).unwrap();
    run.holds(portcullis_testkit::scenario::amounts(10), true);
    block_on(store.append(&scope(), run.live())).unwrap();
    let budget = block_on(store.budget(&scope(), run.own_budget())).unwrap().unwrap();
    assert_eq!(budget.held().tokens(), 10);
    fold::check(&store);
}
