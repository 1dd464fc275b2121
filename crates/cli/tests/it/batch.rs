//! Several calls of one reply through the whole command, to its end and killed between their start and their end.

use std::fs;
use std::process::Stdio;

use portcullis_canon::Value;

use crate::home::{Home, text};

/// Tries until a kill falls between the two commits of a batch: whoever is quick has ended it first.
const TRIES: usize = 20;

fn search(word: &str) -> String {
    format!(r#"{{"tool":"files.search","arguments":{{"text":"{word}"}}}}"#)
}

/// A reply that searches for each of these.
fn searches(words: &[&str]) -> String {
    let calls: Vec<String> = words.iter().map(|word| search(word)).collect();
    format!(r#"{{"kind":"tool_calls","calls":[{}]}}"#, calls.join(","))
}

const DONE: &str = r#"{"kind":"complete","result":"done"}"#;

fn steps(home: &Home) -> Vec<Value> {
    let shown = home.run(&["show", &home.only_run(), "--json"]).json(0);
    shown.get("steps").unwrap().as_array().unwrap().to_vec()
}

fn number(value: &Value, key: &str) -> u64 {
    value.get(key).and_then(Value::as_u64).unwrap()
}

#[test]
fn a_batch_is_shown_explained_checked_and_verified_step_by_step() {
    let home = Home::new();
    home.write("files/a.txt", "one two");
    let refused = format!(
        r#"{{"kind":"tool_calls","calls":[{},{{"tool":"files.delete","arguments":{{"path":"a.txt"}}}}]}}"#,
        search("one")
    );
    let script = [refused.as_str(), &searches(&["one", "two", "six"]), DONE].join("\n");
    home.scripted(&script, &[]).exits(0);
    assert!(home.path("files/a.txt").exists());
    let steps = steps(&home);
    let places = steps
        .iter()
        .map(|step| (number(step, "index"), number(step, "batch"), number(step, "batch_index")));
    assert!(places.eq([(0, 1, 0), (1, 3, 0), (2, 3, 1), (3, 3, 2), (4, 1, 0)]));
    let statuses: Vec<String> = steps.iter().map(|step| text(step, "status")).collect();
    assert_eq!(statuses, ["failed", "done", "done", "done", "done"]);
    // Each step is explained once, with its own facts together.
    let run = home.only_run();
    let told = home.run(&["explain", &run, "--json"]).exits(0);
    let read = |line: &str| {
        portcullis_canon::parse(line.as_bytes(), &portcullis_canon::Limits::ENVELOPE).unwrap()
    };
    let told: Vec<Value> = told.out.lines().map(read).collect();
    assert!(told.iter().map(|step| number(step, "index")).eq(0..5));
    let decisions: Vec<String> = told.iter().map(|step| text(step, "decision")).collect();
    assert_eq!(decisions, ["denied", "allowed", "allowed", "allowed", "said"]);
    assert_eq!(text(&told[0], "because"), "batch_not_read_only");
    for step in &told[1..4] {
        let kinds = step.get("facts").unwrap().as_array().unwrap().iter();
        let kinds: Vec<String> = kinds.map(|fact| text(fact, "type")).collect();
        let expected = ["opened", "proposed", "judged", "started", "finished"];
        let expected = expected.map(|kind| format!("step.{kind}"));
        assert!(kinds.iter().filter(|kind| kind.starts_with("step")).eq(&expected), "{kinds:?}");
    }
    home.run(&["explain", &run, "2"]).exits(0);
    home.run(&["recheck", &run]).exits(0);
    home.run(&["verify"]).exits(0);
}

/// Events of a type in the record.
fn count(home: &Home, kind: &str) -> i64 {
    let flags = rusqlite::OpenFlags::SQLITE_OPEN_READ_ONLY;
    rusqlite::Connection::open_with_flags(home.db(), flags)
        .and_then(|conn| {
            let count = "SELECT count(*) FROM events WHERE kind = ?";
            conn.query_row(count, [kind], |row| row.get(0))
        })
        .unwrap_or(0)
}

/// Kills `run` once its batch is started; false when all of it had ended by then.
fn killed_in_between(home: &Home) -> bool {
    for number in 0..300 {
        home.write(&format!("files/{number}.txt"), "a line of no interest\n".repeat(4_000));
    }
    let words = ["needle", "thread", "thimble", "button"];
    let script = home.write("agent.jsonl", [&searches(&words), DONE].join("\n"));
    let agent = format!("scripted:{}", script.display());
    let files = home.path("files").display().to_string();
    let args = ["run", "-q", "--agent", &agent, "--files", &files, "look"];
    let mut child =
        home.command(&args).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    while count(home, "step.started") == 0 && child.try_wait().unwrap().is_none() {
        std::thread::yield_now();
    }
    child.kill().unwrap();
    child.wait().unwrap();
    assert_eq!(count(home, "step.started"), 4, "all of a batch is started, or none");
    count(home, "step.finished") == 0
}

#[test]
fn killed_between_start_and_end_of_a_batch_all_of_it_is_interrupted() {
    for _ in 0..TRIES {
        let home = Home::new();
        if !killed_in_between(&home) {
            continue;
        }
        let run = home.only_run();
        home.run(&["resume", &run, "-q"]).exits(0);
        let statuses: Vec<String> = steps(&home).iter().map(|step| text(step, "status")).collect();
        assert_eq!(statuses, ["interrupted", "interrupted", "interrupted", "interrupted", "done"]);
        assert_eq!(count(&home, "step.started"), 4, "nothing is made again");
        home.run(&["verify"]).exits(0);
        fs::remove_dir_all(home.path("files")).unwrap();
        return;
    }
    panic!("no kill fell between the two commits of a batch");
}
