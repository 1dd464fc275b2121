//! The port that runs tasks and blocking work beside the caller.

use crate::ports::BoxFuture;

/// Why work could not be started.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SpawnError {
    /// Every place is taken, by calls that outlived their deadline among others.
    #[error("every place for blocking work is taken")]
    NoCapacity,
    /// The executor is shutting down.
    #[error("the executor is shutting down")]
    Closed,
}

/// Runs tasks that outlive the future that started them.
pub trait Spawn: Send + Sync {
    /// Runs `task` to its end, whatever becomes of the caller.
    ///
    /// # Errors
    /// [`SpawnError::Closed`]; the task was then dropped without a poll.
    fn spawn(&self, task: BoxFuture<'static, ()>) -> Result<(), SpawnError>;

    /// Takes a place for blocking work. It is free again when the work has returned, or the place was dropped.
    ///
    /// # Errors
    /// [`SpawnError`] when every place is taken.
    fn place(&self) -> Result<Box<dyn Place>, SpawnError>;
}

/// What a place does once it is free again: tells of the work's end, so that whoever hears of it finds the place free.
pub type Tell = Box<dyn FnOnce() + Send>;

/// Blocking work, and what is to be told of its end.
pub type Work = Box<dyn FnOnce() -> Tell + Send>;

/// A place for blocking work, taken before it is known that there will be any.
pub trait Place: Send {
    /// Does the work beside the caller, frees the place, and then tells.
    ///
    /// # Errors
    /// [`SpawnError`]; the work was then dropped without a start.
    fn run(self: Box<Self>, work: Work) -> Result<(), SpawnError>;
}
