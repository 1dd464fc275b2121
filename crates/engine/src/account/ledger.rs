//! The budgets that an attempt debits: reading them, holding in all of them, settling in all of them.

use std::time::Duration;

use portcullis_domain::budget::{
    Amounts, Budget, BudgetScope, Cap, Caps, Day, Hold, Learned, MAX_GENERATIONS, MAX_HOLDS,
};
use portcullis_domain::event::{Body, BudgetOpened, BudgetReserved, BudgetSettled};
use portcullis_domain::id::{AttemptId, RunId, StepId};
use portcullis_domain::ports::{
    Append, Condition, Disposition, Durability, NewEvent, Price, StoreError,
};
use portcullis_domain::run::{EndReason, Run};
use portcullis_domain::scope::Scope;
use portcullis_domain::time::Timestamp;

use super::charge::{self, Settlement};
use super::{Books, Stopped, called};
use crate::error::GateError;
use crate::parts::Parts;

/// How often a hold is composed anew when somebody else opened a budget or recorded something meanwhile.
const MAX_TRIES: u32 = 16;

/// The run and those above it, nearest first, with their caps.
pub(super) async fn chain(
    parts: &Parts,
    scope: &Scope,
    run: &Run,
) -> Result<Vec<(RunId, Caps)>, GateError> {
    let mut chain = vec![(run.id, Caps::of(&run.limits))];
    let mut parent = run.parent;
    while let Some(id) = parent {
        if chain.len() >= MAX_GENERATIONS {
            return Err(GateError::TooDeep);
        }
        let state = parts.store.run(scope, id).await?.ok_or(StoreError::NotFound("parent run"))?;
        chain.push((id, Caps::of(&state.run.limits)));
        parent = state.run.parent;
    }
    Ok(chain)
}

/// What was held for one attempt.
#[derive(Clone, Debug)]
pub(super) struct Held {
    pub(super) attempt: AttemptId,
    pub(super) step: StepId,
    pub(super) projected: Amounts,
    pub(super) deadline: Duration,
    scopes: Vec<BudgetScope>,
}

/// What becomes of an attempt to hold.
pub(super) enum Reserved {
    Held(Held),
    /// Other calls hold what this one needs; it may be free again.
    Busy(Stopped),
    /// It was not made sure that it is stored; it is undone, and another attempt may be made.
    Undone,
    Stopped(Stopped),
}

/// What is to be held.
#[derive(Clone, Copy)]
pub(super) struct Wanted {
    pub(super) step: StepId,
    pub(super) bytes: u64,
    pub(super) output_tokens: u64,
    pub(super) deadline: Duration,
}

impl Books {
    fn scopes(&self, at: Timestamp) -> Vec<(BudgetScope, Caps)> {
        let day = BudgetScope::Day { owner: self.owner.clone(), day: Day::of(at) };
        let chain = self.chain.iter().map(|(run, caps)| (BudgetScope::Run { run: *run }, *caps));
        std::iter::once((day, self.engaged.day)).chain(chain).collect()
    }

    async fn budget(&self, scope: &BudgetScope) -> Result<Option<Budget>, StoreError> {
        self.parts.store.budget(&self.scope, scope.id(self.scope.tenant())).await
    }

    /// Holds the worst case of an attempt in every budget, synced, while the lease runs.
    pub(super) async fn reserve(&self, wanted: Wanted) -> Result<Reserved, StoreError> {
        let mut tries = 0_u32;
        loop {
            tries = tries.saturating_add(1);
            match self.try_reserve(wanted).await {
                Err(StoreError::Stale) if tries < MAX_TRIES => {}
                Err(StoreError::Busy) if tries < MAX_TRIES => {
                    let pause = Duration::from_millis(10).saturating_mul(tries);
                    self.parts.clock.sleep(pause).await;
                }
                reserved => return reserved,
            }
        }
    }

    async fn try_reserve(&self, wanted: Wanted) -> Result<Reserved, StoreError> {
        let now = self.parts.clock.now();
        let scopes = self.scopes(now);
        let mut budgets = Vec::with_capacity(scopes.len());
        for (scope, _) in &scopes {
            budgets.push(self.budget(scope).await?);
        }
        let known = self.learned(&budgets, now, wanted.bytes).await?;
        let price = self.engaged.model.price();
        let input_tokens = known.input_tokens(wanted.bytes);
        let projected = charge::worst(input_tokens, wanted.output_tokens, price);
        for (budget, (_, caps)) in budgets.iter().zip(&scopes) {
            if let Some(stop) = self.no_room(budget.as_ref(), caps, projected) {
                return Ok(stop);
            }
        }
        let state = self.parts.store.run(&self.scope, self.run).await?;
        let state = state.ok_or(StoreError::NotFound("run"))?;
        if state.run.epoch != self.epoch || state.run.holder.is_none() {
            return Err(StoreError::LeaseLost);
        }
        let attempt = AttemptId::draw(now, self.parts.entropy.as_ref());
        let mut events = Vec::new();
        for (budget, (scope, caps)) in budgets.iter().zip(&scopes) {
            let stream = scope.id(self.scope.tenant()).into();
            if budget.is_none() {
                let body = Body::BudgetOpened(BudgetOpened { scope: scope.clone(), caps: *caps });
                events.push(NewEvent { stream, step: None, at: now, body });
            }
            // Always said: another process may bring others between this look and the append.
            let own_matter = matches!(scope, BudgetScope::Day { .. });
            let body = Body::BudgetReserved(BudgetReserved {
                attempt,
                run: self.run,
                epoch: self.epoch,
                model: self.engaged.model.name().to_string(),
                bytes: wanted.bytes,
                projected,
                priced: price != Price::Unpriced,
                deadline_ms: u64::try_from(wanted.deadline.as_millis()).unwrap_or(u64::MAX),
                caps: own_matter.then_some(*caps),
            });
            events.push(NewEvent { stream, step: Some(wanted.step), at: now, body });
        }
        let condition = Condition::Driver {
            run: self.run,
            seq: state.run.seq,
            epoch: self.epoch,
            take: None,
            live_at: Some(now),
            label_seq: None,
        };
        let scopes = scopes.into_iter().map(|(scope, _)| scope).collect();
        let (step, deadline) = (wanted.step, wanted.deadline);
        let held = Held { attempt, step, projected, deadline, scopes };
        match self.parts.store.append(&self.scope, append(condition, events)).await {
            Ok(_) => Ok(Reserved::Held(held)),
            Err(StoreError::BudgetSpent { budget, cap }) => {
                // Somebody else was first; whether what is in the way may go again shows at the next look.
                let message = format!("{budget} has no room left: {}", cap.as_str());
                Ok(Reserved::Busy(stopped(cap, message)))
            }
            Err(StoreError::InDoubt) => {
                self.settle(&held, Settlement::nothing()).await?;
                Ok(Reserved::Undone)
            }
            Err(error) => Err(error),
        }
    }

    /// What is known of the model's tokens: from today's budgets, and the day before where today knows too little of
    /// requests of this size.
    async fn learned(
        &self,
        budgets: &[Option<Budget>],
        now: Timestamp,
        bytes: u64,
    ) -> Result<Learned, StoreError> {
        let name = self.engaged.model.name().as_str();
        let of = |budget: &Budget| budget.learned.get(name).copied().unwrap_or_default();
        let mut known = budgets.iter().flatten().map(of).fold(Learned::default(), Learned::and);
        if let Some(day) = Day::of(now).before().filter(|_| known.is_little(bytes)) {
            let scope = BudgetScope::Day { owner: self.owner.clone(), day };
            known = self.budget(&scope).await?.as_ref().map(of).unwrap_or_default().and(known);
        }
        Ok(known)
    }

    /// What keeps a hold out of one budget, judged before it is tried: the store judges again.
    fn no_room(
        &self,
        budget: Option<&Budget>,
        caps: &Caps,
        projected: Amounts,
    ) -> Option<Reserved> {
        let (spent, cap) = match budget {
            None => (Amounts::NONE, caps.exceeded_by(&projected)?),
            Some(budget) => (budget.spent.plus(budget.excess), budget.refuses(caps, &projected)?),
        };
        let whose = budget.map_or_else(|| "a limit".to_owned(), |budget| called(budget, self.run));
        let message = format!(
            "{whose} has no room left for this call: {}; with a reply as long as it may be it could use {} tokens and cost {}.{:06}",
            cap.as_str(),
            projected.tokens(),
            projected.cost_micros / 1_000_000,
            projected.cost_micros % 1_000_000
        );
        let stop = stopped(cap, message);
        // Without what others hold there would be room.
        let busy = caps.exceeded_by(&spent.plus(projected)).is_none();
        Some(if busy { Reserved::Busy(stop) } else { Reserved::Stopped(stop) })
    }

    /// Settles an attempt in every budget, and tries for a while when the store cannot take it. One that somebody else
    /// has settled is left as it is.
    pub(super) async fn settle(&self, held: &Held, with: Settlement) -> Result<(), StoreError> {
        settle(&self.parts, &self.scope, held, with).await
    }
}

/// See [`Books::settle`].
async fn settle(
    parts: &Parts,
    scope: &Scope,
    held: &Held,
    with: Settlement,
) -> Result<(), StoreError> {
    let begun = parts.clock.monotonic();
    let patience_us = parts.timing.record.as_micros();
    let mut pause = Duration::from_millis(10);
    loop {
        let at = parts.clock.now();
        let event = |budget: &BudgetScope| NewEvent {
            stream: budget.id(scope.tenant()).into(),
            step: Some(held.step),
            at,
            body: Body::BudgetSettled(BudgetSettled {
                attempt: held.attempt,
                how: with.how,
                charged: with.charged,
                excess: with.excess,
            }),
        };
        let events = held.scopes.iter().map(event).collect();
        let error = match parts.store.append(scope, append(Condition::Late, events)).await {
            Ok(_) | Err(StoreError::NotFound("hold" | "budget")) => return Ok(()),
            Err(error) => error,
        };
        let waited_us = u128::from(parts.clock.monotonic().micros_since(begun));
        if error.disposition() != Disposition::Retry || waited_us > patience_us {
            return Err(error);
        }
        parts.clock.sleep(pause).await;
        pause = pause.saturating_mul(2).min(Duration::from_millis(500));
    }
}

/// Settles a hold that nobody else will settle, charged in full.
pub(super) async fn abandon(
    parts: &Parts,
    scope: &Scope,
    run: &Run,
    hold: &Hold,
) -> Result<(), GateError> {
    let day = BudgetScope::Day { owner: run.owner.clone(), day: Day::of(hold.at) };
    let chain = chain(parts, scope, run).await?;
    let runs = chain.into_iter().map(|(run, _)| BudgetScope::Run { run });
    let held = Held {
        attempt: hold.attempt,
        step: hold.step,
        projected: hold.projected,
        deadline: Duration::from_millis(hold.deadline_ms),
        scopes: std::iter::once(day).chain(runs).collect(),
    };
    let how = portcullis_domain::budget::HowSettled::Abandoned;
    Ok(settle(parts, scope, &held, Settlement::whole(how, hold.projected)).await?)
}

fn append(condition: Condition, events: Vec<NewEvent>) -> Append {
    let (contents, specs) = (Vec::new(), Vec::new());
    Append { condition, events, contents, specs, durability: Durability::Synced }
}

/// What a cap that has no room makes of a call. That too many are under way is no limit of anybody's: the call alone
/// comes to nothing.
fn stopped(cap: Cap, message: String) -> Stopped {
    match cap {
        Cap::Calls => Stopped::limit(EndReason::LimitModelCalls, message),
        Cap::Tokens => Stopped::limit(EndReason::LimitTokens, message),
        Cap::Cost => Stopped::limit(EndReason::LimitCost, message),
        Cap::Holds => Stopped::unavailable(format!(
            "{MAX_HOLDS} calls were under way at once for as long as one may take, so this one was not made: {message}"
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_is_somebodys_limit_ends_a_run() {
        for (cap, reason, is_limit) in [
            (Cap::Calls, EndReason::LimitModelCalls, true),
            (Cap::Tokens, EndReason::LimitTokens, true),
            (Cap::Cost, EndReason::LimitCost, true),
            (Cap::Holds, EndReason::ModelUnavailable, false),
        ] {
            let stop = stopped(cap, "why".to_owned());
            assert_eq!((stop.reason, stop.is_limit), (reason, is_limit), "{cap:?}");
            assert!(stop.message.ends_with("why"));
        }
    }
}
