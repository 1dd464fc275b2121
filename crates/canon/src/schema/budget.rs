//! What a schema may cost, judged before the validator sees it.

use super::SchemaError;
use crate::number::Number;
use crate::value::Value;

/// The most canonical bytes.
pub(super) const MAX_BYTES: usize = 64 * 1024;
/// The deepest nesting.
pub(super) const MAX_DEPTH: u32 = 32;
/// The most values, of any type.
pub(super) const MAX_NODES: usize = 2_000;
/// The most evaluations that one place of an instance can get.
pub(super) const MAX_PATHS: u64 = 10_000;

/// Refuses a schema that is out of bounds.
pub(super) fn admit(schema: &Value) -> Result<(), SchemaError> {
    if schema.depth() > MAX_DEPTH {
        return Err(SchemaError::TooDeep);
    }
    if schema.to_canonical_string().len() > MAX_BYTES {
        return Err(SchemaError::TooLarge);
    }
    let mut nodes = 0;
    let mut waiting = vec![schema];
    while let Some(value) = waiting.pop() {
        nodes += 1;
        match value {
            Value::Number(number) if !number.is_exact() => return Err(SchemaError::Number),
            Value::Array(items) => waiting.extend(items),
            Value::Object(object) => waiting.extend(object.values()),
            _ => {}
        }
    }
    if nodes > MAX_NODES { Err(SchemaError::TooManyNodes) } else { Ok(()) }
}

/// The value as the validator takes it, in memory only; `None` for a number that is not exact.
///
/// Recurses: the caller has bounded the depth.
pub(super) fn plain(value: &Value) -> Option<serde_json::Value> {
    Some(match value {
        Value::Null => serde_json::Value::Null,
        Value::Bool(value) => serde_json::Value::Bool(*value),
        Value::Number(number) => serde_json::Value::Number(plain_number(number)?),
        Value::String(text) => serde_json::Value::String(text.clone()),
        Value::Array(items) => {
            serde_json::Value::Array(items.iter().map(plain).collect::<Option<_>>()?)
        }
        Value::Object(object) => serde_json::Value::Object(
            object
                .iter()
                .map(|(key, value)| Some((key.to_owned(), plain(value)?)))
                .collect::<Option<_>>()?,
        ),
    })
}

fn plain_number(number: &Number) -> Option<serde_json::Number> {
    if let Some(int) = number.as_i64() {
        Some(int.into())
    } else if let Some(int) = number.as_u64() {
        Some(int.into())
    } else {
        serde_json::Number::from_f64(number.as_f64()?)
    }
}

/// The pointer to the first number that is not exact.
pub(super) fn inexact_path(value: &Value) -> Option<String> {
    match value {
        Value::Number(number) if !number.is_exact() => Some(String::new()),
        Value::Array(items) => items
            .iter()
            .enumerate()
            .find_map(|(index, item)| Some(format!("/{index}{}", inexact_path(item)?))),
        Value::Object(object) => object.iter().find_map(|(key, item)| {
            let tail = inexact_path(item)?;
            Some(format!("/{}{tail}", key.replace('~', "~0").replace('/', "~1")))
        }),
        _ => None,
    }
}
