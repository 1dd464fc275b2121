//! An attacker who can write the whole file and knows the format: edits events, chains them anew and folds all tables
//! again. Nothing inside the store gives such a record away.

use std::collections::BTreeMap;

use portcullis_domain::event::{Body, Event};
use portcullis_domain::fold::RunState;
use portcullis_domain::id::{InstanceId, JournalId, StepId};
use portcullis_domain::ports::StoredEvent;
use portcullis_domain::row::{Cell, Row};
use portcullis_domain::scope::Tenant;
use portcullis_domain::stream::{Link, Stream, StreamKind, Tip, payload_digest};
use portcullis_domain::thread::Thread;
use portcullis_domain::time::Timestamp;
use portcullis_store::memory::{MemoryStore, Raw};

fn read(stored: &StoredEvent) -> Body {
    Body::read(&stored.kind, u32::try_from(stored.version).unwrap(), &stored.payload).unwrap()
}

/// Rewrites the record: each event as `edit` leaves it, or not at all when it says false.
pub(crate) fn rewrite(
    store: &MemoryStore,
    instance: InstanceId,
    edit: impl Fn(usize, &mut StoredEvent, &mut Body) -> bool,
) {
    rewrite_links(store, instance, edit, |_| ());
}

/// As [`rewrite`], with each link as `lie` leaves it before it is hashed.
pub(crate) fn rewrite_links(
    store: &MemoryStore,
    instance: InstanceId,
    edit: impl Fn(usize, &mut StoredEvent, &mut Body) -> bool,
    lie: impl Fn(&mut Link),
) {
    let map = |index, mut stored: StoredEvent, mut body: Body| {
        let kept = edit(index, &mut stored, &mut body);
        kept.then_some((stored, body)).into_iter().collect()
    };
    rewrite_all(store, instance, map, lie);
}

/// As [`rewrite_links`], with whatever events `map` puts into the place of one. Of an event that it adds, only
/// the stream, the step and the time are looked at.
pub(crate) fn rewrite_all(
    store: &MemoryStore,
    instance: InstanceId,
    map: impl Fn(usize, StoredEvent, Body) -> Vec<(StoredEvent, Body)>,
    lie: impl Fn(&mut Link),
) {
    let old = store.tamper(|raw| raw.clone()).unwrap();
    let mut new = Raw { contents: old.contents, specs: old.specs, ..Raw::default() };
    new.rows = old.rows.into_keys().map(|table| (table, Vec::new())).collect();
    let mut tables = Tables::default();
    let mut journal = Tip::START;
    let mut streams: BTreeMap<Stream, Tip> = BTreeMap::new();
    let forged = old.events.into_iter().enumerate().flat_map(|(index, stored)| {
        let body = read(&stored);
        map(index, stored, body)
    });
    for (mut stored, body) in forged {
        let stream = Stream {
            kind: StreamKind::from_name(&stored.stream_kind).unwrap(),
            id: stored.stream_id.as_slice().try_into().unwrap(),
        };
        let tip = streams.entry(stream).or_insert(Tip::START);
        let event = chain(instance, &mut stored, body, stream, (journal, *tip), &lie);
        *tip = Tip { seq: event.link.stream_seq, hash: event.hash };
        journal = Tip { seq: event.link.journal_seq, hash: event.hash };
        tables.fold(&event);
        new.events.push(stored);
    }
    for (table, rows) in tables.rows {
        new.rows.insert(table, rows.into_values().collect());
    }
    store.tamper(|raw| *raw = new).unwrap();
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
            _ => {}
        }
    }
}
