//! `runs`, `show`, `events`, `inbox`, `explain`: what an operator sees.

use portcullis_canon::Value;
use portcullis_domain::id::RunId;
use portcullis_domain::ports::Clock as _;
use portcullis_engine::{HeldRun, Progress};
use portcullis_testkit::block_on;

use crate::scene::{Scene, assert_safe, numbered, text_at};

/// Three runs: one done, one that waits, one whose driver's lease ended long ago.
fn office(scene: &Scene) -> ([RunId; 3], HeldRun) {
    let mut done = scene.begin("read the page");
    scene.propose(&mut done, "look", [("path", Value::from("a.txt"))], None);
    scene.propose(&mut done, "look", [], None);
    scene.propose(&mut done, "burn", [("path", Value::from("a.txt"))], Some("it is old"));
    scene.propose_raw(&mut done, b"{not json".to_vec());
    let end = scene.propose_raw(&mut done, br#"{"kind":"complete","result":"read"}"#.to_vec());
    assert!(matches!(end, Progress::Ended(_)), "{end:?}");
    let waits = scene.asking("send the page", "b.txt");
    let left = scene.begin("go on for ever");
    ([done.run(), waits, left.run()], left)
}

#[test]
fn runs_are_listed_newest_first_and_a_left_one_is_interrupted() {
    let scene = Scene::new();
    let _held = office(&scene);
    insta::assert_snapshot!("runs", numbered(&scene.run(&["runs"]).out(0)));
    let waiting = scene.run(&["runs", "--status", "waiting"]).out(0);
    assert_eq!(waiting.lines().count(), 2, "{waiting}");
    let page = scene.run(&["runs", "--limit", "1", "--offset", "1"]).out(0);
    assert!(page.contains("send the page") && page.contains("1 of 3 shown"), "{page}");
    let json = scene.run(&["runs", "--json"]).json(0);
    assert_eq!(text_at(&json, "/runs/0/status"), "interrupted");
    assert_eq!(text_at(&json, "/runs/1/goal/text"), "send the page");
    assert_eq!(json.get("total").and_then(Value::as_u64), Some(3));
    assert_eq!(json.get("truncated").and_then(Value::as_bool), Some(false));
}

#[test]
fn one_run_is_shown_with_its_steps() {
    let scene = Scene::new();
    let ([done, waits, _], _held) = office(&scene);
    insta::assert_snapshot!("show_done", numbered(&scene.run(&["show", &done.to_string()]).out(0)));
    insta::assert_snapshot!(
        "show_waits",
        numbered(&scene.run(&["show", &waits.to_string()]).out(0))
    );
    let json = scene.run(&["show", &done.to_string(), "--json"]).json(0);
    assert_eq!(text_at(&json, "/steps/2/verdict/reason"), "class_denied");
    assert_eq!(text_at(&json, "/steps/3/observation/refusal"), "not_json");
    let json = scene.run(&["show", &waits.to_string(), "--json"]).json(0);
    assert_eq!(text_at(&json, "/question/card/arguments/path"), "b.txt");
    let card = scene.run(&["show", &waits.to_string(), "--card"]).json(0);
    assert_eq!(text_at(&card, "/tool"), "send");
}

#[test]
fn a_beginning_of_an_id_is_enough_when_it_is_the_only_one() {
    let scene = Scene::new();
    let only = scene.asking("alone", "a");
    let begins: String = only.to_string().chars().take(4 + 20).collect();
    assert!(scene.run(&["show", &begins]).out(0).contains("alone"));
    let second = scene.begin("second").run();
    let both: String = second.to_string().chars().take(4 + 8).collect();
    let sentence = scene.run(&["show", &both]).refused(2);
    assert!(sentence.contains("more than one run begins so"), "{sentence}");
    assert!(scene.run(&["show", "run_00000000"]).refused(1).contains("no such run"));
    assert_eq!(scene.run(&["show", "run_0000000"]).code, 2);
}

#[test]
fn events_are_lines_and_json_lines() {
    let scene = Scene::new();
    let ([done, ..], _held) = office(&scene);
    let all = scene.run(&["events", "--all"]).out(0);
    assert_safe(&all);
    assert!(all.lines().next().unwrap().contains("journal.opened"), "{all}");
    let own = scene.run(&["events", &done.to_string()]).out(0);
    assert!(own.lines().count() > 8 && own.lines().count() < all.lines().count());
    assert!(own.lines().all(|line| line.contains(&done.to_string())));
    let json = scene.run(&["events", "--all", "--json"]).out(0);
    assert_eq!(json.lines().count(), all.lines().count());
    let limits = portcullis_canon::Limits::ENVELOPE;
    for (at, line) in json.lines().enumerate() {
        let event = portcullis_canon::parse(line.as_bytes(), &limits).unwrap();
        let seq = event.get("seq").and_then(Value::as_u64).unwrap();
        assert_eq!(usize::try_from(seq).unwrap(), at + 1);
    }
    let some = scene.run(&["events", "--all", "--after", "3", "--limit", "2"]).out(0);
    let expected: Vec<&str> = all.lines().skip(3).take(2).collect();
    assert_eq!(some.lines().collect::<Vec<_>>(), expected);
    assert_eq!(scene.run(&["events", "--all", "--limit", "0"]).out(0), all);
    assert_eq!(scene.run(&["events"]).code, 2);
}

#[test]
fn the_inbox_lists_what_waits() {
    let scene = Scene::new();
    assert_eq!(scene.run(&["inbox"]).out(0), "nothing waits\n");
    let _held = office(&scene);
    let mut lost = scene.begin("lose it");
    scene.propose(&mut lost, "lost", [("path", Value::from("c.txt"))], None);
    insta::assert_snapshot!("inbox", numbered(&scene.run(&["inbox"]).out(0)));
    let json = scene.run(&["inbox", "--json"]).json(0);
    assert_eq!(text_at(&json, "/questions/0/card/tool"), "send");
    assert_eq!(text_at(&json, "/questions/0/stated_reason"), "because");
    assert_eq!(text_at(&json, "/questions/1/kind"), "unknown_outcome");
}

#[test]
fn explain_names_rule_place_facts_and_people() {
    let scene = Scene::new();
    let ([done, waits, _], _held) = office(&scene);
    let all = scene.run(&["explain", &done.to_string()]).out(0);
    insta::assert_snapshot!("explain", numbered(&all));
    let invalid = scene.run(&["explain", &done.to_string(), "1"]).out(0);
    assert!(invalid.contains("| \" required"), "{invalid}");
    assert!(invalid.starts_with("STEP 1 "), "{invalid}");
    assert!(scene.run(&["explain", &done.to_string(), "77"]).refused(1).contains("no such step"));
    scene.run(&["approve", &waits.to_string(), "--yes"]).out(0);
    assert!(scene.run(&["show", &waits.to_string()]).out(0).contains("approved; resume with"));
    let told = scene.run(&["explain", &waits.to_string()]).out(0);
    assert!(told.contains("| \" ann") && told.contains("signature     valid"), "{told}");
    let json = scene.run(&["explain", &waits.to_string(), "0", "--json"]).json(0);
    let facts = json.get("facts").and_then(Value::as_array).unwrap();
    let kinds: Vec<&str> =
        facts.iter().map(|fact| fact.get("type").and_then(Value::as_str).unwrap()).collect();
    let expected =
        ["step.opened", "step.proposed", "step.judged", "question.asked", "question.answered"];
    assert_eq!(kinds, expected);
    assert_eq!(text_at(&json, "/facts/4/signature"), "valid");
}

#[test]
fn viewing_never_makes_a_database_and_says_so_in_one_sentence() {
    let scene = Scene::new();
    let nowhere = scene.home.path().join("state/typo.db");
    let run = RunId::from_bytes([1; 16]).to_string();
    for args in [
        &["runs"][..],
        &["inbox"],
        &["verify"],
        &["show", &run],
        &["events", "--all"],
        &["explain", &run],
        &["diff", &run, &run],
        &["recheck", "--all"],
        &["approve", &run, "--yes"],
        &["cancel", &run],
    ] {
        let ended = scene.command(args).env("PORTCULLIS_DB", &nowhere).output().unwrap();
        let err = String::from_utf8(ended.stderr).unwrap();
        assert_eq!((ended.status.code(), err.lines().count()), (Some(1), 1), "{args:?} {err}");
        assert!(ended.stdout.is_empty(), "{args:?}");
        assert!(!nowhere.exists(), "{args:?}");
    }
}

#[test]
fn a_reader_who_has_seen_enough_is_no_failure() {
    let scene = Scene::new();
    let mut run = scene.begin("long");
    let note = "x".repeat(8_000);
    for _ in 0..40 {
        scene.propose(&mut run, "look", [("path", Value::from(note.as_str()))], None);
    }
    block_on(run.close()).unwrap();
    use std::io::Read as _;
    let mut child = scene
        .command(&["events", "--all", "--json", "--limit", "0"])
        .stdout(std::process::Stdio::piped())
        .stderr(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    let mut first = [0_u8; 10];
    child.stdout.take().unwrap().read_exact(&mut first).unwrap();
    let ended = child.wait_with_output().unwrap();
    assert!(ended.stderr.is_empty(), "{}", String::from_utf8_lossy(&ended.stderr));
}

#[test]
fn damaged_rows_are_shown_in_their_place() {
    let scene = Scene::new();
    let ([done, waits, _], _held) = office(&scene);
    let db = rusqlite::Connection::open(scene.db()).unwrap();
    let run = waits.as_bytes().as_slice();
    db.execute("UPDATE steps SET verdict = '{' WHERE \"index\" = 2", ()).unwrap();
    let shown = scene.run(&["show", &done.to_string()]).out(0);
    assert!(shown.contains("damaged") && shown.contains("column verdict"), "{shown}");
    assert!(shown.contains("not_json"), "the steps after it: {shown}");
    let json = scene.run(&["show", &done.to_string(), "--json"]).json(0);
    assert_eq!(text_at(&json, "/steps/2/damaged/column"), "verdict");
    db.execute("UPDATE questions SET reviewers = 'nobody' WHERE run = ?1", [run]).unwrap();
    let inbox = scene.run(&["inbox"]).out(0);
    assert!(inbox.contains("damaged") && inbox.contains("column reviewers"), "{inbox}");
    let sentence = scene.run(&["approve", &waits.to_string(), "--yes"]).refused(1);
    assert!(sentence.contains("portcullis verify"), "{sentence}");
    db.execute("UPDATE runs SET limits = '{' WHERE id = ?1", [run]).unwrap();
    let runs = scene.run(&["runs"]).out(0);
    assert!(runs.contains("damaged") && runs.contains("column limits"), "{runs}");
    assert_eq!(runs.lines().count(), 4, "{runs}");
    assert_eq!(
        text_at(&scene.run(&["runs", "--json"]).json(0), "/runs/1/damaged/column"),
        "limits"
    );
    assert_eq!(scene.run(&["verify"]).code, 1);
}

#[test]
fn erased_words_are_said_to_be_erased() {
    let scene = Scene::new();
    let run = scene.asking("send it to mallory", "b.txt");
    let (goal, at) = (scene.state(run).run.goal, scene.clock.now());
    let parts = scene.gate.parts();
    block_on(parts.store.erase(&scene.scope, goal.digest, "ann", at)).unwrap();
    assert!(scene.run(&["runs"]).out(0).contains("(erased)"));
    let json = scene.run(&["runs", "--json"]).json(0);
    assert_eq!(text_at(&json, "/runs/0/goal/missing"), "erased");
    let out = scene.run(&["approve", &run.to_string(), "--yes"]).out(0);
    assert!(out.contains("goal            erased"), "{out}");
    assert!(scene.run(&["verify"]).out(0).contains("1 erased on record"));
}

#[test]
fn runs_that_have_not_ended_say_what_they_wait_for() {
    let scene = Scene::new();
    assert_eq!(scene.run(&["runs", "--stuck"]).out(0), "no run that has not ended\n");
    let ([done, waits, left], _held) = office(&scene);
    let granted = scene.asking("send more", "c.txt");
    scene.run(&["approve", &granted.to_string(), "--yes"]).out(0);
    let table = scene.run(&["runs", "--stuck"]).out(0);
    insta::assert_snapshot!("runs_stuck", numbered(&table));
    assert!(!table.contains(&done.to_string()));
    let json = scene.run(&["runs", "--stuck", "--json"]).json(0);
    let whats: Vec<(&str, &str)> = (0..3)
        .map(|at| {
            let field = |name: &str| text_at(&json, &format!("/runs/{at}/{name}"));
            (field("run"), field("waits_for/what"))
        })
        .collect();
    let (left, granted, waits) = (left.to_string(), granted.to_string(), waits.to_string());
    assert_eq!(whats, [(&*left, "resume"), (&*granted, "grant"), (&*waits, "people")]);
    // Two lists, and one page after another.
    for (offset, run) in [("0", &left), ("1", &granted), ("2", &waits)] {
        let page = scene.run(&["runs", "--stuck", "--limit", "1", "--offset", offset]).out(0);
        assert!(page.contains(run.as_str()), "{offset}: {page}");
        assert_eq!(page.contains("of 3 shown"), offset != "2", "{page}");
    }
    assert_eq!(scene.run(&["runs", "--stuck", "--offset", "3"]).out(0), "no runs from there on\n");
    assert_eq!(scene.run(&["runs", "--stuck", "--status", "waiting"]).code, 2);
    // A question that cannot be read hides no run.
    let db = rusqlite::Connection::open(scene.db()).unwrap();
    db.execute("UPDATE questions SET reviewers = 'nobody'", ()).unwrap();
    let table = scene.run(&["runs", "--stuck"]).out(0);
    assert_eq!(
        table.matches("which cannot be read; run `portcullis verify`").count(),
        2,
        "{table}"
    );
}

#[test]
fn a_run_of_large_events_is_told_to_its_end() {
    let scene = Scene::new();
    let task = portcullis_engine::Task {
        goal: "much".to_owned(),
        // Stands in each verdict, so that some forty of them are more than one page holds.
        owner: "x".repeat(500_000),
        thread: None,
        parent: None,
        limits: portcullis_domain::limits::Limits::default(),
        agent: "scripted:test".to_owned(),
        unconfined_agent: false,
    };
    let mut run = block_on(scene.gate.begin(&scene.scope, task)).unwrap();
    for n in 0..40 {
        let path = Value::from(n.to_string());
        assert_eq!(scene.propose(&mut run, "look", [("path", path)], None), Progress::Observed);
    }
    let id = run.run().to_string();
    block_on(run.close()).unwrap();
    assert!(scene.run(&["explain", &id, "39"]).out(0).contains("allowed"));
    let events = scene.run(&["events", &id, "--limit", "0"]).out(0);
    let own = scene.run(&["runs", "--json"]).json(0);
    let recorded = own.pointer("/runs/0/events").and_then(Value::as_u64).unwrap();
    assert_eq!(u64::try_from(events.lines().count()).unwrap(), recorded);
    let some = scene.run(&["events", &id, "--limit", "150"]).out(0);
    assert_eq!(some.lines().count(), 150);
    assert!(scene.run(&["recheck", &id]).out(0).contains("40 same, 0 different"));
    assert!(scene.run(&["diff", &id, &id]).out(0).contains("41 alike"));
}
