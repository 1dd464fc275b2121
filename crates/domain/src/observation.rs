//! Observations: what came back from a step, with labels.

use portcullis_canon::Digest;
use serde::{Deserialize, Serialize};

use crate::content::ContentRef;
use crate::label::Labels;
use crate::refusal::Refusal;

/// What kind of thing came back.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ObservationKind {
    /// The tool's result.
    ToolResult,
    /// The tool failed, and what it did is known.
    ToolError,
    /// The policy or a person said no.
    Denied,
    /// The proposal could not be read or admitted.
    InvalidProposal,
    /// The call was cut off, and nothing can have changed.
    Interrupted,
}

impl ObservationKind {
    /// The stable name.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::ToolResult => "tool_result",
            Self::ToolError => "tool_error",
            Self::Denied => "denied",
            Self::InvalidProposal => "invalid_proposal",
            Self::Interrupted => "interrupted",
        }
    }

    /// True when it counts toward `max_consecutive_failures`.
    #[must_use]
    pub const fn is_failure(self) -> bool {
        matches!(self, Self::ToolError | Self::InvalidProposal | Self::Interrupted)
    }
}

/// How a tool failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Failure {
    /// The tool said so.
    Error,
    /// The deadline passed.
    Timeout,
    /// The tool panicked.
    Panic,
    /// The connection to the tool was lost.
    LostConnection,
    /// The tool answered with something that is not strict JSON, or that is too large.
    InvalidContent,
    /// The tool asked to end the run.
    Abort,
    /// The process that ran the call is gone.
    Crash,
    /// A person found that it did not happen.
    DidNotHappen,
}

impl Failure {
    /// The stable name.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Error => "error",
            Self::Timeout => "timeout",
            Self::Panic => "panic",
            Self::LostConnection => "lost_connection",
            Self::InvalidContent => "invalid_content",
            Self::Abort => "abort",
            Self::Crash => "crash",
            Self::DidNotHappen => "did_not_happen",
        }
    }
}

/// What came back from a step.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Observation {
    /// What kind of thing.
    pub kind: ObservationKind,
    /// How the tool failed, for an error.
    pub failure: Option<Failure>,
    /// Why not, for a denial or an invalid proposal.
    pub refusal: Option<Refusal>,
    /// The canonical JSON of it.
    pub content: Option<ContentRef>,
    /// Digest of the content, keyed by the run's salt: two equal results of one run have the same.
    pub fingerprint: Option<Digest>,
    /// Where it comes from.
    pub labels: Labels,
    /// True when the result was longer than the tool's bound and only its beginning was kept.
    pub cut: bool,
}
