//! Several processes on one file, and processes that are killed.

use std::io::{BufRead as _, BufReader, Read as _};
use std::process::Command;

use portcullis_testkit::store_contract::fold;

use crate::sqlite::{fresh, open_at};
use crate::worker;

/// Runs two children at once and returns what they printed.
fn two(task: &str, seeds: [u64; 2], path: &std::path::Path) -> [Vec<u64>; 2] {
    drop(open_at(path, Vec::new()).unwrap());
    let mut children = seeds.map(|seed| worker::start(task, seed, path));
    for child in &mut children {
        worker::release(child);
    }
    children.map(|child| {
        let output = child.wait_with_output().unwrap();
        assert!(output.status.success());
        worker::numbers(&String::from_utf8(output.stdout).unwrap(), "seq ")
    })
}

#[test]
fn two_processes_write_one_chain_and_lose_nothing() {
    let backend = fresh();
    let [one, other] = two("histories", [1, 2], &backend.path());
    // The control: they really wrote in turns.
    assert!(one.first() < other.last() && other.first() < one.last());
    let store = open_at(&backend.path(), Vec::new()).unwrap();
    let folded = fold::check(&store);
    assert_eq!(folded.runs.len(), 140);
    assert!(folded.runs.values().all(|state| state.run.status.is_terminal()));
    assert!(one.iter().all(|seq| !other.contains(seq)));
}

#[test]
fn of_two_processes_on_one_run_exactly_one_stores_each_append() {
    let backend = fresh();
    let [one, other] = two("same", [3, 3], &backend.path());
    let mut run = portcullis_testkit::scenario::Scenario::new(
        1,
        portcullis_domain::id::InstanceId::from_bytes([0; 16]),
    );
    // Without what is late, which has no place that it could lose.
    let late = portcullis_domain::ports::Condition::Late;
    let placed = run.every_event().iter().filter(|append| append.condition != late).count();
    assert_eq!(one.len() + other.len(), 10 * placed);
    let store = open_at(&backend.path(), Vec::new()).unwrap();
    assert_eq!(fold::check(&store).runs.len(), 70);
}

#[test]
fn a_killed_writer_leaves_a_whole_chain_and_every_answered_append() {
    let backend = fresh();
    let path = backend.path();
    for round in 0..12_u64 {
        let mut child = worker::start("endless", 10 + round, &path);
        worker::release(&mut child);
        let mut lines = BufReader::new(child.stdout.take().unwrap());
        let (mut last, mut line) = (0, String::new());
        // Each round dies at another place of another step.
        let mut answers = 0;
        while answers < 1 + round * 4 {
            line.clear();
            assert!(lines.read_line(&mut line).unwrap() > 0);
            if let Some(seq) = worker::numbers(&line, "seq ").first() {
                (last, answers) = (*seq, answers + 1);
            }
        }
        child.kill().unwrap();
        child.wait().unwrap();
        // What was answered after the last line that was read, too.
        let mut rest = String::new();
        lines.read_to_string(&mut rest).unwrap();
        let whole = rest.rfind('\n').map_or("", |end| &rest[..end]);
        last = worker::numbers(whole, "seq ").last().copied().unwrap_or(last);
        let store = open_at(&path, Vec::new()).unwrap();
        let folded = fold::check(&store);
        assert_eq!(u64::try_from(folded.runs.len()).unwrap(), round + 1);
        let events: u64 =
            portcullis_domain::ports::Ledgers::begin(&store).unwrap().count("events").unwrap();
        assert!(events >= last, "{events} events, {last} answered");
    }
}

#[test]
fn a_full_disk_stores_nothing_and_works_again_when_there_is_room() {
    let backend = fresh();
    let folder = backend.path().parent().unwrap().to_owned();
    // A small file system, in a mount namespace of its own.
    let script = r#"mount -t tmpfs -o size=1m,mode=700 none "$1" && shift && echo mounted 0 && exec "$0" "$@""#;
    let mut shell = Command::new("unshare");
    shell.args(["--mount", "sh", "-c", script]);
    shell.arg(std::env::current_exe().unwrap()).arg(folder);
    let Ok(mut child) = worker::command(shell, "fill", 1, &backend.path()).spawn() else {
        return portcullis_testkit::skip::skip("no `unshare` to mount a small file system with");
    };
    worker::release(&mut child);
    let output = child.wait_with_output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    if worker::numbers(&text, "mounted ").is_empty() {
        return portcullis_testkit::skip::skip("cannot mount a small file system here");
    }
    assert!(worker::numbers(&text, "filled ").first().is_some_and(|stored| *stored > 0), "{text}");
}
