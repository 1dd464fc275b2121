//! Taking over: who counts as the holder, what is recorded of it, and what a takeover leaves as it was.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use portcullis_domain::event::{Body, LeaseCause};
use portcullis_domain::limits::Limits;
use portcullis_domain::observation::{Failure, ObservationKind};
use portcullis_domain::ports::{BoxFuture, Clock, StoreError, ToolOutput};
use portcullis_domain::question::Card;
use portcullis_domain::run::EndReason;
use portcullis_domain::step::StepStatus;
use portcullis_engine::{Attached, GateError, Progress, Reconcile, Reconciled};
use portcullis_testkit::block_on;

use crate::unknown::crashed;
use crate::world::{World, call, turn};

/// How each lease was taken, in order.
fn causes(world: &World) -> Vec<LeaseCause> {
    let bodies = world.bodies().into_iter();
    bodies
        .filter_map(|body| match body {
            Body::LeaseAcquired(acquired) => Some(acquired.cause),
            _ => None,
        })
        .collect()
}

#[test]
fn the_same_process_is_refused_like_any_other() {
    let world = World::new();
    let held = world.begin();
    let before = world.bodies().len();
    // Same process, same identity, another gate: it does not share the lease.
    let second = world.attach(1, held.run());
    assert!(matches!(second, Err(GateError::Store(StoreError::Leased { .. }))));
    assert_eq!(world.bodies().len(), before);
}

#[test]
fn of_many_that_take_a_free_run_up_one_holds_it() {
    let world = World::new();
    let held = world.begin();
    let run = held.run();
    block_on(held.close()).unwrap();
    let held: Vec<_> = std::thread::scope(|scope| {
        let world = &world;
        // All in one process, as an embedding host would have them.
        let tries: Vec<_> = (0..8).map(|_| scope.spawn(move || world.attach(2, run))).collect();
        tries.into_iter().filter_map(|tried| tried.join().unwrap().ok()).collect()
    });
    assert_eq!(held.len(), 1);
    assert_eq!(causes(&world), [LeaseCause::Begin, LeaseCause::Free]);
}

#[test]
fn every_takeover_is_in_the_record_ones_own_expired_lease_included() {
    let world = World::new();
    let mut first = world.begin();
    let run = first.run();
    world.clock.jump(world.clock.now().after(Duration::from_secs(31)));
    // The same process, whose own lease ran out.
    let (second, progress) = world.take(1, run);
    assert_eq!(progress, Progress::Open);
    assert_eq!(causes(&world), [LeaseCause::Begin, LeaseCause::Expired]);
    let lost = block_on(first.propose(call("write", 1)));
    assert!(matches!(lost, Err(GateError::Store(StoreError::LeaseLost))), "{lost:?}");
    assert_eq!(world.tools.effects("write"), 0);
    std::mem::forget(second);
    world.kill(1);
    world.take(3, run);
    assert_eq!(causes(&world)[2..], [LeaseCause::HolderDead]);
}

/// Counts how often it was asked, and answers the same each time.
struct Asked(AtomicU32, Reconciled);

impl Reconcile for Asked {
    fn reconcile(&self, _: &Card) -> BoxFuture<'_, Reconciled> {
        self.0.fetch_add(1, Ordering::SeqCst);
        Box::pin(async { self.1.clone() })
    }
}

#[test]
fn nobody_is_asked_about_the_outcome_of_a_step_that_only_decided() {
    let mut world = World::new();
    let hook = Arc::new(Asked(AtomicU32::new(0), Reconciled::DidNotHappen));
    world.reconcile = Some(Arc::<Asked>::clone(&hook));
    let mut held = world.begin();
    let run = held.run();
    assert_eq!(block_on(held.propose(call("write", 1))).unwrap(), Progress::Allowed);
    std::mem::forget(held);
    world.kill(1);
    let (mut held, progress) = world.take(2, run);
    assert_eq!((progress, hook.0.load(Ordering::SeqCst)), (Progress::Allowed, 0));
    assert_eq!(block_on(held.execute()).unwrap(), Progress::Observed);
    assert_eq!((world.tools.effects("write"), world.step(run, 0).starts), (1, 1));

    // The control: a call that was started is looked up.
    let mut world = World::new();
    world.reconcile = Some(Arc::<Asked>::clone(&hook));
    let run = crashed(&world, "write");
    world.take(2, run);
    assert_eq!(hook.0.load(Ordering::SeqCst), 1);
}

#[test]
fn a_reconciled_result_is_read_as_strictly_as_a_tools_own() {
    let huge = format!("\"{}\"", "x".repeat(5_000));
    for (content, kind, failure, cut) in [
        (&br#"{"found": 1}"#[..], ObservationKind::ToolResult, None, false),
        (b"", ObservationKind::ToolResult, None, false),
        (b"<html>", ObservationKind::ToolError, Some(Failure::InvalidContent), false),
        (b"{\"a\":1,\"a\":2}", ObservationKind::ToolError, Some(Failure::InvalidContent), false),
        (b"\"\\ud800\"", ObservationKind::ToolError, Some(Failure::InvalidContent), false),
        (huge.as_bytes(), ObservationKind::ToolResult, None, true),
    ] {
        let mut world = World::new();
        let run = crashed(&world, "write");
        let output = ToolOutput { content: content.to_vec(), labels: None };
        let hook = Asked(AtomicU32::new(0), Reconciled::Happened(output));
        world.reconcile = Some(Arc::new(hook));
        assert_eq!(world.take(2, run).1, Progress::Observed);
        let step = world.step(run, 0);
        let seen = step.observation.unwrap();
        let shown = String::from_utf8_lossy(content);
        assert_eq!((seen.kind, seen.failure, seen.cut), (kind, failure, cut), "{shown}");
        assert!(seen.labels.is_external(), "{shown}");
        assert_eq!(world.tools.effects("write"), 1, "{shown}");
    }
}

#[test]
fn a_crash_while_deciding_shifts_no_window() {
    // The loop detector: the step is decided once more, and counts once.
    let world = World::new();
    let mut held = world.begin_with(Limits { loop_threshold: 3, ..Limits::default() });
    let run = held.run();
    turn(&mut held, call("look", 7));
    turn(&mut held, call("look", 7));
    assert_eq!(block_on(held.propose(call("look", 7))).unwrap(), Progress::Allowed);
    std::mem::forget(held);
    world.kill(1);
    let (mut held, _) = world.take(2, run);
    // What an agent that was started anew is shown: the same steps, in their places.
    let view = block_on(held.view(true)).unwrap();
    assert_eq!(view.request, 2);
    assert_eq!(view.history.iter().map(|step| step.request).collect::<Vec<_>>(), [0, 1]);
    assert_eq!(block_on(held.execute()).unwrap(), Progress::Ended(EndReason::LoopDetected));
    assert_eq!(world.state(run).run.step_count, 3);
}

#[test]
fn a_read_that_was_cut_off_keeps_its_place_in_the_window() {
    let world = World::new();
    let run = crashed(&world, "look");
    let (mut held, progress) = world.take(2, run);
    assert_eq!(progress, Progress::Observed);
    assert_eq!(world.step(run, 0).status, StepStatus::Interrupted);
    for _ in 0..2 {
        assert_eq!(turn(&mut held, call("look", 1)), Progress::Observed);
    }
    let view = block_on(held.view(true)).unwrap();
    let outcomes: Vec<&str> = view.history.iter().map(|step| step.outcome.as_str()).collect();
    assert_eq!(outcomes, ["interrupted", "tool_result", "tool_result"]);
    block_on(held.close()).unwrap();
    assert!(matches!(world.attach(3, run).unwrap(), Attached::Held(_, Progress::Open)));
}
