//! Leases: the exclusive, expiring right to drive a run.
//!
//! A lease has an epoch that only grows. Every write of a driver names its epoch, so a holder that was
//! overtaken can store nothing. Expiry is soft state; the epoch and the holder are part of the fold.

use serde::{Deserialize, Serialize};

/// Who a process is, so that a later process can prove that it is gone.
///
/// Two identities are comparable only when boot and pid namespace are the same; a pid alone is reused.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ProcessIdentity {
    /// The kernel's random id of this boot.
    pub boot_id: String,
    /// The inode number of the pid namespace.
    pub pid_namespace: u64,
    /// The process id inside that namespace.
    pub pid: u32,
    /// When the process started, in kernel ticks since boot.
    pub start_ticks: u64,
}

/// One holder of a lease: a process, and a random part for each driver inside it.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Holder {
    /// The process.
    pub process: ProcessIdentity,
    /// 32 hex digits drawn for this driver, so that two drivers in one process never share a lease.
    pub nonce: String,
}

/// The right to drive one run, as a driver carries it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Epoch(pub u64);

impl Epoch {
    /// The epoch of a run that nobody has driven yet.
    pub const NONE: Self = Self(0);

    /// The epoch that the next holder gets.
    #[must_use]
    pub fn next(self) -> Self {
        Self(self.0.saturating_add(1))
    }
}
