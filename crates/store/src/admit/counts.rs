//! What is counted of a conversation in an append: only what happens in this very append, once; and where a conversation is
//! counted at all, nothing that has to be counted is left out.
//!
//! No condition names a thread's sequence. The fold says inside the transaction whether a limit is met, so that any number of
//! writers share one conversation.

use std::mem::discriminant;

use portcullis_domain::event::{Body, Event, ThreadCounted};
use portcullis_domain::fold::RunState;
use portcullis_domain::id::StepId;
use portcullis_domain::observation::{Observation, ObservationKind};
use portcullis_domain::question::QuestionKind;
use portcullis_domain::step::Step;
use portcullis_domain::stream::Stream;
use portcullis_domain::tally::Counted;

/// Whether a fact may be counted behind the events of its append that stand before it. `state` is the run as it is then.
pub(super) fn fits(state: &RunState, before: &[Event], event: &Event) -> bool {
    let Body::ThreadCounted(body) = &event.body else { return false };
    let own = state.run.id == body.run && Stream::from(state.run.thread) == event.link.stream;
    let step = event.link.step.and_then(|id| state.batch.iter().find(|step| step.id == id));
    own && step.is_some_and(|step| {
        happened(step, before, &body.counted) && !counted(before, step.id, &body.counted)
    })
}

/// Whether the append holds what is counted.
fn happened(step: &Step, before: &[Event], counted: &Counted) -> bool {
    let changes = step.admitted.as_ref().map(|admitted| admitted.effect.changes_something());
    before.iter().filter(|event| event.link.step == Some(step.id)).any(|event| match counted {
        Counted::Call(call) => begins(&event.body) && changes == Some(call.changes),
        Counted::Question(call) => asks(&event.body) && changes == Some(call.changes),
        Counted::Denial => denies(&event.body),
        Counted::Answer(_) => observed(&event.body).is_some_and(|observation| {
            matches!(observation.kind, ObservationKind::ToolResult | ObservationKind::ToolError)
        }),
    })
}

fn counted(before: &[Event], step: StepId, counted: &Counted) -> bool {
    before.iter().filter(|event| event.link.step == Some(step)).any(|event| {
        matches!(&event.body, Body::ThreadCounted(ThreadCounted { counted: other, .. })
            if discriminant(other) == discriminant(counted))
    })
}

/// Whether the append holds something that is counted where a conversation is.
pub(super) fn is_countable(events: &[Event]) -> bool {
    events.iter().any(|event| owed(&event.body).is_some())
}

/// Whether everything that has to be counted is.
pub(super) fn are_whole(events: &[Event]) -> bool {
    events.iter().all(|event| match (owed(&event.body), event.link.step) {
        (Some(is_it), Some(step)) => events.iter().any(|event| {
            event.link.step == Some(step)
                && matches!(&event.body, Body::ThreadCounted(body) if is_it(&body.counted))
        }),
        (Some(_), None) => false,
        (None, _) => true,
    })
}

/// As what a fact has to be counted.
fn owed(body: &Body) -> Option<fn(&Counted) -> bool> {
    if begins(body) {
        Some(|counted| matches!(counted, Counted::Call(_)))
    } else if asks(body) {
        Some(|counted| matches!(counted, Counted::Question(_)))
    } else if denies(body) {
        Some(|counted| matches!(counted, Counted::Denial))
    } else {
        None
    }
}

/// A first start, or what a host is told. A later start is of a call that was counted.
fn begins(body: &Body) -> bool {
    match body {
        Body::StepStarted(body) => body.start == 1,
        Body::StepAdvised(_) => true,
        _ => false,
    }
}

/// People are asked whether a call may be made. What an earlier one did they are asked whatever was counted.
fn asks(body: &Body) -> bool {
    matches!(body, Body::QuestionAsked(body) if body.kind == QuestionKind::Approval)
}

fn denies(body: &Body) -> bool {
    observed(body).is_some_and(|observation| {
        observation.kind == ObservationKind::Denied
            && observation.refusal.is_some_and(|refusal| refusal.is_a_denial())
    })
}

fn observed(body: &Body) -> Option<&Observation> {
    match body {
        Body::StepFinished(body) => body.observation.as_ref(),
        _ => None,
    }
}
