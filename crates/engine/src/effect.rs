//! Performing one permitted call: bounded in time, and owned by the engine to its end.
//!
//! Dropping the caller's future, a deadline or a lost lease changes what is recorded of it, never whether it is
//! recorded.

use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use futures_channel::oneshot;
use futures_util::FutureExt;
use futures_util::future::{Either, select};
use portcullis_domain::permit::Permit;
use portcullis_domain::ports::{
    Clock, Place, Spawn, SpawnError, ToolFailure, ToolOutput, ToolSource,
};

use crate::heartbeat::Hold;

/// How a call ended, or that it has not.
pub(crate) enum Performed {
    /// The tool answered.
    Answered(Result<ToolOutput, ToolFailure>),
    /// The tool panicked: what it did is not known.
    Panicked,
    /// The deadline passed. The answer may still come.
    Overdue(Running),
    /// The call was never begun.
    NotBegun,
}

type Answer = Result<Result<ToolOutput, ToolFailure>, Panic>;

/// A tool panicked; the payload is not looked at.
pub(crate) struct Panic;

/// A call that outlived its deadline.
pub(crate) struct Running(oneshot::Receiver<Answer>);

impl Running {
    /// What came of it after all; `None` when it panicked or its thread died.
    pub(crate) async fn answer(self) -> Option<Result<ToolOutput, ToolFailure>> {
        self.0.await.ok()?.ok()
    }
}

/// Performs the call and waits for its answer or its deadline.
pub(crate) async fn perform(
    source: Arc<dyn ToolSource>,
    permit: Permit,
    place: Option<Box<dyn Place>>,
    spawn: &dyn Spawn,
    clock: &dyn Clock,
    hold: &Hold,
) -> Performed {
    let deadline = permit.deadline();
    let call = answer(source, permit);
    match place {
        Some(place) => match begin_at(place, call) {
            Ok(running) => wait(running, deadline, clock).await,
            Err(_) => Performed::NotBegun,
        },
        // In this task, which the engine owns; a task of its own only once nobody waits for it any more.
        None => {
            let _open = hold.open_call(clock.monotonic(), deadline);
            match select(Box::pin(call), clock.sleep(deadline)).await {
                Either::Left((answer, _)) => performed(answer),
                Either::Right(((), call)) => Performed::Overdue(go_on(spawn, call)),
            }
        }
    }
}

/// Performs one of several calls that are made at once: at its place, or in a task of its own, so that none of them keeps
/// another, or the deadline of another, from its turn.
pub(crate) async fn perform_beside(
    source: Arc<dyn ToolSource>,
    permit: Permit,
    place: Option<Box<dyn Place>>,
    spawn: &dyn Spawn,
    clock: &dyn Clock,
) -> Performed {
    let deadline = permit.deadline();
    let call = answer(source, permit);
    let begun = match place {
        Some(place) => begin_at(place, call),
        None => begin_task(spawn, call),
    };
    match begun {
        Ok(running) => wait(running, deadline, clock).await,
        Err(_) => Performed::NotBegun,
    }
}

/// The call itself; nothing of it happens before the first poll.
async fn answer(source: Arc<dyn ToolSource>, permit: Permit) -> Answer {
    let answer = AssertUnwindSafe(async { source.call(permit).await }).catch_unwind().await;
    answer.map_err(|_| Panic)
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
        tracing::error!("nobody is left to go on with a call that outlived its deadline");
    }
    Running(receiver)
}

fn performed(answer: Answer) -> Performed {
    match answer {
        Ok(answer) => Performed::Answered(answer),
        Err(Panic) => Performed::Panicked,
    }
}

async fn wait(mut running: Running, deadline: Duration, clock: &dyn Clock) -> Performed {
    match select(&mut running.0, clock.sleep(deadline)).await {
        Either::Left((Ok(answer), _)) => performed(answer),
        Either::Left((Err(oneshot::Canceled), _)) => Performed::Panicked,
        Either::Right(((), _)) => Performed::Overdue(running),
    }
}
