//! `proxy` as a process that an MCP host starts: approved by another process, killed, started twice, and stopped.

use std::fs;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use portcullis_canon::{Limits, Value, parse};

use crate::home::{Home, text};
use crate::mcp::Bank;

/// An MCP host, by the letter of the protocol.
pub(crate) struct Host {
    pub(crate) child: Child,
    write: Option<ChildStdin>,
    read: BufReader<ChildStdout>,
    asked: i64,
}

/// The answer to a call.
#[derive(Debug)]
pub(crate) struct Reply {
    pub(crate) text: String,
    pub(crate) failed: bool,
}

impl Reply {
    pub(crate) fn word(&self) -> &str {
        self.text.split(": ").next().unwrap()
    }
}

impl Host {
    /// Starts the proxy on the files of this home and says hello.
    pub(crate) fn start(home: &Home, rules: &str) -> Self {
        let (rules, files) = (home.write("rules.toml", rules), home.path("files"));
        let (rules, files) = (rules.display().to_string(), files.display().to_string());
        Self::of(home.command(&["proxy", "-c", &rules, "--files", &files, "--thread", "editor"]))
    }

    /// Starts this server and says hello.
    pub(crate) fn of(mut command: Command) -> Self {
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let (write, read) = (child.stdin.take(), BufReader::new(child.stdout.take().unwrap()));
        let mut host = Self { child, write, read, asked: 0 };
        let hello = host.ask("initialize", r#"{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"host","version":"1"}}"#);
        assert!(hello.pointer("/result/capabilities/tools").is_some(), "{hello:?}");
        host.write_line(r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#);
        host
    }

    fn write_line(&mut self, line: &str) {
        writeln!(self.write.as_mut().unwrap(), "{line}").unwrap();
    }

    pub(crate) fn send(&mut self, method: &str, params: &str) {
        self.asked += 1;
        let id = self.asked;
        self.write_line(&format!(
            r#"{{"jsonrpc":"2.0","id":{id},"method":"{method}","params":{params}}}"#
        ));
    }

    /// The next line of standard output, which has to be a message of the protocol.
    pub(crate) fn hear(&mut self) -> Value {
        let mut line = String::new();
        self.read.read_line(&mut line).unwrap();
        let message = parse(line.trim_end().as_bytes(), &Limits::ENVELOPE).unwrap();
        assert_eq!(text(&message, "jsonrpc"), "2.0");
        message
    }

    /// Asks and hears the answer, past what is said unasked.
    pub(crate) fn ask(&mut self, method: &str, params: &str) -> Value {
        self.send(method, params);
        loop {
            let heard = self.hear();
            if heard.get("id").is_some() {
                return heard;
            }
        }
    }

    pub(crate) fn send_call(&mut self, tool: &str, arguments: &str) {
        self.send("tools/call", &format!(r#"{{"name":"{tool}","arguments":{arguments}}}"#));
    }

    pub(crate) fn hear_reply(&mut self) -> Reply {
        let answer = self.hear();
        let result = answer.get("result").unwrap_or_else(|| panic!("{answer:?}"));
        let said = result.pointer("/content/0/text").and_then(Value::as_str).unwrap();
        let failed = result.get("isError").and_then(Value::as_bool).unwrap_or(false);
        Reply { text: said.to_owned(), failed }
    }

    pub(crate) fn call(&mut self, tool: &str, arguments: &str) -> Reply {
        self.send_call(tool, arguments);
        self.hear_reply()
    }

    pub(crate) fn kill(mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    /// Closes standard input; how the process ended, and what it said to the operator.
    pub(crate) fn leave(mut self) -> (ExitStatus, String) {
        drop(self.write.take());
        self.ended()
    }

    fn ended(mut self) -> (ExitStatus, String) {
        let until = Instant::now() + Duration::from_secs(60);
        let status = loop {
            if let Some(status) = self.child.try_wait().unwrap() {
                break status;
            }
            assert!(Instant::now() < until, "it does not end");
            std::thread::sleep(Duration::from_millis(5));
        };
        let mut said = String::new();
        self.child.stderr.take().unwrap().read_to_string(&mut said).unwrap();
        (status, said)
    }
}

/// Rules under which every change asks, and no call is held.
pub(crate) const ASKS: &str = "[classes]\nlocal_mutation = 'ask'\n[proxy]\nhold_ms = 0\n";

/// Rules under which every change is made, and no call is held.
pub(crate) const MAKES: &str = "[classes]\ndestructive = 'allow'\n[proxy]\nhold_ms = 0\n";

pub(crate) const CREATE: &str = r#"{"path":"a.txt","content":"one"}"#;

pub(crate) const DELETE: &str = r#"{"path":"old.txt"}"#;

/// How many steps the record says were started.
pub(crate) fn started(db: &Path) -> i64 {
    let flags = rusqlite::OpenFlags::SQLITE_OPEN_READ_ONLY;
    let count = "SELECT count(*) FROM events WHERE kind = 'step.started'";
    rusqlite::Connection::open_with_flags(db, flags)
        .and_then(|conn| conn.query_row(count, [], |row| row.get(0)))
        .unwrap_or(0)
}

/// The lock for which each change of the files waits.
pub(crate) fn lock_files(home: &Home) -> fs::File {
    let held = fs::File::open(home.path("files")).unwrap();
    rustix::fs::flock(&held, rustix::fs::FlockOperation::LockExclusive).unwrap();
    held
}

/// Waits until a call was begun, so far as the record says.
pub(crate) fn until_started(home: &Home) {
    let until = Instant::now() + Duration::from_secs(60);
    while started(&home.db()) == 0 {
        assert!(Instant::now() < until, "it does not begin");
        std::thread::sleep(Duration::from_millis(2));
    }
}

/// A scene of which so much was over before a tool gave up its lock, for which it waits two seconds. On a busy machine that
/// takes more than one.
pub(crate) fn in_time<T>(scene: impl Fn(&mut Instant) -> T) -> T {
    for _ in 0..20 {
        let mut sent = Instant::now();
        let made = scene(&mut sent);
        if sent.elapsed() < Duration::from_secs(2) {
            return made;
        }
    }
    panic!("this machine is too busy: the lock was given up each time")
}

/// A host whose delete has begun and waits for the lock.
fn in_the_middle(home: &Home) -> (Host, fs::File) {
    let mut host = Host::start(home, MAKES);
    let held = deleting(home, &mut host, &mut Instant::now());
    (host, held)
}

/// Has a host begin to delete a file, from `sent` on, and holds the lock.
fn deleting(home: &Home, host: &mut Host, sent: &mut Instant) -> fs::File {
    home.write("files/old.txt", "old");
    let held = lock_files(home);
    *sent = Instant::now();
    host.send_call("files_delete", DELETE);
    until_started(home);
    held
}

#[test]
fn a_read_passes_and_a_write_waits_for_another_process_and_is_collected_once() {
    let home = Home::new();
    home.write("files/notes.txt", "hello");
    let mut host = Host::start(&home, ASKS);
    let read = host.call("files_read", r#"{"path":"notes.txt"}"#);
    assert!(read.text.contains("hello") && !read.failed, "{read:?}");
    let waits = host.call("files_create", CREATE);
    assert_eq!((waits.word(), waits.failed), ("PENDING_APPROVAL", false));
    assert!(!home.path("files/a.txt").exists());
    // The command that the operator is told is the one that works.
    let mut told = BufReader::new(host.child.stderr.take().unwrap()).lines().map(Result::unwrap);
    let command = told.find(|line| line.contains(" approve q_")).unwrap();
    let words: Vec<&str> = command.split_whitespace().skip(1).chain(["--yes"]).collect();
    home.run(&words).exits(0);
    assert!(!home.path("files/a.txt").exists(), "an approval alone makes nothing");
    let collected = host.call("files_create", CREATE);
    assert!(collected.text.contains("a.txt") && !collected.failed, "{collected:?}");
    assert_eq!(fs::read_to_string(home.path("files/a.txt")).unwrap(), "one");
    let again = host.call("files_create", CREATE);
    assert_eq!((again.word(), again.failed), ("DUPLICATE", true));
    assert_eq!(started(&home.db()), 2);
    drop(host.write.take());
    assert!(host.child.wait().unwrap().success());
    home.run(&["verify"]).exits(0);
}

#[test]
fn a_call_that_waits_is_not_for_resume() {
    let home = Home::new();
    let mut host = Host::start(&home, ASKS);
    assert_eq!(host.call("files_create", CREATE).word(), "PENDING_APPROVAL");
    let (status, said) = host.leave();
    assert!(status.success(), "{said}");
    let told = home.run(&["resume", "--all"]).exits(3);
    assert!(told.err.contains("is a call of a host, and goes on when the host makes"), "{told:#?}");
    home.run(&["resume", &home.only_run()]).refuses(1, "E9006", &["is a call of a host"]);
    assert!(!home.path("files/a.txt").exists());
}

#[test]
fn where_the_record_ends_is_kept_while_a_proxy_serves() {
    let home = Home::new();
    let file = home.path("heads");
    let head = |home: &Home| fs::read_to_string(home.path("heads")).unwrap_or_default();
    let rules = format!("{MAKES}[head]\nfile = '{}'\n", file.display());
    let mut host = Host::start(&home, &rules);
    let begun = head(&home);
    assert!(!begun.is_empty(), "at the start");
    assert!(!host.call("files_create", CREATE).failed);
    let until = Instant::now() + Duration::from_secs(60);
    while head(&home) == begun {
        assert!(Instant::now() < until, "it is not kept beside the calls");
        std::thread::sleep(Duration::from_millis(20));
    }
    host.kill();
    // What was kept is of this record, and another proxy goes on from it.
    let (status, said) = Host::start(&home, &rules).leave();
    assert!(status.success(), "{said}");
}

#[test]
fn a_damaged_run_denies_changes_and_nothing_else() {
    let home = Home::new();
    let (host, held) = in_the_middle(&home);
    host.kill();
    let db = rusqlite::Connection::open(home.db()).unwrap();
    assert_eq!(db.execute("UPDATE runs SET limits = '{'", ()).unwrap(), 1);
    home.write("files/other.txt", "other");
    let mut host = Host::start(&home, MAKES);
    drop(held);
    // It may be what was cut off in the middle of this very change, of which nobody could be asked.
    let other = host.call("files_delete", r#"{"path":"other.txt"}"#);
    assert_eq!((other.word(), other.failed), ("UNAVAILABLE", true));
    assert!(home.path("files/other.txt").exists());
    assert!(!host.call("files_read", r#"{"path":"other.txt"}"#).failed, "control");
    let (_, said) = host.leave();
    assert!(said.contains("could not be handled"), "{said}");
}

#[test]
fn a_proxy_killed_in_the_middle_of_a_write_leaves_one_question_and_no_second_write() {
    let home = Home::new();
    let (host, held) = in_the_middle(&home);
    host.kill();
    let mut host = Host::start(&home, MAKES);
    for _ in 0..2 {
        let told = host.call("files_delete", DELETE);
        assert_eq!((told.word(), told.failed), ("UNKNOWN_OUTCOME", false));
    }
    let other = host.call("files_delete", r#"{"path":"other.txt"}"#);
    assert_eq!((other.word(), other.failed), ("BLOCKED", true));
    assert_eq!(started(&home.db()), 1, "no second write");
    let inbox = home.run(&["inbox", "--json"]).json(0);
    let [question] = inbox.get("questions").unwrap().as_array().unwrap() else {
        panic!("{inbox:?}")
    };
    assert_eq!(text(question, "kind"), "unknown_outcome");
    drop(held);
    assert!(home.path("files/old.txt").exists(), "it was killed before its effect");
    let run = text(question, "run");
    home.run(&["answer", &run, "did-not-happen", "--yes"]).exits(0);
    let made = host.call("files_delete", DELETE);
    assert!(!made.failed && made.word() != "UNKNOWN_OUTCOME", "{made:?}");
    assert!(!home.path("files/old.txt").exists());
    let (status, said) = host.leave();
    assert!(status.success(), "{said}");
    assert!(said.contains(" answer q_"), "{said}");
    home.run(&["verify"]).exits(0);
}

#[test]
fn twenty_calls_at_once_through_two_proxies_are_one() {
    let home = Home::new();
    let mut hosts = [Host::start(&home, MAKES), Host::start(&home, MAKES)];
    for host in &mut hosts {
        for _ in 0..10 {
            host.send_call("files_create", CREATE);
        }
    }
    let mut made = 0;
    for host in &mut hosts {
        for _ in 0..10 {
            let reply = host.hear_reply();
            match reply.word() {
                "DUPLICATE" | "IN_PROGRESS" => {}
                _ => {
                    assert!(!reply.failed, "{reply:?}");
                    made += 1;
                }
            }
        }
    }
    assert_eq!((made, started(&home.db())), (1, 1));
    assert_eq!(fs::read_to_string(home.path("files/a.txt")).unwrap(), "one");
    for host in hosts {
        let (status, said) = host.leave();
        assert!(status.success(), "{said}");
    }
    home.run(&["verify"]).exits(0);
}

#[test]
fn a_limit_of_a_conversation_holds_over_proxies_that_run_beside_and_after_each_other() {
    let home = Home::new();
    let rules = format!("{MAKES}[conversation]\nmax_changes = 2\n");
    let create = |name: &str| format!(r#"{{"path":"{name}","content":"one"}}"#);
    let mut hosts = [Host::start(&home, &rules), Host::start(&home, &rules)];
    for (host, name) in hosts.iter_mut().zip(["a.txt", "b.txt"]) {
        let made = host.call("files_create", &create(name));
        assert!(!made.failed, "{made:?}");
    }
    for host in &mut hosts {
        let blocked = host.call("files_create", &create("c.txt"));
        assert_eq!((blocked.word(), blocked.failed), ("BLOCKED", true));
        let read = host.call("files_list", "{}");
        assert!(!read.failed, "{read:?}");
    }
    hosts.into_iter().for_each(Host::kill);
    let mut host = Host::start(&home, &rules);
    assert_eq!(host.call("files_create", &create("d.txt")).word(), "BLOCKED");
    assert!(!home.path("files/c.txt").exists() && !home.path("files/d.txt").exists());
    home.run(&["verify"]).exits(0);
    drop(host.leave());
    // Raised, it lets the next one be made.
    let mut host = Host::start(&home, &rules.replace("= 2", "= 3"));
    let made = host.call("files_create", &create("d.txt"));
    assert!(!made.failed, "{made:?}");
    drop(host.leave());
    home.run(&["verify"]).exits(0);
}

#[test]
fn a_payment_that_a_host_retries_is_made_once_with_the_gate_and_twice_without() {
    let bank = Bank::new();
    let pay = r#"{"to":"ann","sum":5}"#;
    let mut bare = Host::of(bank.bare());
    for _ in 0..2 {
        assert_eq!(bare.call("pay", pay).text, "done: pay");
    }
    bare.kill();
    assert_eq!(bank.calls().len(), 2, "the control: without the gate it is made twice");

    bank.asks();
    bank.run(&["pin", "bank"]).exits(0);
    let mut host = Host::of(bank.proxy());
    let read = host.call("bank_balance", r#"{"account":"a"}"#);
    assert!(read.text.contains("done: balance") && !read.failed, "{read:?}");
    let pay = r#"{"recipient":"ann"}"#;
    for _ in 0..2 {
        let waits = host.call("bank_pay", pay);
        assert_eq!((waits.word(), waits.failed), ("PENDING_APPROVAL", false));
    }
    let inbox = bank.run(&["inbox", "--json"]).json(0);
    let [question] = inbox.get("questions").unwrap().as_array().unwrap() else {
        panic!("{inbox:?}")
    };
    bank.run(&["approve", &text(question, "question"), "--yes"]).exits(0);
    let collected = host.call("bank_pay", pay);
    assert!(collected.text.contains("done: pay") && !collected.failed, "{collected:?}");
    for _ in 0..2 {
        let again = host.call("bank_pay", pay);
        assert_eq!((again.word(), again.failed), ("DUPLICATE", true));
    }
    let (status, said) = host.leave();
    assert!(status.success(), "{said}");
    assert_eq!(bank.calls()[2..], [r#"{"account": "a"}"#, r#"{"sum": 5, "to": "ann"}"#]);
    bank.run(&["verify"]).exits(0);
}

#[test]
fn what_is_on_its_way_finishes_when_the_host_leaves_or_a_signal_comes() {
    for signal in [None, Some(rustix::process::Signal::TERM), Some(rustix::process::Signal::INT)] {
        let (home, host) = in_time(|sent| {
            let home = Home::new();
            let mut host = Host::start(&home, MAKES);
            let held = deleting(&home, &mut host, sent);
            match signal {
                None => drop(host.write.take()),
                Some(signal) => {
                    let pid = i32::try_from(host.child.id()).unwrap();
                    let pid = rustix::process::Pid::from_raw(pid).unwrap();
                    rustix::process::kill_process(pid, signal).unwrap();
                }
            }
            drop(held);
            (home, host)
        });
        let (status, said) = host.ended();
        assert!(status.success(), "{signal:?}: {said}");
        assert!(!home.path("files/old.txt").exists(), "{signal:?}");
        let runs = home.run(&["runs", "--json"]).json(0);
        let status = runs.pointer("/runs/0/status").and_then(Value::as_str);
        assert_eq!(status, Some("completed"), "{signal:?}: {runs:?}");
    }
}

#[test]
fn what_cannot_be_served_is_refused_before_anything_is_made() {
    let home = Home::new();
    home.run(&["proxy", "--owner", ""]).refuses(2, "E9002", &["owner"]);
    let rules = home.write("odd.toml", "[proxy]\nhold_ms = -1\n").display().to_string();
    home.run(&["proxy", "-c", &rules]).refuses(1, "E9001", &["hold_ms"]);
    assert!(!home.db().exists());
    // A host that says nothing at all is served to its end.
    let mut silent: Command = home.command(&["proxy"]);
    let ended = silent.output().unwrap();
    assert!(ended.status.success() && ended.stdout.is_empty(), "{ended:?}");
}
