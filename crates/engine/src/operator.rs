//! What people do beside a run: answering its questions, and ending it. No lease is needed.

use portcullis_canon::{Digest, Limits, Value, parse};
use portcullis_domain::approval::{Answer, Approval, Signature, Statement};
use portcullis_domain::content::Content;
use portcullis_domain::event::{Body, QuestionAnswered, RunFinished, StepFinished};
use portcullis_domain::fold::RunState;
use portcullis_domain::grant::{ApprovalFault, signer};
use portcullis_domain::id::{QuestionId, RunId};
use portcullis_domain::label::{Labels, Name, Origin};
use portcullis_domain::observation::Failure;
use portcullis_domain::ports::{Append, Condition, Durability, NewEvent, StoreError};
use portcullis_domain::question::{Question, QuestionStatus};
use portcullis_domain::refusal::Refusal;
use portcullis_domain::run::{EndReason, RunStatus};
use portcullis_domain::scope::Scope;
use portcullis_domain::step::StepStatus;
use portcullis_domain::time::Timestamp;
use portcullis_domain::verdict::OnRejection;

use crate::account;
use crate::child;
use crate::compose;
use crate::core::content;
use crate::count;
use crate::error::GateError;
use crate::observe::{Observer, Outcome};
use crate::parts::Parts;
use crate::sweep;
use crate::tools::Described;

/// How far the signed time may lie from the gate's own, in microseconds: five minutes.
const MAX_STATEMENT_AGE_US: u64 = 300_000_000;

/// How often an answer is composed anew when a late outcome was recorded meanwhile.
const MAX_TRIES: u32 = 8;

/// A signed answer to one question, as a person gives it.
#[derive(Clone, Debug)]
pub struct SignedAnswer {
    /// The run.
    pub run: RunId,
    /// The question.
    pub question: QuestionId,
    /// The question digest that the person was shown.
    pub shown: Digest,
    /// What was signed.
    pub statement: Statement,
    /// The signature.
    pub signature: Signature,
    /// The note that the statement names.
    pub note: Option<Content>,
    /// The result that the statement names: one JSON value.
    pub result: Option<Content>,
}

/// What an answer led to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answered {
    /// Enough people said yes: resume the run.
    Granted,
    /// More people have to say yes.
    MoreNeeded {
        /// How many.
        people: u32,
    },
    /// The run goes on with what was said: resume it.
    GoesOn,
    /// The run ended.
    Ended(EndReason),
}

/// Records a signed answer. Every check is made again inside the transaction or on what is stored.
///
/// # Errors
/// [`GateError::Approval`] when the answer does not count, [`StoreError::QuestionState`],
/// [`StoreError::DigestChanged`] or [`StoreError::RunState`] when it comes too late or to something else.
pub async fn answer(
    parts: &Parts,
    scope: &Scope,
    answer: SignedAnswer,
) -> Result<Answered, GateError> {
    let mut tries = 0_u32;
    loop {
        tries = tries.saturating_add(1);
        match try_answer(parts, scope, &answer).await {
            Err(GateError::Store(StoreError::Stale | StoreError::NotAdmitted))
                if tries < MAX_TRIES => {}
            answered => return answered,
        }
    }
}

async fn try_answer(
    parts: &Parts,
    scope: &Scope,
    answer: &SignedAnswer,
) -> Result<Answered, GateError> {
    let state = parts.store.run(scope, answer.run).await?.ok_or(StoreError::NotFound("run"))?;
    let question = open_question(&state, answer)?.clone();
    let salt = content(parts, scope, state.run.salt, "run salt").await?;
    // One time for all: what is in time when it is checked is recorded at that time.
    let now = parts.clock.now();
    if question.is_over(now) {
        sweep::expire(parts, scope, answer.run, &question).await?;
        return Err(StoreError::QuestionState { status: QuestionStatus::Expired }.into());
    }
    let statement = &answer.statement;
    // A statement is recorded when it is made: an older one is replayed, or signed with a key whose term is over.
    if now.micros_since(statement.at).max(statement.at.micros_since(now)) > MAX_STATEMENT_AGE_US {
        return Err(GateError::Approval(ApprovalFault::Time));
    }
    let keys = parts.keys.as_ref();
    let reviewer = signer(&question, statement, &answer.signature, &state.run.owner, keys)
        .map_err(GateError::Approval)?;
    let again = |approval: &Approval| {
        approval.person == reviewer.person || approval.statement.key == statement.key
    };
    if state.approvals.iter().any(again) {
        return Err(GateError::Approval(ApprovalFault::People));
    }
    let person = &reviewer.person;
    let composed =
        compose_answer(parts, scope, &state, &question, answer, (person, now), &salt).await?;
    let append = Append {
        condition: Condition::Operator {
            run: answer.run,
            statuses: vec![RunStatus::Waiting],
            question: Some((question.id, answer.shown)),
        },
        events: composed.events,
        contents: composed.contents,
        specs: Vec::new(),
        durability: Durability::Synced,
    };
    parts.store.append(scope, append).await?;
    Ok(composed.led_to)
}

fn open_question<'a>(
    state: &'a RunState,
    answer: &SignedAnswer,
) -> Result<&'a Question, GateError> {
    let question = state.question.as_ref().filter(|question| question.id == answer.question);
    let question =
        question.ok_or(StoreError::QuestionState { status: QuestionStatus::Withdrawn })?;
    if question.status != QuestionStatus::Open {
        return Err(StoreError::QuestionState { status: question.status }.into());
    }
    if state.run.status != RunStatus::Waiting {
        return Err(StoreError::RunState { status: state.run.status }.into());
    }
    if question.digest != answer.shown {
        return Err(StoreError::DigestChanged.into());
    }
    Ok(question)
}

struct Composed {
    events: Vec<NewEvent>,
    contents: Vec<Content>,
    led_to: Answered,
}

async fn compose_answer(
    parts: &Parts,
    scope: &Scope,
    state: &RunState,
    question: &Question,
    answer: &SignedAnswer,
    (person, now): (&str, Timestamp),
    salt: &[u8],
) -> Result<Composed, GateError> {
    let on_run =
        |body| NewEvent { stream: state.run.id.into(), step: Some(question.step), at: now, body };
    let answered = QuestionAnswered {
        question: question.id,
        person: person.to_owned(),
        statement: answer.statement.clone(),
        signature: answer.signature,
    };
    let mut events = vec![on_run(Body::QuestionAnswered(answered))];
    let mut contents: Vec<Content> = answer.note.iter().chain(&answer.result).cloned().collect();
    let Some((outcome, end)) = answered_outcome(parts, question, answer, person, salt)? else {
        let missing = question.reviewers.count.saturating_sub(question.yes.saturating_add(1));
        let led_to = match missing {
            0 => Answered::Granted,
            people => Answered::MoreNeeded { people },
        };
        return Ok(Composed { events, contents, led_to });
    };
    contents.push(outcome.content.clone());
    events.extend(step_end(state, question, &outcome, now, parts, scope).await?);
    let after = compose::preview(state, &events)
        .map_err(|_| GateError::Bug("the fold refuses an answer"))?;
    let by = end.map(|_| person.to_owned());
    let completes = outcome.status == StepStatus::Done && is_terminal(parts, state).await?;
    let end = end.or_else(|| completes.then_some(EndReason::GoalCompleted));
    let Some(reason) = end.or_else(|| compose::limit_met(&after, now)) else {
        return Ok(Composed { events, contents, led_to: Answered::GoesOn });
    };
    let result = outcome.observation.content.filter(|_| reason == EndReason::GoalCompleted);
    let body = Body::RunFinished(RunFinished { reason, note: None, result, by });
    events.push(NewEvent { stream: state.run.id.into(), step: None, at: now, body });
    Ok(Composed { events, contents, led_to: Answered::Ended(reason) })
}

/// Whether the call in question was one to a tool that completes its run.
async fn is_terminal(parts: &Parts, state: &RunState) -> Result<bool, GateError> {
    let spec = state.step().and_then(|step| step.admitted.as_ref()).map(|admitted| admitted.spec);
    let spec = spec.ok_or(GateError::Bug("a question about no call"))?;
    let bytes = parts.store.spec(spec).await?.ok_or(GateError::Content("tool spec"))?;
    let described = Described::recorded(&bytes).ok_or(GateError::Content("tool spec"))?;
    Ok(described.spec.terminal)
}

/// What an answer makes of its step, and of the run; `None` when it is a yes.
fn answered_outcome(
    parts: &Parts,
    question: &Question,
    answer: &SignedAnswer,
    person: &str,
    salt: &[u8],
) -> Result<Option<(Outcome, Option<EndReason>)>, GateError> {
    let labels = Name::new(person)
        .map_or_else(|_| Labels::of(Origin::Owner), |name| Labels::of(Origin::Person(name)));
    let observer = Observer { salt, entropy: parts.entropy.as_ref() };
    let note = answer.note.as_ref().map(|note| String::from_utf8_lossy(note.bytes()).into_owned());
    Ok(match answer.statement.answer {
        Answer::Approve | Answer::RunAgain => None,
        Answer::Reject => {
            let ends = question.on_rejection == OnRejection::EndRun;
            let outcome = observer.denied(Refusal::Rejected, note.as_deref(), labels);
            Some((outcome, ends.then_some(EndReason::ApprovalRejected)))
        }
        Answer::Happened => Some((observer.result(stated_result(answer)?, labels, false), None)),
        Answer::DidNotHappen => {
            let message = note.as_deref().unwrap_or("a person found that it did not happen");
            Some((observer.failed(Failure::DidNotHappen, message, labels), None))
        }
    })
}

/// What a person says that came back: one JSON value, null when they say nothing of it.
fn stated_result(answer: &SignedAnswer) -> Result<Value, GateError> {
    match &answer.result {
        None => Ok(Value::Null),
        Some(result) => parse(result.bytes(), &Limits::BARE)
            .map_err(|_| GateError::Misuse("the result has to be one JSON value in strict form")),
    }
}

async fn step_end(
    state: &RunState,
    question: &Question,
    outcome: &Outcome,
    now: Timestamp,
    parts: &Parts,
    scope: &Scope,
) -> Result<Vec<NewEvent>, GateError> {
    let finished = StepFinished {
        status: outcome.status,
        read: None,
        observation: Some(outcome.observation.clone()),
        active_us: 0,
    };
    let body = Body::StepFinished(finished);
    let mut events =
        vec![NewEvent { stream: state.run.id.into(), step: Some(question.step), at: now, body }];
    let thread =
        parts.store.thread(scope, state.run.thread).await?.ok_or(StoreError::NotFound("thread"))?;
    let labels = outcome.observation.labels.clone();
    events.extend(thread.labelled(labels, state.run.id, question.step, now));
    events.extend(count::denied(parts, (state, &thread), question.step, outcome, now));
    Ok(events)
}

/// Ends a run that has not ended, and those below it. A call that is running is not recalled; its outcome is recorded as late.
///
/// # Errors
/// [`StoreError::RunState`] when the run has ended, or what the store says.
pub async fn cancel(
    parts: &Parts,
    scope: &Scope,
    run: RunId,
    by: &str,
    note: Option<&str>,
) -> Result<(), GateError> {
    let note = note.map(|text| Content::seal(text.as_bytes().to_vec(), parts.entropy.as_ref()));
    let body = RunFinished {
        reason: EndReason::OperatorCancelled,
        note: note.as_ref().map(Content::reference),
        result: None,
        by: Some(by.to_owned()),
    };
    end(parts, scope, run, body, note).await?;
    // The run has ended: what is left below it is ended by the next pass over what is due.
    if let Err(error) = child::end_below(parts, scope, run).await {
        tracing::warn!(%run, %error, "runs below one that was cancelled are ended when they are looked at");
    }
    Ok(())
}

/// Records the end of a run, whoever drives it, and settles what it holds for models.
pub(crate) async fn end(
    parts: &Parts,
    scope: &Scope,
    run: RunId,
    body: RunFinished,
    note: Option<Content>,
) -> Result<(), GateError> {
    let event = NewEvent {
        stream: run.into(),
        step: None,
        at: parts.clock.now(),
        body: Body::RunFinished(body),
    };
    let append = Append {
        condition: Condition::Operator {
            run,
            statuses: vec![RunStatus::Running, RunStatus::Waiting],
            question: None,
        },
        events: vec![event],
        contents: note.into_iter().collect(),
        specs: Vec::new(),
        durability: Durability::Synced,
    };
    // A run that cannot be read is ended all the same, and what it holds is settled when it is due.
    let before = parts.store.run(scope, run).await.ok().flatten();
    parts.store.append(scope, append).await?;
    let holder = before.and_then(|state| state.run.holder);
    if holder.is_none_or(|holder| parts.processes.is_dead(&holder.process)) {
        let settled = account::left::settle_own(parts, scope, run, |_| true).await;
        if let Err(error) = settled {
            tracing::warn!(%run, %error, "what the run holds for models is settled when it is due");
        }
    }
    Ok(())
}

/// Ends every waiting run of the scope whose question or grant is past its time; returns how many. Charges what is held for
/// calls of models whose maker is gone.
///
/// # Errors
/// What the store says; what was ended before it stays ended.
pub async fn sweep_due(parts: &Parts, scope: &Scope) -> Result<u64, GateError> {
    sweep::pass(parts, scope, None).await.map(|swept| swept.ended)
}
