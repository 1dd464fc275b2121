//! The parent's side: decide what is allowed, start the helper, hear what it enforced.

use std::ffi::OsStr;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::{Mutex, OnceLock, mpsc};
use std::time::Duration;

use super::reexec::ARGUMENT;
use super::running::AgentChild;
use super::wire::{Orders, Report, send_stdin};
use super::{AgentSpec, Confinement, SpawnError, Stage, allow, keep, program};

/// How long the helper may take for each message. It needs about a millisecond.
const HELPER_WAIT: Duration = Duration::from_secs(30);

/// A program that was found, with its allow list: ready to be started, and nothing of it runs.
#[derive(Debug)]
pub struct Prepared {
    orders: Orders,
    helper_exe: PathBuf,
    kept: bool,
}

/// Finds the program and decides what it may reach. `helper_exe` is a program whose `main` calls
/// [`run_if_child`](super::run_if_child) first, which is our own: `/proc/self/exe` names it even when its file was
/// replaced meanwhile. It is one of the forbidden paths by itself.
///
/// # Errors
/// Everything that can be refused before anything is started.
pub fn prepare(spec: &AgentSpec, helper_exe: &Path) -> Result<Prepared, SpawnError> {
    let orders = orders(spec, helper_exe)?;
    Ok(Prepared { orders, helper_exe: helper_exe.to_owned(), kept: spec.kept })
}

/// [`prepare`] and [`Prepared::start`] in one.
///
/// # Errors
/// Every error means that nothing of the program ran.
pub fn spawn(spec: &AgentSpec, helper_exe: &Path) -> Result<AgentChild, SpawnError> {
    prepare(spec, helper_exe)?.start()
}

impl Prepared {
    /// Starts the program by way of the helper, confined as the spec says.
    ///
    /// Returns when the program has started, with what the child found enforced on itself.
    ///
    /// # Errors
    /// Every error means that nothing of the program ran.
    pub fn start(&self) -> Result<AgentChild, SpawnError> {
        let (mut socket, theirs) = socket().map_err(SpawnError::Helper)?;
        let (agent_stdin, stdin) = io::pipe().map_err(SpawnError::Helper)?;
        let mut orders = self.orders.clone();
        let (mut child, lifeline) = if self.kept {
            let (keeper, lifeline) = self.keeper(theirs).map_err(SpawnError::Helper)?;
            // The keeper starts the program, and is what it dies with.
            orders.parent = keeper.id();
            (keeper, Some(lifeline))
        } else {
            (self.helper(ARGUMENT, theirs).map_err(SpawnError::Helper)?, None)
        };
        let stdin = ChildStdin::from(OwnedFd::from(stdin));
        match hand_over(&mut socket, agent_stdin.as_fd(), &orders) {
            Ok(confinement) => Ok(AgentChild::new(child, stdin, confinement, lifeline)),
            Err(error) => {
                // It is either gone or not to be trusted to go.
                let _ = child.kill();
                let _ = child.wait();
                Err(error)
            }
        }
    }

    /// Starts our own binary again, with its socket as standard input.
    fn helper(&self, argument: &str, socket: UnixStream) -> io::Result<Child> {
        #[expect(clippy::disallowed_methods, reason = "the one place where the helper is started")]
        let mut command = Command::new(&self.helper_exe);
        command
            .arg(argument)
            .env_clear()
            .stdin(Stdio::from(OwnedFd::from(socket)))
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        start(command)
    }

    /// Starts a keeper and gives it the socket of the helper that it is to start.
    fn keeper(&self, theirs: UnixStream) -> io::Result<(Child, UnixStream)> {
        let (lifeline, end) = socket()?;
        let keeper = self.helper(keep::ARGUMENT, end)?;
        // When it is gone already, nobody answers on the helper's socket, which is seen there.
        let _ = send_stdin(&lifeline, theirs.as_fd());
        Ok((keeper, lifeline))
    }
}

/// Both ends of a socket; ours waits for nobody for ever.
fn socket() -> io::Result<(UnixStream, UnixStream)> {
    let (ours, theirs) = UnixStream::pair()?;
    ours.set_read_timeout(Some(HELPER_WAIT))?;
    ours.set_write_timeout(Some(HELPER_WAIT))?;
    Ok((ours, theirs))
}

/// Where the helper's file is, or would be: of one that was replaced, the system says `(deleted)`.
fn place_of(helper_exe: &Path) -> PathBuf {
    if let Ok(found) = std::fs::canonicalize(helper_exe) {
        return found;
    }
    let leads_to = std::fs::read_link(helper_exe).unwrap_or_else(|_| helper_exe.to_owned());
    let text = leads_to.as_os_str().as_bytes();
    let text = text.strip_suffix(b" (deleted)").unwrap_or(text);
    PathBuf::from(OsStr::from_bytes(text))
}

fn orders(spec: &AgentSpec, helper_exe: &Path) -> Result<Orders, SpawnError> {
    check_arguments(spec)?;
    let found = program::resolve(&spec.program, &spec.search_path, spec.home.as_deref())
        .ok_or_else(|| SpawnError::ProgramNotFound { program: PathBuf::from(&spec.program) })?;
    if !program::has_known_form(&found.path) {
        return Err(SpawnError::Exec { program: found.path, errno: libc::ENOEXEC });
    }
    let scratch = std::fs::canonicalize(&spec.scratch)
        .ok()
        .filter(|path| path.is_dir())
        .ok_or_else(|| SpawnError::Scratch { scratch: spec.scratch.clone(), forbidden: None })?;
    let (mut rules, mut forbidden) = (Vec::new(), Vec::new());
    if spec.confined {
        let mut paths = spec.forbidden.clone();
        paths.push(place_of(helper_exe));
        let cut = allow::forbidden(&paths)?;
        rules = allow::rules(spec, &found, &scratch, &cut)?;
        forbidden = cut.iter().map(|one| one.path().to_owned()).collect();
    }
    Ok(Orders {
        parent: std::process::id(),
        confined: spec.confined,
        network: spec.network,
        program: found.path,
        args: spec.args.clone(),
        env: spec.env.clone(),
        scratch,
        rules,
        forbidden,
        bounds: spec.bounds,
    })
}

fn check_arguments(spec: &AgentSpec) -> Result<(), SpawnError> {
    let clean = |text: &OsStr| !text.as_bytes().contains(&0);
    let name = |text: &OsStr| !text.is_empty() && !text.as_bytes().contains(&b'=') && clean(text);
    let good = clean(&spec.program)
        && spec.args.iter().all(|arg| clean(arg))
        && spec.env.iter().all(|(key, value)| name(key) && clean(value));
    if good { Ok(()) } else { Err(SpawnError::Arguments) }
}

fn hand_over(
    socket: &mut UnixStream,
    stdin: std::os::fd::BorrowedFd<'_>,
    orders: &Orders,
) -> Result<Confinement, SpawnError> {
    send_stdin(socket, stdin).and_then(|()| orders.send(socket)).map_err(SpawnError::Helper)?;
    let confinement = match receive(socket)? {
        Some(Report::Confined(confinement)) => confinement,
        Some(Report::Failed(stage, errno)) => return Err(failure(stage, errno, orders)),
        None => return Err(SpawnError::Helper(io::ErrorKind::UnexpectedEof.into())),
    };
    // The socket closes when the program starts; a second message says why it did not.
    match receive(socket)? {
        None => Ok(confinement),
        Some(Report::Failed(stage, errno)) => Err(failure(stage, errno, orders)),
        Some(Report::Confined(_)) => Err(SpawnError::Helper(io::ErrorKind::InvalidData.into())),
    }
}

fn receive(socket: &mut UnixStream) -> Result<Option<Report>, SpawnError> {
    Report::receive(socket).map_err(SpawnError::Helper)
}

fn failure(stage: Stage, errno: i32, orders: &Orders) -> SpawnError {
    match stage {
        Stage::Exec if errno == libc::E2BIG => SpawnError::Arguments,
        Stage::Exec => SpawnError::Exec { program: orders.program.clone(), errno },
        _ => SpawnError::NotEnforced { stage, errno },
    }
}

type Job = (Command, mpsc::Sender<io::Result<Child>>);

/// Starts the helper from a thread that lives as long as this process: Linux kills a child with the *thread* that
/// started it, and callers' threads come and go.
fn start(command: Command) -> io::Result<Child> {
    static STARTER: OnceLock<Mutex<mpsc::Sender<Job>>> = OnceLock::new();
    let gone = || io::Error::from(io::ErrorKind::BrokenPipe);
    let starter = match STARTER.get() {
        Some(starter) => starter,
        None => {
            let starter = starter_thread()?;
            // Another caller may have been faster; this one's thread then ends by itself, having started nothing.
            STARTER.get_or_init(|| Mutex::new(starter))
        }
    };
    let (reply, answer) = mpsc::channel();
    starter.lock().map_err(|_| gone())?.send((command, reply)).map_err(|_| gone())?;
    answer.recv().map_err(|_| gone())?
}

fn starter_thread() -> io::Result<mpsc::Sender<Job>> {
    let (jobs, queue) = mpsc::channel::<Job>();
    std::thread::Builder::new().name("portcullis-start".into()).spawn(move || {
        for (mut command, reply) in queue {
            if let Err(mpsc::SendError(Ok(mut orphan))) = reply.send(command.spawn()) {
                let _ = orphan.kill();
                let _ = orphan.wait();
            }
        }
    })?;
    Ok(jobs)
}
