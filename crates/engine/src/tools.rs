//! The registered tools: each name with its source, its spec, its digest and its compiled schema.

use std::collections::BTreeMap;
use std::sync::Arc;

use portcullis_canon::{Digest, Limits, Object, Schema, Value, from_slice};
use portcullis_domain::ports::{AdvertisedTool, ToolSource};
use portcullis_domain::run::FrozenTool;
use portcullis_domain::tool::ToolSpec;

use crate::error::RegisterError;

/// One registered tool.
pub(crate) struct Tool {
    pub(crate) source: Arc<dyn ToolSource>,
    pub(crate) described: Described,
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
    /// [`RegisterError`] for a repeated name, a spec that does not hold, or a schema that cannot be used.
    pub fn register(sources: Vec<Arc<dyn ToolSource>>) -> Result<Self, RegisterError> {
        let mut by_name = BTreeMap::new();
        for source in sources {
            for spec in source.specs() {
                let name = spec.name.clone();
                let tool = Tool { source: Arc::clone(&source), described: Described::new(spec)? };
                if by_name.insert(name.clone(), tool).is_some() {
                    return Err(RegisterError::Repeated(name));
                }
            }
        }
        Ok(Self { by_name })
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
            input_schema: without_fixed(&self.spec.input_schema, &self.spec.fixed),
        }
    }
}

/// The schema without the parameters that the operator fixed: the agent may not name them.
fn without_fixed(schema: &Value, fixed: &Object) -> Value {
    let Value::Object(schema) = schema else { return schema.clone() };
    let mut shown = schema.clone();
    if let Some(Value::Object(properties)) = shown.get_mut("properties") {
        for key in fixed.keys() {
            properties.remove(key);
        }
    }
    if let Some(Value::Array(required)) = shown.get_mut("required") {
        required.retain(|name| name.as_str().is_none_or(|name| !fixed.contains_key(name)));
    }
    Value::Object(shown)
}
