//! The port of everything that can be called.

use crate::label::Labels;
use crate::permit::Permit;
use crate::ports::BoxFuture;
use crate::tool::ToolSpec;

/// What a tool gives back: JSON bytes that the gate reads under the same strict rules as a proposal.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ToolOutput {
    /// One JSON value. Empty means `{}`.
    pub content: Vec<u8>,
    /// Where the content comes from; `None` means external, from this tool.
    pub labels: Option<Labels>,
}

/// How a call failed. Which variant it is decides what happens next, so a source may claim that nothing
/// happened only when it knows.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ToolFailure {
    /// It failed and changed nothing.
    #[error("{message}")]
    NothingHappened {
        /// What happened, for the agent: one sentence.
        message: String,
    },
    /// The receiver answered that it failed. That is known and nobody is asked; what it changed before it failed is its own
    /// to say, and is not claimed to be nothing.
    #[error("{message}")]
    Failed {
        /// What the receiver said, for the agent. From outside, and as long as a result may be.
        message: String,
    },
    /// It may have happened: a lost connection, a failed sync, an answer that never came.
    #[error("{message}")]
    Unknown {
        /// What is known: one sentence.
        message: String,
    },
    /// It failed, changed nothing, and the run should end.
    #[error("{message}")]
    Abort {
        /// Why: one sentence.
        message: String,
    },
}

/// Tools that can be called with a [`Permit`].
pub trait ToolSource: Send + Sync {
    /// The tools, each with its whole spec.
    fn specs(&self) -> Vec<ToolSpec>;

    /// True when [`ToolSource::call`] blocks a thread; the gate then polls it on its bounded pool. Otherwise it is
    /// polled in the run's own task, where a poll that does not return keeps its deadline from being seen: one term of
    /// the lease later the run is left to whoever takes it up, and the outcome is unknown.
    fn blocks(&self) -> bool;

    /// Performs exactly the call that the permit names.
    fn call(&self, permit: Permit) -> BoxFuture<'_, Result<ToolOutput, ToolFailure>>;
}
