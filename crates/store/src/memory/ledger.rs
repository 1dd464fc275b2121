//! The raw tables in memory as `verify` walks them: a snapshot that later appends do not change.

use std::collections::BTreeSet;
use std::sync::Arc;

use portcullis_canon::Digest;
use portcullis_domain::id::{InstanceId, JournalId};
use portcullis_domain::ports::{Ledger, Ledgers, StoreError, StoredContent, StoredEvent};
use portcullis_domain::row::Cell;
use portcullis_domain::stream::Stream;

use super::MemoryStore;
use super::raw::State;
use crate::tables::{Table, check_limit};

struct MemoryLedger {
    instance: InstanceId,
    state: Arc<State>,
}

impl Ledgers for MemoryStore {
    fn begin(&self) -> Result<Box<dyn Ledger + '_>, StoreError> {
        let state = self.snapshot()?;
        Ok(Box::new(MemoryLedger { instance: self.shared.instance, state }))
    }
}

/// The first events after a place, by the sequence that `seq` picks.
fn after<'a>(
    events: impl Iterator<Item = &'a StoredEvent>,
    seq: impl Fn(&StoredEvent) -> i64,
    after: i64,
    limit: u32,
) -> Result<Vec<StoredEvent>, StoreError> {
    check_limit(limit)?;
    let mut found: Vec<&StoredEvent> = events.filter(|event| seq(event) > after).collect();
    found.sort_by_key(|event| seq(event));
    let limit = usize::try_from(limit).unwrap_or(usize::MAX);
    Ok(found.into_iter().take(limit).cloned().collect())
}

impl Ledger for MemoryLedger {
    fn instance(&self) -> InstanceId {
        self.instance
    }

    fn sound(&mut self) -> Result<(), StoreError> {
        Ok(()) // The indexes are made anew from the rows.
    }

    fn journals(&mut self) -> Result<Vec<JournalId>, StoreError> {
        let distinct: BTreeSet<&[u8]> =
            self.state.raw.events.iter().map(|event| event.journal.as_slice()).collect();
        distinct
            .into_iter()
            .map(|id| id.try_into().map(JournalId::from_bytes))
            .collect::<Result<_, _>>()
            .map_err(|_| StoreError::Damaged { table: "events" })
    }

    fn events_after(
        &mut self,
        journal: JournalId,
        place: i64,
        limit: u32,
    ) -> Result<Vec<StoredEvent>, StoreError> {
        let own = self.state.raw.events.iter().filter(|e| e.journal == journal.as_bytes());
        after(own, |event| event.journal_seq, place, limit)
    }

    fn stream_after(
        &mut self,
        stream: Stream,
        place: i64,
        limit: u32,
    ) -> Result<Vec<StoredEvent>, StoreError> {
        let own = self.state.raw.events.iter().filter(|event| {
            event.stream_kind == stream.kind.as_str() && event.stream_id == stream.id
        });
        after(own, |event| event.stream_seq, place, limit)
    }

    fn count(&mut self, table: &str) -> Result<u64, StoreError> {
        let raw = &self.state.raw;
        let count = match table {
            "events" => raw.events.len(),
            "contents" => raw.contents.len(),
            "specs" => raw.specs.len(),
            _ if Table::named(table).is_some() => raw.table(table).len(),
            _ => return Err(StoreError::NotFound("table")),
        };
        Ok(u64::try_from(count).unwrap_or(u64::MAX))
    }

    fn row(&mut self, table: &'static str, key: &[Cell]) -> Result<Option<Vec<Cell>>, StoreError> {
        if Table::named(table).is_none_or(|table| table.key != key.len()) {
            return Err(StoreError::NotFound("table"));
        }
        Ok(self.state.row(table, key).cloned())
    }

    fn content(&mut self, digest: Digest) -> Result<Option<StoredContent>, StoreError> {
        Ok(self.state.raw.contents.get(digest.as_bytes().as_slice()).cloned())
    }

    fn spec(&mut self, digest: Digest) -> Result<Option<Vec<u8>>, StoreError> {
        Ok(self.state.raw.specs.get(digest.as_bytes().as_slice()).cloned())
    }

    fn another(&mut self) -> Option<Box<dyn Ledger>> {
        Some(Box::new(Self { instance: self.instance, state: Arc::clone(&self.state) }))
    }
}
