//! Questions, answers, and the use of a grant.

use std::time::Duration;

use portcullis_domain::approval::Answer;
use portcullis_domain::limits::Limits;
use portcullis_domain::ports::StoreError;
use portcullis_domain::question::QuestionStatus;
use portcullis_domain::refusal::Refusal;
use portcullis_domain::row::Cell;
use portcullis_domain::run::{EndReason, RunStatus};
use portcullis_domain::step::StepStatus;
use portcullis_domain::tool::EffectClass;
use portcullis_engine::operator::{self, Answered};
use portcullis_engine::{ApprovalFault, Attached, GateError, Progress};
use portcullis_policy::Outcome;
use portcullis_store::memory::Raw;
use portcullis_testkit::block_on;

use crate::world::{World, ask, call};

#[test]
fn a_question_waits_is_answered_elsewhere_and_runs_once() {
    let world = World::new();
    let mut held = world.begin();
    let run = held.run();
    let question = ask(&mut held, "send");
    assert_eq!(world.state(run).run.status, RunStatus::Waiting);
    assert!(matches!(world.attach(2, run).unwrap(), Attached::Waiting(q) if q == question));
    assert_eq!(
        world.answer("ann", &world.question(run), Answer::Approve).unwrap(),
        Answered::Granted
    );
    assert_eq!(world.tools.effects("send"), 0, "answering executes nothing");
    let (mut held, progress) = world.take(2, run);
    assert_eq!(progress, Progress::Allowed);
    assert_eq!(block_on(held.execute()).unwrap(), Progress::Observed);
    assert_eq!(world.tools.effects("send"), 1);
    assert_eq!((world.count("approval.used"), world.count("question.asked")), (1, 1));
}

#[test]
fn a_rejection_ends_the_run_or_is_observed_as_the_rule_says() {
    let world = World::new();
    let mut held = world.begin();
    let run = held.run();
    ask(&mut held, "send");
    let ended = world.answer("ann", &world.question(run), Answer::Reject).unwrap();
    assert_eq!(ended, Answered::Ended(EndReason::ApprovalRejected));
    assert_eq!(world.state(run).run.status, RunStatus::Cancelled);

    world.policy.set(
        EffectClass::RemoteMutation,
        Outcome::ask("operator", 1).unwrap().observing_rejection(),
    );
    let mut held = world.begin();
    let run = held.run();
    ask(&mut held, "send");
    assert_eq!(
        world.answer("ann", &world.question(run), Answer::Reject).unwrap(),
        Answered::GoesOn
    );
    let step = world.step(run, 0);
    assert_eq!(
        (step.status, step.observation.unwrap().refusal),
        (StepStatus::Failed, Some(Refusal::Rejected))
    );
    let (_held, progress) = world.take(2, run);
    assert_eq!(progress, Progress::Open);
    assert_eq!(world.tools.effects("send"), 0);
}

#[test]
fn an_answer_counts_once_for_what_was_shown_and_from_who_may() {
    let world = World::new();
    let mut held = world.begin();
    let run = held.run();
    ask(&mut held, "send");
    let question = world.question(run);
    let try_signed = |signed| block_on(operator::answer(&world.parts(9), world.scope(), signed));

    let mut stale = world.signed("ann", &question, Answer::Approve);
    stale.shown = portcullis_canon::Digest::ZERO;
    assert!(matches!(try_signed(stale), Err(GateError::Store(StoreError::DigestChanged))));

    let visitor = world.signed("eve", &question, Answer::Approve);
    assert!(matches!(try_signed(visitor), Err(GateError::Approval(ApprovalFault::Role))));

    let mut forged = world.signed("ann", &question, Answer::Reject);
    forged.statement.answer = Answer::Approve;
    assert!(matches!(try_signed(forged), Err(GateError::Approval(ApprovalFault::Key(_)))));

    let mut elsewhere = world.signed("ann", &question, Answer::Approve);
    elsewhere.statement.covers = vec![portcullis_canon::Digest::ZERO];
    elsewhere.signature = world.people["ann"].sign(&elsewhere.statement);
    assert!(matches!(try_signed(elsewhere), Err(GateError::Approval(ApprovalFault::Covers))));

    assert_eq!(world.question(run), question, "none of these changed anything");
    assert!(world.answer("ann", &question, Answer::Approve).is_ok());
    let again = world.answer("ben", &question, Answer::Approve);
    let granted = StoreError::QuestionState { status: QuestionStatus::Granted };
    assert!(matches!(again, Err(GateError::Store(error)) if error == granted));
}

#[test]
fn four_eyes_are_two_people_and_not_the_asker() {
    let world = World::new();
    world.policy.set(EffectClass::RemoteMutation, Outcome::ask("operator", 2).unwrap());
    let mut held = world.begin();
    let run = held.run();
    ask(&mut held, "send");
    let question = world.question(run);
    // The run is Ann's own.
    let own = world.answer("ann", &question, Answer::Approve);
    assert!(matches!(own, Err(GateError::Approval(ApprovalFault::People))));
    assert_eq!(
        world.answer("ben", &question, Answer::Approve).unwrap(),
        Answered::MoreNeeded { people: 1 }
    );
    // One word each: neither a second yes nor a no after it, and neither is taken for a fault of the gate.
    for word in [Answer::Approve, Answer::Reject] {
        let second = world.answer("ben", &question, word);
        assert!(matches!(second, Err(GateError::Approval(ApprovalFault::People))), "{word:?}");
    }
    assert!(matches!(world.attach(2, run).unwrap(), Attached::Waiting(_)));
    assert_eq!(world.tools.effects("send"), 0);
}

#[test]
fn a_question_expires_strictly_after_its_time() {
    let limits = Limits { question_ttl_ms: Some(1_000), ..Limits::default() };
    let world = World::new();
    let mut held = world.begin_with(limits.clone());
    let run = held.run();
    ask(&mut held, "send");
    world.clock.advance(Duration::from_millis(1_000));
    assert!(
        world.answer("ann", &world.question(run), Answer::Approve).is_ok(),
        "at that instant it still holds"
    );

    let mut held = world.begin_with(limits.clone());
    let run = held.run();
    ask(&mut held, "send");
    world.clock.advance(Duration::from_micros(1_000_001));
    let late = world.answer("ann", &world.question(run), Answer::Approve);
    let expired = StoreError::QuestionState { status: QuestionStatus::Expired };
    assert!(matches!(late, Err(GateError::Store(error)) if error == expired));
    assert_eq!(world.state(run).run.reason, Some(EndReason::ApprovalExpired));

    let mut held = world.begin_with(limits);
    let run = held.run();
    ask(&mut held, "send");
    world.clock.advance(Duration::from_secs(2));
    assert_eq!(block_on(operator::sweep_due(&world.parts(9), world.scope())).unwrap(), 1);
    assert!(matches!(world.attach(2, run).unwrap(), Attached::Ended(EndReason::ApprovalExpired)));
}

#[test]
fn a_grant_expires_before_and_after_it_was_taken_up() {
    let limits = Limits { grant_ttl_ms: Some(1_000), ..Limits::default() };
    let world = World::new();
    let granted = || {
        let mut held = world.begin_with(limits.clone());
        let run = held.run();
        ask(&mut held, "send");
        world.answer("ann", &world.question(run), Answer::Approve).unwrap();
        run
    };
    let run = granted();
    world.clock.advance(Duration::from_secs(2));
    assert!(matches!(world.attach(2, run).unwrap(), Attached::Ended(EndReason::ApprovalExpired)));

    let run = granted();
    let (mut held, progress) = world.take(2, run);
    assert_eq!(progress, Progress::Allowed);
    world.clock.advance(Duration::from_secs(2));
    assert_eq!(block_on(held.execute()).unwrap(), Progress::Ended(EndReason::ApprovalExpired));
    assert_eq!(world.tools.effects("send"), 0);
}

#[test]
fn a_changed_tool_is_asked_about_again_and_the_old_grant_is_gone() {
    let world = World::new();
    let mut held = world.begin();
    let run = held.run();
    let first = ask(&mut held, "send");
    world.answer("ann", &world.question(run), Answer::Approve).unwrap();
    world.tools.describe("Sends to everybody.");
    let second = match world.attach(2, run).unwrap() {
        Attached::Waiting(question) => question,
        _ => panic!("expected a new question"),
    };
    assert_ne!(first, second);
    assert_eq!(world.tools.effects("send"), 0);
    assert!(matches!(world.attach(2, run).unwrap(), Attached::Waiting(q) if q == second));
    world.answer("ann", &world.question(run), Answer::Approve).unwrap();
    let (mut held, _) = world.take(2, run);
    block_on(held.execute()).unwrap();
    assert_eq!(world.tools.effects("send"), 1);
}

#[test]
fn a_policy_that_now_denies_or_aborts_wins_over_the_grant() {
    let world = World::new();
    let mut held = world.begin();
    let run = held.run();
    ask(&mut held, "send");
    world.answer("ann", &world.question(run), Answer::Approve).unwrap();
    world.policy.set(EffectClass::RemoteMutation, Outcome::Deny);
    let (_held, progress) = world.take(2, run);
    assert_eq!(progress, Progress::Observed);
    assert_eq!(world.step(run, 0).observation.unwrap().refusal, Some(Refusal::ClassDenied));
    assert_eq!(world.tools.effects("send"), 0);
}

#[test]
fn a_policy_that_now_allows_lets_the_granted_call_run() {
    let world = World::new();
    let mut held = world.begin();
    let run = held.run();
    ask(&mut held, "send");
    world.answer("ann", &world.question(run), Answer::Approve).unwrap();
    world.policy.set(EffectClass::RemoteMutation, Outcome::Allow);
    let (mut held, _) = world.take(2, run);
    assert_eq!(block_on(held.execute()).unwrap(), Progress::Observed);
    assert_eq!((world.tools.effects("send"), world.count("approval.used")), (1, 1));
}

#[test]
fn two_that_resume_one_grant_run_it_once() {
    let world = World::new();
    let mut held = world.begin();
    let run = held.run();
    ask(&mut held, "send");
    world.answer("ann", &world.question(run), Answer::Approve).unwrap();
    let outcomes: Vec<bool> = std::thread::scope(|scope| {
        let attempts: Vec<_> = (2..10)
            .map(|pid| {
                let world = &world;
                scope.spawn(move || match world.attach(pid, run) {
                    Ok(Attached::Held(mut held, Progress::Allowed)) => {
                        block_on(held.execute()).is_ok()
                    }
                    _ => false,
                })
            })
            .collect();
        attempts.into_iter().map(|attempt| attempt.join().unwrap()).collect()
    });
    assert_eq!(world.tools.effects("send"), 1);
    assert_eq!(outcomes.iter().filter(|executed| **executed).count(), 1);
}

#[test]
fn a_missing_tool_keeps_the_grant() {
    let world = World::new();
    let mut held = world.begin();
    let run = held.run();
    ask(&mut held, "send");
    world.answer("ann", &world.question(run), Answer::Approve).unwrap();
    let mut parts = world.parts(2);
    parts.tools = std::sync::Arc::default();
    let before = world.bodies().len();
    let missing = block_on(portcullis_engine::Gate::new(parts).attach(world.scope(), run));
    assert!(matches!(missing, Err(GateError::ToolMissing(tool)) if tool == "send"));
    assert_eq!(world.bodies().len(), before);
    assert_eq!(world.take(2, run).1, Progress::Allowed);
}

/// Grants a question in the table alone, as somebody with an editor would.
fn grant_in_the_table(raw: &mut Raw, question: &portcullis_domain::question::Question) {
    let key = [Cell::Blob(question.id.as_bytes().to_vec())];
    assert!(raw.set("questions", &key, "status", Cell::Text("granted".to_owned())));
    assert!(raw.set("questions", &key, "yes", Cell::Int(1)));
    assert!(raw.set("questions", &key, "granted_at", Cell::Int(question.asked_at.micros())));
}

#[test]
fn a_grant_that_nobody_signed_never_runs() {
    let world = World::new();
    let mut held = world.begin();
    let run = held.run();
    ask(&mut held, "send");
    let question = world.question(run);
    world.store.tamper(|raw| grant_in_the_table(raw, &question)).unwrap();
    assert_eq!(
        world.question(run).status,
        QuestionStatus::Granted,
        "the control: the table says yes"
    );
    let forged = world.attach(2, run);
    assert!(matches!(forged, Err(GateError::Approval(ApprovalFault::State))));
    assert_eq!(world.tools.effects("send"), 0);
}

#[test]
fn a_used_grant_that_is_set_back_in_the_tables_never_runs_again() {
    let world = World::new();
    let mut held = world.begin();
    let run = held.run();
    ask(&mut held, "send");
    world.answer("ann", &world.question(run), Answer::Approve).unwrap();
    let granted = world.store.tamper(|raw| raw.rows.clone()).unwrap();
    let (mut held, _) = world.take(2, run);
    block_on(held.execute()).unwrap();
    block_on(held.close()).unwrap();
    assert_eq!(world.tools.effects("send"), 1);
    // All the state tables as they were before the grant was used: the control is that they say so.
    world.store.tamper(|raw| raw.rows = granted).unwrap();
    assert_eq!(world.question(run).status, QuestionStatus::Granted);
    let third = world.attach(3, run).map(drop);
    assert!(third.is_err(), "{third:?}");
    // And with the end of the stream as it is now.
    let (seq, hash) = last_of(&world, run);
    world
        .store
        .tamper(|raw| {
            let key = [Cell::Blob(run.as_bytes().to_vec())];
            assert!(
                raw.set("runs", &key, "seq", Cell::Int(seq))
                    && raw.set("runs", &key, "hash", Cell::Blob(hash))
            );
        })
        .unwrap();
    let fourth = world.attach(4, run).map(drop);
    assert!(
        matches!(fourth, Err(GateError::Approval(ApprovalFault::State))),
        "{third:?} {fourth:?}"
    );
    assert_eq!(world.tools.effects("send"), 1);
}

/// Sequence and hash of the last event of a run's stream.
fn last_of(world: &World, run: portcullis_domain::id::RunId) -> (i64, Vec<u8>) {
    use portcullis_domain::ports::{EventFilter, MAX_PAGE, Store};
    let filter = EventFilter { stream: Some(run.into()), after: 0, limit: MAX_PAGE };
    let events = block_on(world.store.events(world.scope(), filter)).unwrap();
    let last = events.last().unwrap();
    (last.stream_seq, last.hash.clone())
}

#[test]
fn two_runs_of_a_thread_share_labels_and_a_read_beside_a_decision_is_seen() {
    let world = World::new();
    let mut first = world.begin();
    let thread = world.state(first.run()).run.thread;
    let mut task = world.task(portcullis_domain::limits::Limits::default());
    task.thread = Some(thread);
    let mut second = block_on(world.gate(1).begin(world.scope(), task)).unwrap();
    assert_eq!(block_on(first.propose(call("write", 1))).unwrap(), Progress::Allowed);
    crate::world::turn(&mut second, call("look", 1));
    // What the second run read taints the thread; the first run's decision is made again with it.
    assert_eq!(block_on(first.execute()).unwrap(), Progress::Observed);
    let judged = world.bodies().into_iter().filter_map(|body| match body {
        portcullis_domain::event::Body::StepJudged(judged) if judged.admitted.tool == "write" => {
            Some(judged)
        }
        _ => None,
    });
    assert_eq!(judged.map(|j| j.facts.label_seq).collect::<Vec<_>>(), [1]);
    crate::world::turn(&mut second, call("look", 2));
    crate::world::turn(&mut first, call("look", 3));
    assert_eq!(world.count("thread.labelled"), 2);
}

#[test]
fn cancel_ends_a_waiting_run_and_its_question() {
    let world = World::new();
    let mut held = world.begin();
    let run = held.run();
    ask(&mut held, "send");
    block_on(operator::cancel(&world.parts(9), world.scope(), run, "ann", Some("enough"))).unwrap();
    assert_eq!(world.state(run).run.reason, Some(EndReason::OperatorCancelled));
    assert_eq!(world.question(run).status, QuestionStatus::Withdrawn);
    let late = world.answer("ann", &world.question(run), Answer::Approve);
    assert!(late.is_err());
    let again = block_on(operator::cancel(&world.parts(9), world.scope(), run, "ann", None));
    let ended = StoreError::RunState { status: RunStatus::Cancelled };
    assert!(matches!(again, Err(GateError::Store(error)) if error == ended));
}

#[test]
fn a_grant_whose_key_was_revoked_is_asked_about_again() {
    let mut world = World::new();
    let mut held = world.begin();
    let run = held.run();
    let first = ask(&mut held, "send");
    world.answer("ann", &world.question(run), Answer::Approve).unwrap();
    world.revoke("ann");
    let second = match world.attach(2, run).unwrap() {
        Attached::Waiting(question) => question,
        _ => panic!("expected a new question"),
    };
    assert_ne!(first, second);
    assert_eq!(world.tools.effects("send"), 0);
    world.answer("ben", &world.question(run), Answer::Approve).unwrap();
    let (mut held, _) = world.take(2, run);
    block_on(held.execute()).unwrap();
    assert_eq!(world.tools.effects("send"), 1);
}

#[test]
fn an_old_statement_is_not_taken() {
    let world = World::new();
    let mut held = world.begin();
    let run = held.run();
    ask(&mut held, "send");
    let signed = world.signed("ann", &world.question(run), Answer::Approve);
    world.clock.advance(Duration::from_secs(301));
    let old = block_on(operator::answer(&world.parts(9), world.scope(), signed.clone()));
    assert!(matches!(old, Err(GateError::Approval(ApprovalFault::Time))));
    let fresh = world.signed("ann", &world.question(run), Answer::Approve);
    assert!(block_on(operator::answer(&world.parts(9), world.scope(), fresh)).is_ok());
}

#[test]
fn a_grant_is_kept_when_there_is_no_place_for_the_call() {
    use crate::world::Does;
    let world = World::new();
    let mut held = world.begin();
    let run = held.run();
    ask(&mut held, "send");
    world.answer("ann", &world.question(run), Answer::Approve).unwrap();
    let (mut held, _) = world.take(2, run);
    // Both places are taken by calls that hang.
    world.tools.set("look", Does::Hang);
    std::thread::scope(|scope| {
        for _ in 0..2 {
            let mut other = world.begin();
            scope.spawn(move || crate::world::turn(&mut other, call("look", 1)));
        }
        while world.tools.effects("look") < 2 {
            std::thread::yield_now();
        }
        assert!(matches!(block_on(held.execute()), Err(GateError::NoCapacity)));
        assert_eq!(world.count("approval.used"), 0);
        world.tools.let_go();
    });
    world.spawn.wait_places();
    assert_eq!(block_on(held.execute()).unwrap(), Progress::Observed);
    assert_eq!(world.tools.effects("send"), 1);
}
