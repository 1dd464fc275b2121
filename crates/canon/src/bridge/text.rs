//! The serde serializer that writes canonical text at once, without a [`Value`] in between.
//!
//! It accepts and refuses what [`super::ser::ValueSerializer`] does, and writes what that one's value would be
//! written as.

use std::fmt::{self, Display, Write as _};
use std::ops::Range;

use serde::Serialize;
use serde::ser::{self, Serializer};

use super::BridgeError;
use super::embed::EXACT_NUMBER;
use super::ser::{ValueSerializer, not_formatted};
use crate::encode::{write_escaped, write_string, write_value};
use crate::number::Number;
use crate::object::compare_keys;
use crate::value::Value;

type Written = Result<(), BridgeError>;

/// Appends one value to `out`; `room` is how many brackets may still be opened.
pub(super) struct TextSerializer<'a> {
    pub(super) out: &'a mut String,
    pub(super) room: u32,
}

impl<'a> TextSerializer<'a> {
    fn bracket(&mut self) -> Written {
        self.room = self.room.checked_sub(1).ok_or(BridgeError::TooDeep)?;
        Ok(())
    }

    /// Opens `{"variant":` around what follows.
    fn tag(&mut self, variant: &'static str) -> Written {
        self.bracket()?;
        self.out.push('{');
        write_string(self.out, variant);
        self.out.push(':');
        Ok(())
    }

    fn list(mut self, variant: Option<&'static str>) -> Result<List<'a>, BridgeError> {
        variant.map_or(Ok(()), |name| self.tag(name))?;
        self.bracket()?;
        self.out.push('[');
        Ok(List { into: self, first: true, tagged: variant.is_some() })
    }

    fn entries(mut self, variant: Option<&'static str>) -> Result<Entries<'a>, BridgeError> {
        variant.map_or(Ok(()), |name| self.tag(name))?;
        self.bracket()?;
        self.out.push('{');
        let begin = self.out.len();
        let tagged = variant.is_some();
        Ok(Entries { into: self, begin, places: Vec::new(), key: None, tagged })
    }

    fn number(self, number: &Number) -> Written {
        number.write_to(self.out);
        Ok(())
    }

    /// What is too rare to be worth a second way of writing it.
    fn by_value<T: Serialize + ?Sized>(self, value: &T) -> Written {
        let value = value.serialize(ValueSerializer { room: self.room })?;
        write_value(self.out, &value);
        Ok(())
    }
}

/// Text on its way into a JSON string.
struct Escaped<'a>(&'a mut String);

impl fmt::Write for Escaped<'_> {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        write_escaped(self.0, text);
        Ok(())
    }
}

impl<'a> Serializer for TextSerializer<'a> {
    type Ok = ();
    type Error = BridgeError;
    type SerializeSeq = List<'a>;
    type SerializeTuple = List<'a>;
    type SerializeTupleStruct = List<'a>;
    type SerializeTupleVariant = List<'a>;
    type SerializeMap = Entries<'a>;
    type SerializeStruct = Entries<'a>;
    type SerializeStructVariant = Entries<'a>;

    fn serialize_bool(self, v: bool) -> Written {
        self.out.push_str(if v { "true" } else { "false" });
        Ok(())
    }

    fn serialize_i8(self, v: i8) -> Written {
        self.serialize_i64(v.into())
    }

    fn serialize_i16(self, v: i16) -> Written {
        self.serialize_i64(v.into())
    }

    fn serialize_i32(self, v: i32) -> Written {
        self.serialize_i64(v.into())
    }

    fn serialize_i64(self, v: i64) -> Written {
        self.number(&v.into())
    }

    fn serialize_i128(self, v: i128) -> Written {
        self.by_value(&v)
    }

    fn serialize_u8(self, v: u8) -> Written {
        self.serialize_u64(v.into())
    }

    fn serialize_u16(self, v: u16) -> Written {
        self.serialize_u64(v.into())
    }

    fn serialize_u32(self, v: u32) -> Written {
        self.serialize_u64(v.into())
    }

    fn serialize_u64(self, v: u64) -> Written {
        self.number(&v.into())
    }

    fn serialize_u128(self, v: u128) -> Written {
        self.by_value(&v)
    }

    fn serialize_f32(self, v: f32) -> Written {
        self.by_value(&v)
    }

    fn serialize_f64(self, v: f64) -> Written {
        let number = Number::from_f64(v).ok_or(BridgeError::NotFinite)?;
        self.number(&number)
    }

    fn serialize_char(self, v: char) -> Written {
        self.serialize_str(v.encode_utf8(&mut [0; 4]))
    }

    fn serialize_str(self, v: &str) -> Written {
        write_string(self.out, v);
        Ok(())
    }

    fn collect_str<T: Display + ?Sized>(self, value: &T) -> Written {
        self.out.push('"');
        write!(Escaped(self.out), "{value}").map_err(|_| not_formatted())?;
        self.out.push('"');
        Ok(())
    }

    fn serialize_bytes(self, _: &[u8]) -> Written {
        Err(BridgeError::Bytes)
    }

    fn serialize_none(self) -> Written {
        self.serialize_unit()
    }

    fn serialize_some<T: Serialize + ?Sized>(self, value: &T) -> Written {
        value.serialize(self)
    }

    fn serialize_unit(self) -> Written {
        self.out.push_str("null");
        Ok(())
    }

    fn serialize_unit_struct(self, _: &'static str) -> Written {
        self.serialize_unit()
    }

    fn serialize_unit_variant(self, _: &'static str, _: u32, variant: &'static str) -> Written {
        self.serialize_str(variant)
    }

    fn serialize_newtype_struct<T: Serialize + ?Sized>(
        self,
        name: &'static str,
        value: &T,
    ) -> Written {
        if name != EXACT_NUMBER {
            return value.serialize(self);
        }
        match value.serialize(ValueSerializer { room: self.room })? {
            Value::String(text) => {
                let number = text.parse::<Number>().map_err(|_| BridgeError::NotExact)?;
                self.number(&number)
            }
            other => {
                write_value(self.out, &other);
                Ok(())
            }
        }
    }

    fn serialize_newtype_variant<T: Serialize + ?Sized>(
        mut self,
        _: &'static str,
        _: u32,
        variant: &'static str,
        value: &T,
    ) -> Written {
        self.tag(variant)?;
        value.serialize(TextSerializer { out: self.out, room: self.room })?;
        self.out.push('}');
        Ok(())
    }

    fn serialize_seq(self, _: Option<usize>) -> Result<List<'a>, BridgeError> {
        self.list(None)
    }

    fn serialize_tuple(self, _: usize) -> Result<List<'a>, BridgeError> {
        self.list(None)
    }

    fn serialize_tuple_struct(self, _: &'static str, _: usize) -> Result<List<'a>, BridgeError> {
        self.list(None)
    }

    fn serialize_tuple_variant(
        self,
        _: &'static str,
        _: u32,
        variant: &'static str,
        _: usize,
    ) -> Result<List<'a>, BridgeError> {
        self.list(Some(variant))
    }

    fn serialize_map(self, _: Option<usize>) -> Result<Entries<'a>, BridgeError> {
        self.entries(None)
    }

    fn serialize_struct(self, _: &'static str, _: usize) -> Result<Entries<'a>, BridgeError> {
        self.entries(None)
    }

    fn serialize_struct_variant(
        self,
        _: &'static str,
        _: u32,
        variant: &'static str,
        _: usize,
    ) -> Result<Entries<'a>, BridgeError> {
        self.entries(Some(variant))
    }
}

/// An array being written.
pub(super) struct List<'a> {
    into: TextSerializer<'a>,
    first: bool,
    tagged: bool,
}

impl List<'_> {
    fn push<T: Serialize + ?Sized>(&mut self, value: &T) -> Written {
        let before = self.into.out.len();
        if !self.first {
            self.into.out.push(',');
        }
        let written = value.serialize(TextSerializer { out: self.into.out, room: self.into.room });
        match &written {
            Ok(()) => self.first = false,
            // A type that goes on after an error leaves this item out.
            Err(_) => self.into.out.truncate(before),
        }
        written
    }

    fn close(self) -> Written {
        self.into.out.push_str(if self.tagged { "]}" } else { "]" });
        Ok(())
    }
}

impl ser::SerializeSeq for List<'_> {
    type Ok = ();
    type Error = BridgeError;

    fn serialize_element<T: Serialize + ?Sized>(&mut self, value: &T) -> Written {
        self.push(value)
    }

    fn end(self) -> Written {
        self.close()
    }
}

impl ser::SerializeTuple for List<'_> {
    type Ok = ();
    type Error = BridgeError;

    fn serialize_element<T: Serialize + ?Sized>(&mut self, value: &T) -> Written {
        self.push(value)
    }

    fn end(self) -> Written {
        self.close()
    }
}

impl ser::SerializeTupleStruct for List<'_> {
    type Ok = ();
    type Error = BridgeError;

    fn serialize_field<T: Serialize + ?Sized>(&mut self, value: &T) -> Written {
        self.push(value)
    }

    fn end(self) -> Written {
        self.close()
    }
}

impl ser::SerializeTupleVariant for List<'_> {
    type Ok = ();
    type Error = BridgeError;

    fn serialize_field<T: Serialize + ?Sized>(&mut self, value: &T) -> Written {
        self.push(value)
    }

    fn end(self) -> Written {
        self.close()
    }
}

/// The key of an entry: a field's name, or a key of a map.
enum Key {
    Field(&'static str),
    Text(String),
}

impl Key {
    fn as_str(&self) -> &str {
        match self {
            Self::Field(name) => name,
            Self::Text(text) => text,
        }
    }
}

/// An object being written: its entries as they come, put in order at its end.
pub(super) struct Entries<'a> {
    into: TextSerializer<'a>,
    /// Where the first entry begins.
    begin: usize,
    /// Each entry's key and text.
    places: Vec<(Key, Range<usize>)>,
    key: Option<String>,
    tagged: bool,
}

impl Entries<'_> {
    fn put<T: Serialize + ?Sized>(&mut self, key: Key, value: &T) -> Written {
        let out = &mut *self.into.out;
        let before = out.len();
        if !self.places.is_empty() {
            out.push(',');
        }
        let begin = out.len();
        write_string(out, key.as_str());
        out.push(':');
        let written = value.serialize(TextSerializer { out, room: self.into.room });
        match &written {
            Ok(()) => self.places.push((key, begin..self.into.out.len())),
            // A type that goes on after an error leaves this entry out.
            Err(_) => self.into.out.truncate(before),
        }
        written
    }

    fn close(mut self) -> Written {
        let order = |left: &(Key, Range<usize>), right: &(Key, Range<usize>)| {
            compare_keys(left.0.as_str(), right.0.as_str())
        };
        // Embedded objects come sorted.
        if !self.places.is_sorted_by(|left, right| order(left, right).is_lt()) {
            self.places.sort_by(order);
            if self.places.windows(2).any(|pair| matches!(pair, [l, r] if order(l, r).is_eq())) {
                return Err(BridgeError::DuplicateKey);
            }
            self.rearrange();
        }
        self.into.out.push_str(if self.tagged { "}}" } else { "}" });
        Ok(())
    }

    /// Writes the entries again in the order of their places.
    fn rearrange(&mut self) {
        let written = self.into.out.split_off(self.begin);
        let mut first = true;
        for (_, place) in &self.places {
            if !std::mem::take(&mut first) {
                self.into.out.push(',');
            }
            let from = place.start.saturating_sub(self.begin);
            let to = place.end.saturating_sub(self.begin);
            self.into.out.push_str(written.get(from..to).unwrap_or_default());
        }
    }
}

impl ser::SerializeMap for Entries<'_> {
    type Ok = ();
    type Error = BridgeError;

    fn serialize_key<T: Serialize + ?Sized>(&mut self, key: &T) -> Written {
        self.key = Some(super::ser::key(key)?);
        Ok(())
    }

    fn serialize_value<T: Serialize + ?Sized>(&mut self, value: &T) -> Written {
        let key = self.key.take().ok_or(BridgeError::Key)?;
        self.put(Key::Text(key), value)
    }

    fn end(self) -> Written {
        self.close()
    }
}

impl ser::SerializeStruct for Entries<'_> {
    type Ok = ();
    type Error = BridgeError;

    fn serialize_field<T: Serialize + ?Sized>(&mut self, key: &'static str, value: &T) -> Written {
        self.put(Key::Field(key), value)
    }

    fn end(self) -> Written {
        self.close()
    }
}

impl ser::SerializeStructVariant for Entries<'_> {
    type Ok = ();
    type Error = BridgeError;

    fn serialize_field<T: Serialize + ?Sized>(&mut self, key: &'static str, value: &T) -> Written {
        self.put(Key::Field(key), value)
    }

    fn end(self) -> Written {
        self.close()
    }
}
