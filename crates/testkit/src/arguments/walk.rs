//! What a schema holds: its parts, the keywords that can be broken, and the constants that bounds are made of.

use std::collections::BTreeSet;

use portcullis_canon::{Object, Value};

/// The most parts that are looked at.
const MOST_PARTS: usize = 200;

/// Keywords that a value breaks, with the name under which `canon` tells of it. What only holds other schemas is broken
/// by what those hold.
const ASSERTS: [(&str, &str); 28] = [
    ("anyOf", "anyOf"),
    ("const", "const"),
    ("contains", "contains"),
    ("contentEncoding", "contentEncoding"),
    ("dependentRequired", "required"),
    ("enum", "enum"),
    ("exclusiveMaximum", "exclusiveMaximum"),
    ("exclusiveMinimum", "exclusiveMinimum"),
    ("format", "format"),
    ("maxContains", "contains"),
    ("maxItems", "maxItems"),
    ("maxLength", "maxLength"),
    ("maxProperties", "maxProperties"),
    ("maximum", "maximum"),
    ("minContains", "contains"),
    ("minItems", "minItems"),
    ("minLength", "minLength"),
    ("minProperties", "minProperties"),
    ("minimum", "minimum"),
    ("multipleOf", "multipleOf"),
    ("not", "not"),
    ("oneOf", "oneOf"),
    ("pattern", "pattern"),
    ("propertyNames", "propertyNames"),
    ("required", "required"),
    ("type", "type"),
    ("unevaluatedItems", "unevaluatedItems"),
    ("unevaluatedProperties", "unevaluatedProperties"),
];

/// Keywords below which nothing is told of by its own name.
const QUIET: [&str; 8] = [
    "anyOf",
    "oneOf",
    "not",
    "if",
    "contains",
    "propertyNames",
    "unevaluatedItems",
    "unevaluatedProperties",
];

/// What a schema holds.
#[derive(Debug, Default)]
pub(super) struct Walked<'a> {
    pub(super) schemas: Vec<&'a Value>,
    pub(super) keywords: BTreeSet<String>,
    pub(super) numbers: Vec<f64>,
    pub(super) lengths: BTreeSet<usize>,
    pub(super) names: BTreeSet<&'a str>,
    pub(super) values: Vec<&'a Value>,
}

/// Looks at all that the root leads to, references included.
pub(super) fn walk(root: &Value) -> Walked<'_> {
    let mut walked = Walked::default();
    let mut seen = BTreeSet::new();
    let mut waiting = vec![(root, false)];
    let formats = root.get("$schema").and_then(Value::as_str).is_some_and(asserts_formats);
    while let Some((part, quiet)) = waiting.pop() {
        if walked.schemas.len() >= MOST_PARTS || !seen.insert((std::ptr::from_ref(part), quiet)) {
            continue;
        }
        walked.schemas.push(part);
        match part {
            Value::Object(object) => {
                walked.constants(object);
                if !quiet {
                    walked.keywords(object, formats);
                }
                waiting.extend(
                    below(root, object).into_iter().map(|(k, s)| (s, quiet || QUIET.contains(&k))),
                );
            }
            Value::Bool(false) if !quiet => drop(walked.keywords.insert("falseSchema".to_owned())),
            _ => {}
        }
    }
    walked
}

/// Whether the draft has `format` checked.
fn asserts_formats(dialect: &str) -> bool {
    ["draft-04", "draft-06", "draft-07"].iter().any(|draft| dialect.contains(draft))
}

/// The schemas that a schema leads to, each with the keyword that does.
fn below<'a>(root: &'a Value, object: &'a Object) -> Vec<(&'a str, &'a Value)> {
    let mut found = Vec::new();
    for (keyword, value) in object {
        match (keyword, value) {
            (
                "properties" | "patternProperties" | "dependentSchemas" | "dependencies",
                Value::Object(parts),
            ) => {
                let parts = parts.values().filter(|part| part.as_array().is_none());
                found.extend(parts.map(|part| (keyword, part)));
            }
            ("allOf" | "anyOf" | "oneOf" | "prefixItems" | "items", Value::Array(parts)) => {
                found.extend(parts.iter().map(|part| (keyword, part)));
            }
            // Told of by their own names where they are `false`.
            ("additionalItems" | "additionalProperties", Value::Bool(_)) => {}
            ("items" | "additionalItems" | "additionalProperties" | "then" | "else", part) => {
                found.push((keyword, part));
            }
            ("$ref", Value::String(reference)) => {
                let target = reference.strip_prefix('#').and_then(|pointer| root.pointer(pointer));
                found.extend(target.map(|part| (keyword, part)));
            }
            (_, part) if QUIET.contains(&keyword) => found.push((keyword, part)),
            _ => {}
        }
    }
    found
}

impl<'a> Walked<'a> {
    fn constants(&mut self, object: &'a Object) {
        for (keyword, value) in object {
            match (keyword, value) {
                ("const" | "default", value) => self.values.push(value),
                ("enum" | "examples", Value::Array(values)) => self.values.extend(values),
                (
                    "properties" | "dependentRequired" | "dependentSchemas" | "dependencies",
                    Value::Object(parts),
                ) => {
                    self.names.extend(parts.keys());
                    let names = parts.values().filter_map(Value::as_array).flatten();
                    self.names.extend(names.filter_map(Value::as_str));
                }
                ("required", Value::Array(names)) => {
                    self.names.extend(names.iter().filter_map(Value::as_str));
                }
                (_, Value::Number(number)) => {
                    self.numbers.extend(number.as_f64());
                    let length = number.as_u64().and_then(|n| usize::try_from(n).ok());
                    self.lengths.extend(length.filter(|length| *length <= 5_000));
                }
                _ => {}
            }
        }
    }

    /// Notes the keywords that a value can break.
    fn keywords(&mut self, object: &Object, formats: bool) {
        for (keyword, value) in object {
            let told =
                ASSERTS.iter().find(|(asserts, _)| *asserts == keyword).map(|(_, told)| *told);
            let on = |name: &str| object.get(name) == Some(&Value::from(true));
            let told = match (keyword, value) {
                ("additionalProperties" | "additionalItems", Value::Bool(false)) => Some(keyword),
                ("uniqueItems", Value::Bool(true)) => Some(keyword),
                ("dependencies", Value::Object(parts)) => {
                    parts.values().any(|part| part.as_array().is_some()).then_some("required")
                }
                (
                    "propertyNames" | "unevaluatedItems" | "unevaluatedProperties",
                    Value::Bool(true),
                ) => None,
                ("format", _) => told.filter(|_| formats),
                ("minContains" | "maxContains", _) => {
                    told.filter(|_| object.contains_key("contains"))
                }
                // Of draft 4, where it sharpens its neighbour.
                ("exclusiveMinimum" | "exclusiveMaximum", Value::Bool(_)) => None,
                ("minimum", _) if on("exclusiveMinimum") => Some("exclusiveMinimum"),
                ("maximum", _) if on("exclusiveMaximum") => Some("exclusiveMaximum"),
                _ => told,
            };
            self.keywords.extend(told.map(str::to_owned));
        }
    }
}
