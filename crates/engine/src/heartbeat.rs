//! The heartbeat of a held run: it prolongs the lease, and lets it end when the run's own task does not come back.
//!
//! A call that does not block is polled in that task. A poll that never returns takes the deadline of the call with
//! it, so the heartbeat, which has a task of its own, has to notice: else nobody could ever take the run up.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering};
use std::time::Duration;

use portcullis_domain::ports::{Monotonic, StoreError};
use portcullis_domain::time::Timestamp;

use crate::core::Core;
use crate::error::GateError;

/// What a core and its heartbeat tell each other.
#[derive(Debug)]
pub(crate) struct Hold {
    lost: AtomicBool,
    /// The wall-clock instant at which the lease ends by itself, once a renewal has failed; the end of time while they
    /// work.
    ends: AtomicI64,
    /// The monotonic instant until which the call that is open in the run's task may take; 0 without one.
    call_until: AtomicU64,
}

impl Default for Hold {
    fn default() -> Self {
        Self {
            lost: AtomicBool::new(false),
            ends: AtomicI64::new(i64::MAX),
            call_until: AtomicU64::new(0),
        }
    }
}

impl Hold {
    /// Whether the lease is not prolonged any more.
    pub(crate) fn is_lost(&self) -> bool {
        self.lost.load(Ordering::Acquire)
    }

    /// Says that a call which may take so long is polled in the run's task, until the answer is dropped.
    pub(crate) fn open_call(&self, now: Monotonic, deadline: Duration) -> OpenCall<'_> {
        self.call_until.store(after(now.0, deadline), Ordering::Release);
        OpenCall(self)
    }

    /// Whether the lease holds for a call that begins now and may take so long: renewals work, or it ends no sooner.
    pub(crate) fn covers(&self, now: Timestamp, deadline: Duration) -> bool {
        now.after(deadline).micros() < self.ends.load(Ordering::Acquire)
    }

    fn renewed(&self) {
        self.ends.store(i64::MAX, Ordering::Release);
    }

    fn failing(&self, ends: Timestamp) {
        self.ends.store(ends.micros(), Ordering::Release);
    }

    fn lose(&self) {
        self.lost.store(true, Ordering::Release);
    }

    /// Whether the open call is past its deadline by more than `margin`: its poll does not return.
    fn is_stuck(&self, now: Monotonic, margin: Duration) -> bool {
        let until = self.call_until.load(Ordering::Acquire);
        until != 0 && now.0 > after(until, margin)
    }
}

/// A call that is being polled in the run's task.
#[must_use = "dropping it says that the call is over"]
pub(crate) struct OpenCall<'a>(&'a Hold);

impl Drop for OpenCall<'_> {
    fn drop(&mut self) {
        self.0.call_until.store(0, Ordering::Release);
    }
}

fn after(micros: u64, wait: Duration) -> u64 {
    micros.saturating_add(u64::try_from(wait.as_micros()).unwrap_or(u64::MAX))
}

/// Prolongs the lease each third of its term, for as long as the core lives and its calls come back. The margin after a
/// call's deadline is one term, in which a core that is only slow can still record the outcome.
pub(crate) fn start(core: &Core) -> Result<(), GateError> {
    let (parts, scope, run, epoch) =
        (core.parts.clone(), core.scope.clone(), core.run_id(), core.epoch);
    let hold = Arc::downgrade(&core.hold);
    let spawn = Arc::clone(&core.parts.spawn);
    let beat = async move {
        let term = parts.timing.lease;
        let mut until = parts.clock.now().after(term);
        loop {
            parts.clock.sleep(term / 3).await;
            let Some(hold) = hold.upgrade() else { return };
            if hold.is_stuck(parts.clock.monotonic(), term) {
                tracing::error!(%run, "a call does not return from its poll; the lease is left to end by itself");
                return hold.lose();
            }
            let now = parts.clock.now();
            let next = now.after(term);
            match parts.store.renew(&scope, run, epoch, now, next).await {
                Ok(()) => {
                    until = next;
                    hold.renewed();
                }
                Err(StoreError::LeaseLost | StoreError::NotFound(_)) => return hold.lose(),
                // Tried again at the next beat, while the term lasts.
                Err(_) if now <= until => hold.failing(until),
                // Not once more: a renewal that got through after all would keep the run from whoever can drive it.
                Err(_) => return hold.lose(),
            }
        }
    };
    spawn.spawn(Box::pin(beat)).map_err(|_| GateError::Executor)
}
