//! Arguments drawn from a JSON Schema: valid ones, near-misses that break one keyword alone, and texts at the bounds of
//! what is read at all.
//!
//! A near-miss is a valid value with one change, or a value that was meant to be valid, and `canon::Schema` itself says
//! which keyword it breaks: only what breaks one keyword and no other is kept. A keyword of the schema for which none was found is named in
//! [`Drawn::missed`], so that nobody takes it for covered. The same seed draws the same.
//!
//! ```
//! use portcullis_canon::{Limits, parse};
//! use portcullis_testkit::arguments::draw;
//!
//! let schema = br#"{"type":"object","additionalProperties":false,"required":["to"],
//!     "properties":{"to":{"type":"string","maxLength":3},"n":{"type":"integer","minimum":1}}}"#;
//! let drawn = draw(&parse(schema, &Limits::BARE)?, 7)?;
//! assert!(!drawn.valid.is_empty() && drawn.missed.is_empty());
//! // Three characters are no more than three, however many bytes they have.
//! assert!(drawn.valid.iter().any(|value| value.get("to").is_some_and(|to| {
//!     to.as_str().is_some_and(|to| to.chars().count() == 3 && to.len() > 3)
//! })));
//! let broken = |keyword: &str| drawn.near_misses.iter().find(|miss| miss.keyword == keyword);
//! for keyword in ["type", "additionalProperties", "required", "maxLength", "minimum"] {
//!     assert!(broken(keyword).is_some(), "{keyword}");
//! }
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod change;
mod make;
mod raw;
mod walk;

use std::collections::{BTreeMap, BTreeSet};

use portcullis_canon::{Limits, Schema, SchemaError, Value, Violations};

use crate::dice::Dice;
pub use raw::{Raw, Reads};

/// How many valid values are made from nothing.
const SEEDS: usize = 24;

/// How often it is tried.
const TRIES: usize = 600;

/// The most valid values in all; those at bounds are among them.
const MOST_VALID: usize = 400;

/// The most near-misses of one keyword at one place.
const MOST_MISSES: usize = 4;

/// A value that breaks one keyword of its schema.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NearMiss {
    /// The keyword, in the words of [`portcullis_canon::Violation`].
    pub keyword: String,
    /// Where it is broken: a JSON pointer into the value.
    pub path: String,
    /// The value.
    pub value: Value,
}

/// What was drawn.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Drawn {
    /// Values that follow the schema, those at its bounds included.
    pub valid: Vec<Value>,
    /// Values that break exactly one keyword.
    pub near_misses: Vec<NearMiss>,
    /// Texts of values at the bounds of what is read, and beyond.
    pub raw: Vec<Raw>,
    /// Keywords of the schema for which there is no near-miss: nothing can break them alone, or none was found.
    pub missed: BTreeSet<String>,
}

/// Draws arguments.
///
/// # Errors
/// [`SchemaError`] for a schema that `canon` refuses.
pub fn draw(schema: &Value, seed: u64) -> Result<Drawn, SchemaError> {
    let compiled = Schema::compile(schema)?;
    let walked = walk::walk(schema);
    let mut dice = Dice::new(seed);
    let mut sorted = Sorted {
        schema: &compiled,
        known: BTreeSet::new(),
        drawn: BTreeMap::new(),
        valid: Vec::new(),
    };
    for _ in 0..TRIES {
        if sorted.valid.len() >= SEEDS {
            break;
        }
        sorted.sort(make::make(schema, &mut dice));
    }
    let spares: Vec<Value> =
        walked.schemas.iter().map(|part| make::part(schema, part, &mut dice)).collect();
    let seeds = sorted.valid.clone();
    for value in &seeds {
        for changed in change::all(value, &walked, &spares) {
            sorted.sort(changed);
        }
    }
    let found: BTreeSet<&str> = sorted.drawn.keys().map(|(keyword, _)| keyword.as_str()).collect();
    let missed = walked.keywords.iter().filter(|word| !found.contains(word.as_str()));
    let missed = missed.cloned().collect();
    let raw = raw::texts(&seeds);
    let near_misses = sorted.drawn.into_values().flatten().collect();
    Ok(Drawn { valid: sorted.valid, near_misses, raw, missed })
}

/// Values by what the schema says of them.
struct Sorted<'a> {
    schema: &'a Schema,
    known: BTreeSet<String>,
    drawn: BTreeMap<(String, String), Vec<NearMiss>>,
    valid: Vec<Value>,
}

impl Sorted<'_> {
    fn sort(&mut self, value: Value) {
        if value.depth() > Limits::BARE.max_depth || !self.known.insert(value.to_canonical_string())
        {
            return;
        }
        match self.schema.check(&value) {
            Ok(()) if self.valid.len() < MOST_VALID => self.valid.push(value),
            Ok(()) => {}
            Err(broken) => {
                if let Some((keyword, path)) = only(&broken) {
                    let misses = self.drawn.entry((keyword.clone(), path.clone())).or_default();
                    if misses.len() < MOST_MISSES {
                        misses.push(NearMiss { keyword, path, value });
                    }
                }
            }
        }
    }
}

/// The keyword that is broken, and where first, when it is the only one.
fn only(broken: &Violations) -> Option<(String, String)> {
    let first = broken.listed().first()?;
    let alone = broken.more() == 0 && broken.iter().all(|other| other.rule == first.rule);
    alone.then(|| (first.rule.clone(), first.path.clone()))
}

#[cfg(test)]
mod tests;
