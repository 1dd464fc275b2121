//! The limits of one run.

use serde::{Deserialize, Serialize};

/// Bounds that end a run. `None` is off; the counts that must exist have no `None`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Limits {
    /// Steps that may be opened.
    pub max_steps: u64,
    /// Failures in a row that end the run: errors of tools and proposals that cannot be read. A success
    /// resets the count; several calls that came together are one failure when all of them failed.
    pub max_consecutive_failures: u64,
    /// Denials and rejections, counted over the whole run. They are not tool failures.
    pub max_denials: u64,
    /// How often a call, or a cycle of up to eight calls, may come back with the same results.
    pub loop_threshold: u64,
    /// Time spent deciding and executing, in milliseconds; waiting for a person is not counted.
    pub max_active_ms: Option<u64>,
    /// Time since the run was created, in milliseconds, waiting included.
    pub max_elapsed_ms: Option<u64>,
    /// How long a question stays open, in milliseconds.
    pub question_ttl_ms: Option<u64>,
    /// How long a granted approval stays usable, in milliseconds.
    pub grant_ttl_ms: Option<u64>,
    /// Attempts at calls of models, retries included, and those of the runs that it starts. This one and the three that
    /// follow are left out of the wire form where there is none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_model_calls: Option<u64>,
    /// Tokens that one reply of a model may have.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_output_tokens_per_call: Option<u64>,
    /// Tokens of models, input and output together, those of the runs that it starts included.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_total_tokens: Option<u64>,
    /// Estimated cost of models in millionths of the unit of money, that of the runs that it starts included. Zero lets
    /// only what is free be called.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_estimated_cost_micros: Option<u64>,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            max_steps: 50,
            max_consecutive_failures: 3,
            max_denials: 20,
            loop_threshold: 3,
            max_active_ms: None,
            max_elapsed_ms: None,
            question_ttl_ms: None,
            grant_ttl_ms: None,
            max_model_calls: None,
            max_output_tokens_per_call: None,
            max_total_tokens: None,
            max_estimated_cost_micros: None,
        }
    }
}

/// A limit that no run can have.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LimitsError {
    /// It would stop every run before it starts.
    #[error("the limit `{0}` must be more than zero")]
    Zero(&'static str),
    /// More than the window that a run keeps can show.
    #[error("the limit `{0}` must be at most {1}")]
    TooLarge(&'static str, u64),
}

impl Limits {
    /// The longest cycle of calls that the loop detector sees.
    pub const MAX_CYCLE: usize = 8;

    /// The largest `loop_threshold`, which bounds the window that a run keeps.
    pub const MAX_LOOP_THRESHOLD: u64 = 32;

    /// Checks that each bound can be met.
    ///
    /// # Errors
    /// [`LimitsError`] names the first one that cannot.
    pub fn check(&self) -> Result<(), LimitsError> {
        let bounds = [
            ("max_steps", Some(self.max_steps)),
            ("max_consecutive_failures", Some(self.max_consecutive_failures)),
            ("max_denials", Some(self.max_denials)),
            ("loop_threshold", Some(self.loop_threshold)),
            ("max_active_ms", self.max_active_ms),
            ("max_elapsed_ms", self.max_elapsed_ms),
            ("question_ttl_ms", self.question_ttl_ms),
            ("grant_ttl_ms", self.grant_ttl_ms),
            ("max_model_calls", self.max_model_calls),
            ("max_output_tokens_per_call", self.max_output_tokens_per_call),
            ("max_total_tokens", self.max_total_tokens),
        ];
        if let Some((name, _)) = bounds.into_iter().find(|(_, bound)| *bound == Some(0)) {
            return Err(LimitsError::Zero(name));
        }
        if self.loop_threshold > Self::MAX_LOOP_THRESHOLD {
            return Err(LimitsError::TooLarge("loop_threshold", Self::MAX_LOOP_THRESHOLD));
        }
        Ok(())
    }

    /// True when one of the limits on models is there.
    #[must_use]
    pub const fn bounds_models(&self) -> bool {
        self.max_model_calls.is_some()
            || self.max_output_tokens_per_call.is_some()
            || self.max_total_tokens.is_some()
            || self.max_estimated_cost_micros.is_some()
    }

    /// How many finished steps the loop detector looks back on.
    #[must_use]
    pub fn loop_window(&self) -> usize {
        let threshold = self.loop_threshold.min(Self::MAX_LOOP_THRESHOLD);
        usize::try_from(threshold).unwrap_or(1).saturating_mul(Self::MAX_CYCLE)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn zero_is_refused_by_name() {
        assert_eq!(Limits::default().check(), Ok(()));
        let wide = Limits { loop_threshold: 33, ..Limits::default() };
        assert_eq!(wide.check(), Err(LimitsError::TooLarge("loop_threshold", 32)));
        let zero = Limits { max_elapsed_ms: Some(0), ..Limits::default() };
        assert_eq!(zero.check(), Err(LimitsError::Zero("max_elapsed_ms")));
        assert_eq!(
            Limits { max_steps: 0, ..Limits::default() }.check(),
            Err(LimitsError::Zero("max_steps"))
        );
    }
}
