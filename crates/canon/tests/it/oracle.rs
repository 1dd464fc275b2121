//! Judges that do not share code with what they judge.

use serde::de::{Deserialize, Deserializer, Error as _, MapAccess, SeqAccess, Visitor};
use std::collections::HashSet;
use std::fmt;

/// A character that must never reach a terminal unescaped.
pub(crate) fn forbidden_on_a_line(c: char) -> bool {
    matches!(u32::from(c),
        0..=0x1F | 0x7F..=0x9F | 0xAD | 0x34F | 0x61C | 0x115F | 0x1160 | 0x17B4 | 0x17B5
        | 0x180B..=0x180F | 0x200B..=0x200F | 0x2028..=0x202E | 0x2060..=0x206F | 0x3164 | 0xFEFF
        | 0xFFA0 | 0xFFF0..=0xFFFB | 0x1BCA0..=0x1BCA3 | 0x1D173..=0x1D17A | 0xE0000..=0xE0FFF)
}

/// What another parser finds in a document.
#[derive(Debug, PartialEq)]
pub(crate) enum Finding {
    /// Well-formed, each key once.
    Clean,
    /// Well-formed, and some object repeats a key.
    Repeats,
    /// A number that the other parser cannot hold, so that it stopped there.
    OutOfRange,
    /// Malformed, or a lone surrogate, or too deep for that parser.
    Malformed,
}

/// Reads with `serde_json`, looking out for repeated keys.
pub(crate) fn examine(bytes: &[u8]) -> Finding {
    match serde_json::from_slice::<Members>(bytes) {
        Ok(Members(false)) => Finding::Clean,
        Ok(Members(true)) => Finding::Repeats,
        Err(error) if error.to_string().starts_with("number out of range") => Finding::OutOfRange,
        Err(_) => Finding::Malformed,
    }
}

/// Whether some object in a document repeats a key.
struct Members(bool);

impl<'de> Deserialize<'de> for Members {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(MembersVisitor).map(Members)
    }
}

struct MembersVisitor;

impl<'de> Visitor<'de> for MembersVisitor {
    type Value = bool;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("json")
    }

    fn visit_unit<E>(self) -> Result<bool, E> {
        Ok(false)
    }

    fn visit_bool<E>(self, _: bool) -> Result<bool, E> {
        Ok(false)
    }

    fn visit_i64<E>(self, _: i64) -> Result<bool, E> {
        Ok(false)
    }

    fn visit_u64<E>(self, _: u64) -> Result<bool, E> {
        Ok(false)
    }

    fn visit_f64<E: serde::de::Error>(self, value: f64) -> Result<bool, E> {
        if value.is_finite() { Ok(false) } else { Err(E::custom("infinite")) }
    }

    fn visit_str<E>(self, _: &str) -> Result<bool, E> {
        Ok(false)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<bool, A::Error> {
        let mut repeats = false;
        while let Some(Members(inner)) = items.next_element()? {
            repeats |= inner;
        }
        Ok(repeats)
    }

    fn visit_map<A: MapAccess<'de>>(self, mut entries: A) -> Result<bool, A::Error> {
        let mut keys = HashSet::new();
        let mut repeats = false;
        while let Some((key, Members(inner))) = entries.next_entry::<String, Members>()? {
            repeats |= inner | !keys.insert(key);
        }
        if keys.len() > 1_000_000 { Err(A::Error::custom("too many")) } else { Ok(repeats) }
    }
}

/// Whether our value is what `serde_json` reads, numbers compared as that parser holds them.
pub(crate) fn agrees(ours: &portcullis_canon::Value, theirs: &serde_json::Value) -> bool {
    use portcullis_canon::Value as O;
    use serde_json::Value as T;
    match (ours, theirs) {
        (O::Null, T::Null) => true,
        (O::Bool(a), T::Bool(b)) => a == b,
        (O::String(a), T::String(b)) => a == b,
        (O::Number(a), T::Number(b)) => match (b.as_i64(), b.as_u64(), b.as_f64()) {
            (Some(int), _, _) => a.as_i64() == Some(int),
            (_, Some(int), _) => a.as_u64() == Some(int),
            // Their reading of a decimal may be off by one unit in the last place.
            (_, _, Some(theirs)) => {
                let ours: f64 = a.to_string().parse().unwrap();
                (ours - theirs).abs() <= ours.abs() * 1e-15
                    || (ours - theirs).abs() <= f64::MIN_POSITIVE
            }
            _ => false,
        },
        (O::Array(a), T::Array(b)) => {
            a.len() == b.len() && a.iter().zip(b).all(|(a, b)| agrees(a, b))
        }
        (O::Object(a), T::Object(b)) => {
            a.len() == b.len() && a.iter().all(|(key, a)| b.get(key).is_some_and(|b| agrees(a, b)))
        }
        _ => false,
    }
}
