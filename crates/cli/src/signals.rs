//! The signals that end a run in peace.

use std::fs::File;
use std::io::Read as _;

use tokio::signal::unix::{Signal, SignalKind, signal};

use crate::failure::{Code, Failure};

/// More than the kernel ever says of a process.
const MAX_STATUS: u64 = 64 * 1024;

/// From now on these signals no longer end the process by themselves.
pub(crate) struct Signals {
    interrupt: Signal,
    terminate: Signal,
    quit: Signal,
    /// Never waited for: a write beyond a limit on the size of files then fails like one to a full disk.
    _file_size: Signal,
    /// Absent where the operator had hangups ignored, as `nohup` does.
    hangup: Option<Signal>,
}

impl Signals {
    pub(crate) fn catch() -> Result<Self, Failure> {
        let catch = |kind| {
            signal(kind).map_err(|error| {
                Failure::new(Code::Io, format!("signals cannot be caught: {}", error.kind()))
            })
        };
        let hangup = SignalKind::hangup();
        Ok(Self {
            interrupt: catch(SignalKind::interrupt())?,
            terminate: catch(SignalKind::terminate())?,
            quit: catch(SignalKind::quit())?,
            _file_size: catch(SignalKind::from_raw(rustix::process::Signal::XFSZ.as_raw()))?,
            hangup: if is_ignored(hangup) { None } else { Some(catch(hangup)?) },
        })
    }

    /// Waits for the next of them.
    pub(crate) async fn next(&mut self) {
        let Self { interrupt, terminate, quit, hangup, .. } = self;
        let hung_up = async {
            match hangup {
                Some(hangup) => hangup.recv().await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            _ = interrupt.recv() => {}
            _ = terminate.recv() => {}
            _ = quit.recv() => {}
            _ = hung_up => {}
        }
    }
}

/// Whether this process was started with a signal ignored. Where the kernel does not say, it was not.
fn is_ignored(kind: SignalKind) -> bool {
    let mut status = String::new();
    let read = File::open("/proc/self/status")
        .and_then(|file| file.take(MAX_STATUS).read_to_string(&mut status));
    read.is_ok() && mask(&status).is_some_and(|mask| has(mask, kind.as_raw_value()))
}

/// The mask of ignored signals, as `/proc/PID/status` writes it.
fn mask(status: &str) -> Option<u64> {
    let digits = status.lines().find_map(|line| line.strip_prefix("SigIgn:"))?;
    u64::from_str_radix(digits.trim(), 16).ok()
}

fn has(mask: u64, number: i32) -> bool {
    let bit = u32::try_from(number).ok().and_then(|number| number.checked_sub(1));
    bit.and_then(|bit| mask.checked_shr(bit)).is_some_and(|rest| rest & 1 == 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernels_mask_is_read() {
        let status = "Name:\tx\nSigIgn:\t0000000000001001\nSigCgt:\tffff\n";
        let mask = mask(status).unwrap();
        assert!(has(mask, 1) && has(mask, 13), "SIGHUP and SIGPIPE");
        assert!(!has(mask, 2) && !has(mask, 0) && !has(mask, 65));
    }
}
