//! Putting in the defaults that a schema names.

use crate::value::Value;

/// The most that filling may add, in bytes as [`charge`] counts them.
///
/// Lists of defaults inside the defaults of list items multiply, so that a small schema could
/// otherwise ask for more memory than there is.
const MAX_ADDED: usize = 1024 * 1024;

/// Fills `instance` by `schema`, or leaves it as it is when too much would be added.
pub(super) fn fill(schema: &Value, instance: Value) -> Value {
    let mut left = MAX_ADDED;
    match measure(schema, &instance, &mut left) {
        Some(()) => put(schema, instance),
        None => instance,
    }
}

/// Takes from `left` what [`put`] would add; `None` when it does not suffice.
fn measure(schema: &Value, instance: &Value, left: &mut usize) -> Option<()> {
    match instance {
        Value::Object(object) => {
            let properties = schema.get("properties").and_then(Value::as_object);
            for (key, property) in properties.into_iter().flatten() {
                match (object.get(key), property.get("default")) {
                    (Some(present), _) => measure(property, present, left)?,
                    (None, Some(default)) => {
                        *left = left.checked_sub(key.len())?;
                        charge(default, left)?;
                        measure(property, default, left)?;
                    }
                    (None, None) => {}
                }
            }
        }
        Value::Array(items) => {
            if let Some(item @ Value::Object(_)) = schema.get("items") {
                for value in items {
                    measure(item, value, left)?;
                }
            }
        }
        _ => {}
    }
    Some(())
}

/// Takes the room of one value from `left`: its text, and a word's worth for each part.
fn charge(value: &Value, left: &mut usize) -> Option<()> {
    *left = left.checked_sub(8)?;
    match value {
        Value::String(text) => *left = left.checked_sub(text.len())?,
        Value::Array(items) => {
            for item in items {
                charge(item, left)?;
            }
        }
        Value::Object(object) => {
            for (key, item) in object {
                *left = left.checked_sub(key.len())?;
                charge(item, left)?;
            }
        }
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
    Some(())
}

/// Fills `instance` by `schema`, whose depth the budget has bounded.
fn put(schema: &Value, instance: Value) -> Value {
    match instance {
        Value::Object(mut object) => {
            if let Some(properties) = schema.get("properties").and_then(Value::as_object) {
                for (key, property) in properties {
                    let filled = match (object.remove(key), property.get("default")) {
                        (Some(present), _) => Some(put(property, present)),
                        // A default may itself lack properties that have one.
                        (None, Some(default)) => Some(put(property, default.clone())),
                        (None, None) => None,
                    };
                    if let Some(value) = filled {
                        object.insert(key, value);
                    }
                }
            }
            Value::Object(object)
        }
        Value::Array(items) => match schema.get("items") {
            Some(item @ Value::Object(_)) => {
                Value::Array(items.into_iter().map(|value| put(item, value)).collect())
            }
            _ => Value::Array(items),
        },
        scalar => scalar,
    }
}
