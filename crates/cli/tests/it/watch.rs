//! `watch`, and what the lists say of what ends soon, is over, or is answered by somebody who does not count.

use portcullis_canon::Value;

use crate::home::{Ended, Home, text};
use crate::scene::{Scene, assert_safe, text_at};

const CREATE: &str = r#"{"kind":"tool_call","tool":"files.create","arguments":{"path":"new.txt","content":"x"}}
{"kind":"complete","result":1}"#;

/// A home with a run that waits, under rules with these times in milliseconds.
fn waiting(question: u64, grant: u64) -> (Home, String) {
    let home = Home::new();
    let rules = format!(
        "[classes]\nread_only = 'allow'\nlocal_mutation = 'ask'\n\
         [limits]\nquestion_ttl_ms = {question}\ngrant_ttl_ms = {grant}\n"
    );
    let rules = home.write("rules.toml", rules);
    home.scripted(CREATE, &["-c", rules.to_str().unwrap()]).exits(3);
    let run = home.only_run();
    (home, run)
}

fn lines(ended: &Ended) -> Vec<Value> {
    let limits = portcullis_canon::Limits::ENVELOPE;
    ended
        .out
        .lines()
        .map(|line| portcullis_canon::parse(line.as_bytes(), &limits).unwrap())
        .collect()
}

#[test]
fn people_are_reminded_once_of_a_question_and_once_of_the_yes_to_it() {
    // Ten minutes: within the fifteen before which people are reminded.
    let (home, run) = waiting(600_000, 600_000);
    let inbox = home.run(&["inbox"]).exits(0);
    assert!(inbox.out.contains("Z soon"), "{}", inbox.out);
    let listed = home.run(&["inbox", "--json"]).json(0);
    assert_eq!(listed.pointer("/questions/0/ends_soon"), Some(&Value::Bool(true)));
    let question = text_at(&listed, "/questions/0/question").to_owned();

    let far = home.write("far.toml", "[approvals]\nremind_before_ms = 1000\n");
    let far = far.to_str().unwrap().to_owned();
    assert_eq!(home.run(&["-c", &far, "watch", "--once"]).exits(0).out, "", "it is not near");
    let told = home.run(&["watch", "--once"]).exits(0);
    assert!(told.out.starts_with("REMINDER: `operator` has not answered about files.create, "));
    assert!(told.out.contains(&question) && told.out.contains(&run), "{}", told.out);
    assert_safe(&told.out);
    assert_eq!(home.run(&["watch", "--once"]).exits(0).out, "", "once");

    home.run(&["approve", &run, "--yes"]).exits(0);
    let told = lines(&home.run(&["watch", "--once", "--json"]).exits(0));
    assert_eq!(told.len(), 1, "{told:?}");
    assert_eq!(text(&told[0], "what"), "grant_ends");
    assert_eq!(text(&told[0], "question"), question);
    assert_eq!(home.run(&["watch", "--once"]).exits(0).out, "", "once");
    home.run(&["resume", &run]).exits(0);
}

#[test]
fn what_is_past_its_time_ends_when_a_process_watches() {
    let (home, run) = waiting(1, 1);
    let shown = home.run(&["show", &run, "--json"]).json(0);
    assert_eq!(shown.pointer("/run/waits_for/overdue"), Some(&Value::Bool(true)));
    let told = lines(&home.run(&["watch", "--once", "--json"]).exits(0));
    let whats: Vec<_> = told.iter().map(|told| text(told, "what")).collect();
    assert_eq!(whats, ["closed", "ended"], "{told:?}");
    assert_eq!(text(&told[1], "how"), "approval_expired");
    let shown = home.run(&["show", &run, "--json"]).json(0);
    assert_eq!(text_at(&shown, "/run/reason"), "approval_expired");
    assert_eq!(shown.pointer("/run/waits_for"), Some(&Value::Null));
    home.run(&["verify"]).exits(0);
}

#[test]
fn a_yes_of_nobody_whose_key_is_configured_is_not_told_as_one() {
    let scene = Scene::new();
    let run = scene.asking("send it", "a").to_string();
    scene.run_as("ann", &["approve", &run, "--yes"]).out(0);
    let decision = || {
        let told = scene.run(&["explain", &run, "0", "--json"]).json(0);
        let counts = told.pointer("/waits_for/counts").cloned();
        (text_at(&told, "/decision").to_owned(), counts.unwrap())
    };
    let stuck = || scene.run(&["runs", "--stuck"]).out(0);
    assert_eq!(decision(), ("approved".to_owned(), Value::Bool(true)));
    assert!(!stuck().contains("count"), "{}", stuck());

    let keys = scene.home.path().join(".config/portcullis/keys");
    let public = std::fs::read(keys.join("ann.pub")).unwrap();
    std::fs::remove_file(keys.join("ann.pub")).unwrap();
    assert_eq!(decision(), ("not_counted".to_owned(), Value::Bool(false)));
    let shown = scene.run(&["show", &run]).out(0);
    assert!(shown.contains("the answers do not count ("), "{shown}");
    assert_eq!(
        scene.run(&["runs", "--json"]).json(0).pointer("/runs/0/waits_for/counts"),
        Some(&Value::Bool(false))
    );

    std::fs::write(keys.join("ann.pub"), public).unwrap();
    assert_eq!(decision().1, Value::Bool(true), "as before");
    std::fs::write(
        scene.home.path().join(".config/portcullis/portcullis.toml"),
        "[limits]\nmax_steps = 0\n",
    )
    .unwrap();
    assert_eq!(decision(), ("untold".to_owned(), Value::Null));
}
