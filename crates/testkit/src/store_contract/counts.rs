//! Cases: what is counted of a conversation, over the runs of its thread.

use std::thread;

use portcullis_domain::event::{Body, LeaseCause, ThreadCounted};
use portcullis_domain::observation::ObservationKind;
use portcullis_domain::ports::{Append, Durability, StoreError};
use portcullis_domain::question::QuestionKind;
use portcullis_domain::tally::{Counted, Counting, ThreadLimit, ThreadLimits};

use super::{Backend, Subject, fold, ok, plain, refused, scope};
use crate::block_on;
use crate::scenario::{CALL, Scenario, allow, ask, deny};

/// A run that opens its thread.
fn first(seed: u64, store: &dyn Subject) -> Scenario {
    let mut run = Scenario::new(seed, store.instance());
    ok(store, run.begin());
    run
}

/// Another run in the same conversation.
fn beside(seed: u64, run: &Scenario, store: &dyn Subject) -> Scenario {
    let mut other = Scenario::new(seed, store.instance());
    other.thread = run.thread;
    other.owner.clone_from(&run.owner);
    other.run_created();
    other.lease_acquired(LeaseCause::Begin);
    ok(store, other.taking(false));
    other
}

/// The intent of a run's next call, which is not appended; `counted` adds what is counted of it.
fn intent(run: &mut Scenario, store: &dyn Subject, counted: &[(Counted, ThreadLimits)]) -> Append {
    for append in run.judging(allow()) {
        ok(store, append);
    }
    run.started();
    counted.iter().for_each(|(counted, limits)| run.counted(*counted, *limits));
    run.driver(Durability::Synced)
}

fn bounded(limit: ThreadLimit) -> StoreError {
    StoreError::ThreadBounded { limit }
}

/// A call that would be one too many is not begun, whatever run it is of and through whatever handle it comes.
pub fn a_limit_holds_over_all_runs_of_a_conversation(backend: &dyn Backend) {
    let store = plain(backend);
    let limits = ThreadLimits { max_calls: Some(2), ..ThreadLimits::NONE };
    let call = [(Counted::Call(CALL), limits)];
    let mut one = first(1, &*store);
    ok(&*store, intent(&mut one, &*store, &call));
    let other = plain(backend);
    let mut two = beside(2, &one, &*other);
    ok(&*other, intent(&mut two, &*other, &call));
    let mut three = beside(3, &one, &*store);
    let append = intent(&mut three, &*store, &call);
    refused(&*store, append.clone(), &bounded(ThreadLimit::Calls));
    // The controls: a wider bound, and another conversation.
    let mut wider = append;
    for event in &mut wider.events {
        if let Body::ThreadCounted(ThreadCounted { limits, .. }) = &mut event.body {
            limits.max_calls = Some(3);
        }
    }
    ok(&*store, wider);
    let mut elsewhere = first(4, &*store);
    ok(&*store, intent(&mut elsewhere, &*store, &call));
    let thread = block_on(store.thread(&scope(), one.thread)).unwrap().unwrap();
    let tally = thread.tally.unwrap();
    assert_eq!((tally.calls, tally.changes), (3, 3));
    fold::check(&*store);
}

/// Nobody is asked about a call that a limit keeps from beginning, nor more often than people may be asked.
pub fn a_limit_keeps_questions_out_too(backend: &dyn Backend) {
    let store = plain(backend);
    let limits = ThreadLimits { max_questions: Some(1), ..ThreadLimits::NONE };
    let mut one = first(1, &*store);
    let asking = |run: &mut Scenario, limits| {
        for append in run.judging(ask()) {
            ok(&*store, append);
        }
        run.asked(QuestionKind::Approval, 1);
        run.counted(Counted::Question(CALL), limits);
        run.driver(Durability::Synced)
    };
    ok(&*store, asking(&mut one, limits));
    let mut two = beside(2, &one, &*store);
    refused(&*store, asking(&mut two, limits), &bounded(ThreadLimit::Questions));
    let spent = ThreadLimits { max_denials: Some(1), ..ThreadLimits::NONE };
    let mut three = beside(3, &one, &*store);
    for append in three.judging(deny()) {
        ok(&*store, append);
    }
    three.finished(ObservationKind::Denied);
    three.counted(Counted::Denial, spent);
    ok(&*store, three.driver(Durability::Synced));
    let mut four = beside(4, &one, &*store);
    refused(&*store, asking(&mut four, spent), &bounded(ThreadLimit::Denials));
    fold::check(&*store);
}

/// Only what the append holds is counted, as it is, and once.
pub fn only_what_happens_is_counted(backend: &dyn Backend) {
    let store = plain(backend);
    let limits = ThreadLimits::NONE;
    let mut run = first(1, &*store);
    let call = (Counted::Call(CALL), limits);
    let mut append = intent(&mut run, &*store, &[call]);
    let whole = append.clone();
    let no = &StoreError::NotAdmitted;
    let mut refuse = |change: &dyn Fn(&mut Append)| {
        append.clone_from(&whole);
        change(&mut append);
        refused(&*store, append.clone(), no);
    };
    refuse(&|append| append.events.push(append.events.last().unwrap().clone()));
    refuse(&|append| append.events.rotate_right(1));
    refuse(&|append| append.events.last_mut().unwrap().step = None);
    for counted in [
        Counted::Call(Counting { changes: false, ..CALL }),
        Counted::Question(CALL),
        Counted::Denial,
    ] {
        refuse(&|append| {
            let Body::ThreadCounted(body) = &mut append.events.last_mut().unwrap().body else {
                panic!("{append:?}")
            };
            body.counted = counted;
        });
    }
    refuse(&|append| {
        let Body::ThreadCounted(body) = &mut append.events.last_mut().unwrap().body else {
            panic!("{append:?}")
        };
        body.run = Scenario::new(9, store.instance()).run;
    });
    // The control, and nothing of it once more afterwards.
    ok(&*store, whole);
    run.counted(Counted::Call(CALL), limits);
    refused(&*store, run.driver(Durability::Synced), no);
    fold::check(&*store);
}

/// Once something was counted, a call that begins, a question and a denial are too, or are not recorded: whoever leaves it out
/// looked before.
pub fn nothing_is_left_out_of_a_counted_conversation(backend: &dyn Backend) {
    let store = plain(backend);
    let limits = ThreadLimits::NONE;
    let mut one = first(1, &*store);
    // The control: while nothing was, it is admitted.
    ok(&*store, intent(&mut one, &*store, &[]));
    let mut two = beside(2, &one, &*store);
    ok(&*store, intent(&mut two, &*store, &[(Counted::Call(CALL), limits)]));
    let mut three = beside(3, &one, &*store);
    refused(&*store, intent(&mut three, &*store, &[]), &StoreError::Stale);
    let mut four = beside(4, &one, &*store);
    for append in four.judging(ask()) {
        ok(&*store, append);
    }
    four.asked(QuestionKind::Approval, 1);
    refused(&*store, four.driver(Durability::Synced), &StoreError::Stale);
    let mut five = beside(5, &one, &*store);
    for append in five.judging(deny()) {
        ok(&*store, append);
    }
    five.finished(ObservationKind::Denied);
    refused(&*store, five.driver(Durability::Synced), &StoreError::Stale);
    // What ends a call that was begun before, and what people are asked about it, is recorded in any case.
    one.asked(QuestionKind::UnknownOutcome, 1);
    ok(&*store, one.driver(Durability::Synced));
    two.finished(ObservationKind::ToolResult);
    ok(&*store, two.driver(Durability::Synced));
    fold::check(&*store);
}

/// Of a burst as many begin as may, however many writers there are.
pub fn a_burst_crosses_no_limit(backend: &dyn Backend) {
    const CALLS: u64 = 16;
    let limits = ThreadLimits { max_changes: Some(5), ..ThreadLimits::NONE };
    let store = plain(backend);
    let run = first(100, &*store);
    let made: u64 = thread::scope(|threads| {
        let one = |seed| {
            let (store, run) = (plain(backend), &run);
            threads.spawn(move || {
                let mut own = beside(seed, run, &*store);
                let append = intent(&mut own, &*store, &[(Counted::Call(CALL), limits)]);
                match block_on(store.append(&scope(), append)) {
                    Ok(_) => 1,
                    Err(StoreError::ThreadBounded { limit: ThreadLimit::Changes }) => 0,
                    Err(error) => panic!("{error:?}"),
                }
            })
        };
        let all: Vec<_> = (1..=CALLS).map(one).collect();
        all.into_iter().map(|one| one.join().unwrap()).sum()
    });
    assert_eq!(made, 5);
    let thread = block_on(store.thread(&scope(), run.thread)).unwrap().unwrap();
    assert_eq!(thread.tally.map(|tally| tally.changes), Some(5));
    fold::check(&*store);
}
