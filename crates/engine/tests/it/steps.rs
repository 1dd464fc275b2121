//! One step: admission, verdicts, observations.

use std::time::Duration;

use portcullis_domain::event::Body;
use portcullis_domain::label::Origin;
use portcullis_domain::limits::Limits;
use portcullis_domain::observation::{Failure, ObservationKind};
use portcullis_domain::ports::Store;
use portcullis_domain::refusal::Refusal;
use portcullis_domain::run::{EndReason, RunStatus};
use portcullis_domain::step::StepStatus;
use portcullis_domain::tool::EffectClass;
use portcullis_engine::{GateError, Progress, Task};
use portcullis_policy::Outcome;
use portcullis_testkit::block_on;

use crate::world::{Conduct, Does, FakeTools, World, call, turn};

#[test]
fn an_allowed_call_runs_once_and_its_record_is_in_order() {
    let world = World::new();
    let mut held = world.begin();
    let run = held.run();
    assert_eq!(turn(&mut held, call("write", 1)), Progress::Observed);
    assert_eq!(world.tools.effects("write"), 1);
    let names: Vec<_> = world.bodies().iter().map(Body::name).collect();
    assert_eq!(
        names,
        [
            "journal.opened",
            "thread.opened",
            "run.created",
            "lease.acquired",
            "step.opened",
            "step.proposed",
            "step.judged",
            "step.started",
            "step.finished",
            "thread.labelled",
            "step.opened",
        ]
    );
    let step = world.step(run, 0);
    assert_eq!(step.status, StepStatus::Done);
    let labels = step.observation.unwrap().labels;
    assert!(labels.origins().contains(&Origin::external("write")));
}

#[test]
fn allowed_writes_nothing_until_it_is_executed() {
    let world = World::new();
    let mut held = world.begin();
    assert_eq!(block_on(held.propose(call("write", 1))).unwrap(), Progress::Allowed);
    assert_eq!((world.count("step.judged"), world.count("step.started")), (0, 0));
    assert_eq!(world.tools.effects("write"), 0);
}

#[test]
fn defaults_are_filled_in_before_the_policy_and_the_tool_see_the_call() {
    let world = World::new();
    let mut held = world.begin();
    turn(&mut held, call("write", 1));
    let canonical = br#"{"n":1,"to":"nobody"}"#.to_vec();
    assert_eq!(world.policy.asked(), vec![("write".to_owned(), canonical.clone()); 2]);
    assert_eq!(
        portcullis_canon::Value::Object(world.tools.seen()[0].clone()).to_canonical(),
        canonical
    );
}

#[track_caller]
fn refused(raw: &[u8], refusal: Refusal) {
    let world = World::new();
    let mut held = world.begin();
    let run = held.run();
    assert_eq!(turn(&mut held, raw.to_vec()), Progress::Observed, "{refusal:?}");
    let step = world.step(run, 0);
    let observation = step.observation.unwrap();
    assert_eq!((step.status, observation.refusal), (StepStatus::Failed, Some(refusal)));
    assert!(step.proposal.is_some(), "the raw bytes are recorded whatever they are");
    assert_eq!(world.count("step.started"), 0);
}

#[test]
fn each_refused_proposal_is_recorded_and_nothing_runs() {
    refused(b"not json", Refusal::NotJson);
    refused(b"\xff", Refusal::NotJson);
    refused(b"", Refusal::NotJson);
    refused(br#"{"kind":"tool_call","tool":"fly"}"#, Refusal::UnknownTool);
    refused(
        br#"{"kind":"tool_call","tool":"write","arguments":{"n":"x"}}"#,
        Refusal::ArgumentsInvalid,
    );
    refused(
        br#"{"kind":"tool_call","tool":"write","arguments":{"approved":true}}"#,
        Refusal::ArgumentsInvalid,
    );
    refused(
        br#"{"kind":"tool_call","tool":"write","arguments":{"n":1e400}}"#,
        Refusal::NumberNotExact,
    );
    refused(
        br#"{"kind":"tool_call","tool":"write","arguments":{"n":1,"n":2}}"#,
        Refusal::RepeatedKey,
    );
    refused(br#"{"kind":"tool_call","tool":"burn"}"#, Refusal::ClassDenied);
    let huge = format!(
        r#"{{"kind":"tool_call","tool":"write","arguments":{{"to":"{}"}}}}"#,
        "x".repeat(10 << 20)
    );
    refused(huge.as_bytes(), Refusal::TooLarge);
}

#[test]
fn an_invalid_argument_names_path_and_rule_and_never_the_value() {
    let world = World::new();
    let mut held = world.begin();
    let run = held.run();
    turn(
        &mut held,
        br#"{"kind":"tool_call","tool":"write","arguments":{"n":"s3cret-canary"}}"#.to_vec(),
    );
    let seen = world.observed(run, 0).to_canonical_string();
    assert!(seen.contains(r#""path":"/n""#) && seen.contains(r#""rule":"type""#), "{seen}");
    assert!(!seen.contains("canary"), "{seen}");
}

#[test]
fn a_misbehaving_policy_is_a_deny() {
    for (how, refusal) in [
        (Conduct::Fails, Refusal::PolicyFailed),
        (Conduct::Panics, Refusal::PolicyFailed),
        (Conduct::Dawdles(Duration::from_secs(2)), Refusal::PolicyTimeout),
    ] {
        let world = World::new();
        let mut held = world.begin();
        let run = held.run();
        world.policy.behave(how);
        assert_eq!(turn(&mut held, call("look", 1)), Progress::Observed);
        assert_eq!(world.step(run, 0).observation.unwrap().refusal, Some(refusal), "{how:?}");
        assert_eq!(world.tools.effects("look"), 0);
    }
}

#[test]
fn a_question_that_nobody_could_answer_is_a_deny() {
    let world = World::new();
    let mut held = world.begin();
    let run = held.run();
    world.policy.set(EffectClass::ReadOnly, Outcome::ask("operator", 4).unwrap());
    turn(&mut held, call("look", 1));
    assert_eq!(world.step(run, 0).observation.unwrap().refusal, Some(Refusal::NoReviewer));
}

#[test]
fn the_owner_is_not_counted_among_those_who_could_answer_for_four_eyes() {
    let world = World::new();
    world.policy.set(EffectClass::ReadOnly, Outcome::ask("operator", 3).unwrap());
    // Three have the role, and one of them began the run.
    let mut held = world.begin();
    let run = held.run();
    turn(&mut held, call("look", 1));
    assert_eq!(world.step(run, 0).observation.unwrap().refusal, Some(Refusal::NoReviewer));
    // Where one yes is enough it may be the owner's.
    world.policy.set(EffectClass::ReadOnly, Outcome::ask("operator", 1).unwrap());
    assert!(matches!(turn(&mut held, call("look", 2)), Progress::Waiting(_)));
    // In somebody else's run all three count.
    world.policy.set(EffectClass::ReadOnly, Outcome::ask("operator", 3).unwrap());
    let task = Task { owner: "eve".to_owned(), ..world.task(Limits::default()) };
    let mut held = block_on(world.gate(1).begin(world.scope(), task)).unwrap();
    assert!(matches!(turn(&mut held, call("look", 3)), Progress::Waiting(_)));
}

#[test]
fn abort_ends_the_run() {
    let world = World::new();
    let mut held = world.begin();
    world.policy.set(EffectClass::ReadOnly, Outcome::Abort);
    assert_eq!(turn(&mut held, call("look", 1)), Progress::Ended(EndReason::PolicyAbort));
    assert_eq!(world.tools.effects("look"), 0);
}

#[test]
fn the_agent_completes_or_fails_the_run() {
    let world = World::new();
    let mut held = world.begin();
    let run = held.run();
    let done = br#"{"kind":"complete","result":{"moved":3}}"#.to_vec();
    assert_eq!(turn(&mut held, done), Progress::Ended(EndReason::GoalCompleted));
    let state = world.state(run);
    assert_eq!((state.run.status, state.run.holder.is_none()), (RunStatus::Completed, true));
    let result = state.run.result.unwrap();
    let content = block_on(world.store.content(world.scope(), result.digest)).unwrap().unwrap();
    assert_eq!(content.bytes(), br#"{"moved":3}"#);

    let mut held = world.begin();
    let fail = br#"{"kind":"fail","message":"no"}"#.to_vec();
    assert_eq!(turn(&mut held, fail), Progress::Ended(EndReason::GoalFailed));
}

#[test]
fn a_terminal_tool_completes_the_run_with_its_result() {
    let world = World::new();
    let mut held = world.begin();
    let run = held.run();
    assert_eq!(turn(&mut held, call("end", 1)), Progress::Ended(EndReason::GoalCompleted));
    let state = world.state(run);
    assert_eq!(state.run.result, state.step().unwrap().observation.as_ref().unwrap().content);

    world.tools.set("end", Does::Fail);
    let mut held = world.begin();
    assert_eq!(turn(&mut held, call("end", 1)), Progress::Observed);
}

#[track_caller]
fn failed(tool: &str, does: Does, failure: Failure, progress: Progress) {
    let world = World::with_tools(FakeTools::new(false));
    world.tools.set(tool, does);
    let mut held = world.begin();
    let run = held.run();
    assert_eq!(turn(&mut held, call(tool, 1)), progress);
    let observation = world.step(run, 0).observation.unwrap();
    assert_eq!(
        (observation.kind, observation.failure),
        (ObservationKind::ToolError, Some(failure))
    );
}

#[test]
fn known_failures_are_observed() {
    failed("write", Does::Fail, Failure::Error, Progress::Observed);
    // What may have changed something and answered that it failed: known, and nobody is asked.
    failed("write", Does::Refuse("no".to_owned()), Failure::Error, Progress::Observed);
    failed("look", Does::Unknown, Failure::LostConnection, Progress::Observed);
    failed("look", Does::Panic, Failure::Panic, Progress::Observed);
    failed("write", Does::Abort, Failure::Abort, Progress::Ended(EndReason::ToolAbort));
    failed(
        "write",
        Does::Answer(b"{\"a\":1,\"a\":2}".to_vec()),
        Failure::InvalidContent,
        Progress::Observed,
    );
    failed("look", Does::Answer(b"<html>".to_vec()), Failure::InvalidContent, Progress::Observed);
}

#[test]
fn what_the_receiver_says_of_its_failure_is_bounded_as_a_result_is() {
    let world = World::new();
    world.tools.set("write", Does::Refuse("no ".repeat(5_000)));
    let mut held = world.begin();
    let run = held.run();
    assert_eq!(turn(&mut held, call("write", 1)), Progress::Observed);
    let observed = world.observed(run, 0);
    let message = observed.get("message").and_then(|v| v.as_str()).unwrap();
    assert!(message.len() <= 4_096 && message.starts_with("no no") && message.ends_with('…'));
    assert_eq!(world.count("question.asked"), 0);
}

#[test]
fn a_result_that_is_no_json_keeps_its_bytes() {
    let world = World::new();
    world.tools.set("look", Does::Answer(b"<html>".to_vec()));
    let mut held = world.begin();
    let run = held.run();
    turn(&mut held, call("look", 1));
    assert_eq!(world.observed(run, 0).get("head").and_then(|v| v.as_str()), Some("<html>"));
}

#[test]
fn a_result_beyond_its_bound_is_cut_and_says_so() {
    let world = World::new();
    let large = format!("\"{}\"", "x".repeat(5_000));
    world.tools.set("look", Does::Answer(large.into_bytes()));
    let mut held = world.begin();
    let run = held.run();
    assert_eq!(turn(&mut held, call("look", 1)), Progress::Observed);
    assert!(world.step(run, 0).observation.unwrap().cut);
    assert_eq!(
        world.observed(run, 0).get("bytes").and_then(portcullis_canon::Value::as_u64),
        Some(5_002)
    );
}

#[test]
fn misuse_is_an_error_and_changes_nothing() {
    let world = World::new();
    let mut held = world.begin();
    let before = world.bodies().len();
    assert!(matches!(block_on(held.execute()), Err(GateError::Misuse(_))));
    assert_eq!(world.bodies().len(), before);
    assert_eq!(block_on(held.propose(call("write", 1))).unwrap(), Progress::Allowed);
    let before = world.bodies().len();
    assert!(matches!(block_on(held.propose(call("write", 2))), Err(GateError::Misuse(_))));
    assert_eq!(world.bodies().len(), before);
    assert_eq!(block_on(held.execute()).unwrap(), Progress::Observed);
    assert!(matches!(block_on(held.execute()), Err(GateError::Misuse(_))));
    assert_eq!(world.tools.effects("write"), 1);
}

#[test]
fn the_incremental_fold_is_the_stored_fold_after_every_operation() {
    let world = World::new();
    let mut held = world.begin();
    let run = held.run();
    let check = |held: &mut portcullis_engine::HeldRun| {
        assert_eq!(block_on(held.state()).unwrap(), world.state(run));
    };
    check(&mut held);
    for n in 0..12 {
        let tool = ["look", "write", "burn", "fly"][n % 4];
        block_on(held.propose(call(tool, i64::try_from(n).unwrap()))).unwrap();
        check(&mut held);
        if n % 4 < 2 {
            block_on(held.execute()).unwrap();
            check(&mut held);
        }
    }
    assert_eq!(world.state(run).run.step_count, 13);
}

#[test]
fn a_commit_in_doubt_before_the_effect_runs_nothing_and_says_so() {
    use portcullis_store::memory::Fault;
    for (fault, executed) in [(Fault::AfterCommit, 0), (Fault::BeforeCommit, 0)] {
        let world = World::new();
        let mut held = world.begin();
        let run = held.run();
        assert_eq!(block_on(held.propose(call("write", 1))).unwrap(), Progress::Allowed);
        world.store.plan([Some(fault)]);
        let progress = block_on(held.execute());
        assert_eq!(world.tools.effects("write"), executed);
        match fault {
            Fault::AfterCommit => {
                assert_eq!(progress.unwrap(), Progress::Observed);
                assert_eq!(world.step(run, 0).observation.unwrap().failure, Some(Failure::Error));
            }
            _ => {
                assert!(progress.is_err());
                // Nothing was stored, so the same call can still be executed, once.
                assert_eq!(block_on(held.execute()).unwrap(), Progress::Observed);
                assert_eq!(world.tools.effects("write"), 1);
            }
        }
    }
}

#[test]
fn an_outcome_whose_commit_is_in_doubt_is_recorded_once() {
    use portcullis_store::memory::Fault;
    for fault in [Fault::AfterCommit, Fault::Full] {
        let world = World::new();
        let mut held = world.begin();
        let run = held.run();
        assert_eq!(block_on(held.propose(call("write", 1))).unwrap(), Progress::Allowed);
        world.store.plan([None, Some(fault)]);
        let clock = world.clock.clone();
        let moving = std::thread::spawn(move || {
            for _ in 0..200 {
                clock.advance(std::time::Duration::from_millis(5));
                std::thread::sleep(std::time::Duration::from_millis(1));
            }
        });
        let progress = block_on(held.execute());
        moving.join().unwrap();
        assert_eq!(world.tools.effects("write"), 1);
        match fault {
            Fault::AfterCommit => {
                assert_eq!(progress.unwrap(), Progress::Observed);
                assert_eq!(world.count("step.finished"), 1);
            }
            _ => {
                assert!(progress.is_err(), "a full disk is the operator's to mend");
                drop(held);
                world.kill(1);
                assert!(matches!(
                    world.attach(2, run).unwrap(),
                    portcullis_engine::Attached::Waiting(_)
                ));
                assert_eq!(world.tools.effects("write"), 1);
            }
        }
    }
}
