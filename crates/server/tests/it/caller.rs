//! A host on a socket, by the letter, and the door that it comes to.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use portcullis_canon::{Limits, Value, parse};
use portcullis_server::http::{Bounds, Listener, Terms, Token};
use portcullis_server::proxy::Proxy;
use portcullis_testkit::ports::SeededEntropy;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

pub(crate) const TOKEN: &str = "0123456789abcdef0123456789abcdef";

/// What the stateless revision says with each request.
const META: &str = r#""_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientInfo":{"name":"t","version":"1"},"io.modelcontextprotocol/clientCapabilities":{}}"#;

/// Longer than anything here takes on a busy machine.
const PATIENCE: Duration = Duration::from_secs(60);

/// A listener that serves a proxy until it is closed.
pub(crate) struct Door {
    pub(crate) address: SocketAddr,
    proxy: Arc<Proxy>,
    stop: oneshot::Sender<()>,
    served: JoinHandle<()>,
}

/// A whole answer.
#[derive(Debug)]
pub(crate) struct Told {
    pub(crate) status: u16,
    head: String,
    pub(crate) body: String,
}

impl Door {
    pub(crate) async fn open(proxy: Arc<Proxy>) -> Self {
        Self::with(proxy, TOKEN, &Terms::default(), Bounds::default()).await
    }

    pub(crate) async fn with(
        proxy: Arc<Proxy>,
        token: &str,
        terms: &Terms,
        bounds: Bounds,
    ) -> Self {
        let token = Token::read(token).unwrap();
        let listener =
            Listener::bind("127.0.0.1:0".parse().unwrap(), token, terms, bounds).await.unwrap();
        let address = listener.address();
        let (stop, stopped) = oneshot::channel();
        let door = Arc::clone(&proxy);
        let served = tokio::spawn(async move {
            let finished = Arc::clone(&door);
            let entropy = Arc::new(SeededEntropy::new(23));
            let stop = async { stopped.await.unwrap_or_default() };
            listener.serve(door, entropy, stop, async move { finished.finished().await }).await;
        });
        Self { address, proxy, stop, served }
    }

    /// Takes no more requests, and waits for what is still to be said.
    pub(crate) async fn close(self) {
        self.proxy.close();
        self.stop.send(()).unwrap();
        tokio::time::timeout(PATIENCE, self.served).await.unwrap().unwrap();
    }

    /// The first line and the headers of a message, which a test may add to.
    pub(crate) fn head(&self, more: &[(&str, &str)]) -> String {
        let usual = [
            ("host", self.address.to_string()),
            ("authorization", format!("Bearer {TOKEN}")),
            ("accept", "application/json, text/event-stream".to_owned()),
            ("content-type", "application/json".to_owned()),
            ("connection", "close".to_owned()),
        ];
        let mut head = "POST /mcp HTTP/1.1\r\n".to_owned();
        for (name, value) in &usual {
            if !more.iter().any(|(other, _)| other == name) {
                head.push_str(&format!("{name}: {value}\r\n"));
            }
        }
        for (name, value) in more.iter().filter(|(_, value)| !value.is_empty()) {
            head.push_str(&format!("{name}: {value}\r\n"));
        }
        head
    }

    /// Posts a message. A header with an empty value is left out.
    pub(crate) async fn post(&self, more: &[(&str, &str)], body: &str) -> Told {
        let head = self.head(more);
        self.send(&format!("{head}content-length: {}\r\n\r\n{body}", body.len())).await
    }

    /// Sends bytes over a connection of their own and hears all that comes back.
    pub(crate) async fn send(&self, bytes: &str) -> Told {
        let mut stream = self.connect().await;
        // A door that has said no may read no further.
        let _ = stream.write_all(bytes.as_bytes()).await;
        hear(stream).await
    }

    pub(crate) async fn connect(&self) -> TcpStream {
        TcpStream::connect(self.address).await.unwrap()
    }

    /// A call in the stateless revision.
    pub(crate) async fn call(&self, tool: &str, n: i64) -> Told {
        let (head, body) = stateless(tool, n);
        let head: Vec<(&str, &str)> = head.iter().map(|(k, v)| (*k, v.as_str())).collect();
        self.post(&head, &body).await
    }

    /// A session in a revision that has them.
    pub(crate) async fn session(&self) -> String {
        let begin = r#"{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"t","version":"1"}}}"#;
        let begun = self.post(&[], begin).await;
        assert_eq!(begun.status, 200, "{begun:?}");
        let version = begun.json().pointer("/result/protocolVersion").cloned();
        assert_eq!(version, Some(Value::from("2025-11-25")));
        let session = begun.header("mcp-session-id").unwrap().to_owned();
        let initialized = r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#;
        assert_eq!(self.in_session(&session, initialized).await.status, 202);
        session
    }

    pub(crate) async fn in_session(&self, session: &str, body: &str) -> Told {
        let more = [("mcp-session-id", session), ("mcp-protocol-version", "2025-11-25")];
        self.post(&more, body).await
    }
}

/// The headers and the body of a call in the stateless revision.
pub(crate) fn stateless(tool: &str, n: i64) -> (Vec<(&'static str, String)>, String) {
    let body = format!(
        r#"{{"jsonrpc":"2.0","id":{n},"method":"tools/call","params":{{"name":"{tool}","arguments":{{"n":{n}}},{META}}}}}"#
    );
    (named("tools/call", tool), body)
}

/// What a request without a tool says.
pub(crate) fn asked(method: &str) -> (Vec<(&'static str, String)>, String) {
    let body = format!(r#"{{"jsonrpc":"2.0","id":1,"method":"{method}","params":{{{META}}}}}"#);
    (named(method, ""), body)
}

/// A request of the stateless revision with parameters, and what it names.
pub(crate) fn asking(
    method: &str,
    name: &str,
    params: &str,
) -> (Vec<(&'static str, String)>, String) {
    let body =
        format!(r#"{{"jsonrpc":"2.0","id":1,"method":"{method}","params":{{{params},{META}}}}}"#);
    (named(method, name), body)
}

fn named(method: &str, tool: &str) -> Vec<(&'static str, String)> {
    vec![
        ("mcp-protocol-version", "2026-07-28".to_owned()),
        ("mcp-method", method.to_owned()),
        ("mcp-name", tool.to_owned()),
    ]
}

/// A call of a session.
pub(crate) fn call(id: i64, tool: &str, n: i64) -> String {
    format!(
        r#"{{"jsonrpc":"2.0","id":{id},"method":"tools/call","params":{{"name":"{tool}","arguments":{{"n":{n}}}}}}}"#
    )
}

/// All that comes until the other side ends the connection.
pub(crate) async fn hear(mut stream: TcpStream) -> Told {
    let mut bytes = Vec::new();
    // A connection that is reset after its last words has said them.
    let _ = tokio::time::timeout(PATIENCE, stream.read_to_end(&mut bytes)).await.expect("an end");
    let text = String::from_utf8(bytes).unwrap();
    let (head, body) = text.split_once("\r\n\r\n").unwrap_or((&text, ""));
    let status = head.split(' ').nth(1).and_then(|status| status.parse().ok()).unwrap_or(0);
    let head = head.to_ascii_lowercase();
    let chunked = head.contains("\r\ntransfer-encoding: chunked");
    let body = if chunked { unchunked(body) } else { body.to_owned() };
    Told { status, head, body }
}

fn unchunked(mut body: &str) -> String {
    let mut whole = String::new();
    while let Some((size, rest)) = body.split_once("\r\n") {
        let size = usize::from_str_radix(size, 16).unwrap();
        whole.push_str(&rest[..size]);
        body = rest[size..].trim_start_matches("\r\n");
    }
    whole
}

impl Told {
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.head.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(": "))
    }

    pub(crate) fn json(&self) -> Value {
        parse(self.body.as_bytes(), &Limits::ENVELOPE).unwrap_or_else(|_| panic!("{self:?}"))
    }

    /// What a call's answer says to the model.
    pub(crate) fn text(&self) -> String {
        let json = self.json();
        let text = json.pointer("/result/content/0/text").and_then(Value::as_str);
        text.unwrap_or_else(|| panic!("{self:?}")).to_owned()
    }

    /// The word with which that begins; `-` for what the tool itself gave.
    pub(crate) fn word(&self) -> String {
        let text = self.text();
        let word = text.split(": ").next().unwrap();
        let is_word = word.bytes().all(|b| b.is_ascii_uppercase() || b == b'_');
        if is_word { word.to_owned() } else { "-".to_owned() }
    }

    /// The number of the protocol's error.
    pub(crate) fn code(&self) -> Option<i64> {
        self.json().pointer("/error/code").and_then(Value::as_i64)
    }
}
