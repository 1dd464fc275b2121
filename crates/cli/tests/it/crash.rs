//! `run` killed at any moment and taken up again: no change twice, nothing lost.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use portcullis_canon::Value;

use crate::home::{Home, example, has_python, text};

/// How many processes are killed.
const KILLS: u32 = 20;

/// Files of one folder.
const FILES: usize = 12;

/// Every file beneath `root`, by its content, which is its first name.
fn found(root: &Path) -> BTreeMap<String, Vec<String>> {
    let mut found: BTreeMap<String, Vec<String>> = BTreeMap::new();
    let mut folders = vec![root.to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
            } else {
                let place = path.strip_prefix(root).unwrap().display().to_string();
                found.entry(fs::read_to_string(&path).unwrap()).or_default().push(place);
            }
        }
    }
    found
}

/// Starts a command and kills it after `delay` unless it ended; `Some` when it ended by itself.
fn kill_after(mut command: Command, delay: Duration) -> Option<i32> {
    let mut child = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    std::thread::sleep(delay);
    if let Some(status) = child.try_wait().unwrap() {
        return status.code();
    }
    child.kill().unwrap();
    child.wait().unwrap();
    None
}

/// Answers a question about a call whose outcome is unknown by looking at the folder.
fn settle(home: &Home, run: &str) {
    let inbox = home.run(&["inbox", "--json"]).json(0);
    let [question] = inbox.get("questions").unwrap().as_array().unwrap() else {
        panic!("{inbox:?}")
    };
    assert_eq!(text(question, "kind"), "unknown_outcome");
    let card = question.get("card").unwrap();
    let argument = |name: &str| card.pointer(&format!("/arguments/{name}")).and_then(Value::as_str);
    let target = argument("to").or_else(|| argument("path")).unwrap();
    let happened = home.path("files").join(target).exists();
    let answer = if happened { "happened" } else { "did-not-happen" };
    home.run(&["answer", run, answer, "--yes"]).exits(0);
}

/// How often each step was started, from the record.
fn starts(home: &Home) -> BTreeMap<String, u32> {
    let mut starts = BTreeMap::new();
    let mut after = 0_u64;
    loop {
        let from = after.to_string();
        let listed =
            home.run(&["events", "--all", "--json", "--after", &from, "--limit", "500"]).exits(0);
        for line in listed.out.lines() {
            let event =
                portcullis_canon::parse(line.as_bytes(), &portcullis_canon::Limits::ENVELOPE)
                    .unwrap();
            after = event.get("seq").and_then(Value::as_u64).unwrap();
            if text(&event, "type") == "step.started" {
                *starts.entry(text(&event, "step")).or_default() += 1;
            }
        }
        if listed.out.lines().count() < 500 {
            return starts;
        }
    }
}

/// How many steps the record says were started.
fn started(db: &Path) -> i64 {
    let flags = rusqlite::OpenFlags::SQLITE_OPEN_READ_ONLY;
    let count = "SELECT count(*) FROM events WHERE kind = 'step.started'";
    rusqlite::Connection::open_with_flags(db, flags)
        .and_then(|conn| conn.query_row(count, [], |row| row.get(0)))
        .unwrap_or(0)
}

/// A run that is killed inside of its effect: it waits for a lock on the folder, which this test holds.
fn killed_inside_of_its_effect(home: &Home) -> String {
    home.write("files/old.txt", "old");
    let rules = home.write("rules.toml", "[classes]\ndestructive = 'allow'\n");
    let call = r#"{"kind":"tool_call","tool":"files.delete","arguments":{"path":"old.txt"}}"#;
    let script = home.write("agent.jsonl", format!("{call}\n{{\"kind\":\"complete\"}}"));
    let agent = format!("scripted:{}", script.display());
    let (files, rules) = (home.path("files").display().to_string(), rules.display().to_string());
    let held = fs::File::open(home.path("files")).unwrap();
    rustix::fs::flock(&held, rustix::fs::FlockOperation::LockExclusive).unwrap();
    let args = ["run", "-q", "-c", &rules, "--agent", &agent, "--files", &files, "delete it"];
    let mut child =
        home.command(&args).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    while started(&home.db()) == 0 {
        assert!(child.try_wait().unwrap().is_none(), "it ended before its effect began");
        std::thread::yield_now();
    }
    child.kill().unwrap();
    child.wait().unwrap();
    home.only_run()
}

#[test]
fn killed_inside_of_an_effect_a_person_is_asked_and_nothing_is_done_twice() {
    for (answer, there) in [("did-not-happen", true), ("run-again", false)] {
        let home = Home::new();
        let run = killed_inside_of_its_effect(&home);
        let resumed = home.run(&["resume", &run, "-q"]).exits(3);
        assert!(resumed.out.contains("a person has to answer"), "{resumed:#?}");
        let inbox = home.run(&["inbox", "--json"]).json(0);
        let [question] = inbox.get("questions").unwrap().as_array().unwrap() else {
            panic!("{inbox:?}")
        };
        assert_eq!(text(question, "kind"), "unknown_outcome");
        assert!(home.path("files/old.txt").exists(), "nothing was done without an answer");
        home.run(&["answer", &run, answer, "--yes"]).exits(0);
        home.run(&["resume", &run, "-q"]).exits(0);
        assert_eq!(home.path("files/old.txt").exists(), there, "{answer}");
        let starts: Vec<u32> = starts(&home).into_values().collect();
        assert_eq!(starts, [if there { 1 } else { 2 }], "{answer}");
        home.run(&["verify"]).exits(0);
    }
}

/// A folder of files that are to be put away.
fn untidy() -> Home {
    let home = Home::new();
    for number in 0..FILES {
        let ending = ["txt", "png", "csv"][number % 3];
        home.write(&format!("files/f{number}.{ending}"), format!("f{number}.{ending}"));
    }
    home
}

/// How long a run takes that nobody kills.
fn a_life(agent: &str) -> Duration {
    let home = untidy();
    let files = home.path("files").display().to_string();
    let begun = Instant::now();
    home.run(&["run", "--max-steps", "500", "--agent", agent, "--files", &files, "tidy"]).exits(0);
    begun.elapsed()
}

#[test]
fn killed_at_any_moment_no_change_is_made_twice() {
    if !has_python() {
        return;
    }
    let agent = format!("exec:python3 {}", example("agents/tidy.py"));
    let (mut kills, mut unknown, mut round) = (0_u32, 0_u32, 0_u64);
    // Delays that spread over the life of a run, which a fast machine makes short.
    let life = a_life(&agent);
    let mut delay = 0_u32;
    let mut next = || {
        delay = (delay * 73 + 41) % 397;
        Duration::from_millis(5) + life * delay / 397
    };
    while kills < KILLS {
        round += 1;
        assert!(round <= 40, "only {kills} kills in {round} rounds");
        let home = untidy();
        let files = home.path("files").display().to_string();
        let flags = ["--agent", &agent, "--files", &files];
        // A program that is killed and started again looks at the folder again, and each look has the same result.
        let limits = ["--max-steps", "500", "--loop-threshold", "32"];
        let begin: Vec<&str> =
            ["run"].into_iter().chain(limits).chain(flags).chain(["tidy"]).collect();
        let mut ended = kill_after(home.command(&begin), next());
        kills += u32::from(ended.is_none());
        let runs = if home.db().exists() { home.run(&["runs", "--json"]) } else { continue };
        // A database may be there without its tables yet; then nothing was begun.
        let begun = runs.code == Some(0) && runs.out.contains("run_");
        if !begun {
            assert_eq!(found(&home.path("files")).len(), FILES);
            continue;
        }
        let run = home.only_run();
        let go_on: Vec<&str> = ["resume", &run].into_iter().chain(flags).collect();
        // Two kills in one decision end a run; then nothing more is moved, and what was moved stays.
        let mut gave_up = false;
        while ended != Some(0) && !gave_up {
            ended = kill_after(
                home.command(&go_on),
                if kills < KILLS { next() } else { Duration::from_secs(20) },
            );
            kills += u32::from(ended.is_none());
            match ended {
                None | Some(0) => {}
                Some(3) => {
                    unknown += 1;
                    settle(&home, &run);
                }
                Some(1) if home.run(&["show", &run]).out.contains("decider_crashed") => {
                    gave_up = true
                }
                other => panic!("exit {other:?}: {:#?}", home.run(&["show", &run])),
            }
        }
        let places = found(&home.path("files"));
        assert_eq!(places.len(), FILES, "{places:?}");
        for (name, places) in &places {
            assert_eq!(places.len(), 1, "{name} is at {places:?}");
            assert!(gave_up || places[0].contains('/'), "{name} was not put away: {places:?}");
        }
        let starts = starts(&home);
        assert!(
            (gave_up || starts.len() >= FILES) && starts.values().all(|times| *times == 1),
            "{starts:?}"
        );
        home.run(&["verify"]).exits(0);
    }
    println!("{kills} kills in {round} rounds, {unknown} outcomes unknown");
}
