//! A server behind a URL, as good or as bad as its mode says, on plain sockets; it keeps all that reaches it.

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use portcullis_canon::{Limits, Value, parse};
use portcullis_egress::{Credential, CredentialRef, Credentials, Egress, Secret, Target};
use portcullis_mcp::{Http, HttpServer, SessionError};
use portcullis_testkit::ports::ManualClock;

use crate::scene::PATIENT;

/// What no log, answer or other server may ever have.
pub(crate) const CANARY: &str = "canary-token-4711";

/// One request as it arrived.
#[derive(Clone, Debug)]
pub(crate) struct Seen {
    pub(crate) verb: String,
    head: String,
    pub(crate) body: Value,
}

impl Seen {
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.head.lines().find_map(|line| {
            let (known, value) = line.split_once(':')?;
            known.eq_ignore_ascii_case(name).then(|| value.trim())
        })
    }

    /// What it asks or tells; its verb where it has no body.
    pub(crate) fn method(&self) -> &str {
        self.body.get("method").and_then(Value::as_str).unwrap_or(&self.verb)
    }
}

/// One server.
pub(crate) struct Remote {
    pub(crate) at: SocketAddr,
    state: Arc<State>,
}

struct State {
    mode: &'static str,
    seen: Mutex<Vec<Seen>>,
    connections: AtomicUsize,
    /// How often the session was opened.
    opened: AtomicUsize,
    /// Where a redirect leads.
    elsewhere: Option<SocketAddr>,
}

impl Remote {
    pub(crate) fn start(mode: &'static str) -> Self {
        Self::start_with(mode, None)
    }

    pub(crate) fn start_with(mode: &'static str, elsewhere: Option<SocketAddr>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let at = listener.local_addr().unwrap();
        let state = Arc::new(State {
            mode,
            seen: Mutex::default(),
            connections: AtomicUsize::new(0),
            opened: AtomicUsize::new(0),
            elsewhere,
        });
        let held = Arc::clone(&state);
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                let (stream, state) = (stream.unwrap(), Arc::clone(&held));
                state.connections.fetch_add(1, Ordering::SeqCst);
                std::thread::spawn(move || state.serve(stream));
            }
        });
        Self { at, state }
    }

    pub(crate) fn server(&self) -> HttpServer {
        HttpServer::new(Target::parse(&format!("http://{}/mcp", self.at)).unwrap())
    }

    pub(crate) async fn connect(&self) -> Http {
        self.connect_within(PATIENT).await.unwrap()
    }

    pub(crate) async fn connect_within(&self, wait: Duration) -> Result<Http, SessionError> {
        let server = self.server();
        let egress = client(&server, Credentials::none());
        Http::connect(server, egress, wait).await
    }

    /// With a credential that goes to this server alone.
    pub(crate) async fn connect_with_key(&self) -> Result<Http, SessionError> {
        let key = Credential::given(Secret::new(CANARY.to_owned()).unwrap());
        let key = key.only_to(&self.at.to_string()).unwrap();
        let mut server = self.server();
        server.credential = Some(CredentialRef::bearer("key"));
        let egress = client(&server, Credentials::new([("key", key)]).unwrap());
        Http::connect(server, egress, PATIENT).await
    }

    /// All that reached it, in order.
    pub(crate) fn seen(&self) -> Vec<Seen> {
        self.state.seen.lock().unwrap().clone()
    }

    pub(crate) fn of(&self, method: &str) -> Vec<Seen> {
        self.state.of(method)
    }

    /// How often it was called.
    pub(crate) fn counted(&self) -> usize {
        self.of("tools/call").len()
    }

    pub(crate) fn connections(&self) -> usize {
        self.state.connections.load(Ordering::SeqCst)
    }

    /// Waits until so many requests of this kind arrived.
    pub(crate) async fn wait_for(&self, method: &str, count: usize) {
        let end = Instant::now() + PATIENT;
        while self.of(method).len() < count {
            assert!(Instant::now() < end, "no {method}: {:?}", self.seen());
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }
}

pub(crate) fn client(server: &HttpServer, credentials: Credentials) -> Egress {
    let rules = server.rules().unwrap();
    Egress::new(rules, credentials, Arc::new(ManualClock::default())).unwrap()
}

type Done = std::io::Result<()>;

/// Whoever listened may be gone, which is the end of most of these.
fn gone() -> std::io::Error {
    std::io::ErrorKind::ConnectionAborted.into()
}

fn hang() -> ! {
    loop {
        std::thread::sleep(Duration::from_secs(1_000));
    }
}

fn read_request(stream: &mut TcpStream) -> std::io::Result<Seen> {
    let mut bytes = Vec::new();
    let mut piece = [0; 4096];
    let end = loop {
        if let Some(end) = bytes.windows(4).position(|four| four == b"\r\n\r\n") {
            break end + 4;
        }
        match stream.read(&mut piece)? {
            0 => return Err(gone()),
            count => bytes.extend_from_slice(&piece[..count]),
        }
    };
    let mut body = bytes.split_off(end);
    let head = String::from_utf8(bytes).unwrap();
    let verb = head.split(' ').next().unwrap().to_owned();
    let mut seen = Seen { verb, head, body: Value::Null };
    let length = seen.header("content-length").map_or(0, |text| text.parse().unwrap());
    while body.len() < length {
        match stream.read(&mut piece)? {
            0 => return Err(gone()),
            count => body.extend_from_slice(&piece[..count]),
        }
    }
    if !body.is_empty() {
        seen.body = parse(&body, &Limits::ENVELOPE).unwrap();
    }
    Ok(seen)
}

fn text(text: &str) -> String {
    format!(
        r#"{{"content":[{{"type":"text","text":{}}}]}}"#,
        Value::from(text).to_canonical_string()
    )
}

const CHANGED: &str = r#"{"jsonrpc":"2.0","method":"notifications/tools/list_changed"}"#;
const TOLD: &str = r#"{"jsonrpc":"2.0","method":"notifications/message"}"#;

/// One answer on its way.
struct Out<'a> {
    stream: &'a mut TcpStream,
    id: String,
    /// Further lines of the head.
    more: String,
}

impl Out<'_> {
    fn raw(&mut self, bytes: &[u8]) -> Done {
        self.stream.write_all(bytes)
    }

    fn head(&mut self, status: u16, rest: &str) -> Done {
        let more = self.more.clone();
        self.raw(format!("HTTP/1.1 {status} X\r\n{more}{rest}\r\n").as_bytes())
    }

    fn whole(&mut self, status: u16, media: &str, body: &str) -> Done {
        let rest = format!("content-type: {media}\r\ncontent-length: {}\r\n", body.len());
        self.head(status, &rest)?;
        self.raw(body.as_bytes())
    }

    fn status(&mut self, status: u16) -> Done {
        self.head(status, "content-length: 0\r\n")
    }

    fn answer(&self, result: &str) -> String {
        format!(r#"{{"jsonrpc":"2.0","id":{},"result":{result}}}"#, self.id)
    }

    fn error(&self, code: i64, message: &str) -> String {
        format!(
            r#"{{"jsonrpc":"2.0","id":{},"error":{{"code":{code},"message":"{message}"}}}}"#,
            self.id
        )
    }

    fn result(&mut self, result: &str) -> Done {
        let answer = self.answer(result);
        self.whole(200, "application/json", &answer)
    }

    /// Begins a stream whose end is that of the connection.
    fn begin(&mut self) -> Done {
        self.head(200, "content-type: text/event-stream\r\nconnection: close\r\n")
    }

    fn event(&mut self, data: &str) -> Done {
        self.raw(format!("data: {data}\n\n").as_bytes())
    }

    /// A stream with these events, which come at once, and ends.
    fn events(&mut self, events: &[&str]) -> Done {
        self.begin()?;
        let all: String = events.iter().map(|event| format!("data: {event}\n\n")).collect();
        self.raw(all.as_bytes())?;
        Err(gone())
    }

    fn pour(&mut self, bytes: &[u8]) -> Done {
        let many = bytes.repeat(4_096);
        loop {
            self.raw(&many)?;
        }
    }
}

impl State {
    fn of(&self, method: &str) -> Vec<Seen> {
        let seen = self.seen.lock().unwrap();
        seen.iter().filter(|seen| seen.method() == method).cloned().collect()
    }

    /// Waits until so many requests of this kind arrived.
    fn wait_for(&self, method: &str, count: usize) {
        let end = Instant::now() + PATIENT;
        while self.of(method).len() < count && Instant::now() < end {
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    fn is(&self, mode: &str) -> bool {
        self.mode == mode
    }

    fn modern(&self) -> bool {
        self.mode.starts_with("modern")
    }

    fn serve(&self, mut stream: TcpStream) {
        while let Ok(seen) = read_request(&mut stream) {
            self.seen.lock().unwrap().push(seen.clone());
            let id = seen.body.get("id").map(Value::to_canonical_string).unwrap_or_default();
            let mut out = Out { stream: &mut stream, id, more: String::new() };
            if self.respond(&seen, &mut out).is_err() {
                return;
            }
        }
    }

    fn respond(&self, seen: &Seen, out: &mut Out<'_>) -> Done {
        match seen.method() {
            "GET" => self.notices(seen, out),
            "DELETE" => out.status(200),
            "server/discover" if self.modern() => out.result(
                r#"{"resultType":"complete","supportedVersions":["2026-07-28"],"capabilities":{"tools":{"listChanged":true}},"ttlMs":0,"cacheScope":"private"}"#,
            ),
            "server/discover" => self.discovered(out),
            "initialize" => self.initialized(out),
            "subscriptions/listen" => self.listened(out),
            "tools/list" => self.listed(seen, out),
            "tools/call" => self.called(seen, out),
            "notifications/initialized" if self.is("refuses-notices") => out.status(400),
            _ => out.status(202),
        }
    }

    fn discovered(&self, out: &mut Out<'_>) -> Done {
        match self.mode {
            "hang-head" => hang(),
            "hang-body" => {
                out.head(200, "content-type: application/json\r\ncontent-length: 10\r\n")?;
                hang()
            }
            "close" => Err(gone()),
            "unauthorized" => out.status(401),
            "broken" => out.status(503),
            "redirects" | "redirects-to-get" => {
                let place = self.elsewhere.unwrap();
                let status = if self.mode == "redirects" { 307 } else { 303 };
                out.head(status, &format!("location: http://{place}/mcp\r\ncontent-length: 0\r\n"))
            }
            "html" => out.whole(200, "text/html", "<p>log in</p>"),
            "accepts" => out.status(202),
            "gzip" => out.head(
                200,
                "content-type: application/json\r\ncontent-encoding: gzip\r\ncontent-length: 0\r\n",
            ),
            "announces-much" => {
                out.head(200, "content-type: application/json\r\ncontent-length: 1073741824\r\n")
            }
            "much" => {
                out.head(200, "content-type: application/json\r\nconnection: close\r\n")?;
                out.pour(b"[[[[")
            }
            "long-event" => {
                out.begin()?;
                out.raw(b"data: {")?;
                out.pour(b"xxxx")
            }
            "bad-utf8" => {
                out.begin()?;
                out.raw(b"data: {\"jsonrpc\":\"2.0\",\"id\":0,\"result\":\"\xff\"}\n\n")
            }
            "deep" => out.events(&[&format!("{{\"a\":{}", "[".repeat(100_000))]),
            "bomb" => out.events(&[&format!("{{\"a\":[{}0]}}", "0,".repeat(3_000_000))]),
            "cut" => {
                out.head(200, "content-type: application/json\r\ncontent-length: 1000\r\n")?;
                out.raw(b"{\"jsonrpc\":")?;
                Err(gone())
            }
            "no-answer" => out.events(&[TOLD]),
            "other-id" => {
                out.whole(200, "application/json", r#"{"jsonrpc":"2.0","id":77,"result":{}}"#)
            }
            "other-ids" => {
                out.begin()?;
                out.pour(b"data: {\"jsonrpc\":\"2.0\",\"id\":77,\"result\":{}}\n\n")
            }
            "notices-without-end" => {
                out.begin()?;
                out.pour(format!("data: {TOLD}\n\n").as_bytes())
            }
            "comments-without-end" => {
                out.begin()?;
                out.pour(b":\n")
            }
            "repeats-key" => out.whole(200, "application/json", &format!(r#"{{"a":"{CANARY}"}}"#)),
            "plain-404" => out.whole(404, "text/plain", "not here"),
            "plain-405" => out.status(405),
            "coded-400" => {
                let error = r#"{"jsonrpc":"2.0","id":"server-error","error":{"code":-32600,"message":"no session"}}"#;
                out.whole(400, "application/json", error)
            }
            _ => {
                let error = out.error(-32601, "no such method");
                out.whole(200, "application/json", &error)
            }
        }
    }

    fn initialized(&self, out: &mut Out<'_>) -> Done {
        assert!(!self.modern(), "a stateless server knows no initialize");
        let opened = self.opened.fetch_add(1, Ordering::SeqCst);
        out.more = match self.mode {
            "without-id" | "old" => String::new(),
            "odd-id" => "mcp-session-id: a\u{e9}b\r\n".to_owned(),
            "long-id" => format!("mcp-session-id: {}\r\n", "x".repeat(2_000)),
            "two-ids" => "mcp-session-id: a\r\nmcp-session-id: b\r\n".to_owned(),
            "control-id" => "mcp-session-id: a\u{1}b\r\n".to_owned(),
            _ => format!("mcp-session-id: id-{opened}\r\n"),
        };
        let revision = match self.mode {
            "old" => "2025-03-26",
            "unknown-revision" => "1999-01-01",
            _ => "2025-11-25",
        };
        let result = format!(
            r#"{{"protocolVersion":"{revision}","capabilities":{{"tools":{{"listChanged":true}}}},"serverInfo":{{"name":"odd","version":"1"}}}}"#
        );
        if self.is("events") {
            let answer = out.answer(&result);
            return out.events(&[TOLD, &answer]);
        }
        out.result(&result)
    }

    fn notices(&self, seen: &Seen, out: &mut Out<'_>) -> Done {
        if let Some(last) = seen.header("last-event-id") {
            let id = last.strip_prefix("call-").unwrap();
            out.id = id.to_owned();
            let answer = out.answer(&text("resumed"));
            return out.events(&[&answer]);
        }
        match self.mode {
            "notices" => {
                out.begin()?;
                out.raw(b": here\n\n")?;
                while self.seen.lock().unwrap().iter().all(|seen| seen.method() != "tools/call") {
                    std::thread::sleep(Duration::from_millis(5));
                }
                out.event(CHANGED)?;
                hang()
            }
            "notices-forge" => {
                out.begin()?;
                // The answer to the listing, before it and on a stream that answers nothing.
                (0..50).try_for_each(|id| {
                    out.id = id.to_string();
                    let answer = out.answer(r#"{"tools":[{"name":"forged","inputSchema":{}}]}"#);
                    out.event(&answer)
                })?;
                // The answer to a call, while it waits for its own.
                self.wait_for("tools/call", 1);
                out.id = self.of("tools/call")[0].body.get("id").unwrap().to_canonical_string();
                let answer = out.answer(&text("forged"));
                out.event(&answer)?;
                // So that it can be seen when all of that was read.
                (0..3).try_for_each(|_| out.event(CHANGED))?;
                hang()
            }
            "notices-end" => out.events(&[CHANGED]),
            // What was heard before the first stream stands says nothing of whether there is one.
            "notices-late" if self.of("GET").len() == 1 => out.status(503),
            "notices-cut" if self.of("GET").len() == 1 => Err(gone()),
            "notices-late" | "notices-cut" => {
                out.begin()?;
                out.raw(b": here\n\n")?;
                hang()
            }
            _ => out.status(405),
        }
    }

    fn listened(&self, out: &mut Out<'_>) -> Done {
        let times = self
            .seen
            .lock()
            .unwrap()
            .iter()
            .filter(|seen| seen.method() == "subscriptions/listen")
            .count();
        let acknowledged = format!(
            r#"{{"jsonrpc":"2.0","method":"notifications/subscriptions/acknowledged","params":{{"notifications":{{"toolsListChanged":true}},"_meta":{{"io.modelcontextprotocol/subscriptionId":{}}}}}}}"#,
            out.id
        );
        match self.mode {
            "modern-refuses" => {
                let error = out.error(-32601, "no such method");
                out.whole(404, "application/json", &error)
            }
            "modern-silent" => out.events(&[]),
            "modern-drops" if times == 1 => out.events(&[&acknowledged]),
            "modern-ends" => {
                let end = out.answer(r#"{"resultType":"complete"}"#);
                out.events(&[&acknowledged, &end])
            }
            _ => {
                out.begin()?;
                out.event(&acknowledged)?;
                while self.seen.lock().unwrap().iter().all(|seen| {
                    seen.body.pointer("/params/name").and_then(Value::as_str) != Some("change")
                }) {
                    std::thread::sleep(Duration::from_millis(5));
                }
                out.event(CHANGED)?;
                hang()
            }
        }
    }

    fn listed(&self, seen: &Seen, out: &mut Out<'_>) -> Done {
        let page = seen.body.pointer("/params/cursor").and_then(Value::as_str).unwrap_or("0");
        let first = r#"{"tools":[{"name":"echo","inputSchema":{"type":"object","properties":{"region":{"type":"string","x-mcp-header":"Region"}}}}],"nextCursor":"1"}"#;
        let second = r#"{"tools":[{"name":"count","Name":"x","inputSchema":{"maximum":9007199254740993}},{"name":"wrong","inputSchema":{"x-mcp-header":"A"}}]}"#;
        let result = if page == "0" { first } else { second };
        match self.mode {
            "hang-list" => hang(),
            "list-500" => out.status(500),
            "list-cut" => out.events(&[TOLD]),
            "list-forbidden" => out.status(403),
            "new-id" => {
                out.more = "mcp-session-id: another\r\n".to_owned();
                out.result(result)
            }
            "events" | "modern-events" => {
                let answer = out.answer(result);
                out.events(&[TOLD, &answer])
            }
            _ => out.result(result),
        }
    }

    fn called(&self, seen: &Seen, out: &mut Out<'_>) -> Done {
        if self.is("forgets") && seen.header("mcp-session-id") == Some("id-0") {
            let error = out.error(-32001, "no such session");
            return out.whole(404, "application/json", &error);
        }
        let tool = seen.body.pointer("/params/name").and_then(Value::as_str).unwrap();
        let arguments = seen.body.pointer("/params/arguments").cloned().unwrap_or(Value::Null);
        let counted = text("counted");
        match tool {
            "count" if self.is("notices-forge") => {
                self.wait_for("tools/list", 2);
                out.result(&counted)
            }
            "echo" if self.mode.ends_with("events") => {
                let answer = out.answer(&text(&arguments.to_canonical_string()));
                out.events(&[TOLD, &answer])
            }
            "echo" => out.result(&text(&arguments.to_canonical_string())),
            "change" => {
                let answer = out.answer(&text("changed"));
                out.events(&[CHANGED, &answer])
            }
            "change-after" => {
                let answer = out.answer(&text("changed"));
                out.events(&[&answer, CHANGED])
            }
            "ask" => {
                let question =
                    r#"{"jsonrpc":"2.0","id":"s","method":"sampling/createMessage","params":{}}"#;
                out.begin()?;
                out.event(question)?;
                while self.seen.lock().unwrap().iter().all(|seen| seen.body.get("error").is_none())
                {
                    std::thread::sleep(Duration::from_millis(5));
                }
                let answer = out.answer(&text("asked"));
                out.event(&answer)?;
                Err(gone())
            }
            "resume" => {
                out.begin()?;
                let id = out.id.clone();
                out.raw(format!("id: call-{id}\nretry: 10\ndata:\n\n").as_bytes())?;
                Err(gone())
            }
            "count-silent" => hang(),
            "count-close" => Err(gone()),
            "count-cut" => out.events(&[TOLD]),
            "count-half" => {
                out.begin()?;
                out.raw(b"data: {\"jsonrpc\":\"2.0\",\"id\"")?;
                Err(gone())
            }
            "count-500" => out.status(500),
            "count-coded-500" => {
                let error = out.error(-32603, "no");
                out.whole(500, "application/json", &error)
            }
            "count-400" => out.status(400),
            "count-202" => out.status(202),
            "count-html" => out.whole(200, "text/html", "<p>"),
            "count-gzip" => out.head(
                200,
                "content-type: application/json\r\ncontent-encoding: gzip\r\ncontent-length: 0\r\n",
            ),
            "count-redirect" => out.head(303, "location: /done\r\ncontent-length: 0\r\n"),
            "count-other" => {
                out.id = "777".to_owned();
                out.result(&counted)
            }
            "count-noise" => out.whole(200, "application/json", "\u{1}"),
            "refuse-401" => out.status(401),
            "refuse-403" => out.status(403),
            "refuse-429" => out.status(429),
            "coded-404" => {
                let error = out.error(-32601, "no such tool");
                out.whole(if self.modern() { 404 } else { 400 }, "application/json", &error)
            }
            "coded-400" => {
                let error = out.error(-32602, "wrong arguments");
                out.whole(400, "application/json", &error)
            }
            "count" => out.result(&counted),
            _ => {
                let error = out.error(-32601, "no such tool");
                out.whole(200, "application/json", &error)
            }
        }
    }
}
