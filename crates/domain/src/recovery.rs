//! How an unknown outcome resolves without a person: what a tool declares for it, and what was found.
//!
//! A tool may name a *probe*, a tool that only reads and answers "did it happen?", and an *idempotency key*, a
//! parameter that the gate fills, by which its receiver knows a second start of one step as the same call.
//!
//! ```
//! use portcullis_canon::{Limits, parse};
//! use portcullis_domain::recovery::ProbeAnswer;
//!
//! let read = |text: &str| ProbeAnswer::read(&parse(text.as_bytes(), &Limits::BARE).unwrap());
//! assert_eq!(read(r#"{"happened":false}"#), Some(ProbeAnswer::DidNotHappen));
//! assert!(matches!(read(r#"{"happened":true,"result":{"id":7}}"#), Some(ProbeAnswer::Happened(_))));
//! assert_eq!(read(r#"{"happened":"yes"}"#), None);
//! ```

use std::collections::BTreeMap;

use portcullis_canon::{Digest, Kind, Object, Value};
use serde::{Deserialize, Serialize};

use crate::id::StepId;

/// How "did it happen?" is asked of another tool of the same frozen set.
///
/// The tool has to be `read_only` and answers `{"happened": false}`, or `{"happened": true, "result": …}`, where the
/// result may be left out. Whatever else it says, or that it fails, means that it cannot say.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Probe {
    /// The tool that is asked.
    pub tool: String,
    /// Its arguments, each with the JSON pointer of a value in the call's canonical arguments; without it, those
    /// arguments as they are.
    pub arguments: Option<BTreeMap<String, String>>,
}

impl Probe {
    /// What the probe is handed about a call; `None` when the call does not have what it names.
    #[must_use]
    pub fn arguments_for(&self, call: &Object) -> Option<Object> {
        let Some(mapping) = &self.arguments else { return Some(call.clone()) };
        let whole = Value::Object(call.clone());
        let mut arguments = Object::new();
        for (name, pointer) in mapping {
            arguments.insert(name.as_str(), whole.pointer(pointer)?.clone());
        }
        Some(arguments)
    }

    pub(crate) fn value(&self) -> Value {
        let mapping = self.arguments.as_ref().map(|mapping| {
            let mut object = Object::new();
            for (name, pointer) in mapping {
                object.insert(name.as_str(), pointer.as_str());
            }
            Value::Object(object)
        });
        let mut object = Object::new();
        object.insert("tool", self.tool.as_str());
        object.insert("arguments", mapping.unwrap_or_default());
        Value::Object(object)
    }
}

/// What a probe said, where it has the form that a probe's answer has.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ProbeAnswer {
    /// It happened, and this came back; null when the probe does not know what.
    Happened(Value),
    /// It did not happen.
    DidNotHappen,
}

impl ProbeAnswer {
    /// Reads a probe's result; `None` when it says neither.
    #[must_use]
    pub fn read(answer: &Value) -> Option<Self> {
        let object = answer.as_object()?;
        let result = object.get("result");
        match (object.get("happened")?.as_bool()?, object.len(), result) {
            (false, 1, None) => Some(Self::DidNotHappen),
            (true, 1, None) => Some(Self::Happened(Value::Null)),
            (true, 2, Some(result)) => Some(Self::Happened(result.clone())),
            _ => None,
        }
    }
}

/// What was found out about a call whose outcome was unknown.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Found {
    /// It happened.
    Happened,
    /// It did not happen.
    DidNotHappen,
    /// It cannot be said.
    Unknown,
    /// What is outside fits neither.
    Conflict,
}

impl Found {
    /// The stable name.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Happened => "happened",
            Self::DidNotHappen => "did_not_happen",
            Self::Unknown => "unknown",
            Self::Conflict => "conflict",
        }
    }
}

/// The idempotency key of a step's call: 64 hexadecimal digits. The same for each start of the step, another one
/// for an equal call of another step, and not to be guessed without the run's salt.
///
/// `request` is the digest of tool and canonical arguments without the key.
#[must_use]
pub fn idempotency_key(run_salt: &[u8], step: StepId, request: Digest) -> String {
    Digest::of_parts(Kind::IdempotencyKey, &[run_salt, step.as_bytes(), request.as_bytes()]).hex()
}

#[cfg(test)]
mod tests {
    use portcullis_canon::{Limits, parse};

    use super::*;

    fn value(text: &str) -> Value {
        parse(text.as_bytes(), &Limits::BARE).unwrap()
    }

    #[track_caller]
    fn check(answer: &str, expected: Option<ProbeAnswer>) {
        assert_eq!(ProbeAnswer::read(&value(answer)), expected, "{answer}");
    }

    #[test]
    fn only_the_documented_forms_are_answers() {
        check(r#"{"happened":true}"#, Some(ProbeAnswer::Happened(Value::Null)));
        check(r#"{"happened":true,"result":7}"#, Some(ProbeAnswer::Happened(Value::from(7_i64))));
        check(r#"{"happened":false}"#, Some(ProbeAnswer::DidNotHappen));
        for other in [
            "null",
            "true",
            "{}",
            r#"{"result":7}"#,
            r#"{"happened":null}"#,
            r#"{"happened":1}"#,
            r#"{"happened":"true"}"#,
            r#"{"happened":false,"result":7}"#,
            r#"{"happened":true,"note":"x"}"#,
            r#"{"happened":true,"result":7,"note":"x"}"#,
            r#"[{"happened":true}]"#,
        ] {
            check(other, None);
        }
    }

    #[test]
    fn a_probe_is_handed_the_call_or_the_parts_that_it_names() {
        let Value::Object(call) = value(r#"{"to":"ann","deep":{"key":"k1"}}"#) else { panic!() };
        let whole = Probe { tool: "sent".to_owned(), arguments: None };
        assert_eq!(whole.arguments_for(&call), Some(call.clone()));
        let named = |pointer: &str| Probe {
            arguments: Some([("id".to_owned(), pointer.to_owned())].into()),
            ..whole.clone()
        };
        let Value::Object(id) = value(r#"{"id":"k1"}"#) else { panic!() };
        assert_eq!(named("/deep/key").arguments_for(&call), Some(id));
        assert_eq!(named("/deep/missing").arguments_for(&call), None);
    }

    #[test]
    fn a_key_is_the_steps_own() {
        let (one, other) = (StepId::from_bytes([1; 16]), StepId::from_bytes([2; 16]));
        let request = Digest::of(Kind::Arguments, b"{}");
        let key = idempotency_key(b"salt", one, request);
        assert_eq!(key, idempotency_key(b"salt", one, request));
        assert_eq!((key.len(), key.bytes().all(|b| b.is_ascii_hexdigit())), (64, true));
        assert_ne!(key, idempotency_key(b"salt", other, request));
        assert_ne!(key, idempotency_key(b"pepper", one, request));
        assert_ne!(key, idempotency_key(b"salt", one, Digest::ZERO));
    }
}
