//! A site on loopback that answers as the test says and remembers what it was sent, and the HTTP tools that go there.

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use portcullis_canon::{Limits, Object, Schema, Value, parse};
use portcullis_domain::ports::{ToolFailure, ToolOutput, ToolSource};
use portcullis_egress::{Credential, CredentialRef, Credentials, Egress, Method, Secret};
use portcullis_testkit::permit::permit_for;
use portcullis_testkit::ports::ManualClock;
use portcullis_tools::{Http, HttpPlace, HttpRules};
use tokio::runtime::Runtime;

/// One request as it came.
#[derive(Clone, Debug)]
pub(crate) struct Received {
    pub(crate) head: String,
    pub(crate) body: Vec<u8>,
}

impl Received {
    pub(crate) fn line(&self) -> &str {
        self.head.lines().next().unwrap_or_default()
    }

    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        let mut lines = self.head.lines().filter_map(|line| line.split_once(": "));
        lines.find(|(known, _)| known.eq_ignore_ascii_case(name)).map(|(_, value)| value)
    }
}

type Act = dyn Fn(&Received, &mut TcpStream) + Send + Sync;

/// The site. It answers one request a connection.
pub(crate) struct Site {
    pub(crate) at: SocketAddr,
    received: Arc<Mutex<Vec<Received>>>,
    closed: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Site {
    /// Writes the same bytes to whoever asks.
    pub(crate) fn answering(bytes: impl Into<Vec<u8>>) -> Self {
        let bytes = bytes.into();
        Self::acting(move |_, stream| {
            // Who refuses what they read may be gone.
            let _ = stream.write_all(&bytes);
        })
    }

    pub(crate) fn acting(act: impl Fn(&Received, &mut TcpStream) + Send + Sync + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let at = listener.local_addr().unwrap();
        let received = Arc::new(Mutex::new(Vec::new()));
        let closed = Arc::new(AtomicBool::new(false));
        let act: Arc<Act> = Arc::new(act);
        let (kept, over) = (Arc::clone(&received), Arc::clone(&closed));
        let thread = thread::spawn(move || {
            while let Ok((mut stream, _)) = listener.accept() {
                if over.load(Ordering::SeqCst) {
                    return;
                }
                let (act, kept) = (Arc::clone(&act), Arc::clone(&kept));
                thread::spawn(move || {
                    if let Some(request) = read_request(&mut stream) {
                        kept.lock().unwrap().push(request.clone());
                        act(&request, &mut stream);
                    }
                });
            }
        });
        Self { at, received, closed, thread: Some(thread) }
    }

    pub(crate) fn origin(&self) -> String {
        format!("http://{}", self.at)
    }

    pub(crate) fn place(&self) -> HttpPlace {
        HttpPlace::new(&self.origin()).unwrap()
    }

    pub(crate) fn received(&self) -> Vec<Received> {
        self.received.lock().unwrap().clone()
    }
}

impl Drop for Site {
    fn drop(&mut self) {
        self.closed.store(true, Ordering::SeqCst);
        // Wakes the accept, so that the thread sees it.
        let _ = TcpStream::connect(self.at);
        let _ = self.thread.take().map(JoinHandle::join);
    }
}

/// A whole request; nothing when it ends early.
fn read_request(stream: &mut TcpStream) -> Option<Received> {
    let mut bytes = Vec::new();
    let mut piece = [0; 8192];
    let end = loop {
        if let Some(at) = bytes.windows(4).position(|four| four == b"\r\n\r\n") {
            break at;
        }
        let count = stream.read(&mut piece).ok().filter(|count| *count > 0)?;
        bytes.extend_from_slice(&piece[..count]);
    };
    let body = bytes.split_off(end + 4);
    let mut request = Received { head: String::from_utf8(bytes).ok()?, body };
    let length = request.header("content-length").map_or(0, |text| text.parse().unwrap());
    while request.body.len() < length {
        let count = stream.read(&mut piece).ok().filter(|count| *count > 0)?;
        request.body.extend_from_slice(&piece[..count]);
    }
    Some(request)
}

/// A whole answer with these further headers, each line with its end.
pub(crate) fn answer(status: &str, headers: &str, body: impl AsRef<[u8]>) -> Vec<u8> {
    let body = body.as_ref();
    let head = format!(
        "HTTP/1.1 {status}\r\n{headers}content-length: {}\r\nconnection: close\r\n\r\n",
        body.len()
    );
    [head.as_bytes(), body].concat()
}

pub(crate) fn text(body: &str) -> Vec<u8> {
    answer("200 OK", "content-type: text/plain\r\n", body)
}

/// Everything that a place can be asked for.
pub(crate) const ALL: [Method; 6] =
    [Method::Get, Method::Head, Method::Post, Method::Put, Method::Patch, Method::Delete];

/// The secret that places of [`Web::with_key`] are given.
pub(crate) const KEY: &str = "canary-key-0123456789";

/// The tools with a runtime to run them on.
pub(crate) struct Web {
    pub(crate) http: Http,
    pub(crate) runtime: Runtime,
}

impl Web {
    /// These places, one second and 1 KiB a call.
    pub(crate) fn of(places: impl IntoIterator<Item = HttpPlace>) -> Self {
        Self::under(rules(places), Credentials::none())
    }

    pub(crate) fn under(rules: HttpRules, credentials: Credentials) -> Self {
        let clock = Arc::new(ManualClock::default());
        let egress = Egress::new(rules.reachable().unwrap(), credentials, clock).unwrap();
        Self::over(egress, rules)
    }

    pub(crate) fn over(egress: Egress, rules: HttpRules) -> Self {
        let mut builder = tokio::runtime::Builder::new_multi_thread();
        let runtime = builder.worker_threads(1).enable_all().build().unwrap();
        Self { http: Http::new(egress, rules), runtime }
    }

    /// All methods at one site that is given a bearer token, bound to that site.
    pub(crate) fn with_key(site: &Site) -> Self {
        let key = Credential::given(Secret::new(KEY.to_owned()).unwrap());
        let key = key.only_to(&site.at.to_string()).unwrap();
        let place = site.place().methods(ALL).credential(CredentialRef::bearer("site"));
        Self::under(rules([place]), Credentials::new([("site", key)]).unwrap())
    }

    /// Calls a tool as the gate does: arguments in JSON, defaults filled in, checked against the schema.
    pub(crate) fn call(&self, tool: &str, arguments: &str) -> Result<ToolOutput, ToolFailure> {
        let spec = self.http.specs().into_iter().find(|spec| spec.name == tool).unwrap();
        let schema = Schema::compile(&spec.input_schema).unwrap();
        let arguments = parse(arguments.as_bytes(), &Limits::BARE).unwrap();
        let Value::Object(mut filled) = schema.fill_defaults(arguments) else {
            panic!("an object")
        };
        if let Some(key) = spec.idempotency_key {
            filled.insert(key, "ab".repeat(32));
        }
        schema.check(&Value::Object(filled.clone())).unwrap();
        self.unchecked(tool, filled)
    }

    /// Calls a tool with exactly these arguments.
    pub(crate) fn unchecked(
        &self,
        tool: &str,
        arguments: Object,
    ) -> Result<ToolOutput, ToolFailure> {
        self.runtime.block_on(self.http.call(permit_for(tool, arguments)))
    }

    /// The result of a call that succeeds.
    #[track_caller]
    pub(crate) fn ok(&self, tool: &str, arguments: &str) -> Value {
        let output = self.call(tool, arguments).unwrap();
        parse(&output.content, &Limits::BARE).unwrap()
    }

    /// Reads a page of a site.
    pub(crate) fn get(&self, site: &Site, tail: &str) -> Result<ToolOutput, ToolFailure> {
        self.call("http.read", &format!(r#"{{"url":"{}{tail}"}}"#, site.origin()))
    }

    /// Sends something to a site.
    pub(crate) fn post(&self, site: &Site, body: &str) -> Result<ToolOutput, ToolFailure> {
        let url = site.origin();
        self.call("http.send", &format!(r#"{{"url":"{url}/","method":"POST","body":"{body}"}}"#))
    }
}

/// These places, one second and 1 KiB a call.
pub(crate) fn rules(places: impl IntoIterator<Item = HttpPlace>) -> HttpRules {
    let rules = HttpRules::new(places).unwrap().max_content(1024).unwrap();
    rules.timeout(Duration::from_secs(1)).unwrap()
}

/// The message of an outcome that nobody knows.
#[track_caller]
pub(crate) fn unknown(outcome: Result<ToolOutput, ToolFailure>) -> String {
    match outcome {
        Err(ToolFailure::Unknown { message }) => message,
        other => panic!("expected an unknown outcome, got {other:?}"),
    }
}
