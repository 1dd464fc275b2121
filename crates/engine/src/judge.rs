//! Asking the policy: whatever goes wrong is a deny.

use std::panic::{AssertUnwindSafe, catch_unwind};

use portcullis_domain::ports::{Clock, Policy, ProposedCall, ReviewerKeys};
use portcullis_domain::refusal::Refusal;
use portcullis_domain::verdict::{Facts, Verdict};

use crate::admit::Call;
use crate::parts::Parts;
use crate::tools::Described;

/// The verdict on one call.
pub(crate) fn judge(parts: &Parts, call: &Call, tool: &Described, facts: &Facts) -> Verdict {
    let proposed = ProposedCall { tool: &tool.spec, arguments: &call.arguments };
    let verdict = ask(parts.policy.as_ref(), &proposed, facts, parts);
    if answerable(&verdict, parts.keys.as_ref(), &facts.owner) {
        verdict
    } else {
        Verdict::Deny { reason: Refusal::NoReviewer, rules: verdict.rules().to_vec() }
    }
}

fn ask(policy: &dyn Policy, call: &ProposedCall<'_>, facts: &Facts, parts: &Parts) -> Verdict {
    let clock: &dyn Clock = parts.clock.as_ref();
    let begun = clock.monotonic();
    let answer = decide(policy, call, facts);
    let took_us = u128::from(clock.monotonic().micros_since(begun));
    match answer {
        Ok(_) if took_us > parts.timing.policy.as_micros() => deny(Refusal::PolicyTimeout),
        Ok(verdict) => verdict,
        Err(reason) => deny(reason),
    }
}

/// The policy's own answer, or why there is none: it failed, or it panicked.
pub(crate) fn decide(
    policy: &dyn Policy,
    call: &ProposedCall<'_>,
    facts: &Facts,
) -> Result<Verdict, Refusal> {
    match catch_unwind(AssertUnwindSafe(|| policy.decide(call, facts))) {
        Ok(answer) => answer.map_err(|failure| failure.0),
        Err(_) => Err(Refusal::PolicyFailed),
    }
}

/// What the gate makes of an answer that it does not have.
pub(crate) fn deny(reason: Refusal) -> Verdict {
    Verdict::Deny { reason, rules: Vec::new() }
}

/// A question that nobody could answer is a deny, not a run that waits for ever.
fn answerable(verdict: &Verdict, keys: &dyn ReviewerKeys, owner: &str) -> bool {
    match verdict {
        Verdict::Ask { reviewers, .. } => {
            let people = keys.people(&reviewers.role);
            reviewers.are_met(people.iter().map(String::as_str), owner)
        }
        Verdict::Allow { .. } | Verdict::Deny { .. } | Verdict::Abort { .. } => true,
    }
}
