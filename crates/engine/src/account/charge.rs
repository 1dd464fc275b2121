//! What an attempt is charged: from what came back to what is settled.

use portcullis_domain::budget::{Amounts, HowSettled};
use portcullis_domain::ports::{
    Charge, MAX_PLAUSIBLE_TOKENS, ModelFailure, ModelFault, ModelOutcome, Price, Projection, Usage,
};

/// Tokens by which a count may be beyond what was sent or asked for and still be true: templates and hidden prompts add
/// some. Beyond this the count is taken for a lie.
const SLACK: u64 = 16_384;

/// What is settled for one attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Settlement {
    pub(super) how: HowSettled,
    pub(super) charged: Amounts,
    pub(super) excess: Amounts,
}

impl Settlement {
    /// All that was held.
    pub(super) const fn whole(how: HowSettled, projected: Amounts) -> Self {
        Self { how, charged: projected, excess: Amounts::NONE }
    }

    /// The attempt alone.
    pub(super) const fn nothing() -> Self {
        let charged = Amounts { calls: 1, ..Amounts::NONE };
        Self { how: HowSettled::NotServed, charged, excess: Amounts::NONE }
    }

    /// What was counted, up to what was held, and the rest beside it.
    fn counted(how: HowSettled, used: Amounts, projected: Amounts) -> Self {
        Self { how, charged: used.within(projected), excess: used.beyond(projected) }
    }
}

/// One call that used so much.
pub(super) fn amounts(usage: &Usage, price: Price) -> Amounts {
    let cost_micros = match price {
        Price::Priced(rates) => rates.cost(usage),
        Price::Free | Price::Unpriced => 0,
    };
    Amounts {
        calls: 1,
        input_tokens: usage.all_input(),
        output_tokens: usage.output_tokens,
        cost_micros,
    }
}

/// The most that so many tokens can cost: each input token at the dearest of its prices.
pub(super) fn worst(input_tokens: u64, output_tokens: u64, price: Price) -> Amounts {
    let usage = Usage { input_tokens, output_tokens, ..Usage::default() };
    let dearest = match price {
        Price::Priced(mut rates) => {
            let kinds = [rates.input, rates.cache_read, rates.cache_write, rates.cache_write_long];
            rates.input = kinds.into_iter().max().unwrap_or(rates.input);
            Price::Priced(rates)
        }
        other => other,
    };
    amounts(&usage, dearest)
}

/// Whether a count can be true of this request.
fn is_plausible(usage: &Usage, projection: &Projection) -> bool {
    let input = usage.all_input();
    input <= projection.input_bytes.saturating_add(SLACK)
        && usage.output_tokens <= projection.output_tokens.saturating_add(SLACK)
        && input.max(usage.output_tokens) <= MAX_PLAUSIBLE_TOKENS
}

/// What is charged for an outcome; a reply whose count cannot be true becomes a failure.
pub(super) fn charge(
    outcome: ModelOutcome,
    projection: &Projection,
    projected: Amounts,
    price: Price,
) -> (Settlement, ModelOutcome) {
    let (usage, served) = match &outcome {
        ModelOutcome::Reply(reply) => (reply.usage, HowSettled::Answered),
        ModelOutcome::Failed(failure) => match failure.fault.charge() {
            Charge::Nothing => return (Settlement::nothing(), outcome),
            Charge::Served => (failure.usage, HowSettled::Useless),
            Charge::Projection => {
                let lie = failure.fault == ModelFault::UsageImplausible;
                let how = if lie { HowSettled::Implausible } else { HowSettled::Ambiguous };
                return (Settlement::whole(how, projected), outcome);
            }
        },
        // No attempt may say this; what it did is not known.
        ModelOutcome::Stopped { .. } => {
            return (Settlement::whole(HowSettled::Ambiguous, projected), outcome);
        }
    };
    match usage {
        None => (Settlement::whole(HowSettled::Uncounted, projected), outcome),
        Some(usage) if is_plausible(&usage, projection) => {
            (Settlement::counted(served, amounts(&usage, price), projected), outcome)
        }
        Some(_) => {
            let message = "the provider counts more than this request can have used; charged what was reserved";
            let failed = failure(ModelFault::UsageImplausible, message);
            (Settlement::whole(HowSettled::Implausible, projected), failed)
        }
    }
}

/// An attempt that failed for a reason that was found here.
pub(super) fn failure(fault: ModelFault, message: &str) -> ModelOutcome {
    let message = message.to_owned();
    ModelOutcome::Failed(ModelFailure { fault, message, retry_after: None, usage: None, raw: None })
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use portcullis_domain::ports::{Disposition, ModelReply, Rates, Stop};

    use super::*;

    const PROJECTION: Projection =
        Projection { input_bytes: 1_000, input_tokens: 334, output_tokens: 100 };
    const RATES: Rates = Rates {
        input: 1_000_000,
        cache_read: 100_000,
        cache_write: 1_250_000,
        cache_write_long: 2_000_000,
        output: 4_000_000,
    };
    const PRICE: Price = Price::Priced(RATES);

    fn reply(usage: Option<Usage>) -> ModelOutcome {
        ModelOutcome::Reply(ModelReply {
            stop: Stop::EndTurn,
            text: "hello".to_owned(),
            uses: Vec::new(),
            verbatim: None,
            usage,
            raw: Arc::from([]),
        })
    }

    fn usage(input_tokens: u64, output_tokens: u64) -> Usage {
        Usage { input_tokens, output_tokens, ..Usage::default() }
    }

    fn failed(fault: ModelFault, usage: Option<Usage>) -> ModelOutcome {
        let message = String::new();
        ModelOutcome::Failed(ModelFailure { fault, message, retry_after: None, usage, raw: None })
    }

    fn settled(outcome: ModelOutcome) -> (HowSettled, [u64; 4], [u64; 4], bool) {
        let projected = worst(400, 100, PRICE);
        let (settlement, outcome) = charge(outcome, &PROJECTION, projected, PRICE);
        let parts = |a: Amounts| [a.calls, a.input_tokens, a.output_tokens, a.cost_micros];
        let replied = matches!(outcome, ModelOutcome::Reply(_));
        (settlement.how, parts(settlement.charged), parts(settlement.excess), replied)
    }

    #[test]
    fn each_outcome_has_its_charge() {
        use HowSettled::{Ambiguous, Answered, Implausible, NotServed, Uncounted, Useless};
        let whole = [1, 400, 100, 1_200];
        let none = [0; 4];
        for (outcome, how, charged, excess, replied) in [
            (reply(Some(usage(200, 50))), Answered, [1, 200, 50, 400], none, true),
            (reply(Some(usage(600, 50))), Answered, [1, 400, 50, 800], [0, 200, 0, 0], true),
            (reply(Some(usage(600, 150))), Answered, whole, [0, 200, 50, 0], true),
            (reply(Some(usage(900, 150))), Answered, whole, [0, 500, 50, 300], true),
            (reply(None), Uncounted, whole, none, true),
            (reply(Some(usage(17_385, 1))), Implausible, whole, none, false),
            (reply(Some(usage(1, 16_485))), Implausible, whole, none, false),
            (reply(Some(usage(u64::MAX, u64::MAX))), Implausible, whole, none, false),
            (failed(ModelFault::Throttled, None), NotServed, [1, 0, 0, 0], none, false),
            (failed(ModelFault::KeyRefused, None), NotServed, [1, 0, 0, 0], none, false),
            (failed(ModelFault::TimedOut, None), Ambiguous, whole, none, false),
            (failed(ModelFault::ConnectionLost, None), Ambiguous, whole, none, false),
            (failed(ModelFault::NotJson, None), Ambiguous, whole, none, false),
            (failed(ModelFault::UsageImplausible, None), Implausible, whole, none, false),
            (failed(ModelFault::EmptyReply, None), Uncounted, whole, none, false),
            (
                failed(ModelFault::EmptyReply, Some(usage(200, 50))),
                Useless,
                [1, 200, 50, 400],
                none,
                false,
            ),
            (
                failed(ModelFault::EmptyReply, Some(usage(1 << 40, 0))),
                Implausible,
                whole,
                none,
                false,
            ),
        ] {
            let said = format!("{outcome:?}");
            assert_eq!(settled(outcome), (how, charged, excess, replied), "{said}");
        }
    }

    #[test]
    fn nothing_that_was_served_is_free_and_only_what_may_pass_is_retried() {
        for fault in ModelFault::ALL {
            let (how, charged, ..) = settled(failed(*fault, None));
            let free = charged[1] == 0;
            assert_eq!(free, how == HowSettled::NotServed, "{}", fault.as_str());
            if fault.disposition() == Disposition::Retry {
                assert!(!matches!(how, HowSettled::Useless | HowSettled::Implausible));
            }
        }
    }

    #[test]
    fn the_worst_case_takes_the_dearest_price_of_input() {
        assert_eq!(worst(100, 10, PRICE).cost_micros, 240);
        let most = Usage { cache_write_long_tokens: 100, output_tokens: 10, ..Usage::default() };
        assert_eq!(amounts(&most, PRICE).cost_micros, 240, "as much as it can come to");
        assert_eq!(worst(u64::MAX, u64::MAX, PRICE).cost_micros, u64::MAX);
        assert_eq!(worst(100, 10, Price::Free).cost_micros, 0);
    }
}
