//! Batches: several calls of one proposal, judged as a whole, begun by one append, made at once, and ended by another.
//!
//! Until that first append there is one step, the one on which the proposal is recorded. What is refused ends that step;
//! what is begun makes it the first of as many steps as there are calls, in their order.

use std::sync::Arc;

use portcullis_canon::Value;
use portcullis_domain::event::{
    Body, RunFinished, StepFinished, StepOpened, StepProposed, StepStarted,
};
use portcullis_domain::id::StepId;
use portcullis_domain::permit::{BatchCall, Permit};
use portcullis_domain::ports::{NewEvent, Place, SeenStep, StoreError};
use portcullis_domain::proposal::{AskedCall, MAX_BATCH, ProposalOrigin};
use portcullis_domain::refusal::Refusal;
use portcullis_domain::run::EndReason;
use portcullis_domain::step::Step;
use portcullis_domain::tally::{Counted, Counting};
use portcullis_domain::tool::ToolSpec;
use portcullis_domain::verdict::Verdict;

use crate::admit::{Call, Invalid, admit_asked};
use crate::compose;
use crate::core::{Batch, Core, Ending, Progress, RunEnd};
use crate::count::limit_of;
use crate::effect::{Beside, Running};
use crate::error::GateError;
use crate::execute::{Came, MAX_TRIES, is_among};
use crate::late;
use crate::observe::Outcome;
use crate::step::Judgement;

/// One call of a batch that was allowed and is not made yet.
pub(crate) struct Member {
    judgement: Judgement,
    /// Its arguments as they were proposed.
    proposed: Value,
}

/// For each call of a batch the place that it needs, if it blocks.
type Places = Vec<Option<Box<dyn Place>>>;

/// Why a batch is not to be, and which of its calls says so.
#[derive(Clone, Copy)]
struct Fault {
    /// Its place, from zero.
    at: usize,
    refusal: Refusal,
    /// What the policy said of it.
    because: Option<Refusal>,
    aborts: bool,
}

impl Fault {
    const fn of(at: usize, refusal: Refusal) -> Self {
        Self { at, refusal, because: None, aborts: false }
    }
}

/// How one call of a batch ends, and what is shown of it.
struct End {
    step: StepId,
    ending: Ending,
}

/// What came of the calls of a batch.
#[derive(Default)]
struct CameOf {
    ends: Vec<End>,
    /// Those that nobody waits for any more.
    running: Vec<(StepId, Running, ToolSpec)>,
    /// Whether the run ended under one of them.
    ended: bool,
}

impl CameOf {
    fn add(
        &mut self,
        step: StepId,
        spec: &ToolSpec,
        came: Result<Came, Running>,
    ) -> Result<(), GateError> {
        let running = match came {
            Ok(Came { ending, running }) => {
                let ending =
                    ending.map_err(|_| GateError::Bug("a call of a batch changes something"))?;
                self.ends.push(End { step, ending });
                running
            }
            Err(running) => {
                self.ended = true;
                Some(running)
            }
        };
        self.running.extend(running.map(|running| (step, running, spec.clone())));
        Ok(())
    }
}

impl Core {
    /// Admits and judges all calls of a proposal, and makes nothing of it ready unless it may be made whole.
    pub(crate) async fn decide_batch(
        &mut self,
        origin: ProposalOrigin,
        asked: Vec<AskedCall>,
    ) -> Result<Progress, GateError> {
        let step = self.open_step_id()?;
        // Of what cannot be read whole the policy is asked nothing.
        let admitted = match self.admit_all(origin, asked, step) {
            Ok(admitted) => admitted,
            Err(invalid) => {
                let outcome = self.observer().invalid(&invalid);
                return self.end_step(Ending::observed(outcome)).await;
            }
        };
        let judged = admitted
            .into_iter()
            .map(|(call, proposed)| Ok(Member { judgement: self.judge_call(call)?, proposed }));
        let members: Vec<Member> = judged.collect::<Result<_, GateError>>()?;
        match self.fault(&members) {
            Some(fault) => self.refuse_batch(&members, fault).await,
            None => {
                self.members = members;
                Ok(Progress::Allowed)
            }
        }
    }

    /// The calls as their tools take them. A tool that only reads has no idempotency key, so that nothing in its call
    /// depends on the step that it will be.
    fn admit_all(
        &self,
        origin: ProposalOrigin,
        asked: Vec<AskedCall>,
        step: StepId,
    ) -> Result<Vec<(Call, Value)>, Invalid> {
        let (tools, frozen) = (&self.parts.tools, &self.state.run.tools);
        let admit = |(asked, number): (AskedCall, u32)| {
            let proposed = Value::Object(asked.arguments.clone());
            admit_asked(origin, &asked.tool, asked.arguments, step, tools, frozen, &self.salt)
                .map(|call| (call, proposed))
                .map_err(|invalid| Invalid { call: Some(number), ..invalid })
        };
        asked.into_iter().zip(1_u32..).map(admit).collect()
    }

    /// Why these calls are not to be made together; `None` when all of them only read, are allowed, and fit the run.
    fn fault(&self, members: &[Member]) -> Option<Fault> {
        let verdicts = || members.iter().map(|member| &member.judgement.verdict).enumerate();
        let abort = verdicts().find_map(|(at, verdict)| match verdict {
            Verdict::Abort { reason, .. } => Some(Fault { aborts: true, ..Fault::of(at, *reason) }),
            _ => None,
        });
        let one = |(at, member): (usize, &Member)| {
            let tool = self.parts.tools.get(&member.judgement.call.tool);
            let spec = tool.map(|tool| &tool.described.spec);
            let because =
                |refusal, reason| Fault { because: Some(reason), ..Fault::of(at, refusal) };
            match &member.judgement.verdict {
                _ if spec.is_none_or(|spec| spec.effect.changes_something()) => {
                    Some(Fault::of(at, Refusal::BatchNotReadOnly))
                }
                _ if spec.is_some_and(|spec| spec.terminal) => {
                    Some(Fault::of(at, Refusal::BatchTerminal))
                }
                Verdict::Allow { .. } => None,
                Verdict::Ask { reason, .. } => Some(because(Refusal::BatchAsks, *reason)),
                Verdict::Deny { reason, .. } | Verdict::Abort { reason, .. } => {
                    Some(because(Refusal::BatchDenied, *reason))
                }
            }
        };
        let first = || members.iter().enumerate().find_map(one);
        abort.or_else(first).or_else(|| self.beyond_the_limit(members))
    }

    /// The first call that is more than the run may make.
    fn beyond_the_limit(&self, members: &[Member]) -> Option<Fault> {
        let run = &self.state.run;
        // The open step is the first of them.
        let left = run.limits.max_steps.saturating_sub(run.step_count).saturating_add(1);
        let at = usize::try_from(left).ok().filter(|left| *left < members.len())?;
        Some(Fault::of(at, Refusal::BatchOverLimit))
    }

    /// Ends the one step that there is. The call that is the reason stands in the record with its verdict.
    async fn refuse_batch(
        &mut self,
        members: &[Member],
        fault: Fault,
    ) -> Result<Progress, GateError> {
        let member = members.get(fault.at).ok_or(GateError::Bug("a batch without its call"))?;
        let number = fault.at.saturating_add(1);
        let outcome = self.observer().batch_refused(number, fault.refusal, fault.because);
        let before = self.judged(&member.judgement)?;
        let ending = Ending::observed(outcome).after(before, member.judgement.specs());
        let ending = if fault.aborts {
            ending.ending(RunEnd::because(EndReason::PolicyAbort))
        } else {
            ending
        };
        self.end_step(ending).await
    }

    /// Makes the calls of the allowed batch: commit 1, all effects at once, commit 2.
    pub(crate) async fn execute_batch(&mut self) -> Result<Progress, GateError> {
        if self.lease_lost() {
            return self.ended_meanwhile().await;
        }
        for member in &self.members {
            if !self.is_performed(&member.judgement.call.tool)? {
                return Err(GateError::Misuse("a host makes these calls by itself, one at a time"));
            }
        }
        for _ in 0..MAX_TRIES {
            self.judge_members()?;
            let places = match self.fault(&self.members) {
                Some(fault) => Err(fault),
                None => self.places()?,
            };
            let places = match places {
                Ok(places) => places,
                Err(fault) => {
                    let members = std::mem::take(&mut self.members);
                    return self.refuse_batch(&members, fault).await;
                }
            };
            let error = match self.start_batch().await {
                Ok(permits) => return self.make_calls(permits, places).await,
                Err(error) => error,
            };
            if let Some(limit) = limit_of(&error) {
                let members = std::mem::take(&mut self.members);
                return self.refuse_batch(&members, Fault::of(0, limit.refusal())).await;
            }
            if let Some(progress) = self.without_permit(error).await? {
                return Ok(progress);
            }
        }
        Err(StoreError::Stale.into())
    }

    /// Asks the policy about each of them once more, all on the same facts.
    fn judge_members(&mut self) -> Result<(), GateError> {
        let again =
            self.members.iter().map(|member| self.judge_call(member.judgement.call.clone()));
        let again: Vec<Judgement> = again.collect::<Result<_, _>>()?;
        for (member, judgement) in self.members.iter_mut().zip(again) {
            member.judgement = judgement;
        }
        Ok(())
    }

    /// A place for each call that blocks; the first call for which there is none refuses them all.
    fn places(&self) -> Result<Result<Places, Fault>, GateError> {
        let mut places = Vec::with_capacity(self.members.len());
        for (at, member) in self.members.iter().enumerate() {
            match self.place(&member.judgement.call.tool)? {
                Ok(place) => places.push(place),
                Err(_) => return Ok(Err(Fault::of(at, Refusal::NoCapacity))),
            }
        }
        Ok(Ok(places))
    }

    /// Commit 1: the other steps, all verdicts and all intents.
    async fn start_batch(&mut self) -> Result<Vec<Permit>, GateError> {
        let calls = self.batch_calls()?;
        let events = self.batch_events(&calls)?;
        let specs = self.members.iter().flat_map(|member| member.judgement.specs()).collect();
        self.commit_intents(events, calls, specs).await
    }

    /// The calls with the steps that they will be: the open one, and new ones behind it.
    fn batch_calls(&self) -> Result<Vec<BatchCall>, GateError> {
        let first = self.open_step_id()?;
        let (now, entropy) = (self.parts.clock.now(), self.parts.entropy.as_ref());
        let call = |(at, member): (usize, &Member)| {
            Ok(BatchCall {
                step: if at == 0 { first } else { StepId::draw(now, entropy) },
                card: member.judgement.card.clone(),
                deadline: self.deadline(&member.judgement.call.tool)?,
            })
        };
        self.members.iter().enumerate().map(call).collect()
    }

    fn batch_events(&self, calls: &[BatchCall]) -> Result<Vec<NewEvent>, GateError> {
        let proposal = self.open_step().and_then(|step| step.proposal);
        let proposal = proposal.ok_or(GateError::Misuse("no proposal is recorded"))?;
        let batch = u32::try_from(calls.len()).unwrap_or(u32::MAX);
        let mut events = Vec::with_capacity(calls.len().saturating_mul(4));
        let places = (0_u32..).zip(self.state.run.step_count..).zip(calls.iter().skip(1));
        for ((behind, index), call) in places {
            let opened = StepOpened { index, batch, batch_index: behind.saturating_add(1) };
            events.push(self.event(Some(call.step), Body::StepOpened(opened)));
            let proposed = Body::StepProposed(StepProposed { proposal });
            events.push(self.event(Some(call.step), proposed));
        }
        for (call, member) in calls.iter().zip(&self.members) {
            let body = Body::StepJudged(member.judgement.body.clone());
            events.push(self.event(Some(call.step), body));
        }
        for (call, member) in calls.iter().zip(&self.members) {
            let started = StepStarted {
                call: member.judgement.body.admitted.call,
                epoch: self.epoch,
                deadline_ms: u64::try_from(call.deadline.as_millis()).unwrap_or(u64::MAX),
                start: 1,
            };
            events.push(self.event(Some(call.step), Body::StepStarted(started)));
            // Calls that are made together are counted, and not compared.
            let counting = Counting { changes: false, trace: None };
            events.extend(self.counted(call.step, Counted::Call(counting)));
        }
        Ok(events)
    }

    /// Ends what was started and did nothing, a call that is alone or all of a batch, each with an outcome of its own.
    pub(crate) async fn end_started(
        &mut self,
        outcome: impl Fn(&Self) -> Outcome,
    ) -> Result<Progress, GateError> {
        if self.open_step().is_none_or(|step| step.batch == 1) {
            let ending = Ending::observed(outcome(self));
            return self.end_step(ending).await;
        }
        let started = self.state.batch.iter().filter(|step| step.status.is_started());
        let end = |step: &Step| End { step: step.id, ending: Ending::observed(outcome(self)) };
        let ends: Vec<End> = started.map(end).collect();
        self.record_ends(&ends, false).await
    }

    /// All effects at once, then commit 2.
    async fn make_calls(
        &mut self,
        permits: Vec<Permit>,
        places: Places,
    ) -> Result<Progress, GateError> {
        let members = std::mem::take(&mut self.members);
        let steps: Vec<StepId> = permits.iter().map(Permit::step).collect();
        let tools = Arc::clone(&self.parts.tools);
        let gone = GateError::Bug("a started tool is gone");
        let mut calls = Vec::with_capacity(permits.len());
        for (permit, place) in permits.into_iter().zip(places) {
            let tool = tools.get(permit.tool()).ok_or_else(|| gone.clone())?;
            calls.push(Beside { source: Arc::clone(&tool.source), permit, place });
        }
        let performed = self.perform_all(calls).await;
        let mut came = CameOf::default();
        for ((step, member), performed) in steps.into_iter().zip(&members).zip(performed) {
            let tool = tools.get(&member.judgement.call.tool).ok_or_else(|| gone.clone())?;
            came.add(step, &tool.described.spec, self.came(&tool.described.spec, performed))?;
        }
        let CameOf { ends, running, ended } = came;
        let concluded = if ended {
            // What has an outcome has it late, as those that are still under way will.
            self.record_late(ends).await;
            self.ended_meanwhile().await
        } else {
            self.end_batch(ends, members).await
        };
        for (step, running, spec) in running {
            late::watch(self, step, running, spec);
        }
        concluded
    }

    /// Commit 2. When the run went on without this driver, or its lease has ended, all outcomes are recorded as late.
    async fn end_batch(
        &mut self,
        ends: Vec<End>,
        members: Vec<Member>,
    ) -> Result<Progress, GateError> {
        let first = self.state.batch.first().map_or(0, |step| step.index);
        match self.record_ends(&ends, true).await {
            Ok(Progress::Ended(_)) if !self.finished_here() => {
                self.record_late(ends).await;
                self.reload().await?;
                Ok(self.progress())
            }
            Ok(progress) => {
                self.remember_batch(first, ends, members);
                Ok(progress)
            }
            Err(GateError::Store(StoreError::LeaseLost)) => {
                let rows = self.rows(first, MAX_BATCH).await;
                let is_new = |end: &End| {
                    let outcome = end.ending.outcome.as_ref();
                    outcome.is_some_and(|outcome| !is_among(&rows, end.step, outcome))
                };
                self.record_late(ends.into_iter().filter(is_new).collect()).await;
                Err(StoreError::LeaseLost.into())
            }
            Err(error) => Err(error),
        }
    }

    async fn record_late(&self, ends: Vec<End>) {
        let run = self.run_id();
        for End { step, ending } in ends {
            if let Some(outcome) = ending.outcome {
                late::record(&self.parts, &self.scope, run, step, self.epoch, outcome).await;
            }
        }
    }

    /// Ends all of a batch in one append, with the next step or the end of the run.
    async fn record_ends(
        &mut self,
        ends: &[End],
        under_lease: bool,
    ) -> Result<Progress, GateError> {
        let active_us = self.take_active_us();
        self.members.clear();
        self.record(|core| core.compose_ends(ends, active_us, under_lease)).await
    }

    fn compose_ends(
        &self,
        ends: &[End],
        active_us: u64,
        under_lease: bool,
    ) -> Result<Batch, GateError> {
        let now = self.parts.clock.now();
        let (mut events, mut contents) = (Vec::new(), Vec::new());
        let mut thread = self.thread.clone();
        // The time is that of all of them, and is counted once.
        let times = std::iter::once(active_us).chain(std::iter::repeat(0));
        for (End { step, ending }, active_us) in ends.iter().zip(times) {
            let outcome =
                ending.outcome.as_ref().ok_or(GateError::Bug("a call ends without an outcome"))?;
            let observation = outcome.observation.clone();
            let labels = observation.labels.clone();
            let finished = StepFinished {
                status: outcome.status,
                read: None,
                observation: Some(observation),
                active_us,
            };
            events.push(self.event(Some(*step), Body::StepFinished(finished)));
            contents.push(outcome.content.clone());
            if let Some(labelled) = thread.labelled(labels.clone(), self.run_id(), *step, now) {
                thread.labels = std::mem::take(&mut thread.labels).join(&labels);
                events.push(labelled);
            }
        }
        let last = match ends.iter().find_map(|end| end.ending.end.as_ref()) {
            Some(end) => {
                let reason = end.reason;
                let body = RunFinished { reason, note: None, result: None, by: None };
                self.event(None, Body::RunFinished(body))
            }
            None => {
                let state = compose::preview(&self.state, &events)
                    .map_err(|_| GateError::Bug("the fold refuses the end of a batch"))?;
                compose::next(&state, StepId::draw(now, self.parts.entropy.as_ref()), now)
            }
        };
        events.push(last);
        Ok(Batch { events, contents, specs: Vec::new(), under_lease })
    }

    /// Keeps the outcomes for the agent's next view, in the order of the calls.
    fn remember_batch(&mut self, first: u64, ends: Vec<End>, members: Vec<Member>) {
        let seen = |((request, end), member): ((u64, End), Member)| {
            let outcome = end.ending.outcome?;
            Some(SeenStep {
                request,
                tool: Some(member.judgement.call.tool),
                arguments: Some(member.proposed),
                outcome: outcome.observation.kind.as_str().to_owned(),
                content: outcome.value,
                external: outcome.observation.labels.is_external(),
            })
        };
        self.last = (first..).zip(ends).zip(members).filter_map(seen).collect();
    }
}
