//! The tables in memory, cell by cell, and the indexes over them.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use portcullis_domain::fold::RunState;
use portcullis_domain::id::{InstanceId, QuestionId, RunId};
use portcullis_domain::ports::{LeaseTerm, StoreError, StoredContent, StoredEvent};
use portcullis_domain::question::{Question, QuestionKind, QuestionStatus};
use portcullis_domain::row::{Cell, Row};
use portcullis_domain::stream::{Stream, Tip};
use portcullis_domain::time::Timestamp;

use crate::stored;
use crate::tables::{Table, need_row};

/// The raw tables, as an editor would see them.
#[derive(Clone, Debug, Default)]
pub struct Raw {
    /// Events in the order in which they were appended.
    pub events: Vec<StoredEvent>,
    /// The rows of each state table, in the order in which they were made.
    pub rows: BTreeMap<&'static str, Vec<Vec<Cell>>>,
    /// Contents by digest.
    pub contents: BTreeMap<Vec<u8>, StoredContent>,
    /// Canonical bytes of specs by digest.
    pub specs: BTreeMap<Vec<u8>, Vec<u8>>,
}

impl Raw {
    /// The rows of a table.
    #[must_use]
    pub fn table(&self, name: &str) -> &[Vec<Cell>] {
        self.rows.get(name).map_or(&[], Vec::as_slice)
    }

    /// Sets one cell; false when there is no such row or column.
    pub fn set(&mut self, table: &str, key: &[Cell], column: &str, value: Cell) -> bool {
        let cell = Table::named(table).and_then(|spec| {
            let place = spec.column(column)?;
            let row = self.rows.get_mut(table)?.iter_mut().find(|row| row.starts_with(key))?;
            row.get_mut(place)
        });
        cell.map(|cell| *cell = value).is_some()
    }
}

/// Everything that the store holds.
#[derive(Clone, Debug, Default)]
pub(super) struct State {
    pub(super) raw: Raw,
    pub(super) leases: HashMap<RunId, LeaseTerm>,
    /// When people were reminded of a question, or of its grant.
    pub(super) reminders: HashMap<(QuestionId, QuestionStatus), Timestamp>,
    /// Where in its table the row with a key lies.
    pub(super) places: HashMap<(&'static str, Vec<Cell>), usize>,
    /// The fold's states of runs that were appended to; a run that is missing is put together from its rows.
    pub(super) states: HashMap<RunId, RunState>,
    pub(super) system: Option<Tip>,
    /// The questions about unknown outcomes that are neither answered for good nor closed.
    pub(super) outcomes: BTreeSet<QuestionId>,
}

impl State {
    /// Builds the indexes anew, and forgets all that was derived.
    pub(super) fn index(&mut self, instance: InstanceId) {
        self.states.clear();
        self.places.clear();
        self.outcomes.clear();
        for (name, rows) in &self.raw.rows {
            let Some(table) = Table::named(name) else { continue };
            for (place, row) in rows.iter().enumerate() {
                let key: Vec<Cell> = row.iter().take(table.key).cloned().collect();
                self.places.entry((table.name, key)).or_insert(place);
            }
        }
        let questions = self.raw.table(Question::TABLE).iter();
        let read: Vec<Question> = questions.filter_map(|row| need_row(row).ok()).collect();
        read.iter().for_each(|question| self.list_outcome(question));
        let system = Stream::from(instance);
        let last = self.raw.events.iter().rfind(|event| {
            event.stream_kind == system.kind.as_str() && event.stream_id == system.id
        });
        self.system = last.and_then(|event| stored::tip(event.stream_seq, &event.hash).ok());
    }

    /// Keeps a question listed for as long as it is about an outcome that is not known.
    pub(super) fn list_outcome(&mut self, question: &Question) {
        if question.kind == QuestionKind::UnknownOutcome && question.closed_at.is_none() {
            self.outcomes.insert(question.id);
        } else {
            self.outcomes.remove(&question.id);
        }
    }

    /// The end of the journal.
    pub(super) fn journal_tip(&self) -> Result<Tip, StoreError> {
        match self.raw.events.last() {
            Some(event) => stored::tip(event.journal_seq, &event.hash),
            None => Err(StoreError::Damaged { table: "events" }),
        }
    }

    /// The row with this key.
    pub(super) fn row(&self, table: &'static str, key: &[Cell]) -> Option<&Vec<Cell>> {
        let place = self.places.get(&(table, key.to_vec()))?;
        self.raw.rows.get(table)?.get(*place)
    }
}
