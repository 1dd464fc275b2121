//! Putting in the defaults that a schema names.

use crate::value::Value;

/// Fills `instance` by `schema`, whose depth the budget has bounded.
pub(super) fn fill(schema: &Value, instance: Value) -> Value {
    match instance {
        Value::Object(mut object) => {
            if let Some(properties) = schema.get("properties").and_then(Value::as_object) {
                for (key, property) in properties {
                    let filled = match (object.remove(key), property.get("default")) {
                        (Some(present), _) => Some(fill(property, present)),
                        // A default may itself lack properties that have one.
                        (None, Some(default)) => Some(fill(property, default.clone())),
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
                Value::Array(items.into_iter().map(|value| fill(item, value)).collect())
            }
            _ => Value::Array(items),
        },
        scalar => scalar,
    }
}
