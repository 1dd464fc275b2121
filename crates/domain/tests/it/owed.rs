//! What one append records is whole in its stream: nothing stops, or goes on otherwise, in the middle of it.

use portcullis_domain::approval::Answer;
use portcullis_domain::event::{Body, LeaseCause};
use portcullis_domain::fold::{FoldError, RunState};
use portcullis_domain::id::InstanceId;
use portcullis_domain::observation::ObservationKind;
use portcullis_domain::ports::{Durability, NewEvent};
use portcullis_domain::question::{QuestionKind, QuestionStatus};
use portcullis_domain::run::EndReason;
use portcullis_domain::stream::StreamKind;
use portcullis_domain::verdict::OnRejection;
use portcullis_testkit::scenario::{Scenario, ask};
use portcullis_testkit::store_contract::walk;
use proptest::prelude::*;

use crate::fold::chained;

pub(crate) const INSTANCE: InstanceId = InstanceId::from_bytes([1; 16]);

/// The fold of some events of one run's stream.
pub(crate) fn fold<'a>(
    events: impl IntoIterator<Item = &'a NewEvent>,
) -> Result<RunState, FoldError> {
    let mut state: Option<RunState> = None;
    for event in events {
        let event = chained(state.as_ref(), event);
        match &mut state {
            None => state = Some(RunState::begin(&event)?),
            Some(state) => drop(state.apply(&event)?),
        }
    }
    Ok(state.unwrap())
}

/// The events of a run that waits for one answer, and whatever `build` adds.
fn waiting(build: impl FnOnce(&mut Scenario)) -> Vec<NewEvent> {
    let mut run = Scenario::new(1, INSTANCE);
    run.run_created();
    run.lease_acquired(LeaseCause::Begin);
    run.step_opened();
    run.proposed(b"{}");
    run.judged(ask());
    run.asked(QuestionKind::Approval, 1);
    build(&mut run);
    run.driver(Durability::Written).events
}

fn used(run: &mut Scenario) {
    run.answered("ann", Answer::Approve);
    run.lease_acquired(LeaseCause::Free);
    run.judged(ask());
    run.used();
}

fn expired(run: &mut Scenario) {
    run.at = run.expires_at.unwrap().after(std::time::Duration::from_micros(1));
    run.closed(QuestionStatus::Expired);
}

#[test]
fn a_used_grant_is_followed_by_its_start() {
    let stopped = fold(&waiting(used)).unwrap();
    assert_eq!(stopped.complete(), Err(FoldError::Owed("step.started")));
    let started = waiting(|run| {
        used(run);
        run.started();
    });
    assert_eq!(fold(&started).unwrap().complete(), Ok(()), "the control");
    let others: [fn(&mut Scenario); 5] = [
        |run| run.judged(ask()),
        |run| run.asked(QuestionKind::Approval, 1),
        |run| run.lease_released(),
        |run| run.finished(ObservationKind::Denied),
        |run| run.run_finished(EndReason::OperatorCancelled),
    ];
    for other in others {
        let otherwise = waiting(|run| {
            used(run);
            other(run);
        });
        assert_eq!(fold(&otherwise).map(drop), Err(FoldError::Owed("step.started")));
    }
}

#[test]
fn a_closed_question_is_followed_by_the_end_of_its_run() {
    let withdrawn = |run: &mut Scenario| run.closed(QuestionStatus::Withdrawn);
    let owed = Err(FoldError::Owed("run.finished"));
    for close in [expired as fn(&mut Scenario), withdrawn] {
        assert_eq!(fold(&waiting(close)).unwrap().complete(), owed);
        let otherwise = waiting(|run| {
            close(run);
            run.finished(ObservationKind::Denied);
        });
        assert_eq!(fold(&otherwise).map(drop), owed);
    }
    let ends = |close: fn(&mut Scenario), reason| {
        let events = waiting(|run| {
            close(run);
            run.run_finished(reason);
        });
        fold(&events).and_then(|state| state.complete())
    };
    assert_eq!(ends(expired, EndReason::ApprovalExpired), Ok(()), "the control");
    assert_eq!(ends(withdrawn, EndReason::OperatorCancelled), Ok(()), "the control");
    assert_eq!(ends(expired, EndReason::OperatorCancelled), owed);
}

#[test]
fn a_no_is_followed_by_the_end_of_its_step_and_of_its_run() {
    let no = |run: &mut Scenario| run.answered("ann", Answer::Reject);
    assert_eq!(fold(&waiting(no)).unwrap().complete(), Err(FoldError::Owed("step.finished")));
    let observed = waiting(|run| {
        no(run);
        run.finished(ObservationKind::Denied);
    });
    // The question says that a no ends the run.
    assert_eq!(fold(&observed).unwrap().complete(), Err(FoldError::Owed("run.finished")));
    let ended = |reason| {
        let events = waiting(|run| {
            no(run);
            run.finished(ObservationKind::Denied);
            run.run_finished(reason);
        });
        fold(&events).and_then(|state| state.complete())
    };
    assert_eq!(ended(EndReason::ApprovalRejected), Ok(()), "the control");
    assert_eq!(ended(EndReason::GoalFailed), Err(FoldError::Owed("run.finished")));
    // Where a no is only observed, the run goes on.
    let mut events = observed;
    for event in &mut events {
        if let Body::QuestionAsked(body) = &mut event.body {
            body.on_rejection = OnRejection::Observe;
        }
    }
    assert_eq!(fold(&events).unwrap().complete(), Ok(()));
}

#[test]
fn what_became_of_a_call_is_followed_by_the_end_of_its_step() {
    for answer in [Answer::Happened, Answer::DidNotHappen] {
        let said = |end: bool| {
            waiting(|run| {
                used(run);
                run.started();
                run.asked(QuestionKind::UnknownOutcome, 1);
                run.answered("ben", answer);
                if end {
                    run.finished(ObservationKind::ToolResult);
                }
            })
        };
        assert_eq!(fold(&said(false)).unwrap().complete(), Err(FoldError::Owed("step.finished")));
        assert_eq!(fold(&said(true)).unwrap().complete(), Ok(()), "the control");
    }
}

#[test]
fn a_question_expires_by_its_own_time_and_closes_as_nothing_else() {
    let refused = Err(FoldError::NotAdmitted("question.closed"));
    let early = waiting(|run| {
        run.at = run.expires_at.unwrap();
        run.closed(QuestionStatus::Expired);
    });
    assert_eq!(fold(&early).map(drop), refused);
    for status in [QuestionStatus::Open, QuestionStatus::Granted, QuestionStatus::Used] {
        assert_eq!(fold(&waiting(|run| run.closed(status))).map(drop), refused);
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 256, ..ProptestConfig::default() })]

    /// A run's record may stop where an append ends, and nowhere after what is owed something.
    #[test]
    fn a_record_stops_where_an_append_ends(seed in 0_u64..1_000_000) {
        let appends = walk::history(seed, INSTANCE, 80);
        let mut events: Vec<NewEvent> = Vec::new();
        for append in appends {
            let own = append.events.into_iter().filter(|event| event.stream.kind == StreamKind::Run);
            events.extend(own);
            prop_assert_eq!(fold(&events).unwrap().complete(), Ok(()));
        }
        let owing = |event: &NewEvent| {
            match &event.body {
                Body::ApprovalUsed(_) | Body::QuestionClosed(_) => true,
                Body::QuestionAnswered(body) => !body.statement.answer.grants(),
                _ => false,
            }
        };
        for place in (0..events.len()).filter(|place| owing(&events[*place])) {
            prop_assert!(matches!(fold(&events[..=place]).unwrap().complete(), Err(FoldError::Owed(_))));
            let without = events.iter().enumerate().filter(|(at, _)| *at != place + 1);
            let without = fold(without.map(|(_, event)| event)).and_then(|state| state.complete());
            prop_assert!(matches!(without, Err(FoldError::Owed(_))), "{:?}", without);
        }
    }
}
