//! The serde deserializer that reads a [`Value`].

use super::BridgeError;
use crate::number::Number;
use crate::object;
use crate::value::Value;
use serde::de::value::BorrowedStrDeserializer;
use serde::de::{self, Deserializer, IntoDeserializer, Visitor};
use serde::forward_to_deserialize_any;

/// Reads one value.
#[derive(Clone, Copy)]
pub(super) struct ValueDeserializer<'de>(pub(super) &'de Value);

/// The kind of a value, for errors.
fn kind(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "a boolean",
        Value::Number(_) => "a number",
        Value::String(_) => "a string",
        Value::Array(_) => "an array",
        Value::Object(_) => "an object",
    }
}

impl<'de> ValueDeserializer<'de> {
    fn shape(self, expected: &dyn de::Expected) -> BridgeError {
        BridgeError::Shape { expected: super::quoted(&expected), found: kind(self.0) }
    }

    /// An integer, whichever of the two widths holds it.
    fn integer<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, BridgeError> {
        let Value::Number(number) = self.0 else { return Err(self.shape(&visitor)) };
        match (number.as_i64(), number.as_u64()) {
            (Some(int), _) => visitor.visit_i64(int),
            (None, Some(int)) => visitor.visit_u64(int),
            (None, None) => Err(BridgeError::NotExact),
        }
    }

    fn float<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, BridgeError> {
        let Value::Number(number) = self.0 else { return Err(self.shape(&visitor)) };
        visitor.visit_f64(number.as_f64().ok_or(BridgeError::NotExact)?)
    }

    fn text<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, BridgeError> {
        match self.0 {
            Value::String(text) => visitor.visit_borrowed_str(text),
            _ => Err(self.shape(&visitor)),
        }
    }

    fn array<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, BridgeError> {
        match self.0 {
            Value::Array(items) => visit_array(items, visitor),
            _ => Err(self.shape(&visitor)),
        }
    }

    fn object<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, BridgeError> {
        match self.0 {
            Value::Object(object) => visit_object(object.iter(), visitor),
            _ => Err(self.shape(&visitor)),
        }
    }

    fn unit<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, BridgeError> {
        match self.0 {
            Value::Null => visitor.visit_unit(),
            _ => Err(self.shape(&visitor)),
        }
    }
}

fn visit_number<'de, V: Visitor<'de>>(
    number: &'de Number,
    visitor: V,
) -> Result<V::Value, BridgeError> {
    if let Some(int) = number.as_u64() {
        visitor.visit_u64(int)
    } else if let Some(int) = number.as_i64() {
        visitor.visit_i64(int)
    } else if let Some(double) = number.as_f64() {
        visitor.visit_f64(double)
    } else {
        // The one newtype that this deserializer hands out unasked; see `embed`.
        visitor.visit_newtype_struct(number.spelling().into_owned().into_deserializer())
    }
}

fn visit_array<'de, V: Visitor<'de>>(
    items: &'de [Value],
    visitor: V,
) -> Result<V::Value, BridgeError> {
    let mut rest = Items(items.iter());
    let built = visitor.visit_seq(&mut rest)?;
    match rest.0.next() {
        None => Ok(built),
        Some(_) => Err(BridgeError::Shape {
            expected: "an array of fewer items".to_owned(),
            found: "an array",
        }),
    }
}

fn visit_object<'de, V: Visitor<'de>>(
    entries: object::Iter<'de>,
    visitor: V,
) -> Result<V::Value, BridgeError> {
    let mut rest = Members { entries, value: None };
    let built = visitor.visit_map(&mut rest)?;
    match rest.entries.next() {
        None => Ok(built),
        Some((field, _)) => Err(BridgeError::UnknownField { field: super::quoted(&field) }),
    }
}

macro_rules! forward {
    ($method:ident: $($name:ident)*) => {
        $(fn $name<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, BridgeError> {
            self.$method(visitor)
        })*
    };
}

impl<'de> Deserializer<'de> for ValueDeserializer<'de> {
    type Error = BridgeError;

    forward!(integer: deserialize_i8 deserialize_i16 deserialize_i32 deserialize_i64
        deserialize_i128 deserialize_u8 deserialize_u16 deserialize_u32 deserialize_u64
        deserialize_u128);
    forward!(float: deserialize_f32 deserialize_f64);
    forward!(text: deserialize_char deserialize_str deserialize_string deserialize_identifier);
    forward!(array: deserialize_seq);
    forward!(object: deserialize_map);
    forward!(unit: deserialize_unit);

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, BridgeError> {
        match self.0 {
            Value::Null => visitor.visit_unit(),
            Value::Bool(value) => visitor.visit_bool(*value),
            Value::Number(number) => visit_number(number, visitor),
            Value::String(text) => visitor.visit_borrowed_str(text),
            Value::Array(items) => visit_array(items, visitor),
            Value::Object(object) => visit_object(object.iter(), visitor),
        }
    }

    fn deserialize_bool<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, BridgeError> {
        match self.0 {
            Value::Bool(value) => visitor.visit_bool(*value),
            _ => Err(self.shape(&visitor)),
        }
    }

    fn deserialize_bytes<V: Visitor<'de>>(self, _: V) -> Result<V::Value, BridgeError> {
        Err(BridgeError::Bytes)
    }

    fn deserialize_byte_buf<V: Visitor<'de>>(self, _: V) -> Result<V::Value, BridgeError> {
        Err(BridgeError::Bytes)
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, BridgeError> {
        match self.0 {
            Value::Null => visitor.visit_none(),
            _ => visitor.visit_some(self),
        }
    }

    fn deserialize_unit_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        visitor: V,
    ) -> Result<V::Value, BridgeError> {
        self.unit(visitor)
    }

    fn deserialize_newtype_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        visitor: V,
    ) -> Result<V::Value, BridgeError> {
        visitor.visit_newtype_struct(self)
    }

    fn deserialize_tuple<V: Visitor<'de>>(
        self,
        _: usize,
        visitor: V,
    ) -> Result<V::Value, BridgeError> {
        self.array(visitor)
    }

    fn deserialize_tuple_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        _: usize,
        visitor: V,
    ) -> Result<V::Value, BridgeError> {
        self.array(visitor)
    }

    fn deserialize_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        _: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, BridgeError> {
        self.object(visitor)
    }

    fn deserialize_enum<V: Visitor<'de>>(
        self,
        _: &'static str,
        _: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, BridgeError> {
        let (variant, content) = match self.0 {
            Value::String(variant) => (variant.as_str(), None),
            Value::Object(object) if object.len() == 1 => {
                let mut entries = object.iter();
                let (variant, content) = entries.next().ok_or_else(|| self.shape(&visitor))?;
                (variant, Some(content))
            }
            _ => return Err(self.shape(&visitor)),
        };
        visitor.visit_enum(Enum { variant, content })
    }

    fn deserialize_ignored_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, BridgeError> {
        visitor.visit_unit()
    }
}

/// The items of an array.
struct Items<'de>(std::slice::Iter<'de, Value>);

impl<'de> de::SeqAccess<'de> for Items<'de> {
    type Error = BridgeError;

    fn next_element_seed<T: de::DeserializeSeed<'de>>(
        &mut self,
        seed: T,
    ) -> Result<Option<T::Value>, BridgeError> {
        self.0.next().map(|item| seed.deserialize(ValueDeserializer(item))).transpose()
    }

    fn size_hint(&self) -> Option<usize> {
        Some(self.0.len())
    }
}

/// The members of an object.
struct Members<'de> {
    entries: object::Iter<'de>,
    value: Option<&'de Value>,
}

impl<'de> de::MapAccess<'de> for Members<'de> {
    type Error = BridgeError;

    fn next_key_seed<K: de::DeserializeSeed<'de>>(
        &mut self,
        seed: K,
    ) -> Result<Option<K::Value>, BridgeError> {
        let Some((key, value)) = self.entries.next() else { return Ok(None) };
        self.value = Some(value);
        seed.deserialize(KeyDeserializer(key)).map(Some)
    }

    fn next_value_seed<V: de::DeserializeSeed<'de>>(
        &mut self,
        seed: V,
    ) -> Result<V::Value, BridgeError> {
        let value = self.value.take().ok_or(BridgeError::Key)?;
        seed.deserialize(ValueDeserializer(value))
    }

    fn size_hint(&self) -> Option<usize> {
        Some(self.entries.len())
    }
}

/// A key, which is text that may have to be read as an integer or a unit variant.
struct KeyDeserializer<'de>(&'de str);

impl<'de> KeyDeserializer<'de> {
    /// An integer in the one spelling that the serializer gives it.
    fn integer<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, BridgeError> {
        let number: Number = self.0.parse().map_err(|_| BridgeError::Key)?;
        if number.spelling() != self.0 {
            return Err(BridgeError::Key);
        }
        match (number.as_i64(), number.as_u64()) {
            (Some(int), _) => visitor.visit_i64(int),
            (None, Some(int)) => visitor.visit_u64(int),
            (None, None) => Err(BridgeError::Key),
        }
    }
}

impl<'de> Deserializer<'de> for KeyDeserializer<'de> {
    type Error = BridgeError;

    forward!(integer: deserialize_i8 deserialize_i16 deserialize_i32 deserialize_i64
        deserialize_i128 deserialize_u8 deserialize_u16 deserialize_u32 deserialize_u64
        deserialize_u128);

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, BridgeError> {
        visitor.visit_borrowed_str(self.0)
    }

    fn deserialize_newtype_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        visitor: V,
    ) -> Result<V::Value, BridgeError> {
        visitor.visit_newtype_struct(self)
    }

    fn deserialize_enum<V: Visitor<'de>>(
        self,
        _: &'static str,
        _: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, BridgeError> {
        visitor.visit_enum(BorrowedStrDeserializer::new(self.0))
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, BridgeError> {
        visitor.visit_some(self)
    }

    forward_to_deserialize_any! {
        bool f32 f64 char str string bytes byte_buf unit unit_struct seq tuple tuple_struct map
        struct identifier ignored_any
    }
}

/// A variant by name, with what it holds.
struct Enum<'de> {
    variant: &'de str,
    content: Option<&'de Value>,
}

impl<'de> de::EnumAccess<'de> for Enum<'de> {
    type Error = BridgeError;
    type Variant = Content<'de>;

    fn variant_seed<V: de::DeserializeSeed<'de>>(
        self,
        seed: V,
    ) -> Result<(V::Value, Content<'de>), BridgeError> {
        let variant =
            seed.deserialize(BorrowedStrDeserializer::<BridgeError>::new(self.variant))?;
        Ok((variant, Content(self.content)))
    }
}

/// What a variant holds: nothing when it was written as a string.
struct Content<'de>(Option<&'de Value>);

impl<'de> Content<'de> {
    fn required(self, expected: &str) -> Result<ValueDeserializer<'de>, BridgeError> {
        self.0.map(ValueDeserializer).ok_or_else(|| BridgeError::Shape {
            expected: expected.to_owned(),
            found: "a variant without content",
        })
    }
}

impl<'de> de::VariantAccess<'de> for Content<'de> {
    type Error = BridgeError;

    fn unit_variant(self) -> Result<(), BridgeError> {
        match self.0 {
            None => Ok(()),
            Some(_) => Err(BridgeError::Shape {
                expected: "a variant without content".to_owned(),
                found: "an object",
            }),
        }
    }

    fn newtype_variant_seed<T: de::DeserializeSeed<'de>>(
        self,
        seed: T,
    ) -> Result<T::Value, BridgeError> {
        seed.deserialize(self.required("a variant with content")?)
    }

    fn tuple_variant<V: Visitor<'de>>(self, _: usize, visitor: V) -> Result<V::Value, BridgeError> {
        self.required("a variant with an array")?.array(visitor)
    }

    fn struct_variant<V: Visitor<'de>>(
        self,
        _: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, BridgeError> {
        self.required("a variant with an object")?.object(visitor)
    }
}
