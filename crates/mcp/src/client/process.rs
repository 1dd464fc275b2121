//! The server's process: started with nothing of ours, and ended with all that it started.

use std::ffi::OsString;
use std::os::unix::ffi::OsStrExt as _;
use std::process::{ChildStderr, ChildStdin, ChildStdout, ExitStatus};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use portcullis_canon::sanitize;
use portcullis_sandbox::child::{AgentChild, AgentSpec, Bounds, Network, Tail, spawn};
use tokio::sync::watch;
use tokio::time::{Instant, sleep, timeout};

use super::server::StdioServer;
use super::{reach, room};
use crate::session::SessionError;

/// Open files that a server may have: those of a runtime with many packages.
const OPEN_FILES: u64 = 4_096;

/// How long the end of a program that closed its output is waited for, and of its last words; and how often it is looked at.
const LINGER: Duration = Duration::from_secs(2);
const LOOK: Duration = Duration::from_millis(5);

/// A running server. Dropping it ends it.
pub(super) struct Process {
    running: Mutex<Running>,
    tail: Mutex<Tail>,
    /// Whether all that it wrote to standard error was read.
    silent: watch::Sender<bool>,
}

struct Running {
    /// `None` once it was ended.
    child: Option<AgentChild>,
    /// How it ended by itself.
    status: Option<ExitStatus>,
}

/// The server's three streams.
pub(super) struct Streams {
    pub(super) stdin: ChildStdin,
    pub(super) stdout: ChildStdout,
    pub(super) stderr: ChildStderr,
}

/// Starts the server's program, if its files are as they were pinned. It blocks for as long as our own helper takes.
pub(super) fn start(server: &StdioServer) -> Result<(Process, Streams), SessionError> {
    let spec = spec(server).map_err(SessionError::Start)?;
    server.pinned.check()?;
    let mut child = spawn(&spec, &server.helper_exe)
        .map_err(|error| SessionError::Start(sanitize::line(&error.to_string()).into_owned()))?;
    let streams = (child.stdin.take(), child.stdout.take(), child.stderr.take());
    let (Some(stdin), Some(stdout), Some(stderr)) = streams else {
        return Err(SessionError::Start("one of its three streams is missing".to_owned()));
    };
    let running = Mutex::new(Running { child: Some(child), status: None });
    let (tail, silent) = (Mutex::new(Tail::default()), watch::Sender::new(false));
    let process = Process { running, tail, silent };
    Ok((process, Streams { stdin, stdout, stderr }))
}

/// How it is started, in a home that it was given. The error is a sentence.
fn spec(server: &StdioServer) -> Result<AgentSpec, String> {
    let (home, temporary) = room::furnish(&server.room).map_err(|error| {
        let room = sanitize::line_bytes(server.room.as_os_str().as_bytes());
        format!("the server's own folder {room} cannot be used: {error}")
    })?;
    reach::check(server, &home)?;
    let mut spec = AgentSpec::new(&server.program, &home);
    spec.args.clone_from(&server.args);
    spec.env = environment(server, home.into(), temporary.into());
    spec.search_path.clone_from(&server.search_path);
    (spec.confined, spec.kept, spec.network) = (false, true, Network::Open);
    spec.bounds = Bounds { open_files: OPEN_FILES, ..Bounds::default() };
    Ok(spec)
}

/// The whole environment: what is always there, and what the operator named instead or beside.
fn environment(
    server: &StdioServer,
    home: OsString,
    temporary: OsString,
) -> Vec<(OsString, OsString)> {
    let path = server.search_path.clone();
    let mut all: Vec<(OsString, OsString)> =
        vec![("PATH".into(), path), ("HOME".into(), home), ("TMPDIR".into(), temporary)];
    for (name, value) in &server.env {
        all.retain(|(own, _)| own != name);
        all.push((name.clone(), value.clone()));
    }
    all
}

impl Process {
    /// Takes what it wrote to standard error.
    pub(super) fn complained(&self, bytes: &[u8]) {
        self.tail.lock().unwrap_or_else(PoisonError::into_inner).push(bytes);
    }

    /// It writes no more to standard error.
    pub(super) fn fell_silent(&self) {
        self.silent.send_replace(true);
    }

    /// Resolves when all that it wrote to standard error was read, or after a moment: a descendant may hold the pipe open.
    pub(super) async fn heard_out(&self) {
        let mut silent = self.silent.subscribe();
        let _ = timeout(LINGER, silent.wait_for(|silent| *silent)).await;
    }

    /// The end of what it wrote to standard error, in one line that is safe to print.
    pub(super) fn last_words(&self) -> Option<String> {
        self.tail.lock().unwrap_or_else(PoisonError::into_inner).quote()
    }

    /// The last lines that it wrote to standard error, safe to print.
    pub(super) fn stderr_tail(&self) -> Vec<String> {
        self.tail.lock().unwrap_or_else(PoisonError::into_inner).lines()
    }

    fn running(&self) -> MutexGuard<'_, Running> {
        self.running.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The keeper's process id, while it is there.
    pub(super) fn id(&self) -> Option<u32> {
        self.running().child.as_ref().map(AgentChild::id)
    }

    /// How it ended by itself, if it does within a moment.
    pub(super) async fn ended(&self) -> Option<ExitStatus> {
        let until = Instant::now() + LINGER;
        loop {
            let (status, gone) = self.running().look();
            if status.is_some() || gone || Instant::now() >= until {
                return status;
            }
            sleep(LOOK).await;
        }
    }

    /// Kills it and all that it started, and waits until it is gone. The second time does nothing.
    pub(super) fn end(&self) {
        let child = self.running().child.take();
        drop(child);
    }
}

impl Running {
    /// How it ended, and whether there is nothing more to wait for.
    fn look(&mut self) -> (Option<ExitStatus>, bool) {
        if let (None, Some(child)) = (self.status, &mut self.child) {
            self.status = child.try_wait().ok().flatten();
        }
        (self.status, self.child.is_none())
    }
}
