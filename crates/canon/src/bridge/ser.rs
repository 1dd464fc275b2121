//! The serde serializer that builds a [`Value`].

use super::BridgeError;
use super::embed::EXACT_NUMBER;
use crate::number::Number;
use crate::object::Object;
use crate::value::Value;
use std::fmt::{Display, Write as _};

use serde::Serialize;
use serde::ser::{self, Serializer};

type Built = Result<Value, BridgeError>;

/// Builds one value; `room` is how many brackets may still be opened.
#[derive(Clone, Copy)]
pub(super) struct ValueSerializer {
    pub(super) room: u32,
}

impl ValueSerializer {
    /// For what stands inside one bracket more.
    fn inside(self) -> Result<Self, BridgeError> {
        self.room.checked_sub(1).map(|room| Self { room }).ok_or(BridgeError::TooDeep)
    }

    fn list(self, variant: Option<&'static str>) -> Result<List, BridgeError> {
        let outer = if variant.is_some() { self.inside()? } else { self };
        Ok(List { inside: outer.inside()?, items: Vec::new(), variant })
    }

    fn entries(self, variant: Option<&'static str>) -> Result<Entries, BridgeError> {
        let outer = if variant.is_some() { self.inside()? } else { self };
        Ok(Entries { inside: outer.inside()?, object: Object::new(), key: None, variant })
    }
}

/// Wraps what a variant holds into `{"variant": …}`.
fn tagged(variant: Option<&'static str>, value: Value) -> Value {
    match variant {
        None => value,
        Some(name) => Value::Object(std::iter::once((name, value)).collect()),
    }
}

/// For a type whose `Display` says that it failed.
pub(super) fn not_formatted() -> BridgeError {
    ser::Error::custom("a text could not be formatted")
}

fn wide(text: String) -> Built {
    text.parse::<Number>().map(Value::Number).map_err(|_| BridgeError::NotExact)
}

impl Serializer for ValueSerializer {
    type Ok = Value;
    type Error = BridgeError;
    type SerializeSeq = List;
    type SerializeTuple = List;
    type SerializeTupleStruct = List;
    type SerializeTupleVariant = List;
    type SerializeMap = Entries;
    type SerializeStruct = Entries;
    type SerializeStructVariant = Entries;

    fn serialize_bool(self, v: bool) -> Built {
        Ok(Value::Bool(v))
    }

    fn serialize_i8(self, v: i8) -> Built {
        self.serialize_i64(v.into())
    }

    fn serialize_i16(self, v: i16) -> Built {
        self.serialize_i64(v.into())
    }

    fn serialize_i32(self, v: i32) -> Built {
        self.serialize_i64(v.into())
    }

    fn serialize_i64(self, v: i64) -> Built {
        Ok(Value::Number(v.into()))
    }

    fn serialize_i128(self, v: i128) -> Built {
        wide(v.to_string())
    }

    fn serialize_u8(self, v: u8) -> Built {
        self.serialize_u64(v.into())
    }

    fn serialize_u16(self, v: u16) -> Built {
        self.serialize_u64(v.into())
    }

    fn serialize_u32(self, v: u32) -> Built {
        self.serialize_u64(v.into())
    }

    fn serialize_u64(self, v: u64) -> Built {
        Ok(Value::Number(v.into()))
    }

    fn serialize_u128(self, v: u128) -> Built {
        wide(v.to_string())
    }

    /// By the shortest spelling of the single, which is not that of the double next to it.
    fn serialize_f32(self, v: f32) -> Built {
        if !v.is_finite() {
            return Err(BridgeError::NotFinite);
        }
        wide(ryu_js::Buffer::new().format_finite(v).to_owned())
    }

    fn serialize_f64(self, v: f64) -> Built {
        Number::from_f64(v).map(Value::Number).ok_or(BridgeError::NotFinite)
    }

    fn serialize_char(self, v: char) -> Built {
        Ok(Value::String(v.to_string()))
    }

    fn serialize_str(self, v: &str) -> Built {
        Ok(Value::String(v.to_owned()))
    }

    fn collect_str<T: Display + ?Sized>(self, value: &T) -> Built {
        let mut text = String::new();
        write!(text, "{value}").map_err(|_| not_formatted())?;
        Ok(Value::String(text))
    }

    fn serialize_bytes(self, _: &[u8]) -> Built {
        Err(BridgeError::Bytes)
    }

    fn serialize_none(self) -> Built {
        Ok(Value::Null)
    }

    fn serialize_some<T: Serialize + ?Sized>(self, value: &T) -> Built {
        value.serialize(self)
    }

    fn serialize_unit(self) -> Built {
        Ok(Value::Null)
    }

    fn serialize_unit_struct(self, _: &'static str) -> Built {
        Ok(Value::Null)
    }

    fn serialize_unit_variant(self, _: &'static str, _: u32, variant: &'static str) -> Built {
        Ok(Value::String(variant.to_owned()))
    }

    fn serialize_newtype_struct<T: Serialize + ?Sized>(
        self,
        name: &'static str,
        value: &T,
    ) -> Built {
        let built = value.serialize(self)?;
        match built {
            Value::String(text) if name == EXACT_NUMBER => wide(text),
            other => Ok(other),
        }
    }

    fn serialize_newtype_variant<T: Serialize + ?Sized>(
        self,
        _: &'static str,
        _: u32,
        variant: &'static str,
        value: &T,
    ) -> Built {
        Ok(tagged(Some(variant), value.serialize(self.inside()?)?))
    }

    fn serialize_seq(self, _: Option<usize>) -> Result<List, BridgeError> {
        self.list(None)
    }

    fn serialize_tuple(self, _: usize) -> Result<List, BridgeError> {
        self.list(None)
    }

    fn serialize_tuple_struct(self, _: &'static str, _: usize) -> Result<List, BridgeError> {
        self.list(None)
    }

    fn serialize_tuple_variant(
        self,
        _: &'static str,
        _: u32,
        variant: &'static str,
        _: usize,
    ) -> Result<List, BridgeError> {
        self.list(Some(variant))
    }

    fn serialize_map(self, _: Option<usize>) -> Result<Entries, BridgeError> {
        self.entries(None)
    }

    fn serialize_struct(self, _: &'static str, _: usize) -> Result<Entries, BridgeError> {
        self.entries(None)
    }

    fn serialize_struct_variant(
        self,
        _: &'static str,
        _: u32,
        variant: &'static str,
        _: usize,
    ) -> Result<Entries, BridgeError> {
        self.entries(Some(variant))
    }
}

/// An array being built.
pub(super) struct List {
    inside: ValueSerializer,
    items: Vec<Value>,
    variant: Option<&'static str>,
}

impl List {
    fn push<T: Serialize + ?Sized>(&mut self, value: &T) -> Result<(), BridgeError> {
        self.items.push(value.serialize(self.inside)?);
        Ok(())
    }

    fn close(self) -> Value {
        tagged(self.variant, Value::Array(self.items))
    }
}

impl ser::SerializeSeq for List {
    type Ok = Value;
    type Error = BridgeError;

    fn serialize_element<T: Serialize + ?Sized>(&mut self, value: &T) -> Result<(), BridgeError> {
        self.push(value)
    }

    fn end(self) -> Built {
        Ok(self.close())
    }
}

impl ser::SerializeTuple for List {
    type Ok = Value;
    type Error = BridgeError;

    fn serialize_element<T: Serialize + ?Sized>(&mut self, value: &T) -> Result<(), BridgeError> {
        self.push(value)
    }

    fn end(self) -> Built {
        Ok(self.close())
    }
}

impl ser::SerializeTupleStruct for List {
    type Ok = Value;
    type Error = BridgeError;

    fn serialize_field<T: Serialize + ?Sized>(&mut self, value: &T) -> Result<(), BridgeError> {
        self.push(value)
    }

    fn end(self) -> Built {
        Ok(self.close())
    }
}

impl ser::SerializeTupleVariant for List {
    type Ok = Value;
    type Error = BridgeError;

    fn serialize_field<T: Serialize + ?Sized>(&mut self, value: &T) -> Result<(), BridgeError> {
        self.push(value)
    }

    fn end(self) -> Built {
        Ok(self.close())
    }
}

/// An object being built.
pub(super) struct Entries {
    inside: ValueSerializer,
    object: Object,
    key: Option<String>,
    variant: Option<&'static str>,
}

impl Entries {
    fn put<T: Serialize + ?Sized>(&mut self, key: String, value: &T) -> Result<(), BridgeError> {
        let value = value.serialize(self.inside)?;
        match self.object.insert(key, value) {
            None => Ok(()),
            Some(_) => Err(BridgeError::DuplicateKey),
        }
    }

    fn close(self) -> Value {
        tagged(self.variant, Value::Object(self.object))
    }
}

/// A key is whatever serialises to a string or an integer; no container gets any room.
pub(super) fn key<T: Serialize + ?Sized>(key: &T) -> Result<String, BridgeError> {
    match key.serialize(ValueSerializer { room: 0 }) {
        Ok(Value::String(text)) => Ok(text),
        Ok(Value::Number(number)) if number.is_integer() => Ok(number.to_string()),
        Ok(_) | Err(BridgeError::TooDeep) => Err(BridgeError::Key),
        Err(error) => Err(error),
    }
}

impl ser::SerializeMap for Entries {
    type Ok = Value;
    type Error = BridgeError;

    fn serialize_key<T: Serialize + ?Sized>(&mut self, key: &T) -> Result<(), BridgeError> {
        self.key = Some(self::key(key)?);
        Ok(())
    }

    fn serialize_value<T: Serialize + ?Sized>(&mut self, value: &T) -> Result<(), BridgeError> {
        let key = self.key.take().ok_or(BridgeError::Key)?;
        self.put(key, value)
    }

    fn end(self) -> Built {
        Ok(self.close())
    }
}

impl ser::SerializeStruct for Entries {
    type Ok = Value;
    type Error = BridgeError;

    fn serialize_field<T: Serialize + ?Sized>(
        &mut self,
        key: &'static str,
        value: &T,
    ) -> Result<(), BridgeError> {
        self.put(key.to_owned(), value)
    }

    fn end(self) -> Built {
        Ok(self.close())
    }
}

impl ser::SerializeStructVariant for Entries {
    type Ok = Value;
    type Error = BridgeError;

    fn serialize_field<T: Serialize + ?Sized>(
        &mut self,
        key: &'static str,
        value: &T,
    ) -> Result<(), BridgeError> {
        self.put(key.to_owned(), value)
    }

    fn end(self) -> Built {
        Ok(self.close())
    }
}
