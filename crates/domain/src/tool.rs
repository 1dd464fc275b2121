//! Tools as the gate sees them: a spec with an effect class, marks, a schema and a deadline.

use std::time::Duration;

use portcullis_canon::{Digest, Kind, Object, Value};
use serde::{Deserialize, Serialize};

use crate::label::Name;
use crate::recovery::Probe;

/// What a call can change. The operator or the built-in says it; nothing infers it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum EffectClass {
    /// Changes nothing.
    ReadOnly,
    /// Changes something on this machine that can be put back.
    LocalMutation,
    /// Changes something elsewhere.
    RemoteMutation,
    /// Destroys something.
    Destructive,
}

impl EffectClass {
    /// Every class, mildest first.
    pub const ALL: [Self; 4] =
        [Self::ReadOnly, Self::LocalMutation, Self::RemoteMutation, Self::Destructive];

    /// The stable name.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::ReadOnly => "read_only",
            Self::LocalMutation => "local_mutation",
            Self::RemoteMutation => "remote_mutation",
            Self::Destructive => "destructive",
        }
    }

    /// True when an unknown outcome may have changed something.
    #[must_use]
    pub const fn changes_something(self) -> bool {
        !matches!(self, Self::ReadOnly)
    }
}

/// Everything about a tool that a verdict, an approval or a reviewer depends on.
///
/// There is no default: a tool cannot be described without saying its class and both marks.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ToolSpec {
    /// The name in the advertised set, unique in a run. Also the source of its results' labels.
    pub name: String,
    /// What the model reads about the tool.
    pub description: String,
    /// The JSON Schema of the arguments.
    pub input_schema: Value,
    /// What a call can change.
    pub effect: EffectClass,
    /// True when its results carry content from outside.
    pub source: bool,
    /// True when a call sends or changes something.
    pub sink: bool,
    /// JSON pointers of the arguments that carry authority: the recipient, the path, the account.
    pub authority: Vec<String>,
    /// How long one call may take, in milliseconds, more than zero.
    pub deadline_ms: u64,
    /// True when a successful call completes the run with its result.
    pub terminal: bool,
    /// Arguments that the operator fixed. The agent may not name them.
    pub fixed: Object,
    /// The largest result in bytes that is kept whole.
    pub max_result_bytes: u64,
    /// What the operator pointed the tool at, such as a folder and its identity: shown to a person and bound by
    /// their answer, never shown to the agent.
    pub target: Option<String>,
    /// How to find out whether a call happened; for a tool that changes something.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub probe: Option<Probe>,
    /// The parameter that takes the call's idempotency key: the gate fills it, and the agent may not name it. Whoever
    /// declares one promises that a second call with the same key changes nothing more and gives the same result.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub idempotency_key: Option<String>,
}

/// Why a spec cannot be registered.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SpecError {
    /// The name is empty, too long or holds a character that no source may have.
    #[error("the tool's name must be 1 to 128 bytes without control characters or parentheses")]
    Name,
    /// The deadline is zero.
    #[error("the tool's deadline must be more than zero")]
    Deadline,
    /// The result bound is zero or more than [`ToolSpec::MAX_RESULT_BYTES`].
    #[error("the tool's result bound must be between 1 byte and 16 MiB")]
    ResultBound,
    /// A fixed argument is not in the schema.
    #[error("a fixed argument must be a property of the tool's schema")]
    Fixed,
    /// A tool that only reads says how its outcome could be found out.
    #[error(
        "a tool that only reads has no unknown outcome: it needs no probe and no idempotency key"
    )]
    Recovery,
    /// The probe is the tool itself, or a place that it is to be handed cannot be in a call.
    #[error(
        "a probe must be another tool, handed places such as `/name` of properties of this tool's schema"
    )]
    Probe,
    /// The idempotency key is not a parameter that can take one.
    #[error("the idempotency key must be a string property of the tool's schema that is not fixed")]
    IdempotencyKey,
}

impl ToolSpec {
    /// The most that one result may hold.
    pub const MAX_RESULT_BYTES: u64 = 16 * 1024 * 1024;

    /// Checks what the types cannot say.
    ///
    /// # Errors
    /// [`SpecError`] names the part that does not fit.
    pub fn check(&self) -> Result<(), SpecError> {
        Name::new(&self.name).map_err(|_| SpecError::Name)?;
        if self.deadline_ms == 0 {
            return Err(SpecError::Deadline);
        }
        if !(1..=Self::MAX_RESULT_BYTES).contains(&self.max_result_bytes) {
            return Err(SpecError::ResultBound);
        }
        let properties = self.input_schema.get("properties").and_then(Value::as_object);
        let known = |key: &str| properties.is_some_and(|p| p.contains_key(key));
        if self.fixed.keys().any(|key| !known(key)) {
            return Err(SpecError::Fixed);
        }
        if !self.effect.changes_something() && self.recovers() {
            return Err(SpecError::Recovery);
        }
        if self.probe.as_ref().is_some_and(|probe| !self.can_hand(probe, &known)) {
            return Err(SpecError::Probe);
        }
        let takes_text = |key: &str| {
            let property = properties.and_then(|p| p.get(key));
            property.and_then(|p| p.get("type")).and_then(Value::as_str) == Some("string")
        };
        let filled = self.idempotency_key.as_deref();
        if filled.is_some_and(|key| !takes_text(key) || self.fixed.contains_key(key)) {
            return Err(SpecError::IdempotencyKey);
        }
        Ok(())
    }

    /// True when an unknown outcome of this tool may resolve without a person.
    #[must_use]
    pub const fn recovers(&self) -> bool {
        self.probe.is_some() || self.idempotency_key.is_some()
    }

    fn can_hand(&self, probe: &Probe, known: &impl Fn(&str) -> bool) -> bool {
        let place = |pointer: &String| {
            let first = pointer.strip_prefix('/').and_then(|rest| rest.split('/').next());
            first.is_some_and(|name| known(&name.replace("~1", "/").replace("~0", "~")))
        };
        probe.tool != self.name
            && probe.arguments.as_ref().is_none_or(|mapping| mapping.values().all(place))
    }

    /// How long one call may take.
    #[must_use]
    pub fn deadline(&self) -> Duration {
        Duration::from_millis(self.deadline_ms)
    }

    /// The canonical bytes of the whole spec, as the spec table keeps them.
    #[must_use]
    pub fn canonical(&self) -> Vec<u8> {
        self.value().to_canonical()
    }

    /// The digest that verdicts and approvals name.
    #[must_use]
    pub fn digest(&self) -> Digest {
        Digest::of(Kind::ToolSpec, &self.canonical())
    }

    fn value(&self) -> Value {
        let mut object = Object::new();
        object.insert("name", self.name.as_str());
        object.insert("description", self.description.as_str());
        object.insert("input_schema", self.input_schema.clone());
        object.insert("effect", self.effect.as_str());
        object.insert("source", self.source);
        object.insert("sink", self.sink);
        object.insert(
            "authority",
            self.authority.iter().map(|p| Value::from(p.as_str())).collect::<Vec<_>>(),
        );
        object.insert("deadline_ms", self.deadline_ms);
        object.insert("terminal", self.terminal);
        object.insert("fixed", self.fixed.clone());
        object.insert("max_result_bytes", self.max_result_bytes);
        object.insert("target", self.target.as_deref().map_or(Value::Null, Value::from));
        // Left out where a tool has none, so that the digests of specs from before there were any stay what they are.
        if let Some(probe) = &self.probe {
            object.insert("probe", probe.value());
        }
        if let Some(parameter) = &self.idempotency_key {
            object.insert("idempotency_key", parameter.as_str());
        }
        Value::Object(object)
    }
}
