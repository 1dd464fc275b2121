//! The tool `spawn`, as agents see it. The gate itself does what it says (`child`): there is no source behind it.

use portcullis_canon::{Object, Value};
use portcullis_domain::permit::Permit;
use portcullis_domain::ports::{BoxFuture, ToolFailure, ToolOutput, ToolSource};
use portcullis_domain::tool::{EffectClass, ToolSpec};

/// The name of the tool.
pub(crate) const NAME: &str = "spawn";

/// The largest result of a run that its parent is shown whole, in bytes.
pub(crate) const MAX_RESULT_BYTES: u64 = 1024 * 1024;

/// The longest goal, in characters.
const MAX_GOAL: u64 = 16 * 1024;

/// How many tools a call can name.
const MAX_TOOLS: u64 = 256;

/// Limits that a call can name, with their least value.
const LIMITS: [(&str, u64, &str); 6] = [
    ("max_steps", 1, "Steps that it may take"),
    ("max_active_ms", 1, "Time for deciding and executing, in milliseconds"),
    ("max_elapsed_ms", 1, "Time since its beginning, in milliseconds"),
    ("max_model_calls", 1, "Calls of models, those of the runs that it starts included"),
    ("max_total_tokens", 1, "Tokens of models, those of the runs that it starts included"),
    ("max_estimated_cost_micros", 0, "Cost of models in millionths of the unit of money"),
];

/// The tool's spec. It changes what is recorded here, and money may be spent: so it is no tool that only reads. What it gives
/// back was made by an agent.
pub(crate) fn spec() -> ToolSpec {
    ToolSpec {
        name: NAME.to_owned(),
        description: "Starts a run of its own with a part of your task, waits until it has ended, and gives you its result. \
            It has your tools or fewer, your limits or narrower ones, and spends from your budget."
            .to_owned(),
        input_schema: schema(),
        effect: EffectClass::LocalMutation,
        source: true,
        sink: false,
        authority: Vec::new(),
        deadline_ms: 10_000,
        terminal: false,
        fixed: Object::new(),
        max_result_bytes: MAX_RESULT_BYTES,
        target: None,
        probe: None,
        idempotency_key: None,
    }
}

fn schema() -> Value {
    let text = |most: u64| {
        object([
            ("type", Value::from("string")),
            ("minLength", Value::from(1_u64)),
            ("maxLength", Value::from(most)),
        ])
    };
    let mut goal = text(MAX_GOAL);
    let mut tools = object([
        ("type", Value::from("array")),
        ("items", Value::Object(text(128))),
        ("maxItems", Value::from(MAX_TOOLS)),
    ]);
    goal.insert("description", "What it is to do, with all that it needs to know");
    tools.insert(
        "description",
        "The names of those of your tools that it may use; all of them by default",
    );
    let mut properties = object([("goal", Value::Object(goal)), ("tools", Value::Object(tools))]);
    for (name, least, what) in LIMITS {
        let limit = object([
            ("type", Value::from("integer")),
            ("minimum", Value::from(least)),
            ("description", Value::from(what)),
        ]);
        properties.insert(name, limit);
    }
    Value::Object(object([
        ("type", Value::from("object")),
        ("properties", Value::Object(properties)),
        ("required", Value::from(vec![Value::from("goal")])),
        ("additionalProperties", Value::from(false)),
    ]))
}

fn object<const N: usize>(entries: [(&'static str, Value); N]) -> Object {
    Object::from_iter(entries)
}

/// Stands where a source does.
pub(crate) struct Gate;

impl ToolSource for Gate {
    fn specs(&self) -> Vec<ToolSpec> {
        vec![spec()]
    }

    fn blocks(&self) -> bool {
        false
    }

    fn call(&self, _: Permit) -> BoxFuture<'_, Result<ToolOutput, ToolFailure>> {
        let message = "runs are started by the gate alone".to_owned();
        Box::pin(std::future::ready(Err(ToolFailure::NothingHappened { message })))
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use super::*;

    /// Whoever writes an agent learns of the tool from the page of the protocol.
    #[test]
    fn the_protocols_page_names_every_argument() {
        let page = include_str!("../../../docs/agent-protocol.md");
        let (_, section) = page.split_once("### Starting runs\n").unwrap();
        let (section, _) = section.split_once("\n### ").unwrap();
        let schema = schema();
        let properties = schema.get("properties").and_then(Value::as_object).unwrap();
        assert_eq!(properties.iter().count(), LIMITS.len() + 2);
        for (name, _) in properties.iter() {
            assert!(section.contains(&format!("`{name}`")), "{name}");
        }
        assert!(section.contains("at most 16,384 characters"), "{MAX_GOAL}");
        assert_eq!(MAX_GOAL, 16_384);
    }
}
