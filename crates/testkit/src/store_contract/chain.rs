//! Cases: one journal, chained and folded, whoever writes.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};

use portcullis_domain::event::{Body, Event};
use portcullis_domain::ports::{Durability, Observer};

use super::{Backend, Subject, everything, fold, ok, plain, scope, walk};
use crate::block_on;
use crate::scenario::Scenario;

/// A new installation has one event, and opening it again adds none.
pub fn opens_with_its_journal(backend: &dyn Backend) {
    let (first, counts) = everything(&*plain(backend));
    assert_eq!(first.len(), 1);
    assert_eq!(
        (first[0].kind.as_str(), first[0].stream_kind.as_str()),
        ("journal.opened", "system")
    );
    assert_eq!(counts[1..], [0; 8]);
    assert_eq!(everything(&*plain(backend)).0, first);
    fold::check(&*plain(backend));
}

/// Every type of event can be appended, and the rows are what a fresh fold says.
pub fn every_event_is_chained_and_folded(backend: &dyn Backend) {
    let store = plain(backend);
    let mut run = Scenario::new(1, store.instance());
    let mut kinds = BTreeSet::from(["journal.opened"]);
    for append in run.every_event() {
        let sent: Vec<Body> = append.events.iter().map(|event| event.body.clone()).collect();
        let committed = ok(&*store, append);
        assert!(committed.events.iter().map(|event| &event.body).eq(&sent));
        kinds.extend(sent.iter().map(Body::name));
        fold::check(&*store);
    }
    kinds.insert("content.erased"); // by `erase`, a case of its own
    assert_eq!(kinds, Body::TYPES.iter().map(|(name, _)| *name).collect());
}

/// What is read back after each append is the fold's own state, for this handle and for a new one.
pub fn the_state_read_back_is_the_state_folded(backend: &dyn Backend) {
    let store = plain(backend);
    let mut run = Scenario::new(2, store.instance());
    for append in run.every_event() {
        ok(&*store, append);
        let folded = fold::check(&*store);
        same_states(&*store, &folded);
    }
    same_states(&*plain(backend), &fold::check(&*store));
}

#[track_caller]
fn same_states(store: &dyn Subject, folded: &fold::Folded) {
    for (id, state) in &folded.runs {
        let read = block_on(store.run(&scope(), *id)).unwrap();
        assert_eq!(read.as_ref(), Some(state));
    }
    for thread in folded.threads.values() {
        let read = block_on(store.thread(&scope(), thread.id)).unwrap();
        assert_eq!(read.as_ref(), Some(thread));
    }
}

/// Two handles that take turns extend one journal, also on one run.
pub fn two_handles_write_one_chain(backend: &dyn Backend) {
    let (one, other) = (plain(backend), plain(backend));
    assert_eq!(one.instance(), other.instance());
    let mut run = Scenario::new(3, one.instance());
    for (turn, append) in run.every_event().into_iter().enumerate() {
        let store = if turn % 2 == 0 { &one } else { &other };
        ok(&**store, append);
    }
    let mut second = Scenario::new(4, one.instance());
    ok(&*one, second.begin());
    for append in second.whole_step() {
        ok(&*other, append);
    }
    fold::check(&*one);
    fold::check(&*plain(backend));
}

#[derive(Default)]
struct Seen(Mutex<Vec<Vec<Event>>>);

impl Observer for Seen {
    fn committed(&self, events: &[Event]) {
        self.0.lock().unwrap().push(events.to_vec());
    }
}

struct Panics;

impl Observer for Panics {
    fn committed(&self, _: &[Event]) {
        std::panic::resume_unwind(Box::new("planned"));
    }
}

/// Observers see each commit once, in journal order, and nothing of what was refused; one that panics
/// harms nobody.
pub fn observers_see_commits_in_order(backend: &dyn Backend) {
    let (early, late) = (Arc::new(Seen::default()), Arc::new(Seen::default()));
    let store = backend.open(vec![early.clone(), Arc::new(Panics), late.clone()]);
    let mut appended = Vec::new();
    let mut run = Scenario::new(5, store.instance());
    for append in run.every_event() {
        appended.push(ok(&*store, append).events);
    }
    run.step_opened();
    assert!(block_on(store.append(&scope(), run.driver(Durability::Synced))).is_err());
    // The last answer can arrive before its observers have run; a handle that is dropped has told them all.
    drop(store);
    assert_eq!(*early.0.lock().unwrap(), appended);
    assert_eq!(*late.0.lock().unwrap(), appended);
}

/// Many threads on two handles: every append is there once, and observers of a handle see its own in order.
pub fn threads_of_this_process_lose_no_write(backend: &dyn Backend) {
    const RUNS: u64 = 8;
    let seen = Arc::new(Seen::default());
    let handles = [backend.open(vec![seen.clone()]), plain(backend)];
    std::thread::scope(|threads| {
        for seed in 0..RUNS {
            let store = Arc::clone(&handles[usize::try_from(seed).unwrap() % 2]);
            threads.spawn(move || {
                let mut run = Scenario::new(100 + seed, store.instance());
                run.owner = format!("owner-{seed}");
                for append in run.every_event() {
                    ok(&*store, append);
                }
            });
        }
    });
    let folded = fold::check(&*handles[0]);
    assert_eq!(u64::try_from(folded.runs.len()).unwrap(), 7 * RUNS);
    assert!(folded.runs.values().all(|state| state.run.status.is_terminal()));
    drop(handles);
    let order: Vec<u64> =
        seen.0.lock().unwrap().iter().flatten().map(|event| event.link.journal_seq).collect();
    assert!(order.is_sorted());
}

/// Random histories: after each, what is stored is what a fresh fold says, and what is read back too.
pub fn random_histories_fold_to_their_rows(backend: &dyn Backend) {
    let store = plain(backend);
    for seed in 0..12 {
        for append in walk::history(seed, store.instance(), 60) {
            ok(&*store, append);
        }
    }
    let folded = fold::check(&*store);
    assert!(folded.runs.len() == 12);
    same_states(&*store, &folded);
    same_states(&*plain(backend), &folded);
}
