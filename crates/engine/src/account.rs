//! Accounting of models: the only handle on a model that an agent has.
//!
//! Each attempt is held in the run's budget, in those of the runs above it and in its owner's of the day, durably and
//! before anything is sent; afterwards it is settled in all of them. What is held and never settled, because its process
//! died, is charged in full by whoever takes the run up ([`left`]). No attempt is made that a limit has no room for.

mod attempt;
mod charge;
mod ledger;
pub(crate) mod left;

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use futures_channel::oneshot;
use portcullis_domain::budget::{Budget, Caps};
use portcullis_domain::id::{RunId, StepId};
use portcullis_domain::label::Labels;
use portcullis_domain::lease::Epoch;
use portcullis_domain::ports::{
    BoxFuture, Model, ModelCall, ModelHandle, ModelOutcome, Monotonic, Price,
};
use portcullis_domain::run::{EndReason, Run};
use portcullis_domain::scope::Scope;
use portcullis_domain::time::Timestamp;

use crate::core::Core;
use crate::error::GateError;
use crate::heartbeat::Hold;
use crate::parts::Parts;

/// A model for a driven run, and how it may be called.
#[derive(Clone)]
pub struct Engaged {
    /// The model.
    pub model: Arc<dyn Model>,
    /// What the run's owner may spend in a day (UTC), over all runs.
    pub day: Caps,
    /// How attempts are made.
    pub retry: Retry,
}

impl Engaged {
    /// A model without caps for the day, retried as is usual.
    #[must_use]
    pub fn new(model: Arc<dyn Model>) -> Self {
        Self { model, day: Caps::default(), retry: Retry::default() }
    }
}

/// How attempts at one call are made. Each is held and charged by itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Retry {
    /// How long one attempt may take.
    pub deadline: Duration,
    /// Attempts after the first one, for failures that may pass.
    pub retries: u32,
    /// The wait before the second attempt; it doubles from one to the next. What the provider asks for counts if longer.
    pub backoff: Duration,
    /// The longest wait. Where more is asked for, the call fails at once.
    pub longest_wait: Duration,
}

impl Default for Retry {
    fn default() -> Self {
        Self {
            deadline: Duration::from_secs(120),
            retries: 2,
            backoff: Duration::from_secs(1),
            longest_wait: Duration::from_secs(60),
        }
    }
}

/// Why no attempt is made any more.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Stopped {
    pub(crate) reason: EndReason,
    pub(crate) message: String,
    /// A limit, which ends the run; else only this call came to nothing.
    pub(crate) is_limit: bool,
}

impl Stopped {
    fn limit(reason: EndReason, message: impl Into<String>) -> Self {
        Self { reason, message: message.into(), is_limit: true }
    }

    /// The call cannot be made; what the agent makes of it is its own matter.
    fn unavailable(message: impl Into<String>) -> Self {
        let reason = EndReason::ModelUnavailable;
        Self { reason, message: message.into(), is_limit: false }
    }
}

/// The account of one driver: what its agent spends goes to this run, under this lease.
pub(crate) struct Account(Arc<Books>);

/// What the tasks that make attempts share.
struct Books {
    parts: Parts,
    scope: Scope,
    run: RunId,
    epoch: Epoch,
    owner: String,
    /// The run and those above it, nearest first, with their caps.
    chain: Vec<(RunId, Caps)>,
    output_cap: Option<u64>,
    engaged: Engaged,
    hold: Arc<Hold>,
    stop: Mutex<Option<Stopped>>,
    /// What the store or the lease kept from being done: no fault of the run, which goes on another time.
    fault: Mutex<Option<GateError>>,
    /// Calls that are not over: each sender goes when its task does.
    open: Mutex<Vec<oneshot::Receiver<()>>>,
}

/// How long a run may still take, and which limit says so.
#[derive(Clone, Copy, Debug)]
struct Left {
    until: Monotonic,
    reason: EndReason,
}

/// The handle for one proposal.
pub(crate) struct Bound<'a> {
    account: &'a Account,
    step: StepId,
    left: Option<Left>,
    labels: Labels,
}

impl Account {
    /// Opens the account of a held run.
    ///
    /// # Errors
    /// Those of [`admit`].
    pub(crate) async fn open(core: &Core, engaged: Engaged) -> Result<Self, GateError> {
        let run = &core.state.run;
        let chain = admit(&core.parts, &core.scope, run, &engaged).await?;
        Ok(Self(Arc::new(Books {
            parts: core.parts.clone(),
            scope: core.scope.clone(),
            run: run.id,
            epoch: core.epoch,
            owner: run.owner.clone(),
            chain,
            output_cap: run.limits.max_output_tokens_per_call,
            engaged,
            hold: Arc::clone(&core.hold),
            stop: Mutex::new(None),
            fault: Mutex::new(None),
            open: Mutex::default(),
        })))
    }

    /// A handle for the proposal of the step that is open.
    pub(crate) fn bound(&self, core: &Core, step: StepId) -> Bound<'_> {
        Bound { account: self, step, left: left_of(core), labels: core.thread.labels.clone() }
    }

    /// What kept a call from being made or settled, and ends the driver but not the run.
    pub(crate) fn fault(&self) -> Option<GateError> {
        self.0.fault.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// The limit that ends the run, once one was met.
    pub(crate) fn stopped(&self) -> Option<Stopped> {
        self.0.stop.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Waits until every call of this account is settled, also those whose futures were dropped.
    pub(crate) async fn quiet(&self) {
        let open = std::mem::take(&mut *self.0.open.lock().unwrap_or_else(PoisonError::into_inner));
        for over in open {
            let _gone = over.await;
        }
    }
}

/// Whether a run may call this model at all; gives the run and those above it, with their caps. Writes nothing, so that it
/// can be asked before a lease is taken.
///
/// # Errors
/// [`GateError::Unpriced`] when a cap on cost meets a model without a price; [`GateError::TooDeep`]; what the store says.
pub(crate) async fn admit(
    parts: &Parts,
    scope: &Scope,
    run: &Run,
    engaged: &Engaged,
) -> Result<Vec<(RunId, Caps)>, GateError> {
    let chain = ledger::chain(parts, scope, run).await?;
    let capped = chain.iter().any(|(_, caps)| caps.cost_micros.is_some())
        || engaged.day.cost_micros.is_some();
    if capped && engaged.model.price() == Price::Unpriced {
        return Err(GateError::Unpriced(engaged.model.name().to_string()));
    }
    Ok(chain)
}

/// The nearer end of the run's time, if a limit sets one.
fn left_of(core: &Core) -> Option<Left> {
    let (run, now) = (&core.state.run, core.parts.clock.monotonic());
    let limits = &run.limits;
    let active_us = run.active_us.saturating_add(now.micros_since(core.active_since));
    let elapsed_us = core.parts.clock.now().micros_since(run.created_at);
    let bounds = [
        (limits.max_active_ms, active_us, EndReason::LimitActiveTime),
        (limits.max_elapsed_ms, elapsed_us, EndReason::LimitElapsedTime),
    ];
    let end = |(bound_ms, passed_us, reason): (Option<u64>, u64, EndReason)| {
        let left_us = bound_ms?.saturating_mul(1_000).saturating_sub(passed_us);
        Some(Left { until: Monotonic(now.0.saturating_add(left_us)), reason })
    };
    bounds.into_iter().filter_map(end).min_by_key(|left| left.until)
}

impl ModelHandle for Bound<'_> {
    fn call(&self, mut call: ModelCall) -> BoxFuture<'_, ModelOutcome> {
        // Neither what the thread has read nor what is sent is the agent's to say.
        call.labels = call.labels.join(&self.labels);
        let sent = u64::try_from(call.body.len()).unwrap_or(u64::MAX);
        call.projection.input_bytes = call.projection.input_bytes.max(sent);
        Box::pin(attempt::call(Arc::clone(&self.account.0), self.step, self.left, call))
    }

    fn output_cap(&self) -> Option<u64> {
        self.account.0.output_cap
    }
}

/// After this instant nobody can still be making the attempt.
pub(crate) fn over(hold: &portcullis_domain::budget::Hold, term: Duration) -> Timestamp {
    hold.at.after(Duration::from_millis(hold.deadline_ms)).after(term)
}

/// A budget with what it is called in a sentence.
pub(crate) fn called(budget: &Budget, run: RunId) -> String {
    use portcullis_domain::budget::BudgetScope;
    match &budget.scope {
        BudgetScope::Run { run: own } if *own == run => "the run's limit".to_owned(),
        BudgetScope::Run { run } => format!("the limit of {run}, which started this run,"),
        BudgetScope::Day { day, .. } => format!("the limit of {day}"),
    }
}
