//! What was held by those who are gone: charged in full, in all budgets that it debited.

use portcullis_domain::budget::BudgetScope;
use portcullis_domain::id::RunId;
use portcullis_domain::ports::{MAX_PAGE, Page, StoreError};
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
    which: impl Fn(&portcullis_domain::budget::Hold) -> bool,
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
    let mut settled = 0_u64;
    let mut offset = 0_u64;
    loop {
        let page = Page { offset, limit: MAX_PAGE };
        let rows = parts.store.held_budgets(scope, page).await?.rows;
        let read = u64::try_from(rows.len()).unwrap_or(0);
        let mut freed = 0_u64;
        for budget in rows.into_iter().flatten() {
            let BudgetScope::Run { run } = budget.scope else { continue };
            match settle_own(parts, scope, run, |hold| over(hold, term) < now).await {
                Ok(done) => freed = freed.saturating_add(done),
                // One run that cannot be read keeps no other from what it is due.
                Err(GateError::Store(StoreError::Damaged { table })) => {
                    tracing::warn!(%run, table, "a run cannot be read, and what it holds is not settled");
                }
                Err(error) => return Err(error),
            }
        }
        settled = settled.saturating_add(freed);
        if read < u64::from(MAX_PAGE) {
            return Ok(settled);
        }
        // Budgets leave the list as they are freed, so one that was freed is not stepped over.
        offset = if freed == 0 { offset.saturating_add(read) } else { 0 };
    }
}
