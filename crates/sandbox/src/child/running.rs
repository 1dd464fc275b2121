//! A started agent: its three streams, waiting for it, ending it with all that it started.

use std::collections::BTreeSet;
use std::io;
use std::os::unix::net::UnixStream;
use std::process::{Child, ChildStderr, ChildStdin, ChildStdout, ExitStatus};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fd::OwnedFd;
use rustix::io::Errno;
use rustix::process::{
    Pid, PidfdFlags, Signal, WaitId, WaitIdOptions, kill_process_group, pidfd_open,
    pidfd_send_signal, waitid,
};

use super::Confinement;
use crate::identity::ProcStat;

/// How often descendants are looked for before they are given up.
const ROUNDS: usize = 8;
/// The same beneath a keeper, where none can get away meanwhile.
const KEPT_ROUNDS: usize = 64;
/// How long a round waits for each process that it killed.
const LAST_BREATH: Timespec = Timespec { tv_sec: 0, tv_nsec: 50_000_000 };

/// A running agent. Dropping it ends it.
#[derive(Debug)]
pub struct AgentChild {
    /// Its standard input; take it to close it.
    pub stdin: Option<ChildStdin>,
    /// Its standard output.
    pub stdout: Option<ChildStdout>,
    /// Its standard error. Somebody must read it, or an agent that complains will stop.
    pub stderr: Option<ChildStderr>,
    /// What is enforced on it.
    pub confinement: Confinement,
    child: Child,
    status: Option<ExitStatus>,
    /// Its keeper sees this close when this process ends; `None` without a keeper.
    lifeline: Option<UnixStream>,
}

impl AgentChild {
    pub(super) fn new(
        mut child: Child,
        stdin: ChildStdin,
        confinement: Confinement,
        lifeline: Option<UnixStream>,
    ) -> Self {
        let (stdout, stderr) = (child.stdout.take(), child.stderr.take());
        Self { stdin: Some(stdin), stdout, stderr, confinement, child, status: None, lifeline }
    }

    /// Its process id, which is also its session's and its group's; of a program with a keeper, the keeper's.
    #[must_use]
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// Kills the program and every descendant that can be found: its session, its group, and whoever still has an
    /// unbroken line of parents to it. One that left the session and lost its parent is found where there is a
    /// keeper ([`AgentSpec::kept`](super::AgentSpec::kept)), and else not.
    ///
    /// Does nothing once the end was seen by one of the waiting functions, which kill what is left by themselves.
    pub fn kill(&mut self) {
        if self.status.is_none() {
            self.end_family();
        }
    }

    fn end_family(&self) {
        if self.lifeline.is_some() {
            end_kept(self.child.id())
        } else {
            end_family(self.child.id())
        }
    }

    /// The program's exit status, if it ended.
    ///
    /// # Errors
    /// The system cannot say.
    pub fn try_wait(&mut self) -> io::Result<Option<ExitStatus>> {
        if self.status.is_none() && self.is_over(WaitIdOptions::NOHANG)? {
            self.collect()?;
        }
        Ok(self.status)
    }

    /// Waits for the program's end. Closes its standard input first, if it was not taken.
    ///
    /// # Errors
    /// The system cannot say.
    pub fn wait(&mut self) -> io::Result<ExitStatus> {
        self.stdin = None;
        if let Some(status) = self.status {
            return Ok(status);
        }
        while !self.is_over(WaitIdOptions::empty())? {}
        self.collect()
    }

    /// Waits for the program's end, but no longer than `limit`. Leaves its standard input open.
    ///
    /// # Errors
    /// The system cannot say.
    pub fn wait_timeout(&mut self, limit: Duration) -> io::Result<Option<ExitStatus>> {
        if self.status.is_none() {
            let handle = pidfd_open(self.pid()?, PidfdFlags::empty())?;
            let limit = Timespec {
                tv_sec: i64::try_from(limit.as_secs()).unwrap_or(i64::MAX),
                tv_nsec: i64::from(limit.subsec_nanos()),
            };
            match poll(&mut [PollFd::new(&handle, PollFlags::IN)], Some(&limit)) {
                Ok(_) | Err(Errno::INTR) => {}
                Err(errno) => return Err(errno.into()),
            }
        }
        self.try_wait()
    }

    fn pid(&self) -> io::Result<Pid> {
        pid(self.child.id()).ok_or_else(|| io::ErrorKind::NotFound.into())
    }

    /// Whether it ended, leaving it uncollected, so that its number belongs to nobody else yet.
    fn is_over(&self, wait: WaitIdOptions) -> io::Result<bool> {
        let options = WaitIdOptions::EXITED | WaitIdOptions::NOWAIT | wait;
        match waitid(WaitId::Pid(self.pid()?), options) {
            Ok(status) => Ok(status.is_some()),
            Err(Errno::INTR) => Ok(false),
            Err(errno) => Err(errno.into()),
        }
    }

    fn collect(&mut self) -> io::Result<ExitStatus> {
        self.end_family();
        let status = self.child.wait()?;
        self.status = Some(status);
        Ok(status)
    }
}

impl Drop for AgentChild {
    fn drop(&mut self) {
        if self.status.is_none() {
            self.end_family();
            let _ = self.child.wait();
        }
    }
}

/// Kills a session's leader, which must not have been collected yet, and its family.
fn end_family(leader: u32) {
    let Some(group) = pid(leader) else { return };
    // Stopped first, so that nobody starts another one between looking and killing.
    let _ = kill_process_group(group, Signal::STOP);
    for _ in 0..ROUNDS {
        let family = family(leader);
        for one in &family {
            if let Some(handle) = handle_of(one) {
                let _ = pidfd_send_signal(&handle, Signal::KILL);
            }
        }
        let _ = kill_process_group(group, Signal::KILL);
        if family.is_empty() {
            return;
        }
    }
}

/// Kills all beneath a keeper, which is held still meanwhile and adopts whoever loses its parent, and then the keeper.
fn end_kept(keeper: u32) {
    let Some(group) = pid(keeper) else { return };
    let _ = kill_process_group(group, Signal::STOP);
    end_descendants(keeper);
    let _ = kill_process_group(group, Signal::KILL);
}

/// Kills all beneath a keeper and leaves the keeper itself.
pub(super) fn end_descendants(keeper: u32) {
    for _ in 0..KEPT_ROUNDS {
        let mut beneath = family(keeper);
        beneath.retain(|one| one.pid != keeper);
        if beneath.is_empty() {
            return;
        }
        let handles: Vec<OwnedFd> = beneath.iter().filter_map(handle_of).collect();
        for handle in &handles {
            let _ = pidfd_send_signal(handle, Signal::KILL);
        }
        for handle in &handles {
            let _ = poll(&mut [PollFd::new(handle, PollFlags::IN)], Some(&LAST_BREATH));
        }
    }
}

/// A handle to this very process: its number may have been given away since it was looked at.
fn handle_of(stat: &ProcStat) -> Option<OwnedFd> {
    let handle = pidfd_open(pid(stat.pid)?, PidfdFlags::empty()).ok()?;
    let now = ProcStat::of(stat.pid)?;
    (now.start_ticks == stat.start_ticks).then_some(handle)
}

/// Everybody alive in the leader's session, and their descendants.
fn family(leader: u32) -> Vec<ProcStat> {
    let Ok(entries) = std::fs::read_dir("/proc") else { return Vec::new() };
    let all: Vec<ProcStat> = entries
        .flatten()
        .filter_map(|entry| entry.file_name().to_str()?.parse().ok())
        .filter_map(ProcStat::of)
        .collect();
    let mut members: BTreeSet<u32> =
        all.iter().filter(|p| p.pid == leader || p.session == leader).map(|p| p.pid).collect();
    loop {
        let before = members.len();
        members.extend(
            all.iter().filter(|p| members.contains(&p.parent)).map(|p| p.pid).collect::<Vec<_>>(),
        );
        if members.len() == before {
            break;
        }
    }
    all.into_iter().filter(|p| members.contains(&p.pid) && !p.is_over()).collect()
}

fn pid(number: u32) -> Option<Pid> {
    i32::try_from(number).ok().and_then(Pid::from_raw)
}
