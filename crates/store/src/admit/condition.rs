//! The four conditions of an append, judged on the state inside the transaction.

use portcullis_domain::event::Body;
use portcullis_domain::fold::RunState;
use portcullis_domain::id::{InstanceId, QuestionId, RunId};
use portcullis_domain::lease::Epoch;
use portcullis_domain::ports::{Append, Condition, LeaseTerm, NewEvent, StoreError, TakeLease};
use portcullis_domain::question::{Question, QuestionStatus};
use portcullis_domain::scope::Tenant;
use portcullis_domain::stream::StreamKind;
use portcullis_domain::time::Timestamp;

use super::refold::refold;
use super::{Base, budgets, facts, family, outcomes};

/// What an append is about.
#[derive(Debug)]
pub(super) enum Subject {
    /// A run that is there.
    Run(Box<RunState>),
    /// A run that the append creates.
    NewRun(RunId),
    /// The installation.
    System,
}

/// Judges the condition.
pub(super) fn check(
    base: &mut dyn Base,
    instance: InstanceId,
    tenant: &Tenant,
    append: &Append,
) -> Result<Subject, StoreError> {
    if !facts::fit(append) {
        return Err(StoreError::NotAdmitted);
    }
    budgets::check(append)?;
    let subject = match &append.condition {
        Condition::Driver { run, seq: 0, epoch, take, live_at, .. } => {
            new_run(base, *run, *epoch, *take, *live_at)?
        }
        Condition::Driver { run, seq, epoch, take, live_at, .. } => {
            let state = own_run(base, tenant, *run)?;
            let term = base.lease(*run)?;
            match take {
                Some(take) => taker(&state, term, *seq, *epoch, *take, *live_at)?,
                None => holder(&state, term, *seq, *epoch, *live_at)?,
            }
            Subject::Run(state)
        }
        Condition::Operator { run, statuses, question } => {
            let state = match own_run(base, tenant, *run) {
                // Rows that cannot be read keep nobody from ending the run.
                Err(StoreError::Damaged { .. }) if only_ends(append) => {
                    refold(base, instance, tenant, *run)?
                }
                read => read?,
            };
            if !statuses.contains(&state.run.status) {
                return Err(StoreError::RunState { status: state.run.status });
            }
            if let Some((id, digest)) = question {
                let asked = latest_question(base, &state, *id)?;
                if asked.status != QuestionStatus::Open {
                    return Err(StoreError::QuestionState { status: asked.status });
                }
                if asked.digest != *digest {
                    return Err(StoreError::DigestChanged);
                }
            }
            let shown = question.map(|(id, _)| id);
            for event in &append.events {
                answer(&state, shown, event)?;
            }
            Subject::Run(state)
        }
        Condition::Sweep { run, question, status, now, due } => {
            let state = own_run(base, tenant, *run)?;
            let asked = latest_question(base, &state, *question)?;
            sweep(&asked, *status, *now, *due)?;
            Subject::Run(state)
        }
        Condition::Late => late(base, tenant, &append.events)?,
    };
    check_labels(base, tenant, append, &subject)?;
    outcomes::check(base, tenant, append, &subject)?;
    family::check(base, tenant, append, &subject)?;
    Ok(subject)
}

/// True when the append does nothing but end a run.
fn only_ends(append: &Append) -> bool {
    append.events.iter().all(|event| matches!(event.body, Body::RunFinished(_)))
}

/// A run of this tenant; another tenant's does not exist.
fn own_run(base: &mut dyn Base, tenant: &Tenant, run: RunId) -> Result<Box<RunState>, StoreError> {
    match base.run(run)? {
        Some(state) if state.run.tenant == *tenant => Ok(Box::new(state)),
        _ => Err(StoreError::NotFound("run")),
    }
}

fn new_run(
    base: &mut dyn Base,
    run: RunId,
    epoch: Epoch,
    take: Option<TakeLease>,
    live_at: Option<Timestamp>,
) -> Result<Subject, StoreError> {
    if base.run(run)?.is_some() {
        return Err(StoreError::Stale);
    }
    if epoch != Epoch::NONE {
        return Err(StoreError::NotAdmitted);
    }
    check_term(take, live_at)?;
    Ok(Subject::NewRun(run))
}

/// The new term must run now and at the instant that the append needs.
fn check_term(take: Option<TakeLease>, live_at: Option<Timestamp>) -> Result<(), StoreError> {
    match (take, live_at) {
        (Some(take), _) if take.until <= take.now => Err(StoreError::NotAdmitted),
        (Some(take), Some(at)) if take.until <= at => Err(StoreError::LeaseLost),
        (None, Some(_)) => Err(StoreError::LeaseLost),
        _ => Ok(()),
    }
}

/// The term of the state's own holder, if it still runs at `at`.
fn running(state: &RunState, term: Option<LeaseTerm>, at: Timestamp) -> Option<LeaseTerm> {
    term.filter(|term| {
        state.run.holder.is_some() && term.epoch == state.run.epoch && term.until > at
    })
}

/// Refuses what follows the end of a run.
fn not_ended(state: &RunState) -> Result<(), StoreError> {
    let status = state.run.status;
    if status.is_terminal() { Err(StoreError::RunState { status }) } else { Ok(()) }
}

fn taker(
    state: &RunState,
    term: Option<LeaseTerm>,
    seq: u64,
    epoch: Epoch,
    take: TakeLease,
    live_at: Option<Timestamp>,
) -> Result<(), StoreError> {
    not_ended(state)?;
    // A proof of death is about the holder that the taker saw, so it is none about a later one.
    let proven_dead = take.holder_dead && epoch == state.run.epoch;
    if let Some(term) = running(state, term, take.now).filter(|_| !proven_dead) {
        return Err(StoreError::Leased { until: term.until });
    }
    if epoch != state.run.epoch || seq != state.run.seq {
        return Err(StoreError::Stale);
    }
    check_term(Some(take), live_at)
}

fn holder(
    state: &RunState,
    term: Option<LeaseTerm>,
    seq: u64,
    epoch: Epoch,
    live_at: Option<Timestamp>,
) -> Result<(), StoreError> {
    not_ended(state)?;
    if epoch != state.run.epoch || state.run.holder.is_none() {
        return Err(StoreError::LeaseLost);
    }
    if live_at.is_some_and(|at| running(state, term, at).is_none()) {
        return Err(StoreError::LeaseLost);
    }
    if seq != state.run.seq { Err(StoreError::Stale) } else { Ok(()) }
}

/// The question as it is; one that is not the latest of its run can change no more.
fn latest_question(
    base: &mut dyn Base,
    state: &RunState,
    id: QuestionId,
) -> Result<Question, StoreError> {
    if let Some(question) = state.question.as_ref().filter(|question| question.id == id) {
        return Ok(question.clone());
    }
    let status = match base.question(id)? {
        Some(question) if question.run == state.run.id => question.status,
        _ => return Err(StoreError::NotFound("question")),
    };
    match status {
        QuestionStatus::Open | QuestionStatus::Granted => {
            Err(StoreError::QuestionState { status: QuestionStatus::Withdrawn })
        }
        status => Err(StoreError::QuestionState { status }),
    }
}

/// What a person does is about the question that was shown and the step that waits. An answer is in time at
/// exactly the instant of expiry.
fn answer(state: &RunState, shown: Option<QuestionId>, event: &NewEvent) -> Result<(), StoreError> {
    let asked = state.question.as_ref();
    let question = match &event.body {
        Body::QuestionAnswered(body) => Some(body.question),
        Body::QuestionClosed(body) => Some(body.question),
        Body::StepFinished(_) | Body::ThreadLabelled(_) | Body::ThreadCounted(_) => shown,
        _ => return Ok(()),
    };
    let step = asked.map(|question| question.step);
    if question.is_none() || question != shown || step.is_none() || step != event.step {
        return Err(StoreError::NotAdmitted);
    }
    let late = asked.and_then(|question| question.expires_at).is_some_and(|end| event.at > end);
    if late && matches!(event.body, Body::QuestionAnswered(_)) {
        return Err(StoreError::QuestionState { status: QuestionStatus::Expired });
    }
    Ok(())
}

fn sweep(
    question: &Question,
    status: QuestionStatus,
    now: Timestamp,
    due: Timestamp,
) -> Result<(), StoreError> {
    if question.status != status {
        return Err(StoreError::QuestionState { status: question.status });
    }
    if !matches!(status, QuestionStatus::Open | QuestionStatus::Granted) {
        return Err(StoreError::QuestionState { status });
    }
    // A sweeper with an old look cannot end a question, or a grant, before its own time. What has no term is
    // never due.
    let early = question.ends_at().is_none_or(|end| due < end);
    if early || now <= due { Err(StoreError::NotDue) } else { Ok(()) }
}

/// Late outcomes of one run, or erasures; never both.
fn late(base: &mut dyn Base, tenant: &Tenant, events: &[NewEvent]) -> Result<Subject, StoreError> {
    let outcome = events.iter().find(|event| matches!(event.body, Body::OutcomeLate(_)));
    match outcome {
        None => Ok(Subject::System),
        Some(event) if event.stream.kind == StreamKind::Run => {
            own_run(base, tenant, RunId::from_bytes(event.stream.id)).map(Subject::Run)
        }
        Some(_) => Err(StoreError::NotAdmitted),
    }
}

fn check_labels(
    base: &mut dyn Base,
    tenant: &Tenant,
    append: &Append,
    subject: &Subject,
) -> Result<(), StoreError> {
    let Condition::Driver { label_seq: Some(expected), .. } = &append.condition else {
        return Ok(());
    };
    let created = append.events.iter().find_map(|event| match &event.body {
        Body::RunCreated(body) => Some(body.thread),
        _ => None,
    });
    let found = match (subject, created) {
        (Subject::Run(state), _) => match base.thread(state.run.thread)? {
            Some(thread) if thread.tenant == *tenant => thread.label_seq,
            _ => return Err(StoreError::Damaged { table: "threads" }),
        },
        (_, Some(thread)) => base
            .thread(thread)?
            .filter(|thread| thread.tenant == *tenant)
            .map_or(0, |thread| thread.label_seq),
        (_, None) => return Err(StoreError::NotAdmitted),
    };
    if found == *expected { Ok(()) } else { Err(StoreError::LabelsMoved) }
}
