//! A run's state from its events, where its rows cannot be read: so that a person can still end it.

use portcullis_domain::fold::RunState;
use portcullis_domain::id::{InstanceId, RunId};
use portcullis_domain::ports::StoreError;
use portcullis_domain::refold::Refold;
use portcullis_domain::scope::Tenant;

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
    let mut refold = Refold::of(instance, run);
    loop {
        let page = base.stream_events(tenant, refold.wanted())?;
        if page.is_empty() {
            let state = refold.end().map_err(|_| damaged)?;
            return state.ok_or(StoreError::NotFound("run"));
        }
        refold = refold.page(&page).map_err(|_| damaged.clone())?;
    }
}
