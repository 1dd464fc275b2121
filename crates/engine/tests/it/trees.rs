//! Random trees of runs that spend: through crashes at any append, retries, jumps of the clock and runs that go on at once,
//! nothing is spent beyond a cap at any prefix of the record, and nothing is charged twice or forgotten.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use portcullis_domain::budget::{Amounts, Budget, BudgetScope, Caps};
use portcullis_domain::event::Body;
use portcullis_domain::id::RunId;
use portcullis_domain::label::Labels;
use portcullis_domain::limits::Limits;
use portcullis_domain::ports::{
    Agent, AgentFailure, BoxFuture, EventFilter, MAX_PAGE, Model, ModelCall, ModelFailure,
    ModelFault, ModelHandle, ModelName, ModelOutcome, ModelReply, Page, Price, Projection, Rates,
    Stop, Store, Usage, View,
};
use portcullis_domain::run::{EndReason, Run};
use portcullis_engine::{
    Attached, Driven, Driving, Engaged, Gate, GateError, Parts, Retry, Task, next_of_tree, operator,
};
use portcullis_testkit::block_on;

use crate::children::{Mortal, parts};
use crate::world::{FakeTools, World};

/// Numbers that are the same for one seed (splitmix64).
struct Dice(u64);

impl Dice {
    fn new(seed: u64) -> Self {
        Self(seed)
    }

    fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (mixed ^ (mixed >> 31)) % bound
    }
}

/// A model that answers, fails and lies by the throw of a die.
struct Moody {
    name: ModelName,
    seed: u64,
    attempts: AtomicU64,
}

impl Model for Moody {
    fn name(&self) -> &ModelName {
        &self.name
    }

    fn price(&self) -> Price {
        Price::Priced(Rates { input: 1_000_000, output: 1_000_000, ..Rates::default() })
    }

    fn marked_for(&self) -> &BTreeSet<String> {
        static NONE: BTreeSet<String> = BTreeSet::new();
        &NONE
    }

    fn attempt(&self, _: ModelCall) -> BoxFuture<'_, ModelOutcome> {
        Box::pin(async move {
            let number = self.attempts.fetch_add(1, Ordering::SeqCst);
            let mut dice = Dice::new(self.seed.wrapping_mul(31).wrapping_add(number));
            let fails = |fault| {
                let message = "as thrown".to_owned();
                ModelOutcome::Failed(ModelFailure {
                    fault,
                    message,
                    retry_after: None,
                    usage: None,
                    raw: None,
                })
            };
            match dice.below(8) {
                0 => fails(ModelFault::Throttled),
                1 => fails(ModelFault::ConnectionLost),
                // More than was held, which is a lie or a fault of the projection.
                2 => {
                    reply(Some(Usage { input_tokens: 140, output_tokens: 90, ..Usage::default() }))
                }
                3 => reply(None),
                _ => {
                    let (input_tokens, output_tokens) = (dice.below(100), dice.below(50));
                    reply(Some(Usage { input_tokens, output_tokens, ..Usage::default() }))
                }
            }
        })
    }
}

fn reply(usage: Option<Usage>) -> ModelOutcome {
    ModelOutcome::Reply(ModelReply {
        stop: Stop::EndTurn,
        text: "go on".to_owned(),
        uses: Vec::new(),
        verbatim: None,
        usage,
        raw: Arc::from([]),
    })
}

/// Proposes by its goal and request, so that whoever goes on with a run proposes the same.
struct Player {
    seed: u64,
}

impl Player {
    fn proposal(&self, view: &View) -> String {
        let salt = view.goal.bytes().fold(view.request.wrapping_add(self.seed), |sum, byte| {
            sum.wrapping_mul(131).wrapping_add(u64::from(byte))
        });
        let mut dice = Dice::new(salt);
        let goal = format!("{}.{}", view.goal, view.request);
        let (calls, tokens) = (1 + dice.below(9), 150 + dice.below(900));
        match dice.below(8) {
            0 => format!(r#""kind":"tool_call","tool":"spawn","arguments":{{"goal":"{goal}"}}"#),
            1..=2 => format!(
                r#""kind":"tool_call","tool":"spawn","arguments":{{"goal":"{goal}","max_total_tokens":{tokens}}}"#
            ),
            3 => format!(
                r#""kind":"tool_call","tool":"spawn","arguments":{{"goal":"{goal}","max_model_calls":{calls}}}"#
            ),
            4..=5 => {
                format!(r#""kind":"tool_call","tool":"look","arguments":{{"n":{}}}"#, view.request)
            }
            _ => r#""kind":"complete","result":1"#.to_owned(),
        }
    }
}

impl Agent for Player {
    fn propose(&mut self, _: View) -> BoxFuture<'_, Result<Vec<u8>, AgentFailure>> {
        panic!("the driver hands over a model")
    }

    fn propose_with<'a>(
        &'a mut self,
        view: View,
        model: &'a dyn ModelHandle,
    ) -> BoxFuture<'a, Result<Vec<u8>, AgentFailure>> {
        Box::pin(async move {
            let call = ModelCall {
                request: view.request,
                body: Arc::from([]),
                projection: Projection::of(100, 50),
                labels: Labels::none(),
                watch: None,
            };
            let _whatever_comes = model.call(call).await;
            Ok(format!("{{\"request\":{},{}}}", view.request, self.proposal(&view)).into_bytes())
        })
    }
}

fn engaged(model: &Arc<Moody>) -> Engaged {
    let day = Caps { tokens: Some(9_000), ..Caps::default() };
    let retry = Retry {
        deadline: Duration::from_secs(60),
        retries: 2,
        backoff: Duration::ZERO,
        longest_wait: Duration::from_secs(60),
    };
    Engaged { model: model.clone(), day, retry }
}

/// Drives one tree until it rests, or its process ends.
fn drive(world: &World, parts: &Parts, top: RunId, model: &Arc<Moody>) -> Result<(), GateError> {
    let (gate, scope) = (Gate::new(parts.clone()), world.scope());
    let mut next = Some(top);
    while let Some(run) = next {
        let child = match block_on(gate.attach(scope, run))? {
            Attached::Ended(_) => None,
            Attached::Child(child) => Some(child),
            Attached::Waiting(question) => panic!("nobody is asked: {question}"),
            Attached::Held(held, _) => {
                let agent = Box::new(Player { seed: model.seed });
                let driven = block_on(async {
                    let mut driving =
                        Driving::start_with(held, agent, Some(engaged(model))).await?;
                    driving.finished().await
                })?;
                match driven {
                    Driven::Child(child) => Some(child),
                    Driven::Ended(_) => None,
                    other => panic!("{other:?}"),
                }
            }
        };
        next = next_of_tree(top, &world.state(run).run, child);
    }
    Ok(())
}

/// Lets time pass for those who wait for it, as long as some work goes on.
fn while_time_passes<T>(world: &World, work: impl FnOnce() -> T) -> T {
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !done.load(Ordering::SeqCst) {
                std::thread::sleep(Duration::from_millis(1));
                if world.clock.next_wake().is_some() {
                    world.clock.advance(Duration::from_millis(50));
                }
            }
        });
        let result = work();
        done.store(true, Ordering::SeqCst);
        result
    })
}

/// What happened over all trees, so that no property holds since nothing did.
#[derive(Default)]
struct Tally {
    crashes: u64,
    children: u64,
    abandoned: u64,
    limits: u64,
    checked: u64,
}

/// Plays one family: a run of a host, and three below it that go on at once, each with a tree of its own.
fn play(seed: u64, tally: &mut Tally) {
    let world = World::with_tools(FakeTools::new(false));
    let mut dice = Dice::new(seed);
    let model = Arc::new(Moody {
        name: ModelName::read("fake:small").unwrap(),
        seed,
        attempts: AtomicU64::new(0),
    });
    let caps = Limits {
        max_total_tokens: Some(1_000 + dice.below(4_000)),
        max_estimated_cost_micros: Some(1_000 + dice.below(4_000)),
        max_model_calls: Some(15 + dice.below(30)),
        max_consecutive_failures: 50,
        loop_threshold: 30,
        ..Limits::default()
    };
    let begin = |parent, limits: &Limits, goal: &str| {
        let task = Task { parent, goal: goal.to_owned(), ..world.task(limits.clone()) };
        let held = block_on(Gate::new(parts(&world, 1)).begin(world.scope(), task)).unwrap();
        let run = held.run();
        block_on(held.close()).unwrap();
        run
    };
    let top = begin(None, &caps, "top");
    let tops = ["a", "b", "c"].map(|goal| begin(Some(top), &caps, goal));
    for life in 1..=9_u32 {
        let last = if life == 9 { u64::MAX } else { 4 + dice.below(40) };
        let store = Arc::new(Mortal::of(&world, last, dice.below(2) == 0));
        let own = Parts { store, ..parts(&world, life) };
        let outcomes = while_time_passes(&world, || {
            std::thread::scope(|scope| {
                let threads = tops.map(|top| {
                    let (own, world, model) = (&own, &world, &model);
                    scope.spawn(move || drive(world, own, top, model))
                });
                threads.map(|thread| thread.join().unwrap())
            })
        });
        drop(own);
        world.kill(life);
        if outcomes.iter().all(Result::is_ok) {
            break;
        }
        assert!(life < 9, "the last one lives: {outcomes:?}");
        tally.crashes += 1;
        // The next process has another day, before or after.
        let hours = Duration::from_hours(1 + dice.below(60));
        let now = world.clock_now();
        world.clock.jump(match dice.below(3) {
            0 => portcullis_domain::time::Timestamp::from_micros(
                now.micros() - i64::try_from(hours.as_micros()).unwrap(),
            ),
            _ => now.after(hours),
        });
    }
    world.clock.advance(Duration::from_hours(300));
    block_on(operator::sweep_due(&world.parts(50), world.scope())).unwrap();
    check(&world, tally);
}

/// Walks the record event by event.
fn check(world: &World, tally: &mut Tally) {
    let runs: BTreeMap<RunId, Run> = {
        let page = Page { offset: 0, limit: MAX_PAGE };
        let rows = block_on(world.store.runs(world.scope(), None, page)).unwrap();
        assert!(rows.total <= u64::from(MAX_PAGE));
        rows.rows.into_iter().flatten().map(|run| (run.id, run)).collect()
    };
    let mut budgets: BTreeMap<[u8; 16], Budget> = BTreeMap::new();
    let mut own: BTreeMap<RunId, Amounts> = BTreeMap::new();
    let mut settled = BTreeSet::new();
    let mut after = 0;
    loop {
        let filter = EventFilter { stream: None, after, limit: MAX_PAGE };
        let page = block_on(world.store.events(world.scope(), filter)).unwrap();
        let Some(end) = page.last() else { break };
        after = u64::try_from(end.journal_seq).unwrap();
        for stored in &page {
            let event = stored.event(world.store.instance()).unwrap();
            let id = event.link.stream.id;
            match &event.body {
                Body::BudgetOpened(_) => drop(budgets.insert(id, Budget::begin(&event).unwrap())),
                Body::BudgetReserved(_) | Body::BudgetSettled(_) => {
                    let budget = budgets.get_mut(&id).unwrap();
                    if let Body::BudgetSettled(body) = &event.body {
                        let run = budget.hold(body.attempt).unwrap().run;
                        assert!(settled.insert((id, body.attempt)), "charged twice");
                        if matches!(budget.scope, BudgetScope::Run { run: of } if of == run) {
                            let sum = own.entry(run).or_insert(Amounts::NONE);
                            *sum = sum.plus(body.charged);
                        }
                        tally.abandoned += u64::from(body.how.as_str() == "abandoned");
                    }
                    budget.apply(&event).unwrap();
                    within(budget);
                    tally.checked += 1;
                }
                _ => {}
            }
        }
    }
    for budget in budgets.values() {
        assert_eq!(budget.holds, [], "something is held for ever");
        let BudgetScope::Run { run } = budget.scope else { continue };
        // Its own, and those of all runs below it.
        let below = |id: &RunId| {
            let mut at = Some(*id);
            std::iter::from_fn(|| {
                let here = at?;
                at = runs[&here].parent;
                Some(here)
            })
            .any(|above| above == run)
        };
        let sum =
            own.iter().filter(|(id, _)| below(id)).fold(Amounts::NONE, |s, (_, a)| s.plus(*a));
        assert_eq!(budget.spent, sum, "{run}");
    }
    tally.children +=
        u64::try_from(runs.keys().filter(|id| portcullis_domain::child::is_derived(**id)).count())
            .unwrap();
    let limits = [EndReason::LimitModelCalls, EndReason::LimitTokens, EndReason::LimitCost];
    let limited =
        runs.values().filter(|run| run.reason.is_some_and(|reason| limits.contains(&reason)));
    tally.limits += u64::try_from(limited.count()).unwrap();
    for run in runs.values().filter(|run| portcullis_domain::child::is_derived(run.id)) {
        assert!(run.status.is_terminal(), "{run:?}");
        assert!(run.limits.is_within(&runs[&run.parent.unwrap()].limits));
    }
}

/// What is spent and what is held together is within each cap.
fn within(budget: &Budget) {
    let Caps { calls, tokens, cost_micros } = budget.caps;
    let used = budget.spent.plus(budget.held());
    for (cap, used) in
        [(calls, used.calls), (tokens, used.tokens()), (cost_micros, used.cost_micros)]
    {
        assert!(cap.is_none_or(|cap| used <= cap), "{used} of {cap:?} in {:?}", budget.scope);
    }
}

#[test]
fn no_tree_spends_more_than_a_cap_at_any_prefix() {
    let mut tally = Tally::default();
    for seed in 1..=12 {
        play(seed, &mut tally);
    }
    let Tally { crashes, children, abandoned, limits, checked } = tally;
    let told = format!(
        "{crashes} crashes, {children} children, {abandoned} abandoned, {limits} limits, {checked} checks"
    );
    assert!(crashes > 20 && children > 30 && abandoned > 3 && limits > 10, "{told}");
}
