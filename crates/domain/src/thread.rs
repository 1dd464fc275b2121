//! Threads: runs that share an owner, labels and history.

use portcullis_canon::Digest;

use crate::id::ThreadId;
use crate::label::Labels;
use crate::scope::Tenant;
use crate::time::Timestamp;

/// The row of one thread. Every field is named by the fold and compared by `verify`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Thread {
    /// The thread.
    pub id: ThreadId,
    /// Whose it is.
    pub tenant: Tenant,
    /// Who opened it.
    pub owner: String,
    /// What its runs have read.
    pub labels: Labels,
    /// How often the labels grew.
    pub label_seq: u64,
    /// When it was opened.
    pub opened_at: Timestamp,
    /// Events in its stream.
    pub seq: u64,
    /// Hash of the last of them.
    pub hash: Digest,
}
