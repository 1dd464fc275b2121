//! What time ends: questions that nobody answered and grants that nobody used.

use portcullis_domain::event::{Body, QuestionClosed};
use portcullis_domain::id::RunId;
use portcullis_domain::ports::{Append, Condition, Durability, NewEvent, StoreError};
use portcullis_domain::question::{Question, QuestionStatus};
use portcullis_domain::run::EndReason;
use portcullis_domain::scope::Scope;

use crate::compose::finished;
use crate::parts::Parts;

/// Closes the question as expired and cancels its run.
pub(crate) async fn expire(
    parts: &Parts,
    scope: &Scope,
    run: RunId,
    question: &Question,
) -> Result<(), StoreError> {
    let now = parts.clock.now();
    let due = question.ends_at().ok_or(StoreError::NotDue)?;
    let closed = QuestionClosed { question: question.id, status: QuestionStatus::Expired };
    let event = |step, body| NewEvent { stream: run.into(), step, at: now, body };
    let append = Append {
        condition: Condition::Sweep {
            run,
            question: question.id,
            status: question.status,
            now,
            due,
        },
        events: vec![
            event(Some(question.step), Body::QuestionClosed(closed)),
            event(None, finished(EndReason::ApprovalExpired)),
        ],
        contents: Vec::new(),
        specs: Vec::new(),
        durability: Durability::Synced,
    };
    parts.store.append(scope, append).await.map(drop)
}
