//! One message a line, read within bounds and by the strict parser. What cannot be read is answered and dropped.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use portcullis_canon::{Limits, Object, Value, from_value, parse, to_vec};
use rmcp::RoleServer;
use rmcp::model::{
    ClientJsonRpcMessage, ClientRequest, GetExtensions as _, JsonRpcMessage, ServerJsonRpcMessage,
};
use rmcp::transport::Transport;
use tokio::io::{AsyncBufReadExt as _, AsyncRead, AsyncWrite, AsyncWriteExt as _, BufReader};
use tokio::sync::mpsc;
use tokio::task::JoinHandle;

use super::MAX_MESSAGE_BYTES;

/// Answers that may wait to be written.
const WAITING_LINES: usize = 64;

/// The most bytes of all answers that wait for a host to read: one that asks for more and reads nothing is left. Each counts
/// with what it takes beside its line.
const WAITING_BYTES: usize = 64 << 20;
const WAITING_BESIDE: usize = 1024;

/// The protocol's number for what is no JSON.
const PARSE_ERROR: i64 = -32_700;

/// The protocol's number for what is no message.
const INVALID_REQUEST: i64 = -32_600;

/// What a call holds, with the digits in which it was sent: rides with the request to whoever performs it.
#[derive(Clone, Debug, Default)]
pub(super) struct RawCall {
    pub(super) arguments: Value,
    pub(super) meta: Object,
}

/// Messages over a reader and a writer.
pub(super) struct Lines<R> {
    read: BufReader<R>,
    line: Vec<u8>,
    /// The rest of a line that was too long is skipped.
    skipping: bool,
    out: Option<mpsc::Sender<Waiting>>,
    /// Bytes that wait to be written.
    waiting: Arc<AtomicUsize>,
}

/// A line that waits to be written, and is counted for as long.
struct Waiting {
    line: Vec<u8>,
    all: Arc<AtomicUsize>,
}

impl Waiting {
    fn new(line: Vec<u8>, all: &Arc<AtomicUsize>) -> Self {
        all.fetch_add(line.len().saturating_add(WAITING_BESIDE), Ordering::Relaxed);
        Self { line, all: Arc::clone(all) }
    }
}

impl Drop for Waiting {
    fn drop(&mut self) {
        self.all.fetch_sub(self.line.len().saturating_add(WAITING_BESIDE), Ordering::Relaxed);
    }
}

impl<R: AsyncRead + Send + Unpin> Lines<R> {
    /// Begins to write beside; the task ends when nothing more can be written.
    pub(super) fn new<W>(read: R, mut write: W) -> (Self, JoinHandle<()>)
    where
        W: AsyncWrite + Send + Unpin + 'static,
    {
        let (out, mut lines) = mpsc::channel::<Waiting>(WAITING_LINES);
        let written = tokio::spawn(async move {
            while let Some(waiting) = lines.recv().await {
                if write.write_all(&waiting.line).await.is_err() || write.flush().await.is_err() {
                    return;
                }
            }
        });
        (Self::over(read, Some(out)), written)
    }

    fn over(read: R, out: Option<mpsc::Sender<Waiting>>) -> Self {
        let (read, line) = (BufReader::new(read), Vec::new());
        Self { read, line, skipping: false, out, waiting: Arc::default() }
    }

    /// The next whole line; `None` at the end. What was read of one stays when the wait is dropped.
    async fn next_line(&mut self) -> Option<Result<Vec<u8>, Misread>> {
        loop {
            let bytes = self.read.fill_buf().await.ok().filter(|bytes| !bytes.is_empty())?;
            let end = bytes.iter().position(|byte| *byte == b'\n');
            let taken = bytes.get(..end.unwrap_or(bytes.len())).unwrap_or_default();
            let too_long = self.line.len().saturating_add(taken.len()) > MAX_MESSAGE_BYTES;
            let begins_to_skip = too_long && !self.skipping;
            if too_long {
                self.line = Vec::new();
                self.skipping = true;
            } else if !self.skipping {
                self.line.extend_from_slice(taken);
            }
            let read = taken.len().saturating_add(usize::from(end.is_some()));
            self.read.consume(read);
            if end.is_some() {
                let skipped = std::mem::take(&mut self.skipping);
                if !skipped {
                    return Some(Ok(std::mem::take(&mut self.line)));
                }
            }
            if begins_to_skip {
                return Some(Err(Misread::new(PARSE_ERROR, "the message is longer than 4 MiB")));
            }
        }
    }

    /// Answers what cannot be read, unless the host does not even read what it is told.
    fn refuse(&self, misread: &Misread) {
        if let Some(out) = &self.out {
            let _ = out.try_send(Waiting::new(misread.line(), &self.waiting));
        }
    }
}

impl<R: AsyncRead + Send + Unpin> Transport<RoleServer> for Lines<R> {
    type Error = io::Error;

    fn send(
        &mut self,
        item: ServerJsonRpcMessage,
    ) -> impl Future<Output = io::Result<()>> + Send + 'static {
        let out = self.out.clone();
        // Counted now, and not when there is a place for it.
        let line = to_vec(&item).map(|mut line| {
            line.push(b'\n');
            Waiting::new(line, &self.waiting)
        });
        async move {
            let gone = || io::Error::from(io::ErrorKind::BrokenPipe);
            let line = line.map_err(|_| io::Error::from(io::ErrorKind::InvalidData))?;
            out.ok_or_else(gone)?.send(line).await.map_err(|_| gone())
        }
    }

    async fn receive(&mut self) -> Option<ClientJsonRpcMessage> {
        loop {
            if self.waiting.load(Ordering::Relaxed) > WAITING_BYTES {
                return None;
            }
            let read = match self.next_line().await? {
                Ok(line) if line.iter().all(u8::is_ascii_whitespace) => continue,
                Ok(line) => read(&line),
                Err(misread) => Err(misread),
            };
            match read {
                Ok(message) => return Some(message),
                Err(misread) => self.refuse(&misread),
            }
        }
    }

    async fn close(&mut self) -> io::Result<()> {
        self.out = None;
        Ok(())
    }
}

/// What cannot be read, and what the host is told of it.
#[derive(Debug)]
struct Misread {
    id: Value,
    code: i64,
    message: String,
}

impl Misread {
    fn new(code: i64, message: &str) -> Self {
        Self { id: Value::Null, code, message: message.to_owned() }
    }

    fn line(&self) -> Vec<u8> {
        let mut error = Object::new();
        error.insert("code", self.code);
        error.insert("message", self.message.as_str());
        let mut object = Object::new();
        object.insert("jsonrpc", "2.0");
        object.insert("id", self.id.clone());
        object.insert("error", error);
        let mut line = object.to_canonical();
        line.push(b'\n');
        line
    }
}

/// Reads one message.
fn read(line: &[u8]) -> Result<ClientJsonRpcMessage, Misread> {
    let limits = Limits::ENVELOPE.with_max_bytes(MAX_MESSAGE_BYTES);
    let mut value = parse(line, &limits).map_err(|error| {
        Misread::new(PARSE_ERROR, &format!("the message is not strict JSON: {}", error.fault))
    })?;
    let id = value.get("id").filter(|id| id.as_str().is_some() || id.as_i64().is_some());
    let id = id.cloned().unwrap_or_default();
    let raw = raw_call(&mut value);
    let message: ClientJsonRpcMessage = from_value(&value).map_err(|_| Misread {
        id,
        ..Misread::new(INVALID_REQUEST, "this is no message of the protocol")
    })?;
    Ok(with_raw(message, raw))
}

/// Takes what a call holds out of its message, before the rest is decoded into types that keep fewer digits.
fn raw_call(message: &mut Value) -> RawCall {
    let params = match message {
        Value::Object(message) => message.get_mut("params"),
        _ => None,
    };
    let Some(Value::Object(params)) = params else { return RawCall::default() };
    let meta = params.get("_meta").and_then(Value::as_object).cloned().unwrap_or_default();
    let arguments = params.remove("arguments");
    RawCall { arguments: arguments.unwrap_or_else(|| Value::Object(Object::new())), meta }
}

fn with_raw(mut message: ClientJsonRpcMessage, raw: RawCall) -> ClientJsonRpcMessage {
    if let JsonRpcMessage::Request(request) = &mut message
        && let ClientRequest::CallToolRequest(call) = &mut request.request
    {
        call.extensions_mut().insert(raw);
    }
    message
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(text: &[u8]) -> Lines<std::io::Cursor<Vec<u8>>> {
        Lines::over(std::io::Cursor::new(text.to_vec()), None)
    }

    #[tokio::test]
    async fn arguments_keep_every_digit() {
        let text = br#"{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{"name":"pay","arguments":{"n":123456789012345678901},"_meta":{"k":"v"}}}"#;
        let message = read(text).unwrap();
        let JsonRpcMessage::Request(request) = message else { panic!("no request") };
        let ClientRequest::CallToolRequest(call) = request.request else { panic!("no call") };
        let raw: &RawCall = call.extensions().get().unwrap();
        assert_eq!(raw.arguments.to_canonical_string(), r#"{"n":123456789012345678901}"#);
        assert_eq!(raw.meta.get("k").and_then(Value::as_str), Some("v"));
    }

    #[test]
    fn what_is_no_strict_message_has_a_reason_and_its_id() {
        for (text, code, id) in [
            (r#"{"jsonrpc":"2.0","id":1,"id":2,"method":"ping"}"#, PARSE_ERROR, Value::Null),
            ("{", PARSE_ERROR, Value::Null),
            (r#"{"jsonrpc":"2.0","id":3,"method":7}"#, INVALID_REQUEST, Value::from(3_i64)),
            ("[]", INVALID_REQUEST, Value::Null),
        ] {
            let misread = read(text.as_bytes()).unwrap_err();
            assert_eq!((misread.code, misread.id), (code, id), "{text}");
        }
        assert!(read(br#"{"jsonrpc":"2.0","id":1,"method":"ping"}"#).is_ok(), "the control");
    }

    #[tokio::test]
    async fn a_line_that_is_too_long_is_told_once_and_the_next_one_is_read() {
        let mut text = vec![b'x'; MAX_MESSAGE_BYTES.saturating_mul(2)];
        text.extend_from_slice(b"\n{}\nrest");
        let mut lines = lines(&text);
        assert!(lines.next_line().await.unwrap().is_err());
        assert_eq!(lines.next_line().await.unwrap().unwrap(), b"{}");
        assert!(lines.next_line().await.is_none(), "a line without its end is none");
    }
}
