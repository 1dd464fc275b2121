//! Attempts at calls of models in a [`Scenario`]: held in the budgets of its run, of its parents and of the day, and settled
//! in all of them.

use portcullis_domain::budget::{Amounts, BudgetScope, Caps, Day, HowSettled};
use portcullis_domain::event::{Body, BudgetOpened, BudgetReserved, BudgetSettled};
use portcullis_domain::id::{AttemptId, BudgetId, RunId};
use portcullis_domain::ports::{Append, Condition, Durability};
use portcullis_domain::scope::Tenant;

use super::Scenario;
use crate::ports::SeededEntropy;

impl Scenario {
    /// The budget of this run.
    #[must_use]
    pub fn own_budget(&self) -> BudgetId {
        BudgetScope::Run { run: self.run }.id(&Tenant::local())
    }

    /// The budget of its owner on the scenario's day.
    #[must_use]
    pub fn day_budget(&self) -> BudgetId {
        self.day_scope().id(&Tenant::local())
    }

    fn day_scope(&self) -> BudgetScope {
        BudgetScope::Day { owner: self.owner.clone(), day: Day::of(self.at) }
    }

    /// The scopes that an attempt debits: day, run, then `parents`.
    #[must_use]
    pub fn debited(&self, parents: &[RunId]) -> Vec<BudgetScope> {
        let parents = parents.iter().map(|run| BudgetScope::Run { run: *run });
        let own = [self.day_scope(), BudgetScope::Run { run: self.run }];
        own.into_iter().chain(parents).collect()
    }

    /// A new attempt's id.
    pub fn attempt(&mut self) -> AttemptId {
        self.attempts = self.attempts.saturating_add(1);
        // Not of the run's own entropy, which what was recorded before there were budgets has to find as it was.
        AttemptId::draw(self.at, &SeededEntropy::new(self.seed ^ self.attempts << 32))
    }

    /// `budget.opened`.
    pub fn budget_opened(&mut self, scope: BudgetScope, caps: Caps) {
        let id = scope.id(&Tenant::local());
        self.push_elsewhere(id.into(), None, Body::BudgetOpened(BudgetOpened { scope, caps }));
    }

    /// `budget.reserved` in one budget.
    pub fn reserved(&mut self, budget: BudgetId, attempt: AttemptId, projected: Amounts) {
        let body = BudgetReserved {
            attempt,
            run: self.run,
            epoch: self.epoch,
            model: "fake:small".to_owned(),
            bytes: 4_000,
            projected,
            priced: true,
            deadline_ms: 120_000,
            caps: None,
        };
        self.push_elsewhere(budget.into(), Some(self.step), Body::BudgetReserved(body));
    }

    /// `budget.settled` in one budget.
    pub fn settled(
        &mut self,
        budget: BudgetId,
        attempt: AttemptId,
        how: HowSettled,
        charged: Amounts,
        excess: Amounts,
    ) {
        let body = BudgetSettled { attempt, how, charged, excess };
        self.push_elsewhere(budget.into(), Some(self.step), Body::BudgetSettled(body));
    }

    /// Holds an attempt of a run without parents; `opens` where it is the first of run and day.
    pub fn holds(&mut self, projected: Amounts, opens: bool) -> AttemptId {
        let attempt = self.attempt();
        let caps = Caps::of(&self.limits);
        for scope in self.debited(&[]) {
            let id = scope.id(&Tenant::local());
            if opens {
                let own = matches!(scope, BudgetScope::Run { .. });
                self.budget_opened(scope, if own { caps } else { Caps::default() });
            }
            self.reserved(id, attempt, projected);
        }
        attempt
    }

    /// Settles an attempt of a run without parents, charged what is projected.
    pub fn settles(&mut self, attempt: AttemptId, how: HowSettled, projected: Amounts) {
        for budget in [self.day_budget(), self.own_budget()] {
            self.settled(budget, attempt, how, projected, Amounts::NONE);
        }
    }

    /// What was gathered, as the append of a driver whose lease has to run still.
    pub fn live(&mut self) -> Append {
        let (run, (seq, epoch)) = (self.run, self.seen);
        let live_at = Some(self.at);
        let condition = Condition::Driver { run, seq, epoch, take: None, live_at, label_seq: None };
        self.append(condition, Durability::Synced)
    }
}

/// One call with so many tokens, half of them input, and a cost of as many micros.
#[must_use]
pub const fn amounts(tokens: u64) -> Amounts {
    let input_tokens = tokens / 2;
    Amounts {
        calls: 1,
        input_tokens,
        output_tokens: tokens.saturating_sub(input_tokens),
        cost_micros: tokens,
    }
}
