//! A run's state from its events alone, for the moment at which a run is taken up.
//!
//! Tables are the fold, but whoever can write the file can set a used grant back to granted, or an executing step
//! back to deciding. Before a run goes on its stream is folded again, hash by hash, and compared with the tables.

use portcullis_domain::fold::RunState;
use portcullis_domain::grant::ApprovalFault;
use portcullis_domain::id::RunId;
use portcullis_domain::ports::{Store, StoreError};
use portcullis_domain::refold::Refold;
use portcullis_domain::scope::Scope;

use crate::error::GateError;

/// Compares `state` with a fresh fold of the run's stream; [`StoreError::Stale`] when the run went on meanwhile.
pub(crate) async fn check(
    store: &dyn Store,
    scope: &Scope,
    state: &RunState,
) -> Result<(), GateError> {
    let fault = GateError::Approval(ApprovalFault::State);
    match fold(store, scope, state.run.id).await? {
        Some(folded) if *folded == *state => Ok(()),
        // Somebody recorded something between the two readings.
        Some(folded) if folded.run.seq > state.run.seq => Err(StoreError::Stale.into()),
        _ => Err(fault),
    }
}

/// The fold of a run's stream; `None` when the stream does not fold.
async fn fold(
    store: &dyn Store,
    scope: &Scope,
    run: RunId,
) -> Result<Option<Box<RunState>>, GateError> {
    let mut refold = Refold::of(store.instance(), run);
    loop {
        let page = store.events(scope, refold.wanted()).await?;
        if page.is_empty() {
            return Ok(refold.end().unwrap_or_default());
        }
        refold = match refold.page(&page) {
            Ok(folded) => folded,
            Err(_) => return Ok(None),
        };
    }
}
