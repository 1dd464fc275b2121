//! Batches in the fold: one append begins all of a batch and one ends it, each kind of event in the order of the calls.

use portcullis_domain::event::{Body, LeaseCause, StepOpened};
use portcullis_domain::fold::{FoldError, RunState};
use portcullis_domain::id::StepId;
use portcullis_domain::observation::ObservationKind;
use portcullis_domain::ports::{Durability, NewEvent};
use portcullis_domain::proposal::MAX_BATCH;
use portcullis_domain::question::QuestionKind;
use portcullis_domain::run::{EndReason, RunStatus};
use portcullis_domain::step::StepStatus;
use portcullis_domain::tool::EffectClass;
use portcullis_domain::verdict::Verdict;
use portcullis_testkit::scenario::{Scenario, allow, ask};
use proptest::prelude::*;

use crate::owed::{INSTANCE, fold};

/// A run whose first step has a proposal, and whatever `build` adds.
fn proposed(build: impl FnOnce(&mut Scenario)) -> Vec<NewEvent> {
    let mut run = Scenario::new(1, INSTANCE);
    run.run_created();
    run.lease_acquired(LeaseCause::Begin);
    run.step_opened();
    run.proposed(b"{}");
    build(&mut run);
    run.driver(Durability::Written).events
}

/// Events before the batch begins: created, lease, opened, proposed.
const BEFORE: usize = 4;

/// Events that begin a batch of this many calls.
fn beginning(size: u32) -> usize {
    let size = usize::try_from(size).unwrap();
    2 * (size - 1) + 2 * size
}

fn begun(size: u32) -> Vec<NewEvent> {
    proposed(|run| run.batch_started(size))
}

fn ended(size: u32) -> Vec<NewEvent> {
    proposed(|run| {
        run.batch_started(size);
        run.batch_finished(ObservationKind::ToolResult);
    })
}

/// Whether a record could stop here.
fn stops(events: &[NewEvent]) -> Result<RunState, FoldError> {
    fold(events).and_then(|state| state.complete().map(|()| state))
}

#[test]
fn the_open_step_becomes_the_first_of_its_batch() {
    let state = stops(&begun(3)).unwrap();
    let places = state.batch.iter().map(|step| (step.index, step.batch, step.batch_index));
    assert!(places.eq([(0, 3, 0), (1, 3, 1), (2, 3, 2)]));
    let first = state.batch[0].proposal;
    for step in &state.batch {
        assert_eq!((step.status, step.starts, step.attempts), (StepStatus::Executing, 1, 1));
        assert_eq!((step.request(), step.proposal), (0, first));
    }
    assert_eq!(state.run.step_count, 3);
    let state = stops(&ended(3)).unwrap();
    assert!(state.batch.iter().all(|step| step.status == StepStatus::Done));
    assert_eq!(state.recent.len(), 3);
}

#[test]
fn a_batch_is_begun_as_a_whole_and_ended_as_a_whole() {
    for size in [2, 3, MAX_BATCH] {
        let events = ended(size);
        let whole = BEFORE + beginning(size);
        for length in BEFORE..=events.len() {
            let stopped = fold(&events[..length]).unwrap().complete();
            let may = length == BEFORE || length == whole || length == events.len();
            assert_eq!(stopped.is_ok(), may, "{size} {length}: {stopped:?}");
        }
    }
}

#[test]
fn only_a_fresh_proposal_widens_and_only_into_two_to_sixteen() {
    let opened = FoldError::NotAdmitted("step.opened");
    let refused = |events: Vec<NewEvent>| assert_eq!(stops(&events).map(drop), Err(opened));
    assert!(stops(&begun(2)).is_ok(), "the control");
    // Bounds, and places that do not count up.
    for (size, place) in [(1, 1), (0, 1), (MAX_BATCH + 1, 1), (2, 0), (3, 2), (2, 2)] {
        refused(proposed(|run| run.member_opened(size, place)));
    }
    // Without a proposal, with a verdict, with a question, or when it is over.
    let mut run = Scenario::new(1, INSTANCE);
    run.run_created();
    run.lease_acquired(LeaseCause::Begin);
    run.step_opened();
    run.member_opened(2, 1);
    refused(run.driver(Durability::Written).events);
    let after = |before: fn(&mut Scenario)| {
        refused(proposed(|run| {
            before(run);
            run.member_opened(2, 1);
        }));
    };
    after(|run| run.judged(allow()));
    after(|run| {
        run.judged(ask());
        run.asked(QuestionKind::Approval, 1);
    });
    after(|run| run.finished(ObservationKind::InvalidProposal));
    // Another size, half way.
    refused(proposed(|run| {
        run.member_opened(3, 1);
        run.member_proposed();
        run.member_opened(2, 2);
    }));
    // One of a batch that never was a first step.
    let mut events = begun(2);
    if let Body::StepOpened(body) = &mut events[2].body {
        *body = StepOpened { index: 0, batch: 2, batch_index: 0 };
    }
    refused(events);
}

#[test]
fn only_calls_that_read_and_are_allowed_stand_in_a_batch() {
    let judged = FoldError::NotAdmitted("step.judged");
    for place in [0, 1, 2] {
        let with = |change: &dyn Fn(&mut portcullis_domain::event::StepJudged)| {
            let mut events = begun(3);
            let bodies = events.iter_mut().filter_map(|event| match &mut event.body {
                Body::StepJudged(body) => Some(body),
                _ => None,
            });
            change(bodies.into_iter().nth(place).unwrap());
            stops(&events).map(drop)
        };
        assert_eq!(with(&|_| {}), Ok(()), "the control");
        for effect in
            [EffectClass::LocalMutation, EffectClass::RemoteMutation, EffectClass::Destructive]
        {
            assert_eq!(with(&|body| body.admitted.effect = effect), Err(judged));
        }
        let deny = Verdict::Deny {
            reason: portcullis_domain::refusal::Refusal::ClassDenied,
            rules: Vec::new(),
        };
        for verdict in [ask(), deny] {
            assert_eq!(with(&|body| body.verdict = verdict.clone()), Err(judged));
        }
    }
}

#[test]
fn each_call_of_a_batch_stands_in_the_same_proposal() {
    let events = proposed(|run| {
        run.member_opened(2, 1);
        run.proposed(b"another");
    });
    assert_eq!(stops(&events).map(drop), Err(FoldError::NotAdmitted("step.proposed")));
}

#[test]
fn nobody_is_asked_about_a_call_of_a_batch_and_the_end_of_its_run_closes_it() {
    let asked = proposed(|run| {
        run.batch_started(2);
        run.call = portcullis_canon::Digest::of(portcullis_canon::Kind::Call, run.step.as_bytes());
        run.asked(QuestionKind::UnknownOutcome, 1);
    });
    assert_eq!(stops(&asked).map(drop), Err(FoldError::NotAdmitted("question.asked")));
    let cancelled = proposed(|run| {
        run.batch_started(2);
        run.run_finished(EndReason::OperatorCancelled);
        run.outcome_late();
    });
    let state = stops(&cancelled).unwrap();
    assert_eq!(state.run.status, RunStatus::Cancelled);
    assert!(state.batch.iter().all(|step| step.status == StepStatus::Interrupted));
    // Not half way through its ends.
    let half = proposed(|run| {
        run.batch_started(2);
        run.step = run.batch[0];
        run.finished(ObservationKind::ToolResult);
        run.run_finished(EndReason::OperatorCancelled);
    });
    assert_eq!(fold(&half).map(drop), Err(FoldError::Owed("step.finished")));
}

#[test]
fn a_batch_is_one_failure_when_none_of_its_calls_brought_a_result() {
    use ObservationKind::{Interrupted, ToolError, ToolResult};
    let failures = |kinds: &[ObservationKind]| {
        let events = proposed(|run| {
            // One failure before, so that a reset shows.
            run.finished(ObservationKind::InvalidProposal);
            run.step_opened();
            run.proposed(b"{}");
            run.batch_started(u32::try_from(kinds.len()).unwrap());
            for (step, kind) in run.batch.clone().into_iter().zip(kinds) {
                run.step = step;
                run.finished(*kind);
            }
        });
        stops(&events).unwrap().run.failures
    };
    assert_eq!(failures(&[Interrupted; 16]), 2);
    assert_eq!(failures(&[ToolError, Interrupted, ToolError]), 2);
    for kinds in [[ToolResult, ToolError], [ToolError, ToolResult], [ToolResult, ToolResult]] {
        assert_eq!(failures(&kinds), 0, "{kinds:?}");
    }
}

#[test]
fn the_next_step_is_alone_again() {
    let events = proposed(|run| {
        run.batch_started(2);
        run.batch_finished(ObservationKind::Interrupted);
        run.step_opened();
        run.proposed(b"{}");
        run.judged(allow());
    });
    let state = stops(&events).unwrap();
    assert_eq!(state.batch.len(), 1);
    assert_eq!((state.batch[0].index, state.batch[0].batch), (2, 1));
}

/// What can go wrong with the events of an append.
#[derive(Clone, Copy, Debug)]
enum Wrong {
    Swapped,
    Dropped,
    Doubled,
    OfAnother,
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 512, ..ProptestConfig::default() })]

    /// Whatever else the events of a batch are, they are not the record of one.
    #[test]
    fn no_other_order_of_a_batch_is_one(
        size in 2_u32..=MAX_BATCH,
        one in any::<prop::sample::Index>(),
        other in any::<prop::sample::Index>(),
        wrong in prop::sample::select(vec![Wrong::Swapped, Wrong::Dropped, Wrong::Doubled, Wrong::OfAnother]),
    ) {
        let events = ended(size);
        prop_assert!(stops(&events).is_ok());
        let (one, other) = (
            BEFORE + one.index(events.len() - BEFORE),
            BEFORE + other.index(events.len() - BEFORE),
        );
        let mut changed = events.clone();
        match wrong {
            Wrong::Swapped => changed.swap(one, other),
            Wrong::Dropped => drop(changed.remove(one)),
            Wrong::Doubled => changed.insert(other, events[one].clone()),
            Wrong::OfAnother => changed[one].step = Some(StepId::from_bytes([9; 16])),
        }
        prop_assume!(changed != events);
        prop_assert!(stops(&changed).is_err(), "{wrong:?} {one} {other}");
    }
}
