//! Look-ups of single rows, and of a run's whole state, on any connection.

use portcullis_canon::{Digest, Limits, from_slice};
use portcullis_domain::approval::Approval;
use portcullis_domain::budget::Budget;
use portcullis_domain::fold::RunState;
use portcullis_domain::id::{BudgetId, InstanceId, JournalId, QuestionId, RunId, StepId, ThreadId};
use portcullis_domain::lease::Epoch;
use portcullis_domain::ports::{LeaseTerm, OpenOutcome, Reminder, StoreError};
use portcullis_domain::question::Question;
use portcullis_domain::row::{Cell, Row};
use portcullis_domain::run::Run;
use portcullis_domain::scope::Tenant;
use portcullis_domain::step::Step;
use portcullis_domain::stream::{Stream, Tip};
use portcullis_domain::thread::Thread;
use portcullis_domain::time::Timestamp;
use rusqlite::{Connection, OptionalExtension as _, Params, params};

use super::fault::refusal;
use super::sql;
use crate::state::Tail;
use crate::stored;
use crate::tables::need_row;

/// By the index of the few outcomes that are not known: every call that changes something asks.
pub(super) const OPEN_OUTCOMES: &str = "
SELECT q.id, s.admitted FROM questions q INDEXED BY questions_unknown
CROSS JOIN runs r ON r.id = q.run CROSS JOIN steps s ON s.id = q.step
WHERE q.kind = 'unknown_outcome' AND q.closed_at IS NULL AND r.tenant = ?1 AND r.owner = ?2";

type Result<T> = std::result::Result<T, StoreError>;

fn by_id<R: Row>(conn: &Connection, id: &[u8]) -> Result<Option<R>> {
    let cells = sql::by_key(conn, R::TABLE, &[Cell::Blob(id.to_vec())]).map_err(|e| refusal(&e))?;
    cells.map(|cells| need_row(&cells)).transpose()
}

/// Reads rows of a struct in order until `take` has enough.
fn scan<R: Row>(
    conn: &Connection,
    rest: &str,
    params: impl Params,
    mut take: impl FnMut(R) -> bool,
) -> Result<()> {
    let query = format!("SELECT {} FROM {} {rest}", sql::columns::<R>(), R::TABLE);
    let mut statement = conn.prepare_cached(&query).map_err(|e| refusal(&e))?;
    let mut rows = statement.query(params).map_err(|e| refusal(&e))?;
    while let Some(row) = rows.next().map_err(|e| refusal(&e))? {
        let cells = sql::cells(row, R::COLUMNS.len()).map_err(|e| refusal(&e))?;
        if !take(need_row(&cells)?) {
            break;
        }
    }
    Ok(())
}

/// A run of any tenant, as the fold had it.
pub(super) fn run(conn: &Connection, id: RunId) -> Result<Option<RunState>> {
    let Some(run) = by_id::<Run>(conn, id.as_bytes())? else { return Ok(None) };
    let mut tail = Tail::of(&run);
    scan::<Step>(
        conn,
        r#"WHERE run = ?1 ORDER BY "index" DESC"#,
        params![id.as_bytes()],
        |step| {
            tail.push(step);
            tail.wants_more()
        },
    )?;
    let question = match tail.latest().and_then(|step| step.question) {
        Some(id) => question(conn, id)?,
        None => None,
    };
    let approvals = match &question {
        Some(question) => approvals(conn, question.id)?,
        None => Vec::new(),
    };
    tail.assemble(run, question, approvals).map(Some)
}

pub(super) fn thread(conn: &Connection, id: ThreadId) -> Result<Option<Thread>> {
    by_id(conn, id.as_bytes())
}

pub(super) fn budget(conn: &Connection, id: BudgetId) -> Result<Option<Budget>> {
    by_id(conn, id.as_bytes())
}

pub(super) fn question(conn: &Connection, id: QuestionId) -> Result<Option<Question>> {
    by_id(conn, id.as_bytes())
}

/// A question of a run of this tenant.
pub(super) fn own_question(
    conn: &Connection,
    tenant: &Tenant,
    id: QuestionId,
) -> Result<Option<Question>> {
    let own = conn
        .prepare_cached(
            "SELECT 1 FROM questions q JOIN runs r ON r.id = q.run WHERE q.id = ?1 AND r.tenant = ?2",
        )
        .and_then(|mut statement| statement.exists(params![id.as_bytes(), tenant.as_str()]))
        .map_err(|e| refusal(&e))?;
    if own { question(conn, id) } else { Ok(None) }
}

/// Whether people were reminded of a question, or of its grant.
pub(super) fn is_reminded(conn: &Connection, reminder: Reminder) -> Result<bool> {
    conn.prepare_cached("SELECT 1 FROM reminders WHERE question = ?1 AND status = ?2")
        .and_then(|mut statement| {
            statement.exists(params![reminder.question.as_bytes(), reminder.status.as_str()])
        })
        .map_err(|e| refusal(&e))
}

/// The answers to a question in the order in which they were stored.
pub(super) fn approvals(conn: &Connection, question: QuestionId) -> Result<Vec<Approval>> {
    let mut found = Vec::new();
    scan(conn, "WHERE question = ?1 ORDER BY rowid", params![question.as_bytes()], |approval| {
        found.push(approval);
        true
    })?;
    Ok(found)
}

pub(super) fn lease(conn: &Connection, run: RunId) -> Result<Option<LeaseTerm>> {
    let read = || {
        conn.prepare_cached("SELECT epoch, until FROM leases WHERE run = ?1")?
            .query_row(params![run.as_bytes()], |row| Ok((row.get(0)?, row.get(1)?)))
            .optional()
    };
    let found: Option<(i64, i64)> = read().map_err(|e| refusal(&e))?;
    found
        .map(|(epoch, until)| {
            let epoch =
                u64::try_from(epoch).map_err(|_| StoreError::Damaged { table: "leases" })?;
            Ok(LeaseTerm { epoch: Epoch(epoch), until: Timestamp::from_micros(until) })
        })
        .transpose()
}

/// Whose a content is and how long; no length once it was erased.
pub(super) fn content_owner(
    conn: &Connection,
    digest: Digest,
) -> Result<Option<(Tenant, Option<u64>)>> {
    let read = || {
        conn.prepare_cached(
            "SELECT tenant, iif(length(salt) = 0, NULL, length(bytes)) FROM contents WHERE digest = ?1",
        )?
            .query_row(params![digest.as_bytes()], |row| Ok((row.get(0)?, row.get(1)?)))
            .optional()
    };
    let found: Option<(String, Option<i64>)> = read().map_err(|e| refusal(&e))?;
    let damaged = || StoreError::Damaged { table: "contents" };
    found
        .map(|(tenant, size)| {
            let tenant = Tenant::try_from(tenant).map_err(|_| damaged())?;
            Ok((tenant, size.map(u64::try_from).transpose().map_err(|_| damaged())?))
        })
        .transpose()
}

pub(super) fn has_step(conn: &Connection, run: RunId, step: StepId) -> Result<bool> {
    conn.prepare_cached("SELECT 1 FROM steps WHERE id = ?1 AND run = ?2")
        .and_then(|mut statement| statement.exists(params![step.as_bytes(), run.as_bytes()]))
        .map_err(|e| refusal(&e))
}

/// The questions about outcomes of an owner's calls that are neither answered for good nor closed.
pub(super) fn open_outcomes(
    conn: &Connection,
    tenant: &Tenant,
    owner: &str,
) -> Result<Vec<OpenOutcome>> {
    let mut statement = conn.prepare_cached(OPEN_OUTCOMES).map_err(|e| refusal(&e))?;
    let mut rows =
        statement.query(params![tenant.as_str(), owner]).map_err(|error| refusal(&error))?;
    let mut open = Vec::new();
    while let Some(row) = rows.next().map_err(|e| refusal(&e))? {
        let read = || Ok((row.get::<_, [u8; 16]>(0)?, row.get::<_, Option<String>>(1)?));
        let (question, call) = read().map_err(|error: rusqlite::Error| refusal(&error))?;
        let call = call.and_then(|text| from_slice(text.as_bytes(), &Limits::ENVELOPE).ok());
        let call = call.ok_or(StoreError::Damaged { table: "steps" })?;
        open.push(OpenOutcome { question: QuestionId::from_bytes(question), call });
    }
    Ok(open)
}

pub(super) fn has_spec(conn: &Connection, digest: Digest) -> Result<bool> {
    conn.prepare_cached("SELECT 1 FROM specs WHERE digest = ?1")
        .and_then(|mut statement| statement.exists(params![digest.as_bytes()]))
        .map_err(|e| refusal(&e))
}

/// The end of the installation's own stream.
pub(super) fn system_tip(conn: &Connection, instance: InstanceId) -> Result<Tip> {
    let stream = Stream::from(instance);
    let read = || {
        conn.prepare_cached(
            "SELECT stream_seq, hash FROM events WHERE stream_kind = ?1 AND stream_id = ?2
             ORDER BY stream_seq DESC LIMIT 1",
        )?
        .query_row(params![stream.kind.as_str(), stream.id], |row| {
            Ok((row.get::<_, i64>(0)?, row.get::<_, [u8; 32]>(1)?))
        })
    };
    let (seq, hash) = read().map_err(|e| refusal(&e))?;
    stored::tip(seq, &hash)
}

/// The end of the journal.
pub(super) fn journal_tip(conn: &Connection) -> Result<Tip> {
    let read = || {
        conn.prepare_cached(
            "SELECT journal_seq, hash FROM events ORDER BY journal_seq DESC LIMIT 1",
        )?
        .query_row([], |row| Ok((row.get::<_, i64>(0)?, row.get::<_, [u8; 32]>(1)?)))
    };
    let (seq, hash) = read().map_err(|error| match error {
        rusqlite::Error::QueryReturnedNoRows => StoreError::Damaged { table: "events" },
        error => refusal(&error),
    })?;
    stored::tip(seq, &hash)
}

/// SQLite's count of what other connections have committed to the file, as this one sees it.
pub(super) fn data_version(conn: &Connection) -> Result<i64> {
    conn.prepare_cached("PRAGMA data_version")
        .and_then(|mut statement| statement.query_row([], |row| row.get(0)))
        .map_err(|e| refusal(&e))
}

/// The installation and its journal; `None` before the first opening is complete.
pub(super) fn identity(conn: &Connection) -> rusqlite::Result<Option<(InstanceId, JournalId)>> {
    let read = |name: &str| -> rusqlite::Result<Option<[u8; 16]>> {
        conn.query_row("SELECT value FROM meta WHERE name = ?1", [name], |row| row.get(0))
            .optional()
    };
    Ok(match (read("instance")?, read("journal")?) {
        (Some(instance), Some(journal)) => {
            Some((InstanceId::from_bytes(instance), JournalId::from_bytes(journal)))
        }
        _ => None,
    })
}
