//! The fold from outside: legal histories fold, impossible ones do not.

use portcullis_canon::Digest;
use portcullis_domain::approval::Answer;
use portcullis_domain::event::{Advice, Body, Event, LeaseCause};
use portcullis_domain::fold::{FoldError, RunState};
use portcullis_domain::id::{InstanceId, JournalId, StepId};
use portcullis_domain::observation::ObservationKind;
use portcullis_domain::ports::{Durability, NewEvent};
use portcullis_domain::question::{QuestionKind, QuestionStatus};
use portcullis_domain::run::{EndReason, RunStatus};
use portcullis_domain::scope::Tenant;
use portcullis_domain::step::StepStatus;
use portcullis_domain::stream::{Link, Stream, payload_digest};
use portcullis_domain::verdict::Verdict;
use portcullis_testkit::scenario::{Scenario, allow, ask};

/// A chained event after `state`, or the first one of its stream.
pub(crate) fn chained(state: Option<&RunState>, event: &NewEvent) -> Event {
    let payload = event.body.payload().unwrap();
    let link = Link {
        instance: InstanceId::from_bytes([1; 16]),
        journal: JournalId::from_bytes([2; 16]),
        journal_seq: state.map_or(1, |s| s.run.seq + 1),
        journal_prev: Digest::ZERO,
        tenant: Tenant::local(),
        stream: event.stream,
        stream_seq: state.map_or(1, |s| s.run.seq + 1),
        stream_prev: state.map_or(Digest::ZERO, |s| s.run.hash),
        step: event.step,
        at: event.at,
        kind: event.body.name().to_owned(),
        version: event.body.version(),
        payload: payload_digest(&payload),
    };
    let hash = link.hash();
    Event { link, body: event.body.clone(), hash }
}

/// Folds what a scenario gathered for its run; `state` is where it stands.
fn fold(
    scenario: &mut Scenario,
    mut state: Option<RunState>,
) -> Result<Option<RunState>, FoldError> {
    let run = Stream::from(scenario.run);
    for event in
        scenario.driver(Durability::Written).events.iter().filter(|event| event.stream == run)
    {
        let event = chained(state.as_ref(), event);
        state = match state {
            None => Some(RunState::begin(&event)?),
            Some(mut state) => {
                state.apply(&event)?;
                Some(state)
            }
        };
    }
    Ok(state)
}

fn scenario() -> Scenario {
    let mut scenario = Scenario::new(1, InstanceId::from_bytes([1; 16]));
    scenario.run_created();
    scenario.lease_acquired(LeaseCause::Begin);
    scenario
}

/// The state after all that a scenario gathered.
pub(crate) fn fold_all(scenario: &mut Scenario) -> RunState {
    fold(scenario, None).unwrap().unwrap()
}

/// Builds a history and returns its last state, or the error that stopped it.
fn after(build: impl FnOnce(&mut Scenario)) -> Result<RunState, FoldError> {
    let mut scenario = scenario();
    build(&mut scenario);
    fold(&mut scenario, None).map(Option::unwrap)
}

#[track_caller]
fn refused(kind: &'static str, build: impl FnOnce(&mut Scenario)) {
    match after(build) {
        Err(FoldError::NotAdmitted(found) | FoldError::AfterEnd(found)) => assert_eq!(found, kind),
        other => panic!("expected a refusal of {kind}, got {other:?}"),
    }
}

fn waiting(s: &mut Scenario) {
    s.step_opened();
    s.proposed(b"{}");
    s.judged(ask());
    s.asked(QuestionKind::Approval, 1);
}

#[test]
fn an_allowed_step_runs_once_and_counts() {
    let state = after(|s| {
        s.step_opened();
        s.proposed(b"{}");
        s.judged(allow());
        s.started();
        s.finished(ObservationKind::ToolResult);
    })
    .unwrap();
    let step = state.step().unwrap();
    assert_eq!((step.status, step.starts, step.attempts), (StepStatus::Done, 1, 1));
    assert_eq!((state.run.step_count, state.run.failures, state.run.denials), (1, 0, 0));
}

#[test]
fn nothing_starts_without_a_verdict_or_against_one() {
    refused("step.started", |s| {
        s.step_opened();
        s.proposed(b"{}");
        s.started();
    });
    let deny =
        Verdict::Deny { reason: portcullis_domain::refusal::Refusal::ClassDenied, rules: vec![] };
    refused("step.started", |s| {
        s.step_opened();
        s.proposed(b"{}");
        s.judged(deny);
        s.started();
    });
    refused("step.started", |s| {
        s.step_opened();
        s.proposed(b"{}");
        s.judged(ask());
        s.started();
    });
}

/// A judged step whose host is then told so.
fn told(s: &mut Scenario, verdict: Verdict, advice: Advice) {
    s.step_opened();
    s.proposed(b"{}");
    s.judged(verdict);
    s.advised(advice);
}

#[test]
fn a_host_is_told_the_verdict_and_nothing_else() {
    for (verdict, advice) in [(allow(), Advice::Allow), (ask(), Advice::Ask)] {
        let state = after(|s| {
            told(s, verdict, advice);
            s.run_finished(EndReason::GoalCompleted);
        })
        .unwrap();
        let step = state.step().unwrap();
        assert_eq!((step.status, step.starts), (StepStatus::Advised, 0));
        assert!(step.started_at.is_none() && step.observation.is_none());
        assert_eq!(state.run.status, RunStatus::Completed);
    }
    let deny =
        Verdict::Deny { reason: portcullis_domain::refusal::Refusal::ClassDenied, rules: vec![] };
    for (verdict, advice) in [
        (ask(), Advice::Allow),
        (allow(), Advice::Ask),
        (deny.clone(), Advice::Allow),
        (deny, Advice::Ask),
    ] {
        refused("step.advised", |s| told(s, verdict, advice));
    }
}

#[test]
fn what_a_host_was_told_ends_its_run_at_once_and_was_never_started() {
    refused("step.advised", |s| {
        s.step_opened();
        s.proposed(b"{}");
        s.judged(allow());
        s.started();
        s.advised(Advice::Allow);
    });
    let owed = |next: fn(&mut Scenario)| {
        after(|s| {
            told(s, allow(), Advice::Allow);
            next(s);
        })
        .unwrap_err()
    };
    let nexts: [fn(&mut Scenario); 4] = [
        |s| s.started(),
        |s| s.finished(ObservationKind::ToolResult),
        |s| s.step_opened(),
        |s| s.run_finished(EndReason::GoalFailed),
    ];
    for next in nexts {
        assert_eq!(owed(next), FoldError::Owed("run.finished"));
    }
    assert_eq!(after(|s| told(s, allow(), Advice::Allow)).unwrap().complete(), {
        Err(FoldError::Owed("run.finished"))
    });
}

#[test]
fn a_host_is_told_yes_after_a_question_only_by_use_of_its_grant() {
    let granted = |s: &mut Scenario| {
        waiting(s);
        s.answered("ann", Answer::Approve);
        s.lease_acquired(LeaseCause::Free);
        s.judged(ask());
    };
    let state = after(|s| {
        granted(s);
        s.used();
        s.advised(Advice::Allow);
        s.run_finished(EndReason::GoalCompleted);
    })
    .unwrap();
    assert_eq!(state.question.unwrap().status, QuestionStatus::Used);
    refused("step.advised", |s| {
        granted(s);
        s.advised(Advice::Allow);
    });
    // A question of ours is not handed on to somebody whom nobody knows.
    refused("step.advised", |s| {
        granted(s);
        s.advised(Advice::Ask);
    });
    refused("step.advised", |s| {
        waiting(s);
        s.lease_acquired(LeaseCause::Free);
        s.judged(allow());
        s.advised(Advice::Allow);
    });
}

#[test]
fn a_question_that_was_asked_needs_its_grant_even_if_the_policy_now_allows() {
    refused("step.started", |s| {
        waiting(s);
        s.lease_acquired(LeaseCause::Free);
        s.judged(allow());
        s.started();
    });
}

#[test]
fn a_grant_is_used_once() {
    let used = |s: &mut Scenario| {
        waiting(s);
        s.answered("ann", Answer::Approve);
        s.lease_acquired(LeaseCause::Free);
        s.judged(ask());
        s.used();
    };
    assert_eq!(after(used).unwrap().question.unwrap().status, QuestionStatus::Used);
    refused("approval.used", |s| {
        used(s);
        s.started();
        s.used();
    });
    refused("approval.used", |s| {
        waiting(s);
        s.lease_acquired(LeaseCause::Free);
        s.used();
    });
}

#[test]
fn only_the_latest_question_of_a_step_can_grant() {
    refused("question.answered", |s| {
        waiting(s);
        let first = s.question;
        s.asked(QuestionKind::Approval, 1);
        s.question = first;
        s.answered("ann", Answer::Approve);
    });
}

#[test]
fn one_person_is_one_person() {
    refused("question.answered", |s| {
        s.step_opened();
        s.proposed(b"{}");
        s.judged(ask());
        s.asked(QuestionKind::Approval, 2);
        s.answered("ann", Answer::Approve);
        s.answered("ann", Answer::Approve);
    });
    let two = after(|s| {
        s.step_opened();
        s.proposed(b"{}");
        s.judged(ask());
        s.asked(QuestionKind::Approval, 2);
        s.answered("ann", Answer::Approve);
        s.answered("ben", Answer::Approve);
    });
    assert_eq!(two.unwrap().question.unwrap().status, QuestionStatus::Granted);
}

#[test]
fn an_answer_fits_its_question() {
    refused("question.answered", |s| {
        waiting(s);
        s.answered("ann", Answer::Happened);
    });
    refused("question.answered", |s| {
        waiting(s);
        s.answered("ann", Answer::Approve);
        s.answered("ben", Answer::Reject);
    });
}

#[test]
fn waiting_releases_the_lease_and_names_its_question() {
    let state = after(waiting).unwrap();
    assert_eq!(state.run.status, RunStatus::Waiting);
    assert_eq!(state.run.holder, None);
    assert_eq!(state.run.question, state.question.as_ref().map(|q| q.id));
}

#[test]
fn the_end_is_the_end_but_for_late_outcomes() {
    let ended = |s: &mut Scenario| {
        s.step_opened();
        s.proposed(b"{}");
        s.judged(allow());
        s.started();
        s.run_finished(EndReason::OperatorCancelled);
    };
    let state = after(ended).unwrap();
    assert_eq!(state.run.status, RunStatus::Cancelled);
    assert_eq!(state.step().unwrap().status, StepStatus::Interrupted);
    refused("step.finished", |s| {
        ended(s);
        s.finished(ObservationKind::ToolResult);
    });
    let before = after(ended).unwrap();
    let mut with_late = after(|s| {
        ended(s);
        s.outcome_late();
    })
    .unwrap();
    assert_eq!(with_late.run.seq, before.run.seq + 1);
    (with_late.run.seq, with_late.run.hash) = (before.run.seq, before.run.hash);
    assert_eq!(with_late, before, "a late outcome changes nothing but the chain");
}

#[test]
fn an_epoch_is_one_more_than_the_last() {
    refused("lease.acquired", |s| {
        s.epoch = portcullis_domain::lease::Epoch(7);
        s.lease_acquired(LeaseCause::Expired);
    });
}

#[test]
fn an_open_step_blocks_the_next_one() {
    refused("step.opened", |s| {
        s.step_opened();
        s.step_opened();
    });
}

#[test]
fn judging_again_is_counted() {
    let state = after(|s| {
        s.step_opened();
        s.proposed(b"{}");
        s.lease_acquired(LeaseCause::Expired);
        s.lease_acquired(LeaseCause::HolderDead);
    })
    .unwrap();
    assert_eq!(state.step().unwrap().attempts, 3);
}

#[test]
fn a_gap_and_a_foreign_stream_are_refused() {
    let state = after(|s| s.step_opened()).unwrap();
    let mut other = scenario();
    other.step_opened();
    let events = other.driver(Durability::Written).events;
    let mut gap = chained(Some(&state), events.last().unwrap());
    gap.link.stream_seq += 1;
    assert_eq!(state.clone().apply(&gap), Err(FoldError::NotNext));
    let mut foreign = chained(Some(&state), events.last().unwrap());
    foreign.link.stream = Stream::from(StepRun::other());
    assert!(matches!(state.clone().apply(&foreign), Err(FoldError::WrongStream(_))));
}

/// Another run than the scenario's.
struct StepRun;

impl StepRun {
    fn other() -> portcullis_domain::id::RunId {
        portcullis_domain::id::RunId::from_bytes([9; 16])
    }
}

#[test]
fn loops_of_one_and_of_two_are_seen_at_the_threshold() {
    let one = |times: usize| {
        after(|s| {
            for _ in 0..times {
                s.step_opened();
                s.proposed(b"{}");
                s.judged(allow());
                s.started();
                s.finished(ObservationKind::ToolResult);
            }
        })
        .unwrap()
    };
    assert_eq!(one(2).cycle(&one(2).run.limits), None);
    assert_eq!(one(3).cycle(&one(3).run.limits), Some(1));
    let mut state = one(1);
    let (a, b) = ((Digest::ZERO, Digest::ZERO), (Digest::ZERO, payload_digest(b"b")));
    state.recent = [a, b, a, b, a].into_iter().map(Some).collect();
    assert_eq!(state.cycle(&state.run.limits), None);
    state.recent.push_back(Some(b));
    assert_eq!(state.cycle(&state.run.limits), Some(2));
    state.recent.push_back(None);
    assert_eq!(state.cycle(&state.run.limits), None, "an invalid proposal breaks the streak");
}

#[test]
fn the_wrong_place_is_refused() {
    let mut fresh = scenario();
    let events = fresh.driver(Durability::Written).events;
    let first = events.iter().find(|e| matches!(e.body, Body::RunCreated(_))).unwrap();
    let lease = events.iter().find(|e| matches!(e.body, Body::LeaseAcquired(_))).unwrap();
    assert!(matches!(
        RunState::begin(&chained(None, lease)),
        Err(FoldError::WrongPlace("lease.acquired"))
    ));
    let state = RunState::begin(&chained(None, first)).unwrap();
    let again = chained(Some(&state), first);
    assert_eq!(state.clone().apply(&again), Err(FoldError::NotAdmitted("run.created")));
    let _ = StepId::PREFIX;
}

#[test]
fn nothing_comes_back_from_a_call_that_was_never_started() {
    for kind in
        [ObservationKind::ToolResult, ObservationKind::ToolError, ObservationKind::Interrupted]
    {
        refused("step.finished", |s| {
            s.step_opened();
            s.proposed(b"{}");
            s.finished(kind);
        });
        refused("step.finished", |s| {
            s.step_opened();
            s.proposed(b"{}");
            s.judged(allow());
            s.finished(kind);
        });
        refused("step.finished", |s| {
            waiting(s);
            s.finished(kind);
        });
    }
    refused("step.finished", |s| {
        s.step_opened();
        s.proposed(b"{}");
        s.finished(ObservationKind::Denied);
    });
}

#[test]
fn an_outcome_is_asked_only_of_a_call_that_was_started_and_an_approval_only_where_the_policy_asks()
{
    refused("question.asked", |s| {
        waiting(s);
        s.asked(QuestionKind::UnknownOutcome, 1);
    });
    refused("question.asked", |s| {
        s.step_opened();
        s.proposed(b"{}");
        s.judged(allow());
        s.asked(QuestionKind::Approval, 1);
    });
}

#[test]
fn an_answer_and_a_use_that_come_too_late_do_not_fold() {
    let hour = std::time::Duration::from_secs(3_600);
    let late = |by: std::time::Duration| {
        after(|s| {
            s.question_ttl = Some(hour);
            waiting(s);
            s.tick(by);
            s.answered("ann", Answer::Approve);
        })
    };
    assert!(late(hour).is_ok(), "at that instant it still holds");
    let late = late(hour + std::time::Duration::from_micros(1));
    assert_eq!(late, Err(FoldError::NotAdmitted("question.answered")));

    let used = |by: std::time::Duration| {
        let mut scenario = Scenario::new(1, InstanceId::from_bytes([1; 16]));
        scenario.limits.grant_ttl_ms = Some(3_600_000);
        scenario.run_created();
        scenario.lease_acquired(LeaseCause::Begin);
        waiting(&mut scenario);
        scenario.answered("ann", Answer::Approve);
        scenario.tick(by);
        scenario.lease_acquired(LeaseCause::Free);
        scenario.judged(ask());
        scenario.used();
        fold(&mut scenario, None).map(drop)
    };
    assert_eq!(used(hour), Ok(()));
    let late = used(hour + std::time::Duration::from_micros(1));
    assert_eq!(late, Err(FoldError::NotAdmitted("approval.used")));
}

#[test]
fn letting_a_lease_go_is_no_death() {
    let state = after(|s| {
        s.step_opened();
        s.proposed(b"{}");
        s.lease_released();
        s.lease_acquired(LeaseCause::Free);
        s.lease_released();
        s.lease_acquired(LeaseCause::Free);
    });
    assert_eq!(state.unwrap().step().unwrap().attempts, 1);
}
