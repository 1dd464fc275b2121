//! The raw tables as `verify` walks them: one read transaction on a connection of its own.

use portcullis_canon::Digest;
use portcullis_domain::id::{InstanceId, JournalId};
use portcullis_domain::ports::{Ledger, StoreError, StoredContent, StoredEvent};
use portcullis_domain::row::Cell;
use portcullis_domain::stream::Stream;
use rusqlite::Connection;

use super::fault::refusal;
use super::{lookup, read, sql};
use crate::tables::Table;

/// The most journals that are listed; a file of ours has one.
const MAX_JOURNALS: usize = 1024;

/// The pages that each connection of a walk keeps, 16 MiB: contents lie behind an index in no order.
const WALK_CACHE: &str = "PRAGMA main.cache_size = -16384";

/// How often connections are begun together until nobody has committed meanwhile. A commit takes longer than to begin.
const ATTEMPTS: usize = 1000;

pub(super) struct SqliteLedger {
    instance: InstanceId,
    conn: Connection,
    /// Connections that have begun with this one and see the same.
    others: Vec<Connection>,
}

impl SqliteLedger {
    /// Begins the snapshot, on as many connections as there are in `others` beside.
    pub(super) fn begin(
        instance: InstanceId,
        conn: Connection,
        others: Vec<Connection>,
    ) -> Result<Self, StoreError> {
        conn.set_prepared_statement_cache_capacity(64);
        for other in &others {
            other.set_prepared_statement_cache_capacity(64);
        }
        if !others.is_empty() {
            for conn in others.iter().chain([&conn]) {
                conn.execute_batch(WALK_CACHE).map_err(|error| refusal(&error))?;
            }
        }
        for _ in 0..ATTEMPTS {
            if start_together(&conn, &others)? {
                return Ok(Self { instance, conn, others });
            }
        }
        Err(StoreError::Busy)
    }
}

/// Begins on one connection. The first read fixes what is seen.
fn start(conn: &Connection) -> Result<(), StoreError> {
    conn.execute_batch("BEGIN DEFERRED").map_err(|error| refusal(&error))?;
    lookup::journal_tip(conn).map(drop).or_else(|error| match error {
        StoreError::Damaged { .. } => Ok(()), // for `verify` to find
        error => Err(error),
    })
}

/// Begins on all; false, with all of them ended again, when somebody has committed in between. `conn` begins last: what
/// it counts tells of every commit since before the others began.
fn start_together(conn: &Connection, others: &[Connection]) -> Result<bool, StoreError> {
    let before = lookup::data_version(conn)?;
    others.iter().try_for_each(start)?;
    start(conn)?;
    if others.is_empty() || lookup::data_version(conn)? == before {
        return Ok(true);
    }
    for conn in others.iter().chain([conn]) {
        conn.execute_batch("ROLLBACK").map_err(|error| refusal(&error))?;
    }
    Ok(false)
}

impl Ledger for SqliteLedger {
    fn instance(&self) -> InstanceId {
        self.instance
    }

    fn sound(&mut self) -> Result<(), StoreError> {
        let answer: String = self
            .conn
            .query_row("PRAGMA integrity_check(1)", [], |row| row.get(0))
            .map_err(|error| refusal(&error))?;
        // What else it says quotes the file.
        if answer == "ok" { Ok(()) } else { Err(StoreError::Damaged { table: "database" }) }
    }

    fn journals(&mut self) -> Result<Vec<JournalId>, StoreError> {
        let damaged = StoreError::Damaged { table: "events" };
        let query = format!("SELECT DISTINCT journal FROM events LIMIT {}", MAX_JOURNALS + 1);
        let mut statement = self.conn.prepare(&query).map_err(|error| refusal(&error))?;
        let mut rows = statement.query([]).map_err(|error| refusal(&error))?;
        let mut journals = Vec::new();
        while let Some(row) = rows.next().map_err(|error| refusal(&error))? {
            let id: [u8; 16] = row.get(0).map_err(|_| damaged.clone())?;
            journals.push(JournalId::from_bytes(id));
        }
        if journals.len() > MAX_JOURNALS { Err(damaged) } else { Ok(journals) }
    }

    fn events_after(
        &mut self,
        journal: JournalId,
        after: i64,
        limit: u32,
    ) -> Result<Vec<StoredEvent>, StoreError> {
        let rest = "WHERE journal_seq > ?1 AND journal = ?2 ORDER BY journal_seq";
        read::event_page(&self.conn, rest, &[&after, journal.as_bytes()], limit)
    }

    fn stream_after(
        &mut self,
        stream: Stream,
        after: i64,
        limit: u32,
    ) -> Result<Vec<StoredEvent>, StoreError> {
        let rest =
            "WHERE stream_kind = ?1 AND stream_id = ?2 AND stream_seq > ?3 ORDER BY stream_seq";
        read::event_page(&self.conn, rest, &[&stream.kind.as_str(), &stream.id, &after], limit)
    }

    fn count(&mut self, table: &str) -> Result<u64, StoreError> {
        let other = ["events", "contents", "specs"].into_iter().find(|name| *name == table);
        let name = other.or_else(|| Table::named(table).map(|table| table.name));
        let name = name.ok_or(StoreError::NotFound("table"))?;
        let count: i64 = self
            .conn
            .prepare_cached(&format!("SELECT count(*) FROM {name}"))
            .and_then(|mut statement| statement.query_row([], |row| row.get(0)))
            .map_err(|error| refusal(&error))?;
        Ok(u64::try_from(count).unwrap_or(0))
    }

    fn row(&mut self, table: &'static str, key: &[Cell]) -> Result<Option<Vec<Cell>>, StoreError> {
        if Table::named(table).is_none_or(|table| table.key != key.len()) {
            return Err(StoreError::NotFound("table"));
        }
        sql::by_key(&self.conn, table, key).map_err(|error| refusal(&error))
    }

    fn content(&mut self, digest: Digest) -> Result<Option<StoredContent>, StoreError> {
        read::stored_content(&self.conn, digest)
    }

    fn spec(&mut self, digest: Digest) -> Result<Option<Vec<u8>>, StoreError> {
        read::stored_spec(&self.conn, digest)
    }

    fn another(&mut self) -> Option<Box<dyn Ledger>> {
        let conn = self.others.pop()?;
        Some(Box::new(Self { instance: self.instance, conn, others: Vec::new() }))
    }
}
