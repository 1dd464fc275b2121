//! Threads: runs that share an owner, labels and history.

use portcullis_canon::{Digest, Kind};
use uuid::Version;

use crate::event::{Body, ThreadLabelled};
use crate::id::{RunId, StepId, ThreadId, following};
use crate::label::Labels;
use crate::ports::NewEvent;
use crate::scope::Tenant;
use crate::tally::Tally;
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
    /// What is counted of it; nothing until something is.
    pub tally: Option<Tally>,
}

/// The thread of a conversation that a host names by itself: the same for the same owner, door and name. A UUID of version 8,
/// which no thread that is drawn has.
///
/// ```
/// use portcullis_domain::thread::conversation;
///
/// let thread = conversation("ann", "hook:claude-code", "abc");
/// assert_eq!(thread, conversation("ann", "hook:claude-code", "abc"));
/// assert_ne!(thread, conversation("ben", "hook:claude-code", "abc"));
/// assert_ne!(thread, conversation("ann", "hook:claude-codea", "bc"));
/// ```
#[must_use]
pub fn conversation(owner: &str, door: &str, name: &str) -> ThreadId {
    let parts = [owner.as_bytes(), door.as_bytes(), name.as_bytes()];
    let digest = Digest::of_parts(Kind::Conversation, &parts);
    ThreadId::from_bytes(following(digest, Version::Custom))
}

impl Thread {
    /// The event that joins what a step read to the labels, for the append that records it; `None` when they hold
    /// all of it.
    #[must_use]
    pub fn labelled(
        &self,
        labels: Labels,
        run: RunId,
        step: StepId,
        at: Timestamp,
    ) -> Option<NewEvent> {
        if self.labels.covers(&labels) {
            return None;
        }
        let body = Body::ThreadLabelled(ThreadLabelled { labels, run, step });
        Some(NewEvent { stream: self.id.into(), step: Some(step), at, body })
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use super::*;
    use crate::label::Origin;

    #[test]
    fn only_what_is_new_is_labelled() {
        let (run, step) = (RunId::from_bytes([1; 16]), StepId::from_bytes([2; 16]));
        let at = Timestamp::from_micros(1);
        let read = Labels::of(Origin::external("files.read"));
        let thread = Thread {
            id: ThreadId::from_bytes([3; 16]),
            tenant: Tenant::local(),
            owner: "ann".to_owned(),
            labels: read.clone(),
            label_seq: 1,
            opened_at: at,
            seq: 2,
            hash: Digest::ZERO,
            tally: None,
        };
        assert_eq!(thread.labelled(read, run, step, at), None);
        assert_eq!(thread.labelled(Labels::none(), run, step, at), None);
        let other = Labels::of(Origin::external("mail"));
        let event = thread.labelled(other.clone(), run, step, at).unwrap();
        let body = Body::ThreadLabelled(ThreadLabelled { labels: other, run, step });
        let expected = NewEvent { stream: thread.id.into(), step: Some(step), at, body };
        assert_eq!(event, expected);
    }
}
