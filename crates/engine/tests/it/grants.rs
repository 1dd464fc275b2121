//! Which answer to which question lets which call run: the corners.

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use portcullis_canon::{Limits as JsonLimits, Object, parse};
use portcullis_domain::approval::Answer;
use portcullis_domain::event::Body;
use portcullis_domain::id::RunId;
use portcullis_domain::limits::Limits;
use portcullis_domain::permit::Permit;
use portcullis_domain::ports::{
    BoxFuture, Clock, EventFilter, MAX_PAGE, Store, ToolFailure, ToolOutput, ToolSource,
};
use portcullis_domain::question::QuestionStatus;
use portcullis_domain::refusal::Refusal;
use portcullis_domain::run::{EndReason, RunStatus};
use portcullis_domain::tool::{EffectClass, ToolSpec};
use portcullis_engine::operator::{self, Answered};
use portcullis_engine::{Attached, Gate, GateError, HeldRun, Progress, Tools};
use portcullis_policy::Outcome;
use portcullis_testkit::block_on;

use crate::world::{World, ask};

/// One tool, `send`, with a spec that a test changes.
struct Shaped {
    spec: Mutex<ToolSpec>,
    calls: Arc<AtomicU32>,
}

impl ToolSource for Shaped {
    fn specs(&self) -> Vec<ToolSpec> {
        vec![self.spec.lock().unwrap().clone()]
    }

    fn blocks(&self) -> bool {
        false
    }

    fn call(&self, _: Permit) -> BoxFuture<'_, Result<ToolOutput, ToolFailure>> {
        self.calls.fetch_add(1, Ordering::SeqCst);
        Box::pin(async { Ok(ToolOutput { content: Vec::new(), labels: None }) })
    }
}

fn schema(text: &str) -> portcullis_canon::Value {
    parse(text.as_bytes(), &JsonLimits::BARE).unwrap()
}

fn send() -> ToolSpec {
    ToolSpec {
        name: "send".to_owned(),
        description: "Sends.".to_owned(),
        input_schema: schema(
            r#"{"type":"object","properties":{"n":{"type":"integer"},"to":{"type":"string"}}}"#,
        ),
        effect: EffectClass::RemoteMutation,
        source: true,
        sink: true,
        authority: vec!["/to".to_owned()],
        deadline_ms: 5_000,
        terminal: false,
        fixed: Object::new(),
        max_result_bytes: 4_096,
        target: None,
        probe: None,
        idempotency_key: None,
    }
}

/// A world with a `send` of its own.
struct Office {
    world: World,
    spec: ToolSpec,
    calls: Arc<AtomicU32>,
}

impl Office {
    fn new() -> Self {
        Self { world: World::new(), spec: send(), calls: Arc::default() }
    }

    fn gate(&self, pid: u32) -> Gate {
        let source = Shaped { spec: Mutex::new(self.spec.clone()), calls: Arc::clone(&self.calls) };
        let mut parts = self.world.parts(pid);
        parts.tools = Arc::new(Tools::register(vec![Arc::new(source)]).unwrap());
        Gate::new(parts)
    }

    fn attach(&self, pid: u32, run: RunId) -> Attached {
        block_on(self.gate(pid).attach(self.world.scope(), run)).unwrap()
    }

    /// A run whose call was approved.
    fn granted(&self) -> RunId {
        let task = self.world.task(Limits::default());
        let mut held = block_on(self.gate(1).begin(self.world.scope(), task)).unwrap();
        ask(&mut held, "send");
        let run = held.run();
        self.world.answer("ann", &self.world.question(run), Answer::Approve).unwrap();
        run
    }
}

#[test]
fn whatever_changes_of_a_tool_is_asked_about_again() {
    type Change = fn(&mut ToolSpec);
    let changes: [(&str, Change); 8] = [
        ("description", |spec| spec.description = "Sends to all.".to_owned()),
        ("schema", |spec| spec.input_schema = schema(r#"{"type":"object"}"#)),
        ("deadline", |spec| spec.deadline_ms = 5_001),
        ("source", |spec| spec.source = false),
        ("sink", |spec| spec.sink = false),
        ("authority", |spec| spec.authority.clear()),
        ("result bound", |spec| spec.max_result_bytes = 4_097),
        ("terminal", |spec| spec.terminal = true),
    ];
    for (what, change) in changes {
        let mut office = Office::new();
        let run = office.granted();
        let old = office.world.question(run);
        change(&mut office.spec);
        let Attached::Waiting(new) = office.attach(2, run) else { panic!("{what}: not asked") };
        assert_ne!(new, old.id, "{what}");
        // The old question is spent, and its answer answers nothing more.
        let late = office.world.answer("ben", &old, Answer::Approve);
        assert!(matches!(late, Err(GateError::Store(_))), "{what}: {late:?}");
        assert!(matches!(office.attach(3, run), Attached::Waiting(again) if again == new));
        assert_eq!(office.calls.load(Ordering::SeqCst), 0, "{what}");
        // The control: a fresh answer is leave to run.
        office.world.answer("ann", &office.world.question(run), Answer::Approve).unwrap();
        let Attached::Held(mut held, Progress::Allowed) = office.attach(4, run) else {
            panic!("{what}: not allowed")
        };
        block_on(held.execute()).unwrap();
        assert_eq!(office.calls.load(Ordering::SeqCst), 1, "{what}");
    }
}

#[test]
fn a_class_that_became_milder_does_not_stretch_the_grant() {
    let mut office = Office::new();
    let run = office.granted();
    office.spec.effect = EffectClass::LocalMutation;
    // The policy would allow the call, but a person approved another one.
    assert!(matches!(office.attach(2, run), Attached::Waiting(_)));
    assert_eq!(office.calls.load(Ordering::SeqCst), 0);
}

#[test]
fn arguments_that_the_schema_of_today_refuses_are_not_run() {
    let mut office = Office::new();
    let run = office.granted();
    let asked = office.world.policy.asked().len();
    office.spec.input_schema =
        schema(r#"{"type":"object","properties":{"n":{"type":"integer","minimum":2}}}"#);
    let Attached::Held(_held, Progress::Observed) = office.attach(2, run) else {
        panic!("the step has to end with a refusal")
    };
    let observation = office.world.step(run, 0).observation.unwrap();
    assert_eq!(observation.refusal, Some(Refusal::ArgumentsInvalid));
    assert_eq!(office.calls.load(Ordering::SeqCst), 0);
    assert_eq!(office.world.policy.asked().len(), asked, "nobody was asked again");
    assert_eq!(office.world.state(run).run.status, RunStatus::Running);
}

#[test]
fn taking_a_waiting_run_up_again_and_again_writes_nothing() {
    let world = World::new();
    let mut held = world.begin();
    let run = held.run();
    let question = ask(&mut held, "send");
    let before = world.bodies().len();
    for pid in 2..22 {
        assert!(matches!(world.attach(pid, run).unwrap(), Attached::Waiting(q) if q == question));
    }
    assert_eq!((world.bodies().len(), world.count("question.asked")), (before, 1));
}

#[test]
fn of_many_answers_at_once_one_counts() {
    for round in 0..8_u8 {
        let world = World::new();
        let mut held = world.begin();
        let run = held.run();
        ask(&mut held, "send");
        let question = world.question(run);
        let led: Vec<Option<Answered>> = std::thread::scope(|scope| {
            let tries: Vec<_> = (0..8_u8)
                .map(|n| {
                    let (world, question) = (&world, &question);
                    let person = if n % 2 == 0 { "ann" } else { "ben" };
                    let yes = (n + round) % 4 < 2;
                    let answer = if yes { Answer::Approve } else { Answer::Reject };
                    scope.spawn(move || world.answer(person, question, answer).ok())
                })
                .collect();
            tries.into_iter().map(|tried| tried.join().unwrap()).collect()
        });
        let counted: Vec<_> = led.into_iter().flatten().collect();
        let expected = match counted[..] {
            [Answered::Granted] => QuestionStatus::Granted,
            [Answered::Ended(EndReason::ApprovalRejected)] => QuestionStatus::Rejected,
            _ => panic!("{counted:?}"),
        };
        assert_eq!((world.count("question.answered"), world.question(run).status), (1, expected));
    }
}

/// An allowed call of a run with these limits, its question, and the clock where the question was put.
fn asked(world: &World, limits: Limits) -> (HeldRun, RunId) {
    let mut held = world.begin_with(limits);
    ask(&mut held, "send");
    let run = held.run();
    (held, run)
}

#[test]
fn a_question_and_a_grant_hold_up_to_their_last_microsecond() {
    let second = |micros: i64| Duration::from_micros(u64::try_from(1_000_000 + micros).unwrap());
    for (off, holds) in [(-1, true), (0, true), (1, false)] {
        let world = World::new();
        let limits = Limits { question_ttl_ms: Some(1_000), ..Limits::default() };
        let (_held, run) = asked(&world, limits);
        world.clock.advance(second(off));
        let answered = world.answer("ann", &world.question(run), Answer::Approve);
        assert_eq!(answered.is_ok(), holds, "question {off}");

        let world = World::new();
        let limits = Limits { grant_ttl_ms: Some(1_000), ..Limits::default() };
        let (_held, run) = asked(&world, limits.clone());
        world.answer("ann", &world.question(run), Answer::Approve).unwrap();
        world.clock.advance(second(off));
        let held = matches!(world.attach(2, run).unwrap(), Attached::Held(_, Progress::Allowed));
        assert_eq!(held, holds, "grant when taken up {off}");

        let world = World::new();
        let (_held, run) = asked(&world, limits);
        world.answer("ann", &world.question(run), Answer::Approve).unwrap();
        let (mut held, _) = world.take(2, run);
        world.clock.advance(second(off));
        block_on(held.execute()).unwrap();
        assert_eq!(world.tools.effects("send"), u32::from(holds), "grant at use {off}");
    }
}

#[test]
fn the_latest_question_is_the_one_of_the_latest_event_whatever_the_clock_said() {
    let world = World::new();
    let (_held, run) = asked(&world, Limits::default());
    let first = world.question(run);
    world.answer("ann", &first, Answer::Approve).unwrap();
    world.tools.describe("Sends to everybody.");
    // The clock is set back by a year before the second question is put.
    let year = 365 * 24 * 3_600_000_000_i64;
    let earlier = world.clock.now().micros() - year;
    world.clock.jump(portcullis_domain::time::Timestamp::from_micros(earlier));
    assert!(matches!(world.attach(2, run).unwrap(), Attached::Waiting(_)));
    let second = world.question(run);
    assert!(second.asked_at < first.asked_at, "the control: by its time it is the older one");
    assert_ne!(second.id, first.id);
    assert!(world.answer("ben", &first, Answer::Approve).is_err());
    assert!(matches!(world.attach(3, run).unwrap(), Attached::Waiting(q) if q == second.id));
    world.tools.describe("A tool.");
    // Not even with the tool as it was when the first question was answered.
    assert!(matches!(world.attach(4, run).unwrap(), Attached::Waiting(_)));
    assert_eq!(world.tools.effects("send"), 0);
}

#[test]
fn a_time_that_does_not_exist_is_absent_and_not_zero() {
    let world = World::new();
    let (_held, run) = asked(&world, Limits::default());
    let question = world.question(run);
    assert_eq!((question.expires_at, question.granted_at), (None, None));
    let state = world.state(run);
    assert_eq!(state.run.finished_at, None);
    let filter = EventFilter { stream: None, after: 0, limit: MAX_PAGE };
    let events = block_on(world.store.events(world.scope(), filter)).unwrap();
    for event in &events {
        let payload = String::from_utf8(event.payload.clone()).unwrap();
        assert!(!payload.contains("1970-") && !payload.contains("0001-"), "{payload}");
        assert!(event.at > 0);
    }
    let asked = world.bodies().into_iter().find_map(|body| match body {
        Body::QuestionAsked(asked) => Some(asked),
        _ => None,
    });
    assert_eq!(asked.unwrap().expires_at, None);
}

#[test]
fn nobody_answers_after_a_cancel_and_a_grant_dies_with_its_run() {
    let world = World::new();
    let (_held, run) = asked(&world, Limits::default());
    world.answer("ann", &world.question(run), Answer::Approve).unwrap();
    let granted = world.question(run);
    let no = world.answer("ben", &granted, Answer::Reject);
    assert!(no.is_err(), "what was approved is ended by a cancel, not by a later no");
    block_on(operator::cancel(&world.parts(9), world.scope(), run, "ann", None)).unwrap();
    let cancelled = EndReason::OperatorCancelled;
    assert!(matches!(world.attach(2, run).unwrap(), Attached::Ended(end) if end == cancelled));
    assert!(world.answer("ben", &granted, Answer::Approve).is_err());
    assert_eq!(world.tools.effects("send"), 0);
}

#[test]
fn a_grant_whose_call_cannot_go_on_can_be_ended() {
    let world = World::new();
    let (_held, run) = asked(&world, Limits::default());
    world.answer("ann", &world.question(run), Answer::Approve).unwrap();
    let mut parts = world.parts(2);
    parts.tools = Arc::default();
    let stuck = block_on(Gate::new(parts).attach(world.scope(), run));
    assert!(matches!(stuck, Err(GateError::ToolMissing(_))));
    block_on(operator::cancel(&world.parts(9), world.scope(), run, "ann", None)).unwrap();
    assert_eq!(world.state(run).run.status, RunStatus::Cancelled);
}

#[test]
fn a_policy_that_now_asks_somebody_else_asks_again() {
    let world = World::new();
    let (_held, run) = asked(&world, Limits::default());
    world.answer("ann", &world.question(run), Answer::Approve).unwrap();
    world.policy.set(EffectClass::RemoteMutation, Outcome::ask("visitor", 1).unwrap());
    assert!(matches!(world.attach(2, run).unwrap(), Attached::Waiting(_)));
    assert_eq!(world.question(run).reviewers.role, "visitor");
    assert_eq!(world.tools.effects("send"), 0);
}
