//! Many runs in one process.

use std::num::NonZeroUsize;
use std::pin::pin;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Context, Waker};
use std::time::Duration;

use futures_channel::oneshot;
use futures_util::FutureExt;
use futures_util::future::Shared;
use portcullis_domain::approval::Answer;
use portcullis_domain::id::RunId;
use portcullis_domain::limits::Limits;
use portcullis_domain::ports::{
    Agent, AgentFailure, BoxFuture, Place, Policy, PolicyFailure, ProposedCall, Spawn, SpawnError,
    StoreError, View,
};
use portcullis_domain::row::Cell;
use portcullis_domain::run::{EndReason, Run, RunStatus};
use portcullis_domain::verdict::{Facts, PolicyId, Verdict};
use portcullis_engine::{
    Agents, Answers, Driven, Gate, GateError, Job, Load, Progress, Rest, Room, Runner, TakenUp,
    Task, Unserved, operator,
};
use portcullis_testkit::block_on;

use crate::world::{Does, FakeTools, World, ask, call};

/// Makes agents that go through the same calls, each from the request that it is asked for.
struct Script {
    lines: Vec<Vec<u8>>,
    /// Every agent waits for this before it proposes.
    go: Shared<oneshot::Receiver<()>>,
    now: Arc<AtomicUsize>,
    most: Arc<AtomicUsize>,
    /// How often an agent was asked: its driver runs then.
    asked: Arc<AtomicUsize>,
    /// The goals' owners, in the order in which their runs had their turn.
    turns: Arc<Mutex<Vec<String>>>,
}

struct Scripted {
    lines: Vec<Vec<u8>>,
    go: Shared<oneshot::Receiver<()>>,
    now: Arc<AtomicUsize>,
    asked: Arc<AtomicUsize>,
}

impl Drop for Scripted {
    fn drop(&mut self) {
        self.now.fetch_sub(1, Ordering::SeqCst);
    }
}

impl Agent for Scripted {
    fn propose(&mut self, view: View) -> BoxFuture<'_, Result<Vec<u8>, AgentFailure>> {
        self.asked.fetch_add(1, Ordering::SeqCst);
        Box::pin(async move {
            // Let go, or never held.
            let _ = self.go.clone().await;
            let line = usize::try_from(view.request).ok().and_then(|index| self.lines.get(index));
            let complete = br#"{"kind":"complete","result":1}"#.to_vec();
            let line = line.cloned().unwrap_or(complete);
            let rest = line.strip_prefix(b"{").unwrap();
            Ok([format!("{{\"request\":{},", view.request).as_bytes(), rest].concat())
        })
    }
}

impl Agents for Script {
    fn agent<'a>(&'a self, run: &'a Run) -> BoxFuture<'a, Result<Box<dyn Agent>, AgentFailure>> {
        self.turns.lock().unwrap().push(run.owner.clone());
        let now = self.now.fetch_add(1, Ordering::SeqCst) + 1;
        self.most.fetch_max(now, Ordering::SeqCst);
        let (lines, go) = (self.lines.clone(), self.go.clone());
        let (now, asked) = (Arc::clone(&self.now), Arc::clone(&self.asked));
        Box::pin(async move { Ok(Box::new(Scripted { lines, go, now, asked }) as Box<dyn Agent>) })
    }
}

struct Scene {
    world: World,
    script: Arc<Script>,
    /// Dropping it lets every agent go on.
    held: Option<oneshot::Sender<()>>,
    answers: Arc<Answers>,
}

impl Scene {
    /// Agents that make these calls and complete.
    fn new(lines: Vec<Vec<u8>>) -> Self {
        let (held, go) = oneshot::channel();
        let script = Arc::new(Script {
            lines,
            go: go.shared(),
            now: Arc::default(),
            most: Arc::default(),
            asked: Arc::default(),
            turns: Arc::default(),
        });
        let world = World::with_tools(FakeTools::new(false));
        Self { world, script, held: Some(held), answers: Arc::default() }
    }

    fn free(mut self) -> Self {
        self.held.take();
        self
    }

    fn runner(&self, places: usize, line: usize) -> Runner {
        let mut parts = self.world.parts(1);
        parts.store = Arc::new(self.world.store.handle(vec![self.answers.clone()]));
        let room = Room {
            places: NonZeroUsize::new(places).unwrap(),
            line: NonZeroUsize::new(line).unwrap(),
        };
        let (gate, scope) = (Gate::new(parts), self.world.scope().clone());
        Runner::new(gate, scope, self.script.clone(), room, Some(&self.answers))
    }

    fn task(&self, owner: &str) -> Job {
        let task = self.world.task(Limits { max_steps: 100, ..Limits::default() });
        Job::Begin(Task { owner: owner.to_owned(), ..task })
    }
}

fn rest(ticket: portcullis_engine::Ticket) -> Rest {
    block_on(ticket.rest()).unwrap()
}

#[test]
fn more_runs_than_places_all_end_and_never_too_many_are_driven() {
    let scene = Scene::new(vec![call("write", 1), call("look", 2)]).free();
    let runner = scene.runner(3, 100);
    let tickets: Vec<_> =
        (0..20).map(|_| block_on(runner.submit(scene.task("ann"))).unwrap()).collect();
    let rests: Vec<Rest> = tickets.into_iter().map(rest).collect();
    assert!(rests.iter().all(|r| r.driven == Driven::Ended(EndReason::GoalCompleted)));
    assert_eq!(scene.world.tools.effects("write"), 20);
    assert!(scene.script.most.load(Ordering::SeqCst) <= 3);
    block_on(runner.stop());
    assert_eq!(scene.world.count("run.created"), 20);
}

#[test]
fn owners_take_turns_whoever_came_with_more() {
    let mut scene = Scene::new(Vec::new());
    let runner = scene.runner(1, 100);
    let mut tickets = Vec::new();
    for owner in ["ann", "ann", "ann", "ann", "ben", "ben"] {
        tickets.push(block_on(runner.submit(scene.task(owner))).unwrap());
        // The first has the only place before the others come.
        while scene.script.now.load(Ordering::SeqCst) == 0 {
            std::thread::yield_now();
        }
    }
    assert_eq!(runner.load(), Load { driven: 1, in_line: 5 });
    scene.held.take();
    for ticket in tickets {
        assert_eq!(rest(ticket).driven, Driven::Ended(EndReason::GoalCompleted));
    }
    let turns = scene.script.turns.lock().unwrap().clone();
    assert_eq!(turns, ["ann", "ann", "ben", "ann", "ben", "ann"]);
}

#[test]
fn who_submits_to_a_full_line_waits_and_a_place_is_not_lost_with_them() {
    let mut scene = Scene::new(Vec::new());
    let runner = scene.runner(1, 1);
    let first = block_on(runner.submit(scene.task("ann"))).unwrap();
    while scene.script.now.load(Ordering::SeqCst) == 0 {
        std::thread::yield_now();
    }
    let second = block_on(runner.submit(scene.task("ann"))).unwrap();
    let mut gone = Box::pin(runner.submit(scene.task("ann")));
    let mut third = pin!(runner.submit(scene.task("ann")));
    let mut context = Context::from_waker(Waker::noop());
    assert!(gone.as_mut().poll(&mut context).is_pending());
    assert!(third.as_mut().poll(&mut context).is_pending());
    assert_eq!(runner.load(), Load { driven: 1, in_line: 1 });
    scene.held.take();
    for ticket in [first, second] {
        assert_eq!(rest(ticket).driven, Driven::Ended(EndReason::GoalCompleted));
    }
    // Room was told to the one in front, who leaves without it.
    drop(gone);
    let third = block_on(third).unwrap();
    assert_eq!(rest(third).driven, Driven::Ended(EndReason::GoalCompleted));
    assert_eq!(scene.world.count("run.created"), 3);
}

#[test]
fn a_run_that_waits_is_forgotten_and_goes_on_when_it_was_answered() {
    let scene = Scene::new(vec![call("send", 1)]).free();
    let runner = scene.runner(2, 10);
    let ticket = block_on(runner.submit(scene.task("ann"))).unwrap();
    let Rest { run, driven: Driven::Waiting(_) } = rest(ticket) else {
        panic!("nobody was asked");
    };
    while runner.load() != (Load { driven: 0, in_line: 0 }) {
        std::thread::yield_now();
    }
    assert_eq!(scene.script.now.load(Ordering::SeqCst), 0);
    // The person answers through the same store, as a server's inbox does.
    let mut parts = scene.world.parts(9);
    parts.store = Arc::new(scene.world.store.handle(vec![scene.answers.clone()]));
    let question = scene.world.question(run);
    let signed = scene.world.signed("ann", &question, Answer::Approve);
    block_on(portcullis_engine::operator::answer(&parts, scene.world.scope(), signed)).unwrap();
    while scene.world.state(run).run.status != RunStatus::Completed {
        std::thread::yield_now();
    }
    assert_eq!(scene.world.tools.effects("send"), 1);
}

#[test]
fn what_can_go_on_and_nobody_drives_is_taken_up() {
    let scene = Scene::new(vec![call("look", 1)]).free();
    let world = &scene.world;
    // One whose process died, one that another process holds, one that was granted elsewhere, one that still waits.
    let dead = world.begin();
    std::mem::forget(dead);
    world.kill(1);
    let granted = {
        let mut held = begin_at(world, 2);
        ask(&mut held, "send");
        held.run()
    };
    world.answer("ann", &world.question(granted), Answer::Approve).unwrap();
    let waiting = {
        let mut held = begin_at(world, 2);
        ask(&mut held, "send");
        held.run()
    };
    let held = begin_at(world, 3);
    let runner = runner_at(&scene, 4);
    assert_eq!(block_on(runner.take_up()).unwrap(), TakenUp { expired: 0, runs: 2 });
    while world.count("run.finished") < 2 {
        std::thread::yield_now();
    }
    assert_eq!(world.state(granted).run.status, RunStatus::Completed);
    assert_eq!(world.tools.effects("send"), 1);
    assert_eq!(world.state(waiting).run.status, RunStatus::Waiting);
    assert_eq!(world.state(held.run()).run.status, RunStatus::Running);
    // Nothing is left to take up.
    assert_eq!(block_on(runner.take_up()).unwrap().runs, 0);
}

#[test]
fn a_run_that_cannot_be_read_keeps_no_other_from_going_on() {
    let scene = Scene::new(vec![call("send", 1)]).free();
    let world = &scene.world;
    let granted = [0, 1].map(|_| {
        let mut held = begin_at(world, 2);
        ask(&mut held, "send");
        held.run()
    });
    for run in granted {
        world.answer("ann", &world.question(run), Answer::Approve).unwrap();
    }
    let (id, nonsense) = (granted[0].as_bytes().to_vec(), Cell::Text("{".to_owned()));
    let damage = |raw: &mut portcullis_store::memory::Raw| {
        raw.set("runs", &[Cell::Blob(id)], "limits", nonsense)
    };
    assert!(world.store.tamper(damage).unwrap());
    let runner = runner_at(&scene, 4);
    assert_eq!(block_on(runner.take_up()).unwrap(), TakenUp { expired: 0, runs: 1 });
    while world.state(granted[1]).run.status != RunStatus::Completed {
        std::thread::yield_now();
    }
    assert_eq!(world.tools.effects("send"), 1);
}

#[test]
fn questions_that_are_past_their_time_end_by_themselves() {
    let scene = Scene::new(vec![call("send", 1)]).free();
    let runner = scene.runner(1, 1);
    let limits = Limits { question_ttl_ms: Some(60_000), ..Limits::default() };
    let ticket = block_on(runner.submit(Job::Begin(scene.world.task(limits)))).unwrap();
    let Rest { run, driven: Driven::Waiting(_) } = rest(ticket) else { panic!("nobody was asked") };
    assert_eq!(block_on(runner.take_up()).unwrap(), TakenUp { expired: 0, runs: 0 });
    scene.world.clock.advance(Duration::from_secs(61));
    assert_eq!(block_on(runner.take_up()).unwrap(), TakenUp { expired: 1, runs: 0 });
    assert_eq!(scene.world.state(run).run.reason, Some(EndReason::ApprovalExpired));
    assert_eq!(scene.world.tools.effects("send"), 0);
}

#[test]
fn a_stopped_runner_leaves_runs_that_can_be_taken_up() {
    let mut scene = Scene::new(vec![call("write", 1)]);
    let runner = scene.runner(1, 10);
    let driven = block_on(runner.submit(scene.task("ann"))).unwrap();
    while scene.script.now.load(Ordering::SeqCst) == 0 {
        std::thread::yield_now();
    }
    let in_line = block_on(runner.submit(scene.task("ann"))).unwrap();
    block_on(runner.stop());
    let Rest { run, driven: Driven::Stopped } = rest(driven) else { panic!("it was not stopped") };
    assert!(matches!(block_on(in_line.rest()), Err(Unserved::Stopping)));
    assert_eq!(scene.world.count("run.created"), 1);
    assert_eq!(scene.world.state(run).run.holder, None);
    scene.held.take();
    let runner = scene.runner(1, 10);
    let ticket = block_on(runner.submit(Job::GoOn(run))).unwrap();
    assert_eq!(rest(ticket), Rest { run, driven: Driven::Ended(EndReason::GoalCompleted) });
    assert_eq!(scene.world.tools.effects("write"), 1);
}

#[test]
fn a_run_that_is_not_there_and_one_that_is_held_elsewhere_are_refused() {
    let scene = Scene::new(Vec::new()).free();
    let held = begin_at(&scene.world, 2);
    let runner = scene.runner(1, 1);
    let missing = portcullis_domain::id::RunId::from_bytes([9; 16]);
    let refused = block_on(runner.submit(Job::GoOn(missing))).err().unwrap();
    let not_found = Unserved::Gate(GateError::Store(StoreError::NotFound("run")));
    assert_eq!(refused.to_string(), not_found.to_string());
    let ticket = block_on(runner.submit(Job::GoOn(held.run()))).unwrap();
    let refused = block_on(ticket.rest()).err().unwrap();
    assert!(matches!(refused, Unserved::Gate(GateError::Store(StoreError::Leased { .. }))));
    // The place is free again.
    let ticket = block_on(runner.submit(scene.task("ann"))).unwrap();
    assert_eq!(rest(ticket).driven, Driven::Ended(EndReason::GoalCompleted));
}

#[test]
fn a_later_runner_hears_of_answers_too() {
    let scene = Scene::new(vec![call("send", 1)]).free();
    let runner = scene.runner(1, 1);
    let ticket = block_on(runner.submit(scene.task("ann"))).unwrap();
    let Rest { run, driven: Driven::Waiting(_) } = rest(ticket) else { panic!("nobody was asked") };
    block_on(runner.stop());
    let _later = scene.runner(1, 1);
    let mut parts = scene.world.parts(9);
    parts.store = Arc::new(scene.world.store.handle(vec![scene.answers.clone()]));
    let signed = scene.world.signed("ann", &scene.world.question(run), Answer::Approve);
    block_on(portcullis_engine::operator::answer(&parts, scene.world.scope(), signed)).unwrap();
    while scene.world.state(run).run.status != RunStatus::Completed {
        std::thread::yield_now();
    }
}

#[test]
fn a_run_cancelled_during_its_call_leaves_its_place_at_once() {
    let scene = Scene::new(vec![call("write", 1)]).free();
    scene.world.tools.first("write", Does::Never);
    let runner = scene.runner(1, 10);
    let first = block_on(runner.submit(scene.task("ann"))).unwrap();
    while scene.world.tools.effects("write") == 0 {
        std::thread::yield_now();
    }
    let run = scene.world.only_run();
    let second = block_on(runner.submit(scene.task("ann"))).unwrap();
    assert_eq!(runner.load(), Load { driven: 1, in_line: 1 });
    // Through the same store, as a server does; no time passes.
    let mut parts = scene.world.parts(9);
    parts.store = Arc::new(scene.world.store.handle(vec![scene.answers.clone()]));
    block_on(operator::cancel(&parts, scene.world.scope(), run, "ann", None)).unwrap();
    assert_eq!(rest(first), Rest { run, driven: Driven::Ended(EndReason::OperatorCancelled) });
    assert_eq!(rest(second).driven, Driven::Ended(EndReason::GoalCompleted));
    assert_eq!(scene.world.tools.effects("write"), 2);
}

/// Has the only run cancelled while it decides.
struct Cancelling {
    policy: Arc<dyn Policy>,
    cancel: Box<dyn Fn() + Send + Sync>,
}

impl Policy for Cancelling {
    fn id(&self) -> PolicyId {
        self.policy.id()
    }

    fn decide(&self, call: &ProposedCall<'_>, facts: &Facts) -> Result<Verdict, PolicyFailure> {
        (self.cancel)();
        self.policy.decide(call, facts)
    }
}

#[test]
fn a_run_cancelled_while_it_is_judged_ends_as_that() {
    let scene = Scene::new(vec![call("write", 1)]).free();
    let (mut parts, mut beside) = (scene.world.parts(1), scene.world.parts(9));
    let observed = || Arc::new(scene.world.store.handle(vec![scene.answers.clone()]));
    (parts.store, beside.store) = (observed(), observed());
    let (policy, scope) = (parts.policy.clone(), scene.world.scope().clone());
    let cancel = Box::new(move || {
        let page = portcullis_domain::ports::Page { offset: 0, limit: 1 };
        let run = block_on(beside.store.runs(&scope, None, page)).unwrap().rows.remove(0).unwrap();
        block_on(operator::cancel(&beside, &scope, run.id, "ann", None)).unwrap();
    });
    parts.policy = Arc::new(Cancelling { policy, cancel });
    let room = Room { places: NonZeroUsize::MIN, line: NonZeroUsize::MIN };
    let (gate, scope) = (Gate::new(parts), scene.world.scope().clone());
    let runner = Runner::new(gate, scope, scene.script.clone(), room, Some(&scene.answers));
    let ticket = block_on(runner.submit(scene.task("ann"))).unwrap();
    assert_eq!(rest(ticket).driven, Driven::Ended(EndReason::OperatorCancelled));
    assert_eq!(scene.world.tools.effects("write"), 0);
}

/// A run whose approved call waits for what another's did, and the question about that.
fn blocked(scene: &Scene) -> (RunId, portcullis_domain::question::Question) {
    let world = &scene.world;
    let approved = || {
        let mut held = begin_at(world, 2);
        ask(&mut held, "send");
        let run = held.run();
        world.answer("ann", &world.question(run), Answer::Approve).unwrap();
        run
    };
    let (lost, waits) = (approved(), approved());
    world.tools.first("send", Does::Unknown);
    let (mut held, _) = world.take(2, lost);
    assert!(matches!(block_on(held.execute()).unwrap(), Progress::Waiting(_)));
    (waits, world.question(lost))
}

#[test]
fn a_run_that_waits_for_what_another_did_is_not_taken_up_until_that_is_known() {
    let scene = Scene::new(vec![call("send", 1)]).free();
    let (waits, question) = blocked(&scene);
    let runner = runner_at(&scene, 4);
    let before = scene.world.bodies().len();
    for _ in 0..3 {
        assert_eq!(block_on(runner.take_up()).unwrap(), TakenUp { expired: 0, runs: 0 });
    }
    let asked_for = block_on(runner.submit(Job::GoOn(waits))).unwrap();
    let refused = block_on(asked_for.rest()).err().unwrap();
    let open = StoreError::OutcomeOpen { question: question.id };
    assert_eq!(refused.to_string(), open.to_string());
    assert_eq!(scene.world.bodies().len(), before, "nobody took its lease");
    // Another process records the answer: the next look finds both.
    scene.world.answer("ann", &question, Answer::DidNotHappen).unwrap();
    assert_eq!(block_on(runner.take_up()).unwrap(), TakenUp { expired: 0, runs: 2 });
    while scene.world.state(waits).run.status != RunStatus::Completed {
        std::thread::yield_now();
    }
    assert_eq!(scene.world.tools.effects("send"), 2);
}

#[test]
fn a_run_that_waits_for_what_another_did_goes_on_with_the_answer() {
    let scene = Scene::new(vec![call("send", 1)]).free();
    let (waits, question) = blocked(&scene);
    let _runner = {
        let runner = scene.runner(1, 10);
        assert_eq!(block_on(runner.take_up()).unwrap().runs, 0);
        runner
    };
    let mut parts = scene.world.parts(9);
    parts.store = Arc::new(scene.world.store.handle(vec![scene.answers.clone()]));
    let signed = scene.world.signed("ann", &question, Answer::DidNotHappen);
    block_on(operator::answer(&parts, scene.world.scope(), signed)).unwrap();
    // Nobody looks.
    while scene.world.state(waits).run.status != RunStatus::Completed {
        std::thread::yield_now();
    }
    assert_eq!(scene.world.tools.effects("send"), 2);
}

/// An executor that starts no task while a test says so.
struct Refusing {
    spawn: Arc<dyn Spawn>,
    refuses: AtomicBool,
}

impl Spawn for Refusing {
    fn spawn(&self, task: BoxFuture<'static, ()>) -> Result<(), SpawnError> {
        if self.refuses.load(Ordering::SeqCst) {
            return Err(SpawnError::Closed);
        }
        self.spawn.spawn(task)
    }

    fn place(&self) -> Result<Box<dyn Place>, SpawnError> {
        self.spawn.place()
    }
}

#[test]
fn a_place_that_cannot_be_opened_takes_nobody_elses_turn_away() {
    let mut scene = Scene::new(Vec::new());
    let mut parts = scene.world.parts(1);
    let refuses = AtomicBool::new(true);
    let spawn = Arc::new(Refusing { spawn: parts.spawn.clone(), refuses });
    parts.spawn = spawn.clone();
    let room = Room { places: NonZeroUsize::new(2).unwrap(), line: NonZeroUsize::new(9).unwrap() };
    let scope = scene.world.scope().clone();
    let runner = Runner::new(Gate::new(parts), scope, scene.script.clone(), room, None);
    // Nobody is at a place: whoever comes hears that nobody will be.
    let told = block_on(runner.submit(scene.task("ann"))).unwrap();
    assert!(matches!(block_on(told.rest()), Err(Unserved::Gate(GateError::Executor))));
    assert_eq!(runner.load(), Load { driven: 0, in_line: 0 });
    spawn.refuses.store(false, Ordering::SeqCst);
    let first = block_on(runner.submit(scene.task("ann"))).unwrap();
    while scene.script.asked.load(Ordering::SeqCst) == 0 {
        std::thread::yield_now();
    }
    // A second place cannot be opened: the first serves them all.
    spawn.refuses.store(true, Ordering::SeqCst);
    let others = [0, 1].map(|_| block_on(runner.submit(scene.task("ben"))).unwrap());
    assert_eq!(runner.load(), Load { driven: 1, in_line: 2 });
    spawn.refuses.store(false, Ordering::SeqCst);
    scene.held.take();
    for ticket in std::iter::once(first).chain(others) {
        assert_eq!(rest(ticket).driven, Driven::Ended(EndReason::GoalCompleted));
    }
}

#[test]
fn of_one_run_no_more_hear_than_may() {
    let mut scene = Scene::new(Vec::new());
    let runner = scene.runner(1, 10);
    let first = block_on(runner.submit(scene.task("ann"))).unwrap();
    while scene.script.now.load(Ordering::SeqCst) == 0 {
        std::thread::yield_now();
    }
    let run = scene.world.only_run();
    let again = || block_on(runner.submit(Job::GoOn(run)));
    let heard: Vec<_> = (0..64).map(|_| again().unwrap()).collect();
    assert!(matches!(again(), Err(Unserved::Crowded)));
    scene.held.take();
    for ticket in std::iter::once(first).chain(heard) {
        assert_eq!(rest(ticket).driven, Driven::Ended(EndReason::GoalCompleted));
    }
}

/// Makes agents when there is nothing left to wait for, which is never.
struct Stalled;

impl Agents for Stalled {
    fn agent<'a>(&'a self, _: &'a Run) -> BoxFuture<'a, Result<Box<dyn Agent>, AgentFailure>> {
        Box::pin(std::future::pending())
    }
}

#[test]
fn a_runner_stops_while_an_agent_is_being_made() {
    let world = World::new();
    let room = Room { places: NonZeroUsize::MIN, line: NonZeroUsize::MIN };
    let runner = Runner::new(world.gate(1), world.scope().clone(), Arc::new(Stalled), room, None);
    let ticket = block_on(runner.submit(Job::Begin(world.task(Limits::default())))).unwrap();
    while world.count("run.created") == 0 {
        std::thread::yield_now();
    }
    block_on(runner.stop());
    assert_eq!(rest(ticket).driven, Driven::Stopped);
}

/// Makes no agent.
struct NoAgents {
    panics: bool,
}

impl Agents for NoAgents {
    fn agent<'a>(&'a self, _: &'a Run) -> BoxFuture<'a, Result<Box<dyn Agent>, AgentFailure>> {
        assert!(!self.panics, "as planned");
        let failure = AgentFailure { reason: EndReason::AgentExited, message: "none".to_owned() };
        Box::pin(async move { Err(failure) })
    }
}

#[test]
fn a_run_whose_agent_cannot_be_made_ends_for_that_reason() {
    for (panics, reason) in [(false, EndReason::AgentExited), (true, EndReason::AgentError)] {
        let world = World::new();
        let room = Room { places: NonZeroUsize::MIN, line: NonZeroUsize::MIN };
        let agents = Arc::new(NoAgents { panics });
        let runner = Runner::new(world.gate(1), world.scope().clone(), agents, room, None);
        let task = world.task(Limits::default());
        let ticket = block_on(runner.submit(Job::Begin(task))).unwrap();
        assert_eq!(rest(ticket).driven, Driven::Ended(reason));
    }
}

fn begin_at(world: &World, pid: u32) -> portcullis_engine::HeldRun {
    let task = world.task(Limits { max_steps: 100, ..Limits::default() });
    block_on(world.gate(pid).begin(world.scope(), task)).unwrap()
}

fn runner_at(scene: &Scene, pid: u32) -> Runner {
    let room = Room { places: NonZeroUsize::MIN, line: NonZeroUsize::MIN };
    let scope = scene.world.scope().clone();
    Runner::new(scene.world.gate(pid), scope, scene.script.clone(), room, None)
}
