//! The policy, the tool and the agent: each sees the same on every path, and shares nothing with the others.

use std::sync::{Arc, Mutex};

use portcullis_canon::{Object, Value};
use portcullis_domain::approval::Answer;
use portcullis_domain::id::RunId;
use portcullis_domain::ports::{
    Agent, AgentFailure, BoxFuture, Policy, PolicyFailure, ProposedCall, Store, View,
};
use portcullis_domain::run::EndReason;
use portcullis_domain::tool::{EffectClass, ToolSpec};
use portcullis_domain::verdict::{Facts, PolicyId, Verdict};
use portcullis_engine::{Attached, Driven, Driving, Gate, HeldRun, Progress};
use portcullis_policy::Outcome;
use portcullis_testkit::block_on;
use portcullis_testkit::render::same_bytes;

use crate::world::{World, call};

/// A policy that keeps all that it was handed.
struct Watching {
    inner: Arc<dyn Policy>,
    handed: Mutex<Vec<((ToolSpec, Object), Facts)>>,
}

impl Policy for Watching {
    fn id(&self) -> PolicyId {
        self.inner.id()
    }

    fn decide(&self, call: &ProposedCall<'_>, facts: &Facts) -> Result<Verdict, PolicyFailure> {
        self.handed
            .lock()
            .unwrap()
            .push(((call.tool.clone(), call.arguments.clone()), facts.clone()));
        self.inner.decide(call, facts)
    }
}

fn watch(world: &World) -> Arc<Watching> {
    Arc::new(Watching { inner: world.policy.clone(), handed: Mutex::default() })
}

fn gate(world: &World, policy: &Arc<Watching>, pid: u32) -> Gate {
    let mut parts = world.parts(pid);
    parts.policy = Arc::<Watching>::clone(policy);
    Gate::new(parts)
}

fn begin(world: &World, policy: &Arc<Watching>) -> HeldRun {
    let limits = portcullis_domain::limits::Limits::default();
    block_on(gate(world, policy, 1).begin(world.scope(), world.task(limits))).unwrap()
}

fn attach(world: &World, policy: &Arc<Watching>, pid: u32, run: RunId) -> HeldRun {
    match block_on(gate(world, policy, pid).attach(world.scope(), run)).unwrap() {
        Attached::Held(held, Progress::Allowed) => held,
        Attached::Held(_, progress) => panic!("{progress:?}"),
        Attached::Waiting(_) | Attached::Child(_) | Attached::Ended(_) => panic!("not held"),
    }
}

/// One call in many spellings; what an escaping or a re-encoding could change stands in each.
const SPELLINGS: [&str; 5] = [
    "{\"to\":\"a && b <c>  d\u{2028}e\u{2029}f'/\u{7f}\",\"n\":1}",
    "{ \"n\" : 1 ,\t\"to\" : \"a && b <c>  d\u{2028}e\u{2029}f'/\u{7f}\" }",
    r#"{"to":"a \u0026\u0026 b \u003cc\u003e  d\u2028e\u2029f'\/\u007f","n":1.0}"#,
    r#"{"to":"a \u0026& b \u003Cc>\u0020 d\u2028e\u2029f\u0027\u002f\u007F","n":1e0}"#,
    r#"{"\u0074o":"\u0061 && b <c>  d\u2028e\u2029f'/\u007f","\u006e":10e-1}"#,
];

const CANONICAL: &str = "{\"n\":1,\"to\":\"a && b <c>  d\u{2028}e\u{2029}f'/\u{7f}\"}";

/// Proposes what it was given once, and then is done.
struct Once(Option<String>);

impl Agent for Once {
    fn propose(&mut self, view: View) -> BoxFuture<'_, Result<Vec<u8>, AgentFailure>> {
        let request = view.request;
        let line = match self.0.take() {
            Some(arguments) => format!(
                r#"{{"request":{request},"kind":"tool_call","tool":"send","arguments":{arguments}}}"#
            ),
            None => format!(r#"{{"request":{request},"kind":"complete"}}"#),
        };
        Box::pin(async move { Ok(line.into_bytes()) })
    }
}

fn raw(arguments: &str) -> Vec<u8> {
    format!(r#"{{"kind":"tool_call","tool":"send","arguments":{arguments}}}"#).into_bytes()
}

/// Every call that the policy was handed is this one, byte for byte, and with equal facts.
#[track_caller]
fn all_the_same(path: &str, times: usize, policy: &Watching) {
    let handed = policy.handed.lock().unwrap();
    assert_eq!(handed.len(), times, "{path}");
    for (call, facts) in handed.iter() {
        assert_eq!(String::from_utf8(call.1.to_canonical()).unwrap(), CANONICAL, "{path}");
        assert_eq!((call, facts), (&handed[0].0, &handed[0].1), "{path}");
    }
}

#[test]
fn a_call_has_the_same_bytes_and_facts_on_every_path() {
    for spelling in SPELLINGS {
        // The gate: at the proposal, when the granted run is taken up, and at use.
        let world = World::new();
        let policy = watch(&world);
        let mut held = begin(&world, &policy);
        let run = held.run();
        let asked = block_on(held.propose(raw(spelling))).unwrap();
        assert!(matches!(asked, Progress::Waiting(_)), "{spelling}");
        let question = world.question(run);
        world.answer("ann", &question, Answer::Approve).unwrap();
        let mut held = attach(&world, &policy, 2, run);
        block_on(held.execute()).unwrap();
        all_the_same("gate", 3, &policy);
        let seen = Value::Object(world.tools.seen()[0].clone()).to_canonical();
        assert_eq!(String::from_utf8(seen).unwrap(), CANONICAL, "what ran is what was judged");
        let card =
            block_on(world.store.content(world.scope(), question.card.digest)).unwrap().unwrap();
        same_bytes(card.bytes(), "send", &world.tools.seen()[0]).unwrap();

        // The loop, with an agent that has to echo the request.
        let world = World::new();
        let policy = watch(&world);
        let held = begin(&world, &policy);
        let run = held.run();
        let agent = Box::new(Once(Some(spelling.to_owned())));
        let mut driving = block_on(Driving::start(held, agent)).unwrap();
        assert!(matches!(block_on(driving.finished()).unwrap(), Driven::Waiting(_)));
        world.answer("ann", &world.question(run), Answer::Approve).unwrap();
        let held = attach(&world, &policy, 2, run);
        let mut driving = block_on(Driving::start(held, Box::new(Once(None)))).unwrap();
        block_on(driving.finished()).unwrap();
        assert_eq!(world.tools.effects("send"), 1);
        let looped = policy.handed.lock().unwrap().len();
        assert!(looped >= 2, "{looped}");
        all_the_same("loop", looped, &policy);

        // A process that died after the proposal was recorded.
        let world = World::new();
        world.policy.set(EffectClass::RemoteMutation, Outcome::Allow);
        let policy = watch(&world);
        let mut held = begin(&world, &policy);
        let run = held.run();
        assert_eq!(block_on(held.propose(raw(spelling))).unwrap(), Progress::Allowed);
        std::mem::forget(held);
        world.kill(1);
        let mut held = attach(&world, &policy, 2, run);
        block_on(held.execute()).unwrap();
        all_the_same("attach", 3, &policy);
    }
}

#[test]
fn the_first_step_has_the_same_facts_before_and_after_a_wait() {
    let world = World::new();
    let policy = watch(&world);
    let mut held = begin(&world, &policy);
    let run = held.run();
    block_on(held.propose(call("send", 1))).unwrap();
    world.answer("ann", &world.question(run), Answer::Approve).unwrap();
    world.clock.advance(std::time::Duration::from_secs(3_600));
    let _held = attach(&world, &policy, 2, run);
    let handed = policy.handed.lock().unwrap();
    assert_eq!(handed.len(), 2);
    assert_eq!(handed[0].1, handed[1].1);
    assert_eq!((handed[1].1.steps, handed[1].1.failures, handed[1].1.denials), (0, 0, 0));
    assert!(handed[1].1.labels.origins().is_empty());
}

/// Scribbles over everything that it was shown.
struct Scribbler {
    turn: u64,
    shown: Arc<Mutex<Vec<View>>>,
}

impl Agent for Scribbler {
    fn propose(&mut self, mut view: View) -> BoxFuture<'_, Result<Vec<u8>, AgentFailure>> {
        self.shown.lock().unwrap().push(view.clone());
        let request = view.request;
        view.goal = "another goal".to_owned();
        view.tools = Arc::from([]);
        for step in &mut view.history {
            step.content = Value::Null;
            step.external = false;
        }
        drop(view);
        self.turn += 1;
        let line = match self.turn {
            1 => format!(r#"{{"request":{request},"kind":"tool_call","tool":"look"}}"#),
            2 => format!(r#"{{"request":{request},"kind":"tool_call","tool":"write"}}"#),
            _ => format!(r#"{{"request":{request},"kind":"complete"}}"#),
        };
        Box::pin(async move { Ok(line.into_bytes()) })
    }
}

#[test]
fn what_an_agent_does_to_its_view_changes_nothing_that_others_see() {
    let world = World::new();
    let policy = watch(&world);
    let held = begin(&world, &policy);
    let shown = Arc::new(Mutex::default());
    let agent = Box::new(Scribbler { turn: 0, shown: Arc::clone(&shown) });
    let mut driving = block_on(Driving::start(held, agent)).unwrap();
    let driven = block_on(driving.finished()).unwrap();
    assert_eq!(driven, Driven::Ended(EndReason::GoalCompleted));
    let views = shown.lock().unwrap();
    assert_eq!(views.len(), 3);
    for view in views.iter() {
        assert_eq!((view.goal.as_str(), view.tools.len()), ("tidy", 6));
        assert!(view.history.iter().all(|step| step.external && step.content != Value::Null));
    }
    let handed = policy.handed.lock().unwrap();
    let last = &handed.last().unwrap().1;
    assert!(last.labels.is_external(), "the policy knows what the run read");
}
