//! Accounting of models: limits that stop before the call that would cross them, and charges that are true.

mod beside;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use portcullis_canon::{Limits as JsonLimits, from_slice};
use portcullis_domain::budget::{Amounts, Budget, BudgetScope, Caps, Day};
use portcullis_domain::id::RunId;
use portcullis_domain::label::Labels;
use portcullis_domain::limits::Limits;
use portcullis_domain::ports::{
    Agent, AgentFailure, BoxFuture, Clock, Model, ModelCall, ModelFailure, ModelFault, ModelHandle,
    ModelName, ModelOutcome, ModelReply, Price, Projection, Rates, Stop, Store, StoreError, Usage,
    View,
};
use portcullis_domain::run::{EndReason, RunStatus};
use portcullis_engine::{Driven, Driving, Engaged, Gate, GateError, Retry, operator, spend};
use portcullis_testkit::block_on;
use portcullis_testkit::doubles::FaultyStore;

use crate::world::{World, call as tool_call};

/// What the model does at one attempt.
#[derive(Clone, Copy)]
enum Does {
    Replies(u64, u64),
    RepliesUncounted,
    Fails(ModelFault, Option<Duration>),
    Hangs,
    Panics,
}

/// A model that does what a test says, attempt by attempt, and counts them.
struct FakeModel {
    name: ModelName,
    price: Price,
    does: Mutex<VecDeque<Does>>,
    otherwise: Does,
    attempts: AtomicUsize,
    stays_here: bool,
    /// Called at each attempt, before anything comes back.
    sees: Box<dyn Fn() + Send + Sync>,
}

const RATES: Price = Price::Priced(Rates {
    input: 1_000_000,
    cache_read: 1_000_000,
    cache_write: 1_000_000,
    cache_write_long: 1_000_000,
    output: 1_000_000,
});

impl FakeModel {
    fn new(does: &[Does], otherwise: Does) -> Self {
        Self {
            name: ModelName::read("fake:small").unwrap(),
            price: RATES,
            does: Mutex::new(does.iter().copied().collect()),
            otherwise,
            attempts: AtomicUsize::new(0),
            stays_here: false,
            sees: Box::new(|| {}),
        }
    }

    fn attempts(&self) -> usize {
        self.attempts.load(Ordering::SeqCst)
    }
}

impl Model for FakeModel {
    fn name(&self) -> &ModelName {
        &self.name
    }

    fn price(&self) -> Price {
        self.price
    }

    fn stays_here(&self) -> bool {
        self.stays_here
    }

    fn marked_for(&self) -> &BTreeSet<String> {
        static NONE: BTreeSet<String> = BTreeSet::new();
        &NONE
    }

    fn attempt(&self, _: ModelCall) -> BoxFuture<'_, ModelOutcome> {
        Box::pin(async move {
            self.attempts.fetch_add(1, Ordering::SeqCst);
            (self.sees)();
            let does = self.does.lock().unwrap().pop_front().unwrap_or(self.otherwise);
            match does {
                Does::Replies(input_tokens, output_tokens) => {
                    reply(Some(Usage { input_tokens, output_tokens, ..Usage::default() }))
                }
                Does::RepliesUncounted => reply(None),
                Does::Fails(fault, retry_after) => ModelOutcome::Failed(ModelFailure {
                    fault,
                    message: "as planned".to_owned(),
                    retry_after,
                    usage: None,
                    raw: None,
                }),
                Does::Hangs => std::future::pending().await,
                Does::Panics => panic!("a planned panic of a model"),
            }
        })
    }
}

fn reply(usage: Option<Usage>) -> ModelOutcome {
    ModelOutcome::Reply(ModelReply {
        stop: Stop::EndTurn,
        text: "hello".to_owned(),
        uses: Vec::new(),
        verbatim: None,
        usage,
        raw: Arc::from([]),
    })
}

type Seen = Arc<Mutex<Vec<ModelOutcome>>>;

/// Asks the model before each proposal, whatever came of it before.
struct Asker {
    lines: VecDeque<Vec<u8>>,
    bytes: u64,
    output: u64,
    seen: Seen,
}

impl Agent for Asker {
    fn propose(&mut self, _: View) -> BoxFuture<'_, Result<Vec<u8>, AgentFailure>> {
        panic!("the driver hands over a model")
    }

    fn propose_with<'a>(
        &'a mut self,
        view: View,
        model: &'a dyn ModelHandle,
    ) -> BoxFuture<'a, Result<Vec<u8>, AgentFailure>> {
        Box::pin(async move {
            let outcome = model.call(request(self.bytes, self.output)).await;
            self.seen.lock().unwrap().push(outcome);
            let line = self.lines.pop_front().unwrap_or_else(|| DONE.to_vec());
            let line = String::from_utf8(line).unwrap();
            Ok(format!("{{\"request\":{},{}", view.request, &line[1..]).into_bytes())
        })
    }
}

const DONE: &[u8] = br#"{"kind":"complete","result":1}"#;

fn request(bytes: u64, output: u64) -> ModelCall {
    ModelCall {
        request: 0,
        body: Arc::from([]),
        projection: Projection::of(bytes, output),
        labels: Labels::none(),
        watch: None,
    }
}

/// Retries at once, so that no clock has to be moved.
const AT_ONCE: Retry = Retry {
    deadline: Duration::from_secs(60),
    retries: 2,
    backoff: Duration::ZERO,
    longest_wait: Duration::from_secs(60),
};

struct Played {
    run: RunId,
    driven: Result<Driven, GateError>,
    seen: Vec<ModelOutcome>,
}

fn engaged(model: &Arc<FakeModel>, day: Caps) -> Engaged {
    Engaged { model: model.clone(), day, retry: AT_ONCE }
}

/// One run whose agent asks the model before each of `turns` calls of a tool and before the end.
fn play(world: &World, limits: Limits, engaged: Engaged, turns: i64) -> Played {
    let held = world.begin_with(Limits { max_steps: 100, loop_threshold: 30, ..limits });
    let run = held.run();
    let seen = Seen::default();
    let lines = (0..turns).map(|n| tool_call("look", n)).collect();
    let agent = Box::new(Asker { lines, bytes: 100, output: 50, seen: Arc::clone(&seen) });
    let driven = block_on(async {
        let mut driving = Driving::start_with(held, agent, Some(engaged)).await?;
        driving.finished().await
    });
    let seen = std::mem::take(&mut *seen.lock().unwrap());
    Played { run, driven, seen }
}

fn budget(world: &World, scope: &BudgetScope) -> Option<Budget> {
    let id = scope.id(world.scope().tenant());
    block_on(world.store.budget(world.scope(), id)).unwrap()
}

fn of_run(world: &World, run: RunId) -> Budget {
    budget(world, &BudgetScope::Run { run }).unwrap()
}

fn of_day(world: &World) -> Option<Budget> {
    let day = Day::of(world.clock_now());
    budget(world, &BudgetScope::Day { owner: "ann".to_owned(), day })
}

fn amounts(calls: u64, input_tokens: u64, output_tokens: u64) -> Amounts {
    Amounts { calls, input_tokens, output_tokens, cost_micros: input_tokens + output_tokens }
}

#[test]
fn each_limit_stops_before_the_call_that_would_cross_it() {
    let calls = Limits { max_model_calls: Some(2), ..Limits::default() };
    // Each call may use 100 + 50 tokens and uses 10 + 5 of them.
    let tokens = Limits { max_total_tokens: Some(179), ..Limits::default() };
    let cost = Limits { max_estimated_cost_micros: Some(179), ..Limits::default() };
    for (limits, reason) in [
        (calls, EndReason::LimitModelCalls),
        (tokens, EndReason::LimitTokens),
        (cost, EndReason::LimitCost),
    ] {
        let world = World::new();
        let model = Arc::new(FakeModel::new(&[], Does::Replies(10, 5)));
        let played = play(&world, limits, engaged(&model, Caps::default()), 9);
        // The agent goes on as if nothing were; the run ends all the same.
        assert_eq!(played.driven.unwrap(), Driven::Ended(reason));
        assert_eq!(model.attempts(), 2, "{reason:?}");
        let stopped = played.seen.last().unwrap();
        assert!(matches!(stopped, ModelOutcome::Stopped { reason: said, .. } if *said == reason));
        assert_eq!(of_run(&world, played.run).used(), amounts(2, 20, 10));
    }
}

#[test]
fn without_a_limit_all_calls_are_made_and_counted() {
    let world = World::new();
    let model = Arc::new(FakeModel::new(&[], Does::Replies(10, 5)));
    let played = play(&world, Limits::default(), engaged(&model, Caps::default()), 9);
    assert_eq!(played.driven.unwrap(), Driven::Ended(EndReason::GoalCompleted));
    assert_eq!(model.attempts(), 10);
    assert_eq!(of_run(&world, played.run).spent, amounts(10, 100, 50));
    let report =
        block_on(spend::spend(&world.store, world.scope(), &BudgetScope::Run { run: played.run }));
    let report = report.unwrap().unwrap();
    assert_eq!(report.by_run, BTreeMap::from([(played.run, amounts(10, 100, 50))]));
    let tools = [(None, amounts(1, 10, 5)), (Some("look".to_owned()), amounts(9, 90, 45))];
    assert_eq!(report.by_tool, BTreeMap::from(tools));
    assert_eq!(report.by_model, BTreeMap::from([("fake:small".to_owned(), amounts(10, 100, 50))]));
    assert_eq!(report.by_outcome, BTreeMap::from([("answered", 10)]));
}

#[test]
fn a_day_is_one_budget_over_all_runs_of_an_owner() {
    let world = World::new();
    let model = Arc::new(FakeModel::new(&[], Does::Replies(10, 5)));
    let day = Caps { calls: Some(3), ..Caps::default() };
    let first = play(&world, Limits::default(), engaged(&model, day), 1);
    assert_eq!(first.driven.unwrap(), Driven::Ended(EndReason::GoalCompleted));
    let second = play(&world, Limits::default(), engaged(&model, day), 1);
    assert_eq!(second.driven.unwrap(), Driven::Ended(EndReason::LimitModelCalls));
    assert_eq!(model.attempts(), 3);
    assert_eq!(of_day(&world).unwrap().spent, amounts(3, 30, 15));
    // The operator raises it, and the next run may go on; tomorrow is another day.
    let raised = Caps { calls: Some(4), ..Caps::default() };
    let third = play(&world, Limits::default(), engaged(&model, raised), 0);
    assert_eq!(third.driven.unwrap(), Driven::Ended(EndReason::GoalCompleted));
    world.clock.advance(Duration::from_hours(24));
    let fourth = play(&world, Limits::default(), engaged(&model, day), 2);
    assert_eq!(fourth.driven.unwrap(), Driven::Ended(EndReason::GoalCompleted));
}

#[test]
fn a_cost_cap_needs_a_price() {
    let world = World::new();
    let mut model = FakeModel::new(&[], Does::Replies(10, 5));
    model.price = Price::Unpriced;
    let model = Arc::new(model);
    let cost = Limits { max_estimated_cost_micros: Some(1_000), ..Limits::default() };
    let unpriced = |error: GateError| matches!(error, GateError::Unpriced(_));
    let played = play(&world, cost.clone(), engaged(&model, Caps::default()), 1);
    assert!(unpriced(played.driven.unwrap_err()));
    let day = Caps { cost_micros: Some(1_000), ..Caps::default() };
    let played = play(&world, Limits::default(), engaged(&model, day), 1);
    assert!(unpriced(played.driven.unwrap_err()));
    assert_eq!(model.attempts(), 0);
    // Without such a cap it may be called, and the record says that its cost is not known.
    let played = play(&world, Limits::default(), engaged(&model, Caps::default()), 0);
    played.driven.unwrap();
    assert_eq!(of_run(&world, played.run).unpriced, 1);
    let mut free = FakeModel::new(&[], Does::Replies(10, 5));
    free.price = Price::Free;
    let zero = Limits { max_estimated_cost_micros: Some(0), ..Limits::default() };
    let played = play(&world, zero, engaged(&Arc::new(free), Caps::default()), 1);
    assert_eq!(played.driven.unwrap(), Driven::Ended(EndReason::GoalCompleted));
}

#[test]
fn what_may_pass_is_retried_and_each_attempt_is_charged() {
    use ModelFault::{ConnectionLost, EmptyReply, KeyRefused, Throttled};
    let year = Some(Duration::from_secs(31_536_000));
    for (does, attempts, used) in [
        (vec![Does::Fails(Throttled, None)], 2, amounts(2, 10, 5)),
        (vec![Does::Fails(ConnectionLost, None)], 2, amounts(2, 110, 55)),
        (vec![Does::Fails(Throttled, None); 9], 3, amounts(3, 0, 0)),
        (vec![Does::Fails(Throttled, year)], 1, amounts(1, 0, 0)),
        (vec![Does::Fails(KeyRefused, None)], 1, amounts(1, 0, 0)),
        (vec![Does::Fails(EmptyReply, None)], 1, amounts(1, 100, 50)),
        (vec![Does::RepliesUncounted], 1, amounts(1, 100, 50)),
        (vec![Does::Panics], 1, amounts(1, 100, 50)),
        (vec![Does::Replies(1 << 40, 1)], 1, amounts(1, 100, 50)),
        (vec![Does::Replies(130, 50)], 1, amounts(1, 130, 50)),
    ] {
        let world = World::new();
        let model = Arc::new(FakeModel::new(&does, Does::Replies(10, 5)));
        let played = play(&world, Limits::default(), engaged(&model, Caps::default()), 0);
        played.driven.unwrap();
        assert_eq!(model.attempts(), attempts);
        let budget = of_run(&world, played.run);
        assert_eq!((budget.used(), budget.holds.len()), (used, 0));
        assert_eq!(of_day(&world).unwrap().used(), used);
    }
}

#[test]
fn a_retry_never_goes_past_a_limit() {
    let world = World::new();
    let lost = Does::Fails(ModelFault::ConnectionLost, None);
    let model = Arc::new(FakeModel::new(&[], lost));
    let limits = Limits { max_total_tokens: Some(299), ..Limits::default() };
    let played = play(&world, limits, engaged(&model, Caps::default()), 3);
    assert_eq!(played.driven.unwrap(), Driven::Ended(EndReason::LimitTokens));
    assert_eq!(model.attempts(), 1, "the first one may have used 150, so the second may cross it");
}

#[test]
fn a_child_spends_what_its_parent_has() {
    let world = World::new();
    let model = Arc::new(FakeModel::new(&[], Does::Replies(10, 5)));
    let parent = world.begin_with(Limits { max_model_calls: Some(2), ..Limits::default() });
    let mut task = world.task(Limits::default());
    task.parent = Some(parent.run());
    let held = block_on(world.gate(1).begin(world.scope(), task)).unwrap();
    let child = held.run();
    let seen = Seen::default();
    let lines = (0..5).map(|n| tool_call("look", n)).collect();
    let agent = Box::new(Asker { lines, bytes: 100, output: 50, seen });
    let engaged = engaged(&model, Caps::default());
    let mut driving = block_on(Driving::start_with(held, agent, Some(engaged))).unwrap();
    let driven = block_on(driving.finished()).unwrap();
    assert_eq!(driven, Driven::Ended(EndReason::LimitModelCalls));
    assert_eq!(model.attempts(), 2);
    assert_eq!(of_run(&world, parent.run()).spent.calls, 2);
    let above = BudgetScope::Run { run: parent.run() };
    let report = block_on(spend::spend(&world.store, world.scope(), &above)).unwrap().unwrap();
    assert_eq!(report.by_run.keys().copied().collect::<Vec<_>>(), [child]);
}

/// Drives a run whose model never answers, and waits until the attempt is under way.
fn hanging(world: &World) -> (RunId, Driving, Arc<FakeModel>) {
    let (began, begun) = std::sync::mpsc::channel();
    let mut model = FakeModel::new(&[], Does::Hangs);
    let began = Mutex::new(began);
    model.sees = Box::new(move || began.lock().unwrap().send(()).unwrap());
    let model = Arc::new(model);
    let held = world.begin();
    let run = held.run();
    let agent =
        Box::new(Asker { lines: VecDeque::new(), bytes: 100, output: 50, seen: Seen::default() });
    let engaged = engaged(&model, Caps::default());
    let driving = block_on(Driving::start_with(held, agent, Some(engaged))).unwrap();
    begun.recv_timeout(Duration::from_secs(60)).unwrap();
    // Held before anything is sent.
    assert_eq!(of_run(world, run).held(), amounts(1, 100, 50));
    (run, driving, model)
}

#[test]
fn a_call_that_is_given_up_is_charged_what_it_may_have_cost() {
    let world = World::new();
    let (run, mut driving, model) = hanging(&world);
    driving.stop();
    assert_eq!(block_on(driving.finished()).unwrap(), Driven::Stopped);
    let budget = of_run(&world, run);
    assert_eq!((budget.spent, budget.holds.len()), (amounts(1, 100, 50), 0));
    assert_eq!(model.attempts(), 1);
}

#[test]
fn whoever_takes_a_run_up_charges_what_the_dead_left_and_once() {
    let world = World::new();
    let (run, mut driving, _model) = hanging(&world);
    world.kill(1);
    let (held, _) = world.take(2, run);
    let budget = of_run(&world, run);
    assert_eq!((budget.spent, budget.holds.len()), (amounts(1, 100, 50), 0));
    assert_eq!(of_day(&world).unwrap().spent, amounts(1, 100, 50));
    // The one who was taken for dead comes back, and settles nothing twice.
    driving.stop();
    let _lost = block_on(driving.finished());
    assert_eq!(of_run(&world, run).used(), amounts(1, 100, 50));
    drop(held);
}

#[test]
fn a_cancelled_run_leaves_nothing_held() {
    let world = World::new();
    let (run, mut driving, _model) = hanging(&world);
    world.kill(1);
    block_on(operator::cancel(&world.parts(2), world.scope(), run, "ann", None)).unwrap();
    assert_eq!(of_run(&world, run).holds.len(), 0);
    assert_eq!(of_run(&world, run).spent, amounts(1, 100, 50));
    driving.stop();
    let _ended = block_on(driving.finished());
    assert_eq!(of_run(&world, run).used(), amounts(1, 100, 50));
}

#[test]
fn what_is_held_past_its_time_is_swept() {
    let world = World::new();
    let (run, driving, _model) = hanging(&world);
    // A cancel while the holder lives leaves the charge to it, and it never comes.
    block_on(operator::cancel(&world.parts(2), world.scope(), run, "ann", None)).unwrap();
    block_on(operator::sweep_due(&world.parts(2), world.scope())).unwrap();
    assert_eq!(of_run(&world, run).holds.len(), 1, "its time is not over");
    world.clock.jump(world.clock.now().after(Duration::from_secs(120)));
    block_on(operator::sweep_due(&world.parts(2), world.scope())).unwrap();
    assert_eq!(of_run(&world, run).holds.len(), 0);
    assert_eq!(of_run(&world, run).spent, amounts(1, 100, 50));
    drop(driving);
}

#[test]
fn a_call_ends_with_the_time_of_its_run() {
    let world = World::new();
    let (began, begun) = std::sync::mpsc::channel();
    let mut model = FakeModel::new(&[], Does::Hangs);
    let began = Mutex::new(began);
    model.sees = Box::new(move || began.lock().unwrap().send(()).unwrap());
    let model = Arc::new(model);
    let held = world.begin_with(Limits { max_elapsed_ms: Some(5_000), ..Limits::default() });
    let run = held.run();
    let seen = Seen::default();
    let agent =
        Box::new(Asker { lines: VecDeque::new(), bytes: 100, output: 50, seen: Arc::clone(&seen) });
    let engaged = engaged(&model, Caps::default());
    let mut driving = block_on(Driving::start_with(held, agent, Some(engaged))).unwrap();
    begun.recv_timeout(Duration::from_secs(60)).unwrap();
    // Far less than the call's own deadline of a minute. The sleeper is there before the model is asked.
    world.clock.advance(Duration::from_secs(5));
    let driven = block_on(driving.finished()).unwrap();
    assert_eq!(driven, Driven::Ended(EndReason::LimitElapsedTime));
    assert_eq!(model.attempts(), 1);
    assert_eq!(of_run(&world, run).spent, amounts(1, 100, 50));
}

#[test]
fn a_store_that_fails_ends_the_driver_and_not_the_run() {
    let world = World::new();
    let model = Arc::new(FakeModel::new(&[], Does::Replies(10, 5)));
    // The first append begins the run, and the second one holds.
    let store = FaultyStore::new(Arc::new(world.store.clone())).failing(2, StoreError::Full);
    let store = Arc::new(store);
    let mut parts = world.parts(1);
    parts.store = store.clone();
    let task = world.task(Limits::default());
    let held = block_on(Gate::new(parts).begin(world.scope(), task)).unwrap();
    let run = held.run();
    let asker = || Asker { lines: VecDeque::new(), bytes: 9, output: 5, seen: Seen::default() };
    let drive = |held| {
        let engaged = engaged(&model, Caps::default());
        block_on(async {
            Driving::start_with(held, Box::new(asker()), Some(engaged)).await?.finished().await
        })
    };
    let driven = drive(held);
    assert!(matches!(driven, Err(GateError::Store(StoreError::Full))), "{driven:?}");
    assert_eq!((store.fired(), model.attempts()), (1, 0), "nothing was sent");
    assert_eq!(world.state(run).run.status, RunStatus::Running);
    // It goes on once there is room.
    let (held, _) = world.take(2, run);
    assert_eq!(drive(held).unwrap(), Driven::Ended(EndReason::GoalCompleted));
    assert_eq!(model.attempts(), 1);
}

/// Says that it sends next to nothing, under these labels.
struct Understater(Arc<[u8]>, Labels);

impl Agent for Understater {
    fn propose(&mut self, _: View) -> BoxFuture<'_, Result<Vec<u8>, AgentFailure>> {
        panic!("the driver hands over a model")
    }

    fn propose_with<'a>(
        &'a mut self,
        view: View,
        model: &'a dyn ModelHandle,
    ) -> BoxFuture<'a, Result<Vec<u8>, AgentFailure>> {
        Box::pin(async move {
            let (body, labels) = (Arc::clone(&self.0), self.1.clone());
            model.call(ModelCall { body, labels, ..request(1, 50) }).await;
            let line = format!(r#"{{"request":{},"kind":"complete"}}"#, view.request);
            Ok(line.into_bytes())
        })
    }
}

#[test]
fn no_less_is_held_than_what_is_sent() {
    let world = World::new();
    let model = Arc::new(FakeModel::new(&[], Does::RepliesUncounted));
    let held = world.begin();
    let run = held.run();
    let agent = Box::new(Understater(Arc::from([b'x'; 500]), Labels::none()));
    let engaged = engaged(&model, Caps::default());
    let mut driving = block_on(Driving::start_with(held, agent, Some(engaged))).unwrap();
    block_on(driving.finished()).unwrap();
    assert_eq!(of_run(&world, run).spent, amounts(1, 500, 50));
}

#[test]
fn a_tag_keeps_a_call_from_a_model_that_is_not_marked_for_it_unless_nothing_leaves() {
    let tagged: Labels =
        from_slice(br#"{"origins":["owner"],"tags":["secret"]}"#, &JsonLimits::BARE).unwrap();
    for (stays_here, attempts) in [(false, 0), (true, 1)] {
        let world = World::new();
        let mut model = FakeModel::new(&[], Does::Replies(10, 5));
        model.stays_here = stays_here;
        let model = Arc::new(model);
        let agent = Box::new(Understater(Arc::from(*b"x"), tagged.clone()));
        let engaged = engaged(&model, Caps::default());
        let mut driving =
            block_on(Driving::start_with(world.begin(), agent, Some(engaged))).unwrap();
        block_on(driving.finished()).unwrap();
        assert_eq!(model.attempts(), attempts);
    }
}
