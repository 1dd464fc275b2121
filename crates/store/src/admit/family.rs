//! Runs that runs start: what a new one may be, and what nobody may do while its child, or without its parent.

use portcullis_domain::child::{self, MAX_DEPTH};
use portcullis_domain::event::{Body, RunCreated};
use portcullis_domain::fold::RunState;
use portcullis_domain::id::RunId;
use portcullis_domain::ports::{Append, StoreError};
use portcullis_domain::scope::Tenant;

use super::Base;
use super::condition::Subject;

/// The place of a new run in its tree has to be the true one, and its parent has to be there and not to have ended.
///
/// # Errors
/// [`StoreError::ParentEnded`]; [`StoreError::NotFound`]; [`StoreError::NotAdmitted`] for a run that a call starts and that is
/// not what the call may start.
pub(super) fn created(
    base: &mut dyn Base,
    tenant: &Tenant,
    run: RunId,
    body: &RunCreated,
) -> Result<(), StoreError> {
    let Some(parent) = body.parent else {
        // An id that follows from a call is that of the run which the call starts, and nobody else's.
        let fits = body.root == run && !child::is_derived(run);
        return if fits { Ok(()) } else { Err(StoreError::NotAdmitted) };
    };
    let parent = member(base, tenant, parent)?;
    if parent.run.status.is_terminal() {
        return Err(StoreError::ParentEnded);
    }
    if body.root != parent.run.root {
        return Err(StoreError::NotAdmitted);
    }
    // A host that starts runs for its runs by itself draws their ids, and answers for what they may.
    if !child::is_derived(run) {
        return Ok(());
    }
    above_living(base, tenant, &parent)?;
    let awaited = parent.child().is_some_and(|(_, child)| child == run);
    let fits = awaited
        && body.owner == parent.run.owner
        && body.thread == parent.run.thread
        && child::is_within(&parent.run, &body.tools, &body.limits, body.unconfined_agent)
        && depth(base, tenant, &parent)? < MAX_DEPTH;
    if fits { Ok(()) } else { Err(StoreError::NotAdmitted) }
}

/// What begins nothing once a run above has ended: a lease, an effect, a call of a model. And a call that is a run does not
/// end before that run.
///
/// # Errors
/// [`StoreError::ParentEnded`], [`StoreError::NotAdmitted`].
pub(super) fn check(
    base: &mut dyn Base,
    tenant: &Tenant,
    append: &Append,
    subject: &Subject,
) -> Result<(), StoreError> {
    let Subject::Run(state) = subject else { return Ok(()) };
    let begins = |body: &Body| {
        matches!(
            body,
            Body::LeaseAcquired(_)
                | Body::StepStarted(_)
                | Body::StepRestarted(_)
                | Body::StepAdvised(_)
                | Body::ProbeStarted(_)
                | Body::BudgetReserved(_)
        )
    };
    if state.run.parent.is_some() && append.events.iter().any(|event| begins(&event.body)) {
        above_living(base, tenant, state)?;
    }
    let Some((step, child)) = state.child() else { return Ok(()) };
    let ends = |body: &Body| matches!(body, Body::StepFinished(_));
    if append.events.iter().any(|event| event.step == Some(step.id) && ends(&event.body)) {
        // One that is not there can never come once the step has ended.
        let open = base.run(child)?.is_some_and(|child| !child.run.status.is_terminal());
        return if open { Err(StoreError::NotAdmitted) } else { Ok(()) };
    }
    Ok(())
}

fn member(base: &mut dyn Base, tenant: &Tenant, run: RunId) -> Result<RunState, StoreError> {
    let found = base.run(run)?.filter(|state| state.run.tenant == *tenant);
    found.ok_or(StoreError::NotFound("parent run"))
}

/// Every run above this one is there and has not ended. A row of a loop, which no append makes, is damage.
fn above_living(base: &mut dyn Base, tenant: &Tenant, state: &RunState) -> Result<(), StoreError> {
    let mut next = state.run.parent;
    for _ in 0..=MAX_ABOVE {
        let Some(above) = next else { return Ok(()) };
        let above = member(base, tenant, above)?;
        if above.run.status.is_terminal() {
            return Err(StoreError::ParentEnded);
        }
        next = above.run.parent;
    }
    Err(StoreError::Damaged { table: "runs" })
}

/// The most runs that are looked at above one: those that a host starts by itself may stand higher than [`MAX_DEPTH`].
const MAX_ABOVE: usize = 64;

/// How many runs stand above this one; more than [`MAX_DEPTH`] are not counted.
fn depth(base: &mut dyn Base, tenant: &Tenant, state: &RunState) -> Result<usize, StoreError> {
    let (mut depth, mut next) = (0_usize, state.run.parent);
    while let Some(above) = next.filter(|_| depth <= MAX_DEPTH) {
        depth = depth.saturating_add(1);
        next = member(base, tenant, above)?.run.parent;
    }
    Ok(depth)
}
