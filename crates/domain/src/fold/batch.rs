//! Batches: how one open step becomes the first of several, and what has to follow until the record may stop.
//!
//! A run's step is opened alone. When its recorded proposal turns out to be several calls that may be made together, one
//! append makes it the first of them: it opens the others, each with the same proposal, and has all of them judged and
//! started, each kind of event in the order of the calls. Another append ends all of them. In between nothing is owed, and
//! the record may stop: all of a batch is started then, and nothing of it has ended.

use crate::content::ContentRef;
use crate::event::{Body, StepJudged, StepOpened};
use crate::fold::{Owed, RunState};
use crate::id::StepId;
use crate::observation::ObservationKind;
use crate::proposal::MAX_BATCH;
use crate::step::{Step, StepStatus};
use crate::tool::EffectClass;
use crate::verdict::Verdict;

/// What a batch goes on with in the same append.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BatchOwed {
    /// `step.opened` of the next of its calls.
    Opened,
    /// `step.proposed` of the one that was opened last.
    Proposed,
    /// `step.judged` of the next one without a verdict.
    Judged,
    /// `step.started` of the next one that is not started.
    Started,
    /// `step.finished` of the next one that has not ended.
    Finished,
}

impl BatchOwed {
    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Opened => "step.opened",
            Self::Proposed => "step.proposed",
            Self::Judged => "step.judged",
            Self::Started => "step.started",
            Self::Finished => "step.finished",
        }
    }

    /// Whether this step still has to come to it.
    fn is_due(self, step: &Step) -> bool {
        match self {
            Self::Opened => false,
            Self::Proposed => step.proposal.is_none(),
            Self::Judged => step.verdict.is_none(),
            Self::Started => step.status == StepStatus::Deciding,
            Self::Finished => !step.status.is_final(),
        }
    }
}

/// Only what changes nothing, and what the policy allows by itself.
pub(super) fn may_be_in_a_batch(body: &StepJudged) -> bool {
    body.admitted.effect == EffectClass::ReadOnly && matches!(body.verdict, Verdict::Allow { .. })
}

impl RunState {
    /// Makes the open step the first of `body.batch`, if it can be that and `body` opens the next one. The row of the
    /// first when that changes it; `None` when it cannot be.
    pub(super) fn widen(&mut self, body: &StepOpened) -> Option<Option<Step>> {
        let opened = u32::try_from(self.batch.len()).ok()?;
        let first = self.batch.first_mut()?;
        let undecided = first.status == StepStatus::Deciding
            && first.proposal.is_some()
            && first.verdict.is_none()
            && first.question.is_none();
        let alone = first.batch == 1;
        let next = body.batch_index == opened && (2..=MAX_BATCH).contains(&body.batch);
        if !undecided || !next || opened >= body.batch || !(alone || first.batch == body.batch) {
            return None;
        }
        first.batch = body.batch;
        Some(alone.then(|| first.clone()))
    }

    /// What the latest batch has to go on with before the record may stop; nothing of a step that is alone.
    pub(super) fn owed_by_batch(&self) -> Option<Owed> {
        let size = self.batch.first().map_or(0, |first| first.batch);
        if size <= 1 || self.run.status.is_terminal() {
            return None;
        }
        let any = |owed: BatchOwed| self.batch.iter().any(|step| owed.is_due(step));
        let whole = u32::try_from(self.batch.len()).is_ok_and(|opened| opened == size);
        let ending = self.batch.iter().any(|step| step.status.is_final());
        let owed = if any(BatchOwed::Proposed) {
            BatchOwed::Proposed
        } else if !whole {
            BatchOwed::Opened
        } else if any(BatchOwed::Judged) {
            BatchOwed::Judged
        } else if any(BatchOwed::Started) {
            BatchOwed::Started
        } else if ending && any(BatchOwed::Finished) {
            BatchOwed::Finished
        } else {
            return None;
        };
        Some(Owed::Batch(owed))
    }

    /// Whether an event of a batch is about the call whose turn it is: each kind comes in the order of the calls.
    pub(super) fn is_in_turn(&self, body: &Body, step: Option<StepId>) -> bool {
        let owed = match body {
            Body::StepProposed(_) => BatchOwed::Proposed,
            Body::StepJudged(_) => BatchOwed::Judged,
            Body::StepStarted(_) => BatchOwed::Started,
            Body::StepFinished(_) => BatchOwed::Finished,
            _ => return true,
        };
        let alone = self.batch.first().is_none_or(|first| first.batch == 1);
        let next = || self.batch.iter().find(|step| owed.is_due(step)).map(|step| step.id);
        alone || next() == step
    }

    /// Whether a failure of this step counts. A batch is one failure in a row at most: with its last call, and when none of
    /// the others brought a result.
    pub(super) fn failure_counts(&self, step: Option<StepId>) -> bool {
        let brought = |step: &Step| {
            step.observation.as_ref().is_some_and(|o| o.kind == ObservationKind::ToolResult)
        };
        let alone = self.batch.first().is_none_or(|first| first.batch == 1);
        let last = self.batch.last().map(|last| last.id) == step;
        alone || (last && !self.batch.iter().any(brought))
    }

    /// The proposal that every call of a batch stands in.
    pub(super) fn shared_proposal(&self) -> Option<ContentRef> {
        self.batch.first().filter(|first| first.batch > 1)?.proposal
    }
}
