//! Comparing a kept head with the store, and finding where journals end now.

use portcullis_canon::Digest;
use portcullis_domain::id::JournalId;
use portcullis_domain::ports::{Ledger, StoreError};
use portcullis_domain::stream::Tip;

use super::Head;
use crate::verify::stored::Read;

/// What a store is to a head that was kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HeadResult {
    /// The journal ends exactly there.
    Same,
    /// The journal contains the head and went on.
    Grown,
    /// The journal has no such event any more: its tail was cut, or an old copy was put back.
    Cut,
    /// The journal has another event in its place: the record was rewritten, or went on from an old copy.
    Diverged,
    /// The head is of another installation.
    OtherInstance,
}

impl HeadResult {
    /// True when nothing that the head vouches for is gone.
    #[must_use]
    pub const fn holds(self) -> bool {
        matches!(self, Self::Same | Self::Grown)
    }
}

/// Looks for the head's event in the store: two reads, whatever the journal's length.
///
/// The head's own signature is the caller's to check, with [`Head::check`]; what lies between the start and the
/// head is for [`verify`](crate::verify::verify).
///
/// # Errors
/// What the store says.
pub fn compare_head(ledger: &mut dyn Ledger, head: &Head) -> Result<HeadResult, StoreError> {
    if ledger.instance() != head.instance {
        return Ok(HeadResult::OtherInstance);
    }
    // A sequence that no table can hold is one that this journal never reached.
    let Ok(seq) = i64::try_from(head.seq) else { return Ok(HeadResult::Cut) };
    let page = ledger.events_after(head.journal, seq.saturating_sub(1), 2)?;
    let mut events = page.iter();
    let Some(found) = events.next().filter(|event| event.journal_seq == seq) else {
        return Ok(HeadResult::Cut);
    };
    // Computed, not only read: a copied hash beside another event is no match.
    let same = Read::of(found, head.instance, head.journal)
        .is_ok_and(|read| read.hash == head.hash && read.link.hash() == head.hash);
    if !same {
        return Ok(HeadResult::Diverged);
    }
    Ok(if events.next().is_some() { HeadResult::Grown } else { HeadResult::Same })
}

/// Where each journal ends now, for [`Head::sign`]. A journal without events is left out.
///
/// Journals have no gap before their end, so a few single reads find it, whatever the length.
///
/// # Errors
/// What the store says; [`StoreError::Damaged`] when the last event does not have its form.
pub fn tips(ledger: &mut dyn Ledger) -> Result<Vec<(JournalId, Tip)>, StoreError> {
    let mut tips = Vec::new();
    for journal in ledger.journals()? {
        if let Some(tip) = tip(ledger, journal)? {
            tips.push((journal, tip));
        }
    }
    Ok(tips)
}

fn tip(ledger: &mut dyn Ledger, journal: JournalId) -> Result<Option<Tip>, StoreError> {
    // `some` has an event after it, `none` has not.
    let mut next = |after| Ok::<_, StoreError>(ledger.events_after(journal, after, 1)?.pop());
    let (mut some, mut none) = (0_i64, 1_i64);
    let Some(mut last) = next(some)? else { return Ok(None) };
    while let Some(event) = next(none)? {
        (some, last) = (none, event);
        none = none.saturating_mul(2);
        if none == i64::MAX {
            break;
        }
    }
    while none - some > 1 {
        let middle = some + (none - some) / 2;
        match next(middle)? {
            Some(event) => (some, last) = (middle, event),
            None => none = middle,
        }
    }
    let damaged = StoreError::Damaged { table: "events" };
    let (Ok(seq), Ok(hash)) = (u64::try_from(last.journal_seq), last.hash.as_slice().try_into())
    else {
        return Err(damaged);
    };
    Ok(Some(Tip { seq, hash: Digest::from_bytes(hash) }))
}
