//! The port of the policy: a pure function from a call and facts to a verdict.

use portcullis_canon::Object;

use crate::refusal::Refusal;
use crate::tool::ToolSpec;
use crate::verdict::{Facts, PolicyId, Verdict};

/// The call that a policy judges, with defaults filled in and fixed values included. Lent: it cannot be changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ProposedCall<'a> {
    /// Today's spec of the tool.
    pub tool: &'a ToolSpec,
    /// The canonical arguments.
    pub arguments: &'a Object,
}

/// The policy could not answer. The gate takes it as a deny with [`Refusal::PolicyFailed`].
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the policy could not answer ({reason})", reason = .0.as_str())]
pub struct PolicyFailure(pub Refusal);

/// Decides what may happen. No clock, no randomness, no storage, no network.
pub trait Policy: Send + Sync {
    /// The identity of the whole policy.
    fn id(&self) -> PolicyId;

    /// The answer for one call.
    ///
    /// # Errors
    /// [`PolicyFailure`] is a deny.
    fn decide(&self, call: &ProposedCall<'_>, facts: &Facts) -> Result<Verdict, PolicyFailure>;
}
