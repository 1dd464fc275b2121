//! Serde for [`Value`] itself, so that wire types can hold one.
//!
//! A number that `i64`, `u64` or a double holds travels as that. Any other travels through our own
//! bridge as a newtype of a private name around its spelling, and comes out as it went in. Foreign
//! serializers see that newtype as a string: a spelling too many digits long, rather than a wrong
//! number.

use crate::number::Number;
use crate::object::Object;
use crate::value::Value;
use serde::de::{self, Deserialize, Deserializer, MapAccess, SeqAccess, Visitor};
use serde::ser::{Serialize, Serializer};
use std::fmt;

/// The name by which our own bridge knows the spelling of a number.
pub(super) const EXACT_NUMBER: &str = "$portcullis::canon::Number";

impl Serialize for Number {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        if let Some(int) = self.as_i64() {
            serializer.serialize_i64(int)
        } else if let Some(int) = self.as_u64() {
            serializer.serialize_u64(int)
        } else if let Some(double) = self.as_f64() {
            serializer.serialize_f64(double)
        } else {
            serializer.serialize_newtype_struct(EXACT_NUMBER, self.spelling().as_ref())
        }
    }
}

impl Serialize for Value {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Null => serializer.serialize_unit(),
            Self::Bool(value) => serializer.serialize_bool(*value),
            Self::Number(number) => number.serialize(serializer),
            Self::String(text) => serializer.serialize_str(text),
            Self::Array(items) => serializer.collect_seq(items),
            Self::Object(object) => object.serialize(serializer),
        }
    }
}

impl Serialize for Object {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map(self)
    }
}

impl<'de> Deserialize<'de> for Value {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(AnyValue)
    }
}

impl<'de> Deserialize<'de> for Object {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        match deserializer.deserialize_map(AnyValue)? {
            Value::Object(object) => Ok(object),
            _ => Err(de::Error::custom("expected an object")),
        }
    }
}

impl<'de> Deserialize<'de> for Number {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        match deserializer.deserialize_any(AnyValue)? {
            Value::Number(number) => Ok(number),
            _ => Err(de::Error::custom("expected a number")),
        }
    }
}

struct AnyValue;

impl<'de> Visitor<'de> for AnyValue {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a json value")
    }

    fn visit_unit<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_none<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_some<D: Deserializer<'de>>(self, deserializer: D) -> Result<Value, D::Error> {
        Value::deserialize(deserializer)
    }

    fn visit_bool<E>(self, value: bool) -> Result<Value, E> {
        Ok(Value::Bool(value))
    }

    fn visit_i64<E>(self, value: i64) -> Result<Value, E> {
        Ok(Value::Number(value.into()))
    }

    fn visit_u64<E>(self, value: u64) -> Result<Value, E> {
        Ok(Value::Number(value.into()))
    }

    fn visit_f64<E: de::Error>(self, value: f64) -> Result<Value, E> {
        Number::from_f64(value)
            .map(Value::Number)
            .ok_or_else(|| E::custom("a float that is not finite has no json form"))
    }

    fn visit_str<E>(self, text: &str) -> Result<Value, E> {
        Ok(Value::String(text.to_owned()))
    }

    fn visit_string<E>(self, text: String) -> Result<Value, E> {
        Ok(Value::String(text))
    }

    /// Our deserializer hands out a newtype only for a number without a machine type.
    fn visit_newtype_struct<D: Deserializer<'de>>(self, inner: D) -> Result<Value, D::Error> {
        let spelling = String::deserialize(inner)?;
        spelling.parse().map(Value::Number).map_err(de::Error::custom)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Value, A::Error> {
        let mut array = Vec::new();
        while let Some(item) = items.next_element()? {
            array.push(item);
        }
        Ok(Value::Array(array))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut entries: A) -> Result<Value, A::Error> {
        let mut read = Vec::new();
        while let Some(entry) = entries.next_entry::<String, Value>()? {
            read.push(entry);
        }
        match Object::from_read(read) {
            (object, true) => Ok(Value::Object(object)),
            (_, false) => Err(de::Error::custom("object repeats a key")),
        }
    }
}
