//! Performing one permitted call: bounded in time, and owned by the engine to its end.
//!
//! The call runs beside the caller. Dropping the caller's future, a deadline or a lost lease changes what is
//! recorded of it, never whether it is recorded.

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
) -> Performed {
    let deadline = permit.deadline();
    let running = match begin(source, permit, place, spawn) {
        Ok(running) => running,
        Err(_) => return Performed::NotBegun,
    };
    wait(running, deadline, clock).await
}

fn begin(
    source: Arc<dyn ToolSource>,
    permit: Permit,
    place: Option<Box<dyn Place>>,
    spawn: &dyn Spawn,
) -> Result<Running, SpawnError> {
    let (sender, receiver) = oneshot::channel();
    let call = async move {
        let answer = AssertUnwindSafe(async { source.call(permit).await }).catch_unwind().await;
        answer.map_err(|_| Panic)
    };
    // Nobody listens any more when the engine itself is gone; the intent is in the record then.
    let tell = |answer: Answer| move || drop(sender.send(answer));
    match place {
        Some(place) => {
            place.run(Box::new(move || Box::new(tell(futures_executor::block_on(call)))))?
        }
        None => spawn.spawn(Box::pin(async move { tell(call.await)() }))?,
    }
    Ok(Running(receiver))
}

async fn wait(mut running: Running, deadline: Duration, clock: &dyn Clock) -> Performed {
    match select(&mut running.0, clock.sleep(deadline)).await {
        Either::Left((Ok(Ok(answer)), _)) => Performed::Answered(answer),
        Either::Left((Ok(Err(Panic)) | Err(oneshot::Canceled), _)) => Performed::Panicked,
        Either::Right(((), _)) => Performed::Overdue(running),
    }
}
