//! Unknown outcomes that resolve by what their tool declares: an idempotency key, a probe; and the host's word.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use portcullis_canon::{Limits as JsonLimits, Object, Value, parse};
use portcullis_domain::approval::Answer;
use portcullis_domain::event::Body;
use portcullis_domain::id::RunId;
use portcullis_domain::limits::Limits;
use portcullis_domain::observation::{Failure, ObservationKind};
use portcullis_domain::ports::{
    BoxFuture, Clock as _, Policy, PolicyFailure, ProposedCall, StoreError,
};
use portcullis_domain::question::{Card, QuestionKind};
use portcullis_domain::recovery::{Found, Probe};
use portcullis_domain::refusal::Refusal;
use portcullis_domain::run::EndReason;
use portcullis_domain::step::StepStatus;
use portcullis_domain::tool::{EffectClass, ToolSpec};
use portcullis_domain::verdict::{Facts, PolicyId, Verdict};
use portcullis_engine::{Attached, Gate, GateError, HeldRun, Progress, Reconcile, Reconciled};
use portcullis_policy::{ClassTable, Outcome};
use portcullis_testkit::block_on;
use portcullis_testkit::ports::ManualClock;

use crate::unknown::{crashed, poll_once};
use crate::world::{DEADLINE, Does, FakeTools, World, ask, call, turn};

const KEYED: &str = r#"{"type":"object","additionalProperties":false,"required":["n","key"],
    "properties":{"n":{"type":"integer"},"key":{"type":"string","maxLength":64}}}"#;

fn schema(text: &str) -> Value {
    parse(text.as_bytes(), &JsonLimits::BARE).unwrap()
}

/// `pay`, whose receiver knows a call by its key.
fn pay(tools: &FakeTools) -> ToolSpec {
    ToolSpec {
        input_schema: schema(KEYED),
        authority: Vec::new(),
        idempotency_key: Some("key".to_owned()),
        ..tools.spec("pay", EffectClass::LocalMutation, false)
    }
}

/// `mail`, about which `sent` can be asked.
fn mail(tools: &FakeTools, arguments: Option<BTreeMap<String, String>>) -> ToolSpec {
    ToolSpec {
        probe: Some(Probe { tool: "sent".to_owned(), arguments }),
        ..tools.spec("mail", EffectClass::LocalMutation, false)
    }
}

fn world(blocks: bool) -> World {
    let tools = FakeTools::new(blocks);
    tools.add(pay(&tools));
    tools.add(mail(&tools, None));
    tools.add(tools.spec("sent", EffectClass::ReadOnly, false));
    World::with_tools(tools)
}

/// Executes a call, and lets the deadline pass of what hangs in it.
fn overdue(world: &World, held: &mut HeldRun, tool: &str, hangs: impl Fn() -> bool) -> Progress {
    std::thread::scope(|scope| {
        let executing = scope.spawn(|| turn(held, call(tool, 1)));
        world.pass_deadline(DEADLINE, hangs);
        executing.join().unwrap()
    })
}

/// A call of `tool` that ended so that nobody knows what it did, and what became of that.
fn unknown(world: &World, tool: &str, how: Failure) -> (RunId, Result<Progress, GateError>) {
    unknown_then(world, tool, how, Does::Answer(br#"{"paid":true}"#.to_vec()))
}

/// The same with what the tool does when it is called again.
fn unknown_then(
    world: &World,
    tool: &str,
    how: Failure,
    second: Does,
) -> (RunId, Result<Progress, GateError>) {
    if how == Failure::Crash {
        let run = crashed(world, tool);
        world.tools.set(tool, second);
        let progress = world.attach(2, run).map(|attached| match attached {
            Attached::Held(_, progress) => progress,
            Attached::Waiting(question) => Progress::Waiting(question),
            Attached::Child(child) => Progress::Child(child),
            Attached::Ended(reason) => Progress::Ended(reason),
        });
        return (run, progress);
    }
    let first = match how {
        Failure::Panic => Does::Panic,
        Failure::Timeout => Does::Hang,
        _ => Does::Unknown,
    };
    world.tools.first(tool, first);
    world.tools.set(tool, second);
    let mut held = world.begin();
    let run = held.run();
    let progress = match how {
        Failure::Timeout => overdue(world, &mut held, tool, || world.tools.effects(tool) > 0),
        _ => turn(&mut held, call(tool, 1)),
    };
    (run, Ok(progress))
}

const ALL: [Failure; 4] =
    [Failure::Crash, Failure::Timeout, Failure::Panic, Failure::LostConnection];

fn key(arguments: &Object) -> &str {
    arguments.get("key").and_then(Value::as_str).unwrap()
}

#[test]
fn a_keyed_call_is_made_once_more_with_the_same_key_however_it_was_lost() {
    for how in ALL {
        let world = world(true);
        let (run, progress) = unknown(&world, "pay", how);
        assert_eq!(progress.unwrap(), Progress::Observed, "{how:?}");
        let seen = world.tools.seen();
        assert_eq!((seen.len(), &seen[0]), (2, &seen[1]), "{how:?}");
        assert_eq!(key(&seen[0]).len(), 64);
        let step = world.step(run, 0);
        assert_eq!((step.status, step.starts), (StepStatus::Done, 2), "{how:?}");
        assert_eq!(world.observed(run, 0).to_canonical_string(), r#"{"paid":true}"#, "{how:?}");
        let mut calls = Vec::new();
        for body in world.bodies() {
            match body {
                Body::StepStarted(body) => calls.push((body.call, None)),
                Body::StepRestarted(body) => calls.push((body.call, Some(body.cause))),
                _ => {}
            }
        }
        let call = step.admitted.unwrap().call;
        assert_eq!(calls, [(call, None), (call, Some(how))], "{how:?}");
        assert_eq!(world.count("question.asked"), 0, "{how:?}");
        world.tools.let_go();
    }
}

#[test]
fn a_second_loss_of_a_keyed_call_is_a_persons_to_answer() {
    let world = world(false);
    world.tools.set("pay", Does::Unknown);
    let mut held = world.begin();
    let run = held.run();
    assert!(matches!(turn(&mut held, call("pay", 1)), Progress::Waiting(_)));
    assert_eq!((world.tools.effects("pay"), world.step(run, 0).starts), (2, 2));
    assert!(matches!(world.attach(2, run).unwrap(), Attached::Waiting(_)));
    assert_eq!(world.tools.effects("pay"), 2);
}

#[test]
fn a_second_start_that_did_nothing_says_nothing_of_the_first() {
    for how in ALL {
        for second in [Does::Fail, Does::Refuse("no".to_owned()), Does::Abort] {
            let world = world(true);
            let named = format!("{how:?}, {second:?}");
            let (run, progress) = unknown_then(&world, "pay", how, second);
            assert!(matches!(progress.unwrap(), Progress::Waiting(_)), "{named}");
            let question = world.question(run);
            assert_eq!(question.kind, QuestionKind::UnknownOutcome, "{named}");
            assert_eq!(question.cause, Some(how), "{named}");
            assert_eq!(world.step(run, 0).starts, 2, "{named}");
            assert_eq!(world.count("step.finished"), 0, "{named}");
            world.tools.let_go();
        }
    }
}

#[test]
fn a_keyed_call_that_died_twice_is_a_persons_to_answer() {
    let world = world(true);
    let run = crashed(&world, "pay");
    world.tools.set("pay", Does::Hang);
    let gate = world.gate(2);
    let mut attaching = Box::pin(async { gate.attach(world.scope(), run).await.map(drop) });
    poll_once(&mut attaching);
    while world.tools.effects("pay") < 2 {
        std::thread::yield_now();
    }
    std::mem::forget(attaching);
    world.kill(2);
    assert!(matches!(world.attach(3, run).unwrap(), Attached::Waiting(_)));
    assert_eq!((world.tools.effects("pay"), world.step(run, 0).starts), (2, 2));
    world.tools.let_go();
}

#[test]
fn what_the_policy_or_the_operator_has_changed_is_not_made_again() {
    // Denied by today's rules; then another spec than the one that was started.
    for change in [
        (|world: &World| world.policy.set(EffectClass::LocalMutation, Outcome::Deny)) as fn(&World),
        |world: &World| world.tools.describe("Another tool."),
    ] {
        let tools = FakeTools::new(true);
        let world = World::with_tools(tools);
        // Made anew each time, so that its description is today's.
        world.tools.add(pay(&world.tools));
        let run = crashed(&world, "pay");
        change(&world);
        world.tools.replace(pay(&world.tools));
        assert!(matches!(world.attach(2, run).unwrap(), Attached::Waiting(_)));
        assert_eq!(world.question(run).kind, QuestionKind::UnknownOutcome);
        assert_eq!(world.tools.effects("pay"), 1);
    }
}

#[test]
fn the_key_is_the_gates_to_fill_and_hides_no_loop() {
    let world = world(false);
    let mut held = world.begin_with(Limits { loop_threshold: 3, ..Limits::default() });
    let run = held.run();
    let view = block_on(held.view(true)).unwrap();
    let shown = view.tools.iter().find(|tool| tool.name == "pay").unwrap();
    assert_eq!(shown.input_schema.pointer("/properties/key"), None);
    assert_eq!(shown.input_schema.pointer("/required"), Some(&schema(r#"["n"]"#)));
    let raw = br#"{"kind":"tool_call","tool":"pay","arguments":{"n":1,"key":"mine"}}"#;
    assert_eq!(turn(&mut held, raw.to_vec()), Progress::Observed);
    let refused = world.step(run, 0).observation.unwrap();
    assert_eq!(refused.refusal, Some(Refusal::FixedParameter));
    assert_eq!(world.tools.effects("pay"), 0);

    assert_eq!(turn(&mut held, call("pay", 1)), Progress::Observed);
    assert_eq!(turn(&mut held, call("pay", 1)), Progress::Observed);
    assert_eq!(turn(&mut held, call("pay", 1)), Progress::Ended(EndReason::LoopDetected));
    let seen = world.tools.seen();
    let keys: std::collections::BTreeSet<&str> = seen.iter().map(key).collect();
    assert_eq!((seen.len(), keys.len()), (3, 3), "each step has a key of its own");
}

#[test]
fn what_was_approved_is_what_runs_key_included_and_again_without_another_question() {
    let world = world(true);
    world.policy.set(EffectClass::LocalMutation, Outcome::ask("operator", 1).unwrap());
    let mut held = world.begin();
    let run = held.run();
    ask(&mut held, "pay");
    let question = world.question(run);
    let shown = block_on(portcullis_domain::ports::Store::content(
        &world.store,
        world.scope(),
        question.card.digest,
    ));
    let card = parse(shown.unwrap().unwrap().bytes(), &JsonLimits::ENVELOPE).unwrap();
    world.answer("ann", &question, Answer::Approve).unwrap();
    world.tools.first("pay", Does::Unknown);
    let (mut held, _) = world.take(2, run);
    assert_eq!(block_on(held.execute()).unwrap(), Progress::Observed);
    let seen = world.tools.seen();
    assert_eq!(card.get("arguments"), Some(&Value::Object(seen[0].clone())));
    assert_eq!((seen.len(), &seen[0]), (2, &seen[1]));
    assert_eq!((world.count("question.asked"), world.count("approval.used")), (1, 1));
}

/// What a probe says, and what becomes of the call.
fn probed(how: Failure, says: Does) -> (World, RunId, Progress) {
    let world = world(true);
    world.tools.set("sent", says);
    let (run, progress) = unknown(&world, "mail", how);
    (world, run, progress.unwrap())
}

fn findings(world: &World) -> Vec<Found> {
    let found = |body: Body| match body {
        Body::ProbeFinished(body) => Some(body.found),
        _ => None,
    };
    world.bodies().into_iter().filter_map(found).collect()
}

#[test]
fn a_probe_says_whether_it_happened_however_the_outcome_was_lost() {
    for how in ALL {
        let says = |text: &str| Does::Answer(text.as_bytes().to_vec());
        let (world, run, progress) = probed(how, says(r#"{"happened":true,"result":{"id":7}}"#));
        assert_eq!(progress, Progress::Observed, "{how:?}");
        let step = world.step(run, 0);
        assert_eq!((step.status, step.starts), (StepStatus::Done, 1), "{how:?}");
        assert_eq!(world.observed(run, 0).to_canonical_string(), r#"{"id":7}"#, "{how:?}");
        assert!(step.observation.unwrap().labels.is_external(), "{how:?}");
        assert_eq!(findings(&world), [Found::Happened], "{how:?}");
        world.tools.let_go();

        let (world, run, progress) = probed(how, says(r#"{"happened":false}"#));
        if how == Failure::Timeout {
            // It may still be on its way: that it has not happened so far settles nothing.
            assert!(matches!(progress, Progress::Waiting(_)), "{progress:?}");
            assert_eq!(findings(&world), [Found::Unknown]);
            world.tools.let_go();
            continue;
        }
        assert_eq!(progress, Progress::Observed, "{how:?}");
        let seen = world.step(run, 0).observation.unwrap();
        assert_eq!(seen.failure, Some(Failure::DidNotHappen), "{how:?}");
        assert_eq!(findings(&world), [Found::DidNotHappen], "{how:?}");
        assert_eq!((world.tools.effects("mail"), world.tools.effects("sent")), (1, 1), "{how:?}");
        world.tools.let_go();
    }
}

#[test]
fn a_probe_that_cannot_say_leaves_it_to_a_person() {
    let says = |text: &str| Does::Answer(text.as_bytes().to_vec());
    let huge = format!(r#"{{"happened":true,"result":"{}"}}"#, "x".repeat(5_000));
    for (does, kind) in [
        (says("{}"), ObservationKind::ToolResult),
        (says(r#"{"happened":"yes"}"#), ObservationKind::ToolResult),
        (says("<html>"), ObservationKind::ToolError),
        // Cut, so not the whole answer.
        (says(&huge), ObservationKind::ToolResult),
        (Does::Fail, ObservationKind::ToolError),
        (Does::Refuse("no".to_owned()), ObservationKind::ToolError),
        (Does::Unknown, ObservationKind::ToolError),
        (Does::Panic, ObservationKind::ToolError),
    ] {
        let (world, run, progress) = probed(Failure::LostConnection, does.clone());
        assert!(matches!(progress, Progress::Waiting(_)), "{does:?}: {progress:?}");
        assert_eq!(world.question(run).cause, Some(Failure::LostConnection));
        let said = world.bodies().into_iter().find_map(|body| match body {
            Body::ProbeFinished(body) => Some((body.found, body.observation.unwrap().kind)),
            _ => None,
        });
        assert_eq!(said, Some((Found::Unknown, kind)), "{does:?}");
        assert_eq!((world.tools.effects("mail"), world.tools.effects("sent")), (1, 1));
    }
}

#[test]
fn a_probe_past_its_deadline_leaves_it_to_a_person() {
    let world = world(true);
    world.tools.set("sent", Does::Hang);
    world.tools.first("mail", Does::Unknown);
    let mut held = world.begin();
    let hangs = || world.tools.effects("sent") > 0;
    assert!(matches!(overdue(&world, &mut held, "mail", hangs), Progress::Waiting(_)));
    assert_eq!(findings(&world), [Found::Unknown]);
    world.tools.let_go();
}

#[test]
fn a_probe_passes_the_gate_like_any_call() {
    // Denied by the policy, asked by it, and not the tool that the run began with.
    for change in [
        (|world: &World| world.policy.set(EffectClass::ReadOnly, Outcome::Deny)) as fn(&World),
        |world| world.policy.set(EffectClass::ReadOnly, Outcome::ask("operator", 1).unwrap()),
        |world| {
            let tools = &world.tools;
            let changed = ToolSpec {
                description: "Another.".to_owned(),
                ..tools.spec("sent", EffectClass::ReadOnly, false)
            };
            tools.replace(changed);
        },
    ] {
        let world = world(true);
        world.tools.set("sent", Does::Answer(br#"{"happened":true}"#.to_vec()));
        let run = crashed(&world, "mail");
        change(&world);
        assert!(matches!(world.attach(2, run).unwrap(), Attached::Waiting(_)));
        assert_eq!((world.tools.effects("sent"), world.count("probe.started")), (0, 0));
    }
}

#[test]
fn a_probe_is_handed_what_its_tool_maps_and_its_call_is_evidence() {
    let tools = FakeTools::new(true);
    let mapping = BTreeMap::from([("n".to_owned(), "/n".to_owned())]);
    tools.add(mail(&tools, Some(mapping)));
    let asked = ToolSpec {
        input_schema: schema(
            r#"{"type":"object","additionalProperties":false,"properties":{"n":{"type":"integer"}}}"#,
        ),
        authority: Vec::new(),
        ..tools.spec("sent", EffectClass::ReadOnly, false)
    };
    tools.add(asked);
    let world = World::with_tools(tools);
    world.tools.set("sent", Does::Answer(br#"{"happened":true}"#.to_vec()));
    let (run, progress) = unknown(&world, "mail", Failure::LostConnection);
    assert_eq!(progress.unwrap(), Progress::Observed);
    assert_eq!(world.observed(run, 0), Value::Null);
    let [called, asked] = &world.tools.seen()[..] else { panic!("not two calls") };
    assert!(called.contains_key("to"), "the control: the call has more");
    assert_eq!(Value::Object(asked.clone()).to_canonical_string(), r#"{"n":1}"#);
    let probe = world.bodies().into_iter().find_map(|body| match body {
        Body::ProbeStarted(body) => body.call,
        _ => None,
    });
    let probe = probe.unwrap();
    assert_eq!(probe.admitted.tool, "sent");
    let card =
        portcullis_domain::ports::Store::content(&world.store, world.scope(), probe.card.digest);
    let card = parse(block_on(card).unwrap().unwrap().bytes(), &JsonLimits::ENVELOPE).unwrap();
    assert_eq!(card.pointer("/arguments/n"), Some(&Value::from(1_i64)));
}

#[test]
fn a_process_that_dies_while_it_asks_is_followed_by_one_that_asks_again() {
    let mut world = world(true);
    // Two calls hang.
    world.spawn = portcullis_testkit::ports::ThreadSpawn::with_places(3);
    let run = crashed(&world, "mail");
    world.tools.first("sent", Does::Hang);
    world.tools.set("sent", Does::Answer(br#"{"happened":true}"#.to_vec()));
    let gate = world.gate(2);
    let mut attaching = Box::pin(async { gate.attach(world.scope(), run).await.map(drop) });
    poll_once(&mut attaching);
    while world.tools.effects("sent") == 0 {
        std::thread::yield_now();
    }
    assert_eq!(world.step(run, 0).status, StepStatus::Probing);
    std::mem::forget(attaching);
    world.kill(2);
    assert_eq!(world.take(3, run).1, Progress::Observed);
    assert_eq!((world.tools.effects("mail"), world.step(run, 0).status), (1, StepStatus::Done));
    assert_eq!(findings(&world), [Found::Happened]);
    world.tools.let_go();
}

/// A process that died while it asked what `mail` did.
fn dies_asking(world: &World, pid: u32, run: RunId) {
    let asked = world.tools.effects("sent");
    world.tools.first("sent", Does::Hang);
    let gate = world.gate(pid);
    let mut attaching = Box::pin(async { gate.attach(world.scope(), run).await.map(drop) });
    poll_once(&mut attaching);
    while world.tools.effects("sent") == asked {
        std::thread::yield_now();
    }
    std::mem::forget(attaching);
    world.kill(pid);
}

#[test]
fn a_probe_that_ends_its_process_twice_is_not_asked_again_and_a_person_is() {
    let mut world = world(true);
    world.spawn = portcullis_testkit::ports::ThreadSpawn::with_places(4);
    let run = crashed(&world, "mail");
    dies_asking(&world, 2, run);
    dies_asking(&world, 3, run);
    world.reconcile = Some(Arc::new(Nothing));
    assert!(matches!(world.attach(4, run).unwrap(), Attached::Waiting(_)));
    assert_eq!(world.question(run).kind, QuestionKind::UnknownOutcome);
    assert_eq!((world.tools.effects("sent"), world.count("probe.started")), (2, 2));
    // What is started again may be asked after again.
    world.reconcile = None;
    world.answer("ann", &world.question(run), Answer::RunAgain).unwrap();
    world.tools.first("mail", Does::Unknown);
    world.tools.set("sent", Does::Answer(br#"{"happened":true}"#.to_vec()));
    let (mut held, _) = world.take(5, run);
    assert_eq!(block_on(held.execute()).unwrap(), Progress::Observed);
    assert_eq!(world.tools.effects("sent"), 3);
    world.tools.let_go();
}

/// Ends its process whenever it is asked: nothing after it runs.
struct Deadly;

impl Reconcile for Deadly {
    fn reconcile(&self, _: &Card) -> BoxFuture<'_, Reconciled> {
        Box::pin(std::future::pending())
    }
}

#[test]
fn a_host_that_ends_its_process_twice_is_not_asked_again_and_a_person_is() {
    let mut world = world(true);
    let run = crashed(&world, "write");
    world.reconcile = Some(Arc::new(Deadly));
    for (times, pid) in [(1, 2), (2, 3)] {
        let gate = world.gate(pid);
        let mut attaching = Box::pin(async { gate.attach(world.scope(), run).await.map(drop) });
        poll_once(&mut attaching);
        while world.count("probe.started") < times {
            std::thread::yield_now();
        }
        std::mem::forget(attaching);
        world.kill(pid);
    }
    assert!(matches!(world.attach(4, run).unwrap(), Attached::Waiting(_)));
    assert_eq!((world.count("probe.started"), world.count("probe.finished")), (2, 0));
    assert_eq!(world.question(run).kind, QuestionKind::UnknownOutcome);
    world.tools.let_go();
}

/// Answers nothing, ever.
#[derive(Default)]
struct Silent(AtomicBool);

impl Reconcile for Silent {
    fn reconcile(&self, _: &Card) -> BoxFuture<'_, Reconciled> {
        self.0.store(true, Ordering::SeqCst);
        Box::pin(std::future::pending())
    }
}

/// Finds that nothing happened.
struct Nothing;

impl Reconcile for Nothing {
    fn reconcile(&self, _: &Card) -> BoxFuture<'_, Reconciled> {
        Box::pin(async { Reconciled::DidNotHappen })
    }
}

#[test]
fn the_host_is_asked_after_the_tool_and_what_it_finds_is_recorded() {
    let mut world = world(true);
    world.reconcile = Some(Arc::new(Nothing));
    world.tools.set("sent", Does::Fail);
    let (run, progress) = unknown(&world, "mail", Failure::Crash);
    assert_eq!(progress.unwrap(), Progress::Observed);
    assert_eq!(findings(&world), [Found::Unknown, Found::DidNotHappen]);
    let asked: Vec<bool> = world
        .bodies()
        .into_iter()
        .filter_map(|body| match body {
            Body::ProbeStarted(body) => Some(body.call.is_some()),
            _ => None,
        })
        .collect();
    assert_eq!(asked, [true, false]);
    assert_eq!(world.step(run, 0).observation.unwrap().failure, Some(Failure::DidNotHappen));
}

/// Finds that nothing happened, after its process was stopped for longer than a lease.
struct Stopped(ManualClock);

impl Reconcile for Stopped {
    fn reconcile(&self, _: &Card) -> BoxFuture<'_, Reconciled> {
        self.0.jump(self.0.now().after(Duration::from_secs(60)));
        Box::pin(async { Reconciled::DidNotHappen })
    }
}

#[test]
fn what_is_found_after_the_term_is_no_outcome_that_came_late_and_is_asked_anew() {
    let mut world = world(true);
    let run = crashed(&world, "write");
    world.reconcile = Some(Arc::new(Stopped(world.clock.clone())));
    let late = world.attach(2, run).err();
    assert!(matches!(late, Some(GateError::Store(StoreError::LeaseLost))), "{late:?}");
    assert_eq!((world.count("probe.started"), world.count("probe.finished")), (1, 0));
    assert_eq!((world.count("outcome.late"), world.count("step.finished")), (0, 0));
    world.reconcile = Some(Arc::new(Nothing));
    assert_eq!(world.take(3, run).1, Progress::Observed);
    assert_eq!(findings(&world), [Found::DidNotHappen]);
    assert_eq!(world.count("outcome.late"), 0);
    world.tools.let_go();
}

/// Denies everything, after its process was stopped for longer than a lease.
struct Stalled(ManualClock);

impl Policy for Stalled {
    fn id(&self) -> PolicyId {
        ClassTable::empty().id()
    }

    fn decide(&self, call: &ProposedCall<'_>, facts: &Facts) -> Result<Verdict, PolicyFailure> {
        self.0.jump(self.0.now().after(Duration::from_secs(60)));
        ClassTable::empty().decide(call, facts)
    }
}

#[test]
fn after_the_term_the_host_is_not_asked_any_more() {
    let mut world = world(true);
    let run = crashed(&world, "mail");
    world.reconcile = Some(Arc::new(Nothing));
    let mut parts = world.parts(2);
    parts.policy = Arc::new(Stalled(world.clock.clone()));
    let late = block_on(Gate::new(parts).attach(world.scope(), run)).err();
    assert!(matches!(late, Some(GateError::Store(StoreError::LeaseLost))), "{late:?}");
    assert_eq!(world.count("probe.started"), 0);
    // Whoever has the run asks, its probe and then the host.
    assert_eq!(world.take(3, run).1, Progress::Observed);
    assert_eq!(findings(&world).last(), Some(&Found::DidNotHappen));
    world.tools.let_go();
}

#[test]
fn a_host_that_does_not_answer_within_the_tools_deadline_leaves_it_to_a_person() {
    let mut world = world(true);
    let silent = Arc::new(Silent::default());
    world.reconcile = Some(Arc::clone(&silent) as Arc<dyn Reconcile>);
    world.tools.first("write", Does::Unknown);
    let mut held = world.begin();
    let hangs = || silent.0.load(Ordering::SeqCst);
    let before = world.clock_now();
    assert!(matches!(overdue(&world, &mut held, "write", hangs), Progress::Waiting(_)));
    assert_eq!(findings(&world), [Found::Unknown]);
    let waited = world.clock_now().micros_since(before);
    assert!((5_000_000..30_000_000).contains(&waited), "{waited} µs");
}

#[test]
fn other_changes_by_the_tool_wait_and_everything_else_goes_on() {
    let world = world(false);
    world.tools.first("write", Does::Unknown);
    let mut first = world.begin();
    let waiting = first.run();
    assert!(matches!(turn(&mut first, call("write", 1)), Progress::Waiting(_)));
    let question = world.question(waiting);

    let mut second = world.begin();
    let run = second.run();
    assert_eq!(turn(&mut second, call("write", 2)), Progress::Observed);
    let seen = world.step(run, 0);
    assert_eq!((seen.status, seen.starts), (StepStatus::Failed, 0));
    assert_eq!(seen.observation.unwrap().refusal, Some(Refusal::OutcomeUnknown));
    let note = world.observed(run, 0);
    assert!(note.get("note").and_then(Value::as_str).unwrap().contains(&question.id.to_string()));
    assert_eq!(world.tools.effects("write"), 1);
    for other in ["look", "pay"] {
        assert_eq!(turn(&mut second, call(other, 2)), Progress::Observed);
        assert_eq!(world.tools.effects(other), 1, "{other}");
    }
    world.answer("ann", &question, Answer::Happened).unwrap();
    assert_eq!(turn(&mut second, call("write", 3)), Progress::Observed);
    assert_eq!(world.tools.effects("write"), 2);
}

#[test]
fn an_approval_is_not_spent_on_a_change_that_has_to_wait() {
    let world = world(false);
    world.policy.set(EffectClass::RemoteMutation, Outcome::ask("operator", 1).unwrap());
    let approved = || {
        let mut held = world.begin();
        ask(&mut held, "send");
        let run = held.run();
        world.answer("ann", &world.question(run), Answer::Approve).unwrap();
        run
    };
    let (lost, waits) = (approved(), approved());
    world.tools.first("send", Does::Unknown);
    let (mut held, progress) = world.take(3, waits);
    assert_eq!(progress, Progress::Allowed);
    let (mut losing, _) = world.take(2, lost);
    assert!(matches!(block_on(losing.execute()).unwrap(), Progress::Waiting(_)));
    let question = world.question(lost);

    let refused = block_on(held.execute());
    let open = portcullis_domain::ports::StoreError::OutcomeOpen { question: question.id };
    let is_open = |error: &GateError| matches!(error, GateError::Store(error) if *error == open);
    assert!(refused.as_ref().is_err_and(is_open), "{refused:?}");
    block_on(held.close()).unwrap();
    // Who takes it up now hears the same, and nothing is recorded.
    let before = world.bodies().len();
    for _ in 0..2 {
        assert!(world.attach(3, waits).err().as_ref().is_some_and(is_open));
    }
    assert_eq!((world.bodies().len(), world.tools.effects("send")), (before, 1));
    world.answer("ann", &question, Answer::DidNotHappen).unwrap();
    let (mut held, _) = world.take(4, waits);
    assert_eq!(block_on(held.execute()).unwrap(), Progress::Observed);
    assert_eq!((world.tools.effects("send"), world.count("question.asked")), (2, 3));
}
