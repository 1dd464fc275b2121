//! The numbers of the configuration: each with its key, its unit and its range, so that a bad one is told in one sentence.

use portcullis_domain::limits::Limits;
use serde::de::{IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer};
use toml::Spanned;

use super::{Misfit, models};

/// A value as it stands in the file, if it does.
pub(super) type Given = Option<Spanned<Stated>>;

/// A whole number that is none too large, or anything else.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Stated(Option<u64>);

impl<'de> Deserialize<'de> for Stated {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        from.deserialize_any(Anything)
    }
}

/// Takes whatever stands there, so that what does not fit is told in our own words.
struct Anything;

impl<'de> Visitor<'de> for Anything {
    type Value = Stated;

    fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("a whole number")
    }

    fn visit_i64<E>(self, number: i64) -> Result<Stated, E> {
        Ok(Stated(u64::try_from(number).ok()))
    }

    fn visit_u64<E>(self, number: u64) -> Result<Stated, E> {
        Ok(Stated(Some(number)))
    }

    fn visit_i128<E>(self, _: i128) -> Result<Stated, E> {
        Ok(Stated(None))
    }

    fn visit_u128<E>(self, _: u128) -> Result<Stated, E> {
        Ok(Stated(None))
    }

    fn visit_f64<E>(self, _: f64) -> Result<Stated, E> {
        Ok(Stated(None))
    }

    fn visit_bool<E>(self, _: bool) -> Result<Stated, E> {
        Ok(Stated(None))
    }

    fn visit_str<E>(self, _: &str) -> Result<Stated, E> {
        Ok(Stated(None))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Stated, A::Error> {
        while items.next_element::<IgnoredAny>()?.is_some() {}
        Ok(Stated(None))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut items: A) -> Result<Stated, A::Error> {
        while items.next_entry::<IgnoredAny, IgnoredAny>()?.is_some() {}
        Ok(Stated(None))
    }
}

/// A number that can be said.
pub(super) struct Number {
    /// The key.
    pub(super) key: &'static str,
    /// What is counted.
    pub(super) unit: &'static str,
    /// The least that it can be.
    pub(super) least: u64,
    /// The most that it can be; as large as the file can say where there is none.
    pub(super) most: Option<u64>,
}

impl Number {
    const fn count(key: &'static str, unit: &'static str) -> Self {
        Self { key, unit, least: 1, most: None }
    }

    const fn time(key: &'static str) -> Self {
        Self::count(key, "milliseconds")
    }

    /// The number that stands there.
    pub(super) fn read(&self, given: &Given) -> Result<Option<u64>, Misfit> {
        let Some(value) = given else { return Ok(None) };
        match value.get_ref().0 {
            Some(number) if number >= self.least && self.most.is_none_or(|most| number <= most) => {
                Ok(Some(number))
            }
            _ => Err(Misfit::at(&value.span(), self.sentence())),
        }
    }

    /// What can be said.
    pub(super) fn sentence(&self) -> String {
        let Self { key, unit, least, most } = self;
        match most {
            Some(most) => format!("`{key}` is a whole number of {unit}, {least} to {most}"),
            None => format!("`{key}` is a whole number of {unit}, {least} or more"),
        }
    }
}

/// The limits of a run, as they stand in the file.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct RawLimits {
    max_steps: Given,
    max_consecutive_failures: Given,
    max_denials: Given,
    loop_threshold: Given,
    max_active_ms: Given,
    max_elapsed_ms: Given,
    question_ttl_ms: Given,
    grant_ttl_ms: Given,
    max_model_calls: Given,
    max_output_tokens_per_call: Given,
    max_total_tokens: Given,
    max_estimated_cost_micros: Given,
    max_cost: Option<Spanned<String>>,
}

impl RawLimits {
    /// What they mean.
    pub(super) fn read(&self) -> Result<Limits, Misfit> {
        let usual = Limits::default();
        let loops = Number {
            most: Some(Limits::MAX_LOOP_THRESHOLD),
            ..Number::count("loop_threshold", "repetitions")
        };
        let or = |number: Number, given: &Given, usual: u64| {
            number.read(given).map(|said| said.unwrap_or(usual))
        };
        let failures = Number::count("max_consecutive_failures", "failures");
        let off = |key, given: &Given, usual: Option<u64>| {
            Number::time(key).read(given).map(|said| said.or(usual))
        };
        let bound = |key, unit, given: &Given| Number::count(key, unit).read(given);
        Ok(Limits {
            max_steps: or(Number::count("max_steps", "steps"), &self.max_steps, usual.max_steps)?,
            max_consecutive_failures: or(
                failures,
                &self.max_consecutive_failures,
                usual.max_consecutive_failures,
            )?,
            max_denials: or(
                Number::count("max_denials", "denials"),
                &self.max_denials,
                usual.max_denials,
            )?,
            loop_threshold: or(loops, &self.loop_threshold, usual.loop_threshold)?,
            max_active_ms: off("max_active_ms", &self.max_active_ms, usual.max_active_ms)?,
            max_elapsed_ms: off("max_elapsed_ms", &self.max_elapsed_ms, usual.max_elapsed_ms)?,
            question_ttl_ms: off("question_ttl_ms", &self.question_ttl_ms, usual.question_ttl_ms)?,
            grant_ttl_ms: off("grant_ttl_ms", &self.grant_ttl_ms, usual.grant_ttl_ms)?,
            max_model_calls: bound("max_model_calls", "calls", &self.max_model_calls)?,
            max_output_tokens_per_call: bound(
                "max_output_tokens_per_call",
                "tokens",
                &self.max_output_tokens_per_call,
            )?,
            max_total_tokens: bound("max_total_tokens", "tokens", &self.max_total_tokens)?,
            max_estimated_cost_micros: self.cost()?,
        })
    }

    /// The bound on cost, in either of its two forms.
    fn cost(&self) -> Result<Option<u64>, Misfit> {
        let (key, given) = ("max_estimated_cost_micros", &self.max_estimated_cost_micros);
        let micros = Number::count(key, "millionths of the currency").read(given)?;
        match (&self.max_cost, micros) {
            (None, micros) => Ok(micros),
            (Some(amount), None) => models::amount(amount).map(Some),
            (Some(amount), Some(_)) => {
                let message = "`max_cost` and `max_estimated_cost_micros` say the same; name one";
                Err(Misfit::at(&amount.span(), message))
            }
        }
    }
}
