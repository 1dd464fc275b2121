//! What time ends: questions that nobody answered and grants that nobody used; and who is told before.
//!
//! A pass looks, by an index, at nothing but what is due. It runs wherever a process looks that may write: before a run is begun
//! or taken up, and again and again in a process that watches.

use std::time::Duration;

use portcullis_domain::event::{Body, QuestionClosed};
use portcullis_domain::id::RunId;
use portcullis_domain::ports::{
    Append, Condition, Durability, NewEvent, Notice, Pages, Reminder, StoreError,
};
use portcullis_domain::question::{Question, QuestionStatus};
use portcullis_domain::run::EndReason;
use portcullis_domain::scope::Scope;

use crate::account;
use crate::child;
use crate::compose::finished;
use crate::error::GateError;
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

/// What a pass of the sweeper did.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Swept {
    /// Runs that ended, since their question or grant was past its time, or the run that started them had ended.
    pub ended: u64,
    /// Questions and grants that end soon and that nobody was reminded of before. Tell people now: no later pass names them
    /// again, in whatever process.
    pub reminded: Vec<Question>,
}

/// The most that one pass reminds of, so that what it answers is bounded; the next pass goes on.
pub const MAX_REMINDED: usize = 500;

/// One pass over what is due in the scope: ends what is past its time, and where `remind_before` says how long before, notes
/// for each question and each grant that ends within it that people are reminded. What is held for calls of models whose maker
/// is gone is charged.
///
/// # Errors
/// What the store says; what was ended before it stays ended.
pub async fn pass(
    parts: &Parts,
    scope: &Scope,
    remind_before: Option<Duration>,
) -> Result<Swept, GateError> {
    let mut swept = Swept::default();
    let mut pages = Pages::all();
    let now = parts.clock.now();
    let notice = Notice { now, until: remind_before.map_or(now, |before| now.after(before)) };
    while let Some(page) = pages.next_page() {
        let rows = parts.store.due(scope, notice, page).await?;
        let (read, mut shed) = (rows.len(), 0_u64);
        for question in rows.into_iter().flatten() {
            let done = match question.is_over(now) {
                true => one(parts, scope, &question).await?,
                false if remind_before.is_some() && swept.reminded.len() < MAX_REMINDED => {
                    remind(parts, scope, question, &mut swept.reminded).await?
                }
                false => Done::Stays,
            };
            swept.ended = swept.ended.saturating_add(u64::from(done == Done::Ended));
            shed = shed.saturating_add(u64::from(done != Done::Stays));
        }
        pages.read_and_shed(read, shed);
        // In the order of their ends: what is over came before.
        if swept.reminded.len() >= MAX_REMINDED {
            break;
        }
    }
    // What an end that was cut short left, or a host's own child whose parent ended.
    match child::end_orphans(parts, scope).await {
        Ok(ended) => swept.ended = swept.ended.saturating_add(ended),
        Err(error) => {
            tracing::warn!(%error, "runs whose parent ended are ended when they are looked at again");
        }
    }
    // Last, and in nobody's way: what stays held counts as spent.
    if let Err(error) = account::left::settle_due(parts, scope).await {
        tracing::warn!(%error, "what is held for models is settled when it is looked at again");
    }
    Ok(swept)
}

/// What became of a question that was due.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Done {
    /// Its run ended.
    Ended,
    /// People are reminded of it.
    Reminded,
    /// This pass did nothing to it.
    Stays,
}

async fn one(parts: &Parts, scope: &Scope, question: &Question) -> Result<Done, GateError> {
    match expire(parts, scope, question.run, question).await {
        Ok(()) => Ok(Done::Ended),
        // Somebody else was first.
        Err(StoreError::QuestionState { .. } | StoreError::RunState { .. }) => Ok(Done::Stays),
        // One run that cannot be read, or whose rows do not fit each other, keeps no other from its end.
        Err(
            error @ (StoreError::Damaged { .. }
            | StoreError::NotFound(_)
            | StoreError::NotDue
            | StoreError::NotAdmitted),
        ) => {
            tracing::warn!(run = %question.run, %error, "a question that is past its time cannot be closed");
            Ok(Done::Stays)
        }
        Err(error) => Err(error.into()),
    }
}

/// Noted before it is told: a process that dies between the two has told nobody, and nobody is told twice.
async fn remind(
    parts: &Parts,
    scope: &Scope,
    question: Question,
    reminded: &mut Vec<Question>,
) -> Result<Done, GateError> {
    let (id, status, at) = (question.id, question.status, parts.clock.now());
    match parts.store.remind(scope, Reminder { question: id, status, at }).await {
        Ok(()) => reminded.push(question),
        // Somebody else was first, or answered; or the row is for `verify` to explain.
        Err(
            StoreError::Stale
            | StoreError::QuestionState { .. }
            | StoreError::NotFound(_)
            | StoreError::Damaged { .. },
        ) => return Ok(Done::Stays),
        Err(error) => return Err(error.into()),
    }
    Ok(Done::Reminded)
}
