//! JSON Schemas from strangers, compiled within budgets, and arguments checked against them.
//!
//! A schema may come from a hostile tool server. It is refused before the validator sees it when
//! its size, its references or the work that it can cause are out of bounds; a panic of the
//! validator is caught and is a refusal too.

mod budget;
mod defaults;
mod graph;
mod plain;

use crate::limits::Limits;
use crate::sanitize;
use crate::value::Value;
use jsonschema::error::ValidationErrorKind;
use jsonschema::{Draft, PatternOptions, ValidationError, Validator};
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};

/// The most violations that are named.
const MAX_VIOLATIONS: usize = 16;

/// The most violations that are counted before the count itself stops.
const MAX_COUNTED: usize = 1_000;

/// The longest path in a violation, in bytes.
const MAX_PATH: usize = 256;

/// The memory in bytes that one compiled pattern may take.
const MAX_PATTERN: usize = 512 * 1024;

/// Why a schema is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SchemaError {
    /// Canonical bytes beyond 64 KiB.
    #[error("schema is larger than {} bytes", budget::MAX_BYTES)]
    TooLarge,
    /// Nesting beyond 32.
    #[error("schema is nested deeper than {}", budget::MAX_DEPTH)]
    TooDeep,
    /// More than 2,000 values.
    #[error("schema has more than {} parts", budget::MAX_NODES)]
    TooManyNodes,
    /// More than 10,000 evaluations for one place of an instance.
    #[error("schema can cause more than {} evaluations at one place", budget::MAX_PATHS)]
    TooMuchWork,
    /// Neither an object nor a boolean where a schema has to stand.
    #[error("a schema is an object or a boolean")]
    Shape,
    /// More than 64 regular expressions.
    #[error("schema has more than {} patterns", budget::MAX_PATTERNS)]
    TooManyPatterns,
    /// A number that no machine type holds exactly.
    #[error("schema holds a number that cannot be held exactly")]
    Number,
    /// A reference to anywhere but a place in this schema.
    #[error("schema refers to something outside itself")]
    Reference,
    /// A reference to a place that is not there.
    #[error("schema refers to a place that it does not have")]
    Dangling,
    /// References that come back to themselves without moving on in the instance.
    #[error("schema refers to itself in a circle")]
    Circle,
    /// A `$schema` that is no standard draft, or stands below the root.
    #[error("schema names a dialect that is not supported")]
    Dialect,
    /// A keyword that changes how references resolve, such as a nested `$id`.
    #[error("schema uses a keyword that is not supported")]
    Keyword,
    /// The validator refuses it: a wrong keyword value, an unusable pattern.
    #[error("schema is not valid")]
    Invalid,
    /// The validator panicked.
    #[error("schema made the validator fail")]
    Panicked,
}

/// One rule that an instance broke. Says where and which, never the value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violation {
    /// A JSON pointer into the instance, sanitised and clipped; `""` is the whole.
    pub path: String,
    /// The keyword, or one of our own rules: `depth`, `number`, `panic`.
    pub rule: String,
}

impl Violation {
    fn own(path: &str, rule: &str) -> Self {
        Self {
            path: sanitize::clip(&sanitize::line(path), MAX_PATH),
            rule: sanitize::clip(&sanitize::line(rule), MAX_PATH),
        }
    }
}

/// The rules that an instance broke: the first sixteen, and how many more there are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violations {
    listed: Vec<Violation>,
    more: usize,
}

impl Violations {
    fn one(violation: Violation) -> Self {
        Self { listed: vec![violation], more: 0 }
    }

    /// The first violations, at most sixteen and at least one.
    #[must_use]
    pub fn listed(&self) -> &[Violation] {
        &self.listed
    }

    /// How many more there are; counting stops at a thousand in all.
    #[must_use]
    pub fn more(&self) -> usize {
        self.more
    }

    /// The violations that are listed.
    pub fn iter(&self) -> std::slice::Iter<'_, Violation> {
        self.listed.iter()
    }
}

impl fmt::Display for Violations {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, Violation { path, rule }) in self.listed.iter().enumerate() {
            let place = if path.is_empty() { "(root)" } else { path };
            write!(f, "{}{place}: {rule}", if index == 0 { "" } else { "; " })?;
        }
        if self.more > 0 {
            write!(f, "; and {} more", self.more)?;
        }
        Ok(())
    }
}

impl std::error::Error for Violations {}

/// The dialect that a schema names: 2020-12 where it names none.
fn draft(schema: &Value) -> Result<Draft, SchemaError> {
    let Some(name) = schema.get("$schema") else { return Ok(Draft::Draft202012) };
    let name = name.as_str().ok_or(SchemaError::Dialect)?;
    let path = name.strip_prefix("https://").or_else(|| name.strip_prefix("http://"));
    match path.map(|path| path.strip_suffix('#').unwrap_or(path)) {
        Some("json-schema.org/draft-04/schema") => Ok(Draft::Draft4),
        Some("json-schema.org/draft-06/schema") => Ok(Draft::Draft6),
        Some("json-schema.org/draft-07/schema") => Ok(Draft::Draft7),
        Some("json-schema.org/draft/2019-09/schema") => Ok(Draft::Draft201909),
        Some("json-schema.org/draft/2020-12/schema") => Ok(Draft::Draft202012),
        _ => Err(SchemaError::Dialect),
    }
}

fn build(schema: &serde_json::Value, draft: Draft) -> Option<Validator> {
    let patterns = PatternOptions::regex().size_limit(MAX_PATTERN).dfa_size_limit(MAX_PATTERN);
    jsonschema::options()
        .with_draft(draft)
        .offline()
        .with_pattern_options(patterns)
        // It would put text from an instance through another parser than ours.
        .without_content_media_type_support("application/json")
        .build(schema)
        .ok()
}

/// Where a rule was broken. A missing property is named: its name is the schema's, not the instance's.
fn place(error: &ValidationError<'_>) -> String {
    let path = error.instance_path().as_str();
    match error.kind() {
        ValidationErrorKind::Required { property: serde_json::Value::String(name) } => {
            format!("{path}/{}", name.replace('~', "~0").replace('/', "~1"))
        }
        _ => path.to_owned(),
    }
}

/// A compiled schema.
#[derive(Debug)]
pub struct Schema {
    source: Value,
    validator: Validator,
}

impl Schema {
    /// Compiles a schema of draft 4, 6, 7, 2019-09 or 2020-12 (which is meant where none is named).
    ///
    /// Nothing is fetched. `format` is checked only where the draft says so.
    ///
    /// # Errors
    ///
    /// A schema beyond the budgets, with references outside itself, or not valid.
    pub fn compile(source: &Value) -> Result<Self, SchemaError> {
        budget::admit(source)?;
        let draft = draft(source)?;
        let mut plain = plain::plain(source).ok_or(SchemaError::Number)?;
        if let Some(root) = plain.as_object_mut() {
            // All references are local by now, so a name of its own could only mislead, as by
            // claiming to be a dialect's own document.
            for keyword in ["$schema", "$id", "id"] {
                if root.get(keyword).is_some_and(serde_json::Value::is_string) {
                    root.remove(keyword);
                }
            }
        }
        let built = catch_unwind(|| build(&plain, draft));
        let validator = built.map_err(|_| SchemaError::Panicked)?.ok_or(SchemaError::Invalid)?;
        Ok(Self { source: source.clone(), validator })
    }

    /// The schema as it was given.
    #[must_use]
    pub fn source(&self) -> &Value {
        &self.source
    }

    /// Whether `instance` follows the schema.
    ///
    /// # Errors
    ///
    /// The rules that it breaks. Nesting beyond an envelope breaks `depth`, a number that no
    /// machine type holds exactly breaks `number`, and neither reaches the validator.
    pub fn check(&self, instance: &Value) -> Result<(), Violations> {
        if instance.depth() > Limits::ENVELOPE.max_depth {
            return Err(Violations::one(Violation::own("", "depth")));
        }
        let Some(plain) = plain::plain(instance) else {
            let path = plain::inexact_path(instance).unwrap_or_default();
            return Err(Violations::one(Violation::own(&path, "number")));
        };
        let checked = catch_unwind(AssertUnwindSafe(|| self.violations(&plain)));
        match checked {
            Ok(None) => Ok(()),
            Ok(Some(violations)) => Err(violations),
            Err(_) => Err(Violations::one(Violation::own("", "panic"))),
        }
    }

    fn violations(&self, plain: &serde_json::Value) -> Option<Violations> {
        if self.validator.is_valid(plain) {
            return None;
        }
        let mut errors = self.validator.iter_errors(plain);
        let mut listed: Vec<Violation> = errors
            .by_ref()
            .take(MAX_VIOLATIONS)
            .map(|error| Violation::own(&place(&error), error.kind().keyword()))
            .collect();
        let more = errors.take(MAX_COUNTED - MAX_VIOLATIONS).count();
        if listed.is_empty() {
            // The validator contradicts itself; what it refused once stays refused.
            listed.push(Violation::own("", "schema"));
        }
        Some(Violations { listed, more })
    }

    /// The instance with the `default` of each absent property put in.
    ///
    /// Only defaults in `properties` count, down through `properties` and a single `items` schema
    /// where the instance has them; combinators and references are not looked into. Where more
    /// than a mebibyte would be added, nothing is. Filling twice changes nothing.
    #[must_use]
    pub fn fill_defaults(&self, instance: Value) -> Value {
        defaults::fill(&self.source, instance)
    }
}
