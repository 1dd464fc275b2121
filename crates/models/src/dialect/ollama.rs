//! Ollama's own chat: one JSON object, or one a line.

use std::sync::Arc;

use portcullis_canon::{Object, Value};
use portcullis_domain::ports::{ModelFailure, ModelReply, Shown, Stop, ToolUse, Usage, Watch};

use super::openai::message;
use super::{Frame, Head, HeadError, Piecewise, Turn, cut_short};
use crate::names::wire_name;
use crate::reply::{Counted, Draft, DraftUse, count, error_in, json, provider_error, wrong_shape};

/// How many tokens of context the server keeps unless the operator says otherwise: its own default is too small for an
/// agent, and it cuts in silence.
const CONTEXT_TOKENS: u64 = 32_768;

pub(super) fn frame(head: &Head) -> Result<Frame, HeadError> {
    if head.strict_tools {
        return Err(HeadError::NoStrictTools);
    }
    let mut members = head.extra.clone();
    let mut options = match members.remove("options") {
        Some(Value::Object(options)) => options,
        _ => Object::new(),
    };
    if let Some(temperature) = members.remove("temperature") {
        options.insert("temperature", temperature);
    }
    if !options.contains_key("num_ctx") {
        options.insert("num_ctx", CONTEXT_TOKENS);
    }
    options.insert("num_predict", head.max_output_tokens);
    members.insert("options", options);
    members.insert("model", head.model.as_str());
    members.remove("stream");
    let tool = |name: &str, description: &str, schema: &Value| {
        let mut function = Object::new();
        function.insert("name", wire_name(name));
        function.insert("description", description);
        function.insert("parameters", schema.clone());
        Object::from_iter([
            ("type", Value::from("function")),
            ("function", Value::Object(function)),
        ])
    };
    let tools = head.tools.iter().map(|t| tool(&t.name, &t.description, &t.input_schema));
    members.insert("tools", tools.collect::<Value>());
    Ok(Frame::new(&members, &[message("system", &head.system, &[])]))
}

pub(super) fn turn(turn: &Turn) -> String {
    match turn {
        Turn::User(text) => message("user", text, &[]),
        Turn::Assistant { text, uses, .. } if uses.is_empty() => message("assistant", text, &[]),
        Turn::Assistant { text, uses, .. } => {
            let calls = uses.iter().map(call).collect::<Value>();
            message("assistant", text, &[("tool_calls", calls)])
        }
        Turn::Results(results) => {
            let all: Vec<String> = results
                .iter()
                .map(|r| message("tool", &r.text, &[("tool_name", Value::from(r.name.as_str()))]))
                .collect();
            all.join(",")
        }
    }
}

fn call(tool_use: &ToolUse) -> Object {
    let mut function = Object::new();
    function.insert("name", tool_use.name.as_str());
    function.insert("arguments", tool_use.arguments.clone());
    Object::from_iter([("function", function)])
}

/// Both counts are left out when the prompt came out of a cache; they stand together otherwise.
fn usage(object: &Object) -> Counted {
    let (prompt, reply) = (object.get("prompt_eval_count"), object.get("eval_count"));
    if prompt.is_none() && reply.is_none() {
        return Counted::Nothing;
    }
    let read = || {
        let (input_tokens, output_tokens) = (count(prompt)?, count(reply)?);
        Some(Usage { input_tokens, output_tokens, ..Usage::default() })
    };
    Counted::of(read())
}

fn stop_of(reason: &str) -> Option<Stop> {
    match reason {
        "" | "stop" => Some(Stop::EndTurn),
        "length" => Some(Stop::MaxTokens),
        _ => None,
    }
}

fn uses(message: &Value) -> impl Iterator<Item = DraftUse> {
    let calls = message.get("tool_calls").and_then(Value::as_array).unwrap_or_default();
    calls.iter().map(|call| DraftUse {
        id: call.get("id").and_then(Value::as_str).map(str::to_owned),
        name: call.pointer("/function/name").and_then(Value::as_str).unwrap_or_default().to_owned(),
        arguments: match call.pointer("/function/arguments") {
            None | Some(Value::Null) => Some(Object::new()),
            Some(Value::Object(arguments)) => Some(arguments.clone()),
            Some(_) => None,
        },
    })
}

pub(super) fn read(raw: &[u8]) -> Result<ModelReply, ModelFailure> {
    let object = json(raw)?;
    let mut stream = Stream::default();
    stream.take(&object, None)?;
    if object.get("message").and_then(Value::as_object).is_none() {
        return Err(wrong_shape("no message"));
    }
    Box::new(stream).finish(raw.into())
}

/// A reply that comes as lines.
#[derive(Default)]
pub(super) struct Stream {
    text: String,
    uses: Vec<DraftUse>,
    reason: Option<String>,
    usage: Counted,
}

impl Stream {
    fn take(&mut self, object: &Object, watch: Option<&Watch>) -> Result<(), ModelFailure> {
        let counted = usage(object);
        if counted != Counted::Nothing {
            self.usage = counted;
        }
        if let Some(words) = error_in(object) {
            return Err(provider_error(&words, self.usage));
        }
        if let Some(message) = object.get("message") {
            let said = message.get("content").and_then(Value::as_str).unwrap_or_default();
            let thought = message.get("thinking").and_then(Value::as_str).unwrap_or_default();
            self.text.push_str(said);
            let from = self.uses.len();
            self.uses.extend(uses(message));
            if let Some(watch) = watch {
                let pieces = [Shown::Thinking(thought), Shown::Text(said)];
                for piece in pieces {
                    if !matches!(piece, Shown::Thinking("") | Shown::Text("")) {
                        watch.show(piece);
                    }
                }
                for tool_use in self.uses.iter().skip(from) {
                    watch.show(Shown::Tool(&tool_use.name));
                }
            }
        }
        if object.get("done").and_then(Value::as_bool) == Some(true) {
            let reason = object.get("done_reason").and_then(Value::as_str).unwrap_or_default();
            self.reason = Some(reason.to_owned());
        }
        Ok(())
    }
}

impl Piecewise for Stream {
    fn event(&mut self, data: &[u8], watch: Option<&Watch>) -> Result<(), ModelFailure> {
        self.take(&json(data)?, watch)
    }

    fn finish(self: Box<Self>, raw: Arc<[u8]>) -> Result<ModelReply, ModelFailure> {
        let Some(reason) = self.reason else { return Err(cut_short()) };
        let draft = Draft {
            stop: stop_of(&reason),
            text: self.text,
            uses: self.uses,
            verbatim: None,
            usage: self.usage,
        };
        draft.finish(raw)
    }
}
