//! The oracle: reads all events back, checks both chains, folds again and compares every row.

use std::collections::BTreeMap;

use portcullis_canon::Digest;
use portcullis_domain::budget::Budget;
use portcullis_domain::event::{Body, Event};
use portcullis_domain::fold::RunState;
use portcullis_domain::id::{JournalId, RunId, StepId};
use portcullis_domain::ports::{Ledger, StoredEvent};
use portcullis_domain::row::{Cell, Row};
use portcullis_domain::scope::Tenant;
use portcullis_domain::stream::{Link, Stream, StreamKind, Tip, payload_digest};
use portcullis_domain::thread::Thread;
use portcullis_domain::time::Timestamp;

use super::{Subject, everything};

/// What a fresh fold of all events says.
#[derive(Debug, Default)]
pub struct Folded {
    /// Each run's state.
    pub runs: BTreeMap<RunId, RunState>,
    /// Each thread.
    pub threads: BTreeMap<[u8; 16], Thread>,
    /// Each budget.
    pub budgets: BTreeMap<[u8; 16], Budget>,
    rows: BTreeMap<(&'static str, Vec<Cell>), Vec<Cell>>,
}

impl Folded {
    fn keep<R: Row>(&mut self, row: &R) {
        let cells = row.cells();
        let key = cells.iter().take(R::KEY).cloned().collect();
        self.rows.insert((R::TABLE, key), cells);
    }

    fn fold(&mut self, event: &Event) {
        match event.link.stream.kind {
            StreamKind::Run => {
                let id = RunId::from_bytes(event.link.stream.id);
                let Some(state) = self.runs.get_mut(&id) else {
                    let state = RunState::begin(event).unwrap();
                    self.keep(&state.run);
                    self.runs.insert(id, state);
                    return;
                };
                let changed = state.apply(event).unwrap();
                let run = state.run.clone();
                self.keep(&run);
                changed.steps.iter().for_each(|step| self.keep(step));
                changed.questions.iter().for_each(|question| self.keep(question));
                changed.approval.iter().for_each(|approval| self.keep(approval));
            }
            StreamKind::Thread => {
                let thread = match self.threads.remove(&event.link.stream.id) {
                    None => Thread::begin(event).unwrap(),
                    Some(mut thread) => {
                        thread.apply(event).unwrap();
                        thread
                    }
                };
                self.keep(&thread);
                self.threads.insert(event.link.stream.id, thread);
            }
            StreamKind::Budget => {
                let budget = match self.budgets.remove(&event.link.stream.id) {
                    None => Budget::begin(event).unwrap(),
                    Some(mut budget) => {
                        budget.apply(event).unwrap();
                        budget
                    }
                };
                self.keep(&budget);
                self.budgets.insert(event.link.stream.id, budget);
            }
            _ => assert!(matches!(event.body, Body::JournalOpened(_) | Body::ContentErased(_))),
        }
    }
}

/// Reads an event back and checks that its hash is right.
#[track_caller]
fn event(stored: &StoredEvent, ledger: &dyn Ledger) -> Event {
    let digest = |bytes: &[u8]| Digest::from_bytes(bytes.try_into().unwrap());
    let kind = StreamKind::from_name(&stored.stream_kind).unwrap();
    let link = Link {
        instance: ledger.instance(),
        journal: JournalId::from_bytes(stored.journal.as_slice().try_into().unwrap()),
        journal_seq: u64::try_from(stored.journal_seq).unwrap(),
        journal_prev: digest(&stored.journal_prev),
        tenant: Tenant::try_from(stored.tenant.clone()).unwrap(),
        stream: Stream { kind, id: stored.stream_id.as_slice().try_into().unwrap() },
        stream_seq: u64::try_from(stored.stream_seq).unwrap(),
        stream_prev: digest(&stored.stream_prev),
        step: stored.step.as_deref().map(|id| StepId::from_bytes(id.try_into().unwrap())),
        at: Timestamp::from_micros(stored.at),
        kind: stored.kind.clone(),
        version: u32::try_from(stored.version).unwrap(),
        payload: payload_digest(&stored.payload),
    };
    assert_eq!(link.hash().as_bytes().as_slice(), stored.hash, "hash of {link:?}");
    let body = Body::read(&stored.kind, link.version, &stored.payload).unwrap();
    Event { hash: link.hash(), link, body }
}

/// Checks everything that the store holds and returns what it folds to.
///
/// # Panics
/// When a chain is broken or a row is not what the fold says.
#[track_caller]
pub fn check(store: &dyn Subject) -> Folded {
    let (stored, _) = everything(store);
    let mut ledger = store.begin().unwrap();
    let mut journal = Tip::START;
    let mut streams: BTreeMap<Stream, Tip> = BTreeMap::new();
    let mut folded = Folded::default();
    for row in &stored {
        let event = event(row, &*ledger);
        let stream = streams.entry(event.link.stream).or_insert(Tip::START);
        let link = &event.link;
        assert_eq!((link.journal_seq, link.journal_prev), (journal.seq + 1, journal.hash));
        assert_eq!((link.stream_seq, link.stream_prev), (stream.seq + 1, stream.hash));
        journal = Tip { seq: link.journal_seq, hash: event.hash };
        *stream = Tip { seq: link.stream_seq, hash: event.hash };
        folded.fold(&event);
    }
    let mut counts: BTreeMap<&str, u64> = BTreeMap::new();
    for ((table, key), cells) in &folded.rows {
        assert_eq!(ledger.row(table, key).unwrap().as_ref(), Some(cells), "{table} {key:?}");
        *counts.entry(table).or_default() += 1;
    }
    for table in ["runs", "steps", "questions", "approvals", "threads", "budgets"] {
        let expected = counts.get(table).copied().unwrap_or(0);
        assert_eq!(ledger.count(table).unwrap(), expected, "{table}");
    }
    folded
}
