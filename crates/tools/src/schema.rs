//! The pieces that the tools' input schemas are made of.

use portcullis_canon::{Object, Value};

use crate::encoding::Encoding;

/// The most characters of `content`: as many as fit into one proposal.
const MAX_CONTENT_CHARS: u64 = 1024 * 1024;

/// An object schema that admits these properties and no other.
pub(crate) fn object(
    properties: impl IntoIterator<Item = (&'static str, Value)>,
    required: &[&'static str],
) -> Value {
    let required: Value = required.iter().copied().collect();
    described([
        ("type", Value::from("object")),
        ("properties", Value::Object(Object::from_iter(properties))),
        ("required", required),
        ("additionalProperties", Value::from(false)),
    ])
}

/// Content, as text or as base64.
pub(crate) fn content(what: &str) -> Value {
    described([
        ("type", Value::from("string")),
        ("description", Value::from(format!("{what}, written as `encoding` says"))),
        ("maxLength", Value::from(MAX_CONTENT_CHARS)),
    ])
}

/// How `content` is written.
pub(crate) fn encoding() -> Value {
    let names: Value =
        [Encoding::Utf8, Encoding::Base64].map(Encoding::as_str).into_iter().collect();
    described([
        ("enum", names),
        ("description", Value::from("`utf8` for text, `base64` for anything else")),
        ("default", Value::from(Encoding::default().as_str())),
    ])
}

/// A whole number with bounds and a default.
pub(crate) fn integer(what: &str, least: u64, most: u64, default: u64) -> Value {
    described([
        ("type", Value::from("integer")),
        ("description", Value::from(what)),
        ("minimum", Value::from(least)),
        ("maximum", Value::from(most)),
        ("default", Value::from(default)),
    ])
}

/// Text of bounded length.
pub(crate) fn text(what: &str, least: u64, most: u64) -> Value {
    described([
        ("type", Value::from("string")),
        ("description", Value::from(what)),
        ("minLength", Value::from(least)),
        ("maxLength", Value::from(most)),
    ])
}

/// Yes or no, by default no.
pub(crate) fn flag(what: &str) -> Value {
    described([
        ("type", Value::from("boolean")),
        ("description", Value::from(what)),
        ("default", Value::from(false)),
    ])
}

/// A schema, or a property of one, from its members.
pub(crate) fn described<const N: usize>(members: [(&'static str, Value); N]) -> Value {
    Value::Object(Object::from_iter(members))
}
