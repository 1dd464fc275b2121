//! A run's state put together from its rows: equal to what the fold had when it wrote them.

use std::collections::VecDeque;

use portcullis_domain::approval::Approval;
use portcullis_domain::fold::RunState;
use portcullis_domain::ports::StoreError;
use portcullis_domain::question::Question;
use portcullis_domain::run::Run;
use portcullis_domain::step::Step;

/// The last steps of a run, gathered newest first until they hold the batch and the window.
#[derive(Debug)]
pub(crate) struct Tail {
    newest_first: Vec<Step>,
    wanted: usize,
    finals: usize,
    batch_begun: bool,
}

impl Tail {
    /// Nothing yet.
    pub(crate) fn of(run: &Run) -> Self {
        let wanted = run.limits.loop_window();
        Self { newest_first: Vec::new(), wanted, finals: 0, batch_begun: false }
    }

    /// Whether older steps are needed.
    pub(crate) fn wants_more(&self) -> bool {
        !self.batch_begun || self.finals < self.wanted
    }

    /// Adds the next older step.
    pub(crate) fn push(&mut self, step: Step) {
        self.batch_begun |= step.batch_index == 0;
        self.finals = self.finals.saturating_add(usize::from(step.status.is_final()));
        self.newest_first.push(step);
    }

    /// The latest step.
    pub(crate) fn latest(&self) -> Option<&Step> {
        self.newest_first.first()
    }

    /// The state. `question` is the latest step's, `approvals` are its answers in order.
    ///
    /// # Errors
    /// [`StoreError::Damaged`] when the rows contradict one another.
    pub(crate) fn assemble(
        self,
        run: Run,
        question: Option<Question>,
        approvals: Vec<Approval>,
    ) -> Result<RunState, StoreError> {
        let count = self.latest().map_or(0, |step| step.index.saturating_add(1));
        if count != run.step_count {
            return Err(StoreError::Damaged { table: "steps" });
        }
        let asked = self.latest().and_then(|step| step.question);
        if question.as_ref().map(|question| question.id) != asked {
            return Err(StoreError::Damaged { table: "questions" });
        }
        let begun = self.newest_first.iter().position(|step| step.batch_index == 0);
        let length = begun.map_or(self.newest_first.len(), |index| index.saturating_add(1));
        let mut recent: VecDeque<_> = self
            .newest_first
            .iter()
            .filter(|step| step.status.is_final())
            .take(self.wanted)
            .map(Step::fingerprint)
            .collect();
        recent.make_contiguous().reverse();
        let mut batch: Vec<Step> = self.newest_first.into_iter().take(length).collect();
        batch.reverse();
        Ok(RunState { run, batch, question, approvals, recent, owed: None })
    }
}
