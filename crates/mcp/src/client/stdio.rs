//! A session with a server of our own starting.

use std::sync::Arc;
use std::time::Duration;

use portcullis_canon::{Object, Value};
use portcullis_domain::ports::BoxFuture;
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio::time::{Instant, timeout_at};

use super::ledger::{Fault, Ledger};
use super::pipes::{Reader, complain, write};
use super::process::{self, Process, Streams};
use super::server::StdioServer;
use super::sort::Sorter;
use super::talk::Talk;
use super::wire::{QUEUE, Wire};
use crate::listing::Listing;
use crate::offer::{Offer, OfferKind};
use crate::progress::Told;
use crate::session::{Answer, Asks, CallFailure, Leave, Session, SessionError};

/// What the first stage is called in sentences.
const STARTING: &str = "starting";

/// A session over the standard streams of a server's program. Dropping it kills the program and all that it started,
/// and waits until it is gone, which takes some milliseconds.
pub struct Stdio {
    process: Arc<Process>,
    talk: Talk,
    _pipes: JoinSet<()>,
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
        let (process, streams) = started?;
        let (process, ledger) = (Arc::new(process), Arc::new(Ledger::new()));
        let (wire, pipes) = connect_pipes(streams, &process, &ledger)
            .map_err(|error| SessionError::Start(format!("its pipes cannot be used: {error}")))?;
        let failure = match Talk::open(wire, wait, until).await {
            Ok(talk) => return Ok(Self { process, talk, _pipes: pipes }),
            Err(failure) => failure,
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
}

impl Session for Stdio {
    fn list(&self) -> BoxFuture<'_, Result<Listing, SessionError>> {
        Box::pin(self.talk.list())
    }

    fn call<'a>(
        &'a self,
        tool: &'a str,
        arguments: Object,
        leave: Leave,
        told: Told<'a>,
    ) -> BoxFuture<'a, Result<Answer, CallFailure>> {
        Box::pin(self.talk.call(tool, arguments, leave, told))
    }

    fn offers(&self, kind: OfferKind) -> BoxFuture<'_, Result<Vec<Offer>, SessionError>> {
        Box::pin(self.talk.offers(kind))
    }

    fn ask<'a>(
        &'a self,
        asks: Asks,
        params: Object,
        deadline: Duration,
        told: Told<'a>,
    ) -> BoxFuture<'a, Result<Value, CallFailure>> {
        Box::pin(self.talk.ask(asks, params, deadline, told))
    }

    fn changes(&self) -> u64 {
        self.talk.changes()
    }

    fn has_ended(&self) -> bool {
        matches!(self.talk.fault(), Some(Fault::Closed | Fault::Deaf))
    }
}

impl Drop for Stdio {
    fn drop(&mut self) {
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
        sorter: Sorter::new(Arc::clone(ledger), outgoing.clone(), incoming),
    };
    let mut pipes = JoinSet::new();
    pipes.spawn(write(stdin, lines, Arc::clone(ledger)));
    pipes.spawn(complain(stderr, Arc::clone(process)));
    pipes.spawn(reader.run());
    Ok((Wire { ledger: Arc::clone(ledger), outgoing, incoming: received }, pipes))
}

/// Says why a session did not open as well as it is known: what the server did wrong, how it ended, its last words.
async fn explain(failure: SessionError, process: &Process, ledger: &Ledger) -> SessionError {
    let words = |sentence: String| match process.last_words() {
        Some(words) => format!("{sentence}; it last wrote to standard error: {words}"),
        None => sentence,
    };
    match (failure, ledger.fault()) {
        (failure @ SessionError::Deadline(..), _) => failure,
        (SessionError::Closed(during), fault @ (Some(Fault::Closed | Fault::Deaf) | None)) => {
            let how = match (process.ended().await, fault) {
                (Some(status), _) => format!("it ended while {during} ({status})"),
                (None, Some(Fault::Deaf)) => {
                    return SessionError::Protocol(words(Fault::Deaf.to_string()));
                }
                (None, _) => format!("it closed its output while {during}"),
            };
            process.heard_out().await;
            SessionError::Start(words(how))
        }
        (SessionError::Closed(_), Some(fault)) => SessionError::Protocol(words(fault.to_string())),
        (failure, _) => failure,
    }
}
