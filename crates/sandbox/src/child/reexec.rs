//! The child's side: give up rights, check, report, become the program.

use std::convert::Infallible;
use std::io;
use std::net::{TcpListener, UdpSocket};
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;

use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use rustix::process::{
    Pid, Resource, Rlimit, Signal, chdir, getppid, getrlimit, set_parent_process_death_signal,
    setrlimit, setsid, test_kill_process, umask,
};
use rustix::thread::{
    CapabilitySet, CapabilitySets, clear_ambient_capability_set, disable_transparent_huge_pages,
    remove_capability_from_bounding_set, set_capabilities, set_no_new_privs,
};

use super::exec::replace_by;
use super::wire::{Orders, Report, receive_stdin};
use super::{Bounds, Confinement, Network, Stage, keep, landlock, seccomp};

/// The hidden first argument.
pub(super) const ARGUMENT: &str = "__portcullis_confine";
/// Addresses that a process may reserve for each byte that it may write to.
const ADDRESSES: u64 = 4;
/// What a shell says of a program that could not be started.
const EXIT: i32 = 126;

type Failure = (Stage, Errno);

/// Call first in `main`, before any thread is started: when [`spawn`](super::spawn) started this process, it
/// becomes the agent's program here and this never returns. Otherwise it does nothing.
pub fn run_if_child() {
    let Some(first) = std::env::args_os().nth(1) else { return };
    if first == ARGUMENT {
        run();
        std::process::exit(EXIT);
    }
    if first == keep::ARGUMENT {
        std::process::exit(keep::run());
    }
}

fn run() {
    // A copy that closes by itself when the program starts, which is how the parent sees that it did.
    let Ok(socket) = io::stdin().as_fd().try_clone_to_owned() else { return };
    let mut socket = UnixStream::from(socket);
    let Err((stage, errno)) = become_program(&mut socket);
    // The parent may be gone; then nobody asks.
    let _ = Report::Failed(stage, errno.raw_os_error()).send(&mut socket);
}

fn become_program(socket: &mut UnixStream) -> Result<Infallible, Failure> {
    let failed = |stage| move |errno: Errno| (stage, errno);
    let stdin = receive_stdin(socket).map_err(io_failed(Stage::Orders))?;
    let orders = Orders::receive(socket).map_err(io_failed(Stage::Orders))?;
    rustix::stdio::dup2_stdin(&stdin).map_err(failed(Stage::Orders))?;
    drop(stdin);

    // What the gate's own process does without, and programs would inherit. A kernel that has none refuses.
    let _refused = disable_transparent_huge_pages(false);
    setsid().map_err(failed(Stage::Session))?;
    die_with(orders.parent).map_err(failed(Stage::ParentDeath))?;
    limit(Resource::Core, 0).map_err(failed(Stage::Limits))?;
    limit(Resource::Nofile, orders.bounds.open_files).map_err(failed(Stage::Limits))?;
    umask(Mode::from_raw_mode(0o077));
    chdir(&orders.scratch).map_err(failed(Stage::Scratch))?;
    close_on_start().map_err(failed(Stage::Limits))?;
    set_no_new_privs(true).map_err(failed(Stage::Privileges))?;
    let found = if orders.confined { confine(&orders)? } else { Confinement::default() };
    Report::Confined(found).send(socket).map_err(io_failed(Stage::Orders))?;

    Err((Stage::Exec, replace_by(&orders.program, &orders.args, &orders.env)))
}

/// Applies everything that only a confined child gets, and tries whether it holds.
fn confine(orders: &Orders) -> Result<Confinement, Failure> {
    bound(orders.bounds).map_err(|errno| (Stage::Limits, errno))?;
    drop_capabilities().map_err(|errno| (Stage::Privileges, errno))?;
    let applied =
        landlock::apply(&orders.rules, orders.network).map_err(|errno| (Stage::Landlock, errno))?;
    seccomp::apply(orders.network).map_err(|errno| (Stage::Filter, errno))?;
    for path in &orders.forbidden {
        let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
        if rustix::fs::open(path, flags, Mode::empty()).is_ok() {
            return Err((Stage::ForbiddenReadable, Errno::PERM));
        }
    }
    let network_denied = network_is_out_of_reach();
    if orders.network == Network::Denied && !network_denied {
        return Err((Stage::NetworkOpen, Errno::PERM));
    }
    let parent = pid(orders.parent).ok_or((Stage::Orders, Errno::INVAL))?;
    Ok(Confinement {
        landlock_abi: applied.abi,
        fully_enforced: applied.fully,
        network_denied,
        signals_scoped: test_kill_process(parent) == Err(Errno::PERM),
    })
}

fn network_is_out_of_reach() -> bool {
    let denied = |error: io::Error| error.kind() == io::ErrorKind::PermissionDenied;
    TcpListener::bind(("127.0.0.1", 0)).is_err_and(denied)
        && UdpSocket::bind(("127.0.0.1", 0)).is_err_and(denied)
        && UnixStream::connect("/nonexistent").is_err_and(denied)
}

/// The signal is sent when the thread that started us ends, so the parent starts us from one that never does.
fn die_with(parent: u32) -> Result<(), Errno> {
    set_parent_process_death_signal(Some(Signal::KILL))?;
    // It may have died before the call, and then nobody would send the signal.
    if getppid() == pid(parent) && getppid().is_some() { Ok(()) } else { Err(Errno::SRCH) }
}

fn pid(number: u32) -> Option<Pid> {
    i32::try_from(number).ok().and_then(Pid::from_raw)
}

fn limit(resource: Resource, most: u64) -> Result<(), Errno> {
    let most = getrlimit(resource).maximum.map_or(most, |maximum| maximum.min(most));
    setrlimit(resource, Rlimit { current: Some(most), maximum: Some(most) })
}

/// What only a confined child is held to.
fn bound(bounds: Bounds) -> Result<(), Errno> {
    limit(Resource::Data, bounds.memory)?;
    limit(Resource::As, bounds.memory.saturating_mul(ADDRESSES))?;
    limit(Resource::Fsize, bounds.file_size)?;
    limit(Resource::Nproc, bounds.processes)
}

/// Root keeps its user id and loses what comes with it; nobody else has anything to lose.
fn drop_capabilities() -> Result<(), Errno> {
    for capability in CapabilitySet::all().iter() {
        match remove_capability_from_bounding_set(capability) {
            // Without the right to narrow it, the bound does not matter: there are no new privileges.
            Ok(()) | Err(Errno::PERM | Errno::INVAL) => {}
            Err(errno) => return Err(errno),
        }
    }
    clear_ambient_capability_set()?;
    let none = CapabilitySet::empty();
    set_capabilities(None, CapabilitySets { effective: none, permitted: none, inheritable: none })
}

/// Marks every descriptor but the three standard ones to close when the program starts.
fn close_on_start() -> Result<(), Errno> {
    let (first, last) = (3_u32, u32::MAX);
    // SAFETY: the call takes numbers only and touches no memory; with this flag it closes nothing now, so no
    // descriptor that this process still uses is lost.
    #[expect(unsafe_code, reason = "rustix has no close_range")]
    let result =
        unsafe { libc::syscall(libc::SYS_close_range, first, last, libc::CLOSE_RANGE_CLOEXEC) };
    if result == 0 { Ok(()) } else { Err(seccomp::last_errno()) }
}

fn io_failed(stage: Stage) -> impl Fn(io::Error) -> Failure {
    move |error| (stage, Errno::from_io_error(&error).unwrap_or(Errno::IO))
}
