//! Batches as the writer serves them, with planned faults.
#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "tests")]

use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use portcullis_domain::lease::Epoch;
use portcullis_domain::ports::{Append, LeaseTerm};
use portcullis_domain::scope::Tenant;
use portcullis_domain::time::Timestamp;
use portcullis_testkit::ports::SeededEntropy;
use portcullis_testkit::scenario::Scenario;
use tempfile::TempDir;

use super::*;
use crate::admit::open_journal;
use crate::sqlite::open::Opened;
use crate::sqlite::task::Renewal;
use crate::sqlite::write::{write_event, write_identity};

pub(in crate::sqlite) struct Bench {
    pub(in crate::sqlite) folder: TempDir,
    pub(in crate::sqlite) writer: Writer,
    pub(in crate::sqlite) plans: Arc<Mutex<Vec<Plan>>>,
}

pub(in crate::sqlite) fn bench() -> Bench {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("p.db");
    let Opened { conn, file, .. } = open(&path, OpenMode::CreateOrOpen, MIGRATIONS).unwrap();
    let (now, entropy) = (Timestamp::from_micros(0), SeededEntropy::new(1));
    let instance = InstanceId::draw(now, &entropy);
    let journal = JournalId::draw(now, &entropy);
    let chain = Chain { instance, journal, tip: Tip::START };
    let (event, payload) = open_journal(&chain, &Tenant::local(), now).unwrap();
    write_identity(&conn, instance, journal).unwrap();
    write_event(&conn, &event, &payload).unwrap();
    let plans = Arc::default();
    let file = SameFile::watch(&path, file);
    let writer = Writer {
        conn,
        path,
        instance,
        journal,
        observers: Vec::new(),
        memory: Memory::new(),
        seen: None,
        file,
        synced: true,
        plans: Arc::clone(&plans),
    };
    Bench { folder, writer, plans }
}

impl Bench {
    /// Serves appends as one batch.
    fn answers(&mut self, appends: Vec<Append>) -> Served {
        let tasks =
            appends.into_iter().map(|append| Task::append(Tenant::local(), append).unwrap());
        self.writer.batch(tasks.collect())
    }

    /// The same, with where each append ends in the journal.
    fn serve(&mut self, appends: Vec<Append>) -> (bool, Vec<Result<u64, StoreError>>) {
        let served = self.answers(appends);
        let last = |events: Vec<Event>| events.last().unwrap().link.journal_seq;
        (served.goes_on, served.answers.into_iter().map(|answer| answer.map(last)).collect())
    }

    /// How a batch was made durable, all of which was stored.
    fn durability(&mut self, appends: Vec<Append>) -> Durability {
        let served = self.answers(appends);
        assert!(served.answers.iter().all(Result::is_ok));
        served.durability
    }

    /// Events in the file, as another connection sees them.
    fn events(&self) -> i64 {
        let path = self.folder.path().join("p.db");
        let conn = Connection::open(path).unwrap();
        conn.query_row("SELECT count(*) FROM events", [], |row| row.get(0)).unwrap()
    }

    fn run(&self, seed: u64) -> Scenario {
        Scenario::new(seed, self.writer.instance)
    }
}

#[test]
fn a_batch_is_one_commit_and_a_refused_job_takes_back_only_its_own() {
    let mut bench = bench();
    let (mut one, mut two) = (bench.run(1), bench.run(2));
    let begin = one.begin();
    let twice = begin.clone();
    one.step_opened();
    let opened = one.driver(Durability::Synced);
    let commits = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&commits);
    let count = move || {
        counted.fetch_add(1, Ordering::SeqCst);
        false
    };
    bench.writer.conn.commit_hook(Some(count)).unwrap();
    let (goes_on, answers) = bench.serve(vec![begin, twice, two.begin(), opened]);
    assert!(goes_on);
    assert_eq!(answers, [Ok(4), Err(StoreError::Stale), Ok(7), Ok(8)]);
    assert_eq!(bench.events(), 8);
    assert_eq!(commits.load(Ordering::SeqCst), 1);
}

#[test]
fn a_job_alone_that_is_refused_after_it_wrote_leaves_nothing() {
    let mut bench = bench();
    let mut run = bench.run(1);
    let mut thief = bench.run(2);
    assert_eq!(bench.serve(vec![run.begin(), thief.begin()]).1, [Ok(4), Ok(7)]);
    run.step_opened();
    assert_eq!(bench.serve(vec![run.driver(Durability::Synced)]).1, [Ok(8)]);
    // The id of a step is taken, which only the table notices, when the event is written already.
    thief.step_opened();
    let honest = thief.driver(Durability::Synced);
    let mut stolen = honest.clone();
    stolen.events[0].step = Some(run.step);
    assert_eq!(bench.serve(vec![stolen.clone()]).1, [Err(StoreError::NotAdmitted)]);
    assert_eq!(bench.events(), 8);
    let answers = bench.serve(vec![stolen, honest]).1;
    assert_eq!(answers, [Err(StoreError::NotAdmitted), Ok(9)]);
}

#[test]
fn a_job_that_fails_half_way_leaves_what_came_before_and_after_it() {
    let mut bench = bench();
    let (mut one, mut two, mut thief) = (bench.run(1), bench.run(2), bench.run(3));
    assert_eq!(bench.serve(vec![one.begin(), thief.begin()]).1, [Ok(4), Ok(7)]);
    one.step_opened();
    assert_eq!(bench.serve(vec![one.driver(Durability::Synced)]).1, [Ok(8)]);
    one.proposed(b"{}");
    let proposed = one.driver(Durability::Written);
    thief.step_opened();
    let mut stolen = thief.driver(Durability::Synced);
    stolen.events[0].step = Some(one.step);
    let until = two.at.after(std::time::Duration::from_secs(90));
    let renewal = Renewal { run: two.run, epoch: Epoch(1), now: two.at, until };
    let append = |append| Task::append(Tenant::local(), append).unwrap();
    let tasks = vec![
        append(proposed),
        append(two.begin()),
        Task::Renew(Tenant::local(), renewal),
        append(stolen.clone()),
        append(stolen),
    ];
    let served = bench.writer.batch(tasks);
    let refused = Err(StoreError::NotAdmitted);
    assert!(served.goes_on);
    assert_eq!(served.answers[0].as_ref().unwrap()[0].link.journal_seq, 9);
    assert_eq!(served.answers[1].as_ref().unwrap().len(), 3);
    assert_eq!(served.answers[2..], [Ok(Vec::new()), refused.clone(), refused]);
    assert_eq!(bench.events(), 12);
    // What is remembered is what is stored: both runs go on, and a fresh look at the term finds the later one.
    two.step_opened();
    assert_eq!(bench.serve(vec![two.driver(Durability::Synced)]).1, [Ok(13)]);
    let term = lookup::lease(&bench.writer.conn, two.run).unwrap();
    assert_eq!(term, Some(LeaseTerm { epoch: Epoch(1), until }));
    assert_eq!(bench.writer.memory.keeps_term(two.run), Some(term));
}

#[test]
fn a_job_that_fails_half_way_takes_back_what_it_wrote() {
    let mut bench = bench();
    let (mut one, mut two) = (bench.run(1), bench.run(2));
    assert_eq!(bench.serve(vec![one.begin()]).1, [Ok(4)]);
    // The run's row goes away behind the writer's memory, which finds out after it has written the event.
    let conn = &bench.writer.conn;
    conn.execute_batch("PRAGMA foreign_keys = OFF; DELETE FROM runs; PRAGMA foreign_keys = ON")
        .unwrap();
    one.step_opened();
    let opened = one.driver(Durability::Synced);
    let (goes_on, answers) = bench.serve(vec![opened, two.begin()]);
    assert!(goes_on);
    assert_eq!(answers, [Err(StoreError::Damaged { table: "runs" }), Ok(7)]);
    assert_eq!(bench.events(), 7);
}

#[test]
fn only_batches_that_ask_for_it_are_synced() {
    let mut bench = bench();
    let level = |bench: &Bench| -> i64 {
        bench.writer.conn.query_row("PRAGMA main.synchronous", [], |row| row.get(0)).unwrap()
    };
    let mut run = bench.run(1);
    let (_, answers) = bench.serve(vec![run.begin()]);
    assert!(answers[0].is_ok());
    assert_eq!(level(&bench), 2); // FULL
    run.step_opened();
    assert_eq!(bench.serve(vec![run.driver(Durability::Written)]).1, [Ok(5)]);
    assert_eq!(level(&bench), 1); // NORMAL
    run.proposed(b"{}");
    let written = run.driver(Durability::Written);
    run.lease_released();
    assert_eq!(bench.serve(vec![written, run.driver(Durability::Synced)]).1, [Ok(6), Ok(7)]);
    assert_eq!(level(&bench), 2);
}

#[test]
fn an_answer_says_how_the_batch_was_committed() {
    use Durability::{Synced, Written};
    let mut bench = bench();
    let (mut one, mut two) = (bench.run(1), bench.run(2));
    assert_eq!(bench.durability(vec![one.begin(), two.begin()]), Synced);
    one.step_opened();
    assert_eq!(bench.durability(vec![one.driver(Written)]), Written);
    // One that asks for less is synced with the batch.
    one.proposed(b"{}");
    two.step_opened();
    let batch = vec![one.driver(Written), two.driver(Synced)];
    assert_eq!(bench.durability(batch), Synced);
    // Where the level cannot be set, nothing is promised.
    one.lease_released();
    assert_eq!(bench.durability(vec![one.driver(Written)]), Written);
    bench.writer.conn.execute_batch("BEGIN").unwrap();
    two.proposed(b"{}");
    let served = bench.answers(vec![two.driver(Synced)]);
    assert!(
        served.goes_on && served.answers[0].is_err(),
        "the level cannot be set inside a transaction"
    );
    bench.writer.conn.execute_batch("ROLLBACK").unwrap();
}

#[test]
fn a_failed_commit_is_in_doubt_and_the_next_one_sees_what_is_there() {
    let mut bench = bench();
    let mut run = bench.run(1);
    let begin = run.begin();
    bench.plans.lock().unwrap().push(Plan::FailCommit);
    let (goes_on, answers) = bench.serve(vec![begin.clone(), bench.run(2).begin()]);
    assert!(bench.plans.lock().unwrap().is_empty());
    assert!(goes_on);
    assert_eq!(answers, [Err(StoreError::InDoubt), Err(StoreError::InDoubt)]);
    assert_eq!(bench.events(), 1);
    assert_eq!(bench.serve(vec![begin]).1, [Ok(4)]);
    run.step_opened();
    assert_eq!(bench.serve(vec![run.driver(Durability::Synced)]).1, [Ok(5)]);
}

#[test]
fn a_panic_rolls_back_and_closes() {
    let mut bench = bench();
    let begin = bench.run(1).begin();
    bench.plans.lock().unwrap().push(Plan::PanicBeforeCommit);
    let (goes_on, answers) = bench.serve(vec![begin]);
    assert!(!goes_on);
    assert_eq!(answers, [Err(StoreError::Closed)]);
    assert!(bench.plans.lock().unwrap_or_else(std::sync::PoisonError::into_inner).is_empty());
    assert_eq!(bench.events(), 1);
}

#[test]
fn what_is_remembered_is_dropped_when_somebody_else_wrote() {
    let mut bench = bench();
    let mut run = bench.run(1);
    assert_eq!(bench.serve(vec![run.begin()]).1, [Ok(4)]);
    run.step_opened();
    let stale = run.driver(Durability::Synced);
    // Another process opens the step first.
    let path = bench.folder.path().join("p.db");
    let opened = open(&path, OpenMode::Existing, MIGRATIONS).unwrap();
    let file = SameFile::watch(&path, opened.file);
    let mut other = Writer {
        conn: opened.conn,
        path,
        instance: bench.writer.instance,
        journal: bench.writer.journal,
        observers: Vec::new(),
        memory: Memory::new(),
        seen: None,
        file,
        synced: true,
        plans: Arc::default(),
    };
    let stolen = other.batch(vec![Task::append(Tenant::local(), stale.clone()).unwrap()]);
    assert!(stolen.goes_on && stolen.answers[0].is_ok());
    assert_eq!(bench.serve(vec![stale]).1, [Err(StoreError::Stale)]);
    run.proposed(b"{}");
    assert_eq!(bench.serve(vec![run.driver(Durability::Synced)]).1, [Ok(6)]);
}

#[test]
fn a_newer_program_shuts_this_writer_out() {
    let mut bench = bench();
    let begin = bench.run(1).begin();
    let newer = MIGRATIONS.last().unwrap().version + 1;
    let outside = Connection::open(bench.folder.path().join("p.db")).unwrap();
    let set = |value: i64| {
        outside
            .execute("UPDATE meta SET value = ?1 WHERE name = 'oldest_writer'", [value])
            .unwrap();
    };
    set(newer);
    assert_eq!(bench.serve(vec![begin.clone()]).1, [Err(StoreError::WriterTooOld)]);
    assert_eq!(bench.events(), 1);
    set(1);
    assert_eq!(bench.serve(vec![begin]).1, [Ok(4)]);
}

#[test]
fn a_locked_file_is_busy_and_stores_nothing() {
    let mut bench = bench();
    let begin = bench.run(1).begin();
    bench.writer.conn.busy_timeout(std::time::Duration::ZERO).unwrap();
    let outside = Connection::open(bench.folder.path().join("p.db")).unwrap();
    outside.execute_batch("BEGIN IMMEDIATE").unwrap();
    assert_eq!(bench.serve(vec![begin.clone()]).1, [Err(StoreError::Busy)]);
    outside.execute_batch("ROLLBACK").unwrap();
    assert_eq!(bench.serve(vec![begin]).1, [Ok(4)]);
}

#[test]
fn a_renewal_is_served_between_appends() {
    let mut bench = bench();
    let mut run = bench.run(1);
    let begin = run.begin();
    let until = run.at.after(std::time::Duration::from_secs(90));
    let renewal = Renewal { run: run.run, epoch: Epoch(1), now: run.at, until };
    let renew = Task::Renew(Tenant::local(), renewal);
    let served = bench.writer.batch(vec![Task::append(Tenant::local(), begin).unwrap(), renew]);
    assert!(served.goes_on);
    assert_eq!(served.answers[0].as_ref().unwrap().len(), 3);
    assert_eq!(served.answers[1], Ok(Vec::new()));
    let term = lookup::lease(&bench.writer.conn, run.run).unwrap();
    assert_eq!(term, Some(LeaseTerm { epoch: Epoch(1), until }));
}

#[test]
fn a_file_that_is_no_longer_at_its_path_takes_nothing_more() {
    let mut bench = bench();
    let (mut run, path) = (bench.run(1), bench.folder.path().join("p.db"));
    assert_eq!(bench.serve(vec![run.begin()]).1, [Ok(4)]);
    let away = bench.folder.path().join("away.db");
    run.step_opened();
    let opened = run.driver(Durability::Synced);
    // Moved, then another file in its place, then the same one back.
    std::fs::rename(&path, &away).unwrap();
    assert_eq!(bench.serve(vec![opened.clone()]), (true, vec![Err(StoreError::FileMoved)]));
    std::fs::copy(&away, &path).unwrap();
    assert_eq!(bench.serve(vec![opened.clone()]).1, [Err(StoreError::FileMoved)]);
    std::fs::rename(&away, &path).unwrap();
    assert_eq!(bench.serve(vec![opened]).1, [Ok(5)]);
    // The log alone, and its index alone.
    run.proposed(b"{}");
    let proposed = run.driver(Durability::Synced);
    for beside in ["p.db-wal", "p.db-shm"] {
        let beside = bench.folder.path().join(beside);
        std::fs::rename(&beside, &away).unwrap();
        assert_eq!(bench.serve(vec![proposed.clone()]).1, [Err(StoreError::FileMoved)]);
        std::fs::rename(&away, &beside).unwrap();
    }
    assert_eq!(bench.serve(vec![proposed]).1, [Ok(6)]);
}

#[test]
fn a_commit_in_doubt_does_not_take_up_another_file() {
    let mut bench = bench();
    let (mut run, path) = (bench.run(1), bench.folder.path().join("p.db"));
    assert_eq!(bench.serve(vec![run.begin()]).1, [Ok(4)]);
    run.step_opened();
    let opened = run.driver(Durability::Synced);
    // While the commit fails, an old copy is put in the place of the file.
    let swap = move || {
        let copy = path.with_extension("copy");
        std::fs::copy(&path, &copy).unwrap();
        std::fs::rename(&copy, &path).unwrap();
    };
    bench.writer.conn.rollback_hook(Some(swap)).unwrap();
    bench.plans.lock().unwrap().push(Plan::FailCommit);
    assert_eq!(bench.serve(vec![opened]), (false, vec![Err(StoreError::InDoubt)]));
}
