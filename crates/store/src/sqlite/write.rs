//! Writing an admitted append inside the writer's transaction.

use portcullis_canon::Digest;
use portcullis_domain::budget::Budget;
use portcullis_domain::event::Event;
use portcullis_domain::fold::RunState;
use portcullis_domain::id::{BudgetId, InstanceId, JournalId, QuestionId, RunId, StepId, ThreadId};
use portcullis_domain::ports::{
    EventFilter, LeaseTerm, OpenOutcome, Reminder, StoreError, StoredEvent,
};
use portcullis_domain::question::Question;
use portcullis_domain::row::Row;
use portcullis_domain::scope::Tenant;
use portcullis_domain::stream::Tip;
use portcullis_domain::thread::Thread;
use rusqlite::{Connection, params};

use super::cache::Cache;
use super::fault::refusal;
use super::sql::Written;
use super::{lookup, read, sql};
use crate::admit::{Admitted, Base, Brought, Changed, TermChange};
use crate::stored::int;

/// Runs that are driven at once without being read again for each append; a few KiB each.
const REMEMBERED: usize = 1024;

/// What the writer remembers. It is true as long as nobody else has written to the file.
#[derive(Debug)]
pub(super) struct Memory {
    runs: Cache<RunId, RunState>,
    threads: Cache<ThreadId, Thread>,
    terms: Cache<RunId, Option<LeaseTerm>>,
}

impl Memory {
    pub(super) fn new() -> Self {
        Self {
            runs: Cache::new(REMEMBERED),
            threads: Cache::new(REMEMBERED),
            terms: Cache::new(REMEMBERED),
        }
    }

    pub(super) fn clear(&mut self) {
        self.runs.clear();
        self.threads.clear();
        self.terms.clear();
    }

    /// Forgets the rows that an append changes. The run is forgotten already: its look-up took it.
    pub(super) fn forget(&mut self, admitted: &Admitted) {
        if let Some(thread) = &admitted.thread {
            self.threads.take(thread.row.id);
        }
        match admitted.term {
            TermChange::Keep => {}
            TermChange::Set(run, _) | TermChange::Remove(run) => self.forget_term(run),
        }
    }

    /// Forgets the term of a run's lease.
    pub(super) fn forget_term(&mut self, run: RunId) {
        self.terms.take(run);
    }

    /// Keeps the rows of an append that was committed.
    pub(super) fn keep(&mut self, admitted: Admitted) {
        if let Some(Changed { row, .. }) = admitted.run {
            self.runs.put(row.run.id, row);
        }
        if let Some(Changed { row, .. }) = admitted.thread {
            self.threads.put(row.id, row);
        }
        match admitted.term {
            TermChange::Keep => {}
            TermChange::Set(run, term) => self.keep_term(run, Some(term)),
            TermChange::Remove(run) => self.keep_term(run, None),
        }
    }

    #[cfg(test)]
    pub(super) fn keeps_term(&mut self, run: RunId) -> Option<Option<LeaseTerm>> {
        self.terms.get(run)
    }

    /// Keeps a run that was looked up and is as it was.
    pub(super) fn keep_run(&mut self, state: RunState) {
        self.runs.put(state.run.id, state);
    }

    /// Keeps the term of a run's lease.
    pub(super) fn keep_term(&mut self, run: RunId, term: Option<LeaseTerm>) {
        self.terms.put(run, term);
    }
}

/// The look-ups of admission, inside the transaction.
pub(super) struct Desk<'a> {
    pub(super) conn: &'a Connection,
    pub(super) memory: &'a mut Memory,
    pub(super) instance: InstanceId,
}

impl Base for Desk<'_> {
    fn run(&mut self, run: RunId) -> Result<Option<RunState>, StoreError> {
        // Taken: a committed append puts its own back, and a refused one leaves it to be read.
        match self.memory.runs.take(run) {
            Some(state) => Ok(Some(state)),
            None => lookup::run(self.conn, run),
        }
    }

    fn lease(&mut self, run: RunId) -> Result<Option<LeaseTerm>, StoreError> {
        if let Some(term) = self.memory.terms.get(run) {
            return Ok(term);
        }
        let found = lookup::lease(self.conn, run)?;
        self.memory.terms.put(run, found);
        Ok(found)
    }

    fn thread(&mut self, thread: ThreadId) -> Result<Option<Thread>, StoreError> {
        if let Some(thread) = self.memory.threads.get(thread) {
            return Ok(Some(thread));
        }
        let found = lookup::thread(self.conn, thread)?;
        // What was read inside the transaction is as true as what was written.
        if let Some(thread) = &found {
            self.memory.threads.put(thread.id, thread.clone());
        }
        Ok(found)
    }

    fn budget(&mut self, budget: BudgetId) -> Result<Option<Budget>, StoreError> {
        // Not remembered: a call of a model takes far longer than to read its budgets.
        lookup::budget(self.conn, budget)
    }

    fn question(&mut self, question: QuestionId) -> Result<Option<Question>, StoreError> {
        lookup::question(self.conn, question)
    }

    fn has_step(&mut self, run: RunId, step: StepId) -> Result<bool, StoreError> {
        lookup::has_step(self.conn, run, step)
    }

    fn content(&mut self, digest: Digest) -> Result<Option<(Tenant, Option<u64>)>, StoreError> {
        lookup::content_owner(self.conn, digest)
    }

    fn open_outcomes(
        &mut self,
        tenant: &Tenant,
        owner: &str,
    ) -> Result<Vec<OpenOutcome>, StoreError> {
        lookup::open_outcomes(self.conn, tenant, owner)
    }

    fn spec(&mut self, digest: Digest) -> Result<Option<Vec<u8>>, StoreError> {
        read::spec(self.conn, digest)
    }

    fn has_spec(&mut self, digest: Digest) -> Result<bool, StoreError> {
        lookup::has_spec(self.conn, digest)
    }

    fn system_tip(&mut self) -> Result<Tip, StoreError> {
        lookup::system_tip(self.conn, self.instance)
    }

    fn stream_events(
        &mut self,
        tenant: &Tenant,
        filter: EventFilter,
    ) -> Result<Vec<StoredEvent>, StoreError> {
        read::events(self.conn, tenant, filter)
    }
}

fn sqlite(error: rusqlite::Error) -> StoreError {
    refusal(&error)
}

/// Writes everything that an append stores.
pub(super) fn write(
    conn: &Connection,
    tenant: &Tenant,
    admitted: &Admitted,
) -> Result<(), StoreError> {
    for (event, payload) in admitted.events.iter().zip(&admitted.payloads) {
        write_event(conn, event, payload)?;
    }
    for brought in &admitted.contents {
        write_content(conn, tenant, brought)?;
    }
    for (digest, bytes) in &admitted.specs {
        conn.prepare_cached("INSERT INTO specs (digest, bytes) VALUES (?1, ?2)")
            .and_then(|mut statement| statement.execute(params![digest.as_bytes(), bytes]))
            .map_err(sqlite)?;
    }
    for digest in &admitted.erased {
        conn.prepare_cached("UPDATE contents SET salt = x'', bytes = x'' WHERE digest = ?1")
            .and_then(|mut statement| statement.execute(params![digest.as_bytes()]))
            .map_err(sqlite)?;
    }
    if let Some(run) = admitted.run_row() {
        let as_it_was = admitted.status_before == Some(run.row.status);
        let written = if as_it_was { Written::Unlisted } else { Written::All };
        write_row(conn, run.row, run.new, written)?;
    }
    for step in &admitted.steps {
        write_row(conn, &step.row, step.new, Written::All)?;
    }
    for question in &admitted.questions {
        write_row(conn, &question.row, question.new, Written::All)?;
    }
    for approval in &admitted.approvals {
        write_row(conn, approval, true, Written::All)?;
    }
    if let Some(thread) = &admitted.thread {
        write_row(conn, &thread.row, thread.new, Written::All)?;
    }
    for budget in &admitted.budgets {
        write_row(conn, &budget.row, budget.new, Written::All)?;
    }
    match admitted.term {
        TermChange::Keep => Ok(()),
        TermChange::Set(run, term) => write_term(conn, run, term),
        TermChange::Remove(run) => conn
            .prepare_cached("DELETE FROM leases WHERE run = ?1")
            .and_then(|mut statement| statement.execute(params![run.as_bytes()]))
            .map(drop)
            .map_err(sqlite),
    }
}

fn write_row<R: Row>(
    conn: &Connection,
    row: &R,
    new: bool,
    written: Written,
) -> Result<(), StoreError> {
    if new {
        return sql::insert(conn, row).map_err(sqlite);
    }
    match sql::update(conn, row, written).map_err(sqlite)? {
        true => Ok(()),
        false => Err(StoreError::Damaged { table: R::TABLE }),
    }
}

/// Sets the term of a run's lease.
pub(super) fn write_term(conn: &Connection, run: RunId, term: LeaseTerm) -> Result<(), StoreError> {
    let epoch = int(term.epoch.0)?;
    conn.prepare_cached(
        "INSERT INTO leases (run, epoch, until) VALUES (?1, ?2, ?3)
         ON CONFLICT (run) DO UPDATE SET epoch = excluded.epoch, until = excluded.until",
    )
    .and_then(|mut statement| {
        statement.execute(params![run.as_bytes(), epoch, term.until.micros()])
    })
    .map(drop)
    .map_err(sqlite)
}

/// Notes that people were reminded.
pub(super) fn write_reminder(conn: &Connection, reminder: Reminder) -> Result<(), StoreError> {
    let Reminder { question, status, at } = reminder;
    conn.prepare_cached("INSERT INTO reminders (question, status, at) VALUES (?1, ?2, ?3)")
        .and_then(|mut statement| {
            statement.execute(params![question.as_bytes(), status.as_str(), at.micros()])
        })
        .map(drop)
        .map_err(sqlite)
}

/// Adds an event.
pub(super) fn write_event(
    conn: &Connection,
    event: &Event,
    payload: &[u8],
) -> Result<(), StoreError> {
    let link = &event.link;
    let (journal_seq, stream_seq) = (int(link.journal_seq)?, int(link.stream_seq)?);
    let write = || {
        conn.prepare_cached(
            "INSERT INTO events (journal_seq, journal, tenant, stream_kind, stream_id, stream_seq,
                 step, at, kind, version, journal_prev, stream_prev, hash, payload)
             VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14)",
        )?
        .execute(params![
            journal_seq,
            link.journal.as_bytes(),
            link.tenant.as_str(),
            link.stream.kind.as_str(),
            link.stream.id,
            stream_seq,
            link.step.as_ref().map(|step| step.as_bytes().as_slice()),
            link.at.micros(),
            link.kind,
            link.version,
            link.journal_prev.as_bytes(),
            link.stream_prev.as_bytes(),
            event.hash.as_bytes(),
            payload,
        ])
    };
    write().map(drop).map_err(sqlite)
}

fn write_content(conn: &Connection, tenant: &Tenant, brought: &Brought) -> Result<(), StoreError> {
    let owner_seq = int(brought.stream_seq)?;
    let write = || {
        conn.prepare_cached(
            "INSERT INTO contents (digest, tenant, owner_kind, owner_id, owner_seq, salt, bytes)
             VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7)",
        )?
        .execute(params![
            brought.content.reference().digest.as_bytes(),
            tenant.as_str(),
            brought.stream.kind.as_str(),
            brought.stream.id,
            owner_seq,
            brought.content.salt(),
            brought.content.bytes(),
        ])
    };
    write().map(drop).map_err(sqlite)
}

/// Names the installation and its journal.
pub(super) fn write_identity(
    conn: &Connection,
    instance: InstanceId,
    journal: JournalId,
) -> rusqlite::Result<()> {
    let mut statement = conn.prepare("INSERT INTO meta (name, value) VALUES (?1, ?2)")?;
    statement.execute(params!["instance", instance.as_bytes()])?;
    statement.execute(params!["journal", journal.as_bytes()])?;
    Ok(())
}
