//! Several calls of one proposal: judged as a whole, begun by one append, made at once, ended by another.

use std::sync::{Arc, Barrier};
use std::time::Duration;

use portcullis_canon::Value;
use portcullis_domain::event::{Body, StepFinished};
use portcullis_domain::id::RunId;
use portcullis_domain::label::{Labels, Origin};
use portcullis_domain::limits::Limits;
use portcullis_domain::observation::{Failure, ObservationKind};
use portcullis_domain::permit::Permit;
use portcullis_domain::ports::{
    BoxFuture, Clock, Store, StoreError, ToolFailure, ToolOutput, ToolSource,
};
use portcullis_domain::refusal::Refusal;
use portcullis_domain::run::EndReason;
use portcullis_domain::step::StepStatus;
use portcullis_domain::thread::Thread;
use portcullis_domain::tool::{EffectClass, ToolSpec};
use portcullis_domain::wait::Wait;
use portcullis_engine::diff::Diff;
use portcullis_engine::recheck::{Against, Finding, Recheck, Rules};
use portcullis_engine::{
    Attached, Gate, GateError, HeldRun, Parts, Progress, Task, Tools, operator,
};
use portcullis_policy::Outcome;
use portcullis_store::memory::Fault;
use portcullis_testkit::block_on;
use portcullis_testkit::doubles::FaultyStore;
use portcullis_testkit::ports::ThreadSpawn;

use crate::cancelled::cancel_elsewhere;
use crate::leases::{asleep, beat_as_planned, slow_at};
use crate::world::{Conduct, DEADLINE, Does, FakeTools, World, call, turn, until};

/// A proposal of several calls, each of a tool with its `n`.
pub(crate) fn calls(asked: &[(&str, i64)]) -> Vec<u8> {
    let call = |(tool, n): &(&str, i64)| {
        format!(r#"{{"tool":"{tool}","arguments":{{"n":{n}}},"reason":"to see"}}"#)
    };
    let calls: Vec<String> = asked.iter().map(call).collect();
    format!(r#"{{"kind":"tool_calls","calls":[{}]}}"#, calls.join(",")).into_bytes()
}

/// Three reads.
fn reads() -> Vec<u8> {
    calls(&[("look", 1), ("look", 2), ("look", 3)])
}

/// A world whose tools do not block.
fn world() -> World {
    World::with_tools(FakeTools::new(false))
}

fn text(value: &Value) -> String {
    value.to_canonical_string()
}

/// Waits until the tool was called this often.
#[track_caller]
fn called(world: &World, tool: &str, times: u32) {
    until(|| world.tools.effects(tool) == times);
}

/// Waits until so many outcomes are late ones.
#[track_caller]
fn late(world: &World, times: usize) {
    until(|| world.count("outcome.late") == times);
}

/// A run in process 1, over a store that counts its appends.
fn counted(world: &World) -> (Arc<FaultyStore>, HeldRun) {
    let store = Arc::new(FaultyStore::new(Arc::new(world.store.clone())));
    let gate = Gate::new(Parts { store: Arc::<FaultyStore>::clone(&store), ..world.parts(1) });
    let held = block_on(gate.begin(world.scope(), world.task(Limits::default()))).unwrap();
    (store, held)
}

/// What was appended since the run was begun, but for leases.
fn appended(world: &World) -> Vec<&'static str> {
    let bodies = world.bodies();
    let names = bodies.iter().map(Body::name).filter(|name| !name.starts_with("lease"));
    names.skip_while(|name| *name != "step.proposed").collect()
}

#[test]
fn a_batch_of_reads_is_one_commit_before_and_one_behind() {
    let world = world();
    let (store, mut held) = counted(&world);
    let run = held.run();
    let before = store.appends();
    assert_eq!(block_on(held.propose(reads())).unwrap(), Progress::Allowed);
    assert_eq!((world.tools.effects("look"), world.count("step.opened")), (0, 1));
    assert_eq!(block_on(held.execute()).unwrap(), Progress::Observed);
    assert_eq!(store.appends() - before, 3, "the proposal, the intents, the ends");
    let mut expected = vec!["step.proposed"];
    expected.extend(["step.opened", "step.proposed"].repeat(2));
    expected.extend(["step.judged"; 3]);
    expected.extend(["step.started"; 3]);
    expected.extend(["step.finished", "thread.labelled"]);
    expected.extend(["step.finished"; 2]);
    expected.push("step.opened");
    assert_eq!(appended(&world), expected);
    for index in 0..3 {
        let step = world.step(run, index);
        assert_eq!((step.batch, u64::from(step.batch_index)), (3, index));
        assert_eq!((step.status, step.starts), (StepStatus::Done, 1));
    }
    assert_eq!(world.tools.effects("look"), 3);
    assert_eq!(block_on(held.view(false)).unwrap().request, 3);
}

/// A tool whose calls wait for one another.
struct Meeting {
    spec: ToolSpec,
    barrier: Barrier,
}

impl ToolSource for Meeting {
    fn specs(&self) -> Vec<ToolSpec> {
        vec![self.spec.clone()]
    }

    fn blocks(&self) -> bool {
        true
    }

    fn call(&self, permit: Permit) -> BoxFuture<'_, Result<ToolOutput, ToolFailure>> {
        Box::pin(async move {
            self.barrier.wait();
            let n = permit.arguments().get("n").and_then(Value::as_i64).unwrap();
            // The later a call stands in its batch, the sooner it answers.
            std::thread::sleep(Duration::from_millis(u64::try_from(10 * (16 - n)).unwrap()));
            Ok(ToolOutput { content: format!(r#"{{"n":{n}}}"#).into_bytes(), labels: None })
        })
    }
}

/// A gate whose `meet` comes back only when `calls` calls of it are under way, with as many places.
fn meeting(world: &World, calls: usize, places: usize) -> Gate {
    let spec = world.tools.spec("meet", EffectClass::ReadOnly, false);
    let meeting = Arc::new(Meeting { spec, barrier: Barrier::new(calls) });
    let tools = Tools::register(vec![world.tools.clone(), meeting]).unwrap();
    let spawn = Arc::new(ThreadSpawn::with_places(places));
    Gate::new(Parts { tools: Arc::new(tools), spawn, ..world.parts(1) })
}

#[test]
fn calls_that_wait_for_each_other_come_back_in_the_order_in_which_they_were_asked_for() {
    let world = world();
    let gate = meeting(&world, 16, 16);
    let mut held = block_on(gate.begin(world.scope(), world.task(Limits::default()))).unwrap();
    let asked: Vec<(&str, i64)> = (1..=16).map(|n| ("meet", n)).collect();
    assert_eq!(turn(&mut held, calls(&asked)), Progress::Observed);
    let view = block_on(held.view(false)).unwrap();
    let seen = |arguments: &Value, content: &Value| (text(arguments), text(content));
    let shown =
        view.history.iter().map(|step| seen(step.arguments.as_ref().unwrap(), &step.content));
    let expected = (1..=16).map(|n| (format!(r#"{{"n":{n}}}"#), format!(r#"{{"n":{n}}}"#)));
    assert!(shown.eq(expected), "{:?}", view.history);
    assert!(view.history.iter().map(|step| step.request).eq(0..16));
    assert_eq!((view.request, view.omitted), (16, 0));
    // Whoever looks again, or is started anew, is shown the same from the record.
    assert_eq!(block_on(held.view(false)).unwrap().history, view.history);
    assert_eq!(block_on(held.view(true)).unwrap().history, view.history);
}

#[test]
fn without_a_place_for_each_that_blocks_none_is_made() {
    let world = world();
    let gate = meeting(&world, 3, 2);
    let mut held = block_on(gate.begin(world.scope(), world.task(Limits::default()))).unwrap();
    let run = held.run();
    let asked = [("look", 0), ("meet", 1), ("meet", 2), ("meet", 3)];
    assert_eq!(turn(&mut held, calls(&asked)), Progress::Observed);
    assert_eq!(text(&world.observed(run, 0)), r#"{"call":4,"refusal":"no_capacity"}"#);
    assert_eq!((world.count("step.started"), world.tools.effects("look")), (0, 0));
    // Nothing of the two places that were taken is kept.
    let free = meeting(&world, 2, 2);
    block_on(held.close()).unwrap();
    let attached = block_on(free.attach(world.scope(), run)).unwrap();
    let Attached::Held(mut held, _) = attached else { panic!("not held") };
    assert_eq!(turn(&mut held, calls(&[("meet", 1), ("meet", 2)])), Progress::Observed);
    assert_eq!(world.count("step.started"), 2);
}

/// Proposes a batch that is refused: what is observed. Nothing was called, and one step came of it.
fn refused(world: &World, held: &mut HeldRun, raw: Vec<u8>) -> String {
    let run = held.run();
    let index = world.state(run).run.step_count - 1;
    let (seen, started) = (world.tools.seen().len(), world.count("step.started"));
    assert_eq!(turn(held, raw), Progress::Observed);
    assert_eq!((world.tools.seen().len(), world.count("step.started")), (seen, started));
    let state = world.state(run);
    assert_eq!((state.run.step_count, state.batch.len()), (index + 2, 1));
    let step = world.step(run, index);
    assert_eq!((step.batch, step.status, step.starts), (1, StepStatus::Failed, 0));
    text(&world.observed(run, index))
}

#[test]
fn one_call_that_may_not_be_made_beside_others_refuses_them_all() {
    let world = world();
    world.policy.set(EffectClass::RemoteMutation, Outcome::ask("operator", 1).unwrap());
    let mut held = world.begin();
    let with = |tool: &str, at: usize| {
        let mut asked = vec![("look", 1), ("look", 2)];
        asked.insert(at, (tool, 9));
        calls(&asked)
    };
    for at in 0..3 {
        let number = at + 1;
        // A change is never made beside others, whatever the policy says of it.
        for tool in ["write", "send", "burn", "finish"] {
            let seen = refused(&world, &mut held, with(tool, at));
            let expected = format!(r#"{{"call":{number},"refusal":"batch_not_read_only"}}"#);
            assert_eq!(seen, expected, "{tool}");
        }
        let seen = refused(&world, &mut held, with("end", at));
        assert_eq!(seen, format!(r#"{{"call":{number},"refusal":"batch_terminal"}}"#));
    }
    // The control: the same reads without it.
    assert_eq!(turn(&mut held, calls(&[("look", 1), ("look", 2)])), Progress::Observed);
    assert_eq!(world.tools.effects("look"), 2);
}

#[test]
fn one_call_that_the_policy_does_not_allow_refuses_them_all() {
    for (outcome, expected) in [
        (Outcome::Deny, r#"{"because":"class_denied","call":1,"refusal":"batch_denied"}"#),
        (
            Outcome::ask("operator", 1).unwrap(),
            r#"{"because":"class_asks","call":1,"refusal":"batch_asks"}"#,
        ),
    ] {
        let world = world();
        world.policy.set(EffectClass::ReadOnly, outcome);
        let mut held = world.begin();
        assert_eq!(refused(&world, &mut held, reads()), expected);
        let observation = world.step(held.run(), 0).observation.unwrap();
        assert_eq!(observation.kind, ObservationKind::Denied);
        assert_eq!(world.state(held.run()).run.denials, 1);
        assert_eq!(world.count("question.asked"), 0);
    }
    // A policy that fails or panics denies.
    for conduct in [Conduct::Fails, Conduct::Panics] {
        let world = world();
        world.policy.behave(conduct);
        let mut held = world.begin();
        let seen = refused(&world, &mut held, reads());
        assert!(seen.contains(r#""refusal":"batch_denied""#), "{seen}");
    }
}

#[test]
fn one_call_that_is_not_admitted_refuses_them_all_and_asks_no_policy() {
    let world = world();
    let mut held = world.begin_with(Limits {
        max_steps: 50,
        max_consecutive_failures: 50,
        ..Limits::default()
    });
    let batch = |bad: &str| {
        format!(r#"{{"kind":"tool_calls","calls":[{{"tool":"look"}},{bad}]}}"#).into_bytes()
    };
    for (bad, expected) in [
        (r#"{"tool":"nothing"}"#, r#"{"call":2,"refusal":"unknown_tool"}"#),
        (
            r#"{"tool":"look","arguments":{"n":"x"}}"#,
            r#"{"call":2,"path":"/n","refusal":"arguments_invalid","rule":"type"}"#,
        ),
        (r#"{"tool":"look","arguments":7}"#, r#"{"refusal":"wrong_type"}"#),
        (r#"{"tool":"look","approved":true}"#, r#"{"refusal":"unknown_field"}"#),
    ] {
        assert_eq!(refused(&world, &mut held, batch(bad)), expected);
    }
    let many = calls(&[("look", 1); 17]);
    assert_eq!(refused(&world, &mut held, many), r#"{"refusal":"batch_too_long"}"#);
    assert_eq!(refused(&world, &mut held, calls(&[])), r#"{"refusal":"batch_empty"}"#);
    assert_eq!(world.policy.asked().len(), 0);
    let one = calls(&[("write", 7)]);
    assert_eq!(turn(&mut held, one), Progress::Observed);
    assert_eq!(world.tools.effects("write"), 1, "one call alone is an ordinary step");
}

#[test]
fn an_abort_ends_the_run_whatever_else_is_wrong_with_the_batch() {
    let world = world();
    world.policy.set(EffectClass::ReadOnly, Outcome::Abort);
    let mut held = world.begin();
    let run = held.run();
    let progress = block_on(held.propose(calls(&[("write", 1), ("look", 2)]))).unwrap();
    assert_eq!(progress, Progress::Ended(EndReason::PolicyAbort));
    assert_eq!(world.tools.seen().len(), 0);
    assert_eq!(world.state(run).run.reason, Some(EndReason::PolicyAbort));
}

#[test]
fn a_batch_fits_the_step_limit_or_is_not_begun() {
    let world = world();
    let mut held = world.begin_with(Limits { max_steps: 3, ..Limits::default() });
    let four = calls(&[("look", 1), ("look", 2), ("look", 3), ("look", 4)]);
    let seen = refused(&world, &mut held, four);
    assert_eq!(seen, r#"{"call":4,"refusal":"batch_over_limit"}"#);
    // Two are left now, and the limit is met with the last of them.
    let two = calls(&[("look", 1), ("look", 2)]);
    assert_eq!(turn(&mut held, two), Progress::Ended(EndReason::LimitSteps));
    assert_eq!(world.tools.effects("look"), 2);
    assert_eq!(world.state(held.run()).run.step_count, 3);
}

#[test]
fn what_is_allowed_when_proposed_and_denied_at_use_is_not_made() {
    let world = world();
    let mut held = world.begin();
    let run = held.run();
    assert_eq!(block_on(held.propose(reads())).unwrap(), Progress::Allowed);
    world.policy.set(EffectClass::ReadOnly, Outcome::Deny);
    assert_eq!(block_on(held.execute()).unwrap(), Progress::Observed);
    assert_eq!(world.tools.seen().len(), 0);
    assert_eq!(world.step(run, 0).observation.unwrap().refusal, Some(Refusal::BatchDenied));
}

#[test]
fn a_panic_a_failure_and_a_call_past_its_deadline_leave_the_others_their_results() {
    for blocks in [false, true] {
        let mut world = World::with_tools(FakeTools::new(blocks));
        world.spawn = ThreadSpawn::with_places(8);
        for (name, does) in [
            ("panics", Does::Panic),
            ("fails", Does::Fail),
            ("lost", Does::Unknown),
            ("hangs", Does::Hang),
        ] {
            let deadline_ms = if name == "hangs" { 2_000 } else { 60_000 };
            let spec = world.tools.spec(name, EffectClass::ReadOnly, false);
            world.tools.add(ToolSpec { deadline_ms, ..spec });
            world.tools.set(name, does);
        }
        let mut held = world.begin();
        let run = held.run();
        let asked =
            [("panics", 1), ("look", 2), ("hangs", 3), ("fails", 4), ("lost", 5), ("look", 6)];
        assert_eq!(block_on(held.propose(calls(&asked))).unwrap(), Progress::Allowed);
        let progress = std::thread::scope(|scope| {
            let held = &mut held;
            let execution = scope.spawn(move || block_on(held.execute()).unwrap());
            for (tool, times) in
                [("look", 2), ("hangs", 1), ("panics", 1), ("fails", 1), ("lost", 1)]
            {
                called(&world, tool, times);
            }
            // When every other call has answered, its deadline is the only one.
            let others = [DEADLINE, Duration::from_mins(1)];
            let hangs = Duration::from_secs(2);
            world.pass_deadline(hangs, || {
                let wakes = world.clock.wakes();
                wakes.contains(&hangs) && !wakes.iter().any(|wake| others.contains(wake))
            });
            execution.join().unwrap()
        });
        // A batch of which one call brought a result is no failure.
        assert_eq!(progress, Progress::Observed);
        assert_eq!(world.state(run).run.failures, 0);
        let failures: Vec<_> =
            (0..6).map(|index| world.step(run, index).observation.unwrap().failure).collect();
        let expected = [
            Some(Failure::Panic),
            None,
            Some(Failure::Timeout),
            Some(Failure::Error),
            Some(Failure::LostConnection),
            None,
        ];
        assert_eq!(failures, expected);
        // What answers after its deadline is a late outcome of its own step.
        world.tools.let_go();
        late(&world, 1);
    }
}

#[test]
fn a_tool_that_aborts_ends_the_run_after_all_of_the_batch() {
    let world = world();
    world.tools.first("look", Does::Abort);
    let mut held = world.begin();
    let run = held.run();
    assert_eq!(turn(&mut held, reads()), Progress::Ended(EndReason::ToolAbort));
    let done = (0..3).filter(|index| world.step(run, *index).status == StepStatus::Done).count();
    assert_eq!((done, world.count("step.finished"), world.tools.effects("look")), (2, 3, 3));
}

#[test]
fn labels_of_all_results_are_joined_with_the_ends() {
    let world = world();
    world.tools.add(world.tools.spec("peek", EffectClass::ReadOnly, false));
    let mut held = world.begin();
    let run = held.run();
    let asked = calls(&[("look", 1), ("peek", 2), ("look", 3)]);
    assert_eq!(turn(&mut held, asked), Progress::Observed);
    let thread = thread(&world, run);
    assert_eq!(thread.label_seq, 2, "each source once");
    for tool in ["look", "peek"] {
        assert!(thread.labels.covers(&Labels::of(Origin::external(tool))), "{tool}");
    }
}

#[test]
fn what_another_run_of_the_thread_read_meanwhile_has_the_whole_batch_judged_again() {
    let world = world();
    let mut held = world.begin();
    let thread = thread(&world, held.run()).id;
    let task = Task { thread: Some(thread), ..world.task(Limits::default()) };
    let mut other = block_on(world.gate(1).begin(world.scope(), task)).unwrap();
    assert_eq!(block_on(held.propose(reads())).unwrap(), Progress::Allowed);
    let asked = world.policy.asked().len();
    assert_eq!(turn(&mut other, call("look", 1)), Progress::Observed);
    let theirs = world.policy.asked().len() - asked;
    assert_eq!(block_on(held.execute()).unwrap(), Progress::Observed);
    let facts: Vec<u64> = world
        .bodies()
        .into_iter()
        .filter_map(|body| match body {
            Body::StepJudged(judged) => Some(judged.facts.label_seq),
            _ => None,
        })
        .collect();
    assert_eq!(facts, [0, 1, 1, 1], "on the labels as they are at the commit");
    assert_eq!(world.policy.asked().len() - asked - theirs, 6, "all of it, twice");
}

fn thread(world: &World, run: RunId) -> Thread {
    let id = world.state(run).run.thread;
    block_on(Store::thread(&world.store, world.scope(), id)).unwrap().unwrap()
}

/// Drives a batch of three reads to its first commit in process 1, which then dies.
fn crashed(world: &World) -> RunId {
    world.tools.set("look", Does::Hang);
    let mut held = world.begin();
    let run = held.run();
    assert_eq!(block_on(held.propose(reads())).unwrap(), Progress::Allowed);
    let execution = std::thread::spawn(move || block_on(held.execute()));
    called(world, "look", 3);
    world.kill(1);
    world.tools.set("look", Does::Answer(b"{}".to_vec()));
    // The dead process's threads answer into the void once another holds the run.
    std::thread::spawn(move || drop(execution.join()));
    run
}

#[test]
fn a_batch_whose_process_died_is_interrupted_as_a_whole_by_the_next_holder() {
    let mut world = World::with_tools(FakeTools::new(true));
    world.spawn = ThreadSpawn::with_places(8);
    let run = crashed(&world);
    let state = world.state(run);
    assert!(state.batch.iter().all(|step| step.status == StepStatus::Executing));
    assert_eq!((state.run.waits, state.run.free_since), (Some(Wait::Driver), None));
    let store = Arc::new(FaultyStore::new(Arc::new(world.store.clone())));
    let gate = Gate::new(Parts { store: Arc::<FaultyStore>::clone(&store), ..world.parts(2) });
    let attached = block_on(gate.attach(world.scope(), run)).unwrap();
    let Attached::Held(mut held, progress) = attached else { panic!("not held") };
    assert_eq!(progress, Progress::Observed);
    assert_eq!(store.appends(), 2, "the lease, and one append that ends all");
    for index in 0..3 {
        let step = world.step(run, index);
        assert_eq!(step.status, StepStatus::Interrupted);
        assert_eq!(step.observation.unwrap().failure, Some(Failure::Crash));
    }
    for fresh in [false, true] {
        let view = block_on(held.view(fresh)).unwrap();
        assert!(view.history.iter().all(|step| step.outcome == "interrupted"));
        assert!(view.history.iter().map(|step| step.request).eq(0..3));
        let arguments = view.history.iter().map(|step| text(step.arguments.as_ref().unwrap()));
        assert!(arguments.eq((1..=3).map(|n| format!(r#"{{"n":{n}}}"#))));
    }
    // What the dead one's calls bring is late, each for its own step.
    world.tools.let_go();
    late(&world, 3);
    assert_eq!(world.count("step.finished"), 3);
    assert_eq!(turn(&mut held, call("look", 4)), Progress::Observed);
}

#[test]
fn a_recorded_batch_that_was_not_begun_is_decided_again() {
    let world = world();
    let mut held = world.begin();
    let run = held.run();
    assert_eq!(block_on(held.propose(reads())).unwrap(), Progress::Allowed);
    std::mem::forget(held);
    world.kill(1);
    let (mut held, progress) = world.take(2, run);
    assert_eq!((progress, world.tools.effects("look")), (Progress::Allowed, 0));
    assert_eq!(block_on(held.execute()).unwrap(), Progress::Observed);
    assert_eq!((world.tools.effects("look"), world.step(run, 2).batch), (3, 3));
    // It takes the life of two holders, and no third.
    assert_eq!(block_on(held.propose(reads())).unwrap(), Progress::Allowed);
    std::mem::forget(held);
    world.kill(2);
    std::mem::forget(world.take(3, run));
    world.kill(3);
    let ended = world.attach(4, run).unwrap();
    assert!(matches!(ended, Attached::Ended(EndReason::DeciderCrashed)));
    assert_eq!(world.state(run).run.reason, Some(EndReason::DeciderCrashed));
}

#[test]
fn a_run_that_is_cancelled_under_a_batch_has_all_its_outcomes_as_late_ones() {
    let mut world = World::with_tools(FakeTools::new(true));
    world.spawn = ThreadSpawn::with_places(8);
    world.tools.set("look", Does::Hang);
    let mut held = world.begin();
    let run = held.run();
    assert_eq!(block_on(held.propose(reads())).unwrap(), Progress::Allowed);
    let progress = std::thread::scope(|scope| {
        let held = &mut held;
        let execution = scope.spawn(move || block_on(held.execute()).unwrap());
        called(&world, "look", 3);
        block_on(operator::cancel(&world.parts(9), world.scope(), run, "ann", None)).unwrap();
        world.tools.let_go();
        execution.join().unwrap()
    });
    assert_eq!(progress, Progress::Ended(EndReason::OperatorCancelled));
    assert_eq!((world.count("outcome.late"), world.count("step.finished")), (3, 0));
    let state = world.state(run).run;
    assert_eq!((state.waits, state.free_since), (None, None));
    assert!((0..3).all(|index| world.step(run, index).status == StepStatus::Interrupted));
}

#[test]
fn outcomes_that_come_back_after_the_lease_ended_are_late_ones() {
    let mut world = World::with_tools(FakeTools::new(true));
    world.spawn = ThreadSpawn::with_places(8);
    world.tools.set("look", Does::Hang);
    let mut held = world.begin();
    let run = held.run();
    assert_eq!(block_on(held.propose(reads())).unwrap(), Progress::Allowed);
    let (error, mut next) = std::thread::scope(|scope| {
        let held = &mut held;
        let execution = scope.spawn(move || block_on(held.execute()));
        called(&world, "look", 3);
        world.clock.jump(world.clock.now().after(Duration::from_secs(31)));
        let (next, progress) = world.take(2, run);
        assert_eq!(progress, Progress::Observed);
        world.tools.let_go();
        (execution.join().unwrap(), next)
    });
    assert!(matches!(error, Err(GateError::Store(StoreError::LeaseLost))), "{error:?}");
    assert_eq!((world.count("outcome.late"), world.count("step.finished")), (3, 3));
    assert_eq!(world.state(run).run.waits, Some(Wait::Driver));
    assert_eq!(turn(&mut next, call("look", 9)), Progress::Observed);
}

/// A world whose `long` reads for up to 25 seconds.
fn with_long(blocks: bool) -> World {
    let tools = FakeTools::new(blocks);
    let long = tools.spec("long", EffectClass::ReadOnly, false);
    tools.add(ToolSpec { deadline_ms: 25_000, ..long });
    World::with_tools(tools)
}

#[test]
fn the_lease_covers_the_longest_call_or_none_is_begun() {
    let world = with_long(false);
    world.store.plan_renewals([Some(Fault::BeforeCommit), None]);
    let mut held = world.begin();
    // Ten of thirty seconds have passed, and the renewal has failed.
    beat_as_planned(&world);
    asleep(&world);
    let short = calls(&[("look", 1), ("look", 2)]);
    assert_eq!(turn(&mut held, short), Progress::Observed, "five seconds are left");
    let asked = calls(&[("look", 3), ("long", 4), ("look", 5)]);
    assert_eq!(block_on(held.propose(asked)).unwrap(), Progress::Allowed);
    let refused = block_on(held.execute());
    assert!(matches!(refused, Err(GateError::Uncovered)), "{refused:?}");
    assert_eq!((world.tools.effects("look"), world.count("step.started")), (2, 2));
    beat_as_planned(&world);
    asleep(&world);
    assert_eq!(block_on(held.execute()).unwrap(), Progress::Observed);
    assert_eq!((world.tools.effects("look"), world.tools.effects("long")), (4, 1));
}

#[test]
fn a_commit_that_took_the_term_with_it_lets_none_of_a_batch_begin() {
    let world = with_long(false);
    world.store.plan_renewals([Some(Fault::BeforeCommit)]);
    let (store, clock) = (world.store.clone(), world.clock.clone());
    // Begin, proposal, intents: that takes 10 of 30 seconds, and the renewal meanwhile fails.
    let gate = slow_at(&world, 3, move || {
        clock.advance(Duration::from_secs(10));
        while store.planned_renewals() > 0 || clock.next_wake().is_none() {
            std::thread::yield_now();
        }
    });
    let mut held = block_on(gate.begin(world.scope(), world.task(Limits::default()))).unwrap();
    let run = held.run();
    let asked = calls(&[("look", 1), ("long", 2)]);
    assert_eq!(block_on(held.propose(asked)).unwrap(), Progress::Allowed);
    asleep(&world);
    assert_eq!(block_on(held.execute()).unwrap(), Progress::Observed);
    assert_eq!((world.tools.seen().len(), world.count("step.started")), (0, 2));
    for index in 0..2 {
        let step = world.step(run, index);
        let failure = step.observation.unwrap().failure;
        assert_eq!((step.status, failure), (StepStatus::Failed, Some(Failure::Error)));
    }
}

#[test]
fn a_batch_is_not_waited_for_once_its_run_was_cancelled_elsewhere() {
    for blocks in [false, true] {
        let mut world = with_long(blocks);
        world.spawn = ThreadSpawn::with_places(8);
        world.tools.set("long", if blocks { Does::Hang } else { Does::Never });
        let mut held = world.begin();
        let run = held.run();
        let asked = calls(&[("long", 1), ("look", 2)]);
        let progress = std::thread::scope(|scope| {
            let executing = scope.spawn(|| turn(&mut held, asked));
            called(&world, "long", 1);
            called(&world, "look", 1);
            cancel_elsewhere(&world, run);
            executing.join().unwrap()
        });
        assert_eq!(progress, Progress::Ended(EndReason::OperatorCancelled));
        assert_eq!(world.count("step.finished"), 0);
        assert!((0..2).all(|index| world.step(run, index).status == StepStatus::Interrupted));
        // What had come back is late, and the other one when it comes.
        late(&world, 1);
        world.tools.let_go();
        late(&world, if blocks { 2 } else { 1 });
    }
}

/// One batch over a store that goes wrong once.
fn over(world: &World, store: FaultyStore) -> (Result<Progress, GateError>, RunId) {
    let mut parts = world.parts(1);
    parts.store = Arc::new(store);
    // Long enough for a second look at a commit in doubt, which the clock has to be moved for.
    parts.timing.record = Duration::from_millis(50);
    let gate = Gate::new(parts);
    let mut held = block_on(gate.begin(world.scope(), world.task(Limits::default()))).unwrap();
    let run = held.run();
    let made = std::thread::scope(|scope| {
        let held = &mut held;
        let made = scope
            .spawn(move || block_on(held.propose(reads())).and_then(|_| block_on(held.execute())));
        while !made.is_finished() {
            match world.clock.next_wake().filter(|wake| *wake <= Duration::from_millis(50)) {
                Some(wake) => world.clock.advance(wake),
                None => std::thread::yield_now(),
            }
        }
        made.join().unwrap()
    });
    std::mem::forget(held);
    world.kill(1);
    (made, run)
}

#[test]
fn a_store_that_refuses_or_loses_a_commit_of_a_batch_makes_nothing_of_it_twice() {
    // Beginning, proposal, intents, ends.
    for number in [3, 4] {
        let world = world();
        let faulty =
            FaultyStore::new(Arc::new(world.store.clone())).failing(number, StoreError::Full);
        let (made, run) = over(&world, faulty);
        assert!(matches!(made, Err(GateError::Store(StoreError::Full))), "{number} {made:?}");
        assert_eq!(world.tools.effects("look"), if number == 3 { 0 } else { 3 });
        let (_held, progress) = world.take(2, run);
        assert_eq!(progress, if number == 3 { Progress::Allowed } else { Progress::Observed });
        assert_eq!(world.count("step.started"), if number == 3 { 0 } else { 3 });
    }
    // In doubt, and stored: no permit was made, so no call was, and the record says so.
    let world = world();
    let faulty = FaultyStore::new(Arc::new(world.store.clone())).losing_answer(3);
    let (made, run) = over(&world, faulty);
    assert_eq!(made.unwrap(), Progress::Observed);
    assert_eq!((world.tools.effects("look"), world.count("step.started")), (0, 3));
    assert!((0..3).all(|index| {
        world.step(run, index).observation.unwrap().failure == Some(Failure::Error)
    }));
    // The ends in doubt, and stored: they stand as they are.
    let world = World::with_tools(FakeTools::new(false));
    let faulty = FaultyStore::new(Arc::new(world.store.clone())).losing_answer(4);
    let (made, _) = over(&world, faulty);
    assert_eq!(made.unwrap(), Progress::Observed);
    assert_eq!((world.tools.effects("look"), world.count("step.finished")), (3, 3));
    assert_eq!(world.count("outcome.late"), 0);
}

#[test]
fn every_call_of_a_batch_is_asked_again_and_compared() {
    let world = world();
    let mut held = world.begin();
    let run = held.run();
    turn(&mut held, reads());
    // One that was refused: the call that was the reason was judged.
    turn(&mut held, calls(&[("look", 1), ("look", 2), ("write", 3)]));
    turn(&mut held, calls(&[("look", 4)]));
    let policy: &dyn portcullis_domain::ports::Policy = world.policy.as_ref();
    let tools = world.parts(1).tools;
    for tools in [None, Some(tools.as_ref())] {
        let against = Against { rules: Rules::These(policy), tools };
        let mut recheck = Recheck::of(&world.store, world.scope(), run, against);
        let mut asked = Vec::new();
        while let Some(evaluation) = block_on(recheck.next()).unwrap() {
            assert_eq!(evaluation.finding, Finding::Same, "{evaluation:?}");
            asked.push((evaluation.index, evaluation.tool));
        }
        let expected = [(0, "look"), (1, "look"), (2, "look"), (3, "write"), (4, "look")];
        assert!(asked.iter().map(|(index, tool)| (*index, tool.as_str())).eq(expected));
    }
    // Beside a run that asked for something else in the second call.
    let mut other = world.begin();
    turn(&mut other, calls(&[("look", 1), ("look", 7), ("look", 3)]));
    turn(&mut other, calls(&[("look", 1), ("look", 2), ("write", 3)]));
    turn(&mut other, calls(&[("look", 4)]));
    let mut diff = Diff::of(&world.store, world.scope(), run, other.run());
    let mut places = Vec::new();
    while let Some(section) = block_on(diff.next()).unwrap() {
        assert_eq!(section.unknown, []);
        places.extend(section.differences.into_iter().map(|found| (section.place, found.at)));
    }
    let expected = [(portcullis_engine::diff::Where::Step(1), "/n".to_owned())];
    assert_eq!(places, expected);
}

#[test]
fn a_refused_batch_is_shown_alike_at_once_and_from_the_record() {
    let world = world();
    let mut held = world.begin();
    turn(&mut held, calls(&[("look", 1), ("write", 2)]));
    let at_once = block_on(held.view(false)).unwrap().history;
    assert_eq!((at_once.len(), &at_once[0].tool, &at_once[0].arguments), (1, &None, &None));
    assert_eq!(at_once[0].outcome, "denied");
    assert_eq!(block_on(held.view(false)).unwrap().history, at_once);
    assert_eq!(block_on(held.view(true)).unwrap().history, at_once);
}

#[test]
fn the_time_of_a_batch_is_counted_once() {
    let mut world = World::with_tools(FakeTools::new(true));
    world.spawn = ThreadSpawn::with_places(8);
    world.tools.set("look", Does::Hang);
    let mut held = world.begin();
    let run = held.run();
    assert_eq!(block_on(held.propose(reads())).unwrap(), Progress::Allowed);
    std::thread::scope(|scope| {
        let held = &mut held;
        let execution = scope.spawn(move || block_on(held.execute()).unwrap());
        called(&world, "look", 3);
        world.clock.advance(Duration::from_secs(2));
        world.tools.let_go();
        execution.join().unwrap()
    });
    assert_eq!(world.state(run).run.active_us, 2_000_000);
    let times = world.bodies().into_iter().filter_map(|body| match body {
        Body::StepFinished(StepFinished { active_us, .. }) => Some(active_us),
        _ => None,
    });
    assert!(times.eq([2_000_000, 0, 0]));
}

#[test]
fn the_record_of_a_batch_reads_back_as_it_was_proposed() {
    let world = world();
    let mut held = world.begin();
    let run = held.run();
    let raw = reads();
    turn(&mut held, raw.clone());
    for index in 0..3 {
        let proposal = world.step(run, index).proposal.unwrap();
        let content = block_on(Store::content(&world.store, world.scope(), proposal.digest));
        assert_eq!(content.unwrap().unwrap().bytes(), raw);
    }
}
