//! One step: from raw bytes to a verdict, and what a verdict leads to.

use std::sync::Arc;

use portcullis_canon::{Limits, Value, from_slice};
use portcullis_domain::content::Content;
use portcullis_domain::event::{Body, StepJudged};
use portcullis_domain::fold::RunState;
use portcullis_domain::grant::Grant;
use portcullis_domain::id::QuestionId;
use portcullis_domain::label::Labels;
use portcullis_domain::ports::{NewEvent, StoreError};
use portcullis_domain::proposal::{MAX_PROPOSAL_BYTES, ProposalKind};
use portcullis_domain::question::{self as domain, Card, QuestionKind, QuestionStatus};
use portcullis_domain::run::EndReason;
use portcullis_domain::scope::Scope;
use portcullis_domain::step::{Admitted, StepStatus};
use portcullis_domain::verdict::{Facts, OnRejection, Reviewers, Verdict};

use crate::admit::{Admission, Call, Echo, Invalid, admit, card};
use crate::core::{Core, Ending, Progress, Ready, RunEnd, kept, moved};
use crate::count::{self, limit_of};
use crate::error::GateError;
use crate::judge::judge;
use crate::parts::Parts;
use crate::question::Question;
use crate::tools::Described;

/// A call with today's verdict on it.
#[derive(Clone, Debug)]
pub(crate) struct Judgement {
    pub(crate) call: Call,
    pub(crate) card: Card,
    pub(crate) verdict: Verdict,
    pub(crate) body: StepJudged,
    /// The spec's bytes, unless the run was created with them.
    pub(crate) spec: Option<Vec<u8>>,
}

impl Judgement {
    /// The spec, for the append that is the first to name it.
    pub(crate) fn specs(&self) -> Vec<Vec<u8>> {
        self.spec.iter().cloned().collect()
    }
}

/// What is recorded of a granted question.
pub(crate) struct Granted {
    /// The card that was shown; nothing when it was erased.
    pub(crate) shown: Option<Card>,
    /// Whether the answers are leave to run. Where not, the people who are valid now are asked again: keys that are not
    /// valid any more, for instance, or a card that nobody can be shown.
    pub(crate) amounts: bool,
}

impl Granted {
    /// Reads card and answers of a question, and judges them.
    ///
    /// # Errors
    /// [`GateError::Approval`] when asking again would not mend it, or what the store says.
    pub(crate) async fn read(
        parts: &Parts,
        scope: &Scope,
        state: &RunState,
        question: &domain::Question,
        salt: &[u8],
    ) -> Result<Self, GateError> {
        let Some(card) = kept(parts, scope, question.card, "card").await? else {
            return Ok(Self { shown: None, amounts: false });
        };
        let approvals = parts.store.approvals(scope, question.id).await?;
        let instance = parts.store.instance();
        let grant =
            Grant { question, approvals: &approvals, card: &card, salt, run: &state.run, instance };
        let amounts = match grant.amounts(parts.clock.now(), parts.keys.as_ref()) {
            Ok(()) => true,
            Err(fault) if fault.asks_again() => false,
            Err(fault) => return Err(GateError::Approval(fault)),
        };
        let shown = from_slice(&card, &Limits::ENVELOPE).map_err(|_| GateError::Content("card"))?;
        Ok(Self { shown: Some(shown), amounts })
    }
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
        // What is longer than a proposal may be is kept as far as that can be seen.
        let mut raw = raw;
        raw.truncate(MAX_PROPOSAL_BYTES.saturating_add(1));
        let raw = Content::seal(raw, self.parts.entropy.as_ref());
        match self.record_proposal(&raw).await {
            Err(GateError::Store(error)) if moved(&error) || error == StoreError::InDoubt => {
                self.reload().await?;
                if let Some(ended) = self.ended() {
                    return Ok(ended);
                }
                match self.open_step().and_then(|step| step.proposal) {
                    None => self.record_proposal(&raw).await?,
                    // It was in doubt, and is stored.
                    Some(recorded) if recorded == raw.reference() => {}
                    Some(_) => return Err(GateError::Misuse("no step awaits a proposal")),
                }
            }
            recorded => recorded?,
        }
        self.decide(raw.bytes(), echo).await
    }

    /// Judges the open step's recorded proposal.
    pub(crate) async fn decide(&mut self, raw: &[u8], echo: Echo) -> Result<Progress, GateError> {
        let tools = Arc::clone(&self.parts.tools);
        let step = self.open_step_id()?;
        match admit(raw, echo, &tools, &self.state.run.tools, step, &self.salt) {
            Err(invalid) => {
                let outcome = self.observer().invalid(&invalid);
                self.end_step(Ending::observed(outcome)).await
            }
            Ok(Admission::Calls { origin, calls }) => self.decide_batch(origin, calls).await,
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
            Ok(Admission::Call { call, proposed }) => {
                self.proposed = Some(Value::Object(proposed));
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
        Ok(self.judgement(call, described, verdict, facts))
    }

    /// Asks the policy about the ready call once more. As long as it says the same, card and digest stay as they are.
    pub(crate) fn judge_ready(&mut self) -> Result<(), GateError> {
        let Some(mut ready) = self.ready.take() else {
            return Err(GateError::Misuse("no call is allowed"));
        };
        let tools = Arc::clone(&self.parts.tools);
        let Some(tool) = tools.get(&ready.judgement.call.tool) else {
            let missing = GateError::ToolMissing(ready.judgement.call.tool.clone());
            self.ready = Some(ready);
            return Err(missing);
        };
        let described = &tool.described;
        let facts = self.facts(ready.judgement.call.origin);
        let verdict = judge(&self.parts, &ready.judgement.call, described, &facts);
        if verdict == ready.judgement.verdict {
            ready.judgement.body.facts = facts;
            ready.judgement.body.policy = self.parts.policy.id();
        } else {
            ready.judgement = self.judgement(ready.judgement.call, described, verdict, facts);
        }
        self.ready = Some(ready);
        Ok(())
    }

    fn judgement(
        &self,
        call: Call,
        described: &Described,
        verdict: Verdict,
        facts: Facts,
    ) -> Judgement {
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
        let known = self.state.run.tools.iter().any(|tool| tool.spec == described.digest);
        let spec = (!known).then(|| described.canonical.clone());
        Judgement { call, card, verdict, body, spec }
    }

    /// Does what a verdict says, short of executing. `grant` is a checked grant that covers an `ask`.
    pub(crate) async fn follow(
        &mut self,
        judgement: Judgement,
        grant: Option<QuestionId>,
    ) -> Result<Progress, GateError> {
        match judgement.verdict.clone() {
            Verdict::Allow { .. } => {
                self.ready = Some(Ready { judgement, grant });
                Ok(Progress::Allowed)
            }
            Verdict::Ask { .. } if grant.is_some() || self.host_asks(&judgement) => {
                self.ready = Some(Ready { judgement, grant });
                Ok(Progress::Allowed)
            }
            Verdict::Ask { reviewers, on_rejection, .. } => {
                self.ask(judgement, reviewers, on_rejection).await
            }
            Verdict::Deny { reason, .. } => {
                let outcome = self.observer().denied(reason, None, Labels::none());
                let before = self.judged(&judgement)?;
                self.end_step(Ending::observed(outcome).after(before, judgement.specs())).await
            }
            Verdict::Abort { reason, .. } => {
                let outcome = self.observer().denied(reason, None, Labels::none());
                let before = self.judged(&judgement)?;
                let ending = Ending::observed(outcome).after(before, judgement.specs());
                self.end_step(ending.ending(RunEnd::because(EndReason::PolicyAbort))).await
            }
        }
    }

    pub(crate) fn judged(&self, judgement: &Judgement) -> Result<Vec<NewEvent>, GateError> {
        let step = self.open_step_id()?;
        Ok(vec![self.event(Some(step), Body::StepJudged(judgement.body.clone()))])
    }

    async fn ask(
        &mut self,
        judgement: Judgement,
        reviewers: Reviewers,
        on_rejection: OnRejection,
    ) -> Result<Progress, GateError> {
        // The card says who is asked, also where today's policy would not ask any more.
        let mut judgement = judgement;
        judgement.card.reviewers = Some(reviewers.clone());
        judgement.body.admitted.call = judgement.card.call_digest(&self.salt);
        let (before, specs) = (self.judged(&judgement)?, judgement.specs());
        let counting = self.counting(&judgement, self.has_grant()).await?;
        let question = Question {
            kind: QuestionKind::Approval,
            card: judgement.card.clone(),
            call: judgement.body.admitted.call,
            reviewers,
            on_rejection,
            cause: None,
        };
        match self.put_question(before, specs, question, Some(counting)).await {
            // A grant is kept for when there is room again.
            Err(error) if self.has_grant() => Err(error),
            Err(error) if let Some(limit) = limit_of(&error) => {
                self.refuse_bounded(judgement, limit).await
            }
            asked => asked,
        }
    }

    /// Judges a granted step at the moment of use, with today's rules and today's spec.
    pub(crate) async fn decide_granted(&mut self) -> Result<Progress, GateError> {
        let question =
            self.state.question.clone().ok_or(GateError::Misuse("no question is granted"))?;
        let (judgement, stands) = match self.judge_granted(&question).await? {
            Regarded::Erased => return self.end_erased().await,
            Regarded::Invalid(invalid) => {
                let outcome = self.observer().invalid(&invalid);
                return self.end_step(Ending::observed(outcome)).await;
            }
            Regarded::Judged { judgement, stands } => (*judgement, stands),
        };
        match judgement.verdict {
            // What was approved is not what would run: ask again, in the same role.
            Verdict::Allow { .. } if !stands => {
                self.ask(judgement, question.reviewers, question.on_rejection).await
            }
            _ => self.follow(judgement, stands.then_some(question.id)).await,
        }
    }

    /// What today's rules say of a granted step. Nothing is recorded.
    async fn judge_granted(&self, question: &domain::Question) -> Result<Regarded, GateError> {
        let (request, proposal) = self
            .open_step()
            .and_then(|step| Some((step.index, step.proposal?)))
            .ok_or(GateError::Content("proposal"))?;
        let (parts, scope) = (&self.parts, &self.scope);
        let granted = Granted::read(parts, scope, &self.state, question, &self.salt).await?;
        let Some(raw) = kept(parts, scope, proposal, "proposal").await? else {
            return Ok(Regarded::Erased);
        };
        let call = match admit(
            &raw,
            Echo::Recorded(request),
            &parts.tools,
            &self.state.run.tools,
            question.step,
            &self.salt,
        ) {
            Ok(Admission::Call { call, .. }) => call,
            Err(invalid) => return Ok(Regarded::Invalid(invalid)),
            Ok(Admission::Calls { .. } | Admission::Complete { .. } | Admission::Fail { .. }) => {
                return Err(GateError::Bug("a question about a proposal that is not one call"));
            }
        };
        let judgement = self.judge_call(call)?;
        let same = |shown: &Card| shown.same_call(&judgement.card);
        let stands = granted.amounts
            && match &judgement.verdict {
                Verdict::Allow { .. } => granted.shown.as_ref().is_some_and(same),
                Verdict::Ask { .. } => judgement.body.admitted.call == question.call,
                Verdict::Deny { .. } | Verdict::Abort { .. } => false,
            };
        Ok(Regarded::Judged { judgement: Box::new(judgement), stands })
    }

    /// Whether a limit of the conversation keeps people from being asked again about a granted call that is not what they said
    /// yes to any more. Looked at before the lease is taken, as other limits of a grant are: their answer is kept.
    ///
    /// # Errors
    /// [`StoreError::ThreadBounded`] with the limit, or what the store says.
    pub(crate) async fn check_asking_again(&self) -> Result<(), GateError> {
        let granted = self.state.question.as_ref().filter(|_| self.has_grant());
        let full = count::unasked(&self.parts, &self.thread, &self.state);
        let Some((question, limit)) = granted.zip(full) else { return Ok(()) };
        match self.judge_granted(question).await? {
            Regarded::Judged { judgement, stands: false }
                if matches!(judgement.verdict, Verdict::Allow { .. } | Verdict::Ask { .. }) =>
            {
                Err(StoreError::ThreadBounded { limit }.into())
            }
            _ => Ok(()),
        }
    }

    /// Whether people said yes to the call of the open step, which has not begun.
    fn has_grant(&self) -> bool {
        let granted = self.state.question.as_ref().filter(|q| q.status == QuestionStatus::Granted);
        let waits = self.open_step().filter(|step| step.status == StepStatus::Awaiting);
        granted.zip(waits).is_some_and(|(question, step)| question.step == step.id)
    }
}

/// What a granted step has become.
enum Regarded {
    /// Its proposal was erased.
    Erased,
    /// Today it is no call.
    Invalid(Invalid),
    /// A call with today's verdict, and whether what people said yes to is leave for it.
    Judged { judgement: Box<Judgement>, stands: bool },
}
