//! Gemini CLI: the `BeforeTool` hook.
//!
//! Document: "Hooks reference" of Gemini CLI (<https://geminicli.com/docs/hooks/reference>). The answer is a `decision` with a
//! `reason`; there is no ask, so what would be asked is denied. Exit code 2 blocks, with standard error as the reason; any
//! other code is a warning, and the call goes on.

use portcullis_canon::{Object, Value};

use super::{Answer, HookCall, Unreadable, is_event, object, text};

pub(super) fn read(event: &Value) -> Result<HookCall, Unreadable> {
    is_event(event, "BeforeTool")?;
    Ok(HookCall {
        tool: text(event, "tool_name")?,
        arguments: object(event, "tool_input")?,
        conversation: text(event, "session_id")?,
        asks: false,
    })
}

pub(super) fn form(answer: Answer, reason: &str) -> Object {
    let mut object = Object::new();
    match answer {
        Answer::Allow => {
            object.insert("decision", "allow");
        }
        Answer::Ask | Answer::Deny => {
            object.insert("decision", "deny");
            object.insert("reason", reason);
        }
    }
    object
}
