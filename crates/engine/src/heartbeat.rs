//! The heartbeat of a held run: it prolongs the lease, and lets it end when the run's own task does not come back.
//!
//! A call that does not block is polled in that task. A poll that never returns takes the deadline of the call with
//! it, so the heartbeat, which has a task of its own, has to notice: else nobody could ever take the run up.

use std::future::poll_fn;
use std::pin::pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::task::{Poll, Waker};
use std::time::Duration;

use futures_util::future::select;
use portcullis_domain::ports::{Clock, Monotonic, StoreError};
use portcullis_domain::time::Timestamp;

use crate::core::Core;
use crate::error::GateError;

/// What a core and its heartbeat tell each other.
#[derive(Debug)]
pub(crate) struct Hold {
    term: Mutex<Term>,
    /// The tasks that wait for what is said here: the run's own, and that of an attempt at a model.
    waiting: Mutex<Vec<Waker>>,
    /// The monotonic instant until which the call that is open in the run's task may take; 0 without one.
    call_until: AtomicU64,
}

/// The lease's term, as far as this process knows it.
#[derive(Clone, Copy, Debug)]
struct Term {
    until: Timestamp,
    renewal: Renewal,
    /// The lease is not prolonged any more.
    over: bool,
    /// The run has ended.
    ended: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Renewal {
    /// The last one got through, and the next one comes in time.
    Works,
    /// One was asked for and is not answered yet.
    Pending,
    /// The last one did not get through, or none comes any more.
    Failing,
}

/// Whether the lease holds for a call that begins now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Cover {
    /// It does: renewals work, or the call has to end before the lease does.
    Holds,
    /// It does if the renewal gets through that is not answered yet.
    Pending,
    /// The lease may end before the call does.
    Short,
    /// The lease has ended.
    Over,
}

impl Hold {
    /// A lease that was taken until then.
    pub(crate) fn until(until: Timestamp) -> Self {
        Self {
            term: Mutex::new(Term { until, renewal: Renewal::Works, over: false, ended: false }),
            waiting: Mutex::default(),
            call_until: AtomicU64::new(0),
        }
    }

    fn term(&self) -> MutexGuard<'_, Term> {
        self.term.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn change(&self, change: impl FnOnce(&mut Term)) {
        change(&mut self.term());
        self.wake();
    }

    /// Whether the lease is not prolonged any more.
    pub(crate) fn is_lost(&self) -> bool {
        self.term().over
    }

    /// Whether the run is held here at this time, so far as this process knows, and has not ended.
    pub(crate) fn stands(&self, now: Timestamp) -> bool {
        let term = *self.term();
        !term.over && !term.ended && now < term.until
    }

    /// Says that a call which may take so long is polled in the run's task, until the answer is dropped.
    pub(crate) fn open_call(&self, now: Monotonic, deadline: Duration) -> OpenCall<'_> {
        self.call_until.store(after(now.0, deadline), Ordering::Release);
        OpenCall(self)
    }

    /// Whether the lease holds for a call that begins now and may take so long.
    pub(crate) fn cover(&self, now: Timestamp, deadline: Duration) -> Cover {
        let term = *self.term();
        match term.renewal {
            _ if term.over || now >= term.until => Cover::Over,
            Renewal::Works => Cover::Holds,
            _ if now.after(deadline) < term.until => Cover::Holds,
            Renewal::Pending => Cover::Pending,
            Renewal::Failing => Cover::Short,
        }
    }

    /// The same, once no renewal is without an answer; what ends the term ends the wait.
    pub(crate) async fn settled_cover(&self, clock: &dyn Clock, deadline: Duration) -> Cover {
        loop {
            let now = clock.now();
            match self.cover(now, deadline) {
                Cover::Pending => {
                    select(pin!(self.answered()), clock.sleep(self.left(now))).await;
                }
                settled => return settled,
            }
        }
    }

    /// How long the lease runs if no renewal gets through.
    pub(crate) fn left(&self, now: Timestamp) -> Duration {
        Duration::from_micros(self.term().until.micros_since(now))
    }

    /// Waits until no renewal is without an answer.
    pub(crate) async fn answered(&self) {
        self.wait(|term| term.over || term.renewal != Renewal::Pending).await;
    }

    /// Waits until somebody says that the run has ended. A lease that was lost says less: what is under way goes on, and
    /// its outcome is late.
    pub(crate) async fn ended(&self) {
        self.wait(|term| term.ended).await;
    }

    async fn wait(&self, done: impl Fn(&Term) -> bool) {
        poll_fn(|context| {
            // Registered before it is looked at, so that no change in between is missed.
            self.register(context.waker());
            if done(&self.term()) { Poll::Ready(()) } else { Poll::Pending }
        })
        .await;
    }

    fn register(&self, waker: &Waker) {
        let mut waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        if !waiting.iter().any(|known| known.will_wake(waker)) {
            waiting.push(waker.clone());
        }
    }

    fn wake(&self) {
        let waiting =
            std::mem::take(&mut *self.waiting.lock().unwrap_or_else(PoisonError::into_inner));
        waiting.into_iter().for_each(Waker::wake);
    }

    fn renewing(&self) {
        self.change(|term| term.renewal = Renewal::Pending);
    }

    fn renewed(&self, until: Timestamp) {
        self.change(|term| (term.until, term.renewal) = (until, Renewal::Works));
    }

    fn failing(&self) {
        self.change(|term| term.renewal = Renewal::Failing);
    }

    fn lose(&self) {
        self.change(|term| term.over = true);
    }

    /// The run has ended, and its lease with it: what its own task waits for is not waited for any more.
    pub(crate) fn end(&self) {
        self.change(|term| (term.over, term.ended) = (true, true));
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

/// However the heartbeat ends, nobody counts on renewals after it.
struct Beating(Weak<Hold>);

impl Drop for Beating {
    fn drop(&mut self) {
        if let Some(hold) = self.0.upgrade() {
            hold.failing();
        }
    }
}

/// Prolongs the lease each third of its term, for as long as the core lives and its calls come back. The margin after a
/// call's deadline is one term, in which a core that is only slow can still record the outcome.
pub(crate) fn start(core: &Core) -> Result<(), GateError> {
    let (parts, scope, run, epoch) =
        (core.parts.clone(), core.scope.clone(), core.run_id(), core.epoch);
    let hold = Arc::downgrade(&core.hold);
    let beating = Beating(Weak::clone(&hold));
    let term = parts.timing.lease;
    // The term runs since the lease was asked for, however long the store took to give it.
    let spent = term.saturating_sub(core.hold.left(parts.clock.now()));
    let mut pause = (term / 3).saturating_sub(spent);
    let spawn = Arc::clone(&core.parts.spawn);
    let beat = async move {
        let _beating = beating;
        loop {
            parts.clock.sleep(pause).await;
            pause = term / 3;
            let Some(hold) = hold.upgrade() else { return };
            if hold.is_stuck(parts.clock.monotonic(), term) {
                tracing::error!(%run, "a call does not return from its poll; the lease is left to end by itself");
                return hold.lose();
            }
            let now = parts.clock.now();
            let next = now.after(term);
            hold.renewing();
            match parts.store.renew(&scope, run, epoch, now, next).await {
                Ok(()) => hold.renewed(next),
                Err(StoreError::LeaseLost | StoreError::NotFound(_)) => return hold.lose(),
                // Tried again at the next beat, while the term lasts.
                Err(_) if now <= hold.term().until => hold.failing(),
                // Not once more: a renewal that got through after all would keep the run from whoever can drive it.
                Err(_) => return hold.lose(),
            }
        }
    };
    spawn.spawn(Box::pin(beat)).map_err(|_| GateError::Executor)
}

#[cfg(test)]
mod tests {
    use super::*;

    const TERM: Duration = Duration::from_secs(30);

    fn at(seconds: u64) -> Timestamp {
        Timestamp::from_micros(1_790_000_000_000_000).after(Duration::from_secs(seconds))
    }

    #[track_caller]
    fn check(hold: &Hold, now: u64, deadline: u64, cover: Cover) {
        assert_eq!(hold.cover(at(now), Duration::from_secs(deadline)), cover, "{hold:?}");
    }

    #[test]
    fn a_call_is_covered_by_renewals_that_work_or_by_what_is_left_of_the_term() {
        let hold = Hold::until(at(30));
        check(&hold, 10, 600, Cover::Holds);
        hold.renewing();
        check(&hold, 10, 600, Cover::Pending);
        check(&hold, 10, 19, Cover::Holds);
        check(&hold, 10, 20, Cover::Pending);
        hold.failing();
        check(&hold, 10, 19, Cover::Holds);
        check(&hold, 10, 20, Cover::Short);
        hold.renewed(at(10).after(TERM));
        check(&hold, 20, 600, Cover::Holds);
    }

    #[test]
    fn nothing_is_covered_once_the_term_is_over_whatever_became_of_the_renewals() {
        let hold = Hold::until(at(30));
        check(&hold, 29, 600, Cover::Holds);
        check(&hold, 30, 0, Cover::Over);
        hold.renewing();
        check(&hold, 31, 0, Cover::Over);
        hold.renewed(at(60));
        check(&hold, 31, 0, Cover::Holds);
        hold.lose();
        check(&hold, 31, 0, Cover::Over);
    }

    #[test]
    fn each_task_that_waits_is_woken() {
        use std::sync::atomic::AtomicBool;
        use std::task::{Context, Wake};

        #[derive(Default)]
        struct Woken(AtomicBool);

        impl Wake for Woken {
            fn wake(self: Arc<Self>) {
                self.0.store(true, Ordering::SeqCst);
            }
        }

        let hold = Hold::until(at(20));
        hold.renewing();
        // The driver in its task, and an attempt at a model in its own.
        let (driver, attempt) = (Arc::new(Woken::default()), Arc::new(Woken::default()));
        let (mut ended, mut answered) = (pin!(hold.ended()), pin!(hold.answered()));
        let wakers = (Waker::from(Arc::clone(&driver)), Waker::from(Arc::clone(&attempt)));
        assert!(answered.as_mut().poll(&mut Context::from_waker(&wakers.1)).is_pending());
        assert!(ended.as_mut().poll(&mut Context::from_waker(&wakers.0)).is_pending());
        hold.renewed(at(40));
        assert!(driver.0.load(Ordering::SeqCst) && attempt.0.load(Ordering::SeqCst));
        assert!(answered.as_mut().poll(&mut Context::from_waker(&wakers.1)).is_ready());
        assert!(ended.as_mut().poll(&mut Context::from_waker(&wakers.0)).is_pending());
    }
}
