//! `[conversation]`: the bounds of a whole conversation of a host, over all of its calls.

use portcullis_domain::limits::Limits;
use portcullis_domain::tally::ThreadLimits;
use serde::Deserialize;

use super::Misfit;
use super::numbers::{Given, Number};

/// What stands in the file.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct RawConversation {
    window_ms: Given,
    max_calls: Given,
    max_changes: Given,
    max_questions: Given,
    max_denials: Given,
    max_consecutive_denials: Given,
    loop_threshold: Given,
    max_elapsed_ms: Given,
}

/// What holds where nothing is said: a host that only ever hears no is stopped for the rest of an hour. Repetitions are not
/// bounded, since a host that waits for something asks the same and hears the same.
pub(super) const USUAL: ThreadLimits = ThreadLimits { max_denials: Some(20), ..ThreadLimits::NONE };

/// The longest window: thirty days.
const MAX_WINDOW_MS: u64 = 30 * 24 * 3_600_000;

const fn number(key: &'static str, unit: &'static str, least: u64, most: Option<u64>) -> Number {
    Number { key, unit, least, most }
}

const WINDOW: Number = number("window_ms", "milliseconds", 1_000, Some(MAX_WINDOW_MS));
const CALLS: Number = number("max_calls", "calls", 1, None);
const CHANGES: Number = number("max_changes", "calls that can change something", 1, None);
const QUESTIONS: Number = number("max_questions", "questions", 1, None);
const DENIALS: Number = number("max_denials", "denials (0 does not bound them)", 0, None);
const IN_A_ROW: Number = number("max_consecutive_denials", "denials", 1, None);
const LOOPS: Number =
    number("loop_threshold", "repetitions (0 looks for none)", 0, Some(Limits::MAX_LOOP_THRESHOLD));
const ELAPSED: Number = number("max_elapsed_ms", "milliseconds", 1_000, None);

impl RawConversation {
    /// What it means.
    pub(super) fn read(&self) -> Result<ThreadLimits, Misfit> {
        let or_off = |said: Option<u64>, usual: Option<u64>| match said {
            Some(0) => None,
            said => said.or(usual),
        };
        Ok(ThreadLimits {
            window_ms: WINDOW.read(&self.window_ms)?.unwrap_or(USUAL.window_ms),
            max_calls: CALLS.read(&self.max_calls)?,
            max_changes: CHANGES.read(&self.max_changes)?,
            max_questions: QUESTIONS.read(&self.max_questions)?,
            max_denials: or_off(DENIALS.read(&self.max_denials)?, USUAL.max_denials),
            max_consecutive_denials: IN_A_ROW.read(&self.max_consecutive_denials)?,
            loop_threshold: or_off(LOOPS.read(&self.loop_threshold)?, USUAL.loop_threshold),
            max_elapsed_ms: ELAPSED.read(&self.max_elapsed_ms)?,
        })
    }
}
