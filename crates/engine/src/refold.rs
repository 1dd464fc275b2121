//! A run's state from its events alone, for the moment at which a run is taken up.
//!
//! Tables are the fold, but whoever can write the file can set a used grant back to granted, or an executing step
//! back to deciding. Before a run goes on its stream is folded again, hash by hash, and compared with the tables.

use portcullis_domain::fold::RunState;
use portcullis_domain::grant::ApprovalFault;
use portcullis_domain::id::RunId;
use portcullis_domain::ports::{EventFilter, MAX_PAGE, Store, StoreError};
use portcullis_domain::scope::Scope;
use portcullis_domain::stream::Stream;

use crate::error::GateError;

/// Compares `state` with a fresh fold of the run's stream; [`StoreError::Stale`] when the run went on meanwhile.
pub(crate) async fn check(
    store: &dyn Store,
    scope: &Scope,
    state: &RunState,
) -> Result<(), GateError> {
    let fault = GateError::Approval(ApprovalFault::State);
    match fold(store, scope, state.run.id).await? {
        Some(folded) if folded == *state => Ok(()),
        // Somebody recorded something between the two readings.
        Some(folded) if folded.run.seq > state.run.seq => Err(StoreError::Stale.into()),
        _ => Err(fault),
    }
}

/// The fold of a run's stream; `None` when the stream does not fold.
async fn fold(store: &dyn Store, scope: &Scope, run: RunId) -> Result<Option<RunState>, GateError> {
    let stream = Stream::from(run);
    let mut after = 0_u64;
    let mut state: Option<RunState> = None;
    loop {
        let filter = EventFilter { stream: Some(stream), after, limit: MAX_PAGE };
        let page = store.events(scope, filter).await?;
        // A page of large rows may be short; only an empty one is the end.
        if page.is_empty() {
            return Ok(state);
        }
        for stored in &page {
            let Ok(event) = stored.event(store.instance()) else { return Ok(None) };
            after = event.link.journal_seq;
            let folded = match &mut state {
                None => RunState::begin(&event).map(|begun| state = Some(begun)),
                Some(state) => state.apply(&event).map(drop),
            };
            if folded.is_err() {
                return Ok(None);
            }
        }
    }
}
