//! An agent that is a program: it speaks one JSON object a line over its standard streams.
//!
//! All state is in [`Exec`] and none in its futures: a dropped [`propose`](Agent::propose) loses nothing, and the next
//! one of the same request takes up the same reply.

mod streams;
mod wire;

use std::fmt;
use std::io;
use std::process::ExitStatus;
use std::time::Duration;

use portcullis_domain::ports::{Agent, AgentFailure, BoxFuture, View};
use portcullis_domain::run::EndReason;
use portcullis_sandbox::child::{AgentChild, Confinement};
use tokio::time::{Instant, sleep, timeout, timeout_at};

pub use portcullis_sandbox::child::STDERR_TAIL_BYTES;
pub use streams::MAX_LINE_BYTES;
use streams::{Moved, Streams};
pub use wire::{MAX_VIEW_BYTES, PROTOCOL_VERSION};

/// How long a program that closed its output may take to end, before it is killed.
const LINGER: Duration = Duration::from_secs(1);

/// How long its last words on standard error are waited for; a descendant may hold the pipe open.
const LAST_WORDS: Duration = Duration::from_millis(200);

/// How often an ending program is looked at.
const LOOK: Duration = Duration::from_millis(5);

/// How often a program that owes something is looked at: a descendant may hold its output open when it is gone.
const GLANCE: Duration = Duration::from_millis(100);

/// How long an agent may take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Deadlines {
    /// From the first request to its hello. 30 seconds unless set.
    pub hello: Duration,
    /// For one reply, from the moment that it is waited for. 10 minutes unless set.
    pub reply: Duration,
    /// From the last line to its end, before it is killed. 2 seconds unless set.
    pub end: Duration,
}

impl Default for Deadlines {
    fn default() -> Self {
        Self {
            hello: Duration::from_secs(30),
            reply: Duration::from_mins(10),
            end: Duration::from_secs(2),
        }
    }
}

/// Why an agent's program could not be talked to at all. It was killed.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// There is no tokio runtime here.
    #[error("an agent's program can only be started inside a tokio runtime with IO and time")]
    NoRuntime,
    /// Somebody took a pipe of the child.
    #[error("one of the three pipes of the agent's program was taken before")]
    PipeTaken,
    /// The pipes cannot be waited on.
    #[error("the pipes of the agent's program cannot be used")]
    Pipe(#[source] io::Error),
}

/// How a program ended after its last line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ending {
    /// By itself.
    Exited(ExitStatus),
    /// It was killed: it took too long, or had failed before.
    Killed,
}

/// Where the conversation stands.
#[derive(Clone, Copy, Debug)]
enum Stage {
    /// Our hello is queued; theirs is not here.
    Greeting,
    /// Nothing is asked.
    Idle,
    /// A view is queued or written, and its reply is not here.
    Asked { request: u64 },
}

/// A running program that proposes.
///
/// Dropping it kills the program and all that it started; [`Exec::end`] gives it time.
pub struct Exec {
    streams: Streams,
    child: AgentChild,
    deadlines: Deadlines,
    stage: Stage,
    /// The request of the last view that it was sent.
    told: Option<u64>,
    failure: Option<AgentFailure>,
}

impl Exec {
    /// Takes a started program over. Nothing is said to it before the first request.
    ///
    /// # Errors
    /// [`StartError`]; the program was then killed.
    pub fn start(mut child: AgentChild, deadlines: Deadlines) -> Result<Self, StartError> {
        if tokio::runtime::Handle::try_current().is_err() {
            return Err(StartError::NoRuntime);
        }
        let (Some(stdin), Some(stdout), Some(stderr)) =
            (child.stdin.take(), child.stdout.take(), child.stderr.take())
        else {
            return Err(StartError::PipeTaken);
        };
        let mut streams = Streams::new(stdin, stdout, stderr).map_err(StartError::Pipe)?;
        streams.queue(&wire::hello());
        Ok(Self { streams, child, deadlines, stage: Stage::Greeting, told: None, failure: None })
    }

    /// Its process id.
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// What is enforced on it.
    #[must_use]
    pub const fn confinement(&self) -> Confinement {
        self.child.confinement
    }

    /// The last lines that it wrote to standard error and that were read so far, safe to print: at most
    /// [`STDERR_TAIL_BYTES`] as they were written.
    #[must_use]
    pub fn stderr_tail(&self) -> Vec<String> {
        self.streams.tail.lines()
    }

    /// Says that nothing more will be asked, closes the program's input, and waits for its end; kills it when that
    /// takes too long. Every later request fails.
    ///
    /// When dropped early, the program is still there until `self` is dropped.
    pub async fn end(&mut self) -> Ending {
        if self.failure.is_some() {
            self.kill().await;
            return Ending::Killed;
        }
        self.failure = Some(AgentFailure {
            reason: EndReason::AgentExited,
            message: "the agent's program was told to end before this request".to_owned(),
        });
        self.streams.queue(&wire::end());
        let by_itself = timeout(self.deadlines.end, async {
            tokio::select! {
                status = exit_of(&mut self.child, LOOK) => status,
                never = self.streams.finish() => match never {},
            }
        });
        if let Ok(Some(status)) = by_itself.await {
            return Ending::Exited(status);
        }
        self.kill().await;
        Ending::Killed
    }

    async fn reply(&mut self, view: View) -> Result<Vec<u8>, AgentFailure> {
        if let Some(failure) = &self.failure {
            return Err(failure.clone());
        }
        match self.exchange(view).await {
            Ok(line) => Ok(line),
            Err(fault) => Err(self.fail(fault).await),
        }
    }

    async fn exchange(&mut self, view: View) -> Result<Vec<u8>, Fault> {
        if matches!(self.stage, Stage::Greeting) {
            let line = self.line(self.deadlines.hello).await?;
            wire::check_hello(&line).map_err(Fault::Protocol)?;
            self.stage = Stage::Idle;
        }
        if let Stage::Asked { request } = self.stage
            && request != view.request
        {
            // The one who asked is gone. The program still owes that reply before it can give another.
            self.line(self.deadlines.reply).await?;
            self.stage = Stage::Idle;
        }
        if matches!(self.stage, Stage::Idle) {
            if self.streams.has_unasked().await {
                return Err(Fault::Unasked);
            }
            let request = view.request;
            let line = wire::view(view, self.told).map_err(|_| Fault::ViewTooLarge)?;
            self.streams.queue(&line);
            self.told = Some(request);
            self.stage = Stage::Asked { request };
        }
        let line = self.line(self.deadlines.reply).await?;
        self.stage = Stage::Idle;
        Ok(line)
    }

    /// The next line, once all that was queued is written. Of a program that has ended, what it had written already.
    async fn line(&mut self, wait: Duration) -> Result<Vec<u8>, Fault> {
        let until = Instant::now() + wait;
        let mut watched = true;
        loop {
            if let Some(line) = self.whole_line()? {
                return Ok(line);
            }
            // `timeout_at` looks at the pipes first, and a flood may always be ready.
            if Instant::now() >= until {
                return Err(Fault::Silent(wait));
            }
            tokio::select! {
                moved = timeout_at(until, self.streams.step()) => match moved {
                    Ok(Moved::Some) => {}
                    Ok(Moved::Closed) => return Err(Fault::Closed),
                    Err(_) => return Err(Fault::Silent(wait)),
                },
                status = exit_of(&mut self.child, GLANCE), if watched => match status {
                    Some(_) => return self.last_line(),
                    None => watched = false,
                },
            }
        }
    }

    /// The line that is there, once all that was queued is written.
    fn whole_line(&mut self) -> Result<Option<Vec<u8>>, Fault> {
        if self.streams.lines.is_too_long() {
            return Err(Fault::LongLine);
        }
        Ok(if self.streams.is_written() { self.streams.lines.take() } else { None })
    }

    /// The last line of a program that has ended. All that it wrote is here or in the pipe, so nothing is waited for.
    fn last_line(&mut self) -> Result<Vec<u8>, Fault> {
        self.streams.read_left().map_err(|_| Fault::Closed)?;
        self.whole_line()?.ok_or(Fault::Closed)
    }

    /// Ends the program and remembers why.
    async fn fail(&mut self, fault: Fault) -> AgentFailure {
        let partial = !self.streams.lines.is_empty();
        let reason = fault.reason();
        // Remembered before the first wait, in case the caller does not stay until the last.
        self.failure =
            Some(AgentFailure { reason, message: fault.sentence(self.stage, partial, None) });
        let status = match fault {
            Fault::Closed => timeout(LINGER, exit_of(&mut self.child, LOOK)).await.ok().flatten(),
            _ => None,
        };
        self.kill().await;
        let _its_pipe_may_be_held_open = timeout(LAST_WORDS, self.streams.drain()).await;
        let mut message = fault.sentence(self.stage, partial, status);
        if let Some(words) = self.streams.tail.quote() {
            message.push_str("; it last wrote to standard error: ");
            message.push_str(&words);
        }
        let failure = AgentFailure { reason, message };
        self.failure = Some(failure.clone());
        failure
    }

    /// Kills what is left and collects it.
    async fn kill(&mut self) {
        self.child.kill();
        let _dropping_waits_longer = timeout(LINGER, exit_of(&mut self.child, LOOK)).await;
    }
}

impl Agent for Exec {
    fn propose(&mut self, view: View) -> BoxFuture<'_, Result<Vec<u8>, AgentFailure>> {
        Box::pin(self.reply(view))
    }
}

impl fmt::Debug for Exec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Exec")
            .field("pid", &self.pid())
            .field("stage", &self.stage)
            .finish_non_exhaustive()
    }
}

/// What an agent's program did wrong.
#[derive(Debug)]
enum Fault {
    Closed,
    Silent(Duration),
    LongLine,
    Unasked,
    Protocol(String),
    ViewTooLarge,
}

impl Fault {
    const fn reason(&self) -> EndReason {
        match self {
            Self::Closed => EndReason::AgentExited,
            Self::Silent(_) => EndReason::AgentSilent,
            Self::LongLine | Self::Unasked => EndReason::AgentFlooded,
            Self::Protocol(_) => EndReason::AgentProtocol,
            Self::ViewTooLarge => EndReason::AgentError,
        }
    }

    fn sentence(&self, stage: Stage, partial: bool, status: Option<ExitStatus>) -> String {
        let owed = match stage {
            Stage::Greeting => "its hello".to_owned(),
            Stage::Idle => "the next request".to_owned(),
            Stage::Asked { request } => format!("its reply to request {request}"),
        };
        match self {
            Self::Closed => {
                let place = if partial { "in the middle of" } else { "before" };
                let how =
                    status.map_or("it closed its output".to_owned(), |status| status.to_string());
                format!("the agent's program ended {place} {owed} ({how})")
            }
            Self::Silent(wait) => {
                format!("the agent's program did not give {owed} within {} ms", wait.as_millis())
            }
            Self::LongLine => {
                format!(
                    "the agent's program wrote a line of more than {MAX_LINE_BYTES} bytes as {owed}"
                )
            }
            Self::Unasked => {
                format!("the agent's program wrote more than it was asked for, before {owed}")
            }
            Self::Protocol(what) => {
                format!("the agent's program does not speak the agent protocol: {what}")
            }
            Self::ViewTooLarge => {
                format!("the goal and the tools do not fit into a line of {MAX_VIEW_BYTES} bytes")
            }
        }
    }
}

/// Waits for the program's own end; `None` when the system cannot say.
async fn exit_of(child: &mut AgentChild, look: Duration) -> Option<ExitStatus> {
    loop {
        match child.try_wait() {
            Ok(Some(status)) => return Some(status),
            Ok(None) => sleep(look).await,
            Err(_) => return None,
        }
    }
}
