//! Reads for people: pages with caps, counted, with damaged rows in their place.

use std::sync::LazyLock;

use portcullis_canon::Digest;
use portcullis_domain::approval::Approval;
use portcullis_domain::budget::Budget;
use portcullis_domain::content::Content;
use portcullis_domain::event::MAX_PAYLOAD_BYTES;
use portcullis_domain::fold::RunState;
use portcullis_domain::id::{QuestionId, RunId};
use portcullis_domain::ports::{
    DamagedRow, EventFilter, Notice, Page, Rows, StoreError, StoredContent, StoredEvent,
};
use portcullis_domain::question::{Question, QuestionStatus};
use portcullis_domain::row::Row;
use portcullis_domain::run::{Run, RunStatus};
use portcullis_domain::scope::Tenant;
use portcullis_domain::step::Step;
use rusqlite::types::{ToSql, ValueRef};
use rusqlite::{Connection, OptionalExtension as _, params};

use super::fault::refusal;
use super::{lookup, sql};
use crate::admit::{MAX_CONTENT_BYTES, MAX_SPEC_BYTES};
use crate::memory::{checked_content, checked_spec};
use crate::tables::{check_limit, check_page, read_row};

type Result<T> = std::result::Result<T, StoreError>;

const RUNS: &str = "FROM runs WHERE tenant = ?1 ORDER BY rowid DESC";
const RUNS_BY_STATUS: &str = "FROM runs WHERE tenant = ?1 AND status = ?2 ORDER BY rowid DESC";
const CHILDREN: &str = "FROM runs WHERE parent = ?2 AND tenant = ?1 ORDER BY rowid";
const ORPHANS: &str = "FROM runs WHERE tenant = ?1 AND parent IS NOT NULL AND finished_at IS NULL \
    AND EXISTS (SELECT 1 FROM runs p WHERE p.id = runs.parent AND p.finished_at IS NOT NULL) ORDER BY rowid";
const STEPS: &str = r#"FROM steps WHERE run = ?1 ORDER BY "index""#;
const QUESTIONS: &str = "FROM questions q WHERE EXISTS \
    (SELECT 1 FROM runs r WHERE r.id = q.run AND r.tenant = ?1) ORDER BY q.rowid";
const QUESTIONS_OF_RUN: &str = "FROM questions q WHERE q.run = ?2 AND EXISTS \
    (SELECT 1 FROM runs r WHERE r.id = q.run AND r.tenant = ?1) ORDER BY q.rowid";
const QUESTIONS_BY_STATUS: &str = "FROM questions q WHERE q.status = ?2 AND EXISTS \
    (SELECT 1 FROM runs r WHERE r.id = q.run AND r.tenant = ?1) ORDER BY q.rowid";
const QUESTIONS_OF_RUN_BY_STATUS: &str = "FROM questions q WHERE q.run = ?2 AND +q.status = ?3 AND EXISTS \
    (SELECT 1 FROM runs r WHERE r.id = q.run AND r.tenant = ?1) ORDER BY q.rowid";

/// Questions and grants that are over at ?3, and those that end up to ?2 and that nobody was reminded of.
pub(super) const DUE: &str = "FROM questions q WHERE q.closed_at IS NULL \
    AND CASE q.status WHEN 'open' THEN q.expires_at ELSE q.granted_at + q.grant_ttl_ms * 1000 END <= ?2 \
    AND (CASE q.status WHEN 'open' THEN q.expires_at ELSE q.granted_at + q.grant_ttl_ms * 1000 END < ?3 \
        OR NOT EXISTS (SELECT 1 FROM reminders m WHERE m.question = q.id AND m.status = q.status)) \
    AND EXISTS (SELECT 1 FROM runs r WHERE r.id = q.run AND r.tenant = ?1) \
    ORDER BY CASE q.status WHEN 'open' THEN q.expires_at ELSE q.granted_at + q.grant_ttl_ms * 1000 END";
const HELD_BUDGETS: &str = "FROM budgets WHERE tenant = ?1 AND holds <> '[]' ORDER BY rowid";

/// Every list, for the test that looks at how SQLite answers it.
#[cfg(test)]
pub(super) const LISTS: [&str; 10] = [
    RUNS,
    RUNS_BY_STATUS,
    CHILDREN,
    ORPHANS,
    STEPS,
    QUESTIONS,
    QUESTIONS_OF_RUN,
    QUESTIONS_BY_STATUS,
    QUESTIONS_OF_RUN_BY_STATUS,
    HELD_BUDGETS,
];

/// A page of a list, and how many rows the list has.
fn page<R: Row>(
    conn: &Connection,
    list: &str,
    values: &[&dyn ToSql],
    page: Page,
) -> Result<Rows<R>> {
    check_page(page)?;
    let total: i64 = conn
        .prepare_cached(&format!("SELECT count(*) {list}"))
        .and_then(|mut statement| statement.query_row(values, |row| row.get(0)))
        .map_err(|e| refusal(&e))?;
    let next = values.len();
    let (limit_place, offset_place) = (next.saturating_add(1), next.saturating_add(2));
    let columns = sql::columns::<R>();
    let query = format!("SELECT {columns} {list} LIMIT ?{limit_place} OFFSET ?{offset_place}");
    let limit = i64::from(page.limit);
    let offset = i64::try_from(page.offset).unwrap_or(i64::MAX);
    let mut values = values.to_vec();
    values.push(&limit);
    values.push(&offset);
    let mut statement = conn.prepare_cached(&query).map_err(|e| refusal(&e))?;
    let rows = statement
        .query_map(values.as_slice(), |row| sql::cells(row, R::COLUMNS.len()))
        .and_then(|rows| rows.collect::<rusqlite::Result<Vec<_>>>())
        .map_err(|e| refusal(&e))?;
    Ok(Rows {
        rows: rows.iter().map(|cells| read_row(cells)).collect(),
        total: u64::try_from(total).unwrap_or(0),
    })
}

/// Whether a run's row says that it is this tenant's, without reading the rest of it.
fn owns(conn: &Connection, tenant: &Tenant, run: RunId) -> Result<bool> {
    conn.prepare_cached("SELECT 1 FROM runs WHERE id = ?1 AND tenant = ?2")
        .and_then(|mut statement| statement.exists(params![run.as_bytes(), tenant.as_str()]))
        .map_err(|e| refusal(&e))
}

pub(super) fn run(conn: &Connection, tenant: &Tenant, id: RunId) -> Result<Option<RunState>> {
    if !owns(conn, tenant, id)? {
        return Ok(None);
    }
    lookup::run(conn, id)
}

pub(super) fn lease(
    conn: &Connection,
    tenant: &Tenant,
    run: RunId,
) -> Result<Option<portcullis_domain::ports::LeaseTerm>> {
    if owns(conn, tenant, run)? { lookup::lease(conn, run) } else { Ok(None) }
}

pub(super) fn runs(
    conn: &Connection,
    tenant: &Tenant,
    status: Option<RunStatus>,
    wanted: Page,
) -> Result<Rows<Run>> {
    match status {
        None => page(conn, RUNS, &[&tenant.as_str()], wanted),
        Some(status) => page(conn, RUNS_BY_STATUS, &[&tenant.as_str(), &status.as_str()], wanted),
    }
}

pub(super) fn children(
    conn: &Connection,
    tenant: &Tenant,
    parent: RunId,
    wanted: Page,
) -> Result<Rows<Run>> {
    page(conn, CHILDREN, &[&tenant.as_str(), parent.as_bytes()], wanted)
}

pub(super) fn orphans(conn: &Connection, tenant: &Tenant, wanted: Page) -> Result<Rows<Run>> {
    page(conn, ORPHANS, &[&tenant.as_str()], wanted)
}

pub(super) fn steps(
    conn: &Connection,
    tenant: &Tenant,
    run: RunId,
    wanted: Page,
) -> Result<Rows<Step>> {
    check_page(wanted)?;
    if !owns(conn, tenant, run)? {
        return Ok(Rows { rows: Vec::new(), total: 0 });
    }
    page(conn, STEPS, &[run.as_bytes()], wanted)
}

pub(super) fn questions(
    conn: &Connection,
    tenant: &Tenant,
    run: Option<RunId>,
    status: Option<QuestionStatus>,
    wanted: Page,
) -> Result<Rows<Question>> {
    let tenant = tenant.as_str();
    let run = run.as_ref().map(RunId::as_bytes);
    let status = status.map(QuestionStatus::as_str);
    match (run, status) {
        (None, None) => page(conn, QUESTIONS, &[&tenant], wanted),
        (Some(run), None) => page(conn, QUESTIONS_OF_RUN, &[&tenant, run], wanted),
        (None, Some(status)) => page(conn, QUESTIONS_BY_STATUS, &[&tenant, &status], wanted),
        (Some(run), Some(status)) => {
            page(conn, QUESTIONS_OF_RUN_BY_STATUS, &[&tenant, run, &status], wanted)
        }
    }
}

pub(super) fn due(
    conn: &Connection,
    tenant: &Tenant,
    notice: Notice,
    wanted: Page,
) -> Result<Vec<std::result::Result<Question, DamagedRow>>> {
    check_page(wanted)?;
    let query = format!("SELECT {} {DUE} LIMIT ?4 OFFSET ?5", sql::columns::<Question>());
    let offset = i64::try_from(wanted.offset).unwrap_or(i64::MAX);
    let (until, now) = (notice.until.micros(), notice.now.micros());
    let mut statement = conn.prepare_cached(&query).map_err(|e| refusal(&e))?;
    let rows = statement
        .query_map(params![tenant.as_str(), until, now, wanted.limit, offset], |row| {
            sql::cells(row, Question::COLUMNS.len())
        })
        .and_then(|rows| rows.collect::<rusqlite::Result<Vec<_>>>())
        .map_err(|e| refusal(&e))?;
    Ok(rows.iter().map(|cells| read_row(cells)).collect())
}

pub(super) fn held_budgets(
    conn: &Connection,
    tenant: &Tenant,
    wanted: Page,
) -> Result<Rows<Budget>> {
    page(conn, HELD_BUDGETS, &[&tenant.as_str()], wanted)
}

pub(super) fn approvals(
    conn: &Connection,
    tenant: &Tenant,
    question: QuestionId,
) -> Result<Vec<Approval>> {
    let owned = conn
        .prepare_cached(
            "SELECT 1 FROM questions q JOIN runs r ON r.id = q.run WHERE q.id = ?1 AND r.tenant = ?2",
        )
        .and_then(|mut statement| statement.exists(params![question.as_bytes(), tenant.as_str()]))
        .map_err(|e| refusal(&e))?;
    if owned { lookup::approvals(conn, question) } else { Ok(Vec::new()) }
}

static CONTENT: LazyLock<String> = LazyLock::new(|| {
    let bytes = sql::guarded("bytes", MAX_CONTENT_BYTES);
    format!(
        "SELECT digest, tenant, owner_kind, owner_id, owner_seq,
                CASE WHEN octet_length(bytes) > {MAX_CONTENT_BYTES} THEN x'00' ELSE salt END, {bytes}
         FROM contents WHERE digest = ?1"
    )
});

static SPEC: LazyLock<String> = LazyLock::new(|| {
    format!("SELECT {} FROM specs WHERE digest = ?1", sql::guarded("bytes", MAX_SPEC_BYTES))
});

/// A content row; one that is larger than any of ours has no bytes but a salt, so that it is none of an erased one.
pub(super) fn stored_content(conn: &Connection, digest: Digest) -> Result<Option<StoredContent>> {
    let read = || {
        conn.prepare_cached(&CONTENT)?
            .query_row(params![digest.as_bytes()], |row| {
                Ok(StoredContent {
                    digest: blob(row.get_ref(0)?),
                    tenant: text(row.get_ref(1)?),
                    owner: (text(row.get_ref(2)?), blob(row.get_ref(3)?), integer(row.get_ref(4)?)),
                    salt: blob(row.get_ref(5)?),
                    bytes: blob(row.get_ref(6)?),
                })
            })
            .optional()
    };
    read().map_err(|e| refusal(&e))
}

pub(super) fn content(
    conn: &Connection,
    tenant: &Tenant,
    digest: Digest,
) -> Result<Option<Content>> {
    match stored_content(conn, digest)? {
        Some(row) if row.tenant == tenant.as_str() && !row.is_erased() => {
            checked_content(digest, &row.salt, row.bytes).map(Some)
        }
        _ => Ok(None),
    }
}

/// A spec row's bytes; one that is larger than any of ours has none.
pub(super) fn stored_spec(conn: &Connection, digest: Digest) -> Result<Option<Vec<u8>>> {
    let read = || {
        conn.prepare_cached(&SPEC)?
            .query_row(params![digest.as_bytes()], |row| Ok(blob(row.get_ref(0)?)))
            .optional()
    };
    read().map_err(|e| refusal(&e))
}

pub(super) fn spec(conn: &Connection, digest: Digest) -> Result<Option<Vec<u8>>> {
    stored_spec(conn, digest)?.map(|bytes| checked_spec(digest, bytes)).transpose()
}

pub(super) fn events(
    conn: &Connection,
    tenant: &Tenant,
    filter: EventFilter,
) -> Result<Vec<StoredEvent>> {
    let after = i64::try_from(filter.after).unwrap_or(i64::MAX);
    let tenant = tenant.as_str();
    match filter.stream {
        None => event_page(
            conn,
            "WHERE journal_seq > ?1 AND tenant = ?2 ORDER BY journal_seq",
            &[&after, &tenant],
            filter.limit,
        ),
        // The order of a stream is the order of the journal.
        Some(stream) => event_page(
            conn,
            "WHERE stream_kind = ?3 AND stream_id = ?4 AND journal_seq > ?1 AND tenant = ?2
             ORDER BY stream_seq",
            &[&after, &tenant, &stream.kind.as_str(), &stream.id],
            filter.limit,
        ),
    }
}

/// The bytes of a page of events after which it ends early.
const PAGE_BYTES: usize = 16 * 1024 * 1024;

/// Events that a condition selects. The page is shorter than its limit when its events are very large; it is
/// empty only at the end.
pub(super) fn event_page(
    conn: &Connection,
    rest: &str,
    values: &[&dyn ToSql],
    limit: u32,
) -> Result<Vec<StoredEvent>> {
    check_limit(limit)?;
    let read = |columns: &str| {
        let query = format!("SELECT {columns} FROM events {rest} LIMIT {limit}");
        let mut statement = conn.prepare_cached(&query)?;
        let mut rows = statement.query(values)?;
        let (mut events, mut bytes) = (Vec::new(), 0_usize);
        while let Some(row) = rows.next()? {
            let event = event(row)?;
            bytes = bytes.saturating_add(size(&event));
            events.push(event);
            if bytes > PAGE_BYTES {
                break;
            }
        }
        Ok(events)
    };
    let (plain, guarded) = (&*sql::EVENT_COLUMNS_PLAIN, &*sql::EVENT_COLUMNS);
    sql::bounded(conn, MAX_PAYLOAD_BYTES, || read(plain), || read(guarded)).map_err(|e| refusal(&e))
}

/// The bytes of an event's cells.
fn size(event: &StoredEvent) -> usize {
    let StoredEvent { journal, tenant, stream_kind, stream_id, step, kind, .. } = event;
    let texts = [tenant, stream_kind, kind].map(String::len);
    let blobs =
        [journal, stream_id, &event.payload, &event.journal_prev, &event.stream_prev, &event.hash];
    let step = step.as_ref().map_or(0, Vec::len);
    let blobs = blobs.map(Vec::len).into_iter().chain(texts);
    blobs.fold(step, usize::saturating_add)
}

/// An event's row. What has another type than the column is read as nothing, which no hash fits.
fn event(row: &rusqlite::Row<'_>) -> rusqlite::Result<StoredEvent> {
    Ok(StoredEvent {
        journal: blob(row.get_ref(0)?),
        journal_seq: integer(row.get_ref(1)?),
        tenant: text(row.get_ref(2)?),
        stream_kind: text(row.get_ref(3)?),
        stream_id: blob(row.get_ref(4)?),
        stream_seq: integer(row.get_ref(5)?),
        step: match row.get_ref(6)? {
            ValueRef::Null => None,
            value => Some(blob(value)),
        },
        at: integer(row.get_ref(7)?),
        kind: text(row.get_ref(8)?),
        version: integer(row.get_ref(9)?),
        payload: blob(row.get_ref(10)?),
        journal_prev: blob(row.get_ref(11)?),
        stream_prev: blob(row.get_ref(12)?),
        hash: blob(row.get_ref(13)?),
    })
}

fn blob(value: ValueRef<'_>) -> Vec<u8> {
    match value {
        ValueRef::Blob(bytes) => bytes.to_vec(),
        _ => Vec::new(),
    }
}

fn text(value: ValueRef<'_>) -> String {
    match value {
        ValueRef::Text(text) => std::str::from_utf8(text).unwrap_or("").to_owned(),
        _ => String::new(),
    }
}

fn integer(value: ValueRef<'_>) -> i64 {
    match value {
        ValueRef::Integer(value) => value,
        _ => i64::MIN,
    }
}
