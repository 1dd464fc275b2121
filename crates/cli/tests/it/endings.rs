//! What cannot be decided any more, and what decides nothing: each says so in a sentence, and writes nothing.

use std::fs::File;
use std::process::{Command, Stdio};

use portcullis_canon::{Object, Value};
use portcullis_domain::question::QuestionStatus;
use portcullis_domain::run::{EndReason, RunStatus};
use portcullis_engine::Progress;
use portcullis_testkit::block_on;

use crate::scene::{Scene, text_at};

/// How many events the database holds.
fn events(scene: &Scene) -> usize {
    scene.run(&["events", "--all", "--json", "--limit", "0"]).out(0).lines().count()
}

#[test]
fn a_run_that_ended_is_said_to_have_ended_whatever_is_asked_of_it() {
    let scene = Scene::new();
    let mut done = scene.begin("done");
    scene.propose_raw(&mut done, br#"{"kind":"complete"}"#.to_vec());
    let mut failed = scene.begin("failed");
    scene.propose_raw(&mut failed, br#"{"kind":"fail","message":"no"}"#.to_vec());
    let rejected = scene.asking("rejected", "a");
    scene.run(&["reject", &rejected.to_string(), "--yes"]).out(0);
    let cancelled = scene.asking("cancelled", "a");
    scene.run(&["cancel", &cancelled.to_string()]).out(0);
    let before = events(&scene);
    for (run, status) in [
        (done.run(), "completed"),
        (failed.run(), "failed"),
        (rejected, "cancelled"),
        (cancelled, "cancelled"),
    ] {
        let run = run.to_string();
        let sentence = scene.run(&["cancel", &run]).refused(1);
        assert!(sentence.contains(&format!("the run is {status}")), "{sentence}");
        assert!(!sentence.contains("question") && !sentence.contains("approv"), "{sentence}");
        for command in ["approve", "reject"] {
            let sentence = scene.run(&[command, &run, "--yes"]).refused(1);
            assert!(!sentence.contains("is approved"), "{sentence}");
        }
    }
    assert_eq!(events(&scene), before, "none of it was recorded");
}

#[test]
fn an_approved_run_can_be_cancelled_and_not_rejected() {
    let scene = Scene::new();
    let run = scene.asking("send it", "a");
    scene.run(&["approve", &run.to_string(), "--yes"]).out(0);
    let sentence = scene.run(&["reject", &run.to_string(), "--yes"]).refused(1);
    assert!(sentence.contains("it is approved"), "{sentence}");
    scene.run(&["cancel", &run.to_string(), "--note", "not after all"]).out(0);
    assert_eq!(scene.state(run).run.status, RunStatus::Cancelled);
}

#[test]
fn what_is_no_person_at_a_terminal_decides_nothing() {
    let scene = Scene::new();
    let run = scene.asking("send it", "a");
    let id = scene.question(run).id.to_string();
    let typed = scene.home.path().join("typed");
    std::fs::write(&typed, "y\nyes\n").unwrap();
    let before = events(&scene);
    type Input = fn(&std::path::Path) -> Stdio;
    let inputs: [(&str, Input); 4] = [
        // A character device, as a terminal is one.
        ("/dev/null", |_| File::open("/dev/null").unwrap().into()),
        ("/dev/zero", |_| File::open("/dev/zero").unwrap().into()),
        ("a file", |typed| File::open(typed).unwrap().into()),
        ("a folder", |typed| File::open(typed.parent().unwrap()).unwrap().into()),
    ];
    for command in ["approve", "reject"] {
        for (what, input) in inputs {
            let ended = scene.command(&[command, &id]).stdin(input(&typed)).output().unwrap();
            let err = String::from_utf8(ended.stderr).unwrap();
            assert_eq!(ended.status.code(), Some(2), "{command} {what}: {err}");
            assert!(err.contains("nothing was decided"), "{command} {what}: {err}");
        }
        let program = env!("CARGO_BIN_EXE_portcullis");
        let mut shell = Command::new("/bin/sh");
        shell.args(["-c", &format!("exec '{program}' {command} {id} <&-")]);
        shell.env_clear().env("HOME", scene.home.path()).env("USER", "ann");
        let ended = shell.env("PORTCULLIS_DB", scene.db()).output().unwrap();
        assert_eq!(ended.status.code(), Some(2), "{command} without an input: {ended:?}");
    }
    assert_eq!(scene.question(run).status, QuestionStatus::Open);
    assert_eq!((events(&scene), scene.state(run).approvals.len()), (before, 0));
}

#[test]
fn a_run_with_a_damaged_row_can_be_cancelled() {
    for (table, column) in [("runs", "limits"), ("steps", "verdict"), ("questions", "reviewers")] {
        let scene = Scene::new();
        let run = scene.asking("send it", "a");
        let db = rusqlite::Connection::open(scene.db()).unwrap();
        let changed = db.execute(&format!("UPDATE {table} SET {column} = '{{'"), ()).unwrap();
        assert!(changed > 0);
        drop(db);
        let sentence = scene.run(&["approve", &run.to_string(), "--yes"]).refused(1);
        assert!(sentence.contains("damaged"), "{table}: {sentence}");
        scene.run(&["cancel", &run.to_string()]).out(0);
        let told = scene.run(&["events", &run.to_string(), "--json"]).out(0);
        let last = told.lines().last().unwrap();
        assert!(last.contains("run.finished") && last.contains("operator_cancelled"), "{last}");
        let sentence = scene.run(&["cancel", &run.to_string()]).refused(1);
        assert!(sentence.contains("the run is cancelled"), "{table}: {sentence}");
    }
}

#[test]
fn every_time_has_a_date_and_a_zone_and_none_is_made_up() {
    let scene = Scene::new();
    let run = scene.asking("send it", "a").to_string();
    let mut times = 0;
    for args in [
        &["show", &run][..],
        &["runs"],
        &["inbox"],
        &["events", &run],
        &["explain", &run],
        &["show", &run, "--json"],
        &["inbox", "--json"],
        &["runs", "--json"],
    ] {
        let out = scene.run(args).out(0);
        assert!(!out.contains("1970-") && !out.contains("0001-"), "{args:?}: {out}");
        // Each time of day stands after a date and before a fraction and the zone.
        for (at, _) in out.match_indices("14:13:2") {
            let around = out.get(at - 11..at + 16).unwrap();
            assert!(around.starts_with("2026-09-21T") && around.ends_with('Z'), "{around}");
            times += 1;
        }
    }
    assert!(times > 15, "{times}");
    let shown = scene.run(&["show", &run]).out(0);
    assert!(shown.contains("2026-09-21T") && shown.contains("expires         never"), "{shown}");
}

#[test]
fn nested_arguments_are_one_value_a_row() {
    let scene = Scene::new();
    let mut run = scene.begin("nest");
    let inner: Object = [("b", Value::from(vec![Value::from(1), Value::from("two")]))]
        .into_iter()
        .map(|(key, value)| (key.to_owned(), value))
        .collect();
    let arguments = [("path", Value::from("x")), ("a", Value::Object(inner))];
    let progress = scene.propose(&mut run, "send", arguments, None);
    assert!(matches!(progress, Progress::Waiting(_)), "{progress:?}");
    let out = scene.run(&["show", &run.run().to_string()]).out(0);
    let block = out.lines().skip_while(|row| !row.starts_with("  arguments"));
    let rows: Vec<&str> = block.take_while(|row| !row.starts_with("  rules")).skip(1).collect();
    assert!(rows.iter().all(|row| row.starts_with("                | ")), "{rows:#?}");
    let named = |place: &str| rows.iter().filter(|row| row.ends_with(place)).count();
    assert_eq!((named("/path"), named("/a/b/0"), named("/a/b/1")), (1, 1, 1), "{rows:#?}");
}

#[test]
fn the_help_names_what_a_command_takes() {
    let scene = Scene::new();
    for (command, options) in [
        ("runs", &["--limit", "--offset", "--status", "--json", "--db"][..]),
        ("events", &["--limit", "--after", "--all", "--json", "--db"]),
        ("approve", &["--yes", "--digest", "--note", "--json", "--db"]),
        ("cancel", &["--by", "--note", "--json", "--db"]),
        ("verify", &["--head", "--json", "--db"]),
    ] {
        let help = scene.run(&[command, "--help"]).out(0);
        for option in options {
            assert!(help.contains(option), "{command} {option}: {help}");
        }
    }
}

#[test]
fn the_end_of_one_run_is_what_its_json_says() {
    let scene = Scene::new();
    let run = scene.asking("send it", "a");
    let json = scene.run(&["cancel", &run.to_string(), "--json"]).json(0);
    assert_eq!(text_at(&json, "/reason"), EndReason::OperatorCancelled.as_str());
    let state = block_on(scene.gate.parts().store.run(&scene.scope, run)).unwrap().unwrap();
    assert_eq!(state.run.reason, Some(EndReason::OperatorCancelled));
}
