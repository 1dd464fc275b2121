//! The registered tools: each name with its source, its spec, its digest and its compiled schema.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use portcullis_canon::{Digest, Limits, Schema, Value, from_slice};
use portcullis_domain::ports::{AdvertisedTool, ToolSource};
use portcullis_domain::run::FrozenTool;
use portcullis_domain::tool::{EffectClass, SpecError, ToolSpec};

use crate::error::RegisterError;
use crate::spawn;

/// One registered tool.
pub(crate) struct Tool {
    pub(crate) source: Arc<dyn ToolSource>,
    pub(crate) described: Described,
    /// A call is a run of its own (`child`).
    pub(crate) starts_run: bool,
}

/// A tool's spec, ready for admission: today's, or one that a record names.
pub(crate) struct Described {
    pub(crate) spec: ToolSpec,
    pub(crate) digest: Digest,
    pub(crate) canonical: Vec<u8>,
    pub(crate) schema: Schema,
}

/// The tools that a gate can reach. The advertised set is the callable set.
#[derive(Default)]
pub struct Tools {
    by_name: BTreeMap<String, Tool>,
}

impl Tools {
    /// Registers every tool of every source.
    ///
    /// # Errors
    /// [`RegisterError`] for a repeated name, a spec that does not hold, a probe that cannot be asked, or a schema that
    /// cannot be used.
    pub fn register(sources: Vec<Arc<dyn ToolSource>>) -> Result<Self, RegisterError> {
        let mut by_name = BTreeMap::new();
        for source in sources {
            for spec in source.specs() {
                let name = spec.name.clone();
                let (source, starts_run) = (Arc::clone(&source), false);
                let tool = Tool { source, described: Described::new(spec)?, starts_run };
                if by_name.insert(name.clone(), tool).is_some() {
                    return Err(RegisterError::Repeated(name));
                }
            }
        }
        let tools = Self { by_name };
        tools.check_probes()?;
        Ok(tools)
    }

    /// The same tools and `spawn`: a run may start others, which have its tools, its limits and its budget, or less.
    ///
    /// # Errors
    /// [`RegisterError::Repeated`] when a source has a tool of that name.
    pub fn with_children(mut self) -> Result<Self, RegisterError> {
        let described = Described::new(spawn::spec())?;
        let tool = Tool { source: Arc::new(spawn::Gate), described, starts_run: true };
        match self.by_name.insert(spawn::NAME.to_owned(), tool) {
            Some(_) => Err(RegisterError::Repeated(spawn::NAME.to_owned())),
            None => Ok(self),
        }
    }

    /// Each probe has to be a tool of the set that only reads, and takes what it is to be handed.
    fn check_probes(&self) -> Result<(), RegisterError> {
        for (name, tool) in &self.by_name {
            let Some(probe) = &tool.described.spec.probe else { continue };
            let takes = |asked: &ToolSpec| {
                let properties = asked.input_schema.get("properties").and_then(Value::as_object);
                let known = |name: &String| properties.is_some_and(|p| p.contains_key(name));
                probe.arguments.as_ref().is_none_or(|mapping| mapping.keys().all(known))
            };
            let asked = self.get(&probe.tool).map(|asked| &asked.described.spec);
            if !asked.is_some_and(|asked| !asked.effect.changes_something() && takes(asked)) {
                return Err(RegisterError::Probe { tool: name.clone(), probe: probe.tool.clone() });
            }
        }
        Ok(())
    }

    /// The names of those that only read.
    #[must_use]
    pub fn read_only(&self) -> BTreeSet<String> {
        let reads = self.by_name.values().map(|tool| &tool.described.spec);
        let reads = reads.filter(|spec| spec.effect == EffectClass::ReadOnly);
        reads.map(|spec| spec.name.clone()).collect()
    }

    /// The specs, in the order of their names.
    pub fn specs(&self) -> impl Iterator<Item = &ToolSpec> {
        self.by_name.values().map(|tool| &tool.described.spec)
    }

    /// All tools as an agent sees them, in the order of their names: without what the operator fixed or the gate fills.
    #[must_use]
    pub fn shown(&self) -> Vec<AdvertisedTool> {
        self.by_name.values().map(|tool| tool.described.advertised()).collect()
    }

    pub(crate) fn get(&self, name: &str) -> Option<&Tool> {
        self.by_name.get(name)
    }

    pub(crate) fn frozen(&self) -> Vec<FrozenTool> {
        self.by_name
            .iter()
            .map(|(name, tool)| FrozenTool { name: name.clone(), spec: tool.described.digest })
            .collect()
    }

    pub(crate) fn spec_bytes(&self) -> Vec<Vec<u8>> {
        self.by_name.values().map(|tool| tool.described.canonical.clone()).collect()
    }

    /// The tools of a run's frozen set as its agent sees them.
    pub(crate) fn advertised(&self, frozen: &[FrozenTool]) -> Arc<[AdvertisedTool]> {
        frozen
            .iter()
            .filter_map(|tool| self.get(&tool.name))
            .map(|tool| tool.described.advertised())
            .collect()
    }
}

impl Described {
    fn new(spec: ToolSpec) -> Result<Self, RegisterError> {
        spec.check().map_err(|error| RegisterError::Spec { tool: spec.name.clone(), error })?;
        let schema = Schema::compile(&spec.input_schema)
            .map_err(|error| RegisterError::Schema { tool: spec.name.clone(), error })?;
        check_key(&spec)?;
        let canonical = spec.canonical();
        let digest = spec.digest();
        Ok(Self { spec, digest, canonical, schema })
    }

    /// The spec that a record names, from the bytes of the spec table.
    pub(crate) fn recorded(canonical: &[u8]) -> Option<Self> {
        Self::new(from_slice(canonical, &Limits::ENVELOPE).ok()?).ok()
    }

    fn advertised(&self) -> AdvertisedTool {
        AdvertisedTool {
            name: self.spec.name.clone(),
            description: self.spec.description.clone(),
            input_schema: without_filled(&self.spec),
        }
    }
}

/// The parameter for the idempotency key has to take one: 64 hexadecimal digits, whatever the rest of the call is.
fn check_key(spec: &ToolSpec) -> Result<(), RegisterError> {
    let properties = spec.input_schema.get("properties");
    let parameter = spec.idempotency_key.as_deref().zip(properties);
    let Some(property) = parameter.and_then(|(key, properties)| properties.get(key)) else {
        return Ok(());
    };
    let key = Digest::ZERO.hex();
    let takes = Schema::compile(property).is_ok_and(|schema| schema.check(&key.into()).is_ok());
    if takes {
        Ok(())
    } else {
        let error = SpecError::IdempotencyKey;
        Err(RegisterError::Spec { tool: spec.name.clone(), error })
    }
}

/// The schema without the parameters that the operator fixed or the gate fills: the agent may not name them.
fn without_filled(spec: &ToolSpec) -> Value {
    let Value::Object(schema) = &spec.input_schema else { return spec.input_schema.clone() };
    let filled =
        |name: &str| spec.fixed.contains_key(name) || spec.idempotency_key.as_deref() == Some(name);
    let mut shown = schema.clone();
    if let Some(Value::Object(properties)) = shown.get_mut("properties") {
        for key in spec.fixed.keys().chain(spec.idempotency_key.as_deref()) {
            properties.remove(key);
        }
    }
    if let Some(Value::Array(required)) = shown.get_mut("required") {
        required.retain(|name| name.as_str().is_none_or(|name| !filled(name)));
    }
    Value::Object(shown)
}
