//! What all requests of one session share: where they go, and what was agreed with the server.

use std::sync::{Arc, Condvar, Mutex, OnceLock, PoisonError};
use std::time::Duration;

use portcullis_egress::{Deadlines, Egress, HeaderFault, Headers, Incoming, Method, Request};
use tokio::sync::{Semaphore, watch};
use tokio::time::timeout;

use super::super::ledger::{Fault, Ledger};
use super::super::sort::Sorter;
use super::head::Message;
use super::params::{self, Params};
use super::server::HttpServer;
use crate::listing::Listing;
use crate::login::{Challenge, Challenges};
use crate::session::SessionError;

/// The most requests that are open at once, beside streams of notices. What waits was not sent.
const MAX_OPEN: usize = 128;

/// The longest id of a session.
const MAX_ID_BYTES: usize = 1_024;

/// The longest name of a revision that is repeated in a header.
const MAX_REVISION_BYTES: usize = 40;

/// How long the end of a session may take to be told.
const GOODBYE_WAIT: Duration = Duration::from_secs(5);

/// How long a notice or an answer of ours may take.
pub(super) const TELL_WAIT: Duration = Duration::from_secs(30);

/// Headers of the protocol.
const SESSION: &str = "mcp-session-id";
const REVISION: &str = "mcp-protocol-version";

/// One session's server.
pub(super) struct Site {
    server: HttpServer,
    pub(super) egress: Egress,
    pub(super) ledger: Arc<Ledger>,
    pub(super) sorter: Sorter,
    /// The session's id, where the server gave it one.
    id: OnceLock<String>,
    /// The revision that `initialize` agreed on; nothing for a stateless one, whose requests say it themselves.
    revision: OnceLock<String>,
    params: Mutex<Params>,
    challenges: Challenges,
    pub(super) permits: Semaphore,
    /// Nothing is open any more, and the server was told.
    closed: watch::Sender<bool>,
    /// The same, for who cannot await it.
    over: Mutex<bool>,
    bell: Condvar,
}

impl Site {
    pub(super) fn new(
        server: HttpServer,
        egress: Egress,
        ledger: Arc<Ledger>,
        sorter: Sorter,
        challenges: Challenges,
    ) -> Self {
        Self {
            server,
            egress,
            ledger,
            sorter,
            id: OnceLock::new(),
            revision: OnceLock::new(),
            params: Mutex::default(),
            challenges,
            permits: Semaphore::new(MAX_OPEN),
            closed: watch::Sender::new(false),
            over: Mutex::new(false),
            bell: Condvar::new(),
        }
    }

    /// Whether the server keeps a session.
    pub(super) fn has_session(&self) -> bool {
        self.id.get().is_some()
    }

    /// Whether `initialize` opened it.
    pub(super) fn was_initialized(&self) -> bool {
        self.revision.get().is_some()
    }

    /// The request that carries a message.
    pub(super) fn post(&self, line: &[u8], message: &Message) -> Result<Request, HeaderFault> {
        let request = self
            .bare(Method::Post)?
            .header("accept", "application/json, text/event-stream")?
            .header("content-type", "application/json")?
            .body(line.trim_ascii_end().to_vec());
        match message.revision() {
            Some(revision) => {
                let request = message.route(request.header(REVISION, revision)?)?;
                let params = self.params.lock().unwrap_or_else(PoisonError::into_inner);
                params.put(message, request)
            }
            None if message.method() == "initialize" => Ok(request),
            None => self.within(request),
        }
    }

    /// The request for a stream of notices, from an event on where one is named.
    pub(super) fn get(&self, last_event: Option<&str>) -> Result<Request, HeaderFault> {
        let request =
            self.within(self.bare(Method::Get)?.header("accept", "text/event-stream")?)?;
        match last_event {
            Some(id) => request.header("last-event-id", id),
            None => Ok(request),
        }
    }

    fn bare(&self, method: Method) -> Result<Request, HeaderFault> {
        let request = Request::new(method, self.server.target.clone());
        Ok(match &self.server.credential {
            Some(credential) => request.credential(credential.clone()),
            None => request,
        })
    }

    /// Within what `initialize` agreed on.
    fn within(&self, mut request: Request) -> Result<Request, HeaderFault> {
        if let Some(revision) = self.revision.get() {
            request = request.header(REVISION, revision)?;
        }
        match self.id.get() {
            Some(id) => request.header(SESSION, id),
            None => Ok(request),
        }
    }

    /// Looks at the head of an answer: the session's id is given once, and stays.
    pub(super) fn meet(&self, headers: &Headers, message: &Message) -> Result<(), Fault> {
        if message.revision().is_some() {
            return Ok(());
        }
        let mut given = headers.iter().filter(|(name, _)| *name == SESSION).map(|(_, value)| value);
        let (Some(value), second) = (given.next(), given.next()) else { return Ok(()) };
        if second.is_some() {
            return Err(Fault::Identity("stands there twice"));
        }
        let fits =
            (1..=MAX_ID_BYTES).contains(&value.len()) && value.iter().all(u8::is_ascii_graphic);
        let Some(text) = std::str::from_utf8(value).ok().filter(|_| fits) else {
            return Err(Fault::Identity("is not 1 to 1,024 visible ASCII characters"));
        };
        match self.id.get() {
            Some(known) if known == text => Ok(()),
            Some(_) => Err(Fault::Identity("changed")),
            None if message.method() == "initialize" => {
                let _ = self.id.set(text.to_owned());
                Ok(())
            }
            // Given too late to be one.
            None => Ok(()),
        }
    }

    /// What a status says that is no success, in one sentence. A refusal for want of a token is noted.
    pub(super) fn refused(&self, answer: &Incoming) -> String {
        let said = format!("the server answered with status {}", answer.status);
        let more = match answer.status {
            401 => "it wants a credential, or another one",
            403 => "it does not allow this",
            _ => return said,
        };
        let challenge = Challenge::read(answer.status, &answer.headers);
        if answer.status == 403 && !challenge.wants_more() {
            return format!("{said}: {more}");
        }
        let hint = match challenge.wants_more() {
            true => self.remedy(Some(challenge.plain_scope().unwrap_or("SCOPES"))),
            false => self.remedy(None),
        };
        self.challenges.note(challenge);
        format!("{said}: {more}{hint}")
    }

    /// What a person runs to get a token, or one that may do more, at the end of a sentence. Where the server does not say
    /// plainly what more is, a person has to know.
    pub(super) fn remedy(&self, scope: Option<&str>) -> String {
        match (&self.server.login, scope) {
            (Some(login), Some(scope)) => format!("; run `{login} --scope '{scope}'`"),
            (Some(login), None) => format!("; run `{login}`"),
            (None, _) => String::new(),
        }
    }

    /// What `initialize` agreed on.
    pub(super) fn agree(&self, revision: &str) {
        if revision.len() <= MAX_REVISION_BYTES && revision.bytes().all(|b| b.is_ascii_graphic()) {
            let _ = self.revision.set(revision.to_owned());
        }
    }

    /// Learns which arguments of which tool stand in headers too, for a revision that knows of that. A tool that says it
    /// in a wrong way is left out, as the protocol wants it.
    pub(super) fn learn(&self, listing: Listing) -> Result<Listing, SessionError> {
        if self.was_initialized() {
            return Ok(listing);
        }
        let (listing, params) = params::of(listing)?;
        *self.params.lock().unwrap_or_else(PoisonError::into_inner) = params;
        Ok(listing)
    }

    /// Waits until nothing is open any more and the server was told.
    pub(super) async fn closed(&self) {
        // The sender lives in `self`.
        let _ = self.closed.subscribe().wait_for(|closed| *closed).await;
    }

    /// Blocks until then, and no longer than `most`. It needs no timer of a runtime, which may be about to end.
    pub(super) fn wait_closed(&self, most: Duration) {
        let over = self.over.lock().unwrap_or_else(PoisonError::into_inner);
        drop(self.bell.wait_timeout_while(over, most, |over| !*over));
    }

    /// Whether nothing is open any more and the server was told.
    pub(super) fn is_closed(&self) -> bool {
        *self.closed.borrow()
    }

    /// Nothing is open any more, and nothing is told any more.
    pub(super) fn close(&self) {
        self.closed.send_replace(true);
        *self.over.lock().unwrap_or_else(PoisonError::into_inner) = true;
        self.bell.notify_all();
    }

    /// Tells a server that keeps a session that this one is over.
    pub(super) async fn goodbye(&self) {
        if !self.has_session() || self.ledger.fault() == Some(Fault::Ended) {
            return;
        }
        let request = self.bare(Method::Delete).and_then(|request| self.within(request));
        let Ok(request) = request else { return };
        let told = timeout(GOODBYE_WAIT, self.egress.open(request.deadlines(short()))).await;
        let status = told.ok().and_then(Result::ok).map(|answer| answer.status);
        tracing::debug!(?status, "told an MCP server that its session is over");
    }
}

/// Deadlines for what is told and brings nothing back.
pub(super) const fn short() -> Deadlines {
    Deadlines { header: TELL_WAIT, idle: TELL_WAIT, total: TELL_WAIT }
}

/// The kind of content of an answer, in lower case and without parameters.
pub(super) fn media(incoming: &Incoming) -> String {
    let said = incoming.headers.text("content-type").unwrap_or_default();
    said.split(';').next().unwrap_or_default().trim().to_ascii_lowercase()
}
