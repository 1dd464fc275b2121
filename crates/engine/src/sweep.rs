//! What time ends: questions that nobody answered and grants that nobody used.

use std::time::Duration;

use portcullis_domain::event::{Body, QuestionClosed};
use portcullis_domain::id::RunId;
use portcullis_domain::limits::Limits;
use portcullis_domain::ports::{Append, Condition, Durability, NewEvent, StoreError};
use portcullis_domain::question::{Question, QuestionStatus};
use portcullis_domain::run::EndReason;
use portcullis_domain::scope::Scope;
use portcullis_domain::time::Timestamp;

use crate::compose::finished;
use crate::parts::Parts;

/// When the question or its grant was due, if `now` is later than that. At that very instant it still holds.
pub(crate) fn due(question: &Question, limits: &Limits, now: Timestamp) -> Option<Timestamp> {
    let end = match question.status {
        QuestionStatus::Open => question.expires_at,
        QuestionStatus::Granted => {
            let ttl = limits.grant_ttl_ms.map(Duration::from_millis);
            question.granted_at.zip(ttl).map(|(granted, ttl)| granted.after(ttl))
        }
        _ => None,
    };
    end.filter(|end| now > *end)
}

/// Closes the question as expired and cancels its run.
pub(crate) async fn expire(
    parts: &Parts,
    scope: &Scope,
    run: RunId,
    question: &Question,
    due: Timestamp,
) -> Result<(), StoreError> {
    let now = parts.clock.now();
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
