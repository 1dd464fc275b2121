//! One call of a model, in as many attempts as are allowed, in a task that the engine owns.
//!
//! Dropping the agent's future ends the attempt, and what it may have cost is charged.

use std::panic::AssertUnwindSafe;
use std::sync::{Arc, PoisonError};
use std::time::Duration;

use futures_channel::oneshot;
use futures_util::FutureExt;
use futures_util::future::{Either, Shared, select};
use portcullis_domain::id::StepId;
use portcullis_domain::ports::{
    Disposition, ModelCall, ModelFault, ModelOutcome, Monotonic, StoreError,
};

use super::charge::{self, Settlement, failure};
use super::ledger::{Held, Reserved, Wanted};
use super::{Books, Left, Stopped};
use crate::error::GateError;
use crate::heartbeat::Cover;

/// How long it takes at least until what others hold is looked at again.
const SHORTEST_LOOK: Duration = Duration::from_millis(50);

/// The agent's side of a call: resolves when its future is dropped.
type Gone = Shared<oneshot::Receiver<()>>;

/// A wait for what others hold.
#[derive(Default)]
struct Busy {
    since: Option<Monotonic>,
    /// Whether what the dead held was settled meanwhile.
    swept: bool,
}

/// Makes a call and waits for it.
pub(super) async fn call(
    books: Arc<Books>,
    step: StepId,
    left: Option<Left>,
    call: ModelCall,
) -> ModelOutcome {
    let (answer, answered) = oneshot::channel();
    let (over, ended) = oneshot::channel::<()>();
    // Dropped with this future, whether it was answered or not.
    let (_waits, gone) = oneshot::channel::<()>();
    let gone = gone.shared();
    let spawn = Arc::clone(&books.parts.spawn);
    {
        let mut open = books.open.lock().unwrap_or_else(PoisonError::into_inner);
        // Those that are over have nothing left to say.
        open.retain_mut(|open| matches!(open.try_recv(), Ok(None)));
        open.push(ended);
    }
    let task = async move {
        let made = AssertUnwindSafe(books.calls(step, left, call, gone)).catch_unwind().await;
        let outcome = match made {
            Ok(Ok(outcome)) => outcome,
            Ok(Err(stop)) => books.stop(stop),
            Err(_) => books.stop(Stopped::unavailable(
                "accounting panicked; what is held is charged when the run is taken up",
            )),
        };
        let _gone = answer.send(outcome);
        drop(over);
    };
    if spawn.spawn(Box::pin(task)).is_err() {
        return failure(ModelFault::Unreachable, "the executor is shutting down; nothing was sent");
    }
    let closed = || failure(ModelFault::ConnectionLost, "the executor is shutting down");
    answered.await.unwrap_or_else(|oneshot::Canceled| closed())
}

impl Books {
    /// Says why no more attempt is made, and keeps it where it ends the run.
    fn stop(&self, stop: Stopped) -> ModelOutcome {
        if stop.is_limit {
            let mut kept = self.stop.lock().unwrap_or_else(PoisonError::into_inner);
            kept.get_or_insert_with(|| stop.clone());
        }
        ModelOutcome::Stopped { reason: stop.reason, message: stop.message }
    }

    async fn calls(
        &self,
        step: StepId,
        left: Option<Left>,
        call: ModelCall,
        gone: Gone,
    ) -> Result<ModelOutcome, Stopped> {
        self.admit(&call)?;
        let retry = self.engaged.retry;
        let mut failures = 0_u32;
        let mut busy = Busy::default();
        loop {
            let deadline = self.deadline(left).await?;
            let wanted = Wanted {
                step,
                bytes: call.projection.input_bytes,
                output_tokens: call.projection.output_tokens,
                deadline,
            };
            let reserved = self.reserve(wanted).await.map_err(|error| self.refused(error))?;
            let (outcome, asked) = match reserved {
                Reserved::Stopped(stop) => return Err(stop),
                Reserved::Busy(stop) => {
                    if self.is_hopeless(&mut busy).await {
                        return Err(stop);
                    }
                    self.wait(retry.backoff.max(SHORTEST_LOOK), left, &gone, stop).await?;
                    continue;
                }
                Reserved::Undone => {
                    let message =
                        "it is not known whether the reservation was stored, so nothing was sent";
                    (failure(ModelFault::Unreachable, message), None)
                }
                Reserved::Held(held) => {
                    busy = Busy::default();
                    let outcome = self.attempt(&held, call.clone(), left, &gone).await?;
                    let asked = match &outcome {
                        ModelOutcome::Failed(failed) => failed.retry_after,
                        _ => None,
                    };
                    (outcome, asked)
                }
            };
            let again = matches!(&outcome, ModelOutcome::Failed(failed) if failed.fault.disposition() == Disposition::Retry);
            if let (true, Some(left), Some(0)) = (again, left, self.left_us(left)) {
                return Err(Stopped::limit(left.reason, "the run's time ended with the call"));
            }
            if !again || is_gone(&gone) || failures >= retry.retries {
                return Ok(outcome);
            }
            let backoff = retry.backoff.saturating_mul(1_u32 << failures.min(16));
            let pause = backoff.max(asked.unwrap_or_default());
            failures = failures.saturating_add(1);
            // A limit or a provider that asks for too long is not waited for.
            if pause > retry.longest_wait
                || self.left_us(left).is_some_and(|us| pause.as_micros() >= u128::from(us))
            {
                return Ok(outcome);
            }
            let message = "nobody waits for the call any more";
            self.wait(pause, left, &gone, Stopped::unavailable(message)).await?;
        }
    }

    /// What can be refused before anything is held.
    fn admit(&self, call: &ModelCall) -> Result<(), Stopped> {
        if let Some(stop) = self.stop.lock().unwrap_or_else(PoisonError::into_inner).clone() {
            return Err(stop);
        }
        let model = &self.engaged.model;
        if !model.stays_here() && !call.labels.tags().is_subset(model.marked_for()) {
            let message =
                "the conversation carries a tag that this model may not see; nothing was sent";
            return Err(Stopped::unavailable(message));
        }
        let asked = call.projection.output_tokens;
        match self.output_cap.filter(|cap| asked > *cap) {
            Some(cap) => Err(Stopped::unavailable(format!(
                "the call asks for {asked} output tokens, and the run allows {cap}; nothing was sent"
            ))),
            None => Ok(()),
        }
    }

    fn left_us(&self, left: Option<Left>) -> Option<u64> {
        left.map(|left| left.until.micros_since(self.parts.clock.monotonic()))
    }

    /// How long the next attempt may take.
    async fn deadline(&self, left: Option<Left>) -> Result<Duration, Stopped> {
        let full = self.engaged.retry.deadline;
        let deadline = match (left, self.left_us(left)) {
            (Some(left), Some(0)) => {
                return Err(Stopped::limit(left.reason, "the run's time is over"));
            }
            (_, Some(us)) => full.min(Duration::from_micros(us)),
            _ => full,
        };
        let cover = self.hold.settled_cover(self.parts.clock.as_ref(), deadline).await;
        match cover {
            Cover::Holds => Ok(deadline),
            Cover::Over => Err(self.faulted(StoreError::LeaseLost)),
            Cover::Short | Cover::Pending => Err(self.faulted(GateError::Uncovered)),
        }
    }

    /// Keeps what is no fault of the run; the driver ends with it.
    fn faulted(&self, error: impl Into<GateError>) -> Stopped {
        let error = error.into();
        let stop = Stopped::unavailable(error.to_string());
        self.fault.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(error);
        stop
    }

    fn refused(&self, error: StoreError) -> Stopped {
        tracing::warn!(run = %self.run, %error, "a call of a model could not be reserved, and nothing was sent");
        self.faulted(error)
    }

    /// Whether what others hold will not be free any more: whoever holds it is done within a deadline, and what a dead one
    /// held is settled after a term more, here if nobody else did.
    async fn is_hopeless(&self, busy: &mut Busy) -> bool {
        let since = *busy.since.get_or_insert_with(|| self.parts.clock.monotonic());
        let waited = Duration::from_micros(self.parts.clock.monotonic().micros_since(since));
        if waited <= self.engaged.retry.deadline.saturating_add(self.parts.timing.lease) {
            return false;
        }
        if std::mem::replace(&mut busy.swept, true) {
            return true;
        }
        if let Err(error) = super::left::settle_due(&self.parts, &self.scope).await {
            tracing::warn!(run = %self.run, %error, "what others hold for models could not be settled");
        }
        false
    }

    /// Waits, unless nobody does so for the call any more.
    async fn wait(
        &self,
        pause: Duration,
        left: Option<Left>,
        gone: &Gone,
        otherwise: Stopped,
    ) -> Result<(), Stopped> {
        let pause = self.left_us(left).map_or(pause, |us| pause.min(Duration::from_micros(us)));
        match select(self.parts.clock.sleep(pause), gone.clone()).await {
            Either::Left(_) => Ok(()),
            Either::Right(_) => Err(Stopped { is_limit: false, ..otherwise }),
        }
    }

    /// One attempt, and its settlement.
    async fn attempt(
        &self,
        held: &Held,
        call: ModelCall,
        left: Option<Left>,
        gone: &Gone,
    ) -> Result<ModelOutcome, Stopped> {
        let projection = call.projection;
        // Nobody waits for it any more, and nothing was sent.
        if is_gone(gone) {
            self.record(held, Settlement::nothing()).await?;
            return Err(Stopped::unavailable("nobody waits for the call any more"));
        }
        // Once more: the reservation may have taken the rest of the term, or of the run's time.
        let deadline = match self.deadline(left).await {
            Ok(now) => now.min(held.deadline),
            Err(stop) => {
                self.record(held, Settlement::nothing()).await?;
                return Err(stop);
            }
        };
        let model = Arc::clone(&self.engaged.model);
        let made = AssertUnwindSafe(async move { model.attempt(call).await }).catch_unwind();
        let cut = select(self.parts.clock.sleep(deadline), gone.clone());
        let outcome = match select(Box::pin(made), cut).await {
            Either::Left((Ok(outcome), _)) => outcome,
            // Not once more: what failed so fails so again.
            Either::Left((Err(_), _)) => {
                failure(ModelFault::WrongShape, "the model's adapter panicked")
            }
            Either::Right((Either::Left(_), _)) => {
                failure(ModelFault::TimedOut, "the model did not answer within the deadline")
            }
            Either::Right((Either::Right(_), _)) => {
                failure(ModelFault::ConnectionLost, "the call was given up while it was under way")
            }
        };
        let price = self.engaged.model.price();
        let (settlement, outcome) = charge::charge(outcome, &projection, held.projected, price);
        self.record(held, settlement).await?;
        Ok(outcome)
    }

    /// Records a settlement. What cannot be recorded stays held, and is charged in full when the run is taken up; the
    /// reply is not used, so that no call is answered whose charge is not known.
    async fn record(&self, held: &Held, settlement: Settlement) -> Result<(), Stopped> {
        self.settle(held, settlement).await.map_err(|error| {
            tracing::error!(run = %self.run, %error, "what a model was charged could not be recorded");
            self.faulted(error)
        })
    }
}

/// Whether nobody waits for the call any more.
fn is_gone(gone: &Gone) -> bool {
    gone.clone().now_or_never().is_some()
}
