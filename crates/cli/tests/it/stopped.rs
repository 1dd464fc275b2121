//! `run` stopped for longer than its lease: it starts nothing more, and what its call did is late. And `run` that another
//! process cancels during a call.

use std::fs::{self, File};
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

use portcullis_canon::{Limits, Value, parse};
use rustix::fs::{FlockOperation, flock};
use rustix::process::{Pid, Signal, kill_process};

use crate::home::{Home, text};

/// The term of the lease.
const TERM: Duration = Duration::from_secs(1);

/// How long the tool waits for its lock.
const LOCK_WAIT: Duration = Duration::from_secs(2);

/// How long a test waits for what another process does.
const PATIENCE: Duration = Duration::from_secs(60);

/// A `run` in the middle of a deletion: it waits for a lock that the test holds.
struct Deleting {
    home: Home,
    child: Child,
    lock: File,
    /// Before this its call had not begun.
    since: Instant,
}

impl Deleting {
    fn new() -> Self {
        let home = Home::new();
        for name in ["one.txt", "two.txt"] {
            home.write(&format!("files/kept/{name}"), name);
        }
        let rules =
            format!("[classes]\ndestructive = 'allow'\n[lease]\nterm_ms = {}\n", TERM.as_millis());
        let rules = home.write("rules.toml", rules).display().to_string();
        let delete = |name: &str| {
            format!(
                r#"{{"kind":"tool_call","tool":"files.delete","arguments":{{"path":"kept/{name}"}}}}"#
            )
        };
        let script =
            format!("{}\n{}\n{{\"kind\":\"complete\"}}", delete("one.txt"), delete("two.txt"));
        let agent = format!("scripted:{}", home.write("agent.jsonl", script).display());
        let lock = File::open(home.path("files/kept")).unwrap();
        flock(&lock, FlockOperation::LockExclusive).unwrap();
        let files = home.path("files").display().to_string();
        let args = ["run", "-q", "-c", &rules, "--agent", &agent, "--files", &files, "delete them"];
        let child = home.command(&args).stdout(Stdio::null()).stderr(Stdio::piped()).spawn();
        let begun = Instant::now();
        let mut deleting = Self { home, child: child.unwrap(), lock, since: begun };
        loop {
            let looked = Instant::now();
            if deleting.home.db().exists() && deleting.count("step.started") > 0 && deleting.waits()
            {
                return deleting;
            }
            deleting.since = looked;
            assert!(deleting.child.try_wait().unwrap().is_none(), "it ended before its effect");
            assert!(begun.elapsed() < PATIENCE, "it starts nothing");
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    /// One to which this happened within so much of the time that its tool waits. On a busy machine that takes more
    /// than one.
    fn and_within(wait: Duration, act: impl Fn(&Self)) -> Self {
        for _ in 0..20 {
            let deleting = Self::new();
            act(&deleting);
            if deleting.since.elapsed() < wait {
                return deleting;
            }
        }
        panic!("this machine is too busy: it never happened within {wait:?}");
    }

    /// Whether its tool is at the lock, whose folder it opens for that. The intent alone does not say so: a process whose
    /// lease ends between its intent and its call begins none.
    fn waits(&self) -> bool {
        let folder = self.home.path("files/kept");
        let fds = fs::read_dir(format!("/proc/{}/fd", self.child.id()));
        let fds = fds.into_iter().flatten().flatten();
        fds.map(|fd| fs::read_link(fd.path())).any(|opened| opened.is_ok_and(|path| path == folder))
    }

    fn signal(&self, signal: Signal) {
        let pid = Pid::from_raw(i32::try_from(self.child.id()).unwrap()).unwrap();
        kill_process(pid, signal).unwrap();
    }

    /// How many events of a type there are.
    fn count(&self, kind: &str) -> usize {
        let flags = rusqlite::OpenFlags::SQLITE_OPEN_READ_ONLY;
        let count = "SELECT count(*) FROM events WHERE kind = ?1";
        rusqlite::Connection::open_with_flags(self.home.db(), flags)
            .and_then(|conn| conn.query_row(count, [kind], |row| row.get::<_, i64>(0)))
            .map_or(0, |count| usize::try_from(count).unwrap())
    }

    fn files(&self) -> Vec<String> {
        let entries = fs::read_dir(self.home.path("files/kept")).unwrap();
        let name = |entry: std::io::Result<fs::DirEntry>| entry.unwrap().file_name();
        let mut names: Vec<String> =
            entries.map(|entry| name(entry).into_string().unwrap()).collect();
        names.sort();
        names
    }

    fn unlock(&self) {
        flock(&self.lock, FlockOperation::Unlock).unwrap();
    }

    /// The process ends by itself.
    fn ends(&mut self) -> i32 {
        let begun = Instant::now();
        loop {
            if let Some(status) = self.child.try_wait().unwrap() {
                return status.code().unwrap();
            }
            assert!(begun.elapsed() < PATIENCE, "it does not end");
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    /// What the record says of the first step, by event type.
    fn step(&self) -> Vec<String> {
        let listed = self.home.run(&["events", "--all", "--json"]).exits(0);
        let events: Vec<Value> = listed
            .out
            .lines()
            .map(|line| parse(line.as_bytes(), &Limits::ENVELOPE).unwrap())
            .collect();
        let step = |event: &Value| event.get("step").and_then(Value::as_str).map(str::to_owned);
        let first = events.iter().find(|event| text(event, "type") == "step.started").unwrap();
        let own = events.iter().filter(|event| step(event) == step(first));
        own.map(|event| text(event, "type")).collect()
    }
}

impl Drop for Deleting {
    fn drop(&mut self) {
        // Also when the test has failed. An ended child is no error.
        let _ended = self.child.kill();
        let _ended = self.child.wait();
    }
}

#[test]
fn a_process_that_was_stopped_starts_nothing_and_its_outcome_is_late() {
    for taken_up in [false, true] {
        let mut run = Deleting::and_within(LOCK_WAIT, |run| run.signal(Signal::STOP));
        let id = run.home.only_run();
        std::thread::sleep(2 * TERM + TERM / 5);
        if taken_up {
            // Somebody else goes on meanwhile: nobody can know what the stopped process does.
            run.home.run(&["resume", &id, "-q"]).exits(3);
            assert_eq!(run.count("question.asked"), 1);
        }
        assert_eq!(run.files(), ["one.txt", "two.txt"], "nothing happened while it was stopped");
        // Free before it goes on, since it does not wait for its lock for ever.
        run.unlock();
        assert_eq!(run.files(), ["one.txt", "two.txt"], "it is stopped");
        run.signal(Signal::CONT);
        let code = run.ends();
        assert_eq!(code, 1, "its lease was over; taken up: {taken_up}");
        assert_eq!(run.files(), ["two.txt"], "the call went on, and no other was started");
        assert_eq!((run.count("step.started"), run.count("outcome.late")), (1, 1), "{taken_up}");
        assert_eq!(run.count("step.finished"), 0, "a late outcome is no finish");

        run.home.run(&["resume", &id, "-q"]).exits(3);
        run.home.run(&["answer", &id, "happened", "--yes"]).exits(0);
        run.home.run(&["resume", &id, "-q"]).exits(0);
        assert_eq!(run.files(), Vec::<String>::new());
        assert_eq!(run.count("step.started"), 2);
        let step = run.step();
        let place = |kind: &str| step.iter().position(|found| found == kind).unwrap();
        assert!(place("outcome.late") < place("step.finished"), "{step:?}");
        assert!(place("question.answered") < place("step.finished"), "{step:?}");
        run.home.run(&["verify"]).exits(0);
    }
}

/// The control: one that is not stopped goes on by itself, though its call takes longer than the term.
#[test]
fn a_process_that_renews_its_lease_finishes_a_call_that_takes_longer() {
    let mut run = Deleting::and_within(LOCK_WAIT, |run| {
        std::thread::sleep(TERM + TERM / 5);
        let id = run.home.only_run();
        run.home.run(&["resume", &id, "-q"]).exits(1);
        run.unlock();
    });
    assert_eq!(run.ends(), 0);
    assert_eq!(run.files(), Vec::<String>::new());
    assert_eq!((run.count("step.started"), run.count("outcome.late")), (2, 0));
}

/// Nothing lets the call come back: the lock is held all the time.
#[test]
fn a_run_that_another_process_cancels_waits_for_its_call_no_longer() {
    // Early enough that the process, which looks each second, sees it while its tool still waits.
    let mut run = Deleting::and_within(LOCK_WAIT / 4, |run| {
        let id = run.home.only_run();
        run.home.run(&["cancel", &id]).exits(0);
    });
    assert_eq!(run.ends(), 1);
    assert_eq!(run.files(), ["one.txt", "two.txt"]);
    // It did not wait until the tool gave its lock up, which would have been an outcome.
    assert_eq!((run.count("step.started"), run.count("outcome.late")), (1, 0));
    assert_eq!((run.count("step.finished"), run.count("run.finished")), (0, 1));
    run.home.run(&["verify"]).exits(0);
}
