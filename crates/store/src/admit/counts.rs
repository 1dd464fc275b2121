//! What is counted of a conversation in an append: only what happens in this very append, once; and where a conversation is
//! counted at all, nothing that has to be counted is left out.
//!
//! No condition names a thread's sequence. The fold says inside the transaction whether a limit is met, so that any number of
//! writers share one conversation.

use std::mem::discriminant;

use portcullis_domain::event::{Advice, Body, Event, ThreadCounted};
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

/// What is counted of a fact: whether it is one, and as what. A fact may be several.
type Owed = (fn(&Body) -> bool, fn(&Counted) -> bool);

const OWED: [Owed; 3] = [
    (begins, |counted| matches!(counted, Counted::Call(_))),
    (asks, |counted| matches!(counted, Counted::Question(_))),
    (denies, |counted| matches!(counted, Counted::Denial)),
];

/// Whether the append holds something that is counted where a conversation is.
pub(super) fn is_countable(events: &[Event]) -> bool {
    events.iter().any(|event| OWED.iter().any(|(is_one, _)| is_one(&event.body)))
}

/// Whether everything that has to be counted is.
pub(super) fn are_whole(events: &[Event]) -> bool {
    let counted = |step: Option<StepId>, is_it: &fn(&Counted) -> bool| {
        step.is_some()
            && events.iter().any(|event| {
                event.link.step == step
                    && matches!(&event.body, Body::ThreadCounted(body) if is_it(&body.counted))
            })
    };
    events.iter().all(|event| {
        let owed = OWED.iter().filter(|(is_one, _)| is_one(&event.body));
        owed.map(|(_, is_it)| is_it).all(|is_it| counted(event.link.step, is_it))
    })
}

/// A first start, or what a host is told. A later start is of a call that was counted.
fn begins(body: &Body) -> bool {
    match body {
        Body::StepStarted(body) => body.start == 1,
        Body::StepAdvised(_) => true,
        _ => false,
    }
}

/// People are asked whether a call may be made, here or by a host that asks its own. What an earlier one did they are asked
/// whatever was counted.
fn asks(body: &Body) -> bool {
    match body {
        Body::QuestionAsked(body) => body.kind == QuestionKind::Approval,
        Body::StepAdvised(body) => body.advice == Advice::Ask,
        _ => false,
    }
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
