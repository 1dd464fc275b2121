//! Which facts may stand in an append, by its condition: one list for each, and what is not on it is refused.

use portcullis_domain::event::Body;
use portcullis_domain::id::QuestionId;
use portcullis_domain::ports::{Append, Condition, NewEvent};
use portcullis_domain::question::QuestionStatus;
use portcullis_domain::run::EndReason;

/// True when each fact is one that may be appended under the append's condition.
pub(super) fn fit(append: &Append) -> bool {
    let events = append.events.as_slice();
    match &append.condition {
        Condition::Driver { take, .. } => {
            events.iter().all(|event| driver(&event.body, take.is_some()))
        }
        Condition::Operator { .. } => operator(events),
        Condition::Sweep { question, .. } => sweep(*question, events),
        Condition::Late => events.iter().all(|event| late(&event.body)),
    }
}

/// All that a run does. What people say, and what time ends, is not the driver's to record.
fn driver(body: &Body, takes: bool) -> bool {
    match body {
        Body::RunCreated(_)
        | Body::RunFinished(_)
        | Body::ThreadOpened(_)
        | Body::ThreadLabelled(_)
        | Body::ThreadCounted(_)
        | Body::LeaseReleased(_)
        | Body::StepOpened(_)
        | Body::StepProposed(_)
        | Body::StepJudged(_)
        | Body::StepStarted(_)
        | Body::ChildAwaited(_)
        | Body::StepRestarted(_)
        | Body::ProbeStarted(_)
        | Body::ProbeFinished(_)
        | Body::StepAdvised(_)
        | Body::StepFinished(_)
        | Body::QuestionAsked(_)
        | Body::ApprovalUsed(_)
        | Body::BudgetOpened(_)
        | Body::BudgetReserved(_)
        | Body::BudgetSettled(_) => true,
        Body::LeaseAcquired(_) => takes,
        Body::QuestionAnswered(_)
        | Body::QuestionClosed(_)
        | Body::OutcomeLate(_)
        | Body::ContentErased(_)
        | Body::JournalOpened(_) => false,
    }
}

/// An answer, with what it makes of the step; or taking a question back; or the end of the run. Which question
/// and which step is for the condition to see.
fn operator(events: &[NewEvent]) -> bool {
    let answers = events.iter().any(|event| matches!(event.body, Body::QuestionAnswered(_)));
    events.iter().all(|event| match &event.body {
        Body::QuestionAnswered(_) | Body::RunFinished(_) => true,
        Body::QuestionClosed(body) => body.status == QuestionStatus::Withdrawn,
        Body::StepFinished(_) | Body::ThreadLabelled(_) | Body::ThreadCounted(_) => answers,
        _ => false,
    })
}

/// The end of the question that was due, and of its run for that reason.
fn sweep(due: QuestionId, events: &[NewEvent]) -> bool {
    let closes = |event: &NewEvent| match &event.body {
        Body::QuestionClosed(body) => {
            body.question == due && body.status == QuestionStatus::Expired
        }
        _ => false,
    };
    let ends = |event: &NewEvent| match &event.body {
        Body::RunFinished(body) => body.reason == EndReason::ApprovalExpired,
        _ => false,
    };
    // The end of the run alone would leave a question that was taken back.
    events.first().is_some_and(closes) && events.iter().skip(1).all(ends)
}

/// What changes no run.
const fn late(body: &Body) -> bool {
    matches!(body, Body::OutcomeLate(_) | Body::BudgetSettled(_) | Body::ContentErased(_))
}
