//! Work that the engine owns: dropping the caller's future abandons the wait, not the work.

use std::future::Future;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;

use futures_channel::oneshot;
use futures_util::FutureExt;
use portcullis_domain::ports::Spawn;

use crate::error::GateError;

/// Runs `work` to its end in a task of its own and waits for it.
pub(crate) async fn run<T: Send + 'static>(
    spawn: &Arc<dyn Spawn>,
    work: impl Future<Output = Result<T, GateError>> + Send + 'static,
) -> Result<T, GateError> {
    let (answer, answered) = oneshot::channel();
    let task = async move {
        let result = AssertUnwindSafe(work).catch_unwind().await;
        // Nobody waits any more: what was made, such as a held run, is dropped and lets its lease go.
        let _ = answer.send(result.unwrap_or(Err(GateError::Bug("the work panicked"))));
    };
    spawn.spawn(Box::pin(task)).map_err(|_| GateError::Executor)?;
    answered.await.map_err(|oneshot::Canceled| GateError::Executor)?
}
