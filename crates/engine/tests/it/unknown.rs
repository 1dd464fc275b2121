//! Unknown outcomes: crash, timeout, panic, lost connection. Nothing runs again by itself.

use std::sync::Arc;

use portcullis_domain::approval::Answer;
use portcullis_domain::label::{Labels, Name, Origin};
use portcullis_domain::observation::{Failure, ObservationKind};
use portcullis_domain::ports::Store;
use portcullis_domain::ports::{BoxFuture, ToolOutput};
use portcullis_domain::question::{Card, QuestionKind};
use portcullis_domain::run::{EndReason, RunStatus};
use portcullis_domain::step::StepStatus;
use portcullis_domain::tool::EffectClass;
use portcullis_engine::operator::Answered;
use portcullis_engine::{Attached, Progress, Reconcile, Reconciled};
use portcullis_policy::Outcome;
use portcullis_testkit::block_on;

use crate::world::{DEADLINE, Does, FakeTools, World, call, turn, until};

/// A run whose process died between the intent of `tool` and its outcome.
pub(crate) fn crashed(world: &World, tool: &str) -> portcullis_domain::id::RunId {
    world.tools.set(tool, Does::Hang);
    let mut held = world.begin();
    let run = held.run();
    assert_eq!(block_on(held.propose(call(tool, 1))).unwrap(), Progress::Allowed);
    let mut executing = Box::pin(async move { held.execute().await });
    poll_once(&mut executing);
    while world.tools.effects(tool) == 0 {
        std::thread::yield_now();
    }
    std::mem::forget(executing);
    world.kill(1);
    world.tools.set(tool, Does::Answer(b"{}".to_vec()));
    run
}

pub(crate) fn poll_once<F: Future>(future: &mut std::pin::Pin<Box<F>>) {
    let mut task = std::task::Context::from_waker(std::task::Waker::noop());
    assert!(future.as_mut().poll(&mut task).is_pending());
}

#[test]
fn a_crash_during_a_change_waits_for_a_person() {
    let world = World::new();
    let run = crashed(&world, "write");
    assert!(matches!(world.attach(2, run).unwrap(), Attached::Waiting(_)));
    let question = world.question(run);
    assert_eq!(question.kind, QuestionKind::UnknownOutcome);
    assert_eq!(world.state(run).run.status, RunStatus::Waiting);
    assert_eq!(world.tools.effects("write"), 1);
}

#[test]
fn it_happened_goes_on_with_what_the_person_says() {
    let world = World::new();
    let run = crashed(&world, "write");
    world.attach(2, run).unwrap();
    let question = world.question(run);
    let result = world.content(br#"{"id": 7}"#);
    let signed = world.signed_with("ann", &question, Answer::Happened, Some(result));
    let answered =
        block_on(portcullis_engine::operator::answer(&world.parts(9), world.scope(), signed))
            .unwrap();
    assert_eq!(answered, Answered::GoesOn);
    let step = world.step(run, 0);
    assert_eq!(step.status, StepStatus::Done);
    let labels = step.observation.unwrap().labels;
    assert_eq!(labels, Labels::of(Origin::Person(Name::new("ann").unwrap())));
    assert_eq!(world.observed(run, 0).to_canonical_string(), r#"{"id":7}"#);
    assert_eq!(world.take(3, run).1, Progress::Open);
    assert_eq!(world.tools.effects("write"), 1);
}

#[test]
fn it_did_not_happen_is_a_failure_that_the_agent_sees() {
    let world = World::new();
    let run = crashed(&world, "write");
    world.attach(2, run).unwrap();
    world.answer("ann", &world.question(run), Answer::DidNotHappen).unwrap();
    assert_eq!(world.step(run, 0).observation.unwrap().failure, Some(Failure::DidNotHappen));
    assert_eq!(world.take(3, run).1, Progress::Open);
    assert_eq!(world.tools.effects("write"), 1);
}

#[test]
fn run_it_again_runs_it_once_more_on_the_same_step() {
    let world = World::new();
    let run = crashed(&world, "write");
    world.attach(2, run).unwrap();
    assert_eq!(
        world.answer("ann", &world.question(run), Answer::RunAgain).unwrap(),
        Answered::Granted
    );
    let (mut held, progress) = world.take(3, run);
    assert_eq!(progress, Progress::Allowed);
    assert_eq!(block_on(held.execute()).unwrap(), Progress::Observed);
    assert_eq!((world.tools.effects("write"), world.step(run, 0).starts), (2, 2));
}

#[test]
fn a_crash_during_a_read_goes_on_by_itself() {
    let world = World::new();
    let run = crashed(&world, "look");
    let (_held, progress) = world.take(2, run);
    assert_eq!(progress, Progress::Observed);
    let step = world.step(run, 0);
    assert_eq!(step.status, StepStatus::Interrupted);
    assert_eq!(step.observation.unwrap().kind, ObservationKind::Interrupted);
}

#[track_caller]
fn asks(tool: &str, does: Does) {
    let world = World::with_tools(FakeTools::new(false));
    world.tools.set(tool, does.clone());
    let mut held = world.begin();
    let run = held.run();
    let progress = turn(&mut held, call(tool, 1));
    assert!(matches!(progress, Progress::Waiting(_)), "{does:?}: {progress:?}");
    assert_eq!(world.question(run).kind, QuestionKind::UnknownOutcome);
    assert!(world.step(run, 0).observation.is_none());
}

#[test]
fn a_panic_or_a_lost_connection_in_a_change_is_a_question() {
    asks("write", Does::Panic);
    asks("write", Does::Unknown);
}

#[test]
fn a_change_past_its_deadline_is_a_question_and_its_answer_is_late() {
    let world = World::new();
    world.tools.set("write", Does::Hang);
    let mut held = world.begin();
    let run = held.run();
    let progress = std::thread::scope(|scope| {
        let executing = scope.spawn(|| turn(&mut held, call("write", 1)));
        world.pass_deadline(DEADLINE, || world.tools.effects("write") > 0);
        executing.join().unwrap()
    });
    assert!(matches!(progress, Progress::Waiting(_)));
    world.tools.let_go();
    until(|| world.count("outcome.late") == 1);
    assert_eq!(
        world.question(run).kind,
        QuestionKind::UnknownOutcome,
        "a late outcome answers nothing"
    );
}

#[test]
fn abandoned_calls_take_their_places_and_then_calls_are_refused() {
    let world = World::new();
    world.tools.set("look", Does::Hang);
    for before in 0..2 {
        let mut held = world.begin();
        let run = held.run();
        std::thread::scope(|scope| {
            scope.spawn(|| turn(&mut held, call("look", 1)));
            world.pass_deadline(DEADLINE, || world.tools.effects("look") > before);
        });
        assert_eq!(world.step(run, 0).observation.unwrap().failure, Some(Failure::Timeout));
    }
    let mut held = world.begin();
    let run = held.run();
    turn(&mut held, call("look", 1));
    let refusal = world.step(run, 0).observation.unwrap().refusal;
    assert_eq!(refusal, Some(portcullis_domain::refusal::Refusal::NoCapacity));
    assert_eq!(world.tools.effects("look"), 2);
    world.tools.let_go();
}

struct Found(Reconciled);

impl Reconcile for Found {
    fn reconcile(&self, _card: &Card) -> BoxFuture<'_, Reconciled> {
        Box::pin(async { self.0.clone() })
    }
}

#[test]
fn a_reconciliation_answers_in_a_persons_place() {
    let output = ToolOutput { content: br#"{"found":1}"#.to_vec(), labels: None };
    for (found, expected) in [
        (Reconciled::Happened(output), Some(StepStatus::Done)),
        (Reconciled::DidNotHappen, Some(StepStatus::Failed)),
        (Reconciled::Unknown, None),
    ] {
        let mut world = World::new();
        let run = crashed(&world, "write");
        world.reconcile = Some(Arc::new(Found(found.clone())));
        match (world.attach(2, run).unwrap(), expected) {
            (Attached::Held(_, Progress::Observed), Some(status)) => {
                assert_eq!(world.step(run, 0).status, status)
            }
            (Attached::Waiting(_), None) => {}
            _ => panic!("{found:?}"),
        }
        assert_eq!(world.tools.effects("write"), 1);
    }
    let mut world = World::new();
    let run = crashed(&world, "write");
    world.reconcile = Some(Arc::new(Found(Reconciled::Conflict)));
    assert!(matches!(world.attach(2, run).unwrap(), Attached::Ended(EndReason::ReconcileConflict)));
}

/// Panics at once, or in its future.
struct Panics {
    at_once: bool,
}

impl Reconcile for Panics {
    fn reconcile(&self, _card: &Card) -> BoxFuture<'_, Reconciled> {
        assert!(!self.at_once, "as planned");
        Box::pin(async { panic!("as planned") })
    }
}

#[test]
fn a_reconciliation_that_panics_leaves_the_question_to_a_person() {
    for at_once in [true, false] {
        let mut world = World::new();
        let run = crashed(&world, "write");
        world.reconcile = Some(Arc::new(Panics { at_once }));
        assert!(matches!(world.attach(2, run).unwrap(), Attached::Waiting(_)), "{at_once}");
        assert_eq!(world.question(run).kind, QuestionKind::UnknownOutcome);
    }
}

#[test]
fn a_step_whose_decision_ends_its_process_twice_ends_the_run() {
    let world = World::new();
    let mut held = world.begin();
    let run = held.run();
    assert_eq!(block_on(held.propose(call("write", 1))).unwrap(), Progress::Allowed);
    std::mem::forget(held);
    world.kill(1);
    let (second, progress) = world.take(2, run);
    assert_eq!(progress, Progress::Allowed);
    std::mem::forget(second);
    world.kill(2);
    assert!(matches!(world.attach(3, run).unwrap(), Attached::Ended(EndReason::DeciderCrashed)));
    assert_eq!(world.tools.effects("write"), 0);
}

#[test]
fn run_again_needs_everybody_that_the_call_needed() {
    let world = World::new();
    world.policy.set(EffectClass::LocalMutation, Outcome::ask("operator", 2).unwrap());
    let mut task = world.task(portcullis_domain::limits::Limits::default());
    task.owner = "zoe".to_owned();
    let mut held = block_on(world.gate(1).begin(world.scope(), task)).unwrap();
    let run = held.run();
    crate::world::ask(&mut held, "write");
    world.answer("ann", &world.question(run), Answer::Approve).unwrap();
    world.answer("ben", &world.question(run), Answer::Approve).unwrap();
    world.tools.set("write", Does::Unknown);
    let (mut held, _) = world.take(2, run);
    assert!(matches!(block_on(held.execute()).unwrap(), Progress::Waiting(_)));
    let question = world.question(run);
    assert_eq!((question.kind, question.reviewers.count), (QuestionKind::UnknownOutcome, 2));
    assert_eq!(
        world.answer("ann", &question, Answer::RunAgain).unwrap(),
        Answered::MoreNeeded { people: 1 }
    );
    assert!(matches!(world.attach(3, run).unwrap(), Attached::Waiting(_)));
    assert_eq!(world.tools.effects("write"), 1);
    assert_eq!(world.answer("ben", &question, Answer::RunAgain).unwrap(), Answered::Granted);
    world.tools.set("write", Does::Answer(b"{}".to_vec()));
    let (mut held, _) = world.take(3, run);
    assert_eq!(block_on(held.execute()).unwrap(), Progress::Observed);
    assert_eq!(world.tools.effects("write"), 2);
}

#[test]
fn the_question_says_why_the_outcome_is_not_known() {
    for (does, cause) in [(Does::Panic, Failure::Panic), (Does::Unknown, Failure::LostConnection)] {
        let world = World::with_tools(FakeTools::new(false));
        world.tools.set("write", does);
        let mut held = world.begin();
        let run = held.run();
        turn(&mut held, call("write", 1));
        let question = world.question(run);
        assert_eq!(question.cause, Some(cause));
        let detail = question.detail.unwrap();
        let text = block_on(world.store.content(world.scope(), detail.digest)).unwrap().unwrap();
        assert!(!text.bytes().is_empty());
    }
    let world = World::new();
    let run = crashed(&world, "write");
    world.attach(2, run).unwrap();
    assert_eq!(world.question(run).cause, Some(Failure::Crash));
}

#[test]
fn a_terminal_call_that_happened_completes_its_run_whoever_says_so() {
    let ended = |world: &World, run| world.state(run).run.reason;
    let world = World::new();
    let run = crashed(&world, "finish");
    world.attach(2, run).unwrap();
    let question = world.question(run);
    let signed = world.signed_with("ann", &question, Answer::Happened, Some(world.content(b"{}")));
    let answered =
        block_on(portcullis_engine::operator::answer(&world.parts(9), world.scope(), signed))
            .unwrap();
    assert_eq!(answered, Answered::Ended(EndReason::GoalCompleted));
    assert!(world.state(run).run.result.is_some());

    let mut world = World::new();
    let run = crashed(&world, "finish");
    let output = ToolOutput { content: b"{}".to_vec(), labels: None };
    world.reconcile = Some(Arc::new(Found(Reconciled::Happened(output))));
    assert!(matches!(world.attach(2, run).unwrap(), Attached::Ended(EndReason::GoalCompleted)));
    assert_eq!(ended(&world, run), Some(EndReason::GoalCompleted));
}

#[test]
fn an_outcome_that_was_not_recorded_is_said_and_only_taking_up_goes_on() {
    use portcullis_store::memory::Fault;
    let world = World::new();
    let mut held = world.begin();
    let run = held.run();
    assert_eq!(block_on(held.propose(call("write", 1))).unwrap(), Progress::Allowed);
    world.store.plan([None, Some(Fault::Full)]);
    assert!(block_on(held.execute()).is_err());
    assert!(matches!(block_on(held.step()), Err(portcullis_engine::GateError::Misuse(_))));
    block_on(held.close()).unwrap();
    assert!(matches!(world.attach(1, run).unwrap(), Attached::Waiting(_)));
    assert_eq!(world.tools.effects("write"), 1);
}

#[test]
fn stopping_in_good_order_is_no_crash_however_often() {
    let world = World::new();
    let mut held = world.begin();
    let run = held.run();
    assert_eq!(block_on(held.propose(call("write", 1))).unwrap(), Progress::Allowed);
    block_on(held.close()).unwrap();
    for pid in 2..6 {
        let (held, progress) = world.take(pid, run);
        assert_eq!(progress, Progress::Allowed);
        block_on(held.close()).unwrap();
    }
    let (mut held, _) = world.take(9, run);
    assert_eq!(block_on(held.execute()).unwrap(), Progress::Observed);
}

#[test]
fn an_executing_step_that_is_set_back_in_the_tables_is_not_run_again() {
    use portcullis_domain::row::Cell;
    let world = World::new();
    let run = crashed(&world, "write");
    let step = world.step(run, 0).id;
    let key = [Cell::Blob(step.as_bytes().to_vec())];
    let set_back = world.store.tamper(|raw| {
        raw.set("steps", &key, "status", Cell::Text("deciding".to_owned()))
            && raw.set("steps", &key, "starts", Cell::Int(0))
            && raw.set("steps", &key, "started_at", Cell::Null)
    });
    assert!(set_back.unwrap());
    assert_eq!(world.step(run, 0).status, StepStatus::Deciding, "the control: the table says so");
    assert!(matches!(world.attach(2, run), Err(portcullis_engine::GateError::Approval(_))));
    assert_eq!(world.tools.effects("write"), 1);
}
