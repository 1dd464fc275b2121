//! What follows from a step's end: the next step, or the end of the run, in the same append.

use portcullis_canon::Digest;
use portcullis_domain::event::{Body, Event, RunFinished, StepOpened};
use portcullis_domain::fold::{FoldError, RunState};
use portcullis_domain::id::{InstanceId, JournalId, StepId};
use portcullis_domain::ports::NewEvent;
use portcullis_domain::run::EndReason;
use portcullis_domain::stream::{Link, Stream};
use portcullis_domain::time::Timestamp;

/// The state as it will be once `events` are committed. Hashes in it mean nothing.
pub(crate) fn preview(state: &RunState, events: &[NewEvent]) -> Result<RunState, FoldError> {
    let mut state = state.clone();
    let stream = Stream::from(state.run.id);
    for event in events.iter().filter(|event| event.stream == stream) {
        let link = Link {
            instance: InstanceId::from_bytes([0; 16]),
            journal: JournalId::from_bytes([0; 16]),
            journal_seq: 0,
            journal_prev: Digest::ZERO,
            tenant: state.run.tenant.clone(),
            stream,
            stream_seq: state.run.seq.saturating_add(1),
            stream_prev: state.run.hash,
            step: event.step,
            at: event.at,
            kind: String::new(),
            version: 0,
            payload: Digest::ZERO,
        };
        state.apply(&Event { link, body: event.body.clone(), hash: Digest::ZERO })?;
    }
    Ok(state)
}

/// The limit that the run has met, judged before a step is opened.
pub(crate) fn limit_met(state: &RunState, now: Timestamp) -> Option<EndReason> {
    let run = &state.run;
    let limits = &run.limits;
    let elapsed_us = now.micros_since(run.created_at);
    let over =
        |bound_ms: Option<u64>, us: u64| bound_ms.is_some_and(|ms| us >= ms.saturating_mul(1_000));
    if run.step_count >= limits.max_steps {
        Some(EndReason::LimitSteps)
    } else if run.failures >= limits.max_consecutive_failures {
        Some(EndReason::RepeatedFailures)
    } else if run.denials >= limits.max_denials {
        Some(EndReason::LimitDenials)
    } else if over(limits.max_active_ms, run.active_us) {
        Some(EndReason::LimitActiveTime)
    } else if over(limits.max_elapsed_ms, elapsed_us) {
        Some(EndReason::LimitElapsedTime)
    } else if state.cycle(limits).is_some() {
        Some(EndReason::LoopDetected)
    } else {
        None
    }
}

/// `step.opened` for the next step, or `run.finished` when a limit is met.
pub(crate) fn next(state: &RunState, id: StepId, now: Timestamp) -> NewEvent {
    let stream = Stream::from(state.run.id);
    match limit_met(state, now) {
        Some(reason) => NewEvent { stream, step: None, at: now, body: finished(reason) },
        None => {
            let body = StepOpened { index: state.run.step_count, batch: 1, batch_index: 0 };
            NewEvent { stream, step: Some(id), at: now, body: Body::StepOpened(body) }
        }
    }
}

/// The end of a run for a reason that needs no words.
pub(crate) fn finished(reason: EndReason) -> Body {
    Body::RunFinished(RunFinished { reason, note: None, result: None, by: None })
}
