//! Who evaluates whom: the keywords of a schema as edges, references followed.
//!
//! The walk knows which keywords hold schemas and which hold data, so that a property named
//! `$ref` or a `const` that looks like a schema is neither followed nor refused.

use super::SchemaError;
use crate::value::Value;
use std::collections::HashMap;

/// A place in an instance, one step below the place that a schema is evaluated at.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Step<'a> {
    /// The member of that name.
    Name(&'a str),
    /// The item at that index.
    Index(usize),
    /// Any member that no step names.
    OtherName,
    /// Any item that no step names.
    OtherIndex,
}

/// The schemas that one schema hands on to, by number.
#[derive(Default)]
pub(super) struct Node<'a> {
    /// Evaluated at the same place: combinators, conditions, references.
    pub(super) in_place: Vec<usize>,
    /// Evaluated one step further down. A step that the node names takes nothing from `Other…`:
    /// what applies there too is listed under both.
    pub(super) below: Vec<(Step<'a>, usize)>,
}

/// All schemas that the root leads to; the root is number 0.
pub(super) struct Graph<'a> {
    pub(super) nodes: Vec<Node<'a>>,
    /// Whether any schema has `unevaluatedProperties` or `unevaluatedItems`.
    pub(super) unevaluated: bool,
    /// How many patterns there are to compile.
    pub(super) patterns: usize,
}

struct Walk<'a> {
    root: &'a Value,
    graph: Graph<'a>,
    /// Schemas by where they stand in memory: one place is one schema however it was reached.
    numbers: HashMap<*const Value, usize>,
    waiting: Vec<(usize, &'a Value)>,
}

/// Walks a schema from its root.
pub(super) fn walk(root: &Value) -> Result<Graph<'_>, SchemaError> {
    let graph = Graph { nodes: Vec::new(), unevaluated: false, patterns: 0 };
    let mut walk = Walk { root, graph, numbers: HashMap::new(), waiting: Vec::new() };
    walk.number(root);
    while let Some((number, schema)) = walk.waiting.pop() {
        let node = walk.node(schema)?;
        if let Some(slot) = walk.graph.nodes.get_mut(number) {
            *slot = node;
        }
    }
    Ok(walk.graph)
}

impl<'a> Walk<'a> {
    fn number(&mut self, schema: &'a Value) -> usize {
        let next = self.graph.nodes.len();
        let number = *self.numbers.entry(std::ptr::from_ref(schema)).or_insert(next);
        if number == next {
            self.graph.nodes.push(Node::default());
            self.waiting.push((number, schema));
        }
        number
    }

    fn numbers<I: IntoIterator<Item = &'a Value>>(&mut self, schemas: I) -> Vec<usize> {
        schemas.into_iter().map(|schema| self.number(schema)).collect()
    }

    fn node(&mut self, schema: &'a Value) -> Result<Node<'a>, SchemaError> {
        let object = match schema {
            Value::Bool(_) => return Ok(Node::default()),
            Value::Object(object) => object,
            _ => return Err(SchemaError::Shape),
        };
        self.check_identity(schema)?;
        if object.contains_key("pattern") {
            self.graph.patterns += 1;
        }
        for definitions in ["$defs", "definitions"] {
            // Not evaluated where they stand, but walked, since something may be hidden there.
            self.numbers(
                map_of_schemas(schema, definitions)?.into_iter().map(|(_, schema)| schema),
            );
        }
        let mut node = Node { in_place: self.in_place(schema)?, below: Vec::new() };
        self.members(schema, &mut node)?;
        self.items(schema, &mut node)?;
        Ok(node)
    }

    /// Refuses what changes how references resolve.
    fn check_identity(&self, schema: &Value) -> Result<(), SchemaError> {
        let is_root = std::ptr::eq(schema, self.root);
        for keyword in
            ["$dynamicRef", "$dynamicAnchor", "$recursiveRef", "$recursiveAnchor", "$vocabulary"]
        {
            if schema.get(keyword).is_some() {
                return Err(SchemaError::Keyword);
            }
        }
        for keyword in ["$id", "id"] {
            match schema.get(keyword) {
                Some(Value::String(_)) if !is_root => return Err(SchemaError::Keyword),
                _ => {}
            }
        }
        if !is_root && schema.get("$schema").is_some() {
            return Err(SchemaError::Dialect);
        }
        Ok(())
    }

    fn in_place(&mut self, schema: &'a Value) -> Result<Vec<usize>, SchemaError> {
        let mut numbers = Vec::new();
        for keyword in ["allOf", "anyOf", "oneOf"] {
            match schema.get(keyword) {
                None => {}
                Some(Value::Array(branches)) => numbers.extend(self.numbers(branches)),
                Some(_) => return Err(SchemaError::Shape),
            }
        }
        for keyword in ["not", "if", "then", "else", "contentSchema"] {
            numbers.extend(self.numbers(schema.get(keyword)));
        }
        for keyword in ["dependentSchemas", "dependencies"] {
            let dependent = map_of_schemas(schema, keyword)?;
            // Draft 7 allows a list of names here, which costs nothing.
            let schemas = dependent.into_iter().map(|(_, value)| value);
            numbers.extend(self.numbers(schemas.filter(|value| value.as_array().is_none())));
        }
        match schema.get("$ref") {
            None => {}
            Some(Value::String(reference)) => {
                let target = self.resolve(reference)?;
                numbers.push(self.number(target));
            }
            Some(_) => return Err(SchemaError::Reference),
        }
        Ok(numbers)
    }

    /// The place in this schema that a reference names: `#` or `#/pointer`, nothing else.
    fn resolve(&self, reference: &str) -> Result<&'a Value, SchemaError> {
        let fragment = reference.strip_prefix('#').ok_or(SchemaError::Reference)?;
        if !fragment.is_empty() && !fragment.starts_with('/') {
            return Err(SchemaError::Reference);
        }
        let pointer = percent_decoded(fragment).ok_or(SchemaError::Reference)?;
        self.root.pointer(&pointer).ok_or(SchemaError::Dangling)
    }

    fn members(&mut self, schema: &'a Value, node: &mut Node<'a>) -> Result<(), SchemaError> {
        let named = map_of_schemas(schema, "properties")?;
        let patterned = map_of_schemas(schema, "patternProperties")?;
        self.graph.patterns += patterned.len();
        // A pattern may match any name, and so may what looks at names or at leftovers.
        let mut any = self.numbers(patterned.into_iter().map(|(_, schema)| schema));
        any.extend(self.numbers(schema.get("propertyNames")));
        if let Some(rest) = schema.get("unevaluatedProperties") {
            self.graph.unevaluated = true;
            any.push(self.number(rest));
        }
        for (name, property) in named {
            let number = self.number(property);
            node.below.push((Step::Name(name), number));
            node.below.extend(any.iter().map(|number| (Step::Name(name), *number)));
        }
        any.extend(self.numbers(schema.get("additionalProperties")));
        node.below.extend(any.into_iter().map(|number| (Step::OtherName, number)));
        Ok(())
    }

    fn items(&mut self, schema: &'a Value, node: &mut Node<'a>) -> Result<(), SchemaError> {
        let mut any = self.numbers(schema.get("contains"));
        if let Some(rest) = schema.get("unevaluatedItems") {
            self.graph.unevaluated = true;
            any.push(self.number(rest));
        }
        let mut placed = Vec::new();
        let mut rest = self.numbers(schema.get("additionalItems"));
        match schema.get("items") {
            Some(Value::Array(schemas)) => placed.extend(schemas),
            other => rest.extend(self.numbers(other)),
        }
        match schema.get("prefixItems") {
            None => {}
            Some(Value::Array(schemas)) => placed.extend(schemas),
            Some(_) => return Err(SchemaError::Shape),
        }
        for (index, schema) in placed.into_iter().enumerate() {
            let number = self.number(schema);
            node.below.push((Step::Index(index), number));
            node.below.extend(any.iter().chain(&rest).map(|number| (Step::Index(index), *number)));
        }
        node.below.extend(any.into_iter().chain(rest).map(|number| (Step::OtherIndex, number)));
        Ok(())
    }
}

/// The members of a keyword that maps names to schemas.
fn map_of_schemas<'a>(
    schema: &'a Value,
    keyword: &str,
) -> Result<Vec<(&'a str, &'a Value)>, SchemaError> {
    match schema.get(keyword) {
        None => Ok(Vec::new()),
        Some(Value::Object(object)) => Ok(object.iter().collect()),
        Some(_) => Err(SchemaError::Shape),
    }
}

/// Undoes `%HH`; `None` for a percent sign that escapes nothing, or for what is no UTF-8 then.
fn percent_decoded(fragment: &str) -> Option<String> {
    let mut bytes = fragment.bytes();
    let mut out = Vec::with_capacity(fragment.len());
    while let Some(byte) = bytes.next() {
        out.push(match byte {
            b'%' => {
                let mut digit = || char::from(bytes.next()?).to_digit(16);
                u8::try_from(digit()? << 4 | digit()?).ok()?
            }
            plain => plain,
        });
    }
    String::from_utf8(out).ok()
}
