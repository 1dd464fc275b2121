//! The part of JSON Schema that providers enforce while a model writes. What does not fit fails and names the tool; there
//! is no silent fallback. The gate checks the full schema in any case.

use portcullis_canon::{Object, Value};

/// The deepest nesting of a strict schema.
const MAX_DEPTH: u32 = 64;

/// Which provider's part.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Subset {
    /// Every property is required.
    AllRequired,
    /// Properties may be left out.
    Optional,
}

/// A schema that cannot be enforced strictly.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "the schema of the tool `{tool}` cannot be made strict: {what} at `{place}`; change the schema, or do not ask for strict tools"
)]
pub struct NotStrict {
    /// The tool.
    pub tool: String,
    /// JSON pointer in the schema.
    pub place: String,
    /// What does not fit.
    pub what: &'static str,
}

/// Kept as they are.
const KEPT: &[&str] = &["type", "enum", "const", "description", "title"];

/// Left out: they only narrow what the gate checks itself.
const LEFT_OUT: &[&str] = &[
    "$schema",
    "default",
    "examples",
    "format",
    "minimum",
    "maximum",
    "exclusiveMinimum",
    "exclusiveMaximum",
    "multipleOf",
    "minLength",
    "maxLength",
    "pattern",
    "minItems",
    "maxItems",
    "uniqueItems",
    "minProperties",
    "maxProperties",
];

/// The strict form of a tool's schema.
pub(crate) fn strict(schema: &Value, tool: &str, subset: Subset) -> Result<Value, NotStrict> {
    if schema.get("type").and_then(Value::as_str) != Some("object") {
        let what = "a schema that does not say `\"type\": \"object\"`";
        return Err(NotStrict { tool: tool.to_owned(), place: String::new(), what });
    }
    Walk { tool, subset }.schema(schema, String::new(), 0)
}

struct Walk<'t> {
    tool: &'t str,
    subset: Subset,
}

impl Walk<'_> {
    fn refuse<T>(&self, place: String, what: &'static str) -> Result<T, NotStrict> {
        Err(NotStrict { tool: self.tool.to_owned(), place, what })
    }

    fn schema(&self, schema: &Value, place: String, depth: u32) -> Result<Value, NotStrict> {
        if depth > MAX_DEPTH {
            return self.refuse(place, "nesting that is too deep");
        }
        let Value::Object(schema) = schema else {
            return self.refuse(place, "a schema that is no object");
        };
        let mut out = Object::new();
        for (key, value) in schema {
            let here = format!("{place}/{key}");
            match key {
                key if KEPT.contains(&key) => {
                    out.insert(key, value.clone());
                }
                key if LEFT_OUT.contains(&key) => {}
                "properties" => {
                    out.insert(key, self.properties(value, here, depth)?);
                }
                "items" => {
                    out.insert(key, self.schema(value, here, depth.saturating_add(1))?);
                }
                "anyOf" => {
                    out.insert(key, self.choices(value, here, depth)?);
                }
                "required" => {
                    out.insert(key, value.clone());
                }
                "additionalProperties" if value.as_bool() == Some(false) => {}
                "additionalProperties" => {
                    return self.refuse(here, "room for properties that it does not name");
                }
                _ => return self.refuse(here, "a keyword outside of the strict part"),
            }
        }
        if out.get("type").and_then(Value::as_str) == Some("object")
            || out.contains_key("properties")
        {
            self.close(&mut out, &place)?;
        }
        Ok(Value::Object(out))
    }

    fn properties(&self, value: &Value, place: String, depth: u32) -> Result<Object, NotStrict> {
        let Value::Object(properties) = value else {
            return self.refuse(place, "`properties` that are no object");
        };
        let mut out = Object::new();
        for (name, schema) in properties {
            let here = format!("{place}/{}", name.replace('~', "~0").replace('/', "~1"));
            out.insert(name, self.schema(schema, here, depth.saturating_add(1))?);
        }
        Ok(out)
    }

    fn choices(&self, value: &Value, place: String, depth: u32) -> Result<Value, NotStrict> {
        let Value::Array(choices) = value else {
            return self.refuse(place, "`anyOf` that is no array");
        };
        let mut out = Vec::with_capacity(choices.len());
        for (index, choice) in choices.iter().enumerate() {
            out.push(self.schema(choice, format!("{place}/{index}"), depth.saturating_add(1))?);
        }
        Ok(Value::from(out))
    }

    /// An object takes no property that it does not name.
    fn close(&self, out: &mut Object, place: &str) -> Result<(), NotStrict> {
        out.insert("additionalProperties", false);
        let required = |name: &str| {
            let listed = out.get("required").and_then(Value::as_array).unwrap_or_default();
            listed.iter().any(|one| one.as_str() == Some(name))
        };
        let names = out.get("properties").and_then(Value::as_object);
        let optional = names.and_then(|names| names.keys().find(|name| !required(name)));
        if let (Subset::AllRequired, Some(name)) = (self.subset, optional) {
            let place = format!("{place}/properties/{name}");
            return self.refuse(place, "a property that may be left out");
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use portcullis_canon::{Limits, parse};

    fn made(schema: &str, subset: Subset) -> Result<String, NotStrict> {
        let schema = parse(schema.as_bytes(), &Limits::BARE).expect("json");
        strict(&schema, "t", subset).map(|strict| strict.to_canonical_string())
    }

    #[track_caller]
    fn refused(schema: &str, place: &str) {
        let error = made(schema, Subset::Optional).expect_err(schema);
        assert_eq!(error.place, place, "{error}");
        assert!(error.to_string().contains("`t`"), "{error}");
    }

    #[test]
    fn what_only_narrows_is_left_out_and_objects_are_closed() {
        let schema = r#"{"type":"object","properties":{"n":{"type":"integer","minimum":1},
            "l":{"type":"array","items":{"type":"object","properties":{}},"maxItems":3}},"required":["n"]}"#;
        let expected = r#"{"additionalProperties":false,"properties":{"l":{"items":{"additionalProperties":false,"properties":{},"type":"object"},"type":"array"},"n":{"type":"integer"}},"required":["n"],"type":"object"}"#;
        assert_eq!(made(schema, Subset::Optional).expect("strict"), expected);
        let error = made(schema, Subset::AllRequired).expect_err("optional");
        assert_eq!(error.place, "/properties/l");
    }

    #[test]
    fn what_does_not_fit_names_tool_and_place() {
        refused(r#"{"type":"object","properties":{"a":{"oneOf":[]}}}"#, "/properties/a/oneOf");
        refused(r##"{"type":"object","properties":{"a":{"$ref":"#"}}}"##, "/properties/a/$ref");
        refused(
            r#"{"type":"object","additionalProperties":{"type":"string"}}"#,
            "/additionalProperties",
        );
        refused(r#"{"type":"object","additionalProperties":true}"#, "/additionalProperties");
        refused(r#"{"type":"object","properties":{"a/b":true}}"#, "/properties/a~1b");
        refused(r#"{"type":"object","patternProperties":{}}"#, "/patternProperties");
        refused(r#"{"type":"array"}"#, "");
        refused("true", "");
        let deep = format!(
            r#"{{"type":"object","properties":{{"a":{}{{}}{}}}}}"#,
            r#"{"items":"#.repeat(80),
            "}".repeat(80)
        );
        let schema = parse(deep.as_bytes(), &Limits::BARE).expect("json");
        assert_eq!(
            strict(&schema, "t", Subset::Optional).expect_err("deep").what,
            "nesting that is too deep"
        );
    }
}
