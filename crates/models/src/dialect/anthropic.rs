//! Anthropic's Messages.
//!
//! The content of an assistant's message is given back as the bytes that it came in, since blocks of thinking are signed.

use std::collections::BTreeMap;
use std::sync::Arc;

use portcullis_canon::{Limits, Object, Value, parse};
use portcullis_domain::ports::{ModelFailure, ModelReply, Shown, ToolUse, Usage, Watch};

use super::openai::arguments_of;
use super::{Frame, Head, HeadError, Piecewise, Turn, TurnResult, cut_short, stop_of};
use crate::names::wire_name;
use crate::raw;
use crate::reply::{Counted, Draft, DraftUse, count, error_in, json, provider_error, wrong_shape};
use crate::strict::{Subset, strict};

/// What stands for a message that would be empty, which the provider does not take.
const NOTHING_SAID: &str = "(nothing)";

pub(super) fn frame(head: &Head) -> Result<Frame, HeadError> {
    let mut members = head.extra.clone();
    members.insert("max_tokens", head.max_output_tokens);
    members.insert("model", head.model.as_str());
    for taken in ["stream", "tools", "tool_choice"] {
        members.remove(taken);
    }
    // Tools stand before the system text, so that one mark caches both.
    let mut system = block("text", "text", &head.system);
    system.insert("cache_control", Object::from_iter([("type", "ephemeral")]));
    members.insert("system", vec![Value::Object(system)]);
    let mut tools = Vec::with_capacity(head.tools.len());
    for tool in head.tools.iter() {
        let mut object = Object::new();
        object.insert("name", wire_name(&tool.name));
        object.insert("description", tool.description.as_str());
        if head.strict_tools {
            let schema = strict(&tool.input_schema, &tool.name, Subset::Optional)?;
            object.insert("input_schema", schema);
            object.insert("strict", true);
        } else {
            object.insert("input_schema", tool.input_schema.clone());
        }
        tools.push(Value::Object(object));
    }
    if !tools.is_empty() {
        members.insert("tools", tools);
    }
    Ok(Frame::new(&members, &[]))
}

fn block(kind: &str, key: &str, text: &str) -> Object {
    Object::from_iter([("type", kind), (key, text)])
}

fn message(role: &str, content: &str) -> String {
    format!("{{\"content\":{content},\"role\":\"{role}\"}}")
}

fn words(role: &str, text: &str) -> String {
    let text = if text.trim().is_empty() { NOTHING_SAID } else { text };
    message(
        role,
        &Value::from(vec![Value::Object(block("text", "text", text))]).to_canonical_string(),
    )
}

pub(super) fn turn(turn: &Turn) -> String {
    match turn {
        Turn::User(text) => words("user", text),
        Turn::Assistant { verbatim: Some(bytes), .. } => {
            message("assistant", &String::from_utf8_lossy(bytes))
        }
        Turn::Assistant { text, uses, .. } if uses.is_empty() => words("assistant", text),
        Turn::Assistant { text, uses, .. } => {
            let said = (!text.trim().is_empty()).then(|| block("text", "text", text));
            let blocks = said.into_iter().chain(uses.iter().map(use_block)).collect::<Value>();
            message("assistant", &blocks.to_canonical_string())
        }
        Turn::Results(results) => {
            let blocks = results.iter().map(result_block).collect::<Value>();
            message("user", &blocks.to_canonical_string())
        }
    }
}

fn use_block(tool_use: &ToolUse) -> Object {
    let mut object = block("tool_use", "id", &tool_use.id);
    object.insert("name", tool_use.name.as_str());
    object.insert("input", tool_use.arguments.clone());
    object
}

fn result_block(result: &TurnResult) -> Object {
    let mut object = block("tool_result", "tool_use_id", &result.id);
    object.insert("content", result.text.as_str());
    if result.failed {
        object.insert("is_error", true);
    }
    object
}

/// Input counts stand beside each other here: none holds another. Writes that are not split live for minutes.
fn usage(value: &Object) -> Option<Usage> {
    let written = count(value.get("cache_creation_input_tokens"))?;
    let split = value.get("cache_creation").and_then(Value::as_object);
    let long = count(split.and_then(|split| split.get("ephemeral_1h_input_tokens")))?;
    Some(Usage {
        input_tokens: count(value.get("input_tokens"))?,
        cache_read_tokens: count(value.get("cache_read_input_tokens"))?,
        cache_write_tokens: written.checked_sub(long)?,
        cache_write_long_tokens: long,
        output_tokens: count(value.get("output_tokens"))?,
    })
}

/// Half of a usage is none: what is left out was not free.
fn says_all(usage: &Object) -> bool {
    ["input_tokens", "output_tokens"]
        .into_iter()
        .all(|key| usage.get(key).is_some_and(|count| !count.is_null()))
}

fn counted(value: Option<&Value>) -> Counted {
    match value {
        None | Some(Value::Null) => Counted::Nothing,
        Some(Value::Object(object)) if !says_all(object) => Counted::Nothing,
        Some(Value::Object(object)) => Counted::of(usage(object)),
        Some(_) => Counted::Implausible,
    }
}

fn text_at<'v>(value: &'v Value, key: &str) -> &'v str {
    value.get(key).and_then(Value::as_str).unwrap_or_default()
}

pub(super) fn read(raw: &[u8]) -> Result<ModelReply, ModelFailure> {
    let object = json(raw)?;
    let usage = counted(object.get("usage"));
    if let Some(words) = error_in(&object) {
        return Err(provider_error(&words, usage));
    }
    let blocks = object.get("content").and_then(Value::as_array);
    let blocks = blocks.ok_or_else(|| wrong_shape("no content"))?;
    let content = raw::member(raw, "content").and_then(|content| given_back(content, blocks));
    let content = content.ok_or_else(|| wrong_shape("a content that cannot be given back"))?;
    let reason = object.get("stop_reason").and_then(Value::as_str).unwrap_or_default();
    draft(blocks, reason, content, usage).finish(raw.into())
}

fn draft(blocks: &[Value], reason: &str, verbatim: Vec<u8>, usage: Counted) -> Draft {
    let mut draft =
        Draft { stop: stop_of(reason), verbatim: Some(verbatim.into()), usage, ..Draft::default() };
    for block in blocks {
        match text_at(block, "type") {
            "text" => draft.text.push_str(text_at(block, "text")),
            "tool_use" => draft.uses.push(DraftUse {
                id: block.get("id").and_then(Value::as_str).map(str::to_owned),
                name: text_at(block, "name").to_owned(),
                arguments: block.get("input").and_then(Value::as_object).cloned(),
            }),
            _ => {}
        }
    }
    draft
}

/// The bytes of the content, without blocks of empty text, which the provider sends and does not take.
fn given_back(content: &[u8], blocks: &[Value]) -> Option<Vec<u8>> {
    let empty = |b: &Value| text_at(b, "type") == "text" && text_at(b, "text").trim().is_empty();
    if !blocks.iter().any(empty) {
        return Some(content.to_vec());
    }
    let items = raw::items(content)?;
    if items.len() != blocks.len() {
        return None;
    }
    let kept: Vec<&[u8]> =
        items.into_iter().zip(blocks).filter(|(_, b)| !empty(b)).map(|(item, _)| item).collect();
    Some([b"[".as_slice(), kept.join(b",".as_slice()).as_slice(), b"]"].concat())
}

/// A message that comes as server-sent events.
#[derive(Default)]
pub(super) struct Stream {
    blocks: BTreeMap<u64, Partial>,
    usage: Object,
    has_usage: bool,
    reason: Option<String>,
    whole: bool,
}

#[derive(Default)]
struct Partial {
    block: Object,
    input: String,
}

impl Stream {
    /// Counts of later events stand in place of earlier ones of the same name. Those of the start are placeholders.
    fn count(&mut self, usage: Option<&Value>) {
        for (key, value) in usage.and_then(Value::as_object).into_iter().flatten() {
            if !value.is_null() {
                self.usage.insert(key, value.clone());
            }
        }
    }

    fn counted(&self) -> Counted {
        let whole = self.has_usage && says_all(&self.usage);
        if whole { Counted::of(usage(&self.usage)) } else { Counted::Nothing }
    }

    fn begin(&mut self, index: u64, event: &Object, watch: Option<&Watch>) {
        let block = event.get("content_block").and_then(Value::as_object).cloned();
        let block = block.unwrap_or_default();
        if let (Some(watch), Some(name)) = (watch, block.get("name").and_then(Value::as_str)) {
            watch.show(Shown::Tool(name));
        }
        self.blocks.insert(index, Partial { block, input: String::new() });
    }

    fn delta(&mut self, index: u64, event: &Object, watch: Option<&Watch>) {
        let Some(delta) = event.get("delta") else { return };
        let partial = self.blocks.entry(index).or_default();
        match text_at(delta, "type") {
            "text_delta" => {
                let said = text_at(delta, "text");
                append(&mut partial.block, "text", said);
                if let Some(watch) = watch {
                    watch.show(Shown::Text(said));
                }
            }
            "thinking_delta" => {
                let thought = text_at(delta, "thinking");
                append(&mut partial.block, "thinking", thought);
                if let Some(watch) = watch {
                    watch.show(Shown::Thinking(thought));
                }
            }
            "signature_delta" => {
                append(&mut partial.block, "signature", text_at(delta, "signature"))
            }
            "input_json_delta" => partial.input.push_str(text_at(delta, "partial_json")),
            _ => {}
        }
    }
}

fn append(block: &mut Object, key: &str, more: &str) {
    match block.get_mut(key) {
        Some(Value::String(text)) => text.push_str(more),
        _ => {
            block.insert(key, more);
        }
    }
}

impl Partial {
    /// The block as it would have come whole. Input that is no object stays a text, which no tool use may have.
    fn whole(mut self) -> Value {
        if !self.input.is_empty() {
            let input = arguments_of(&self.input).map_or(Value::from(self.input), Value::Object);
            self.block.insert("input", input);
        }
        Value::Object(self.block)
    }
}

impl Piecewise for Stream {
    fn event(&mut self, data: &[u8], watch: Option<&Watch>) -> Result<(), ModelFailure> {
        let event = match parse(data, &Limits::BARE) {
            Ok(Value::Object(event)) => event,
            _ => return json(data).map(|_| ()),
        };
        let index = event.get("index").and_then(Value::as_u64).unwrap_or_default();
        if let Some(words) = error_in(&event) {
            return Err(provider_error(&words, self.counted()));
        }
        match event.get("type").and_then(Value::as_str).unwrap_or_default() {
            "message_start" => self.count(event.get("message").and_then(|m| m.get("usage"))),
            "content_block_start" => self.begin(index, &event, watch),
            "content_block_delta" => self.delta(index, &event, watch),
            "message_delta" => {
                let usage = event.get("usage");
                self.count(usage);
                self.has_usage |= usage.is_some_and(|usage| usage.get("output_tokens").is_some());
                let reason = event.get("delta").and_then(|delta| delta.get("stop_reason"));
                if let Some(reason) = reason.and_then(Value::as_str) {
                    self.reason = Some(reason.to_owned());
                }
            }
            "message_stop" => self.whole = true,
            _ => {}
        }
        Ok(())
    }

    fn finish(self: Box<Self>, raw: Arc<[u8]>) -> Result<ModelReply, ModelFailure> {
        let counted = self.counted();
        let (Some(reason), true) = (self.reason, self.whole) else { return Err(cut_short()) };
        let blocks: Vec<Value> = self.blocks.into_values().map(Partial::whole).collect();
        let content = Value::from(blocks.clone()).to_canonical();
        let content = given_back(&content, &blocks);
        let content = content.ok_or_else(|| wrong_shape("a content that cannot be given back"))?;
        draft(&blocks, &reason, content, counted).finish(raw)
    }
}
