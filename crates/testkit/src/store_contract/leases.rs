//! Cases: who may drive a run, until when, and what became of those who were overtaken.

use std::time::Duration;

use portcullis_domain::event::LeaseCause;
use portcullis_domain::lease::Epoch;
use portcullis_domain::ports::{Append, Condition, Durability, LeaseTerm, StoreError};
use portcullis_domain::question::QuestionKind;
use portcullis_domain::time::Timestamp;

use super::{Backend, Subject, fold, ok, plain, refused, scope};
use crate::block_on;
use crate::scenario::{Scenario, TERM, ask};

/// The scenario of `seed` after its first append.
fn begun(seed: u64, store: &dyn Subject) -> Scenario {
    let mut run = Scenario::new(seed, store.instance());
    run.begin();
    run
}

fn term(store: &dyn Subject, run: &Scenario) -> Option<LeaseTerm> {
    block_on(store.lease(&scope(), run.run)).unwrap()
}

/// A lease keeps others out until its last instant, which is not part of it.
pub fn a_lease_excludes_and_expires(backend: &dyn Backend) {
    let store = plain(backend);
    let mut run = Scenario::new(1, store.instance());
    ok(&*store, run.begin());
    let until = run.at.after(TERM);
    assert_eq!(term(&*store, &run), Some(LeaseTerm { epoch: Epoch(1), until }));

    let take = |by: Duration| {
        let mut taker = begun(1, &*store);
        taker.tick(by);
        taker.lease_acquired(LeaseCause::Expired);
        taker.taking(false)
    };
    let leased = StoreError::Leased { until };
    refused(&*store, take(Duration::ZERO), &leased);
    refused(&*store, take(TERM - Duration::from_micros(1)), &leased);
    ok(&*store, take(TERM));
    let next = LeaseTerm { epoch: Epoch(2), until: until.after(TERM) };
    assert_eq!(term(&*store, &run), Some(next));
    assert_eq!(term(&*plain(backend), &run), Some(next));
    fold::check(&*store);
}

/// Proof that the holder is dead ends its lease at once; proof about an earlier holder is none.
pub fn a_dead_holder_is_replaced_at_once(backend: &dyn Backend) {
    let store = plain(backend);
    let mut run = Scenario::new(2, store.instance());
    ok(&*store, run.begin());
    let mut first = begun(2, &*store);
    first.lease_acquired(LeaseCause::HolderDead);
    let first = first.taking(true);
    let mut second = begun(2, &*store);
    second.lease_acquired(LeaseCause::HolderDead);
    let second = second.taking(true);
    ok(&*store, first);
    let until = run.at.after(TERM);
    refused(&*store, second, &StoreError::Leased { until });
    fold::check(&*store);
}

/// A driver that was overtaken stores nothing, and one that looked too early has to look again.
pub fn an_old_epoch_stores_nothing(backend: &dyn Backend) {
    let store = plain(backend);
    let mut run = Scenario::new(3, store.instance());
    ok(&*store, run.begin());
    let mut second = begun(3, &*store);
    second.tick(TERM);
    second.lease_acquired(LeaseCause::Expired);
    ok(&*store, second.taking(false));
    run.step_opened();
    refused(&*store, run.driver(Durability::Synced), &StoreError::LeaseLost);
    second.step_opened();
    let once = second.driver(Durability::Synced);
    ok(&*store, once.clone());
    refused(&*store, once, &StoreError::Stale);
    // A taker that looked before the step was opened.
    let mut third = begun(3, &*store);
    third.tick(TERM);
    third.lease_acquired(LeaseCause::Expired);
    third.taking(false);
    third.tick(TERM);
    third.lease_acquired(LeaseCause::Expired);
    refused(&*store, third.taking(false), &StoreError::Stale);
    fold::check(&*store);
}

fn with_live_at(mut append: Append, at: Timestamp) -> Append {
    if let Condition::Driver { live_at, .. } = &mut append.condition {
        *live_at = Some(at);
    }
    append
}

/// A driver can require that its lease still runs at an instant; at its end it does not.
pub fn a_lease_can_be_required_to_run(backend: &dyn Backend) {
    let store = plain(backend);
    let mut run = Scenario::new(4, store.instance());
    ok(&*store, run.begin());
    let until = run.at.after(TERM);
    run.step_opened();
    let append = run.driver(Durability::Synced);
    refused(&*store, with_live_at(append.clone(), until), &StoreError::LeaseLost);
    let before = Timestamp::from_micros(until.micros() - 1);
    ok(&*store, with_live_at(append, before));
    let short = Scenario::new(5, store.instance()).begin();
    refused(&*store, with_live_at(short.clone(), until), &StoreError::LeaseLost);
    ok(&*store, with_live_at(short, before));
}

/// Prolonging needs a lease that runs, of this epoch; it never shortens and is no event.
pub fn a_lease_is_prolonged_while_it_runs(backend: &dyn Backend) {
    let store = plain(backend);
    let mut run = Scenario::new(6, store.instance());
    ok(&*store, run.begin());
    let until = run.at.after(TERM);
    let renew = |epoch, now, until| block_on(store.renew(&scope(), run.run, epoch, now, until));
    let events = super::everything(&*store);
    let later = until.after(TERM);
    assert_eq!(renew(Epoch(2), run.at, later), Err(StoreError::LeaseLost));
    assert_eq!(renew(Epoch(1), until, later), Err(StoreError::LeaseLost));
    assert_eq!(term(&*store, &run).unwrap().until, until);
    assert_eq!(renew(Epoch(1), run.at, later), Ok(()));
    assert_eq!(renew(Epoch(1), run.at, until), Ok(()));
    assert_eq!(term(&*store, &run).unwrap().until, later);
    assert_eq!(super::everything(&*store), events);
    let mut missing = Scenario::new(7, store.instance());
    missing.tick(TERM);
    let nobody = block_on(store.renew(&scope(), missing.run, Epoch(1), run.at, later));
    assert_eq!(nobody, Err(StoreError::NotFound("run")));
    assert_eq!(term(&*store, &missing), None);
}

/// A lease that was let go, or given up for a question, has no term, and is taken without waiting.
pub fn letting_go_ends_the_term(backend: &dyn Backend) {
    let store = plain(backend);
    let mut run = Scenario::new(8, store.instance());
    ok(&*store, run.begin());
    run.lease_released();
    ok(&*store, run.driver(Durability::Synced));
    assert_eq!(term(&*store, &run), None);
    run.step_opened();
    refused(&*store, run.driver(Durability::Synced), &StoreError::LeaseLost);
    let renewed = block_on(store.renew(&scope(), run.run, Epoch(1), run.at, run.at.after(TERM)));
    assert_eq!(renewed, Err(StoreError::LeaseLost));

    let mut run = begun(8, &*store);
    run.lease_released();
    run.driver(Durability::Synced);
    run.lease_acquired(LeaseCause::Free);
    ok(&*store, run.taking(false));
    assert_eq!(term(&*store, &run).unwrap().epoch, Epoch(2));
    run.step_opened();
    run.proposed(b"{}");
    run.judged(ask());
    run.asked(QuestionKind::Approval, 1);
    ok(&*store, run.driver(Durability::Synced));
    assert_eq!(term(&*store, &run), None);
    fold::check(&*store);
}

/// A driver can require that its thread has read nothing more.
pub fn moved_labels_are_noticed(backend: &dyn Backend) {
    let store = plain(backend);
    let mut run = Scenario::new(9, store.instance());
    ok(&*store, run.begin());
    // Another run of the same thread reads something.
    let mut other = Scenario::new(10, store.instance());
    other.thread = run.thread;
    other.run_created();
    other.lease_acquired(LeaseCause::Begin);
    ok(&*store, other.taking(false));
    other.step_opened();
    other.labelled();
    ok(&*store, other.driver(Durability::Synced));

    run.step_opened();
    let append = run.driver(Durability::Synced);
    let expecting = |seq| {
        let mut append = append.clone();
        if let Condition::Driver { label_seq, .. } = &mut append.condition {
            *label_seq = Some(seq);
        }
        append
    };
    refused(&*store, expecting(0), &StoreError::LabelsMoved);
    ok(&*store, expecting(1));
    let thread = block_on(store.thread(&scope(), run.thread)).unwrap().unwrap();
    assert_eq!((thread.label_seq, thread.labels.is_external()), (1, true));
}
