//! The keeper: a small process of ours between this one and the program, for programs that may start others.
//!
//! Whoever loses its parent beneath the keeper becomes the keeper's own child, so the line of parents from any
//! descendant to the keeper never breaks, whatever sessions are left. When this process ends, however it ends, the
//! keeper sees its socket close and kills what is beneath it; when the program ends, too.

use std::fs::OpenOptions;
use std::io::{self, Read as _};
use std::os::fd::AsFd as _;
use std::os::unix::net::UnixStream;
use std::process::{Command, Stdio};

use rustix::io::Errno;
use rustix::process::{
    Pid, WaitOptions, WaitStatus, chdir, getpid, set_child_subreaper, setsid, wait,
};

use super::reexec::ARGUMENT as CONFINE;
use super::running::end_descendants;
use super::wire::receive_stdin;

/// The hidden first argument.
pub(super) const ARGUMENT: &str = "__portcullis_keep";
/// What a keeper says that could not start its program.
const EXIT: i32 = 126;
/// What a shell adds to the number of the signal that ended a program.
const SIGNALLED: i32 = 128;

/// Keeps one program until its end, and gives its exit status.
pub(super) fn run() -> i32 {
    keep().unwrap_or(EXIT)
}

fn keep() -> io::Result<i32> {
    set_child_subreaper(Some(getpid()))?;
    setsid()?;
    chdir("/")?;
    let lifeline = UnixStream::from(io::stdin().as_fd().try_clone_to_owned()?);
    let orders = receive_stdin(&lifeline)?;
    #[expect(clippy::disallowed_methods, reason = "our own binary, which becomes the program")]
    let mut command = Command::new("/proc/self/exe");
    let program = command.arg(CONFINE).env_clear().stdin(Stdio::from(orders)).spawn()?.id();
    drop(command);
    let code = hold(program, lifeline);
    // Also when it cannot be held: nothing of it outlives the keeper.
    end_descendants(std::process::id());
    code
}

/// Gives the exit status of a program that was started.
fn hold(program: u32, lifeline: UnixStream) -> io::Result<i32> {
    // Its outputs end when the program and what it started have closed them.
    let nothing = OpenOptions::new().read(true).write(true).open("/dev/null")?;
    rustix::stdio::dup2_stdin(&nothing)?;
    rustix::stdio::dup2_stdout(&nothing)?;
    rustix::stdio::dup2_stderr(&nothing)?;
    drop(nothing);
    std::thread::Builder::new().spawn(move || watch(lifeline))?;
    Ok(end_of(program)?)
}

/// Waits for the end of the process that wants the program, which says nothing.
fn watch(mut lifeline: UnixStream) {
    while matches!(lifeline.read(&mut [0]), Err(error) if error.kind() == io::ErrorKind::Interrupted)
    {
    }
    end_descendants(std::process::id());
    std::process::exit(EXIT);
}

/// Collects whoever ends, and gives the program's own exit status.
fn end_of(program: u32) -> Result<i32, Errno> {
    let program = i32::try_from(program).ok().and_then(Pid::from_raw).ok_or(Errno::SRCH)?;
    loop {
        match wait(WaitOptions::empty()) {
            Ok(Some((ended, status))) if ended == program => return Ok(code_of(status)),
            Ok(_) | Err(Errno::INTR) => {}
            Err(errno) => return Err(errno),
        }
    }
}

fn code_of(status: WaitStatus) -> i32 {
    let signal = || status.terminating_signal().map(|signal| signal.saturating_add(SIGNALLED));
    status.exit_status().or_else(signal).unwrap_or(EXIT)
}
