//! A record as somebody makes it who can write the whole file and knows the format: events edited, chained anew,
//! and all tables folded again. No hash and no row inside gives such a record away.

#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::missing_panics_doc,
    reason = "what cannot be forged at all is a mistake of the test"
)]

use std::collections::BTreeMap;

use portcullis_domain::budget::Budget;
use portcullis_domain::event::{Body, Event};
use portcullis_domain::fold::RunState;
use portcullis_domain::id::{InstanceId, JournalId, StepId};
use portcullis_domain::ports::StoredEvent;
use portcullis_domain::row::{Cell, Row};
use portcullis_domain::scope::Tenant;
use portcullis_domain::stream::{Link, Stream, StreamKind, Tip, payload_digest};
use portcullis_domain::thread::Thread;
use portcullis_domain::time::Timestamp;

/// What a forger puts into the place of a record. Contents and specs stay as they are.
#[derive(Clone, Debug)]
pub struct Forged {
    /// The events, in order.
    pub events: Vec<StoredEvent>,
    /// The rows of each state table that has any.
    pub rows: BTreeMap<&'static str, Vec<Vec<Cell>>>,
}

/// Rewrites the record of one journal, with whatever events `map` puts into the place of each, and each link as
/// `lie` leaves it before it is hashed. Of an event that `map` adds, the stream, the step, the tenant and the time
/// are looked at; the rest follows.
pub fn forge(
    events: Vec<StoredEvent>,
    instance: InstanceId,
    map: impl Fn(usize, StoredEvent, Body) -> Vec<(StoredEvent, Body)>,
    lie: impl Fn(&mut Link),
) -> Forged {
    let mut tables = Tables::default();
    let mut journal = Tip::START;
    let mut streams: BTreeMap<Stream, Tip> = BTreeMap::new();
    let mut forged = Vec::new();
    let mapped = events.into_iter().enumerate().flat_map(|(index, stored)| {
        let version = u32::try_from(stored.version).unwrap();
        let body = Body::read(&stored.kind, version, &stored.payload).unwrap();
        map(index, stored, body)
    });
    for (mut stored, body) in mapped {
        let stream = Stream {
            kind: StreamKind::from_name(&stored.stream_kind).unwrap(),
            id: stored.stream_id.as_slice().try_into().unwrap(),
        };
        let tip = streams.entry(stream).or_insert(Tip::START);
        let event = chain(instance, &mut stored, body, stream, (journal, *tip), &lie);
        *tip = Tip { seq: event.link.stream_seq, hash: event.hash };
        journal = Tip { seq: event.link.journal_seq, hash: event.hash };
        tables.fold(&event);
        forged.push(stored);
    }
    let rows = tables.rows.into_iter().map(|(table, rows)| (table, rows.into_values().collect()));
    Forged { events: forged, rows: rows.collect() }
}

fn chain(
    instance: InstanceId,
    stored: &mut StoredEvent,
    body: Body,
    stream: Stream,
    (journal, tip): (Tip, Tip),
    lie: impl Fn(&mut Link),
) -> Event {
    stored.kind = body.name().to_owned();
    stored.version = i64::from(body.version());
    stored.payload = body.payload().unwrap();
    let mut link = Link {
        instance,
        journal: JournalId::from_bytes(stored.journal.as_slice().try_into().unwrap()),
        journal_seq: journal.seq + 1,
        journal_prev: journal.hash,
        tenant: Tenant::try_from(stored.tenant.clone()).unwrap(),
        stream,
        stream_seq: tip.seq + 1,
        stream_prev: tip.hash,
        step: stored.step.as_ref().map(|id| StepId::from_bytes(id.as_slice().try_into().unwrap())),
        at: Timestamp::from_micros(stored.at),
        kind: stored.kind.clone(),
        version: u32::try_from(stored.version).unwrap(),
        payload: payload_digest(&stored.payload),
    };
    lie(&mut link);
    stored.journal_seq = i64::try_from(link.journal_seq).unwrap();
    stored.journal_prev = link.journal_prev.as_bytes().to_vec();
    stored.tenant = link.tenant.as_str().to_owned();
    stored.stream_seq = i64::try_from(link.stream_seq).unwrap();
    stored.stream_prev = link.stream_prev.as_bytes().to_vec();
    let hash = link.hash();
    stored.hash = hash.as_bytes().to_vec();
    Event { link, body, hash }
}

/// The state tables as they follow from the forged events.
#[derive(Default)]
struct Tables {
    rows: BTreeMap<&'static str, BTreeMap<Vec<Cell>, Vec<Cell>>>,
    runs: BTreeMap<Stream, RunState>,
    threads: BTreeMap<Stream, Thread>,
    budgets: BTreeMap<Stream, Budget>,
}

impl Tables {
    fn put<R: Row>(&mut self, row: &R) {
        let cells = row.cells();
        self.rows.entry(R::TABLE).or_default().insert(cells[..R::KEY].to_vec(), cells);
    }

    /// Folds where the event fits; a forger does not care where it does not.
    fn fold(&mut self, event: &Event) {
        let stream = event.link.stream;
        match stream.kind {
            StreamKind::Run => {
                let Some(mut state) = self.runs.remove(&stream) else {
                    let state = RunState::begin(event).unwrap();
                    self.put(&state.run);
                    self.runs.insert(stream, state);
                    return;
                };
                if let Ok(changed) = state.apply(event) {
                    changed.steps.iter().for_each(|row| self.put(row));
                    changed.questions.iter().for_each(|row| self.put(row));
                    changed.approval.iter().for_each(|row| self.put(row));
                    self.put(&state.run);
                }
                self.runs.insert(stream, state);
            }
            StreamKind::Thread => {
                let thread = match self.threads.remove(&stream) {
                    None => Thread::begin(event).unwrap(),
                    Some(mut thread) => {
                        thread.apply(event).unwrap();
                        thread
                    }
                };
                self.put(&thread);
                self.threads.insert(stream, thread);
            }
            StreamKind::Budget => {
                let budget = match self.budgets.remove(&stream) {
                    None => Budget::begin(event).unwrap(),
                    Some(mut budget) => {
                        // One that does not fit changes nothing.
                        let _refused = budget.apply(event);
                        budget
                    }
                };
                self.put(&budget);
                self.budgets.insert(stream, budget);
            }
            _ => {}
        }
    }
}
