//! What can be judged and computed of an append alone, before it waits for its turn to be written.

use portcullis_canon::Digest;
use portcullis_domain::event::{Body, MAX_PAYLOAD_BYTES};
use portcullis_domain::ports::{Append, StoreError};
use portcullis_domain::stream::payload_digest;

use super::MAX_EVENTS;

/// The payload of an event.
#[derive(Debug)]
pub(super) struct Payload {
    pub(super) bytes: Vec<u8>,
    pub(super) digest: Digest,
}

/// An append whose payloads are written out. One writer serves all, so callers spare it what they can do themselves.
#[derive(Debug)]
pub(crate) struct Prepared {
    pub(crate) append: Append,
    /// One for each event.
    pub(super) payloads: Vec<Payload>,
}

impl Payload {
    pub(super) fn of(body: &Body) -> Result<Self, StoreError> {
        let bytes = body.payload().map_err(|_| StoreError::NotAdmitted)?;
        if bytes.len() > MAX_PAYLOAD_BYTES {
            return Err(StoreError::NotAdmitted);
        }
        Ok(Self { digest: payload_digest(&bytes), bytes })
    }
}

impl Prepared {
    /// # Errors
    /// [`StoreError::NotAdmitted`] when it has no events or too many, or one that is too large.
    pub(crate) fn of(append: Append) -> Result<Self, StoreError> {
        if append.events.is_empty() || append.events.len() > MAX_EVENTS {
            return Err(StoreError::NotAdmitted);
        }
        let payloads = append.events.iter().map(|event| Payload::of(&event.body));
        Ok(Self { payloads: payloads.collect::<Result<_, _>>()?, append })
    }

    /// Bytes of all payloads.
    pub(crate) fn payload_bytes(&self) -> usize {
        self.payloads.iter().map(|payload| payload.bytes.len()).fold(0, usize::saturating_add)
    }
}
