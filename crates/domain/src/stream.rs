//! Streams and journals: where an event belongs, and the hash that chains it to both.

use portcullis_canon::{Digest, Kind};
use serde::{Deserialize, Serialize};

use crate::id::{BudgetId, InstanceId, JournalId, RunId, StepId, ThreadId};
use crate::scope::Tenant;
use crate::time::Timestamp;

/// The version of the hash function; part of its input.
pub const CHAIN_VERSION: u32 = 1;

/// What a stream is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum StreamKind {
    /// One run.
    Run,
    /// One thread.
    Thread,
    /// One scoped grant.
    Grant,
    /// One budget.
    Budget,
    /// One channel.
    Channel,
    /// The installation.
    System,
}

impl StreamKind {
    /// Every kind.
    pub const ALL: [Self; 6] =
        [Self::Run, Self::Thread, Self::Grant, Self::Budget, Self::Channel, Self::System];

    /// The stable name.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Run => "run",
            Self::Thread => "thread",
            Self::Grant => "grant",
            Self::Budget => "budget",
            Self::Channel => "channel",
            Self::System => "system",
        }
    }

    /// The kind with this name.
    #[must_use]
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.as_str() == name)
    }
}

/// One stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Stream {
    /// What it is about.
    pub kind: StreamKind,
    /// The id of that thing.
    pub id: [u8; 16],
}

impl From<RunId> for Stream {
    fn from(run: RunId) -> Self {
        Self { kind: StreamKind::Run, id: *run.as_bytes() }
    }
}

impl From<ThreadId> for Stream {
    fn from(thread: ThreadId) -> Self {
        Self { kind: StreamKind::Thread, id: *thread.as_bytes() }
    }
}

impl From<BudgetId> for Stream {
    fn from(budget: BudgetId) -> Self {
        Self { kind: StreamKind::Budget, id: *budget.as_bytes() }
    }
}

impl From<InstanceId> for Stream {
    fn from(instance: InstanceId) -> Self {
        Self { kind: StreamKind::System, id: *instance.as_bytes() }
    }
}

/// The end of a chain: how many events it has, and the hash of the last one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Tip {
    /// Events so far.
    pub seq: u64,
    /// Hash of the last one, [`Digest::ZERO`] before the first.
    pub hash: Digest,
}

impl Tip {
    /// A chain without events.
    pub const START: Self = Self { seq: 0, hash: Digest::ZERO };
}

/// Everything that the hash of an event covers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Link {
    /// The installation.
    pub instance: InstanceId,
    /// The journal.
    pub journal: JournalId,
    /// Sequence in the journal, from 1.
    pub journal_seq: u64,
    /// Hash of the journal's previous event.
    pub journal_prev: Digest,
    /// The tenant.
    pub tenant: Tenant,
    /// The stream.
    pub stream: Stream,
    /// Sequence in the stream, from 1.
    pub stream_seq: u64,
    /// Hash of the stream's previous event.
    pub stream_prev: Digest,
    /// The step, if the event is about one.
    pub step: Option<StepId>,
    /// When it happened; orders nothing.
    pub at: Timestamp,
    /// The event's type.
    pub kind: String,
    /// The version of the type.
    pub version: u32,
    /// Digest of the payload's bytes.
    pub payload: Digest,
}

impl Link {
    /// The hash of the event.
    #[must_use]
    pub fn hash(&self) -> Digest {
        let step = self.step.map_or_else(Vec::new, |step| step.as_bytes().to_vec());
        Digest::of_parts(
            Kind::Event,
            &[
                &CHAIN_VERSION.to_be_bytes(),
                self.instance.as_bytes(),
                self.journal.as_bytes(),
                &self.journal_seq.to_be_bytes(),
                self.journal_prev.as_bytes(),
                self.tenant.as_str().as_bytes(),
                self.stream.kind.as_str().as_bytes(),
                &self.stream.id,
                &self.stream_seq.to_be_bytes(),
                self.stream_prev.as_bytes(),
                &step,
                &self.at.micros().to_be_bytes(),
                self.kind.as_bytes(),
                &self.version.to_be_bytes(),
                self.payload.as_bytes(),
            ],
        )
    }
}

/// The digest of a payload's bytes.
#[must_use]
pub fn payload_digest(payload: &[u8]) -> Digest {
    Digest::of(Kind::Payload, payload)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn link() -> Link {
        Link {
            instance: InstanceId::from_bytes([1; 16]),
            journal: JournalId::from_bytes([2; 16]),
            journal_seq: 1,
            journal_prev: Digest::ZERO,
            tenant: Tenant::local(),
            stream: Stream::from(RunId::from_bytes([3; 16])),
            stream_seq: 1,
            stream_prev: Digest::ZERO,
            step: None,
            at: Timestamp::from_micros(1_790_000_000_000_000),
            kind: "run.created".to_owned(),
            version: 1,
            payload: payload_digest(b"{}"),
        }
    }

    #[test]
    fn every_field_is_covered() {
        let base = link();
        let changed = [
            Link { instance: InstanceId::from_bytes([9; 16]), ..base.clone() },
            Link { journal: JournalId::from_bytes([9; 16]), ..base.clone() },
            Link { journal_seq: 2, ..base.clone() },
            Link { journal_prev: payload_digest(b"x"), ..base.clone() },
            Link { tenant: Tenant::try_from("other".to_owned()).unwrap(), ..base.clone() },
            Link { stream: Stream { kind: StreamKind::Thread, id: [3; 16] }, ..base.clone() },
            Link { stream: Stream { kind: StreamKind::Run, id: [9; 16] }, ..base.clone() },
            Link { stream_seq: 2, ..base.clone() },
            Link { stream_prev: payload_digest(b"x"), ..base.clone() },
            Link { step: Some(StepId::from_bytes([0; 16])), ..base.clone() },
            Link { at: Timestamp::from_micros(0), ..base.clone() },
            Link { kind: "run.finished".to_owned(), ..base.clone() },
            Link { version: 2, ..base.clone() },
            Link { payload: payload_digest(b"[]"), ..base.clone() },
        ];
        let hashes: std::collections::BTreeSet<_> =
            changed.iter().chain([&base]).map(Link::hash).collect();
        assert_eq!(hashes.len(), changed.len() + 1);
    }
}
