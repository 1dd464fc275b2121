//! Stored forms: how events and contents lie in their tables, for both back ends.

use portcullis_domain::event::Event;
use portcullis_domain::ports::{StoreError, StoredContent, StoredEvent};
use portcullis_domain::scope::Tenant;
use portcullis_domain::stream::Tip;

use crate::admit::Brought;

/// A counter as a table holds it.
///
/// # Errors
/// [`StoreError::NotAdmitted`] beyond 2^63, which no journal reaches.
pub(crate) fn int(value: u64) -> Result<i64, StoreError> {
    i64::try_from(value).map_err(|_| StoreError::NotAdmitted)
}

/// The row of an event.
pub(crate) fn stored_event(event: &Event, payload: Vec<u8>) -> Result<StoredEvent, StoreError> {
    let link = &event.link;
    Ok(StoredEvent {
        journal: link.journal.as_bytes().to_vec(),
        journal_seq: int(link.journal_seq)?,
        tenant: link.tenant.as_str().to_owned(),
        stream_kind: link.stream.kind.as_str().to_owned(),
        stream_id: link.stream.id.to_vec(),
        stream_seq: int(link.stream_seq)?,
        step: link.step.map(|step| step.as_bytes().to_vec()),
        at: link.at.micros(),
        kind: link.kind.clone(),
        version: i64::from(link.version),
        payload,
        journal_prev: link.journal_prev.as_bytes().to_vec(),
        stream_prev: link.stream_prev.as_bytes().to_vec(),
        hash: event.hash.as_bytes().to_vec(),
    })
}

/// The row of a content.
pub(crate) fn stored_content(
    tenant: &Tenant,
    brought: &Brought,
) -> Result<StoredContent, StoreError> {
    let kind = brought.stream.kind.as_str().to_owned();
    Ok(StoredContent {
        digest: brought.content.reference().digest.as_bytes().to_vec(),
        tenant: tenant.as_str().to_owned(),
        owner: (kind, brought.stream.id.to_vec(), int(brought.stream_seq)?),
        salt: brought.content.salt().to_vec(),
        bytes: brought.content.bytes().to_vec(),
    })
}

/// The end of a chain from its last row.
pub(crate) fn tip(seq: i64, hash: &[u8]) -> Result<Tip, StoreError> {
    let damaged = StoreError::Damaged { table: "events" };
    match (u64::try_from(seq), hash.try_into()) {
        (Ok(seq), Ok(hash)) if seq > 0 => {
            Ok(Tip { seq, hash: portcullis_canon::Digest::from_bytes(hash) })
        }
        _ => Err(damaged),
    }
}
