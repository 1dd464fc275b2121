//! What the gate could not do. A refusal is not an error: it is recorded and observed.

use portcullis_canon::SchemaError;
use portcullis_domain::grant::ApprovalFault;
use portcullis_domain::limits::LimitsError;
use portcullis_domain::ports::{Disposition, StoreError};
use portcullis_domain::tool::SpecError;

/// Why the gate did not do what it was asked. Nothing happened that is not in the record.
#[derive(Clone, Debug, thiserror::Error)]
pub enum GateError {
    /// The store said no, or could not say.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// A limit that no run can have.
    #[error(transparent)]
    Limits(#[from] LimitsError),
    /// The call does not fit what this run is waiting for.
    #[error("{0}")]
    Misuse(&'static str),
    /// A waiting call names a tool that is not registered now.
    #[error(
        "the waiting call needs the tool `{0}`, which is not available now; start with the tools that the run began with"
    )]
    ToolMissing(String),
    /// The recorded answers do not amount to leave to run.
    #[error("the recorded approval is not valid ({0}); nothing was run")]
    Approval(ApprovalFault),
    /// A recorded content that is needed to go on is gone or damaged.
    #[error("a recorded {0} is missing or damaged; run `portcullis verify`")]
    Content(&'static str),
    /// Every place for blocking work is taken, by calls that outlived their deadline among others.
    #[error("every place for blocking work is taken; nothing was run, resume later")]
    NoCapacity,
    /// The lease could not be renewed, and would end before the call has to.
    #[error(
        "the lease could not be renewed and may end before the call does; nothing was run, resume later"
    )]
    Uncovered,
    /// A cap on cost, and a model whose price nobody said.
    #[error(
        "the model `{0}` has no price, so a limit on cost could not be kept; give it a price, or none of the limit"
    )]
    Unpriced(String),
    /// More runs above one another than can share a budget.
    #[error(
        "a run with so many runs above it cannot call a model; start it from one nearer to the top"
    )]
    TooDeep,
    /// The executor would not run the work.
    #[error("the executor is shutting down")]
    Executor,
    /// Our own fault: the store took what the fold refuses, or the other way round.
    #[error("the gate met a state that cannot be ({0}); nothing was run")]
    Bug(&'static str),
}

impl GateError {
    /// What the error asks of the caller.
    #[must_use]
    pub const fn disposition(&self) -> Disposition {
        match self {
            Self::Store(error) => error.disposition(),
            Self::Limits(_) | Self::Misuse(_) | Self::TooDeep => Disposition::Refuse,
            Self::ToolMissing(_)
            | Self::Approval(_)
            | Self::Content(_)
            | Self::NoCapacity
            | Self::Uncovered
            | Self::Unpriced(_)
            | Self::Executor => Disposition::Operator,
            Self::Bug(_) => Disposition::Bug,
        }
    }
}

/// Why a set of tools cannot be registered.
#[derive(Clone, Debug, thiserror::Error)]
pub enum RegisterError {
    /// Two tools have one name.
    #[error("two tools are named `{0}`")]
    Repeated(String),
    /// A tool's description of itself does not hold.
    #[error("the tool `{tool}` cannot be registered: {error}")]
    Spec {
        /// The tool.
        tool: String,
        /// What does not hold.
        error: SpecError,
    },
    /// A tool's probe is not there, changes something, or does not take what it would be handed.
    #[error(
        "the tool `{tool}` cannot be registered: its probe `{probe}` must be a registered tool that only reads and takes what it is handed"
    )]
    Probe {
        /// The tool.
        tool: String,
        /// Its probe.
        probe: String,
    },
    /// A tool's schema cannot be used.
    #[error("the schema of the tool `{tool}` cannot be used: {error}")]
    Schema {
        /// The tool.
        tool: String,
        /// Why.
        error: SchemaError,
    },
}
