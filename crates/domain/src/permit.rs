//! Receipts and permits: no receipt, no permit; no permit, no call.
//!
//! A [`Receipt`] exists only after a store has synced the append that holds the call's `step.started`, and a
//! [`BatchReceipt`] only after one that holds those of all its calls. A [`Permit`] is made only from a receipt and consumed
//! by [`crate::ports::ToolSource::call`]. None of them has a public constructor, a clone or a wire form.
//!
//! ```compile_fail
//! // A permit cannot be built from parts.
//! let permit = portcullis_domain::permit::Permit { call: todo!() };
//! ```

mod batch;

use std::time::Duration;

use portcullis_canon::{Digest, Object};

use crate::event::{Body, ProbeStarted};
use crate::id::{RunId, StepId};
use crate::ports::{Append, Committed, Condition, Durability, NewEvent, Store, StoreError};
use crate::question::Card;
use crate::scope::Scope;
use crate::standing::Standing;

pub use batch::{BatchCall, BatchIntent, BatchReceipt, commit_batch};

/// A call that is about to happen, with the append that makes it durable.
///
/// What will run is read from the card, and so is the call digest: they cannot differ.
#[derive(Debug)]
pub struct Intent {
    /// The run.
    pub run: RunId,
    /// The step.
    pub step: StepId,
    /// The whole call, as a person would be shown it.
    pub card: Card,
    /// The run's salt, which keys the call digest.
    pub salt: Vec<u8>,
    /// How long it may take.
    pub deadline: Duration,
    /// Holds a `step.started`, `step.restarted` or `probe.started` for this step and call, under the run's driver condition, and is synced.
    pub append: Append,
}

/// Proof that an intent is durable.
#[must_use = "the intent is recorded: perform it, or its step waits for reconciliation"]
#[derive(Debug)]
pub struct Receipt {
    call: SealedCall,
    committed: Committed,
}

/// Leave to perform exactly one call.
#[must_use = "the intent is recorded: perform it, or its step waits for reconciliation"]
#[derive(Debug)]
pub struct Permit {
    call: SealedCall,
    standing: Standing,
}

#[derive(Debug)]
struct SealedCall {
    run: RunId,
    step: StepId,
    start: u32,
    tool: String,
    arguments: Object,
    call: Digest,
    deadline: Duration,
}

/// Makes an intent durable.
///
/// # Errors
/// What the store says; [`StoreError::NotAdmitted`] without a write when the append does not hold exactly
/// this call's intent, synced.
pub async fn commit(
    store: &dyn Store,
    scope: &Scope,
    intent: Intent,
) -> Result<Receipt, StoreError> {
    let call = intent.card.call_digest(&intent.salt);
    let start = started(&intent, call).ok_or(StoreError::NotAdmitted)?;
    let committed = store.append(scope, intent.append).await?;
    // Asserted again after the write: a store that answered for less than it was given gets no receipt.
    let durable = committed.durability == Durability::Synced
        && committed.events.iter().any(|event| {
            event.link.step == Some(intent.step)
                && intended(&event.body).is_some_and(|(intended, _)| intended == call)
        });
    if !durable {
        return Err(StoreError::InDoubt);
    }
    let call = SealedCall {
        run: intent.run,
        step: intent.step,
        start,
        tool: intent.card.tool,
        arguments: intent.card.arguments,
        call,
        deadline: intent.deadline,
    };
    Ok(Receipt { call, committed })
}

fn started(intent: &Intent, call: Digest) -> Option<u32> {
    let driven =
        matches!(intent.append.condition, Condition::Driver { run, .. } if run == intent.run);
    if intent.append.durability != Durability::Synced || !driven {
        return None;
    }
    let own =
        |event: &&NewEvent| event.step == Some(intent.step) && event.stream == intent.run.into();
    let mut starts =
        intent.append.events.iter().filter(own).filter_map(|event| intended(&event.body));
    let (_, start) = starts.next().filter(|(intended, _)| *intended == call)?;
    starts.next().is_none().then_some(start)
}

/// The call that an event makes durable, and the how many-th start of its step that is.
const fn intended(body: &Body) -> Option<(Digest, u32)> {
    match body {
        Body::StepStarted(body) => Some((body.call, body.start)),
        Body::StepRestarted(body) => Some((body.call, body.start)),
        Body::ProbeStarted(ProbeStarted { call: Some(probe), .. }) => {
            Some((probe.admitted.call, 0))
        }
        _ => None,
    }
}

impl Receipt {
    /// What was committed, for the fold.
    #[must_use]
    pub fn committed(&self) -> &Committed {
        &self.committed
    }

    /// The permit, which stands while that says so, and what was committed.
    pub fn into_permit(self, standing: Standing) -> (Permit, Committed) {
        (Permit { call: self.call, standing }, self.committed)
    }
}

impl Permit {
    /// Asked right before what cannot be taken back, by every tool that waits for anything before that.
    #[must_use]
    pub fn standing(&self) -> &Standing {
        &self.standing
    }

    /// The tool.
    #[must_use]
    pub fn tool(&self) -> &str {
        &self.call.tool
    }

    /// The canonical arguments: exactly those that were judged and recorded.
    #[must_use]
    pub fn arguments(&self) -> &Object {
        &self.call.arguments
    }

    /// The call digest.
    #[must_use]
    pub fn call(&self) -> Digest {
        self.call.call
    }

    /// The run.
    #[must_use]
    pub fn run(&self) -> RunId {
        self.call.run
    }

    /// The step.
    #[must_use]
    pub fn step(&self) -> StepId {
        self.call.step
    }

    /// How often this step was started, this time included; zero for the call of a probe.
    #[must_use]
    pub fn start(&self) -> u32 {
        self.call.start
    }

    /// How long the call may take.
    #[must_use]
    pub fn deadline(&self) -> Duration {
        self.call.deadline
    }
}
