//! Performing permitted calls, one alone or several at once: bounded in time, and owned by the engine to their end.
//!
//! Dropping the caller's future, a deadline, a cancel or a lost lease changes what is recorded of it, never whether it
//! is recorded.

use std::panic::AssertUnwindSafe;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use futures_channel::oneshot;
use futures_util::FutureExt;
use futures_util::future::{Either, join_all, select};
use portcullis_domain::permit::Permit;
use portcullis_domain::ports::{Place, Spawn, SpawnError, ToolFailure, ToolOutput, ToolSource};
use portcullis_domain::standing::Standing;

use crate::core::Core;

/// How often it is looked whether a run that waits for something has ended. A store that other processes write to tells of
/// nothing.
const LOOK: Duration = Duration::from_secs(1);

/// How a call ended, or that it has not.
pub(crate) enum Performed {
    /// The tool answered.
    Answered(Result<ToolOutput, ToolFailure>),
    /// The tool panicked: what it did is not known.
    Panicked,
    /// The deadline passed. The answer may still come.
    Overdue(Running),
    /// The run has ended. The answer may still come.
    Ended(Running),
    /// The call was never begun.
    NotBegun(NotBegun),
}

/// Why a call was not begun though its intent is recorded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NotBegun {
    /// Its place could not be had after all.
    NoPlace,
    /// The lease may end before the call does: recording the intent took too long.
    Uncovered,
}

/// Why something is not waited for any longer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Cut {
    /// Its time is over.
    Overdue,
    /// The run has ended.
    Ended,
}

type Answer = Result<Result<ToolOutput, ToolFailure>, Panic>;

/// A tool panicked; the payload is not looked at.
pub(crate) struct Panic;

/// A call that nobody waits for any more.
pub(crate) struct Running(oneshot::Receiver<Answer>);

impl Running {
    /// What came of it after all; `None` when it panicked or its thread died.
    pub(crate) async fn answer(self) -> Option<Result<ToolOutput, ToolFailure>> {
        self.0.await.ok()?.ok()
    }
}

/// One of several calls that are made at once.
pub(crate) struct Beside {
    pub(crate) source: Arc<dyn ToolSource>,
    pub(crate) permit: Permit,
    pub(crate) place: Option<Box<dyn Place>>,
}

impl Core {
    /// Performs the call, and waits for its answer, for its deadline, or until the run has ended. A lease that may end
    /// before the call does begins nothing.
    pub(crate) async fn perform(
        &self,
        source: Arc<dyn ToolSource>,
        permit: Permit,
        place: Option<Box<dyn Place>>,
    ) -> Performed {
        let deadline = permit.deadline();
        if self.require_cover(deadline).await.is_err() {
            return Performed::NotBegun(NotBegun::Uncovered);
        }
        let call = answer(source, permit);
        match place {
            Some(place) => match begin_at(place, call) {
                Ok(running) => hear(running, self.cut(deadline)).await,
                Err(_) => Performed::NotBegun(NotBegun::NoPlace),
            },
            // In this task, which the engine owns; a task of its own only once nobody waits for it any more.
            None => {
                let _open = self.hold.open_call(self.parts.clock.monotonic(), deadline);
                match select(Box::pin(call), pin!(self.cut(deadline))).await {
                    Either::Left((answer, _)) => performed(answer),
                    Either::Right((cut, call)) => left(cut, go_on(self.parts.spawn.as_ref(), call)),
                }
            }
        }
    }

    /// Performs several calls at once, each at its place or in a task of its own, so that none of them keeps another, or
    /// the deadline of another, from its turn. A lease that may end before the longest of them begins none.
    pub(crate) async fn perform_all(&self, calls: Vec<Beside>) -> Vec<Performed> {
        let longest = calls.iter().map(|call| call.permit.deadline()).max().unwrap_or_default();
        if self.require_cover(longest).await.is_err() {
            let not_begun = |_| Performed::NotBegun(NotBegun::Uncovered);
            return calls.into_iter().map(not_begun).collect();
        }
        let clock = self.parts.clock.as_ref();
        // One look for all of them at whether the run has ended.
        let ended = self.cut(longest).shared();
        let begun = calls.into_iter().map(|Beside { source, permit, place }| {
            let deadline = permit.deadline();
            let call = answer(source, permit);
            let begun = match place {
                Some(place) => begin_at(place, call),
                None => begin_task(self.parts.spawn.as_ref(), call),
            };
            (begun, deadline)
        });
        // All begin before any is waited for.
        let begun: Vec<_> = begun.collect();
        let heard = begun.into_iter().map(|(begun, deadline)| {
            let ended = ended.clone();
            async move {
                let Ok(running) = begun else {
                    return Performed::NotBegun(NotBegun::NoPlace);
                };
                let cut = select(ended, clock.sleep(deadline));
                hear(
                    running,
                    cut.map(|cut| match cut {
                        Either::Left((cut, _)) => cut,
                        Either::Right(_) => Cut::Overdue,
                    }),
                )
                .await
            }
        });
        join_all(heard).await
    }

    /// Whether what was permitted and has not begun may still begin.
    pub(crate) fn standing(&self) -> Standing {
        let (hold, clock) = (Arc::clone(&self.hold), Arc::clone(&self.parts.clock));
        Standing::of(move || hold.stands(clock.now()))
    }

    /// Waits until so much time has passed, or until the run has ended: as soon as this process hears of it, and where
    /// another one recorded it, at the next look.
    pub(crate) async fn cut(&self, patience: Duration) -> Cut {
        let clock = self.parts.clock.as_ref();
        let begun = clock.monotonic();
        let left = || {
            let passed = Duration::from_micros(clock.monotonic().micros_since(begun));
            patience.saturating_sub(passed)
        };
        loop {
            let ended = pin!(self.hold.ended());
            if let Either::Left(_) = select(ended, clock.sleep(left().min(LOOK))).await {
                return Cut::Ended;
            }
            let rest = left();
            if rest.is_zero() {
                return Cut::Overdue;
            }
            match select(pin!(self.has_ended()), clock.sleep(rest)).await {
                Either::Left((true, _)) => return Cut::Ended,
                Either::Left((false, _)) => {}
                Either::Right(_) => return Cut::Overdue,
            }
        }
    }

    /// Whether the record says that the run has ended. What cannot be read says nothing.
    async fn has_ended(&self) -> bool {
        match self.parts.store.run(&self.scope, self.run_id()).await {
            Ok(Some(state)) => state.run.status.is_terminal(),
            Ok(None) | Err(_) => false,
        }
    }
}

const fn left(cut: Cut, running: Running) -> Performed {
    match cut {
        Cut::Overdue => Performed::Overdue(running),
        Cut::Ended => Performed::Ended(running),
    }
}

/// The call itself; nothing of it happens before the first poll.
async fn answer(source: Arc<dyn ToolSource>, permit: Permit) -> Answer {
    let answer = AssertUnwindSafe(async { source.call(permit).await }).catch_unwind().await;
    answer.map_err(|_| Panic)
}

/// Waits for what comes of a call that runs elsewhere, until that is cut short.
async fn hear(mut running: Running, cut: impl Future<Output = Cut>) -> Performed {
    match select(&mut running.0, pin!(cut)).await {
        Either::Left((Ok(answer), _)) => performed(answer),
        Either::Left((Err(oneshot::Canceled), _)) => Performed::Panicked,
        Either::Right((cut, _)) => left(cut, running),
    }
}

/// Begins a call in a task of its own.
fn begin_task(
    spawn: &dyn Spawn,
    call: impl Future<Output = Answer> + Send + 'static,
) -> Result<Running, SpawnError> {
    let (sender, receiver) = oneshot::channel();
    spawn.spawn(Box::pin(async move { drop(sender.send(call.await)) }))?;
    Ok(Running(receiver))
}

/// Begins a call at its place, which is free again before the answer is told.
fn begin_at(
    place: Box<dyn Place>,
    call: impl Future<Output = Answer> + Send + 'static,
) -> Result<Running, SpawnError> {
    let (sender, receiver) = oneshot::channel();
    place.run(Box::new(move || {
        let answer = futures_executor::block_on(call);
        // Nobody listens any more when the engine itself is gone; the intent is in the record then.
        Box::new(move || drop(sender.send(answer)))
    }))?;
    Ok(Running(receiver))
}

/// Lets a call go on in a task of its own. Without an executor it ends here, and what it did is not known.
fn go_on(spawn: &dyn Spawn, call: impl Future<Output = Answer> + Send + 'static) -> Running {
    let (sender, receiver) = oneshot::channel();
    let rest = Box::pin(async move { drop(sender.send(call.await)) });
    if spawn.spawn(rest).is_err() {
        tracing::error!("nobody is left to go on with a call that was left alone");
    }
    Running(receiver)
}

fn performed(answer: Answer) -> Performed {
    match answer {
        Ok(answer) => Performed::Answered(answer),
        Err(Panic) => Performed::Panicked,
    }
}
