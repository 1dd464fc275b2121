//! Prices as dated data: the list that is built in, and the operator's own, which wins.

use std::collections::BTreeMap;

use portcullis_canon::sanitize;
use portcullis_domain::ports::{ModelName, Price, Rates};
use serde::Deserialize;

/// The largest price file in bytes.
pub const MAX_PRICE_FILE_BYTES: usize = 1024 * 1024;

/// Prices of models, with the day that they are from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PriceList {
    dated: String,
    models: BTreeMap<String, Entry>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Entry {
    Priced(Rates),
    Free,
}

impl Entry {
    const fn price(self) -> Price {
        match self {
            Self::Priced(rates) => Price::Priced(rates),
            Self::Free => Price::Free,
        }
    }
}

/// Why a text is no price list.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PriceError {
    /// Too long.
    #[error("a price file has at most {MAX_PRICE_FILE_BYTES} bytes")]
    TooLarge,
    /// No TOML of this shape; amounts are whole micros for a million tokens.
    #[error("the price file does not fit: {reason}")]
    Shape {
        /// What the reader said, printable.
        reason: String,
    },
    /// `dated` is no day.
    #[error("`dated` must be a day such as \"2026-06-30\"")]
    Date,
    /// A name that is none.
    #[error("entry {entry} of the price file: a model is named PROVIDER:NAME")]
    Name {
        /// Counted from one.
        entry: usize,
    },
    /// One name twice.
    #[error("entry {entry} of the price file names a model that an earlier one named")]
    Repeated {
        /// Counted from one.
        entry: usize,
    },
    /// Neither free nor priced, or both.
    #[error(
        "entry {entry} of the price file needs `input` and `output`, or `free = true` and nothing else"
    )]
    Half {
        /// Counted from one.
        entry: usize,
    },
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    dated: String,
    #[serde(default)]
    model: Vec<Line>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Line {
    name: String,
    input: Option<u64>,
    cache_read: Option<u64>,
    cache_write: Option<u64>,
    cache_write_long: Option<u64>,
    output: Option<u64>,
    #[serde(default)]
    free: bool,
}

impl Line {
    fn stated(&self) -> StatedPrice {
        let Self { input, cache_read, cache_write, cache_write_long, output, free, .. } = *self;
        StatedPrice { input, cache_read, cache_write, cache_write_long, output, free }
    }
}

/// A price as an operator writes it: micros for a million tokens, or `free = true` and nothing else.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct StatedPrice {
    /// Input read anew.
    pub input: Option<u64>,
    /// Input out of a cache; as `input` where it is not said.
    pub cache_read: Option<u64>,
    /// Input put into a cache that lives for minutes; as `input` where it is not said.
    pub cache_write: Option<u64>,
    /// Input put into a cache that lives for an hour; as `cache_write` where it is not said.
    pub cache_write_long: Option<u64>,
    /// Output.
    pub output: Option<u64>,
    /// Free on purpose.
    pub free: bool,
}

impl StatedPrice {
    /// What it means; `None` when it is neither free nor has `input` and `output`, or is both.
    #[must_use]
    pub fn price(&self) -> Option<Price> {
        self.entry().map(Entry::price)
    }

    /// What is not said costs as much as input that is read anew, or as a write that is said: a price is never zero by omission.
    fn entry(&self) -> Option<Entry> {
        let said =
            [self.input, self.cache_read, self.cache_write, self.cache_write_long, self.output];
        if self.free {
            return said.iter().all(Option::is_none).then_some(Entry::Free);
        }
        let (input, output) = (self.input?, self.output?);
        let write = self.cache_write.unwrap_or(input);
        Some(Entry::Priced(Rates {
            input,
            cache_read: self.cache_read.unwrap_or(input),
            cache_write: write,
            cache_write_long: self.cache_write_long.unwrap_or(write),
            output,
        }))
    }
}

impl PriceList {
    /// The list that comes with this version.
    ///
    /// # Errors
    /// [`PriceError`], which a test rules out.
    pub fn built_in() -> Result<Self, PriceError> {
        Self::read(include_str!("prices.toml"))
    }

    /// Reads a list.
    ///
    /// # Errors
    /// [`PriceError`]: nothing is guessed, and an unknown word is refused.
    pub fn read(text: &str) -> Result<Self, PriceError> {
        if text.len() > MAX_PRICE_FILE_BYTES {
            return Err(PriceError::TooLarge);
        }
        let file: File = toml::from_str(text).map_err(|error| PriceError::Shape {
            reason: sanitize::clip(&sanitize::line(error.message()), 200),
        })?;
        if !is_day(&file.dated) {
            return Err(PriceError::Date);
        }
        let mut models = BTreeMap::new();
        for (index, line) in file.model.iter().enumerate() {
            let entry = index.saturating_add(1);
            let name = ModelName::read(&line.name).map_err(|_| PriceError::Name { entry })?;
            let price = line.stated().entry().ok_or(PriceError::Half { entry })?;
            if models.insert(name.as_str().to_owned(), price).is_some() {
                return Err(PriceError::Repeated { entry });
            }
        }
        Ok(Self { dated: file.dated, models })
    }

    /// The day that the list is from, `YYYY-MM-DD`; after a merge, the older one.
    #[must_use]
    pub fn dated(&self) -> &str {
        &self.dated
    }

    /// Both lists; what `newer` says about a model wins.
    #[must_use]
    pub fn merged_with(mut self, newer: Self) -> Self {
        self.models.extend(newer.models);
        self.dated = self.dated.min(newer.dated);
        self
    }

    /// The price of exactly this model; nothing is inferred from names that look alike.
    #[must_use]
    pub fn price(&self, model: &ModelName) -> Price {
        self.models.get(model.as_str()).map_or(Price::Unpriced, |entry| entry.price())
    }

    /// All models that have a price, by name.
    pub fn iter(&self) -> impl Iterator<Item = (&str, Price)> {
        self.models.iter().map(|(name, entry)| (name.as_str(), entry.price()))
    }
}

fn is_day(text: &str) -> bool {
    let parts: Vec<&str> = text.split('-').collect();
    let [year, month, day] = parts.as_slice() else { return false };
    let within = |part: &str, length: usize, most: u32| {
        part.len() == length
            && part.bytes().all(|b| b.is_ascii_digit())
            && part.parse().is_ok_and(|number: u32| (1..=most).contains(&number))
    };
    within(year, 4, 9999) && within(month, 2, 12) && within(day, 2, 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name(text: &str) -> ModelName {
        ModelName::read(text).expect("a name")
    }

    #[test]
    fn the_built_in_list_can_be_read() {
        let list = PriceList::built_in().expect("a list");
        let Price::Priced(rates) = list.price(&name("anthropic:claude-sonnet-4-5")) else {
            panic!("no price")
        };
        assert_eq!((rates.input, rates.output, rates.cache_read), (3_000_000, 15_000_000, 300_000));
        assert_eq!(list.price(&name("anthropic:claude-sonnet-4-5-x")), Price::Unpriced);
        // What is not said is never cheaper than input.
        let Price::Priced(rates) = list.price(&name("openai:gpt-5")) else { panic!("no price") };
        assert_eq!(rates.cache_write, rates.input);
    }

    #[test]
    fn the_operators_list_wins() {
        let own = "dated = \"2026-11-30\"\n[[model]]\nname = \"openai:gpt-5\"\nfree = true\n\
                   [[model]]\nname = \"local:x\"\ninput = 1\noutput = 2\n";
        let list = PriceList::built_in().expect("a list");
        let dated = list.dated().to_owned();
        let list = list.merged_with(PriceList::read(own).expect("a list"));
        assert_eq!(list.price(&name("openai:gpt-5")), Price::Free);
        assert!(matches!(list.price(&name("local:x")), Price::Priced(_)));
        assert!(matches!(list.price(&name("openai:gpt-4o")), Price::Priced(_)));
        assert_eq!(list.dated(), dated);
    }

    #[track_caller]
    fn refused(entry: &str, fits: impl Fn(&PriceError) -> bool) {
        let text = format!("dated = \"2026-01-01\"\n[[model]]\n{entry}\n");
        let error = PriceList::read(&text).expect_err(entry);
        assert!(fits(&error), "{entry}: {error}");
    }

    #[test]
    fn nothing_is_guessed() {
        let shape = |e: &PriceError| matches!(e, PriceError::Shape { .. });
        let half = |e: &PriceError| matches!(e, PriceError::Half { entry: 1 });
        refused("name = \"a:b\"\ninput = 1.5\noutput = 2", shape);
        refused("name = \"a:b\"\ninput = -1\noutput = 2", shape);
        refused("name = \"a:b\"\ninput = \"1\"\noutput = 2", shape);
        refused("name = \"a:b\"\ninput = 1\noutput = 2\ncurrency = \"x\"", shape);
        refused("name = \"a:b\"\ninput = 1", half);
        refused("name = \"a:b\"", half);
        refused("name = \"a:b\"\nfree = true\noutput = 2", half);
        refused("name = \"b\"\nfree = true", |e| matches!(e, PriceError::Name { entry: 1 }));
        let twice = "name = \"a:b\"\nfree = true\n[[model]]\nname = \"a:b\"\nfree = true";
        refused(twice, |e| matches!(e, PriceError::Repeated { entry: 2 }));
        for day in ["2026-13-01", "2026-00-10", "yesterday", "2026-1-1", "2026-01-32", ""] {
            let list = PriceList::read(&format!("dated = \"{day}\""));
            assert_eq!(list, Err(PriceError::Date), "{day}");
        }
    }
}
