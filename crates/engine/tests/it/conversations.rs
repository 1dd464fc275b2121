//! What is counted of a conversation beside the calls of a proxy: batches, advice, calls that are made again, keys that are
//! erased, and gates that have no bounds of their own.

use std::sync::Arc;
use std::time::Duration;

use portcullis_domain::approval::Answer;
use portcullis_domain::event::Body;
use portcullis_domain::id::ThreadId;
use portcullis_domain::limits::Limits;
use portcullis_domain::ports::{BoxFuture, Clock as _, Store as _, StoreError, ToolOutput};
use portcullis_domain::question::{Card, QuestionStatus};
use portcullis_domain::refusal::Refusal;
use portcullis_domain::tally::{Counted, Tally, ThreadLimit, ThreadLimits};
use portcullis_domain::thread::conversation;
use portcullis_domain::tool::EffectClass;
use portcullis_engine::{Attached, GateError, HeldRun, Progress, Reconcile, Reconciled};
use portcullis_policy::Outcome;
use portcullis_testkit::block_on;

use crate::unknown::poll_once;
use crate::world::{Does, World, ask, call, turn};

const NONE: ThreadLimits = ThreadLimits::NONE;

fn world(limits: ThreadLimits) -> World {
    let mut world = World::new();
    world.conversation = Some(limits);
    world
}

fn thread() -> ThreadId {
    conversation("ann", "test", "one")
}

/// A run of the conversation.
fn begin(world: &World) -> HeldRun {
    let task = world.task(Limits { max_steps: 100, loop_threshold: 32, ..Limits::default() });
    block_on(world.gate(1).begin_on(world.scope(), thread(), task)).unwrap()
}

fn tally(world: &World) -> Option<Tally> {
    block_on(world.store.thread(world.scope(), thread())).unwrap().unwrap().tally
}

fn refusal(world: &World, held: &HeldRun, step: u64) -> Option<Refusal> {
    world.step(held.run(), step).observation.and_then(|seen| seen.refusal)
}

#[test]
fn a_run_goes_on_after_a_call_that_a_limit_refused() {
    let world = world(ThreadLimits { max_changes: Some(1), ..NONE });
    let mut held = begin(&world);
    for n in 0..3 {
        assert_eq!(turn(&mut held, call("write", n)), Progress::Observed);
        assert_eq!(block_on(held.step()).unwrap(), Progress::Open);
    }
    assert_eq!(turn(&mut held, call("look", 1)), Progress::Observed);
    assert_eq!(refusal(&world, &held, 1), Some(Refusal::ThreadChanges));
    assert_eq!((world.tools.effects("write"), world.tools.effects("look")), (1, 1));
    let counts = tally(&world).unwrap();
    assert_eq!((counts.calls, counts.changes, counts.denials), (2, 1, 0));
}

#[test]
fn of_calls_that_come_together_each_is_counted_and_none_is_made_when_one_is_too_many() {
    let both = br#"{"kind":"tool_calls","calls":[{"tool":"look","arguments":{"n":1}},{"tool":"look","arguments":{"n":2}}]}"#;
    let world = world(ThreadLimits { max_calls: Some(3), ..NONE });
    let mut held = begin(&world);
    assert_eq!(turn(&mut held, both.to_vec()), Progress::Observed);
    assert_eq!(tally(&world).unwrap().calls, 2);
    assert_eq!(block_on(held.step()).unwrap(), Progress::Open);
    assert_eq!(turn(&mut held, both.to_vec()), Progress::Observed);
    assert_eq!(refusal(&world, &held, 2), Some(Refusal::ThreadCalls));
    assert_eq!((world.tools.effects("look"), tally(&world).unwrap().calls), (2, 2));
}

#[test]
fn a_gate_without_bounds_counts_where_it_was_counted_before() {
    let mut world = world(ThreadLimits { max_changes: Some(2), ..NONE });
    let mut held = begin(&world);
    assert_eq!(turn(&mut held, call("write", 1)), Progress::Observed);
    drop(held);
    world.conversation = None;
    let mut held = begin(&world);
    for n in 2..=3 {
        assert_eq!(turn(&mut held, call("write", n)), Progress::Observed);
        assert_eq!(block_on(held.step()).unwrap(), Progress::Open);
    }
    assert_eq!((world.tools.effects("write"), tally(&world).unwrap().changes), (2, 2));
    // The control: where nothing was, nothing is.
    let mut alone = world.begin();
    assert_eq!(turn(&mut alone, call("write", 1)), Progress::Observed);
    let counted = |body: &&Body| matches!(body, Body::ThreadCounted(_));
    assert_eq!(world.bodies().iter().filter(counted).count(), 2);
}

#[test]
fn a_call_that_a_person_has_made_again_is_counted_once() {
    let world = world(ThreadLimits { max_changes: Some(1), ..NONE });
    let mut held = begin(&world);
    let run = held.run();
    world.tools.first("write", Does::Unknown);
    assert!(matches!(turn(&mut held, call("write", 1)), Progress::Waiting(_)));
    world.answer("ann", &world.question(run), Answer::RunAgain).unwrap();
    // Whatever is counted, what a person says settles what is not known.
    let (mut held, progress) = world.take(2, run);
    assert_eq!(progress, Progress::Allowed);
    assert_eq!(block_on(held.execute()).unwrap(), Progress::Observed);
    assert_eq!((world.tools.effects("write"), tally(&world).unwrap().changes), (2, 1));
}

#[test]
fn what_a_person_rejects_in_another_process_is_counted() {
    let world = world(ThreadLimits { max_denials: Some(9), ..NONE });
    let mut held = begin(&world);
    let run = held.run();
    ask(&mut held, "send");
    world.answer("ann", &world.question(run), Answer::Reject).unwrap();
    let counts = tally(&world).unwrap();
    assert_eq!((counts.questions, counts.denials, counts.calls), (1, 1, 0));
}

#[test]
fn results_are_compared_over_runs_under_one_key_and_not_once_it_is_erased() {
    let world = world(ThreadLimits { loop_threshold: Some(2), ..NONE });
    let look = |expected: u32| {
        let mut held = begin(&world);
        assert_eq!(turn(&mut held, call("look", 1)), Progress::Observed);
        assert_eq!(world.tools.effects("look"), expected);
        held
    };
    look(1);
    look(2);
    let refused = look(2);
    assert_eq!(refusal(&world, &refused, 0), Some(Refusal::ThreadLoop));
    let counts = tally(&world).unwrap();
    let key = counts.key.unwrap();
    assert_eq!(counts.recent.len(), 2);
    // No digest in the record is that of a run which has the key of another.
    let requests = counts.recent.iter().map(|returned| returned.request);
    assert!(requests.clone().all(|request| request == counts.recent[0].request));
    block_on(world.store.erase(world.scope(), key.digest, "ann", world.clock.now())).unwrap();
    look(3);
    let counts = tally(&world).unwrap();
    assert_ne!(counts.key.unwrap(), key, "a key that is gone is replaced");
    assert_eq!(counts.recent.len(), 1);
}

#[test]
fn the_key_stands_in_the_first_count_of_a_window_alone() {
    let world = world(ThreadLimits { loop_threshold: Some(3), ..NONE });
    let keys = || {
        let key = |body: &Body| match body {
            Body::ThreadCounted(body) => match body.counted {
                Counted::Call(counting) => counting.trace.map(|trace| trace.key.is_some()),
                _ => None,
            },
            _ => None,
        };
        world.bodies().iter().filter_map(key).collect::<Vec<_>>()
    };
    for n in 0..2 {
        turn(&mut begin(&world), call("look", n));
    }
    assert_eq!(keys(), [true, false]);
    world.clock.advance(std::time::Duration::from_hours(1));
    turn(&mut begin(&world), call("look", 3));
    assert_eq!(keys(), [true, false, true]);
}

#[test]
fn a_call_that_people_said_yes_to_is_no_round_of_the_model() {
    let world = world(ThreadLimits { loop_threshold: Some(2), ..NONE });
    let runs: Vec<_> = (0..3)
        .map(|_| {
            let mut held = begin(&world);
            ask(&mut held, "send");
            held.run()
        })
        .collect();
    for run in &runs {
        world.answer("ann", &world.question(*run), Answer::Approve).unwrap();
    }
    for run in &runs {
        let (mut held, progress) = world.take(2, *run);
        assert_eq!(progress, Progress::Allowed);
        assert_eq!(block_on(held.execute()).unwrap(), Progress::Observed);
    }
    assert_eq!((world.tools.effects("send"), tally(&world).unwrap().recent.len()), (3, 3));
    // Their results are compared, so that nobody is asked for more of the same.
    let mut held = begin(&world);
    assert_eq!(turn(&mut held, call("send", 1)), Progress::Observed);
    assert_eq!(refusal(&world, &held, 0), Some(Refusal::ThreadLoop));
}

#[test]
fn an_approval_is_not_lost_to_the_limit_on_questions_when_the_rules_change() {
    let world = world(ThreadLimits { max_questions: Some(1), window_ms: 1_000, ..NONE });
    let mut held = begin(&world);
    let run = held.run();
    ask(&mut held, "send");
    drop(held);
    world.answer("ann", &world.question(run), Answer::Approve).unwrap();
    let asked = world.question(run);
    // What they said yes to is asked about in another way now, and there is no room to ask.
    world.policy.set(EffectClass::RemoteMutation, Outcome::ask("operator", 2).unwrap());
    let written = world.bodies().len();
    for _ in 0..2 {
        let limited = world.attach(2, run).err().unwrap();
        let limit = ThreadLimit::Questions;
        assert!(
            matches!(limited, GateError::Store(StoreError::ThreadBounded { limit: l }) if l == limit)
        );
    }
    let kept = world.question(run);
    assert_eq!((kept.id, kept.status), (asked.id, QuestionStatus::Granted));
    assert_eq!((world.bodies().len(), world.tools.effects("send")), (written, 0));
    // With room again those are asked who have to be now.
    world.clock.advance(Duration::from_secs(2));
    assert!(matches!(world.attach(3, run).unwrap(), Attached::Waiting(other) if other != asked.id));
    assert_eq!(world.tools.effects("send"), 0);
}

#[test]
fn an_approval_that_a_limit_kept_counts_when_the_rules_are_as_they_were() {
    let world = world(ThreadLimits { max_questions: Some(1), ..NONE });
    let asks = Outcome::ask("operator", 1).unwrap();
    world.policy.set(EffectClass::RemoteMutation, asks.clone());
    let mut held = begin(&world);
    let run = held.run();
    ask(&mut held, "send");
    drop(held);
    world.answer("ann", &world.question(run), Answer::Approve).unwrap();
    world.policy.set(EffectClass::RemoteMutation, Outcome::ask("operator", 2).unwrap());
    assert!(world.attach(2, run).is_err());
    world.policy.set(EffectClass::RemoteMutation, asks);
    let (mut held, progress) = world.take(3, run);
    assert_eq!(progress, Progress::Allowed);
    assert_eq!(block_on(held.execute()).unwrap(), Progress::Observed);
    assert_eq!(world.tools.effects("send"), 1);
}

#[test]
fn rules_that_change_under_a_held_run_do_not_lose_an_approval_either() {
    let world = world(ThreadLimits { max_questions: Some(1), ..NONE });
    let mut held = begin(&world);
    let run = held.run();
    ask(&mut held, "send");
    drop(held);
    world.answer("ann", &world.question(run), Answer::Approve).unwrap();
    let (mut held, _) = world.take(2, run);
    world.policy.set(EffectClass::RemoteMutation, Outcome::ask("operator", 2).unwrap());
    let limited = block_on(held.execute()).unwrap_err();
    assert!(matches!(limited, GateError::Store(StoreError::ThreadBounded { .. })), "{limited}");
    assert_eq!(world.question(run).status, QuestionStatus::Granted);
    assert_eq!(world.tools.effects("send"), 0);
}

#[test]
fn a_result_that_comes_after_its_process_is_compared_too() {
    let world = world(ThreadLimits { loop_threshold: Some(2), ..NONE });
    let mut held = begin(&world);
    let run = held.run();
    world.tools.first("write", Does::Unknown);
    assert!(matches!(turn(&mut held, call("write", 1)), Progress::Waiting(_)));
    drop(held);
    world.answer("ann", &world.question(run), Answer::RunAgain).unwrap();
    let (mut held, _) = world.take(2, run);
    assert_eq!(block_on(held.execute()).unwrap(), Progress::Observed);
    assert_eq!(tally(&world).unwrap().recent.len(), 1);
    drop(held);
    assert_eq!(turn(&mut begin(&world), call("write", 1)), Progress::Observed);
    let mut refused = begin(&world);
    assert_eq!(turn(&mut refused, call("write", 1)), Progress::Observed);
    assert_eq!(refusal(&world, &refused, 0), Some(Refusal::ThreadLoop));
    assert_eq!(world.tools.effects("write"), 3);
}

/// Knows that it happened, and what came of it.
struct Knows;

impl Reconcile for Knows {
    fn reconcile(&self, _: &Card) -> BoxFuture<'_, Reconciled> {
        Box::pin(async {
            Reconciled::Happened(ToolOutput { content: b"{}".to_vec(), labels: None })
        })
    }
}

#[test]
fn a_result_that_is_found_for_a_dead_process_is_compared_too() {
    let mut world = world(ThreadLimits { loop_threshold: Some(2), ..NONE });
    let mut held = begin(&world);
    let run = held.run();
    world.tools.first("write", Does::Hang);
    assert_eq!(block_on(held.propose(call("write", 1))).unwrap(), Progress::Allowed);
    let mut executing = Box::pin(held.execute());
    poll_once(&mut executing);
    while world.tools.effects("write") == 0 {
        std::thread::yield_now();
    }
    std::mem::forget(executing);
    std::mem::forget(held);
    world.kill(1);
    world.reconcile = Some(Arc::new(Knows));
    let (_, progress) = world.take(2, run);
    assert_eq!(progress, Progress::Observed);
    assert_eq!(tally(&world).unwrap().recent.len(), 1);
    world.tools.let_go();
}
