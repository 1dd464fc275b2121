//! What was held by those who are gone: charged in full, in all budgets that it debited.

use portcullis_domain::budget::{BudgetScope, Hold};
use portcullis_domain::id::RunId;
use portcullis_domain::ports::{Pages, StoreError};
use portcullis_domain::scope::Scope;

use super::{ledger, over};
use crate::core::Core;
use crate::error::GateError;
use crate::parts::Parts;

/// Settles what holders before this one left of the run.
pub(crate) async fn settle_former(core: &Core) -> Result<(), GateError> {
    settle_own(&core.parts, &core.scope, core.run_id(), |hold| hold.epoch < core.epoch)
        .await
        .map(drop)
}

/// Settles those of a run's own holds that `which` says; gives how many.
pub(crate) async fn settle_own(
    parts: &Parts,
    scope: &Scope,
    run: RunId,
    which: impl Fn(&Hold) -> bool,
) -> Result<u64, GateError> {
    let id = BudgetScope::Run { run }.id(scope.tenant());
    let Some(budget) = parts.store.budget(scope, id).await? else { return Ok(0) };
    let own: Vec<_> = budget.holds.iter().filter(|hold| hold.run == run && which(hold)).collect();
    if own.is_empty() {
        return Ok(0);
    }
    let state = parts.store.run(scope, run).await?.ok_or(StoreError::NotFound("run"))?;
    let mut settled = 0_u64;
    for hold in own {
        ledger::abandon(parts, scope, &state.run, hold).await?;
        settled = settled.saturating_add(1);
    }
    Ok(settled)
}

/// Settles every hold of the scope whose attempt is past its deadline by more than a lease's term: whoever made it is gone,
/// or has lost the store. A run that has ended is taken up by nobody, so nobody else would.
pub(crate) async fn settle_due(parts: &Parts, scope: &Scope) -> Result<u64, GateError> {
    let (now, term) = (parts.clock.now(), parts.timing.lease);
    let is_due = |hold: &Hold| over(hold, term) < now;
    let mut settled = 0_u64;
    let mut pages = Pages::all();
    while let Some(page) = pages.next_page() {
        let rows = parts.store.held_budgets(scope, page).await?.rows;
        // Forward only: those that slip into a page that was read are the next pass's.
        pages.read(rows.len());
        for budget in rows.into_iter().flatten() {
            let BudgetScope::Run { run } = budget.scope else { continue };
            if !budget.holds.iter().any(|hold| hold.run == run && is_due(hold)) {
                continue;
            }
            match settle_own(parts, scope, run, is_due).await {
                Ok(done) => settled = settled.saturating_add(done),
                // One budget whose rows cannot be read, or do not fit each other, keeps no other from what it is due.
                Err(
                    error @ (GateError::TooDeep
                    | GateError::Store(
                        StoreError::Damaged { .. }
                        | StoreError::NotFound(_)
                        | StoreError::NotAdmitted,
                    )),
                ) => {
                    tracing::warn!(%run, %error, "what a run holds for models cannot be settled");
                }
                Err(error) => return Err(error),
            }
        }
    }
    Ok(settled)
}
