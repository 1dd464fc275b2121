//! What was spent on models, from recorded facts: by run, by the tool that the step then called, by model.
//!
//! The budget of a run has what the runs that it started spent too, so its report splits them; the budget of a day has all
//! runs of its owner.

use std::collections::{BTreeMap, BTreeSet};

use portcullis_domain::budget::{Amounts, Budget, BudgetScope, HowSettled};
use portcullis_domain::event::Body;
use portcullis_domain::id::{AttemptId, RunId, StepId};
use portcullis_domain::ports::{EventFilter, MAX_PAGE, Pages, Store, StoreError};
use portcullis_domain::scope::Scope;
use portcullis_domain::stream::Stream;

/// What one budget was spent on. What is still held is in none of the parts.
#[derive(Clone, Debug)]
pub struct Spend {
    /// The budget.
    pub budget: Budget,
    /// By run: its own and those that it started, or all of the day.
    pub by_run: BTreeMap<RunId, Amounts>,
    /// By the tool that the step called after its calls of models; `None` for steps that called none.
    pub by_tool: BTreeMap<Option<String>, Amounts>,
    /// By model.
    pub by_model: BTreeMap<String, Amounts>,
    /// How many attempts went how.
    pub by_outcome: BTreeMap<&'static str, u64>,
}

/// An attempt as it was held.
struct Attempt {
    run: RunId,
    model: String,
}

/// Reads what a budget was spent on; `None` when nothing was ever held in it.
///
/// # Errors
/// What the store says; [`StoreError::Damaged`] for an event that cannot be read.
pub async fn spend(
    store: &dyn Store,
    scope: &Scope,
    of: &BudgetScope,
) -> Result<Option<Spend>, StoreError> {
    let id = of.id(scope.tenant());
    let Some(budget) = store.budget(scope, id).await? else { return Ok(None) };
    let mut spend = Spend {
        budget,
        by_run: BTreeMap::new(),
        by_tool: BTreeMap::new(),
        by_model: BTreeMap::new(),
        by_outcome: BTreeMap::new(),
    };
    let mut open: BTreeMap<AttemptId, Attempt> = BTreeMap::new();
    let mut by_step: BTreeMap<(RunId, StepId), Amounts> = BTreeMap::new();
    let mut after = 0;
    loop {
        let filter = EventFilter { stream: Some(Stream::from(id)), after, limit: MAX_PAGE };
        let page = store.events(scope, filter).await?;
        let Some(last) = page.last() else { break };
        let damaged = StoreError::Damaged { table: "events" };
        after = u64::try_from(last.journal_seq).map_err(|_| damaged.clone())?;
        for stored in &page {
            let event = stored.event(store.instance()).map_err(|_| damaged.clone())?;
            match event.body {
                Body::BudgetReserved(body) => {
                    open.insert(body.attempt, Attempt { run: body.run, model: body.model });
                }
                Body::BudgetSettled(body) => {
                    let attempt = open.remove(&body.attempt).ok_or_else(|| damaged.clone())?;
                    let step = event.link.step.ok_or_else(|| damaged.clone())?;
                    let used = body.charged.plus(body.excess);
                    add(&mut spend.by_run, attempt.run, used);
                    add(&mut spend.by_model, attempt.model, used);
                    add(&mut by_step, (attempt.run, step), used);
                    count(&mut spend.by_outcome, body.how);
                }
                _ => {}
            }
        }
    }
    spend.by_tool = by_tool(store, scope, by_step).await?;
    Ok(Some(spend))
}

fn add<K: Ord>(sums: &mut BTreeMap<K, Amounts>, key: K, used: Amounts) {
    let sum = sums.entry(key).or_default();
    *sum = sum.plus(used);
}

fn count(counts: &mut BTreeMap<&'static str, u64>, how: HowSettled) {
    let count = counts.entry(how.as_str()).or_default();
    *count = count.saturating_add(1);
}

/// Finds the tool of each step, one run after another.
async fn by_tool(
    store: &dyn Store,
    scope: &Scope,
    by_step: BTreeMap<(RunId, StepId), Amounts>,
) -> Result<BTreeMap<Option<String>, Amounts>, StoreError> {
    let runs: BTreeSet<RunId> = by_step.keys().map(|(run, _)| *run).collect();
    let mut tools: BTreeMap<(RunId, StepId), String> = BTreeMap::new();
    for run in runs {
        let mut pages = Pages::all();
        while let Some(page) = pages.next_page() {
            let rows = store.steps(scope, run, page).await?.rows;
            pages.read(rows.len());
            for step in rows.into_iter().flatten() {
                let key = (run, step.id);
                if let Some(admitted) = step.admitted.filter(|_| by_step.contains_key(&key)) {
                    tools.insert(key, admitted.tool);
                }
            }
        }
    }
    let mut sums = BTreeMap::new();
    for (key, used) in by_step {
        add(&mut sums, tools.get(&key).cloned(), used);
    }
    Ok(sums)
}
