//! A held run: the gate for a host that keeps its own loop.
//!
//! Each operation runs in a task that the engine owns. Dropping the returned future abandons the wait, never
//! the operation; the next operation waits for it first.

use std::panic::AssertUnwindSafe;
use std::sync::{Arc, Weak};

use futures_channel::oneshot;
use futures_util::FutureExt;
use portcullis_domain::fold::RunState;
use portcullis_domain::id::RunId;
use portcullis_domain::ports::{AgentFailure, BoxFuture, Spawn, View};

use crate::admit::Echo;
use crate::advise::{Advised, Asking};
use crate::core::{Core, Progress};
use crate::error::GateError;
use crate::heartbeat::Hold;

/// A run whose lease is held here, for one step at a time.
///
/// The life of a step is [`HeldRun::step`], [`HeldRun::propose`], and [`HeldRun::execute`] when the answer was
/// [`Progress::Allowed`]. Misuse is an error and changes nothing. Dropping it lets the lease go.
pub struct HeldRun {
    run: RunId,
    spawn: Arc<dyn Spawn>,
    hold: Weak<Hold>,
    slot: Slot,
}

enum Slot {
    Idle(Box<Core>),
    /// An operation has the core and gives it back.
    Busy(oneshot::Receiver<Box<Core>>),
    /// The core went down with its task.
    Gone,
}

impl HeldRun {
    pub(crate) fn new(core: Box<Core>) -> Self {
        let (run, spawn) = (core.run_id(), Arc::clone(&core.parts.spawn));
        let hold = Arc::downgrade(&core.hold);
        Self { run, spawn, hold, slot: Slot::Idle(core) }
    }

    /// Where it can be said that the run has ended, also once a driver has the core.
    pub(crate) fn hold(&self) -> Weak<Hold> {
        Weak::clone(&self.hold)
    }

    /// The run.
    #[must_use]
    pub fn run(&self) -> RunId {
        self.run
    }

    /// A copy of the run's state as it is recorded.
    ///
    /// # Errors
    /// [`GateError::Executor`] when an operation before it died.
    pub async fn state(&mut self) -> Result<RunState, GateError> {
        Ok(self.idle().await?.state.clone())
    }

    /// What the agent may see: after a start the last few steps, later only the last one.
    ///
    /// # Errors
    /// What the store says.
    pub async fn view(&mut self, fresh: bool) -> Result<View, GateError> {
        self.operate(move |core| Box::pin(async move { core.view(fresh).await })).await
    }

    /// Opens the next step, unless one is open or a limit ends the run.
    ///
    /// # Errors
    /// What the store says.
    pub async fn step(&mut self) -> Result<Progress, GateError> {
        self.operate(|core| Box::pin(async move { core.open_next().await })).await
    }

    /// Records the raw bytes of a proposal and judges it. Nothing is executed.
    ///
    /// # Errors
    /// [`GateError::Misuse`] when no step awaits a proposal, or what the store says.
    pub async fn propose(&mut self, raw: Vec<u8>) -> Result<Progress, GateError> {
        self.operate(move |core| Box::pin(async move { core.propose(raw, Echo::Absent).await }))
            .await
    }

    /// Executes the call that was allowed, and records what came back.
    ///
    /// # Errors
    /// [`GateError::Misuse`] when no call is allowed, or what the store says. Once the intent is recorded the
    /// effect runs to its end, whatever becomes of the returned future.
    pub async fn execute(&mut self) -> Result<Progress, GateError> {
        self.operate(|core| Box::pin(async move { core.execute().await })).await
    }

    /// Records what a host that acts by itself is told about the call that was allowed, and ends the run.
    ///
    /// # Errors
    /// [`GateError::Misuse`] when no call is allowed, or the call is one that is made here; or what the store says. The host is
    /// then told nothing but no.
    pub async fn advise(&mut self) -> Result<Advised, GateError> {
        self.operate(|core| Box::pin(async move { core.advise().await })).await
    }

    /// Says who is asked where the policy asks about a call that a host makes by itself. Calls that are made here are not
    /// touched by it: without a grant they are not executed.
    ///
    /// # Errors
    /// [`GateError::Executor`] when an operation before it died.
    pub async fn asking(&mut self, asking: Asking) -> Result<(), GateError> {
        self.idle().await?.asking = asking;
        Ok(())
    }

    /// Ends the run because the host's agent cannot go on.
    ///
    /// # Errors
    /// What the store says.
    pub async fn fail(&mut self, failure: AgentFailure) -> Result<Progress, GateError> {
        self.operate(move |core| Box::pin(async move { core.agent_failed(failure).await })).await
    }

    /// Lets the lease go; the run can be taken up again at once.
    ///
    /// # Errors
    /// What the store says; the lease then ends by itself.
    pub async fn close(mut self) -> Result<(), GateError> {
        self.operate(|core| Box::pin(async move { core.release().await })).await
    }

    /// The core, for a driver that runs the whole loop in one task.
    pub(crate) async fn into_core(mut self) -> Result<Box<Core>, GateError> {
        self.idle().await?;
        match std::mem::replace(&mut self.slot, Slot::Gone) {
            Slot::Idle(core) => Ok(core),
            Slot::Busy(_) | Slot::Gone => Err(GateError::Executor),
        }
    }

    async fn idle(&mut self) -> Result<&mut Core, GateError> {
        if let Slot::Busy(returned) = &mut self.slot {
            self.slot = match returned.await {
                Ok(core) => Slot::Idle(core),
                Err(oneshot::Canceled) => Slot::Gone,
            };
        }
        match &mut self.slot {
            Slot::Idle(core) => Ok(core),
            Slot::Busy(_) | Slot::Gone => Err(GateError::Executor),
        }
    }

    async fn operate<T: Send + 'static>(
        &mut self,
        operation: impl FnOnce(&mut Core) -> BoxFuture<'_, Result<T, GateError>> + Send + 'static,
    ) -> Result<T, GateError> {
        self.idle().await?;
        let Slot::Idle(mut core) = std::mem::replace(&mut self.slot, Slot::Gone) else {
            return Err(GateError::Executor);
        };
        let (give_back, returned) = oneshot::channel();
        let (answer, answered) = oneshot::channel();
        let task = async move {
            let result =
                AssertUnwindSafe(async { operation(&mut core).await }).catch_unwind().await;
            // A core that panicked half way is not used again; its lease ends by itself.
            if let Ok(result) = result {
                let _ = give_back.send(core);
                let _ = answer.send(result);
            }
        };
        self.spawn.spawn(Box::pin(task)).map_err(|_| GateError::Executor)?;
        self.slot = Slot::Busy(returned);
        let result = answered.await.map_err(|oneshot::Canceled| GateError::Executor)?;
        self.idle().await?;
        result
    }
}

impl Drop for HeldRun {
    fn drop(&mut self) {
        let slot = std::mem::replace(&mut self.slot, Slot::Gone);
        let release = async move {
            let core = match slot {
                Slot::Idle(core) => Some(core),
                Slot::Busy(returned) => returned.await.ok(),
                Slot::Gone => None,
            };
            if let Some(mut core) = core {
                release(&mut core).await;
            }
        };
        // Without an executor the lease ends by itself.
        let _ = self.spawn.spawn(Box::pin(release));
    }
}

/// Lets the lease go; a store that does not take it leaves the lease to end by itself.
pub(crate) async fn release(core: &mut Core) {
    if let Err(error) = core.release().await {
        tracing::debug!(run = %core.run_id(), %error, "the lease was not released and ends by itself");
    }
}
