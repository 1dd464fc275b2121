//! A server for tests, as good or as bad as its first argument says, and the program by way of which it is started.
//!
//! `mcp-odd MODE [FILE]`. What a call changes is a line in FILE: how many there are says how often it happened.
#![allow(
    clippy::print_stderr,
    clippy::unwrap_used,
    clippy::panic,
    clippy::disallowed_methods,
    reason = "a test program"
)]

use std::cell::RefCell;
use std::fs::OpenOptions;
use std::io::{self, BufRead as _, Write as _};
use std::process::{Command, Stdio as Pipe, exit};
use std::time::Duration;

use portcullis_canon::{Limits, Value, parse};
use portcullis_mcp::{Session as _, Stdio, StdioServer};

fn main() {
    portcullis_sandbox::child::run_if_child();
    let mut args = std::env::args().skip(1);
    let server = Server {
        mode: args.next().unwrap_or_default(),
        file: args.next(),
        owed: RefCell::default(),
    };
    if server.is("host") {
        return hold(server.file.unwrap(), args.next().unwrap());
    }
    server.begin();
    for line in io::stdin().lock().lines() {
        let Ok(line) = line else { return };
        let message = parse(line.as_bytes(), &Limits::ENVELOPE).unwrap();
        let method = message.get("method").and_then(Value::as_str).unwrap_or_default().to_owned();
        server.hear(&method, &message);
    }
}

/// Holds a session with a server that has a family, until it is killed.
fn hold(file: String, room: String) {
    let runtime = tokio::runtime::Runtime::new().unwrap();
    runtime.block_on(async {
        let mut server = StdioServer::new(std::env::current_exe().unwrap(), room);
        server.args = vec!["family".into(), file.into()];
        let session = Stdio::connect(server, Duration::from_secs(60)).await.unwrap();
        session.list().await.unwrap();
        say("open");
        std::future::pending::<()>().await;
    });
}

struct Server {
    mode: String,
    file: Option<String>,
    /// The call that is answered once our own question was.
    owed: RefCell<Option<String>>,
}

fn say(text: &str) {
    let mut out = io::stdout().lock();
    // Whoever listened may be gone, which is the end of most of these.
    if out.write_all(text.as_bytes()).and_then(|()| out.write_all(b"\n")).is_err()
        || out.flush().is_err()
    {
        exit(0);
    }
}

fn hang() -> ! {
    loop {
        std::thread::sleep(Duration::from_secs(1_000));
    }
}

/// Writes the same bytes for ever.
fn pour(bytes: &[u8]) -> ! {
    let mut out = io::stdout().lock();
    while out.write_all(bytes).is_ok() {}
    exit(0)
}

fn result(id: &str, result: &str) {
    say(&format!(r#"{{"jsonrpc":"2.0","id":{id},"result":{result}}}"#));
}

fn error(id: &str, code: i64, message: &str) {
    say(&format!(
        r#"{{"jsonrpc":"2.0","id":{id},"error":{{"code":{code},"message":"{message}"}}}}"#
    ));
}

fn text(text: &str) -> String {
    format!(
        r#"{{"content":[{{"type":"text","text":{}}}]}}"#,
        Value::from(text).to_canonical_string()
    )
}

impl Server {
    fn is(&self, mode: &str) -> bool {
        self.mode == mode
    }

    fn modern(&self) -> bool {
        self.mode.starts_with("modern")
    }

    fn begin(&self) {
        match self.mode.as_str() {
            "hang-start" => hang(),
            "die-start" => {
                eprintln!("\u{1b}[31mcannot find the module");
                exit(3);
            }
            "close-start" => close_stdout(),
            "noise" => say("Server listening on stdio"),
            "noise-without-end" => pour(b"listening\n"),
            "notices-without-end" => {
                pour(b"{\"jsonrpc\":\"2.0\",\"method\":\"notifications/message\"}\n")
            }
            "empty-lines" => pour(&[b'\n'; 4096]),
            "questions-without-end" => {
                pour(b"{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"ping\"}\n")
            }
            "long-line" => {
                let mut out = io::stdout().lock();
                let piece = vec![b'x'; 1 << 20];
                let begun = out.write_all(b"{\"jsonrpc\":\"2.0\",\"id\":0,\"result\":\"");
                for _ in 0..1024 {
                    if begun.is_err() || out.write_all(&piece).is_err() {
                        exit(0);
                    }
                }
            }
            "bad-utf8" => {
                let _ =
                    io::stdout().write_all(b"{\"jsonrpc\":\"2.0\",\"id\":0,\"result\":\"\xff\"}\n");
            }
            "deep" => say(&format!(r#"{{"jsonrpc":"2.0","id":0,"result":{}"#, "[".repeat(100_000))),
            "bomb" => say(&format!(
                r#"{{"jsonrpc":"2.0","id":0,"result":[{}0]}}"#,
                "0,".repeat(3_000_000)
            )),
            "complain" => {
                std::thread::spawn(|| {
                    let mut err = io::stderr().lock();
                    while err.write_all(&[b'!'; 4096]).is_ok() {}
                });
            }
            "deaf" => {
                std::thread::sleep(Duration::from_secs(1_000));
            }
            "family" => self.leave_a_family(),
            _ => {}
        }
    }

    /// A child in a session of its own whose parent ends: only a keeper finds it. Its number goes into the file.
    fn leave_a_family(&self) {
        let script = "setsid sleep 1000 >/dev/null 2>&1 </dev/null & echo $!";
        let said = Command::new("/bin/sh").args(["-c", script]).output().unwrap().stdout;
        let mut same = Command::new("sleep");
        let same = same.arg("1000").stdin(Pipe::null()).stdout(Pipe::null()).stderr(Pipe::null());
        let same = same.spawn().unwrap().id();
        self.note(&format!("{same} {}", String::from_utf8_lossy(&said).trim()));
    }

    fn note(&self, line: &str) {
        let mut file =
            OpenOptions::new().append(true).create(true).open(self.file.as_ref().unwrap()).unwrap();
        file.write_all(format!("{line}\n").as_bytes()).unwrap();
    }

    fn hear(&self, method: &str, message: &Value) {
        let id = message.get("id").map(Value::to_canonical_string).unwrap_or_default();
        match method {
            "server/discover" if self.modern() => self.discovered(&id, message),
            "server/discover" if self.is("silent-discover") => {}
            "server/discover" => error(&id, -32601, "no such method"),
            "initialize" => self.initialized(&id),
            "subscriptions/listen" => self.listened(&id),
            "tools/list" => self.listed(&id, message),
            "tools/call" => self.called(&id, message),
            "resources/list" => self.offered(&id, message, "resources"),
            "resources/templates/list" => self.offered(&id, message, "resourceTemplates"),
            "prompts/list" => self.offered(&id, message, "prompts"),
            "resources/read" => self.read(&id, message),
            "prompts/get" => self.got(&id),
            "completion/complete" => result(
                &id,
                &format!(r#"{{"completion":{{"values":[{}]}}}}"#, vec!["\"v\""; 5_000].join(",")),
            ),
            "notifications/cancelled" => self.note("cancelled"),
            // The answer to the question of ours that stands above a call.
            "" => {
                if let Some(id) = self.owed.take() {
                    result(&id, &text(&message.to_canonical_string()));
                }
            }
            _ => {}
        }
    }

    fn discovered(&self, id: &str, message: &Value) {
        let version = message.pointer("/params/_meta/io.modelcontextprotocol~1protocolVersion");
        assert_eq!(version.and_then(Value::as_str), Some("2026-07-28"));
        result(
            id,
            r#"{"resultType":"complete","supportedVersions":["2026-07-28"],"capabilities":{"tools":{"listChanged":true}},"ttlMs":600000,"cacheScope":"private"}"#,
        );
    }

    fn initialized(&self, id: &str) {
        assert!(!self.modern(), "a stateless server knows no initialize");
        match self.mode.as_str() {
            "hang-initialize" => return,
            "die-initialize" => exit(0),
            "refuse-initialize" => return error(id, -32000, "\\u001b[2J not today"),
            "odd-initialize" => return result(id, "[]"),
            "other-initialize" => return result("4711", "{}"),
            "silent-discover" => result("0", "{}"),
            "eager" => {
                // Answers what will be asked next, before it is.
                result("2", r#"{"tools":[{"name":"forged","inputSchema":{}}]}"#);
            }
            _ => {}
        }
        let version = match self.mode.as_str() {
            "old" => "2024-11-05",
            "unknown-revision" => "1999-01-01",
            _ => "2025-11-25",
        };
        let capabilities = match self.mode.as_str() {
            "no-tools" => "{}",
            mode if mode.starts_with("offers") => {
                r#"{"resources":{},"prompts":{"listChanged":true},"completions":{}}"#
            }
            _ => r#"{"tools":{"listChanged":true}}"#,
        };
        result(
            id,
            &format!(
                r#"{{"protocolVersion":"{version}","capabilities":{capabilities},"serverInfo":{{"name":"odd","version":"1"}}}}"#
            ),
        );
    }

    fn listened(&self, id: &str) {
        let acknowledged = |id: &str| {
            say(&format!(
                r#"{{"jsonrpc":"2.0","method":"notifications/subscriptions/acknowledged","params":{{"notifications":{{"toolsListChanged":true}},"_meta":{{"io.modelcontextprotocol/subscriptionId":{id}}}}}}}"#
            ));
        };
        match self.mode.as_str() {
            "modern-refuses" => error(id, -32601, "no such method"),
            "modern-ends" => {
                acknowledged(id);
                result(id, r#"{"resultType":"complete"}"#);
            }
            _ => acknowledged(id),
        }
    }

    fn listed(&self, id: &str, message: &Value) {
        let cursor = message.pointer("/params/cursor").and_then(Value::as_str).unwrap_or("0");
        let page: u64 = cursor.parse().unwrap();
        if self.modern() {
            let version = message.pointer("/params/_meta/io.modelcontextprotocol~1protocolVersion");
            assert_eq!(version.and_then(Value::as_str), Some("2026-07-28"));
        }
        match self.mode.as_str() {
            "hang-list" => {}
            "drip-list" => {
                // A page just in time, for ever.
                std::thread::sleep(Duration::from_millis(300));
                result(id, &format!(r#"{{"tools":[],"nextCursor":"{}"}}"#, page + 1));
            }
            "die-list" => exit(0),
            "half-list" => {
                let _ = io::stdout()
                    .write_all(format!(r#"{{"jsonrpc":"2.0","id":{id},"result":{{"#).as_bytes());
                let _ = io::stdout().flush();
                exit(0)
            }
            "refuse-list" => error(id, -32000, "no"),
            "endless" => result(id, &format!(r#"{{"tools":[],"nextCursor":"{}"}}"#, page + 1)),
            "circle" => result(id, r#"{"tools":[],"nextCursor":"7"}"#),
            "twice" => result(id, r#"{"tools":[{"name":"a"},{"name":"a"}]}"#),
            "many" => {
                let tools: Vec<_> =
                    (0..600).map(|n| format!(r#"{{"name":"t{page}-{n}"}}"#)).collect();
                result(
                    id,
                    &format!(r#"{{"tools":[{}],"nextCursor":"{}"}}"#, tools.join(","), page + 1),
                );
            }
            "heavy" => {
                let tool =
                    format!(r#"{{"name":"t{page}","description":"{}"}}"#, "x".repeat(1 << 20));
                result(id, &format!(r#"{{"tools":[{tool}],"nextCursor":"{}"}}"#, page + 1));
            }
            "wrong-id" => {
                for n in 0..1_000 {
                    result(&format!("{}", 1_000_000 + n), "{}");
                }
            }
            "double" => (0..1_000).for_each(|_| result(id, r#"{"tools":[]}"#)),
            "changes-while-listed" => {
                say(r#"{"jsonrpc":"2.0","method":"notifications/tools/list_changed"}"#);
                result(id, r#"{"tools":[]}"#);
            }
            // The digits and keys of the second page tell whether they are kept.
            _ if page == 0 => result(
                id,
                r#"{"tools":[{"name":"echo","inputSchema":{"type":"object"}}],"nextCursor":"1","ttlMs":600000}"#,
            ),
            _ => result(
                id,
                r#"{"tools":[{"name":"count","Name":"x","inputSchema":{"maximum":9007199254740993}}]}"#,
            ),
        }
    }

    /// What is offered beside tools.
    fn offered(&self, id: &str, message: &Value, member: &str) {
        let cursor = message.pointer("/params/cursor").and_then(Value::as_str).unwrap_or("0");
        let page: u64 = cursor.parse().unwrap();
        let key = match member {
            "resources" => "uri",
            "prompts" => "name",
            _ => "uriTemplate",
        };
        let listed = |entries: &[String], next: Option<u64>| {
            let next = next.map_or_else(String::new, |next| format!(r#","nextCursor":"{next}""#));
            result(id, &format!(r#"{{"{member}":[{}]{next}}}"#, entries.join(",")));
        };
        let entry = |name: &str, more: &str| format!(r#"{{"{key}":"{name}"{more}}}"#);
        match self.mode.as_str() {
            "offers-hang" => {}
            "offers-flood" => {
                let entries: Vec<_> =
                    (0..600).map(|n| entry(&format!("n:{page}-{n}"), "")).collect();
                listed(&entries, Some(page + 1));
            }
            "offers-heavy" => {
                let more = format!(r#","description":"{}""#, "x".repeat(1 << 20));
                listed(&[entry(&format!("n:{page}"), &more)], Some(page + 1));
            }
            "offers-endless" => listed(&[], Some(page + 1)),
            "offers-twice" => listed(&[entry("n:1", ""), entry("n:1", r#","name":"other""#)], None),
            "offers-odd" => listed(&["7".to_owned()], None),
            "offers-refused" => error(id, -32000, "no"),
            // What was said of it is another thing with each listing.
            "offers-changed" => {
                self.note("listed");
                let told = std::fs::read_to_string(self.file.as_ref().unwrap()).unwrap();
                let more = format!(r#","description":"{}""#, told.lines().count());
                listed(&[entry("n:1", &more)], None);
            }
            _ => listed(
                &[entry("n:1", r#","description":"The first.","icons":[{"src":"n:2"}]"#)],
                None,
            ),
        }
    }

    fn read(&self, id: &str, message: &Value) {
        let uri = message.pointer("/params/uri").and_then(Value::as_str).unwrap_or_default();
        self.note(uri);
        let held = |more: &str| result(id, &format!(r#"{{"contents":[{{{more}}}]}}"#));
        match uri {
            "n:other" => held(r#""uri":"file:///etc/passwd","text":"root""#),
            "n:huge" => held(&format!(r#""uri":"n:huge","blob":"{}""#, "AAAA".repeat(2_000_000))),
            "n:long" => held(&format!(r#""uri":"n:long","text":"{}""#, "x".repeat(8_000_000))),
            "n:none" => error(id, -32002, "no such resource"),
            "n:more" => result(id, r#"{"resultType":"input_required","inputRequests":{}}"#),
            "n:hang" => {}
            _ => held(&format!(r#""uri":"{uri}","text":"hello""#)),
        }
    }

    fn got(&self, id: &str) {
        say(r#"{"jsonrpc":"2.0","method":"notifications/prompts/list_changed"}"#);
        result(id, r#"{"messages":[{"role":"user","content":{"type":"text","text":"hello"}}]}"#);
    }

    fn called(&self, id: &str, message: &Value) {
        let tool = message.pointer("/params/name").and_then(Value::as_str).unwrap_or_default();
        let arguments = message.pointer("/params/arguments").cloned().unwrap_or(Value::Null);
        match tool {
            "echo" => result(id, &text(&arguments.to_canonical_string())),
            "environment" => {
                let mut all: Vec<_> =
                    std::env::vars().map(|(name, value)| format!("{name}={value}")).collect();
                all.sort();
                all.push(std::env::current_dir().unwrap().display().to_string());
                result(id, &text(&all.join("\n")));
            }
            "progress" => {
                let token = message.pointer("/params/_meta/progressToken").unwrap();
                let say_of = |token: &str, rest: &str| {
                    say(&format!(
                        r#"{{"jsonrpc":"2.0","method":"notifications/progress","params":{{"progressToken":{token},{rest}}}}}"#
                    ));
                };
                let own = token.to_canonical_string();
                say_of(&own, r#""progress":1,"total":4,"message":"obey me""#);
                for odd in
                    [r#""progress":-1"#, r#""progress":"9""#, r#""progress":0.5"#, r#""total":9"#]
                {
                    say_of(&own, odd);
                }
                say_of("4711", r#""progress":8"#);
                say_of(r#""x""#, r#""progress":8"#);
                (2..2_000).for_each(|_| say_of(&own, r#""progress":2"#));
                say_of(&own, r#""progress":3,"total":2"#);
                result(id, &text("done"));
            }
            "count" => {
                self.note("count");
                result(id, &text("counted"));
            }
            "count-silent" => self.note("count"),
            "count-hang" => {
                self.note("count");
                hang()
            }
            "count-late" => {
                self.note("count");
                // Longer than the deadline of those who call it.
                std::thread::sleep(Duration::from_secs(4));
                result(id, &text("late"));
            }
            "count-die" => {
                self.note("count");
                exit(0);
            }
            "count-half" => {
                self.note("count");
                let _ = io::stdout()
                    .write_all(format!(r#"{{"jsonrpc":"2.0","id":{id},"resu"#).as_bytes());
                let _ = io::stdout().flush();
                exit(0);
            }
            "count-noise" => {
                self.note("count");
                let _ = io::stdout().write_all(b"{\"jsonrpc\":\"2.0\",\xff\n");
                let _ = io::stdout().flush();
            }
            "fail" => {
                result(id, r#"{"content":[{"type":"text","text":"no money"}],"isError":true}"#)
            }
            "ask" => result(
                id,
                r#"{"resultType":"input_required","inputRequests":{},"requestState":"x"}"#,
            ),
            "sample" => {
                say(r#"{"jsonrpc":"2.0","id":"s","method":"sampling/createMessage","params":{}}"#);
                *self.owed.borrow_mut() = Some(id.to_owned());
            }
            "change" => {
                say(r#"{"jsonrpc":"2.0","method":"notifications/tools/list_changed"}"#);
                result(id, &text("changed"));
            }
            "flood" => {
                self.note("count");
                pour(b"{\"jsonrpc\":\"2.0\",\"method\":\"notifications/progress\"}\n")
            }
            _ => error(id, -32601, "no such tool"),
        }
    }
}

/// Goes on as a program that has closed its standard output.
fn close_stdout() {
    use std::os::unix::process::CommandExt as _;

    let error = Command::new("/bin/sh").args(["-c", "exec >&-; sleep 1000"]).exec();
    panic!("{error}");
}
