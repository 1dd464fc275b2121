//! JSON values.

use crate::encode;
use crate::number::Number;
use crate::object::Object;

/// A JSON value.
///
/// Equality is that of the canonical bytes: numbers by the decimal they denote, objects without
/// regard to the order in which their entries were written.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub enum Value {
    /// `null`.
    #[default]
    Null,
    /// `true` or `false`.
    Bool(bool),
    /// An exact decimal.
    Number(Number),
    /// Text.
    String(String),
    /// Values in order.
    Array(Vec<Value>),
    /// Values under unique keys.
    Object(Object),
}

impl Value {
    /// The member under `key`, when this is an object that has it.
    #[must_use]
    pub fn get(&self, key: &str) -> Option<&Value> {
        self.as_object()?.get(key)
    }

    /// The text of a string.
    #[must_use]
    pub fn as_str(&self) -> Option<&str> {
        match self {
            Self::String(text) => Some(text),
            _ => None,
        }
    }

    /// The value of a boolean.
    #[must_use]
    pub fn as_bool(&self) -> Option<bool> {
        match self {
            Self::Bool(value) => Some(*value),
            _ => None,
        }
    }

    /// The number, whatever its size.
    #[must_use]
    pub fn as_number(&self) -> Option<&Number> {
        match self {
            Self::Number(number) => Some(number),
            _ => None,
        }
    }

    /// The value of an integer within `i64`.
    #[must_use]
    pub fn as_i64(&self) -> Option<i64> {
        self.as_number()?.as_i64()
    }

    /// The value of an integer within `u64`.
    #[must_use]
    pub fn as_u64(&self) -> Option<u64> {
        self.as_number()?.as_u64()
    }

    /// The items of an array.
    #[must_use]
    pub fn as_array(&self) -> Option<&[Value]> {
        match self {
            Self::Array(items) => Some(items),
            _ => None,
        }
    }

    /// The object.
    #[must_use]
    pub fn as_object(&self) -> Option<&Object> {
        match self {
            Self::Object(object) => Some(object),
            _ => None,
        }
    }

    /// Whether this is `null`.
    #[must_use]
    pub fn is_null(&self) -> bool {
        matches!(self, Self::Null)
    }

    /// The value that a JSON pointer (RFC 6901) names: `""` is the whole, `"/a/0"` the first item
    /// of the member `a`.
    #[must_use]
    pub fn pointer(&self, pointer: &str) -> Option<&Value> {
        if pointer.is_empty() {
            return Some(self);
        }
        pointer.strip_prefix('/')?.split('/').try_fold(self, |value, token| match value {
            Self::Object(object) if token.contains('~') => object.get(&unescape_token(token)?),
            Self::Object(object) => object.get(token),
            Self::Array(items) => items.get(array_index(token)?),
            _ => None,
        })
    }

    /// The canonical bytes: what is hashed and stored.
    #[must_use]
    pub fn to_canonical(&self) -> Vec<u8> {
        self.to_canonical_string().into_bytes()
    }

    /// The canonical bytes as text.
    #[must_use]
    pub fn to_canonical_string(&self) -> String {
        let mut out = String::new();
        encode::write_value(&mut out, self);
        out
    }

    /// The deepest nesting in brackets: 0 for a scalar, 1 for `[]`.
    ///
    /// Never recurses, so that it can be asked of a value of any depth.
    #[must_use]
    pub fn depth(&self) -> u32 {
        let mut deepest = 0;
        let mut waiting = vec![(self, 1_u32)];
        while let Some((value, depth)) = waiting.pop() {
            match value {
                Self::Array(items) => {
                    deepest = deepest.max(depth);
                    waiting.extend(items.iter().map(|item| (item, depth.saturating_add(1))));
                }
                Self::Object(object) => {
                    deepest = deepest.max(depth);
                    waiting.extend(object.values().map(|item| (item, depth.saturating_add(1))));
                }
                _ => {}
            }
        }
        deepest
    }
}

/// Undoes `~1` and `~0`; `None` for a tilde that escapes nothing.
fn unescape_token(token: &str) -> Option<String> {
    let mut out = String::with_capacity(token.len());
    let mut chars = token.chars();
    while let Some(c) = chars.next() {
        out.push(match c {
            '~' => match chars.next()? {
                '0' => '~',
                '1' => '/',
                _ => return None,
            },
            other => other,
        });
    }
    Some(out)
}

/// An index as the pointer grammar has it: no sign, no leading zero.
fn array_index(token: &str) -> Option<usize> {
    let plain =
        token == "0" || (!token.starts_with('0') && token.bytes().all(|b| b.is_ascii_digit()));
    if plain { token.parse().ok() } else { None }
}

impl From<&str> for Value {
    fn from(text: &str) -> Self {
        Self::String(text.to_owned())
    }
}

impl From<String> for Value {
    fn from(text: String) -> Self {
        Self::String(text)
    }
}

impl From<bool> for Value {
    fn from(value: bool) -> Self {
        Self::Bool(value)
    }
}

impl From<Number> for Value {
    fn from(number: Number) -> Self {
        Self::Number(number)
    }
}

impl From<i32> for Value {
    fn from(value: i32) -> Self {
        Self::Number(i64::from(value).into())
    }
}

impl From<i64> for Value {
    fn from(value: i64) -> Self {
        Self::Number(value.into())
    }
}

impl From<u32> for Value {
    fn from(value: u32) -> Self {
        Self::Number(i64::from(value).into())
    }
}

impl From<u64> for Value {
    fn from(value: u64) -> Self {
        Self::Number(value.into())
    }
}

impl From<usize> for Value {
    fn from(value: usize) -> Self {
        // A usize has at most 64 bits on every platform that Rust supports.
        Self::Number(u64::try_from(value).unwrap_or(u64::MAX).into())
    }
}

impl From<Vec<Value>> for Value {
    fn from(items: Vec<Value>) -> Self {
        Self::Array(items)
    }
}

impl From<Object> for Value {
    fn from(object: Object) -> Self {
        Self::Object(object)
    }
}

impl<T: Into<Value>> From<Option<T>> for Value {
    /// `None` becomes `null`.
    fn from(value: Option<T>) -> Self {
        value.map_or(Self::Null, Into::into)
    }
}

impl<T: Into<Value>> FromIterator<T> for Value {
    /// Collects an array.
    fn from_iter<I: IntoIterator<Item = T>>(items: I) -> Self {
        Self::Array(items.into_iter().map(Into::into).collect())
    }
}
