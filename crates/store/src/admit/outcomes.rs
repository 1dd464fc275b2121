//! Whether an effect may begin: no other call of its tool waits for somebody to say what it did, and what begins by
//! itself a second time is a call whose receiver can tell.

use portcullis_canon::{Limits, from_slice};
use portcullis_domain::event::Body;
use portcullis_domain::fold::RunState;
use portcullis_domain::id::StepId;
use portcullis_domain::ports::{Append, StoreError};
use portcullis_domain::scope::Tenant;
use portcullis_domain::step::Admitted;
use portcullis_domain::tool::ToolSpec;

use super::Base;
use super::condition::Subject;

/// Judges the effects that an append begins.
///
/// # Errors
/// [`StoreError::OutcomeOpen`] names the question that has to be answered first.
pub(super) fn check(
    base: &mut dyn Base,
    tenant: &Tenant,
    append: &Append,
    subject: &Subject,
) -> Result<(), StoreError> {
    let Subject::Run(state) = subject else { return Ok(()) };
    for event in &append.events {
        match (&event.body, event.step) {
            (Body::StepStarted(_), Some(step)) => start(base, tenant, append, state, step)?,
            (Body::StepRestarted(_), Some(step)) => restart(base, append, state, step)?,
            _ => {}
        }
    }
    Ok(())
}

/// A first start of a call that changes something. A later one settles an outcome that is not known itself: were it
/// refused, two of them could wait for each other.
fn start(
    base: &mut dyn Base,
    tenant: &Tenant,
    append: &Append,
    state: &RunState,
    step: StepId,
) -> Result<(), StoreError> {
    let Some(call) = admitted(append, state, step).cloned() else { return Ok(()) };
    let again = state.batch.iter().any(|row| row.id == step && row.starts > 0);
    if again || !call.effect.changes_something() {
        return Ok(());
    }
    let mut open = base.open_outcomes(tenant, &state.run.owner)?;
    // Every store names the same one of several.
    open.sort_by_key(|open| open.question);
    for open in open {
        if open.call.tool == call.tool && same_target(base, append, &open.call, &call)? {
            return Err(StoreError::OutcomeOpen { question: open.question });
        }
    }
    Ok(())
}

/// Only a tool that said that it can be called again with the same key is.
fn restart(
    base: &mut dyn Base,
    append: &Append,
    state: &RunState,
    step: StepId,
) -> Result<(), StoreError> {
    let call = admitted(append, state, step).ok_or(StoreError::NotAdmitted)?;
    match spec(base, append, call)? {
        Some(spec) if spec.idempotency_key.is_some() => Ok(()),
        _ => Err(StoreError::NotAdmitted),
    }
}

/// The step's call as it is after the append.
fn admitted<'a>(append: &'a Append, state: &'a RunState, step: StepId) -> Option<&'a Admitted> {
    let judged = append.events.iter().rev().find_map(|event| match &event.body {
        Body::StepJudged(body) if event.step == Some(step) => Some(&body.admitted),
        _ => None,
    });
    let stored = || state.batch.iter().find(|row| row.id == step)?.admitted.as_ref();
    judged.or_else(stored)
}

/// Whether two specs of one name point at the same thing. One that cannot be read may point at anything.
fn same_target(
    base: &mut dyn Base,
    append: &Append,
    one: &Admitted,
    other: &Admitted,
) -> Result<bool, StoreError> {
    if one.spec == other.spec {
        return Ok(true);
    }
    let both = spec(base, append, one)?.zip(spec(base, append, other)?);
    Ok(both.is_none_or(|(one, other)| one.target == other.target))
}

/// The spec that a call was judged with, stored or brought.
fn spec(
    base: &mut dyn Base,
    append: &Append,
    call: &Admitted,
) -> Result<Option<ToolSpec>, StoreError> {
    let read = |bytes: &[u8]| from_slice::<ToolSpec>(bytes, &Limits::ENVELOPE).ok();
    let brought = append.specs.iter().filter_map(|bytes| read(bytes));
    if let Some(spec) = brought.into_iter().find(|spec| spec.digest() == call.spec) {
        return Ok(Some(spec));
    }
    Ok(base.spec(call.spec)?.and_then(|bytes| read(&bytes)))
}
