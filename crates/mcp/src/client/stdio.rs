//! A session with a server of our own starting.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use portcullis_canon::{Object, Value, from_value, sanitize, to_value};
use portcullis_domain::ports::BoxFuture;
use rmcp::model::{
    CallToolRequest, CallToolRequestParams, ClientCapabilities, ClientConfig, ClientRequest,
    Implementation, JsonObject, ProtocolVersion, SubscriptionFilter,
};
use rmcp::service::{
    ClientInitializeError, ClientLifecycleMode, ClientServiceExt as _, RunningService, Subscription,
};
use rmcp::{ClientHandler, RoleClient};
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio::time::{Instant, timeout_at};

use super::ledger::{Fault, Ledger};
use super::pages::{self, Pages};
use super::pipes::{Reader, complain, write};
use super::process::{self, Process, Streams};
use super::request::ask;
use super::result;
use super::server::StdioServer;
use super::wire::Wire;
use crate::listing::Listing;
use crate::session::{Answer, CallFailure, Session, SessionError};

/// Lines that wait to be written, and answers that wait to be looked at.
const QUEUE: usize = 64;

/// How much of a refusal goes into a sentence.
const QUOTED_BYTES: usize = 300;

/// What the stages of a start are called in sentences.
const STARTING: &str = "starting";
const OPENING: &str = "opening the session";
const LISTING: &str = "listing its tools";

/// A session over the standard streams of a server's program. Dropping it kills the program and all that it started,
/// and waits until it is gone, which takes some milliseconds.
pub struct Stdio {
    process: Arc<Process>,
    ledger: Arc<Ledger>,
    service: RunningService<RoleClient, Nothing>,
    /// Held so that the server goes on telling of changes.
    _changes: Option<Subscription>,
    _pipes: JoinSet<()>,
    wait: Duration,
    /// The end of the deadline that began with the start, until the first listing.
    first: Mutex<Option<Instant>>,
}

/// What this client offers a server: nothing.
struct Nothing;

impl ClientHandler for Nothing {
    fn get_info(&self) -> ClientConfig {
        let own = Implementation::new("portcullis", env!("CARGO_PKG_VERSION"));
        ClientConfig::new(ClientCapabilities::default(), own)
            .with_protocol_version(ProtocolVersion::V_2025_11_25)
    }
}

impl Stdio {
    /// Starts the server and opens a session, in the newest revision that both speak. `wait` is one deadline for all of
    /// it, from the start to the end of the first [`list`](Session::list); each later listing has as long. A server that
    /// leaves questions of newer revisions without an answer is asked the older one after ten seconds.
    ///
    /// # Errors
    /// [`SessionError`] says at which stage it failed. The program was then killed, or never started.
    pub async fn connect(server: StdioServer, wait: Duration) -> Result<Self, SessionError> {
        let until = Instant::now() + wait;
        let starting = tokio::task::spawn_blocking(move || process::start(&server));
        // When it comes too late it is dropped where it comes, and with it the program.
        let started = timeout_at(until, starting).await;
        let started = started.map_err(|_| SessionError::Deadline(wait, STARTING))?;
        let started = started.map_err(|_| SessionError::Start("its start broke off".to_owned()))?;
        let (process, streams) = started.map_err(SessionError::Start)?;
        let (process, ledger) = (Arc::new(process), Arc::new(Ledger::new()));
        let (wire, pipes) = connect_pipes(streams, &process, &ledger)
            .map_err(|error| SessionError::Start(format!("its pipes cannot be used: {error}")))?;
        let opened = timeout_at(until, open(wire, &ledger)).await;
        let failure = match opened {
            Ok(Ok((service, changes))) => {
                let first = Mutex::new(Some(until));
                return Ok(Self {
                    process,
                    ledger,
                    service,
                    _changes: changes,
                    _pipes: pipes,
                    wait,
                    first,
                });
            }
            Ok(Err(failure)) => failure,
            Err(_) => SessionError::Deadline(wait, OPENING),
        };
        let failure = explain(failure, &process, &ledger).await;
        process.end();
        Err(failure)
    }

    /// The last lines that the server wrote to standard error and that were read so far, safe to print: at most
    /// [`STDERR_TAIL_BYTES`](portcullis_sandbox::child::STDERR_TAIL_BYTES) as they were written.
    #[must_use]
    pub fn stderr_tail(&self) -> Vec<String> {
        self.process.stderr_tail()
    }

    /// The process id of the server's keeper; `None` once the session is over.
    #[must_use]
    pub fn pid(&self) -> Option<u32> {
        self.process.id()
    }

    async fn list_all(&self) -> Result<Listing, SessionError> {
        let first = self.first.lock().unwrap_or_else(PoisonError::into_inner).take();
        let until = first.unwrap_or_else(|| Instant::now() + self.wait);
        let (mut pages, mut cursor) = (Pages::default(), None);
        loop {
            let request = ClientRequest::ListToolsRequest(pages::request(cursor));
            let reply = ask(self.service.peer(), &self.ledger, request, until).await;
            let reply = reply.map_err(|lost| pages::lost(lost, self.wait, LISTING))?;
            cursor = pages.take(reply)?;
            if cursor.is_none() {
                return pages.finish();
            }
        }
    }

    async fn call_once(
        &self,
        tool: String,
        arguments: Object,
        deadline: Duration,
    ) -> Result<Answer, CallFailure> {
        let until = Instant::now() + deadline;
        let arguments = exact(arguments)?;
        let params = CallToolRequestParams::new(tool).with_arguments(arguments);
        let request = ClientRequest::CallToolRequest(CallToolRequest::new(params));
        match ask(self.service.peer(), &self.ledger, request, until).await {
            Ok(reply) => result::answer(reply),
            Err(lost) => Err(result::lost(lost)),
        }
    }
}

impl Session for Stdio {
    fn list(&self) -> BoxFuture<'_, Result<Listing, SessionError>> {
        Box::pin(self.list_all())
    }

    fn call(
        &self,
        tool: &str,
        arguments: Object,
        deadline: Duration,
    ) -> BoxFuture<'_, Result<Answer, CallFailure>> {
        Box::pin(self.call_once(tool.to_owned(), arguments, deadline))
    }

    fn changes(&self) -> u64 {
        self.ledger.changes()
    }
}

impl Drop for Stdio {
    fn drop(&mut self) {
        self.ledger.fail(Fault::Closed);
        self.process.end();
    }
}

fn connect_pipes(
    streams: Streams,
    process: &Arc<Process>,
    ledger: &Arc<Ledger>,
) -> std::io::Result<(Wire, JoinSet<()>)> {
    use tokio::process::{ChildStderr, ChildStdin, ChildStdout};

    let (outgoing, lines) = mpsc::channel(QUEUE);
    let (incoming, received) = mpsc::channel(QUEUE);
    let stdin = ChildStdin::from_std(streams.stdin)?;
    let stderr = ChildStderr::from_std(streams.stderr)?;
    let reader = Reader {
        stdout: ChildStdout::from_std(streams.stdout)?,
        ledger: Arc::clone(ledger),
        process: Arc::clone(process),
        outgoing: outgoing.clone(),
        incoming,
    };
    let mut pipes = JoinSet::new();
    pipes.spawn(write(stdin, lines, Arc::clone(ledger)));
    pipes.spawn(complain(stderr, Arc::clone(process)));
    pipes.spawn(reader.run());
    Ok((Wire { ledger: Arc::clone(ledger), outgoing, incoming: received }, pipes))
}

type Opened = (RunningService<RoleClient, Nothing>, Option<Subscription>);

/// Agrees on a revision, and subscribes to changes where they do not come by themselves.
async fn open(wire: Wire, ledger: &Ledger) -> Result<Opened, SessionError> {
    let lifecycle = ClientLifecycleMode::Auto {
        preferred_versions: vec![ProtocolVersion::V_2026_07_28],
        legacy_version: Some(ProtocolVersion::V_2025_11_25),
    };
    let service = Nothing.serve_with_lifecycle(wire, lifecycle).await.map_err(refused)?;
    let Some(info) = service.peer().peer_info() else {
        return Err(SessionError::Protocol("it did not say who it is".to_owned()));
    };
    if !ProtocolVersion::KNOWN_VERSIONS.contains(&info.protocol_version) {
        let version = sanitize::clip(&sanitize::line(info.protocol_version.as_str()), 40);
        return Err(SessionError::Protocol(format!("it answers in the revision `{version}`")));
    }
    let Some(tools) = &info.capabilities.tools else {
        return Err(SessionError::Protocol("it offers no tools".to_owned()));
    };
    if info.protocol_version.has_initialize() || tools.list_changed != Some(true) {
        return Ok((service, None));
    }
    let filter = SubscriptionFilter::builder().tools_list_changed().build();
    match service.peer().listen(filter).await {
        Ok(changes) => Ok((service, Some(changes))),
        Err(_) => {
            let fault = ledger.fault().map_or_else(String::new, |fault| format!(" ({fault})"));
            Err(SessionError::Protocol(format!(
                "it says that it tells of changes of its tools, and does not{fault}"
            )))
        }
    }
}

/// A failed handshake, in one sentence that is safe to print.
fn refused(error: ClientInitializeError) -> SessionError {
    let quote = |text: &str| sanitize::clip(&sanitize::line(text), QUOTED_BYTES);
    match error {
        ClientInitializeError::ConnectionClosed(_)
        | ClientInitializeError::TransportError { .. }
        | ClientInitializeError::Cancelled => SessionError::Closed(OPENING),
        ClientInitializeError::ExpectedInitResponse(_)
        | ClientInitializeError::ExpectedInitResult(_) => {
            SessionError::Protocol("its answer to the handshake is another one".to_owned())
        }
        ClientInitializeError::LegacyFallbackFailed { fallback, .. } => refused(*fallback),
        ClientInitializeError::JsonRpcError(error) => SessionError::Protocol(format!(
            "it refuses the handshake (error {}: {})",
            error.code.0,
            quote(&error.message)
        )),
        ClientInitializeError::NoCompatibleProtocolVersion { .. } => {
            SessionError::Protocol("it speaks no revision that we speak".to_owned())
        }
        other => SessionError::Protocol(quote(&other.to_string())),
    }
}

/// Says why a session did not open as well as it is known: what the server did wrong, how it ended, its last words.
async fn explain(failure: SessionError, process: &Process, ledger: &Ledger) -> SessionError {
    let words = |sentence: String| match process.last_words() {
        Some(words) => format!("{sentence}; it last wrote to standard error: {words}"),
        None => sentence,
    };
    match (failure, ledger.fault()) {
        (failure @ SessionError::Deadline(..), _) => failure,
        (SessionError::Closed(during), Some(Fault::Closed) | None) => {
            let how = match process.ended().await {
                Some(status) => format!("it ended while {during} ({status})"),
                None => format!("it closed its output while {during}"),
            };
            process.heard_out().await;
            SessionError::Start(words(how))
        }
        (SessionError::Closed(_), Some(fault)) => SessionError::Protocol(words(fault.to_string())),
        (failure, _) => failure,
    }
}

/// The arguments as they are handed over, when no digit is lost on the way.
fn exact(arguments: Object) -> Result<JsonObject, CallFailure> {
    let arguments = Value::Object(arguments);
    let handed: Option<JsonObject> = from_value(&arguments).ok();
    handed.filter(|handed| to_value(handed).is_ok_and(|back| back == arguments)).ok_or_else(|| {
        CallFailure::NotSent("the arguments cannot be sent as they stand".to_owned())
    })
}

#[cfg(test)]
mod tests {
    use portcullis_canon::{Limits, parse};

    use super::*;

    #[test]
    fn arguments_are_sent_to_the_digit_or_not_at_all() {
        let read = |text: &str| match parse(text.as_bytes(), &Limits::default()).unwrap() {
            Value::Object(object) => object,
            other => panic!("{other:?}"),
        };
        for whole in [
            "{}",
            r#"{"a":18446744073709551615,"b":-9223372036854775808,"c":1.5,"d":1e21,"e":[null,true,"x"]}"#,
        ] {
            let sent = to_value(&exact(read(whole)).unwrap()).unwrap();
            assert_eq!(sent, Value::Object(read(whole)), "{whole}");
        }
        for lossy in [r#"{"a":18446744073709551616}"#, r#"{"a":0.1000000000000000000001}"#] {
            assert!(matches!(exact(read(lossy)), Err(CallFailure::NotSent(_))), "{lossy}");
        }
    }
}
