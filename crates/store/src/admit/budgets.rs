//! Budgets in an append: an attempt at a call of a model is held in each budget that it debits, or in none, and settled in
//! all of them at once.
//!
//! No condition names a budget's sequence. The fold says inside the transaction whether there is room, so that any number
//! of writers can share one budget.

use portcullis_domain::budget::{Budget, BudgetScope, Caps, Day, MAX_GENERATIONS};
use portcullis_domain::event::{Body, BudgetOpened, BudgetReserved, BudgetSettled, Event};
use portcullis_domain::fold::{FoldError, RunState};
use portcullis_domain::id::{AttemptId, BudgetId, RunId, StepId};
use portcullis_domain::ports::{Append, Condition, StoreError};
use portcullis_domain::run::Run;
use portcullis_domain::scope::Tenant;
use portcullis_domain::stream::Tip;
use portcullis_domain::time::Timestamp;

use super::{Base, Changed};

/// The budgets that an append changes.
#[derive(Debug, Default)]
pub(super) struct Budgets {
    rows: Vec<Changed<Budget>>,
    /// What is held and settled, each with the budgets in which it is.
    moves: Vec<Move>,
}

/// One attempt, held or settled in some budgets.
#[derive(Debug)]
struct Move {
    attempt: AttemptId,
    kind: Kind,
    /// Whose attempt it is, and when it was held.
    run: RunId,
    at: Timestamp,
    debited: Vec<BudgetId>,
}

/// A hold or a settlement; the same in every budget but for what a budget alone decides.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Kind {
    Held(Box<BudgetReserved>, StepId),
    Settled(BudgetSettled, StepId),
}

/// What a reservation needs of the condition: that the lease runs still.
///
/// # Errors
/// [`StoreError::NotAdmitted`].
pub(super) fn check(append: &Append) -> Result<(), StoreError> {
    let reserves = append.events.iter().any(|event| matches!(event.body, Body::BudgetReserved(_)));
    let runs = matches!(
        append.condition,
        Condition::Driver { seq: 1.., take: None, live_at: Some(_), .. }
    );
    if !reserves || runs { Ok(()) } else { Err(StoreError::NotAdmitted) }
}

impl Budgets {
    /// The end of a budget's stream.
    pub(super) fn tip(
        &mut self,
        base: &mut dyn Base,
        tenant: &Tenant,
        id: BudgetId,
        opens: bool,
    ) -> Result<Tip, StoreError> {
        if self.row(id).is_none()
            && let Some(row) = base.budget(id)?
        {
            if row.tenant != *tenant {
                return Err(StoreError::NotFound("budget"));
            }
            self.rows.push(Changed { row, new: false });
        }
        match self.row(id) {
            // Somebody else opened it first.
            Some(_) if opens => Err(StoreError::Stale),
            Some(budget) => Ok(Tip { seq: budget.seq, hash: budget.hash }),
            None if opens => Ok(Tip::START),
            None => Err(StoreError::NotFound("budget")),
        }
    }

    fn row(&self, id: BudgetId) -> Option<&Budget> {
        self.rows.iter().map(|changed| &changed.row).find(|budget| budget.id == id)
    }

    /// Folds one event. `state` is the run that the append is about.
    pub(super) fn fold(
        &mut self,
        base: &mut dyn Base,
        tenant: &Tenant,
        state: Option<&RunState>,
        event: &Event,
    ) -> Result<(), StoreError> {
        let id = BudgetId::from_bytes(event.link.stream.id);
        match &event.body {
            Body::BudgetOpened(body) => {
                let run = &state.ok_or(StoreError::NotAdmitted)?.run;
                check_opened(base, tenant, run, body)?;
                let row = Budget::begin(event).map_err(|_| StoreError::NotAdmitted)?;
                self.rows.push(Changed { row, new: true });
                return Ok(());
            }
            Body::BudgetReserved(body) => self.hold(base, state, body, event, id)?,
            Body::BudgetSettled(body) => self.settle(body, event, id)?,
            _ => return Err(StoreError::NotAdmitted),
        }
        let budget = self.rows.iter_mut().find(|changed| changed.row.id == id);
        let budget = budget.ok_or(StoreError::NotFound("budget"))?;
        budget.row.apply(event).map_err(|error| match error {
            FoldError::Spent(cap) => StoreError::BudgetSpent { budget: id, cap },
            _ => StoreError::NotAdmitted,
        })
    }

    /// A hold is the holder's, for a step of its own.
    fn hold(
        &mut self,
        base: &mut dyn Base,
        state: Option<&RunState>,
        body: &BudgetReserved,
        event: &Event,
        budget: BudgetId,
    ) -> Result<(), StoreError> {
        let state = state.ok_or(StoreError::NotAdmitted)?;
        let step = event.link.step.ok_or(StoreError::NotAdmitted)?;
        let own = body.run == state.run.id && body.epoch == state.run.epoch;
        let known = state.batch.iter().any(|row| row.id == step);
        if !own || !(known || base.has_step(body.run, step)?) {
            return Err(StoreError::NotAdmitted);
        }
        // Only a day's caps are its own matter.
        let same = BudgetReserved { caps: None, ..body.clone() };
        let kind = Kind::Held(Box::new(same), step);
        self.add(body.attempt, kind, body.run, event.link.at, budget)
    }

    fn settle(
        &mut self,
        body: &BudgetSettled,
        event: &Event,
        budget: BudgetId,
    ) -> Result<(), StoreError> {
        let step = event.link.step.ok_or(StoreError::NotAdmitted)?;
        let hold = self.row(budget).and_then(|row| row.hold(body.attempt));
        // It is settled already, or was never held.
        let (run, at) = hold.map(|hold| (hold.run, hold.at)).ok_or(StoreError::NotFound("hold"))?;
        self.add(body.attempt, Kind::Settled(body.clone(), step), run, at, budget)
    }

    fn add(
        &mut self,
        attempt: AttemptId,
        kind: Kind,
        run: RunId,
        at: Timestamp,
        budget: BudgetId,
    ) -> Result<(), StoreError> {
        match self.moves.iter_mut().find(|moved| moved.attempt == attempt) {
            Some(moved) if moved.kind == kind && moved.at == at && moved.run == run => {
                moved.debited.push(budget);
                Ok(())
            }
            // Neither different in two budgets nor held and settled at once.
            Some(_) => Err(StoreError::NotAdmitted),
            None => {
                self.moves.push(Move { attempt, kind, run, at, debited: vec![budget] });
                Ok(())
            }
        }
    }

    /// Sees that each attempt is in all budgets that it debits, and hands out the rows.
    pub(super) fn finish(
        self,
        base: &mut dyn Base,
        tenant: &Tenant,
        state: Option<&RunState>,
    ) -> Result<Vec<Changed<Budget>>, StoreError> {
        for moved in &self.moves {
            let mut wanted = debited(base, tenant, state, moved.run, moved.at)?;
            let mut found = moved.debited.clone();
            wanted.sort_unstable();
            found.sort_unstable();
            if wanted != found {
                return Err(StoreError::NotAdmitted);
            }
        }
        // What is opened is opened for a hold.
        let idle = |changed: &Changed<Budget>| changed.new && changed.row.seq == 1;
        if self.rows.iter().any(idle) { Err(StoreError::NotAdmitted) } else { Ok(self.rows) }
    }
}

/// The budgets that an attempt of a run debits: its own, those of its parents up to the root, and its owner's of the day.
fn debited(
    base: &mut dyn Base,
    tenant: &Tenant,
    state: Option<&RunState>,
    run: RunId,
    at: Timestamp,
) -> Result<Vec<BudgetId>, StoreError> {
    let mut ids = Vec::with_capacity(MAX_GENERATIONS.saturating_add(1));
    let mut next = Some(run);
    while let Some(run) = next {
        let (parent, owner) = family(base, tenant, state, run)?;
        if ids.is_empty() {
            ids.push(BudgetScope::Day { owner, day: Day::of(at) }.id(tenant));
        }
        ids.push(BudgetScope::Run { run }.id(tenant));
        // One is the day's.
        if ids.len() > MAX_GENERATIONS.saturating_add(1) {
            return Err(StoreError::NotAdmitted);
        }
        next = parent;
    }
    Ok(ids)
}

/// The parent and the owner of a run of this tenant.
fn family(
    base: &mut dyn Base,
    tenant: &Tenant,
    state: Option<&RunState>,
    run: RunId,
) -> Result<(Option<RunId>, String), StoreError> {
    if let Some(state) = state.filter(|state| state.run.id == run) {
        return Ok((state.run.parent, state.run.owner.clone()));
    }
    let found = base.run(run)?.filter(|state| state.run.tenant == *tenant);
    found.map(|state| (state.run.parent, state.run.owner)).ok_or(StoreError::NotFound("run"))
}

/// A run's budget has the caps of its limits, which were frozen when it was created; a day's is its owner's.
fn check_opened(
    base: &mut dyn Base,
    tenant: &Tenant,
    own: &Run,
    body: &BudgetOpened,
) -> Result<(), StoreError> {
    let fits = match &body.scope {
        BudgetScope::Day { owner, .. } => *owner == own.owner,
        BudgetScope::Run { run } if *run == own.id => body.caps == Caps::of(&own.limits),
        BudgetScope::Run { run } => base.run(*run)?.is_some_and(|state| {
            state.run.tenant == *tenant && body.caps == Caps::of(&state.run.limits)
        }),
    };
    if fits { Ok(()) } else { Err(StoreError::NotAdmitted) }
}
