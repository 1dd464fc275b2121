//! What is counted of a conversation beside the calls of a proxy: batches, advice, calls that are made again, keys that are
//! erased, and gates that have no bounds of their own.

use portcullis_domain::approval::Answer;
use portcullis_domain::event::Body;
use portcullis_domain::id::ThreadId;
use portcullis_domain::limits::Limits;
use portcullis_domain::ports::{Clock as _, Store as _};
use portcullis_domain::refusal::Refusal;
use portcullis_domain::tally::{Counted, Tally, ThreadLimits};
use portcullis_domain::thread::conversation;
use portcullis_engine::{HeldRun, Progress};
use portcullis_testkit::block_on;

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
