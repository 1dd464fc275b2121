//! Appends whose answer is lost, and holders that are too slow to look: what was stored is neither recorded a second
//! time nor taken for somebody else's.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use portcullis_domain::observation::ObservationKind;
use portcullis_domain::ports::StoreError;
use portcullis_domain::run::EndReason;
use portcullis_engine::{Attached, Gate, GateError, HeldRun, Progress};
use portcullis_store::memory::Fault;
use portcullis_testkit::block_on;
use portcullis_testkit::crash::CrashStore;

use crate::world::{World, call};

/// A gate whose process is stopped, for longer than its lease, right after its append of this number was stored; another
/// process takes the run up meanwhile.
fn overtaken_after(world: &World, append: u64) -> (Gate, Arc<Mutex<Option<HeldRun>>>) {
    let taken = Arc::new(Mutex::new(None));
    let (mut parts, other, scope) = (world.parts(1), world.gate(2), world.scope().clone());
    let (store, clock, keep) = (parts.store.clone(), world.clock.clone(), Arc::clone(&taken));
    let aim = format!("append:{append}:after");
    let witnessed = CrashStore::new(parts.store.clone(), || {}).witnessed(move |sight| {
        if sight.moment.to_string() != aim {
            return;
        }
        let page = portcullis_domain::ports::Page { offset: 0, limit: 1 };
        let runs = block_on(store.runs(&scope, None, page)).unwrap().rows;
        let now = portcullis_domain::ports::Clock::now(&clock);
        clock.jump(now.after(Duration::from_secs(31)));
        match block_on(other.attach(&scope, runs[0].as_ref().unwrap().id)).unwrap() {
            Attached::Held(held, _) => *keep.lock().unwrap() = Some(held),
            Attached::Waiting(_) | Attached::Child(_) | Attached::Ended(_) => {
                panic!("nobody can take it up")
            }
        }
    });
    parts.store = Arc::new(witnessed);
    (Gate::new(parts), taken)
}

/// Lets short waits pass until the work is done: what is tried again is, and nobody looks whether a call is still waited
/// for, which is each second.
fn while_time_passes<T>(world: &World, work: impl FnOnce() -> T) -> T {
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !done.load(Ordering::SeqCst) {
                match world.clock.next_wake() {
                    Some(wait) if wait <= Duration::from_millis(500) => world.clock.advance(wait),
                    _ => std::thread::yield_now(),
                }
            }
        });
        let result = work();
        done.store(true, Ordering::SeqCst);
        result
    })
}

#[test]
fn a_run_that_another_took_before_its_beginner_looked_is_not_the_beginners() {
    let world = World::new();
    let (gate, taken) = overtaken_after(&world, 1);
    let begun = block_on(gate.begin(world.scope(), world.task(Default::default())));
    assert!(matches!(begun.err(), Some(GateError::Store(StoreError::LeaseLost))));
    let mut second = taken.lock().unwrap().take().unwrap();
    assert_eq!(block_on(second.propose(call("write", 1))).unwrap(), Progress::Allowed);
    assert_eq!(block_on(second.execute()).unwrap(), Progress::Observed);
    assert_eq!(world.tools.effects("write"), 1);
}

#[test]
fn a_proposal_in_doubt_that_is_stored_is_judged_and_not_recorded_again() {
    let world = World::new();
    let mut held = world.begin();
    world.store.plan([Some(Fault::AfterCommit)]);
    assert_eq!(block_on(held.propose(call("write", 1))).unwrap(), Progress::Allowed);
    assert_eq!(block_on(held.execute()).unwrap(), Progress::Observed);
    assert_eq!((world.count("step.proposed"), world.tools.effects("write")), (1, 1));
}

#[test]
fn a_proposal_that_could_not_be_judged_is_no_observation() {
    let world = World::new();
    let mut held = world.begin();
    let run = held.run();
    world.store.plan([None, Some(Fault::Full)]);
    let judged = block_on(held.propose(b"{".to_vec()));
    assert!(matches!(judged, Err(GateError::Store(StoreError::Full))));
    // A host that takes another turn is told to attach again, instead of the same for ever.
    for _ in 0..2 {
        assert!(matches!(block_on(held.step()), Err(GateError::Misuse(_))));
    }
    block_on(held.close()).unwrap();
    assert_eq!(world.take(2, run).1, Progress::Observed);
}

#[test]
fn an_outcome_in_doubt_that_is_stored_is_not_recorded_as_late_too() {
    let world = World::new();
    // Begin, proposal, intent, outcome.
    let (gate, taken) = overtaken_after(&world, 4);
    let mut held = block_on(gate.begin(world.scope(), world.task(Default::default()))).unwrap();
    let run = held.run();
    assert_eq!(block_on(held.propose(call("write", 1))).unwrap(), Progress::Allowed);
    world.store.plan([None, Some(Fault::AfterCommit)]);
    let executed = while_time_passes(&world, || block_on(held.execute()));
    assert!(matches!(executed, Err(GateError::Store(StoreError::LeaseLost))));
    let step = world.step(run, 0);
    assert_eq!(step.observation.unwrap().kind, ObservationKind::ToolResult);
    assert_eq!((world.count("outcome.late"), world.tools.effects("write")), (0, 1));
    let mut second = taken.lock().unwrap().take().unwrap();
    let done = br#"{"kind":"complete","result":null}"#.to_vec();
    let ended = block_on(second.propose(done)).unwrap();
    assert_eq!(ended, Progress::Ended(EndReason::GoalCompleted));
}
