//! The fold: from events to rows. Pure, total, and the only code that says what an event changes.
//!
//! A store applies it inside the write transaction, the engine on its live window, `verify` from the first
//! event on. An event that does not fit the state is a [`FoldError`], so a chain of well-formed events in an
//! impossible order does not verify.

mod batch;

use std::collections::VecDeque;

use portcullis_canon::Digest;

use crate::approval::{Answer, Approval};
use crate::budget::Cap;
use crate::event::{
    Advice, Body, ChildAwaited, Event, LeaseAcquired, ProbeFinished, ProbeStarted,
    QuestionAnswered, QuestionAsked, RunCreated, StepAdvised, StepFinished, StepRestarted,
    StepStarted,
};
use crate::event::{QuestionClosed, RunFinished, StepOpened};
use crate::id::{QuestionId, RunId, StepId, ThreadId};
use crate::lease::Epoch;
use crate::limits::Limits;
use crate::observation::ObservationKind;
use crate::question::{Question, QuestionKind, QuestionStatus};
use crate::recovery::Found;
use crate::run::{EndReason, Run, RunStatus};
use crate::step::{Step, StepStatus};
use crate::stream::{StreamKind, Tip};
use crate::tally::{Tally, ThreadLimit};
use crate::thread::Thread;
use crate::time::Timestamp;
use crate::verdict::{OnRejection, Verdict};

pub use batch::BatchOwed;
use batch::may_be_in_a_batch;

/// An event that does not fit the state before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FoldError {
    /// The stream's sequence or previous hash is not the next one.
    #[error("the event is not the next one of its stream")]
    NotNext,
    /// The event belongs to another kind of stream.
    #[error("a `{0}` event cannot stand in this stream")]
    WrongStream(&'static str),
    /// The first event of a stream is not the one that opens it, or a later one is.
    #[error("a `{0}` event cannot stand at this place of its stream")]
    WrongPlace(&'static str),
    /// The run has ended.
    #[error("a `{0}` event follows the end of its run")]
    AfterEnd(&'static str),
    /// The state does not admit the event.
    #[error("a `{0}` event does not fit the state before it")]
    NotAdmitted(&'static str),
    /// A limit of the conversation is met.
    #[error("a limit of the conversation is met: {}", .0.refusal().as_str())]
    Bounded(ThreadLimit),
    /// A budget has no room for what is to be held.
    #[error("the budget has no room left: {}", .0.as_str())]
    Spent(Cap),
    /// What has to follow in the same append does not: the stream ends, or goes on otherwise.
    #[error("a `{0}` event has to follow at once, and does not")]
    Owed(&'static str),
}

/// The rows that one event changed, as they are after it. The run's own row always changes too.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Changed {
    /// Steps.
    pub steps: Vec<Step>,
    /// Questions.
    pub questions: Vec<Question>,
    /// A new approval.
    pub approval: Option<Approval>,
}

/// What a run's stream has to go on with: one append brings both, so no record stops between them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Owed {
    /// `step.started`, of the step whose grant was used; or `step.advised`, where a host acts by itself.
    Start,
    /// `step.finished`, of the step about which a person said something else than yes, or a probe found something.
    StepEnd,
    /// `run.finished`: nobody said yes to what the run waited for; for this reason, if there is one.
    End(Option<EndReason>),
    /// What its batch goes on with.
    Batch(BatchOwed),
}

impl Owed {
    const fn name(self) -> &'static str {
        match self {
            Self::Start => "step.started",
            Self::StepEnd => "step.finished",
            Self::End(_) => "run.finished",
            Self::Batch(owed) => owed.name(),
        }
    }

    fn is_met(self, body: &Body) -> bool {
        match (self, body) {
            (Self::Start, Body::StepStarted(_) | Body::StepAdvised(_))
            | (Self::StepEnd, Body::StepFinished(_)) => true,
            (Self::Batch(owed), body) => owed.name() == body.name(),
            (Self::End(reason), Body::RunFinished(body)) => {
                reason.is_none_or(|reason| reason == body.reason)
            }
            _ => false,
        }
    }
}

/// What a run's next event can depend on: its row, the current batch, the latest question and a bounded
/// window of fingerprints. Older steps are final and lie in the table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RunState {
    /// The run's row.
    pub run: Run,
    /// The steps of the latest batch, in order.
    pub batch: Vec<Step>,
    /// The latest question of the latest step.
    pub question: Option<Question>,
    /// The answers to it.
    pub approvals: Vec<Approval>,
    /// Request and result of the last finished steps, oldest first; `None` where there is nothing to compare.
    pub recent: VecDeque<Option<(Digest, Digest)>>,
    /// What has to follow in the same append; nothing wherever an append ends.
    pub owed: Option<Owed>,
}

/// What of an event's link the fold looks at.
struct At {
    step: Option<StepId>,
    at: Timestamp,
    tip: Tip,
}

impl RunState {
    /// The state after a run's first event.
    ///
    /// # Errors
    /// [`FoldError`] when it is not a `run.created` at the start of a run's stream.
    pub fn begin(event: &Event) -> Result<Self, FoldError> {
        let name = event.body.name();
        let Body::RunCreated(body) = &event.body else { return Err(FoldError::WrongPlace(name)) };
        if event.link.stream.kind != StreamKind::Run {
            return Err(FoldError::WrongStream(name));
        }
        if event.link.stream_seq != 1 || event.link.stream_prev != Digest::ZERO {
            return Err(FoldError::NotNext);
        }
        let id = RunId::from_bytes(event.link.stream.id);
        let run = new_run(id, event, body);
        let mut state = Self {
            run,
            batch: Vec::new(),
            question: None,
            approvals: Vec::new(),
            recent: VecDeque::new(),
            owed: None,
        };
        state.name_wait(&event.body, event.link.at);
        Ok(state)
    }

    /// The state after one more event, and the rows that it changed.
    ///
    /// # Errors
    /// [`FoldError`] when the event does not fit. The state may then be half changed: drop it.
    pub fn apply(&mut self, event: &Event) -> Result<Changed, FoldError> {
        let name = event.body.name();
        let link = &event.link;
        if link.stream.kind != StreamKind::Run || link.stream.id != *self.run.id.as_bytes() {
            return Err(FoldError::WrongStream(name));
        }
        if link.stream_seq != self.run.seq.saturating_add(1) || link.stream_prev != self.run.hash {
            return Err(FoldError::NotNext);
        }
        if self.run.status.is_terminal() && !matches!(event.body, Body::OutcomeLate(_)) {
            return Err(FoldError::AfterEnd(name));
        }
        self.pay(&event.body)?;
        let at = At {
            step: link.step,
            at: link.at,
            tip: Tip { seq: link.stream_seq, hash: event.hash },
        };
        if !self.is_in_turn(&event.body, at.step) {
            return Err(FoldError::NotAdmitted(name));
        }
        let changed = self.change(&event.body, &at).ok_or(FoldError::NotAdmitted(name))?;
        self.owed = self.owed.or_else(|| self.owed_by_batch());
        self.name_wait(&event.body, at.at);
        self.run.seq = at.tip.seq;
        self.run.hash = at.tip.hash;
        Ok(changed)
    }

    /// Whether an append, and with it a record, may end here.
    ///
    /// # Errors
    /// [`FoldError::Owed`] when something has to follow at once.
    pub fn complete(&self) -> Result<(), FoldError> {
        self.owed.map_or(Ok(()), |owed| Err(FoldError::Owed(owed.name())))
    }

    /// Sees that what has to follow does.
    fn pay(&mut self, body: &Body) -> Result<(), FoldError> {
        match self.owed.take() {
            Some(owed) if !owed.is_met(body) => Err(FoldError::Owed(owed.name())),
            _ => Ok(()),
        }
    }

    /// One arm an event type; `None` when the state does not admit it.
    fn change(&mut self, body: &Body, at: &At) -> Option<Changed> {
        match body {
            Body::LeaseAcquired(body) => self.lease_acquired(body),
            Body::LeaseReleased(body) => (self.run.epoch == body.epoch
                && self.run.holder.take().is_some())
            .then(Changed::default),
            Body::StepOpened(body) => self.step_opened(body, at),
            Body::StepProposed(body) => {
                let shared = self.shared_proposal();
                self.change_step(at, |step, _| {
                    let fresh = step.status == StepStatus::Deciding && step.proposal.is_none();
                    let own = shared.is_none_or(|shared| shared == body.proposal);
                    step.proposal = Some(body.proposal);
                    step.attempts = 1;
                    (fresh && own).then_some(())
                })
            }
            Body::StepJudged(body) => self.change_step(at, |step, _| {
                let open = matches!(step.status, StepStatus::Deciding | StepStatus::Awaiting);
                step.kind = Some(crate::proposal::ProposalKind::ToolCall);
                step.origin = Some(body.origin);
                step.admitted = Some(body.admitted.clone());
                step.verdict = Some(body.verdict.clone());
                step.policy = Some(body.policy);
                let fits = step.batch == 1 || may_be_in_a_batch(body);
                (open && fits && step.proposal.is_some()).then_some(())
            }),
            Body::ApprovalUsed(body) => self.approval_used(body.question, at),
            Body::StepStarted(body) => self.step_started(body, at),
            Body::ChildAwaited(body) => self.child_awaited(body, at),
            Body::StepRestarted(body) => self.step_restarted(body, at),
            Body::ProbeStarted(body) => self.probe_started(body, at),
            Body::ProbeFinished(body) => self.probe_finished(body, at),
            Body::StepAdvised(body) => self.step_advised(body, at),
            Body::StepFinished(body) => self.step_finished(body, at),
            Body::OutcomeLate(_) => at.step.map(|_| Changed::default()),
            Body::QuestionAsked(body) => self.question_asked(body, at),
            Body::QuestionAnswered(body) => self.question_answered(body, at),
            Body::QuestionClosed(body) => self.question_closed(body, at),
            Body::RunFinished(body) => Some(self.run_finished(body, at)),
            Body::RunCreated(_)
            | Body::ThreadOpened(_)
            | Body::ThreadLabelled(_)
            | Body::ThreadCounted(_)
            | Body::BudgetOpened(_)
            | Body::BudgetReserved(_)
            | Body::BudgetSettled(_)
            | Body::JournalOpened(_)
            | Body::ContentErased(_) => None,
        }
    }

    fn lease_acquired(&mut self, body: &LeaseAcquired) -> Option<Changed> {
        if body.epoch != self.run.epoch.next() {
            return None;
        }
        self.run.epoch = body.epoch;
        let abandoned = self.run.holder.replace(body.holder.clone()).is_some();
        let mut changed = Changed::default();
        // A recorded proposal without a verdict is judged again by the new holder. How often that took the life of
        // the holder before is counted; one that let its lease go did not die.
        let undecided = self
            .batch
            .iter_mut()
            .find(|s| s.status == StepStatus::Deciding && s.proposal.is_some());
        if let Some(step) = undecided.filter(|_| abandoned) {
            step.attempts = step.attempts.saturating_add(1);
            changed.steps.push(step.clone());
        }
        Some(changed)
    }

    fn step_opened(&mut self, body: &StepOpened, at: &At) -> Option<Changed> {
        let widened = if body.batch_index == 0 {
            let settled = self.batch.iter().all(|step| step.status.is_final());
            if !settled || body.batch != 1 {
                return None;
            }
            self.batch.clear();
            None
        } else {
            self.widen(body)?
        };
        if self.run.status != RunStatus::Running || body.index != self.run.step_count {
            return None;
        }
        self.run.step_count = self.run.step_count.checked_add(1)?;
        self.question = None;
        self.approvals.clear();
        let step = new_step(at.step?, self.run.id, body, at.at);
        if self.batch.iter().any(|other| other.id == step.id) {
            return None;
        }
        self.batch.push(step.clone());
        let steps = widened.into_iter().chain([step]).collect();
        Some(Changed { steps, ..Changed::default() })
    }

    fn change_step(
        &mut self,
        at: &At,
        change: impl FnOnce(&mut Step, &mut Run) -> Option<()>,
    ) -> Option<Changed> {
        let id = at.step?;
        let step = self.batch.iter_mut().find(|step| step.id == id)?;
        change(step, &mut self.run)?;
        Some(Changed { steps: vec![step.clone()], ..Changed::default() })
    }

    fn approval_used(&mut self, id: QuestionId, at: &At) -> Option<Changed> {
        let question = self.question.as_mut().filter(|q| q.id == id && Some(q.step) == at.step)?;
        if question.status != QuestionStatus::Granted
            || question.used >= question.uses
            || question.is_over(at.at)
        {
            return None;
        }
        question.used = question.used.saturating_add(1);
        if question.used == question.uses {
            question.status = QuestionStatus::Used;
            question.closed_at = Some(at.at);
        }
        self.owed = Some(Owed::Start);
        Some(Changed { questions: vec![question.clone()], ..Changed::default() })
    }

    /// The call of the grant that this step has just used.
    fn use_for(&self, step: Option<StepId>) -> Option<Digest> {
        let used = |q: &&Question| Some(q.step) == step && q.status == QuestionStatus::Used;
        self.question.as_ref().filter(used).map(|question| question.call)
    }

    fn step_started(&mut self, body: &StepStarted, at: &At) -> Option<Changed> {
        let used = self.use_for(at.step);
        let epoch = self.run.epoch;
        let held = self.run.holder.is_some();
        self.change_step(at, |step, run| {
            let open = matches!(step.status, StepStatus::Deciding | StepStatus::Awaiting);
            let leave = has_leave(step, used, body.call);
            let same = step.admitted.as_ref().is_some_and(|admitted| admitted.call == body.call);
            step.starts = step.starts.checked_add(1)?;
            step.status = StepStatus::Executing;
            step.started_at = Some(at.at);
            run.status = RunStatus::Running;
            run.question = None;
            (open && leave && same && held && body.epoch == epoch && body.start == step.starts)
                .then_some(())
        })
    }

    /// The call that was just started is another run: this one waits, and nobody holds it.
    fn child_awaited(&mut self, body: &ChildAwaited, at: &At) -> Option<Changed> {
        let held = self.run.holder.is_some() && body.epoch == self.run.epoch;
        let own = crate::child::id(self.run.id, at.step?);
        let alone = self.batch.iter().filter(|step| step.status.is_started()).count() == 1;
        let changed = self.change_step(at, |step, run| {
            let fresh = step.status == StepStatus::Executing
                && step.starts == 1
                && run.status == RunStatus::Running;
            run.active_us = run.active_us.saturating_add(body.active_us);
            run.status = RunStatus::Waiting;
            run.question = None;
            run.holder = None;
            (fresh && held && alone && body.child == own).then_some(())
        })?;
        Some(Changed { steps: Vec::new(), ..changed })
    }

    /// The same call once more, by itself: only as the second start of its step.
    fn step_restarted(&mut self, body: &StepRestarted, at: &At) -> Option<Changed> {
        let held = self.run.holder.is_some() && body.epoch == self.run.epoch;
        self.change_step(at, |step, _| {
            let open = step.status.is_started() && step.starts == 1;
            let same = step.admitted.as_ref().is_some_and(|admitted| {
                admitted.call == body.call && admitted.effect.changes_something()
            });
            let allowed = match body.verdict {
                Verdict::Allow { .. } => true,
                // It was started by a person's leave for exactly this call.
                Verdict::Ask { .. } => step.question.is_some(),
                Verdict::Deny { .. } | Verdict::Abort { .. } => false,
            };
            step.starts = step.starts.checked_add(1)?;
            step.status = StepStatus::Executing;
            step.started_at = Some(at.at);
            (open && same && allowed && held && body.start == step.starts).then_some(())
        })
    }

    fn probe_started(&mut self, body: &ProbeStarted, at: &At) -> Option<Changed> {
        let held = self.run.holder.is_some() && body.epoch == self.run.epoch;
        let reads = body.call.as_ref().is_none_or(|call| {
            !call.admitted.effect.changes_something()
                && matches!(call.verdict, Verdict::Allow { .. })
        });
        self.change_step(at, |step, _| {
            let open = step.status.is_started()
                && step.admitted.as_ref().is_some_and(|a| a.effect.changes_something());
            step.status = StepStatus::Probing;
            (open && held && reads).then_some(())
        })
    }

    fn probe_finished(&mut self, body: &ProbeFinished, at: &At) -> Option<Changed> {
        if body.found != Found::Unknown {
            self.owed = Some(Owed::StepEnd);
        }
        self.change_step(at, |step, _| {
            let asked = step.status == StepStatus::Probing;
            step.status = StepStatus::Executing;
            asked.then_some(())
        })
    }

    /// A step that a host acts on by itself: never one that was started, and the last of its run, so that nothing is started
    /// in it afterwards.
    fn step_advised(&mut self, body: &StepAdvised, at: &At) -> Option<Changed> {
        let used = self.use_for(at.step);
        let (epoch, held) = (self.run.epoch, self.run.holder.is_some());
        let changed = self.change_step(at, |step, run| {
            let open = matches!(step.status, StepStatus::Deciding | StepStatus::Awaiting);
            let untouched = step.starts == 0 && step.batch == 1;
            let fits = match body.advice {
                Advice::Allow => has_leave(step, used, body.call),
                Advice::Ask => {
                    step.question.is_none() && matches!(step.verdict, Some(Verdict::Ask { .. }))
                }
            };
            let same = step.admitted.as_ref().is_some_and(|admitted| admitted.call == body.call);
            step.status = StepStatus::Advised;
            step.finished_at = Some(at.at);
            run.active_us = run.active_us.saturating_add(body.active_us);
            run.status = RunStatus::Running;
            run.question = None;
            (open && untouched && fits && same && held && body.epoch == epoch).then_some(())
        })?;
        // Nothing came back that could be compared.
        self.recent.push_back(None);
        self.trim_recent();
        self.owed = Some(Owed::End(Some(EndReason::GoalCompleted)));
        Some(changed)
    }

    fn step_finished(&mut self, body: &StepFinished, at: &At) -> Option<Changed> {
        let settled = self.question.as_ref().is_some_and(|q| q.status == QuestionStatus::Settled);
        if self.question.as_ref().is_some_and(ends_its_run) {
            self.owed = Some(Owed::End(Some(EndReason::ApprovalRejected)));
        }
        let withdrawn = self.withdraw_question(at.at);
        let counts = self.failure_counts(at.step);
        let mut changed = self.change_step(at, |step, run| {
            let kind = body.observation.as_ref().map(|observation| observation.kind);
            if !body.status.is_final() || !can_end(step, kind, body.read.is_some(), settled) {
                return None;
            }
            step.status = body.status;
            step.observation.clone_from(&body.observation);
            step.finished_at = Some(at.at);
            if let Some(read) = body.read {
                step.kind = Some(read.kind);
                step.origin = Some(read.origin);
            }
            run.active_us = run.active_us.saturating_add(body.active_us);
            match kind {
                Some(ObservationKind::ToolResult) => run.failures = 0,
                Some(ObservationKind::Denied) => run.denials = run.denials.saturating_add(1),
                Some(kind) if kind.is_failure() && counts => {
                    run.failures = run.failures.saturating_add(1);
                }
                Some(_) | None => {}
            }
            run.status = RunStatus::Running;
            run.question = None;
            Some(())
        })?;
        changed.questions.extend(withdrawn);
        let fingerprint = changed.steps.first().and_then(Step::fingerprint);
        self.recent.push_back(fingerprint);
        self.trim_recent();
        Some(changed)
    }

    fn trim_recent(&mut self) {
        while self.recent.len() > self.run.limits.loop_window() {
            self.recent.pop_front();
        }
    }

    fn question_asked(&mut self, body: &QuestionAsked, at: &At) -> Option<Changed> {
        let withdrawn = self.withdraw_question(at.at);
        let mut changed = self.change_step(at, |step, run| {
            let fits = step.batch == 1
                && match body.kind {
                    QuestionKind::Approval => {
                        let open =
                            matches!(step.status, StepStatus::Deciding | StepStatus::Awaiting);
                        let asks = matches!(step.verdict, Some(Verdict::Ask { .. }));
                        // Asked again when the call has changed, even if the policy would now allow it.
                        open && (asks || step.question.is_some()) && body.cause.is_none()
                    }
                    QuestionKind::UnknownOutcome => {
                        let open = step.status.is_started() || step.status == StepStatus::Awaiting;
                        open && step.starts > 0 && body.cause.is_some()
                    }
                };
            let same = step.admitted.as_ref().is_some_and(|admitted| admitted.call == body.call);
            step.status = StepStatus::Awaiting;
            step.question = Some(body.question);
            run.active_us = run.active_us.saturating_add(body.active_us);
            run.status = RunStatus::Waiting;
            run.question = Some(body.question);
            run.holder = None;
            (fits && same && body.uses > 0 && body.reviewers.count > 0).then_some(())
        })?;
        let question = new_question(self.run.id, at, body)?;
        self.question = Some(question.clone());
        self.approvals.clear();
        changed.questions.extend(withdrawn);
        changed.questions.push(question);
        Some(changed)
    }

    fn question_answered(&mut self, body: &QuestionAnswered, at: &At) -> Option<Changed> {
        let question = self
            .question
            .as_mut()
            .filter(|q| q.id == body.question && q.status == QuestionStatus::Open)?;
        let answer = body.statement.answer;
        let fits = match question.kind {
            QuestionKind::Approval => matches!(answer, Answer::Approve | Answer::Reject),
            QuestionKind::UnknownOutcome => {
                matches!(answer, Answer::Happened | Answer::DidNotHappen | Answer::RunAgain)
            }
        };
        let again = self
            .approvals
            .iter()
            .any(|a| a.person == body.person || a.statement.key == body.statement.key);
        if !fits
            || again
            || question.is_over(at.at)
            || !body.statement.covers.contains(&question.digest)
        {
            return None;
        }
        match answer {
            Answer::Approve | Answer::RunAgain => {
                question.yes = question.yes.checked_add(1)?;
                if question.yes >= question.reviewers.count {
                    question.status = QuestionStatus::Granted;
                    question.granted_at = Some(at.at);
                }
            }
            Answer::Reject => question.status = QuestionStatus::Rejected,
            Answer::Happened | Answer::DidNotHappen => question.status = QuestionStatus::Settled,
        }
        if matches!(question.status, QuestionStatus::Rejected | QuestionStatus::Settled) {
            question.closed_at = Some(at.at);
            self.owed = Some(Owed::StepEnd);
        }
        let approval = Approval {
            question: body.question,
            person: body.person.clone(),
            statement: body.statement.clone(),
            signature: body.signature,
        };
        self.approvals.push(approval.clone());
        Some(Changed {
            questions: vec![question.clone()],
            approval: Some(approval),
            ..Changed::default()
        })
    }

    fn question_closed(&mut self, body: &QuestionClosed, at: &At) -> Option<Changed> {
        let question = self.question.as_mut().filter(|q| q.id == body.question)?;
        let open = matches!(question.status, QuestionStatus::Open | QuestionStatus::Granted);
        let (fits, reason) = match body.status {
            QuestionStatus::Expired => (question.is_over(at.at), Some(EndReason::ApprovalExpired)),
            QuestionStatus::Withdrawn => (true, None),
            _ => (false, None),
        };
        question.status = body.status;
        question.closed_at = Some(at.at);
        self.owed = Some(Owed::End(reason));
        (fits && open).then(|| Changed { questions: vec![question.clone()], ..Changed::default() })
    }

    fn run_finished(&mut self, body: &RunFinished, at: &At) -> Changed {
        self.run.status = body.reason.status();
        self.run.reason = Some(body.reason);
        self.run.note = body.note;
        self.run.result = body.result;
        self.run.finished_at = Some(at.at);
        self.run.holder = None;
        self.close_open_rows(at.at)
    }

    /// Ends a question that nobody will answer or use any more.
    fn withdraw_question(&mut self, at: Timestamp) -> Option<Question> {
        let question = self.question.as_mut()?;
        if !matches!(question.status, QuestionStatus::Open | QuestionStatus::Granted) {
            return None;
        }
        question.status = QuestionStatus::Withdrawn;
        question.closed_at = Some(at);
        Some(question.clone())
    }

    fn close_open_rows(&mut self, at: Timestamp) -> Changed {
        let questions = self.withdraw_question(at).into_iter().collect();
        self.run.question = None;
        let mut steps = Vec::new();
        for step in self.batch.iter_mut().filter(|step| !step.status.is_final()) {
            step.status = StepStatus::Interrupted;
            step.finished_at = Some(at);
            steps.push(step.clone());
            // One entry for each final step, so that the window can be read back from the rows alone.
            self.recent.push_back(None);
        }
        self.trim_recent();
        Changed { steps, questions, approval: None }
    }

    /// The latest step.
    #[must_use]
    pub fn step(&self) -> Option<&Step> {
        self.batch.last()
    }

    /// The length of the shortest cycle of calls that came back `threshold` times with the same results.
    #[must_use]
    pub fn cycle(&self, limits: &Limits) -> Option<usize> {
        let threshold =
            usize::try_from(limits.loop_threshold.min(Limits::MAX_LOOP_THRESHOLD)).ok()?;
        (1..=Limits::MAX_CYCLE).find(|length| repeats(&self.recent, *length, threshold))
    }
}

/// True when the answer to the question was a no, and a no ends the run.
fn ends_its_run(question: &Question) -> bool {
    question.status == QuestionStatus::Rejected && question.on_rejection == OnRejection::EndRun
}

/// Whether a call may happen. A step that waited for a person has leave only by use of the grant, and while the policy still
/// asks, only for exactly the call that was granted.
fn has_leave(step: &Step, used: Option<Digest>, call: Digest) -> bool {
    let allowed = matches!(step.verdict, Some(Verdict::Allow { .. }));
    let asked = matches!(step.verdict, Some(Verdict::Ask { .. }));
    let bound = used == Some(call);
    if step.question.is_some() { used.is_some() && (allowed || (asked && bound)) } else { allowed }
}

/// What can end a step, by where it stands: nothing comes back from a call that was never started.
fn can_end(step: &Step, kind: Option<ObservationKind>, read: bool, settled: bool) -> bool {
    use ObservationKind::{Denied, Interrupted, InvalidProposal, ToolError, ToolResult};
    match (step.status, kind) {
        (StepStatus::Deciding, None) => step.proposal.is_some() && read,
        (StepStatus::Deciding, Some(InvalidProposal)) => step.proposal.is_some(),
        (StepStatus::Deciding, Some(Denied)) => step.verdict.is_some(),
        (StepStatus::Awaiting, Some(InvalidProposal | Denied)) => true,
        (StepStatus::Awaiting, Some(ToolResult | ToolError)) => step.starts > 0 && settled,
        (
            StepStatus::Executing | StepStatus::Probing,
            Some(ToolResult | ToolError | Interrupted | Denied),
        ) => true,
        _ => false,
    }
}

/// True when the last `length * threshold` entries are one cycle of `length`, over and over.
fn repeats(recent: &VecDeque<Option<(Digest, Digest)>>, length: usize, threshold: usize) -> bool {
    let Some(wanted) = length.checked_mul(threshold) else { return false };
    let Some(skipped) = recent.len().checked_sub(wanted) else { return false };
    let tail: Vec<_> = recent.iter().skip(skipped).collect();
    wanted > 0
        && tail.iter().all(|entry| entry.is_some())
        && tail.iter().zip(tail.iter().skip(length)).all(|(earlier, later)| earlier == later)
}

fn new_run(id: RunId, event: &Event, body: &RunCreated) -> Run {
    Run {
        id,
        tenant: event.link.tenant.clone(),
        owner: body.owner.clone(),
        thread: body.thread,
        parent: body.parent,
        root: body.root,
        goal: body.goal,
        salt: body.salt,
        limits: body.limits.clone(),
        tools: body.tools.clone(),
        policy: body.policy,
        agent: body.agent.clone(),
        unconfined_agent: body.unconfined_agent,
        status: RunStatus::Running,
        reason: None,
        note: None,
        result: None,
        step_count: 0,
        failures: 0,
        denials: 0,
        active_us: 0,
        question: None,
        epoch: Epoch::NONE,
        holder: None,
        waits: None,
        free_since: None,
        created_at: event.link.at,
        finished_at: None,
        seq: 1,
        hash: event.hash,
    }
}

fn new_step(id: StepId, run: RunId, body: &StepOpened, at: Timestamp) -> Step {
    Step {
        id,
        run,
        index: body.index,
        batch: body.batch,
        batch_index: body.batch_index,
        status: StepStatus::Deciding,
        proposal: None,
        kind: None,
        origin: None,
        admitted: None,
        verdict: None,
        policy: None,
        question: None,
        attempts: 0,
        starts: 0,
        observation: None,
        opened_at: at,
        started_at: None,
        finished_at: None,
    }
}

fn new_question(run: RunId, at: &At, body: &QuestionAsked) -> Option<Question> {
    Some(Question {
        id: body.question,
        run,
        step: at.step?,
        kind: body.kind,
        status: QuestionStatus::Open,
        digest: body.digest,
        call: body.call,
        card: body.card,
        reviewers: body.reviewers.clone(),
        on_rejection: body.on_rejection,
        uses: body.uses,
        grant_ttl_ms: body.grant_ttl_ms,
        cause: body.cause,
        detail: body.detail,
        used: 0,
        yes: 0,
        expires_at: body.expires_at,
        asked_at: at.at,
        granted_at: None,
        closed_at: None,
    })
}

impl Thread {
    /// The thread after its first event.
    ///
    /// # Errors
    /// [`FoldError`] when it is not a `thread.opened` at the start of a thread's stream.
    pub fn begin(event: &Event) -> Result<Self, FoldError> {
        let name = event.body.name();
        let Body::ThreadOpened(body) = &event.body else { return Err(FoldError::WrongPlace(name)) };
        if event.link.stream.kind != StreamKind::Thread {
            return Err(FoldError::WrongStream(name));
        }
        if event.link.stream_seq != 1 || event.link.stream_prev != Digest::ZERO {
            return Err(FoldError::NotNext);
        }
        Ok(Self {
            id: ThreadId::from_bytes(event.link.stream.id),
            tenant: event.link.tenant.clone(),
            owner: body.owner.clone(),
            labels: crate::label::Labels::none(),
            label_seq: 0,
            opened_at: event.link.at,
            seq: 1,
            hash: event.hash,
            tally: None,
        })
    }

    /// The thread after one more event.
    ///
    /// # Errors
    /// [`FoldError`] when the event does not fit, or a limit of the conversation is met.
    pub fn apply(&mut self, event: &Event) -> Result<(), FoldError> {
        let name = event.body.name();
        let link = &event.link;
        if link.stream.kind != StreamKind::Thread || link.stream.id != *self.id.as_bytes() {
            return Err(FoldError::WrongStream(name));
        }
        if link.stream_seq != self.seq.saturating_add(1) || link.stream_prev != self.hash {
            return Err(FoldError::NotNext);
        }
        match &event.body {
            Body::ThreadLabelled(body) => {
                self.labels = std::mem::take(&mut self.labels).join(&body.labels);
                self.label_seq =
                    self.label_seq.checked_add(1).ok_or(FoldError::NotAdmitted(name))?;
            }
            Body::ThreadCounted(body) => {
                let tally = Tally::at(self.tally.as_ref(), body.limits, link.at);
                let tally = tally.count(&body.counted, self.opened_at, link.at);
                self.tally = Some(tally.map_err(FoldError::Bounded)?);
            }
            _ => return Err(FoldError::WrongPlace(name)),
        }
        self.seq = link.stream_seq;
        self.hash = event.hash;
        Ok(())
    }
}
