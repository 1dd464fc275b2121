//! The suite finds what it claims to find: one source that keeps the contract, and one that breaks each part.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use portcullis_canon::{Digest, Kind, Limits, Object, Value, parse};
use portcullis_domain::permit::Permit;
use portcullis_domain::ports::{BoxFuture, ToolFailure, ToolOutput, ToolSource};
use portcullis_domain::tool::{EffectClass, ToolSpec};

use super::{Example, Subject, findings};

/// What the counting tool does wrong.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Fault {
    None,
    NameTwice,
    NoDeadline,
    NoSchema,
    Pointer,
    Moody,
    WritesWhenRead,
    WritesBeforePoll,
    Denies,
    Panics,
    NoJson,
    TooMuch,
    LongMessage,
}

/// Adds to a number, refuses what is not text of at most eight bytes.
struct Counter {
    fault: Fault,
    number: Arc<AtomicU64>,
    asked: AtomicU64,
}

fn counter(fault: Fault) -> Subject {
    let number = Arc::new(AtomicU64::new(0));
    let state = Arc::clone(&number);
    let arguments = [("path", "a")];
    Subject {
        source: Box::new(Counter { fault, number, asked: AtomicU64::new(0) }),
        examples: vec![Example::new("look", arguments), Example::new("add", arguments)],
        state: Box::new(move || {
            Digest::of(Kind::Content, &state.load(Ordering::SeqCst).to_be_bytes())
        }),
    }
}

impl Counter {
    fn spec(&self, name: &str, effect: EffectClass) -> ToolSpec {
        let schema = match self.fault {
            Fault::NoSchema => r#"{"type": "object", "properties": 7}"#,
            _ => r#"{"type": "object", "properties": {"path": {"type": "string"}}}"#,
        };
        ToolSpec {
            name: name.to_owned(),
            description: "Counts.".to_owned(),
            input_schema: parse(schema.as_bytes(), &Limits::BARE).unwrap(),
            effect,
            source: false,
            sink: effect.changes_something(),
            authority: vec![
                if self.fault == Fault::Pointer { "/elsewhere" } else { "/path" }.to_owned(),
            ],
            deadline_ms: if self.fault == Fault::NoDeadline { 0 } else { 1_000 },
            terminal: false,
            fixed: Object::new(),
            max_result_bytes: if self.fault == Fault::TooMuch { 1 } else { 1_000 },
            target: None,
            probe: None,
            idempotency_key: None,
        }
    }

    fn perform(&self, permit: &Permit) -> Result<ToolOutput, ToolFailure> {
        let add = || self.number.fetch_add(1, Ordering::SeqCst);
        let path = permit.arguments().get("path").and_then(Value::as_str);
        let Some(path) = path.filter(|path| path.len() <= 8) else {
            assert!(self.fault != Fault::Panics, "as planned");
            if self.fault == Fault::Denies && permit.tool() == "add" {
                add();
            }
            let message = match self.fault {
                Fault::LongMessage => "two\nlines".to_owned(),
                _ => "`path` is no short text".to_owned(),
            };
            return Err(ToolFailure::NothingHappened { message });
        };
        if permit.tool() == "add" || self.fault == Fault::WritesWhenRead {
            add();
        }
        let content = match self.fault {
            Fault::NoJson if path == "a\0b" => b"{'a': 1}".to_vec(),
            _ => Value::from(path).to_canonical(),
        };
        Ok(ToolOutput { content, labels: None })
    }
}

impl ToolSource for Counter {
    fn specs(&self) -> Vec<ToolSpec> {
        let add = if self.fault == Fault::NameTwice { "look" } else { "add" };
        let mut specs = vec![
            self.spec("look", EffectClass::ReadOnly),
            self.spec(add, EffectClass::LocalMutation),
        ];
        if self.fault == Fault::Moody && self.asked.fetch_add(1, Ordering::SeqCst) % 2 == 1 {
            specs.reverse();
        }
        specs
    }

    fn blocks(&self) -> bool {
        false
    }

    fn call(&self, permit: Permit) -> BoxFuture<'_, Result<ToolOutput, ToolFailure>> {
        if self.fault == Fault::WritesBeforePoll {
            self.number.fetch_add(1, Ordering::SeqCst);
        }
        Box::pin(async move { self.perform(&permit) })
    }
}

#[track_caller]
fn check(fault: Fault, part: &str) {
    let found = findings(&|| counter(fault));
    assert!(found.iter().any(|finding| finding.contains(part)), "{part}: {found:#?}");
}

#[test]
fn a_source_that_keeps_the_contract_has_no_findings() {
    assert_eq!(findings(&|| counter(Fault::None)), Vec::<String>::new());
}

#[test]
fn each_fault_in_the_specs_is_found() {
    check(Fault::NameTwice, "look: the name stands twice");
    check(Fault::NoDeadline, "look: the tool's deadline must be more than zero");
    check(Fault::NoSchema, "schema");
    check(Fault::Pointer, "`/elsewhere` names no property of the schema");
    check(Fault::Moody, "the specs differ when they are asked for again");
}

#[test]
fn each_fault_in_a_call_is_found() {
    check(Fault::WritesWhenRead, "look: a read-only tool changed something");
    check(Fault::WritesBeforePoll, "look: a call that was never polled changed something");
    check(Fault::Denies, "add: it says that nothing happened, and something did");
    check(Fault::Panics, "look: a call panics");
    check(Fault::NoJson, "look: a result is no strict json");
    check(Fault::TooMuch, "more than its spec says");
    check(Fault::LongMessage, "a message is not one short line");
}

#[test]
fn a_missing_example_is_found() {
    let fresh = || {
        let mut subject = counter(Fault::None);
        subject.examples.pop();
        subject
    };
    assert_eq!(findings(&fresh), ["add: there is no example"]);
}
