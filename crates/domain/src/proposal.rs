//! Proposals: what the agent asks for, read from raw bytes under strict rules.
//!
//! The wire form is one JSON object. Its bytes are recorded before this module reads them, so a proposal
//! that cannot be read is a recorded fact too.
//!
//! ```
//! use portcullis_domain::proposal::{Ask, Proposal};
//!
//! let raw = br#"{"request":0,"kind":"tool_call","tool":"files.read","arguments":{"path":"a.txt"}}"#;
//! let proposal = Proposal::read(raw, Some(0)).unwrap();
//! assert!(matches!(proposal.ask, Ask::ToolCall { tool, .. } if tool == "files.read"));
//! ```

use portcullis_canon::{Fault, Limits, Object, ParseError, Value, parse};
use serde::{Deserialize, Serialize};

use crate::refusal::Refusal;

/// The largest proposal in bytes.
pub const MAX_PROPOSAL_BYTES: usize = 1024 * 1024;

/// The most calls of one batch.
pub const MAX_BATCH: u32 = 16;

/// What kind of thing is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ProposalKind {
    /// Call a tool.
    ToolCall,
    /// The run is done.
    Complete,
    /// The run cannot be done.
    Fail,
}

impl ProposalKind {
    /// The stable name.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::ToolCall => "tool_call",
            Self::Complete => "complete",
            Self::Fail => "fail",
        }
    }
}

/// Where a proposal comes from. The policy never sees it as authority.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ProposalOrigin {
    /// A model made it.
    Model,
    /// It is a step of a plan.
    Plan,
    /// The operator wrote it.
    Operator,
}

impl ProposalOrigin {
    /// The stable name.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Model => "model",
            Self::Plan => "plan",
            Self::Operator => "operator",
        }
    }
}

/// One call of several that come together.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AskedCall {
    /// The name in the advertised set.
    pub tool: String,
    /// The arguments as given, before defaults and fixed values.
    pub arguments: Object,
    /// The agent's stated reason for this one: data, never authority.
    pub reason: Option<String>,
}

/// The substance of a proposal.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Ask {
    /// Call this tool with these arguments.
    ToolCall {
        /// The name in the advertised set.
        tool: String,
        /// The arguments as given, before defaults and fixed values.
        arguments: Object,
    },
    /// Make these calls at once: two or more, and [`MAX_BATCH`] at most. One that comes alone is a [`Ask::ToolCall`].
    ToolCalls {
        /// In the order in which their results come back.
        calls: Vec<AskedCall>,
    },
    /// The run is done, with this result.
    Complete {
        /// The result.
        result: Value,
    },
    /// The run cannot be done.
    Fail {
        /// Why, in the agent's words.
        message: String,
    },
}

/// One proposal that could be read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Proposal {
    /// What is asked for.
    pub ask: Ask,
    /// The agent's stated reason: data, never authority.
    pub reason: Option<String>,
    /// Where it comes from; a proposal that does not say comes from a model.
    pub origin: ProposalOrigin,
}

impl Proposal {
    /// Reads raw bytes; `request` is the id that the reply has to echo, `None` when the host calls in process.
    ///
    /// # Errors
    /// The [`Refusal`] that is recorded as the step's outcome.
    pub fn read(raw: &[u8], request: Option<u64>) -> Result<Self, Refusal> {
        let limits = Limits::ENVELOPE.with_max_bytes(MAX_PROPOSAL_BYTES);
        let value = parse(raw, &limits).map_err(refusal_of)?;
        let Value::Object(mut object) = value else { return Err(Refusal::NotAnObject) };
        check_request(&mut object, request)?;
        check_batch(&mut object)?;
        let mut reason = take_text(&mut object, "reason")?;
        let origin = match take_text(&mut object, "origin")?.as_deref() {
            None | Some("model") => ProposalOrigin::Model,
            Some("plan") => ProposalOrigin::Plan,
            Some("operator") => ProposalOrigin::Operator,
            Some(_) => return Err(Refusal::UnknownOrigin),
        };
        let ask = match take_text(&mut object, "kind")?.as_deref() {
            None => return Err(Refusal::NoKind),
            Some("tool_call") => Ask::ToolCall {
                tool: take_tool(&mut object)?,
                arguments: take_arguments(&mut object)?,
            },
            Some("tool_calls") => {
                let mut calls = take_calls(&mut object)?;
                match calls.pop() {
                    Some(only) if calls.is_empty() => {
                        reason = only.reason.or(reason);
                        Ask::ToolCall { tool: only.tool, arguments: only.arguments }
                    }
                    last => {
                        calls.extend(last);
                        Ask::ToolCalls { calls }
                    }
                }
            }
            Some("complete") => {
                Ask::Complete { result: object.remove("result").unwrap_or_default() }
            }
            Some("fail") => {
                Ask::Fail { message: take_text(&mut object, "message")?.unwrap_or_default() }
            }
            Some(_) => return Err(Refusal::UnknownKind),
        };
        if object.is_empty() {
            Ok(Self { ask, reason, origin })
        } else {
            Err(Refusal::UnknownField)
        }
    }

    /// The kind.
    #[must_use]
    pub const fn kind(&self) -> ProposalKind {
        match self.ask {
            Ask::ToolCall { .. } | Ask::ToolCalls { .. } => ProposalKind::ToolCall,
            Ask::Complete { .. } => ProposalKind::Complete,
            Ask::Fail { .. } => ProposalKind::Fail,
        }
    }
}

fn refusal_of(error: ParseError) -> Refusal {
    match error.fault {
        Fault::TooLarge => Refusal::TooLarge,
        Fault::TooDeep => Refusal::TooDeep,
        Fault::DuplicateKey => Refusal::RepeatedKey,
        _ => Refusal::NotJson,
    }
}

fn check_request(object: &mut Object, request: Option<u64>) -> Result<(), Refusal> {
    let echoed = match object.remove("request") {
        None => None,
        Some(value) => Some(value.as_u64().ok_or(Refusal::WrongType)?),
    };
    match (request, echoed) {
        (Some(expected), Some(echoed)) if expected == echoed => Ok(()),
        (None, None) => Ok(()),
        _ => Err(Refusal::WrongRequest),
    }
}

/// What replies could say before there were batches, and recorded ones do: that they are one call of one.
fn check_batch(object: &mut Object) -> Result<(), Refusal> {
    for (key, only) in [("batch", 1), ("index", 0)] {
        match object.remove(key) {
            None => {}
            Some(value) if value.as_u64() == Some(only) => {}
            Some(value) if value.as_u64().is_some() => return Err(Refusal::BatchTooLong),
            Some(_) => return Err(Refusal::WrongType),
        }
    }
    Ok(())
}

fn take_text(object: &mut Object, key: &str) -> Result<Option<String>, Refusal> {
    match object.remove(key) {
        None => Ok(None),
        Some(Value::String(text)) => Ok(Some(text)),
        Some(_) => Err(Refusal::WrongType),
    }
}

fn take_tool(object: &mut Object) -> Result<String, Refusal> {
    take_text(object, "tool")?.filter(|tool| !tool.is_empty()).ok_or(Refusal::NoTool)
}

fn take_calls(object: &mut Object) -> Result<Vec<AskedCall>, Refusal> {
    let calls = match object.remove("calls") {
        None => return Err(Refusal::BatchEmpty),
        Some(Value::Array(calls)) => calls,
        Some(_) => return Err(Refusal::WrongType),
    };
    match u32::try_from(calls.len()) {
        Ok(0) => Err(Refusal::BatchEmpty),
        Ok(1..=MAX_BATCH) => calls.into_iter().map(take_call).collect(),
        _ => Err(Refusal::BatchTooLong),
    }
}

fn take_call(call: Value) -> Result<AskedCall, Refusal> {
    let Value::Object(mut object) = call else { return Err(Refusal::WrongType) };
    let call = AskedCall {
        tool: take_tool(&mut object)?,
        arguments: take_arguments(&mut object)?,
        reason: take_text(&mut object, "reason")?,
    };
    object.is_empty().then_some(call).ok_or(Refusal::UnknownField)
}

fn take_arguments(object: &mut Object) -> Result<Object, Refusal> {
    match object.remove("arguments") {
        None => Ok(Object::new()),
        Some(Value::Object(arguments)) => Ok(arguments),
        Some(_) => Err(Refusal::WrongType),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(raw: &str, expected: Result<ProposalKind, Refusal>) {
        assert_eq!(Proposal::read(raw.as_bytes(), None).map(|p| p.kind()), expected, "{raw}");
    }

    #[test]
    fn each_kind_and_each_refusal() {
        check(r#"{"kind":"tool_call","tool":"t"}"#, Ok(ProposalKind::ToolCall));
        check(r#"{"kind":"complete","result":null}"#, Ok(ProposalKind::Complete));
        check(r#"{"kind":"fail","message":"no","origin":"plan"}"#, Ok(ProposalKind::Fail));
        check("{", Err(Refusal::NotJson));
        check("[]", Err(Refusal::NotAnObject));
        check("{}", Err(Refusal::NoKind));
        check(r#"{"kind":"truncated"}"#, Err(Refusal::UnknownKind));
        check(r#"{"kind":7}"#, Err(Refusal::WrongType));
        check(r#"{"kind":"fail","origin":"root"}"#, Err(Refusal::UnknownOrigin));
        check(r#"{"kind":"tool_call"}"#, Err(Refusal::NoTool));
        check(r#"{"kind":"tool_call","tool":""}"#, Err(Refusal::NoTool));
        check(r#"{"kind":"tool_call","tool":"t","arguments":[]}"#, Err(Refusal::WrongType));
        check(r#"{"kind":"tool_call","tool":"t","approved":true}"#, Err(Refusal::UnknownField));
        check(r#"{"kind":"complete","tool":"t"}"#, Err(Refusal::UnknownField));
        check(r#"{"kind":"fail","kind":"complete"}"#, Err(Refusal::RepeatedKey));
        check(r#"{"kind":"fail","batch":2}"#, Err(Refusal::BatchTooLong));
        check(r#"{"kind":"fail","batch":1,"index":0}"#, Ok(ProposalKind::Fail));
        check(r#"{"kind":"fail","request":0}"#, Err(Refusal::WrongRequest));
    }

    fn calls(count: usize) -> String {
        let call = r#"{"tool":"t","arguments":{"n":1},"reason":"to see"}"#;
        format!(r#"{{"kind":"tool_calls","calls":[{}]}}"#, vec![call; count].join(","))
    }

    #[test]
    fn several_calls_are_read_as_strictly_as_one() {
        check(&calls(2), Ok(ProposalKind::ToolCall));
        check(&calls(16), Ok(ProposalKind::ToolCall));
        check(&calls(17), Err(Refusal::BatchTooLong));
        check(&calls(0), Err(Refusal::BatchEmpty));
        check(r#"{"kind":"tool_calls"}"#, Err(Refusal::BatchEmpty));
        let one =
            |call: &str| format!(r#"{{"kind":"tool_calls","calls":[{{"tool":"t"}},{call}]}}"#);
        check(&one(r#"{"tool":"u"}"#), Ok(ProposalKind::ToolCall));
        check(&one("7"), Err(Refusal::WrongType));
        check(&one("{}"), Err(Refusal::NoTool));
        check(&one(r#"{"tool":"u","arguments":[]}"#), Err(Refusal::WrongType));
        check(&one(r#"{"tool":"u","reason":7}"#), Err(Refusal::WrongType));
        check(&one(r#"{"tool":"u","kind":"tool_call"}"#), Err(Refusal::UnknownField));
        check(&one(r#"{"tool":"u","tool":"v"}"#), Err(Refusal::RepeatedKey));
        check(r#"{"kind":"tool_calls","calls":{}}"#, Err(Refusal::WrongType));
        check(
            r#"{"kind":"tool_calls","calls":[{"tool":"t"}],"tool":"t"}"#,
            Err(Refusal::UnknownField),
        );
        check(r#"{"kind":"tool_call","tool":"t","calls":[]}"#, Err(Refusal::UnknownField));
    }

    #[test]
    fn one_call_in_a_list_is_one_call() {
        let read = |raw: &str| Proposal::read(raw.as_bytes(), None);
        let listed = read(&calls(1));
        let alone =
            read(r#"{"kind":"tool_call","tool":"t","arguments":{"n":1},"reason":"to see"}"#);
        assert_eq!(listed, alone);
        assert!(alone.is_ok());
    }

    #[test]
    fn a_reply_echoes_its_request() {
        let read = |raw: &str| Proposal::read(raw.as_bytes(), Some(4)).map(|p| p.kind());
        assert_eq!(read(r#"{"request":4,"kind":"fail"}"#), Ok(ProposalKind::Fail));
        assert_eq!(read(r#"{"request":3,"kind":"fail"}"#), Err(Refusal::WrongRequest));
        assert_eq!(read(r#"{"kind":"fail"}"#), Err(Refusal::WrongRequest));
    }

    #[test]
    fn a_proposal_that_is_too_large_or_too_deep_is_named_so() {
        let large = format!(r#"{{"kind":"fail","message":"{}"}}"#, "x".repeat(MAX_PROPOSAL_BYTES));
        check(&large, Err(Refusal::TooLarge));
        let deep =
            format!(r#"{{"kind":"complete","result":{}{}}}"#, "[".repeat(300), "]".repeat(300));
        check(&deep, Err(Refusal::TooDeep));
    }
}
