//! The writer: what commits a batch of tasks in one transaction. Where it runs is decided in [`super::writing`].
//!
//! A job that asks for [`Durability::Synced`] makes its whole batch synced. A batch of jobs that are only to be
//! written commits with `synchronous = NORMAL`: SQLite then appends its frames to the write-ahead log without a
//! sync. The log is one file that is only appended to between two checkpoints, so the sync of the next synced
//! commit, which covers the file and not a range of it, carries these frames too; and a checkpoint syncs the
//! log before it copies anything out of it. A crash of this process loses neither: the frames are in the
//! system's cache. A loss of power loses at most what was written after the last sync, and whole commits only,
//! since the checksums of frames are chained.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::PathBuf;
use std::sync::Arc;

use portcullis_domain::event::Event;
use portcullis_domain::id::{InstanceId, JournalId};
use portcullis_domain::ports::{Durability, Observer, StoreError};
use portcullis_domain::stream::Tip;
use rusqlite::Connection;

use super::ddl::MIGRATIONS;
use super::fault::{is_full, refusal};
use super::lookup;
use super::migrate::{WriterError, check_writer};
use super::open::{OpenMode, open, start_log_anew};
use super::same_file::SameFile;
use super::task::{Ready, Task, Undone};
use super::write::{Desk, Memory};
use crate::admit::Chain;
use crate::observe;

/// Commits without a sync of each.
const NORMAL: &str = "PRAGMA main.synchronous = NORMAL";

/// Commits with a sync of each.
const FULL: &str = "PRAGMA main.synchronous = FULL";

/// The answers to a batch, in its order.
pub(super) struct Served {
    /// The events that each task stored; none for a renewal.
    pub(super) answers: Vec<Result<Vec<Event>, StoreError>>,
    /// How the batch was committed, whatever a task asked for.
    pub(super) durability: Durability,
    /// False when nothing more can be written.
    pub(super) goes_on: bool,
}

/// Why a whole batch was not stored.
enum Failed {
    /// Nothing was stored and the connection is sound.
    Refused(StoreError),
    /// The commit returned this error.
    Commit(rusqlite::Error),
}

/// A plan that a unit test makes for the next batch.
#[cfg(test)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Plan {
    FailCommit,
    PanicBeforeCommit,
}

/// The file as a writer left or found it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Seen {
    /// SQLite's count of what other connections committed.
    version: i64,
    /// The journal's end.
    tip: Tip,
}

pub(super) struct Writer {
    pub(super) conn: Connection,
    pub(super) path: PathBuf,
    pub(super) instance: InstanceId,
    pub(super) journal: JournalId,
    pub(super) observers: Vec<Arc<dyn Observer>>,
    pub(super) memory: Memory,
    /// The file when this writer last saw it; what it remembers is true as of then.
    pub(super) seen: Option<Seen>,
    /// The file that was opened.
    pub(super) file: SameFile,
    /// Whether the connection syncs each commit.
    pub(super) synced: bool,
    #[cfg(test)]
    pub(super) plans: Arc<std::sync::Mutex<Vec<Plan>>>,
}

impl Writer {
    /// Serves one batch. The observers have seen what was committed when it returns.
    pub(super) fn batch(&mut self, tasks: Vec<Task>) -> Served {
        let count = tasks.len();
        let committing = std::cell::Cell::new(false);
        let served = catch_unwind(AssertUnwindSafe(|| self.transact(tasks, &committing)));
        let (failure, goes_on) = match served {
            Ok(Ok(answers)) => {
                for events in answers.iter().flatten().filter(|events| !events.is_empty()) {
                    observe::tell(&self.observers, events);
                }
                return Served { answers, durability: self.durability(), goes_on: true };
            }
            Ok(Err(Failed::Refused(error))) => (error, true),
            Ok(Err(Failed::Commit(error))) => self.in_doubt(&error),
            // The transaction was rolled back while unwinding.
            Err(_) if committing.get() => (StoreError::InDoubt, false),
            Err(_) => (StoreError::Closed, false),
        };
        self.memory.clear();
        self.seen = None;
        let answers = (0..count).map(|_| Err(failure.clone())).collect();
        Served { answers, durability: Durability::Written, goes_on }
    }

    /// Runs the tasks in one transaction.
    fn transact(
        &mut self,
        tasks: Vec<Task>,
        committing: &std::cell::Cell<bool>,
    ) -> Result<Vec<Result<Vec<Event>, StoreError>>, Failed> {
        let synced = tasks.iter().any(Task::is_synced);
        // What is only written is nothing that anybody relies on before the next synced commit.
        if synced {
            self.file.check().map_err(Failed::Refused)?;
        }
        self.set_synced(synced).map_err(Failed::Refused)?;
        let tx = Tx::begin(&self.conn).map_err(Failed::Refused)?;
        let version = lookup::data_version(&self.conn).map_err(Failed::Refused)?;
        let mut tip = match self.seen {
            Some(seen) if seen.version == version => seen.tip,
            // Somebody else has written: what is remembered may be wrong, and a newer program may be among them.
            _ => {
                self.memory.clear();
                check(&self.conn).map_err(Failed::Refused)?;
                lookup::journal_tip(&self.conn).map_err(Failed::Refused)?
            }
        };
        self.seen = Some(Seen { version, tip });
        let mut served: Vec<Result<Ready, StoreError>> = Vec::with_capacity(tasks.len());
        for task in tasks {
            let chain = Chain { instance: self.instance, journal: self.journal, tip };
            let desk = Desk { conn: &self.conn, memory: &mut self.memory, instance: self.instance };
            let done = task.serve(desk, &chain);
            // A full disk, among others, makes SQLite end the whole transaction by itself.
            if let (Err(undone), true) = (&done, self.conn.is_autocommit()) {
                return Err(Failed::Refused(undone.error().clone()));
            }
            if let Err(Undone::InPart(_)) = &done {
                tx.write_again(version, served.iter().flatten()).map_err(Failed::Refused)?;
            }
            tip = done.as_ref().ok().and_then(Ready::tip).unwrap_or(tip);
            served.push(done.map_err(Undone::into_error));
        }
        if served.iter().all(Result::is_err) {
            tx.rollback().map_err(Failed::Refused)?;
            return Ok(served.into_iter().map(|refused| refused.map(|_| Vec::new())).collect());
        }
        #[cfg(test)]
        self.follow_plan();
        committing.set(true);
        tx.commit().map_err(Failed::Commit)?;
        self.seen = Some(Seen { version, tip });
        Ok(served
            .into_iter()
            .map(|ready| ready.map(|ready| ready.keep(&mut self.memory)))
            .collect())
    }

    /// Sets how the next commit is made. Inside a transaction SQLite would ignore it without an error.
    fn set_synced(&mut self, synced: bool) -> Result<(), StoreError> {
        if self.synced == synced {
            return Ok(());
        }
        if !self.conn.is_autocommit() {
            return Err(StoreError::SyncLevel);
        }
        let set = if synced { FULL } else { NORMAL };
        self.conn.execute_batch(set).map_err(|error| refusal(&error))?;
        self.synced = synced;
        Ok(())
    }

    /// How the batch that was just committed was made durable.
    const fn durability(&self) -> Durability {
        if self.synced { Durability::Synced } else { Durability::Written }
    }

    /// A commit that returned an error may have happened: everything is closed, opened again and read again, from a log
    /// that is known to be on the disk.
    fn in_doubt(&mut self, error: &rusqlite::Error) -> (StoreError, bool) {
        let before = self.seen.map(|seen| seen.tip);
        let reopened = open(&self.path, OpenMode::Existing, MIGRATIONS);
        // Another file at the path is another record, and this one's end cannot be looked at any more.
        let Some(reopened) = reopened.ok().filter(|reopened| self.file.is(reopened.file)) else {
            return (StoreError::InDoubt, false);
        };
        // What ran out of room failed while it was written; every other error may be that of a sync.
        let full = is_full(error);
        if !full && !matches!(start_log_anew(&reopened.conn), Ok(true)) {
            return (StoreError::InDoubt, false);
        }
        self.conn = reopened.conn;
        prepare(&self.conn);
        self.synced = true;
        self.file = SameFile::watch(&self.path, reopened.file);
        let now = lookup::journal_tip(&self.conn).ok();
        // What ran out of room left no commit behind. Of every other error a trace may come back.
        let absent = full && now.is_some() && now == before;
        (if absent { StoreError::Full } else { StoreError::InDoubt }, true)
    }

    #[cfg(test)]
    #[allow(clippy::panic, clippy::unwrap_used, reason = "a planned fault of a test")]
    fn follow_plan(&self) {
        match self.plans.lock().unwrap().pop() {
            // The transaction ends before the commit, which then has nothing to commit and fails.
            Some(Plan::FailCommit) => self.conn.execute_batch("ROLLBACK").unwrap(),
            Some(Plan::PanicBeforeCommit) => std::panic::resume_unwind(Box::new("planned")),
            None => {}
        }
    }
}

/// Sets what a fresh connection of the writer needs beyond [`open`].
pub(super) fn prepare(conn: &Connection) {
    conn.set_prepared_statement_cache_capacity(128);
}

/// Whether this program may still write.
fn check(conn: &Connection) -> Result<(), StoreError> {
    let newest = MIGRATIONS.last().map_or(0, |migration| migration.version);
    check_writer(conn, newest).map_err(|error| match error {
        WriterError::TooOld { .. } => StoreError::WriterTooOld,
        WriterError::Unreadable(error) => refusal(&error),
    })
}

/// A write transaction. Dropping it takes back what was written.
struct Tx<'a>(&'a Connection);

impl<'a> Tx<'a> {
    fn begin(conn: &'a Connection) -> Result<Self, StoreError> {
        run(conn, "BEGIN IMMEDIATE").map_err(|error| refusal(&error))?;
        Ok(Self(conn))
    }

    /// Takes everything back and writes only these again. They stand before what failed, on the state that they were
    /// judged on, so that they become what they were. That is rare; a savepoint for each task would have SQLite copy
    /// each page that a task touches, always.
    fn write_again<'r>(
        &self,
        version: i64,
        mut tasks: impl Iterator<Item = &'r Ready>,
    ) -> Result<(), StoreError> {
        for sql in ["ROLLBACK", "BEGIN IMMEDIATE"] {
            run(self.0, sql).map_err(|error| refusal(&error))?;
        }
        if lookup::data_version(self.0)? != version {
            return Err(StoreError::Busy);
        }
        tasks.try_for_each(|ready| ready.write(self.0))
    }

    fn commit(self) -> rusqlite::Result<()> {
        run(self.0, "COMMIT")
    }

    fn rollback(self) -> Result<(), StoreError> {
        run(self.0, "ROLLBACK").map_err(|error| refusal(&error))
    }
}

impl Drop for Tx<'_> {
    fn drop(&mut self) {
        // After a commit or a rollback there is nothing to take back.
        if !self.0.is_autocommit() {
            let _closed_with_the_connection = run(self.0, "ROLLBACK");
        }
    }
}

/// Runs a statement without parameters, prepared once.
fn run(conn: &Connection, sql: &str) -> rusqlite::Result<()> {
    conn.prepare_cached(sql)?.execute([]).map(drop)
}

#[cfg(test)]
pub(super) mod tests;
