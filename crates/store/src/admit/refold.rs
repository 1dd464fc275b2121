//! A run's state from its events, where its rows cannot be read: so that a person can still end it.

use portcullis_domain::fold::RunState;
use portcullis_domain::id::{InstanceId, RunId};
use portcullis_domain::ports::{EventFilter, MAX_PAGE, StoreError};
use portcullis_domain::scope::Tenant;
use portcullis_domain::stream::Stream;

use super::Base;

/// Folds the run's stream from its beginning, hash by hash.
///
/// # Errors
/// [`StoreError::Damaged`] when an event cannot be read or does not follow from those before it, and
/// [`StoreError::NotFound`] when this tenant has no such run.
pub(super) fn refold(
    base: &mut dyn Base,
    instance: InstanceId,
    tenant: &Tenant,
    run: RunId,
) -> Result<Box<RunState>, StoreError> {
    let damaged = StoreError::Damaged { table: "events" };
    let mut filter = EventFilter { stream: Some(Stream::from(run)), after: 0, limit: MAX_PAGE };
    let mut state: Option<Box<RunState>> = None;
    loop {
        let page = base.stream_events(tenant, filter)?;
        // A page of large rows may be short; only an empty one is the end.
        if page.is_empty() {
            return state.ok_or(StoreError::NotFound("run"));
        }
        for stored in &page {
            let event = stored.event(instance).map_err(|_| damaged.clone())?;
            filter.after = event.link.journal_seq;
            let folded = match &mut state {
                None => RunState::begin(&event).map(|begun| state = Some(Box::new(begun))),
                Some(state) => state.apply(&event).map(drop),
            };
            folded.map_err(|_| damaged.clone())?;
        }
    }
}
