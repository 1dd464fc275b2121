//! One append that makes several calls durable at once, and the permits that it gives.

use std::time::Duration;

use crate::event::Body;
use crate::id::{RunId, StepId};
use crate::ports::{Append, Committed, Condition, Durability, Store, StoreError};
use crate::question::Card;
use crate::scope::Scope;
use crate::standing::Standing;

use super::{Permit, SealedCall, intended};

/// One of the calls that are about to happen together.
#[derive(Debug)]
pub struct BatchCall {
    /// Its step.
    pub step: StepId,
    /// The whole call, as a person would be shown it.
    pub card: Card,
    /// How long it may take.
    pub deadline: Duration,
}

/// Calls that are about to happen together, with the append that makes all of them durable.
#[derive(Debug)]
pub struct BatchIntent {
    /// The run.
    pub run: RunId,
    /// The calls, in their order.
    pub calls: Vec<BatchCall>,
    /// The run's salt, which keys the call digests.
    pub salt: Vec<u8>,
    /// Holds a `step.started` for each of the calls, in their order, and no other start; under the run's driver condition,
    /// and synced.
    pub append: Append,
}

/// Proof that the intents of a batch are durable, all of them.
#[must_use = "the intents are recorded: perform them, or their steps wait for reconciliation"]
#[derive(Debug)]
pub struct BatchReceipt {
    calls: Vec<SealedCall>,
    committed: Committed,
}

/// Makes the intents of a batch durable.
///
/// # Errors
/// What the store says; [`StoreError::NotAdmitted`] without a write when the append does not hold exactly the starts of
/// these calls, synced.
pub async fn commit_batch(
    store: &dyn Store,
    scope: &Scope,
    intent: BatchIntent,
) -> Result<BatchReceipt, StoreError> {
    let BatchIntent { run, calls, salt, append } = intent;
    let calls: Vec<SealedCall> = calls.into_iter().map(|call| sealed(run, call, &salt)).collect();
    let driven = matches!(append.condition, Condition::Driver { run: driven, .. } if driven == run);
    let starts = append.events.iter().map(|event| {
        let own = event.step.filter(|_| event.stream == run.into());
        (own, &event.body)
    });
    if append.durability != Durability::Synced || !driven || !are_started(&calls, starts) {
        return Err(StoreError::NotAdmitted);
    }
    let committed = store.append(scope, append).await?;
    // Asserted again after the write: a store that answered for less than it was given gets no receipt.
    let stored = committed.events.iter().map(|event| (event.link.step, &event.body));
    if committed.durability != Durability::Synced || !are_started(&calls, stored) {
        return Err(StoreError::InDoubt);
    }
    Ok(BatchReceipt { calls, committed })
}

fn sealed(run: RunId, call: BatchCall, salt: &[u8]) -> SealedCall {
    let BatchCall { step, card, deadline } = call;
    let call = card.call_digest(salt);
    let Card { tool, arguments, .. } = card;
    SealedCall { run, step, start: 1, tool, arguments, call, deadline }
}

/// Whether the intents among the events are the first starts of exactly these calls, in their order, each of another step.
fn are_started<'a>(
    calls: &[SealedCall],
    events: impl Iterator<Item = (Option<StepId>, &'a Body)>,
) -> bool {
    let started: Vec<_> = events
        .filter_map(|(step, body)| {
            Some((step, intended(body)?, matches!(body, Body::StepStarted(_))))
        })
        .collect();
    let wanted = calls.iter().map(|call| (Some(call.step), (call.call, call.start), true));
    let mut steps: Vec<StepId> = calls.iter().map(|call| call.step).collect();
    steps.sort_unstable();
    steps.dedup();
    !calls.is_empty() && steps.len() == calls.len() && started.into_iter().eq(wanted)
}

impl BatchReceipt {
    /// What was committed, for the fold.
    #[must_use]
    pub fn committed(&self) -> &Committed {
        &self.committed
    }

    /// One permit for each call, in their order, which stand while that says so, and what was committed.
    pub fn into_permits(self, standing: &Standing) -> (Vec<Permit>, Committed) {
        let permit = |call| Permit { call, standing: standing.clone() };
        let permits = self.calls.into_iter().map(permit);
        (permits.collect(), self.committed)
    }
}
