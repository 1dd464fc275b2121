//! The disk fails under a run, at every sync and at every write that it makes: no effect without a durable intent, nothing
//! twice, nothing lost, and one sentence.
//!
//! The faults come from a library that is preloaded into the command, since a tracer counts the calls of each thread by
//! itself. Every test asserts that its fault struck.

use std::fs;
use std::path::Path;
use std::time::Duration;

use portcullis_testkit::preload::{Call, Counted, Fault, Plan, Preload};

use crate::home::{Ended, Home, text};

/// Errors of a disk, in Linux's numbers.
const EIO: u32 = 5;
const ENOSPC: u32 = 28;

/// Changes that the run makes.
const FILES: usize = 3;

/// Of the writes, every so manieth fails: one that goes through all of a commit's frames as the run goes on.
const EACH: usize = 11;

/// Syncs before the first intent: the head of the write-ahead log, and the run's first append. Then each change has one
/// before it and one after it.
const BEFORE: usize = 2;

/// A home with a database, a script that makes the files, and what the planned fault did.
struct Struck {
    home: Home,
    ended: Ended,
    counted: Counted,
}

/// `run` on a database that is there already, with this fault planned.
fn struck(preload: &Preload, call: Call, nth: usize, fault: Fault) -> Struck {
    let home = Home::new();
    home.run(&["init"]).exits(0);
    let log = home.path("faults.log");
    let mut script = String::new();
    for number in 0..FILES {
        script.push_str(&format!(
            "{{\"kind\":\"tool_call\",\"tool\":\"files.create\",\"arguments\":{{\"path\":\"f{number}\",\"content\":\"f{number}\"}}}}\n"
        ));
    }
    script.push_str("{\"kind\":\"complete\"}\n");
    let agent = format!("scripted:{}", home.write("agent.jsonl", script).display());
    let files = home.path("files").display().to_string();
    let mut run = home.command(&["run", "-q", "--agent", &agent, "--files", &files, "make them"]);
    let plan = Plan { call, files: "portcullis.db", nth, fault };
    preload.plan(&mut run, plan, &log);
    let disk = home.path("disk");
    fs::create_dir(&disk).unwrap();
    fs::copy(home.db(), disk.join("portcullis.db")).unwrap();
    preload.keep_disk(&mut run, &disk);
    let ended = Ended::of(&run.output().unwrap());
    Struck { ended, counted: Preload::counted(&log, call), home }
}

/// How many steps were started by what a loss of power leaves.
fn started(db: &Path) -> usize {
    let conn = rusqlite::Connection::open(db).unwrap();
    let count = "SELECT count(*) FROM events WHERE kind = 'step.started'";
    conn.query_row(count, [], |row| row.get::<_, i64>(0)).unwrap().try_into().unwrap()
}

/// Calls of an undisturbed run.
fn undisturbed(preload: &Preload, call: Call) -> usize {
    let whole = struck(preload, call, 0, Fault::Short);
    assert_eq!((whole.ended.code, whole.counted.fired), (Some(0), 0), "{:#?}", whole.ended);
    assert_eq!(made(&whole.home), FILES);
    whole.counted.calls
}

/// How many of the files are there, each whole.
fn made(home: &Home) -> usize {
    let mut names: Vec<_> = fs::read_dir(home.path("files"))
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort();
    for (number, name) in names.iter().enumerate() {
        assert_eq!(*name, format!("f{number}"), "{names:?}");
        assert_eq!(fs::read_to_string(home.path("files").join(name)).unwrap(), *name);
    }
    names.len()
}

/// Goes on without faults until the run is done, answering by what is there.
fn settled(home: &Home) {
    let runs = home.run(&["runs", "--json"]).json(0);
    let runs = runs.get("runs").unwrap().as_array().unwrap();
    let Some(run) = runs.first().map(|run| text(run, "run")) else { return };
    let agent = format!("scripted:{}", home.path("agent.jsonl").display());
    let files = home.path("files").display().to_string();
    let mut rounds = 0;
    loop {
        rounds += 1;
        assert!(rounds <= 3, "{:#?}", home.run(&["show", &run]));
        let resumed = home.run(&["resume", &run, "-q", "--agent", &agent, "--files", &files]);
        match resumed.code {
            Some(0) => break,
            Some(3) => {
                let inbox = home.run(&["inbox", "--json"]).json(0);
                let [question] = inbox.get("questions").unwrap().as_array().unwrap() else {
                    panic!("{inbox:?}")
                };
                assert_eq!(text(question, "kind"), "unknown_outcome");
                let path = question.get("card").unwrap().pointer("/arguments/path").unwrap();
                let there = home.path("files").join(path.as_str().unwrap()).exists();
                let answer = if there { "happened" } else { "did-not-happen" };
                home.run(&["answer", &run, answer, "--yes"]).exits(0);
            }
            _ => panic!("{resumed:#?}"),
        }
    }
    home.run(&["verify"]).exits(0);
}

/// What ended the command: nothing, or one sentence with a code; never a signal or a panic.
fn told(struck: &Struck) {
    match struck.ended.code {
        Some(0) => {}
        Some(1) => {
            let last = struck.ended.err.lines().last().unwrap_or_default();
            assert!(last.starts_with("portcullis: E"), "{:#?}", struck.ended);
        }
        _ => panic!("{:#?}", struck.ended),
    }
    assert!(!struck.ended.err.contains("panicked"), "{:#?}", struck.ended);
}

#[test]
fn whichever_sync_fails_no_effect_is_without_a_durable_intent() {
    let Some(preload) = Preload::compile() else { return };
    let all = undisturbed(&preload, Call::Sync);
    // The last is the end of the run.
    assert!(all > BEFORE + 2 * FILES, "{all}");
    for fault in [Fault::Fail(EIO), Fault::Stay(EIO)] {
        for n in 1..=all {
            let struck = struck(&preload, Call::Sync, n, fault);
            assert!(struck.counted.fired >= 1, "sync {n} was never made: {:#?}", struck.ended);
            told(&struck);
            let durable = n.saturating_sub(BEFORE) / 2;
            let effects = made(&struck.home);
            // A disk that fails once is written to again, and then the run may go on.
            let goes_on = fault == Fault::Fail(EIO) && effects == FILES;
            let as_it_has_to = effects == durable.min(FILES) || goes_on;
            assert!(as_it_has_to, "{fault} at sync {n}: {effects} effects, {:#?}", struck.ended);
            let intents = started(&struck.home.path("disk/portcullis.db"));
            assert!(
                intents >= effects,
                "{fault} at sync {n}: {effects} effects, {intents} intents"
            );
            settled(&struck.home);
        }
    }
}

#[test]
fn whichever_write_fails_nothing_is_done_twice_or_lost() {
    let Some(preload) = Preload::compile() else { return };
    let all = undisturbed(&preload, Call::Write);
    assert!(all > 4 * FILES, "{all}");
    for (fault, first) in [(Fault::Fail(ENOSPC), 1), (Fault::Torn(EIO), 4)] {
        for n in (first..=all).step_by(EACH) {
            let struck = struck(&preload, Call::Write, n, fault);
            assert!(struck.counted.fired >= 1, "write {n} was never made: {:#?}", struck.ended);
            told(&struck);
            let before = made(&struck.home);
            settled(&struck.home);
            assert!(made(&struck.home) >= before);
        }
    }
}

#[test]
fn a_write_that_is_cut_short_is_finished_and_a_late_sync_is_waited_for() {
    let Some(preload) = Preload::compile() else { return };
    let all = undisturbed(&preload, Call::Write);
    let short = (1..=all).step_by(2 * EACH).map(|n| (Call::Write, n, Fault::Short));
    let late = (3..=5).map(|n| (Call::Sync, n, Fault::Late(Duration::from_millis(300))));
    for (call, n, fault) in short.chain(late) {
        let struck = struck(&preload, call, n, fault);
        let met = (struck.ended.code, struck.counted.fired);
        assert_eq!(met, (Some(0), 1), "{fault} at {n}: {:#?}", struck.ended);
        assert_eq!(made(&struck.home), FILES);
        struck.home.run(&["verify"]).exits(0);
    }
}
