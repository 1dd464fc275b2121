//! `proxy --listen` as a process: a host over HTTP is let in by the token in a file, and what holds over a pipe holds there.

use std::fs;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpStream;
use std::os::unix::fs::PermissionsExt as _;
use std::process::{Child, Stdio};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use portcullis_canon::{Limits, Value, parse};

use crate::home::{Home, text};
use crate::proxy::{
    ASKS, CREATE, DELETE, Host, MAKES, Reply, in_time, lock_files, started, until_started,
};

/// What the stateless revision says with each request.
const META: &str = r#""_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientInfo":{"name":"t","version":"1"},"io.modelcontextprotocol/clientCapabilities":{}}"#;

/// A proxy that lets hosts in over HTTP.
pub(crate) struct Door {
    child: Child,
    place: String,
    token: String,
    /// What it said to the operator so far.
    said: Arc<Mutex<String>>,
}

/// A connection on which an answer is awaited.
pub(crate) struct Asked(TcpStream);

impl Door {
    /// Starts the proxy on the files of this home, with rules that are there.
    pub(crate) fn start(home: &Home, rules: &str, more: &[&str]) -> Self {
        let files = home.path("files").display().to_string();
        let usual = ["proxy", "-c", rules, "--files", &files, "--listen", "127.0.0.1:0", "--json"];
        let mut command = home.command(&[&usual, more].concat());
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let mut lines = BufReader::new(child.stderr.take().unwrap()).lines().map(Result::unwrap);
        let mut before = String::new();
        let told = lines.by_ref().find(|line| {
            before.push_str(line);
            line.contains("\"url\"")
        });
        let told = told.unwrap_or_else(|| panic!("it does not listen: {before}"));
        let told = parse(told.as_bytes(), &Limits::ENVELOPE).unwrap();
        let url = text(&told, "url");
        let place = url.strip_prefix("http://").and_then(|url| url.strip_suffix("/mcp")).unwrap();
        let token = fs::read_to_string(text(&told, "token_file")).unwrap();
        let said = Arc::new(Mutex::new(before));
        let kept = Arc::clone(&said);
        std::thread::spawn(move || {
            for line in lines {
                kept.lock().unwrap().push_str(&format!("\n{line}"));
            }
        });
        Self { child, place: place.to_owned(), token: token.trim_end().to_owned(), said }
    }

    /// Sends a request, with these headers for the usual ones.
    fn send(&self, host: &str, bearer: &str, more: &str, body: &str) -> Asked {
        let mut stream = TcpStream::connect(&self.place).unwrap();
        let request = format!(
            "POST /mcp HTTP/1.1\r\nhost: {host}\r\nauthorization: Bearer {bearer}\r\n{more}\
             accept: application/json, text/event-stream\r\ncontent-type: application/json\r\n\
             connection: close\r\ncontent-length: {}\r\n\r\n{body}",
            body.len()
        );
        stream.write_all(request.as_bytes()).unwrap();
        Asked(stream)
    }

    fn send_call_as(&self, host: &str, bearer: &str, tool: &str, arguments: &str) -> Asked {
        let headers = format!(
            "mcp-protocol-version: 2026-07-28\r\nmcp-method: tools/call\r\nmcp-name: {tool}\r\n"
        );
        let body = format!(
            r#"{{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{{"name":"{tool}","arguments":{arguments},{META}}}}}"#
        );
        self.send(host, bearer, &headers, &body)
    }

    fn send_call(&self, tool: &str, arguments: &str) -> Asked {
        self.send_call_as(&self.place, &self.token, tool, arguments)
    }

    pub(crate) fn call(&self, tool: &str, arguments: &str) -> Reply {
        self.send_call(tool, arguments).reply()
    }

    fn signal(&self, signal: rustix::process::Signal) {
        let pid = rustix::process::Pid::from_raw(i32::try_from(self.child.id()).unwrap()).unwrap();
        rustix::process::kill_process(pid, signal).unwrap();
    }

    /// Asks it to end; what it said to the operator.
    pub(crate) fn leave(mut self) -> String {
        self.signal(rustix::process::Signal::TERM);
        let until = Instant::now() + Duration::from_secs(60);
        let status = loop {
            if let Some(status) = self.child.try_wait().unwrap() {
                break status;
            }
            assert!(Instant::now() < until, "it does not end");
            std::thread::sleep(Duration::from_millis(5));
        };
        let said = self.said.lock().unwrap().clone();
        assert!(status.success(), "{said}");
        said
    }
}

impl Asked {
    /// The status and the body.
    fn answer(mut self) -> (u16, String) {
        let mut text = String::new();
        self.0.read_to_string(&mut text).unwrap();
        let (head, body) = text.split_once("\r\n\r\n").unwrap_or_else(|| panic!("{text}"));
        (head.split(' ').nth(1).unwrap().parse().unwrap(), body.to_owned())
    }

    fn reply(self) -> Reply {
        let (status, body) = self.answer();
        assert_eq!(status, 200, "{body}");
        let answer = parse(body.as_bytes(), &Limits::ENVELOPE).unwrap();
        let result = answer.get("result").unwrap_or_else(|| panic!("{answer:?}"));
        let said = result.pointer("/content/0/text").and_then(Value::as_str).unwrap();
        let failed = result.get("isError").and_then(Value::as_bool).unwrap_or(false);
        Reply { text: said.to_owned(), failed }
    }
}

fn rules(home: &Home, text: &str) -> String {
    home.write("rules.toml", text).display().to_string()
}

#[test]
fn a_write_waits_for_another_process_and_is_collected_once_over_http() {
    let home = Home::new();
    home.write("files/notes.txt", "hello");
    let door = Door::start(&home, &rules(&home, ASKS), &[]);
    let read = door.call("files_read", r#"{"path":"notes.txt"}"#);
    assert!(read.text.contains("hello") && !read.failed, "{read:?}");
    let waits = door.call("files_create", CREATE);
    assert_eq!((waits.word(), waits.failed), ("PENDING_APPROVAL", false));
    let inbox = home.run(&["inbox", "--json"]).json(0);
    let question = text(&inbox.get("questions").unwrap().as_array().unwrap()[0], "question");
    home.run(&["approve", &question, "--yes"]).exits(0);
    assert!(!home.path("files/a.txt").exists(), "an approval alone makes nothing");
    let collected = door.call("files_create", CREATE);
    assert!(collected.text.contains("a.txt") && !collected.failed, "{collected:?}");
    assert_eq!(door.call("files_create", CREATE).word(), "DUPLICATE");
    assert_eq!(fs::read_to_string(home.path("files/a.txt")).unwrap(), "one");
    // The token is in its file, and nowhere else.
    let token = door.token.clone();
    let file = home.path("config/portcullis/proxy.token");
    assert_eq!(fs::metadata(&file).unwrap().permissions().mode() & 0o7777, 0o600);
    let line = fs::read_to_string(format!("/proc/{}/cmdline", door.child.id())).unwrap();
    let said = door.leave();
    assert!(said.contains(" approve q_") && !said.contains(&token), "{said}");
    assert!(line.contains("--listen") && !line.contains(&token));
    home.run(&["verify"]).exits(0);
    // The conversation of a token is the same after a start anew.
    let door = Door::start(&home, &rules(&home, ASKS), &[]);
    assert_eq!(
        (door.token.as_str(), door.call("files_create", CREATE).word()),
        (&*token, "DUPLICATE")
    );
    door.leave();
}

#[test]
fn who_has_no_token_or_comes_by_another_name_makes_nothing() {
    let home = Home::new();
    let door = Door::start(&home, &rules(&home, MAKES), &[]);
    let (place, token) = (door.place.clone(), door.token.clone());
    let port = place.rsplit(':').next().unwrap();
    let rebound = format!("evil.example:{port}");
    for (host, bearer, status) in [
        (place.as_str(), "0000000000000000000000000000000000000000000000000000000000000000", 401),
        (rebound.as_str(), token.as_str(), 403),
    ] {
        let (told, _) = door.send_call_as(host, bearer, "files_create", CREATE).answer();
        assert_eq!(told, status, "{host}");
    }
    let page = "origin: https://evil.example\r\n";
    let (told, _) = door.send(&place, &token, page, "{}").answer();
    assert_eq!((told, started(&home.db())), (403, 0));
    assert!(!door.call("files_create", CREATE).failed, "the control");
    assert!(home.path("files/a.txt").exists());
    door.leave();
}

#[test]
fn a_door_killed_in_the_middle_of_a_write_leaves_one_question_and_no_second_write() {
    let home = Home::new();
    home.write("files/old.txt", "old");
    let rules = rules(&home, MAKES);
    let held = lock_files(&home);
    let mut door = Door::start(&home, &rules, &[]);
    let _asked = door.send_call("files_delete", DELETE);
    until_started(&home);
    door.signal(rustix::process::Signal::KILL);
    door.child.wait().unwrap();
    let door = Door::start(&home, &rules, &[]);
    for _ in 0..2 {
        assert_eq!(door.call("files_delete", DELETE).word(), "UNKNOWN_OUTCOME");
    }
    assert_eq!(door.call("files_delete", r#"{"path":"other.txt"}"#).word(), "BLOCKED");
    assert_eq!(started(&home.db()), 1, "no second write");
    let inbox = home.run(&["inbox", "--json"]).json(0);
    let [question] = inbox.get("questions").unwrap().as_array().unwrap() else {
        panic!("{inbox:?}")
    };
    assert_eq!(text(question, "kind"), "unknown_outcome");
    drop(held);
    assert!(home.path("files/old.txt").exists(), "it was killed before its effect");
    door.leave();
    home.run(&["verify"]).exits(0);
}

#[test]
fn a_pipe_and_a_door_on_one_database_make_one_change() {
    let home = Home::new();
    let mut host = Host::start(&home, MAKES);
    let door = Door::start(&home, &rules(&home, MAKES), &["--thread", "editor"]);
    let asked: Vec<Asked> = (0..10)
        .map(|_| {
            host.send_call("files_create", CREATE);
            door.send_call("files_create", CREATE)
        })
        .collect();
    let mut replies: Vec<Reply> = asked.into_iter().map(Asked::reply).collect();
    replies.extend((0..10).map(|_| host.hear_reply()));
    let others = |reply: &&Reply| !matches!(reply.word(), "DUPLICATE" | "IN_PROGRESS");
    let made: Vec<&Reply> = replies.iter().filter(others).collect();
    assert!(made.len() == 1 && !made[0].failed, "{replies:?}");
    assert_eq!(started(&home.db()), 1);
    assert!(host.leave().0.success());
    door.leave();
    home.run(&["verify"]).exits(0);
}

#[test]
fn what_is_on_its_way_finishes_and_is_answered_when_a_signal_comes() {
    let (home, asked, leaving) = in_time(|sent| {
        let home = Home::new();
        home.write("files/old.txt", "old");
        let held = lock_files(&home);
        let door = Door::start(&home, &rules(&home, MAKES), &[]);
        *sent = Instant::now();
        let asked = door.send_call("files_delete", DELETE);
        until_started(&home);
        let place = door.place.clone();
        let leaving = std::thread::spawn(move || door.leave());
        let until = Instant::now() + Duration::from_secs(60);
        while TcpStream::connect(&place).is_ok() {
            assert!(Instant::now() < until, "it still lets hosts in");
            std::thread::sleep(Duration::from_millis(2));
        }
        drop(held);
        (home, asked, leaving)
    });
    assert!(!asked.reply().failed);
    leaving.join().unwrap();
    assert!(!home.path("files/old.txt").exists());
}

#[test]
fn where_nobody_could_be_let_in_safely_nothing_is_made() {
    let home = Home::new();
    let token = home.path("config/portcullis/proxy.token");
    for open in ["0.0.0.0:0", "[::]:0", "192.0.2.1:0"] {
        home.run(&["proxy", "--listen", open]).refuses(
            1,
            "E9501",
            &["other machines", "behind_tls"],
        );
    }
    let odd = home.write("odd.toml", "[proxy]\norigins = ['null']\n").display().to_string();
    let listen = ["proxy", "-c", &odd, "--listen", "127.0.0.1:0"];
    home.run(&listen).refuses(1, "E9501", &["`null` is no origin"]);
    assert!(!token.exists() && !home.db().exists());
    home.run(&["proxy", "--token-file", "x"]).exits(2);
    let open = home.write("open.token", "0123456789abcdef0123456789abcdef");
    fs::set_permissions(&open, fs::Permissions::from_mode(0o644)).unwrap();
    let named = open.display().to_string();
    let listen = ["proxy", "--listen", "127.0.0.1:0", "--token-file", &named];
    home.run(&listen).refuses(1, "E9502", &["by others"]);
    assert!(!home.db().exists());
}
