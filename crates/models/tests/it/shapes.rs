//! Wire shapes of the three providers: one description of a reply, written as each of them writes it, whole and in pieces.

use portcullis_canon::Value;
use portcullis_models::Dialect;

/// A reply to be written.
#[derive(Clone, Debug)]
pub(crate) struct Spec {
    pub(crate) text: &'static str,
    /// Id, wire name, arguments as JSON text.
    pub(crate) uses: Vec<(&'static str, &'static str, &'static str)>,
    pub(crate) stop: &'static str,
    /// Input and output counts as JSON text.
    pub(crate) usage: Option<(&'static str, &'static str)>,
}

impl Default for Spec {
    fn default() -> Self {
        Self { text: "Well.", uses: Vec::new(), stop: "end", usage: Some(("11", "7")) }
    }
}

fn quote(text: &str) -> String {
    Value::from(text).to_canonical_string()
}

/// The provider's word for a stop; what it does not have stays as it is.
pub(crate) fn stop(dialect: Dialect, stop: &'static str) -> &'static str {
    match (dialect, stop) {
        (Dialect::OpenAi, "end") | (Dialect::Ollama, "end" | "tools") => "stop",
        (Dialect::OpenAi, "tools") => "tool_calls",
        (Dialect::OpenAi | Dialect::Ollama, "length") => "length",
        (Dialect::OpenAi, "refused") => "content_filter",
        (Dialect::Anthropic, "end") => "end_turn",
        (Dialect::Anthropic, "tools") => "tool_use",
        (Dialect::Anthropic, "length") => "max_tokens",
        (Dialect::Anthropic, "refused") => "refusal",
        (_, other) => other,
    }
}

/// The body of a reply that comes whole.
pub(crate) fn whole(dialect: Dialect, spec: &Spec) -> String {
    let reason = stop(dialect, spec.stop);
    let text = quote(spec.text);
    let join = |uses: Vec<String>| uses.join(",");
    match dialect {
        Dialect::OpenAi => {
            let uses = spec.uses.iter().map(|(id, name, arguments)| {
                format!(r#"{{"id":"{id}","type":"function","function":{{"name":"{name}","arguments":{}}}}}"#, quote(arguments))
            });
            let usage = openai_usage(spec).map(|u| format!(r#","usage":{u}"#)).unwrap_or_default();
            format!(
                r#"{{"id":"c1","object":"chat.completion","choices":[{{"index":0,"message":{{"role":"assistant","content":{text},"refusal":null,"tool_calls":[{}]}},"logprobs":null,"finish_reason":"{reason}"}}]{usage}}}"#,
                join(uses.collect())
            )
        }
        Dialect::Anthropic => {
            let said =
                (!spec.text.is_empty()).then(|| format!(r#"{{"type":"text","text":{text}}}"#));
            let uses = spec.uses.iter().map(|(id, name, arguments)| {
                format!(r#"{{"type":"tool_use","id":"{id}","name":"{name}","input":{arguments}}}"#)
            });
            let usage = spec.usage.map(|(i, o)| {
                format!(r#","usage":{{"input_tokens":{i},"cache_creation_input_tokens":0,"cache_read_input_tokens":0,"output_tokens":{o},"service_tier":"standard"}}"#)
            });
            format!(
                r#"{{"id":"msg_1","type":"message","role":"assistant","model":"m","content":[{}],"stop_reason":"{reason}","stop_sequence":null{}}}"#,
                join(said.into_iter().chain(uses).collect()),
                usage.unwrap_or_default()
            )
        }
        Dialect::Ollama => {
            let uses = ollama_uses(spec);
            format!(
                r#"{{"model":"m","created_at":"2026-01-01T00:00:00Z","message":{{"role":"assistant","content":{text},"tool_calls":[{uses}]}},"done_reason":"{reason}","done":true{}}}"#,
                ollama_usage(spec)
            )
        }
    }
}

fn openai_usage(spec: &Spec) -> Option<String> {
    spec.usage.map(|(i, o)| {
        format!(r#"{{"prompt_tokens":{i},"completion_tokens":{o},"total_tokens":18,"prompt_tokens_details":{{"cached_tokens":0}}}}"#)
    })
}

fn ollama_uses(spec: &Spec) -> String {
    let uses = spec.uses.iter().map(|(id, name, arguments)| {
        format!(r#"{{"id":"{id}","function":{{"name":"{name}","arguments":{arguments}}}}}"#)
    });
    uses.collect::<Vec<_>>().join(",")
}

fn ollama_usage(spec: &Spec) -> String {
    spec.usage
        .map(|(i, o)| format!(r#","prompt_eval_count":{i},"eval_count":{o},"total_duration":5"#))
        .unwrap_or_default()
}

/// The body of the same reply in pieces.
pub(crate) fn pieces(dialect: Dialect, spec: &Spec) -> String {
    match dialect {
        Dialect::OpenAi => openai_pieces(spec),
        Dialect::Anthropic => anthropic_pieces(spec),
        Dialect::Ollama => ollama_pieces(spec),
    }
}

fn openai_pieces(spec: &Spec) -> String {
    let reason = stop(Dialect::OpenAi, spec.stop);
    let mut out = String::new();
    let mut event = |delta: &str, reason: &str, usage: &str| {
        out.push_str(&format!(
            "data: {{\"id\":\"c1\",\"object\":\"chat.completion.chunk\",\"choices\":[{{\"index\":0,\"delta\":{delta},\"finish_reason\":{reason}}}]{usage}}}\n\n"
        ));
    };
    event(r#"{"role":"assistant","content":""}"#, "null", "");
    for c in spec.text.chars() {
        event(&format!(r#"{{"content":{}}}"#, quote(&c.to_string())), "null", "");
    }
    for (index, (id, name, arguments)) in spec.uses.iter().enumerate() {
        event(
            &format!(
                r#"{{"tool_calls":[{{"index":{index},"id":"{id}","type":"function","function":{{"name":"{name}","arguments":""}}}}]}}"#
            ),
            "null",
            "",
        );
        for c in arguments.chars() {
            event(
                &format!(
                    r#"{{"tool_calls":[{{"index":{index},"function":{{"arguments":{}}}}}]}}"#,
                    quote(&c.to_string())
                ),
                "null",
                "",
            );
        }
    }
    event("{}", &quote(reason), "");
    if let Some(usage) = openai_usage(spec) {
        out.push_str(&format!("data: {{\"choices\":[],\"usage\":{usage}}}\n\n"));
    }
    out.push_str("data: [DONE]\n\n");
    out
}

fn anthropic_pieces(spec: &Spec) -> String {
    let reason = stop(Dialect::Anthropic, spec.stop);
    let mut out = String::new();
    let mut event = |kind: &str, rest: &str| {
        out.push_str(&format!("event: {kind}\ndata: {{\"type\":\"{kind}\"{rest}}}\n\n"));
    };
    let (input, output) = spec.usage.unwrap_or(("null", "null"));
    let begun =
        spec.usage.map(|_| format!(r#","usage":{{"input_tokens":{input},"output_tokens":1}}"#));
    event(
        "message_start",
        &format!(
            r#","message":{{"id":"msg_1","content":[],"stop_reason":null{}}}"#,
            begun.unwrap_or_default()
        ),
    );
    event("ping", "");
    let mut index = 0;
    if !spec.text.is_empty() {
        event("content_block_start", r#","index":0,"content_block":{"type":"text","text":""}"#);
        for c in spec.text.chars() {
            event(
                "content_block_delta",
                &format!(
                    r#","index":0,"delta":{{"type":"text_delta","text":{}}}"#,
                    quote(&c.to_string())
                ),
            );
        }
        event("content_block_stop", r#","index":0"#);
        index = 1;
    }
    for (id, name, arguments) in &spec.uses {
        event(
            "content_block_start",
            &format!(
                r#","index":{index},"content_block":{{"type":"tool_use","id":"{id}","name":"{name}","input":{{}}}}"#
            ),
        );
        for c in arguments.chars() {
            event(
                "content_block_delta",
                &format!(
                    r#","index":{index},"delta":{{"type":"input_json_delta","partial_json":{}}}"#,
                    quote(&c.to_string())
                ),
            );
        }
        event("content_block_stop", &format!(r#","index":{index}"#));
        index += 1;
    }
    let usage = spec.usage.map(|_| format!(r#","usage":{{"output_tokens":{output}}}"#));
    event(
        "message_delta",
        &format!(r#","delta":{{"stop_reason":"{reason}"}}{}"#, usage.unwrap_or_default()),
    );
    event("message_stop", "");
    out
}

fn ollama_pieces(spec: &Spec) -> String {
    let reason = stop(Dialect::Ollama, spec.stop);
    let mut out = String::new();
    for c in spec.text.chars() {
        out.push_str(&format!(
            "{{\"message\":{{\"role\":\"assistant\",\"content\":{}}},\"done\":false}}\n",
            quote(&c.to_string())
        ));
    }
    if !spec.uses.is_empty() {
        out.push_str(&format!("{{\"message\":{{\"role\":\"assistant\",\"content\":\"\",\"tool_calls\":[{}]}},\"done\":false}}\n", ollama_uses(spec)));
    }
    out.push_str(&format!("{{\"message\":{{\"role\":\"assistant\",\"content\":\"\"}},\"done_reason\":\"{reason}\",\"done\":true{}}}\n", ollama_usage(spec)));
    out
}
