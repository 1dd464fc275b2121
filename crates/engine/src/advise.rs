//! Handing a verdict to a host that acts by itself: recorded and synced before it is said, and never as an effect.
//!
//! A hook of a host shows a call before the host makes it, and the host goes by the answer. Nothing is made here, so there is
//! no intent, no receipt and no permit: `step.advised` says what was said, and ends step and run in one append.

use portcullis_domain::event::{Advice, ApprovalUsed, Body, StepAdvised};
use portcullis_domain::id::QuestionId;
use portcullis_domain::label::{Labels, Origin};
use portcullis_domain::ports::{Append, Durability, NewEvent, StoreError};
use portcullis_domain::question::QuestionStatus;
use portcullis_domain::run::EndReason;
use portcullis_domain::tally::{Counted, Counting};
use portcullis_domain::verdict::Verdict;

use crate::compose;
use crate::core::{Core, Progress, moved};
use crate::count::limit_of;
use crate::error::GateError;
use crate::execute::MAX_TRIES;
use crate::step::Judgement;

/// Who is asked where the policy asks, and the host acts by itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Asking {
    /// The people who may answer here: a question is stored, and the call waits for it.
    Inbox,
    /// The host asks whoever sits before it, where one person is enough. What that person says is not known here and is no
    /// approval; a rule that needs several people stores a question all the same.
    Host,
}

/// What became of a verdict that was to be handed on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Advised {
    /// It is durable that the host is told so; the run has ended. Nothing else is leave to act.
    Told(Advice),
    /// It is not to be told: the call was judged otherwise by now, or the run went on or ended without this holder.
    Not(Progress),
}

impl Core {
    /// Whether the host's own person is asked about this call.
    pub(crate) fn host_asks(&self, judgement: &Judgement) -> bool {
        let one =
            matches!(&judgement.verdict, Verdict::Ask { reviewers, .. } if reviewers.count == 1);
        let acts = matches!(self.is_performed(&judgement.call.tool), Ok(false));
        self.asking == Asking::Host && one && acts && self.state.question.is_none()
    }

    /// Records what the host is told about the allowed call.
    pub(crate) async fn advise(&mut self) -> Result<Advised, GateError> {
        if let Some(ended) = self.ended() {
            return Ok(Advised::Not(ended));
        }
        let ready = self.ready.as_ref().ok_or(GateError::Misuse("no call is allowed"))?;
        let grant = ready.grant;
        if self.is_performed(&ready.judgement.call.tool)? {
            return Err(GateError::Misuse("this call is made here: execute it"));
        }
        if self.lease_lost() {
            return self.ended_meanwhile().await.map(Advised::Not);
        }
        if let Some(ended) = self.expire_grant(grant).await? {
            return Ok(Advised::Not(ended));
        }
        for _ in 0..MAX_TRIES {
            self.judge_ready()?;
            let Some(advice) = self.advice(grant) else {
                let judgement = self.take_ready()?.judgement;
                return self.follow(judgement, None).await.map(Advised::Not);
            };
            match self.say(advice, grant).await {
                Ok(()) => return Ok(Advised::Told(advice)),
                Err(GateError::Store(error)) if moved(&error) => {
                    self.reload().await?;
                    if let Some(ended) = self.ended() {
                        return Ok(Advised::Not(ended));
                    }
                }
                // A grant is kept for when there is room again.
                Err(error)
                    if grant.is_none()
                        && let Some(limit) = limit_of(&error) =>
                {
                    let judgement = self.take_ready()?.judgement;
                    return self.refuse_bounded(judgement, limit).await.map(Advised::Not);
                }
                // In doubt too: the record may then say more than was said, and never less.
                Err(error) => return Err(error),
            }
        }
        Err(StoreError::Stale.into())
    }

    /// What today's verdict on the ready call says to the host; nothing when it is not leave.
    fn advice(&self, grant: Option<QuestionId>) -> Option<Advice> {
        if self.stands(grant) {
            return Some(Advice::Allow);
        }
        let judgement = &self.ready.as_ref()?.judgement;
        self.host_asks(judgement).then_some(Advice::Ask)
    }

    /// Verdict, use of the grant, what is said, the labels of what the host will read, and the end of the run: one synced
    /// append, conditional as an intent is.
    async fn say(&mut self, advice: Advice, grant: Option<QuestionId>) -> Result<(), GateError> {
        let step = self.open_step_id()?;
        let judgement =
            self.ready.as_ref().ok_or(GateError::Misuse("no call is allowed"))?.judgement.clone();
        let mut events = self.judged(&judgement)?;
        if let Some(question) = grant {
            events.push(self.event(Some(step), Body::ApprovalUsed(ApprovalUsed { question })));
            let now = self.parts.clock.now();
            if self.state.question.as_ref().is_some_and(|question| question.is_over(now)) {
                return Err(StoreError::QuestionState { status: QuestionStatus::Expired }.into());
            }
        }
        let (call, epoch, active_us) =
            (judgement.body.admitted.call, self.epoch, self.take_active_us());
        let advised = StepAdvised { call, epoch, advice, active_us };
        events.push(self.event(Some(step), Body::StepAdvised(advised)));
        // What comes of it never comes by here, so that there is nothing to compare.
        let changes = judgement.body.admitted.effect.changes_something();
        let counting = Counting { changes, trace: None };
        // A host that is to ask its person asks a person. Before the call, which takes the room that the question looks for.
        if advice == Advice::Ask {
            events.extend(self.counted(step, Counted::Question(counting)));
        }
        events.extend(self.counted(step, Counted::Call(counting)));
        events.extend(self.will_read(&judgement.call.tool));
        events.push(self.event(None, compose::finished(EndReason::GoalCompleted)));
        let append = Append {
            condition: self.intent_condition(),
            events,
            contents: Vec::new(),
            specs: judgement.specs(),
            durability: Durability::Synced,
        };
        let committed = self.parts.store.append(&self.scope, append).await?;
        self.ready = None;
        self.fold(&committed).await
    }

    /// The labels of what the conversation is about to read. Its result never comes by here, so it counts as read.
    fn will_read(&self, tool: &str) -> Option<NewEvent> {
        let spec = &self.parts.tools.get(tool)?.described.spec;
        let labels = if spec.source { Labels::of(Origin::external(tool)) } else { Labels::none() };
        let step = self.open_step().map(|step| step.id)?;
        self.thread.labelled(labels, self.run_id(), step, self.parts.clock.now())
    }

    /// Whether calls of the tool are made here.
    pub(crate) fn is_performed(&self, tool: &str) -> Result<bool, GateError> {
        let found = self.parts.tools.get(tool);
        let found = found.ok_or_else(|| GateError::ToolMissing(tool.to_owned()))?;
        Ok(found.source.performs())
    }
}
