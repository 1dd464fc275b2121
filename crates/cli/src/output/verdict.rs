//! Verdicts in words, and the rules behind them.

use portcullis_domain::verdict::Verdict;

/// `deny: class_denied`.
pub(crate) fn words(verdict: &Verdict) -> String {
    let why = verdict.reason().map(|reason| format!(": {}", reason.as_str()));
    format!("{}{}", verdict.outcome(), why.unwrap_or_default())
}
