//! Leases: one driver at a time, fenced by epoch, taken over with proof or after the term.

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use portcullis_domain::approval::Answer;
use portcullis_domain::event::{Body, OutcomeLate};
use portcullis_domain::id::{RunId, StepId};
use portcullis_domain::label::Labels;
use portcullis_domain::lease::Epoch;
use portcullis_domain::limits::Limits;
use portcullis_domain::observation::{Failure, Observation, ObservationKind};
use portcullis_domain::permit::Permit;
use portcullis_domain::ports::{
    Append, BoxFuture, Clock, Condition, Durability, NewEvent, Policy, PolicyFailure, ProposedCall,
    Store, StoreError, ToolFailure, ToolOutput, ToolSource,
};
use portcullis_domain::question::QuestionKind;
use portcullis_domain::run::EndReason;
use portcullis_domain::scope::Scope;
use portcullis_domain::step::StepStatus;
use portcullis_domain::time::Timestamp;
use portcullis_domain::tool::{EffectClass, ToolSpec};
use portcullis_domain::verdict::{Facts, PolicyId, Verdict};
use portcullis_engine::operator::{self, Answered};
use portcullis_engine::{Attached, Gate, GateError, Progress, Tools};
use portcullis_store::memory::{Fault, MemoryStore};
use portcullis_testkit::block_on;
use portcullis_testkit::crash::CrashStore;
use portcullis_testkit::ports::ManualClock;

use crate::world::{Does, FakeTools, World, call, turn, until};

#[test]
fn a_live_lease_is_refused_without_a_write() {
    let world = World::new();
    let held = world.begin();
    let before = world.bodies().len();
    let refused = world.attach(2, held.run());
    assert!(matches!(refused, Err(GateError::Store(StoreError::Leased { .. }))));
    assert_eq!(world.bodies().len(), before);
}

#[test]
fn proof_of_death_takes_over_at_once() {
    let world = World::new();
    let held = world.begin();
    let run = held.run();
    std::mem::forget(held);
    assert!(world.attach(2, run).is_err());
    world.kill(1);
    assert_eq!(world.take(2, run).1, Progress::Open);
}

#[test]
fn a_lease_that_nobody_prolongs_ends() {
    let world = World::new();
    let held = world.begin();
    let run = held.run();
    // The clock jumps past the term before the holder's heartbeat can run.
    world.clock.jump(world.clock.now().after(Duration::from_secs(31)));
    assert_eq!(world.take(2, run).1, Progress::Open);
    drop(held);
}

#[test]
fn an_overtaken_driver_can_store_nothing_and_starts_nothing() {
    let world = World::new();
    let mut held = world.begin();
    let run = held.run();
    assert_eq!(block_on(held.propose(call("write", 1))).unwrap(), Progress::Allowed);
    world.kill(1);
    let (mut second, progress) = world.take(2, run);
    assert_eq!(progress, Progress::Allowed, "the recorded proposal is judged again");
    let before = world.bodies().len();
    assert!(matches!(block_on(held.execute()), Err(GateError::Store(StoreError::LeaseLost))));
    assert_eq!((world.bodies().len(), world.tools.effects("write")), (before, 0));
    assert_eq!(block_on(second.execute()).unwrap(), Progress::Observed);
    assert_eq!(world.tools.effects("write"), 1);
}

#[test]
fn an_expired_lease_starts_no_effect() {
    let world = World::new();
    let mut held = world.begin();
    assert_eq!(block_on(held.propose(call("write", 1))).unwrap(), Progress::Allowed);
    world.clock.jump(world.clock.now().after(Duration::from_secs(31)));
    assert!(matches!(block_on(held.execute()), Err(GateError::Store(StoreError::LeaseLost))));
    assert_eq!(world.tools.effects("write"), 0);
}

#[test]
fn closing_and_dropping_let_the_lease_go() {
    let world = World::new();
    let held = world.begin();
    let run = held.run();
    block_on(held.close()).unwrap();
    assert_eq!(world.count("lease.released"), 1);
    let (held, progress) = world.take(2, run);
    assert_eq!(progress, Progress::Open);
    drop(held);
    // The release runs beside us.
    until(|| world.count("lease.released") == 2);
    assert_eq!(world.take(3, run).1, Progress::Open);
}

#[test]
fn the_heartbeat_prolongs_a_lease_past_its_term() {
    let world = World::new();
    let mut held = world.begin();
    let run = held.run();
    for _ in 0..6 {
        asleep(&world);
        world.clock.advance(Duration::from_secs(10));
    }
    asleep(&world);
    assert!(matches!(world.attach(2, run), Err(GateError::Store(StoreError::Leased { .. }))));
    assert_eq!(turn(&mut held, call("write", 1)), Progress::Observed);
}

/// Waits until the heartbeat sleeps, and lets it wake once. Nobody else may sleep meanwhile.
#[track_caller]
fn beat(world: &World) {
    asleep(world);
    world.clock.advance(Duration::from_secs(10));
}

/// Lets hanging calls answer also when the test has failed, so that it ends.
struct LetGo<'a>(&'a FakeTools);

impl Drop for LetGo<'_> {
    fn drop(&mut self) {
        self.0.let_go();
    }
}

/// The tool is polled in the run's own task and does not return, so its deadline of 5 seconds is not seen there. The
/// other tasks have threads of their own.
#[test]
fn a_poll_that_never_returns_does_not_keep_the_lease() {
    let world = World::with_tools(FakeTools::new(false));
    world.tools.set("write", Does::Hang);
    let mut held = world.begin();
    let run = held.run();
    assert_eq!(block_on(held.propose(call("write", 1))).unwrap(), Progress::Allowed);
    std::thread::scope(|scope| {
        let let_go = LetGo(&world.tools);
        let executing = scope.spawn(|| block_on(held.execute()));
        while world.tools.effects("write") == 0 {
            std::thread::yield_now();
        }
        // Deadline and margin are over after 35 seconds: the first three beats prolong, the fourth does not.
        for _ in 0..3 {
            beat(&world);
        }
        let leased = world.attach(2, run);
        assert!(matches!(leased, Err(GateError::Store(StoreError::Leased { .. }))), "the control");
        beat(&world);
        world.clock.advance(Duration::from_secs(21));
        let Attached::Waiting(asked) = world.attach(2, run).unwrap() else { panic!("not asked") };
        let (question, step) = (world.question(run), world.step(run, 0));
        assert_eq!((question.id, question.kind), (asked, QuestionKind::UnknownOutcome));

        drop(let_go);
        let late = executing.join().unwrap();
        assert!(matches!(late, Err(GateError::Store(StoreError::LeaseLost))), "{late:?}");
        assert_eq!(world.count("outcome.late"), 1);
        assert_eq!((world.question(run), world.step(run, 0)), (question, step));
    });
    let question = world.question(run);
    assert_eq!(world.answer("ann", &question, Answer::Happened).unwrap(), Answered::GoesOn);
    assert_eq!(world.take(3, run).1, Progress::Open);
    assert_eq!(world.tools.effects("write"), 1);
}

#[test]
fn a_call_that_came_back_is_not_waited_for_any_more() {
    let world = World::with_tools(FakeTools::new(false));
    let mut held = world.begin();
    assert_eq!(turn(&mut held, call("write", 1)), Progress::Observed);
    for _ in 0..6 {
        beat(&world);
    }
    let refused = world.attach(2, held.run());
    assert!(matches!(refused, Err(GateError::Store(StoreError::Leased { .. }))));
    assert_eq!(turn(&mut held, call("write", 2)), Progress::Observed);
}

#[test]
fn a_run_cancelled_during_a_call_stays_cancelled_and_the_outcome_is_late() {
    let world = World::new();
    world.tools.set("write", Does::Hang);
    let mut held = world.begin();
    let run = held.run();
    let progress = std::thread::scope(|scope| {
        let executing = scope.spawn(|| turn(&mut held, call("write", 1)));
        while world.tools.effects("write") == 0 {
            std::thread::yield_now();
        }
        block_on(operator::cancel(&world.parts(9), world.scope(), run, "ann", None)).unwrap();
        world.tools.let_go();
        executing.join().unwrap()
    });
    assert_eq!(progress, Progress::Ended(EndReason::OperatorCancelled));
    let names: Vec<_> = world.bodies().iter().map(portcullis_domain::event::Body::name).collect();
    let finished = names.iter().position(|name| *name == "run.finished").unwrap();
    let late = names.iter().position(|name| *name == "outcome.late").unwrap();
    assert!(finished < late);
    let before = world.step(run, 0);
    assert!(before.observation.is_none());
    assert!(matches!(world.attach(2, run).unwrap(), Attached::Ended(EndReason::OperatorCancelled)));
}

#[test]
fn an_outcome_after_the_term_is_late_though_nobody_took_the_run_up() {
    let world = World::new();
    world.tools.set("write", Does::Hang);
    let mut held = world.begin();
    let run = held.run();
    assert_eq!(block_on(held.propose(call("write", 1))).unwrap(), Progress::Allowed);
    std::thread::scope(|scope| {
        let let_go = LetGo(&world.tools);
        let executing = scope.spawn(|| block_on(held.execute()));
        while world.tools.effects("write") == 0 {
            std::thread::yield_now();
        }
        // The process was stopped: nobody renewed, and nobody else has looked at the run yet.
        world.clock.jump(world.clock.now().after(Duration::from_secs(60)));
        drop(let_go);
        let late = executing.join().unwrap();
        assert!(matches!(late, Err(GateError::Store(StoreError::LeaseLost))), "{late:?}");
    });
    assert_eq!((world.count("outcome.late"), world.count("step.finished")), (1, 0));
    assert_eq!(world.step(run, 0).status, StepStatus::Executing);
    assert!(matches!(world.attach(2, run).unwrap(), Attached::Waiting(_)));
    assert_eq!(world.tools.effects("write"), 1);
}

/// Lets the heartbeat beat, and waits until its renewal was answered as planned.
#[track_caller]
pub(crate) fn beat_as_planned(world: &World) {
    let planned = world.store.planned_renewals();
    beat(world);
    until(|| world.store.planned_renewals() < planned);
}

/// Waits until the heartbeat has taken its answer in and sleeps again.
#[track_caller]
pub(crate) fn asleep(world: &World) {
    until(|| world.clock.next_wake().is_some());
}

#[test]
fn a_call_that_may_outlast_the_lease_needs_renewals_that_work() {
    let tools = FakeTools::new(false);
    let long = tools.spec("long", EffectClass::LocalMutation, false);
    tools.add(ToolSpec { deadline_ms: 25_000, ..long });
    let world = World::with_tools(tools);
    world.store.plan_renewals([Some(Fault::BeforeCommit), None]);
    let mut held = world.begin();
    // Ten of thirty seconds have passed, and the renewal has failed.
    beat_as_planned(&world);
    asleep(&world);
    assert_eq!(turn(&mut held, call("write", 1)), Progress::Observed, "five seconds are left");
    assert_eq!(block_on(held.propose(call("long", 1))).unwrap(), Progress::Allowed);
    let refused = block_on(held.execute());
    assert!(matches!(refused, Err(GateError::Uncovered)), "{refused:?}");
    assert_eq!(world.tools.effects("long"), 0);
    beat_as_planned(&world);
    asleep(&world);
    assert_eq!(block_on(held.execute()).unwrap(), Progress::Observed);
    assert_eq!(world.tools.effects("long"), 1);
}

/// A gate to whose store the append of this number takes as long as `during` does.
pub(crate) fn slow_at(
    world: &World,
    append: u64,
    during: impl Fn() + Send + Sync + 'static,
) -> Gate {
    let mut parts = world.parts(1);
    let aim = format!("append:{append}:after");
    let witnessed = CrashStore::new(parts.store.clone(), || {}).witnessed(move |sight| {
        if sight.moment.to_string() == aim {
            during();
        }
    });
    parts.store = Arc::new(witnessed);
    Gate::new(parts)
}

#[test]
fn the_first_term_runs_since_the_lease_was_asked_for() {
    let world = World::new();
    let clock = world.clock.clone();
    // The store takes 25 of the 30 seconds to begin the run.
    let gate = slow_at(&world, 1, move || clock.advance(Duration::from_secs(25)));
    let task = world.task(portcullis_domain::limits::Limits::default());
    let mut held = block_on(gate.begin(world.scope(), task)).unwrap();
    // Renewed at once, and not ten seconds later, when it would be over.
    beat(&world);
    asleep(&world);
    assert_eq!(turn(&mut held, call("write", 1)), Progress::Observed);
    let refused = world.attach(2, held.run());
    assert!(matches!(refused, Err(GateError::Store(StoreError::Leased { .. }))));
}

#[test]
fn a_commit_that_took_the_term_with_it_lets_no_call_begin() {
    let tools = FakeTools::new(false);
    let long = tools.spec("long", EffectClass::LocalMutation, false);
    tools.add(ToolSpec { deadline_ms: 25_000, ..long });
    let world = World::with_tools(tools);
    world.store.plan_renewals([Some(Fault::BeforeCommit)]);
    let (store, clock) = (world.store.clone(), world.clock.clone());
    // Begin, proposal, intent: that takes 10 of 30 seconds, and the renewal meanwhile fails.
    let gate = slow_at(&world, 3, move || {
        clock.advance(Duration::from_secs(10));
        while store.planned_renewals() > 0 || clock.next_wake().is_none() {
            std::thread::yield_now();
        }
    });
    let task = world.task(portcullis_domain::limits::Limits::default());
    let mut held = block_on(gate.begin(world.scope(), task)).unwrap();
    let run = held.run();
    assert_eq!(block_on(held.propose(call("long", 1))).unwrap(), Progress::Allowed);
    asleep(&world);
    assert_eq!(block_on(held.execute()).unwrap(), Progress::Observed);
    assert_eq!((world.tools.effects("long"), world.count("step.started")), (0, 1));
    let step = world.step(run, 0);
    assert_eq!(
        (step.status, step.observation.unwrap().failure),
        (StepStatus::Failed, Some(Failure::Error))
    );
}

#[test]
fn a_heartbeat_whose_term_is_over_renews_no_more() {
    let world = World::new();
    // Three renewals get through though their answers are lost; the fourth comes after the term that is known of.
    let lost = Some(Fault::AfterCommit);
    world.store.plan_renewals([lost, lost, lost, Some(Fault::BeforeCommit), None]);
    let held = world.begin();
    let run = held.run();
    for _ in 0..4 {
        beat_as_planned(&world);
    }
    // It would sleep for its next beat at once.
    for _ in 0..100 {
        std::thread::sleep(Duration::from_millis(1));
        assert_eq!(world.clock.next_wake(), None, "the heartbeat goes on");
    }
    world.clock.advance(Duration::from_secs(21));
    assert_eq!(world.take(2, run).1, Progress::Open);
    assert_eq!(world.store.planned_renewals(), 1);
    drop(held);
}

/// Has something recorded in the run while it decides, once.
struct Overtaken {
    policy: Arc<dyn Policy>,
    world: (MemoryStore, Scope, Timestamp),
    during: Mutex<Option<(RunId, StepId)>>,
    decided: AtomicU32,
}

impl Policy for Overtaken {
    fn id(&self) -> PolicyId {
        self.policy.id()
    }

    fn decide(&self, call: &ProposedCall<'_>, facts: &Facts) -> Result<Verdict, PolicyFailure> {
        self.decided.fetch_add(1, Ordering::SeqCst);
        if let Some((run, step)) = self.during.lock().unwrap().take() {
            let (store, scope, at) = &self.world;
            let observation = Observation {
                kind: ObservationKind::ToolResult,
                failure: None,
                refusal: None,
                content: None,
                fingerprint: None,
                labels: Labels::none(),
                cut: false,
            };
            let body = Body::OutcomeLate(OutcomeLate { epoch: Epoch(1), observation });
            let event = NewEvent { stream: run.into(), step: Some(step), at: *at, body };
            let append = Append {
                condition: Condition::Late,
                events: vec![event],
                contents: Vec::new(),
                specs: Vec::new(),
                durability: Durability::Synced,
            };
            block_on(store.append(scope, append)).unwrap();
        }
        self.policy.decide(call, facts)
    }
}

#[test]
fn what_is_recorded_while_the_policy_decides_makes_it_decide_again() {
    let world = World::new();
    let policy = Arc::new(Overtaken {
        policy: world.policy.clone(),
        world: (world.store.clone(), world.scope().clone(), world.clock.now()),
        during: Mutex::default(),
        decided: AtomicU32::new(0),
    });
    let mut parts = world.parts(1);
    parts.policy = policy.clone();
    let task = world.task(portcullis_domain::limits::Limits::default());
    let mut held = block_on(Gate::new(parts).begin(world.scope(), task)).unwrap();
    let run = held.run();
    assert_eq!(block_on(held.propose(call("write", 1))).unwrap(), Progress::Allowed);
    *policy.during.lock().unwrap() = Some((run, world.step(run, 0).id));
    assert_eq!(block_on(held.execute()).unwrap(), Progress::Observed);
    assert_eq!(policy.decided.load(Ordering::SeqCst), 3, "proposed, overtaken, and again");
    let names: Vec<_> = world.bodies().iter().map(Body::name).collect();
    let place = |wanted| names.iter().position(|name| *name == wanted).unwrap();
    assert!(place("outcome.late") < place("step.judged"), "{names:?}");
    assert_eq!((world.count("step.started"), world.tools.effects("write")), (1, 1));
}

/// A tool that waits before it does what cannot be taken back, and looks whether it still may.
struct Looking {
    clock: ManualClock,
    waits: Duration,
    stood: Mutex<Option<(bool, bool)>>,
    specs: Vec<ToolSpec>,
}

impl ToolSource for Looking {
    fn specs(&self) -> Vec<ToolSpec> {
        self.specs.clone()
    }

    fn blocks(&self) -> bool {
        false
    }

    fn call(&self, permit: Permit) -> BoxFuture<'_, Result<ToolOutput, ToolFailure>> {
        let before = permit.standing().holds();
        // A process that is stopped renews nothing meanwhile.
        self.clock.jump(self.clock.now().after(self.waits));
        *self.stood.lock().unwrap() = Some((before, permit.standing().holds()));
        Box::pin(async { Err(ToolFailure::NothingHappened { message: "it looked".to_owned() }) })
    }
}

#[test]
fn what_waits_until_the_lease_is_over_is_told_so_before_it_begins() {
    for (waits, stands) in [(29, true), (30, false)] {
        let world = World::new();
        let specs = vec![world.tools.spec("pay", EffectClass::LocalMutation, false)];
        let (clock, waits) = (world.clock.clone(), Duration::from_secs(waits));
        let looking = Arc::new(Looking { clock, waits, stood: Mutex::default(), specs });
        let mut parts = world.parts(1);
        parts.tools = Arc::new(Tools::register(vec![looking.clone()]).unwrap());
        let gate = Gate::new(parts);
        let begun = gate.begin(world.scope(), world.task(Limits::default()));
        let mut held = block_on(begun).unwrap();
        assert_eq!(block_on(held.propose(call("pay", 1))).unwrap(), Progress::Allowed);
        // After the term what came of it is late.
        let _late = block_on(held.execute());
        assert_eq!(*looking.stood.lock().unwrap(), Some((true, stands)), "{waits:?}");
    }
}
