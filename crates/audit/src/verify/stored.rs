//! Stored events, read: every column has its form, or a break says which has not.

use portcullis_canon::Digest;
use portcullis_domain::event::{Body, Event, EventError};
use portcullis_domain::id::{InstanceId, JournalId, StepId};
use portcullis_domain::ports::StoredEvent;
use portcullis_domain::scope::Tenant;
use portcullis_domain::stream::{Link, Stream, StreamKind, payload_digest};
use portcullis_domain::time::Timestamp;

use super::report::{self, Break, Place};

/// An event whose columns have their form. What its payload says is not read yet.
pub(crate) struct Read {
    pub(crate) at: Place,
    /// As stored, with the payload's digest computed.
    pub(crate) link: Link,
    /// As stored.
    pub(crate) hash: Digest,
}

impl Read {
    /// Reads the columns. `journal` says where the event was found when its own column is damaged.
    pub(crate) fn of(
        stored: &StoredEvent,
        instance: InstanceId,
        journal: JournalId,
    ) -> Result<Self, Break> {
        let at = Place { journal, seq: stored.journal_seq };
        let bad = |column| Break::BadEvent { at, column };
        let at_micros = Timestamp::from_micros(stored.at);
        if at_micros.micros() != stored.at {
            return Err(bad("at"));
        }
        let link = Link {
            instance,
            journal: id(&stored.journal).map(JournalId::from_bytes).ok_or(bad("journal"))?,
            journal_seq: seq(stored.journal_seq).ok_or(bad("journal_seq"))?,
            journal_prev: digest(&stored.journal_prev).ok_or(bad("journal_prev"))?,
            tenant: Tenant::try_from(stored.tenant.clone()).map_err(|_| bad("tenant"))?,
            stream: Stream {
                kind: StreamKind::from_name(&stored.stream_kind).ok_or(bad("stream_kind"))?,
                id: id(&stored.stream_id).ok_or(bad("stream_id"))?,
            },
            stream_seq: seq(stored.stream_seq).ok_or(bad("stream_seq"))?,
            stream_prev: digest(&stored.stream_prev).ok_or(bad("stream_prev"))?,
            step: match &stored.step {
                None => None,
                Some(step) => Some(id(step).map(StepId::from_bytes).ok_or(bad("step"))?),
            },
            at: at_micros,
            kind: stored.kind.clone(),
            version: u32::try_from(stored.version).map_err(|_| bad("version"))?,
            payload: payload_digest(&stored.payload),
        };
        let hash = digest(&stored.hash).ok_or(bad("hash"))?;
        Ok(Self { at, link, hash })
    }

    /// Compares the stored hash with that of what is stored.
    pub(crate) fn check_hash(&self) -> Result<(), Break> {
        let expected = self.link.hash();
        if expected == self.hash {
            Ok(())
        } else {
            let found = self.hash.to_string();
            Err(Break::HashMismatch { at: self.at, expected, found })
        }
    }

    /// Reads the payload.
    pub(crate) fn event(self, payload: &[u8]) -> Result<Event, Break> {
        let Self { at, link, hash } = self;
        match Body::read(&link.kind, link.version, payload) {
            Ok(body) => Ok(Event { link, body, hash }),
            Err(EventError::Unknown { kind, version }) => {
                let (event, version) = (report::name(&kind), i64::from(version));
                Err(Break::UnknownEvent { at, event, version })
            }
            Err(EventError::Payload(event)) => {
                Err(Break::BadPayload { at, event: event.to_owned() })
            }
        }
    }
}

fn id(bytes: &[u8]) -> Option<[u8; 16]> {
    bytes.try_into().ok()
}

fn digest(bytes: &[u8]) -> Option<Digest> {
    bytes.try_into().ok().map(Digest::from_bytes)
}

/// Sequences count from one.
fn seq(value: i64) -> Option<u64> {
    u64::try_from(value).ok().filter(|seq| *seq > 0)
}
