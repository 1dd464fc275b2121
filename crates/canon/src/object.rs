//! Objects whose entries always stand in canonical key order.

use crate::encode::write_object;
use crate::value::Value;
use std::cmp::Ordering;

/// A JSON object: entries with unique keys, in the order of RFC 8785.
///
/// That order compares keys as UTF-16 code units. It differs from the order of the UTF-8 bytes
/// only where a character beyond U+FFFF meets one from U+E000 to U+FFFF.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Object(Vec<(String, Value)>);

/// Compares two keys as UTF-16 code units, without making any.
pub(crate) fn compare_keys(left: &str, right: &str) -> Ordering {
    let differing = left.bytes().zip(right.bytes()).find(|(l, r)| l != r);
    match differing {
        None => left.len().cmp(&right.len()),
        // First bytes of characters: F0 and above begin surrogate pairs (D800..), EE and EF begin
        // U+E000..U+FFFF, which UTF-16 places after the surrogates.
        Some((0xF0.., 0xEE | 0xEF)) => Ordering::Less,
        Some((0xEE | 0xEF, 0xF0..)) => Ordering::Greater,
        Some((l, r)) => l.cmp(&r),
    }
}

impl Object {
    /// An object without entries.
    #[must_use]
    pub const fn new() -> Self {
        Self(Vec::new())
    }

    fn find(&self, key: &str) -> Result<usize, usize> {
        self.0.binary_search_by(|(own, _)| compare_keys(own, key))
    }

    /// The value under `key`.
    #[must_use]
    pub fn get(&self, key: &str) -> Option<&Value> {
        let index = self.find(key).ok()?;
        self.0.get(index).map(|(_, value)| value)
    }

    /// The value under `key`, to be changed in place.
    pub fn get_mut(&mut self, key: &str) -> Option<&mut Value> {
        let index = self.find(key).ok()?;
        self.0.get_mut(index).map(|(_, value)| value)
    }

    /// Whether there is an entry under `key`.
    #[must_use]
    pub fn contains_key(&self, key: &str) -> bool {
        self.find(key).is_ok()
    }

    /// Puts `value` under `key` and returns what stood there before.
    pub fn insert(&mut self, key: impl Into<String>, value: impl Into<Value>) -> Option<Value> {
        let (key, value) = (key.into(), value.into());
        match self.find(&key) {
            Ok(index) => self.0.get_mut(index).map(|(_, old)| std::mem::replace(old, value)),
            Err(index) => {
                self.0.insert(index, (key, value));
                None
            }
        }
    }

    /// Takes the entry under `key` out and returns its value.
    pub fn remove(&mut self, key: &str) -> Option<Value> {
        let index = self.find(key).ok()?;
        Some(self.0.remove(index).1)
    }

    /// The entries in canonical order.
    pub fn iter(&self) -> Iter<'_> {
        Iter(self.0.iter())
    }

    /// The keys in canonical order.
    pub fn keys(&self) -> impl ExactSizeIterator<Item = &str> {
        self.0.iter().map(|(key, _)| key.as_str())
    }

    /// The values in the canonical order of their keys.
    pub fn values(&self) -> impl ExactSizeIterator<Item = &Value> {
        self.0.iter().map(|(_, value)| value)
    }

    /// The canonical bytes of the object.
    #[must_use]
    pub fn to_canonical(&self) -> Vec<u8> {
        let mut out = String::new();
        write_object(&mut out, self);
        out.into_bytes()
    }

    /// How many entries there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether there are no entries.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Sorts entries as they were read; false when a key stands there twice.
    pub(crate) fn from_read(mut entries: Vec<(String, Value)>) -> (Self, bool) {
        let order = |pair: &[(String, Value)]| match pair {
            [left, right] => compare_keys(&left.0, &right.0),
            _ => Ordering::Less,
        };
        // Our own records arrive sorted, which is worth one look.
        if !entries.windows(2).all(|pair| order(pair) == Ordering::Less) {
            entries.sort_by(|left, right| compare_keys(&left.0, &right.0));
        }
        let unique = entries.windows(2).all(|pair| order(pair) == Ordering::Less);
        (Self(entries), unique)
    }
}

/// The entries of an [`Object`], borrowed, in canonical order.
#[derive(Clone, Debug)]
pub struct Iter<'a>(std::slice::Iter<'a, (String, Value)>);

impl<'a> Iterator for Iter<'a> {
    type Item = (&'a str, &'a Value);

    fn next(&mut self) -> Option<Self::Item> {
        self.0.next().map(|(key, value)| (key.as_str(), value))
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        self.0.size_hint()
    }
}

impl ExactSizeIterator for Iter<'_> {}

impl<'a> IntoIterator for &'a Object {
    type Item = (&'a str, &'a Value);
    type IntoIter = Iter<'a>;

    fn into_iter(self) -> Iter<'a> {
        self.iter()
    }
}

impl IntoIterator for Object {
    type Item = (String, Value);
    type IntoIter = std::vec::IntoIter<(String, Value)>;

    fn into_iter(self) -> Self::IntoIter {
        self.0.into_iter()
    }
}

impl<K: Into<String>, V: Into<Value>> FromIterator<(K, V)> for Object {
    /// Collects entries; of two with one key the later stays.
    fn from_iter<I: IntoIterator<Item = (K, V)>>(entries: I) -> Self {
        let mut entries: Vec<(String, Value)> =
            entries.into_iter().map(|(key, value)| (key.into(), value.into())).collect();
        entries.sort_by(|left, right| compare_keys(&left.0, &right.0));
        // The sort is stable and `dedup` keeps the first of equals, so the later value is
        // swapped forward before its entry goes.
        entries.dedup_by(|later, kept| {
            let same = later.0 == kept.0;
            if same {
                std::mem::swap(later, kept);
            }
            same
        });
        Self(entries)
    }
}
