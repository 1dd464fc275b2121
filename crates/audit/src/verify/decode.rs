//! The events of streams, read ahead on a thread of their own: columns, hash and payload of each. What they add up to is
//! [`super::stream`]'s.

use std::sync::mpsc::{Receiver, SyncSender};

use portcullis_canon::Digest;
use portcullis_domain::event::Body;
use portcullis_domain::id::{InstanceId, JournalId};
use portcullis_domain::ports::{StoreError, StoredEvent};
use portcullis_domain::stream::{Link, Stream};

use super::readers::Reader;
use super::report::{Break, Place};
use super::stored::Read;
use super::{PAGE, VerifyError};

/// The bytes of payloads after which events are handed on, so that little of a hostile record is in memory at once.
const PART_BYTES: usize = 256 * 1024;

/// A stream, and the journal in which it begins.
pub(super) type Begun = (Stream, JournalId);

/// What is found of streams, one after the other.
pub(super) enum Part {
    Begin(Begun),
    Events(Vec<Seen>),
    /// The rest of the stream cannot be read.
    Damaged {
        table: &'static str,
        after: i64,
    },
    End,
}

/// An event as it is stored in a stream.
pub(super) struct Seen {
    pub(super) stream_seq: i64,
    pub(super) journal_seq: i64,
    /// Its columns; a break when one does not have its form.
    pub(super) read: Result<Checked, Break>,
}

/// An event whose columns have their form.
pub(super) struct Checked {
    pub(super) at: Place,
    pub(super) link: Link,
    pub(super) hash: Digest,
    /// When it is not what its hash says.
    pub(super) fault: Option<Break>,
    pub(super) body: Result<Body, Break>,
}

impl Seen {
    fn of(stored: &StoredEvent, instance: InstanceId, journal: JournalId) -> Self {
        let journal = stored.journal.as_slice().try_into().map_or(journal, JournalId::from_bytes);
        let read = Read::of(stored, instance, journal).map(|read| {
            // Once more: an index of a damaged file can give another row here than in the journal's order.
            let fault = read.check_hash().err();
            let body = read.body(&stored.payload);
            let Read { at, link, hash } = read;
            Checked { at, link, hash, fault, body }
        });
        Self { stream_seq: stored.stream_seq, journal_seq: stored.journal_seq, read }
    }
}

/// Reads each stream that is named to its end. It ends when no more are named, when nobody wants the parts, or after an
/// error, which is the last part.
pub(super) fn decode(
    reader: &Reader<'_>,
    instance: InstanceId,
    streams: Receiver<Begun>,
    parts: &SyncSender<Result<Part, VerifyError>>,
) {
    let hand = |part| parts.send(Ok(part)).map_err(|_| None);
    for begun in streams {
        match hand(Part::Begin(begun)).and_then(|()| stream(reader, instance, begun, &hand)) {
            Ok(()) => {}
            Err(None) => return,
            Err(Some(error)) => {
                let _nobody_wants_it = parts.send(Err(error));
                return;
            }
        }
    }
}

/// Reads one stream. `None` is the error of one that nobody wants any more.
fn stream(
    reader: &Reader<'_>,
    instance: InstanceId,
    (stream, journal): Begun,
    hand: &impl Fn(Part) -> Result<(), Option<VerifyError>>,
) -> Result<(), Option<VerifyError>> {
    let mut after = 0;
    loop {
        let page = match reader.read(|ledger| ledger.stream_after(stream, after, PAGE)) {
            Err(StoreError::Damaged { table }) => return hand(Part::Damaged { table, after }),
            page => page.map_err(|error| Some(error.into()))?,
        };
        let Some(last) = page.last() else { return hand(Part::End) };
        if last.stream_seq <= after {
            return Err(Some(VerifyError::Disorder));
        }
        after = last.stream_seq;
        let (mut events, mut bytes) = (Vec::new(), 0_usize);
        for stored in &page {
            events.push(Seen::of(stored, instance, journal));
            bytes = bytes.saturating_add(stored.payload.len());
            if bytes > PART_BYTES {
                hand(Part::Events(std::mem::take(&mut events)))?;
                bytes = 0;
            }
        }
        hand(Part::Events(events))?;
    }
}
