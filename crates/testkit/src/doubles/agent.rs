//! An agent that floods, stalls or repeats itself.

use portcullis_canon::{Limits, Value, parse};
use portcullis_domain::ports::{Agent, AgentFailure, BoxFuture, View};
use portcullis_domain::proposal::MAX_PROPOSAL_BYTES;

/// What the agent does each time that it is asked.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Habit {
    Floods,
    Stalls,
    Repeats(Vec<u8>),
}

/// An agent that does the same each time.
///
/// ```
/// use portcullis_testkit::doubles::HostileAgent;
///
/// // Hand it to a driver, and see how long that bears it.
/// let agents = [
///     HostileAgent::floods(),
///     HostileAgent::stalls(),
///     HostileAgent::repeats(r#"{"kind":"tool_call","tool":"look"}"#),
/// ];
/// # let _ = agents;
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HostileAgent(Habit);

impl HostileAgent {
    /// Each proposal has twice the bytes that one may have.
    #[must_use]
    pub const fn floods() -> Self {
        Self(Habit::Floods)
    }

    /// It never answers.
    #[must_use]
    pub const fn stalls() -> Self {
        Self(Habit::Stalls)
    }

    /// The same proposal each time: as it is, and an object with the id of the request put in.
    #[must_use]
    pub fn repeats(proposal: impl Into<Vec<u8>>) -> Self {
        Self(Habit::Repeats(proposal.into()))
    }
}

impl Agent for HostileAgent {
    fn propose(&mut self, view: View) -> BoxFuture<'_, Result<Vec<u8>, AgentFailure>> {
        let bytes = match &self.0 {
            Habit::Stalls => return Box::pin(std::future::pending()),
            Habit::Floods => vec![b'['; MAX_PROPOSAL_BYTES.saturating_mul(2)],
            Habit::Repeats(bytes) => match parse(bytes, &Limits::BARE) {
                Ok(Value::Object(mut object)) => {
                    object.insert("request", view.request);
                    Value::Object(object).to_canonical()
                }
                _ => bytes.clone(),
            },
        };
        Box::pin(std::future::ready(Ok(bytes)))
    }
}
