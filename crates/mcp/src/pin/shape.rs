//! A server's schema under an operator's rule: checked, then without what is denied, with what is fixed, and renamed.

use std::collections::BTreeSet;

use portcullis_canon::{Object, Schema, SchemaError, Value};

use super::rule::ToolRule;
use super::words;

/// Members of a schema's root that say nothing about its parameters but their own names.
const PLAIN: [&str; 8] = [
    "properties",
    "required",
    "additionalProperties",
    "type",
    "title",
    "description",
    "$schema",
    "$comment",
];
/// Keywords by which other schemas apply to the same object.
const COMBINING: [&str; 11] = [
    "$ref",
    "allOf",
    "anyOf",
    "oneOf",
    "not",
    "if",
    "then",
    "else",
    "dependencies",
    "dependentSchemas",
    "dependentRequired",
];
/// The longest new name of a parameter, in bytes.
const MAX_NAME_BYTES: usize = 64;

/// Why a schema cannot be used, or not under this rule. Every message is safe to print.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ShapeError {
    /// It does not say `"type": "object"`.
    #[error("its input schema is not of `type: object`")]
    NotObject,
    /// It names a place outside of itself.
    #[error("its input schema has a `{0}` that leads outside of it")]
    Outside(&'static str),
    /// It is out of bounds, or not valid.
    #[error("its input {0}")]
    Schema(#[from] SchemaError),
    /// The rule names something that is no parameter, or names one twice, or gives a name that cannot be.
    #[error("its rule does not fit: {0}")]
    Rule(String),
    /// A parameter cannot be hidden, since the schema speaks of it in another place too.
    #[error("`{0}` cannot be denied, fixed or renamed safely: {1}")]
    Hidden(String, &'static str),
    /// A fixed value is not one that the parameter takes.
    #[error("the value fixed for `{0}` is none that its schema takes")]
    Fixed(String),
}

/// The schema of the arguments as the gate checks them: a fixed parameter is still in it.
pub(super) fn shaped(schema: &Value, rule: &ToolRule) -> Result<Value, ShapeError> {
    let Value::Object(root) = schema else { return Err(ShapeError::NotObject) };
    if root.get("type").and_then(Value::as_str) != Some("object") {
        return Err(ShapeError::NotObject);
    }
    self_contained(schema)?;
    Schema::compile(schema)?;
    if rule.touched().next().is_none() {
        return Ok(schema.clone());
    }
    check_rule(root, rule)?;
    for name in rule.touched() {
        check_hidden(root, name, !rule.fix.contains_key(name))?;
    }
    let shaped = Value::Object(rewritten(root, rule));
    Schema::compile(&shaped)?;
    check_fixed(root, rule)?;
    Ok(shaped)
}

/// Nothing in it leads elsewhere, wherever it stands: whoever else reads the schema fetches nothing either.
fn self_contained(schema: &Value) -> Result<(), ShapeError> {
    let starts_here = |value: Option<&Value>| {
        value.and_then(Value::as_str).is_none_or(|text| text.starts_with('#'))
    };
    if !starts_here(schema.get("id")) {
        return Err(ShapeError::Outside("id"));
    }
    let mut waiting = vec![schema];
    while let Some(value) = waiting.pop() {
        for keyword in ["$ref", "$dynamicRef", "$recursiveRef", "$id"] {
            if !starts_here(value.get(keyword)) {
                return Err(ShapeError::Outside(keyword));
            }
        }
        waiting.extend(inside(value));
    }
    Ok(())
}

fn inside(value: &Value) -> Vec<&Value> {
    match value {
        Value::Array(items) => items.iter().collect(),
        Value::Object(object) => object.values().collect(),
        _ => Vec::new(),
    }
}

/// What the rule says of parameters fits the schema and itself.
fn check_rule(root: &Object, rule: &ToolRule) -> Result<(), ShapeError> {
    let misfit = |name: &str, why| ShapeError::Rule(format!("`{}` {why}", words::name(name)));
    let known = |name: &str| root.get("properties").and_then(|all| all.get(name)).is_some();
    let mut seen = BTreeSet::new();
    for name in rule.touched() {
        if !known(name) {
            return Err(misfit(name, "is no parameter of the tool"));
        }
        if !seen.insert(name) {
            return Err(misfit(name, "can be denied, fixed or renamed, and only one of them"));
        }
    }
    let plain = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'_' | b'-' | b'.');
    let mut given = BTreeSet::new();
    for new in rule.rename.values() {
        if !(1..=MAX_NAME_BYTES).contains(&new.len()) || !new.bytes().all(plain) {
            return Err(misfit(new, "is no name of 1 to 64 letters, digits, `_`, `-` or `.`"));
        }
        if known(new) || !given.insert(new) {
            return Err(misfit(new, "is the name of another parameter"));
        }
    }
    let required = root.get("required").and_then(Value::as_array).unwrap_or_default();
    match rule.deny.iter().find(|name| required.iter().any(|other| other.as_str() == Some(name))) {
        Some(name) => Err(misfit(name, "is required by the server: fix it in place of denying it")),
        None => Ok(()),
    }
}

/// A name can be taken out of sight when the schema speaks of it in its own place alone. `goes` is true where the server
/// must not be given the name by the agent, although the schema no longer has it.
fn check_hidden(root: &Object, name: &str, goes: bool) -> Result<(), ShapeError> {
    let hidden = |why| Err(ShapeError::Hidden(words::name(name), why));
    if root.contains_key("patternProperties") || root.contains_key("unevaluatedProperties") {
        return hidden("the schema takes parameters by patterns");
    }
    let rest = root.get("additionalProperties");
    if rest.is_some_and(|rest| rest.as_bool().is_none()) {
        return hidden("the schema has a rule for parameters that it does not name");
    }
    let combining = COMBINING.iter().any(|keyword| root.contains_key(keyword));
    if goes && combining && rest.and_then(Value::as_bool) != Some(false) {
        return hidden("the schema combines others and is open");
    }
    if root.iter().any(|(key, value)| !PLAIN.contains(&key) && mentions(value, name)) {
        return hidden("the schema names it outside of `properties` and `required`");
    }
    if root.values().any(refers_inside) {
        return hidden("the schema refers to other places in it than definitions");
    }
    Ok(())
}

/// True when the name is a key or a text anywhere in it.
fn mentions(value: &Value, name: &str) -> bool {
    let mut waiting = vec![value];
    while let Some(value) = waiting.pop() {
        let here = match value {
            Value::String(text) => text == name,
            Value::Object(object) => object.contains_key(name),
            _ => false,
        };
        if here {
            return true;
        }
        waiting.extend(inside(value));
    }
    false
}

/// True for a reference to the whole or to a parameter: what it means changes with their names.
fn refers_inside(value: &Value) -> bool {
    let mut waiting = vec![value];
    while let Some(value) = waiting.pop() {
        let reference = value.get("$ref").and_then(Value::as_str);
        let definition =
            |text: &str| text.starts_with("#/$defs/") || text.starts_with("#/definitions/");
        if reference.is_some_and(|text| !definition(text)) {
            return true;
        }
        waiting.extend(inside(value));
    }
    false
}

/// Without what is denied, with new names, and closed to any name that it does not have: the old ones above all.
fn rewritten(root: &Object, rule: &ToolRule) -> Object {
    let mut shaped = root.clone();
    if let Some(Value::Object(properties)) = shaped.get_mut("properties") {
        for name in &rule.deny {
            properties.remove(name);
        }
        for (old, new) in &rule.rename {
            if let Some(property) = properties.remove(old) {
                properties.insert(new.as_str(), property);
            }
        }
    }
    if let Some(Value::Array(required)) = shaped.get_mut("required") {
        for name in required {
            if let Some(new) = name.as_str().and_then(|old| rule.rename.get(old)) {
                *name = Value::from(new.as_str());
            }
        }
    }
    if !rule.deny.is_empty() || !rule.rename.is_empty() {
        shaped.insert("additionalProperties", false);
    }
    shaped
}

/// Each fixed value is one that its parameter takes. What asks for other parameters is left out of the question.
fn check_fixed(root: &Object, rule: &ToolRule) -> Result<(), ShapeError> {
    let mut alone = root.clone();
    for keyword in COMBINING.into_iter().chain(["required", "minProperties"]) {
        alone.remove(keyword);
    }
    let schema = Schema::compile(&Value::Object(alone))?;
    for (name, value) in &rule.fix {
        let only: Object = [(name, value.clone())].into_iter().collect();
        if schema.check(&Value::Object(only)).is_err() {
            return Err(ShapeError::Fixed(words::name(name)));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use portcullis_canon::{Limits, parse};
    use portcullis_domain::tool::EffectClass;

    use super::*;

    fn value(text: &str) -> Value {
        parse(text.as_bytes(), &Limits::BARE).unwrap()
    }

    /// A rule from `deny:a`, `fix:a=1` and `rename:a=b`.
    fn rule(parts: &[&str]) -> ToolRule {
        let mut rule = ToolRule::new(EffectClass::ReadOnly);
        for part in parts {
            let (verb, rest) = part.split_once(':').unwrap();
            let (name, other) = rest.split_once('=').unwrap_or((rest, ""));
            match verb {
                "deny" => drop(rule.deny.insert(name.to_owned())),
                "fix" => drop(rule.fix.insert(name, value(other))),
                _ => drop(rule.rename.insert(name.to_owned(), other.to_owned())),
            }
        }
        rule
    }

    #[track_caller]
    fn good(schema: &str, parts: &[&str], expected: &str) {
        let shaped = shaped(&value(schema), &rule(parts));
        assert_eq!(shaped.map(|shaped| shaped.to_canonical_string()), Ok(expected.to_owned()));
    }

    #[track_caller]
    fn bad(schema: &str, parts: &[&str], expected: &str) {
        let error = shaped(&value(schema), &rule(parts)).unwrap_err().to_string();
        assert!(error.contains(expected), "{error:?} is not about {expected:?}");
        assert!(!error.chars().any(char::is_control), "{error:?}");
    }

    const PAY: &str = r#"{"type":"object","required":["to"],"properties":{"to":{"type":"string"},"cc":{"default":1},"sum":{"type":"integer","maximum":5}}}"#;

    #[test]
    fn a_schema_without_a_rule_stays_as_it_is() {
        good(PAY, &[], &value(PAY).to_canonical_string());
        let local = r##"{"$defs":{"a":{}},"properties":{"$ref":{"$ref":"#/$defs/a"},"x":{"default":{"id":"7"}}},"type":"object"}"##;
        good(local, &[], local);
    }

    #[test]
    fn what_leads_outside_or_is_no_object_is_refused() {
        for text in ["true", "[]", "{}", r#"{"type":["object"]}"#, r#"{"type":"string"}"#] {
            bad(text, &[], "`type: object`");
        }
        let with = |member: &str| format!(r#"{{"type":"object",{member}}}"#);
        bad(&with(r#""$id":"https://a.example/s""#), &[], "`$id` that leads outside");
        bad(&with(r#""id":"https://a.example/s""#), &[], "`id` that leads outside");
        bad(&with(r#""properties":{"a":{"$ref":"https://a.example/s"}}"#), &[], "`$ref` that");
        bad(&with(r#""properties":{"a":{"$dynamicRef":"other.json"}}"#), &[], "`$dynamicRef` that");
        bad(&with(r#""examples":[[{"$ref":"file:///etc/passwd"}]]"#), &[], "`$ref` that leads");
        bad(&with(r#""$schema":"https://a.example/dialect""#), &[], "schema names a dialect");
        bad(&with(r##""properties":{"a":{"$ref":"#/$defs/x"}}"##), &[], "does not have");
        bad(&with(r##""allOf":[{"$ref":"#"}]"##), &[], "in a circle");
        bad(&with(r#""properties":{"a":{"pattern":"(a{999}){999}"}}"#), &[], "schema is not valid");
    }

    #[test]
    fn denied_goes_renamed_moves_and_the_schema_is_closed() {
        good(
            PAY,
            &["deny:cc", "rename:to=recipient"],
            r#"{"additionalProperties":false,"properties":{"recipient":{"type":"string"},"sum":{"maximum":5,"type":"integer"}},"required":["recipient"],"type":"object"}"#,
        );
    }

    #[test]
    fn a_denied_and_a_former_name_are_refused_in_a_call() {
        let shaped = shaped(&value(PAY), &rule(&["deny:cc", "rename:to=recipient"])).unwrap();
        let schema = Schema::compile(&shaped).unwrap();
        assert!(schema.check(&value(r#"{"recipient":"ann"}"#)).is_ok());
        assert!(schema.check(&value(r#"{"recipient":"ann","cc":1}"#)).is_err());
        assert!(schema.check(&value(r#"{"recipient":"ann","to":"eve"}"#)).is_err());
    }

    #[test]
    fn a_fixed_parameter_stays_for_the_check_and_has_a_value_that_it_takes() {
        good(PAY, &["fix:sum=5", r#"fix:to="ann""#], &value(PAY).to_canonical_string());
        bad(PAY, &["fix:sum=6"], "the value fixed for `sum`");
        bad(PAY, &["fix:sum=1.5"], "the value fixed for `sum`");
        bad(PAY, &["fix:sum=1e400"], "the value fixed for `sum`");
        bad(PAY, &["fix:to=null"], "the value fixed for `to`");
    }

    #[test]
    fn a_rule_that_does_not_fit_is_told() {
        bad(PAY, &["deny:bcc"], "`bcc` is no parameter");
        bad(PAY, &["fix:bcc=1"], "`bcc` is no parameter");
        bad(PAY, &["rename:b\u{7}=x"], "`b\\x07` is no parameter");
        bad(PAY, &["deny:cc", "fix:cc=1"], "only one of them");
        bad(PAY, &["deny:to"], "`to` is required by the server");
        bad(PAY, &["rename:to=sum"], "`sum` is the name of another");
        bad(PAY, &["deny:cc", "rename:to=cc"], "`cc` is the name of another");
        bad(PAY, &["rename:to=x", "rename:cc=x"], "`x` is the name of another");
        bad(PAY, &["rename:to="], "is no name of");
        bad(PAY, &["rename:to=a b"], "is no name of");
    }

    #[test]
    fn a_name_that_the_schema_speaks_of_elsewhere_cannot_be_hidden() {
        let with = |member: &str| {
            format!(r#"{{"type":"object","properties":{{"a":{{}},"b":{{}}}},{member}}}"#)
        };
        let closed = |member: &str| with(&format!(r#"{member},"additionalProperties":false"#));
        for hide in ["deny:a", "fix:a=1", "rename:a=c"] {
            bad(&with(r#""patternProperties":{"^a":{}}"#), &[hide], "by patterns");
            bad(&with(r#""unevaluatedProperties":false"#), &[hide], "by patterns");
            bad(
                &with(r#""additionalProperties":{}"#),
                &[hide],
                "a rule for parameters that it does",
            );
            bad(&closed(r#""anyOf":[{"required":["a"]},{}]"#), &[hide], "outside of `properties`");
            bad(&closed(r#""dependentRequired":{"a":["b"]}"#), &[hide], "outside of `properties`");
            bad(&closed(r#""$defs":{"x":{"properties":{"a":{}}}}"#), &[hide], "outside of `prop");
            bad(&closed(r#""examples":[{"a":1}]"#), &[hide], "outside of `properties`");
            let whole = r##"{"type":"object","properties":{"a":{},"b":{"$ref":"#"}}}"##;
            bad(whole, &[hide], "refers to other places");
            let other =
                r##"{"type":"object","properties":{"a":{},"b":{"$ref":"#/properties/a"}}}"##;
            bad(other, &[hide], "refers to other places");
        }
        for hide in ["deny:a", "rename:a=c"] {
            bad(
                &with(r#""anyOf":[{"required":["b"]},{}]"#),
                &[hide],
                "combines others and is open",
            );
        }
        let kept = closed(r#""anyOf":[{"required":["b"]},{}]"#);
        assert!(shaped(&value(&kept), &rule(&["deny:a"])).is_ok(), "the control");
        let open = with(r#""anyOf":[{"required":["b"]},{}]"#);
        assert!(shaped(&value(&open), &rule(&["fix:a=1"])).is_ok(), "the gate refuses its name");
    }
}
