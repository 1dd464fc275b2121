//! Who a process is, and whether another one is proven dead.

use std::fs::File;
use std::io::Read as _;
use std::os::unix::fs::MetadataExt;

use portcullis_domain::lease::ProcessIdentity;
use portcullis_domain::ports::Processes;
use rustix::io::Errno;
use rustix::process::{Pid, test_kill_process};
use thiserror::Error;

/// The kernel's files read here are a few hundred bytes; anything longer is not what it should be.
const MAX_FILE: u64 = 4096;

/// Why this process cannot say who it is.
#[derive(Debug, Error)]
pub enum IdentityError {
    /// A file under `/proc` could not be read.
    #[error("cannot read {file}")]
    Unreadable {
        /// The file.
        file: &'static str,
        /// The system's reason.
        source: std::io::Error,
    },
    /// A file under `/proc` has another form than Linux gives it.
    #[error("{0} has an unknown form")]
    Malformed(&'static str),
    /// `/proc` counts processes by another pid namespace than this process.
    #[error("/proc belongs to another pid namespace")]
    ForeignProc,
}

/// Process identities from Linux's `/proc`.
///
/// Start times are compared as `/proc` shows them, so all processes that share a database in one pid namespace
/// must also share its time namespace.
#[derive(Clone, Debug)]
pub struct LinuxProcesses {
    current: ProcessIdentity,
}

impl LinuxProcesses {
    /// Reads the identity of the calling process once. It stays the same for its whole life, but not over a fork.
    ///
    /// # Errors
    /// `/proc` is missing, foreign, or not as Linux has it.
    pub fn new() -> Result<Self, IdentityError> {
        const BOOT: &str = "/proc/sys/kernel/random/boot_id";
        const NAMESPACE: &str = "/proc/self/ns/pid";
        const STAT: &str = "/proc/self/stat";
        let unreadable = |file| move |source| IdentityError::Unreadable { file, source };
        let boot = read(BOOT).map_err(unreadable(BOOT))?;
        let boot_id = boot.trim();
        if boot_id.len() != 36 || !boot_id.bytes().all(|b| b.is_ascii_hexdigit() || b == b'-') {
            return Err(IdentityError::Malformed(BOOT));
        }
        let pid_namespace = std::fs::metadata(NAMESPACE).map_err(unreadable(NAMESPACE))?.ino();
        let text = read(STAT).map_err(unreadable(STAT))?;
        let stat = ProcStat::parse(&text).ok_or(IdentityError::Malformed(STAT))?;
        let pid = std::process::id();
        if stat.pid != pid {
            return Err(IdentityError::ForeignProc);
        }
        let current = ProcessIdentity {
            boot_id: boot_id.to_owned(),
            pid_namespace,
            pid,
            start_ticks: stat.start_ticks,
        };
        Ok(Self { current })
    }
}

impl Processes for LinuxProcesses {
    fn current(&self) -> ProcessIdentity {
        self.current.clone()
    }

    fn is_dead(&self, process: &ProcessIdentity) -> bool {
        if process.boot_id != self.current.boot_id
            || process.pid_namespace != self.current.pid_namespace
        {
            return false;
        }
        let pid = i32::try_from(process.pid).ok().and_then(Pid::from_raw);
        let Some(pid) = pid else { return false };
        // A missing folder in /proc proves nothing where other users' processes are hidden; the kernel's own
        // answer does.
        if test_kill_process(pid) == Err(Errno::SRCH) {
            return true;
        }
        let Ok(text) = read(&format!("/proc/{}/stat", process.pid)) else { return false };
        ProcStat::parse(&text).is_some_and(|stat| {
            stat.pid == process.pid && (stat.start_ticks != process.start_ticks || stat.is_over())
        })
    }
}

/// What one line of `/proc/<pid>/stat` says, as far as it is needed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ProcStat {
    pub(crate) pid: u32,
    pub(crate) state: char,
    pub(crate) parent: u32,
    pub(crate) session: u32,
    pub(crate) threads: u64,
    pub(crate) start_ticks: u64,
}

impl ProcStat {
    /// The program's name stands in parentheses and may hold any byte, so fields count from the last one.
    pub(crate) fn parse(line: &str) -> Option<Self> {
        let pid = line.split_once(" (")?.0.parse().ok()?;
        let fields: Vec<&str> = line.rsplit_once(") ")?.1.split_ascii_whitespace().collect();
        // Field 3 of proc(5) comes first here.
        let field = |number: usize| fields.get(number - 3).copied();
        Some(Self {
            pid,
            state: field(3)?.chars().next()?,
            parent: field(4)?.parse().ok()?,
            session: field(6)?.parse().ok()?,
            threads: field(20)?.parse().ok()?,
            start_ticks: field(22)?.parse().ok()?,
        })
    }

    pub(crate) fn of(pid: u32) -> Option<Self> {
        Self::parse(&read(&format!("/proc/{pid}/stat")).ok()?)
    }

    /// Dead, and perhaps not yet collected by its parent. A first thread that ended while others go on looks the
    /// same but for the number of threads.
    pub(crate) fn is_over(self) -> bool {
        matches!(self.state, 'X' | 'x') || (self.state == 'Z' && self.threads <= 1)
    }
}

fn read(path: &str) -> std::io::Result<String> {
    let mut bytes = Vec::new();
    File::open(path)?.take(MAX_FILE).read_to_end(&mut bytes)?;
    // The program's name need not be UTF-8.
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::*;

    const LINE: &str =
        "4321 (a) R (b) ) S 17 4321 4300 0 -1 4194560 1 2 3 4 5 6 7 8 20 0 3 0 98765 1 2 3";

    #[test]
    fn a_name_with_parentheses_and_spaces_does_not_shift_the_fields() {
        let stat = ProcStat::parse(LINE).unwrap();
        assert_eq!((stat.pid, stat.state, stat.parent, stat.session), (4321, 'S', 17, 4300));
        assert_eq!((stat.threads, stat.start_ticks), (3, 98765));
    }

    #[test]
    fn cut_or_foreign_lines_are_no_identity() {
        for line in [
            "",
            "1",
            "1 (a",
            "1 (a) ",
            "1 (a) S 1 1 1",
            "x (a) S 17 1 1 0 -1 0 1 2 3 4 5 6 7 8 20 0 3 0 9",
        ] {
            assert_eq!(ProcStat::parse(line), None, "{line}");
        }
    }

    #[test]
    fn a_first_thread_that_ended_is_not_a_dead_process() {
        let stat = ProcStat::parse(LINE).unwrap();
        assert!(!ProcStat { state: 'Z', threads: 2, ..stat }.is_over());
        assert!(ProcStat { state: 'Z', threads: 1, ..stat }.is_over());
        assert!(!stat.is_over());
    }
}
