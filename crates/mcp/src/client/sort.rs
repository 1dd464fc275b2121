//! What becomes of each message of a server, whatever carried it.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use portcullis_canon::{Object, Value, from_value};
use rmcp::model::{
    EmptyResult, ErrorCode, ErrorData, JsonRpcMessage, RequestId, ServerJsonRpcMessage,
    ServerResult,
};
use tokio::sync::mpsc;
use tokio::time::Instant;

use super::ledger::{Arrival, Fault, Ledger, Reply, What};
use super::line::Line;
use super::wire::Outgoing;
use crate::needs;
use crate::progress::Progress;

/// What a server may say unasked: so many bytes at once, and so many more each second.
const UNASKED_AT_ONCE: u64 = 64 << 20;
const UNASKED_A_SECOND: u64 = 4 << 20;
/// What a line counts beside its bytes.
const UNASKED_LINE: u64 = 1024;

/// What a server is told of its own questions: sampling, roots and elicitation are not offered.
const NOT_OFFERED: i32 = -32601;

/// What a message came over, which says whose answer it can be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Over {
    /// The one connection that everything comes over.
    Pipe,
    /// The answer to the request of this number.
    Request(i64),
    /// A stream that answers nothing.
    Notices,
}

/// Sorts the messages of one session.
pub(super) struct Sorter {
    ledger: Arc<Ledger>,
    outgoing: mpsc::Sender<Outgoing>,
    incoming: mpsc::Sender<ServerJsonRpcMessage>,
    unasked: Mutex<Unasked>,
    /// The subscription was acknowledged.
    acknowledged: AtomicBool,
}

impl Sorter {
    pub(super) fn new(
        ledger: Arc<Ledger>,
        outgoing: mpsc::Sender<Outgoing>,
        incoming: mpsc::Sender<ServerJsonRpcMessage>,
    ) -> Self {
        let unasked = Mutex::new(Unasked::new());
        Self { ledger, outgoing, incoming, unasked, acknowledged: AtomicBool::new(false) }
    }

    /// Takes one message of so many bytes. True when it was the answer to the request that it came over.
    pub(super) async fn sort(&self, line: Line, bytes: usize, over: Over) -> Result<bool, Fault> {
        match line {
            Line::Empty => self.unasked(bytes)?,
            Line::Noise => self.ledger.stray()?,
            Line::Notice { method, message } => {
                self.unasked(bytes)?;
                self.noticed(&method, &message).await?;
            }
            Line::Question { id, method } => {
                self.unasked(bytes)?;
                // When the queue is full it is not answered: the server does not read.
                let line = answer(id, &method);
                let _ = self.outgoing.try_send(Outgoing { line, id: None, written: None });
            }
            Line::Answer { id, reply, message } => {
                if !over.answers(id) {
                    self.ledger.stray()?;
                    return Ok(false);
                }
                self.answered(id, reply, &message).await?;
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Counts what nobody asked for.
    pub(super) fn unasked(&self, bytes: usize) -> Result<(), Fault> {
        self.unasked.lock().unwrap_or_else(PoisonError::into_inner).count(bytes)
    }

    /// Wakes whoever asked for what came to nothing.
    pub(super) async fn came_to_nothing(&self, id: i64) {
        self.pass_on(stand_in(id, &Reply::Error(0, String::new()))).await;
    }

    async fn noticed(&self, method: &str, message: &Value) -> Result<(), Fault> {
        match method {
            "notifications/tools/list_changed" | "notifications/prompts/list_changed" => {
                self.ledger.changed();
            }
            "notifications/subscriptions/acknowledged" => {
                let read = from_value(message).map_err(|_| Fault::Shape("subscriptions/listen"))?;
                // Again where a subscription was taken up again, which is no news.
                if !self.acknowledged.swap(true, Ordering::SeqCst) {
                    self.pass_on(read).await;
                }
            }
            "notifications/cancelled" => {
                let id = message.pointer("/params/requestId").and_then(Value::as_i64);
                if self.ledger.is_subscription(id) {
                    return Err(Fault::Unsubscribed);
                }
            }
            "notifications/progress" => {
                let params = message.get("params").unwrap_or(&Value::Null);
                let token = params.get("progressToken").and_then(Value::as_i64);
                if let Some((token, progress)) = token.zip(Progress::read(params)) {
                    self.ledger.heard(token, progress);
                }
            }
            // Logs, and changes of what we do not use.
            _ => {}
        }
        Ok(())
    }

    async fn answered(&self, id: Option<i64>, reply: Reply, message: &Value) -> Result<(), Fault> {
        let refused = !matches!(reply, Reply::Result(_));
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

impl Over {
    /// Whether an answer to this number may come over it.
    fn answers(self, id: Option<i64>) -> bool {
        match self {
            Self::Pipe => true,
            Self::Request(own) => id == Some(own),
            Self::Notices => false,
        }
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
            refusal(id, code)
        }
        Reply::Needs(_) => refusal(id, ErrorCode(needs::CODE)),
    }
}

fn refusal(id: RequestId, code: ErrorCode) -> ServerJsonRpcMessage {
    JsonRpcMessage::error(ErrorData::new(code, "the server answered with an error", None), Some(id))
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
    use std::time::Duration;

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
