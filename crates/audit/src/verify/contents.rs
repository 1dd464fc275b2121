//! Contents and tool specs: each one that an event names is there and is what its digest says.

use std::collections::BTreeSet;

use portcullis_canon::{Digest, Kind};
use portcullis_domain::content::{Content, ContentRef};
use portcullis_domain::event::{Body, Event};
use portcullis_domain::ports::{StoreError, StoredContent, StoredEvent};
use portcullis_domain::stream::{Link, Stream, StreamKind};

use super::report::{Break, Place};
use super::{MAX_SPECS, PAGE, Stop, VerifyError, Walk};

/// The most contents whose erasure is looked for in one walk of the installation's stream.
const MAX_MISSING: usize = 1 << 16;

impl Walk<'_> {
    pub(super) fn contents(&mut self, event: &Event, at: Place) -> Result<(), Stop> {
        let mut seen = BTreeSet::new();
        for named in event.body.contents() {
            if !seen.insert((named.digest, named.size)) {
                continue;
            }
            let content = named.digest;
            match self.reader.read(|ledger| ledger.content(content)) {
                Ok(Some(stored)) => {
                    if stored.is_erased() {
                        self.missing.entry(content).or_insert(at);
                    } else {
                        self.report.contents += 1;
                    }
                    if let Some(part) = self.content_fault(named, &stored, &event.link)? {
                        self.broken(Break::ContentMismatch { at, content, part })?;
                    }
                }
                Ok(None) => drop(self.missing.entry(content).or_insert(at)),
                Err(StoreError::Damaged { .. }) => {
                    self.broken(Break::ContentMismatch { at, content, part: "row" })?;
                }
                Err(error) => return Err(error.into()),
            }
            if self.missing.len() >= MAX_MISSING {
                self.find_erasures()?;
            }
        }
        Ok(())
    }

    /// The first part of a stored content that does not fit the event which names it.
    fn content_fault(
        &mut self,
        named: ContentRef,
        stored: &StoredContent,
        link: &Link,
    ) -> Result<Option<&'static str>, Stop> {
        let owner = owner(stored);
        let own = owner == Some((link.stream, link.stream_seq));
        // Counted even when something else is wrong with it: the row is accounted for.
        self.owned += u64::from(own);
        if let Some(part) = whole_fault(named, stored) {
            return Ok(Some(part));
        }
        if stored.tenant != link.tenant.as_str() {
            return Ok(Some("tenant"));
        }
        let owned = own || self.brought(owner, named.digest, link)?;
        Ok((!owned).then_some("owner"))
    }

    /// True when the event at this place of a stream names the content too, and earlier than `link` does.
    fn brought(
        &mut self,
        owner: Option<(Stream, u64)>,
        content: Digest,
        link: &Link,
    ) -> Result<bool, Stop> {
        let Some((stream, seq)) = owner else { return Ok(false) };
        let before = i64::try_from(seq).unwrap_or(i64::MAX).saturating_sub(1);
        let page = match self.reader.read(|ledger| ledger.stream_after(stream, before, 1)) {
            Err(StoreError::Damaged { .. }) => return Ok(false),
            page => page?,
        };
        let Some(first) = page.first().filter(|found| u64::try_from(found.stream_seq) == Ok(seq))
        else {
            return Ok(false);
        };
        let earlier = first.journal != link.journal.as_bytes()
            || u64::try_from(first.journal_seq).is_ok_and(|seq| seq < link.journal_seq);
        let names = body(first)
            .is_some_and(|body| body.contents().iter().any(|named| named.digest == content));
        Ok(earlier && names)
    }

    /// Takes the contents whose erasure is recorded off the list of missing ones, and reports the rest.
    pub(super) fn find_erasures(&mut self) -> Result<(), Stop> {
        let mut missing = std::mem::take(&mut self.missing);
        let stream = Stream::from(self.report.instance);
        let mut after = 0;
        while !missing.is_empty() {
            let page = match self.reader.read(|ledger| ledger.stream_after(stream, after, PAGE)) {
                // Reported by the walk of that stream; what is not found excuses nothing.
                Err(StoreError::Damaged { .. }) => break,
                page => page?,
            };
            let Some(last) = page.last() else { break };
            if last.stream_seq <= after {
                return Err(VerifyError::Disorder.into());
            }
            after = last.stream_seq;
            for stored in &page {
                // Its chain is checked where the stream is walked.
                if let Some(Body::ContentErased(erased)) = body(stored)
                    && missing.remove(&erased.content).is_some()
                {
                    self.report.erased += 1;
                }
            }
        }
        missing
            .into_iter()
            .try_for_each(|(content, at)| self.broken(Break::ContentMissing { at, content }))
    }

    pub(super) fn specs(&mut self, event: &Event, at: Place) -> Result<(), Stop> {
        for spec in event.body.specs() {
            if !self.specs.insert(spec) {
                continue;
            }
            if self.specs.len() > MAX_SPECS {
                return Err(VerifyError::TooManySpecs.into());
            }
            match self.reader.read(|ledger| ledger.spec(spec)) {
                Ok(Some(bytes)) if Digest::of(Kind::ToolSpec, &bytes) == spec => {}
                Ok(Some(_)) | Err(StoreError::Damaged { .. }) => {
                    self.broken(Break::SpecMismatch { at, spec })?;
                }
                Ok(None) => self.broken(Break::SpecMissing { at, spec })?,
                Err(error) => return Err(error.into()),
            }
        }
        Ok(())
    }
}

/// The first part of a content that is not what its reference says; nothing is said of one that was erased.
fn whole_fault(named: ContentRef, stored: &StoredContent) -> Option<&'static str> {
    if stored.is_erased() {
        return None;
    }
    let Ok(salt) = stored.salt.as_slice().try_into() else { return Some("salt") };
    let found = Content::from_stored(salt, stored.bytes.clone()).reference();
    if found.digest != named.digest || stored.digest != named.digest.as_bytes() {
        return Some("bytes");
    }
    (found.size != named.size).then_some("size")
}

fn body(stored: &StoredEvent) -> Option<Body> {
    let version = u32::try_from(stored.version).ok()?;
    Body::read(&stored.kind, version, &stored.payload).ok()
}

fn owner(stored: &StoredContent) -> Option<(Stream, u64)> {
    let (kind, id, seq) = &stored.owner;
    let kind = StreamKind::from_name(kind)?;
    let id = id.as_slice().try_into().ok()?;
    Some((Stream { kind, id }, u64::try_from(*seq).ok()?))
}
