//! Many runs in one process: a bounded line, and places at which so many are driven at a time.
//!
//! A run that starts another waits for it outside of its place, and is taken up when that one has ended.
//! A run that waits for a person leaves its place and is forgotten; nothing of it stays in memory. It comes back when
//! somebody submits it, when [`Answers`] sees an answer that this process recorded, or when [`Runner::take_up`] finds it.
//! Of runs that could not be driven on it is remembered when they are to be tried again.

mod answers;
mod family;
mod line;
mod refused;
mod take_up;

use std::collections::BTreeMap;
use std::num::NonZeroUsize;
use std::panic::AssertUnwindSafe;
use std::pin::pin;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, Weak};
use std::time::Duration;

use futures_channel::oneshot;
use futures_util::FutureExt;
use futures_util::future::{Either, Shared, select};
use portcullis_domain::id::RunId;
use portcullis_domain::ports::{Agent, AgentFailure, BoxFuture, StoreError};
use portcullis_domain::run::{EndReason, Run, RunStatus};
use portcullis_domain::scope::Scope;

use crate::account::{self, Engaged};
use crate::core::Progress;
use crate::driver::{Driven, Driving};
use crate::error::GateError;
use crate::gate::{Attached, Gate};
use crate::heartbeat::Hold;
use crate::held::HeldRun;
use crate::take::Task;
use line::{Entry, Lane, Line, Number, join};
use refused::Refused;

pub use answers::Answers;

/// How much a runner holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Room {
    /// Runs that are driven at a time.
    pub places: NonZeroUsize,
    /// Runs that wait in line for a place. Whoever submits one more waits.
    pub line: NonZeroUsize,
}

/// What a runner is asked to do.
#[derive(Clone, Debug)]
#[expect(
    clippy::large_enum_variant,
    reason = "a line is bounded, and holds what it is asked to begin"
)]
pub enum Job {
    /// Begin a run.
    Begin(Task),
    /// Go on with a run.
    GoOn(RunId),
}

impl Job {
    const fn run(&self) -> Option<RunId> {
        match self {
            Self::Begin(_) => None,
            Self::GoOn(run) => Some(*run),
        }
    }
}

/// Where a run came to rest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rest {
    /// The run.
    pub run: RunId,
    /// How.
    pub driven: Driven,
}

/// Why a job came to nothing here.
#[derive(Clone, Debug, thiserror::Error)]
pub enum Unserved {
    /// Too many wait already: for room in the line, or for this run.
    #[error("too many wait for this already; submit it again later")]
    Crowded,
    /// The runner is stopping. What waited in line was not begun; runs that are recorded can be taken up again.
    #[error("the runner is stopping; submit this to another one")]
    Stopping,
    /// What the gate says.
    #[error(transparent)]
    Gate(#[from] GateError),
}

/// Makes the agent of a run when its turn comes.
pub trait Agents: Send + Sync {
    /// The agent that `run` names. A failure ends the run for its reason, a panic as `agent_error`.
    fn agent<'a>(&'a self, run: &'a Run) -> BoxFuture<'a, Result<Box<dyn Agent>, AgentFailure>>;

    /// The model that this run's agent may call, if it needs one.
    fn model(&self, run: &Run) -> Option<Engaged> {
        let _unused = run;
        None
    }
}

type Outcome = Result<Rest, Unserved>;
type Tell = oneshot::Sender<Outcome>;

/// The answer to a submitted job. Dropping it stops nothing.
#[must_use = "it tells how the job went"]
pub struct Ticket(oneshot::Receiver<Outcome>);

impl Ticket {
    /// Waits until the run rests.
    ///
    /// # Errors
    /// [`Unserved`], whatever kept it.
    pub async fn rest(self) -> Result<Rest, Unserved> {
        self.0.await.unwrap_or(Err(Unserved::Stopping))
    }
}

/// What one look took up.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TakenUp {
    /// Questions and grants that time ended.
    pub expired: u64,
    /// Runs that were put in line.
    pub runs: u64,
}

/// What a runner holds now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Load {
    /// Runs that are at a place.
    pub driven: usize,
    /// Runs that wait in line.
    pub in_line: usize,
}

/// Drives the runs of one scope. Dropping it stops it: each run at its next record.
///
/// ```
/// use std::num::NonZeroUsize;
/// use std::sync::Arc;
/// use std::time::Duration;
///
/// use portcullis_domain::scope::Scope;
/// use portcullis_engine::{Agents, Answers, Driven, Gate, Job, Room, Runner, Task};
///
/// /// Drives all tasks, 64 at a time; returns how many wait for a person. `answers` observes the gate's store.
/// async fn drive(
///     gate: Gate,
///     agents: Arc<dyn Agents>,
///     answers: &Answers,
///     tasks: Vec<Task>,
/// ) -> Result<usize, Box<dyn std::error::Error>> {
///     let room = Room {
///         places: NonZeroUsize::new(64).ok_or("no places")?,
///         line: NonZeroUsize::new(256).ok_or("no line")?,
///     };
///     let runner = Runner::new(gate, Scope::of_file_owner(), agents, room, Some(answers));
///     runner.watch(Duration::from_secs(60))?;
///     let mut tickets = Vec::new();
///     for task in tasks {
///         tickets.push(runner.submit(Job::Begin(task)).await?);
///     }
///     let mut waiting = 0;
///     for ticket in tickets {
///         waiting += usize::from(matches!(ticket.rest().await?.driven, Driven::Waiting(_)));
///     }
///     runner.stop().await;
///     Ok(waiting)
/// }
/// ```
pub struct Runner {
    inner: Arc<Inner>,
    stop: Option<oneshot::Sender<()>>,
}

struct Inner {
    gate: Gate,
    scope: Scope,
    agents: Arc<dyn Agents>,
    room: Room,
    state: Mutex<State>,
    stopped: Shared<oneshot::Receiver<()>>,
}

struct State {
    line: Line,
    driven: BTreeMap<RunId, AtPlace>,
    refused: Refused,
    places: usize,
    stopping: bool,
    /// Who waits until no place is taken.
    idle: Vec<oneshot::Sender<()>>,
}

/// A run at a place.
#[derive(Default)]
struct AtPlace {
    /// Who asked for it meanwhile; `Some` when it is to be driven once more.
    again: Option<Vec<Tell>>,
    /// Where its driver hears that it has ended.
    hold: Weak<Hold>,
}

impl Runner {
    /// A runner over `gate`. With `answers`, which observes the gate's store, an answered run goes on by itself.
    #[must_use]
    pub fn new(
        gate: Gate,
        scope: Scope,
        agents: Arc<dyn Agents>,
        room: Room,
        answers: Option<&Answers>,
    ) -> Self {
        let (stop, stopped) = oneshot::channel();
        let state = State {
            line: Line::with_room(room.line.get()),
            driven: BTreeMap::new(),
            refused: Refused::default(),
            places: 0,
            stopping: false,
            idle: Vec::new(),
        };
        let (state, stopped) = (Mutex::new(state), stopped.shared());
        let inner = Arc::new(Inner { gate, scope, agents, room, state, stopped });
        if let Some(answers) = answers {
            answers.tell(&inner);
        }
        Self { inner, stop: Some(stop) }
    }

    /// Puts a job in line, and waits while the line is full.
    ///
    /// # Errors
    /// [`Unserved::Stopping`], [`Unserved::Crowded`], [`StoreError::NotFound`] for a run that is not there, or what the store says.
    pub async fn submit(&self, job: Job) -> Result<Ticket, Unserved> {
        let owner = match &job {
            Job::Begin(task) => task.owner.clone(),
            Job::GoOn(run) => {
                let store = &self.inner.gate.parts().store;
                let found = store.run(&self.inner.scope, *run).await.map_err(GateError::from)?;
                found.ok_or(GateError::Store(StoreError::NotFound("run")))?.run.owner
            }
        };
        let (tell, told) = oneshot::channel();
        self.inner.enter(owner, Entry { job, tell: vec![tell] }).await?;
        Ok(Ticket(told))
    }

    /// Ends what is past its time and puts in line what can go on and nobody drives: runs whose holder is gone, and runs
    /// that a person has answered. A run that could not be driven on is left alone for a while, the longer the more often
    /// that was; one whose call waits for what another did is, until that is known. Waits while the line is full.
    ///
    /// # Errors
    /// [`Unserved::Stopping`], or what the store says.
    pub async fn take_up(&self) -> Result<TakenUp, Unserved> {
        self.inner.take_up().await
    }

    /// Calls [`Runner::take_up`] now and again, until the runner stops. Errors are logged, and the next look comes.
    ///
    /// # Errors
    /// [`GateError::Executor`] when no task can be started.
    pub fn watch(&self, every: Duration) -> Result<(), GateError> {
        let (weak, stopped) = (Arc::downgrade(&self.inner), self.inner.stopped.clone());
        let clock = Arc::clone(&self.inner.gate.parts().clock);
        let watching = async move {
            let mut stopped = stopped;
            loop {
                let Some(inner) = weak.upgrade() else { return };
                if let Err(error) = inner.take_up().await {
                    tracing::warn!(%error, "what can go on was not looked for");
                }
                drop(inner);
                match select(stopped, clock.sleep(every)).await {
                    Either::Left(_) => return,
                    Either::Right(((), rest)) => stopped = rest,
                }
            }
        };
        let spawn = &self.inner.gate.parts().spawn;
        spawn.spawn(Box::pin(watching)).map_err(|_| GateError::Executor)
    }

    /// What it holds now.
    #[must_use]
    pub fn load(&self) -> Load {
        let state = self.inner.lock();
        Load { driven: state.driven.len(), in_line: state.line.len() }
    }

    /// Begins nothing more, tells each run to stop at its next record, and waits for them.
    pub async fn stop(mut self) {
        self.end();
        let idle = {
            let mut state = self.inner.lock();
            if state.places == 0 {
                return;
            }
            let (tell, told) = oneshot::channel();
            state.idle.push(tell);
            told
        };
        // Without an executor the places are gone, and there is nothing to wait for.
        let _gone = idle.await;
    }

    fn end(&mut self) {
        let mut state = self.inner.lock();
        state.stopping = true;
        state.line.clear();
        drop(state);
        self.stop.take();
    }
}

impl Drop for Runner {
    fn drop(&mut self) {
        self.end();
    }
}

impl Inner {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Puts an entry in line once there is room.
    async fn enter(self: &Arc<Self>, owner: String, entry: Entry) -> Result<(), Unserved> {
        let mut promised = false;
        loop {
            let room = {
                let mut state = self.lock();
                if state.stopping {
                    return Err(Unserved::Stopping);
                }
                if promised || state.line.is_open() {
                    if promised {
                        state.line.redeem();
                    }
                    return self.put(state, Lane::Owner(owner), entry);
                }
                state.line.wait(&owner)?
            };
            promised = Waiting { inner: self, room }.heard().await;
        }
    }

    /// Adds an entry, unless its run is at a place: then it is driven once more afterwards.
    fn put(
        self: &Arc<Self>,
        mut state: MutexGuard<'_, State>,
        lane: Lane,
        entry: Entry,
    ) -> Result<(), Unserved> {
        if let Some(at) = entry.job.run().and_then(|run| state.driven.get_mut(&run)) {
            let joined = join(at.again.get_or_insert_default(), entry.tell);
            // It takes no room, which is another's now.
            state.line.offer();
            return joined;
        }
        let number = state.line.push(lane, entry);
        if number.is_err() {
            // The room that it does not take.
            state.line.offer();
        }
        let number = number?;
        drop(state);
        self.open_place(number);
        Ok(())
    }

    /// Opens one more place for the line, if there may be one. Where nobody is left to serve an entry, its listeners hear
    /// so; each of the others gets an attempt of its own.
    fn open_place(self: &Arc<Self>, number: Number) {
        let mut number = Some(number);
        loop {
            {
                let mut state = self.lock();
                if state.line.len() == 0 || state.places >= self.room.places.get() {
                    return;
                }
                state.places = state.places.saturating_add(1);
            }
            let place = Place { inner: Arc::clone(self), taken: true };
            // Dropping the task without a poll frees the place.
            if self.gate.parts().spawn.spawn(Box::pin(place.serve())).is_ok() {
                return;
            }
            let mut state = self.lock();
            if state.places > 0 {
                return;
            }
            let entry = match number.take() {
                Some(number) => state.line.withdraw(number),
                None => state.line.pop(),
            };
            drop(state);
            tracing::error!("nobody is left to drive a run");
            for tell in entry.into_iter().flat_map(|entry| entry.tell) {
                let _ = tell.send(Err(GateError::Executor.into()));
            }
        }
    }

    /// Takes a job to where it rests. `run` is told as soon as it is known.
    async fn drive(&self, job: Job, known: &OnceLock<RunId>) -> Outcome {
        let (held, run) = match job {
            Job::Begin(task) => {
                let held = self.gate.begin(&self.scope, task).await?;
                let run = held.run();
                let _first = known.set(run);
                // Somebody may have asked for it already, and stands here then.
                self.lock().driven.entry(run).or_default();
                (held, run)
            }
            Job::GoOn(run) => {
                self.check_model(run).await?;
                match self.gate.attach(&self.scope, run).await? {
                    Attached::Held(held, _) => (held, run),
                    Attached::Waiting(question) => {
                        return Ok(Rest { run, driven: Driven::Waiting(question) });
                    }
                    Attached::Ended(reason) => {
                        return Ok(Rest { run, driven: Driven::Ended(reason) });
                    }
                    Attached::Child(child) => {
                        return Ok(Rest { run, driven: Driven::Child(child) });
                    }
                }
            }
        };
        if let Some(at) = self.lock().driven.get_mut(&run) {
            at.hold = held.hold();
        }
        let driven = self.loop_of(held).await?;
        Ok(Rest { run, driven })
    }

    /// Refuses a run whose model may not be called, before its lease is taken: taken and let go each time that somebody
    /// looks at it, it would fill its record for as long as the model has no price.
    async fn check_model(&self, run: RunId) -> Result<(), GateError> {
        let parts = self.gate.parts();
        // Taking it up says what is wrong with one that is not there.
        let state = parts.store.run(&self.scope, run).await?;
        let Some(state) = state.filter(|state| state.run.status == RunStatus::Running) else {
            return Ok(());
        };
        let Some(engaged) = self.agents.model(&state.run) else { return Ok(()) };
        match account::admit(parts, &self.scope, &state.run, &engaged).await {
            // It is taken up once more, to be ended.
            Ok(_) | Err(GateError::TooDeep) => Ok(()),
            Err(error) => Err(error),
        }
    }

    /// The agent's loop with a held run.
    async fn loop_of(&self, mut held: HeldRun) -> Result<Driven, GateError> {
        let state = held.state().await?;
        let made = AssertUnwindSafe(async { self.agents.agent(&state.run).await }).catch_unwind();
        let made = match select(Box::pin(made), self.stopped.clone()).await {
            Either::Left((made, _)) => made,
            // Dropping what is held lets the lease go.
            Either::Right(_) => return Ok(Driven::Stopped),
        };
        let agent = made.unwrap_or_else(|_| {
            let message = "making the agent panicked".to_owned();
            Err(AgentFailure { reason: EndReason::AgentError, message })
        });
        let agent = match agent {
            Ok(agent) => agent,
            Err(failure) => return failed(held, failure).await,
        };
        let mut driving = Driving::start_with(held, agent, self.agents.model(&state.run)).await?;
        {
            let finished = pin!(driving.finished());
            if let Either::Left((driven, _)) = select(finished, self.stopped.clone()).await {
                return driven;
            }
        }
        driving.stop();
        driving.finished().await
    }

    /// What follows a job: its listeners are told, and a run that was asked for meanwhile stands in line again.
    fn rested(&self, run: Option<RunId>, tell: Vec<Tell>, outcome: &Outcome) {
        let mut state = self.lock();
        if let Some(run) = run {
            state.refused.note(run, outcome, self.gate.parts().clock.monotonic());
        }
        let again = run.and_then(|run| Some((run, state.driven.remove(&run)?.again?)));
        let again = again.filter(|_| !state.stopping);
        if let Some((run, tell)) = again {
            // It does not stand in line, since it was at a place.
            let _number = state.line.push(Lane::Answered, Entry { job: Job::GoOn(run), tell });
        }
        drop(state);
        for tell in tell {
            // Whoever dropped the ticket does not listen.
            let _ = tell.send(outcome.clone());
        }
    }
}

/// A place at which one run after another is driven.
struct Place {
    inner: Arc<Inner>,
    taken: bool,
}

impl Place {
    async fn serve(mut self) {
        while let Some(Entry { job, tell }) = self.take() {
            let known = OnceLock::new();
            if let Some(run) = job.run() {
                let _first = known.set(run);
            }
            let driven = AssertUnwindSafe(self.inner.drive(job, &known)).catch_unwind().await;
            let outcome = driven.unwrap_or(Err(GateError::Bug("driving a run panicked").into()));
            if let Err(error) = &outcome {
                tracing::warn!(run = ?known.get(), %error, "a run could not be driven on");
            }
            let next = self.inner.next_of(&outcome).await;
            self.inner.rested(known.get().copied(), tell, &outcome);
            self.inner.go_on_with(next);
        }
    }

    /// The next job; without one the place is free, under the same lock.
    fn take(&mut self) -> Option<Entry> {
        let inner = Arc::clone(&self.inner);
        let mut state = inner.lock();
        let entry = state.line.pop();
        match entry.as_ref().map(|entry| entry.job.run()) {
            Some(Some(run)) => drop(state.driven.insert(run, AtPlace::default())),
            Some(None) => {}
            None => self.leave(&mut state),
        }
        entry
    }

    fn leave(&mut self, state: &mut State) {
        if std::mem::replace(&mut self.taken, false) {
            state.places = state.places.saturating_sub(1);
            if state.places == 0 {
                for tell in state.idle.drain(..) {
                    let _ = tell.send(());
                }
            }
        }
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let inner = Arc::clone(&self.inner);
        self.leave(&mut inner.lock());
    }
}

/// Somebody who waits for room in the line. Room that was told to somebody who is gone is told to the next.
struct Waiting<'a> {
    inner: &'a Inner,
    room: oneshot::Receiver<()>,
}

impl Waiting<'_> {
    /// Whether there is room, kept for whoever hears of it.
    async fn heard(mut self) -> bool {
        // The sender goes with a line that is cleared; the next look then says that the runner is stopping.
        (&mut self.room).await.is_ok()
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        if let Ok(Some(())) = self.room.try_recv() {
            let mut state = self.inner.lock();
            state.line.redeem();
            state.line.offer();
        }
    }
}

async fn failed(mut held: HeldRun, failure: AgentFailure) -> Result<Driven, GateError> {
    match held.fail(failure).await? {
        Progress::Ended(reason) => Ok(Driven::Ended(reason)),
        _ => Err(GateError::Bug("a run went on without an agent")),
    }
}
