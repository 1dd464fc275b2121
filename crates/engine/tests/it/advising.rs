//! Verdicts that are handed to a host, which acts by itself: recorded before they are said, and never as an effect.

use std::sync::Arc;
use std::time::Duration;

use portcullis_domain::approval::Answer;
use portcullis_domain::event::{Advice, Body};
use portcullis_domain::label::{Labels, Origin};
use portcullis_domain::limits::Limits;
use portcullis_domain::permit::Permit;
use portcullis_domain::ports::{
    BoxFuture, Store as _, StoreError, ToolFailure, ToolOutput, ToolSource,
};
use portcullis_domain::question::QuestionStatus;
use portcullis_domain::refusal::Refusal;
use portcullis_domain::run::{EndReason, RunStatus};
use portcullis_domain::step::StepStatus;
use portcullis_domain::tally::ThreadLimits;
use portcullis_domain::thread::conversation;
use portcullis_domain::tool::{EffectClass, ToolSpec};
use portcullis_engine::{Advised, Asking, Attached, Gate, GateError, HeldRun, Progress, Tools};
use portcullis_policy::Outcome;
use portcullis_store::memory::Fault;
use portcullis_testkit::block_on;

use crate::world::{Conduct, FakeTools, World, call};

/// The tools of the tests, as those of a host that carries them out by itself.
struct Elsewhere(Arc<FakeTools>);

impl ToolSource for Elsewhere {
    fn specs(&self) -> Vec<ToolSpec> {
        self.0.specs()
    }

    fn blocks(&self) -> bool {
        self.0.blocks()
    }

    fn performs(&self) -> bool {
        false
    }

    fn call(&self, permit: Permit) -> BoxFuture<'_, Result<ToolOutput, ToolFailure>> {
        self.0.call(permit)
    }
}

fn gate(world: &World, pid: u32) -> Gate {
    let mut parts = world.parts(pid);
    let source = Arc::new(Elsewhere(Arc::clone(&world.tools)));
    parts.tools = Arc::new(Tools::register(vec![source]).unwrap());
    Gate::new(parts)
}

fn one_call() -> Limits {
    Limits { max_steps: 2, max_denials: 1, max_consecutive_failures: 1, ..Limits::default() }
}

fn begin(world: &World) -> HeldRun {
    block_on(gate(world, 1).begin(world.scope(), world.task(one_call()))).unwrap()
}

/// A held run whose call is allowed.
fn allowed(world: &World) -> HeldRun {
    let mut held = begin(world);
    assert_eq!(block_on(held.propose(call("write", 1))).unwrap(), Progress::Allowed);
    held
}

/// What makes an effect, in the record and in the world.
fn effects(world: &World) -> usize {
    let tools = ["look", "write", "send", "burn"];
    let made: u32 = tools.iter().map(|tool| world.tools.effects(tool)).sum();
    world.count("step.started") + usize::try_from(made).unwrap()
}

#[test]
fn an_allow_is_recorded_as_advice_and_nothing_is_made() {
    let world = World::new();
    let mut held = allowed(&world);
    let run = held.run();
    assert_eq!(block_on(held.advise()).unwrap(), Advised::Told(Advice::Allow));
    let step = world.step(run, 0);
    assert_eq!((step.status, step.starts), (StepStatus::Advised, 0));
    let state = world.state(run);
    assert_eq!(state.run.reason, Some(EndReason::GoalCompleted));
    assert_eq!((state.run.status, effects(&world)), (RunStatus::Completed, 0));
    assert_eq!(world.count("step.advised"), 1);
    // What the host reads now counts as read by the conversation.
    let thread = block_on(world.store.thread(world.scope(), state.run.thread)).unwrap().unwrap();
    assert!(thread.labels.covers(&Labels::of(Origin::external("write"))));
    // It is said once.
    let again = block_on(held.advise()).unwrap();
    assert_eq!(again, Advised::Not(Progress::Ended(EndReason::GoalCompleted)));
    assert_eq!(world.count("step.advised"), 1);

    // Positive control: the same call, made here, is an effect.
    let mut held = world.begin();
    assert_eq!(block_on(held.propose(call("write", 1))).unwrap(), Progress::Allowed);
    assert_eq!(block_on(held.execute()).unwrap(), Progress::Observed);
    assert_eq!(effects(&world), 2);
}

#[test]
fn what_a_host_makes_is_never_made_here_and_what_is_made_here_is_never_advice() {
    let world = World::new();
    let mut held = allowed(&world);
    assert!(matches!(block_on(held.execute()), Err(GateError::Misuse(_))));
    let mut batch = begin(&world);
    let calls = r#"{"kind":"tool_calls","calls":[{"tool":"look","arguments":{}},{"tool":"look","arguments":{"n":2}}]}"#;
    if block_on(batch.propose(calls.as_bytes().to_vec())).unwrap() == Progress::Allowed {
        assert!(matches!(block_on(batch.execute()), Err(GateError::Misuse(_))));
        assert!(matches!(block_on(batch.advise()), Err(GateError::Misuse(_))));
    }
    let mut here = world.begin();
    assert_eq!(block_on(here.propose(call("write", 1))).unwrap(), Progress::Allowed);
    assert!(matches!(block_on(here.advise()), Err(GateError::Misuse(_))));
    assert_eq!((effects(&world), world.count("step.advised")), (0, 0));
    let mut nothing = begin(&world);
    assert!(matches!(block_on(nothing.advise()), Err(GateError::Misuse(_))));
}

#[test]
fn a_no_ends_the_run_of_the_call() {
    for (outcome, reason, ended) in [
        (Outcome::Deny, Refusal::ClassDenied, EndReason::LimitDenials),
        (Outcome::Abort, Refusal::PolicyAborted, EndReason::PolicyAbort),
    ] {
        let world = World::new();
        world.policy.set(EffectClass::LocalMutation, outcome);
        let mut held = begin(&world);
        let run = held.run();
        let progress = block_on(held.propose(call("write", 1))).unwrap();
        assert_eq!(progress, Progress::Ended(ended));
        assert_eq!(world.step(run, 0).observation.unwrap().refusal, Some(reason));
        assert!(matches!(block_on(held.advise()).unwrap(), Advised::Not(_)));
    }
    let world = World::new();
    let mut held = begin(&world);
    let progress = block_on(held.propose(call("nothing", 1))).unwrap();
    assert_eq!(progress, Progress::Ended(EndReason::RepeatedFailures));
    assert_eq!(world.count("step.advised"), 0);
}

#[test]
fn a_policy_that_misbehaves_or_changes_its_mind_advises_nothing() {
    for conduct in [
        Conduct::Fails,
        Conduct::Panics,
        Conduct::Dawdles(Duration::from_secs(3_600)),
        Conduct::AsksNobody,
    ] {
        let world = World::new();
        let mut held = allowed(&world);
        world.policy.behave(conduct);
        let told = block_on(held.advise()).unwrap();
        assert!(matches!(told, Advised::Not(Progress::Ended(_))), "{conduct:?}: {told:?}");
        assert_eq!(world.count("step.advised"), 0);
    }
    let world = World::new();
    let mut held = allowed(&world);
    world.policy.set(EffectClass::LocalMutation, Outcome::Deny);
    let told = block_on(held.advise()).unwrap();
    assert_eq!(told, Advised::Not(Progress::Ended(EndReason::LimitDenials)));
    assert_eq!((world.count("step.advised"), world.count("step.judged")), (0, 1));
}

#[test]
fn a_store_that_fails_or_loses_its_answer_is_not_an_allow() {
    for fault in [Fault::BeforeCommit, Fault::Full, Fault::AfterCommit] {
        let world = World::new();
        let mut held = allowed(&world);
        world.store.plan([Some(fault)]);
        assert!(block_on(held.advise()).is_err(), "{fault:?}");
    }
    // Positive control.
    let world = World::new();
    let told = block_on(allowed(&world).advise()).unwrap();
    assert_eq!(told, Advised::Told(Advice::Allow));
}

#[test]
fn an_approval_allows_one_call() {
    let world = World::new();
    world.policy.set(EffectClass::LocalMutation, Outcome::ask("operator", 1).unwrap());
    let mut held = begin(&world);
    let run = held.run();
    let asked = block_on(held.propose(call("write", 1))).unwrap();
    assert!(matches!(asked, Progress::Waiting(_)));
    let attach = || block_on(gate(&world, 2).attach(world.scope(), run)).unwrap();
    assert!(matches!(attach(), Attached::Waiting(_)));
    world.answer("ann", &world.question(run), Answer::Approve).unwrap();
    let Attached::Held(mut held, Progress::Allowed) = attach() else { panic!() };
    assert_eq!(block_on(held.advise()).unwrap(), Advised::Told(Advice::Allow));
    assert_eq!(world.question(run).status, QuestionStatus::Used);
    assert_eq!(world.count("approval.used"), 1);
    assert!(matches!(attach(), Attached::Ended(EndReason::GoalCompleted)));
    assert_eq!(effects(&world), 0);
}

#[test]
fn an_approval_that_is_over_or_about_another_policy_does_not() {
    let world = World::new();
    world.policy.set(EffectClass::LocalMutation, Outcome::ask("operator", 1).unwrap());
    let limits = Limits { grant_ttl_ms: Some(1_000), ..one_call() };
    let mut held = block_on(gate(&world, 1).begin(world.scope(), world.task(limits))).unwrap();
    let run = held.run();
    block_on(held.propose(call("write", 1))).unwrap();
    world.answer("ann", &world.question(run), Answer::Approve).unwrap();
    let attached = block_on(gate(&world, 2).attach(world.scope(), run)).unwrap();
    let Attached::Held(mut held, Progress::Allowed) = attached else { panic!() };
    world.clock.advance(Duration::from_secs(2));
    let told = block_on(held.advise()).unwrap();
    assert_eq!(told, Advised::Not(Progress::Ended(EndReason::ApprovalExpired)));
    assert_eq!(world.count("step.advised"), 0);
}

#[test]
fn a_host_asks_its_own_person_only_where_one_is_enough() {
    let world = World::new();
    world.policy.set(EffectClass::LocalMutation, Outcome::ask("operator", 1).unwrap());
    let mut held = begin(&world);
    let run = held.run();
    block_on(held.asking(Asking::Host)).unwrap();
    assert_eq!(block_on(held.propose(call("write", 1))).unwrap(), Progress::Allowed);
    // That is no leave to make it here.
    assert!(matches!(block_on(held.execute()), Err(GateError::Misuse(_))));
    assert_eq!(block_on(held.advise()).unwrap(), Advised::Told(Advice::Ask));
    assert!(
        world.bodies().iter().any(
            |body| matches!(body, Body::StepAdvised(advised) if advised.advice == Advice::Ask)
        )
    );
    assert_eq!(world.state(run).run.reason, Some(EndReason::GoalCompleted));
    assert_eq!((world.count("question.asked"), world.count("approval.used")), (0, 0));

    world.policy.set(EffectClass::LocalMutation, Outcome::ask("operator", 2).unwrap());
    let mut held = begin(&world);
    block_on(held.asking(Asking::Host)).unwrap();
    assert!(matches!(block_on(held.propose(call("write", 1))).unwrap(), Progress::Waiting(_)));

    // A call that is made here is asked about here, whatever the host would do.
    let mut here = world.begin();
    block_on(here.asking(Asking::Host)).unwrap();
    assert!(matches!(block_on(here.propose(call("write", 1))).unwrap(), Progress::Waiting(_)));
}

#[test]
fn a_host_that_asks_its_person_is_counted_as_asking() {
    let mut world = World::new();
    world.conversation = Some(ThreadLimits { max_questions: Some(1), ..ThreadLimits::NONE });
    world.policy.set(EffectClass::LocalMutation, Outcome::ask("operator", 1).unwrap());
    let thread = conversation("ann", "hook:host", "abc");
    let advised = |n: i64| {
        let task = world.task(one_call());
        let mut held = block_on(gate(&world, 1).begin_on(world.scope(), thread, task)).unwrap();
        block_on(held.asking(Asking::Host)).unwrap();
        assert_eq!(block_on(held.propose(call("write", n))).unwrap(), Progress::Allowed);
        (block_on(held.advise()).unwrap(), held.run())
    };
    assert_eq!(advised(1).0, Advised::Told(Advice::Ask));
    let (limited, run) = advised(2);
    assert_eq!(limited, Advised::Not(Progress::Ended(EndReason::LimitDenials)));
    let seen = world.step(run, 0).observation.unwrap();
    assert_eq!(seen.refusal, Some(Refusal::ThreadQuestions));
    let tally = block_on(world.store.thread(world.scope(), thread)).unwrap().unwrap().tally;
    assert_eq!(tally.map(|tally| (tally.questions, tally.calls)), Some((1, 1)));
    assert_eq!(world.count("step.advised"), 1);
}

#[test]
fn a_run_that_was_ended_or_taken_meanwhile_is_not_an_allow() {
    let world = World::new();
    let mut held = allowed(&world);
    let run = held.run();
    block_on(portcullis_engine::operator::cancel(&world.parts(9), world.scope(), run, "ann", None))
        .unwrap();
    let told = block_on(held.advise()).unwrap();
    assert_eq!(told, Advised::Not(Progress::Ended(EndReason::OperatorCancelled)));

    // Another holder says it; the first one, who was away for longer than its lease, says nothing.
    let mut held = allowed(&world);
    world.clock.jump(world.clock_now().after(Duration::from_secs(31)));
    let attached = block_on(gate(&world, 2).attach(world.scope(), held.run())).unwrap();
    let Attached::Held(mut other, Progress::Allowed) = attached else { panic!() };
    assert_eq!(block_on(other.advise()).unwrap(), Advised::Told(Advice::Allow));
    let late = block_on(held.advise());
    assert!(!matches!(late, Ok(Advised::Told(_))), "{late:?}");
    assert_eq!(world.count("step.advised"), 1);
}

#[test]
fn a_conversation_that_is_named_is_one_thread_with_its_labels() {
    let world = World::new();
    let thread = conversation("ann", "hook:host", "abc");
    let mut held =
        block_on(gate(&world, 1).begin_on(world.scope(), thread, world.task(one_call()))).unwrap();
    assert_eq!(block_on(held.propose(call("write", 1))).unwrap(), Progress::Allowed);
    block_on(held.advise()).unwrap();
    let second =
        block_on(gate(&world, 1).begin_on(world.scope(), thread, world.task(one_call()))).unwrap();
    assert_eq!(world.state(second.run()).run.thread, thread);
    assert_eq!(world.count("thread.opened"), 1);
    let mut second = second;
    block_on(second.propose(call("write", 2))).unwrap();
    block_on(second.advise()).unwrap();
    let judged = world.bodies().into_iter().rev().find_map(|body| match body {
        Body::StepJudged(judged) => Some(judged.facts.labels),
        _ => None,
    });
    assert!(judged.unwrap().covers(&Labels::of(Origin::external("write"))));
    // Another owner does not come into it.
    let mut task = world.task(one_call());
    task.owner = "eve".to_owned();
    let foreign = block_on(gate(&world, 1).begin_on(world.scope(), thread, task));
    assert!(matches!(foreign, Err(GateError::Store(StoreError::NotAdmitted))));
}
