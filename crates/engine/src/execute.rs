//! Executing an allowed call: commit 1, the effect, commit 2.

use std::sync::Arc;
use std::time::Duration;

use portcullis_canon::Digest;
use portcullis_domain::content::Content;
use portcullis_domain::event::{ApprovalUsed, Body, StepStarted};
use portcullis_domain::id::{QuestionId, StepId};
use portcullis_domain::label::{Labels, Origin};
use portcullis_domain::observation::Failure;
use portcullis_domain::permit::{self, BatchCall, BatchIntent, Intent};
use portcullis_domain::ports::{
    Append, Condition, Durability, NewEvent, Page, Place, StoreError, ToolFailure, ToolOutput,
};
use portcullis_domain::question::QuestionStatus;
use portcullis_domain::refusal::Refusal;
use portcullis_domain::run::EndReason;
use portcullis_domain::step::{Step, StepStatus};
use portcullis_domain::tally::Counted;
use portcullis_domain::tool::ToolSpec;
use portcullis_domain::verdict::Verdict;

use crate::core::{Core, Ending, Progress, Ready, RunEnd, moved};
use crate::count::limit_of;
use crate::effect::{NotBegun, Performed, Running};
use crate::error::GateError;
use crate::heartbeat::Cover;
use crate::late;
use crate::observe::Outcome;
use crate::recover::Unknown;
use crate::step::Judgement;

/// How often commit 1 is composed anew when something was recorded meanwhile.
pub(crate) const MAX_TRIES: u32 = 8;

/// How many of the last steps are looked through for an outcome whose commit was in doubt.
const LOOKED_AT: u32 = 8;

/// What became of an execution.
pub(crate) enum Concluded {
    /// It is recorded where it belongs.
    Done(Progress),
    /// The run had ended meanwhile.
    Late(Box<Outcome>),
}

/// What came of a call.
pub(crate) struct Came {
    /// The end of its step; else why it is not known what the call did, and one sentence about it.
    pub(crate) ending: Result<Ending, (Failure, String)>,
    /// The call itself, when it outlived its deadline.
    pub(crate) running: Option<Running>,
}

impl From<Ending> for Came {
    fn from(ending: Ending) -> Self {
        Self { ending: Ok(ending), running: None }
    }
}

/// A second start of which nothing came says nothing about the first: its outcome is as unknown as it was.
fn still_unknown(before: Option<Failure>, performed: &Performed) -> Option<(Failure, String)> {
    let first = before?;
    let why = match performed {
        Performed::Answered(Err(
            failure @ (ToolFailure::NothingHappened { .. }
            | ToolFailure::Lacking { .. }
            | ToolFailure::Abort { .. }),
        )) => failure.to_string(),
        Performed::Answered(Err(failure @ ToolFailure::Failed { .. })) => {
            return Some((
                first,
                format!(
                    "made again with its key, the call failed ({failure}); what it did before is not known"
                ),
            ));
        }
        Performed::NotBegun(NotBegun::NoPlace) => "it found no place".to_owned(),
        Performed::NotBegun(NotBegun::Uncovered) => "the lease was about to end".to_owned(),
        Performed::Answered(_)
        | Performed::Panicked
        | Performed::Overdue(_)
        | Performed::Ended(_) => return None,
    };
    let detail = format!(
        "made again with its key, the call did nothing ({why}); what it did before is not known"
    );
    Some((first, detail))
}

impl Core {
    /// Executes the allowed call: commit 1, the effect, commit 2.
    pub(crate) async fn execute(&mut self) -> Result<Progress, GateError> {
        if let Some(ended) = self.ended() {
            return Ok(ended);
        }
        if !self.members.is_empty() {
            return Box::pin(self.execute_batch()).await;
        }
        let grant = self.ready()?.grant;
        if !self.is_performed(&self.ready()?.judgement.call.tool)? {
            return Err(GateError::Misuse("a host makes this call by itself: hand it the verdict"));
        }
        if self.lease_lost() {
            return self.ended_meanwhile().await;
        }
        if let Some(ended) = self.expire_grant(grant).await? {
            return Ok(ended);
        }
        for _ in 0..MAX_TRIES {
            self.judge_ready()?;
            if !self.stands(grant) {
                let judgement = self.take_ready()?.judgement;
                return self.follow(judgement, None).await;
            }
            if let Some(refusal) = self.refuses_child(&self.ready()?.judgement).await? {
                let outcome = self.observer().denied(refusal, None, Labels::none());
                return self.refuse(outcome).await;
            }
            let place = match self.place(&self.ready()?.judgement.call.tool)? {
                Ok(place) => place,
                Err(error) if grant.is_some() => return Err(error),
                Err(_) => return self.refuse_place().await,
            };
            let ready = self.take_ready()?;
            let error = match self.start(&ready.judgement, grant).await {
                Ok(permit) if self.state.child().is_some() => {
                    return self.begin_child(permit).await;
                }
                Ok(permit) => return self.finish(permit, place, ready.judgement, None).await,
                Err(error) => error,
            };
            self.ready = Some(ready);
            if let GateError::Store(StoreError::OutcomeOpen { question }) = error
                && grant.is_none()
            {
                return self.refuse_open(question).await;
            }
            // A grant is kept for when there is room again.
            if let (Some(limit), None) = (limit_of(&error), grant) {
                let judgement = self.take_ready()?.judgement;
                return self.refuse_bounded(judgement, limit).await;
            }
            if let Some(progress) = self.without_permit(error).await? {
                return Ok(progress);
            }
        }
        Err(StoreError::Stale.into())
    }

    fn ready(&self) -> Result<&Ready, GateError> {
        self.ready.as_ref().ok_or(GateError::Misuse("no call is allowed"))
    }

    pub(crate) fn take_ready(&mut self) -> Result<Ready, GateError> {
        self.ready.take().ok_or(GateError::Misuse("no call is allowed"))
    }

    /// Whether the ready call may run: it is allowed, or the grant covers it.
    pub(crate) fn stands(&self, grant: Option<QuestionId>) -> bool {
        self.ready.as_ref().is_some_and(|ready| match &ready.judgement.verdict {
            Verdict::Allow { .. } => true,
            Verdict::Ask { .. } => self.covers(grant, ready.judgement.body.admitted.call),
            Verdict::Deny { .. } | Verdict::Abort { .. } => false,
        })
    }

    /// Whether a grant covers exactly this call.
    fn covers(&self, grant: Option<QuestionId>, call: Digest) -> bool {
        self.state.question.as_ref().is_some_and(|q| Some(q.id) == grant && q.call == call)
    }

    /// A place for a blocking call, taken before its intent: an approval is not spent on a call that cannot begin.
    pub(crate) fn place(
        &self,
        name: &str,
    ) -> Result<Result<Option<Box<dyn Place>>, GateError>, GateError> {
        let tool = self.parts.tools.get(name);
        let tool = tool.ok_or_else(|| GateError::ToolMissing(name.to_owned()))?;
        if !tool.source.blocks() {
            return Ok(Ok(None));
        }
        Ok(self.parts.spawn.place().map(Some).map_err(|_| GateError::NoCapacity))
    }

    async fn refuse_place(&mut self) -> Result<Progress, GateError> {
        let outcome = self.observer().denied(Refusal::NoCapacity, None, Labels::none());
        self.refuse(outcome).await
    }

    /// Another call of the tool waits for somebody to say what it did.
    async fn refuse_open(&mut self, question: QuestionId) -> Result<Progress, GateError> {
        let note = format!(
            "{question} has to be answered first: it is not known what an earlier call of this tool did"
        );
        let outcome = self.observer().denied(Refusal::OutcomeUnknown, Some(&note), Labels::none());
        self.refuse(outcome).await
    }

    pub(crate) async fn refuse(&mut self, outcome: Outcome) -> Result<Progress, GateError> {
        let judgement = self.take_ready()?.judgement;
        let before = self.judged(&judgement)?;
        self.end_step(Ending::observed(outcome).after(before, judgement.specs())).await
    }

    /// What becomes of a first commit 1 that gave no permit, of one call or of several; `None` when it is to be judged
    /// and tried again.
    pub(crate) async fn without_permit(
        &mut self,
        error: GateError,
    ) -> Result<Option<Progress>, GateError> {
        match error {
            GateError::Store(StoreError::InDoubt) => self.settle_doubt().await,
            GateError::Store(StoreError::LeaseLost) => self.ended_meanwhile().await.map(Some),
            GateError::Store(StoreError::ParentEnded) => self.ended_with_parent().await.map(Some),
            GateError::Store(error) if moved(&error) => {
                self.reload().await?;
                Ok(self.ended())
            }
            error => Err(error),
        }
    }

    /// Commit 1 is in doubt, and no permit was made: nothing happened. If the intents were stored, that is recorded;
    /// `None` when they were not stored.
    async fn settle_doubt(&mut self) -> Result<Option<Progress>, GateError> {
        self.reload().await?;
        let executing = self.open_step().is_some_and(|step| step.status == StepStatus::Executing);
        if !executing {
            return Ok(self.ended());
        }
        let message = "the intent could not be confirmed, so the call was not made";
        let outcome = |core: &Self| core.observer().failed(Failure::Error, message, Labels::none());
        self.end_started(outcome).await.map(Some)
    }

    /// The intent of a step's first start: verdict, use of the grant, the start, and its count in the conversation.
    async fn start(
        &mut self,
        judgement: &Judgement,
        grant: Option<QuestionId>,
    ) -> Result<permit::Permit, GateError> {
        let step = self.open_step_id()?;
        let start = self.open_step().map_or(1, |step| step.starts.saturating_add(1));
        let mut events = self.judged(judgement)?;
        if let Some(question) = grant {
            events.push(self.event(Some(step), Body::ApprovalUsed(ApprovalUsed { question })));
            // Its time may have passed since it was checked: what was read in between took some.
            let now = self.parts.clock.now();
            if self.state.question.as_ref().is_some_and(|question| question.is_over(now)) {
                return Err(StoreError::QuestionState { status: QuestionStatus::Expired }.into());
            }
        }
        let started = StepStarted {
            call: judgement.body.admitted.call,
            epoch: self.epoch,
            deadline_ms: self.deadline_ms(&judgement.call.tool),
            start,
        };
        events.push(self.event(Some(step), Body::StepStarted(started)));
        if start == 1 {
            let counting = self.counting(judgement, grant.is_some()).await?;
            events.extend(self.counted(step, Counted::Call(counting)));
        } else {
            self.keep_round(&judgement.call).await?;
        }
        events.extend(self.child_awaited(judgement)?);
        let permit = self.commit_intent(events, judgement, Vec::new()).await?;
        // Nobody was asked yet what this start did.
        self.probes = 0;
        Ok(permit)
    }

    pub(crate) fn deadline_ms(&self, tool: &str) -> u64 {
        self.parts.tools.get(tool).map_or(0, |tool| tool.described.spec.deadline_ms)
    }

    /// Commit 1 of one call: `events` begin it. No permit is made in another way, but for calls that are begun together,
    /// whose commit differs in their number alone.
    pub(crate) async fn commit_intent(
        &mut self,
        events: Vec<NewEvent>,
        judgement: &Judgement,
        contents: Vec<Content>,
    ) -> Result<permit::Permit, GateError> {
        let deadline = self.deadline(&judgement.call.tool)?;
        let step = self.open_step_id()?;
        let intent = Intent {
            run: self.run_id(),
            step,
            card: judgement.card.clone(),
            salt: self.salt.clone(),
            deadline,
            append: self.intent(events, contents, judgement.specs(), deadline).await?,
        };
        let receipt = permit::commit(self.parts.store.as_ref(), &self.scope, intent).await?;
        let (permit, committed) = receipt.into_permit(self.standing());
        self.fold(&committed).await?;
        Ok(permit)
    }

    /// Commit 1 of calls that are begun together: the same, with an intent for each.
    pub(crate) async fn commit_intents(
        &mut self,
        events: Vec<NewEvent>,
        calls: Vec<BatchCall>,
        specs: Vec<Vec<u8>>,
    ) -> Result<Vec<permit::Permit>, GateError> {
        let longest = calls.iter().map(|call| call.deadline).max().unwrap_or_default();
        let append = self.intent(events, Vec::new(), specs, longest).await?;
        let intent = BatchIntent { run: self.run_id(), calls, salt: self.salt.clone(), append };
        let receipt = permit::commit_batch(self.parts.store.as_ref(), &self.scope, intent).await?;
        let (permits, committed) = receipt.into_permits(&self.standing());
        self.fold(&committed).await?;
        Ok(permits)
    }

    /// The append of commit 1, once the lease covers calls that may take so long: synced, and conditional on lease,
    /// sequence and labels.
    async fn intent(
        &self,
        events: Vec<NewEvent>,
        contents: Vec<Content>,
        specs: Vec<Vec<u8>>,
        longest: Duration,
    ) -> Result<Append, GateError> {
        self.require_cover(longest).await?;
        let condition = self.intent_condition();
        Ok(Append { condition, events, contents, specs, durability: Durability::Synced })
    }

    /// How long a call of the tool may take.
    pub(crate) fn deadline(&self, tool: &str) -> Result<Duration, GateError> {
        let found = self.parts.tools.get(tool);
        let found = found.ok_or_else(|| GateError::ToolMissing(tool.to_owned()))?;
        Ok(found.described.spec.deadline())
    }

    /// What has to hold when an effect is about to begin: nothing was recorded since the policy looked, no label was
    /// added, and the lease runs.
    pub(crate) fn intent_condition(&self) -> Condition {
        Condition::Driver {
            run: self.run_id(),
            seq: self.state.run.seq,
            epoch: self.epoch,
            take: None,
            live_at: Some(self.parts.clock.now()),
            label_seq: Some(self.thread.label_seq),
        }
    }

    /// A call that may last longer than the lease needs renewals that work. One that is not answered yet is waited for.
    pub(crate) async fn require_cover(&self, deadline: Duration) -> Result<(), GateError> {
        match self.hold.settled_cover(self.parts.clock.as_ref(), deadline).await {
            Cover::Holds => Ok(()),
            Cover::Short | Cover::Pending => Err(GateError::Uncovered),
            Cover::Over => Err(StoreError::LeaseLost.into()),
        }
    }

    /// The effect and commit 2. `before` says why the outcome of the start before is not known, if this one settles it.
    pub(crate) async fn finish(
        &mut self,
        permit: permit::Permit,
        place: Option<Box<dyn Place>>,
        judgement: Judgement,
        before: Option<Failure>,
    ) -> Result<Progress, GateError> {
        let tools = Arc::clone(&self.parts.tools);
        let tool =
            tools.get(&judgement.call.tool).ok_or(GateError::Bug("a started tool is gone"))?;
        let step = permit.step();
        let source = Arc::clone(&tool.source);
        let performed = self.perform(source, permit, place).await;
        let concluded = self.conclude(step, performed, &judgement, before).await?;
        self.settle(step, concluded).await
    }

    /// Records a late outcome where it belongs.
    pub(crate) async fn settle(
        &mut self,
        step: StepId,
        concluded: Concluded,
    ) -> Result<Progress, GateError> {
        match concluded {
            Concluded::Done(progress) => Ok(progress),
            Concluded::Late(outcome) => {
                late::record(&self.parts, &self.scope, self.run_id(), step, self.epoch, *outcome)
                    .await;
                self.reload().await?;
                Ok(self.progress())
            }
        }
    }

    async fn conclude(
        &mut self,
        step: StepId,
        performed: Performed,
        judgement: &Judgement,
        before: Option<Failure>,
    ) -> Result<Concluded, GateError> {
        let tools = Arc::clone(&self.parts.tools);
        let tool =
            tools.get(&judgement.call.tool).ok_or(GateError::Bug("a started tool is gone"))?;
        let spec = &tool.described.spec;
        let unknown = |cause, detail| Unknown {
            call: judgement.call.clone(),
            card: judgement.card.clone(),
            spec: spec.clone(),
            digest: judgement.body.admitted.call,
            cause,
            detail,
        };
        if let Some((cause, detail)) = still_unknown(before, &performed) {
            return self.resolve(unknown(cause, detail)).await;
        }
        let Came { ending, running } = match self.came(spec, performed) {
            Ok(came) => came,
            Err(running) => {
                late::watch(self, step, running, spec.clone());
                return self.ended_meanwhile().await.map(Concluded::Done);
            }
        };
        let concluded = match ending {
            Ok(ending) => self.end_executed(ending).await,
            Err((cause, detail)) => self.resolve(unknown(cause, detail)).await,
        };
        if let Some(running) = running {
            late::watch(self, step, running, spec.clone());
        }
        concluded
    }

    /// What came of a call; `Err` with the call itself when the run ended under it.
    pub(crate) fn came(&self, spec: &ToolSpec, performed: Performed) -> Result<Came, Running> {
        let (ending, cause, running) = match performed {
            Performed::Answered(Ok(output)) => {
                return Ok(self.answered_ending(spec, output).into());
            }
            Performed::NotBegun(why) => return Ok(Ending::observed(self.not_begun(why)).into()),
            Performed::Ended(running) => return Err(running),
            Performed::Answered(Err(failure)) => {
                let cause = (Failure::LostConnection, failure.to_string());
                (self.failed_ending(spec, failure), cause, None)
            }
            Performed::Panicked => {
                let message = "the tool panicked";
                let cause = (Failure::Panic, message.to_owned());
                (self.cut_off(spec, Failure::Panic, message), cause, None)
            }
            Performed::Overdue(running) => {
                let message = "the deadline passed, and the call may still be running";
                let cause = (Failure::Timeout, message.to_owned());
                (self.cut_off(spec, Failure::Timeout, message), cause, Some(running))
            }
        };
        Ok(Came { ending: ending.ok_or(cause), running })
    }

    /// What is observed of a call that was not begun: nothing happened.
    pub(crate) fn not_begun(&self, why: NotBegun) -> Outcome {
        match why {
            NotBegun::NoPlace => self.observer().denied(Refusal::NoCapacity, None, Labels::none()),
            NotBegun::Uncovered => {
                let message =
                    "the lease might have ended before the call, so the call was not made";
                self.observer().failed(Failure::Error, message, Labels::none())
            }
        }
    }

    /// How the run ended meanwhile.
    ///
    /// # Errors
    /// [`StoreError::LeaseLost`] when it has not ended.
    pub(crate) async fn ended_meanwhile(&mut self) -> Result<Progress, GateError> {
        self.reload().await?;
        self.ended().ok_or_else(|| StoreError::LeaseLost.into())
    }

    /// The end of a step whose tool answered; a terminal tool ends the run too.
    pub(crate) fn answered_ending(&self, spec: &ToolSpec, output: ToolOutput) -> Ending {
        let outcome = self.observer().answered(spec, output);
        let done = outcome.status == StepStatus::Done;
        let observed_result = outcome.observation.content;
        let ending = Ending::observed(outcome);
        if spec.terminal && done {
            ending.ending(RunEnd { observed_result, ..RunEnd::because(EndReason::GoalCompleted) })
        } else {
            ending
        }
    }

    /// The end of a step whose tool failed; `None` when what it did is not known.
    fn failed_ending(&self, spec: &ToolSpec, failure: ToolFailure) -> Option<Ending> {
        let labels = || Labels::of(Origin::external(&spec.name));
        let failed = |failure, message: &str| {
            Ending::observed(self.observer().failed(failure, message, labels()))
        };
        match failure {
            ToolFailure::NothingHappened { message } => Some(failed(Failure::Error, &message)),
            ToolFailure::Lacking { lack, message } => {
                Some(Ending::observed(self.observer().lacking(&lack, &message, labels())))
            }
            ToolFailure::Failed { message } => {
                Some(Ending::observed(self.observer().refused(spec, &message)))
            }
            ToolFailure::Abort { message } => {
                Some(failed(Failure::Abort, &message).ending(RunEnd::because(EndReason::ToolAbort)))
            }
            ToolFailure::Unknown { message } => {
                self.cut_off(spec, Failure::LostConnection, &message)
            }
        }
    }

    /// The end of a step whose call was cut off; `None` when it may have changed something.
    fn cut_off(&self, spec: &ToolSpec, failure: Failure, message: &str) -> Option<Ending> {
        if spec.effect.changes_something() {
            return None;
        }
        let labels = Labels::of(Origin::external(&spec.name));
        Some(Ending::observed(self.observer().failed(failure, message, labels)))
    }

    /// Commit 2. When the run went on without this driver, or its lease has ended, the outcome is recorded as late.
    pub(crate) async fn end_executed(&mut self, ending: Ending) -> Result<Concluded, GateError> {
        let place = self.open_place();
        let ending = ending.under_lease();
        // What is read anew may be another step.
        let step = self.open_or_last()?;
        let recorded = self.record_end(&ending).await;
        match (recorded, ending.outcome) {
            (Ok(Progress::Ended(_)), Some(outcome)) if !self.finished_here() => {
                Ok(Concluded::Late(Box::new(outcome)))
            }
            (Ok(progress), outcome) => {
                self.remember(place, outcome);
                Ok(Concluded::Done(progress))
            }
            (Err(GateError::Store(StoreError::LeaseLost)), Some(outcome)) => {
                let run = self.run_id();
                if !self.is_recorded(step, &outcome).await {
                    late::record(&self.parts, &self.scope, run, step, self.epoch, outcome).await;
                }
                Err(StoreError::LeaseLost.into())
            }
            (Err(error), _) => Err(error),
        }
    }

    /// True when the latest step has the observation of its own execution.
    pub(crate) fn finished_here(&self) -> bool {
        self.state.step().is_some_and(|step| step.observation.is_some())
    }

    /// Whether the step ended with exactly this outcome after all: its commit was in doubt, and is stored.
    async fn is_recorded(&self, step: StepId, outcome: &Outcome) -> bool {
        let last = self.state.run.step_count;
        let rows = self.rows(last.saturating_sub(u64::from(LOOKED_AT)), LOOKED_AT).await;
        is_among(&rows, step, outcome)
    }

    /// The rows of so many steps from an index on, as far as they can be read.
    pub(crate) async fn rows(&self, first: u64, limit: u32) -> Vec<Step> {
        let page = Page { offset: first, limit };
        let read = self.parts.store.steps(&self.scope, self.run_id(), page).await;
        read.map(|rows| rows.rows.into_iter().flatten().collect()).unwrap_or_default()
    }

    fn open_or_last(&self) -> Result<StepId, GateError> {
        self.state
            .step()
            .map(|step| step.id)
            .ok_or(GateError::Bug("a run that executed has no step"))
    }
}

/// Whether a step ended with exactly this outcome. Contents are salted, so that no other outcome is the same.
pub(crate) fn is_among(rows: &[Step], step: StepId, outcome: &Outcome) -> bool {
    rows.iter().any(|row| row.id == step && row.observation.as_ref() == Some(&outcome.observation))
}
