//! `recheck`: what was decided, handed back to the rules that decided it, or to others.

use std::fs;

use portcullis_canon::{Limits, Value, parse};
use portcullis_domain::ports::Clock as _;
use portcullis_testkit::block_on;

use crate::home::Home;
use crate::scene::{Scene, assert_safe, numbered, text_at};

const SCRIPT: &str = r#"{"kind":"tool_call","tool":"files.list","arguments":{"path":"."}}
{"kind":"tool_call","tool":"files.delete","arguments":{"path":"old.txt"}}
{"kind":"tool_call","tool":"files.create","arguments":{"path":"new.txt","content":"x"}}
{"kind":"complete","result":1}"#;

fn lines(out: &str) -> Vec<Value> {
    let line = |line: &str| parse(line.as_bytes(), &Limits::ENVELOPE).unwrap();
    out.lines().map(line).collect()
}

fn count(totals: &Value, key: &str) -> u64 {
    totals.get(key).and_then(Value::as_u64).unwrap_or_else(|| panic!("{key}: {totals:?}"))
}

/// A run that looked, was denied a deletion, and made a file with somebody's leave.
fn approved(home: &Home) -> (String, String) {
    let rules = home.asking();
    home.scripted(SCRIPT, &["-c", &rules, "-q"]).exits(3);
    let run = home.only_run();
    home.run(&["approve", &run, "--yes"]).exits(0);
    home.run(&["resume", &run, "-q"]).exits(0);
    (run, rules)
}

#[test]
fn the_rules_of_a_run_decide_again_as_they_did() {
    let home = Home::new();
    let (run, rules) = approved(&home);
    let before = fs::read(home.db()).unwrap();
    let out = home.run(&["recheck", &run]).exits(0).out;
    assert!(out.contains("4 same, 0 different, 0 not re-checkable"), "{out}");
    assert_eq!(out.matches("  same       ").count(), 4, "{out}");
    let found = lines(&home.run(&["recheck", &run, "--json"]).exits(0).out);
    let [look, delete, asked, used, totals] = found.as_slice() else { panic!("{found:?}") };
    for (evaluation, outcome) in [(look, "allow"), (delete, "deny"), (asked, "ask"), (used, "ask")]
    {
        assert_eq!(text_at(evaluation, "/finding"), "same");
        assert_eq!(text_at(evaluation, "/recorded/outcome"), outcome);
        assert_eq!(text_at(evaluation, "/asked"), text_at(evaluation, "/policy"));
    }
    assert_eq!((count(totals, "same"), text_at(totals, "/run")), (4, run.as_str()));
    // The same, with the whole configuration of today and with its rules alone.
    for args in [&["-c", &rules][..], &["--policy", &rules]] {
        home.run(&[&["recheck", &run], args].concat()).exits(0);
    }
    assert_eq!(fs::read(home.db()).unwrap(), before, "nothing is written");
}

#[test]
fn other_rules_are_named_with_both_verdicts() {
    let home = Home::new();
    let (run, _) = approved(&home);
    let text = "[classes]\nread_only = 'deny'\nlocal_mutation = { ask = 'release', count = 2 }\n";
    let strict = home.write("strict.toml", text).display().to_string();
    let out = home.run(&["recheck", &run, "--policy", &strict]).exits(1).out;
    assert_safe(&out);
    assert!(out.contains("DIFFERENT  allow; now deny: class_denied"), "{out}");
    assert!(out.contains("rule then   | \" class read_only: allow"), "{out}");
    assert!(out.contains("rule now    | \" class read_only: deny"), "{out}");
    assert!(out.contains("ask 2 of release"), "{out}");
    assert!(out.contains("1 same, 3 different, 0 not re-checkable"), "{out}");
    let found = lines(&home.run(&["recheck", "--all", "--policy", &strict, "--json"]).exits(1).out);
    assert_eq!(text_at(&found[0], "/now/reason"), "class_denied");
    assert_ne!(text_at(&found[0], "/asked"), text_at(&found[0], "/policy"));
    assert!(found.last().unwrap().get("run").unwrap() == &Value::Null);
}

#[test]
fn rules_that_changed_are_not_at_hand_until_they_are_named() {
    let home = Home::new();
    let (run, rules) = approved(&home);
    let old = home.write("old.toml", fs::read(&rules).unwrap()).display().to_string();
    home.write("ask.toml", "[classes]\nlocal_mutation = 'allow'\nremote_mutation = 'deny'\n");
    let out = home.run(&["recheck", &run]).exits(1).out;
    assert!(out.contains("policy_not_at_hand"), "{out}");
    assert!(out.contains("0 same, 0 different, 4 not re-checkable"), "{out}");
    assert!(out.contains("name them with `--policy FILE`"), "{out}");
    assert!(out.contains("nothing was asked again"), "{out}");
    home.run(&["recheck", &run, "--policy", &old]).exits(0);
    // What holds today is another thing.
    let out = home.run(&["recheck", &run, "-c", &rules]).exits(1).out;
    assert!(out.contains("DIFFERENT  ask: class_asks; now allow"), "{out}");
}

#[test]
fn todays_tools_come_with_todays_configuration() {
    let home = Home::new();
    let (run, rules) = approved(&home);
    let changed = |args: &[&str]| {
        let found = lines(&home.run(&[&["recheck", &run, "--json"], args].concat()).exits(0).out);
        found[0].get("spec_changed").and_then(Value::as_bool).unwrap()
    };
    assert!(!changed(&["-c", &rules]));
    // The tools name the folder that they were pointed at, and this is another one.
    // Made while the first is there, so that it cannot have its number.
    fs::create_dir(home.path("more")).unwrap();
    fs::remove_dir_all(home.path("files")).unwrap();
    fs::rename(home.path("more"), home.path("files")).unwrap();
    assert!(changed(&["-c", &rules]));
    assert!(!changed(&["--policy", &rules]) && !changed(&[]));
    fs::remove_dir_all(home.path("files")).unwrap();
    home.run(&["recheck", &run, "-c", &rules]).refuses(1, "E7001", &["files"]);
    let all = home.run(&["recheck", "--all", "-c", &rules]).exits(1);
    assert!(all.err.contains("E7001") && all.out.contains("1 run: 0 same"), "{all:#?}");
}

#[test]
fn what_was_erased_or_changed_is_named_and_the_rest_is_asked() {
    let scene = Scene::new();
    let mut run = scene.begin("look twice");
    for path in ["a.txt", "b.txt"] {
        scene.propose(&mut run, "look", [("path", Value::from(path))], None);
    }
    let id = run.run().to_string();
    block_on(run.close()).unwrap();
    assert!(scene.run(&["recheck", &id]).out(0).contains("2 same"), "the control");
    let steps = scene.run(&["show", &id, "--json"]).json(0);
    let first = text_at(&steps, "/steps/0/step").trim_start_matches("step_").to_owned();
    let db = rusqlite::Connection::open(scene.db()).unwrap();
    let proposal: String = db
        .query_row("SELECT proposal FROM steps WHERE id = unhex(?1)", [&first], |row| row.get(0))
        .unwrap();
    let reference = parse(proposal.as_bytes(), &Limits::BARE).unwrap();
    let digest = text_at(&reference, "/digest").parse().unwrap();
    let parts = scene.gate.parts();
    block_on(parts.store.erase(&scene.scope, digest, "ann", scene.clock.now())).unwrap();
    let out = scene.run(&["recheck", &id]).out(0);
    assert!(out.contains("not asked  allow (content_gone: the proposal was erased"), "{out}");
    assert!(out.contains("1 same, 0 different, 1 not re-checkable"), "{out}");
    // A row says nothing: this one lies, and the events do not.
    db.execute("UPDATE steps SET verdict = '{\"outcome\":\"allow\",\"rules\":[\"mine\"]}'", ())
        .unwrap();
    db.execute("DELETE FROM runs", ()).unwrap();
    assert_eq!(scene.run(&["recheck", &id]).out(0), out);
    assert!(scene.run(&["recheck", "--all"]).out(0).contains("1 run: 1 same"));
}

#[test]
fn a_record_that_was_changed_is_reported_wherever_that_was() {
    let scene = Scene::new();
    let mut run = scene.begin("look");
    for path in ["a.txt", "b.txt"] {
        scene.propose(&mut run, "look", [("path", Value::from(path))], None);
    }
    let id = run.run().to_string();
    block_on(run.close()).unwrap();
    let db = rusqlite::Connection::open(scene.db()).unwrap();
    let judged: i64 = db
        .query_row("SELECT min(journal_seq) FROM events WHERE kind = 'step.judged'", (), |row| {
            row.get(0)
        })
        .unwrap();
    for lie in [
        "payload = CAST(replace(CAST(payload AS TEXT), 'allow', 'deny') AS BLOB)",
        "payload = x'00'",
        "kind = 'step.judgd'",
        "version = 99",
        "stream_seq = -1",
        "step = NULL",
        "hash = zeroblob(32)",
        "at = 9223372036854775807",
    ] {
        let kept: Vec<rusqlite::types::Value> = db
            .query_row("SELECT * FROM events WHERE journal_seq = ?1", [judged], |row| {
                (0..row.as_ref().column_count()).map(|at| row.get(at)).collect()
            })
            .unwrap();
        db.execute(&format!("UPDATE events SET {lie} WHERE journal_seq = ?1"), [judged]).unwrap();
        for args in [&["recheck", &id][..], &["recheck", "--all"]] {
            let out = scene.run(args).out(1);
            assert_safe(&out);
            assert!(out.contains("BROKEN: the record does not hold at event"), "{lie}: {out}");
            assert!(out.contains("0 same, 0 different, 0 not re-checkable"), "{lie}: {out}");
            assert!(out.contains("portcullis verify"), "{lie}: {out}");
        }
        let found = lines(&scene.run(&["recheck", &id, "--json"]).out(1));
        assert!(found[0].pointer("/broken/seq").is_some(), "{lie}: {found:?}");
        db.execute("DELETE FROM events WHERE journal_seq = ?1", [judged]).unwrap();
        let marks = vec!["?"; kept.len()].join(", ");
        db.execute(
            &format!("INSERT INTO events VALUES ({marks})"),
            rusqlite::params_from_iter(kept),
        )
        .unwrap();
        assert!(scene.run(&["recheck", &id]).out(0).contains("2 same"), "the control");
    }
}

#[test]
fn a_layout_of_it() {
    let scene = Scene::new();
    let mut run = scene.begin("see");
    scene.propose(&mut run, "look", [("path", Value::from("a"))], None);
    scene.propose(&mut run, "burn", [("path", Value::from("a"))], None);
    let id = run.run().to_string();
    let rules = scene.home.path().join("rules.toml");
    fs::write(&rules, "[classes]\ndestructive = 'allow'\n").unwrap();
    let rules = rules.display().to_string();
    let out = scene.run(&["recheck", &id, "--policy", &rules]).out(1);
    insta::assert_snapshot!("recheck", numbered(&out));
}

#[test]
fn what_cannot_be_asked_is_one_sentence() {
    let home = Home::new();
    let (run, rules) = approved(&home);
    home.run(&["recheck"]).refuses(2, "E9010", &["RUN"]);
    home.run(&["recheck", &run, "--all"]).refuses(2, "E9010", &["--all"]);
    home.run(&["recheck", &run, "-c", &rules, "--policy", &rules]).refuses(
        2,
        "E9002",
        &["two sets of rules"],
    );
    home.run(&["recheck", "run_00000000000000000000000000000001"]).refuses(
        1,
        "E5001",
        &["no such run"],
    );
    home.run(&["recheck", &run, "--policy", "absent.toml"]).refuses(1, "E9005", &["absent.toml"]);
    let odd = home.write("odd.toml", "[clases]\n").display().to_string();
    home.run(&["recheck", "--all", "--policy", &odd]).refuses(1, "E9001", &["clases"]);
}

#[test]
fn a_run_without_a_verdict_is_not_passed_off_as_checked() {
    let home = Home::new();
    home.scripted(r#"{"kind":"complete","result":1}"#, &["-q"]).exits(0);
    let run = home.only_run();
    let out = home.run(&["recheck", &run]).exits(1).out;
    assert!(out.contains("nothing was asked again"), "{out}");
    home.run(&["recheck", "--all"]).exits(1);
}
