//! Values as the validator takes them: in memory only, and only where no number changes.

use crate::number::Number;
use crate::value::Value;

/// The value for the validator; `None` for a number that no machine type holds exactly.
///
/// Recurses: the caller has bounded the depth.
pub(super) fn plain(value: &Value) -> Option<serde_json::Value> {
    use serde_json::Value as Plain;
    // Plain loops: chained adapters take several times the stack.
    Some(match value {
        Value::Null => Plain::Null,
        Value::Bool(value) => Plain::Bool(*value),
        Value::Number(number) => Plain::Number(plain_number(number)?),
        Value::String(text) => Plain::String(text.clone()),
        Value::Array(items) => {
            let mut array = Vec::with_capacity(items.len());
            for item in items {
                array.push(plain(item)?);
            }
            Plain::Array(array)
        }
        Value::Object(object) => {
            let mut map = serde_json::Map::with_capacity(object.len());
            for (key, member) in object {
                map.insert(key.to_owned(), plain(member)?);
            }
            Plain::Object(map)
        }
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

/// The pointer to the first number that is not exact. Recurses as [`plain`] does.
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
