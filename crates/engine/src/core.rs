//! The core of a held run: its live window, and the appends that move it on.
//!
//! Every method here runs inside a task that the engine owns. A method either appends and folds what was
//! committed, or changes nothing.

use std::sync::Arc;
use std::time::Duration;

use portcullis_canon::{Digest, Limits, Value, parse};
use portcullis_domain::content::{Content, ContentRef};
use portcullis_domain::event::{
    Body, LeaseReleased, ReadAs, RunFinished, StepFinished, StepProposed,
};
use portcullis_domain::fold::RunState;
use portcullis_domain::id::{QuestionId, RunId, StepId};
use portcullis_domain::lease::Epoch;
use portcullis_domain::ports::{
    AdvertisedTool, Append, Committed, Condition, Disposition, Durability, Monotonic, NewEvent,
    SeenStep, StoreError,
};
use portcullis_domain::proposal::{ProposalKind, ProposalOrigin};
use portcullis_domain::run::{EndReason, RunStatus};
use portcullis_domain::scope::Scope;
use portcullis_domain::step::{Step, StepStatus};
use portcullis_domain::stream::Stream;
use portcullis_domain::thread::Thread;
use portcullis_domain::time::Timestamp;
use portcullis_domain::verdict::Facts;

use crate::advise::Asking;
use crate::batch::Member;
use crate::compose;
use crate::count::Round;
use crate::error::GateError;
use crate::heartbeat::Hold;
use crate::observe::{Observer, Outcome};
use crate::parts::Parts;
use crate::step::Judgement;

/// What became of one operation on a held run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Progress {
    /// A step is open and awaits a proposal.
    Open,
    /// The open step's call is allowed: execute it.
    Allowed,
    /// The step ended with an observation; the next one is open, unless the run ended too.
    Observed,
    /// A person is asked; the lease is released.
    Waiting(QuestionId),
    /// The call is this run, which is to be driven first; the lease is released.
    Child(RunId),
    /// The run ended.
    Ended(EndReason),
}

/// A call that was allowed and not yet executed.
#[derive(Clone, Debug)]
pub(crate) struct Ready {
    pub(crate) judgement: Judgement,
    /// The question whose grant the execution uses.
    pub(crate) grant: Option<QuestionId>,
}

/// How often an append is composed anew when something was recorded meanwhile.
const MAX_TRIES: u32 = 8;

/// A run whose lease is held here.
pub(crate) struct Core {
    pub(crate) parts: Parts,
    pub(crate) scope: Scope,
    pub(crate) state: RunState,
    pub(crate) thread: Thread,
    pub(crate) goal: String,
    pub(crate) salt: Vec<u8>,
    pub(crate) epoch: Epoch,
    pub(crate) active_since: Monotonic,
    pub(crate) ready: Option<Ready>,
    /// The calls of a batch that were allowed and not yet made; none without one.
    pub(crate) members: Vec<Member>,
    /// The frozen set as its agent sees it.
    pub(crate) advertised: Arc<[AdvertisedTool]>,
    /// The arguments of the open step's proposal, as they were proposed.
    pub(crate) proposed: Option<Value>,
    /// The last step as the agent is to see it, or the steps of the last batch; none once they were shown.
    pub(crate) last: Vec<SeenStep>,
    /// How often the open step's outcome was asked after without an answer.
    pub(crate) probes: u32,
    /// The call of the last step that was counted, for the loop detector; nothing where none is compared.
    pub(crate) round: Option<Round>,
    /// Who is asked where a host acts by itself.
    pub(crate) asking: Asking,
    /// What the heartbeat sees of this core, and says to it.
    pub(crate) hold: Arc<Hold>,
}

/// What an append holds, beside the condition.
#[derive(Clone, Debug, Default)]
pub(crate) struct Batch {
    pub(crate) events: Vec<NewEvent>,
    pub(crate) contents: Vec<Content>,
    pub(crate) specs: Vec<Vec<u8>>,
    /// Whether the lease has to run still.
    pub(crate) under_lease: bool,
}

impl Core {
    pub(crate) fn run_id(&self) -> RunId {
        self.state.run.id
    }

    pub(crate) fn observer(&self) -> Observer<'_> {
        Observer { salt: &self.salt, entropy: self.parts.entropy.as_ref() }
    }

    pub(crate) fn event(&self, step: Option<StepId>, body: Body) -> NewEvent {
        self.event_at(self.parts.clock.now(), step, body)
    }

    fn event_at(&self, at: Timestamp, step: Option<StepId>, body: Body) -> NewEvent {
        NewEvent { stream: Stream::from(self.run_id()), step, at, body }
    }

    pub(crate) fn condition(&self) -> Condition {
        Condition::Driver {
            run: self.run_id(),
            seq: self.state.run.seq,
            epoch: self.epoch,
            take: None,
            live_at: None,
            label_seq: None,
        }
    }

    /// The open step.
    pub(crate) fn open_step(&self) -> Option<&Step> {
        self.state.step().filter(|step| !step.status.is_final())
    }

    pub(crate) fn open_step_id(&self) -> Result<StepId, GateError> {
        self.open_step().map(|step| step.id).ok_or(GateError::Misuse("no step is open"))
    }

    /// How the run ended, if it did.
    pub(crate) fn ended(&self) -> Option<Progress> {
        self.state.run.reason.filter(|_| self.state.run.status.is_terminal()).map(Progress::Ended)
    }

    pub(crate) fn progress(&self) -> Progress {
        if let Some(ended) = self.ended() {
            return ended;
        }
        if let Some((_, child)) = self.state.child() {
            return Progress::Child(child);
        }
        match (self.state.run.status, self.state.run.question, self.is_ready()) {
            (RunStatus::Waiting, Some(question), false) => Progress::Waiting(question),
            (_, _, true) => Progress::Allowed,
            _ => Progress::Observed,
        }
    }

    /// Whether what the open step proposes is allowed and not yet made.
    fn is_ready(&self) -> bool {
        self.ready.is_some() || !self.members.is_empty()
    }

    /// Facts for the policy, copied.
    pub(crate) fn facts(&self, origin: ProposalOrigin) -> Facts {
        let run = &self.state.run;
        Facts {
            tenant: run.tenant.clone(),
            owner: run.owner.clone(),
            origin,
            steps: run.step_count.saturating_sub(1),
            failures: run.failures,
            denials: run.denials,
            active_us: run.active_us,
            labels: self.thread.labels.clone(),
            label_seq: self.thread.label_seq,
        }
    }

    /// Active time since the last record of it, in microseconds.
    pub(crate) fn take_active_us(&mut self) -> u64 {
        let now = self.parts.clock.monotonic();
        let active_us = now.micros_since(self.active_since);
        self.active_since = now;
        active_us
    }

    /// Appends under this driver's condition and folds what was committed.
    pub(crate) async fn append(
        &mut self,
        batch: Batch,
        durability: Durability,
    ) -> Result<(), GateError> {
        let mut condition = self.condition();
        if let (true, Condition::Driver { live_at, .. }) = (batch.under_lease, &mut condition) {
            *live_at = Some(self.parts.clock.now());
        }
        let append = Append {
            condition,
            events: batch.events,
            contents: batch.contents,
            specs: batch.specs,
            durability,
        };
        let committed = self.parts.store.append(&self.scope, append).await?;
        self.fold(&committed).await
    }

    pub(crate) async fn fold(&mut self, committed: &Committed) -> Result<(), GateError> {
        let run = Stream::from(self.run_id());
        let thread = Stream::from(self.thread.id);
        for event in &committed.events {
            if event.link.stream == run {
                self.state
                    .apply(event)
                    .map_err(|_| GateError::Bug("the fold refuses a committed event"))?;
            } else if event.link.stream == thread && self.thread.apply(event).is_err() {
                // Another run of the thread was first; the committed row has both.
                let read = self.parts.store.thread(&self.scope, self.thread.id).await?;
                self.thread = read.ok_or(StoreError::NotFound("thread"))?;
            }
        }
        Ok(())
    }

    /// Reads the run again after something else was recorded.
    pub(crate) async fn reload(&mut self) -> Result<(), GateError> {
        let state = self
            .parts
            .store
            .run(&self.scope, self.run_id())
            .await?
            .ok_or(StoreError::NotFound("run"))?;
        let thread = self
            .parts
            .store
            .thread(&self.scope, self.thread.id)
            .await?
            .ok_or(StoreError::NotFound("thread"))?;
        self.state = state;
        self.thread = thread;
        let held = self.state.run.epoch == self.epoch && self.state.run.holder.is_some();
        if held || self.state.run.status.is_terminal() {
            Ok(())
        } else {
            Err(StoreError::LeaseLost.into())
        }
    }

    /// Appends what `build` composes from the current state; composes anew when something else was recorded
    /// meanwhile, and tries again for a while when the store cannot take it just now.
    pub(crate) async fn record(
        &mut self,
        build: impl Fn(&Self) -> Result<Batch, GateError>,
    ) -> Result<Progress, GateError> {
        let begun = self.parts.clock.monotonic();
        let patience_us = self.parts.timing.record.as_micros();
        let mut tries = 0_u32;
        loop {
            if let Some(ended) = self.ended() {
                return Ok(ended);
            }
            let batch = build(self)?;
            let error = match self.append(batch, Durability::Synced).await {
                Ok(()) => return Ok(self.progress()),
                Err(GateError::Store(error))
                    if moved(&error) || error.disposition() == Disposition::Retry =>
                {
                    error
                }
                Err(error) => return Err(error),
            };
            tries = tries.saturating_add(1);
            let waited_us = u128::from(self.parts.clock.monotonic().micros_since(begun));
            if waited_us > patience_us || (moved(&error) && tries >= MAX_TRIES) {
                return Err(error.into());
            }
            if !moved(&error) {
                let pause = Duration::from_millis(10_u64.saturating_mul(u64::from(tries)).min(500));
                self.parts.clock.sleep(pause).await;
            }
            // An append in doubt may have been stored: then the step is no longer open as it was.
            let before = self.state.step().map(|step| (step.id, step.status));
            self.reload().await?;
            if self.ended().is_none()
                && self.state.step().map(|step| (step.id, step.status)) != before
            {
                return Ok(self.progress());
            }
        }
    }

    /// Opens the next step, or ends the run when a limit is met.
    pub(crate) async fn open_next(&mut self) -> Result<Progress, GateError> {
        if let Some(ended) = self.ended() {
            return Ok(ended);
        }
        if let Some(step) = self.open_step() {
            return match step.status {
                StepStatus::Deciding if step.proposal.is_none() => Ok(Progress::Open),
                // Its outcome could not be recorded: only taking the run up again can say what became of it.
                status if status.is_started() => {
                    Err(GateError::Misuse("the outcome of a call is not recorded; attach again"))
                }
                // The same for a proposal that something kept from being judged.
                StepStatus::Deciding if !self.is_ready() => {
                    Err(GateError::Misuse("a recorded proposal is not judged; attach again"))
                }
                _ => Ok(self.progress()),
            };
        }
        let opened = self
            .record(|core| {
                let id = StepId::draw(core.parts.clock.now(), core.parts.entropy.as_ref());
                let event = compose::next(&core.state, id, core.parts.clock.now());
                Ok(Batch { events: vec![event], ..Batch::default() })
            })
            .await?;
        Ok(if opened == Progress::Observed { Progress::Open } else { opened })
    }

    /// Records the raw bytes of a proposal before anything looks at them: written, so that it survives the end of
    /// this process, and synced by the next append that is.
    pub(crate) async fn record_proposal(&mut self, raw: &Content) -> Result<(), GateError> {
        let step = self.open_step_id()?;
        let body = Body::StepProposed(StepProposed { proposal: raw.reference() });
        let batch = Batch {
            events: vec![self.event(Some(step), body)],
            contents: vec![raw.clone()],
            ..Batch::default()
        };
        self.append(batch, Durability::Written).await
    }

    /// Ends the open step with an outcome, and opens the next one or ends the run in the same append.
    pub(crate) async fn end_step(&mut self, ending: Ending) -> Result<Progress, GateError> {
        let open = self.open_place();
        let progress = self.record_end(&ending).await?;
        self.remember(open, ending.outcome);
        Ok(progress)
    }

    /// The open step's index and its tool.
    pub(crate) fn open_place(&self) -> Option<(u64, Option<String>)> {
        let tool = |step: &Step| step.admitted.as_ref().map(|admitted| admitted.tool.clone());
        self.open_step().map(|step| (step.index, tool(step)))
    }

    /// Records an ending.
    pub(crate) async fn record_end(&mut self, ending: &Ending) -> Result<Progress, GateError> {
        let step = self.open_step_id()?;
        let active_us = self.take_active_us();
        self.ready = None;
        self.record(|core| core.compose_end(step, ending, active_us)).await
    }

    /// Keeps the outcome of the step that was open at `place` for the agent's next view.
    pub(crate) fn remember(
        &mut self,
        place: Option<(u64, Option<String>)>,
        outcome: Option<Outcome>,
    ) {
        let seen = place.zip(outcome).map(|((request, tool), outcome)| SeenStep {
            request,
            tool,
            arguments: self.proposed.take(),
            outcome: outcome.observation.kind.as_str().to_owned(),
            content: outcome.value,
            external: outcome.observation.labels.is_external(),
        });
        self.last = seen.into_iter().collect();
    }

    fn compose_end(
        &self,
        step: StepId,
        ending: &Ending,
        active_us: u64,
    ) -> Result<Batch, GateError> {
        let now = self.parts.clock.now();
        let mut events = ending.before.clone();
        let mut contents = ending.contents.clone();
        let observation = ending.outcome.as_ref().map(|outcome| outcome.observation.clone());
        let finished = StepFinished {
            status: ending.outcome.as_ref().map_or(ending.status, |outcome| outcome.status),
            read: ending.read,
            observation: observation.clone(),
            active_us,
        };
        events.push(self.event_at(now, Some(step), Body::StepFinished(finished)));
        contents.extend(ending.outcome.as_ref().map(|outcome| outcome.content.clone()));
        let labels = observation.map(|observation| observation.labels).unwrap_or_default();
        events.extend(self.thread.labelled(labels, self.run_id(), step, now));
        let outcome = ending.outcome.as_ref();
        events.extend(outcome.and_then(|outcome| self.counted_end(step, outcome, now)));
        let last = match &ending.end {
            Some(end) => {
                contents.extend(end.note.iter().chain(&end.result).cloned());
                let reference =
                    |content: &Option<Content>| content.as_ref().map(Content::reference);
                let body = RunFinished {
                    reason: end.reason,
                    note: reference(&end.note),
                    result: reference(&end.result).or(end.observed_result),
                    by: None,
                };
                self.event_at(now, None, Body::RunFinished(body))
            }
            None => {
                let state = compose::preview(&self.state, &events)
                    .map_err(|_| GateError::Bug("the fold refuses the end of a step"))?;
                compose::next(&state, StepId::draw(now, self.parts.entropy.as_ref()), now)
            }
        };
        events.push(last);
        let (specs, under_lease) = (ending.specs.clone(), ending.under_lease);
        Ok(Batch { events, contents, specs, under_lease })
    }

    /// Lets the lease go without ending the run.
    pub(crate) async fn release(&mut self) -> Result<(), GateError> {
        if self.state.run.holder.is_none() || self.state.run.status.is_terminal() {
            return Ok(());
        }
        let body = Body::LeaseReleased(LeaseReleased { epoch: self.epoch });
        let batch = Batch { events: vec![self.event(None, body)], ..Batch::default() };
        self.append(batch, Durability::Synced).await
    }

    pub(crate) fn lease_lost(&self) -> bool {
        self.hold.is_lost()
    }
}

/// True when something else was recorded since this driver looked: it has to look again.
pub(crate) const fn moved(error: &StoreError) -> bool {
    matches!(error, StoreError::Stale | StoreError::LabelsMoved | StoreError::RunState { .. })
}

/// How a step ends.
#[derive(Debug)]
pub(crate) struct Ending {
    /// Events of the same append that come first.
    pub(crate) before: Vec<NewEvent>,
    /// Contents and specs that those events name.
    pub(crate) contents: Vec<Content>,
    pub(crate) specs: Vec<Vec<u8>>,
    /// Whether the lease has to run still.
    pub(crate) under_lease: bool,
    /// What the proposal was, when no verdict says so.
    pub(crate) read: Option<ReadAs>,
    /// The status when there is no outcome.
    pub(crate) status: StepStatus,
    /// What came back.
    pub(crate) outcome: Option<Outcome>,
    /// The end of the run, when the step is its last.
    pub(crate) end: Option<RunEnd>,
}

/// How a run ends with its step.
#[derive(Debug)]
pub(crate) struct RunEnd {
    pub(crate) reason: EndReason,
    pub(crate) note: Option<Content>,
    pub(crate) result: Option<Content>,
    /// The result is the step's observation.
    pub(crate) observed_result: Option<ContentRef>,
}

impl RunEnd {
    pub(crate) const fn because(reason: EndReason) -> Self {
        Self { reason, note: None, result: None, observed_result: None }
    }
}

impl Ending {
    /// A step that ends with an observation.
    pub(crate) const fn observed(outcome: Outcome) -> Self {
        Self {
            before: Vec::new(),
            contents: Vec::new(),
            specs: Vec::new(),
            under_lease: false,
            read: None,
            status: StepStatus::Failed,
            outcome: Some(outcome),
            end: None,
        }
    }

    /// A step that ends its run by the agent's word.
    pub(crate) const fn last(kind: ProposalKind, origin: ProposalOrigin, end: RunEnd) -> Self {
        Self {
            before: Vec::new(),
            contents: Vec::new(),
            specs: Vec::new(),
            under_lease: false,
            read: Some(ReadAs { kind, origin }),
            status: StepStatus::Done,
            outcome: None,
            end: Some(end),
        }
    }

    pub(crate) fn after(mut self, before: Vec<NewEvent>, specs: Vec<Vec<u8>>) -> Self {
        self.before = before;
        self.specs = specs;
        self
    }

    /// With the contents that the events before it name.
    pub(crate) fn bringing(mut self, contents: Vec<Content>) -> Self {
        self.contents = contents;
        self
    }

    /// Only as long as the lease runs.
    pub(crate) const fn under_lease(mut self) -> Self {
        self.under_lease = true;
        self
    }

    pub(crate) fn ending(mut self, end: RunEnd) -> Self {
        self.end = Some(end);
        self
    }
}

/// A stored content's bytes, checked against what names it.
pub(crate) async fn content(
    parts: &Parts,
    scope: &Scope,
    reference: ContentRef,
    what: &'static str,
) -> Result<Vec<u8>, GateError> {
    kept(parts, scope, reference, what).await?.ok_or(GateError::Content(what))
}

/// A stored content's bytes, checked against what names it; `None` when it was erased.
pub(crate) async fn kept(
    parts: &Parts,
    scope: &Scope,
    reference: ContentRef,
    what: &'static str,
) -> Result<Option<Vec<u8>>, GateError> {
    match parts.store.content(scope, reference.digest).await? {
        Some(content) if content.reference() == reference => Ok(Some(content.into_bytes())),
        Some(_) => Err(GateError::Content(what)),
        None => Ok(None),
    }
}

/// A stored content as a value; what cannot be read is shown as such.
pub(crate) async fn content_value(
    parts: &Parts,
    scope: &Scope,
    digest: Digest,
) -> Result<Option<Value>, GateError> {
    let content = parts.store.content(scope, digest).await?;
    Ok(content.and_then(|content| parse(content.bytes(), &Limits::ENVELOPE).ok()))
}
