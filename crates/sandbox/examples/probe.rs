//! A hostile agent for tests: tries what it is told to, and prints for each whether it worked.
#![allow(clippy::print_stdout, clippy::disallowed_methods, reason = "a test program")]

use std::fmt::Display;
use std::io::{self, BufRead as _, Read as _, Write as _};
use std::net::{TcpStream, UdpSocket};
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt as _;
use std::process::{Command, Stdio};
use std::time::Duration;

use rustix::process::{Pid, Signal, getpid, getppid, kill_process, setsid};

fn main() {
    for arg in std::env::args().skip(1) {
        let (verb, on) = arg.split_once(':').unwrap_or((&arg, ""));
        let outcome = attempt(verb, on);
        let text = match &outcome {
            Ok(found) => format!("{verb} ok {found}"),
            Err(error) => format!("{verb} {:?}", error.kind()),
        };
        println!("{}", text.trim_end());
        let _ = io::stdout().flush();
    }
}

/// The session's number, or 0 when its leader is outside of this process's view, as in a container: there rustix's own
/// call panics.
#[allow(unsafe_code, reason = "the safe call panics on 0")]
fn session() -> i32 {
    // SAFETY: getsid takes no pointer, and a process may always ask for its own.
    unsafe { libc::getsid(0) }
}

fn attempt(verb: &str, on: &str) -> io::Result<Box<dyn Display>> {
    Ok(match verb {
        "read" => {
            let mut bytes = Vec::new();
            std::fs::File::open(on)?.take(100).read_to_end(&mut bytes)?;
            Box::new("")
        }
        "list" => Box::new(std::fs::read_dir(on)?.count()),
        "write" => {
            std::fs::write(on, "x")?;
            Box::new("")
        }
        "truncate" => {
            rustix::fs::ftruncate(rustix::fs::open(on, rustix::fs::OFlags::WRONLY, 0.into())?, 0)?;
            Box::new("")
        }
        "exec" => {
            Command::new(on).stdin(Stdio::null()).stdout(Stdio::null()).status()?;
            Box::new("")
        }
        "tcp" => {
            TcpStream::connect(("127.0.0.1", number(on)?))?;
            Box::new("")
        }
        "udp" => {
            UdpSocket::bind(("127.0.0.1", 0))?;
            Box::new("")
        }
        "unix" => {
            UnixStream::connect(on)?;
            Box::new("")
        }
        "pair" => {
            UnixStream::pair()?;
            Box::new("")
        }
        "signal" => {
            kill_process(pid(on)?, Signal::CONT)?;
            Box::new("")
        }
        "chmod" => {
            std::fs::set_permissions(on, std::os::unix::fs::PermissionsExt::from_mode(0o644))?;
            Box::new("")
        }
        "fchmod" => {
            std::fs::File::open(on)?
                .set_permissions(std::os::unix::fs::PermissionsExt::from_mode(0o755))?;
            Box::new("")
        }
        "chown" => {
            let me = rustix::process::getuid().as_raw();
            std::os::unix::fs::chown(on, Some(me), None)?;
            Box::new("")
        }
        "limit" => {
            let limit = rustix::process::Resource::Core;
            let now = rustix::process::getrlimit(limit);
            rustix::process::prlimit(Some(pid(on)?), limit, now)?;
            Box::new("")
        }
        "trace" => {
            trace(pid(on)?)?;
            Box::new("")
        }
        "mount" => {
            let done = Command::new("/bin/mount")
                .args(["-t", "tmpfs", "x", on])
                .stderr(Stdio::null())
                .status()?;
            if done.success() {
                Box::new("")
            } else {
                return Err(io::ErrorKind::PermissionDenied.into());
            }
        }
        "env" => Box::new(
            std::env::vars().map(|(k, v)| format!("{k}={v}")).collect::<Vec<_>>().join(" "),
        ),
        "cwd" => Box::new(std::env::current_dir()?.display().to_string()),
        "leads" => Box::new(session() == getpid().as_raw_nonzero().get()),
        "umask" => Box::new(rustix::process::umask(0o077.into()).as_raw_mode()),
        "nnp" => Box::new(rustix::thread::no_new_privs()?),
        "caps" => Box::new(rustix::thread::capabilities(None)?.permitted.bits()),
        "fds" => Box::new(descriptors()),
        "echo" => {
            let mut line = String::new();
            io::stdin().lock().read_line(&mut line)?;
            Box::new(line.trim().to_owned())
        }
        // Leaves a descendant with the same session, and one with its own, and prints their numbers.
        "family" => {
            let same = Command::new("sleep").arg("1000").stdout(Stdio::null()).spawn()?.id();
            let own = Command::new(std::env::current_exe()?)
                .arg("away")
                .stdout(Stdio::null())
                .spawn()?
                .id();
            Box::new(format!("{same} {own}"))
        }
        // Leaves a descendant that has its own session and whose parent is gone, and prints its number.
        "orphan" => {
            let said = Command::new(std::env::current_exe()?).arg("leave").output()?.stdout;
            Box::new(String::from_utf8_lossy(&said).trim().replace("leave ok ", ""))
        }
        "leave" => {
            let mut away = Command::new(std::env::current_exe()?);
            Box::new(away.arg("away").stdout(Stdio::null()).stderr(Stdio::null()).spawn()?.id())
        }
        "away" => {
            setsid()?;
            sleep()
        }
        "sleep" => sleep(),
        "parent" => Box::new(getppid().map_or(0, |p| p.as_raw_nonzero().get())),
        // Writes to so many bytes of memory.
        "grow" => {
            let size: usize = number(on)?;
            let mut bytes = Vec::new();
            bytes.try_reserve_exact(size).map_err(|_| io::ErrorKind::OutOfMemory)?;
            bytes.resize(size, 1_u8);
            Box::new(std::hint::black_box(bytes).len())
        }
        // Makes a file of so many bytes in the working directory.
        "fill" => {
            std::fs::File::create("filled")?.set_len(number(on)?)?;
            Box::new("")
        }
        "bounds" => Box::new(bounds()),
        // Runs a program for which the kernel has an older Landlock: `old-landlock:VERSION PROGRAM ARGUMENT...`.
        "old-landlock" => {
            let (version, rest) = on.split_once(' ').unwrap_or((on, ""));
            Box::new(with_old_landlock(number(version)?, rest)?)
        }
        // Becomes a program for which the kernel has no Landlock.
        "without-landlock" => {
            refuse_landlock()?;
            let mut words = on.split_whitespace();
            return Err(Command::new(words.next().unwrap_or_default()).args(words).exec());
        }
        _ => return Err(io::ErrorKind::InvalidInput.into()),
    })
}

fn bounds() -> String {
    use rustix::process::{Resource, getrlimit};
    let all = [Resource::Data, Resource::As, Resource::Fsize, Resource::Nproc, Resource::Nofile];
    let most = all.map(|one| getrlimit(one).maximum.map_or("none".into(), |most| most.to_string()));
    most.join(" ")
}

fn sleep() -> ! {
    loop {
        std::thread::sleep(Duration::from_secs(1000));
    }
}

fn number<T: std::str::FromStr>(text: &str) -> io::Result<T> {
    text.parse().map_err(|_| io::ErrorKind::InvalidInput.into())
}

fn pid(text: &str) -> io::Result<Pid> {
    Pid::from_raw(number(text)?).ok_or_else(|| io::ErrorKind::InvalidInput.into())
}

#[allow(unsafe_code, reason = "a test program")]
fn descriptors() -> usize {
    // SAFETY: only asks for the flags of a number, which may be no descriptor.
    (0..4096).filter(|fd| unsafe { libc::fcntl(*fd, libc::F_GETFD) } >= 0).count()
}

#[allow(unsafe_code, reason = "a test program")]
fn trace(pid: Pid) -> io::Result<()> {
    // SAFETY: attaching passes no memory.
    let result = unsafe { libc::ptrace(libc::PTRACE_SEIZE, pid.as_raw_nonzero().get(), 0, 0) };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

#[allow(unsafe_code, reason = "a test program")]
fn refuse_landlock() -> io::Result<()> {
    rustix::thread::set_no_new_privs(true)?;
    let call = u32::try_from(libc::SYS_landlock_create_ruleset).unwrap_or(u32::MAX);
    let step = |code, jt, jf, k| libc::sock_filter { code, jt, jf, k };
    let mut filter = [
        step(0x20, 0, 0, 0),
        step(0x15, 0, 1, call),
        step(0x06, 0, 0, 0x0005_0000 | libc::ENOSYS.unsigned_abs()),
        step(0x06, 0, 0, 0x7fff_0000),
    ];
    let program = libc::sock_fprog { len: 4, filter: filter.as_mut_ptr() };
    // SAFETY: the filter lives until the call returns.
    let result = unsafe {
        libc::prctl(libc::PR_SET_SECCOMP, libc::SECCOMP_MODE_FILTER, &raw const program, 0, 0)
    };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Runs a program whose question for the version of Landlock another thread of this process answers.
fn with_old_landlock(version: i64, command: &str) -> io::Result<String> {
    let (send, receive) = std::sync::mpsc::channel();
    std::thread::spawn(move || receive.recv().map(|listener| answer_forever(listener, version)));
    let words: Vec<String> = command.split_whitespace().map(str::to_owned).collect();
    let run = std::thread::spawn(move || {
        send.send(ask_about_landlock()?).map_err(|_| io::ErrorKind::BrokenPipe)?;
        let mut words = words.iter();
        Command::new(words.next().map_or("", String::as_str)).args(words).status()
    });
    let status = run.join().map_err(|_| io::ErrorKind::Other)??;
    Ok(status.to_string())
}

/// From here on, this thread and what it starts wait for an answer when they ask for the version.
#[allow(unsafe_code, reason = "a test program")]
fn ask_about_landlock() -> io::Result<i32> {
    rustix::thread::set_no_new_privs(true)?;
    let call = u32::try_from(libc::SYS_landlock_create_ruleset).unwrap_or(u32::MAX);
    let step = |code, jt, jf, k| libc::sock_filter { code, jt, jf, k };
    let mut filter = [
        step(0x20, 0, 0, 0),
        step(0x15, 0, 3, call),
        // The third argument: asks for the version.
        step(0x20, 0, 0, 32),
        step(0x15, 0, 1, 1),
        step(0x06, 0, 0, 0x7fc0_0000),
        step(0x06, 0, 0, 0x7fff_0000),
    ];
    let program = libc::sock_fprog { len: 6, filter: filter.as_mut_ptr() };
    // SAFETY: the filter lives until the call returns.
    let listener = unsafe {
        libc::syscall(
            libc::SYS_seccomp,
            libc::SECCOMP_SET_MODE_FILTER,
            libc::SECCOMP_FILTER_FLAG_NEW_LISTENER,
            &raw const program,
        )
    };
    if listener < 0 {
        return Err(io::Error::last_os_error());
    }
    i32::try_from(listener).map_err(|_| io::ErrorKind::InvalidData.into())
}

#[allow(unsafe_code, reason = "a test program")]
fn answer_forever(listener: i32, version: i64) {
    loop {
        // SAFETY: the structure is plain numbers, for which zero is a value.
        let mut asked: libc::seccomp_notif = unsafe { std::mem::zeroed() };
        // SAFETY: both calls get a structure of their own kind that outlives them.
        let answered = unsafe {
            libc::ioctl(listener, libc::SECCOMP_IOCTL_NOTIF_RECV, &raw mut asked) == 0 && {
                let reply =
                    libc::seccomp_notif_resp { id: asked.id, val: version, error: 0, flags: 0 };
                libc::ioctl(listener, libc::SECCOMP_IOCTL_NOTIF_SEND, &raw const reply) == 0
            }
        };
        if !answered && io::Error::last_os_error().kind() != io::ErrorKind::Interrupted {
            return;
        }
    }
}
