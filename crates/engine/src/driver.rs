//! The driver: a gate with an agent. A plain loop over what can be done next.

use std::panic::AssertUnwindSafe;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use futures_channel::oneshot;
use futures_util::FutureExt;
use futures_util::future::{Either, select};
use portcullis_domain::content::Content;
use portcullis_domain::event::{Body, RunFinished};
use portcullis_domain::id::{QuestionId, RunId};
use portcullis_domain::ports::{Agent, AgentFailure, StoreError, View};
use portcullis_domain::run::EndReason;

use crate::account::{Account, Engaged};
use crate::admit::Echo;
use crate::core::{Batch, Core, Progress};
use crate::error::GateError;
use crate::held::{HeldRun, release};

/// Where a driven run came to rest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Driven {
    /// A person is asked.
    Waiting(QuestionId),
    /// It waits for this run, which it started: drive that one, then take this one up.
    Child(RunId),
    /// The run ended.
    Ended(EndReason),
    /// The driver was told to stop; the run can be taken up again.
    Stopped,
}

/// A run that is being driven in a task of its own. Dropping it tells the driver to stop at the next record.
#[must_use = "dropping it stops the run"]
pub struct Driving {
    done: oneshot::Receiver<Result<Driven, GateError>>,
    stop: Option<oneshot::Sender<()>>,
}

impl Driving {
    /// Drives `held` with `agent` until a person is asked or the run ends.
    ///
    /// # Errors
    /// [`GateError::Executor`] when no task can be started.
    pub async fn start(held: HeldRun, agent: Box<dyn Agent>) -> Result<Self, GateError> {
        Self::start_with(held, agent, None).await
    }

    /// The same, with a model that the agent may call, within the limits of the run, of the runs above it and of the day. A
    /// run that has more above it than can share a budget can never call one, and ends as `model_unavailable`.
    ///
    /// # Errors
    /// [`GateError::Unpriced`] when cost is limited and the model has no price, or what the store says; the lease is let go
    /// then.
    pub async fn start_with(
        held: HeldRun,
        agent: Box<dyn Agent>,
        engaged: Option<Engaged>,
    ) -> Result<Self, GateError> {
        let mut core = held.into_core().await?;
        let (account, unable) = match engaged {
            None => (None, None),
            Some(engaged) => match Account::open(&core, engaged).await {
                Ok(account) => (Some(account), None),
                // The runs above it stay what they are: without an end it would be taken up for ever.
                Err(error @ GateError::TooDeep) => (None, Some(unable(&error))),
                Err(error) => {
                    release(&mut core).await;
                    return Err(error);
                }
            },
        };
        let spawn = Arc::clone(&core.parts.spawn);
        let (finished, done) = oneshot::channel();
        let (stop, stopped) = oneshot::channel();
        let task = async move {
            let driven =
                AssertUnwindSafe(drive(core, agent, account, unable, stopped)).catch_unwind().await;
            let _ = finished.send(driven.unwrap_or(Err(GateError::Bug("the driver panicked"))));
        };
        spawn.spawn(Box::pin(task)).map_err(|_| GateError::Executor)?;
        Ok(Self { done, stop: Some(stop) })
    }

    /// Tells the driver to stop at the next record. A call that was started is recorded first.
    pub fn stop(&mut self) {
        self.stop.take();
    }

    /// Waits until the run rests. Can be called again after it was dropped half way.
    ///
    /// # Errors
    /// What stopped the driver.
    pub async fn finished(&mut self) -> Result<Driven, GateError> {
        (&mut self.done).await.unwrap_or(Err(GateError::Executor))
    }
}

/// How an agent fails whose model cannot be called.
fn unable(error: &GateError) -> AgentFailure {
    AgentFailure { reason: EndReason::ModelUnavailable, message: error.to_string() }
}

async fn drive(
    mut core: Box<Core>,
    mut agent: Box<dyn Agent>,
    account: Option<Account>,
    unable: Option<AgentFailure>,
    mut stopped: oneshot::Receiver<()>,
) -> Result<Driven, GateError> {
    let driven = match unable {
        None => turns(&mut core, agent.as_mut(), account.as_ref(), &mut stopped).await,
        Some(failure) => match core.agent_failed(failure).await {
            Ok(Progress::Ended(reason)) => Ok(Driven::Ended(reason)),
            Ok(_) => Err(GateError::Bug("a run went on without an agent")),
            Err(error) => Err(error),
        },
    };
    if let Some(account) = &account {
        account.quiet().await;
    }
    if !matches!(driven, Err(GateError::Store(StoreError::LeaseLost))) {
        release(&mut core).await;
    }
    driven
}

async fn turns(
    core: &mut Core,
    agent: &mut dyn Agent,
    account: Option<&Account>,
    stopped: &mut oneshot::Receiver<()>,
) -> Result<Driven, GateError> {
    let mut fresh = true;
    let mut progress = core.open_next().await?;
    loop {
        progress = match progress {
            Progress::Waiting(question) => return Ok(Driven::Waiting(question)),
            Progress::Child(child) => return Ok(Driven::Child(child)),
            Progress::Ended(reason) => return Ok(Driven::Ended(reason)),
            // The sender is dropped to stop, so that a driver nobody waits for stops too.
            _ if !matches!(stopped.try_recv(), Ok(None)) => return Ok(Driven::Stopped),
            Progress::Observed => core.open_next().await?,
            Progress::Allowed => core.execute().await?,
            Progress::Open => {
                let view = core.view(fresh).await?;
                fresh = false;
                let request = view.request;
                match propose(core, agent, account, view, stopped).await? {
                    Asked::Answered(Ok(raw)) => core.propose(raw, Echo::Required(request)).await?,
                    Asked::Answered(Err(failure)) => core.agent_failed(failure).await?,
                    Asked::Stopped => return Ok(Driven::Stopped),
                    Asked::Ended => core.ended_meanwhile().await?,
                }
            }
        };
    }
}

/// What came of asking the agent.
enum Asked {
    /// It proposed, or failed.
    Answered(Result<Vec<u8>, AgentFailure>),
    /// The driver is told to stop.
    Stopped,
    /// The run has ended.
    Ended,
}

/// Asks the agent, until the run has ended. A limit that was met ends the run, whatever the agent made of it.
async fn propose(
    core: &Core,
    agent: &mut dyn Agent,
    account: Option<&Account>,
    view: View,
    stopped: &mut oneshot::Receiver<()>,
) -> Result<Asked, GateError> {
    let bound = match account {
        Some(account) => Some(account.bound(core, core.open_step_id()?)),
        None => None,
    };
    let proposal = match &bound {
        Some(bound) => agent.propose_with(view, bound),
        None => agent.propose(view),
    };
    let cut = pin!(core.cut(Duration::MAX));
    let proposed = match select(proposal, select(stopped, cut)).await {
        Either::Left((proposed, _)) => proposed,
        Either::Right((Either::Left(_), _)) => return Ok(Asked::Stopped),
        Either::Right((Either::Right(_), _)) => return Ok(Asked::Ended),
    };
    if let Some(error) = account.and_then(Account::fault) {
        return Err(error);
    }
    let limit = account
        .and_then(Account::stopped)
        .map(|stop| AgentFailure { reason: stop.reason, message: stop.message });
    Ok(Asked::Answered(limit.map_or(proposed, Err)))
}

impl Core {
    /// Ends the run because the agent cannot go on.
    pub(crate) async fn agent_failed(
        &mut self,
        failure: AgentFailure,
    ) -> Result<Progress, GateError> {
        let note = Content::seal(failure.message.into_bytes(), self.parts.entropy.as_ref());
        let reason = failure.reason;
        self.record(move |core| {
            let body = RunFinished { reason, note: Some(note.reference()), result: None, by: None };
            let event = core.event(None, Body::RunFinished(body));
            Ok(Batch { events: vec![event], contents: vec![note.clone()], ..Batch::default() })
        })
        .await
    }
}
