//! Stored events, read: every column has its form, or a break says which has not.

use portcullis_canon::Digest;
use portcullis_domain::event::{Body, EventError};
use portcullis_domain::id::{InstanceId, JournalId};
use portcullis_domain::ports::StoredEvent;
use portcullis_domain::stream::Link;

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
        let link = stored.link(instance).map_err(|error| bad(error.column))?;
        // Sequences count from one.
        for (seq, column) in [(link.journal_seq, "journal_seq"), (link.stream_seq, "stream_seq")] {
            if seq == 0 {
                return Err(bad(column));
            }
        }
        let hash: [u8; 32] = stored.hash.as_slice().try_into().map_err(|_| bad("hash"))?;
        Ok(Self { at, link, hash: Digest::from_bytes(hash) })
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
    pub(crate) fn body(&self, payload: &[u8]) -> Result<Body, Break> {
        let (at, link) = (self.at, &self.link);
        Body::read(&link.kind, link.version, payload).map_err(|error| match error {
            EventError::Unknown { kind, version } => {
                let (event, version) = (report::name(&kind), i64::from(version));
                Break::UnknownEvent { at, event, version }
            }
            EventError::Payload(event) => Break::BadPayload { at, event: event.to_owned() },
        })
    }
}
