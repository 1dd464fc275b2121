//! Budgets: what may be spent on models, what was, and what is held for calls under way. The struct is the row that the
//! fold writes.
//!
//! A budget belongs to one run, or to one owner for one day (UTC). Before an attempt its worst case is held in each
//! budget that it debits; afterwards the hold is settled. What turns out to cost more than was held goes to `excess`: it is
//! shown and counts against the caps of later reservations, so that `spent` stays within them and the truth is kept.

use std::collections::BTreeMap;

use portcullis_canon::{Digest, Kind};
use serde::{Deserialize, Serialize};

use crate::event::{Body, BudgetOpened, BudgetReserved, BudgetSettled, Event};
use crate::fold::FoldError;
use crate::id::{AttemptId, BudgetId, RunId, StepId};
use crate::lease::Epoch;
use crate::limits::Limits;
use crate::scope::Tenant;
use crate::stream::{Stream, StreamKind};
use crate::time::Timestamp;

/// How many attempts can be under way in one budget. More are refused until one is settled.
pub const MAX_HOLDS: usize = 256;

/// How many models a budget remembers a factor of; of others nothing is learned.
pub const MAX_LEARNED: usize = 32;

/// How many runs above one another can debit: a run, and its parents up to the root.
pub const MAX_GENERATIONS: usize = 4;

/// Tokens for a million bytes: what a factor is before anything is learned, and what no text of a byte-wise tokenizer
/// exceeds.
pub const ONE_A_BYTE: u64 = 1_000_000;

/// Bytes under which a request is small: its ratio says little of larger ones.
pub const SMALL_BYTES: u64 = 8 * 1024;

/// How many usages have to be recorded before a factor leaves one token a byte.
const SAMPLES: u32 = 3;

/// One day of the calendar in UTC, written `2026-01-31`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Day(String);

/// A text that is no day.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("not a day: expected a date such as 2026-01-31")]
pub struct ParseDayError;

impl Day {
    /// The day on which an instant lies.
    #[must_use]
    pub fn of(at: Timestamp) -> Self {
        let mut text = at.to_string();
        text.truncate(10);
        Self(text)
    }

    /// The day before, if the calendar has one.
    #[must_use]
    pub fn before(&self) -> Option<Self> {
        let start: Timestamp = format!("{}T00:00:00.000000Z", self.0).parse().ok()?;
        let day = Self::of(Timestamp::from_micros(start.micros().saturating_sub(1)));
        (day != *self).then_some(day)
    }

    /// As it is written.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl std::fmt::Display for Day {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

impl TryFrom<String> for Day {
    type Error = ParseDayError;

    fn try_from(text: String) -> Result<Self, ParseDayError> {
        let start = format!("{text}T00:00:00.000000Z").parse::<Timestamp>();
        start.map(|_| Self(text)).map_err(|_| ParseDayError)
    }
}

impl From<Day> for String {
    fn from(day: Day) -> Self {
        day.0
    }
}

/// What a budget is about.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(tag = "of", rename_all = "snake_case", deny_unknown_fields)]
pub enum BudgetScope {
    /// One run, and the runs that it started.
    Run {
        /// The run.
        run: RunId,
    },
    /// All runs of an owner, on one day.
    Day {
        /// The owner.
        owner: String,
        /// The day.
        day: Day,
    },
}

impl BudgetScope {
    /// The id of the one budget that is about this.
    #[must_use]
    pub fn id(&self, tenant: &Tenant) -> BudgetId {
        match self {
            Self::Run { run } => BudgetId::from_bytes(*run.as_bytes()),
            Self::Day { owner, day } => {
                let parts = [tenant.as_str().as_bytes(), owner.as_bytes(), day.as_str().as_bytes()];
                let digest = Digest::of_parts(Kind::Budget, &parts);
                let mut id = [0_u8; 16];
                id.iter_mut().zip(digest.as_bytes()).for_each(|(to, from)| *to = *from);
                BudgetId::from_bytes(id)
            }
        }
    }
}

/// What may be spent at most; `None` is no cap.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Caps {
    /// Attempts at calls.
    pub calls: Option<u64>,
    /// Tokens, input and output together.
    pub tokens: Option<u64>,
    /// Estimated cost in millionths of the unit of money.
    pub cost_micros: Option<u64>,
}

impl Caps {
    /// Those of a run.
    #[must_use]
    pub const fn of(limits: &Limits) -> Self {
        Self {
            calls: limits.max_model_calls,
            tokens: limits.max_total_tokens,
            cost_micros: limits.max_estimated_cost_micros,
        }
    }

    /// The first cap that `amounts` are beyond.
    #[must_use]
    pub fn exceeded_by(&self, amounts: &Amounts) -> Option<Cap> {
        let beyond = |cap: Option<u64>, amount: u64| cap.is_some_and(|cap| amount > cap);
        if beyond(self.calls, amounts.calls) {
            Some(Cap::Calls)
        } else if beyond(self.tokens, amounts.tokens()) {
            Some(Cap::Tokens)
        } else if beyond(self.cost_micros, amounts.cost_micros) {
            Some(Cap::Cost)
        } else {
            None
        }
    }
}

/// What kept a reservation from a budget.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Cap {
    /// The cap on calls.
    Calls,
    /// The cap on tokens.
    Tokens,
    /// The cap on cost.
    Cost,
    /// Too many attempts are under way at once.
    Holds,
}

impl Cap {
    /// The stable name.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Calls => "model calls",
            Self::Tokens => "tokens",
            Self::Cost => "cost",
            Self::Holds => "calls at a time",
        }
    }
}

/// What was spent, or may be. All sums saturate.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Amounts {
    /// Attempts at calls.
    pub calls: u64,
    /// Input tokens, those of caches included.
    pub input_tokens: u64,
    /// Output tokens.
    pub output_tokens: u64,
    /// Estimated cost in millionths of the unit of money.
    pub cost_micros: u64,
}

impl Amounts {
    /// Nothing.
    pub const NONE: Self = Self { calls: 0, input_tokens: 0, output_tokens: 0, cost_micros: 0 };

    /// Input and output.
    #[must_use]
    pub const fn tokens(&self) -> u64 {
        self.input_tokens.saturating_add(self.output_tokens)
    }

    fn by(self, other: Self, each: impl Fn(u64, u64) -> u64) -> Self {
        Self {
            calls: each(self.calls, other.calls),
            input_tokens: each(self.input_tokens, other.input_tokens),
            output_tokens: each(self.output_tokens, other.output_tokens),
            cost_micros: each(self.cost_micros, other.cost_micros),
        }
    }

    /// Both together.
    #[must_use]
    pub fn plus(self, other: Self) -> Self {
        self.by(other, u64::saturating_add)
    }

    /// What this is beyond `other`, each part by itself.
    #[must_use]
    pub fn beyond(self, other: Self) -> Self {
        self.by(other, u64::saturating_sub)
    }

    /// The smaller of each part.
    #[must_use]
    pub fn within(self, other: Self) -> Self {
        self.by(other, u64::min)
    }

    /// Whether no part is more than its counterpart.
    #[must_use]
    pub fn fits(&self, other: &Self) -> bool {
        self.within(*other) == *self
    }
}

/// How an attempt went, for what it was charged.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum HowSettled {
    /// A reply came; charged what the provider counted.
    Answered,
    /// A reply came, and the provider did not say what it counted; charged the projection.
    Uncounted,
    /// A reply came that cannot be used; charged what the provider counted.
    Useless,
    /// A reply came whose count cannot be true; charged the projection.
    Implausible,
    /// Nothing was served.
    NotServed,
    /// Nobody knows what was served; charged the projection.
    Ambiguous,
    /// Whoever made the attempt is gone; charged the projection.
    Abandoned,
}

impl HowSettled {
    /// The stable name.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Answered => "answered",
            Self::Uncounted => "uncounted",
            Self::Useless => "useless",
            Self::Implausible => "implausible",
            Self::NotServed => "not_served",
            Self::Ambiguous => "ambiguous",
            Self::Abandoned => "abandoned",
        }
    }

    /// Whether the charge is what the provider counted.
    #[must_use]
    pub const fn is_counted(self) -> bool {
        matches!(self, Self::Answered | Self::Useless)
    }

    /// Whether `charged` and `excess` can be the charge of an attempt that was projected to cost `projected`.
    fn admits(self, projected: &Amounts, charged: &Amounts, excess: &Amounts) -> bool {
        let none = *excess == Amounts::NONE;
        match self {
            // What goes beyond the projection has used all of it.
            Self::Answered | Self::Useless => {
                let full =
                    |excess: u64, charged: u64, projected: u64| excess == 0 || charged == projected;
                charged.calls == 1
                    && excess.calls == 0
                    && charged.fits(projected)
                    && full(excess.input_tokens, charged.input_tokens, projected.input_tokens)
                    && full(excess.output_tokens, charged.output_tokens, projected.output_tokens)
                    && full(excess.cost_micros, charged.cost_micros, projected.cost_micros)
            }
            Self::NotServed => none && *charged == Amounts { calls: 1, ..Amounts::NONE },
            Self::Uncounted | Self::Implausible | Self::Ambiguous | Self::Abandoned => {
                none && charged == projected
            }
        }
    }
}

/// What is held for one attempt that is under way.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Hold {
    /// The attempt.
    pub attempt: AttemptId,
    /// The run whose agent makes it.
    pub run: RunId,
    /// The step that it is made for.
    pub step: StepId,
    /// The lease under which it was reserved.
    pub epoch: Epoch,
    /// The model, as the operator names it.
    pub model: String,
    /// Bytes of the request.
    pub bytes: u64,
    /// What it may cost at most.
    pub projected: Amounts,
    /// When it was reserved.
    pub at: Timestamp,
    /// How long it may take, in milliseconds.
    pub deadline_ms: u64,
}

/// What recorded usage says of one model.
///
/// Tokens of a request are taken for a fixed part, which templates and hidden prompts add whatever is sent, and a part that
/// grows with its bytes. Requests under [`SMALL_BYTES`] are judged by themselves: there the fixed part is most of the
/// ratio, and a large request would be taken for several times what it is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Learned {
    /// The most input tokens that a request had beyond one for each of its bytes: those no text of it has.
    pub fixed: u64,
    /// What requests under [`SMALL_BYTES`] had beyond the fixed part.
    pub small: Ratio,
    /// What larger ones had.
    pub large: Ratio,
}

/// How many usages were recorded of requests of one size, and the most that they came to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Ratio {
    /// How many usages were recorded.
    pub samples: u32,
    /// The most input tokens that there were for a million bytes of a request, the fixed part left out, rounded up.
    pub most: u64,
}

impl Ratio {
    fn and(self, other: Self) -> Self {
        Self { samples: self.samples.max(other.samples), most: self.most.max(other.most) }
    }

    const fn is_little(self) -> bool {
        self.samples < SAMPLES
    }

    /// A quarter more than the most that was seen, once enough was.
    fn known(self) -> Option<u64> {
        (!self.is_little()).then(|| wide(self.most))
    }
}

/// A quarter more, rounded up.
const fn wide(amount: u64) -> u64 {
    amount.saturating_add(amount.div_ceil(4))
}

/// So many tokens for a million bytes, for some bytes, rounded up.
fn by_size(bytes: u64, factor: u64) -> u64 {
    let tokens = u128::from(bytes).saturating_mul(u128::from(factor));
    u64::try_from(tokens.div_ceil(u128::from(ONE_A_BYTE))).unwrap_or(u64::MAX)
}

impl Learned {
    /// The larger of each: one call is learned from in several budgets.
    #[must_use]
    pub fn and(self, other: Self) -> Self {
        Self {
            fixed: self.fixed.max(other.fixed),
            small: self.small.and(other.small),
            large: self.large.and(other.large),
        }
    }

    const fn ratio(&self, bytes: u64) -> Ratio {
        if bytes < SMALL_BYTES { self.small } else { self.large }
    }

    /// True while too few usages of requests of this size were recorded to judge one by them.
    #[must_use]
    pub const fn is_little(&self, bytes: u64) -> bool {
        self.ratio(bytes).is_little()
    }

    fn see(&mut self, input_tokens: u64, bytes: u64) {
        // First, so that no ratio is over one token a byte.
        self.fixed = self.fixed.max(input_tokens.saturating_sub(bytes));
        let grown = u128::from(input_tokens.saturating_sub(self.fixed));
        let ratio = grown.saturating_mul(u128::from(ONE_A_BYTE)).div_ceil(u128::from(bytes.max(1)));
        let of = if bytes < SMALL_BYTES { &mut self.small } else { &mut self.large };
        of.samples = of.samples.saturating_add(1);
        of.most = of.most.max(u64::try_from(ratio).unwrap_or(u64::MAX));
    }

    /// Tokens to reserve for a million bytes of a request of this size, beside the fixed part: a quarter more than the most
    /// that was recorded of its size. While too little was, one a byte, or what smaller requests had if that is less: with
    /// the size the ratio only falls. Never less than the most that was recorded.
    #[must_use]
    pub fn factor(&self, bytes: u64) -> u64 {
        let own = self.ratio(bytes);
        own.known().unwrap_or_else(|| {
            let smaller = if bytes < SMALL_BYTES { None } else { self.small.known() };
            smaller.unwrap_or(ONE_A_BYTE).min(ONE_A_BYTE).max(own.most)
        })
    }

    /// The input tokens to reserve for a request of so many bytes; at least one, and never less than a recorded request of
    /// this size had.
    #[must_use]
    pub fn input_tokens(&self, bytes: u64) -> u64 {
        let fixed = if self.is_little(bytes) { self.fixed } else { wide(self.fixed) };
        by_size(bytes, self.factor(bytes)).saturating_add(fixed).max(1)
    }
}

/// The row of one budget. Every field is named by the fold and compared by `verify`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Budget {
    /// The budget.
    pub id: BudgetId,
    /// Whose it is.
    pub tenant: Tenant,
    /// What it is about.
    pub scope: BudgetScope,
    /// When it was opened.
    pub opened_at: Timestamp,
    /// What may be spent at most: for a run what its limits say, for a day what the last reservation said.
    pub caps: Caps,
    /// What was charged, never more than was held for it.
    pub spent: Amounts,
    /// What was used beyond what was held for it.
    pub excess: Amounts,
    /// Attempts of models whose price nobody said. Their cost is in no sum.
    pub unpriced: u64,
    /// What is held, oldest first.
    pub holds: Vec<Hold>,
    /// What was learned of each model, by its name.
    pub learned: BTreeMap<String, Learned>,
    /// Events in its stream.
    pub seq: u64,
    /// Hash of the last of them.
    pub hash: Digest,
}

impl Budget {
    /// Everything held, together.
    #[must_use]
    pub fn held(&self) -> Amounts {
        self.holds.iter().fold(Amounts::NONE, |sum, hold| sum.plus(hold.projected))
    }

    /// What counts against the caps: spent, excess and held.
    #[must_use]
    pub fn used(&self) -> Amounts {
        self.spent.plus(self.excess).plus(self.held())
    }

    /// What keeps a reservation of `projected` under `caps` out; `None` when it fits.
    #[must_use]
    pub fn refuses(&self, caps: &Caps, projected: &Amounts) -> Option<Cap> {
        let full = (self.holds.len() >= MAX_HOLDS).then_some(Cap::Holds);
        caps.exceeded_by(&self.used().plus(*projected)).or(full)
    }

    /// The hold of an attempt.
    #[must_use]
    pub fn hold(&self, attempt: AttemptId) -> Option<&Hold> {
        self.holds.iter().find(|hold| hold.attempt == attempt)
    }

    /// The budget after its first event.
    ///
    /// # Errors
    /// [`FoldError`] when it is not a `budget.opened` at the start of a budget's stream.
    pub fn begin(event: &Event) -> Result<Self, FoldError> {
        let (name, link) = (event.body.name(), &event.link);
        let Body::BudgetOpened(BudgetOpened { scope, caps }) = &event.body else {
            return Err(FoldError::WrongPlace(name));
        };
        let id = scope.id(&link.tenant);
        if link.stream != Stream::from(id) {
            return Err(FoldError::WrongStream(name));
        }
        if link.stream_seq != 1 || link.stream_prev != Digest::ZERO {
            return Err(FoldError::NotNext);
        }
        Ok(Self {
            id,
            tenant: link.tenant.clone(),
            scope: scope.clone(),
            opened_at: link.at,
            caps: *caps,
            spent: Amounts::NONE,
            excess: Amounts::NONE,
            unpriced: 0,
            holds: Vec::new(),
            learned: BTreeMap::new(),
            seq: 1,
            hash: event.hash,
        })
    }

    /// The budget after one more event.
    ///
    /// # Errors
    /// [`FoldError::Spent`] when a reservation does not fit, another [`FoldError`] when the event does not. Nothing is
    /// changed then.
    pub fn apply(&mut self, event: &Event) -> Result<(), FoldError> {
        let (name, link) = (event.body.name(), &event.link);
        if link.stream.kind != StreamKind::Budget || link.stream.id != *self.id.as_bytes() {
            return Err(FoldError::WrongStream(name));
        }
        if link.stream_seq != self.seq.saturating_add(1) || link.stream_prev != self.hash {
            return Err(FoldError::NotNext);
        }
        match &event.body {
            Body::BudgetReserved(body) => self.reserve(body, link.step, link.at)?,
            Body::BudgetSettled(body) => self.settle(body, link.step)?,
            _ => return Err(FoldError::WrongPlace(name)),
        }
        self.seq = link.stream_seq;
        self.hash = event.hash;
        Ok(())
    }

    fn reserve(
        &mut self,
        body: &BudgetReserved,
        step: Option<StepId>,
        at: Timestamp,
    ) -> Result<(), FoldError> {
        const NAME: &str = "budget.reserved";
        let step = step.ok_or(FoldError::NotAdmitted(NAME))?;
        let caps = match (&self.scope, body.caps) {
            (_, None) => self.caps,
            (BudgetScope::Day { .. }, Some(caps)) => caps,
            // A run's are frozen.
            (BudgetScope::Run { .. }, Some(_)) => return Err(FoldError::NotAdmitted(NAME)),
        };
        let unpriced = !body.priced;
        // What has no price cannot be held against a cap on cost.
        let fits = body.projected.calls == 1
            && self.hold(body.attempt).is_none()
            && !(unpriced && (caps.cost_micros.is_some() || body.projected.cost_micros > 0));
        if !fits {
            return Err(FoldError::NotAdmitted(NAME));
        }
        if let Some(cap) = self.refuses(&caps, &body.projected) {
            return Err(FoldError::Spent(cap));
        }
        self.caps = caps;
        self.unpriced = self.unpriced.saturating_add(u64::from(unpriced));
        self.holds.push(Hold {
            attempt: body.attempt,
            run: body.run,
            step,
            epoch: body.epoch,
            model: body.model.clone(),
            bytes: body.bytes,
            projected: body.projected,
            at,
            deadline_ms: body.deadline_ms,
        });
        Ok(())
    }

    fn settle(&mut self, body: &BudgetSettled, step: Option<StepId>) -> Result<(), FoldError> {
        let refused = FoldError::NotAdmitted("budget.settled");
        let place = self.holds.iter().position(|hold| hold.attempt == body.attempt);
        let hold = place.and_then(|place| self.holds.get(place)).ok_or(refused)?;
        let admitted = body.how.admits(&hold.projected, &body.charged, &body.excess);
        if !admitted || step != Some(hold.step) {
            return Err(refused);
        }
        self.spent = self.spent.plus(body.charged);
        self.excess = self.excess.plus(body.excess);
        if body.how.is_counted() {
            let tokens = body.charged.input_tokens.saturating_add(body.excess.input_tokens);
            let (model, bytes) = (hold.model.clone(), hold.bytes);
            if self.learned.len() < MAX_LEARNED || self.learned.contains_key(&model) {
                self.learned.entry(model).or_default().see(tokens, bytes);
            }
        }
        if let Some(place) = place {
            self.holds.remove(place);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use super::*;

    fn day(text: &str) -> Day {
        Day::try_from(text.to_owned()).unwrap()
    }

    #[test]
    fn a_day_is_a_date_in_utc() {
        let at: Timestamp = "2026-03-01T00:00:00.000000Z".parse().unwrap();
        assert_eq!(Day::of(at), day("2026-03-01"));
        assert_eq!(Day::of(Timestamp::from_micros(at.micros() - 1)), day("2026-02-28"));
        assert_eq!(day("2026-03-01").before(), Some(day("2026-02-28")));
        assert_eq!(day("0001-01-01").before(), None);
        for text in ["", "2026-02-30", "2026-3-1", "26-03-01", "2026-03-01T", "2026-03-01 "] {
            assert!(Day::try_from(text.to_owned()).is_err(), "{text}");
        }
    }

    #[test]
    fn each_scope_has_one_budget_and_owners_share_none() {
        let tenant = Tenant::local();
        let run = RunId::from_bytes([3; 16]);
        assert_eq!(BudgetScope::Run { run }.id(&tenant).as_bytes(), run.as_bytes());
        let of = |owner: &str, date: &str| {
            BudgetScope::Day { owner: owner.to_owned(), day: day(date) }.id(&tenant)
        };
        let ids = [of("ann", "2026-01-01"), of("ann", "2026-01-02"), of("ben", "2026-01-01")];
        assert!(ids[0] != ids[1] && ids[0] != ids[2] && ids[1] != ids[2]);
        assert_eq!(ids[0], of("ann", "2026-01-01"));
    }

    #[test]
    fn sums_saturate_and_the_first_cap_is_named() {
        let most = Amounts {
            calls: u64::MAX,
            input_tokens: u64::MAX,
            output_tokens: u64::MAX,
            cost_micros: u64::MAX,
        };
        assert_eq!(most.plus(most), most);
        assert_eq!(most.tokens(), u64::MAX);
        let caps = |calls, tokens, cost_micros| Caps { calls, tokens, cost_micros };
        assert_eq!(caps(Some(u64::MAX), Some(u64::MAX), Some(u64::MAX)).exceeded_by(&most), None);
        assert_eq!(caps(Some(1), Some(1), Some(1)).exceeded_by(&most), Some(Cap::Calls));
        assert_eq!(caps(None, Some(1), Some(1)).exceeded_by(&most), Some(Cap::Tokens));
        assert_eq!(caps(None, None, Some(0)).exceeded_by(&most), Some(Cap::Cost));
        assert_eq!(Caps::default().exceeded_by(&most), None);
        let text = portcullis_canon::to_text(&most).unwrap();
        let read: Amounts =
            portcullis_canon::from_slice(text.as_bytes(), &portcullis_canon::Limits::BARE).unwrap();
        assert_eq!(read, most, "{text}");
    }

    #[test]
    fn a_factor_starts_at_one_token_a_byte_and_never_falls_under_what_was_seen() {
        let mut learned = Learned::default();
        assert_eq!(learned.input_tokens(1_000), 1_000);
        assert_eq!(learned.input_tokens(0), 1);
        learned.see(250, 1_000);
        learned.see(100, 1_000);
        assert_eq!(learned.input_tokens(1_000), 1_000, "two samples are not enough");
        learned.see(200, 1_000);
        assert_eq!(learned.input_tokens(1_000), 313, "a quarter more than the most that was seen");
        // More than one a byte, as where a template adds to what was sent.
        learned.see(3_000, 1_000);
        assert_eq!(learned.input_tokens(1_000), 3_750);
        for _ in 0..100 {
            learned.see(1, 1_000);
        }
        assert_eq!(learned.input_tokens(1_000), 3_750);
        let mut few = Learned::default();
        few.see(2_000, 1_000);
        assert_eq!(few.input_tokens(1_000), 2_000, "also while there are few");
        few.see(u64::MAX, 0);
        assert_eq!(few.input_tokens(u64::MAX), u64::MAX);
    }

    /// What a provider counts for a request: a fixed part, and a token for four bytes.
    const fn counted(fixed: u64, bytes: u64) -> u64 {
        fixed + bytes / 4
    }

    #[test]
    fn what_is_added_to_every_request_is_taken_for_no_ratio() {
        // The fixed part is a third, three times and a hundred times the text of the first small requests.
        for fixed in [50, 500, 20_000] {
            let mut learned = Learned::default();
            for bytes in [600, 700, 800] {
                learned.see(counted(fixed, bytes), bytes);
            }
            let before = learned.input_tokens(200_000);
            assert!(before >= counted(fixed, 200_000), "{fixed}: {before}");
            // Beyond what is proved to be fixed, at most one a byte.
            assert!(before <= 200_000 + fixed, "{fixed}: {before}");
            for bytes in [20_000, 40_000, 80_000] {
                learned.see(counted(fixed, bytes), bytes);
            }
            let after = learned.input_tokens(200_000);
            let truth = counted(fixed, 200_000);
            assert!(after >= truth && after <= truth + truth / 2, "{fixed}: {after} for {truth}");
        }
    }

    #[test]
    fn small_requests_that_cost_little_are_believed_of_large_ones() {
        let mut learned = Learned::default();
        for _ in 0..3 {
            learned.see(1_000, 4_000);
        }
        assert_eq!(learned.input_tokens(40_000), 12_500);
        // One large request that had more is believed at once.
        learned.see(16_000, 40_000);
        assert_eq!(learned.input_tokens(40_000), 16_000);
    }

    proptest::proptest! {
        #[test]
        fn no_projection_is_under_what_was_recorded(
            seen in proptest::collection::vec((0_u64..1 << 20, 0_u64..1 << 20), 1..40),
            split in 0_usize..40,
        ) {
            // One budget saw some of them, another the rest.
            let (one, other) = seen.split_at(split.min(seen.len()));
            let of = |part: &[(u64, u64)]| {
                let mut learned = Learned::default();
                part.iter().for_each(|(tokens, bytes)| learned.see(*tokens, *bytes));
                learned
            };
            let (whole, both) = (of(&seen), of(one).and(of(other)));
            for (tokens, bytes) in &seen {
                proptest::prop_assert!(whole.input_tokens(*bytes) >= *tokens);
                proptest::prop_assert!(both.input_tokens(*bytes) >= *tokens);
            }
        }
    }
}
