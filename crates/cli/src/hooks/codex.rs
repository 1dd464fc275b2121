//! Codex: the `PreToolUse` hook.
//!
//! Document: "Hooks" of the Codex documentation (<https://developers.openai.com/codex/hooks>). The event has the form of
//! Claude Code's. Only a deny is honoured: `allow` and `ask` are read and count as a failed hook, which lets the call through,
//! so that an allow is the empty object and what would be asked is denied. Exit code 2 blocks, with standard error as the
//! reason.

use portcullis_canon::{Object, Value};

use super::{Answer, HookCall, Unreadable, claude_code};

pub(super) fn read(event: &Value) -> Result<HookCall, Unreadable> {
    claude_code::read(event, false)
}

pub(super) fn form(answer: Answer, reason: &str) -> Object {
    match answer {
        Answer::Allow => Object::new(),
        Answer::Ask | Answer::Deny => claude_code::form(Answer::Deny, reason),
    }
}
