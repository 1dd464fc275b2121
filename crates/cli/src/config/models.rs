//! The operator's providers of models, and what may be spent in a day.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use portcullis_canon::{Limits as JsonLimits, Object, Value, parse};
use portcullis_domain::budget::Caps;
use portcullis_domain::ports::Price;
use portcullis_models::{Dialect, StatedPrice, parse_amount};
use serde::Deserialize;
use toml::Spanned;

use super::Misfit;
use super::credentials::{Credentials, check_name};
use super::numbers::{Given, Number};

/// A provider as it stands in the file. What is not said is the built-in one's of that name.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Stated {
    /// What it speaks.
    pub(crate) dialect: Option<Dialect>,
    /// Where it is.
    pub(crate) address: Option<String>,
    /// Its key by name; an empty name says that it takes none.
    pub(crate) credential: Option<String>,
    /// The confidentiality tags that it may see.
    pub(crate) may_see: BTreeSet<String>,
    /// It runs on the operator's own machines, and is free on purpose.
    pub(crate) local: Option<bool>,
    /// Its address may be one of a private network.
    pub(crate) private_network: bool,
    /// The cap on each reply, in tokens.
    pub(crate) max_output_tokens: Option<u64>,
    /// How long one attempt may take.
    pub(crate) timeout: Option<Duration>,
    /// Further members of each request.
    pub(crate) extra: Object,
    /// Prices, by the model's name at the provider.
    pub(crate) prices: BTreeMap<String, Price>,
}

/// What the configuration says of models.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Models {
    /// Providers by name.
    pub(crate) providers: BTreeMap<String, Stated>,
    /// What an owner may spend in a day.
    pub(crate) day: Caps,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RawProvider {
    dialect: Option<Spanned<String>>,
    address: Option<Spanned<String>>,
    credential: Option<Spanned<String>>,
    #[serde(default)]
    may_see: BTreeSet<String>,
    local: Option<bool>,
    #[serde(default)]
    private_network: bool,
    #[serde(default)]
    max_output_tokens: Given,
    #[serde(default)]
    timeout_ms: Given,
    extra: Option<Spanned<toml::Table>>,
    #[serde(default)]
    prices: BTreeMap<String, Spanned<StatedPrice>>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct RawDay {
    max_model_calls: Given,
    max_total_tokens: Given,
    max_cost: Option<Spanned<String>>,
}

/// One attempt takes a second at least, and an hour at most.
const TIMEOUT: Number =
    Number { key: "timeout_ms", unit: "milliseconds", least: 1_000, most: Some(3_600_000) };

/// The tables together.
pub(super) fn read(
    providers: BTreeMap<Spanned<String>, RawProvider>,
    credentials: &Credentials,
    day: &RawDay,
) -> Result<Models, Misfit> {
    let mut models = Models { day: day.read()?, ..Models::default() };
    for (name, raw) in providers {
        check_name(&name)?;
        if name.get_ref() == "replay" {
            let message = "`replay` plays recordings and is no provider";
            return Err(Misfit::at(&name.span(), message));
        }
        let stated = raw.read(credentials)?;
        models.providers.insert(name.into_inner(), stated);
    }
    Ok(models)
}

impl RawProvider {
    fn read(self, credentials: &Credentials) -> Result<Stated, Misfit> {
        let dialect = self.dialect.map(|text| {
            let known = Dialect::named(text.get_ref());
            let message = "`dialect` is \"openai\", \"anthropic\" or \"ollama\"";
            known.ok_or_else(|| Misfit::at(&text.span(), message))
        });
        let credential = self.credential.map(|name| {
            if !name.get_ref().is_empty() {
                credentials.named(&name)?;
            }
            Ok(name.into_inner())
        });
        let output = Number { key: "max_output_tokens", unit: "tokens", least: 1, most: None };
        let mut prices = BTreeMap::new();
        for (model, stated) in self.prices {
            let message = "a price needs `input` and `output` in millionths for a million tokens, or `free = true` and nothing else";
            let price = stated.get_ref().price();
            prices.insert(model, price.ok_or_else(|| Misfit::at(&stated.span(), message))?);
        }
        Ok(Stated {
            dialect: dialect.transpose()?,
            address: self.address.map(address).transpose()?,
            credential: credential.transpose()?,
            may_see: self.may_see,
            local: self.local,
            private_network: self.private_network,
            max_output_tokens: output.read(&self.max_output_tokens)?,
            timeout: TIMEOUT.read(&self.timeout_ms)?.map(Duration::from_millis),
            extra: self.extra.map(extra).transpose()?.unwrap_or_default(),
            prices,
        })
    }
}

/// An address without a user, which may be a key, and without what no base has.
fn address(text: Spanned<String>) -> Result<String, Misfit> {
    let plain = text.get_ref().starts_with("https://") || text.get_ref().starts_with("http://");
    if plain && !text.get_ref().contains(['@', '?', '#']) {
        return Ok(text.into_inner());
    }
    let message = "`address` is an http or https address without user, query or fragment, such as \"https://host/v1\"";
    Err(Misfit::at(&text.span(), message))
}

/// A table as JSON. It has no dates, and numbers that JSON can have.
fn extra(table: Spanned<toml::Table>) -> Result<Object, Misfit> {
    let misfit = || Misfit::at(&table.span(), "`extra` holds members of a request in JSON");
    let mut object = Object::new();
    for (key, value) in table.get_ref() {
        object.insert(key.as_str(), json(value).ok_or_else(misfit)?);
    }
    Ok(object)
}

/// A value as JSON; nothing for one that JSON does not have.
pub(super) fn json(value: &toml::Value) -> Option<Value> {
    Some(match value {
        toml::Value::String(text) => Value::from(text.as_str()),
        toml::Value::Boolean(truth) => Value::from(*truth),
        toml::Value::Integer(_) | toml::Value::Float(_) => {
            parse(value.to_string().as_bytes(), &JsonLimits::BARE).ok()?
        }
        toml::Value::Array(items) => items.iter().map(json).collect::<Option<Vec<_>>>()?.into(),
        toml::Value::Table(table) => {
            let mut object = Object::new();
            for (key, value) in table {
                object.insert(key.as_str(), json(value)?);
            }
            Value::Object(object)
        }
        toml::Value::Datetime(_) => return None,
    })
}

impl RawDay {
    fn read(&self) -> Result<Caps, Misfit> {
        let bound =
            |key, unit, given: &Given| Number { key, unit, least: 1, most: None }.read(given);
        Ok(Caps {
            calls: bound("max_model_calls", "calls", &self.max_model_calls)?,
            tokens: bound("max_total_tokens", "tokens", &self.max_total_tokens)?,
            cost_micros: self.max_cost.as_ref().map(amount).transpose()?,
        })
    }
}

/// An amount of money in micros.
pub(super) fn amount(text: &Spanned<String>) -> Result<u64, Misfit> {
    parse_amount(text.get_ref()).map_err(|error| Misfit::at(&text.span(), error.to_string()))
}
