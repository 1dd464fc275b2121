//! A call whose outcome is not known: one way for a crash, a timeout, a panic and a lost connection.
//!
//! What the tool declares comes first: the same call once more with the same idempotency key, then its probe. Then the
//! host's reconciliation is asked, and a person at last. Each of these is in the record before it happens.

use std::panic::AssertUnwindSafe;
use std::pin::pin;
use std::sync::Arc;

use futures_util::FutureExt;
use futures_util::future::{Either, select};
use portcullis_canon::{Digest, Limits, from_slice};
use portcullis_domain::content::Content;
use portcullis_domain::event::{Body, ProbeCall, ProbeFinished, ProbeStarted, StepRestarted};
use portcullis_domain::id::StepId;
use portcullis_domain::label::{Labels, Origin};
use portcullis_domain::observation::Failure;
use portcullis_domain::permit::Permit;
use portcullis_domain::ports::{Place, StoreError, ToolOutput};
use portcullis_domain::proposal::ProposalOrigin;
use portcullis_domain::question::{Card, call_digest};
use portcullis_domain::recovery::{Found, Probe, ProbeAnswer};
use portcullis_domain::refusal::Refusal;
use portcullis_domain::run::EndReason;
use portcullis_domain::step::{Step, StepStatus};
use portcullis_domain::tool::ToolSpec;
use portcullis_domain::verdict::Verdict;

use crate::admit::{Call, Invalid, admit_probe, admit_recorded, card};
use crate::core::{Batch, Core, Ending, Progress, RunEnd, kept, moved};
use crate::effect::{Cut, Performed};
use crate::error::GateError;
use crate::execute::{Concluded, MAX_TRIES};
use crate::parts::{Reconcile, Reconciled};
use crate::question::outcome_question;
use crate::step::Judgement;
use crate::tools::Described;

/// How often an outcome is asked after without an answer, before a person is asked.
const MAX_PROBES: u32 = 2;

/// A call that was started, and of which it is not known what it did.
pub(crate) struct Unknown {
    pub(crate) call: Call,
    pub(crate) card: Card,
    /// The spec that it was started with.
    pub(crate) spec: ToolSpec,
    /// The call digest that it was started under.
    pub(crate) digest: Digest,
    /// Why its outcome is not known, and one sentence about it.
    pub(crate) cause: Failure,
    pub(crate) detail: String,
}

/// What became of an intent.
enum Intended {
    /// It is durable.
    Permit(Box<Permit>),
    /// Something was recorded meanwhile: judge again.
    Moved,
    /// It is not to be: the run has ended, or it cannot be said whether it was stored.
    Not,
}

impl Core {
    /// A call was started and its outcome was not recorded.
    pub(crate) async fn recover(&mut self, step: &Step) -> Result<Progress, GateError> {
        let admitted =
            step.admitted.as_ref().ok_or(GateError::Bug("a started step has no call"))?;
        if !admitted.effect.changes_something() {
            let interrupted = |core: &Self| core.observer().interrupted(Failure::Crash);
            return self.end_started(interrupted).await;
        }
        let proposal = step.proposal.ok_or(GateError::Content("proposal"))?;
        let Some(raw) = kept(&self.parts, &self.scope, proposal, "proposal").await? else {
            return self.end_erased().await;
        };
        let bytes =
            self.parts.store.spec(admitted.spec).await?.ok_or(GateError::Content("tool spec"))?;
        let described = Described::recorded(&bytes).ok_or(GateError::Content("tool spec"))?;
        let Some(unknown) = self.recorded(step, &raw, described, admitted.call) else {
            // What is recorded of the call does not amount to the call that was started.
            let message = "the record of the call does not fit its digest";
            let outcome = self.observer().failed(Failure::Crash, message, Labels::none());
            let end = RunEnd::because(EndReason::ReconcileConflict);
            return self.end_step(Ending::observed(outcome).ending(end)).await;
        };
        let concluded = self.resolve(unknown).await?;
        self.settle(step.id, concluded).await
    }

    /// Goes on with a step whose proposal was erased, so that its call cannot be made again. One that was started becomes
    /// a question as long as a card is kept that shows the call; without one nobody can be asked, and the run ends. One
    /// that was not started is no proposal any more.
    pub(crate) async fn end_erased(&mut self) -> Result<Progress, GateError> {
        let step = self.open_step().cloned().ok_or(GateError::Misuse("no step is open"))?;
        let admitted = step.admitted.filter(|_| step.starts > 0);
        let Some(admitted) = admitted else {
            let place = Some((String::new(), "erased".to_owned()));
            let invalid = Invalid { refusal: Refusal::NotJson, place, call: None };
            let outcome = self.observer().invalid(&invalid);
            return self.end_step(Ending::observed(outcome)).await;
        };
        let detail = "what the call was made with was erased before it was known what came of it";
        if let Some(card) = self.shown_card(step.id, admitted.call).await? {
            let question = outcome_question(card, admitted.call, Failure::Crash, detail)?;
            return self.put_question(Vec::new(), Vec::new(), question, None).await;
        }
        let outcome = self.observer().failed(Failure::Crash, detail, Labels::none());
        let end = RunEnd::because(EndReason::ReconcileConflict);
        self.end_step(Ending::observed(outcome).ending(end)).await
    }

    /// The card of the step's latest question, if it is kept and shows exactly this call.
    async fn shown_card(&self, step: StepId, call: Digest) -> Result<Option<Card>, GateError> {
        let question = self.state.question.as_ref().filter(|question| question.step == step);
        let Some(question) = question else { return Ok(None) };
        let card = kept(&self.parts, &self.scope, question.card, "card").await?;
        let card = card.filter(|card| call_digest(card, &self.salt) == call);
        Ok(card.and_then(|card| from_slice(&card, &Limits::ENVELOPE).ok()))
    }

    /// The call of a step as its record says it, if that is the call that was started.
    fn recorded(
        &self,
        step: &Step,
        raw: &[u8],
        described: Described,
        digest: Digest,
    ) -> Option<Unknown> {
        let call = admit_recorded(raw, step.id, step.index, &described, &self.salt)?;
        let card = card(&call, &described, step.verdict.as_ref()?);
        let detail =
            "the process that made the call ended or stalled before it recorded what came of it";
        (card.call_digest(&self.salt) == digest).then(|| Unknown {
            call,
            card,
            spec: described.spec,
            digest,
            cause: Failure::Crash,
            detail: detail.to_owned(),
        })
    }

    /// Finds out what became of the call, or asks a person.
    pub(crate) async fn resolve(&mut self, unknown: Unknown) -> Result<Concluded, GateError> {
        self.keep_round(&unknown.call).await?;
        if let Some(progress) = self.start_again(&unknown).await? {
            return Ok(Concluded::Done(progress));
        }
        let found = self.ask_after(&unknown).await?;
        match found {
            Some(ending) => self.end_found(ending).await.map(Concluded::Done),
            None if self.ended().is_some() => Ok(Concluded::Done(self.progress())),
            None => {
                let Unknown { card, digest, cause, detail, .. } = unknown;
                let question = outcome_question(card, digest, cause, &detail)?;
                self.put_question(Vec::new(), Vec::new(), question, None).await.map(Concluded::Done)
            }
        }
    }

    /// What the tool's probe found, or else the host. Neither is asked when asking has ended its process so often that it
    /// would for ever.
    async fn ask_after(&mut self, unknown: &Unknown) -> Result<Option<Ending>, GateError> {
        if self.probes >= MAX_PROBES {
            return Ok(None);
        }
        match self.ask_probe(unknown).await? {
            Some(ending) => Ok(Some(ending)),
            None => self.ask_host(unknown).await,
        }
    }

    /// Ends the step with what was found, under a lease that runs. It is no outcome that came back: when the run is not
    /// this driver's any more, whoever has it asks anew, and nothing is recorded as late.
    async fn end_found(&mut self, ending: Ending) -> Result<Progress, GateError> {
        let place = self.open_place();
        let ending = ending.under_lease();
        let progress = self.record_end(&ending).await?;
        self.remember(place, ending.outcome);
        Ok(progress)
    }

    /// Makes the same call once more, when its receiver knows it by its key; `None` when that is not to be.
    async fn start_again(&mut self, unknown: &Unknown) -> Result<Option<Progress>, GateError> {
        if unknown.spec.idempotency_key.is_none() {
            return Ok(None);
        }
        for _ in 0..MAX_TRIES {
            let Some(judgement) = self.judge_again(unknown)? else { return Ok(None) };
            let Ok(place) = self.place(&judgement.call.tool)? else { return Ok(None) };
            let body = Body::StepRestarted(StepRestarted {
                call: unknown.digest,
                epoch: self.epoch,
                deadline_ms: unknown.spec.deadline_ms,
                start: 2,
                cause: unknown.cause,
                verdict: judgement.verdict.clone(),
                policy: judgement.body.policy,
                facts: judgement.body.facts.clone(),
            });
            match self.intend(body, &judgement, Vec::new()).await? {
                Intended::Permit(permit) => {
                    let before = Some(unknown.cause);
                    let finished = Box::pin(self.finish(*permit, place, judgement, before)).await?;
                    return Ok(Some(finished));
                }
                Intended::Moved => {}
                Intended::Not => return Ok(None),
            }
        }
        Ok(None)
    }

    /// The call with today's verdict on it, as long as it is the very call that was started once, and may still be.
    fn judge_again(&self, unknown: &Unknown) -> Result<Option<Judgement>, GateError> {
        let once = self.open_step().filter(|step| step.status.is_started() && step.starts == 1);
        let Some(step) = once.filter(|_| self.parts.tools.get(&unknown.card.tool).is_some()) else {
            return Ok(None);
        };
        let judgement = self.judge_call(unknown.call.clone())?;
        let leave = match judgement.verdict {
            Verdict::Allow { .. } => true,
            Verdict::Ask { .. } => step.question.is_some(),
            Verdict::Deny { .. } | Verdict::Abort { .. } => false,
        };
        let same = judgement.body.admitted.call == unknown.digest;
        Ok((leave && same).then_some(judgement))
    }

    /// Makes an intent durable that is not the first of its step.
    async fn intend(
        &mut self,
        body: Body,
        judgement: &Judgement,
        contents: Vec<Content>,
    ) -> Result<Intended, GateError> {
        let step = self.open_step_id()?;
        let events = vec![self.event(Some(step), body)];
        match self.commit_intent(events, judgement, contents).await {
            Ok(permit) => Ok(Intended::Permit(Box::new(permit))),
            Err(GateError::Store(StoreError::InDoubt)) => {
                // No permit, no call.
                self.reload().await?;
                Ok(Intended::Not)
            }
            Err(GateError::Store(StoreError::LeaseLost)) => {
                self.ended_meanwhile().await?;
                Ok(Intended::Not)
            }
            Err(GateError::Store(error)) if moved(&error) => {
                self.reload().await?;
                Ok(if self.ended().is_some() { Intended::Not } else { Intended::Moved })
            }
            Err(error) => Err(error),
        }
    }

    /// What the tool's probe found; `None` when there is none, or it cannot say.
    async fn ask_probe(&mut self, unknown: &Unknown) -> Result<Option<Ending>, GateError> {
        let Some(probe) = &unknown.spec.probe else { return Ok(None) };
        for _ in 0..MAX_TRIES {
            let Some(judgement) = self.judge_probe(probe, unknown)? else { return Ok(None) };
            let Ok(place) = self.place(&judgement.call.tool)? else { return Ok(None) };
            let shown = Content::seal(judgement.card.to_canonical(), self.parts.entropy.as_ref());
            let deadline_ms = self.deadline_ms(&judgement.call.tool);
            let call = ProbeCall {
                admitted: judgement.body.admitted.clone(),
                verdict: judgement.verdict.clone(),
                policy: judgement.body.policy,
                facts: judgement.body.facts.clone(),
                card: shown.reference(),
                deadline_ms,
            };
            let body = ProbeStarted { epoch: self.epoch, cause: unknown.cause, call: Some(call) };
            let body = Body::ProbeStarted(body);
            match self.intend(body, &judgement, vec![shown]).await? {
                Intended::Permit(permit) => {
                    return self.hear_probe(*permit, place, &judgement, unknown).await;
                }
                Intended::Moved => {}
                Intended::Not => return Ok(None),
            }
        }
        Ok(None)
    }

    /// The probe's call, if it can be made: the tool is as it was when the run began, only reads, takes what it is to be
    /// handed, and the policy lets it.
    fn judge_probe(
        &self,
        probe: &Probe,
        unknown: &Unknown,
    ) -> Result<Option<Judgement>, GateError> {
        let started = self.open_step().filter(|step| step.status.is_started());
        let frozen = self.state.run.tools.iter().find(|tool| tool.name == probe.tool);
        let tool = self.parts.tools.get(&probe.tool).filter(|tool| {
            frozen.is_some_and(|frozen| frozen.spec == tool.described.digest)
                && !tool.described.spec.effect.changes_something()
        });
        let arguments = probe.arguments_for(&unknown.call.arguments);
        let (Some(step), Some(tool), Some(arguments)) = (started, tool, arguments) else {
            return Ok(None);
        };
        let origin = ProposalOrigin::Operator;
        let Some(call) = admit_probe(origin, arguments, step.id, &tool.described, &self.salt)
        else {
            return Ok(None);
        };
        let judgement = self.judge_call(call)?;
        Ok(matches!(judgement.verdict, Verdict::Allow { .. }).then_some(judgement))
    }

    async fn hear_probe(
        &mut self,
        permit: Permit,
        place: Option<Box<dyn Place>>,
        judgement: &Judgement,
        unknown: &Unknown,
    ) -> Result<Option<Ending>, GateError> {
        let tools = Arc::clone(&self.parts.tools);
        let tool =
            tools.get(&judgement.call.tool).ok_or(GateError::Bug("a started tool is gone"))?;
        let performed = self.perform(Arc::clone(&tool.source), permit, place).await;
        let spec = &tool.described.spec;
        let external = Labels::of(Origin::external(&spec.name));
        let failed =
            |failure, message: &str| self.observer().failed(failure, message, external.clone());
        let said = match performed {
            Performed::Answered(Ok(output)) => self.observer().answered(spec, output),
            Performed::Answered(Err(failure)) => failed(Failure::Error, &failure.to_string()),
            Performed::Panicked => failed(Failure::Panic, "the probe panicked"),
            Performed::Overdue(_) => failed(Failure::Timeout, "the probe's deadline passed"),
            Performed::NotBegun(why) => self.not_begun(why),
            Performed::Ended(_) => {
                self.ended_meanwhile().await?;
                return Ok(None);
            }
        };
        let whole = said.status == StepStatus::Done && !said.observation.cut;
        let answer = whole.then(|| ProbeAnswer::read(&said.value)).flatten();
        let labels = said.observation.labels.clone();
        let found = match answer {
            Some(ProbeAnswer::Happened(result)) => {
                let content = result.to_canonical();
                Reconciled::Happened(ToolOutput { content, labels: Some(labels.clone()) })
            }
            Some(ProbeAnswer::DidNotHappen) => Reconciled::DidNotHappen,
            None => Reconciled::Unknown,
        };
        let ending = self.ending_of(found, unknown, "the tool's probe", labels);
        self.found(ending, Some((said.observation, said.content))).await
    }

    /// What the host's reconciliation found; `None` when there is none, or it cannot say.
    async fn ask_host(&mut self, unknown: &Unknown) -> Result<Option<Ending>, GateError> {
        let Some(hook) = self.parts.reconcile.clone() else { return Ok(None) };
        let step = self.open_step().filter(|step| step.status.is_started()).map(|step| step.id);
        let Some(step) = step else { return Ok(None) };
        let body = ProbeStarted { epoch: self.epoch, cause: unknown.cause, call: None };
        let body = Body::ProbeStarted(body);
        self.record(|core| {
            let events = vec![core.event(Some(step), body.clone())];
            Ok(Batch { events, under_lease: true, ..Batch::default() })
        })
        .await?;
        if self.open_step().is_none_or(|step| step.status != StepStatus::Probing) {
            return Ok(None);
        }
        let Some(found) = self.look(hook, unknown).await else {
            self.ended_meanwhile().await?;
            return Ok(None);
        };
        let external = Labels::of(Origin::external(&unknown.card.tool));
        let ending = self.ending_of(found, unknown, "a reconciliation", external);
        self.found(ending, None).await
    }

    /// What something found makes of the step.
    fn ending_of(
        &self,
        found: Reconciled,
        unknown: &Unknown,
        who: &str,
        labels: Labels,
    ) -> (Found, Option<Ending>) {
        let failed = |failure, what: &str| {
            let message = format!("{who} found {what}");
            Ending::observed(self.observer().failed(failure, &message, labels))
        };
        match found {
            Reconciled::Unknown => (Found::Unknown, None),
            Reconciled::Happened(output) => {
                (Found::Happened, Some(self.answered_ending(&unknown.spec, output)))
            }
            // What outlived its deadline may still happen: that it has not so far settles nothing.
            Reconciled::DidNotHappen if unknown.cause == Failure::Timeout => (Found::Unknown, None),
            Reconciled::DidNotHappen => {
                let ending = failed(Failure::DidNotHappen, "that it did not happen");
                (Found::DidNotHappen, Some(ending))
            }
            Reconciled::Conflict => {
                let ending = failed(Failure::Crash, "what does not fit the record");
                let end = RunEnd::because(EndReason::ReconcileConflict);
                (Found::Conflict, Some(ending.ending(end)))
            }
        }
    }

    /// Puts what was found before the end that it leads to, or records that it leads to none.
    async fn found(
        &mut self,
        (found, ending): (Found, Option<Ending>),
        said: Option<(portcullis_domain::observation::Observation, Content)>,
    ) -> Result<Option<Ending>, GateError> {
        let step = self.open_step_id()?;
        let (observation, content) = said.unzip();
        let body = Body::ProbeFinished(ProbeFinished { found, observation });
        let event = self.event(Some(step), body);
        let contents: Vec<Content> = content.into_iter().collect();
        if let Some(ending) = ending {
            return Ok(Some(ending.after(vec![event], Vec::new()).bringing(contents)));
        }
        self.record(|_| {
            let (events, contents) = (vec![event.clone()], contents.clone());
            Ok(Batch { events, contents, ..Batch::default() })
        })
        .await?;
        Ok(None)
    }

    /// Asks the host, for as long as the tool itself may take; nothing when the run has ended. A panic says nothing.
    async fn look(&self, hook: Arc<dyn Reconcile>, unknown: &Unknown) -> Option<Reconciled> {
        let patience = unknown.spec.deadline();
        let _open = self.hold.open_call(self.parts.clock.monotonic(), patience);
        // Also one that panics before it has a future.
        let asked = AssertUnwindSafe(async { hook.reconcile(&unknown.card).await }).catch_unwind();
        match select(Box::pin(asked), pin!(self.cut(patience))).await {
            Either::Left((Ok(found), _)) => Some(found),
            Either::Left((Err(_), _)) | Either::Right((Cut::Overdue, _)) => {
                Some(Reconciled::Unknown)
            }
            Either::Right((Cut::Ended, _)) => None,
        }
    }
}
