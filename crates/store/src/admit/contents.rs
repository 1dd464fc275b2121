//! Contents and specs of an append: each is named by an event, and each name is brought or known.

use std::collections::BTreeMap;

use portcullis_canon::{Digest, Kind};
use portcullis_domain::content::{Content, ContentRef};
use portcullis_domain::event::Event;
use portcullis_domain::ports::StoreError;
use portcullis_domain::run::FrozenTool;
use portcullis_domain::scope::Tenant;
use portcullis_domain::stream::Stream;

use super::{Base, Brought, MAX_CONTENT_BYTES, MAX_SPEC_BYTES};

/// What the append's events name.
#[derive(Debug, Default)]
pub(super) struct Named {
    /// Each content with the first event that names it.
    contents: BTreeMap<Digest, (ContentRef, Stream, u64)>,
    specs: Vec<Digest>,
}

impl Named {
    /// Adds what an event names.
    pub(super) fn read(&mut self, event: &Event) {
        for content in event.body.contents() {
            let place = (content, event.link.stream, event.link.stream_seq);
            self.contents.entry(content.digest).or_insert(place);
        }
        self.specs.extend(event.body.specs());
    }
}

/// The contents to store.
pub(super) fn contents(
    base: &mut dyn Base,
    tenant: &Tenant,
    named: &Named,
    brought: Vec<Content>,
) -> Result<Vec<Brought>, StoreError> {
    let mut stored: Vec<Brought> = Vec::with_capacity(brought.len());
    for content in brought {
        let reference = content.reference();
        let place = named.contents.get(&reference.digest);
        let Some((_, stream, stream_seq)) = place.filter(|(name, _, _)| *name == reference) else {
            return Err(StoreError::NotAdmitted);
        };
        if content.bytes().len() > MAX_CONTENT_BYTES {
            return Err(StoreError::NotAdmitted);
        }
        if stored.iter().any(|other| other.content.reference() == reference) {
            continue;
        }
        stored.push(Brought { content, stream: *stream, stream_seq: *stream_seq });
    }
    for (name, _, _) in named.contents.values() {
        let known = base.content(name.digest)?;
        // What was erased has no size: it is neither named nor brought again.
        let fits =
            known.as_ref().is_none_or(|(owner, size)| owner == tenant && *size == Some(name.size));
        let index = stored.iter().position(|brought| brought.content.reference() == *name);
        match (known.is_some(), index) {
            _ if !fits => return Err(StoreError::NotAdmitted),
            // Already there: salted, so it is the same content.
            (true, Some(index)) => {
                stored.remove(index);
            }
            (true, None) | (false, Some(_)) => {}
            (false, None) => return Err(StoreError::NotAdmitted),
        }
    }
    Ok(stored)
}

/// The specs to store. `frozen` are known: the run was created with them.
pub(super) fn specs(
    base: &mut dyn Base,
    named: &Named,
    frozen: &[FrozenTool],
    offered: Vec<Vec<u8>>,
) -> Result<Vec<(Digest, Vec<u8>)>, StoreError> {
    let mut stored: Vec<(Digest, Vec<u8>)> = Vec::new();
    for bytes in offered {
        let digest = Digest::of(Kind::ToolSpec, &bytes);
        if bytes.len() > MAX_SPEC_BYTES || !named.specs.contains(&digest) {
            return Err(StoreError::NotAdmitted);
        }
        if stored.iter().all(|(other, _)| *other != digest) && !base.has_spec(digest)? {
            stored.push((digest, bytes));
        }
    }
    for digest in &named.specs {
        let known = frozen.iter().any(|tool| tool.spec == *digest)
            || stored.iter().any(|(other, _)| other == digest)
            || base.has_spec(*digest)?;
        if !known {
            return Err(StoreError::NotAdmitted);
        }
    }
    Ok(stored)
}
