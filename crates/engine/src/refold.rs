//! A run's state from its events alone, for the moment at which a run is taken up.
//!
//! Tables are the fold, but whoever can write the file can set a used grant back to granted, or an executing step
//! back to deciding. Before a run goes on its stream is folded again, hash by hash, and compared with the tables.

use portcullis_domain::fold::RunState;
use portcullis_domain::grant::ApprovalFault;
use portcullis_domain::id::{RunId, StepId};
use portcullis_domain::ports::{Store, StoreError, StoredEvent};
use portcullis_domain::refold::Refold;
use portcullis_domain::scope::Scope;

use crate::error::GateError;

/// Compares `state` with a fresh fold of the run's stream; [`StoreError::Stale`] when the run went on meanwhile. What of
/// its latest step no row says is counted on the way.
pub(crate) async fn check(
    store: &dyn Store,
    scope: &Scope,
    state: &RunState,
) -> Result<Unanswered, GateError> {
    let fault = GateError::Approval(ApprovalFault::State);
    let mut unanswered = Unanswered::of(state.step().map(|step| step.id));
    match fold(store, scope, state.run.id, &mut unanswered).await? {
        Some(folded) if *folded == *state => Ok(unanswered),
        // Somebody recorded something between the two readings.
        Some(folded) if folded.run.seq > state.run.seq => Err(StoreError::Stale.into()),
        _ => Err(fault),
    }
}

/// How often somebody was asked what the latest start of a step did, and did not live to say that an answer came.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Unanswered {
    step: Option<StepId>,
    pub(crate) probes: u32,
}

impl Unanswered {
    fn of(step: Option<StepId>) -> Self {
        Self { step, probes: 0 }
    }

    fn count(&mut self, event: &StoredEvent) {
        let step = self.step.as_ref().map(|step| step.as_bytes().as_slice());
        if step.is_none() || event.step.as_deref() != step {
            return;
        }
        self.probes = match event.kind.as_str() {
            "step.started" => 0,
            "probe.started" => self.probes.saturating_add(1),
            "probe.finished" => self.probes.saturating_sub(1),
            _ => return,
        };
    }
}

/// The fold of a run's stream; `None` when the stream does not fold.
async fn fold(
    store: &dyn Store,
    scope: &Scope,
    run: RunId,
    unanswered: &mut Unanswered,
) -> Result<Option<Box<RunState>>, GateError> {
    let mut refold = Refold::of(store.instance(), run);
    loop {
        let page = store.events(scope, refold.wanted()).await?;
        page.iter().for_each(|event| unanswered.count(event));
        if page.is_empty() {
            return Ok(refold.end().unwrap_or_default());
        }
        refold = match refold.page(&page) {
            Ok(folded) => folded,
            Err(_) => return Ok(None),
        };
    }
}
