//! Accounting beside others: another process's caps, a full budget, and runs whose model may not be called.

use std::num::NonZeroUsize;
use std::sync::atomic::AtomicBool;

use portcullis_domain::budget::MAX_HOLDS;
use portcullis_domain::event::LeaseCause;
use portcullis_domain::ports::Entropy;
use portcullis_domain::run::Run;
use portcullis_engine::{Agents, Job, Parts, Room, Runner, Unserved};
use portcullis_testkit::ports::SeededEntropy;
use portcullis_testkit::scenario::{Scenario, amounts as tokens};

use super::*;

/// Randomness in which, when it is armed, somebody else acts before the next bytes are drawn.
struct Meddled {
    inner: SeededEntropy,
    armed: Arc<AtomicBool>,
    meddle: Box<dyn Fn() + Send + Sync>,
}

impl Entropy for Meddled {
    fn fill(&self, bytes: &mut [u8]) {
        if self.armed.swap(false, Ordering::SeqCst) {
            (self.meddle)();
        }
        self.inner.fill(bytes);
    }
}

/// An agent that arms before it calls: what is drawn next is the attempt's id, between the look at the budgets and the
/// append.
struct Arming(Asker, Arc<AtomicBool>);

impl Agent for Arming {
    fn propose(&mut self, _: View) -> BoxFuture<'_, Result<Vec<u8>, AgentFailure>> {
        panic!("the driver hands over a model")
    }

    fn propose_with<'a>(
        &'a mut self,
        view: View,
        model: &'a dyn ModelHandle,
    ) -> BoxFuture<'a, Result<Vec<u8>, AgentFailure>> {
        self.1.store(true, Ordering::SeqCst);
        self.0.propose_with(view, model)
    }
}

fn asker() -> Asker {
    Asker { lines: VecDeque::new(), bytes: 100, output: 50, seen: Seen::default() }
}

/// Drives a run to its rest. Time passes only while a call sleeps until it looks again.
fn drive(
    parts: Parts,
    world: &World,
    agent: Box<dyn Agent>,
    engaged: Engaged,
) -> Result<Driven, GateError> {
    let (scope, task) = (world.scope().clone(), world.task(Limits::default()));
    let driving = std::thread::spawn(move || {
        block_on(async {
            let held = Gate::new(parts).begin(&scope, task).await?;
            Driving::start_with(held, agent, Some(engaged)).await?.finished().await
        })
    });
    while !driving.is_finished() {
        match world.clock.next_wake().filter(|wake| *wake <= Duration::from_millis(250)) {
            Some(wake) => world.clock.advance(wake),
            None => std::thread::yield_now(),
        }
    }
    driving.join().unwrap()
}

#[test]
fn a_reservation_is_judged_by_the_caps_of_who_makes_it() {
    // What another process allows itself meanwhile, and what becomes of a run of a process that allows two calls.
    for (others, driven, attempts) in [
        (Some(10), Driven::Ended(EndReason::LimitModelCalls), 2),
        (None, Driven::Ended(EndReason::GoalCompleted), 2),
    ] {
        let world = Arc::new(World::new());
        let model = Arc::new(FakeModel::new(&[], Does::Replies(10, 5)));
        let day = |calls| Caps { calls: Some(calls), ..Caps::default() };
        let first = play(&world, Limits::default(), engaged(&model, day(2)), 0);
        assert_eq!(first.driven.unwrap(), Driven::Ended(EndReason::GoalCompleted));

        let armed = Arc::new(AtomicBool::new(false));
        let (beside, other) = (Arc::clone(&world), Arc::clone(&model));
        let meddle = move || {
            let Some(calls) = others else { return };
            let agent = Box::new(asker());
            let engaged = engaged(&other, day(calls));
            let driven = drive(beside.parts(2), &beside, agent, engaged).unwrap();
            assert_eq!(driven, Driven::Ended(EndReason::GoalCompleted));
        };
        let mut parts = world.parts(1);
        parts.entropy = Arc::new(Meddled {
            inner: SeededEntropy::new(31),
            armed: Arc::clone(&armed),
            meddle: Box::new(meddle),
        });
        let agent = Box::new(Arming(asker(), Arc::clone(&armed)));
        assert_eq!(drive(parts, &world, agent, engaged(&model, day(2))).unwrap(), driven);
        assert!(!armed.load(Ordering::SeqCst), "somebody could act in between");
        assert_eq!(model.attempts(), attempts, "its own two are spent once the other has called");
    }
}

/// Fills the budget of ann's day with attempts of a run that goes on elsewhere.
fn fill_day(world: &World) {
    let mut other = Scenario::new(99, world.store.instance());
    other.owner = "ann".to_owned();
    other.at = world.clock_now();
    other.thread_opened();
    other.run_created();
    other.lease_acquired(LeaseCause::Begin);
    other.step_opened();
    let append = |append| block_on(world.store.append(world.scope(), append)).map(drop);
    append(other.taking(false)).unwrap();
    for some in 0..MAX_HOLDS / 32 {
        for nth in 0..32 {
            other.holds(tokens(10), some + nth == 0);
        }
        append(other.live()).unwrap();
    }
    assert_eq!(of_day(world).unwrap().holds.len(), MAX_HOLDS);
}

#[test]
fn a_call_that_finds_too_many_under_way_meets_no_limit() {
    let world = World::new();
    fill_day(&world);
    let model = Arc::new(FakeModel::new(&[], Does::Replies(10, 5)));
    let seen = Seen::default();
    let agent = Box::new(Asker { seen: Arc::clone(&seen), ..asker() });
    let mut engaged = engaged(&model, Caps::default());
    engaged.retry.deadline = Duration::from_secs(1);
    engaged.retry.backoff = Duration::from_millis(250);

    let begun = world.clock.now();
    // It looks again and again while those of the other run are in time.
    let driven = drive(world.parts(1), &world, agent, engaged).unwrap();
    assert!(world.clock.now().micros_since(begun) > 31_000_000, "it waited before it gave up");
    assert_eq!(of_day(&world).unwrap().holds.len(), MAX_HOLDS, "and they were in time");
    // The agent is told, and goes on as it likes: no limit of the run's was met.
    assert_eq!(driven, Driven::Ended(EndReason::GoalCompleted));
    let seen = seen.lock().unwrap();
    let [ModelOutcome::Stopped { reason, message }] = seen.as_slice() else { panic!("{seen:?}") };
    assert_eq!(*reason, EndReason::ModelUnavailable);
    assert!(message.contains("256 calls"), "{message}");
    assert_eq!(model.attempts(), 0);
}

/// Agents that ask this model.
struct Asking(Arc<FakeModel>);

impl Agents for Asking {
    fn agent<'a>(&'a self, _: &'a Run) -> BoxFuture<'a, Result<Box<dyn Agent>, AgentFailure>> {
        Box::pin(async { Ok(Box::new(asker()) as Box<dyn Agent>) })
    }

    fn model(&self, _: &Run) -> Option<Engaged> {
        Some(engaged(&self.0, Caps::default()))
    }
}

fn go_on(world: &World, model: &Arc<FakeModel>, run: RunId) -> Result<Driven, Unserved> {
    let one = NonZeroUsize::MIN;
    let room = Room { places: one, line: one };
    let agents = Arc::new(Asking(Arc::clone(model)));
    let runner = Runner::new(world.gate(1), world.scope().clone(), agents, room, None);
    let rest = block_on(async { runner.submit(Job::GoOn(run)).await?.rest().await });
    block_on(runner.stop());
    rest.map(|rest| rest.driven)
}

#[test]
fn a_run_whose_model_has_no_price_is_refused_before_its_lease_is_taken() {
    let world = World::new();
    let cost = Limits { max_estimated_cost_micros: Some(1_000), ..Limits::default() };
    let held = world.begin_with(cost);
    let run = held.run();
    block_on(held.close()).unwrap();
    let before = world.state(run).run.seq;
    let mut unpriced = FakeModel::new(&[], Does::Replies(10, 5));
    unpriced.price = Price::Unpriced;
    let unpriced = Arc::new(unpriced);
    for _ in 0..3 {
        let refused = go_on(&world, &unpriced, run);
        assert!(matches!(refused, Err(Unserved::Gate(GateError::Unpriced(_)))), "{refused:?}");
        assert_eq!(world.state(run).run.seq, before, "nothing was recorded");
    }
    // It goes on as soon as its model has one.
    let priced = Arc::new(FakeModel::new(&[], Does::Replies(10, 5)));
    let driven = go_on(&world, &priced, run).unwrap();
    assert_eq!(driven, Driven::Ended(EndReason::GoalCompleted));
    assert_eq!((unpriced.attempts(), priced.attempts()), (0, 1));
}

#[test]
fn a_run_with_too_many_above_it_ends_and_is_not_taken_up_again() {
    let world = World::new();
    let model = Arc::new(FakeModel::new(&[], Does::Replies(10, 5)));
    let mut runs: Vec<RunId> = Vec::new();
    for _ in 0..5 {
        let mut task = world.task(Limits::default());
        task.parent = runs.last().copied();
        let held = block_on(world.gate(1).begin(world.scope(), task)).unwrap();
        runs.push(held.run());
        block_on(held.close()).unwrap();
    }
    let driven = go_on(&world, &model, runs[4]).unwrap();
    assert_eq!(driven, Driven::Ended(EndReason::ModelUnavailable));
    assert_eq!(model.attempts(), 0);
    let ended = world.state(runs[4]).run;
    assert_eq!(ended.status, RunStatus::Failed);
    // The one above it has as many as may be, and calls.
    let driven = go_on(&world, &model, runs[3]).unwrap();
    assert_eq!(driven, Driven::Ended(EndReason::GoalCompleted));
    assert_eq!(model.attempts(), 1);
}
