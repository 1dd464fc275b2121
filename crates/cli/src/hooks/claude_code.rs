//! Claude Code: the `PreToolUse` hook.
//!
//! Document: "Hooks reference" of Claude Code, sections on the input of `PreToolUse` and on its decision control
//! (<https://code.claude.com/docs/en/hooks>). An answer is read from standard output at exit code 0; exit code 2 blocks, and
//! standard error is told to the model; any other code, and a hook that runs out of time, lets the call through.

use portcullis_canon::{Object, Value};

use super::{Answer, HookCall, Unreadable, is_event, object, text};

const EVENT: &str = "PreToolUse";

/// Reads the event; `asks` says whether an ask is put to a person.
pub(super) fn read(event: &Value, asks: bool) -> Result<HookCall, Unreadable> {
    is_event(event, EVENT)?;
    Ok(HookCall {
        tool: text(event, "tool_name")?,
        arguments: object(event, "tool_input")?,
        conversation: text(event, "session_id")?,
        asks,
    })
}

pub(super) fn form(answer: Answer, reason: &str) -> Object {
    let mut decision = Object::new();
    decision.insert("hookEventName", EVENT);
    decision.insert("permissionDecision", answer.as_str());
    decision.insert("permissionDecisionReason", reason);
    let mut object = Object::new();
    object.insert("hookSpecificOutput", decision);
    object
}
