//! Foreign names, texts and values in a sentence of ours: one line, clipped, and the difference of two in view.

use std::fmt::Write as _;

use portcullis_canon::{Digest, Kind, Value, sanitize};

/// How much of a name goes into a sentence.
pub(super) const NAME_BYTES: usize = 80;
/// How much of a text is shown of each side.
const TEXT_BYTES: usize = 160;
/// How much of a value is shown.
const VALUE_BYTES: usize = 60;
/// How much stands before the first difference of two texts.
const BEFORE_CHARS: usize = 24;
/// The most single differences in one sentence.
const MAX_LISTED: usize = 8;

/// A name, safe to print.
pub(crate) fn name(text: &str) -> String {
    sanitize::clip(&sanitize::line(text), NAME_BYTES)
}

/// Names for a person, safe to print, and for the digest that they sign. Where the words are not all of them to the letter, a
/// digest of theirs is there too: so other names are always another text.
pub(crate) fn signed<T: AsRef<str>>(names: &[T], most: usize) -> String {
    let names = || names.iter().map(AsRef::as_ref);
    let shown: Vec<_> = names().map(sanitize::line).collect();
    let words = shown.join("`, `");
    let exact = |(name, shown): (&str, &_)| name == *shown && !name.contains('`');
    if words.len() <= most && names().zip(&shown).all(exact) {
        return format!("`{words}`");
    }
    let all = Value::from(names().map(Value::from).collect::<Vec<_>>());
    let digest = Digest::of_value(Kind::Config, &all);
    format!("`{}` ({} by name, {digest})", sanitize::clip(&words, most), shown.len())
}

/// A text, safe to print, in quotation marks.
pub(crate) fn text(text: &str) -> String {
    from(text, 0)
}

/// A value, safe to print.
fn value(value: &Value) -> String {
    sanitize::clip(&sanitize::line(&value.to_canonical_string()), VALUE_BYTES)
}

/// A part that may be a text, before and after: the place where they part is in view, however long they are.
pub(crate) fn part(old: Option<&Value>, new: Option<&Value>) -> String {
    match (old, new) {
        (Some(Value::String(old)), Some(Value::String(new))) => texts(old, new),
        (None, Some(Value::String(new))) => format!("was not there, is {}", from(new, 0)),
        (Some(Value::String(old)), None) => format!("was {}, is not there", from(old, 0)),
        (Some(old @ Value::Object(_)), Some(new @ Value::Object(_))) => members(old, new),
        (old, new) => {
            let shown = |side: Option<&Value>| side.map_or("not there".to_owned(), value);
            format!("was {}, is {}", shown(old), shown(new))
        }
    }
}

fn texts(old: &str, new: &str) -> String {
    let same = old.chars().zip(new.chars()).take_while(|(a, b)| a == b).count();
    let start = same.saturating_sub(BEFORE_CHARS);
    let (old_bytes, new_bytes) = (old.len(), new.len());
    format!(
        "was {} ({old_bytes} bytes), is {} ({new_bytes} bytes)",
        from(old, start),
        from(new, start)
    )
}

/// A text from a character on, in quotation marks.
fn from(text: &str, start: usize) -> String {
    let rest = text.chars().skip(start).collect::<String>();
    let mark = if start > 0 { sanitize::CLIP_MARKER } else { "" };
    format!("\"{mark}{}\"", sanitize::clip(&sanitize::line(&rest), TEXT_BYTES))
}

/// Two objects, member by member.
fn members(old: &Value, new: &Value) -> String {
    let changed = differing(old, new).map(|(key, old, new)| {
        let shown = |side: Option<&Value>| side.map_or("not there".to_owned(), value);
        format!("`{}` was {}, is {}", name(key), shown(old), shown(new))
    });
    listed(changed, "; ")
}

/// Two schemas: arguments first, then whatever else differs.
pub(super) fn schemas(old: Option<&Value>, new: Option<&Value>) -> String {
    let (Some(old @ Value::Object(_)), Some(new @ Value::Object(_))) = (old, new) else {
        return part(old, new);
    };
    let empty = Value::Object(portcullis_canon::Object::new());
    let side = |schema: &Value| schema.get("properties").unwrap_or(&empty).clone();
    let (before, after) = (side(old), side(new));
    let properties = differing(&before, &after).map(|(key, was, is)| {
        let key = name(key);
        match (was, is) {
            (None, Some(is)) => format!("new `{key}` ({})", kind(is)),
            (Some(_), None) => format!("`{key}` is gone"),
            (Some(was), Some(is)) if kind(was) != kind(is) => {
                format!("`{key}` was {}, is {}", kind(was), kind(is))
            }
            (Some(Value::Object(_)), Some(Value::Object(_))) => {
                let parts = differing(was.unwrap_or(&empty), is.unwrap_or(&empty));
                let keys = parts.map(|(key, ..)| name(key)).take(MAX_LISTED).collect::<Vec<_>>();
                format!("`{key}` differs in {}", keys.join(", "))
            }
            _ => format!("`{key}` differs"),
        }
    });
    let rest =
        differing(old, new).filter(|(key, ..)| *key != "properties").map(|(key, was, is)| {
            let shown = |side: Option<&Value>| side.map_or("not there".to_owned(), value);
            format!("`{}` was {}, is {}", name(key), shown(was), shown(is))
        });
    let odd = (before.as_object().is_none() || after.as_object().is_none())
        .then(|| "`properties` is no object".to_owned());
    listed(properties.chain(rest).chain(odd), "; ")
}

fn kind(schema: &Value) -> String {
    let kind = schema.get("type").and_then(Value::as_str);
    kind.map_or("of no one type".to_owned(), name)
}

/// The members in which two objects differ, with both sides.
fn differing<'a>(
    old: &'a Value,
    new: &'a Value,
) -> impl Iterator<Item = (&'a str, Option<&'a Value>, Option<&'a Value>)> {
    let keys = |side: &'a Value| side.as_object().into_iter().flat_map(|object| object.keys());
    let added = keys(new).filter(|key| old.get(key).is_none());
    let sides = keys(old).chain(added).map(|key| (key, old.get(key), new.get(key)));
    sides.filter(|(_, old, new)| old != new)
}

/// The first items, and how many more there are.
pub(super) fn listed(mut items: impl Iterator<Item = String>, between: &str) -> String {
    let mut out = items.by_ref().take(MAX_LISTED).collect::<Vec<_>>().join(between);
    let more = items.count();
    if more > 0 {
        // Writing to a text cannot fail.
        let _ = write!(out, "{between}and {more} more");
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn other_names_are_always_another_text_to_sign() {
        assert_eq!(signed(&["pay"], 80), "`pay`");
        assert_eq!(signed(&["a", "b"], 80), "`a`, `b`");
        let long = "x".repeat(80);
        assert_eq!(signed(&[&long], 80), format!("`{long}`"));
        let all = [
            signed(&["a", "b"], 80),
            signed(&["a`, `b"], 80),
            signed(&["a\u{200b}"], 80),
            signed(&["a\u{200c}"], 80),
            signed(&[format!("{long}1")], 80),
            signed(&[format!("{long}2")], 80),
        ];
        let different: std::collections::BTreeSet<&String> = all.iter().collect();
        assert_eq!(different.len(), all.len(), "{all:?}");
        assert!(all.iter().all(|text| text.len() < 250), "{all:?}");
    }
}
