//! The port that tells one process from another.

use crate::lease::ProcessIdentity;

/// Says who this process is and whether another one is proven dead.
pub trait Processes: Send + Sync {
    /// The identity of the calling process.
    fn current(&self) -> ProcessIdentity;

    /// True only with proof: the same boot, the same pid namespace, and no live process of that pid and
    /// start time. Anything that cannot be read is no proof.
    fn is_dead(&self, process: &ProcessIdentity) -> bool;
}
