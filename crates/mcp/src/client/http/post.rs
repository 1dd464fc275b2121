//! One request for each message of ours, and everything that comes back over it.
//!
//! A message is begun once and never again. What becomes of it is an answer, or the reason for which there is none and
//! whether the server may have taken it up.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use portcullis_canon::{Object, Value, sanitize};
use portcullis_egress::{
    CredentialFault, EgressError, Fault as EgressFault, Incoming, Request, Sent,
};
use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinSet;
use tokio::time::{Instant, timeout, timeout_at};

use super::super::MAX_LINE_BYTES;
use super::super::ledger::{Broken, Fault, Reply, What};
use super::super::line::{self, Line};
use super::super::sort::Over;
use super::super::wire::Outgoing;
use super::events::{Events, Item};
use super::head::Message;
use super::site::{Site, TELL_WAIT, media, short};

/// The longest stream, in bytes: no event of it is longer than a message, and what nobody asked for has a bound of its
/// own.
pub(super) const MAX_STREAM_BYTES: u64 = 256 * 1024 * 1024;

/// The longest body of a refusal that is looked at.
const MAX_REFUSAL_BYTES: usize = 64 * 1024;

/// The longest reason, in bytes.
const MAX_WHY_BYTES: usize = 400;

/// How long a stream is listened to after its answer, so that its connection can be used again.
const LINGER: Duration = Duration::from_millis(50);

/// How often in a row a stream that brings nothing is taken up again.
const MAX_RESUMED: u32 = 5;

/// How long is waited before a stream is taken up again, unless the server says something else.
const RETRY: Duration = Duration::from_secs(1);

/// What is asked first, which servers of older revisions do not know.
const DISCOVER: &str = "server/discover";

/// What JSON-RPC calls a method that is not there.
const NO_METHOD: i64 = -32601;

/// Statuses by which a server says that it did not take a request up: it wants a credential, does not allow it, has
/// nothing there (a session that is over among it), or takes no such method, form, size, kind, place or number of
/// requests. Every other one leaves open what it did before.
const NOT_TAKEN_UP: [u16; 9] = [401, 403, 404, 405, 406, 413, 415, 421, 429];

/// Why an exchange brought no answer.
#[derive(Debug)]
pub(super) enum End {
    /// Nothing of it left.
    Unsent(String),
    /// The server says for certain that it did not take it up.
    Refused(String),
    /// What the server did is not known.
    Unknown(String),
    /// The session is over.
    Over(Fault),
}

impl End {
    fn unknown(why: impl Into<String>) -> Self {
        Self::Unknown(why.into())
    }
}

impl From<EgressError> for End {
    fn from(error: EgressError) -> Self {
        let why = why(&error);
        if error.sent == Sent::Nothing { Self::Unsent(why) } else { Self::Unknown(why) }
    }
}

impl From<Fault> for End {
    fn from(fault: Fault) -> Self {
        Self::Over(fault)
    }
}

/// The client's own sentence, which names hosts and limits and nothing else.
fn why(error: &EgressError) -> String {
    sanitize::clip(&sanitize::line(&error.to_string()), MAX_WHY_BYTES)
}

/// All requests of one session.
pub(super) struct Posts {
    site: Arc<Site>,
    lines: mpsc::Receiver<Outgoing>,
}

impl Posts {
    pub(super) const fn new(site: Arc<Site>, lines: mpsc::Receiver<Outgoing>) -> Self {
        Self { site, lines }
    }

    /// Sends what is queued until the session is over, and says goodbye then.
    pub(super) async fn run(mut self) {
        let mut open = JoinSet::new();
        loop {
            tokio::select! {
                () = self.site.ledger.over() => break,
                Some(_) = open.join_next(), if !open.is_empty() => {}
                outgoing = self.lines.recv() => match outgoing {
                    Some(outgoing) => {
                        open.spawn(send(Arc::clone(&self.site), outgoing));
                    }
                    None => break,
                },
            }
        }
        open.shutdown().await;
        self.site.goodbye().await;
    }
}

/// However it ends, nobody waits for it in vain.
impl Drop for Posts {
    fn drop(&mut self) {
        self.site.close();
    }
}

async fn send(site: Arc<Site>, outgoing: Outgoing) {
    let Outgoing { line, id, written } = outgoing;
    let Some(message) = Message::read(&line) else {
        return site.ledger.fail(Fault::Unusable("a message of our own cannot be read".to_owned()));
    };
    match id {
        None => site.tell(&line, &message, written).await,
        Some(id) => {
            // Whoever gives it up closes its connection, which tells a stateless server so.
            tokio::select! {
                biased;
                () = site.ledger.let_go(id) => {}
                () = site.ask(id, &line, &message, written) => {}
            }
        }
    }
}

impl Site {
    /// Asks once.
    async fn ask(
        &self,
        id: i64,
        line: &[u8],
        message: &Message,
        written: Option<oneshot::Sender<()>>,
    ) {
        let listens = message.method() == "subscriptions/listen";
        let permit = if listens { None } else { self.permits.acquire().await.ok() };
        let asked = match self.post(line, message) {
            // The value stands in the message; the sentence is ours.
            Err(fault) => Err(End::Unsent(format!("the request cannot be put together: {fault}"))),
            Ok(_) if listens => {
                if !self.ledger.begin(id) {
                    return;
                }
                // Whoever asked may be gone.
                let _ = written.map(|written| written.send(()));
                self.subscribe(id, line, message).await
            }
            Ok(request) => {
                let request = request.while_true(self.begins(id, written));
                self.exchange(id, message, request).await
            }
        };
        drop(permit);
        if let Err(end) = asked {
            self.came_to_nothing(id, end).await;
        }
    }

    /// Enters that a request begins, when it does: a token and a connection may take long before.
    fn begins(
        &self,
        id: i64,
        written: Option<oneshot::Sender<()>>,
    ) -> impl Fn() -> bool + Send + Sync + use<> {
        let (ledger, written) = (Arc::clone(&self.ledger), Mutex::new(written));
        move || {
            let begins = ledger.begin(id);
            let written = written.lock().unwrap_or_else(PoisonError::into_inner).take();
            // Whoever asked may be gone; what does not begin is dropped, which says so.
            let _ = written.filter(|_| begins).map(|written| written.send(()));
            begins
        }
    }

    async fn came_to_nothing(&self, id: i64, end: End) {
        let (sent, why, fault): (_, _, fn(String) -> Fault) = match end {
            End::Unsent(why) => (false, why, Fault::Unreached),
            End::Refused(why) => (false, why, Fault::Unusable),
            End::Unknown(why) => (true, why, Fault::Unusable),
            End::Over(fault) => return self.ledger.fail(fault),
        };
        match self.ledger.break_off(id, Broken { sent, why: why.clone() }) {
            None => {}
            Some(What::Kept | What::Listen) => self.sorter.came_to_nothing(id).await,
            Some(What::Handshake) => self.ledger.fail(fault(why)),
        }
    }

    /// One request, until its answer came.
    async fn exchange(&self, id: i64, message: &Message, request: Request) -> Result<(), End> {
        let incoming = self.egress.open(request).await.map_err(|error| self.failed(error))?;
        if incoming.status == 404 && self.has_session() {
            // The protocol says so of a session that is over, and then nothing was taken up. Whoever waits is woken by the
            // end, so that they find the session ended.
            let why = "the server has ended the session".to_owned();
            let _ = self.ledger.break_off(id, Broken { sent: false, why });
            return Err(Fault::Ended.into());
        }
        self.meet(&incoming.headers, message)?;
        match (incoming.status, media(&incoming).as_str()) {
            (200, "application/json") => self.take_whole(id, message, incoming).await,
            (200, "text/event-stream") => self.take_events(id, message, incoming).await,
            (200, _) => Err(End::unknown(
                "the server answered with another kind of content than JSON or a stream of events",
            )),
            (status @ 201..=299, _) => {
                Err(End::unknown(format!("the server answered with status {status} and no answer")))
            }
            _ => self.take_refusal(id, message, incoming).await,
        }
    }

    /// A request that came to nothing. Where its token did, that says what a person runs.
    pub(super) fn failed(&self, error: EgressError) -> End {
        let token = matches!(error.fault, EgressFault::Credential(CredentialFault::OAuth { .. }));
        match End::from(error) {
            End::Unsent(why) if token => End::Unsent(format!("{why}{}", self.remedy(None))),
            end => end,
        }
    }

    /// The answer is the body.
    async fn take_whole(&self, id: i64, message: &Message, incoming: Incoming) -> Result<(), End> {
        let body = body(incoming, MAX_LINE_BYTES).await?;
        let body = body.ok_or_else(|| End::unknown(Fault::LongLine.to_string()))?;
        match self.take(id, message, &body).await? {
            true => Ok(()),
            false => Err(End::unknown("what the server answered is no answer to what was asked")),
        }
    }

    /// One message that came over the request; true when it was its answer.
    async fn take(&self, id: i64, message: &Message, bytes: &[u8]) -> Result<bool, End> {
        let mut line = line::read(bytes).map_err(|fault| End::unknown(fault.to_string()))?;
        if message.method() == DISCOVER && is_no_discovery(id, &line) {
            line =
                line::read(&unknown_method(id)).map_err(|fault| End::unknown(fault.to_string()))?;
        }
        if let Line::Answer { id: Some(answered), message: answer, .. } = &line
            && *answered == id
            && message.method() == "initialize"
            && let Some(revision) = answer.pointer("/result/protocolVersion")
        {
            self.agree(revision.as_str().unwrap_or_default());
        }
        Ok(self.sorter.sort(line, bytes.len(), Over::Request(id)).await?)
    }

    /// The answer is one of the events, or one of those of a stream that takes up where this one ends.
    async fn take_events(
        &self,
        id: i64,
        message: &Message,
        mut incoming: Incoming,
    ) -> Result<(), End> {
        let (mut place, mut idle) = (Place::default(), 0);
        loop {
            let (end, heard) = self.hear(id, message, &mut incoming, &mut place).await?;
            let why = match end {
                Heard::Answer => return Ok(()),
                Heard::End(why) => why,
            };
            idle = if heard { 0 } else { idle + 1 };
            let ended = format!("the stream of the answer ended without the answer{why}");
            let resumed = self.was_initialized() && idle < MAX_RESUMED;
            let Some(last) = place.last.as_deref().filter(|_| resumed) else {
                return Err(End::unknown(ended));
            };
            // The call is not made again: this asks for the rest of what it brings.
            tokio::time::sleep(place.retry.unwrap_or(RETRY)).await;
            let request = self.get(Some(last)).map_err(|_| End::unknown(ended.clone()))?;
            incoming = match self.egress.open(request).await {
                Ok(again) if again.status == 200 && media(&again) == "text/event-stream" => again,
                Ok(_) | Err(_) => return Err(End::unknown(ended)),
            };
        }
    }

    /// Listens to one stream until the answer came or the stream ended. Also says whether any message came.
    async fn hear(
        &self,
        id: i64,
        message: &Message,
        incoming: &mut Incoming,
        place: &mut Place,
    ) -> Result<(Heard, bool), End> {
        let (mut events, mut heard) = (Events::default(), false);
        loop {
            let piece = match incoming.piece().await {
                Ok(Some(piece)) => piece,
                Ok(None) => return Ok((Heard::End(String::new()), heard)),
                Err(error) => return Ok((Heard::End(format!(": {}", why(&error))), heard)),
            };
            events.push(&piece).map_err(|_| End::unknown(Fault::LongLine.to_string()))?;
            let mut answered = false;
            while let Some(item) = events.next() {
                match item {
                    Item::Nothing(bytes) => self.sorter.unasked(bytes)?,
                    // What comes after the answer is looked at all the same: that tools changed, for one.
                    Item::Message(data) => {
                        heard = true;
                        answered |= self.take(id, message, &data).await?;
                    }
                }
            }
            place.learn(&events);
            if answered {
                self.linger(id, message, incoming, &mut events).await?;
                return Ok((Heard::Answer, heard));
            }
        }
    }

    /// Hears a stream out for a moment after its answer. Only what ends the session counts any more.
    async fn linger(
        &self,
        id: i64,
        message: &Message,
        incoming: &mut Incoming,
        events: &mut Events,
    ) -> Result<(), End> {
        let until = Instant::now() + LINGER;
        while let Ok(Ok(Some(piece))) = timeout_at(until, incoming.piece()).await {
            if events.push(&piece).is_err() {
                return Ok(());
            }
            while let Some(item) = events.next() {
                let taken = match item {
                    Item::Nothing(bytes) => self.sorter.unasked(bytes).map_err(End::from),
                    Item::Message(data) => self.take(id, message, &data).await.map(drop),
                };
                if let Err(End::Over(fault)) = taken {
                    return Err(fault.into());
                }
            }
        }
        Ok(())
    }

    /// A status that is no success.
    async fn take_refusal(
        &self,
        id: i64,
        message: &Message,
        incoming: Incoming,
    ) -> Result<(), End> {
        let status = incoming.status;
        let words = self.refused(&incoming);
        let end = match NOT_TAKEN_UP.contains(&status) {
            true => End::Refused(words),
            false => End::Unknown(words),
        };
        let wants_leave = matches!(status, 401 | 403);
        if !(400..500).contains(&status) || wants_leave {
            return Err(end);
        }
        let said = body(incoming, MAX_REFUSAL_BYTES).await.ok().flatten();
        let said = said.and_then(|said| refusal(id, &said));
        // A server of an older revision says in many ways that it does not know what it is asked first.
        let stands_for = (message.method() == DISCOVER).then(|| unknown_method(id));
        match said.or(stands_for) {
            Some(answer) => self.take(id, message, &answer).await.map(drop),
            None => Err(end),
        }
    }

    /// Tells something that has no answer: a notice, or an answer of ours.
    async fn tell(&self, line: &[u8], message: &Message, written: Option<oneshot::Sender<()>>) {
        if let Some(id) = message.gives_up().filter(|id| self.ledger.is_subscription(Some(*id))) {
            self.ledger.give_up(id);
        }
        // A stateless server hears of nothing but requests: that nobody waits any more it sees by the closed connection.
        if !self.was_initialized() {
            let _ = written.map(|written| written.send(()));
            return;
        }
        let answered = match self.post(line, message) {
            Ok(request) => {
                let sending = self.egress.open(request.deadlines(short()));
                timeout(TELL_WAIT, sending)
                    .await
                    .map_err(|_| "it gave no answer in time".to_owned())
            }
            Err(fault) => Err(fault.to_string()),
        };
        let answered = answered.and_then(|answered| answered.map_err(|error| error.to_string()));
        let why = match answered {
            Ok(answer) if answer.status == 404 && self.has_session() => {
                return self.ledger.fail(Fault::Ended);
            }
            Ok(answer) if (200..300).contains(&answer.status) => {
                if let Err(fault) = self.meet(&answer.headers, message) {
                    return self.ledger.fail(fault);
                }
                drop(answer);
                if message.method() == "notifications/initialized" {
                    return self.follow(written).await;
                }
                let _ = written.map(|written| written.send(()));
                return;
            }
            Ok(answer) => self.refused(&answer),
            Err(why) => why,
        };
        tracing::debug!(method = message.method(), "an MCP server was not told: {why}");
        if message.method() == "notifications/initialized" {
            self.ledger.fail(Fault::Unusable(why));
        }
    }
}

/// How a stream ended.
enum Heard {
    /// With the answer.
    Answer,
    /// Without it; why, where that is known.
    End(String),
}

/// Where in a stream one is.
#[derive(Debug, Default)]
pub(super) struct Place {
    last: Option<String>,
    retry: Option<Duration>,
}

impl Place {
    fn learn(&mut self, events: &Events) {
        self.last = events.last_id().map(str::to_owned).or(self.last.take());
        self.retry = events.retry().or(self.retry);
    }
}

/// The whole body; nothing when it is longer than that.
async fn body(mut incoming: Incoming, most: usize) -> Result<Option<Vec<u8>>, EgressError> {
    let mut body = Vec::new();
    while let Some(piece) = incoming.piece().await? {
        if body.len().saturating_add(piece.len()) > most {
            return Ok(None);
        }
        body.extend_from_slice(&piece);
    }
    Ok(Some(body))
}

/// The error in the body of a refusal, as the answer to the request that was refused: who refuses may not have read its
/// number.
fn refusal(id: i64, body: &[u8]) -> Option<Vec<u8>> {
    let Ok(Line::Answer { id: said, reply: Reply::Error(..) | Reply::Needs(_), message }) =
        line::read(body)
    else {
        return None;
    };
    let Value::Object(mut message) = message else { return None };
    if said.is_some_and(|said| said != id) {
        return None;
    }
    message.insert("id", id);
    Some(message.to_canonical())
}

/// Whether a server of an older revision answered what it does not know as if it did.
fn is_no_discovery(id: i64, line: &Line) -> bool {
    let Line::Answer { id: Some(said), reply: Reply::Result(result), .. } = line else {
        return false;
    };
    *said == id && result.get("supportedVersions").is_none()
}

fn unknown_method(id: i64) -> Vec<u8> {
    let (mut error, mut message) = (Object::new(), Object::new());
    error.insert("code", NO_METHOD);
    error.insert("message", "refused");
    message.insert("jsonrpc", "2.0");
    message.insert("id", id);
    message.insert("error", error);
    message.to_canonical()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_a_status_says_for_certain_was_not_taken_up() {
        for open in [400, 402, 408, 409, 422, 425, 499, 500, 502, 503, 504] {
            assert!(!NOT_TAKEN_UP.contains(&open), "{open}");
        }
        assert!(NOT_TAKEN_UP.contains(&401) && NOT_TAKEN_UP.contains(&404));
    }

    #[test]
    fn a_refusal_answers_what_was_refused() {
        let read = |text: &str| {
            refusal(7, text.as_bytes()).map(|answer| String::from_utf8(answer).unwrap())
        };
        let error =
            r#"{"error":{"code":-32020,"data":{"a":1},"message":"no"},"id":7,"jsonrpc":"2.0"}"#;
        assert_eq!(read(error).as_deref(), Some(error));
        for without in [
            error.replace("\"id\":7,", ""),
            error.replace(":7", ":null"),
            error.replace(":7", ":\"server-error\""),
        ] {
            assert_eq!(read(&without).as_deref(), Some(error), "{without}");
        }
        for none in [
            "",
            "nope",
            "{}",
            &error.replace(":7", ":8"),
            r#"{"jsonrpc":"2.0","id":7,"result":{}}"#,
        ] {
            assert_eq!(read(none), None, "{none}");
        }
        assert_eq!(refusal(7, &unknown_method(7)), Some(unknown_method(7)));
    }
}
