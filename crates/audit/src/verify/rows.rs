//! Rows: what the fold says, compared with the tables cell by cell.

use std::collections::BTreeMap;

use portcullis_domain::event::{Body, Event, ProbeStarted};
use portcullis_domain::fold::{FoldError, RunState};
use portcullis_domain::id::{RunId, StepId};
use portcullis_domain::ports::StoreError;
use portcullis_domain::question::Question;
use portcullis_domain::row::{Cell, Row};
use portcullis_domain::step::{Step, StepStatus};
use portcullis_domain::stream::Stream;

use super::report::{self, Break, Place};
use super::{Stop, Walk};

/// A run's fold, with the rows that may still change. Older ones are compared and let go.
pub(super) struct RunFold {
    pub(super) state: RunState,
    steps: BTreeMap<StepId, Step>,
    question: Option<Question>,
    /// The run for which this one waits.
    awaits: Option<RunId>,
}

fn is_child(state: &RunState, event: &Event, child: RunId) -> bool {
    event.link.step.is_some_and(|step| portcullis_domain::child::id(state.run.id, step) == child)
}

impl RunFold {
    pub(super) fn begin(event: &Event) -> Result<Self, FoldError> {
        let state = RunState::begin(event)?;
        Ok(Self { state, steps: BTreeMap::new(), question: None, awaits: None })
    }
}

impl Walk<'_> {
    pub(super) fn run_event(
        &mut self,
        fold: &mut RunFold,
        event: &Event,
        at: Place,
    ) -> Result<Result<(), FoldError>, Stop> {
        let changed = match fold.state.apply(event) {
            Ok(changed) => changed,
            Err(error) => return Ok(Err(error)),
        };
        match &event.body {
            Body::StepOpened(opened) => {
                self.folded.steps += 1;
                if opened.batch_index == 0 {
                    self.compare_steps(std::mem::take(&mut fold.steps))?;
                }
            }
            Body::QuestionAsked(asked) => {
                self.folded.questions += 1;
                self.check_question(&fold.state, asked, event, at)?;
            }
            // Looked at when it ends, since only then the run that it is has to be there.
            Body::ChildAwaited(awaited) => fold.awaits = Some(awaited.child),
            Body::StepFinished(finished) => {
                if let Some(child) =
                    fold.awaits.take_if(|child| is_child(&fold.state, event, *child))
                {
                    let done = finished.status == StepStatus::Done;
                    self.check_child(&fold.state.run, child, done)?;
                }
            }
            Body::QuestionAnswered(answered) => self.check_answer(&fold.state, answered, at)?,
            Body::ApprovalUsed(_) => self.check_use(&fold.state, event, at)?,
            Body::StepRestarted(restarted) => {
                self.check_restart(&fold.state, restarted, event.link.step, at)?;
            }
            Body::ProbeStarted(ProbeStarted { call: Some(call), .. }) => {
                self.check_probe(&fold.state, call, event.link.step, at)?;
            }
            _ => {}
        }
        fold.steps.extend(changed.steps.into_iter().map(|step| (step.id, step)));
        for question in changed.questions {
            match fold.question.replace(question) {
                Some(before) if fold.question.as_ref().is_some_and(|q| q.id != before.id) => {
                    self.compare(&before)?;
                }
                _ => {}
            }
        }
        if let Some(approval) = changed.approval {
            self.folded.approvals += 1;
            self.compare(&approval)?;
        }
        Ok(Ok(()))
    }

    pub(super) fn end_of_run(&mut self, fold: RunFold) -> Result<(), Stop> {
        self.folded.runs += 1;
        if let Err(error) = fold.state.complete() {
            let stream = report::stream(&Stream::from(fold.state.run.id));
            self.broken(Break::StreamUnfinished { stream, why: error.to_string() })?;
        }
        if let Some(child) = fold.awaits {
            self.check_child(&fold.state.run, child, false)?;
        }
        self.check_parent(&fold.state.run)?;
        self.compare_steps(fold.steps)?;
        if let Some(question) = fold.question {
            self.compare(&question)?;
        }
        self.compare(&fold.state.run)
    }

    fn compare_steps(&mut self, steps: BTreeMap<StepId, Step>) -> Result<(), Stop> {
        steps.values().try_for_each(|step| self.compare(step))
    }

    /// Compares every column of one row.
    pub(super) fn compare<R: Row>(&mut self, row: &R) -> Result<(), Stop> {
        let table = R::TABLE;
        let expected = row.cells();
        let key = expected.get(..R::KEY).unwrap_or_default();
        let shown = || report::key(table, key);
        let found = match self.reader.read(|ledger| ledger.row(table, key)) {
            Ok(Some(cells)) if cells.len() == expected.len() => cells,
            Ok(Some(_)) | Err(StoreError::Damaged { .. }) => {
                return self.broken(Break::RowDamaged { table, key: shown() });
            }
            Ok(None) => return self.broken(Break::RowMissing { table, key: shown() }),
            Err(error) => return Err(error.into()),
        };
        let cells = R::COLUMNS.iter().zip(expected.iter().zip(&found));
        for (column, (expected, found)) in cells.filter(|(_, (expected, found))| expected != found)
        {
            self.broken(mismatch(table, shown(), column, expected, found))?;
        }
        Ok(())
    }
}

fn mismatch(
    table: &'static str,
    key: String,
    column: &'static str,
    expected: &Cell,
    found: &Cell,
) -> Break {
    let (expected, found) = report::difference(expected, found);
    Break::RowMismatch { table, key, column, expected, found }
}
