//! Hooks of hosts: the documented event in which a host shows a call before it makes it, and the answer that it goes by.
//!
//! One file a host, each with the document that it follows. A form reads only what the decision needs, and what is not as the
//! document says is a deny. What a host would do with an answer that it does not understand differs from host to host, so a
//! deny is said twice: in the host's own words on standard output, and by exit code 2, which each of them takes as a block.

mod claude_code;
mod codex;
mod cursor;
mod gemini_cli;
pub(crate) mod mouth;

use portcullis_canon::{Object, Value};

/// What the names of their agents begin with.
const AGENTS: &str = "hook:";

/// The longest id of a conversation, in bytes.
const MAX_CONVERSATION: usize = 512;

/// The hosts whose hooks are known.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Host {
    /// Claude Code
    ClaudeCode,
    /// Codex
    Codex,
    /// Cursor
    Cursor,
    /// Gemini CLI
    GeminiCli,
}

/// What a host is about to do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct HookCall {
    /// The tool, by the name that the operator maps.
    pub(crate) tool: String,
    /// The arguments, whole.
    pub(crate) arguments: Object,
    /// The conversation, by the host's own id.
    pub(crate) conversation: String,
    /// Whether the host asks its own person when this event is answered so.
    pub(crate) asks: bool,
}

/// What a host is answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Answer {
    /// It may make the call.
    Allow,
    /// It is to ask its own person.
    Ask,
    /// It may not.
    Deny,
}

/// Why an event says nothing: one sentence.
pub(crate) type Unreadable = String;

impl Host {
    /// The stable name.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::ClaudeCode => "claude-code",
            Self::Codex => "codex",
            Self::Cursor => "cursor",
            Self::GeminiCli => "gemini-cli",
        }
    }

    /// How its runs name their agent, and what its conversations are told apart from others by.
    pub(crate) fn agent(self) -> String {
        format!("{AGENTS}{}", self.name())
    }

    /// Reads an event.
    pub(crate) fn read(self, event: &Value) -> Result<HookCall, Unreadable> {
        let call = match self {
            Self::ClaudeCode => claude_code::read(event, true),
            Self::Codex => codex::read(event),
            Self::Cursor => cursor::read(event),
            Self::GeminiCli => gemini_cli::read(event),
        }?;
        if !(1..=MAX_CONVERSATION).contains(&call.conversation.len()) {
            return Err(format!("the id of the conversation is not 1 to {MAX_CONVERSATION} bytes"));
        }
        Ok(call)
    }

    /// The answer in the host's form.
    pub(crate) fn form(self, answer: Answer, reason: &str) -> Value {
        Value::Object(match self {
            Self::ClaudeCode => claude_code::form(answer, reason),
            Self::Codex => codex::form(answer, reason),
            Self::Cursor => cursor::form(answer, reason),
            Self::GeminiCli => gemini_cli::form(answer, reason),
        })
    }
}

impl Answer {
    /// The word that most hosts have for it.
    pub(crate) const fn as_str(self) -> &'static str {
        match self {
            Self::Allow => "allow",
            Self::Ask => "ask",
            Self::Deny => "deny",
        }
    }
}

/// Whether the agent of this name is a host with hooks.
pub(crate) fn is_host(agent: &str) -> bool {
    agent.starts_with(AGENTS)
}

/// A text member.
fn text(event: &Value, key: &str) -> Result<String, Unreadable> {
    let found = event.get(key).and_then(Value::as_str);
    found.map(str::to_owned).ok_or_else(|| format!("the event has no text `{key}`"))
}

/// An object member.
fn object(event: &Value, key: &str) -> Result<Object, Unreadable> {
    let found = event.get(key).and_then(Value::as_object);
    found.cloned().ok_or_else(|| format!("the event has no object `{key}`"))
}

/// Refuses another event than the one that comes before a call.
fn is_event(event: &Value, wanted: &str) -> Result<(), Unreadable> {
    match text(event, "hook_event_name")? {
        name if name == wanted => Ok(()),
        _ => Err(format!("the event is not a `{wanted}`")),
    }
}

#[cfg(test)]
mod tests {
    use portcullis_canon::{Limits, parse};

    use super::*;

    fn value(text: &str) -> Value {
        parse(text.as_bytes(), &Limits::ENVELOPE).unwrap()
    }

    /// What an event is read as: tool, arguments, conversation, whether it asks.
    type ReadAs = (&'static str, &'static str, &'static str, bool);

    /// Whole events of each host.
    fn events() -> Vec<(Host, &'static str, ReadAs)> {
        vec![
            (
                Host::ClaudeCode,
                r#"{"session_id":"s1","transcript_path":"/t.jsonl","cwd":"/p","permission_mode":"default","hook_event_name":"PreToolUse","tool_name":"Bash","tool_input":{"command":"ls","timeout":5},"tool_use_id":"u1"}"#,
                ("Bash", r#"{"command":"ls","timeout":5}"#, "s1", true),
            ),
            (
                Host::ClaudeCode,
                r#"{"session_id":"s1","hook_event_name":"PreToolUse","tool_name":"mcp__mail__send","tool_input":{}}"#,
                ("mcp__mail__send", "{}", "s1", true),
            ),
            (
                Host::Codex,
                r#"{"session_id":"s2","turn_id":"t","transcript_path":null,"cwd":"/p","hook_event_name":"PreToolUse","model":"m","permission_mode":"default","tool_name":"Bash","tool_use_id":"u","tool_input":{"command":"ls"}}"#,
                ("Bash", r#"{"command":"ls"}"#, "s2", false),
            ),
            (
                Host::Cursor,
                r#"{"conversation_id":"c1","generation_id":"g","hook_event_name":"beforeShellExecution","workspace_roots":["/p"],"command":"ls","cwd":"/p"}"#,
                ("Shell", r#"{"command":"ls","cwd":"/p"}"#, "c1", true),
            ),
            (
                Host::Cursor,
                r#"{"conversation_id":"c1","hook_event_name":"beforeMCPExecution","tool_name":"send","tool_input":"{\"to\":\"a\"}","command":"mail-server"}"#,
                ("MCP:send", r#"{"command":"mail-server","input":{"to":"a"}}"#, "c1", true),
            ),
            (
                Host::Cursor,
                r#"{"conversation_id":"c1","hook_event_name":"beforeMCPExecution","tool_name":"send","tool_input":{"to":"a"},"url":"https://mail.example"}"#,
                ("MCP:send", r#"{"input":{"to":"a"},"url":"https://mail.example"}"#, "c1", true),
            ),
            (
                Host::Cursor,
                r#"{"conversation_id":"c1","hook_event_name":"beforeReadFile","file_path":"/p/a","content":"secret","attachments":[]}"#,
                ("Read", r#"{"file_path":"/p/a"}"#, "c1", false),
            ),
            (
                Host::Cursor,
                r#"{"conversation_id":"c1","hook_event_name":"preToolUse","tool_name":"Write","tool_input":{"file_path":"/p/a"},"cwd":"/p"}"#,
                ("Write", r#"{"file_path":"/p/a"}"#, "c1", false),
            ),
            (
                Host::GeminiCli,
                r#"{"session_id":"s3","transcript_path":"/t","cwd":"/p","hook_event_name":"BeforeTool","timestamp":"2026-01-01T00:00:00Z","tool_name":"write_file","tool_input":{"file_path":"a"}}"#,
                ("write_file", r#"{"file_path":"a"}"#, "s3", false),
            ),
        ]
    }

    #[test]
    fn the_documented_events_are_read_whole() {
        for (host, event, (tool, arguments, conversation, asks)) in events() {
            let call = host.read(&value(event)).unwrap();
            assert_eq!((call.tool.as_str(), call.conversation.as_str()), (tool, conversation));
            assert_eq!(Value::Object(call.arguments).to_canonical_string(), arguments);
            assert_eq!(call.asks, asks, "{event}");
        }
    }

    #[test]
    fn an_event_without_one_of_the_members_that_decide_is_not_read() {
        let needed = [
            "session_id",
            "conversation_id",
            "hook_event_name",
            "tool_name",
            "tool_input",
            "command",
            "file_path",
        ];
        let mut refused = 0;
        for (host, event, _) in events() {
            let Value::Object(whole) = value(event) else { panic!() };
            for key in needed.iter().filter(|key| whole.contains_key(key)) {
                let mut less = whole.clone();
                less.remove(key);
                // What a shell or a server is started with may be named in two ways; then one of the two is there.
                let read = host.read(&Value::Object(less));
                assert!(read.is_err(), "{} without {key}: {read:?}", host.name());
                refused += 1;
            }
            for wrong in [Value::Null, Value::from(7_u64), Value::from(vec![Value::Null])] {
                for key in needed.iter().filter(|key| whole.contains_key(key)) {
                    let mut other = whole.clone();
                    other.insert(*key, wrong.clone());
                    assert!(host.read(&Value::Object(other)).is_err(), "{}: {key}", host.name());
                }
            }
        }
        assert!(refused > 20, "{refused}");
        for odd in ["null", "[]", "7", "\"PreToolUse\"", "{}"] {
            for host in [Host::ClaudeCode, Host::Codex, Host::Cursor, Host::GeminiCli] {
                assert!(host.read(&value(odd)).is_err(), "{odd}");
            }
        }
    }

    #[test]
    fn another_event_and_an_endless_id_are_not_read() {
        let other = r#"{"session_id":"s","hook_event_name":"PostToolUse","tool_name":"Bash","tool_input":{}}"#;
        let long = format!(
            r#"{{"session_id":"{}","hook_event_name":"PreToolUse","tool_name":"Bash","tool_input":{{}}}}"#,
            "s".repeat(MAX_CONVERSATION + 1)
        );
        for event in [other, long.as_str()] {
            assert!(Host::ClaudeCode.read(&value(event)).is_err());
            assert!(Host::Codex.read(&value(event)).is_err());
        }
        let cursor = r#"{"conversation_id":"c","hook_event_name":"afterShellExecution","command":"ls","cwd":"/"}"#;
        assert!(Host::Cursor.read(&value(cursor)).is_err());
    }

    #[test]
    fn each_answer_has_the_form_that_its_document_gives() {
        let form = |host: Host, answer| host.form(answer, "why").to_canonical_string();
        let claude = |word: &str| {
            format!(
                r#"{{"hookSpecificOutput":{{"hookEventName":"PreToolUse","permissionDecision":"{word}","permissionDecisionReason":"why"}}}}"#
            )
        };
        for answer in [Answer::Allow, Answer::Ask, Answer::Deny] {
            assert_eq!(form(Host::ClaudeCode, answer), claude(answer.as_str()));
            let cursor = format!(
                r#"{{"agent_message":"why","permission":"{}","user_message":"why"}}"#,
                answer.as_str()
            );
            assert_eq!(form(Host::Cursor, answer), cursor);
        }
        assert_eq!(form(Host::GeminiCli, Answer::Allow), r#"{"decision":"allow"}"#);
        assert_eq!(form(Host::Codex, Answer::Allow), "{}");
        for answer in [Answer::Ask, Answer::Deny] {
            // These two have no ask: whoever would have to be asked is not.
            assert_eq!(form(Host::GeminiCli, answer), r#"{"decision":"deny","reason":"why"}"#);
            assert_eq!(form(Host::Codex, answer), claude("deny"));
        }
    }
}
