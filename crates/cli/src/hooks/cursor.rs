//! Cursor: the hooks that come before a shell command, a call of an MCP server, a file that is read, and a tool.
//!
//! Document: "Hooks" of the Cursor documentation (<https://cursor.com/docs/hooks>). The answer has one form for all of them.
//! Exit code 2 blocks; any other failure lets the call through unless the hook says `failClosed`. An `ask` is honoured before
//! shell commands and calls of MCP servers alone. An event of an MCP server names the tool without its server, so the command
//! or the address of the server is one of the arguments: whoever approves sees it, and another server is another call.

use portcullis_canon::{Limits, Object, Value, parse};

use super::{Answer, HookCall, Unreadable, object, text};

pub(super) fn read(event: &Value) -> Result<HookCall, Unreadable> {
    let conversation = text(event, "conversation_id")?;
    let call = |tool: String, arguments, asks| HookCall { tool, arguments, conversation, asks };
    match text(event, "hook_event_name")?.as_str() {
        "beforeShellExecution" => {
            let mut arguments = Object::new();
            arguments.insert("command", text(event, "command")?);
            arguments.insert("cwd", text(event, "cwd")?);
            Ok(call("Shell".to_owned(), arguments, true))
        }
        "beforeMCPExecution" => {
            let tool = format!("MCP:{}", text(event, "tool_name")?);
            Ok(call(tool, server_call(event)?, true))
        }
        "beforeReadFile" => {
            let mut arguments = Object::new();
            arguments.insert("file_path", text(event, "file_path")?);
            Ok(call("Read".to_owned(), arguments, false))
        }
        "preToolUse" => {
            let (tool, arguments) = (text(event, "tool_name")?, object(event, "tool_input")?);
            Ok(call(tool, arguments, false))
        }
        _ => Err("the event is none that comes before a call".to_owned()),
    }
}

/// The server, as it is named, and the input: an object, or the text of one.
fn server_call(event: &Value) -> Result<Object, Unreadable> {
    let mut arguments = Object::new();
    for key in ["command", "url"] {
        if event.get(key).is_some_and(|named| *named != Value::Null) {
            arguments.insert(key, text(event, key)?);
        }
    }
    if arguments.is_empty() {
        return Err("the event names no server: neither `command` nor `url`".to_owned());
    }
    let input = match event.get("tool_input") {
        Some(Value::Object(input)) => input.clone(),
        Some(Value::String(input)) => match parse(input.as_bytes(), &Limits::BARE) {
            Ok(Value::Object(input)) => input,
            _ => return Err("the text of `tool_input` is not an object in strict JSON".to_owned()),
        },
        _ => return Err("the event has no `tool_input`".to_owned()),
    };
    arguments.insert("input", input);
    Ok(arguments)
}

pub(super) fn form(answer: Answer, reason: &str) -> Object {
    let mut object = Object::new();
    object.insert("permission", answer.as_str());
    object.insert("user_message", reason);
    object.insert("agent_message", reason);
    object
}
