//! The contract of every tool source: what the gate relies on, whatever the tools do.
//!
//! ```
//! use portcullis_canon::{Digest, Kind, Object, Value, parse, Limits};
//! use portcullis_domain::permit::Permit;
//! use portcullis_domain::ports::{BoxFuture, ToolFailure, ToolOutput, ToolSource};
//! use portcullis_domain::tool::{EffectClass, ToolSpec};
//! use portcullis_testkit::tool_contract::{Example, Subject, assert_kept};
//!
//! struct Echo;
//!
//! impl ToolSource for Echo {
//!     fn specs(&self) -> Vec<ToolSpec> {
//!         vec![ToolSpec {
//!             name: "echo".to_owned(),
//!             description: "Gives back what it is given.".to_owned(),
//!             input_schema: parse(br#"{"type": "object"}"#, &Limits::BARE).unwrap(),
//!             effect: EffectClass::ReadOnly,
//!             source: false,
//!             sink: false,
//!             authority: vec![],
//!             deadline_ms: 1_000,
//!             terminal: false,
//!             fixed: Object::new(),
//!             max_result_bytes: 1024 * 1024,
//!             target: None,
//!             probe: None,
//!             idempotency_key: None,
//!         }]
//!     }
//!     fn blocks(&self) -> bool {
//!         false
//!     }
//!     fn call(&self, permit: Permit) -> BoxFuture<'_, Result<ToolOutput, ToolFailure>> {
//!         let content = Value::Object(permit.arguments().clone()).to_canonical();
//!         Box::pin(async { Ok(ToolOutput { content, labels: None }) })
//!     }
//! }
//!
//! // A source with a state of its own hands out a fresh one each time, and a digest of that state.
//! assert_kept(&|| Subject {
//!     source: Box::new(Echo),
//!     examples: vec![Example::new("echo", [("text", "hello")])],
//!     state: Box::new(|| Digest::of(Kind::Content, b"there is none")),
//! });
//! ```

mod arguments;
mod calls;
mod specs;

use portcullis_canon::{Digest, Object, Value};
use portcullis_domain::ports::ToolSource;

/// A call that succeeds on a fresh subject.
#[derive(Clone, Debug)]
pub struct Example {
    /// The tool.
    pub tool: String,
    /// Its arguments, before defaults are filled in.
    pub arguments: Object,
}

impl Example {
    /// An example from its arguments.
    pub fn new<K: Into<String>, V: Into<Value>>(
        tool: &str,
        arguments: impl IntoIterator<Item = (K, V)>,
    ) -> Self {
        Self { tool: tool.to_owned(), arguments: arguments.into_iter().collect() }
    }
}

/// A source with what it acts on, freshly made.
pub struct Subject {
    /// The source.
    pub source: Box<dyn ToolSource>,
    /// At least one call of each tool, each of which succeeds on a fresh subject.
    pub examples: Vec<Example>,
    /// A digest of everything that the tools could change.
    pub state: Box<dyn Fn() -> Digest>,
}

/// Every way in which a source breaks the contract; nothing when it keeps it.
///
/// - each spec passes its own check, its schema compiles, takes objects only, and its authority pointers name
///   properties of it; names are unique and specs are the same each time;
/// - each example is valid and succeeds; there is one for each tool;
/// - a result is strict JSON (or empty) and not larger than its spec says;
/// - a message is one line of at most 2 KiB without control characters;
/// - nothing happens before the first poll of a call, and a read-only tool changes nothing at all;
/// - what says that nothing happened has changed nothing;
/// - no arguments make a call panic: neither those that break the schema, nor those that keep it and are hostile, nor
///   those at its bounds, on both sides ([`crate::arguments`]).
///
/// Arguments are drawn from a fixed seed, so that a finding comes back.
pub fn findings(fresh: &dyn Fn() -> Subject) -> Vec<String> {
    let mut findings = specs::check(&fresh());
    if findings.is_empty() {
        // Without sound specs there is no knowing which arguments break them.
        findings.extend(calls::check_examples(fresh));
        findings.extend(calls::check_hostile(fresh));
    }
    findings
}

/// Fails the running test with every finding.
///
/// # Panics
/// When there is one.
#[expect(clippy::panic, reason = "this is how a test fails")]
#[track_caller]
pub fn assert_kept(fresh: &dyn Fn() -> Subject) {
    let findings = findings(fresh);
    if !findings.is_empty() {
        panic!("the tool source breaks its contract:\n{}", findings.join("\n"));
    }
}

#[cfg(test)]
mod tests;
