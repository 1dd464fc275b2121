//! Counting in a conversation: what is recorded beside a call, so that limits hold over all runs of its thread.
//!
//! Whether a limit is met the store says in the transaction of the append that begins the call, or asks about it. Nothing here
//! decides that by itself, so that calls of any number of processes are counted together.

use std::time::Duration;

use portcullis_canon::Digest;
use portcullis_domain::event::{Body, ThreadCounted};
use portcullis_domain::fold::RunState;
use portcullis_domain::id::StepId;
use portcullis_domain::label::Labels;
use portcullis_domain::observation::ObservationKind;
use portcullis_domain::ports::{NewEvent, StoreError};
use portcullis_domain::step::StepStatus;
use portcullis_domain::stream::Stream;
use portcullis_domain::tally::{
    Counted, Counting, Returned, Tally, ThreadLimit, ThreadLimits, Trace,
};
use portcullis_domain::thread::Thread;
use portcullis_domain::time::Timestamp;

use crate::admit::{Call, request_under};
use crate::core::{Core, Ending, Progress, kept};
use crate::error::GateError;
use crate::observe::{Outcome, fingerprint};
use crate::parts::Parts;
use crate::step::Judgement;

/// The call of a step as the loop detector compares it, kept until its result is there.
#[derive(Clone, Debug)]
pub(crate) struct Round {
    step: StepId,
    key: Vec<u8>,
    request: Digest,
}

/// The bounds by which is counted: those of the gate, else those by which the conversation was counted before. Nothing where
/// no bound is set and nothing was counted yet.
pub(crate) fn limits(parts: &Parts, thread: &Thread) -> Option<ThreadLimits> {
    match (&thread.tally, parts.conversation) {
        (None, own) => own.filter(|own| !own.is_off()),
        (Some(_), Some(own)) => Some(own),
        (Some(tally), None) => Some(tally.limits),
    }
}

/// The event that counts something of a step.
pub(crate) fn counted(
    parts: &Parts,
    (run, thread): (&RunState, &Thread),
    step: StepId,
    counted: Counted,
    at: Timestamp,
) -> Option<NewEvent> {
    let limits = limits(parts, thread)?;
    let body = Body::ThreadCounted(ThreadCounted { run: run.run.id, counted, limits });
    Some(NewEvent { stream: Stream::from(thread.id), step: Some(step), at, body })
}

/// The denial that an outcome is, counted.
pub(crate) fn denied(
    parts: &Parts,
    of: (&RunState, &Thread),
    step: StepId,
    outcome: &Outcome,
    at: Timestamp,
) -> Option<NewEvent> {
    let observation = &outcome.observation;
    let is_one = observation.kind == ObservationKind::Denied
        && observation.refusal.is_some_and(|refusal| refusal.is_a_denial());
    is_one.then(|| counted(parts, of, step, Counted::Denial, at)).flatten()
}

/// The limit that keeps a granted call from beginning, as far as that can be seen before its lease is taken.
pub(crate) fn bounded(parts: &Parts, thread: &Thread, state: &RunState) -> Option<ThreadLimit> {
    would_pass(parts, thread, state, Counted::Call)
}

/// The limit that keeps people from being asked about it again, likewise.
pub(crate) fn unasked(parts: &Parts, thread: &Thread, state: &RunState) -> Option<ThreadLimit> {
    would_pass(parts, thread, state, Counted::Question)
}

/// The limit that the waiting call would pass if it were counted so.
fn would_pass(
    parts: &Parts,
    thread: &Thread,
    state: &RunState,
    counted: impl FnOnce(Counting) -> Counted,
) -> Option<ThreadLimit> {
    let waits = state.step().filter(|step| step.status == StepStatus::Awaiting && step.starts == 0);
    let changes = waits?.admitted.as_ref()?.effect.changes_something();
    let (limits, now) = (limits(parts, thread)?, parts.clock.now());
    let counted = counted(Counting { changes, trace: None });
    Tally::at(thread.tally.as_ref(), limits, now).count(&counted, thread.opened_at, now).err()
}

impl Core {
    /// The event that counts something of a step of this run; nothing where the conversation is not counted.
    pub(crate) fn counted(&self, step: StepId, what: Counted) -> Option<NewEvent> {
        counted(&self.parts, (&self.state, &self.thread), step, what, self.parts.clock.now())
    }

    /// A call as it is counted. What the loop detector compares is kept for its result. One that people said yes to is no round
    /// of the model's: it is not looked for in a cycle, and only its result is compared.
    pub(crate) async fn counting(
        &mut self,
        judgement: &Judgement,
        granted: bool,
    ) -> Result<Counting, GateError> {
        let changes = judgement.body.admitted.effect.changes_something();
        let looks = limits(&self.parts, &self.thread).filter(|l| l.loop_threshold.is_some());
        let trace = match looks {
            Some(limits) => Some(self.trace(&judgement.call, limits).await?),
            None => None,
        };
        // A key that comes with it stays, since its result is keyed by it; under a new one nothing is a cycle.
        let trace = trace.filter(|trace| !granted || trace.key.is_some());
        Ok(Counting { changes, trace })
    }

    /// Keeps what the loop detector compares of a call that was counted when it began, by another process or by an earlier
    /// start: for its result.
    pub(crate) async fn keep_round(&mut self, call: &Call) -> Result<(), GateError> {
        let step = self.open_step_id()?;
        let looks = limits(&self.parts, &self.thread).filter(|l| l.loop_threshold.is_some());
        let Some(limits) = looks.filter(|_| self.round.as_ref().is_none_or(|r| r.step != step))
        else {
            return Ok(());
        };
        let (key, brought) = self.key(limits).await?;
        // Without the key of the window, or without the tool, nothing is comparable.
        if let Some(tool) = self.parts.tools.get(&call.tool).filter(|_| !brought) {
            let request = request_under(call, &tool.described, &key);
            self.round = Some(Round { step, key, request });
        }
        Ok(())
    }

    async fn trace(&mut self, call: &Call, limits: ThreadLimits) -> Result<Trace, GateError> {
        let step = self.open_step_id()?;
        let (key, brought) = self.key(limits).await?;
        let tool = self.parts.tools.get(&call.tool);
        let tool = tool.ok_or_else(|| GateError::ToolMissing(call.tool.clone()))?;
        let request = request_under(call, &tool.described, &key);
        self.round = Some(Round { step, key, request });
        Ok(Trace { request, key: brought.then_some(self.state.run.salt) })
    }

    /// The key of the window; this run's own salt where there is none yet, or it was erased.
    async fn key(&self, limits: ThreadLimits) -> Result<(Vec<u8>, bool), GateError> {
        let tally = Tally::at(self.thread.tally.as_ref(), limits, self.parts.clock.now());
        match tally.key {
            Some(key) if key == self.state.run.salt => Ok((self.salt.clone(), false)),
            Some(key) => {
                let kept = kept(&self.parts, &self.scope, key, "key of a conversation").await?;
                Ok(kept.map_or_else(|| (self.salt.clone(), true), |key| (key, false)))
            }
            None => Ok((self.salt.clone(), true)),
        }
    }

    /// What is counted of the end of a step.
    pub(crate) fn counted_end(
        &self,
        step: StepId,
        outcome: &Outcome,
        at: Timestamp,
    ) -> Option<NewEvent> {
        let of = (&self.state, &self.thread);
        let kind = outcome.observation.kind;
        if !matches!(kind, ObservationKind::ToolResult | ObservationKind::ToolError) {
            return denied(&self.parts, of, step, outcome, at);
        }
        let round = self.round.as_ref().filter(|round| round.step == step)?;
        let result = fingerprint(&round.key, kind, outcome.content.bytes());
        let returned = Returned { request: round.request, result };
        counted(&self.parts, of, step, Counted::Answer(returned), at)
    }

    /// When the window ends whose counts refused a call.
    async fn window_end(&self) -> Result<Option<Timestamp>, GateError> {
        let thread = self.parts.store.thread(&self.scope, self.thread.id).await?;
        let thread = thread.ok_or(StoreError::NotFound("thread"))?;
        let window = limits(&self.parts, &thread).map(|limits| limits.window_ms);
        let since = thread.tally.map(|tally| tally.since);
        Ok(since.zip(window).map(|(since, ms)| since.after(Duration::from_millis(ms))))
    }

    /// Ends the step because a limit of the conversation is met.
    pub(crate) async fn refuse_bounded(
        &mut self,
        judgement: Judgement,
        limit: ThreadLimit,
    ) -> Result<Progress, GateError> {
        let until = match limit {
            // No window ends the one, and any other call the other.
            ThreadLimit::Elapsed | ThreadLimit::Loop => None,
            _ => self.window_end().await?.map(|at| format!("until {at}")),
        };
        let outcome = self.observer().denied(limit.refusal(), until.as_deref(), Labels::none());
        let before = self.judged(&judgement)?;
        self.end_step(Ending::observed(outcome).after(before, judgement.specs())).await
    }
}

/// The limit of the conversation that refused an append.
pub(crate) const fn limit_of(error: &GateError) -> Option<ThreadLimit> {
    match error {
        GateError::Store(StoreError::ThreadBounded { limit }) => Some(*limit),
        _ => None,
    }
}
