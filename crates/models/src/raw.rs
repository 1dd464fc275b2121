//! Pieces of a JSON text, as the bytes that they are written in: what has to be given back byte for byte.
//!
//! Only for texts that `canon::parse` accepted: these scanners trust the grammar and keep to what it looks like.

/// The bytes of the value under `key` in the top-level object of `text`. The key is compared as it is written, so that
/// only keys without escapes are found.
pub(crate) fn member<'t>(text: &'t [u8], key: &str) -> Option<&'t [u8]> {
    let mut at = skip_space(text, 0);
    if text.get(at) != Some(&b'{') {
        return None;
    }
    at = skip_space(text, at.saturating_add(1));
    while text.get(at) == Some(&b'"') {
        let key_end = end_of_value(text, at)?;
        let found = text.get(at.saturating_add(1)..key_end.saturating_sub(1))?;
        at = skip_space(text, key_end);
        if text.get(at) != Some(&b':') {
            return None;
        }
        let begin = skip_space(text, at.saturating_add(1));
        let end = end_of_value(text, begin)?;
        if found == key.as_bytes() {
            return text.get(begin..end);
        }
        at = skip_space(text, end);
        if text.get(at) != Some(&b',') {
            return None;
        }
        at = skip_space(text, at.saturating_add(1));
    }
    None
}

/// The bytes of each item of the array that `text` is.
pub(crate) fn items(text: &[u8]) -> Option<Vec<&[u8]>> {
    let mut at = skip_space(text, 0);
    if text.get(at) != Some(&b'[') {
        return None;
    }
    at = skip_space(text, at.saturating_add(1));
    let mut items = Vec::new();
    while text.get(at) != Some(&b']') {
        let end = end_of_value(text, at)?;
        items.push(text.get(at..end)?);
        at = skip_space(text, end);
        match text.get(at) {
            Some(b',') => at = skip_space(text, at.saturating_add(1)),
            Some(b']') => {}
            _ => return None,
        }
    }
    Some(items)
}

fn skip_space(text: &[u8], mut at: usize) -> usize {
    while text.get(at).is_some_and(|byte| matches!(byte, b' ' | b'\t' | b'\n' | b'\r')) {
        at = at.saturating_add(1);
    }
    at
}

/// Just behind the value that begins at `at`.
fn end_of_value(text: &[u8], at: usize) -> Option<usize> {
    let mut depth = 0_usize;
    let mut in_string = false;
    let mut here = at;
    while let Some(byte) = text.get(here) {
        if in_string {
            match byte {
                b'\\' => here = here.saturating_add(1),
                b'"' => in_string = false,
                _ => {}
            }
        } else {
            match byte {
                b'"' => in_string = true,
                b'[' | b'{' => depth = depth.saturating_add(1),
                b']' | b'}' if depth == 0 => return (here > at).then_some(here),
                b']' | b'}' => depth = depth.saturating_sub(1),
                b',' | b':' | b' ' | b'\t' | b'\n' | b'\r' if depth == 0 => return Some(here),
                _ => {}
            }
        }
        here = here.saturating_add(1);
        if depth == 0 && !in_string && matches!(byte, b'"' | b']' | b'}') {
            return Some(here);
        }
    }
    (depth == 0 && !in_string && here > at).then_some(here)
}

#[cfg(test)]
mod tests {
    use super::*;
    use portcullis_canon::{Limits, Value, parse};
    use proptest::prelude::*;

    #[track_caller]
    fn check(text: &str, key: &str, expected: Option<&str>) {
        let found = member(text.as_bytes(), key).map(|f| std::str::from_utf8(f).expect("utf-8"));
        assert_eq!(found, expected, "{text}");
    }

    #[test]
    fn a_member_is_found_as_it_is_written() {
        check(
            r#"{"a":1,"content": [ {"x":"]}\"\\"} ] ,"b":2}"#,
            "content",
            Some(r#"[ {"x":"]}\"\\"} ]"#),
        );
        check(r#"{"b":{"content":1},"content":1.50}"#, "content", Some("1.50"));
        check(r#" { "content" : "" } "#, "content", Some("\"\""));
        check(r#"{"b":{"content":1}}"#, "content", None);
        check("{}", "content", None);
        check("[]", "content", None);
        check("", "content", None);
    }

    fn json() -> impl Strategy<Value = Value> {
        let leaf = prop_oneof![
            Just(Value::Null),
            any::<bool>().prop_map(Value::from),
            any::<i64>().prop_map(Value::from),
            "[\\x00-\\x7f\u{e9}\u{1f600}]{0,12}".prop_map(Value::from),
        ];
        leaf.prop_recursive(4, 32, 5, |inner| {
            prop_oneof![
                prop::collection::vec(inner.clone(), 0..5).prop_map(Value::from),
                prop::collection::vec(("[a-c\"\\\\{}]{1,3}", inner), 0..5)
                    .prop_map(|entries| Value::Object(entries.into_iter().collect())),
            ]
        })
    }

    proptest! {
        #[test]
        fn pieces_are_the_parts_that_the_parser_sees(value in prop::collection::vec(json(), 0..5)) {
            let text = Value::from(value.clone()).to_canonical();
            let pieces = items(&text).expect("an array");
            let read: Vec<Value> =
                pieces.iter().map(|p| parse(p, &Limits::BARE).expect("a value")).collect();
            prop_assert_eq!(read, value.clone());
            let mut object = portcullis_canon::Object::new();
            object.insert("a", "x");
            object.insert("it", Value::from(value.clone()));
            let text = Value::Object(object).to_canonical();
            let found = member(&text, "it").expect("a member");
            prop_assert_eq!(parse(found, &Limits::BARE).expect("a value"), Value::from(value));
        }

        #[test]
        fn nothing_makes_them_panic(text in "[\\[\\]{}\",:\\\\ a1]{0,40}") {
            let _ = member(text.as_bytes(), "a");
            let _ = items(text.as_bytes());
        }
    }
}
