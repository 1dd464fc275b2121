//! Rust types to [`Value`] and back, by way of serde.
//!
//! Wire types derive `Serialize` and `Deserialize`; this bridge sees to it that their bytes only
//! ever pass our own parser and encoder. What it holds to:
//!
//! - bytes, NaN and infinities are refused, and so is a value nested deeper than an envelope;
//! - a map key is a string, or an integer or unit variant in its plain spelling; none stands twice;
//! - a struct is read from an object only, a unit variant from a string only;
//! - an integer field takes any spelling of its integer (`10`, `1e1`), a float field only a
//!   decimal that a double holds exactly; nothing is rounded;
//! - an embedded [`Value`] keeps numbers that no machine type holds, exactly.
//!
//! Two leniencies are serde's own, since it buffers inside internally tagged, untagged and flattened
//! types: from that buffer it also reads a struct out of an array of the right length, and it lets
//! unknown fields stand beside a unit variant with an internal tag (`Bye {}` refuses them).

mod de;
mod embed;
mod ser;
mod text;

use crate::limits::Limits;
use crate::parse::{ParseError, parse};
use crate::sanitize;
use crate::value::Value;
use serde::{Serialize, de::DeserializeOwned};
use std::fmt;

/// Why a value does not fit a Rust type, or the other way round.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BridgeError {
    /// Bytes have no JSON form here; the type should say hex or base64.
    #[error("bytes have no json form")]
    Bytes,
    /// NaN or an infinity.
    #[error("a float that is not finite has no json form")]
    NotFinite,
    /// A decimal that the machine type asked for cannot hold exactly.
    #[error("number cannot be held exactly")]
    NotExact,
    /// A map key that is no string, integer or unit variant.
    #[error("an object key must be text")]
    Key,
    /// A key that stands twice.
    #[error("object repeats a key")]
    DuplicateKey,
    /// More nesting than an envelope may have.
    #[error("value is nested deeper than the limit")]
    TooDeep,
    /// A value of another shape than the type wants.
    #[error("expected {expected}, found {found}")]
    Shape {
        /// What the type wanted.
        expected: String,
        /// What kind of value was there; never the value.
        found: &'static str,
    },
    /// A field that the type does not have; the name is sanitised and clipped.
    #[error("unknown field {field}")]
    UnknownField {
        /// The name of the field.
        field: String,
    },
    /// A variant that the enum does not have; the name is sanitised and clipped.
    #[error("unknown variant {variant}")]
    UnknownVariant {
        /// The name of the variant.
        variant: String,
    },
    /// A field that the type requires.
    #[error("missing field {field}")]
    MissingField {
        /// The name of the field.
        field: &'static str,
    },
    /// A field that the text names twice, as by an alias.
    #[error("field {field} stands twice")]
    DuplicateField {
        /// The name of the field.
        field: &'static str,
    },
    /// A refusal by the type itself, in its own words, sanitised and clipped.
    #[error("{reason}")]
    Refused {
        /// What the type said.
        reason: String,
    },
}

/// Why bytes do not become a Rust type.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DecodeError {
    /// The bytes are no acceptable JSON.
    #[error(transparent)]
    Parse(#[from] ParseError),
    /// The JSON does not fit the type.
    #[error(transparent)]
    Bridge(#[from] BridgeError),
}

/// The longest piece of foreign text in an error, in bytes.
const MAX_TEXT: usize = 200;

/// Foreign text as it may stand in an error.
fn quoted(text: &dyn fmt::Display) -> String {
    sanitize::clip(&sanitize::line(&text.to_string()), MAX_TEXT)
}

impl serde::ser::Error for BridgeError {
    fn custom<T: fmt::Display>(message: T) -> Self {
        Self::Refused { reason: quoted(&message) }
    }
}

impl serde::de::Error for BridgeError {
    fn custom<T: fmt::Display>(message: T) -> Self {
        Self::Refused { reason: quoted(&message) }
    }

    fn invalid_type(found: serde::de::Unexpected<'_>, expected: &dyn serde::de::Expected) -> Self {
        Self::Shape { expected: quoted(&expected), found: kind_of(&found) }
    }

    fn invalid_value(found: serde::de::Unexpected<'_>, expected: &dyn serde::de::Expected) -> Self {
        Self::Shape { expected: quoted(&expected), found: kind_of(&found) }
    }

    fn unknown_field(field: &str, _: &'static [&'static str]) -> Self {
        Self::UnknownField { field: quoted(&field) }
    }

    fn unknown_variant(variant: &str, _: &'static [&'static str]) -> Self {
        Self::UnknownVariant { variant: quoted(&variant) }
    }

    fn missing_field(field: &'static str) -> Self {
        Self::MissingField { field }
    }

    fn duplicate_field(field: &'static str) -> Self {
        Self::DuplicateField { field }
    }
}

/// What serde stumbled over, without the value that its own message would quote.
fn kind_of(found: &serde::de::Unexpected<'_>) -> &'static str {
    use serde::de::Unexpected as U;
    match found {
        U::Bool(_) => "a boolean",
        U::Unsigned(_) | U::Signed(_) | U::Float(_) => "a number out of range",
        U::Char(_) | U::Str(_) => "a string",
        U::Unit | U::Option => "null",
        U::Seq => "an array",
        U::Map => "an object",
        _ => "another shape",
    }
}

/// The value that `source` serialises to.
///
/// # Errors
///
/// What JSON cannot hold, and nesting beyond [`Limits::ENVELOPE`].
pub fn to_value<T: Serialize + ?Sized>(source: &T) -> Result<Value, BridgeError> {
    source.serialize(ser::ValueSerializer { room: Limits::ENVELOPE.max_depth })
}

/// The type that `value` describes.
///
/// # Errors
///
/// A value of another shape, or one that the type refuses.
pub fn from_value<T: DeserializeOwned>(value: &Value) -> Result<T, BridgeError> {
    T::deserialize(de::ValueDeserializer(value))
}

/// The type that a JSON document describes, read by [`parse`].
///
/// # Errors
///
/// What [`parse`] refuses, then what [`from_value`] refuses.
pub fn from_slice<T: DeserializeOwned>(bytes: &[u8], limits: &Limits) -> Result<T, DecodeError> {
    Ok(from_value(&parse(bytes, limits)?)?)
}

/// The canonical bytes of what `source` serialises to.
///
/// # Errors
///
/// As [`to_value`].
pub fn to_vec<T: Serialize + ?Sized>(source: &T) -> Result<Vec<u8>, BridgeError> {
    Ok(to_text(source)?.into_bytes())
}

/// The canonical text of what `source` serialises to.
///
/// # Errors
///
/// As [`to_value`].
pub fn to_text<T: Serialize + ?Sized>(source: &T) -> Result<String, BridgeError> {
    let mut out = String::with_capacity(256);
    let room = Limits::ENVELOPE.max_depth;
    source.serialize(text::TextSerializer { out: &mut out, room })?;
    Ok(out)
}
