//! A provider on loopback that speaks chat completions, whole and in pieces: it answers each request with the next thing
//! that the test says, and remembers what it was sent.

use std::collections::VecDeque;
use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::Duration;

use portcullis_canon::Value;

use crate::home::Home;

/// What it does with one request.
#[derive(Clone, Debug)]
pub(crate) enum Act {
    /// Words that end the turn.
    Say(&'static str),
    /// Words, then one tool use: its wire name and its arguments.
    Use(&'static str, &'static str, &'static str),
    /// A body as it is, whole.
    Body(String),
    /// A status, headers and a body.
    Status(&'static str, &'static str, String),
    /// Half of a body; then the connection ends.
    Cut(&'static str),
    /// The same piece of a stream without an end.
    Endless(&'static str),
    /// Nothing until the client goes.
    Silent,
}

/// One request as it came.
#[derive(Clone, Debug)]
pub(crate) struct Received {
    pub(crate) head: String,
    pub(crate) body: Vec<u8>,
}

struct Shared {
    acts: Mutex<VecDeque<Act>>,
    received: Mutex<Vec<Received>>,
    over: AtomicBool,
}

/// The server; it ends when it is dropped.
pub(crate) struct Provider {
    address: SocketAddr,
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

impl Provider {
    pub(crate) fn new(acts: impl IntoIterator<Item = Act>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let shared = Arc::new(Shared {
            acts: Mutex::new(acts.into_iter().collect()),
            received: Mutex::default(),
            over: AtomicBool::new(false),
        });
        let own = Arc::clone(&shared);
        let thread = std::thread::spawn(move || {
            for stream in listener.incoming() {
                if own.over.load(Ordering::SeqCst) {
                    return;
                }
                let served = Arc::clone(&own);
                std::thread::spawn(move || serve(stream.unwrap(), &served));
            }
        });
        Self { address, shared, thread: Some(thread) }
    }

    pub(crate) fn base(&self) -> String {
        format!("http://{}/v1", self.address)
    }

    /// A configuration with this provider as `example`, whose key is in `EXAMPLE_KEY`, and what else it says.
    pub(crate) fn config(&self, home: &Home, more: &str) -> String {
        let text = format!(
            "{more}\n[credentials.example]\nenv = 'EXAMPLE_KEY'\n[models.example]\ndialect = 'openai'\naddress = '{}'\n\
             timeout_ms = 5000\n[models.example.prices.clerk]\ninput = 1_000_000\noutput = 4_000_000\n",
            self.base()
        );
        home.write("fake.toml", text).display().to_string()
    }

    pub(crate) fn then(&self, act: Act) {
        self.shared.acts.lock().unwrap().push_back(act);
    }

    pub(crate) fn received(&self) -> Vec<Received> {
        self.shared.received.lock().unwrap().clone()
    }
}

impl Drop for Provider {
    fn drop(&mut self) {
        self.shared.over.store(true, Ordering::SeqCst);
        // Wakes it up.
        drop(TcpStream::connect(self.address));
        drop(self.thread.take().map(JoinHandle::join));
    }
}

fn serve(mut stream: TcpStream, shared: &Shared) {
    stream.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
    let Some(received) = read_request(&mut stream) else { return };
    let lists = received.head.starts_with("GET /v1/models ");
    let pieces = String::from_utf8_lossy(&received.body).contains(r#""stream":true"#);
    shared.received.lock().unwrap().push(received);
    if lists {
        answer(&mut stream, "200 OK", "", r#"{"object":"list","data":[{"id":"m"},{"id":"n"}]}"#);
        return;
    }
    let act = shared.acts.lock().unwrap().pop_front();
    let act = act.unwrap_or_else(|| Act::Status("500 Unscripted", "", String::new()));
    perform(&mut stream, &act, pieces);
}

fn perform(stream: &mut TcpStream, act: &Act, pieces: bool) {
    match act {
        Act::Say(text) if pieces => stream_of(stream, &streamed(text, None)),
        Act::Use(text, name, arguments) if pieces => {
            stream_of(stream, &streamed(text, Some((name, arguments))));
        }
        Act::Say(text) => answer(stream, "200 OK", "", &whole(text, None)),
        Act::Use(text, name, arguments) => {
            answer(stream, "200 OK", "", &whole(text, Some((name, arguments))));
        }
        Act::Body(body) => answer(stream, "200 OK", "", body),
        Act::Status(status, headers, body) => answer(stream, status, headers, body),
        Act::Cut(body) => {
            let head = format!("HTTP/1.1 200 OK\r\ncontent-length: {}\r\n\r\n", body.len() + 100);
            let _ = stream.write_all(format!("{head}{body}").as_bytes());
        }
        Act::Endless(piece) => {
            let _ = stream.write_all(b"HTTP/1.1 200 OK\r\nconnection: close\r\n\r\n");
            // In large writes, so that a client's limit is reached before its deadline.
            let block = piece.repeat(1 + (64 << 10) / piece.len());
            while stream.write_all(block.as_bytes()).is_ok() {}
        }
        Act::Silent => {
            let mut rest = Vec::new();
            let _ = stream.read_to_end(&mut rest);
        }
    }
}

fn answer(stream: &mut TcpStream, status: &str, headers: &str, body: &str) {
    let head = format!(
        "HTTP/1.1 {status}\r\ncontent-type: application/json\r\n{headers}connection: close\r\ncontent-length: {}\r\n\r\n",
        body.len()
    );
    // A client that refuses what it reads may be gone already.
    let _ = stream.write_all(format!("{head}{body}").as_bytes());
}

fn stream_of(stream: &mut TcpStream, body: &str) {
    let head = "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\nconnection: close\r\n\r\n";
    let _ = stream.write_all(format!("{head}{body}").as_bytes());
}

fn quote(text: &str) -> String {
    Value::from(text).to_canonical_string()
}

const USAGE: &str = r#""usage":{"prompt_tokens":400,"completion_tokens":25,"total_tokens":425,"prompt_tokens_details":{"cached_tokens":0}}"#;

/// A chat completion, as it comes whole.
pub(crate) fn whole(text: &str, tool: Option<(&str, &str)>) -> String {
    let uses = tool.map_or(String::new(), |(name, arguments)| {
        format!(
            r#","tool_calls":[{{"id":"call_1","type":"function","function":{{"name":"{name}","arguments":{}}}}}]"#,
            quote(arguments)
        )
    });
    let reason = if tool.is_some() { "tool_calls" } else { "stop" };
    format!(
        r#"{{"id":"c1","object":"chat.completion","created":1,"model":"m","choices":[{{"index":0,"message":{{"role":"assistant","content":{},"refusal":null{uses}}},"logprobs":null,"finish_reason":"{reason}"}}],{USAGE}}}"#,
        quote(text)
    )
}

/// The same as events of a stream.
fn streamed(text: &str, tool: Option<(&str, &str)>) -> String {
    let mut out = String::new();
    let mut event = |rest: &str| {
        out.push_str(&format!(
            "data: {{\"id\":\"c1\",\"object\":\"chat.completion.chunk\",\"created\":1,\"model\":\"m\",{rest}}}\n\n"
        ));
    };
    let delta = |delta: &str, reason: &str| {
        format!(r#""choices":[{{"index":0,"delta":{delta},"finish_reason":{reason}}}]"#)
    };
    event(&delta(r#"{"role":"assistant","content":""}"#, "null"));
    for word in text.split_inclusive(' ') {
        event(&delta(&format!(r#"{{"content":{}}}"#, quote(word)), "null"));
    }
    if let Some((name, arguments)) = tool {
        let call = format!(
            r#"{{"tool_calls":[{{"index":0,"id":"call_1","type":"function","function":{{"name":"{name}","arguments":{}}}}}]}}"#,
            quote(arguments)
        );
        event(&delta(&call, "null"));
    }
    event(&delta("{}", if tool.is_some() { "\"tool_calls\"" } else { "\"stop\"" }));
    event(&format!(r#""choices":[],{USAGE}"#));
    out.push_str("data: [DONE]\n\n");
    out
}

fn read_request(stream: &mut TcpStream) -> Option<Received> {
    let mut bytes = Vec::new();
    let mut piece = [0; 4096];
    loop {
        let count = stream.read(&mut piece).ok().filter(|count| *count > 0)?;
        bytes.extend_from_slice(&piece[..count]);
        let Some(end) = bytes.windows(4).position(|w| w == b"\r\n\r\n") else { continue };
        let head = String::from_utf8(bytes[..end].to_vec()).unwrap();
        let length = header(&head, "content-length").map_or(0, |text| text.parse().unwrap());
        let mut body = bytes[end + 4..].to_vec();
        while body.len() < length {
            let count = stream.read(&mut piece).ok().filter(|count| *count > 0)?;
            body.extend_from_slice(&piece[..count]);
        }
        return Some(Received { head, body });
    }
}

pub(crate) fn header(head: &str, name: &str) -> Option<String> {
    let mut lines = head.lines().filter_map(|line| line.split_once(": "));
    let found = lines.find(|(key, _)| key.eq_ignore_ascii_case(name));
    found.map(|(_, value)| value.to_owned())
}
