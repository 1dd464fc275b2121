//! One step: from raw bytes to a verdict, and from a verdict to an effect and its record.

use std::sync::Arc;

use portcullis_canon::{Limits, Value, from_slice};
use portcullis_domain::content::Content;
use portcullis_domain::event::{ApprovalUsed, Body, QuestionAsked, StepJudged, StepStarted};
use portcullis_domain::id::{QuestionId, StepId};
use portcullis_domain::label::Labels;
use portcullis_domain::observation::Failure;
use portcullis_domain::permit::{self, Intent};
use portcullis_domain::ports::{
    Append, Condition, Durability, NewEvent, StoreError, ToolFailure, ToolOutput,
};
use portcullis_domain::proposal::ProposalKind;
use portcullis_domain::question::{Card, QuestionKind, Terms};
use portcullis_domain::refusal::Refusal;
use portcullis_domain::run::EndReason;
use portcullis_domain::step::Admitted;
use portcullis_domain::verdict::{OnRejection, Reviewers, Verdict};

use crate::admit::{Admission, Call, Echo, admit, card};
use crate::core::{Batch, Core, Ending, Progress, Ready, RunEnd, content};
use crate::effect::{Performed, perform};
use crate::error::GateError;
use crate::grant;
use crate::judge::judge;
use crate::late;
use crate::parts::Reconciled;

/// The role that answers questions about unknown outcomes of calls that nobody had to approve.
const OUTCOME_ROLE: &str = "operator";

/// How often commit 1 is composed anew when something was recorded meanwhile.
const MAX_TRIES: u32 = 8;

/// A call with today's verdict on it.
pub(crate) struct Judgement {
    pub(crate) call: Call,
    pub(crate) card: Card,
    pub(crate) verdict: Verdict,
    pub(crate) body: StepJudged,
    pub(crate) spec: Vec<u8>,
}

impl Core {
    /// Records a proposal and judges it.
    pub(crate) async fn propose(
        &mut self,
        raw: Vec<u8>,
        echo: Echo,
    ) -> Result<Progress, GateError> {
        if let Some(ended) = self.ended() {
            return Ok(ended);
        }
        let open = self.open_step().is_some_and(|step| step.proposal.is_none());
        if !open {
            return Err(GateError::Misuse("no step awaits a proposal"));
        }
        match self.record_proposal(&raw).await {
            Err(GateError::Store(StoreError::Stale)) => {
                self.reload().await?;
                if let Some(ended) = self.ended() {
                    return Ok(ended);
                }
                self.record_proposal(&raw).await?;
            }
            recorded => recorded?,
        }
        self.decide(&raw, echo).await
    }

    /// Judges the open step's recorded proposal.
    pub(crate) async fn decide(&mut self, raw: &[u8], echo: Echo) -> Result<Progress, GateError> {
        let tools = Arc::clone(&self.parts.tools);
        match admit(raw, echo, &tools, &self.state.run.tools, &self.salt) {
            Err(invalid) => {
                let outcome = self.observer().invalid(&invalid);
                self.end_step(Ending::observed(outcome)).await
            }
            Ok(Admission::Complete { origin, result }) => {
                let result = Content::seal(result.to_canonical(), self.parts.entropy.as_ref());
                let end =
                    RunEnd { result: Some(result), ..RunEnd::because(EndReason::GoalCompleted) };
                self.end_step(Ending::last(ProposalKind::Complete, origin, end)).await
            }
            Ok(Admission::Fail { origin, message }) => {
                let note = Content::seal(message.into_bytes(), self.parts.entropy.as_ref());
                let end = RunEnd { note: Some(note), ..RunEnd::because(EndReason::GoalFailed) };
                self.end_step(Ending::last(ProposalKind::Fail, origin, end)).await
            }
            Ok(Admission::Call(call)) => {
                self.proposed = Some(Value::Object(call.proposed.clone()));
                let judgement = self.judge_call(call)?;
                self.follow(judgement, None).await
            }
        }
    }

    /// Asks the policy about a call.
    pub(crate) fn judge_call(&self, call: Call) -> Result<Judgement, GateError> {
        let tool = self
            .parts
            .tools
            .get(&call.tool)
            .ok_or_else(|| GateError::ToolMissing(call.tool.clone()))?;
        let described = &tool.described;
        let facts = self.facts(call.origin);
        let verdict = judge(&self.parts, &call, described, &facts);
        let card = card(&call, described, &verdict);
        let admitted = Admitted {
            tool: call.tool.clone(),
            spec: described.digest,
            effect: described.spec.effect,
            request: call.request,
            call: card.call_digest(&self.salt),
        };
        let body = StepJudged {
            origin: call.origin,
            admitted,
            verdict: verdict.clone(),
            policy: self.parts.policy.id(),
            facts,
        };
        Ok(Judgement { call, card, verdict, body, spec: described.canonical.clone() })
    }

    /// Does what a verdict says, short of executing. `grant` is a checked grant that covers an `ask`.
    async fn follow(
        &mut self,
        judgement: Judgement,
        grant: Option<QuestionId>,
    ) -> Result<Progress, GateError> {
        match judgement.verdict.clone() {
            Verdict::Allow { .. } => {
                self.ready = Some(Ready { call: judgement.call, grant });
                Ok(Progress::Allowed)
            }
            Verdict::Ask { .. } if grant.is_some() => {
                self.ready = Some(Ready { call: judgement.call, grant });
                Ok(Progress::Allowed)
            }
            Verdict::Ask { reviewers, on_rejection, .. } => {
                self.ask(judgement, reviewers, on_rejection).await
            }
            Verdict::Deny { reason, .. } => {
                let outcome = self.observer().denied(reason, None, Labels::none());
                let before = self.judged(&judgement)?;
                self.end_step(Ending::observed(outcome).after(before, vec![judgement.spec])).await
            }
            Verdict::Abort { reason, .. } => {
                let outcome = self.observer().denied(reason, None, Labels::none());
                let before = self.judged(&judgement)?;
                let ending = Ending::observed(outcome).after(before, vec![judgement.spec]);
                self.end_step(ending.ending(RunEnd::because(EndReason::PolicyAbort))).await
            }
        }
    }

    fn judged(&self, judgement: &Judgement) -> Result<Vec<NewEvent>, GateError> {
        let step = self.open_step_id()?;
        Ok(vec![self.event(Some(step), Body::StepJudged(judgement.body.clone()))])
    }

    async fn ask(
        &mut self,
        judgement: Judgement,
        reviewers: Reviewers,
        on_rejection: OnRejection,
    ) -> Result<Progress, GateError> {
        let before = self.judged(&judgement)?;
        let question = Question {
            kind: QuestionKind::Approval,
            card: judgement.card,
            call: judgement.body.admitted.call,
            reviewers,
            on_rejection,
        };
        self.put_question(before, vec![judgement.spec], question).await
    }

    /// Appends a question; the run waits and the lease is released.
    pub(crate) async fn put_question(
        &mut self,
        before: Vec<NewEvent>,
        specs: Vec<Vec<u8>>,
        question: Question,
    ) -> Result<Progress, GateError> {
        let step = self.open_step_id()?;
        let active_us = self.take_active_us();
        self.ready = None;
        self.record(move |core| {
            let (event, content) = core.question_asked(step, &question, active_us);
            let mut events = before.clone();
            events.push(event);
            Ok(Batch { events, contents: vec![content], specs: specs.clone() })
        })
        .await
    }

    /// The event that asks, and the card's content.
    pub(crate) fn question_asked(
        &self,
        step: StepId,
        question: &Question,
        active_us: u64,
    ) -> (NewEvent, Content) {
        let now = self.parts.clock.now();
        let run = &self.state.run;
        let id = QuestionId::draw(now, self.parts.entropy.as_ref());
        let expires_at =
            run.limits.question_ttl_ms.map(|ms| now.after(std::time::Duration::from_millis(ms)));
        let uses = 1;
        let terms = Terms {
            instance: self.parts.store.instance(),
            tenant: &run.tenant,
            run: run.id,
            step,
            question: id,
            kind: question.kind,
            call: question.call,
            expires_at,
            uses,
        };
        let card = Content::seal(question.card.value().to_canonical(), self.parts.entropy.as_ref());
        let body = QuestionAsked {
            question: id,
            kind: question.kind,
            digest: terms.digest(),
            call: question.call,
            card: card.reference(),
            reviewers: question.reviewers.clone(),
            on_rejection: question.on_rejection,
            uses,
            expires_at,
            active_us,
        };
        (
            NewEvent {
                stream: run.id.into(),
                step: Some(step),
                at: now,
                body: Body::QuestionAsked(body),
            },
            card,
        )
    }

    /// Judges a granted step at the moment of use, with today's rules and today's spec.
    pub(crate) async fn decide_granted(&mut self) -> Result<Progress, GateError> {
        let question =
            self.state.question.clone().ok_or(GateError::Misuse("no question is granted"))?;
        let proposal = self
            .open_step()
            .and_then(|step| step.proposal)
            .ok_or(GateError::Content("proposal"))?;
        let request = self.open_step().map_or(0, |step| step.index);
        let raw = content(&self.parts, &self.scope, proposal, "proposal").await?;
        let shown = content(&self.parts, &self.scope, question.card, "card").await?;
        let keys = Arc::clone(&self.parts.keys);
        let instance = self.parts.store.instance();
        let approvals = self.parts.store.approvals(&self.scope, question.id).await?;
        grant::check(
            &question,
            &approvals,
            &shown,
            &self.salt,
            &self.state.run,
            instance,
            keys.as_ref(),
        )
        .map_err(GateError::Approval)?;
        let shown: Card =
            from_slice(&shown, &Limits::ENVELOPE).map_err(|_| GateError::Content("card"))?;
        let tools = Arc::clone(&self.parts.tools);
        let call =
            match admit(&raw, Echo::Recorded(request), &tools, &self.state.run.tools, &self.salt) {
                Ok(Admission::Call(call)) => call,
                Err(invalid) => {
                    let outcome = self.observer().invalid(&invalid);
                    return self.end_step(Ending::observed(outcome)).await;
                }
                Ok(Admission::Complete { .. } | Admission::Fail { .. }) => {
                    return Err(GateError::Bug("a question about a proposal that is no call"));
                }
            };
        let judgement = self.judge_call(call)?;
        let stands = match &judgement.verdict {
            Verdict::Allow { .. } => shown.same_call(&judgement.card),
            Verdict::Ask { .. } => judgement.body.admitted.call == question.call,
            Verdict::Deny { .. } | Verdict::Abort { .. } => false,
        };
        match judgement.verdict {
            // What was approved is not what would run: ask again, of the same people.
            Verdict::Allow { .. } if !stands => {
                self.ask(judgement, question.reviewers, question.on_rejection).await
            }
            _ => self.follow(judgement, stands.then_some(question.id)).await,
        }
    }

    /// Executes the allowed call: commit 1, the effect, commit 2.
    pub(crate) async fn execute(&mut self) -> Result<Progress, GateError> {
        if let Some(ended) = self.ended() {
            return Ok(ended);
        }
        let ready = self.ready.clone().ok_or(GateError::Misuse("no call is allowed"))?;
        if self.lease_lost() {
            return Err(StoreError::LeaseLost.into());
        }
        if let Some(ended) = self.expire_grant(ready.grant).await? {
            return Ok(ended);
        }
        for _ in 0..MAX_TRIES {
            let judgement = self.judge_call(ready.call.clone())?;
            let stands = match &judgement.verdict {
                Verdict::Allow { .. } => true,
                Verdict::Ask { .. } => ready.grant.is_some(),
                Verdict::Deny { .. } | Verdict::Abort { .. } => false,
            };
            if !stands {
                self.ready = None;
                return self.follow(judgement, ready.grant).await;
            }
            match self.start(&judgement, ready.grant).await {
                Ok(permit) => return self.finish(permit, judgement).await,
                Err(GateError::Store(StoreError::Stale | StoreError::LabelsMoved)) => {
                    self.reload().await?;
                    if let Some(ended) = self.ended() {
                        return Ok(ended);
                    }
                }
                Err(error) => return Err(error),
            }
        }
        Err(StoreError::Stale.into())
    }

    /// Commit 1: verdict, use of the grant and intent, conditional on lease, sequence and labels.
    async fn start(
        &mut self,
        judgement: &Judgement,
        grant: Option<QuestionId>,
    ) -> Result<permit::Permit, GateError> {
        let tool = self
            .parts
            .tools
            .get(&judgement.call.tool)
            .ok_or_else(|| GateError::ToolMissing(judgement.call.tool.clone()))?;
        let deadline = tool.described.spec.deadline();
        let step = self.open_step_id()?;
        let start = self.open_step().map_or(1, |step| step.starts.saturating_add(1));
        let mut events = self.judged(judgement)?;
        if let Some(question) = grant {
            events.push(self.event(Some(step), Body::ApprovalUsed(ApprovalUsed { question })));
        }
        let started = StepStarted {
            call: judgement.body.admitted.call,
            epoch: self.epoch,
            deadline_ms: tool.described.spec.deadline_ms,
            start,
        };
        events.push(self.event(Some(step), Body::StepStarted(started)));
        let condition = Condition::Driver {
            run: self.run_id(),
            seq: self.state.run.seq,
            epoch: self.epoch,
            take: None,
            live_at: Some(self.parts.clock.now()),
            label_seq: Some(self.thread.label_seq),
        };
        let append = Append {
            condition,
            events,
            contents: Vec::new(),
            specs: vec![judgement.spec.clone()],
            durability: Durability::Synced,
        };
        let intent = Intent {
            run: self.run_id(),
            step,
            tool: judgement.call.tool.clone(),
            arguments: judgement.call.arguments.clone(),
            call: judgement.body.admitted.call,
            deadline,
            append,
        };
        let receipt = permit::commit(self.parts.store.as_ref(), &self.scope, intent).await?;
        let (permit, committed) = receipt.into_permit();
        self.fold(&committed)?;
        Ok(permit)
    }

    /// The effect and commit 2.
    async fn finish(
        &mut self,
        permit: permit::Permit,
        judgement: Judgement,
    ) -> Result<Progress, GateError> {
        let tools = Arc::clone(&self.parts.tools);
        let tool =
            tools.get(&judgement.call.tool).ok_or(GateError::Bug("a started tool is gone"))?;
        let step = permit.step();
        let source = Arc::clone(&tool.source);
        let (spawn, clock) = (Arc::clone(&self.parts.spawn), Arc::clone(&self.parts.clock));
        let performed = perform(source, permit, spawn.as_ref(), clock.as_ref()).await;
        let recorded = self.conclude(step, performed, &judgement).await;
        match recorded {
            Ok(Concluded::Done(progress)) => Ok(progress),
            Ok(Concluded::Late(outcome)) => {
                late::record(&self.parts, &self.scope, self.run_id(), step, self.epoch, outcome)
                    .await;
                self.reload().await?;
                Ok(self.progress())
            }
            Err(error) => Err(error),
        }
    }

    async fn conclude(
        &mut self,
        step: StepId,
        performed: Performed,
        judgement: &Judgement,
    ) -> Result<Concluded, GateError> {
        let tools = Arc::clone(&self.parts.tools);
        let spec = &tools
            .get(&judgement.call.tool)
            .ok_or(GateError::Bug("a started tool is gone"))?
            .described
            .spec;
        let changes = spec.effect.changes_something();
        let external = || Labels::of(portcullis_domain::label::Origin::external(&spec.name));
        let ending = match performed {
            Performed::Answered(Ok(output)) => {
                let outcome = self.observer().answered(spec, output);
                let done = outcome.status == portcullis_domain::step::StepStatus::Done;
                let result = outcome.observation.content;
                let ending = Ending::observed(outcome);
                if spec.terminal && done {
                    ending.ending(RunEnd {
                        observed_result: result,
                        ..RunEnd::because(EndReason::GoalCompleted)
                    })
                } else {
                    ending
                }
            }
            Performed::Answered(Err(ToolFailure::NothingHappened { message })) => {
                Ending::observed(self.observer().failed(Failure::Error, &message, external()))
            }
            Performed::Answered(Err(ToolFailure::Abort { message })) => {
                let outcome = self.observer().failed(Failure::Abort, &message, external());
                Ending::observed(outcome).ending(RunEnd::because(EndReason::ToolAbort))
            }
            Performed::NotBegun => {
                Ending::observed(self.observer().denied(Refusal::NoCapacity, None, Labels::none()))
            }
            Performed::Answered(Err(ToolFailure::Unknown { message })) if !changes => {
                Ending::observed(self.observer().failed(
                    Failure::LostConnection,
                    &message,
                    external(),
                ))
            }
            Performed::Answered(Err(ToolFailure::Unknown { .. })) => {
                return self.unknown(&judgement.card, judgement.body.admitted.call).await;
            }
            Performed::Panicked if !changes => Ending::observed(self.observer().failed(
                Failure::Panic,
                "the tool panicked",
                Labels::none(),
            )),
            Performed::Panicked => {
                return self.unknown(&judgement.card, judgement.body.admitted.call).await;
            }
            Performed::Overdue(running) => {
                let asked = if changes {
                    self.unknown(&judgement.card, judgement.body.admitted.call).await
                } else {
                    let outcome = self.observer().failed(
                        Failure::Timeout,
                        "the deadline passed",
                        Labels::none(),
                    );
                    self.end_executed(Ending::observed(outcome)).await
                };
                late::watch(self, step, running, spec.clone());
                return asked;
            }
        };
        self.end_executed(ending).await
    }

    /// Commit 2. When the run went on without this driver, the outcome is recorded as late.
    async fn end_executed(&mut self, ending: Ending) -> Result<Concluded, GateError> {
        let Some(kept) = ending.outcome.as_ref().map(late::copy) else {
            return self.end_step(ending).await.map(Concluded::Done);
        };
        match self.end_step(ending).await {
            Ok(Progress::Ended(_)) if !self.finished_here() => Ok(Concluded::Late(kept)),
            Ok(progress) => Ok(Concluded::Done(progress)),
            Err(GateError::Store(StoreError::LeaseLost)) => {
                late::record(
                    &self.parts,
                    &self.scope,
                    self.run_id(),
                    self.open_or_last()?,
                    self.epoch,
                    kept,
                )
                .await;
                Err(StoreError::LeaseLost.into())
            }
            Err(error) => Err(error),
        }
    }

    /// True when the latest step has the observation of its own execution.
    fn finished_here(&self) -> bool {
        self.state.step().is_some_and(|step| step.observation.is_some())
    }

    fn open_or_last(&self) -> Result<StepId, GateError> {
        self.state
            .step()
            .map(|step| step.id)
            .ok_or(GateError::Bug("a run that executed has no step"))
    }

    /// The outcome of a call that may have changed something is unknown: look, or ask.
    async fn unknown(
        &mut self,
        card: &Card,
        call: portcullis_canon::Digest,
    ) -> Result<Concluded, GateError> {
        match self.reconcile(card).await {
            Some(ending) => self.end_executed(ending).await,
            None => {
                let question = outcome_question(card.clone(), call);
                self.put_question(Vec::new(), Vec::new(), question).await.map(Concluded::Done)
            }
        }
    }

    /// What the host's reconciliation found; `None` when a person has to say.
    pub(crate) async fn reconcile(&mut self, card: &Card) -> Option<Ending> {
        let found = match self.parts.reconcile.clone() {
            Some(hook) => {
                look(hook, card.clone(), self.parts.clock.as_ref(), self.parts.timing.record).await
            }
            None => Reconciled::Unknown,
        };
        let external = Labels::of(portcullis_domain::label::Origin::external(&card.tool));
        match found {
            Reconciled::Unknown => None,
            Reconciled::Happened(output) => Some(Ending::observed(self.happened(card, output))),
            Reconciled::DidNotHappen => {
                let message = "a reconciliation found that it did not happen";
                Some(Ending::observed(self.observer().failed(
                    Failure::DidNotHappen,
                    message,
                    external,
                )))
            }
            Reconciled::Conflict => {
                let message = "a reconciliation found what does not fit the record";
                let outcome = self.observer().failed(Failure::Crash, message, external);
                Some(
                    Ending::observed(outcome).ending(RunEnd::because(EndReason::ReconcileConflict)),
                )
            }
        }
    }

    fn happened(&self, card: &Card, output: ToolOutput) -> crate::observe::Outcome {
        let value = portcullis_canon::parse(&output.content, &Limits::BARE).unwrap_or_default();
        let labels = output
            .labels
            .unwrap_or_else(|| Labels::of(portcullis_domain::label::Origin::external(&card.tool)));
        self.observer().result(value, labels, false)
    }
}

/// A question, before it has an id.
#[derive(Clone, Debug)]
pub(crate) struct Question {
    pub(crate) kind: QuestionKind,
    pub(crate) card: Card,
    pub(crate) call: portcullis_canon::Digest,
    pub(crate) reviewers: Reviewers,
    pub(crate) on_rejection: OnRejection,
}

/// "Did this call happen?", asked of those who had to approve it, or else of the operator.
pub(crate) fn outcome_question(card: Card, call: portcullis_canon::Digest) -> Question {
    let role = card
        .reviewers
        .as_ref()
        .map_or(OUTCOME_ROLE, |reviewers| reviewers.role.as_str())
        .to_owned();
    Question {
        kind: QuestionKind::UnknownOutcome,
        card,
        call,
        reviewers: Reviewers { role, count: 1 },
        on_rejection: OnRejection::Observe,
    }
}

/// What became of an execution.
enum Concluded {
    /// It is recorded where it belongs.
    Done(Progress),
    /// The run had ended meanwhile.
    Late(crate::observe::Outcome),
}

async fn look(
    hook: Arc<dyn crate::parts::Reconcile>,
    card: Card,
    clock: &dyn portcullis_domain::ports::Clock,
    patience: std::time::Duration,
) -> Reconciled {
    use futures_util::FutureExt;
    let asked = std::panic::AssertUnwindSafe(hook.reconcile(&card)).catch_unwind();
    match futures_util::future::select(Box::pin(asked), clock.sleep(patience)).await {
        futures_util::future::Either::Left((Ok(found), _)) => found,
        futures_util::future::Either::Left((Err(_), _))
        | futures_util::future::Either::Right(_) => Reconciled::Unknown,
    }
}
