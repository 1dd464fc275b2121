//! The three pipes of a server, each with a task of its own: one writes, one reads and sorts, one keeps complaints.

use std::sync::Arc;
use std::time::Duration;

use portcullis_canon::{Object, Value, from_value};
use portcullis_sandbox::child::Lines;
use rmcp::model::{
    EmptyResult, ErrorCode, ErrorData, JsonRpcMessage, RequestId, ServerJsonRpcMessage,
    ServerResult,
};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::process::{ChildStderr, ChildStdin, ChildStdout};
use tokio::sync::{mpsc, oneshot};
use tokio::time::{Instant, timeout};

use super::MAX_LINE_BYTES;
use super::ledger::{Arrival, Fault, Ledger, Reply, What};
use super::line::{self, Line};
use super::process::Process;

/// How much is read at once.
const CHUNK: usize = 16 * 1024;

/// How long one line may take to be written: a server that does not read for so long is given up.
const WRITE_WAIT: Duration = Duration::from_secs(30);

/// What a server may say unasked: so many bytes at once, and so many more each second.
const UNASKED_AT_ONCE: u64 = 64 << 20;
const UNASKED_A_SECOND: u64 = 4 << 20;
/// What a line counts beside its bytes.
const UNASKED_LINE: u64 = 1024;

/// What a server is told of its own questions: sampling, roots and elicitation are not offered.
const NOT_OFFERED: i32 = -32601;

/// A line to be written.
#[derive(Debug)]
pub(super) struct Outgoing {
    pub(super) line: Vec<u8>,
    /// The number of a request, which is entered in the ledger.
    pub(super) id: Option<i64>,
    /// Told once it was written; nothing when it was not.
    pub(super) written: Option<oneshot::Sender<()>>,
}

/// Writes line by line, each whole or never begun.
pub(super) async fn write(
    mut stdin: ChildStdin,
    mut lines: mpsc::Receiver<Outgoing>,
    ledger: Arc<Ledger>,
) {
    while let Some(outgoing) = lines.recv().await {
        if outgoing.id.is_some_and(|id| !ledger.begin(id)) {
            continue;
        }
        match timeout(WRITE_WAIT, stdin.write_all(&outgoing.line)).await {
            Ok(Ok(())) => {
                // Whoever asked may be gone.
                let _ = outgoing.written.map(|written| written.send(()));
            }
            Ok(Err(_)) | Err(_) => return ledger.fail(Fault::Deaf),
        }
    }
}

/// Keeps the end of standard error.
pub(super) async fn complain(mut stderr: ChildStderr, process: Arc<Process>) {
    let mut piece = vec![0; CHUNK];
    while let Ok(count @ 1..) = stderr.read(&mut piece).await {
        process.complained(piece.get(..count).unwrap_or_default());
    }
    process.fell_silent();
}

/// Reads until the session is over, and ends the server then.
pub(super) struct Reader {
    pub(super) stdout: ChildStdout,
    pub(super) ledger: Arc<Ledger>,
    pub(super) process: Arc<Process>,
    pub(super) outgoing: mpsc::Sender<Outgoing>,
    pub(super) incoming: mpsc::Sender<ServerJsonRpcMessage>,
}

impl Reader {
    pub(super) async fn run(mut self) {
        let ledger = Arc::clone(&self.ledger);
        tokio::select! {
            fault = self.read() => ledger.fail(fault),
            () = ledger.over() => {}
        }
        if ledger.fault() == Some(Fault::Closed) {
            // One that closed its output may still say why, and how it ended.
            self.process.ended().await;
        }
        self.process.end();
    }

    async fn read(&mut self) -> Fault {
        let (mut lines, mut unasked) = (Lines::new(MAX_LINE_BYTES), Unasked::new());
        let mut piece = vec![0; CHUNK];
        loop {
            while let Some(line) = lines.take() {
                if line.len() > MAX_LINE_BYTES {
                    return Fault::LongLine;
                }
                if let Err(fault) = self.sort(&line, &mut unasked).await {
                    return fault;
                }
            }
            if lines.is_too_long() {
                return Fault::LongLine;
            }
            match self.stdout.read(&mut piece).await {
                Ok(count @ 1..) => lines.push(piece.get(..count).unwrap_or_default()),
                Ok(0) | Err(_) => return Fault::Closed,
            }
        }
    }

    async fn sort(&self, line: &[u8], unasked: &mut Unasked) -> Result<(), Fault> {
        let bytes = line.len();
        match line::read(line)? {
            Line::Empty => unasked.count(bytes),
            Line::Noise => self.ledger.stray(),
            Line::Notice { method, message } => {
                unasked.count(bytes)?;
                self.noticed(&method, &message).await
            }
            Line::Question { id, method } => {
                unasked.count(bytes)?;
                // When the queue is full it is not answered: the server does not read.
                let line = answer(id, &method);
                let _ = self.outgoing.try_send(Outgoing { line, id: None, written: None });
                Ok(())
            }
            Line::Answer { id, reply, message } => self.answered(id, reply, &message).await,
        }
    }

    async fn noticed(&self, method: &str, message: &Value) -> Result<(), Fault> {
        match method {
            "notifications/tools/list_changed" => self.ledger.changed(),
            "notifications/subscriptions/acknowledged" => {
                let read = from_value(message).map_err(|_| Fault::Shape("subscriptions/listen"))?;
                self.pass_on(read).await;
            }
            "notifications/cancelled" => {
                let id = message.pointer("/params/requestId").and_then(Value::as_i64);
                if self.ledger.is_subscription(id) {
                    return Err(Fault::Unsubscribed);
                }
            }
            // Progress, logs, and changes of what we do not use.
            _ => {}
        }
        Ok(())
    }

    async fn answered(&self, id: Option<i64>, reply: Reply, message: &Value) -> Result<(), Fault> {
        let refused = matches!(reply, Reply::Error(..));
        let stand_in = id.map(|id| stand_in(id, &reply));
        match (self.ledger.answer(id, reply), stand_in) {
            (Arrival::Asked(What::Kept), Some(stand_in)) => self.pass_on(stand_in).await,
            (Arrival::Asked(What::Handshake), _) => {
                let read = from_value(message)
                    .map_err(|_| Fault::Shape("server/discover or initialize"))?;
                self.pass_on(read).await;
            }
            (Arrival::Asked(What::Listen), Some(stand_in)) => {
                self.pass_on(stand_in).await;
                if !refused {
                    return Err(Fault::Unsubscribed);
                }
            }
            (Arrival::Late, _) => {}
            (Arrival::Stray | Arrival::Asked(_), _) => self.ledger.stray()?,
        }
        Ok(())
    }

    async fn pass_on(&self, message: ServerJsonRpcMessage) {
        // When nobody receives, the session is being dropped.
        let _ = self.incoming.send(message).await;
    }
}

/// What `rmcp` sees of an answer that is kept as it came: that it came.
fn stand_in(id: i64, reply: &Reply) -> ServerJsonRpcMessage {
    let id = RequestId::Number(id);
    match reply {
        Reply::Result(_) => {
            ServerJsonRpcMessage::response(ServerResult::EmptyResult(EmptyResult {}), id)
        }
        Reply::Error(code, _) => {
            let code = i32::try_from(*code).map_or(ErrorCode::INTERNAL_ERROR, ErrorCode);
            let error = ErrorData::new(code, "the server answered with an error", None);
            JsonRpcMessage::error(error, Some(id))
        }
    }
}

/// The line that answers a server's question: a ping is answered, and nothing else is offered.
fn answer(id: Value, method: &str) -> Vec<u8> {
    let mut message = Object::new();
    message.insert("jsonrpc", "2.0");
    message.insert("id", id);
    if method == "ping" {
        message.insert("result", Object::new());
    } else {
        let mut error = Object::new();
        error.insert("code", NOT_OFFERED);
        error.insert("message", "this client does not offer that");
        message.insert("error", error);
    }
    let mut line = message.to_canonical();
    line.push(b'\n');
    line
}

/// How much a server may still say that nobody asked for.
#[derive(Debug)]
struct Unasked {
    left: u64,
    since: Instant,
}

impl Unasked {
    fn new() -> Self {
        Self { left: UNASKED_AT_ONCE, since: Instant::now() }
    }

    fn count(&mut self, bytes: usize) -> Result<(), Fault> {
        self.count_at(bytes, Instant::now())
    }

    fn count_at(&mut self, bytes: usize, now: Instant) -> Result<(), Fault> {
        let passed = u64::try_from((now - self.since).as_millis()).unwrap_or(u64::MAX);
        let more = passed.saturating_mul(UNASKED_A_SECOND) / 1_000;
        if more > 0 {
            self.since = now;
            self.left = self.left.saturating_add(more).min(UNASKED_AT_ONCE);
        }
        let cost = u64::try_from(bytes).unwrap_or(u64::MAX).saturating_add(UNASKED_LINE);
        self.left = self.left.checked_sub(cost).ok_or(Fault::Flood)?;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_question_gets_its_own_number_back() {
        let text = |id: Value, method| String::from_utf8(answer(id, method)).unwrap();
        assert_eq!(
            text(Value::from("a\n"), "ping"),
            "{\"id\":\"a\\n\",\"jsonrpc\":\"2.0\",\"result\":{}}\n"
        );
        let refused = text(Value::from(7), "sampling/createMessage");
        assert!(refused.contains("\"code\":-32601") && refused.contains("\"id\":7"), "{refused}");
    }

    #[test]
    fn what_nobody_asked_for_is_bounded_and_comes_back_with_time() {
        let mut unasked = Unasked::new();
        let (start, line) = (unasked.since, usize::try_from(UNASKED_LINE).unwrap());
        for _ in 0..UNASKED_AT_ONCE / (UNASKED_LINE * 2) {
            unasked.count_at(line, start).unwrap();
        }
        assert_eq!(unasked.count_at(line, start), Err(Fault::Flood));
        let later = start + Duration::from_secs(1);
        for _ in 0..UNASKED_A_SECOND / (UNASKED_LINE * 2) {
            unasked.count_at(line, later).unwrap();
        }
        assert_eq!(unasked.count_at(line, later), Err(Fault::Flood));
    }
}
