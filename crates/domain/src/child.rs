//! Runs that a run starts: the id that a call gives to its child, and what a child may have.
//!
//! The id follows from the parent and its step, so that no call starts two runs, whoever asks again after a crash; and
//! the run that waits knows for which other one without a column of its own.

use portcullis_canon::{Digest, Kind};
use uuid::Version;

use crate::budget::MAX_GENERATIONS;
use crate::fold::RunState;
use crate::id::{RunId, StepId, following};
use crate::limits::Limits;
use crate::run::{FrozenTool, Run, RunStatus};
use crate::step::Step;

/// How many runs may stand above a run.
pub const MAX_DEPTH: usize = MAX_GENERATIONS - 1;

/// How many runs one run may start.
pub const MAX_CHILDREN: u64 = 32;

/// The run that the call of a step starts: a UUID of version 8, which no run that is drawn has.
#[must_use]
pub fn id(parent: RunId, step: StepId) -> RunId {
    let digest = Digest::of_parts(Kind::ChildRun, &[parent.as_bytes(), step.as_bytes()]);
    RunId::from_bytes(following(digest, Version::Custom))
}

/// True for the form of id that [`id`] gives.
#[must_use]
pub const fn is_derived(run: RunId) -> bool {
    let [_, _, _, _, _, _, version, _, variant, ..] = *run.as_bytes();
    version >> 4 == 8 && variant >> 6 == 2
}

/// Whether a run may have these tools, limits and this confinement under that parent: each only narrows.
#[must_use]
pub fn is_within(
    parent: &Run,
    tools: &[FrozenTool],
    limits: &Limits,
    unconfined_agent: bool,
) -> bool {
    has_tools(parent, tools)
        && limits.is_within(&parent.limits)
        && (parent.unconfined_agent || !unconfined_agent)
}

/// Whether each of these tools is one of the run's, with the same spec.
#[must_use]
pub fn has_tools(run: &Run, tools: &[FrozenTool]) -> bool {
    tools.iter().all(|tool| run.tools.contains(tool))
}

impl RunState {
    /// The step whose call is a run of its own for which this one waits, and that run. Also while somebody holds this one to
    /// record how the other ended.
    #[must_use]
    pub fn child(&self) -> Option<(&Step, RunId)> {
        let waits = self.run.status == RunStatus::Waiting && self.run.question.is_none();
        let step = self.batch.iter().find(|step| step.status.is_started()).filter(|_| waits)?;
        Some((step, id(self.run.id, step.id)))
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use super::*;

    #[test]
    fn each_step_of_each_run_has_one_child_of_its_own() {
        let run = |n| RunId::from_bytes([n; 16]);
        let step = |n| StepId::from_bytes([n; 16]);
        assert_eq!(id(run(1), step(2)), id(run(1), step(2)));
        assert_ne!(id(run(1), step(2)), id(run(2), step(2)));
        assert_ne!(id(run(1), step(2)), id(run(1), step(1)));
        assert!(is_derived(id(run(1), step(2))));
        assert!(!is_derived(run(1)));
        // The text of a stored id: it never changes.
        let text = id(run(1), step(2)).to_string();
        assert_eq!(text.len(), "run_".len() + 32);
        assert_eq!(text.as_bytes().get(16), Some(&b'8'), "{text}");
    }
}
