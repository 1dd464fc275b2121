//! `explain RUN STEP`: what was decided, why, and what the step waits for.

use std::time::Duration;

use portcullis_canon::Value;
use portcullis_domain::id::RunId;
use portcullis_domain::limits::Limits;
use portcullis_domain::ports::Clock as _;
use portcullis_engine::operator;
use portcullis_testkit::block_on;

use crate::home::Home;
use crate::scene::{Scene, assert_safe, text_at};

fn first(scene: &Scene, run: RunId) -> Value {
    scene.run(&["explain", &run.to_string(), "0", "--json"]).json(0)
}

#[track_caller]
fn check(scene: &Scene, run: RunId, decision: &str, because: Option<&str>, waits: Option<&str>) {
    let told = first(scene, run);
    assert_eq!(text_at(&told, "/decision"), decision);
    assert_eq!(told.get("because").and_then(Value::as_str), because, "{decision}");
    let what = told.pointer("/waits_for/what").and_then(Value::as_str);
    assert_eq!(what, waits, "{decision}: {told:?}");
    let text = scene.run(&["explain", &run.to_string(), "0"]).out(0);
    assert_safe(&text);
    assert!(text.lines().nth(1).unwrap().starts_with("  decision      "), "{text}");
    assert_eq!(text.contains("\n  waits for     "), waits.is_some(), "{text}");
}

/// The decision on a run's one call, after it.
fn decided(scene: &Scene, tool: &str, arguments: &[(&str, &str)]) -> RunId {
    let mut run = scene.begin("one call");
    let arguments: Vec<_> =
        arguments.iter().map(|(key, value)| (*key, Value::from(*value))).collect();
    match arguments.as_slice() {
        [] => scene.propose(&mut run, tool, [], None),
        [one, ..] => scene.propose(&mut run, tool, [one.clone()], None),
    };
    let id = run.run();
    block_on(run.close()).unwrap();
    id
}

#[test]
fn each_decision_has_its_name_and_its_reason() {
    let scene = Scene::new();
    let path = [("path", "a.txt")];
    check(&scene, decided(&scene, "look", &path), "allowed", None, None);
    check(&scene, decided(&scene, "burn", &path), "denied", Some("class_denied"), None);
    check(&scene, decided(&scene, "look", &[]), "not_admitted", Some("arguments_invalid"), None);
    let mut said = scene.begin("say it");
    scene.propose_raw(&mut said, br#"{"kind":"fail","message":"no"}"#.to_vec());
    check(&scene, said.run(), "said", Some("fail"), None);
}

#[test]
fn a_question_says_who_has_to_answer_until_when_and_then_what_was_said() {
    let limits =
        Limits { question_ttl_ms: Some(60_000), grant_ttl_ms: Some(30_000), ..Limits::default() };
    let scene = Scene::with(2, limits.clone());
    let asked = || {
        let mut run = scene.begin_with("send it", limits.clone());
        scene.propose(&mut run, "send", [("path", Value::from("a"))], None);
        run.run()
    };
    let run = asked();
    check(&scene, run, "asked", Some("class_asks"), Some("people"));
    let waits = first(&scene, run);
    assert_eq!(text_at(&waits, "/waits_for/role"), "operator");
    assert_eq!(waits.pointer("/waits_for/needed").and_then(Value::as_u64), Some(2));
    let question = scene.question(run);
    assert_eq!(text_at(&waits, "/waits_for/until"), question.expires_at.unwrap().to_string());
    assert_eq!(text_at(&waits, "/waits_for/question"), question.id.to_string());
    // The command's clock is the machine's, and the scene's is not: the question is long over.
    assert_eq!(waits.pointer("/waits_for/overdue"), Some(&Value::Bool(true)));
    let text = scene.run(&["explain", &run.to_string(), "0"]).out(0);
    assert!(text.contains("2 more of `operator` to say yes (q_"), "{text}");
    assert!(text.contains("which ended 2026-09-21T"), "{text}");
    // Time ends it.
    scene.clock.advance(Duration::from_secs(120));
    block_on(operator::sweep_due(scene.gate.parts(), &scene.scope)).unwrap();
    check(&scene, run, "expired", None, None);
    // A run that somebody ends takes its question with it.
    let cancelled = asked();
    block_on(operator::cancel(scene.gate.parts(), &scene.scope, cancelled, "ann", None)).unwrap();
    check(&scene, cancelled, "withdrawn", None, None);
}

#[test]
fn answers_are_named_with_the_people_who_gave_them() {
    let scene = Scene::with(2, Limits::default());
    let run = scene.asking("send it", "a");
    let id = run.to_string();
    scene.run_as("bob", &["approve", &id, "--yes"]).out(0);
    let told = first(&scene, run);
    assert_eq!(text_at(&told, "/decision"), "asked");
    assert_eq!(text_at(&told, "/people/0/person"), "bob");
    let text = scene.run(&["explain", &id, "0"]).out(0);
    assert!(text.contains("1 more of `operator` to say yes"), "{text}");
    assert!(text.contains("    approve     | \" bob\n"), "{text}");
    scene.run_as("ann", &["approve", &id, "--yes"]).out(0);
    check(&scene, run, "approved", None, Some("grant"));
    let rejected = scene.asking("send more", "b");
    scene.run_as("ann", &["reject", &rejected.to_string(), "--yes"]).out(0);
    check(&scene, rejected, "rejected", None, None);
    assert_eq!(text_at(&first(&scene, rejected), "/people/0/answer"), "reject");
}

#[test]
fn a_parked_call_says_why_and_what_may_be_said_of_it() {
    let scene = Scene::new();
    let lost = || {
        let mut run = scene.begin("lose it");
        scene.propose(&mut run, "lost", [("path", Value::from("c.txt"))], None);
        run.run()
    };
    let settled = lost();
    check(&scene, settled, "parked", Some("lost_connection"), Some("outcome"));
    let text = scene.run(&["explain", &settled.to_string(), "0"]).out(0);
    assert!(text.contains("1 more of `operator` to say what became of the call"), "{text}");
    scene.run(&["answer", &settled.to_string(), "did-not-happen", "--yes"]).out(0);
    check(&scene, settled, "settled", None, None);
    // Only now: while one of its outcomes is open, a tool changes nothing more.
    let again = lost();
    scene.run(&["answer", &again.to_string(), "run-again", "--yes"]).out(0);
    check(&scene, again, "run_again", None, Some("grant"));
}

#[test]
fn a_step_that_nobody_drives_is_to_be_taken_up() {
    let scene = Scene::new();
    let run = scene.begin("go on");
    let id = run.run();
    block_on(run.close()).unwrap();
    check(&scene, id, "open", None, Some("resume"));
    // One whose lease ran out says since when.
    let left = scene.begin("left");
    check(&scene, left.run(), "open", None, Some("resume"));
    let since = scene.clock.now().after(Duration::from_secs(30)).to_string();
    assert_eq!(text_at(&first(&scene, left.run()), "/waits_for/since"), since);
}

#[test]
fn a_step_that_is_driven_names_the_process_and_its_lease() {
    let home = Home::new();
    if !crate::home::has_python() {
        return;
    }
    let agent = home.write("agent.py", "import sys, time\nfor line in sys.stdin: time.sleep(60)\n");
    let agent = format!("exec:python3 {}", agent.display());
    let mut child = home
        .command(&["run", "--agent", &agent, "--unconfined-agent", "-q", "wait"])
        .stdout(std::process::Stdio::null())
        .stderr(std::process::Stdio::null())
        .spawn()
        .unwrap();
    // Until it has begun its run there is nothing to look at.
    let deadline = std::time::Instant::now() + Duration::from_secs(30);
    let run = loop {
        let runs = home.run(&["runs", "--json"]);
        if runs.code == Some(0) && runs.out.contains("run_") {
            break home.only_run();
        }
        assert!(std::time::Instant::now() < deadline, "{runs:#?}");
        std::thread::yield_now();
    };
    let told = home.run(&["explain", &run, "0", "--json"]).json(0);
    assert_eq!(text_at(&told, "/waits_for/what"), "driver");
    let process = told.pointer("/waits_for/process").and_then(Value::as_u64);
    assert_eq!(process, Some(u64::from(child.id())));
    assert!(text_at(&told, "/waits_for/until").ends_with('Z'));
    child.kill().unwrap();
    child.wait().unwrap();
    let told = home.run(&["explain", &run, "0", "--json"]).json(0);
    assert_eq!(text_at(&told, "/waits_for/what"), "resume", "its death is proven: {told:?}");
}

#[test]
fn a_record_that_does_not_hold_comes_to_no_decision() {
    let scene = Scene::new();
    let run = scene.asking("send it", "a").to_string();
    let db = rusqlite::Connection::open(scene.db()).unwrap();
    db.execute(
        "UPDATE events SET payload = CAST(replace(CAST(payload AS TEXT), 'class_asks', 'class_denied') AS BLOB)
         WHERE kind = 'step.judged'",
        (),
    )
    .unwrap();
    let ended = scene.run(&["explain", &run, "0"]);
    assert!(
        ended.out.contains("decision      not known: the record does not hold"),
        "{}",
        ended.out
    );
    assert!(!ended.out.contains("class_denied"), "what was changed is not told: {}", ended.out);
    assert!(ended.refused_after(1).contains("E3009"));
}
