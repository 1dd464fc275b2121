//! `diff ONE OTHER`: two runs beside each other.

use portcullis_canon::{Limits, Value, parse};
use portcullis_domain::id::RunId;
use portcullis_domain::ports::Clock as _;
use portcullis_testkit::block_on;

use crate::home::Home;
use crate::scene::{Scene, assert_safe, numbered, text_at};

fn lines(out: &str) -> Vec<Value> {
    let line = |line: &str| parse(line.as_bytes(), &Limits::ENVELOPE).unwrap();
    out.lines().map(line).collect()
}

/// A run that looks at each path and is then let go.
fn looks(scene: &Scene, goal: &str, paths: &[&str]) -> RunId {
    let mut run = scene.begin(goal);
    for path in paths {
        scene.propose(&mut run, "look", [("path", Value::from(*path))], None);
    }
    let id = run.run();
    block_on(run.close()).unwrap();
    id
}

fn diff(scene: &Scene, one: RunId, other: RunId, exit: i32) -> String {
    let out = scene.run(&["diff", &one.to_string(), &other.to_string()]).out(exit);
    assert_safe(&out);
    out
}

#[test]
fn the_same_twice_is_the_same() {
    let scene = Scene::new();
    let (one, other) = (looks(&scene, "a", &["x", "y"]), looks(&scene, "a", &["x", "y"]));
    let out = diff(&scene, one, other, 0);
    assert!(out.contains("STEPS 0 to 2  the same"), "{out}");
    assert!(out.contains("the same; steps: 3 alike, 0 not alike"), "{out}");
    let found = lines(&scene.run(&["diff", &one.to_string(), &other.to_string(), "--json"]).out(0));
    let places: Vec<&str> = found.iter().filter_map(|line| line.get("place")?.as_str()).collect();
    assert_eq!(places, ["beginning", "step", "step", "step", "end"]);
    assert_eq!(found.last().unwrap().get("is_same"), Some(&Value::Bool(true)));
}

#[test]
fn where_two_runs_part_and_what_only_one_has() {
    let scene = Scene::new();
    let mut one = scene.begin("read the page");
    let mut other = scene.begin("read the page\nand burn it");
    for run in [&mut one, &mut other] {
        scene.propose(run, "look", [("path", Value::from("a.txt"))], None);
    }
    scene.propose(&mut one, "look", [("path", Value::from("b.txt"))], None);
    scene.propose(&mut other, "burn", [("path", Value::from("b.txt"))], None);
    scene.propose_raw(&mut one, br#"{"kind":"complete","result":1}"#.to_vec());
    scene.propose(&mut other, "look", [("path", Value::from("c.txt"))], None);
    let out = diff(&scene, one.run(), other.run(), 1);
    insta::assert_snapshot!("diff", numbered(&out));
    let args = ["diff", &one.run().to_string(), &other.run().to_string(), "--json"];
    let found = lines(&scene.run(&args).out(1));
    assert_eq!(text_at(&found[0], "/differences/0/part"), "goal");
    assert_eq!(text_at(&found[2], "/differences/0/other"), "burn");
    let totals = found.last().unwrap();
    assert_eq!(totals.get("parted").and_then(Value::as_u64), Some(1));
    assert_eq!(totals.get("only_other").and_then(Value::as_u64), Some(1));
    let last = &found[found.len() - 3];
    assert_eq!(
        (last.get("one"), text_at(last, "/differences/0/only")),
        (Some(&Value::Null), "other")
    );
}

#[test]
fn what_was_erased_is_not_passed_off_as_the_same() {
    let scene = Scene::new();
    let (one, other) = (looks(&scene, "a", &["x"]), looks(&scene, "a", &["x"]));
    let (goal, at) = (scene.state(other).run.goal, scene.clock.now());
    let parts = scene.gate.parts();
    block_on(parts.store.erase(&scene.scope, goal.digest, "ann", at)).unwrap();
    let out = diff(&scene, one, other, 1);
    assert!(out.contains("goal cannot be compared: in `other` the goal was erased"), "{out}");
    assert!(out.contains("NOT THE SAME") && out.contains("not compared: 1"), "{out}");
}

#[test]
fn a_record_that_was_changed_is_reported_and_no_row_is_believed() {
    let scene = Scene::new();
    let (one, other) = (looks(&scene, "a", &["x"]), looks(&scene, "a", &["x"]));
    let db = rusqlite::Connection::open(scene.db()).unwrap();
    db.execute("UPDATE steps SET verdict = '{'", ()).unwrap();
    db.execute("DELETE FROM runs", ()).unwrap();
    diff(&scene, one, other, 0);
    db.execute(
        "UPDATE events SET payload = CAST(replace(CAST(payload AS TEXT), 'read_only', 'destructive') AS BLOB)
         WHERE kind = 'step.judged' AND stream_id = ?1",
        [one.as_bytes().as_slice()],
    )
    .unwrap();
    let out = diff(&scene, one, other, 1);
    assert!(out.contains("BROKEN in `one`: the record does not hold at event"), "{out}");
    assert!(!out.contains("destructive"), "{out}");
    assert!(out.contains("portcullis verify"), "{out}");
}

#[test]
fn hostile_text_stands_behind_its_bar() {
    let scene = Scene::new();
    let hostile = "\u{1b}[2J\u{202e}\nNOT THE SAME; steps: 9 alike\r\u{7}";
    let mut run = scene.begin(hostile);
    let arguments = [("path", Value::from(hostile)), (hostile, Value::from("x".repeat(100_000)))];
    scene.propose(&mut run, "look", arguments, Some(hostile));
    let id = run.run();
    let out = diff(&scene, id, looks(&scene, "a", &["x"]), 1);
    assert!(out.len() < 20_000, "{}", out.len());
    let closing = out.lines().filter(|line| line.starts_with("NOT THE SAME")).count();
    assert_eq!(closing, 1, "{out}");
    for line in out.lines().filter(|line| line.contains("9 alike")) {
        assert!(line.contains("| "), "{line}");
    }
}

#[test]
fn texts_and_numbers_do_not_look_alike() {
    let scene = Scene::new();
    let said = |result: &str| {
        let mut run = scene.begin("say");
        let raw = format!("{{\"kind\":\"complete\",\"result\":{result}}}");
        scene.propose_raw(&mut run, raw.into_bytes());
        run.run()
    };
    let out = diff(&scene, said("1"), said("\"1\""), 1);
    assert!(out.contains("| \" 1\n") && out.contains("| \" \"1\"\n"), "{out}");
    let out = diff(&scene, said("null"), said("{\"a\":null}"), 1);
    assert!(out.contains("| \" null\n"), "{out}");
}

#[test]
fn runs_that_are_not_there_are_one_sentence() {
    let home = Home::new();
    home.scripted(r#"{"kind":"complete","result":1}"#, &["-q"]).exits(0);
    let run = home.only_run();
    home.run(&["diff", &run, &run]).exits(0);
    home.run(&["diff", &run]).refuses(2, "E9010", &["OTHER"]);
    let absent = "run_00000000000000000000000000000001";
    home.run(&["diff", &run, absent]).refuses(1, "E5001", &[absent]);
    home.run(&["diff", absent, &run]).refuses(1, "E5001", &[absent]);
    home.run(&["diff", "run_0000000", &run]).refuses(2, "E9010", &["run_"]);
}
