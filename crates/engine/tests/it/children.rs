//! Runs that a run starts: begun once, never wider than their parent, waited for, and ended with it.

use std::collections::BTreeMap;
use std::num::NonZeroUsize;
use std::sync::Arc;
use std::time::Duration;

use portcullis_canon::{Digest, Object};
use portcullis_domain::approval::Answer;
use portcullis_domain::child;
use portcullis_domain::event::{Body, RunFinished};
use portcullis_domain::id::{InstanceId, RunId};
use portcullis_domain::label::{Labels, Origin};
use portcullis_domain::lease::Epoch;
use portcullis_domain::limits::Limits;
use portcullis_domain::observation::ObservationKind;
use portcullis_domain::ports::{
    Agent, AgentFailure, Append, BoxFuture, Committed, Condition, Durability, Ledgers, NewEvent,
    Page, Reminder, Store, StoreError, View,
};
use portcullis_domain::refusal::Refusal;
use portcullis_domain::run::{EndReason, Run, RunStatus};
use portcullis_domain::scope::Scope;
use portcullis_domain::step::StepStatus;
use portcullis_domain::time::Timestamp;
use portcullis_domain::wait::Wait;
use portcullis_engine::operator::{self, cancel};
use portcullis_engine::{
    Agents, Attached, Driven, Gate, GateError, HeldRun, Job, Parts, Progress, Rest, Room, Runner,
    Task, Tools, next_of_tree,
};
use portcullis_store::memory::MemoryStore;
use portcullis_testkit::block_on;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::world::{FakeTools, World, call, turn};

/// A gate whose runs may start others.
pub(crate) fn parts(world: &World, pid: u32) -> Parts {
    let tools = Tools::register(vec![world.tools.clone()]).unwrap().with_children().unwrap();
    Parts { tools: Arc::new(tools), ..world.parts(pid) }
}

fn gate(world: &World, pid: u32) -> Gate {
    Gate::new(parts(world, pid))
}

fn begin(world: &World, limits: Limits) -> HeldRun {
    block_on(gate(world, 1).begin(world.scope(), world.task(limits))).unwrap()
}

fn attach(world: &World, run: RunId) -> Attached {
    block_on(gate(world, 1).attach(world.scope(), run)).unwrap()
}

fn take(world: &World, run: RunId) -> HeldRun {
    match attach(world, run) {
        Attached::Held(held, _) => held,
        Attached::Child(child) => panic!("waits for {child}"),
        Attached::Waiting(question) => panic!("waits for {question}"),
        Attached::Ended(reason) => panic!("ended: {reason:?}"),
    }
}

fn spawn(arguments: &str) -> Vec<u8> {
    format!(r#"{{"kind":"tool_call","tool":"spawn","arguments":{arguments}}}"#).into_bytes()
}

const PART: &str = r#"{"goal":"a part"}"#;
const DONE: &[u8] = br#"{"kind":"complete","result":{"found":3}}"#;

/// Has the held run start another one, which is then waited for.
fn start(held: &mut HeldRun, arguments: &str) -> RunId {
    match turn(held, spawn(arguments)) {
        Progress::Child(child) => child,
        other => panic!("no child: {other:?}"),
    }
}

/// Has the held run try to start another one; why it may not.
fn refused(world: &World, held: &mut HeldRun, arguments: &str) -> Refusal {
    assert_eq!(turn(held, spawn(arguments)), Progress::Observed);
    let run = held.run();
    let state = world.state(run);
    let step = world.step(run, state.run.step_count - 2);
    assert!(children(world, run).is_empty());
    step.observation.unwrap().refusal.unwrap()
}

fn children(world: &World, run: RunId) -> Vec<Run> {
    let page = Page { offset: 0, limit: 100 };
    let rows = block_on(world.store.children(world.scope(), run, page)).unwrap().rows;
    rows.into_iter().map(Result::unwrap).collect()
}

fn many() -> Limits {
    Limits { max_steps: 100, max_consecutive_failures: 100, ..Limits::default() }
}

#[test]
fn a_child_begins_as_part_of_its_parent_and_its_result_is_what_the_parent_observes() {
    let world = World::with_tools(FakeTools::new(false));
    let limits = Limits { max_total_tokens: Some(900), max_elapsed_ms: Some(60_000), ..many() };
    let mut held = begin(&world, limits.clone());
    let run = held.run();
    turn(&mut held, call("look", 1));
    world.clock.advance(Duration::from_secs(20));
    let child = start(
        &mut held,
        r#"{"goal":"a part","tools":["look","write"],"max_steps":7,"max_total_tokens":100}"#,
    );
    drop(held);

    let parent = world.state(run);
    assert_eq!((parent.run.status, parent.run.waits), (RunStatus::Waiting, Some(Wait::Child)));
    assert_eq!((parent.run.holder.as_ref(), parent.run.free_since), (None, None));
    assert_eq!(child, child::id(run, world.step(run, 1).id));
    let begun = world.state(child).run;
    assert_eq!((begun.parent, begun.root), (Some(run), run));
    assert_eq!((begun.thread, &begun.owner), (parent.run.thread, &parent.run.owner));
    let names: Vec<&str> = begun.tools.iter().map(|tool| tool.name.as_str()).collect();
    assert_eq!(names, ["look", "write"]);
    let narrowed = Limits {
        max_steps: 7,
        max_total_tokens: Some(100),
        max_elapsed_ms: Some(40_000),
        ..limits
    };
    assert_eq!(begun.limits, narrowed);
    assert_eq!((begun.holder, begun.waits), (None, Some(Wait::Resume)));

    // Nobody can go on with the parent, and looking writes nothing.
    let before = world.bodies().len();
    assert!(matches!(attach(&world, run), Attached::Child(found) if found == child));
    assert_eq!(world.bodies().len(), before);

    let mut held = take(&world, child);
    let view = block_on(held.view(true)).unwrap();
    assert_eq!((view.goal.as_str(), view.history.len()), ("a part", 0));
    let names: Vec<&str> = view.tools.iter().map(|tool| tool.name.as_str()).collect();
    assert_eq!(names, ["look", "write"]);
    assert!(view.labels.is_external(), "the child begins with what its parent has read");
    turn(&mut held, call("write", 2));
    assert_eq!(turn(&mut held, DONE.to_vec()), Progress::Ended(EndReason::GoalCompleted));
    drop(held);

    let held = take(&world, run);
    let seen = world.observed(run, 1);
    assert_eq!(seen.to_canonical_string(), r#"{"result":{"found":3},"status":"completed"}"#);
    let step = world.step(run, 1);
    let observation = step.observation.unwrap();
    assert_eq!((step.status, observation.kind), (StepStatus::Done, ObservationKind::ToolResult));
    assert!(observation.labels.covers(&Labels::of(Origin::external("write"))), "{observation:?}");
    assert!(observation.labels.covers(&Labels::of(Origin::Agent)), "{observation:?}");
    assert_eq!(world.state(run).run.waits, Some(Wait::Driver));
    drop(held);
}

#[test]
fn a_child_is_never_wider_than_its_parent() {
    let world = World::with_tools(FakeTools::new(false));
    let limits = Limits { max_total_tokens: Some(900), max_elapsed_ms: Some(60_000), ..many() };
    let mut held = begin(&world, limits);
    for wider in [
        r#"{"goal":"g","tools":["nothing"]}"#,
        r#"{"goal":"g","tools":["look","nothing"]}"#,
        r#"{"goal":"g","max_steps":101}"#,
        r#"{"goal":"g","max_total_tokens":901}"#,
        r#"{"goal":"g","max_elapsed_ms":60001}"#,
    ] {
        assert_eq!(refused(&world, &mut held, wider), Refusal::ChildWider, "{wider}");
    }
    let unread = refused(&world, &mut held, r#"{"goal":"g","policy":"none"}"#);
    assert_eq!(unread, Refusal::ArgumentsInvalid);

    // The control is a child with less; what it was not given it cannot call, nor give on.
    let child = start(&mut held, r#"{"goal":"g","tools":["look","spawn"]}"#);
    drop(held);
    let mut held = take(&world, child);
    turn(&mut held, call("write", 1));
    let refusal = |index| world.step(child, index).observation.unwrap().refusal;
    assert_eq!(refusal(0), Some(Refusal::UnknownTool));
    assert_eq!(world.tools.effects("write"), 0);
    assert_eq!(
        refused(&world, &mut held, r#"{"goal":"g","tools":["write"]}"#),
        Refusal::ChildWider
    );
    let grandchild = start(&mut held, PART);
    drop(held);
    let names: Vec<String> =
        world.state(grandchild).run.tools.into_iter().map(|tool| tool.name).collect();
    assert_eq!(names, ["look", "spawn"]);
}

#[test]
fn only_so_many_stand_above_one_another_and_beside_one_another() {
    let world = World::with_tools(FakeTools::new(false));
    let mut held = begin(&world, many());
    for _ in 0..child::MAX_DEPTH {
        let child = start(&mut held, PART);
        drop(held);
        held = take(&world, child);
    }
    assert_eq!(refused(&world, &mut held, PART), Refusal::ChildTooDeep);
    drop(held);

    let mut held = begin(&world, Limits { max_steps: 100, loop_threshold: 32, ..many() });
    let run = held.run();
    for n in 0..child::MAX_CHILDREN {
        let child = start(&mut held, &format!(r#"{{"goal":"part {n}"}}"#));
        block_on(cancel(&world.parts(1), world.scope(), child, "ann", None)).unwrap();
        drop(held);
        held = take(&world, run);
    }
    assert_eq!(turn(&mut held, spawn(PART)), Progress::Observed);
    let step = world.step(run, child::MAX_CHILDREN);
    assert_eq!(step.observation.unwrap().refusal, Some(Refusal::ChildTooMany));
    assert_eq!(u64::try_from(children(&world, run).len()).unwrap(), child::MAX_CHILDREN);
}

/// How a child ends without being done, and the reason that its parent is told.
#[test]
fn the_parent_learns_why_its_child_was_not_done_and_goes_on() {
    type End = fn(&World, RunId);
    let fails: End = |world, child| {
        let mut held = take(world, child);
        turn(&mut held, br#"{"kind":"fail","message":"no such file"}"#.to_vec());
    };
    let cancelled: End = |world, child| {
        block_on(cancel(&world.parts(9), world.scope(), child, "ann", Some("enough"))).unwrap();
    };
    let rejected: End = |world, child| {
        let mut held = take(world, child);
        block_on(held.propose(call("send", 1))).unwrap();
        let question = world.question(child);
        world.answer("ben", &question, Answer::Reject).unwrap();
    };
    let expired: End = |world, child| {
        let mut held = take(world, child);
        block_on(held.propose(call("send", 1))).unwrap();
        world.clock.advance(Duration::from_secs(11));
        assert_eq!(block_on(operator::sweep_due(&world.parts(9), world.scope())).unwrap(), 1);
    };
    let limited: End = |world, child| {
        let mut held = take(world, child);
        turn(&mut held, call("look", 1));
    };
    for (end, reason, note) in [
        (fails, "goal_failed", Some("no such file")),
        (cancelled, "operator_cancelled", Some("enough")),
        (rejected, "approval_rejected", None),
        (expired, "approval_expired", None),
        (limited, "limit_steps", None),
    ] {
        let world = World::with_tools(FakeTools::new(false));
        let mut held = begin(&world, Limits { question_ttl_ms: Some(10_000), ..many() });
        let run = held.run();
        let child = start(&mut held, r#"{"goal":"g","max_steps":1}"#);
        drop(held);
        end(&world, child);
        let ended = world.state(child).run;
        assert_eq!(ended.reason.map(EndReason::as_str), Some(reason));
        let mut held = take(&world, run);
        let seen = world.observed(run, 0);
        let text = |key: &str| seen.get(key).and_then(|value| value.as_str());
        assert_eq!((text("reason"), text("note")), (Some(reason), note));
        assert_eq!(text("status"), Some(ended.status.as_str()));
        // The parent is not ended with it, and may start another.
        start(&mut held, PART);
        assert_eq!(children(&world, run).len(), 2);
    }
}

/// A tree whose lowest run waits for a person.
fn asking_tree(world: &World) -> [RunId; 3] {
    let mut held = begin(world, many());
    let run = held.run();
    let child = start(&mut held, PART);
    drop(held);
    let mut held = take(world, child);
    let grandchild = start(&mut held, PART);
    drop(held);
    let mut held = take(world, grandchild);
    assert!(matches!(block_on(held.propose(call("send", 1))).unwrap(), Progress::Waiting(_)));
    [run, child, grandchild]
}

#[test]
fn a_cancel_ends_the_whole_tree() {
    let world = World::with_tools(FakeTools::new(false));
    let runs = asking_tree(&world);
    let question = world.question(runs[2]);
    block_on(cancel(&world.parts(9), world.scope(), runs[0], "ann", None)).unwrap();
    let reasons = runs.map(|run| world.state(run).run.reason.unwrap());
    let below = EndReason::ParentEnded;
    assert_eq!(reasons, [EndReason::OperatorCancelled, below, below]);
    let late = world.answer("ben", &question, Answer::Approve);
    assert!(late.is_err(), "{late:?}");
    assert!(matches!(attach(&world, runs[0]), Attached::Ended(EndReason::OperatorCancelled)));
    // A run below that is cancelled leaves those above to go on.
    let runs = asking_tree(&world);
    block_on(cancel(&world.parts(9), world.scope(), runs[1], "ann", None)).unwrap();
    assert_eq!(world.state(runs[2]).run.reason, Some(below));
    drop(take(&world, runs[0]));
    assert_eq!(world.state(runs[0]).run.status, RunStatus::Running);
}

/// Cancels one run alone, as a process that dies before it comes to those below.
fn cancel_alone(world: &World, run: RunId) {
    let body =
        RunFinished { reason: EndReason::OperatorCancelled, note: None, result: None, by: None };
    let condition = Condition::Operator {
        run,
        statuses: vec![RunStatus::Running, RunStatus::Waiting],
        question: None,
    };
    let at = world.clock_now();
    let event = NewEvent { stream: run.into(), step: None, at, body: Body::RunFinished(body) };
    let append = Append {
        condition,
        events: vec![event],
        contents: Vec::new(),
        specs: Vec::new(),
        durability: Durability::Synced,
    };
    block_on(world.store.append(world.scope(), append)).unwrap();
}

#[test]
fn a_cancel_that_was_cut_short_is_gone_on_with() {
    let world = World::with_tools(FakeTools::new(false));
    let runs = asking_tree(&world);
    cancel_alone(&world, runs[0]);
    assert!(!world.state(runs[1]).run.status.is_terminal(), "the control: it was cut short");
    assert_eq!(block_on(operator::sweep_due(&world.parts(9), world.scope())).unwrap(), 2);
    assert!(
        runs[1..]
            .iter()
            .all(|run| { world.state(*run).run.reason == Some(EndReason::ParentEnded) })
    );
    assert_eq!(block_on(operator::sweep_due(&world.parts(9), world.scope())).unwrap(), 0);

    // Without a sweep: whoever wants to take the lowest up ends it, and the one in between.
    let runs = asking_tree(&world);
    world.answer("ben", &world.question(runs[2]), Answer::Approve).unwrap();
    cancel_alone(&world, runs[0]);
    assert!(matches!(attach(&world, runs[2]), Attached::Ended(EndReason::ParentEnded)));
    assert_eq!(world.state(runs[1]).run.reason, Some(EndReason::ParentEnded));
    assert_eq!(world.tools.effects("send"), 0);
}

#[test]
fn a_driven_child_does_nothing_more_once_its_parent_has_ended() {
    for ended in [false, true] {
        let world = World::with_tools(FakeTools::new(false));
        let mut held = begin(&world, many());
        let run = held.run();
        let child = start(&mut held, PART);
        drop(held);
        let mut held = take(&world, child);
        assert_eq!(block_on(held.propose(call("write", 1))).unwrap(), Progress::Allowed);
        if ended {
            cancel_alone(&world, run);
        }
        let progress = block_on(held.execute()).unwrap();
        // The control has its effect.
        assert_eq!(world.tools.effects("write"), u32::from(!ended));
        let expected = match ended {
            true => Progress::Ended(EndReason::ParentEnded),
            false => Progress::Observed,
        };
        assert_eq!(progress, expected);
    }
}

#[test]
fn a_parent_that_has_ended_starts_nothing_and_one_that_waits_does_not_go_on_before() {
    let world = World::with_tools(FakeTools::new(false));
    let mut held = begin(&world, many());
    let run = held.run();
    let child = start(&mut held, PART);
    drop(held);
    let step = world.step(run, 0);
    let created = world.bodies().into_iter().find_map(|body| match body {
        Body::RunCreated(body) if body.parent.is_some() => Some(body),
        _ => None,
    });
    // A second run for the step, under an id that is not derived from it, or under one of another step.
    let other = child::id(run, portcullis_domain::id::StepId::from_bytes([9; 16]));
    for (id, error) in [(child, StoreError::Stale), (other, StoreError::NotAdmitted)] {
        let body = Body::RunCreated(created.clone().unwrap());
        let again = append(&world, id, 0, vec![(None, body)]);
        assert_eq!(block_on(world.store.append(world.scope(), again)).unwrap_err(), error);
    }
    assert_eq!(step.status, StepStatus::Executing);
    cancel_alone(&world, run);
    let fresh = portcullis_domain::id::RunId::from_bytes([7; 16]);
    let body = Body::RunCreated(created.unwrap());
    let late = append(&world, fresh, 0, vec![(None, body)]);
    let error = block_on(world.store.append(world.scope(), late)).unwrap_err();
    assert_eq!(error, StoreError::ParentEnded);
}

fn append(
    world: &World,
    run: RunId,
    seq: u64,
    events: Vec<(Option<portcullis_domain::id::StepId>, Body)>,
) -> Append {
    let at = world.clock_now();
    let epoch = portcullis_domain::lease::Epoch::NONE;
    Append {
        condition: Condition::Driver {
            run,
            seq,
            epoch,
            take: None,
            live_at: None,
            label_seq: None,
        },
        events: events
            .into_iter()
            .map(|(step, body)| NewEvent { stream: run.into(), step, at, body })
            .collect(),
        contents: Vec::new(),
        specs: Vec::new(),
        durability: Durability::Synced,
    }
}

/// What each run of a tree proposes, by its goal, then it completes.
type Plays = BTreeMap<&'static str, Vec<Vec<u8>>>;

/// Drives a tree as one process would, until it rests.
fn drive(
    world: &World,
    parts: &Parts,
    top: Option<RunId>,
    plays: &Plays,
) -> Result<RunId, GateError> {
    let (gate, scope) = (Gate::new(parts.clone()), world.scope());
    let top = match top {
        Some(top) => top,
        None => {
            let held =
                block_on(gate.begin(scope, Task { goal: "top".to_owned(), ..world.task(many()) }))?;
            let run = held.run();
            block_on(held.close())?;
            run
        }
    };
    let mut next = Some(top);
    while let Some(run) = next {
        let child = match block_on(gate.attach(scope, run))? {
            Attached::Held(held, progress) => play(held, progress, plays)?,
            Attached::Child(child) => Some(child),
            Attached::Waiting(_) => {
                says_what_happened(world, run, plays);
                next = Some(run);
                continue;
            }
            Attached::Ended(_) => None,
        };
        next = next_of_tree(top, &world.state(run).run, child);
    }
    Ok(top)
}

/// A person who looks says what became of the call that a run waits for.
fn says_what_happened(world: &World, run: RunId, plays: &Plays) {
    let question = world.question(run);
    let goal = goal_of(world, run);
    let step = world.state(run).step().unwrap().index;
    let line = &plays[goal.as_str()][usize::try_from(step).unwrap()];
    let happened = world.tools.seen().iter().any(|arguments| {
        let arguments = String::from_utf8(arguments.to_canonical()).unwrap();
        String::from_utf8_lossy(line).contains(&arguments)
    });
    let answer = if happened { Answer::Happened } else { Answer::DidNotHappen };
    world.answer("ben", &question, answer).unwrap();
}

fn goal_of(world: &World, run: RunId) -> String {
    let goal = world.state(run).run.goal.digest;
    let goal = block_on(world.store.content(world.scope(), goal)).unwrap().unwrap();
    String::from_utf8(goal.into_bytes()).unwrap()
}

fn play(mut held: HeldRun, progress: Progress, plays: &Plays) -> Result<Option<RunId>, GateError> {
    let goal = block_on(held.view(true))?.goal;
    let lines = plays.get(goal.as_str()).cloned().unwrap_or_default();
    let mut progress = progress;
    loop {
        progress = match progress {
            Progress::Open => {
                let index = usize::try_from(block_on(held.view(true))?.request).unwrap();
                let line = lines.get(index).cloned().unwrap_or_else(|| DONE.to_vec());
                block_on(held.propose(line))?
            }
            Progress::Allowed => block_on(held.execute())?,
            Progress::Observed => block_on(held.step())?,
            Progress::Child(child) => return Ok(Some(child)),
            Progress::Waiting(_) | Progress::Ended(_) => return Ok(None),
        };
    }
}

/// A tree of four: two below the top, and one below the first of these.
fn plays() -> Plays {
    BTreeMap::from([
        ("top", vec![spawn(r#"{"goal":"left"}"#), spawn(r#"{"goal":"right"}"#)]),
        ("left", vec![call("write", 1), spawn(r#"{"goal":"below"}"#)]),
        ("below", vec![call("write", 2)]),
        ("right", vec![call("write", 3)]),
    ])
}

/// The store of a process that ends at an append: before it, or after it was stored. Nothing comes through afterwards.
pub(crate) struct Mortal {
    inner: MemoryStore,
    appends: AtomicU64,
    last: u64,
    stored: bool,
}

impl Mortal {
    pub(crate) fn of(world: &World, last: u64, stored: bool) -> Self {
        Self { inner: world.store.clone(), appends: AtomicU64::new(0), last, stored }
    }

    fn living<'a, T: Send + 'a>(
        &'a self,
        call: BoxFuture<'a, Result<T, StoreError>>,
    ) -> BoxFuture<'a, Result<T, StoreError>> {
        match self.appends.load(Ordering::SeqCst) < self.last {
            true => call,
            false => Box::pin(std::future::ready(Err(StoreError::Closed))),
        }
    }
}

impl Store for Mortal {
    portcullis_testkit::store_reads!(inner, living);

    fn instance(&self) -> InstanceId {
        self.inner.instance()
    }

    fn append<'a>(
        &'a self,
        scope: &'a Scope,
        append: Append,
    ) -> BoxFuture<'a, Result<Committed, StoreError>> {
        Box::pin(async move {
            let number = self.appends.fetch_add(1, Ordering::SeqCst) + 1;
            let comes = number < self.last || (number == self.last && self.stored);
            let committed = match comes {
                true => self.inner.append(scope, append).await,
                false => Err(StoreError::Closed),
            };
            if number < self.last { committed } else { Err(StoreError::Closed) }
        })
    }

    fn renew<'a>(
        &'a self,
        scope: &'a Scope,
        run: RunId,
        epoch: Epoch,
        now: Timestamp,
        until: Timestamp,
    ) -> BoxFuture<'a, Result<(), StoreError>> {
        self.living(self.inner.renew(scope, run, epoch, now, until))
    }

    fn remind<'a>(
        &'a self,
        scope: &'a Scope,
        reminder: Reminder,
    ) -> BoxFuture<'a, Result<(), StoreError>> {
        self.living(self.inner.remind(scope, reminder))
    }

    fn erase<'a>(
        &'a self,
        scope: &'a Scope,
        content: Digest,
        by: &'a str,
        at: Timestamp,
    ) -> BoxFuture<'a, Result<(), StoreError>> {
        self.living(self.inner.erase(scope, content, by, at))
    }
}

/// A store that cannot end one run, as when its rows are damaged.
struct Stubborn {
    inner: MemoryStore,
    run: RunId,
}

impl Stubborn {
    fn passed<'a, T: Send + 'a>(
        &'a self,
        call: BoxFuture<'a, Result<T, StoreError>>,
    ) -> BoxFuture<'a, Result<T, StoreError>> {
        call
    }
}

impl Store for Stubborn {
    portcullis_testkit::store_reads!(inner, passed);

    fn instance(&self) -> InstanceId {
        self.inner.instance()
    }

    fn append<'a>(
        &'a self,
        scope: &'a Scope,
        append: Append,
    ) -> BoxFuture<'a, Result<Committed, StoreError>> {
        if matches!(append.condition, Condition::Operator { run, .. } if run == self.run) {
            return Box::pin(std::future::ready(Err(StoreError::Damaged { table: "steps" })));
        }
        self.inner.append(scope, append)
    }

    fn renew<'a>(
        &'a self,
        scope: &'a Scope,
        run: RunId,
        epoch: Epoch,
        now: Timestamp,
        until: Timestamp,
    ) -> BoxFuture<'a, Result<(), StoreError>> {
        self.inner.renew(scope, run, epoch, now, until)
    }

    fn remind<'a>(
        &'a self,
        scope: &'a Scope,
        reminder: Reminder,
    ) -> BoxFuture<'a, Result<(), StoreError>> {
        self.inner.remind(scope, reminder)
    }

    fn erase<'a>(
        &'a self,
        scope: &'a Scope,
        content: Digest,
        by: &'a str,
        at: Timestamp,
    ) -> BoxFuture<'a, Result<(), StoreError>> {
        self.inner.erase(scope, content, by, at)
    }
}

#[test]
fn a_run_that_cannot_be_ended_keeps_no_other_from_its_end() {
    let world = World::with_tools(FakeTools::new(false));
    let begin = |parent| {
        let task = Task { parent, ..world.task(many()) };
        let held = block_on(gate(&world, 1).begin(world.scope(), task)).unwrap();
        let run = held.run();
        block_on(held.close()).unwrap();
        run
    };
    let top = begin(None);
    let [damaged, beside] = [begin(Some(top)), begin(Some(top))];
    let below = begin(Some(damaged));
    let store = Arc::new(Stubborn { inner: world.store.clone(), run: damaged });
    let own = Parts { store, ..parts(&world, 9) };
    block_on(cancel(&own, world.scope(), top, "ann", None)).unwrap();
    let ended = |run| world.state(run).run.reason == Some(EndReason::ParentEnded);
    assert!(!ended(damaged), "the control: it cannot be ended");
    assert!(ended(beside) && ended(below));
    // Whoever can end it does.
    assert_eq!(block_on(operator::sweep_due(&world.parts(9), world.scope())).unwrap(), 1);
    assert!(ended(damaged));
}

/// The process ends at each append, before it and after it: the next one goes on, and no run and no effect is there twice.
#[test]
fn wherever_a_process_ends_the_tree_is_gone_on_with_and_nothing_happens_twice() {
    let plays = plays();
    let undisturbed = World::with_tools(FakeTools::new(false));
    let counted = Arc::new(Mortal::of(&undisturbed, u64::MAX, false));
    let all = Parts { store: counted.clone(), ..parts(&undisturbed, 1) };
    drive(&undisturbed, &all, None, &plays).unwrap();
    assert_eq!(undisturbed.tools.effects("write"), 3);
    let appends = counted.appends.load(Ordering::SeqCst);
    assert!(appends > 30, "{appends}");
    for number in 1..=appends {
        for stored in [false, true] {
            let world = World::with_tools(FakeTools::new(false));
            let mortal = Arc::new(Mortal::of(&world, number, stored));
            let first = Parts { store: mortal.clone(), ..parts(&world, 1) };
            let outcome = drive(&world, &first, None, &plays);
            assert!(outcome.is_err(), "append {number}, stored {stored}");
            world.kill(1);
            world.clock.advance(Duration::from_secs(31));
            let Some(top) = top_of(&world) else { continue };
            drive(&world, &parts(&world, 2), Some(top), &plays)
                .unwrap_or_else(|error| panic!("append {number}, stored {stored}: {error}"));
            let case = format!("append {number}, stored {stored}");
            check_tree(&world, top, &case);
        }
    }
}

fn top_of(world: &World) -> Option<RunId> {
    let page = Page { offset: 0, limit: 100 };
    let rows = block_on(world.store.runs(world.scope(), None, page)).unwrap().rows;
    let tops: Vec<_> = rows.into_iter().flatten().filter(|run| run.parent.is_none()).collect();
    assert!(tops.len() <= 1);
    tops.first().map(|run| run.id)
}

/// Every run of the tree is there once and has ended; no effect is there twice, and one that is missing is one of which a
/// person is asked or its tool failed.
fn check_tree(world: &World, top: RunId, case: &str) {
    let mut seen: Vec<_> = world.tools.seen().iter().map(Object::to_canonical).collect();
    seen.sort_unstable();
    let all = seen.len();
    seen.dedup();
    assert_eq!(seen.len(), all, "{case}");
    let parts = children(world, top);
    assert_eq!(parts.len(), 2, "{case}");
    for run in &parts {
        assert!(run.status.is_terminal(), "{case}: {run:?}");
    }
    // What `verify` asks of both ends of a link is what the gate records.
    let mut ledger = world.store.begin().unwrap();
    let report = portcullis_audit::verify(ledger.as_mut(), Default::default()).unwrap();
    assert_eq!(report.breaks, [], "{case}");
    let top = world.state(top).run;
    assert_eq!(top.reason, Some(EndReason::GoalCompleted), "{case}");
}

/// Agents that propose by the goal of their run.
struct Troupe(Plays);

struct Actor(Plays);

impl Agent for Actor {
    fn propose(&mut self, view: View) -> BoxFuture<'_, Result<Vec<u8>, AgentFailure>> {
        let lines = self.0.get(view.goal.as_str()).map_or(&[][..], Vec::as_slice);
        let line = usize::try_from(view.request).ok().and_then(|index| lines.get(index));
        let line = line.map_or(DONE, Vec::as_slice);
        let rest = line.strip_prefix(b"{").unwrap();
        let raw = [format!("{{\"request\":{},", view.request).as_bytes(), rest].concat();
        Box::pin(std::future::ready(Ok(raw)))
    }
}

impl Agents for Troupe {
    fn agent<'a>(&'a self, _: &'a Run) -> BoxFuture<'a, Result<Box<dyn Agent>, AgentFailure>> {
        let actor: Box<dyn Agent> = Box::new(Actor(self.0.clone()));
        Box::pin(std::future::ready(Ok(actor)))
    }
}

fn runner(world: &World, plays: Plays) -> Runner {
    let one = NonZeroUsize::new(1).unwrap();
    let room = Room { places: one, line: NonZeroUsize::new(8).unwrap() };
    Runner::new(gate(world, 1), world.scope().clone(), Arc::new(Troupe(plays)), room, None)
}

fn submitted(world: &World, runner: &Runner) -> Rest {
    let task = Task { goal: "top".to_owned(), ..world.task(many()) };
    let ticket = block_on(runner.submit(Job::Begin(task))).unwrap();
    block_on(ticket.rest()).unwrap()
}

/// One place is enough: a run that waits for another leaves it.
#[test]
fn a_runner_drives_a_whole_tree_at_one_place() {
    let world = World::with_tools(FakeTools::new(false));
    let runner = runner(&world, plays());
    let Rest { run, driven } = submitted(&world, &runner);
    assert!(matches!(driven, Driven::Child(_)), "{driven:?}");
    while !world.state(run).run.status.is_terminal() {
        std::thread::yield_now();
    }
    block_on(runner.stop());
    check_tree(&world, run, "a runner");
    assert_eq!(world.tools.effects("write"), 3);
}

/// A child that is ended elsewhere tells nobody here: the next look finds the run that waits for it.
#[test]
fn a_runner_takes_up_a_run_whose_child_has_ended_elsewhere() {
    let world = World::with_tools(FakeTools::new(false));
    let asks =
        Plays::from([("top", vec![spawn(r#"{"goal":"asks"}"#)]), ("asks", vec![call("send", 1)])]);
    let runner = runner(&world, asks);
    let Rest { run, driven } = submitted(&world, &runner);
    let Driven::Child(child) = driven else { panic!("{driven:?}") };
    while world.state(child).run.waits != Some(Wait::People) {
        std::thread::yield_now();
    }
    while runner.load().driven > 0 {
        std::thread::yield_now();
    }
    assert_eq!(block_on(runner.take_up()).unwrap().runs, 0, "the control: there is nothing to do");
    block_on(cancel(&world.parts(9), world.scope(), child, "ann", None)).unwrap();
    assert_eq!(block_on(runner.take_up()).unwrap().runs, 1);
    while !world.state(run).run.status.is_terminal() {
        std::thread::yield_now();
    }
    block_on(runner.stop());
    assert_eq!(world.state(run).run.reason, Some(EndReason::GoalCompleted));
    let reason = world.observed(run, 0);
    assert_eq!(reason.get("reason").and_then(|r| r.as_str()), Some("operator_cancelled"));
}
