//! Chat completions: OpenAI's, and of everybody who speaks as it does.

use std::collections::BTreeMap;
use std::sync::Arc;

use portcullis_canon::{Limits, Object, Value, parse};
use portcullis_domain::ports::{ModelFailure, ModelReply, Shown, Stop, ToolUse, Usage, Watch};

use super::{Frame, Head, HeadError, Piecewise, Turn, cut_short, stop_of};
use crate::names::wire_name;
use crate::reply::{Counted, Draft, DraftUse, count, error_in, json, provider_error, wrong_shape};
use crate::strict::{Subset, strict};

pub(super) fn frame(head: &Head) -> Result<Frame, HeadError> {
    let mut members = head.extra.clone();
    // Models that think take the cap under another name; the operator names it, and the number is ours.
    let cap = "max_completion_tokens";
    let cap = if members.contains_key(cap) { cap } else { "max_tokens" };
    members.remove("max_tokens");
    members.insert(cap, head.max_output_tokens);
    members.insert("model", head.model.as_str());
    for taken in ["stream", "stream_options", "n", "tools", "tool_choice"] {
        members.remove(taken);
    }
    let mut tools = Vec::with_capacity(head.tools.len());
    for tool in head.tools.iter() {
        let mut function = Object::new();
        function.insert("name", wire_name(&tool.name));
        function.insert("description", tool.description.as_str());
        if head.strict_tools {
            let schema = strict(&tool.input_schema, &tool.name, Subset::AllRequired)?;
            function.insert("parameters", schema);
            function.insert("strict", true);
        } else {
            function.insert("parameters", tool.input_schema.clone());
        }
        tools.push(Value::Object(Object::from_iter([
            ("type", Value::from("function")),
            ("function", Value::Object(function)),
        ])));
    }
    if !tools.is_empty() {
        members.insert("tools", tools);
        members.insert("tool_choice", "auto");
    }
    Ok(Frame::new(&members, &[message("system", &head.system, &[])]))
}

/// A message with further members.
pub(super) fn message(role: &str, content: &str, more: &[(&str, Value)]) -> String {
    let mut object = Object::new();
    object.insert("role", role);
    object.insert("content", content);
    for (key, value) in more {
        object.insert(*key, value.clone());
    }
    Value::Object(object).to_canonical_string()
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
                .map(|r| message("tool", &r.text, &[("tool_call_id", Value::from(r.id.as_str()))]))
                .collect();
            all.join(",")
        }
    }
}

fn call(tool_use: &ToolUse) -> Object {
    let arguments = Value::Object(tool_use.arguments.clone()).to_canonical_string();
    let mut function = Object::new();
    function.insert("name", tool_use.name.as_str());
    function.insert("arguments", arguments);
    let mut call = Object::new();
    call.insert("id", tool_use.id.as_str());
    call.insert("type", "function");
    call.insert("function", function);
    call
}

/// Prompt tokens hold the cached ones.
fn usage(value: Option<&Value>) -> Counted {
    let Some(value) = value.filter(|value| !value.is_null()) else { return Counted::Nothing };
    let says = |key| value.get(key).is_some_and(|count| !count.is_null());
    // Half of it is no usage: what is left out was not free.
    if value.as_object().is_some() && !(says("prompt_tokens") && says("completion_tokens")) {
        return Counted::Nothing;
    }
    let read = || {
        let cached = count(value.pointer("/prompt_tokens_details/cached_tokens"))?;
        let prompt = count(value.get("prompt_tokens"))?;
        Some(Usage {
            input_tokens: prompt.checked_sub(cached)?,
            cache_read_tokens: cached,
            output_tokens: count(value.get("completion_tokens"))?,
            ..Usage::default()
        })
    };
    Counted::of(if value.as_object().is_some() { read() } else { None })
}

/// Arguments travel as a text that is JSON; some servers send the object itself.
fn arguments(value: Option<&Value>) -> Option<Object> {
    match value {
        None | Some(Value::Null) => Some(Object::new()),
        Some(Value::Object(object)) => Some(object.clone()),
        Some(Value::String(text)) => arguments_of(text),
        Some(_) => None,
    }
}

/// An empty text is what servers send for a tool without parameters.
pub(super) fn arguments_of(text: &str) -> Option<Object> {
    if text.is_empty() {
        return Some(Object::new());
    }
    match parse(text.as_bytes(), &Limits::BARE) {
        Ok(Value::Object(object)) => Some(object),
        _ => None,
    }
}

fn text_of(value: Option<&Value>) -> &str {
    value.and_then(Value::as_str).unwrap_or_default()
}

pub(super) fn read(raw: &[u8]) -> Result<ModelReply, ModelFailure> {
    let object = json(raw)?;
    let usage = usage(object.get("usage"));
    if let Some(words) = error_in(&object) {
        return Err(provider_error(&words, usage));
    }
    let choice = object.get("choices").and_then(Value::as_array).and_then(<[Value]>::first);
    let choice = choice.ok_or_else(|| wrong_shape("no choice"))?;
    let message = choice.get("message").filter(|m| m.as_object().is_some());
    let message = message.ok_or_else(|| wrong_shape("a choice without a message"))?;
    let refusal = text_of(message.get("refusal"));
    let calls = message.get("tool_calls").and_then(Value::as_array).unwrap_or_default();
    let uses = calls.iter().map(|call| DraftUse {
        id: call.get("id").and_then(Value::as_str).map(str::to_owned),
        name: text_of(call.pointer("/function/name")).to_owned(),
        arguments: arguments(call.pointer("/function/arguments")),
    });
    let stop = stop_of(text_of(choice.get("finish_reason")));
    let draft = Draft {
        stop: if refusal.is_empty() { stop } else { Some(Stop::Refusal) },
        text: if refusal.is_empty() { text_of(message.get("content")) } else { refusal }.to_owned(),
        uses: uses.collect(),
        verbatim: None,
        usage,
    };
    draft.finish(raw.into())
}

/// A completion that comes as server-sent events.
#[derive(Default)]
pub(super) struct Stream {
    text: String,
    refusal: String,
    calls: BTreeMap<u64, Partial>,
    reason: Option<String>,
    usage: Counted,
}

#[derive(Default)]
struct Partial {
    id: Option<String>,
    name: String,
    arguments: String,
}

impl Stream {
    fn call(&mut self, delta: &Value, watch: Option<&Watch>) {
        // Servers that send a call whole leave its place out: it is the next one.
        let next = self.calls.last_key_value().map_or(0, |(last, _)| last.saturating_add(1));
        let index = delta.get("index").and_then(Value::as_u64).unwrap_or(next);
        let partial = self.calls.entry(index).or_default();
        if let Some(id) = delta.get("id").and_then(Value::as_str).filter(|id| !id.is_empty()) {
            partial.id = Some(id.to_owned());
        }
        let name = text_of(delta.pointer("/function/name"));
        if !name.is_empty() {
            partial.name.push_str(name);
            if let Some(watch) = watch {
                watch.show(Shown::Tool(name));
            }
        }
        match delta.pointer("/function/arguments") {
            Some(Value::Object(object)) => {
                partial.arguments = Value::Object(object.clone()).to_canonical_string();
            }
            other => partial.arguments.push_str(text_of(other)),
        }
    }
}

impl Piecewise for Stream {
    fn event(&mut self, data: &[u8], watch: Option<&Watch>) -> Result<(), ModelFailure> {
        if data.trim_ascii() == b"[DONE]" {
            return Ok(());
        }
        let object = json(data)?;
        let counted = usage(object.get("usage"));
        if counted != Counted::Nothing {
            self.usage = counted;
        }
        if let Some(words) = error_in(&object) {
            return Err(provider_error(&words, self.usage));
        }
        let choices = object.get("choices").and_then(Value::as_array).unwrap_or_default();
        let Some(choice) = choices.first() else { return Ok(()) };
        let delta = choice.get("delta");
        let part = |key| text_of(delta.and_then(|delta| delta.get(key)));
        let (said, refused) = (part("content"), part("refusal"));
        if let (Some(watch), false) = (watch, said.is_empty()) {
            watch.show(Shown::Text(said));
        }
        self.text.push_str(said);
        self.refusal.push_str(refused);
        let calls = delta.and_then(|d| d.get("tool_calls")).and_then(Value::as_array);
        for call in calls.unwrap_or_default() {
            self.call(call, watch);
        }
        if let Some(reason) = choice.get("finish_reason").and_then(Value::as_str) {
            self.reason = Some(reason.to_owned());
        }
        Ok(())
    }

    fn finish(self: Box<Self>, raw: Arc<[u8]>) -> Result<ModelReply, ModelFailure> {
        let Some(reason) = self.reason else { return Err(cut_short()) };
        let refused = !self.refusal.is_empty();
        let uses = self.calls.into_values().map(|partial| DraftUse {
            id: partial.id,
            name: partial.name,
            arguments: arguments_of(&partial.arguments),
        });
        let draft = Draft {
            stop: if refused { Some(Stop::Refusal) } else { stop_of(&reason) },
            text: if refused { self.refusal } else { self.text },
            uses: uses.collect(),
            verbatim: None,
            usage: self.usage,
        };
        draft.finish(raw)
    }
}
