//! The driver: a gate with an agent, on the same code.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex};

use portcullis_domain::event::Body;
use portcullis_domain::limits::Limits;
use portcullis_domain::ports::{Agent, AgentFailure, BoxFuture, View};
use portcullis_domain::run::EndReason;
use portcullis_engine::{Driven, Driving, Progress};
use portcullis_testkit::block_on;
use portcullis_testkit::doubles::HostileAgent;

use crate::world::{World, call, turn};

/// Proposes what it was given, and keeps what it saw.
struct Lines {
    lines: VecDeque<Vec<u8>>,
    seen: Arc<Mutex<Vec<View>>>,
}

impl Agent for Lines {
    fn propose(&mut self, view: View) -> BoxFuture<'_, Result<Vec<u8>, AgentFailure>> {
        let request = view.request;
        self.seen.lock().unwrap().push(view);
        let line = self.lines.pop_front().map(|line| with_request(&line, request));
        let gone =
            AgentFailure { reason: EndReason::AgentExited, message: "no more lines".to_owned() };
        Box::pin(async move { line.ok_or(gone) })
    }
}

fn with_request(line: &[u8], request: u64) -> Vec<u8> {
    match line.strip_prefix(b"{") {
        Some(rest) => [format!("{{\"request\":{request},").as_bytes(), rest].concat(),
        None => line.to_vec(),
    }
}

fn script() -> Vec<Vec<u8>> {
    vec![
        call("look", 1),
        call("burn", 2),
        b"nonsense".to_vec(),
        call("write", 3),
        br#"{"kind":"complete","result":1}"#.to_vec(),
    ]
}

fn drive(world: &World, lines: Vec<Vec<u8>>) -> (portcullis_domain::id::RunId, Driven, Vec<View>) {
    let held = world.begin();
    let run = held.run();
    let seen = Arc::new(Mutex::default());
    let agent = Box::new(Lines { lines: lines.into(), seen: Arc::clone(&seen) });
    let mut driving = block_on(Driving::start(held, agent)).unwrap();
    let driven = block_on(driving.finished()).unwrap();
    let views = std::mem::take(&mut *seen.lock().unwrap());
    (run, driven, views)
}

/// What is the same in two records of the same proposals: everything but ids, digests and times.
fn shape(bodies: &[Body]) -> Vec<(String, Option<String>)> {
    bodies
        .iter()
        .filter(|body| !body.name().starts_with("lease.released"))
        .map(|body| {
            let detail = match body {
                Body::StepFinished(f) => {
                    Some(format!("{:?}", f.observation.as_ref().map(|o| (o.kind, o.refusal))))
                }
                Body::StepJudged(j) => Some(j.verdict.outcome().to_owned()),
                _ => None,
            };
            (body.name().to_owned(), detail)
        })
        .collect()
}

#[test]
fn the_driver_and_the_gate_leave_the_same_record() {
    let driven = World::new();
    let (_, outcome, _) = drive(&driven, script());
    assert_eq!(outcome, Driven::Ended(EndReason::GoalCompleted));

    let gated = World::new();
    let mut held = gated.begin();
    for raw in script() {
        turn(&mut held, raw);
        if block_on(held.step()).unwrap() != Progress::Open {
            break;
        }
    }
    assert_eq!(shape(&driven.bodies()), shape(&gated.bodies()));
    assert!(shape(&driven.bodies()).len() > 20);
}

#[test]
fn the_agent_sees_the_goal_the_tools_and_the_last_observation() {
    let world = World::new();
    let (_, _, views) = drive(&world, script());
    assert_eq!(views.iter().map(|v| v.request).collect::<Vec<_>>(), [0, 1, 2, 3, 4]);
    assert_eq!(views[0].goal, "tidy");
    assert_eq!(
        views[0].tools.iter().map(|t| t.name.as_str()).collect::<Vec<_>>(),
        ["burn", "end", "finish", "look", "send", "write"]
    );
    let last: Vec<_> = views.iter().map(|v| v.history.last().map(|s| s.outcome.clone())).collect();
    let expected =
        [None, Some("tool_result"), Some("denied"), Some("invalid_proposal"), Some("tool_result")];
    assert_eq!(last, expected.map(|o| o.map(str::to_owned)));
    assert!(views[1].history[0].external);
    assert_eq!(views[4].omitted, 3);
}

#[test]
fn an_agent_that_goes_ends_the_run_by_name() {
    let world = World::new();
    let (run, driven, _) = drive(&world, vec![call("look", 1)]);
    assert_eq!(driven, Driven::Ended(EndReason::AgentExited));
    assert!(world.state(run).run.note.is_some());
}

#[test]
fn a_reply_to_another_request_is_refused() {
    let world = World::new();
    let stale = br#"{"request":7,"kind":"tool_call","tool":"write"}"#;
    struct Raw(Option<Vec<u8>>);
    impl Agent for Raw {
        fn propose(&mut self, _: View) -> BoxFuture<'_, Result<Vec<u8>, AgentFailure>> {
            let line = self.0.take();
            let gone = AgentFailure { reason: EndReason::AgentExited, message: String::new() };
            Box::pin(async move { line.ok_or(gone) })
        }
    }
    let held = world.begin();
    let run = held.run();
    let mut driving = block_on(Driving::start(held, Box::new(Raw(Some(stale.to_vec()))))).unwrap();
    block_on(driving.finished()).unwrap();
    let refusal = world.step(run, 0).observation.unwrap().refusal;
    assert_eq!(refusal, Some(portcullis_domain::refusal::Refusal::WrongRequest));
    assert_eq!(world.tools.effects("write"), 0);
}

#[test]
fn a_question_stops_the_driver_and_the_run_can_be_taken_up() {
    let world = World::new();
    let (run, driven, _) = drive(&world, vec![call("send", 1)]);
    assert!(matches!(driven, Driven::Waiting(_)));
    world
        .answer("ann", &world.question(run), portcullis_domain::approval::Answer::Approve)
        .unwrap();
    let (held, _) = world.take(2, run);
    let seen = Arc::new(Mutex::default());
    let lines = VecDeque::from([br#"{"kind":"complete"}"#.to_vec()]);
    let agent = Box::new(Lines { lines, seen: Arc::clone(&seen) });
    let mut driving = block_on(Driving::start(held, agent)).unwrap();
    assert_eq!(block_on(driving.finished()).unwrap(), Driven::Ended(EndReason::GoalCompleted));
    assert_eq!(world.tools.effects("send"), 1);
    assert_eq!(seen.lock().unwrap()[0].history.len(), 1, "a fresh agent sees what came before");
}

#[test]
fn a_dropped_driver_stops_and_lets_its_lease_go() {
    let world = World::new();
    let held = world.begin_with(Limits::default());
    let run = held.run();
    let mut driving = block_on(Driving::start(held, Box::new(HostileAgent::stalls()))).unwrap();
    driving.stop();
    assert_eq!(block_on(driving.finished()).unwrap(), Driven::Stopped);
    assert_eq!(world.take(2, run).1, Progress::Open);
}
